/* Products of rows: gemm, transpose, keys and values. Written for reading; sums in double. */
#include "config.h"
#include "kernels.h"

#include "f16.h"

void rkv_gemm_f32_ref(float *c, ptrdiff_t ldc, const float *a, ptrdiff_t lda, const float *b,
                      ptrdiff_t ldb, int m, int n, int k, int acc)
{
    enum { WIDTH = 16 }; /* columns summed side by side: they are independent */
    for (int j0 = 0; j0 < n; j0 += WIDTH) {
        const int w = n - j0 < WIDTH ? n - j0 : WIDTH;
        for (int i = 0; i < m; i++) {
            double sum[WIDTH] = {0.0};
            for (int p = 0; p < k; p++)
                for (int j = 0; j < w; j++)
                    sum[j] += (double)a[i * lda + p] * (double)b[p * ldb + j0 + j];
            float *row = c + i * ldc + j0;
            for (int j = 0; j < w; j++)
                row[j] = (float)((acc ? (double)row[j] : 0.0) + sum[j]);
        }
    }
}

void rkv_transpose_f32_ref(float *dst, ptrdiff_t ldd, const float *src, ptrdiff_t lds, int n_row,
                           int n_col)
{
    for (int r = 0; r < n_row; r++)
        for (int c = 0; c < n_col; c++)
            dst[c * ldd + r] = src[r * lds + c];
}

/* The two KV products for a type whose element i of row t is load(t * d_head + i). */
#define RKV_KV_PRODUCTS(dt, type, load)                                                            \
    void rkv_kv_score_##dt##_ref(float *s, ptrdiff_t lds, const float *q, const void *k, int n_q,  \
                                 int n_slot, int d_head)                                           \
    {                                                                                              \
        const type *key = k;                                                                       \
        for (int i = 0; i < n_q; i++)                                                              \
            for (int t = 0; t < n_slot; t++) {                                                     \
                double sum = 0.0;                                                                  \
                for (int e = 0; e < d_head; e++)                                                   \
                    sum += (double)q[(ptrdiff_t)i * d_head + e] *                                  \
                           (double)load(key[(ptrdiff_t)t * d_head + e]);                           \
                s[i * lds + t] = (float)sum;                                                       \
            }                                                                                      \
    }                                                                                              \
    void rkv_kv_mix_##dt##_ref(float *out, const float *p, ptrdiff_t ldp, const void *v, int n_q,  \
                               int n_slot, int d_head)                                             \
    {                                                                                              \
        const type *value = v;                                                                     \
        for (int i = 0; i < n_q; i++)                                                              \
            for (int e = 0; e < d_head; e++) {                                                     \
                double sum = 0.0;                                                                  \
                for (int t = 0; t < n_slot; t++)                                                   \
                    sum +=                                                                         \
                        (double)p[i * ldp + t] * (double)load(value[(ptrdiff_t)t * d_head + e]);   \
                float *o = out + (ptrdiff_t)i * d_head + e;                                        \
                *o = (float)((double)*o + sum);                                                    \
            }                                                                                      \
    }

#define RKV_SAME(x) (x)
RKV_KV_PRODUCTS(f32, float, RKV_SAME)
RKV_KV_PRODUCTS(f16, uint16_t, rkv_f16_to_f32)
