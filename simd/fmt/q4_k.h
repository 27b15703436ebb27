/* q4_k: 256 weights of 4 bits in 8 sub-blocks of 32, 4.5 bits per weight.
 * Byte 32 c + j of qs holds weight 64 c + j in its low nibble and weight 64 c + 32 + j in its high
 * one. The 8 scales and 8 minima have 6 bits; sub-block s < 4 has them in the low bits of scales[s]
 * and scales[s + 4], s >= 4 has four bits in the nibbles of scales[s + 4] (scale low, minimum high)
 * and two in the top of scales[s - 4] and scales[s]. w = (d scale) q - (dmin minimum); both
 * products are exact, the difference is rounded. Source: ggml, k-quants (llama.cpp pull request
 * 1684), block_q4_K. */
#ifndef RKV_FMT_Q4_K_H
#define RKV_FMT_Q4_K_H

#include "fmt/block.h"

typedef struct rkv_q4_k {
    uint8_t d[2], dmin[2]; /* binary16 */
    uint8_t scales[12];
    uint8_t qs[128];
} rkv_q4_k;
_Static_assert(sizeof(rkv_q4_k) == 144, "q4_k");

/* Scale and minimum of sub-block s, of q4_k and q5_k. */
static inline void rkv_q4_k_scale(int *scale, int *min, const uint8_t scales[12], int s)
{
    if (s < 4) {
        *scale = scales[s] & 63;
        *min = scales[s + 4] & 63;
    } else {
        *scale = (scales[s + 4] & 15) | scales[s - 4] >> 6 << 4;
        *min = scales[s + 4] >> 4 | scales[s] >> 6 << 4;
    }
}

static inline void rkv_q4_k_decode(float out[256], const rkv_q4_k *b)
{
    const float d = rkv_half_at(b->d), dmin = rkv_half_at(b->dmin);
    for (int s = 0; s < 8; s++) {
        int scale, min;
        rkv_q4_k_scale(&scale, &min, b->scales, s);
        const float dl = d * (float)scale, ml = dmin * (float)min;
        for (int j = 0; j < 32; j++)
            out[32 * s + j] = dl * (float)(b->qs[s / 2 * 32 + j] >> 4 * (s % 2) & 15) - ml;
    }
}

#endif
