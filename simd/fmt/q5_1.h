/* q5_1: 32 weights of 5 bits with scale and minimum, 6 bits per weight.
 * The low four bits lie as in q4_1; bit i of the 32-bit qh is the fifth bit of weight i.
 * w = d q + m; the product is exact, the sum is rounded.  Source: ggml, block_q5_1. */
#ifndef RKV_FMT_Q5_1_H
#define RKV_FMT_Q5_1_H

#include "fmt/block.h"

typedef struct rkv_q5_1 {
    uint8_t d[2], m[2]; /* binary16 */
    uint8_t qh[4];
    uint8_t qs[16];
} rkv_q5_1;
_Static_assert(sizeof(rkv_q5_1) == 24, "q5_1");

static inline void rkv_q5_1_decode(float out[32], const rkv_q5_1 *b)
{
    const float d = rkv_half_at(b->d), m = rkv_half_at(b->m);
    const uint32_t qh = rkv_u32_at(b->qh);
    for (int j = 0; j < 16; j++) {
        const int lo = (b->qs[j] & 15) | (int)(qh >> j & 1) << 4;
        const int hi = b->qs[j] >> 4 | (int)(qh >> (j + 16) & 1) << 4;
        out[j] = d * (float)lo + m;
        out[j + 16] = d * (float)hi + m;
    }
}

#endif
