/* Which prompt tokens stay: a selector scores the tokens of one KV head, an allocator divides the
 * budget over layers or KV heads. Any pair combines. Budgets are integers with an exact total;
 * nothing falls back silently. Rules: METHOD sections 2, 3, 7 and 8. */
#ifndef RKV_POLICY_H
#define RKV_POLICY_H

#include "backend/backend.h"
#include "base/err.h"
#include "rkv.h"

enum {
    RKV_FLOOR_EXTRA = 4,        /* n_sink of the default policy */
    RKV_MAX_SPLIT = 1024        /* KV heads of a layer that adakv divides among */
};

/* The floor: tokens that every KV head may keep at least. */
static inline int rkv_policy_floor(const rkv_policy *p)
{
    const int n = p->window + p->n_sink;
    return n > 1 ? n : 1;
}

/* ---- selectors ---- */

typedef struct rkv_query_stats { /* of a group's queries, before rotation, not scaled */
    const float *mean;          /* [n_group] rows: d_head means, then [d_head][d_head] covariance */
    ptrdiff_t step;             /* floats from row to row */
    const float *cosine, *back_sine; /* [n_pair] mean over the positions to come; sine negated */
    int n_pair, neox;           /* neox: pairs (i, i + n_pair), else (2i, 2i + 1) */
    double scale;               /* of attention */
} rkv_query_stats;

typedef struct rkv_observed {   /* what one (layer, KV head) is scored by */
    const rkv_backend *be;
    /* All n prompt tokens, slot i at position i; or, while decoding, what is held, whose last
     * n_query slots are the last positions. */
    rkv_kv_view kv;
    const float *q; /* [n_query][n_group][d_head] scaled, rotated queries of the head's group */
    int n_query, n_group;       /* the queries are those of the last n_query positions */
    const float *mass; /* [n] attention that each key got, summed over all queries of the
                          group; NULL where the selector does not look at it */
    const float *recent;        /* the same of the last queries, as many as the policy says */
    const rkv_query_stats *stats;       /* NULL where it does not look at them */
    int h, n_kv_head;           /* the head, and how many the layer has: */
    const rkv_kv_view *layer;   /* [n_kv_head] their slots */
    const float *layer_q;       /* [n_kv_head][n_group][d_head] the last queries; NULL: none */
    const rkv_matrix *w_o;      /* [d_model][n_kv_head * n_group * d_head] */
} rkv_observed;

typedef struct rkv_selector {
    const char *name;
    int keeps_all;              /* "full" */
    int needs_mass;             /* of all queries; 0 where needs_recent is set */
    int needs_recent;           /* of the policy's last ones; of all when it says so */
    int needs_stats;
    int ranks_layer;            /* one ranking of positions for all heads of a layer */
    int needs_window;           /* it observes the window's queries: there must be some */
    /* Queries it must observe, last ones of the prompt; NULL: none. */
    int (*n_query)(const rkv_policy *p);
    /* Floats of scratch for one head; NULL: none. */
    size_t (*scratch)(const rkv_policy *p, int n, int n_group, int d_head);
    /* score[t] of positions t < n - window: the higher the more worth keeping. */
    void (*score)(const rkv_policy *p, const rkv_observed *o, float *score, float *scratch);
    /* Scores are attention summed over so many queries of a prompt of n tokens, so that those of
     * different heads can be compared; NULL: they are something else. */
    int (*queries)(const rkv_policy *p, int n);
} rkv_selector;

const rkv_selector *rkv_selector_find(const char *name);       /* NULL: unknown */

extern const rkv_selector rkv_selector_snapkv; /* others are made of its scores */

/* Attention of the observed queries, summed over them: [n_group][n_slot] in scratch, of slots
 * t < n_scored; softmax over all slots that the query sees. scratch: rkv_query_mass_floats. */
float *rkv_query_mass(const rkv_observed *o, int n_scored, float *scratch);
size_t rkv_query_mass_floats(int n_query, int n, int n_group, int d_head);

