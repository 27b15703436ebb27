/* q8_0: 32 signed bytes with one scale, 8.5 bits per weight.
 * w = d q, q in [-128, 127]; the product is exact.  Source: ggml, block_q8_0.
 * Encoding: d is the largest magnitude / 127 rounded to binary16, then q = w / d to nearest even,
 * so that a weight is off by d / 2 at most. A block with a NaN or an infinity becomes NaN. */
#ifndef RKV_FMT_Q8_0_H
#define RKV_FMT_Q8_0_H

#include "fmt/block.h"

typedef struct rkv_q8_0 {
    uint8_t d[2]; /* binary16 */
    int8_t qs[32];
} rkv_q8_0;
_Static_assert(sizeof(rkv_q8_0) == 34, "q8_0");

static inline void rkv_q8_0_decode(float out[32], const rkv_q8_0 *b)
{
    const float d = rkv_half_at(b->d);
    for (int j = 0; j < 32; j++)
        out[j] = d * (float)b->qs[j];
}

static inline void rkv_q8_0_encode(rkv_q8_0 *b, const float in[32])
{
    const rkv_scale_of_block s = rkv_block_scale(rkv_top_bits(in), 127.0f);
    memcpy(b->d, &s.half, sizeof s.half);
    for (int j = 0; j < 32; j++)
        b->qs[j] = (int8_t)rkv_block_code(in[j] * s.inverse, -127, 127);
}

#endif
