/* The table of runtime.h over the runtime that the plug-in links statically. That runtime loads the
 * driver when it is first called, so the plug-in itself loads on machines without one. */
#include "runtime.h"

#include <cuda_runtime_api.h>
#include <string.h>

static_assert((int)cudaErrorInsufficientDriver == RKV_CUDA_INSUFFICIENT_DRIVER, "runtime.h");
static_assert((int)cudaErrorMemoryAllocation == RKV_CUDA_NO_MEMORY, "runtime.h");
static_assert((int)cudaErrorNoDevice == RKV_CUDA_NO_DEVICE, "runtime.h");

static int driver_version(int *version)
{
    return cudaDriverGetVersion(version);
}

static int device_count(int *n)
{
    return cudaGetDeviceCount(n);
}

static int device_properties(rkv_cuda_properties *out, int device)
{
    cudaDeviceProp p;
    const int error = cudaGetDeviceProperties(&p, device);
    if (error)
        return error;
    static_assert(sizeof out->name == sizeof p.name, "cudaDeviceProp.name");
    memcpy(out->name, p.name, sizeof p.name);
    out->memory_bytes = p.totalGlobalMem;
    out->cc_major = p.major;
    out->cc_minor = p.minor;
    return 0;
}

static int set_device(int device)
{
    return cudaSetDevice(device);
}

static int mem_info(size_t *available, size_t *total)
{
    return cudaMemGetInfo(available, total);
}

static int alloc(void **p, size_t bytes)
{
    return cudaMalloc(p, bytes);
}

static int release(void *p)
{
    return cudaFree(p);
}

static int to_host(void *dst, const void *src, size_t bytes)
{
    return cudaMemcpy(dst, src, bytes, cudaMemcpyDeviceToHost);
}

static const char *error_text(int error)
{
    return cudaGetErrorString((cudaError_t)error);
}

const rkv_cuda_runtime rkv_cuda_calls = {
    CUDART_VERSION, driver_version, device_count,          device_properties,
    set_device,     mem_info,       alloc,                 release,
    to_host,        rkv_cuda_noise_normal, error_text,
};