/* norm[t] = length of stored row t of d numbers, t < n. scratch: RKV_ATTN_TILE d floats. */
void rkv_row_norms(const rkv_backend *be, float *norm, const void *rows, rkv_dtype type, int n,
                   int d, float *scratch);

/* rank[t] += rank of x[t] among the n, from 0 for the largest; equal ones share the mean of theirs,
 * NaN comes last. work: 4 n uint32. */
void rkv_add_ranks(float *rank, const float *x, int n, uint32_t *work);

/* n_query of the policy's selector, 0 where it has none. */
int rkv_policy_n_query(const rkv_policy *p);

/* keep[0..budget) = the window (last `window` positions) and the budget - window best-scored
 * positions before it, ascending; equal scores: the lower position wins. window <= budget < n.
 * order: n - window uint32 of scratch. */
void rkv_keep_best(int32_t *keep, const float *score, int n, int window, int budget,
                   uint32_t *order);

/* Head-wise budgets of one layer (AdaKV): b[n_head], what the allocator gave, becomes what the
 * heads get by their scores score[h][n - window] of n tokens; the sum stays, each lies within the
 * floor and n. work[h]: n - window uint32 of scratch each; the scores stay. Source: Feng et al.
 * 2024 (AdaKV); kvpress for adakv_forced. */
void rkv_split_budget(int *b, int n_head, const rkv_policy *p, float *const *score,
                      uint32_t *const *work, int n);

/* CriticalKV's second stage: of a head that keeps `budget` < n_slot tokens, the best by score, as
 * many as the first stage holds beside the window, become infinite, and the others' scores are
 * multiplied with the mean over the group of |W_O v|_1. The policy's selector has `queries`.
 * scratch: rkv_critical_floats. Source: Feng et al. 2025 (CriticalKV), as in kvpress. */
void rkv_critical_rescore(const rkv_policy *p, const rkv_observed *o, float *score, int budget,
                          float *scratch);
size_t rkv_critical_floats(int n, int d_head, int d_model);

/* SnapKV's steps on their own: moving maximum (padding -inf) or mean (zero padding counts) of odd
 * width, out != x. */
void rkv_pool_max(float *out, const float *x, int n, int kernel);
void rkv_pool_mean(float *out, const float *x, int n, int kernel);

/* ---- allocators ---- */

typedef struct rkv_unit {       /* what has a budget of its own */
    int layer, head;            /* head -1: all KV heads of the layer, alike */
} rkv_unit;

typedef struct rkv_division {   /* what is divided among whom */
    const rkv_policy *p;
    const rkv_unit *unit;       /* [n], ascending */
    int n, n_kv_head;
    int lo, hi;                 /* tokens that a unit gets at least and at most */
    int64_t total;              /* n lo <= total <= n hi */
} rkv_division;

typedef struct rkv_allocator {
    const char *name;
    int needs_profile, needs_curves, needs_budgets;
    int by_head;                /* units are KV heads, unless the policy says layers */
    int bounded;                /* weights stay within [1 / gamma, gamma] of the mean */
    /* Budgets [n] in [window, hi] as somebody published them, whose sum is not the total; only
     * where the policy asks for them. NULL: there are none. */
    void (*published)(int *b, const rkv_division *d);
    /* One of the two. Positive weights [n]: the share each unit would like of the budget. */
    rkv_status (*weights)(double *w, const rkv_division *d, rkv_error *e);
    /* Real budgets [n] in tokens, within [lo, hi], whose sum is the total but for rounding. */
    rkv_status (*shares)(double *x, const rkv_division *d, rkv_error *e);
} rkv_allocator;

const rkv_allocator *rkv_allocator_find(const char *name);     /* NULL: unknown */

/* Ripple's rule on a signal of each unit's layer: w[u] = ratio ^ s, s the signal scaled to [0, 1]
 * over the units. In place; and of a signal of the profile, RKV_E_MISMATCH when it does not have
 * it, called `what`. */
