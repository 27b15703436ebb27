/* RippleKV: weight r^s, s the layer's sensitivity normalised to [0, 1] over the compressible
 * layers. Source: Xu et al. 2026 (RippleKV); METHOD section 2. */
#include "config.h"
#include "policy/policy.h"

#include <math.h>

void rkv_ripple_rule(double *w, int n, double ratio)
{
    double low = INFINITY, high = -INFINITY;
    for (int u = 0; u < n; u++) {
        low = fmin(low, w[u]);
        high = fmax(high, w[u]);
    }
    for (int u = 0; u < n; u++)
        w[u] = pow(ratio, high > low ? (w[u] - low) / (high - low) : 0.0);
}

rkv_status rkv_ripple_weights(double *w, const rkv_division *d,
                              double (*signal)(const rkv_profile *p, int l), const char *what,
                              rkv_error *e)
{
    for (int u = 0; u < d->n; u++) {
        w[u] = signal(d->p->profile, d->unit[u].layer);
        if (!isfinite(w[u]))
            return rkv_fail(e, RKV_E_MISMATCH, "policy: the profile has no %s for layer %d", what,
                            d->unit[u].layer);
    }
    rkv_ripple_rule(w, d->n, d->p->ratio);
    return RKV_OK;
}

static rkv_status weights(double *w, const rkv_division *d, rkv_error *e)
{
    return rkv_ripple_weights(w, d, rkv_profile_sensitivity, "sensitivity", e);
}

const rkv_allocator rkv_allocator_ripple = {
    .name = "ripple", .needs_profile = 1, .weights = weights, .bounded = 1,
};
