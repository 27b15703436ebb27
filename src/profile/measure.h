/* The numbers of calibration examples: prefill, the model's own answer, the walks. */
#ifndef RKV_MEASURE_H
#define RKV_MEASURE_H

#include "profile/data.h"
#include "profile/table.h"

typedef struct rkv_measurer {
    const rkv_model *m;
    const rkv_profile_options *o;
    const rkv_plan *plan;
    rkv_policy policy;          /* its selector chooses what stays in drops and estimates */
    rkv_resume *resume;         /* NULL: nothing is kept */
    /* Called often with the units done of this batch; nonzero: stop. */
    int (*report)(void *ctx, int64_t done);
    void *ctx;
    int64_t skipped;            /* units of the batch that needed no work: resume had the numbers */
    struct batch *batch;        /* at work */
} rkv_measurer;

typedef struct rkv_to_measure {
    int example;                /* its index in the file */
    rkv_example x;
    rkv_measured *row;          /* to be filled */
} rkv_to_measure;

/* Units of work of an example, about its time: rows that go through all layers. */
int64_t rkv_measure_units(const rkv_plan *p, const rkv_profile_options *o, size_t n_prompt);

/* The options of an example's session. */
rkv_session_options rkv_measure_session(const rkv_measurer *c, size_t n_prompt);

/* Bytes of an example at work beside its session and its walk: what is known of its variants. */
uint64_t rkv_measure_bytes(const rkv_measurer *c);

/* fit.c: how many examples go together, none of more than n_prompt tokens: one, or with a bound of
 * memory as many as fit in it, and in what there is. n_row: examples whose numbers are kept in the
 * end. RKV_E_MEM before any work, with the numbers and the option that would fit, when one does not
 * fit in the machine's memory, its cgroup, RLIMIT_AS or RLIMIT_DATA. */
rkv_status rkv_measure_fit(int *n, const rkv_measurer *c, size_t n_prompt, int n_row, rkv_error *e);

/* Measures n >= 1 examples together, so that each layer's weights are read once for all of them in
 * prefill and in the walks, and once for each token of the answers; as far as c->resume does not
 * hold their numbers, and keeps them there as they come. Each gets the numbers that it gets alone.
 * Rows are filled; their memory stays when it fails. Errors: those of a session;
 * RKV_E_UNSUPPORTED when logits are not finite; RKV_E_CANCELLED. */
rkv_status rkv_measure(rkv_measurer *c, const rkv_to_measure *x, int n, rkv_error *e);

#endif
