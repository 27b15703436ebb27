#include "simt.h"
#include "noise.cuh"

#include "kernels.h"

int host_noise_normal(double *out, uint64_t key, uint64_t first, int n)
{
    return simt_launch(rkv_noise_blocks(n), RKV_NOISE_THREADS,
                       [=] { rkv_noise_normal_kernel(out, key, first, n); });
}

uint64_t host_noise_key(uint64_t example, uint64_t seed, uint64_t layer)
{
    return rkv_noise_key(example, seed, layer);
}

uint64_t host_noise_word(uint64_t key, uint64_t j)
{
    return rkv_noise_word(key, j);
}

double host_noise_uniform(uint64_t key, uint64_t j)
{
    return rkv_noise_uniform(key, j);
}
