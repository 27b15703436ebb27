/* Control: ripple's weights in reverse order of the layers. */
#include "config.h"
#include "policy/policy.h"

static rkv_status weights(double *w, const rkv_division *d, rkv_error *e)
{
    RKV_TRY(rkv_ripple_weights(w, d, rkv_profile_sensitivity, "sensitivity", e));
    for (int a = 0, b = d->n - 1; a < b; a++, b--) {
        const double swapped = w[a];
        w[a] = w[b];
        w[b] = swapped;
    }
    return RKV_OK;
}

const rkv_allocator rkv_allocator_reversed = {
    .name = "reversed", .needs_profile = 1, .weights = weights, .bounded = 1,
};
