#include "config.h"
#include "base/noise.h"

void rkv_noise_normal(double *out, uint64_t key, uint64_t first, int n)
{
    for (int i = 0; i < n; i++)
        out[i] = rkv_noise_deviate(key, first + (uint64_t)i);
}
