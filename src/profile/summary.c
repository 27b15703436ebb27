/* From the table of numbers to a profile. */
#include "config.h"
#include "profile/table.h"

#include <math.h>

#include "base/mem.h"

/* Mean of n numbers, which weigh the same, and its standard error; NaN for one. */
static double mean_and_error(double *se, const double *x, int n)
{
    double sum = 0.0, square = 0.0;
    for (int i = 0; i < n; i++) {
        sum += x[i];
        square += x[i] * x[i];
    }
    const double var = n > 1 ? fmax(0.0, (square - sum * sum / n) / (n - 1)) : (double)NAN;
    *se = sqrt(var / n);
    return sum / n;
}

static int n_used(const rkv_table *t)
{
    int n = 0;
    for (int i = 0; i < t->n_example; i++)
        n += t->row[i].state == RKV_EXAMPLE_USED;
    return n;
}

/* Number of variants of a layer that serve a signal; *first: the first, the others follow it. */
static int find_items(const rkv_plan *p, unsigned signal, int l, int *first)
{
    int n = 0;
    for (int i = 0; i < p->n_item; i++)
        if (p->item[i].signal == signal && p->item[i].v.layer == l && !n++)
            *first = i;
    return n;
}

static double value_of(const rkv_outcome *o, int local)
{
    return local ? o->local : o->kl;
}

/* x[n_used] = mean over the n repeats of each example; returns the mean variance of that mean. */
static double over_repeats(double *x, const rkv_table *t, int first, int n, int local)
{
    double within = 0.0;
    int j = 0;
    for (int i = 0; i < t->n_example; i++) {
        if (t->row[i].state != RKV_EXAMPLE_USED)
            continue;
        const rkv_outcome *o = t->row[i].out + first;
        double mean = 0.0, var = 0.0;
        for (int r = 0; r < n; r++)
            mean += value_of(&o[r], local) / n;
        for (int r = 0; r < n; r++)
            var += (value_of(&o[r], local) - mean) * (value_of(&o[r], local) - mean);
        within += n > 1 ? var / (n - 1) / n : (double)NAN;
        x[j++] = mean;
    }
    return within;
}

static void summarize_signal(rkv_layer_signal *out, const rkv_table *t, unsigned signal, int local,
                             double *x, int n)
{
    for (int l = 0; l < t->head->n_layer; l++) {
        int first = 0;
        const int n_item = find_items(&t->plan, signal, l, &first);
        if (!n_item)
            continue;
        const double within = over_repeats(x, t, first, n_item, local);
        out[l].in_budget = 1;
        out[l].mean = mean_and_error(&out[l].se_examples, x, n);
        out[l].se_seeds = sqrt(within) / n;
    }
}

static rkv_status summarize_extras(const rkv_table *t, double *x, int n, rkv_error *e)
{
    static const struct {
        enum rkv_extra extra;
        unsigned signal;
        int local;
    } extras[] = {
        {RKV_EXTRA_LOCAL, RKV_SIGNAL_VALUES, 1},
        {RKV_EXTRA_KEYS, RKV_SIGNAL_KEYS, 0},
        {RKV_EXTRA_KEYS_VALUES, RKV_SIGNAL_KEYS_VALUES, 0},
        {RKV_EXTRA_DAMAGE, RKV_SIGNAL_DAMAGE, 0},
    };
    rkv_profile *p = t->head;
    for (size_t i = 0; i < sizeof extras / sizeof *extras; i++)
        if (p->signals & extras[i].signal) {
            RKV_TRY(rkv_profile_add_extra(p, extras[i].extra, e));
            summarize_signal(p->extra[extras[i].extra], t, extras[i].signal, extras[i].local, x,
                             n);
        }
    return RKV_OK;
}

rkv_status rkv_table_sensitivity(double **out, int *n, const rkv_table *t, rkv_error *e)
{
    const int n_layer = t->head->n_layer;
    *n = n_used(t);
    const size_t count = (size_t)*n * (size_t)n_layer;
    double *s = rkv_mem_alloc((count + (size_t)*n) * sizeof *s), *x = s + count;
    if (!s)
        return rkv_fail(e, RKV_E_MEM, "profile: out of memory for %d examples", *n);
    for (int l = 0; l < n_layer; l++) {
        int first = 0;
        const int n_item = find_items(&t->plan, RKV_SIGNAL_VALUES, l, &first);
        if (n_item)
            over_repeats(x, t, first, n_item, 0);
        for (int i = 0; i < *n; i++)
            s[(ptrdiff_t)i * n_layer + l] = n_item ? x[i] : (double)NAN;
    }
    *out = s;
    return RKV_OK;
}

/* ---- curves ---- */