void rkv_ripple_rule(double *w, int n, double ratio);
rkv_status rkv_ripple_weights(double *w, const rkv_division *d,
                              double (*signal)(const rkv_profile *p, int l), const char *what,
                              rkv_error *e);

/* The file's text; rkv_budgets_load reads it. */
rkv_status rkv_budgets_parse(rkv_budgets **out, const char *text, size_t n, const char *source,
                             rkv_error *e);
/* Of all numbers in it; 0: none. */
uint64_t rkv_budgets_hash(const rkv_budgets *b);
/* The budgets may differ between KV heads of a layer. */
int rkv_budgets_by_head(const rkv_budgets *b);

/* The policy has the profile, and the profile the curves, that its allocator looks at; RKV_E_ARG
 * or RKV_E_MISMATCH says how to make them. */
rkv_status rkv_policy_check_profile(const rkv_policy *p, rkv_error *e);

typedef struct rkv_curve {      /* damage of a unit in nats, by the share of tokens it keeps */
    int n;                      /* from 1 on */
    double share[RKV_MAX_GRID], damage[RKV_MAX_GRID]; /* positive, never rising with the share */
    double log_share[RKV_MAX_GRID], log_damage[RKV_MAX_GRID];
} rkv_curve;

/* The curve of unit u of a division whose policy passes rkv_policy_check_profile: of the policy's
 * kind, damage below 1e-12 taken for that. A layer without an estimated curve of its own has the
 * sum of its heads'. RKV_E_MISMATCH: not of this model. */
rkv_status rkv_curve_of(rkv_curve *c, const rkv_division *d, int u, rkv_error *e);

/* Its damage at a share in (0, 1]: linear in the logarithms, below the first point along the line
 * of the first two; linear to 0 from the last point, and from the only one. Never rises with the
 * share. log_share: its logarithm. Source: METHOD section 8. */
double rkv_curve_at(const rkv_curve *c, double share, double log_share);

typedef struct rkv_part {       /* of a total */
    double x;
    int unit;
} rkv_part;

/* b[u] = integers with sum total, within [lo, hi], by largest remainder of the real shares
 * part[u].x of unit u, ties to the lower unit. Those lie within [lo, hi] and sum to the total but
 * for noise; n lo <= total <= n hi. part is used up. */
void rkv_round_parts(int *b, rkv_part *part, int n, int64_t total, int lo, int hi);

/* The same of shares lambda w[u] with one lambda for all (water-filling). w > 0. bound > 1
 * additionally keeps each real value within [total / n / bound, total / n * bound]. part: n of
 * scratch. */
void rkv_divide(int *b, const double *w, int n, int64_t total, int lo, int hi, double bound,
                rkv_part *part);

/* Tokens that a share of n is: floor(share n + 0.5). A share is a decimal fraction: half a token
 * must not be lost to its binary rounding. */
int rkv_budget_share(double share, int n);

/* Tokens per layer and head that p's budget stands for, whole but perhaps beyond any int, in
 * n_layer compressible layers with a prompt of n tokens. shown [40]: the budget in words. */
double rkv_budget_tokens(const rkv_policy *p, int n_layer, int n, double bytes_per_token,
                         char *shown);

/* Mean budget per layer and head for a prompt of n tokens; n when everything stays. RKV_E_ARG: the
 * floor of window + n_sink does not fit. */
rkv_status rkv_budget_cap(int *cap, const rkv_policy *p, int n_layer, int n,
                          double bytes_per_token, rkv_error *e);

/* Ranges of the numeric options; names of selector and allocator. */
rkv_status rkv_policy_check(const rkv_policy *p, rkv_error *e);

/* The policy may remove tokens at all. */
int rkv_policy_active(const rkv_policy *p);

/* Whether two policies score the tokens of a prompt alike: selector and its settings are equal,
 * whatever the budget and how it is divided. */
int rkv_policy_scores_alike(const rkv_policy *a, const rkv_policy *b);

#endif
