/* Budgets in proportion to the root of the damage at a tenth of the prompt: one point of the curves
 * instead of all. Source: METHOD section 8, power rule. */
#include "config.h"
#include "policy/policy.h"

#include <math.h>

static rkv_status weights(double *w, const rkv_division *d, rkv_error *e)
{
    const double share = 0.1;
    rkv_curve c;
    for (int u = 0; u < d->n; u++) {
        RKV_TRY(rkv_curve_of(&c, d, u, e));
        w[u] = sqrt(rkv_curve_at(&c, share, log(share)));
    }
    return RKV_OK;
}

const rkv_allocator rkv_allocator_root = {
    .name = "root", .needs_profile = 1, .needs_curves = 1, .by_head = 1, .weights = weights,
};
