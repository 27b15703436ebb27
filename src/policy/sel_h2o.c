/* H2O: keys by their accumulated attention, the sum over all prompt queries, mean over the GQA
 * group; no pooling. Source: Zhang et al. 2023 (H2O), applied once after prefill, with the choices
 * of METHOD section 7. */
#include "config.h"
#include "policy/policy.h"

static void score(const rkv_policy *p, const rkv_observed *o, float *out, float *scratch)
{
    const int n_scored = o->kv.n_slot - p->window;
    (void)scratch;
    for (int t = 0; t < n_scored; t++)
        out[t] = o->mass[t] / (float)o->n_group;
}

static int queries(const rkv_policy *p, int n)
{
    (void)p;
    return n;
}

const rkv_selector rkv_selector_h2o = {
    .name = "h2o", .needs_mass = 1, .score = score, .queries = queries,
};
