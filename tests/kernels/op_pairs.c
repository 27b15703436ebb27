/* Driver of gemm_pairs. */
#include "config.h"
#include "case.h"
#include "kernels.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

#include "f16.h"
#include "tol.h"

#ifdef RKV_EMULATE_AMX
#include "emulated_amx.h"
#endif

typedef RKV_PROTO_gemm_pairs(*pairs_fn);

enum { M, N, K, ACC }; /* dim[] */
enum { C, A, B };      /* operands */
enum { STEP = 32, SMALL = 120, DEEP = 250, WILD = 280, CASES = 300 };

static int n_case(rkv_dtype dt)
{
    (void)dt;
    return CASES;
}

/* Numbers of 16 bits, n_row rows of row_len elements of elem bytes. */
static operand *halfs(kernel_case *c, size_t n_row, size_t row_len, size_t elem, case_rng *r)
{
    operand *o = case_operand(c, OPERAND_IN, n_row, row_len, elem);
    o->apart = 1;
    input_blocks(c->kernel->dt, o->data, n_row * row_len * elem / sizeof(uint16_t), c->kind, 0, r);
    return o;
}

/* Small shapes are divided in every way; then any shape; then long sums; then infinities and NaN.
 */
static void draw(kernel_case *c, int index, case_rng *r)
{
    static const uint16_t wild[] = {0x7f80, 0xff80, 0x7fc1, 0x7f81};
    const int small = index < SMALL, deep = index >= DEEP && index < WILD;
    c->kind = index >= WILD ? INPUT_UNIFORM : (input_kind)(index % INPUT_KINDS);
    c->dim[M] = small ? (int)rng_below(r, 35) : case_dim(deep ? 34 : 70, r);
    c->dim[N] = small ? (int)rng_below(r, 35) : case_dim(deep ? 34 : 70, r);
    c->dim[K] = STEP * (small ? (int)rng_below(r, 4) : (int)rng_below(r, deep ? 40 : 8));
    c->dim[ACC] = (int)rng_below(r, 2);
    const size_t m = (size_t)c->dim[M], n = (size_t)c->dim[N], k = (size_t)c->dim[K];
    case_floats(c, c->dim[ACC] ? OPERAND_INOUT : OPERAND_OUT, m, n, r)->apart = 1;
    uint16_t *a = halfs(c, m, k, sizeof(uint16_t), r)->data;
    halfs(c, k / 2, n, 2 * sizeof(uint16_t), r);
    for (int i = 0; index >= WILD && m && k && i < 5; i++)
        a[rng_below(r, m * k)] = wild[rng_below(r, sizeof wild / sizeof *wild)];
}

/* The part of the product from (i, j, p) on of m x n x k. */
static void part(kernel_fn f, const kernel_case *c, int i, int j, int p, int m, int n, int k,
                 int acc)
{
    const ptrdiff_t ldc = elem_stride(c, C), lda = elem_stride(c, A), ldb = elem_stride(c, B);
    const uint16_t *a = (const uint16_t *)(const void *)c->op[A].at;
    const uint16_t *b = (const uint16_t *)(const void *)c->op[B].at;
    ((pairs_fn)f)(at_floats(c, C) + i * ldc + j, ldc, a + i * lda + p, lda,
                  b + 2 * (p / 2 * ldb + j), ldb, m, n, k, acc);
#ifdef RKV_EMULATE_AMX
    emulated_amx_must_be_free();
#endif
}

static void call(kernel_fn f, const kernel_case *c)
{
    part(f, c, 0, 0, 0, c->dim[M], c->dim[N], c->dim[K], c->dim[ACC]);
}

static int cuts(int n)
{
    return n > 0 ? n - 1 : 0;
}

/* Cuts of m, then n, then k at a multiple of 32. */
static int n_split(const kernel_case *c)
{
    return cuts(c->dim[M]) + cuts(c->dim[N]) + cuts(c->dim[K] / STEP);
}

static void call_split(kernel_fn f, const kernel_case *c, int way)
{
    const int m = c->dim[M], n = c->dim[N], k = c->dim[K], acc = c->dim[ACC];
    const int cut_n = way - cuts(m), cut_k = (cut_n - cuts(n) + 1) * STEP;
    if (cut_n < 0) {
        part(f, c, way + 1, 0, 0, m - way - 1, n, k, acc);
        part(f, c, 0, 0, 0, way + 1, n, k, acc);
    } else if (cut_k <= 0) {
        part(f, c, 0, cut_n + 1, 0, m, n - cut_n - 1, k, acc);
        part(f, c, 0, 0, 0, m, cut_n + 1, k, acc);
    } else {
        part(f, c, 0, 0, 0, m, n, cut_k, acc);
        part(f, c, 0, 0, cut_k, m, n, k - cut_k, 1);
    }
}

