/* What a benchmark says of each task, and the samples of data files. */
#ifndef RKV_TASKS_H
#define RKV_TASKS_H

#include "eval/metrics.h"
#include "profile/data.h"
#include "rkv.h"

enum rkv_category {
    RKV_CATEGORY_SINGLE, RKV_CATEGORY_MULTI, RKV_CATEGORY_SUMMARY, RKV_CATEGORY_FEWSHOT,
    RKV_CATEGORY_SYNTHETIC, RKV_CATEGORY_CODE,
    RKV_N_LONGBENCH, RKV_CATEGORY_RULER = RKV_N_LONGBENCH,      /* those above are LongBench's */
    RKV_CATEGORY_NEEDLE, RKV_CATEGORY_OTHER, RKV_N_CATEGORY
};

enum { RKV_TASK_CHAT = 1, RKV_TASK_LINE = 2, RKV_TASK_STOP = 4, RKV_TASK_EN = 8 };

/* What begins the question of generated samples. */
#define RKV_QUESTION "\n\nQuestion: "

typedef struct rkv_task {
    const char *name;
    enum rkv_category category;
    enum rkv_metric metric;
    int max_gen;
    unsigned flags;             /* RKV_TASK_ bits */
    const char *template_text, *cue;    /* NULL: none; see tasks.def */
} rkv_task;

/* By name, also with the "_e" of LongBench-E behind it; NULL: unknown. */
const rkv_task *rkv_task_find(const char *name);
/* All of them, in the order of tasks.def; NULL past the end. */
const rkv_task *rkv_task_at(int i);
/* Whether a list with commas names the task; NULL names all. */
int rkv_task_is_listed(const rkv_task *t, const char *list);
/* RKV_E_ARG: the list names a task that is not there. */
rkv_status rkv_tasks_check_list(const char *list, rkv_error *e);
/* "single-doc QA", ... */
const char *rkv_category_name(enum rkv_category c);

/* The metric of the part of the answer that counts: the first line, for some tasks. */
rkv_status rkv_task_score(double *out, const rkv_task *t, const char *prediction,
                          const rkv_reference *r, rkv_error *e);

/* ---- samples ---- */

typedef struct rkv_sample {
    char *id, *prompt;          /* owned; prompt filled in, without a chat template */
    int32_t *prompt_ids;        /* owned; instead of a prompt; NULL: none */
    size_t n_prompt_id;
    size_t question;            /* byte of the prompt where the question begins; 0: not known */
    const rkv_task *task;
    rkv_reference reference;    /* owned */
    int max_gen;
    double depth;               /* 0 to 1 of a needle; -1: none */
    int length;                 /* tokens it was made for; 0: not said */
    uint64_t hash;              /* of everything above */
} rkv_sample;

/* Reads one JSON object: "prompt", "prompt_ids", or the official "input" and "context"; "task" or
 * "dataset"; "id" or "_id"; "answers"; "all_classes"; "max_gen"; "depth", "length" of needles.
 * fallback: the task when the row names none. where: for messages. RKV_E_FORMAT, RKV_E_MEM. */
rkv_status rkv_sample_parse(rkv_sample *x, const char *line, const rkv_task *fallback,
                            const char *where, int n_vocab, rkv_error *e);
void rkv_sample_free(rkv_sample *x);

typedef struct rkv_samples {
    rkv_data *file;             /* [n_file] */
    int n_file, n;
    struct rkv_sample_at {
        int file, line;
        const rkv_task *task;
        uint64_t hash, context; /* context: of the text before the question */
        size_t weight;          /* bytes of the prompt, for progress */
        double depth;           /* of rkv_sample, like length */
        int length;
    } *at;                      /* [n] */
} rkv_samples;

/* Reads a JSONL file, or of a folder those files that bear a task's name, and looks at every line.
 * tasks: a list with commas of those wanted; NULL: all. limit: at most so many of each task; 0:
 * all. RKV_E_IO, RKV_E_FORMAT, RKV_E_ARG (unknown task in the list), RKV_E_MEM. */
rkv_status rkv_samples_load(rkv_samples *s, const char *path, const char *tasks, int limit,
                            int n_vocab, rkv_error *e);
/* The same from lines of JSON in memory, which it takes; name: for messages. */
rkv_status rkv_samples_take(rkv_samples *s, char *text, size_t n, const char *name, int n_vocab,
                            rkv_error *e);
void rkv_samples_free(rkv_samples *s);
/* Sample i anew; freed with rkv_sample_free. */
rkv_status rkv_samples_get(rkv_sample *x, const rkv_samples *s, int i, int n_vocab, rkv_error *e);

#endif
