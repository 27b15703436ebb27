/* The numbers of one calibration example: prefill, the model's own answer, the walks. */
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
    /* Called often with the units done of this example; nonzero: stop. */
    int (*report)(void *ctx, int64_t done);
    void *ctx;
    int example;                /* at work */
    int64_t at, size;           /* the part at work, in units; 0 when there was no work */
} rkv_measurer;

/* Units of work of an example, about its time: rows that go through all layers. */
int64_t rkv_measure_units(const rkv_plan *p, const rkv_profile_options *o, size_t n_prompt);

/* Measures x, example c->example of the file, as far as c->resume does not hold its numbers, and
 * keeps them there as they come. row is filled; its memory stays when it fails. Errors: those of a
 * session; RKV_E_UNSUPPORTED when logits are not finite; RKV_E_CANCELLED. */
rkv_status rkv_measure(rkv_measured *row, rkv_measurer *c, const rkv_example *x, rkv_error *e);

#endif
