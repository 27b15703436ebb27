/* Observed attention: H2O's sums divided by the number of queries that can see the key, so that an
 * early key does not win by its age. Source: METHOD section 8; kvpress calls it so. */
#include "config.h"
#include "policy/policy.h"

static void score(const rkv_policy *p, const rkv_observed *o, float *out, float *scratch)
{
    const int n = o->kv.n_slot, n_scored = n - p->window, end = n ? o->kv.pos[n - 1] + 1 : 0;
    (void)scratch;
    for (int t = 0; t < n_scored; t++)
        out[t] = o->mass[t] / ((float)o->n_group * (float)(end - o->kv.pos[t]));
}

static int queries(const rkv_policy *p, int n)
{
    (void)p, (void)n;
    return 1;
}

const rkv_selector rkv_selector_observed = {
    .name = "observed", .needs_mass = 1, .score = score, .queries = queries,
};
