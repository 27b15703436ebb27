/* q6_k: 256 weights of 6 bits in 16 sub-blocks of 16, 6.5625 bits per weight.
 * Weight 128 n + 32 r + j (n < 2, r < 4, j < 32): low four bits in ql[64 n + 32 (r % 2) + j], the
 * low nibble for r < 2; high two are bits 2r, 2r + 1 of qh[32 n + j]. Scales are signed bytes. w =
 * (d scale) (q - 32); both products are exact. Source: ggml, k-quants (llama.cpp pull request
 * 1684), block_q6_K. */
#ifndef RKV_FMT_Q6_K_H
#define RKV_FMT_Q6_K_H

#include "fmt/block.h"

typedef struct rkv_q6_k {
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t scales[16];
    uint8_t d[2]; /* binary16 */
} rkv_q6_k;
_Static_assert(sizeof(rkv_q6_k) == 210, "q6_k");

static inline void rkv_q6_k_decode(float out[256], const rkv_q6_k *b)
{
    const float d = rkv_half_at(b->d);
    for (int i = 0; i < 256; i++) {
        const int n = i / 128, r = i / 32 % 4, j = i % 32;
        const int low = b->ql[64 * n + 32 * (r % 2) + j] >> 4 * (r / 2) & 15;
        const int q = low | (b->qh[32 * n + j] >> 2 * r & 3) << 4;
        out[i] = d * (float)b->scales[i / 16] * (float)(q - 32);
    }
}

#endif
