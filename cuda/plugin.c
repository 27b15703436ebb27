/* The host side of the plug-in, over the table of runtime.h. Plain C, so that the tests compile it
 * without CUDA. */
#include "backend/cuda_plugin.h"
#include "runtime.h"

#include <stdarg.h>
#include <stdio.h>

static const rkv_cuda_runtime *const cuda = &rkv_cuda_calls;

/* The library's rkv_fail is not exported. */
static rkv_status fail(rkv_error *e, rkv_status s, const char *format, ...)
{
    if (e) {
        e->status = s;
        va_list ap;
        va_start(ap, format);
        vsnprintf(e->text, sizeof e->text, format, ap);
        va_end(ap);
    }
    return s;
}

static rkv_status count_devices(int *n, rkv_error *e)
{
    int driver = 0;
    *n = 0;
    int error = cuda->driver_version(&driver);
    if (error)
        return fail(e, RKV_E_UNSUPPORTED, "CUDA: the driver does not tell its version: %.200s",
                    cuda->error_text(error));
    if (!driver)
        return fail(e, RKV_E_UNSUPPORTED, "CUDA: no driver on this machine");
    error = cuda->device_count(n);
    if (!error && *n > 0)
        return RKV_OK;
    *n = 0;
    if (!error || error == RKV_CUDA_NO_DEVICE)
        return fail(e, RKV_E_UNSUPPORTED,
                    "CUDA: the driver shows no device (CUDA_VISIBLE_DEVICES can hide them)");
    if (error == RKV_CUDA_INSUFFICIENT_DRIVER)
        return fail(e, RKV_E_UNSUPPORTED,
                    "CUDA: the driver serves CUDA %d.%d, this plug-in needs %d.%d; update it",
                    driver / 1000, driver % 1000 / 10, cuda->version / 1000,
                    cuda->version % 1000 / 10);
    return fail(e, RKV_E_UNSUPPORTED, "CUDA: cannot count devices: %.200s",
                cuda->error_text(error));
}

/* The oldest architecture that the plug-in holds code for is sm_80. */
static void device_info(rkv_device_info *out, int device)
{
    rkv_cuda_properties p;
    size_t available = 0, total = 0;
    *out = (rkv_device_info){0};
    int error = cuda->device_properties(&p, device);
    if (error) {
        snprintf(out->trouble, sizeof out->trouble, "cannot read its properties: %.100s",
                 cuda->error_text(error));
        return;
    }
    snprintf(out->name, sizeof out->name, "%.*s", (int)sizeof out->name - 1, p.name);
    out->memory_bytes = p.memory_bytes;
    out->cc_major = p.cc_major;
    out->cc_minor = p.cc_minor;
    if (p.cc_major < 8) {
        snprintf(out->trouble, sizeof out->trouble,
                 "compute capability %d.%d, this plug-in needs 8.0 or newer", p.cc_major,
                 p.cc_minor);
        return;
    }
    error = cuda->set_device(device);
    if (!error)
        error = cuda->mem_info(&available, &total);
    if (error)
        snprintf(out->trouble, sizeof out->trouble, "cannot be used now: %.100s",
                 cuda->error_text(error));
    else
        out->free_bytes = available;
}

static rkv_status noise_normal(double *out, uint64_t key, uint64_t first, int n, int device,
                               rkv_error *e)
{
    if (n < 0)
        return fail(e, RKV_E_ARG, "CUDA: noise of %d elements, expected 0 or more", n);
    int n_device;
    const rkv_status s = count_devices(&n_device, e);
    if (s || n == 0)
        return s;
    const size_t bytes = sizeof *out * (size_t)n;
    void *there = NULL;
    int error = cuda->set_device(device);
    if (!error)
        error = cuda->alloc(&there, bytes);
    if (!error) {
        error = cuda->noise_normal(there, key, first, n);
        if (!error)
            error = cuda->to_host(out, there, bytes);
        const int freed = cuda->release(there);
        if (!error)
            error = freed;
    }
    if (!error)
        return RKV_OK;
    return fail(e, error == RKV_CUDA_NO_MEMORY ? RKV_E_MEM : RKV_E_INTERNAL,
                "CUDA device %d: noise of %d elements (%zu bytes): %.200s", device, n, bytes,
                cuda->error_text(error));
}

const rkv_cuda_plugin rkv_cuda_plugin_v1 = {count_devices, device_info, noise_normal};
