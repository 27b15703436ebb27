/* What the block formats share: fields are bytes, so that a block may lie at any address. */
#ifndef RKV_FMT_BLOCK_H
#define RKV_FMT_BLOCK_H

#include <stdint.h>
#include <string.h>

#include "f16.h"

/* 16-bit and 32-bit fields; the files and every machine we build for are little-endian. */
static inline uint16_t rkv_u16_at(const uint8_t *p)
{
    uint16_t u;
    memcpy(&u, p, sizeof u);
    return u;
}

static inline uint32_t rkv_u32_at(const uint8_t *p)
{
    uint32_t u;
    memcpy(&u, p, sizeof u);
    return u;
}

/* A binary16 field. */
static inline float rkv_half_at(const uint8_t *p)
{
    return rkv_f16_to_f32(rkv_u16_at(p));
}

/* ---- encoding; written so that compilers turn the loops into vectors ---- */

/* Largest magnitude of 32 numbers, as bits: these order like the magnitudes, infinity and NaN last.
 */
static inline uint32_t rkv_top_bits(const float in[32])
{
    uint32_t top = 0;
    for (int j = 0; j < 32; j++) {
        const uint32_t u = rkv_f32_to_bits(in[j]) & 0x7fffffffu;
        top = u > top ? u : top;
    }
    return top;
}

typedef struct rkv_scale_of_block {
    uint16_t half; /* the scale as it is stored: binary16, a NaN for numbers that are not finite */
    float inverse; /* of that scale; 0 where it is 0 or no number */
} rkv_scale_of_block;

/* The scale that makes magnitudes up to the one with these bits codes up to most. Those beyond the
 * range of binary16 get its largest number. */
static inline rkv_scale_of_block rkv_block_scale(uint32_t top, float most)
{
    const float want = rkv_f32_from_bits(top) / most;
    if (top >= 0x7f800000u)
        return (rkv_scale_of_block){0x7e00, 0.0f};
    const uint16_t half = rkv_f32_to_f16(want < 65504.0f ? want : 65504.0f);
    return (rkv_scale_of_block){half, half ? 1.0f / rkv_f16_to_f32(half) : 0.0f};
}

/* x to the nearest integer, ties to even, within [low, high]; a NaN gives low. Adding 1.5 2^23
 * leaves the integer in the low bits of the sum. */
static inline int rkv_block_code(float x, int low, int high)
{
    const float floor = (float)low, top = (float)high;
    const float kept = x > floor ? x < top ? x : top : floor;
    const uint32_t sum = rkv_f32_to_bits(kept + 0x1.8p23f);
    return (int)(sum - 0x4b400000u);
}

#endif
