/* q8_0: 32 signed bytes with one scale, 8.5 bits per weight.
 * w = d q, q in [-128, 127]; the product is exact.  Source: ggml, block_q8_0. */
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

#endif
