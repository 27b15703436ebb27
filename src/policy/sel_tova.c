/* TOVA: attention of the last query, mean over all query heads of the layer: one ranking for every
 * KV head. Source: Oren et al. 2024 (TOVA); kvpress also forces the last token, which is a window
 * of 1 here. */
#include "config.h"
#include "policy/policy.h"

#include <string.h>

static int n_query(const rkv_policy *p)
{
    (void)p;
    return 1;
}

static size_t scratch_floats(const rkv_policy *p, int n, int n_group, int d_head)
{
    (void)p;
    return rkv_query_mass_floats(1, n, n_group, d_head);
}

static void score(const rkv_policy *p, const rkv_observed *o, float *out, float *scratch)
{
    const rkv_ops *ops = &o->be->ops;
    const int n_scored = o->kv.n_slot - p->window, n_group = o->n_group;
    memset(out, 0, (size_t)n_scored * sizeof *out);
    for (int h = 0; h < o->n_kv_head; h++) {
        rkv_observed head = *o;
        head.kv = o->layer[h];
        head.q = o->layer_q + (ptrdiff_t)h * n_group * o->kv.d_head;
        head.n_query = 1;
        const float *sum = rkv_query_mass(&head, n_scored, scratch);
        for (int g = 0; g < n_group; g++)
            ops->add[RKV_DT_f32](out, sum + (ptrdiff_t)g * o->kv.n_slot, n_scored);
    }
    ops->scale[RKV_DT_f32](out, 1.0f / (float)(n_group * o->n_kv_head), n_scored);
}

static int one(const rkv_policy *p, int n)
{
    (void)p, (void)n;
    return 1;
}

const rkv_selector rkv_selector_tova = {
    .name = "tova", .n_query = n_query, .scratch = scratch_floats, .score = score, .queries = one,
    .ranks_layer = 1,
};
