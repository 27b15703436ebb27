/* Edits of the prompt's cache in one layer, as the rows of a variant see it; perturb.def lists the
 * kinds. The cache itself is never written. */
#ifndef RKV_PERTURB_H
#define RKV_PERTURB_H

#include "backend/backend.h"

/* One KV head of the layer, before the edit. */
typedef struct rkv_perturb_slots {
    const rkv_backend *be;
    rkv_kv_view kv;             /* all n_prompt slots as stored */
    const int32_t *keep; /* slots that the selector lets stay, ascending; NULL: none was asked */
    int n;                      /* of them; else of kv */
    double amount;
    uint64_t key;               /* of the noise */
    int h, n_kv_head, n_prompt; /* slot t of head h draws from (h n_prompt + t) d_head on */
} rkv_perturb_slots;

/* What stands for slots [first, first + n) after the edit, slots counted among those that stay; pos
 * of the result is not set. k, v: room for n * d_head floats each, which the result may use. */
typedef rkv_kv_view rkv_perturb_fn(const rkv_perturb_slots *s, int first, int n, float *k,
                                   float *v);

typedef struct rkv_perturb {
    const char *name;
    rkv_perturb_fn *slots;
    int selects;
    double most;
} rkv_perturb;

const rkv_perturb *rkv_perturb_find(const char *name);  /* NULL: unknown */

/* The kinds. Noise: x' = x + amount |x| / sqrt(d_head) eps for each slot and head, computed in
 * double from the cache as stored, and not rounded to its type again; that of keys, rotated as
 * they are, comes from the same stream after all values (n_kv_head n_prompt d_head elements).
 * Source: METHOD sections 1 and 7. rkv_perturb_stored, of no kind, leaves all as it is. */
rkv_perturb_fn rkv_perturb_stored;
#define RKV_PERTURB(name, selects, most) rkv_perturb_fn rkv_perturb_##name;
#include "profile/perturb.def"
#undef RKV_PERTURB

#endif
