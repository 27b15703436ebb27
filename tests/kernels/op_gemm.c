/* Drivers of gemm and transpose. */
#include "config.h"
#include "case.h"
#include "kernels.h"

#include <math.h>

#include "tol.h"

typedef RKV_PROTO_gemm(*gemm_fn);
typedef RKV_PROTO_transpose(*transpose_fn);

enum { M, N, K, ACC }; /* dim[] of gemm */
enum { C, A, B };      /* its operands */

static int n_case_gemm(rkv_dtype dt)
{
    (void)dt;
    return 500;
}

/* Small shapes are divided in every way; then any shape; then long sums. */
static void draw_gemm(kernel_case *c, int index, case_rng *r)
{
    c->kind = (input_kind)(index % INPUT_KINDS);
    const int small = index < 150, deep = index >= 470;
    c->dim[M] = small ? (int)rng_below(r, 17) : case_dim(deep ? 15 : 50, r);
    c->dim[N] = small ? (int)rng_below(r, 18) : case_dim(deep ? 34 : 80, r);
    c->dim[K] = small  ? (int)rng_below(r, 14)
                : deep ? 300 + (int)rng_below(r, 1000)
                       : case_dim(200, r);
    c->dim[ACC] = (int)rng_below(r, 2);
    const size_t m = (size_t)c->dim[M], n = (size_t)c->dim[N], k = (size_t)c->dim[K];
    case_floats(c, c->dim[ACC] ? OPERAND_INOUT : OPERAND_OUT, m, n, r)->apart = 1;
    case_floats(c, OPERAND_IN, m, k, r)->apart = 1;
    case_floats(c, OPERAND_IN, k, n, r)->apart = 1;
}

/* The part of the product from (i, j, p) on of m x n x k. */
static void part(kernel_fn f, const kernel_case *c, int i, int j, int p, int m, int n, int k,
                 int acc)
{
    const ptrdiff_t ldc = elem_stride(c, C), lda = elem_stride(c, A), ldb = elem_stride(c, B);
    ((gemm_fn)f)(at_floats(c, C) + i * ldc + j, ldc, at_floats(c, A) + i * lda + p, lda,
                 at_floats(c, B) + p * ldb + j, ldb, m, n, k, acc);
}

static void call_gemm(kernel_fn f, const kernel_case *c)
{
    part(f, c, 0, 0, 0, c->dim[M], c->dim[N], c->dim[K], c->dim[ACC]);
}

static int at_least_0(int n)
{
    return n > 0 ? n : 0;
}

/* Cuts of m, then n, then k; the reference rounds once per call, so its k stays whole. */
static int split_gemm(const kernel_case *c)
{
    return at_least_0(c->dim[M] - 1) + at_least_0(c->dim[N] - 1) +
           (c->kernel->isa ? at_least_0(c->dim[K] - 1) : 0);
}

static void call_split_gemm(kernel_fn f, const kernel_case *c, int way)
{
    const int m = c->dim[M], n = c->dim[N], k = c->dim[K], acc = c->dim[ACC];
    const int cut_n = way - at_least_0(m - 1), cut_k = cut_n - at_least_0(n - 1);
    if (cut_n < 0) {
        part(f, c, way + 1, 0, 0, m - way - 1, n, k, acc);
        part(f, c, 0, 0, 0, way + 1, n, k, acc);
    } else if (cut_k < 0) {
        part(f, c, 0, cut_n + 1, 0, m, n - cut_n - 1, k, acc);
        part(f, c, 0, 0, 0, m, cut_n + 1, k, acc);
    } else {
        part(f, c, 0, 0, 0, m, n, cut_k + 1, acc);
        part(f, c, 0, 0, cut_k + 1, m, n, k - cut_k - 1, 1);
    }
}

