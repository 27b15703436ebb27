#include "config.h"
#include "tol.h"

#include <math.h>
#include <stdint.h>

#include "f16.h"

/* Maps floats to integers in their order, one step per float. */
static int64_t rank(float v)
{
    const uint32_t u = rkv_f32_to_bits(v);
    return u >> 31 ? -(int64_t)(u & 0x7fffffff) : (int64_t)u;
}

double tol_ulp(float a, float b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b) ? 0.0 : INFINITY;
    return fabs((double)(rank(a) - rank(b)));
}

double tol_ulp_width(float v)
{
    if (!isfinite(v))
        return 0.0;
    const int exponent = v == 0.0f || fabsf(v) < 0x1p-126f ? -126 : ilogbf(v);
    return ldexp(1.0, exponent - 23);
}

double tol_sum(double n_term, double sum_abs)
{
    return (n_term + 2.0) * (0x1p-24 * sum_abs + 0x1p-149);
}

int tol_within(float got, float want, double bound)
{
    return tol_ulp(got, want) == 0.0 || fabs((double)got - (double)want) <= bound;
}