static rkv_status summarize_measured(const rkv_table *t, unsigned signal, double *x, int n,
                                     rkv_error *e)
{
    rkv_profile *p = t->head;
    const int per_head = signal == RKV_SIGNAL_HEAD_CURVES;
    const int n_grid = per_head ? p->n_head_grid : p->n_grid;
    rkv_curves *c;
    if (!(p->signals & signal))
        return RKV_OK;
    RKV_TRY(rkv_profile_add_curves(p, &c, 1, per_head, p->selector,
                                   per_head ? p->head_grid : p->grid, n_grid, e));
    for (int i = 0; i < t->plan.n_item; i++) {
        const rkv_planned *item = &t->plan.item[i];
        if (item->signal != signal)
            continue;
        const int unit = per_head ? item->v.layer * p->n_kv_head + item->v.head : item->v.layer;
        over_repeats(x, t, i, 1, 0);
        c->damage[unit * n_grid + item->point] =
            mean_and_error(&c->se[unit * n_grid + item->point], x, n);
    }
    return RKV_OK;
}

/* Damage of one unit: the mean sensitivity times the mean error, and its error by the jackknife,
 * since both come from the same examples. s, error: n numbers. */
static double product_and_error(double *se, const double *s, const double *error, int n)
{
    double sum_s = 0.0, sum_error = 0.0, mean = 0.0, square = 0.0;
    for (int i = 0; i < n; i++) {
        sum_s += s[i];
        sum_error += error[i];
    }
    const double m = (double)(n - 1) * (n - 1);
    for (int i = 0; i < n; i++)
        mean += (sum_s - s[i]) * (sum_error - error[i]) / m / n;
    for (int i = 0; i < n; i++) {
        const double without = (sum_s - s[i]) * (sum_error - error[i]) / m;
        square += (without - mean) * (without - mean);
    }
    *se = n > 1 ? sqrt(square * (n - 1) / n) : (double)NAN;
    return sum_s / n * (sum_error / n);
}

/* s [n][n_layer]; x: 2 n doubles of scratch. Source: METHOD section 8. */
static rkv_status summarize_estimates(const rkv_table *t, const double *s, double *x, int n,
                                      rkv_error *e)
{
    rkv_profile *p = t->head;
    rkv_curves *c;
    if (!(p->signals & RKV_SIGNAL_CURVES))
        return RKV_OK;
    RKV_TRY(rkv_profile_add_curves(p, &c, 0, 1, p->selector, p->grid, p->n_grid, e));
    for (size_t u = 0; u < t->plan.n_error; u++) {
        const int l = (int)(u / ((size_t)p->n_kv_head * (size_t)p->n_grid));
        if (!p->sensitivity[l].in_budget)
            continue;
        for (int i = 0, j = 0; i < t->n_example; i++)
            if (t->row[i].state == RKV_EXAMPLE_USED) {
                x[j] = s[(ptrdiff_t)j * p->n_layer + l];
                x[n + j++] = t->row[i].error[u];
            }
        c->damage[u] = product_and_error(&c->se[u], x, x + n, n);
    }
    return RKV_OK;
}

/* ---- all of it ---- */

static rkv_status count(const rkv_table *t, const char *source, rkv_error *e)
{
    rkv_profile *p = t->head;
    p->n_example = p->n_skipped_short = p->n_skipped_long = 0;
    p->n_position = 0;
    for (int i = 0; i < t->n_example; i++) {
        const rkv_measured *row = &t->row[i];
        p->n_example += row->state == RKV_EXAMPLE_USED;
        p->n_skipped_short += row->state == RKV_EXAMPLE_SHORT;
        p->n_skipped_long += row->state == RKV_EXAMPLE_LONG;
        p->n_position += row->state == RKV_EXAMPLE_USED ? row->n_fed : 0;
    }
    if (p->n_example)
        return RKV_OK;
    return rkv_fail(e, RKV_E_FORMAT,
                    "%s: none of %d examples is usable: %d have answers under %d tokens (%s), %d "
                    "prompts are longer than the context of %d tokens (-c)",
                    source, t->n_example, p->n_skipped_short, RKV_MIN_RESPONSE,
                    p->from_answers ? "the data's own"
                                    : "the model's own greedy ones; --response answers "
                                      "takes the data's",
                    p->n_skipped_long, p->n_ctx);
}

rkv_status rkv_table_summarize(rkv_profile **out, rkv_table *t, const char *source, rkv_error *e)
{
    rkv_profile *p = t->head;
    double *s = NULL;
    int n;
    RKV_TRY(count(t, source, e));
    RKV_TRY(rkv_table_sensitivity(&s, &n, t, e));
    double *x = rkv_mem_alloc(2 * (size_t)n * sizeof *x);
    rkv_status status = x ? RKV_OK : rkv_fail(e, RKV_E_MEM, "profile: out of memory");
    if (!status) {
        summarize_signal(p->sensitivity, t, RKV_SIGNAL_VALUES, 0, x, n);
        status = summarize_extras(t, x, n, e);
    }
    if (!status)
        status = summarize_estimates(t, s, x, n, e);
    if (!status)
        status = summarize_measured(t, RKV_SIGNAL_LAYER_CURVES, x, n, e);
    if (!status)
        status = summarize_measured(t, RKV_SIGNAL_HEAD_CURVES, x, n, e);
    if (!status)
        status = rkv_diagnose(p, s, n, e);
    rkv_mem_free(x);
    rkv_mem_free(s);
    if (status)
        return status;
    *out = p;
    t->head = NULL;
    return RKV_OK;
}
