/* How sure a profile is of its order of layers and of the budgets that follow: examples resampled
 * (bootstrap, percentiles: Efron 1979), orders compared. */
#include "config.h"
#include "profile/table.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "policy/policy.h"
#include "profile/stats.h"

typedef struct bench {          /* scratch for the m layers in the budget */
    const rkv_profile *p;
    rkv_profile guess;          /* p's layers with other means, for the allocator */
    int m, *layer;              /* [m] */
    rkv_unit *unit;             /* [m] the same, for the allocator */
    double *mean, *weight, *rank;       /* [m], [m], [2 m] */
    rkv_ranked *ranked;         /* [m] */
    rkv_layer_signal *signal;   /* [n_layer] of guess */
} bench;

static void bench_free(bench *b)
{
    rkv_mem_free(b->layer);
    rkv_mem_free(b->unit);
    rkv_mem_free(b->mean);
    rkv_mem_free(b->ranked);
    rkv_mem_free(b->signal);
}

static rkv_status bench_make(bench *b, const rkv_profile *p, rkv_error *e)
{
    const size_t n = (size_t)p->n_layer;
    *b = (bench){.p = p};
    b->layer = rkv_mem_alloc(n * sizeof *b->layer);
    b->unit = rkv_mem_alloc(n * sizeof *b->unit);
    b->mean = rkv_mem_alloc(4 * n * sizeof *b->mean);
    b->ranked = rkv_mem_alloc(n * sizeof *b->ranked);
    b->signal = rkv_mem_calloc(n, sizeof *b->signal);
    if (!b->layer || !b->unit || !b->mean || !b->ranked || !b->signal) {
        bench_free(b);
        return rkv_fail(e, RKV_E_MEM, "profile: out of memory for %d layers", p->n_layer);
    }
    for (int l = 0; l < p->n_layer; l++)
        if (p->sensitivity[l].in_budget) {
            b->unit[b->m] = (rkv_unit){l, -1};
            b->layer[b->m++] = l;
        }
    b->weight = b->mean + n;
    b->rank = b->mean + 2 * n;
    b->guess.n_layer = p->n_layer;
    b->guess.sensitivity = b->signal;
    return RKV_OK;
}

/* mean[m] over the picked rows (NULL: all) of s [n][n_layer]. */
static void mean_of(bench *b, const double *s, const int *pick, int n)
{
    for (int u = 0; u < b->m; u++) {
        double sum = 0.0;
        for (int i = 0; i < n; i++)
            sum += s[(ptrdiff_t)(pick ? pick[i] : i) * b->p->n_layer + b->layer[u]];
        b->mean[u] = sum / n;
    }
}

/* weight[m] = ripple's budgets for the means, in units of cap: where neither floor nor prompt
 * binds, the weights themselves over their mean. */
static rkv_status budgets_of(bench *b, rkv_error *e)
{
    rkv_policy policy = rkv_policy_default();
    policy.profile = &b->guess;
    const rkv_division d = {.p = &policy, .unit = b->unit, .n = b->m};
    for (int u = 0; u < b->m; u++)
        b->signal[b->layer[u]].mean = b->mean[u];
    RKV_TRY(rkv_allocator_find("ripple")->weights(b->weight, &d, e));
    double sum = 0.0;
    for (int u = 0; u < b->m; u++)
        sum += b->weight[u];
    for (int u = 0; u < b->m; u++)
        b->weight[u] *= b->m / sum;
    return RKV_OK;
}

static rkv_status intervals(rkv_layer_certainty *c, bench *b, const double *s, int n,
                            double *rank, double *budget, int *pick, rkv_error *e)
{
    for (int r = 0; r < RKV_RESAMPLES; r++) {
        rkv_resample(pick, n, r);
        mean_of(b, s, pick, n);
        rkv_ranks(b->rank, b->mean, b->m, b->ranked);
        RKV_TRY(budgets_of(b, e));
        for (int u = 0; u < b->m; u++) {
            rank[u * RKV_RESAMPLES + r] = b->rank[u];
            budget[u * RKV_RESAMPLES + r] = b->weight[u];
        }
    }
    for (int u = 0; u < b->m; u++) {
        rkv_layer_certainty *to = &c[b->layer[u]];
        const rkv_interval of_rank = rkv_interval_of(rank + u * RKV_RESAMPLES, RKV_RESAMPLES);
        const rkv_interval of_budget = rkv_interval_of(budget + u * RKV_RESAMPLES, RKV_RESAMPLES);
        to->rank_low = of_rank.low;
        to->rank_high = of_rank.high;
        to->budget_low = of_budget.low;
        to->budget_high = of_budget.high;
    }
    return RKV_OK;
}

rkv_status rkv_certainty(rkv_layer_certainty *c, const rkv_profile *p, const double *s, int n,
                         rkv_error *e)
{
    bench b;
    for (int l = 0; l < p->n_layer; l++)
        c[l] = (rkv_layer_certainty){NAN, NAN, NAN, NAN, NAN, NAN};
    RKV_TRY(bench_make(&b, p, e));
    mean_of(&b, s, NULL, n);
    rkv_ranks(b.rank, b.mean, b.m, b.ranked);
    rkv_status status = budgets_of(&b, e);
    for (int u = 0; !status && u < b.m; u++) {
        c[b.layer[u]].rank = b.rank[u];
        c[b.layer[u]].budget = b.weight[u];
    }
    const size_t count = (size_t)b.m * RKV_RESAMPLES;
    double *rank = rkv_mem_alloc(2 * count * sizeof *rank);
    int *pick = rkv_mem_alloc((size_t)n * sizeof *pick);
    if (!status && (!rank || !pick))
        status = rkv_fail(e, RKV_E_MEM, "profile: out of memory for %d layers", b.m);
    if (!status && n > 1)
        status = intervals(c, &b, s, n, rank, rank + count, pick, e);
    rkv_mem_free(rank);
    rkv_mem_free(pick);
    bench_free(&b);
    return status;
}

