/* The scale of a block of numbers that are rounded to 16 bits (op pack_int16), for every tier. */
#ifndef RKV_INT16_H
#define RKV_INT16_H

#include <math.h>

enum { RKV_INT16_BLOCK = 256 }; /* numbers of a block, at most */

/* Scale of a block whose squares add up to `square`, and its inverse; NaN and 0 when they do to no
 * finite number.
 *
 * Why RKV_INT16_NORM: times the inverse the block has a norm of 32750 (1 + 2^-22) at most. Rounding
 * moves each number by 1/2 at most, and 256 of them by a vector of norm 8, so that the integers'
 * norm is below 32767. Each of them then fits 16 bits; and by Cauchy and Schwarz the sum of the
 * products with another block, or with any part of it, is below 32767^2 < 2^30. */
static inline float rkv_int16_scale(double square, float *inverse)
{
    enum { RKV_INT16_NORM = 32750 };
    if (!(square < (double)INFINITY)) {
        *inverse = 0.0f;
        return NAN;
    }
    const double norm = fmax(sqrt(square), 0x1p-100);
    *inverse = (float)(RKV_INT16_NORM / norm);
    return (float)(norm / RKV_INT16_NORM);
}

#endif
