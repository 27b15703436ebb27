/* What a profile is made of: the plan of variants that each example is measured by, and the table
 * of their numbers, one row per example. A profile is a pure function of the table (summary.c), so
 * that parts of it may come from other runs, machines or ranks. */
#ifndef RKV_TABLE_H
#define RKV_TABLE_H

#include "profile/profile.h"
#include "profile/world.h"
#include "profile/resume.h"
#include "profile/walk.h"

enum {
    RKV_MIN_RESPONSE = 8,       /* an example with fewer answer tokens is skipped */
    RKV_CURVE_POSITIONS = 10    /* answer tokens that measured curves look at: METHOD section 8 */
};

typedef struct rkv_planned {
    rkv_variant v;
    unsigned signal;            /* RKV_SIGNAL_ bit that it serves */
    int point;                  /* of that signal's grid */
} rkv_planned;

typedef struct rkv_plan {
    const rkv_profile *head;    /* settings and layers, borrowed */
    int n_item, n_main; /* variants; the first n_main are compared at all answer tokens, the rest at
                           the first RKV_CURVE_POSITIONS; each part by ascending layer */
    rkv_planned *item;
    size_t n_error;     /* numbers of an example's estimates: [n_layer][n_kv_head][n_grid], or 0 */
} rkv_plan;

/* The plan of a profile's settings for its layers in the budget. RKV_E_MEM. */
rkv_status rkv_plan_make(rkv_plan *out, const rkv_profile *head, rkv_error *e);
void rkv_plan_free(rkv_plan *p);

typedef struct rkv_measured {   /* one example */
    enum rkv_example_state state;
    int n_fed;
    rkv_outcome *out;           /* [n_item]; NULL unless used */
    double *error;              /* [n_error] relative errors of attention, NaN for layers left out;
                                   NULL: none were wanted */
} rkv_measured;

typedef struct rkv_table {
    rkv_profile *head;          /* model and settings, owned */
    rkv_plan plan;
    int n_example;              /* examples of the file that were to be looked at */
    int shard, n_shard;         /* rows i with i % n_shard == shard - 1 are here; 1 of 1: all */
    rkv_measured *row;          /* [n_example] */
} rkv_table;

/* Takes head (also when it fails). RKV_E_MEM. */
rkv_status rkv_table_create(rkv_table **out, rkv_profile *head, int n_example, rkv_error *e);
void rkv_table_free(rkv_table *t);
/* Memory for the numbers of one row. RKV_E_MEM. */
rkv_status rkv_measured_alloc(rkv_measured *row, const rkv_plan *p, rkv_error *e);
void rkv_measured_free(rkv_measured *row);
/* All numbers are such as a model can give. */
int rkv_measured_valid(const rkv_measured *row, const rkv_plan *p);

static inline int rkv_table_has(const rkv_table *t, int i)
{
    return i % t->n_shard == t->shard - 1;
}

/* run.c: measures the examples of o's shard. */
rkv_status rkv_table_run(rkv_table **out, const rkv_model *m, const char *jsonl_path,
                         const rkv_profile_options *o, rkv_error *e);

/* share.c: measures all examples, each rank its part, and puts them together at rank 0; *out is
 * NULL at the others. A failure of any is everyone's. */
rkv_status rkv_table_share(rkv_table **out, const rkv_world *r, const rkv_model *m,
                           const char *jsonl_path, const rkv_profile_options *o, rkv_error *e);

/* summary.c: means, errors, curves, intervals and diagnostics of the used rows, in their order. The
 * profile is t->head, which then belongs to the caller; t is good for nothing else. RKV_E_FORMAT:
 * no row is used; source, for the message: the data. RKV_E_MEM. */
rkv_status rkv_table_summarize(rkv_profile **out, rkv_table *t, const char *source, rkv_error *e);

/* The sensitivity of each used row, mean over seeds: [*n][n_layer], NaN for layers left out; freed
 * with rkv_mem_free. RKV_E_MEM. */
rkv_status rkv_table_sensitivity(double **out, int *n, const rkv_table *t, rkv_error *e);

/* certainty.c: what resampling the n examples of s [n][n_layer] says; c[n_layer]. RKV_E_MEM. */
rkv_status rkv_certainty(rkv_layer_certainty *c, const rkv_profile *p, const double *s, int n,
                         rkv_error *e);
/* The point of a grid that is nearest to a share. */
int rkv_curves_point(const rkv_curves *c, double share);
/* Estimated damage of a layer at p's damage_budget: the sum over its heads at the nearest point of
 * c, curves of p per head. */
double rkv_curves_layer_damage(const rkv_profile *p, const rkv_curves *c, int l);
/* Half width of the widest interval of a budget, and the first layer that has it; NaN and -1 when
 * there are none. */
double rkv_certainty_widest(const rkv_layer_certainty *c, const rkv_profile *p, int *layer);
/* The same of a table's used rows so far. RKV_E_MEM. */
rkv_status rkv_table_widest(double *out, int *layer, const rkv_table *t, rkv_error *e);
/* p->certainty and p->diagnostics, all else being there. RKV_E_MEM. */
rkv_status rkv_diagnose(rkv_profile *p, const double *s, int n, rkv_error *e);

/* shard.c: a table as JSON text, format "ripplekv-profile-shard", and back to the same bits.
 * source: name for messages. *text: freed with rkv_mem_free. RKV_E_MEM; RKV_E_FORMAT. */
rkv_status rkv_table_print(const rkv_table *t, char **text, size_t *n, rkv_error *e);
rkv_status rkv_table_parse(rkv_table **out, const char *text, size_t n, const char *source,
                           rkv_error *e);
rkv_status rkv_table_save(const rkv_table *t, const char *path, rkv_error *e);
/* Moves the rows of all n >= 1 parts into the first, which is then whole. RKV_E_MISMATCH: parts of
 * different profiles, one missing, or there twice; they stay good for rkv_table_free only. */
rkv_status rkv_table_join(rkv_table **part, const char *const *name, int n, rkv_error *e);
/* The same of files. */
rkv_status rkv_table_merge(rkv_table **out, const char *const *path, int n_path, rkv_error *e);

#endif
