/* CriticalKV: what a token's value adds to the layer's output counts with its attention. */
#include "config.h"
#include "policy/policy.h"

#include <math.h>
#include <string.h>

enum { TILE = RKV_ATTN_TILE, MOST_BLOCK = 256 };

typedef struct work {
    float *norm;                /* [n] */
    uint32_t *order;            /* [n] */
    int32_t *sure;              /* [n] */
    float *w;                   /* [d_head][d_model] one query head's part of W_O, transposed */
    float *row;                 /* [d_head + 2 blocks] of W_O as it is stored */
    float *value;               /* [TILE][d_head] */
    float *out;                 /* [TILE][d_model] */
} work;

static size_t row_floats(int d_head)
{
    return (size_t)d_head + 2 * MOST_BLOCK;
}

size_t rkv_critical_floats(int n, int d_head, int d_model)
{
    const size_t d = (size_t)d_head, m = (size_t)d_model;
    return 3 * (size_t)n + d * m + row_floats(d_head) + TILE * (d + m);
}

static work cut(float *scratch, int n, int d, int d_model)
{
    work w = {.norm = scratch, .order = (uint32_t *)(void *)(scratch + n),
              .sure = (int32_t *)(void *)(scratch + 2 * (ptrdiff_t)n),
              .w = scratch + 3 * (ptrdiff_t)n};
    w.row = w.w + (ptrdiff_t)d * d_model;
    w.value = w.row + row_floats(d);
    w.out = w.value + (ptrdiff_t)TILE * d;
    return w;
}

/* Inputs [first, first + d) of every row, out of the blocks that hold them. */
static void unpack_inputs(const rkv_observed *o, const work *w, int first, int d)
{
    const rkv_matrix *m = o->w_o;
    const int len = (int)rkv_dtype_get(m->type)->block_len, from = first / len * len,
              n = (first + d - from + len - 1) / len * len;
    const size_t at = rkv_dtype_bytes(rkv_dtype_get(m->type), (size_t)from);
    for (int j = 0; j < m->n_out; j++) {
        o->be->ops.unpack[m->type](w->row, (const char *)m->data + j * m->row_stride + at, n);
        for (int c = 0; c < d; c++)
            w->w[(ptrdiff_t)c * m->n_out + j] = w->row[first - from + c];
    }
}

/* norm[t] += |W_O v_t|_1 of one query head. */
static void add_norms(const rkv_observed *o, const work *w, int n, int head)
{
    const int d = o->kv.d_head, d_model = o->w_o->n_out;
    unpack_inputs(o, w, head * d, d);
    for (int t0 = 0; t0 < n; t0 += TILE) {
        const int len = n - t0 < TILE ? n - t0 : TILE;
        const size_t at =
            rkv_dtype_bytes(rkv_dtype_get(o->kv.v_type), (size_t)t0 * (size_t)d);
        o->be->ops.unpack[o->kv.v_type](w->value, (const char *)o->kv.v + at, (int64_t)len * d);
        o->be->ops.gemm[RKV_DT_f32](w->out, d_model, w->value, d, w->w, d_model, len, d_model, d,
                                    0);
        for (int i = 0; i < len; i++) {
            const float *out = w->out + (ptrdiff_t)i * d_model;
            double sum = 0.0;
            for (int j = 0; j < d_model; j++)
                sum += fabs((double)out[j]);
            w->norm[t0 + i] += (float)sum;
        }
    }
}

void rkv_critical_rescore(const rkv_policy *p, const rkv_observed *o, float *score, int budget,
                          float *scratch)
{
    const int n = o->kv.n_slot, n_scored = n - p->window;
    const work w = cut(scratch, n, o->kv.d_head, o->w_o->n_out);
    const float epsilon = (float)(p->critical_epsilon *
                                  rkv_selector_find(p->selector)->queries(p, n));
    const int first = (int)floor(p->first_stage * budget + 1e-9) - p->window;
    memset(w.norm, 0, (size_t)n * sizeof *w.norm);
    for (int g = 0; g < o->n_group; g++)
        add_norms(o, &w, n_scored, o->h * o->n_group + g);
    if (first > 0)
        rkv_keep_best(w.sure, score, n_scored, 0, first, w.order);
    for (int t = 0; t < n_scored; t++)
        if (score[t] < INFINITY)
            score[t] = (score[t] + epsilon) * (w.norm[t] / (float)o->n_group);
    for (int i = 0; i < first; i++)
        score[w.sure[i]] = INFINITY;
}
