/* Budgets that make the summed damage of all units least, by their damage curves: each unit starts
 * at the floor, and what is left goes where a token gains the most. On the lower convex hull of the
 * curves that is the optimum. Source: METHOD section 8. */
#include "config.h"
#include "policy/policy.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

enum { N_STEP = 500 };          /* of the prompt, from which the hull is made */

typedef struct hulls {
    const rkv_division *d;
    int n;                      /* steps of a unit */
    double at[N_STEP + 2];      /* [n + 1] tokens: the floor, then whole steps, to the prompt */
    double log_share[N_STEP + 2];
    double *gain;               /* [unit][n] nats per token of each step, never rising */
    double *end;                /* [unit] tokens, see fill */
} hulls;

static double *gains(const hulls *x, int u)
{
    return x->gain + (ptrdiff_t)u * x->n;
}

static void place_steps(hulls *x)
{
    const double prompt = x->d->hi;
    x->n = 0;
    x->at[0] = x->d->lo;
    for (int k = 1; k <= N_STEP; k++)
        if (k * prompt > (double)x->d->lo * N_STEP)
            x->at[++x->n] = k * prompt / N_STEP;
    for (int i = 0; i <= x->n; i++)
        x->log_share[i] = log(x->at[i] / prompt);
}

/* Gains of the steps along the lower convex hull of the curve's points. */
static void hull(const hulls *x, const rkv_curve *c, double *gain)
{
    double damage[N_STEP + 2], slope[N_STEP + 2];       /* of hull point k, and up to it */
    int point[N_STEP + 2], top = 0;
    point[0] = 0;
    damage[0] = rkv_curve_at(c, x->at[0] / x->d->hi, x->log_share[0]);
    for (int i = 1; i <= x->n; i++) {
        const double y = rkv_curve_at(c, x->at[i] / x->d->hi, x->log_share[i]);
        double s = (damage[top] - y) / (x->at[i] - x->at[point[top]]);
        while (top > 0 && slope[top] <= s) {
            top--;
            s = (damage[top] - y) / (x->at[i] - x->at[point[top]]);
        }
        point[++top] = i;
        damage[top] = y;
        slope[top] = s;
    }
    for (int k = 1; k <= top; k++)
        for (int i = point[k - 1]; i < point[k]; i++)
            gain[i] = fmax(slope[k], 0.0);
}

/* Steps of unit u whose gain is at least g; above: more than g. */
static int steps_of(const hulls *x, int u, double g, int above)
{
    const double *gain = gains(x, u);
    int a = 0, b = x->n;
    while (a < b) {
        const int mid = (a + b) / 2;
        if (above ? gain[mid] > g : gain[mid] >= g)
            a = mid + 1;
        else
            b = mid;
    }
    return a;
}

/* Tokens of all units when each takes the steps whose gain is at least g. */
static double taken(const hulls *x, double g)
{
    double sum = 0.0;
    for (int u = 0; u < x->d->n; u++)
        sum += x->at[steps_of(x, u, g, 0)];
    return sum;
}

/* The gain of the last step that is taken, perhaps in part: the largest g with taken(g) >= total.
 * Doubles from 0 on have the order of their bits, so 63 halvings find it exactly. */
static double last_gain(const hulls *x)
{
    uint64_t a = 0, b = UINT64_C(0x7ff0000000000000);   /* taken at 0: everything; at infinity: 0 */
    while (b - a > 1) {
        const uint64_t mid = a + (b - a) / 2;
        double g;
        memcpy(&g, &mid, sizeof g);
        if (taken(x, g) >= (double)x->d->total)
            a = mid;
        else
            b = mid;
    }
    double g;
    memcpy(&g, &a, sizeof g);
    return g;
}

/* share[u] of each unit: every step above the last gain, and of those with just that gain as much
 * as is left, by a common level, so that equal curves get equal budgets. */
static void fill(const hulls *x, double g, double *share)
{
    const int n = x->d->n;
    double low = x->d->lo, high = x->d->hi;
    for (int u = 0; u < n; u++) {
        share[u] = x->at[steps_of(x, u, g, 1)];
        x->end[u] = x->at[steps_of(x, u, g, 0)];
    }
    for (;;) {
        const double level = low + (high - low) / 2;
        double sum = 0.0;
        if (level <= low || level >= high)
            break;
        for (int u = 0; u < n; u++)
            sum += fmin(fmax(level, share[u]), x->end[u]);
        if (sum < (double)x->d->total)
            low = level;
        else
            high = level;
    }
    for (int u = 0; u < n; u++)
        share[u] = fmin(fmax(high, share[u]), x->end[u]);
}

static rkv_status shares(double *share, const rkv_division *d, rkv_error *e)
{
    hulls x = {.d = d};
    rkv_curve c;
    place_steps(&x);
    x.gain = rkv_mem_alloc(rkv_mem_product((size_t)d->n, ((size_t)x.n + 1) * sizeof *x.gain));
    if (!x.gain)
        return rkv_fail(e, RKV_E_MEM, "budget: out of memory for %d curves", d->n);
    x.end = x.gain + (ptrdiff_t)d->n * x.n;
    rkv_status s = RKV_OK;
    for (int u = 0; !s && u < d->n; u++) {
        s = rkv_curve_of(&c, d, u, e);
        if (!s)
            hull(&x, &c, gains(&x, u));
    }
    if (!s)
        fill(&x, last_gain(&x), share);
    rkv_mem_free(x.gain);
    return s;
}

const rkv_allocator rkv_allocator_curve = {
    .name = "curve", .needs_profile = 1, .needs_curves = 1, .by_head = 1, .shares = shares,
};
