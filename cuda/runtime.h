/* The calls of the CUDA runtime that the plug-in makes, as a table: runtime.cu fills it with the
 * real ones, a test with recording ones that can be told to fail. The names are those of the
 * runtime without "cuda"; the documentation is the vendor's. Each returns 0 or an error number. */
#ifndef RKV_CUDA_RUNTIME_H
#define RKV_CUDA_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

/* Errors that the plug-in tells apart (CUDA Runtime API, enum cudaError). */
enum { RKV_CUDA_NO_MEMORY = 2, RKV_CUDA_INSUFFICIENT_DRIVER = 35, RKV_CUDA_NO_DEVICE = 100 };

typedef struct rkv_cuda_properties {
    char name[256];
    uint64_t memory_bytes;
    int cc_major, cc_minor;
} rkv_cuda_properties;

typedef struct rkv_cuda_runtime {
    int version;                                /* of this runtime: 13000 is 13.0 */
    int (*driver_version)(int *version);        /* the newest runtime it serves; 0: no driver */
    int (*device_count)(int *n);
    int (*device_properties)(rkv_cuda_properties *out, int device);
    int (*set_device)(int device);
    int (*mem_info)(size_t *available, size_t *total);
    int (*alloc)(void **p, size_t bytes);
    int (*release)(void *p);
    int (*to_host)(void *dst, const void *src, size_t bytes);   /* waits for the kernels before */
    int (*noise_normal)(double *out, uint64_t key, uint64_t first, int n);  /* launch, n >= 1 */
    const char *(*error_text)(int error);
} rkv_cuda_runtime;

#ifdef __cplusplus
extern "C" {
#endif
extern const rkv_cuda_runtime rkv_cuda_calls;

/* Launcher of noise.cu: the kernel of noise.cuh on the current device. */
int rkv_cuda_noise_normal(double *out, uint64_t key, uint64_t first, int n);
#ifdef __cplusplus
}
#endif

#endif
