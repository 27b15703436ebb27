/* What bench_kernels times: for every op of kernels.h, the shapes of its calls. */
#ifndef KERNEL_SHAPES_H
#define KERNEL_SHAPES_H

#include "kernels.h"

typedef void (*kernel_fn)(void);

enum {
    STREAM_BYTES = 96 << 20,    /* beyond any cache of one socket that we know */
    PLAIN_FLOATS = 1 << 17      /* of each operand of plain floats */
};

/* Operands, 64-byte aligned and apart from each other. */
typedef struct kernel_args {
    unsigned char *w;           /* the one of the kernel's type; a shape from memory streams it */
    const float *x, *z;         /* inputs within (-1, 1); z: cosines, in the second half sines */
    float *y;                   /* what is written; equal to x before the first call */
    rkv_dtype dt;
    int gemm_nr;                /* of the tier's table */
} kernel_args;

typedef struct kernel_shape {
    const char *name;
    int from_memory;            /* each call takes the next part of w, so that no cache holds it */
    int m, n, k;                /* what they count is the op's matter */
    /* What one call touches: elements of the kernel's type, and floats beside them that count as
     * traffic; and computes, 0: not stated, where it is not multiply-adds. */
    double typed, floats, flops;
} kernel_shape;

typedef struct kernel_bench {
    const char *op;
    void (*run)(kernel_fn f, const kernel_args *a, const kernel_shape *s);
    const kernel_shape *shape;
    int n_shape;
} kernel_bench;

/* One for every op of kernels.h, or this does not compile; BENCH_<op> is an op's index. */
enum {
#define RKV_OP(op) BENCH_##op,
    RKV_OPS
#undef RKV_OP
    N_BENCH
};
extern const kernel_bench kernel_benches[N_BENCH];

#endif
