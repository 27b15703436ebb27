/* iq4_nl: 32 weights of 4 bits that name a value of a fixed table, 4.5 bits per weight.
 * The nibbles lie as in q4_0. w = d value[q]; the product is exact.
 * Source: ggml, block_iq4_nl and kvalues_iq4nl. */
#ifndef RKV_FMT_IQ4_NL_H
#define RKV_FMT_IQ4_NL_H

#include "fmt/block.h"

#define RKV_IQ4_VALUES -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113

typedef struct rkv_iq4_nl {
    uint8_t d[2]; /* binary16 */
    uint8_t qs[16];
} rkv_iq4_nl;
_Static_assert(sizeof(rkv_iq4_nl) == 18, "iq4_nl");

/* Value of nibble q. */
static inline float rkv_iq4_value(int q)
{
    static const int8_t value[16] = {RKV_IQ4_VALUES};
    return (float)value[q];
}

static inline void rkv_iq4_nl_decode(float out[32], const rkv_iq4_nl *b)
{
    const float d = rkv_half_at(b->d);
    for (int j = 0; j < 16; j++) {
        out[j] = d * rkv_iq4_value(b->qs[j] & 15);
        out[j + 16] = d * rkv_iq4_value(b->qs[j] >> 4);
    }
}

#endif
