/* q4_1: 32 weights of 4 bits with scale and minimum, 5 bits per weight.
 * Byte j of qs holds weight j in its low nibble and weight j + 16 in its high one.
 * w = d q + m; the product is exact, the sum is rounded.  Source: ggml, block_q4_1. */
#ifndef RKV_FMT_Q4_1_H
#define RKV_FMT_Q4_1_H

#include "fmt/block.h"

typedef struct rkv_q4_1 {
    uint8_t d[2], m[2]; /* binary16 */
    uint8_t qs[16];
} rkv_q4_1;
_Static_assert(sizeof(rkv_q4_1) == 20, "q4_1");

static inline void rkv_q4_1_decode(float out[32], const rkv_q4_1 *b)
{
    const float d = rkv_half_at(b->d), m = rkv_half_at(b->m);
    for (int j = 0; j < 16; j++) {
        out[j] = d * (float)(b->qs[j] & 15) + m;
        out[j + 16] = d * (float)(b->qs[j] >> 4) + m;
    }
}

#endif
