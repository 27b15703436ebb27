/* Expected attention: what queries after the prompt would give to each key if they were normal,
 * with the mean and covariance of the prompt's queries before rotation, rotated by the mean
 * rotation of the n_future positions behind it; mean over the group, times the norm of the value.
 * The first n_sink positions stay, and are in no statistic. Source: Devoto et al. 2025 (Expected
 * Attention), with kvpress's defaults. */
#include "config.h"
#include "policy/policy.h"

#include <math.h>
#include <string.h>

enum { TILE = RKV_ATTN_TILE };

static size_t scratch_floats(const rkv_policy *p, int n, int n_group, int d_head)
{
    (void)p;
    return 2 * (size_t)TILE * (size_t)d_head + (size_t)n_group * (size_t)n;
}

/* Keys [t0, t0 + len) rotated back by the mean rotation: its transpose goes over to the keys, so
 * that the queries' statistics stay as they are. */
static void tile_keys(const rkv_observed *o, float *key, int t0, int len)
{
    const rkv_query_stats *s = o->stats;
    const int d = o->kv.d_head;
    const size_t bytes =
        rkv_dtype_bytes(rkv_dtype_get(o->kv.k_type), (size_t)t0 * (size_t)d);
    o->be->ops.unpack[o->kv.k_type](key, (const char *)o->kv.k + bytes, (int64_t)len * d);
    for (int i = 0; i < len; i++)
        (s->neox ? o->be->ops.rope_neox : o->be->ops.rope_norm)[RKV_DT_f32](
            key + (ptrdiff_t)i * d, s->cosine, s->back_sine, s->n_pair);
}

static double dot(const float *a, const float *b, int n)
{
    double sum = 0.0;
    for (int i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* logit[g][t] = scale mu.k + scale^2 k'Sk / 2: the logarithm of the mean of exp(scale q.k). */
static void logits(const rkv_policy *p, const rkv_observed *o, float *logit, float *scratch)
{
    const rkv_query_stats *s = o->stats;
    const int d = o->kv.d_head, n = o->kv.n_slot;
    float *key = scratch, *product = key + (ptrdiff_t)TILE * d;
    for (int t0 = 0; t0 < n; t0 += TILE) {
        const int len = n - t0 < TILE ? n - t0 : TILE;
        tile_keys(o, key, t0, len);
        for (int g = 0; g < o->n_group; g++) {
            const float *mean = s->mean + (ptrdiff_t)g * s->step, *cov = mean + d;
            if (p->use_covariance)
                o->be->ops.gemm[RKV_DT_f32](product, d, key, d, cov, d, len, d, d, 0);
            for (int i = 0; i < len; i++) {
                const float *k = key + (ptrdiff_t)i * d;
                double v = s->scale * dot(mean, k, d);
                if (p->use_covariance)
                    v += 0.5 * s->scale * s->scale * dot(product + (ptrdiff_t)i * d, k, d);
                logit[(ptrdiff_t)g * n + t0 + i] = (float)v;
            }
        }
    }
}

static void score(const rkv_policy *p, const rkv_observed *o, float *out, float *scratch)
{
    const rkv_ops *ops = &o->be->ops;
    const int n = o->kv.n_slot, n_scored = n - p->window, n_sink = p->n_sink;
    float *logit = scratch + 2 * (ptrdiff_t)TILE * o->kv.d_head;
    logits(p, o, logit, scratch);
    memset(out, 0, (size_t)n_scored * sizeof *out);
    for (int g = 0; g < o->n_group; g++) {
        float m = -INFINITY, l = 0.0f, *row = logit + (ptrdiff_t)g * n;
        ops->softmax_step[RKV_DT_f32](row + n_sink, n - n_sink, &m, &l);
        ops->scale[RKV_DT_f32](row + n_sink, 1.0f / (l * (float)o->n_group), n - n_sink);
        if (n_scored > n_sink)
            ops->add[RKV_DT_f32](out + n_sink, row + n_sink, n_scored - n_sink);
    }
    if (p->use_value_norm) {
        rkv_row_norms(o->be, logit, o->kv.v, o->kv.v_type, n_scored, o->kv.d_head, scratch);
        for (int t = 0; t < n_scored; t++)
            out[t] = (out[t] + (float)p->epsilon) * logit[t];
    }
    for (int t = 0; t < n_sink && t < n_scored; t++)
        out[t] = INFINITY;
}

static int one(const rkv_policy *p, int n)
{
    (void)p, (void)n;
    return 1;
}

const rkv_selector rkv_selector_expected = {
    .name = "expected", .needs_stats = 1, .scratch = scratch_floats, .score = score,
    .queries = one,
};
