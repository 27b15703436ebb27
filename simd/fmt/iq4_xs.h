/* iq4_xs: 256 weights of 4 bits in 8 sub-blocks of 32 that name values of iq4_nl's table, 4.25 bits
 * per weight. The nibbles of sub-block s lie in qs[16 s .. 16 s + 15] as in q4_0. The 8 scales have
 * 6 bits, offset 32: the low four of scale s are a nibble of scales_l[s / 2] (low for even s), the
 * high two are bits 2s, 2s + 1 of the 16-bit scales_h. w = (d (scale - 32)) value[q]; both products
 * are exact.  Source: ggml, block_iq4_xs. */
#ifndef RKV_FMT_IQ4_XS_H
#define RKV_FMT_IQ4_XS_H

#include "fmt/iq4_nl.h"

typedef struct rkv_iq4_xs {
    uint8_t d[2]; /* binary16 */
    uint8_t scales_h[2];
    uint8_t scales_l[4];
    uint8_t qs[128];
} rkv_iq4_xs;
_Static_assert(sizeof(rkv_iq4_xs) == 136, "iq4_xs");

static inline void rkv_iq4_xs_decode(float out[256], const rkv_iq4_xs *b)
{
    const float d = rkv_half_at(b->d);
    for (int s = 0; s < 8; s++) {
        const int low = b->scales_l[s / 2] >> 4 * (s % 2) & 15;
        const int high = rkv_u16_at(b->scales_h) >> 2 * s & 3;
        const float dl = d * (float)((low | high << 4) - 32);
        for (int j = 0; j < 16; j++) {
            out[32 * s + j] = dl * rkv_iq4_value(b->qs[16 * s + j] & 15);
            out[32 * s + j + 16] = dl * rkv_iq4_value(b->qs[16 * s + j] >> 4);
        }
    }
}

#endif
