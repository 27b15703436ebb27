/* What one sample gives under every policy, and where that is kept. */
#ifndef RKV_MEASURE_EVAL_H
#define RKV_MEASURE_EVAL_H

#include "eval/eval.h"
#include "eval/tasks.h"

enum rkv_eval_state {
    RKV_EVAL_MISSING,
    RKV_EVAL_DONE,
    RKV_EVAL_REFUSED            /* such as a budget below the floor; why says so */
};

typedef struct rkv_eval_row {
    enum rkv_eval_state state;
    double score, kl;           /* NaN: no metric; no position to compare */
    int64_t kept;               /* prompt tokens, sum of compressible layers, mean of heads */
    uint64_t bytes, bytes_full; /* of K and V after compression; without a policy */
    int n_prompt, n_question, n_answer; /* tokens */
    int untouched;              /* the budget covers the whole prompt */
    char *answer, *layers;      /* owned; layers: JSON array, tokens kept by each layer */
    char *why;                  /* owned; of a refusal, or of a missing metric; NULL: nothing */
} rkv_eval_row;

void rkv_eval_row_free(rkv_eval_row *r);

/* Token ids of a sample: the part that is compressed, and the question that follows it (protocol
 * A; else none). Owned by the caller, rkv_mem_free. */
typedef struct rkv_eval_prompt {
    int32_t *ids, *question;
    size_t n, n_question;
} rkv_eval_prompt;
rkv_status rkv_eval_prompt_make(rkv_eval_prompt *p, const rkv_sample *x, const rkv_model *m,
                                const rkv_eval_options *o, rkv_error *e);
void rkv_eval_prompt_free(rkv_eval_prompt *p);

/* Measures n samples that share one prompt: row[i * (1 + n_policy) + j] of sample i; j = 0: the
 * full cache, else policy j - 1, where row.state is RKV_EVAL_MISSING. begin, weight, total: place
 * of this work in the whole, for progress. */
rkv_status rkv_eval_measure(rkv_eval_row *row, const rkv_sample *x, const rkv_eval_prompt *p, int n,
                            const rkv_model *m, const rkv_eval_options *o, const double place[3],
                            rkv_error *e);

/* All rows of a run: [n][1 + n_policy], as rows of rkv_eval_measure; and the lines of it. */
typedef struct rkv_eval_result {
    const rkv_eval_options *o;
    const rkv_model *m;
    const rkv_samples *samples;
    rkv_eval_row *row;
    const char *against;
} rkv_eval_result;

/* html: the same numbers as a page; NULL: not asked. RKV_E_MEM; RKV_E_FORMAT: a row's layers, which
 * may come from a damaged store. */
rkv_status rkv_eval_report(char **text, char **html, const rkv_eval_result *r, int format,
                           rkv_error *e);

#endif
