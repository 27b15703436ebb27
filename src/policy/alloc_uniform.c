/* The same budget for every layer. */
#include "config.h"
#include "policy/policy.h"

static rkv_status weights(double *w, const rkv_division *d, rkv_error *e)
{
    (void)e;
    for (int u = 0; u < d->n; u++)
        w[u] = 1.0;
    return RKV_OK;
}

const rkv_allocator rkv_allocator_uniform = {.name = "uniform", .weights = weights};