double rkv_certainty_widest(const rkv_layer_certainty *c, const rkv_profile *p, int *layer)
{
    double widest = NAN;
    *layer = -1;
    for (int l = 0; l < p->n_layer; l++) {
        const double half = fmax(c[l].budget_high - c[l].budget, c[l].budget - c[l].budget_low);
        if (p->sensitivity[l].in_budget && half >= 0.0 && !(half <= widest)) {
            widest = half;
            *layer = l;
        }
    }
    return widest;
}

rkv_status rkv_table_widest(double *out, int *layer, const rkv_table *t, rkv_error *e)
{
    double *s;
    int n;
    RKV_TRY(rkv_table_sensitivity(&s, &n, t, e));
    rkv_layer_certainty *c = rkv_mem_alloc((size_t)t->head->n_layer * sizeof *c);
    rkv_status status = c ? RKV_OK : rkv_fail(e, RKV_E_MEM, "profile: out of memory");
    if (!status)
        status = rkv_certainty(c, t->head, s, n, e);
    if (!status)
        *out = rkv_certainty_widest(c, t->head, layer);
    rkv_mem_free(c);
    rkv_mem_free(s);
    return status;
}

/* ---- orders ---- */

int rkv_curves_point(const rkv_curves *c, double share)
{
    int point = 0;
    for (int g = 1; g < c->n_grid; g++)
        if (fabs(c->grid[g] - share) < fabs(c->grid[point] - share))
            point = g;
    return point;
}

double rkv_curves_layer_damage(const rkv_profile *p, const rkv_curves *c, int l)
{
    const int point = rkv_curves_point(c, p->damage_budget);
    double sum = 0.0;
    for (int h = 0; h < p->n_kv_head; h++)
        sum += c->damage[(l * p->n_kv_head + h) * c->n_grid + point];
    return sum;
}

/* x[m] of one order; 0: it was not measured. */
static int take_order(double *x, const bench *b, enum rkv_order which)
{
    static const int extra_of[RKV_ORDER_COUNT] = {
        [RKV_ORDER_DAMAGE] = 1 + RKV_EXTRA_DAMAGE, [RKV_ORDER_LOCAL] = 1 + RKV_EXTRA_LOCAL,
        [RKV_ORDER_KEYS] = 1 + RKV_EXTRA_KEYS,
        [RKV_ORDER_KEYS_VALUES] = 1 + RKV_EXTRA_KEYS_VALUES,
    };
    const rkv_profile *p = b->p;
    const rkv_curves *c = rkv_profile_find_curves(p, 0, 1);
    const rkv_layer_signal *s = which == RKV_ORDER_SENSITIVITY ? p->sensitivity
                                : extra_of[which]              ? p->extra[extra_of[which] - 1]
                                                               : NULL;
    const int known = s || which == RKV_ORDER_INDEX || (which == RKV_ORDER_ESTIMATE && c);
    for (int u = 0; known && u < b->m; u++) {
        const int l = b->layer[u];
        x[u] = s ? s[l].mean : which == RKV_ORDER_INDEX ? l : rkv_curves_layer_damage(p, c, l);
    }
    return known;
}

static void compare_orders(rkv_diagnostics *d, bench *b)
{
    double *x = b->mean, *y = b->weight;
    for (int i = 0; i < RKV_ORDER_ROWS; i++)
        for (int j = 0; j < RKV_ORDER_COUNT; j++) {
            d->spearman[i][j] = NAN;
            if (i == j || !take_order(x, b, (enum rkv_order)i))
                continue;
            if (j == RKV_ORDER_RANDOM)
                d->spearman[i][j] = rkv_spearman_random(x, b->m, b->rank, b->ranked, y);
            else if (take_order(y, b, (enum rkv_order)j))
                d->spearman[i][j] = rkv_spearman(x, y, b->m, b->rank, b->ranked);
        }
}

static void agreement(rkv_diagnostics *d, bench *b, const double *s, int n)
{
    mean_of(b, s, NULL, n);
    memcpy(b->weight, b->mean, (size_t)b->m * sizeof *b->mean);
    d->n_agreement = 0;
    for (int64_t k = 2; k < n && d->n_agreement < RKV_MAX_AGREEMENT; k *= 2) {
        mean_of(b, s, NULL, (int)k);
        d->agreement[d->n_agreement].k = (int)k;
        d->agreement[d->n_agreement++].spearman =
            rkv_spearman(b->mean, b->weight, b->m, b->rank, b->ranked);
    }
}

rkv_status rkv_diagnose(rkv_profile *p, const double *s, int n, rkv_error *e)
{
    bench b;
    rkv_diagnostics *d = &p->diagnostics;
    int layer;
    RKV_TRY(rkv_certainty(p->certainty, p, s, n, e));
    RKV_TRY(bench_make(&b, p, e));
    compare_orders(d, &b);
    agreement(d, &b, s, n);
    bench_free(&b);
    d->known = 1;
    d->widest = rkv_certainty_widest(p->certainty, p, &layer);
    const double ratio = d->widest / RKV_STABLE;        /* intervals narrow as 1 / sqrt(n) */
    d->n_more = ratio > 1.0 ? (int)fmin(ceil(n * (ratio * ratio - 1.0)), INT32_MAX) : 0;
    return RKV_OK;
}
