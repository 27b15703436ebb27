/* Attention over one KV head: many rows in tiles (prefill), one position in chunks (decode). */
#include "config.h"
#include "backend/backend.h"

#include <math.h>
#include <string.h>

enum { TILE = RKV_ATTN_TILE };

size_t rkv_attend_scratch(int n_q, int d_head)
{
    /* keys (rows, then transposed), values, scores */
    return (size_t)TILE * (size_t)d_head * 3 + (size_t)n_q * TILE;
}

typedef struct tile {           /* the scratch, cut up */
    float *row;                 /* [TILE][d_head] unpacked keys */
    float *key;                 /* [d_head][TILE] */
    float *value;               /* [TILE][d_head] */
    float *score;               /* [n_q][TILE] */
} tile;

static tile cut(float *scratch, int d_head)
{
    const ptrdiff_t block = (ptrdiff_t)TILE * d_head;
    return (tile){scratch, scratch + block, scratch + 2 * block, scratch + 3 * block};
}

static const void *slot(const void *base, rkv_dtype type, int t, int d_head)
{
    return (const char *)base + rkv_dtype_bytes(rkv_dtype_get(type), (size_t)t * (size_t)d_head);
}

/* Slots [t0, t0 + n) as f32: keys transposed, values as rows. Returns the values. */
static const float *load_tile(const rkv_ops *ops, tile *t, const rkv_kv_view *kv,
                              const float *v_plain, int t0, int n)
{
    const int d = kv->d_head;
    ops->unpack[kv->k_type](t->row, slot(kv->k, kv->k_type, t0, d), (int64_t)n * d);
    ops->transpose[RKV_DT_f32](t->key, TILE, t->row, d, n, d);
    if (v_plain)
        return v_plain + (ptrdiff_t)t0 * d;
    ops->unpack[kv->v_type](t->value, slot(kv->v, kv->v_type, t0, d), (int64_t)n * d);
    return t->value;
}

/* Masks the scores of one row outside slots [lo, hi); the row's score 0 is slot t0. */
static void mask(float *score, int t0, int n, int lo, int hi)
{
    for (int t = 0; t < n && t0 + t < lo; t++)
        score[t] = -INFINITY;
    for (int t = hi > t0 ? hi - t0 : 0; t < n; t++)
        score[t] = -INFINITY;
}

void rkv_attend_begin(float *out, float *m, float *l, int n_q, int d_head)
{
    memset(out, 0, (size_t)n_q * (size_t)d_head * sizeof *out);
    for (int i = 0; i < n_q; i++)
        m[i] = -INFINITY, l[i] = 0.0f;
}

void rkv_attend_add(const rkv_backend *be, float *out, float *m, float *l, const float *q, int n_q,
                    const int32_t *lo, const int32_t *hi, const rkv_kv_view *kv,
                    const float *v_plain, float *scratch)
{
    const rkv_ops *ops = &be->ops;
    const int d = kv->d_head;
    tile t = cut(scratch, d);
    int r0 = 0, r1 = 0;         /* rows that see the tile: hi[r] > t0, lo[r] < t0 + n */
    int end;                    /* of the tile; the first one may begin before slot 0 */
    for (int t0 = lo[0]; t0 < hi[n_q - 1]; t0 = end) {
        end = (t0 + kv->phase) / TILE * TILE + TILE - kv->phase;
        t0 = end - TILE > 0 ? end - TILE : 0;
        const int n = (kv->n_slot < end ? kv->n_slot : end) - t0;
        while (r0 < n_q && hi[r0] <= t0)
            r0++;
        while (r1 < n_q && lo[r1] < t0 + n)
            r1++;
        if (r0 >= r1)
            continue;
        const int rows = r1 - r0;
        const float *value = load_tile(ops, &t, kv, v_plain, t0, n);
        ops->gemm[RKV_DT_f32](t.score, TILE, q + (ptrdiff_t)r0 * d, d, t.key, TILE, rows, n, d, 0);
        for (int i = r0; i < r1; i++) {
            float *score = t.score + (ptrdiff_t)(i - r0) * TILE;
            mask(score, t0, n, lo[i], hi[i]);
            const float f = ops->softmax_step[RKV_DT_f32](score, n, &m[i], &l[i]);
            if (f != 1.0f)
                ops->scale[RKV_DT_f32](out + (ptrdiff_t)i * d, f, d);
        }
        ops->gemm[RKV_DT_f32](out + (ptrdiff_t)r0 * d, d, t.score, TILE, value, d, rows, d, n, 1);
    }
}

void rkv_attend_end(const rkv_backend *be, float *out, const float *l, int n_q, int d_head)
{
    for (int i = 0; i < n_q; i++)
        be->ops.scale[RKV_DT_f32](out + (ptrdiff_t)i * d_head, 1.0f / l[i], d_head);
}

void rkv_attend_chunk(const rkv_backend *be, float *out, float *m, float *l, const float *q,
                      int n_q, const rkv_kv_view *kv, int first, int n, float *scratch)
{
    const rkv_ops *ops = &be->ops;
    const int d = kv->d_head;
    ops->kv_score[kv->k_type](scratch, RKV_ATTN_CHUNK, q, slot(kv->k, kv->k_type, first, d), n_q, n,
                              d);
    for (int i = 0; i < n_q; i++) {
        m[i] = -INFINITY;
        l[i] = 0.0f;
        ops->softmax_step[RKV_DT_f32](scratch + (ptrdiff_t)i * RKV_ATTN_CHUNK, n, &m[i], &l[i]);
    }
    memset(out, 0, (size_t)n_q * (size_t)d * sizeof *out);
    ops->kv_mix[kv->v_type](out, scratch, RKV_ATTN_CHUNK, slot(kv->v, kv->v_type, first, d), n_q, n,
                            d);
}

void rkv_attend_merge(float *out, int d_head, const float *o, ptrdiff_t o_step, const float *m,
                      const float *l, ptrdiff_t ml_step, int n_part)
{
    float top = -INFINITY;
    for (int p = 0; p < n_part; p++)
        top = m[p * ml_step] > top ? m[p * ml_step] : top;
    float sum = 0.0f;
    memset(out, 0, (size_t)d_head * sizeof *out);
    for (int p = 0; p < n_part; p++) {
        const float w = expf(m[p * ml_step] - top);
        sum += l[p * ml_step] * w;
        for (int e = 0; e < d_head; e++)
            out[e] += w * o[p * o_step + e];
    }
    for (int e = 0; e < d_head; e++)
        out[e] /= sum;
}
