/* Exact integer budgets: water-filling to real numbers, largest remainder to integers. */
#include "config.h"
#include "policy/policy.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

static double clamp(double x, double lo, double hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

static double filled(const double *w, int n, double lambda, double lo, double hi)
{
    double sum = 0.0;
    for (int u = 0; u < n; u++)
        sum += clamp(lambda * w[u], lo, hi);
    return sum;
}

/* lambda with sum clamp(lambda w, lo, hi) = total. The sum is piecewise linear in lambda: bisection
 * finds the piece, and the units that are free on it give lambda in one division. */
static double water_level(const double *w, int n, double total, double lo, double hi)
{
    double least = INFINITY, most = 0.0;
    for (int u = 0; u < n; u++)
        least = fmin(least, w[u]), most = fmax(most, w[u]);
    double a = lo / most, b = hi / least;
    for (int i = 0; i < 200 && a < b; i++) {
        const double mid = a + (b - a) / 2;
        if (mid <= a || mid >= b)
            break;
        if (filled(w, n, mid, lo, hi) < total)
            a = mid;
        else
            b = mid;
    }
    double fixed = 0.0, weight = 0.0;
    for (int u = 0; u < n; u++) {
        const double x = b * w[u];
        if (x <= lo || x >= hi)
            fixed += clamp(x, lo, hi);
        else
            weight += w[u];
    }
    return weight > 0.0 ? (total - fixed) / weight : b;
}

static int by_part(const void *a, const void *b)
{
    const rkv_part *x = a, *y = b;
    return x->x != y->x ? (x->x > y->x ? -1 : 1) : x->unit - y->unit;
}

void rkv_round_parts(int *b, rkv_part *part, int n, int64_t total, int lo, int hi)
{
    assert((int64_t)n * lo <= total && total <= (int64_t)n * hi);
    int64_t left = total;
    for (int u = 0; u < n; u++) {
        /* A share that is whole but for noise is whole: ties must not hang on noise, which grows
         * with the share; but half a token is none. */
        const double x = part[u].x;
        const int whole = fabs(x - round(x)) < fmin(1e-9 * (1.0 + x), 1e-3);
        b[u] = (int)clamp(whole ? round(x) : floor(x), lo, hi);
        part[u] = (rkv_part){x - b[u], u};
        left -= b[u];
    }
    qsort(part, (size_t)n, sizeof *part, by_part);
    /* Once around is enough but for noise. Shares that are whole but for it may have been rounded
     * up too many times: then the smallest remainders give back. */
    for (int i = 0; left > 0; i = i + 1 < n ? i + 1 : 0)
        if (b[part[i].unit] < hi)
            b[part[i].unit]++, left--;
    for (int i = n - 1; left < 0; i = i > 0 ? i - 1 : n - 1)
        if (b[part[i].unit] > lo)
            b[part[i].unit]--, left++;
}

void rkv_divide(int *b, const double *w, int n, int64_t total, int lo, int hi, double bound,
                rkv_part *part)
{
    const double mean = (double)total / n;
    const double low = bound > 1.0 ? fmax(lo, mean / bound) : lo;
    const double high = bound > 1.0 ? fmin(hi, mean * bound) : hi;
    const double lambda = water_level(w, n, (double)total, low, high);
    for (int u = 0; u < n; u++)
        part[u] = (rkv_part){clamp(lambda * w[u], low, high), u};
    rkv_round_parts(b, part, n, total, lo, hi);
}

int rkv_budget_share(double share, int n)
{
    return (int)floor(share * n + 0.5 + fmax(1e-7, 1e-15 * n));
}

double rkv_budget_tokens(const rkv_policy *p, int n_layer, int n, double bytes_per_token,
                         char *shown)
{
    enum { SHOWN = 40 };
    double want = n;
    snprintf(shown, SHOWN, "full");
    if (p->budget_kind == RKV_BUDGET_SHARE) {
        want = rkv_budget_share(p->budget, n);
        snprintf(shown, SHOWN, "%g %%", 100.0 * p->budget);
    } else if (p->budget_kind == RKV_BUDGET_TOKENS) {
        want = floor(p->budget);
        snprintf(shown, SHOWN, "%g tokens", p->budget);
    } else if (p->budget_kind == RKV_BUDGET_BYTES) {
        want = floor(p->budget / (bytes_per_token * n_layer));
        want -= want * bytes_per_token * n_layer > p->budget;    /* the quotient was rounded up */
        snprintf(shown, SHOWN, "%g bytes", p->budget);
    }
    return want;
}

rkv_status rkv_budget_cap(int *cap, const rkv_policy *p, int n_layer, int n,
                          double bytes_per_token, rkv_error *e)
{
    const int floor_tokens = rkv_policy_floor(p);
    char shown[40];
    const double want = rkv_budget_tokens(p, n_layer, n, bytes_per_token, shown);
    if (want >= n || n <= floor_tokens) {       /* nothing to remove: the prompt is left alone */
        if (want < n)
            rkv_log(RKV_LOG_WARN, "budget %s: the prompt of %d tokens is kept whole, since it is "
                    "not longer than the floor of %d (window %d + %d)", shown, n, floor_tokens,
                    p->window, p->n_sink);
        *cap = n;
        return RKV_OK;
    }
    if (want < floor_tokens)
        return rkv_fail(
            e, RKV_E_ARG,
            "budget %s of a prompt of %d tokens is %.0f per layer and head, below "
            "the floor of %d (window %d + %d); ask for at least %.4g %%, or for a smaller "
            "window",
            shown, n, want, floor_tokens, p->window, p->n_sink,
            ceil(1000.0 * floor_tokens / n) / 10.0);
    *cap = (int)want;
    return RKV_OK;
}

/* Clip, then mean 1: METHOD section 2. */
static void bound_weights(double *w, int n, double gamma)
{
    double sum = 0.0;
    for (int u = 0; u < n; u++)
        sum += w[u] = clamp(w[u], 1.0 / gamma, gamma);
    for (int u = 0; u < n; u++)
        w[u] *= n / sum;
}

/* Budgets that are not exact, and how far they are from it. */
static void divide_as_published(int *b, const rkv_division *d, const rkv_allocator *a)
{
    int64_t sum = 0;
    a->published(b, d);
    for (int u = 0; u < d->n; u++)
        sum += b[u];
    if (sum != d->total)
        rkv_log(RKV_LOG_WARN, "allocator %s, published steps: %lld tokens for a budget of %lld "
                "(%+.2f %%)", a->name, (long long)sum, (long long)d->total,
                100.0 * (double)(sum - d->total) / (double)d->total);
}

/* b[u] of the units, by the policy's allocator. x: n doubles, part: n of scratch. */
static rkv_status divide(int *b, const rkv_division *d, double *x, rkv_part *part, rkv_error *e)
{
    const rkv_allocator *a = rkv_allocator_find(d->p->allocator);
    if (a->published && d->p->published && d->total < (int64_t)d->n * d->hi) {
        divide_as_published(b, d, a);
        return RKV_OK;
    }
    if (a->shares) {
        RKV_TRY(a->shares(x, d, e));
        for (int u = 0; u < d->n; u++)
            part[u] = (rkv_part){x[u], u};
        rkv_round_parts(b, part, d->n, d->total, d->lo, d->hi);
        return RKV_OK;
    }
    RKV_TRY(a->weights(x, d, e));
    if (a->bounded)
        bound_weights(x, d->n, d->p->gamma);
    rkv_divide(b, x, d->n, d->total, d->lo, d->hi, a->bounded ? d->p->gamma : 0.0, part);
    return RKV_OK;
}

/* Budgets of all heads of the layers in `unit`, whose heads are -1, room for as many units as there
 * are heads. */
static rkv_status divide_layers(int *budget, rkv_division *d, rkv_unit *unit, int cap,
                                rkv_error *e)
{
    const int n_head = d->n_kv_head, n_layer = d->n;
    const rkv_allocator *a = rkv_allocator_find(d->p->allocator);
    if (a->by_head && !d->p->unit_layers &&
        !(a->needs_budgets && !rkv_budgets_by_head(d->p->budgets))) {
        d->n = n_layer * n_head;
        for (int u = d->n - 1; u >= 0; u--)
            unit[u] = (rkv_unit){unit[u / n_head].layer, u % n_head};
    }
    d->total = (int64_t)cap * d->n;
    double *x = rkv_mem_alloc((size_t)d->n * sizeof *x);
    rkv_part *part = rkv_mem_alloc((size_t)d->n * sizeof *part);
    int *b = rkv_mem_alloc((size_t)d->n * sizeof *b);
    rkv_status s = RKV_OK;
    if (!x || !part || !b)
        s = rkv_fail(e, RKV_E_MEM, "budget: out of memory for %d budgets", d->n);
    else
        s = divide(b, d, x, part, e);
    for (int u = 0; !s && u < d->n; u++)
        for (int h = 0; h < n_head; h++)
            if (unit[u].head < 0 || unit[u].head == h)
                budget[unit[u].layer * n_head + h] = b[u];
    rkv_mem_free(x);
    rkv_mem_free(part);
    rkv_mem_free(b);
    return s;
}

static rkv_status check_sizes(const rkv_policy *p, int n_layer, int n_kv_head, int n_token,
                              double bytes_per_token, rkv_error *e)
{
    enum { MOST = 1 << 20 };
    if (n_layer < 1 || n_kv_head < 1 || n_token < 1 || n_layer > MOST / n_kv_head)
        return rkv_fail(e, RKV_E_ARG,
                        "budget: %d layers of %d KV heads and %d tokens, expected at least 1 of "
                        "each, and at most %d heads in all", n_layer, n_kv_head, n_token, MOST);
    if (p->budget_kind == RKV_BUDGET_BYTES && rkv_policy_active(p) &&
        !(bytes_per_token > 0.0 && bytes_per_token < INFINITY))
        return rkv_fail(e, RKV_E_ARG,
                        "budget: a token of %g bytes, expected more than 0 for a budget in bytes",
                        bytes_per_token);
    return RKV_OK;
}

rkv_status rkv_budget_heads(int *budget, int *cap_out, const rkv_policy *p, int n_layer,
                            int n_kv_head, const uint8_t *skip, int n_token,
                            double bytes_per_token, rkv_error *e)
{
    RKV_TRY(rkv_policy_check(p, e));
    RKV_TRY(check_sizes(p, n_layer, n_kv_head, n_token, bytes_per_token, e));
    const int n_head = n_layer * n_kv_head;
    rkv_unit *unit = rkv_mem_alloc((size_t)n_head * sizeof *unit);
    if (!unit)
        return rkv_fail(e, RKV_E_MEM, "budget: out of memory for %d budgets", n_head);
    int n = 0, cap = n_token;
    for (int l = 0; l < n_layer; l++)
        if (!skip || !skip[l])
            unit[n++] = (rkv_unit){l, -1};
    for (int i = 0; i < n_head; i++)
        budget[i] = n_token;
    rkv_status s = RKV_OK;
    if (!n && rkv_policy_active(p))
        rkv_log(RKV_LOG_WARN, "budget: every layer has a sliding window; nothing is removed");
    if (n && rkv_policy_active(p)) {
        s = rkv_policy_check_profile(p, e);
        if (!s)
            s = rkv_budget_cap(&cap, p, n, n_token, bytes_per_token, e);
        rkv_division d = {.p = p, .unit = unit, .n = n, .n_kv_head = n_kv_head, .hi = n_token,
                          .lo = cap < n_token ? rkv_policy_floor(p) : n_token};
        if (!s)
            s = divide_layers(budget, &d, unit, cap, e);
    }
    if (!s && cap_out)
        *cap_out = cap;
    rkv_mem_free(unit);
    return s;
}
