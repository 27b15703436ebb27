/* q5_0: 32 weights of 5 bits with one scale, 5.5 bits per weight.
 * The low four bits lie as in q4_0; bit i of the 32-bit qh is the fifth bit of weight i.
 * w = d (q - 16), |w| <= 16 |d|; the product is exact.  Source: ggml, block_q5_0. */
#ifndef RKV_FMT_Q5_0_H
#define RKV_FMT_Q5_0_H

#include "fmt/block.h"

typedef struct rkv_q5_0 {
    uint8_t d[2]; /* binary16 */
    uint8_t qh[4];
    uint8_t qs[16];
} rkv_q5_0;
_Static_assert(sizeof(rkv_q5_0) == 22, "q5_0");

static inline void rkv_q5_0_decode(float out[32], const rkv_q5_0 *b)
{
    const float d = rkv_half_at(b->d);
    const uint32_t qh = rkv_u32_at(b->qh);
    for (int j = 0; j < 16; j++) {
        const int lo = (b->qs[j] & 15) | (int)(qh >> j & 1) << 4;
        const int hi = b->qs[j] >> 4 | (int)(qh >> (j + 16) & 1) << 4;
        out[j] = d * (float)(lo - 16);
        out[j + 16] = d * (float)(hi - 16);
    }
}

#endif
