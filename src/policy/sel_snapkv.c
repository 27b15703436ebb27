/* SnapKV: the last window of prompt queries scores all keys by softmax attention; sums over the
 * window, mean over the GQA group, pooling along the sequence. Source: Li et al. 2024 (SnapKV),
 * section 4, with the choices of METHOD section 7. */
#include "config.h"
#include "policy/policy.h"

#include <math.h>
#include <string.h>

enum { TILE = RKV_ATTN_TILE };

static int n_query(const rkv_policy *p)
{
    return p->window;
}

size_t rkv_query_mass_floats(int n_query, int n, int n_group, int d_head)
{
    const size_t rows = (size_t)n_query * (size_t)n_group;
    return 2 * (size_t)TILE * (size_t)d_head        /* a tile of keys, and transposed */
           + rows * (TILE + 2)                      /* its scores; maximum and sum of each row */
           + (size_t)n_group * (size_t)n;           /* sums per query head */
}

static size_t scratch_floats(const rkv_policy *p, int n, int n_group, int d_head)
{
    return rkv_query_mass_floats(p->window, n, n_group, d_head) + (size_t)n;    /* a row pooled */
}

typedef struct work {           /* the scratch, cut up */
    float *row, *key, *score, *m, *l, *sum, *pooled;
} work;

static work cut(const rkv_observed *o, float *scratch)
{
    const ptrdiff_t d = o->kv.d_head, rows = (ptrdiff_t)o->n_query * o->n_group;
    work w = {.row = scratch, .key = scratch + TILE * d, .score = scratch + 2 * TILE * d};
    w.m = w.score + rows * TILE;
    w.l = w.m + rows;
    w.sum = w.l + rows;
    w.pooled = w.sum + (ptrdiff_t)o->n_group * o->kv.n_slot;
    return w;
}

/* Scores of keys [t0, t0 + n) for all observed queries; what a query cannot see is -inf. */
static void tile_scores(const rkv_observed *o, const work *w, int t0, int n)
{
    const rkv_ops *ops = &o->be->ops;
    const int d = o->kv.d_head, rows = o->n_query * o->n_group;
    const char *k = o->kv.k;
    const size_t bytes = rkv_dtype_bytes(rkv_dtype_get(o->kv.k_type), (size_t)t0 * (size_t)d);
    ops->unpack[o->kv.k_type](w->row, k + bytes, (int64_t)n * d);
    ops->transpose[RKV_DT_f32](w->key, TILE, w->row, d, n, d);
    ops->gemm[RKV_DT_f32](w->score, TILE, o->q, d, w->key, TILE, rows, n, d, 0);
    const int first = o->kv.n_slot - o->n_query;    /* position of the first query */
    for (int i = 0; i < rows; i++)
        for (int t = first + i / o->n_group + 1 - t0; t < n; t++)
            if (t >= 0)
                w->score[(ptrdiff_t)i * TILE + t] = -INFINITY;
}

/* Two passes over the keys: the first finds each row's maximum and sum, the second adds up; no row
 * is ever stored whole. */
float *rkv_query_mass(const rkv_observed *o, int n_scored, float *scratch)
{
    const rkv_ops *ops = &o->be->ops;
    const work parts = cut(o, scratch), *w = &parts;
    const int rows = o->n_query * o->n_group, n = o->kv.n_slot;
    for (int i = 0; i < rows; i++)
        w->m[i] = -INFINITY, w->l[i] = 0.0f;
    for (int t0 = 0; t0 < n; t0 += TILE) {
        const int len = n - t0 < TILE ? n - t0 : TILE;
        tile_scores(o, w, t0, len);
        for (int i = 0; i < rows; i++)
            ops->softmax_step[RKV_DT_f32](w->score + (ptrdiff_t)i * TILE, len, &w->m[i], &w->l[i]);
    }
    memset(w->sum, 0, (size_t)o->n_group * (size_t)n * sizeof *w->sum);
    for (int t0 = 0; t0 < n_scored; t0 += TILE) {
        const int len = n_scored - t0 < TILE ? n_scored - t0 : TILE;
        tile_scores(o, w, t0, len);
        for (int i = 0; i < rows; i++) {
            float m = w->m[i], unused = 0.0f, *s = w->score + (ptrdiff_t)i * TILE;
            ops->softmax_step[RKV_DT_f32](s, len, &m, &unused);     /* m is the maximum already */
            ops->scale[RKV_DT_f32](s, 1.0f / w->l[i], len);
            ops->add[RKV_DT_f32](w->sum + (ptrdiff_t)(i % o->n_group) * n + t0, s, len);
        }
    }
    return w->sum;
}

static void pool(const rkv_policy *p, float *out, const float *x, int n)
{
    if (p->pool_average)
        rkv_pool_mean(out, x, n, p->pool_kernel);
    else
        rkv_pool_max(out, x, n, p->pool_kernel);
}

/* out = mean over the group's rows, which lie ld floats apart. */
static void group_mean(const rkv_ops *ops, float *out, const float *x, ptrdiff_t ld, int n_group,
                       int n)
{
    memset(out, 0, (size_t)n * sizeof *out);
    for (int g = 0; g < n_group; g++)
        ops->add[RKV_DT_f32](out, x + g * ld, n);
    ops->scale[RKV_DT_f32](out, 1.0f / (float)n_group, n);
}

static void score(const rkv_policy *p, const rkv_observed *o, float *out, float *scratch)
{
    const rkv_ops *ops = &o->be->ops;
    const work w = cut(o, scratch);
    const int n = o->kv.n_slot, n_scored = n - p->window;
    rkv_query_mass(o, n_scored, scratch);
    if (!p->pool_before_mean) {
        group_mean(ops, w.pooled, w.sum, n, o->n_group, n_scored);
        pool(p, out, w.pooled, n_scored);
        return;
    }
    for (int g = 0; g < o->n_group; g++) {
        float *row = w.sum + (ptrdiff_t)g * n;
        pool(p, w.pooled, row, n_scored);
        memcpy(row, w.pooled, (size_t)n_scored * sizeof *row);
    }
    group_mean(ops, out, w.sum, n, o->n_group, n_scored);
}

static int queries(const rkv_policy *p, int n)
{
    (void)n;
    return p->window;
}

const rkv_selector rkv_selector_snapkv = {
    .name = "snapkv", .needs_window = 1, .n_query = n_query, .scratch = scratch_floats,
    .score = score, .queries = queries,
};
