/* Profiles without a model, for tests of budgets. */
#ifndef RKV_MADE_PROFILE_H
#define RKV_MADE_PROFILE_H

#include "check.h"

#include <math.h>

#include "profile/profile.h"

/* Layers with sensitivities s[n_layer]; NaN: outside the budget. n_kv_head 0: not recorded. Ends
 * the program when memory runs out. */
static inline rkv_profile *made_profile(int n_layer, int n_kv_head, const double *s)
{
    const rkv_model_info info = {.path = "made",
                                 .name = "made",
                                 .arch = "llama",
                                 .quantization = "f32",
                                 .fingerprint = "0000000000000000",
                                 .tier = "ref",
                                 .n_layer = n_layer,
                                 .n_kv_head = n_kv_head};
    rkv_profile *p = NULL;
    rkv_error e;
    if (rkv_profile_create(&p, &info, &e))
        abort();
    p->n_seed = p->n_response = p->n_example = 1;
    p->n_position = 1;
    for (int l = 0; l < n_layer; l++)
        if (!isnan(s[l]))
            p->sensitivity[l] = (rkv_layer_signal){1, s[l], NAN, NAN};
    return p;
}

/* The layer-local signal of such a profile. */
static inline void made_local(rkv_profile *p, const double *local)
{
    rkv_error e;
    if (rkv_profile_add_extra(p, RKV_EXTRA_LOCAL, &e))
        abort();
    for (int l = 0; l < p->n_layer; l++)
        p->extra[RKV_EXTRA_LOCAL][l] = (rkv_layer_signal){1, local[l], NAN, NAN};
}

#endif
