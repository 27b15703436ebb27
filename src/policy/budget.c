/* Exact integer budgets: water-filling to real numbers, largest remainder to integers. */
#include "config.h"
#include "policy/policy.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

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

/* Gives one token each to the `left` units with the largest remainders, ties to the lower unit. */
static void round_up(int *b, double *remainder, int n, int64_t left, int hi)
{
    for (; left > 0; left--) {
        int best = -1;
        for (int u = 0; u < n; u++)
            if (b[u] < hi && (best < 0 || remainder[u] > remainder[best]))
                best = u;
        b[best]++;
        remainder[best] -= 1.0;
    }
}

/* Takes one token each from those with the smallest, ties from the higher unit: shares that are
 * whole but for noise may have been rounded up too many times. */
static void round_down(int *b, double *remainder, int n, int64_t over, int lo)
{
    for (; over > 0; over--) {
        int best = -1;
        for (int u = 0; u < n; u++)
            if (b[u] > lo && (best < 0 || remainder[u] <= remainder[best]))
                best = u;
        b[best]--;
        remainder[best] += 1.0;
    }
}

void rkv_divide(int *b, const double *w, int n, int64_t total, int lo, int hi, double bound,
                double *real)
{
    assert((int64_t)n * lo <= total && total <= (int64_t)n * hi);
    const double mean = (double)total / n;
    const double low = bound > 1.0 ? fmax(lo, mean / bound) : lo;
    const double high = bound > 1.0 ? fmin(hi, mean * bound) : hi;
    const double lambda = water_level(w, n, (double)total, low, high);
    int64_t given = 0;
    for (int u = 0; u < n; u++) {
        /* A share that is whole but for the rounding of lambda is whole: ties must not hang on
         * noise, which grows with the share; but half a token is none. */
        const double x = clamp(lambda * w[u], low, high);
        const int whole = fabs(x - round(x)) < fmin(1e-9 * (1.0 + x), 1e-3);
        b[u] = (int)(whole ? round(x) : floor(x));
        real[u] = x - b[u];
        given += b[u];
    }
    round_up(b, real, n, total - given, hi);
    round_down(b, real, n, given - total, lo);
}

int rkv_budget_share(double share, int n)
{
    return (int)floor(share * n + 0.5 + fmax(1e-7, 1e-15 * n));
}

rkv_status rkv_budget_cap(int *cap, const rkv_policy *p, int n_unit, int n, double bytes_per_token,
                          rkv_error *e)
{
    const int floor_tokens = p->window + RKV_FLOOR_EXTRA;
    double want = n;
    char shown[40] = "full";
    if (p->budget_kind == RKV_BUDGET_SHARE) {
        want = rkv_budget_share(p->budget, n);
        snprintf(shown, sizeof shown, "%g %%", 100.0 * p->budget);
    } else if (p->budget_kind == RKV_BUDGET_TOKENS) {
        want = floor(p->budget);
        snprintf(shown, sizeof shown, "%g tokens", p->budget);
    } else if (p->budget_kind == RKV_BUDGET_BYTES) {
        want = floor(p->budget / (bytes_per_token * n_unit));
        want -= want * bytes_per_token * n_unit > p->budget;    /* the quotient was rounded up */
        snprintf(shown, sizeof shown, "%g bytes", p->budget);
    }
    if (want >= n || n <= floor_tokens) {       /* nothing to remove: the prompt is left alone */
        *cap = n;
        return RKV_OK;
    }
    if (want < floor_tokens)
        return rkv_fail(
            e, RKV_E_ARG,
            "budget %s of a prompt of %d tokens is %.0f per layer and head, below "
            "the floor of %d (window %d + %d); ask for at least %.4g %%, or for a smaller "
            "window",
            shown, n, want, floor_tokens, p->window, RKV_FLOOR_EXTRA,
            ceil(1000.0 * floor_tokens / n) / 10.0);
    *cap = (int)want;
    return RKV_OK;
}

static rkv_status divide_units(int *budget, const rkv_policy *p, const int *index, int n_unit,
                               int cap, int n_token, rkv_error *e)
{
    const rkv_allocator *a = rkv_allocator_find(p->allocator);
    double *w = rkv_mem_alloc((size_t)n_unit * 2 * sizeof *w);
    int *b = rkv_mem_alloc((size_t)n_unit * sizeof *b);
    rkv_status s = RKV_OK;
    if (!w || !b)
        s = rkv_fail(e, RKV_E_MEM, "budget: out of memory for %d layers", n_unit);
    if (!s)
        s = a->weights(w, p, index, n_unit, e);
    if (!s) {
        if (a->bounded) {                       /* clip, then mean 1: METHOD section 2 */
            double sum = 0.0;
            for (int u = 0; u < n_unit; u++)
                sum += w[u] = clamp(w[u], 1.0 / p->gamma, p->gamma);
            for (int u = 0; u < n_unit; u++)
                w[u] *= n_unit / sum;
        }
        const int lo = cap < n_token ? p->window + RKV_FLOOR_EXTRA : n_token;
        rkv_divide(b, w, n_unit, (int64_t)cap * n_unit, lo, n_token, a->bounded ? p->gamma : 0.0,
                   w + n_unit);
        for (int u = 0; u < n_unit; u++)
            budget[index[u]] = b[u];
    }
    rkv_mem_free(w);
    rkv_mem_free(b);
    return s;
}

rkv_status rkv_budget_layers(int *budget, int *cap_out, const rkv_policy *p, int n_layer,
                             const uint8_t *skip, int n_token, double bytes_per_token, rkv_error *e)
{
    RKV_TRY(rkv_policy_check(p, e));
    if (n_layer < 1 || n_token < 1)
        return rkv_fail(e, RKV_E_ARG,
                        "budget: %d layers and %d tokens, expected at least 1 of each", n_layer,
                        n_token);
    if (p->budget_kind == RKV_BUDGET_BYTES && rkv_policy_active(p) &&
        !(bytes_per_token > 0.0 && bytes_per_token < INFINITY))
        return rkv_fail(e, RKV_E_ARG,
                        "budget: a token of %g bytes, expected more than 0 for a budget in bytes",
                        bytes_per_token);
    int *index = rkv_mem_alloc((size_t)n_layer * sizeof *index);
    if (!index)
        return rkv_fail(e, RKV_E_MEM, "budget: out of memory for %d layers", n_layer);
    int n_unit = 0, cap = n_token;
    for (int l = 0; l < n_layer; l++) {
        budget[l] = n_token;
        if (!skip || !skip[l])
            index[n_unit++] = l;
    }
    rkv_status s = RKV_OK;
    if (n_unit && rkv_policy_active(p)) {
        s = rkv_budget_cap(&cap, p, n_unit, n_token, bytes_per_token, e);
        if (!s)
            s = divide_units(budget, p, index, n_unit, cap, n_token, e);
    }
    if (!s && cap_out)
        *cap_out = cap;
    rkv_mem_free(index);
    return s;
}
