/* q2_k: 256 weights of 2 bits in 16 sub-blocks of 16, 2.625 bits per weight.
 * Byte s of scales: scale of sub-block s in the low nibble, minimum in the high one. Weight
 * 128 n + 32 r + j (n < 2, r < 4, j < 32) is bits 2r, 2r + 1 of qs[32 n + j].
 * w = (d scale) q - (dmin minimum); both products are exact, the difference is rounded.
 * Source: ggml, k-quants (llama.cpp pull request 1684), block_q2_K. */
#ifndef RKV_FMT_Q2_K_H
#define RKV_FMT_Q2_K_H

#include "fmt/block.h"

typedef struct rkv_q2_k {
    uint8_t scales[16];
    uint8_t qs[64];
    uint8_t d[2], dmin[2]; /* binary16 */
} rkv_q2_k;
_Static_assert(sizeof(rkv_q2_k) == 84, "q2_k");

static inline void rkv_q2_k_decode(float out[256], const rkv_q2_k *b)
{
    const float d = rkv_half_at(b->d), dmin = rkv_half_at(b->dmin);
    for (int i = 0; i < 256; i++) {
        const int n = i / 128, r = i / 32 % 4, j = i % 32, s = i / 16;
        const float dl = d * (float)(b->scales[s] & 15), ml = dmin * (float)(b->scales[s] >> 4);
        out[i] = dl * (float)(b->qs[32 * n + j] >> 2 * r & 3) - ml;
    }
}

#endif
