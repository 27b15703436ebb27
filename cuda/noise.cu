#include "noise.cuh"
#include "runtime.h"

int rkv_cuda_noise_normal(double *out, uint64_t key, uint64_t first, int n)
{
    rkv_noise_normal_kernel<<<rkv_noise_blocks(n), RKV_NOISE_THREADS>>>(out, key, first, n);
    return cudaGetLastError();
}
