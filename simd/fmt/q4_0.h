/* q4_0: 32 weights of 4 bits with one scale, 4.5 bits per weight.
 * Byte j of qs holds weight j in its low nibble and weight j + 16 in its high one.
 * w = d (q - 8), |w| <= 8 |d|; the product is exact.  Source: ggml, block_q4_0.
 * Encoding: d is the weight of the largest magnitude / -8 rounded to binary16 (of two with either
 * sign the negative one), then q - 8 = w / d to nearest even, at most 7: a weight is off by |d| /
 * 2, or by |d| where it would be 8. A block with a NaN or an infinity becomes NaN. */
#ifndef RKV_FMT_Q4_0_H
#define RKV_FMT_Q4_0_H

#include "fmt/block.h"

typedef struct rkv_q4_0 {
    uint8_t d[2]; /* binary16 */
    uint8_t qs[16];
} rkv_q4_0;
_Static_assert(sizeof(rkv_q4_0) == 18, "q4_0");

static inline void rkv_q4_0_decode(float out[32], const rkv_q4_0 *b)
{
    const float d = rkv_half_at(b->d);
    for (int j = 0; j < 16; j++) {
        out[j] = d * (float)((b->qs[j] & 15) - 8);
        out[j + 16] = d * (float)((b->qs[j] >> 4) - 8);
    }
}

static inline void rkv_q4_0_encode(rkv_q4_0 *b, const float in[32])
{
    const uint32_t top = rkv_top_bits(in);
    rkv_scale_of_block s = rkv_block_scale(top, 8.0f);
    int negative = 0;
    for (int j = 0; j < 32; j++)
        negative |= rkv_f32_to_bits(in[j]) == (top | 0x80000000u);
    if (!negative) {
        s.half ^= 0x8000;
        s.inverse = -s.inverse;
    }
    memcpy(b->d, &s.half, sizeof s.half);
    for (int j = 0; j < 16; j++) {
        const int low = rkv_block_code(in[j] * s.inverse, -8, 7) + 8;
        const int high = rkv_block_code(in[j + 16] * s.inverse, -8, 7) + 8;
        b->qs[j] = (uint8_t)(low | high << 4);
    }
}

#endif
