/* The pinned generator on the device (simd/noise.h), in the common part of CUDA C++ and C++17:
 * nvcc compiles it for noise.cu, a host compiler for the tests. */
#ifndef RKV_CUDA_NOISE_CUH
#define RKV_CUDA_NOISE_CUH

#include "noise.h"

enum { RKV_NOISE_THREADS = 256 };

/* Blocks of RKV_NOISE_THREADS threads that cover n elements; n >= 1. */
static inline unsigned rkv_noise_blocks(int n)
{
    return ((unsigned)n + RKV_NOISE_THREADS - 1) / RKV_NOISE_THREADS;
}

/* out[i] = deviate first + i of the stream, i < n: words and uniforms to the bit those of the CPU,
 * deviates within RKV_NOISE_TOL. One thread per element, one-dimensional blocks. */
static __global__ void rkv_noise_normal_kernel(double *out, uint64_t key, uint64_t first, int n)
{
    const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < (uint64_t)n)
        out[i] = rkv_noise_deviate(key, first + i);
}

#endif
