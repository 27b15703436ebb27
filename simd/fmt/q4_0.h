/* q4_0: 32 weights of 4 bits with one scale, 4.5 bits per weight.
 * Byte j of qs holds weight j in its low nibble and weight j + 16 in its high one.
 * w = d (q - 8), |w| <= 8 |d|; the product is exact.  Source: ggml, block_q4_0. */
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

#endif
