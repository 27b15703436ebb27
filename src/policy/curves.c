/* Damage curves of units, between and beyond the shares at which a profile has them. */
#include "config.h"
#include "policy/policy.h"

#include <math.h>

/* Nats: what stands for less in a logarithm, and more than any curve is let grow to. */
#define LEAST 1e-12
#define MOST 1e100

/* Adds the damage of layer l's KV head h (-1: all) to that of c. 0: the profile has no such curve.
 */
static int add_curve(rkv_curve *c, const rkv_policy *p, int l, int h)
{
    const double *grid, *damage;
    const int n = rkv_profile_curve(p->profile, p->curves_measured, l, h, &grid, &damage);
    for (int i = 0; i < n; i++) {
        c->share[i] = grid[i];
        c->damage[i] += damage[i];
    }
    c->n = n;
    return n;
}

/* Of a layer the profile has curves of its own, or estimated ones of its heads: then their sum is
 * what the objective counts when all of them get the same share. */
static int sum_curves(rkv_curve *c, const rkv_division *d, rkv_unit u)
{
    *c = (rkv_curve){0};
    if (add_curve(c, d->p, u.layer, u.head) || u.head >= 0 || d->p->curves_measured)
        return c->n;
    for (int h = 0; h < d->n_kv_head; h++)
        if (!add_curve(c, d->p, u.layer, h))
            return 0;
    return c->n;
}

rkv_status rkv_curve_of(rkv_curve *c, const rkv_division *d, int u, rkv_error *e)
{
    const int l = d->unit[u].layer;
    const int n_kv_head = rkv_profile_n_kv_head(d->p->profile);
    if (n_kv_head && n_kv_head != d->n_kv_head)
        return rkv_fail(e, RKV_E_MISMATCH, "policy: the profile has %d KV heads, the model %d",
                        n_kv_head, d->n_kv_head);
    if (!sum_curves(c, d, d->unit[u]) || !(c->damage[0] >= 0.0))
        return rkv_fail(e, RKV_E_MISMATCH, "policy: the profile has no curve for layer %d", l);
    for (int i = 0; i < c->n; i++) {
        const double least = i ? c->damage[i - 1] : MOST;
        c->damage[i] = fmin(fmax(c->damage[i], LEAST), least);
        c->log_share[i] = log(c->share[i]);
        c->log_damage[i] = log(c->damage[i]);
    }
    return RKV_OK;
}

double rkv_curve_at(const rkv_curve *c, double share, double log_share)
{
    const int last = c->n - 1;
    if (share >= c->share[last] || last == 0)
        return c->damage[last] * (1.0 - share) / (1.0 - c->share[last]);
    /* Damage goes on to grow below the first share as it does between the first two: with a long
     * prompt the floor is far below it, and what was never measured must not look free. */
    int i = 0;
    while (share > c->share[i + 1])
        i++;
    const double slope = (c->log_damage[i + 1] - c->log_damage[i]) /
                         (c->log_share[i + 1] - c->log_share[i]);
    return fmin(exp(c->log_damage[i] + slope * (log_share - c->log_share[i])), MOST);
}
