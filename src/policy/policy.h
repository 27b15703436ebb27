/* Which prompt tokens stay: a selector scores the tokens of one KV head, an allocator divides the
 * budget over layers. Any pair combines. Budgets are integers with an exact total; nothing falls
 * back silently. Rules: METHOD sections 2, 3 and 7. */
#ifndef RKV_POLICY_H
#define RKV_POLICY_H

#include "backend/backend.h"
#include "base/err.h"
#include "rkv.h"

enum { RKV_FLOOR_EXTRA = 4 };   /* tokens beside the window that every unit may keep */

/* ---- selectors ---- */

typedef struct rkv_observed {   /* what one (layer, KV head) is scored by */
    const rkv_backend *be;
    rkv_kv_view kv;             /* all n prompt tokens, slot i at position i */
    const float *q; /* [n_query][n_group][d_head] scaled, rotated queries of the head's group */
    int n_query, n_group;       /* the queries are those of the last n_query prompt positions */
    const float *mass; /* [n] attention that each key got, summed over all prompt queries of the
                          group; NULL where the selector does not look at it */
} rkv_observed;

typedef struct rkv_selector {
    const char *name;
    int keeps_all;              /* "full" */
    int needs_mass;
    /* Queries it must observe, last ones of the prompt; NULL: none. */
    int (*n_query)(const rkv_policy *p);
    /* Floats of scratch for one head; NULL: none. */
    size_t (*scratch)(const rkv_policy *p, int n, int n_group, int d_head);
    /* score[t] of positions t < n - window: the higher the more worth keeping. */
    void (*score)(const rkv_policy *p, const rkv_observed *o, float *score, float *scratch);
} rkv_selector;

const rkv_selector *rkv_selector_find(const char *name);       /* NULL: unknown */

/* n_query of the policy's selector, 0 where it has none. */
int rkv_policy_n_query(const rkv_policy *p);

/* keep[0..budget) = the window (last `window` positions) and the budget - window best-scored
 * positions before it, ascending; equal scores: the lower position wins. window <= budget < n.
 * order: n - window uint32 of scratch. */
void rkv_keep_best(int32_t *keep, const float *score, int n, int window, int budget,
                   uint32_t *order);

/* SnapKV's steps on their own: moving maximum (padding -inf) or mean (zero padding counts) of odd
 * width, out != x. */
void rkv_pool_max(float *out, const float *x, int n, int kernel);
void rkv_pool_mean(float *out, const float *x, int n, int kernel);

/* ---- allocators ---- */

typedef struct rkv_allocator {
    const char *name;
    int needs_profile;
    /* Positive weights of n units: the share each would like of the budget. index[u]: the unit's
     * layer. */
    rkv_status (*weights)(double *w, const rkv_policy *p, const int *index, int n, rkv_error *e);
    int bounded;                /* weights stay within [1 / gamma, gamma] of the mean */
} rkv_allocator;

const rkv_allocator *rkv_allocator_find(const char *name);     /* NULL: unknown */

/* b[u] = integers with sum total, within [lo, hi], nearest to lambda w[u] with one lambda for all
 * (water-filling), rounded by largest remainder, ties to the lower unit. w > 0; n lo <= total <= n
 * hi. bound > 1 additionally keeps each real value within [total / n / bound, total / n * bound].
 * real: n doubles of scratch. */
void rkv_divide(int *b, const double *w, int n, int64_t total, int lo, int hi, double bound,
                double *real);

/* Tokens that a share of n is: floor(share n + 0.5). A share is a decimal fraction: half a token
 * must not be lost to its binary rounding. */
int rkv_budget_share(double share, int n);

/* Mean budget per layer and head for a prompt of n tokens; n when everything stays. RKV_E_ARG: the
 * floor of window + 4 does not fit. */
rkv_status rkv_budget_cap(int *cap, const rkv_policy *p, int n_unit, int n, double bytes_per_token,
                          rkv_error *e);

/* Ranges of the numeric options; names of selector and allocator. */
rkv_status rkv_policy_check(const rkv_policy *p, rkv_error *e);

/* The policy may remove tokens at all. */
int rkv_policy_active(const rkv_policy *p);

#endif
