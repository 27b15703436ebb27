/* Half precision and bfloat16 to and from float, scalar, portable and exact.
 * Source: IEEE 754-2019 binary16; bfloat16 is the upper half of binary32. */
#ifndef RKV_F16_H
#define RKV_F16_H

#include <stdint.h>
#include <string.h>

static inline float rkv_f32_from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline uint32_t rkv_f32_to_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

/* Exact for every input; a NaN keeps its payload and becomes quiet. */
static inline float rkv_f16_to_f32(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    const uint32_t mag = h & 0x7fff;
    if (mag >= 0x7c00) {                        /* infinity or NaN */
        const uint32_t quiet = mag > 0x7c00 ? 0x400000 : 0;
        return rkv_f32_from_bits(sign | 0x7f800000 | quiet | (mag & 0x3ff) << 13);
    }
    if (mag >= 0x400)                           /* normal: rebias 15 to 127 */
        return rkv_f32_from_bits(sign | ((mag << 13) + ((127 - 15) << 23)));
    const float tiny = (float)mag * 0x1p-24f;   /* subnormal or zero */
    return sign ? -tiny : tiny;
}

/* Round to nearest, ties to even; overflow gives infinity; a NaN becomes quiet (as F16C does). */
static inline uint16_t rkv_f32_to_f16(float f)
{
    const uint32_t u = rkv_f32_to_bits(f), mag = u & 0x7fffffff;
    const uint16_t sign = (uint16_t)(u >> 16 & 0x8000);
    if (mag > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (mag >> 13 & 0x3ff));
    if (mag >= 0x477ff000)                      /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (mag >= 0x38800000) {                    /* normal half */
        const uint32_t rebased = mag - ((127 - 15) << 23);
        return (uint16_t)(sign | (rebased + 0xfff + (rebased >> 13 & 1)) >> 13);
    }
    /* Subnormal half: adding 0.5 leaves its rounded mantissa, in units of 2^-24, lowest. */
    const float shifted = rkv_f32_from_bits(mag) + 0.5f;
    return (uint16_t)(sign | (rkv_f32_to_bits(shifted) - 0x3f000000));
}

static inline float rkv_bf16_to_f32(uint16_t b)
{
    return rkv_f32_from_bits((uint32_t)b << 16);
}

/* Round to nearest, ties to even; a NaN becomes quiet. */
static inline uint16_t rkv_f32_to_bf16(float f)
{
    const uint32_t u = rkv_f32_to_bits(f);
    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

#endif