static double half_at(const operand *o, int i)
{
    const float x = rkv_bf16_to_f32(((const uint16_t *)o->data)[i]);
    return fabsf(x) < FLT_MIN ? 0.0 : (double)x;
}

/* Element (i, j) by sums in double, and the sum of the terms' magnitudes. */
static double exact_at(const kernel_case *c, int i, int j, double *sum_abs)
{
    const int n = c->dim[N], k = c->dim[K];
    double sum = c->dim[ACC] ? (double)((const float *)c->op[C].data)[i * n + j] : 0.0;
    *sum_abs = fabs(sum);
    for (int p = 0; p < k; p++) {
        const double t =
            half_at(&c->op[A], i * k + p) * half_at(&c->op[B], 2 * (p / 2 * n + j) + p % 2);
        sum += t;
        *sum_abs += fabs(t);
    }
    return sum;
}

/* Near the exact sum, where it is finite; and like the reference, by the bit where the instruction
 * is emulated by its definition. */
static int judge(const kernel_case *c, char *text)
{
    const int m = c->dim[M], n = c->dim[N], n_term = c->dim[K] + c->dim[ACC] + 3;
    for (int e = 0; e < m * n; e++) {
        double sum_abs;
        const double exact = exact_at(c, e / n, e % n, &sum_abs);
        const double bound = tol_sum(n_term, sum_abs) + n_term * 0x1p-126;
        const float got = ((const float *)c->op[C].got)[e];
        if (isfinite(exact) && !(fabs((double)got - exact) <= bound)) {
            snprintf(text, FAULT_TEXT, "element %d of row %d is %.9g, exact %.9g, bound %.3g",
                     e % n, e / n, (double)got, exact, bound);
            return 0;
        }
#ifdef RKV_EMULATE_AMX
        if (!judge_within(c, C, (size_t)e, 0.0, text))
            return 0;
#else
        if (!judge_within(c, C, (size_t)e, 2.0 * bound, text))
            return 0;
#endif
    }
    return 1;
}

/* One row of 32 numbers times two columns, of which so many are not 0. */
static int known_row(kernel_fn f, const uint16_t *a, const uint16_t *b, int n_number, float before,
                     const double *want, char *text)
{
    uint16_t row[STEP] = {0}, pair[2 * STEP] = {0};
    for (int p = 0; p < n_number; p++) {
        row[p] = a[p];
        pair[p / 2 * 4 + p % 2] = b[p];
        pair[p / 2 * 4 + 2 + p % 2] = 0x3f80; /* 1 */
    }
    float got[] = {before, before};
    ((pairs_fn)f)(got, 2, row, STEP, pair, 2, 1, 2, STEP, before != 0.0f);
    return judge_known(got, want, 2, 0.0, text);
}

static int known(kernel_fn f, rkv_dtype dt, char *text)
{
    static const uint16_t to4[] = {0x3f80, 0x4000, 0x4040, 0x4080};   /* 1, 2, 3, 4 */
    static const uint16_t from4[] = {0x4080, 0x4040, 0x4000, 0x3f81}; /* 4, 3, 2, 1 + 2^-7 */
    static const uint16_t denormal[] = {0x007f}, large[] = {0x7f00};  /* 2^127 */
    static const uint16_t tiny[] = {0x1c80}, infinite[] = {0x7f80}, none[] = {0}; /* 2^-70 */
    static const double sums[] = {20.03125, 10.0}, more[] = {21.03125, 11.0}, zero[] = {0.0, 0.0};
    static const double tiny_sums[] = {0.0, 0x1p-70}, wild[] = {NAN, INFINITY}, kept[] = {1.0, 1.0};
    float got[] = {1.0f, 1.0f};
    (void)dt;
    if (!known_row(f, to4, from4, 4, 0.0f, sums, text) ||
        !known_row(f, to4, from4, 4, 1.0f, more, text) ||
        !known_row(f, denormal, large, 1, 0.0f, zero, text) ||
        !known_row(f, tiny, tiny, 1, 0.0f, tiny_sums, text) ||
        !known_row(f, none, none, 1, 0x1p-130f, zero, text) ||
        !known_row(f, infinite, none, 1, 0.0f, wild, text))
        return 0;
    ((pairs_fn)f)(got, 2, to4, STEP, to4, 2, 1, 2, 0, 1); /* an empty sum adds nothing */
    if (!judge_known(got, kept, 2, 0.0, text))
        return 0;
    ((pairs_fn)f)(got, 2, to4, STEP, to4, 2, 1, 2, 0, 0); /* or is nothing */
    return judge_known(got, zero, 2, 0.0, text);
}

const op_driver drive_gemm_pairs = {
    .op = "gemm_pairs",
    .dim = {"m", "n", "k", "acc"},
    .n_case = n_case,
    .draw = draw,
    .call = call,
    .judge = judge,
    .n_split = n_split,
    .call_split = call_split,
    .known = known,
};
