#include "recorder.h"
#include "runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULTS \
    {.driver = 13000, .n_device = 2, .cc_major = 9, .room = (size_t)1 << 30, .device = -1}
enum { INVALID_VALUE = 1, NO_MEMORY = 2, INVALID_DEVICE = 101, GUARD = 64 };

recorder_state recorder = DEFAULTS;

int recorder_n_live(void)
{
    int n = 0;
    for (int i = 0; i < RECORDER_MAX_BLOCK; i++)
        n += recorder.block[i].data != NULL;
    return n;
}

void recorder_reset(void)
{
    for (int i = 0; i < RECORDER_MAX_BLOCK; i++)
        free(recorder.block[i].data);
    recorder = (recorder_state)DEFAULTS;
}

static int misuse(void)
{
    recorder.n_misuse++;
    return INVALID_VALUE;
}

/* Every call comes through here: counts it; the error that it shall give, or 0. */
static int enter(void)
{
    static int asked;
    const char *play = asked++ ? NULL : getenv("RKV_RECORDER");
    if (play)
        sscanf(play, "%d %d %d %d %d", &recorder.driver, &recorder.n_device, &recorder.cc_major,
               &recorder.fail_at, &recorder.fail_with);
    return ++recorder.n_call == recorder.fail_at ? recorder.fail_with : 0;
}

static int driver_version(int *version)
{
    const int error = enter();
    if (!error)
        *version = recorder.driver;
    return error;
}

static int device_count(int *n)
{
    const int error = enter();
    if (error)
        return error;
    if (recorder.driver < rkv_cuda_calls.version)
        return RKV_CUDA_INSUFFICIENT_DRIVER;
    if (recorder.n_device == 0)
        return RKV_CUDA_NO_DEVICE;
    *n = recorder.n_device;
    return 0;
}

static int device_properties(rkv_cuda_properties *out, int device)
{
    const int error = enter();
    if (error)
        return error;
    if (device < 0 || device >= recorder.n_device)
        return INVALID_DEVICE;
    *out = (rkv_cuda_properties){.memory_bytes = UINT64_C(80) << 30, .cc_major = recorder.cc_major};
    memset(out->name, 'x', sizeof out->name - 1);       /* as long as it may be */
    memcpy(out->name, "Recorder", 8);
    out->name[8] = (char)('0' + device);
    return 0;
}

static int set_device(int device)
{
    const int error = enter();
    if (error)
        return error;
    if (device < 0 || device >= recorder.n_device)
        return INVALID_DEVICE;
    recorder.device = device;
    return 0;
}

static int mem_info(size_t *available, size_t *total)
{
    const int error = enter();
    if (error)
        return error;
    if (recorder.device < 0)
        return misuse();
    *available = ((size_t)40 << 30) + (size_t)recorder.device;
    *total = (size_t)80 << 30;
    return 0;
}

/* New memory holds NaNs, and a guard of 0xff behind. */
static int alloc(void **p, size_t bytes)
{
    const int error = enter();
    if (error)
        return error;
    int i = 0;
    while (i < RECORDER_MAX_BLOCK && recorder.block[i].data)
        i++;
    if (recorder.device < 0 || bytes == 0 || i == RECORDER_MAX_BLOCK)
        return misuse();
    unsigned char *data = bytes > recorder.room ? NULL : malloc(bytes + GUARD);
    if (!data)
        return NO_MEMORY;
    memset(data, 0xff, bytes + GUARD);
    recorder.block[i].data = data;
    recorder.block[i].bytes = bytes;
    recorder.n_alloc++;
    *p = data;
    return 0;
}

/* The live block that holds bytes from p on; -1: none. */
static int block_of(const void *p, size_t bytes)
{
    for (int i = 0; i < RECORDER_MAX_BLOCK; i++)
        if (recorder.block[i].data && p == recorder.block[i].data &&
            bytes <= recorder.block[i].bytes)
            return i;
    return -1;
}

static int release(void *p)
{
    const int i = block_of(p, 0);
    if (i < 0)
        return misuse();
    for (size_t k = 0; k < GUARD; k++)
        recorder.n_misuse += recorder.block[i].data[recorder.block[i].bytes + k] != 0xff;
    free(recorder.block[i].data);
    recorder.block[i].data = NULL;
    return enter();             /* a failing release has released, as the runtime's */
}

static int to_host(void *dst, const void *src, size_t bytes)
{
    const int error = enter();
    if (error)
        return error;
    if (!dst || block_of(src, bytes) < 0)
        return misuse();
    memcpy(dst, src, bytes);
    return 0;
}

static int noise_normal(double *out, uint64_t key, uint64_t first, int n)
{
    const int error = enter();
    if (error)
        return error;
    if (n < 1 || block_of(out, sizeof *out * (size_t)n) < 0)
        return misuse();
    recorder.n_launch++;
    return recorder.noise_normal ? recorder.noise_normal(out, key, first, n) : 0;
}

static const char *error_text(int error)
{
    static char text[32];
    snprintf(text, sizeof text, "error %d", error);
    return text;
}

const rkv_cuda_runtime rkv_cuda_calls = {
    13000, driver_version, device_count, device_properties, set_device, mem_info,
    alloc, release,        to_host,      noise_normal,      error_text,
};
