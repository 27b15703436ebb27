/* Products of rows: gemm, transpose, keys and values. Written for reading; sums in double. */
#include "config.h"
#include "kernels.h"

#include <math.h>
#include <string.h>

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

static float flush(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x;
}

static float bf16_flushed(uint16_t b)
{
    return flush(rkv_bf16_to_f32(b));
}

enum { PAIR_COLUMNS = 16 }; /* summed side by side */

/* Adds to w columns the 32 terms that one instruction adds: of a row of a. */
static void add_32(float *sum, const uint16_t *a, const uint16_t *b, ptrdiff_t ldb, int w)
{
    float even[PAIR_COLUMNS] = {0.0f}, odd[PAIR_COLUMNS] = {0.0f};
    for (int q = 0; q < 16; q++) {
        const float x = bf16_flushed(a[2 * q]), y = bf16_flushed(a[2 * q + 1]);
        const uint16_t *pair = b + 2 * q * ldb;
        for (int j = 0; j < w; j++) {
            even[j] = flush(fmaf(x, bf16_flushed(pair[2 * j]), even[j]));
            odd[j] = flush(fmaf(y, bf16_flushed(pair[2 * j + 1]), odd[j]));
        }
    }
    for (int j = 0; j < w; j++)
        sum[j] = flush(flush(sum[j]) + flush(even[j] + odd[j]));
}

void rkv_gemm_pairs_bf16_ref(float *c, ptrdiff_t ldc, const uint16_t *a, ptrdiff_t lda,
                             const uint16_t *b, ptrdiff_t ldb, int m, int n, int k, int acc)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j += PAIR_COLUMNS) {
            const int w = n - j < PAIR_COLUMNS ? n - j : PAIR_COLUMNS;
            float *sum = c + i * ldc + j;
            if (!acc)
                memset(sum, 0, (size_t)w * sizeof *sum);
            for (int p = 0; p < k; p += 32)
                add_32(sum, a + i * lda + p, b + p * ldb + 2 * j, ldb, w);
        }
}

void rkv_gemm_int16_f32_ref(float *c, ptrdiff_t ldc, const int16_t *a, ptrdiff_t lda,
                            const float *a_scale, ptrdiff_t lds, const int16_t *b, ptrdiff_t ldb,
                            const float *b_scale, int m, int n, int k, int acc)
{
    for (int i = 0; i < m; i++)
        for (int j0 = 0; j0 < n; j0 += PAIR_COLUMNS) {
            const int w = n - j0 < PAIR_COLUMNS ? n - j0 : PAIR_COLUMNS;
            int32_t sum[PAIR_COLUMNS] = {0};
            for (int p = 0; p < k; p += 2) {
                const int16_t *x = a + i * lda + p, *pair = b + p * ldb + 2 * (ptrdiff_t)j0;
                for (int j = 0; j < w; j++)
                    sum[j] += x[0] * pair[2 * j] + x[1] * pair[2 * j + 1];
            }
            float *row = c + i * ldc + j0;
            for (int j = 0; j < w; j++)
                row[j] =
                    fmaf((float)sum[j] * b_scale[j0 + j], a_scale[i * lds], acc ? row[j] : 0.0f);
        }
}

void rkv_transpose_f32_ref(void *dst, ptrdiff_t ldd, const void *src, ptrdiff_t lds, int n_row,
                           int n_col)
{
    enum { WORD = 4 }; /* bytes: copied as such, since a float register may change a NaN's bits */
    for (int r = 0; r < n_row; r++)
        for (int c = 0; c < n_col; c++)
            memcpy((char *)dst + WORD * (c * ldd + r), (const char *)src + WORD * (r * lds + c),
                   WORD);
}

enum { PIECE = 256 }; /* elements of a row made floats at a time: a multiple of every block */

/* Row t of rows of d_head elements, from element e on. */
static const void *piece(const void *rows, const rkv_dtype_desc *d, int t, int d_head, int e)
{
    const size_t row = rkv_dtype_bytes(d, (size_t)d_head);
    return (const char *)rows + (size_t)t * row + rkv_dtype_bytes(d, (size_t)e);
}

static double dot(const float *q, const void *rows, const rkv_dtype_desc *d,
                  RKV_PROTO_unpack(*unpack), int t, int d_head)
{
    float x[PIECE];
    double sum = 0.0;
    for (int e = 0; e < d_head; e += PIECE) {
        const int n = d_head - e < PIECE ? d_head - e : PIECE;
        unpack(x, piece(rows, d, t, d_head, e), n);
        for (int j = 0; j < n; j++)
            sum += (double)q[e + j] * (double)x[j];
    }
    return sum;
}

/* Adds weighted values to n elements of a row, from element e on. */
static void mix(float *out, const float *p, const void *rows, const rkv_dtype_desc *d,
                RKV_PROTO_unpack(*unpack), int n_slot, int d_head, int e, int n)
{
    float x[PIECE];
    double sum[PIECE] = {0.0};
    for (int t = 0; t < n_slot; t++) {
        unpack(x, piece(rows, d, t, d_head, e), n);
        for (int j = 0; j < n; j++)
            sum[j] += (double)p[t] * (double)x[j];
    }
    for (int j = 0; j < n; j++)
        out[j] = (float)((double)out[j] + sum[j]);
}

#define RKV_KV_PRODUCTS(dt)                                                                        \
    void rkv_kv_score_##dt##_ref(float *s, ptrdiff_t lds, const float *q, const void *k, int n_q,  \
                                 int n_slot, int d_head)                                           \
    {                                                                                              \
        const rkv_dtype_desc *d = rkv_dtype_get(RKV_DT_##dt);                                      \
        for (int i = 0; i < n_q; i++)                                                              \
            for (int t = 0; t < n_slot; t++)                                                       \
                s[i * lds + t] =                                                                   \
                    (float)dot(q + (ptrdiff_t)i * d_head, k, d, rkv_unpack_##dt##_ref, t, d_head); \
    }                                                                                              \
    void rkv_kv_mix_##dt##_ref(float *out, const float *p, ptrdiff_t ldp, const void *v, int n_q,  \
                               int n_slot, int d_head)                                             \
    {                                                                                              \
        const rkv_dtype_desc *d = rkv_dtype_get(RKV_DT_##dt);                                      \
        for (int i = 0; i < n_q; i++)                                                              \
            for (int e = 0; e < d_head; e += PIECE)                                                \
                mix(out + (ptrdiff_t)i * d_head + e, p + i * ldp, v, d, rkv_unpack_##dt##_ref,     \
                    n_slot, d_head, e, d_head - e < PIECE ? d_head - e : PIECE);                   \
    }
RKV_KV_PRODUCTS(f32)
RKV_KV_PRODUCTS(f16)
RKV_KV_PRODUCTS(bf16)
RKV_KV_PRODUCTS(q4_0)
RKV_KV_PRODUCTS(q8_0)
