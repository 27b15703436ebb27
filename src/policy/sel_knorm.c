/* Keys of the lowest norm stay, since those draw the most attention. Source: Devoto et al. 2024
 * (a simple L2-norm-based strategy); of all layers, as in kvpress. */
#include "config.h"
#include "policy/policy.h"

#include <math.h>

void rkv_row_norms(const rkv_backend *be, float *norm, const void *rows, rkv_dtype type, int n,
                   int d, float *scratch)
{
    enum { TILE = RKV_ATTN_TILE };
    for (int t0 = 0; t0 < n; t0 += TILE) {
        const int len = n - t0 < TILE ? n - t0 : TILE;
        const size_t at = rkv_dtype_bytes(rkv_dtype_get(type), (size_t)t0 * (size_t)d);
        be->ops.unpack[type](scratch, (const char *)rows + at, (int64_t)len * d);
        for (int i = 0; i < len; i++) {
            const float *row = scratch + (ptrdiff_t)i * d;
            double sum = 0.0;
            for (int c = 0; c < d; c++)
                sum += (double)row[c] * (double)row[c];
            norm[t0 + i] = (float)sqrt(sum);
        }
    }
}

static size_t scratch_floats(const rkv_policy *p, int n, int n_group, int d_head)
{
    (void)p, (void)n, (void)n_group;
    return (size_t)RKV_ATTN_TILE * (size_t)d_head;
}

static void score(const rkv_policy *p, const rkv_observed *o, float *out, float *scratch)
{
    const int n_scored = o->kv.n_slot - p->window;
    rkv_row_norms(o->be, out, o->kv.k, o->kv.k_type, n_scored, o->kv.d_head, scratch);
    for (int t = 0; t < n_scored; t++)
        out[t] = -out[t];
}

const rkv_selector rkv_selector_knorm = {
    .name = "knorm", .scratch = scratch_floats, .score = score,
};
