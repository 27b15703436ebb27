/* Whether a profile holds on a model: a new example or more, and the orders of layers compared. */
#include "config.h"
#include "profile/table.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "profile/stats.h"

/* Orders without relation reach it in one case of 40 with 25 layers, fewer with more. Single
 * examples vary: on SmolLM2 135M one essay of 550 tokens gives 0.08 to 0.68 against seven others,
 * half of them over 0.45. */
static const double threshold = 0.4;

/* x, y [n] the two sensitivities of each layer; room: 5 n doubles. */
static void judge(rkv_profile_verdict *v, const double *x, const double *y, int n, double *room,
                  rkv_ranked *ranked, int *pick, double *sample)
{
    double *a = room, *b = room + n, *rank = room + 2 * n;
    int known = 0;
    v->spearman = rkv_spearman(x, y, n, rank, ranked);
    for (int r = 0; r < RKV_RESAMPLES; r++) {
        rkv_resample(pick, n, r);
        for (int i = 0; i < n; i++) {
            a[i] = x[pick[i]];
            b[i] = y[pick[i]];
        }
        sample[known] = rkv_spearman(a, b, n, rank, ranked);
        known += !isnan(sample[known]);         /* not one layer n times */
    }
    const rkv_interval in = known ? rkv_interval_of(sample, known) : (rkv_interval){NAN, NAN};
    v->low = in.low;
    v->high = in.high;
}

static rkv_status compare(rkv_profile_verdict *v, const rkv_profile *p, const rkv_profile *now,
                          rkv_error *e)
{
    const size_t n_layer = (size_t)p->n_layer;
    double *x = rkv_mem_alloc((7 * n_layer + RKV_RESAMPLES) * sizeof *x), *y = x + n_layer;
    rkv_ranked *ranked = rkv_mem_alloc(n_layer * sizeof *ranked);
    int *pick = rkv_mem_alloc(n_layer * sizeof *pick), n = 0;
    rkv_status s = RKV_OK;
    if (!x || !ranked || !pick)
        s = rkv_fail(e, RKV_E_MEM, "profile: out of memory for %d layers", p->n_layer);
    for (int l = 0; !s && l < p->n_layer; l++)
        if (p->sensitivity[l].in_budget) {
            x[n] = p->sensitivity[l].mean;
            y[n++] = now->sensitivity[l].mean;
        }
    if (!s)
        judge(v, x, y, n, x + 2 * n_layer, ranked, pick, x + 7 * n_layer);
    rkv_mem_free(x);
    rkv_mem_free(ranked);
    rkv_mem_free(pick);
    return s;
}

static rkv_status check_layers(const rkv_profile *p, const rkv_model *m, rkv_error *e)
{
    const rkv_model_info *i = rkv_model_get_info(m);
    int same = p->n_layer == i->n_layer, n = 0;
    for (int l = 0; same && l < p->n_layer; l++)
        same = p->sensitivity[l].in_budget == !rkv_model_layer_is_sliding(m, l);
    for (int l = 0; l < p->n_layer; l++)
        n += p->sensitivity[l].in_budget;
    if (same && n < 2)
        return rkv_fail(e, RKV_E_UNSUPPORTED, "the model '%.80s' has one layer in the budget: no "
                        "order to compare", i->name);
    if (same)
        return RKV_OK;
    return rkv_fail(e, RKV_E_MISMATCH,
                    "the profile is of model '%.80s' with %d layers, the model '%.80s' has %d or "
                    "other sliding ones: nothing to compare",
                    p->model_name, p->n_layer, i->name, i->n_layer);
}

rkv_status rkv_profile_verify(rkv_profile_verdict *out, const rkv_profile *p, const rkv_model *m,
                              const char *jsonl_path, const rkv_profile_options *options,
                              rkv_error *e)
{
    rkv_profile_options o = options ? *options : rkv_profile_options_default();
    rkv_profile *now;
    o.signals = RKV_SIGNAL_VALUES;
    o.noise = p->noise;
    o.n_seed = p->n_seed;
    o.n_response = p->n_response;
    o.from_answers = p->from_answers;
    o.n_used_max = o.n_used_max ? o.n_used_max : 1;
    o.n_shard = o.shard = o.until_stable = 0;
    RKV_TRY(check_layers(p, m, e));
    RKV_TRY(rkv_profile_run(&now, m, jsonl_path, &o, e));
    rkv_profile_verdict v = {.threshold = threshold, .n_example = now->n_example};
    const rkv_status s = compare(&v, p, now, e);
    v.holds = v.spearman >= threshold;
    v.same_model = !strcmp(p->fingerprint, now->fingerprint);
    rkv_profile_free(now);
    if (!s)
        *out = v;
    return s;
}
