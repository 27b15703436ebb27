/* A profile: how much the output distribution changes when one layer's cached Values are perturbed,
 * and when one layer or KV head keeps a share of its tokens only. JSON, format "ripplekv-profile"
 * version 1; bound to the model's fingerprint. */
#ifndef RKV_PROFILE_H
#define RKV_PROFILE_H

#include "base/json.h"
#include "rkv.h"

enum { RKV_PROFILE_VERSION = 1 };

typedef struct rkv_layer_signal {
    int in_budget;              /* 0: sliding window, left out; the rest is then NaN */
    double mean;                /* nats, mean over examples of the mean over seeds and positions */
    double se_examples;         /* standard error of the mean from the spread over examples */
    double se_seeds;            /* ... from the spread over noise seeds within examples */
} rkv_layer_signal;

typedef struct rkv_curves {     /* damage of compressing one unit to a share of the prompt */
    int measured;               /* 1: KL of runs; 0: estimated, sensitivity x output error */
    int per_head;               /* units are KV heads; 0: layers */
    char *selector;             /* that chose the kept tokens: "blend" */
    int n_grid;
    double grid[RKV_MAX_GRID];  /* shares in (0, 1), ascending */
    /* [n_layer][n_kv_head or 1][n_grid] nats, mean over examples and its standard error (NaN: one
     * example); both NaN for layers outside the budget. Source: METHOD section 8 */
    double *damage, *se;
} rkv_curves;

struct rkv_profile {
    char *model_name, *arch, *quantization, *fingerprint, *tier;
    int n_layer;
    int n_kv_head;              /* 0: not recorded */
    double noise;               /* sigma */
    int n_seed, n_response;
    int from_answers;
    int n_ctx;                  /* longest prompt that was used, in tokens; 0: not recorded */
    uint64_t data_hash;         /* of the whole calibration file; 0: not recorded */
    int n_example, n_skipped_short, n_skipped_long; /* used; too few answer tokens; over n_ctx */
    int64_t n_position;         /* answer tokens that counted */
    rkv_layer_signal *sensitivity;      /* [n_layer] */
    int n_curves;
    rkv_curves *curves;         /* at most one of each kind and unit */
};

/* An empty profile of a model: names, fingerprint, layers. RKV_E_MEM. */
rkv_status rkv_profile_create(rkv_profile **out, const rkv_model_info *info, rkv_error *e);

/* io_curves.c: curves of all layers, NaN, of a kind and unit that the profile does not have yet, on
 * grid[n_grid], 1 <= n_grid <= RKV_MAX_GRID. *out stays where it is while p lives. Per head, p must
 * have its n_kv_head. Before p is printed, those of layers in the budget must have their damage.
 * RKV_E_MEM; RKV_E_ARG: there already, a grid out of range. */
rkv_status rkv_profile_add_curves(rkv_profile *p, rkv_curves **out, int measured, int per_head,
                                  const char *selector, const double *grid, int n_grid,
                                  rkv_error *e);
const rkv_curves *rkv_profile_find_curves(const rkv_profile *p, int measured,
                                          int per_head);       /* NULL: none */
void rkv_profile_free_curves(rkv_profile *p);
/* The member "curves" with the comma before it, when there are any; and back, after the
 * sensitivities, which say what is in the budget. */
void rkv_profile_print_curves(rkv_text *t, const rkv_profile *p);
rkv_status rkv_profile_parse_curves(rkv_profile *p, const cJSON *root, const char *source,
                                    rkv_error *e);

/* From and to JSON text. source: file name for messages. */
rkv_status rkv_profile_parse(rkv_profile **out, const char *text, size_t n, const char *source,
                             rkv_error *e);
rkv_status rkv_profile_print(const rkv_profile *p, char **text, size_t *n, rkv_error *e);

#endif
