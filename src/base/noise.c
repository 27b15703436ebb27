#include "config.h"
#include "base/noise.h"

#include <math.h>

void rkv_noise_normal(double *out, uint64_t key, uint64_t first, int n)
{
    const double two_pi = 6.283185307179586476925;
    for (int i = 0; i < n; i++) {
        const uint64_t j = 2 * (first + (uint64_t)i);
        const double radius = sqrt(-2.0 * log(rkv_noise_uniform(key, j)));
        out[i] = radius * cos(two_pi * rkv_noise_uniform(key, j + 1));
    }
}
