/* q3_k: 256 weights of 3 bits in 16 sub-blocks of 16, 3.4375 bits per weight.
 * The low two bits lie in qs as in q2_k; bit i / 32 of hmask[i % 32] is the third bit of weight i.
 * The 16 scales have 6 bits, offset 32: the low four of scale s are a nibble of scales[s % 8] (low
 * for s < 8), the high two are bits 2 (s / 4), 2 (s / 4) + 1 of scales[8 + s % 4]. w = (d (scale -
 * 32)) (q - 4); both products are exact. Source: ggml, k-quants (llama.cpp pull request 1684),
 * block_q3_K. */
#ifndef RKV_FMT_Q3_K_H
#define RKV_FMT_Q3_K_H

#include "fmt/block.h"

typedef struct rkv_q3_k {
    uint8_t hmask[32];
    uint8_t qs[64];
    uint8_t scales[12];
    uint8_t d[2]; /* binary16 */
} rkv_q3_k;
_Static_assert(sizeof(rkv_q3_k) == 110, "q3_k");

static inline void rkv_q3_k_decode(float out[256], const rkv_q3_k *b)
{
    const float d = rkv_half_at(b->d);
    for (int i = 0; i < 256; i++) {
        const int n = i / 128, r = i / 32 % 4, j = i % 32, s = i / 16;
        const int low = b->scales[s % 8] >> (s < 8 ? 0 : 4) & 15;
        const int high = b->scales[8 + s % 4] >> 2 * (s / 4) & 3;
        const int q = (b->qs[32 * n + j] >> 2 * r & 3) | (b->hmask[j] >> i / 32 & 1) << 2;
        out[i] = d * (float)((low | high << 4) - 32) * (float)(q - 4);
    }
}

#endif
