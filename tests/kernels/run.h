/* Runs all cases of one kernel and survives its crashes. */
#ifndef RUN_H
#define RUN_H

#include "case.h"

typedef struct run_options {
    uint64_t seed;
    int n_case;    /* at most so many per kernel, evenly chosen; 0: all */
    int only_case; /* this one alone; negative: all */
} run_options;

typedef struct run_result {
    int n_case; /* run */
    int failed;
    char text[2 * FAULT_TEXT]; /* the first fault, after which the kernel was left alone */
} run_result;

/* Memory and signal handlers; once. readable as for guard_open. 0 when there is no memory. */
int run_open(int readable);

/* Driver of an op; NULL when there is none. */
const op_driver *run_driver(const char *op);

/* Tests a kernel against its reference. */
run_result run_kernel(const kernel_row *k, kernel_fn ref, const op_driver *d, const run_options *o);

#endif
