/* pack, kv_score and kv_mix of the block formats that the KV cache takes; contracts in kernels.h.
 * Included after tmpl/kv.h and fmt/. A few rows become floats in the first-level cache, in one pass
 * over the cache's memory, and go through the kernels of floats: the same bits as there. */
#ifndef RKV_TMPL_KV_BLOCKS_H
#define RKV_TMPL_KV_BLOCKS_H

enum { KV_BLOCK_FLOATS = 4096 }; /* the longest row, and some rows of usual length */

/* Rows to make floats next, of those left; whole vectors of scores where they fit. */
static int kv_block_rows(int d_head, int left)
{
    if (!d_head)
        return left;
    const int fit = KV_BLOCK_FLOATS / d_head, most = fit >= V_LEN ? fit / V_LEN * V_LEN : fit;
    return left < most ? left : most;
}

#define KV_BLOCKS(dt, bytes) \
    void RKV_TIER(pack_##dt)(void *dst, const float *in, int64_t n) \
    { \
        rkv_##dt *b = dst; \
        for (int64_t i = 0; i < n / 32; i++) \
            rkv_##dt##_encode(b + i, in + 32 * i); \
    } \
    void RKV_TIER(kv_score_##dt)(float *s, ptrdiff_t lds, const float *q, const void *k, int n_q, \
                                 int n_slot, int d_head) \
    { \
        _Alignas(64) float rows[KV_BLOCK_FLOATS]; \
        for (int t = 0, n; t < n_slot; t += n) { \
            n = kv_block_rows(d_head, n_slot - t); \
            RKV_TIER(unpack_##dt)(rows, (const char *)k + (ptrdiff_t)t * (d_head / 32 * (bytes)), \
                                  (int64_t)n * d_head); \
            RKV_TIER(kv_score_f32)(s + t, lds, q, rows, n_q, n, d_head); \
        } \
    } \
    void RKV_TIER(kv_mix_##dt)(float *out, const float *p, ptrdiff_t ldp, const void *v, int n_q, \
                               int n_slot, int d_head) \
    { \
        _Alignas(64) float rows[KV_BLOCK_FLOATS]; \
        for (int t = 0, n; t < n_slot; t += n) { \
            n = kv_block_rows(d_head, n_slot - t); \
            RKV_TIER(unpack_##dt)(rows, (const char *)v + (ptrdiff_t)t * (d_head / 32 * (bytes)), \
                                  (int64_t)n * d_head); \
            RKV_TIER(gemm_f32)(out, d_head, p + t, ldp, rows, d_head, n_q, d_head, n, 1); \
        } \
    }

#endif
