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

typedef struct rkv_layer_certainty {    /* 95 % intervals: examples resampled; NaN: unknown */
    double rank, rank_low, rank_high;   /* of the sensitivity, 1: the least sensitive layer */
    double budget, budget_low, budget_high;     /* of allocator ripple, in units of cap */
} rkv_layer_certainty;

/* Signals of a layer beside the sensitivity. */
enum rkv_extra { RKV_EXTRA_LOCAL, RKV_EXTRA_KEYS, RKV_EXTRA_KEYS_VALUES, RKV_EXTRA_DAMAGE,
                 RKV_EXTRA_COUNT };

/* What ranks are compared: rows are the sensitivity and, when it was measured, the damage. */
enum rkv_order { RKV_ORDER_SENSITIVITY, RKV_ORDER_DAMAGE, RKV_ORDER_ESTIMATE, RKV_ORDER_LOCAL,
                 RKV_ORDER_KEYS, RKV_ORDER_KEYS_VALUES, RKV_ORDER_INDEX, RKV_ORDER_RANDOM,
                 RKV_ORDER_COUNT };
enum { RKV_ORDER_ROWS = 2, RKV_MAX_AGREEMENT = 32 };

typedef struct rkv_diagnostics {
    int known;                  /* 0: a file without them */
    double spearman[RKV_ORDER_ROWS][RKV_ORDER_COUNT];   /* over layers; NaN: not known */
    int n_agreement;            /* Spearman of the mean over the first k examples with the final */
    struct {
        int k;
        double spearman;
    } agreement[RKV_MAX_AGREEMENT];
    double widest;              /* half width of the widest interval of a budget; NaN: not known */
    int n_more;                 /* examples that would narrow it to RKV_STABLE, about; 0: it is,
                                   or widest is NaN */
} rkv_diagnostics;

#define RKV_STABLE 0.02         /* half width, in units of cap */

struct rkv_profile {
    char *model_name, *arch, *quantization, *fingerprint, *tier;
    int n_layer;
    int n_kv_head;              /* 0: not recorded */
    char *arithmetic, *rope_scaling;    /* NULL: not recorded */
    double rope_base, rope_factor;
    double noise;               /* sigma */
    int n_seed, n_response;
    int from_answers;
    int n_ctx;                  /* longest prompt that was used, in tokens; 0: not recorded */
    uint64_t data_hash;         /* of the whole calibration file; 0: not recorded */
    unsigned signals;           /* RKV_SIGNAL_ bits */
    char *selector;             /* of damage and curves; NULL: not recorded */
    double damage_budget;
    int n_grid, n_head_grid;    /* shares of curves; of measured ones of heads */
    double grid[RKV_MAX_GRID], head_grid[RKV_MAX_GRID];
    int n_example, n_skipped_short, n_skipped_long; /* used; too few answer tokens; over n_ctx */
    int64_t n_position;         /* answer tokens that counted */
    rkv_layer_signal *sensitivity;      /* [n_layer] */
    rkv_layer_signal *extra[RKV_EXTRA_COUNT];   /* [n_layer]; NULL: not measured */
    rkv_layer_certainty *certainty;     /* [n_layer] of the sensitivity */
    rkv_diagnostics diagnostics;
    int n_curves;
    rkv_curves *curves;         /* at most one of each kind and unit */
};

extern const char *const rkv_order_name[RKV_ORDER_COUNT];

/* An empty profile of a model: names, fingerprint, layers. RKV_E_MEM. */
rkv_status rkv_profile_create(rkv_profile **out, const rkv_model_info *info, rkv_error *e);

/* Memory for what there is one of for each layer, all of it NaN. RKV_E_MEM. */
rkv_status rkv_profile_alloc_layers(rkv_profile *p, int n_layer, const char *source, rkv_error *e);

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

/* Names of signals: "values,curves" for bits, into[128]; and back (RKV_E_ARG). */
void rkv_signals_print(char *into, unsigned signals);
rkv_status rkv_signals_parse(unsigned *out, const char *list, rkv_error *e);

/* io.c: a member with the comma before it, the numbers x[0], x[stride], ...; n of them. */
void rkv_profile_print_numbers(rkv_text *t, const char *key, const double *x, size_t stride,
                               size_t n);
/* Index of the first share that is not above the one before it, or not between 0 and 1; -1: none
 * is so. */
int rkv_profile_bad_share(const double *grid, int n);
/* Every layer left out, and not measured. */
void rkv_profile_clear(rkv_layer_signal *s, int n_layer);

/* io_head.c: format, model and settings, the first members of a JSON object; and back into a zeroed
 * profile, whose layers it makes. */
void rkv_profile_print_head(rkv_text *t, const rkv_profile *p, const char *format);
rkv_status rkv_profile_parse_head(rkv_profile *p, const cJSON *root, const char *format,
                                  const char *source, rkv_error *e);

/* io_signals.c: signals and certainty, layer by layer. */
/* Memory for a signal of all layers. RKV_E_MEM. */
rkv_status rkv_profile_add_extra(rkv_profile *p, enum rkv_extra which, rkv_error *e);
/* Sensitivity, further signals and diagnostics as members with the comma before each; and back. A
 * profile has the first, all else is optional. */
void rkv_profile_print_signals(rkv_text *t, const rkv_profile *p);
rkv_status rkv_profile_parse_signals(rkv_profile *p, const cJSON *root, const char *source,
                                     rkv_error *e);

/* From JSON text. source: file name for messages. */
rkv_status rkv_profile_parse(rkv_profile **out, const char *text, size_t n, const char *source,
                             rkv_error *e);

#endif
