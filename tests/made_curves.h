/* Profiles of made models, with damage curves that differ from head to head. */
#ifndef RKV_MADE_CURVES_H
#define RKV_MADE_CURVES_H

#include "made.h"

#include <math.h>

#include "profile/profile.h"

/* Estimated curves per KV head: some heads want all of the prompt, some next to nothing. */
static inline rkv_profile *made_curves(const rkv_model *m)
{
    static const double grid[] = {0.05, 0.1, 0.2, 0.5};
    const rkv_model_info *info = rkv_model_get_info(m);
    rkv_profile *p = NULL;
    rkv_curves *c = NULL;
    rkv_error e = {0};
    if (rkv_profile_create(&p, info, &e) ||
        rkv_profile_add_curves(p, &c, 0, 1, "blend", grid, 4, &e)) {
        fprintf(stderr, "made curves: %s\n", e.text);
        exit(1);
    }
    for (int l = 0; l < info->n_layer; l++) {
        if (rkv_model_layer_is_sliding(m, l))
            continue;
        p->sensitivity[l] = (rkv_layer_signal){1, 0.1 * (l + 1), NAN, NAN};
        for (int h = 0; h < info->n_kv_head; h++)
            for (int i = 0; i < 4; i++)
                c->damage[(l * info->n_kv_head + h) * 4 + i] =
                    pow(30.0, (l + 2 * h) % 3) * 1e-3 / pow(i + 1.0, 1 + h % 2);
    }
    return p;
}

#endif
