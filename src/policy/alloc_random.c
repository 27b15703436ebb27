/* Control: ripple's rule on a signal that knows nothing, numbers of the pinned generator. */
#include "config.h"
#include "policy/policy.h"

#include "noise.h"

static rkv_status weights(double *w, const rkv_division *d, rkv_error *e)
{
    const uint64_t key = rkv_noise_key(0, d->p->seed, 0);
    (void)e;
    for (int u = 0; u < d->n; u++)
        w[u] = rkv_noise_uniform(key, (uint64_t)d->unit[u].layer);
    rkv_ripple_rule(w, d->n, d->p->ratio);
    return RKV_OK;
}

const rkv_allocator rkv_allocator_random = {.name = "random", .weights = weights, .bounded = 1};
