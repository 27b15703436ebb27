/* Ripple's rule on the layer-local signal: how far noise on a layer's Values moves that layer's own
 * output, instead of the model's. Source: Xu et al. 2026, ablation; METHOD sections 4 and 7. */
#include "config.h"
#include "policy/policy.h"

static rkv_status weights(double *w, const rkv_division *d, rkv_error *e)
{
    return rkv_ripple_weights(w, d, rkv_profile_local,
                              "layer-local signal ('local': made by rkv profile)", e);
}

const rkv_allocator rkv_allocator_local = {
    .name = "local", .needs_profile = 1, .weights = weights, .bounded = 1,
};