static int judge_gemm(const kernel_case *c, char *text)
{
    const int m = c->dim[M], n = c->dim[N], k = c->dim[K], acc = c->dim[ACC];
    const float *before = c->op[C].data, *a = c->op[A].data, *b = c->op[B].data;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            const size_t e = (size_t)i * (size_t)n + (size_t)j;
            double sum = acc ? fabs((double)before[e]) : 0.0;
            for (int p = 0; p < k; p++)
                sum += fabs((double)a[i * k + p] * (double)b[p * n + j]);
            if (!judge_within(c, C, e, tol_sum(k + acc, sum), text))
                return 0;
        }
    return 1;
}

static int known_gemm(kernel_fn f, rkv_dtype dt, char *text)
{
    static const float a[] = {1, 2, 3, 4, 5, 6}, b[] = {7, 8, 9, 10, 11, 12};
    static const double want[] = {58, 64, 139, 154}, twice[] = {116, 128, 278, 308},
                        once[] = {0, 0, 0, 0};
    float got[] = {NAN, NAN, NAN, NAN};
    (void)dt;
    ((gemm_fn)f)(got, 2, a, 3, b, 2, 2, 2, 3, 0);
    if (!judge_known(got, want, 4, 0.0, text))
        return 0;
    ((gemm_fn)f)(got, 2, a, 3, b, 2, 2, 2, 3, 1);
    if (!judge_known(got, twice, 4, 0.0, text))
        return 0;
    ((gemm_fn)f)(got, 2, a, 3, b, 2, 2, 2, 0, 1); /* an empty sum adds nothing */
    if (!judge_known(got, twice, 4, 0.0, text))
        return 0;
    ((gemm_fn)f)(got, 2, a, 3, b, 2, 2, 2, 0, 0); /* or is nothing */
    return judge_known(got, once, 4, 0.0, text);
}

const op_driver drive_gemm = {
    .op = "gemm",
    .dim = {"m", "n", "k", "acc"},
    .n_case = n_case_gemm,
    .draw = draw_gemm,
    .call = call_gemm,
    .judge = judge_gemm,
    .n_split = split_gemm,
    .call_split = call_split_gemm,
    .known = known_gemm,
};

static int n_case_transpose(rkv_dtype dt)
{
    (void)dt;
    return 400;
}

static void draw_transpose(kernel_case *c, int index, case_rng *r)
{
    c->kind = (input_kind)(index % INPUT_KINDS);
    const int max = index < 380 ? 70 : 500;
    c->dim[0] = case_dim(max, r);
    c->dim[1] = case_dim(max, r);
    case_floats(c, OPERAND_OUT, (size_t)c->dim[1], (size_t)c->dim[0], r)->apart = 1;
    operand *src = case_floats(c, OPERAND_IN, (size_t)c->dim[0], (size_t)c->dim[1], r);
    src->apart = 1;
    if (c->kind == INPUT_MIXED) /* words that are no numbers: every bit must arrive */
        for (size_t i = 0; i < src->n_row * src->row_len; i++)
            ((uint32_t *)src->data)[i] = (uint32_t)rng_word(r);
}

static void call_transpose(kernel_fn f, const kernel_case *c)
{
    ((transpose_fn)f)(at_floats(c, 0), elem_stride(c, 0), at_floats(c, 1), elem_stride(c, 1),
                      c->dim[0], c->dim[1]);
}

static int judge_transpose(const kernel_case *c, char *text)
{
    return judge_bits(c, 0, text);
}

static int known_transpose(kernel_fn f, rkv_dtype dt, char *text)
{
    static const float src[] = {1, 2, 3, 4, 5, 6};
    static const double want[] = {1, 4, 2, 5, 3, 6};
    float got[6];
    (void)dt;
    ((transpose_fn)f)(got, 2, src, 3, 2, 3);
    return judge_known(got, want, 6, 0.0, text);
}

const op_driver drive_transpose = {
    .op = "transpose",
    .dim = {"n_row", "n_col"},
    .n_case = n_case_transpose,
    .draw = draw_transpose,
    .call = call_transpose,
    .judge = judge_transpose,
    .known = known_transpose,
};
