/* Normal deviates of the pinned generator, one at a time. */
#include "config.h"
#include "kernels.h"

#include <math.h>
#include <string.h>

#include "noise.h"
#include "normal.h"

static uint64_t bits_of(double a)
{
    uint64_t u;
    memcpy(&u, &a, sizeof u);
    return u;
}

static double of_bits(uint64_t u)
{
    double a;
    memcpy(&a, &u, sizeof a);
    return a;
}

/* c[0] + c[1] z + ... */
static double polynomial(const double *c, int n, double z)
{
    double sum = c[n - 1];
    for (int i = n - 2; i >= 0; i--)
        sum = sum * z + c[i];
    return sum;
}

static double log_of(double u)
{
    static const double terms[] = RKV_LOG_TERMS;
    const uint64_t shifted = bits_of(u) + RKV_TO_ONE;
    const double k = (double)(int)(shifted >> 52) - 1023.0;
    const double f = of_bits((shifted & 0xfffffffffffff) + RKV_ROOT_HALF) - 1.0;
    const double s = f / (2.0 + f), z = s * s;
    const double r = z * polynomial(terms, 7, z);
    return k * RKV_LN2_HI + (f - (s * (f - r) - k * RKV_LN2_LO));
}

static double cos_of(double x)
{
    static const double sin_terms[] = RKV_SIN_TERMS, cos_terms[] = RKV_COS_TERMS;
    const double rounded = x * RKV_2_OVER_PI + RKV_ROUNDER;
    const double k = rounded - RKV_ROUNDER;
    const double r = x - k * RKV_HALF_PI_1 - k * RKV_HALF_PI_2 - k * RKV_HALF_PI_3, z = r * r;
    const double half = 0.5 * z, rest = 1.0 - half;
    const double sine = r + r * z * polynomial(sin_terms, 6, z);
    const double cosine = rest + (1.0 - rest - half + z * z * polynomial(cos_terms, 6, z));
    const unsigned quarter = (unsigned)bits_of(rounded) & 3;
    const double value = quarter & 1 ? sine : cosine;
    return quarter == 1 || quarter == 2 ? -value : value;
}

void rkv_normal_f32_ref(double *out, uint64_t key, uint64_t first, int n)
{
    for (int i = 0; i < n; i++) {
        const uint64_t j = 2 * (first + (uint64_t)i);
        const double radius = sqrt(-2.0 * log_of(rkv_noise_uniform(key, j)));
        out[i] = radius * cos_of(RKV_TWO_PI * rkv_noise_uniform(key, j + 1));
    }
}
