/* q5_k: 256 weights of 5 bits in 8 sub-blocks of 32, 5.5 bits per weight.
 * Scales, minima and the low four bits lie as in q4_k; bit s of qh[j] is the fifth bit of weight
 * 32 s + j.
 * w = (d scale) q - (dmin minimum); both products are exact, the difference is rounded.
 * Source: ggml, k-quants (llama.cpp pull request 1684), block_q5_K. */
#ifndef RKV_FMT_Q5_K_H
#define RKV_FMT_Q5_K_H

#include "fmt/q4_k.h"

typedef struct rkv_q5_k {
    uint8_t d[2], dmin[2]; /* binary16 */
    uint8_t scales[12];
    uint8_t qh[32];
    uint8_t qs[128];
} rkv_q5_k;
_Static_assert(sizeof(rkv_q5_k) == 176, "q5_k");

static inline void rkv_q5_k_decode(float out[256], const rkv_q5_k *b)
{
    const float d = rkv_half_at(b->d), dmin = rkv_half_at(b->dmin);
    for (int s = 0; s < 8; s++) {
        int scale, min;
        rkv_q4_k_scale(&scale, &min, b->scales, s);
        const float dl = d * (float)scale, ml = dmin * (float)min;
        for (int j = 0; j < 32; j++) {
            const int q = (b->qs[s / 2 * 32 + j] >> 4 * (s % 2) & 15) | (b->qh[j] >> s & 1) << 4;
            out[32 * s + j] = dl * (float)q - ml;
        }
    }
}

#endif
