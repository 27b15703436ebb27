/* The numbers of a run, made once: every format writes the same ones. */
#ifndef RKV_REPORT_EVAL_H
#define RKV_REPORT_EVAL_H

#include "base/json.h"
#include "eval/compare.h"
#include "eval/measure.h"

typedef struct rkv_eval_mean {
    double sum;
    int n;
} rkv_eval_mean;

/* NaN: of nothing. */
double rkv_eval_mean_of(const rkv_eval_mean *m);

typedef struct rkv_eval_part {  /* samples of one task, or all, in one column */
    int done, refused, untouched;
    rkv_eval_mean score, kl;    /* percent; nats */
    rkv_eval_mean bytes, bytes_full;
    rkv_paired to_rival;        /* scores beside the rival's; n = 0: nothing to compare */
} rkv_eval_part;

typedef struct rkv_eval_needle {        /* made samples of one depth and length */
    double depth, found;        /* depth: -1 when not known */
    int length, n;
} rkv_eval_needle;

typedef struct rkv_eval_column {        /* one policy at one budget */
    const char *name, *budget;
    int rival;                  /* the column that this one is compared with; -1: none */
    int missing;
    rkv_eval_part all, *task;   /* [n_task] */
    rkv_eval_mean kept, share;  /* tokens; of the prompt's bytes, 0 to 1 */
    rkv_interval kl_interval;
    rkv_paired to_full, kl_to_rival;    /* scores, KL */
    double category[RKV_N_CATEGORY];    /* percent; NaN: none */
    double average6, average16; /* mean of the LongBench categories; of the tasks without Chinese */
    int n6, n16;
    double *layer;              /* [n_layer] tokens kept, mean of KV heads and samples; NaN: none */
    rkv_eval_needle *needle;    /* [n_needle] in the order of their first samples */
    int n_needle;
} rkv_eval_column;

typedef struct rkv_eval_numbers {
    const rkv_eval_result *r;
    const rkv_model_info *model;
    rkv_eval_column *column;    /* [n_column]; 0: the full cache */
    const rkv_task **task;      /* [n_task] that have samples, in the order of tasks.def */
    int *task_n;                /* [n_task] how many */
    double *depth;              /* [n_depth] of needles, ascending; -1: not known */
    int *length;                /* [n_length] of needles, ascending */
    const char **name, **budget;        /* [n_name], [n_budget] of the policies, each once; budgets
                                           from the least bytes kept on */
    int n, n_column, n_task, n_name, n_budget, n_depth, n_length;
    double *a, *b, *scratch;    /* [n], [n], [n + RKV_RESAMPLES] while they are made */
    int *pick;
} rkv_eval_numbers;

/* Column by name and budget; -1: there is none. */
int rkv_eval_column_of(const rkv_eval_numbers *p, const char *name, const char *budget);

/* Column that column c is compared with: against, at the budget of c unless it names one; NULL: the
 * first policy. May be c itself. -1: there is none. */
int rkv_eval_against(const rkv_eval_options *o, const char *against, int c);

void rkv_eval_put_text(rkv_text *t, const rkv_eval_numbers *p);
void rkv_eval_put_json(rkv_text *t, const rkv_eval_numbers *p);
void rkv_eval_put_csv(rkv_text *t, const rkv_eval_numbers *p);
void rkv_eval_put_html(rkv_text *t, const rkv_eval_numbers *p);

/* ---- parts of the page ---- */

/* Score and KL by budget, and their differences to the rivals. Takes a policy. */
void rkv_eval_put_curves(rkv_text *t, const rkv_eval_numbers *p);
/* A heat map of depths and lengths for each column. */
void rkv_eval_put_needles(rkv_text *t, const rkv_eval_numbers *p);
/* Bars of the tokens kept by each layer. */
void rkv_eval_put_layers(rkv_text *t, const rkv_eval_numbers *p);
/* Class of the colour of policy number name (of p->name). */
const char *rkv_eval_hue(int name);

#endif
