/* One call of a kernel, described so that it can be repeated anywhere in memory: operands, shape,
 * scalars. A driver (struct op_driver, one per op) draws cases, makes the call and judges the
 * outputs; case.c does the rest for all ops alike. */
#ifndef CASE_H
#define CASE_H

#include <stddef.h>
#include <stdint.h>

#include "dtypes.h"
#include "inputs.h"

/* Any kernel; drivers cast it to their op's type. */
typedef void (*kernel_fn)(void);

/* A row of kernels.def. */
typedef struct kernel_row {
    const char *name, *op, *tier;
    rkv_dtype dt;
    uint32_t isa;
    kernel_fn fn;
} kernel_row;

typedef enum operand_use { OPERAND_IN, OPERAND_OUT, OPERAND_INOUT } operand_use;

/* An array of n_row rows of row_len elements. The driver fills data; what the call left is in got,
 * and what the reference left in want; all three are tight. at and stride (bytes) hold during a
 * call. */
typedef struct operand {
    operand_use use;
    int apart; /* rows may lie apart: the kernel takes a stride */
    int share; /* 1 + the operand it may be identical with; 0: none */
    size_t n_row, row_len, elem;
    void *data, *got, *want;
    unsigned char *at;
    ptrdiff_t stride;
} operand;

enum { CASE_OPERANDS = 6, CASE_DIMS = 5, FAULT_TEXT = 400 };

typedef struct kernel_case {
    const kernel_row *kernel;
    int dim[CASE_DIMS]; /* the shape; its names are in the driver */
    float arg[2];       /* scalar arguments */
    input_kind kind;
    int n_operand;
    operand op[CASE_OPERANDS];
} kernel_case;

typedef struct op_driver {
    const char *op;
    const char *dim[CASE_DIMS]; /* names of the shape, for messages; NULL after the last */
    int (*n_case)(rkv_dtype dt);
    /* Fills shape and operands of case index. */
    void (*draw)(kernel_case *c, int index, case_rng *r);
    /* Calls f on the operands where they lie. */
    void (*call)(kernel_fn f, const kernel_case *c);
    /* Compares got with want; 0, with a text, when they differ too much. */
    int (*judge)(const kernel_case *c, char *text);
    /* Ways to divide the call into two that must give the same bits, and the call so divided;
     * NULL where the op has no such property. */
    int (*n_split)(const kernel_case *c);
    void (*call_split)(kernel_fn f, const kernel_case *c, int way);
    /* Results worked out by hand, the reference's own test; 0, with a text, when one is wrong. */
    int (*known)(kernel_fn f, rkv_dtype dt, char *text);
} op_driver;

/* Adds an operand; its memory lives until the case ends. A scalar is an array of 1 x 1. */
operand *case_operand(kernel_case *c, operand_use use, size_t n_row, size_t row_len, size_t elem);

/* The same for floats, filled with inputs of the case's kind. */
operand *case_floats(kernel_case *c, operand_use use, size_t n_row, size_t row_len, case_rng *r);

/* Where an operand of floats lies, and its stride in elements; operand i of the case. */
static inline float *at_floats(const kernel_case *c, int i)
{
    return (float *)(void *)c->op[i].at;
}

static inline ptrdiff_t elem_stride(const kernel_case *c, int i)
{
    return c->op[i].stride / (ptrdiff_t)c->op[i].elem;
}

/* Index i of a driver whose cases are lengths times kinds: each of 0..200 with each kind, then some
 * large ones. */
enum { CASE_LENGTHS = 206 };
int case_length(int index, case_rng *r);
int case_rows(rkv_dtype dt); /* CASE_LENGTHS * INPUT_KINDS: an n_case */

/* Ways to cut the one row of such a driver: before each element but the first. */
int split_row(const kernel_case *c);

/* A length from 0 to max that is often small or beside a multiple of 16. */
int case_dim(int max, case_rng *r);

/* Judges of operand i: the same bits; within max_ulp; element e within bound (a driver's own). */
int judge_bits(const kernel_case *c, int i, char *text);
int judge_ulp(const kernel_case *c, int i, double max_ulp, char *text);
int judge_within(const kernel_case *c, int i, size_t e, double bound, char *text);

/* For known results: n floats within max_ulp of the exact ones. */
int judge_known(const float *got, const double *want, size_t n, double max_ulp, char *text);

/* Memory for the cases and their operands; once. 0 when there is none. */
int case_open(int readable);

/* Runs case index of a kernel: at every place, against ref, divided, and with outputs over inputs.
 * 0, with a text, at the first fault. *ref_phase is 1 while the reference itself runs. */
int case_run(const kernel_row *k, kernel_fn ref, const op_driver *d, uint64_t seed, int index,
             volatile int *ref_phase, char *text);

/* The case last drawn, for messages about crashes. */
void case_describe(const op_driver *d, char *text);

#endif
