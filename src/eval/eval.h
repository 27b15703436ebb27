/* rkv eval: policies and budgets side by side on the tasks of benchmarks. What the command uses; no
 * part of rkv.h. */
#ifndef RKV_EVAL_H
#define RKV_EVAL_H

#include "rkv.h"

typedef struct rkv_eval_policy {
    const char *name, *budget;  /* as the user wrote them: "snapkv", "10%" */
    rkv_policy policy;
} rkv_eval_policy;

typedef struct rkv_eval_options {
    const char *data;           /* JSONL file, or folder of TASK.jsonl; NULL: made samples */
    const char *tasks;          /* list with commas; NULL: all */
    int limit;                  /* samples of each task at most; 0: all */
    const int *ruler, *needle;  /* [n_ruler], [n_needle] lengths in tokens of made samples */
    int n_ruler, n_needle;
    int samples;                /* of each RULER task and length; of each depth of a needle */
    int depths;                 /* of needles, evenly from the begin to the end */
    uint64_t seed;
    const rkv_eval_policy *policy;      /* [n_policy], without the full cache, which is measured
                                           always; they differ in names and budgets only */
    int n_policy;
    const char *settings;       /* text of all else that the policies depend on, for the store */
    char protocol;              /* 'Q': the question is in the compressed prompt; 'A': it follows */
    int max_length;             /* tokens of a prompt, its middle cut out; 0: what fits the model */
    int response;               /* answer tokens that the KL is over, at most; 32 */
    int raw;                    /* no chat template for any task */
    int n_ctx, n_thread, n_chunk;
    const char *k_type, *v_type;
    const char *db;             /* SQLite file; NULL: none, which several ranks must not have */
    int shard, n_shard;         /* as of rkv_profile_options */
    int ranks;                  /* the ranks of an mpirun on one machine share the samples by db */
    rkv_progress_fn *progress;
    void *progress_ctx;
} rkv_eval_options;

/* Of column c of the results: the full cache, then the policies. */
static inline const char *rkv_eval_name(const rkv_eval_options *o, int c)
{
    return c ? o->policy[c - 1].name : "full";
}

static inline const char *rkv_eval_budget(const rkv_eval_options *o, int c)
{
    return c ? o->policy[c - 1].budget : "100%";
}

enum { RKV_EVAL_TEXT, RKV_EVAL_JSON, RKV_EVAL_CSV };

/* Measures what the store does not hold yet, and writes the table: *text; and to *html, unless html
 * is NULL, the same numbers as a page that refers to nothing else. Both freed with rkv_free, NULL
 * for ranks above 0. A rank that fails stops the others, which then fail with its message.
 * against: a policy, "full" too, perhaps with "@BUDGET", that the others are compared with; NULL:
 * the first.
 * Errors: RKV_E_IO, RKV_E_WRITE (the store), RKV_E_FORMAT (data, a damaged store), RKV_E_ARG
 * (options, policies, several ranks without db), RKV_E_MISMATCH (profile), RKV_E_UNSUPPORTED (a
 * store without SQLite; protocol A of samples whose question is not known), RKV_E_MEM,
 * RKV_E_CANCELLED. */
rkv_status rkv_eval_run(char **text, char **html, const rkv_model *m, const rkv_eval_options *o,
                        int format, const char *against, rkv_error *e);

/* Writes a text by temporary file, fsync and rename. RKV_E_WRITE, RKV_E_MEM. */
rkv_status rkv_eval_save(const char *path, const char *text, size_t n, rkv_error *e);

/* Samples that o describes as JSONL: *text, freed with rkv_free. */
rkv_status rkv_eval_write(char **text, size_t *n, const rkv_model *m, const rkv_eval_options *o,
                          rkv_error *e);

/* Scores stored predictions: lines {"id", "task", "prediction", "answers", "all_classes"}.
 * *text, freed with rkv_free: {"rows":[{"id","task","score"}]}, score null where the metric is not
 * there. */
rkv_status rkv_eval_score(char **text, const char *path, rkv_error *e);

#endif
