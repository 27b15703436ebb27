/* StreamingLLM: the first n_sink positions and the last ones; no score. Positions stay what they
 * were. Source: Xiao et al. 2023 (StreamingLLM), with the choices of METHOD section 7. */
#include "config.h"
#include "policy/policy.h"

#include <math.h>

static void score(const rkv_policy *p, const rkv_observed *o, float *out, float *scratch)
{
    const int n_scored = o->kv.n_slot - p->window;
    (void)scratch;
    for (int t = 0; t < n_scored; t++)
        out[t] = t < p->n_sink ? INFINITY : (float)(t - n_scored);  /* exact at the cut */
}

const rkv_selector rkv_selector_streaming = {.name = "streaming", .score = score};
