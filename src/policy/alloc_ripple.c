/* RippleKV: weight r^s, s the layer's sensitivity normalised to [0, 1] over the compressible
 * layers. Source: Xu et al. 2026 (RippleKV); METHOD section 2. */
#include "config.h"
#include "policy/policy.h"

#include <math.h>

static rkv_status weights(double *w, const rkv_division *d, rkv_error *e)
{
    const rkv_profile *profile = d->p->profile;
    double low = INFINITY, high = -INFINITY;
    for (int u = 0; u < d->n; u++) {
        const double s = rkv_profile_sensitivity(profile, d->unit[u].layer);
        if (!isfinite(s))
            return rkv_fail(e, RKV_E_MISMATCH,
                            "policy: the profile has no sensitivity for layer %d",
                            d->unit[u].layer);
        low = fmin(low, s);
        high = fmax(high, s);
    }
    for (int u = 0; u < d->n; u++) {
        const double s = rkv_profile_sensitivity(profile, d->unit[u].layer);
        w[u] = pow(d->p->ratio, high > low ? (s - low) / (high - low) : 0.0);
    }
    return RKV_OK;
}

const rkv_allocator rkv_allocator_ripple = {
    .name = "ripple", .needs_profile = 1, .weights = weights, .bounded = 1,
};
