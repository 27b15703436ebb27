/* Drivers of pack_int16 and gemm_int16: every tier gives the same bits. */
#include "config.h"
#include "case.h"
#include "kernels.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "int16.h"

typedef RKV_PROTO_pack_int16(*pack_fn);
typedef RKV_PROTO_gemm_int16(*gemm_fn);

/* ---- pack_int16 ---- */

enum { OUT, SCALE, IN };
enum { PACK_CASES = 3 * (RKV_INT16_BLOCK + 1) };

static int pack_cases(rkv_dtype dt)
{
    (void)dt;
    return PACK_CASES;
}

/* Every length; one number that is far above the others; now and then one that is none. */
static void pack_draw(kernel_case *c, int index, case_rng *r)
{
    static const float odd[] = {1e30f, -1e30f, 3.4e38f, INFINITY, NAN};
    const int n = index % (RKV_INT16_BLOCK + 1);
    c->kind = (input_kind)(index % INPUT_KINDS);
    c->dim[0] = n;
    case_operand(c, OPERAND_OUT, 1, (size_t)n, sizeof(int16_t));
    case_operand(c, OPERAND_OUT, 1, 1, sizeof(float));
    float *in = case_floats(c, OPERAND_IN, 1, (size_t)n, r)->data;
    if (n && !rng_below(r, 4))
        in[rng_below(r, (size_t)n)] = odd[rng_below(r, sizeof odd / sizeof *odd)];
}

static void pack_call(kernel_fn f, const kernel_case *c)
{
    *at_floats(c, SCALE) =
        ((pack_fn)f)((int16_t *)(void *)c->op[OUT].at, at_floats(c, IN), c->dim[0]);
}

/* What products rely on: a norm of 32767 at most, and numbers as near as the scale allows. */
static int pack_is_sound(const kernel_case *c, char *text)
{
    const int16_t *got = c->op[OUT].got;
    const float *in = c->op[IN].data, *scale = c->op[SCALE].got;
    double square = 0.0, apart = 0.0;
    for (int i = 0; i < c->dim[0]; i++) {
        square += (double)got[i] * got[i];
        apart = fmax(apart, fabs((double)in[i] - (double)got[i] * (double)*scale));
    }
    const int ok = square <= 32767.0 * 32767.0 && (isnan(*scale) || apart < 0.51 * (double)*scale);
    if (!ok)
        snprintf(text, FAULT_TEXT, "norm %.1f, off by %g at a scale of %g", sqrt(square), apart,
                 (double)*scale);
    return ok;
}

static int pack_judge(const kernel_case *c, char *text)
{
    const float *got = c->op[SCALE].got;
    float *want = c->op[SCALE].want;
    if (isnan(*got) && isnan(*want))
        *want = *got;
    return judge_bits(c, OUT, text) && judge_bits(c, SCALE, text) && pack_is_sound(c, text);
}

static int pack_known(kernel_fn f, rkv_dtype dt, char *text)
{
    static const float in[] = {3.0f, -4.0f}, bad[] = {1.0f, INFINITY};
    static const int16_t want[] = {19650, -26200}, none[] = {0, 0};
    int16_t got[2], got_bad[2];
    (void)dt;
    const float scale = ((pack_fn)f)(got, in, 2), empty = ((pack_fn)f)(got, in, 0);
    const int ok = scale == 5.0f / 32750.0f && !memcmp(got, want, sizeof want) && empty > 0.0f &&
                   empty < 0x1p-114f && isnan(((pack_fn)f)(got_bad, bad, 2)) &&
                   !memcmp(got_bad, none, sizeof none);
    if (!ok)
        snprintf(text, FAULT_TEXT, "3 and -4 became %d and %d at a scale of %g, nothing one of %g",
                 got[0], got[1], (double)scale, (double)empty);
    return ok;
}

const op_driver drive_pack_int16 = {
    .op = "pack_int16",
    .dim = {"n"},
    .n_case = pack_cases,
    .draw = pack_draw,
    .call = pack_call,
    .judge = pack_judge,
    .known = pack_known,
};

/* ---- gemm_int16 ---- */

enum { M, N, K, ACC };                /* dim[] */
enum { C, A, A_SCALE, B, B_SCALE };   /* operands */
enum { SMALL = 120, DEEP = 160, GEMM_CASES = 300 };

static int gemm_cases(rkv_dtype dt)
{
    (void)dt;
    return GEMM_CASES;
}

/* k numbers, their pairs `step` apart, of a norm just below 32767: equal, one alone, or any. */
static void fill(int16_t *to, ptrdiff_t step, int k, case_rng *r)
{
    const int mode = (int)rng_below(r, 4);
    const float one = rng_signed(r) < 0.0f ? -1.0f : 1.0f;
    const int top = k ? (int)rng_below(r, (size_t)k) : 0;
    float x[1024];
    double square = 0.0;
    for (int p = 0; p < k; p++) {
        x[p] = mode == 0 ? one : mode == 1 ? (p == top ? one : 0.0f) : rng_signed(r);
        square += (double)x[p] * (double)x[p];
    }
    for (int p = 0; p < k; p++)
        to[p / 2 * 2 * step + p % 2] = (int16_t)((double)x[p] * 32767.0 / sqrt(square));
}

static void gemm_draw(kernel_case *c, int index, case_rng *r)
{
    const int small = index < SMALL, deep = !small && index < DEEP;
    c->kind = (input_kind)(index % INPUT_KINDS);
    c->dim[M] = small ? (int)rng_below(r, 35) : case_dim(deep ? 34 : 70, r);
    c->dim[N] = small ? (int)rng_below(r, 35) : case_dim(deep ? 34 : 70, r);
    c->dim[K] = 2 * (int)rng_below(r, small ? 9 : deep ? 500 : RKV_INT16_BLOCK / 2 + 1);
    c->dim[ACC] = (int)rng_below(r, 2);
    const size_t m = (size_t)c->dim[M], n = (size_t)c->dim[N], k = (size_t)c->dim[K];
    case_floats(c, c->dim[ACC] ? OPERAND_INOUT : OPERAND_OUT, m, n, r)->apart = 1;
    operand *a = case_operand(c, OPERAND_IN, m, k, sizeof(int16_t));
    case_floats(c, OPERAND_IN, m, 1, r)->apart = 1;
    operand *b = case_operand(c, OPERAND_IN, k / 2, n, 2 * sizeof(int16_t));
    case_floats(c, OPERAND_IN, 1, n, r);
    a->apart = b->apart = 1;
    for (size_t i = 0; i < m; i++)
        fill((int16_t *)a->data + i * k, 1, (int)k, r);
    for (size_t j = 0; j < n; j++)
        fill((int16_t *)b->data + 2 * j, (ptrdiff_t)n, (int)k, r);
}

/* The part of the product from (i, j) on of m x n. */
static void part(kernel_fn f, const kernel_case *c, int i, int j, int m, int n)
{
    const ptrdiff_t ldc = elem_stride(c, C), lda = elem_stride(c, A), lds = elem_stride(c, A_SCALE);
    const int16_t *a = (const int16_t *)(const void *)c->op[A].at;
    const int16_t *b = (const int16_t *)(const void *)c->op[B].at;
    ((gemm_fn)f)(at_floats(c, C) + i * ldc + j, ldc, a + i * lda, lda,
                 at_floats(c, A_SCALE) + i * lds, lds, b + 2 * (ptrdiff_t)j, elem_stride(c, B),
                 at_floats(c, B_SCALE) + j, m, n, c->dim[K], c->dim[ACC]);
}

static void gemm_call(kernel_fn f, const kernel_case *c)
{
    part(f, c, 0, 0, c->dim[M], c->dim[N]);
}

static int cuts(int n)
{
    return n > 0 ? n - 1 : 0;
}

static int gemm_splits(const kernel_case *c)
{
    return cuts(c->dim[M]) + cuts(c->dim[N]);
}

static void gemm_call_split(kernel_fn f, const kernel_case *c, int way)
{
    const int m = c->dim[M], n = c->dim[N], cut = way - cuts(m) + 1;
    if (cut <= 0) {
        part(f, c, way + 1, 0, m - way - 1, n);
        part(f, c, 0, 0, way + 1, n);
    } else {
        part(f, c, 0, cut, m, n - cut);
        part(f, c, 0, 0, m, cut);
    }
}

static int gemm_judge(const kernel_case *c, char *text)
{
    return judge_bits(c, C, text);
}

/* A row of four numbers times two columns, of which the second has a sum as large as they get; and
 * a row whose scale is no number. */
static int gemm_known(kernel_fn f, rkv_dtype dt, char *text)
{
    static const int16_t a[] = {1, -2, 3, 32767}, b[] = {5, 6, 0, 0, 7, 0, 0, 32767};
    static const float a_scale[] = {0.5f}, b_scale[] = {4.0f, 0x1p-29f}, bad[] = {NAN};
    /* 32767^2 has 30 bits: as a float it is 2^30 - 2^16. */
    static const double want[] = {28.0, 0x1p0 - 0x1p-14}, more[] = {29.0, 0x1p1 - 0x1p-14};
    static const double nothing[] = {NAN, NAN};
    float got[2] = {9.0f, 9.0f}, added[2] = {1.0f, 1.0f}, none[2] = {1.0f, 1.0f};
    (void)dt;
    ((gemm_fn)f)(got, 2, a, 4, a_scale, 1, b, 2, b_scale, 1, 2, 4, 0);
    ((gemm_fn)f)(added, 2, a, 4, a_scale, 1, b, 2, b_scale, 1, 2, 4, 1);
    ((gemm_fn)f)(none, 2, a, 4, bad, 1, b, 2, b_scale, 1, 2, 4, 1);
    return judge_known(got, want, 2, 0.0, text) && judge_known(added, more, 2, 0.0, text) &&
           judge_known(none, nothing, 2, 0.0, text);
}

const op_driver drive_gemm_int16 = {
    .op = "gemm_int16",
    .dim = {"m", "n", "k", "acc"},
    .n_case = gemm_cases,
    .draw = gemm_draw,
    .call = gemm_call,
    .judge = gemm_judge,
    .n_split = gemm_splits,
    .call_split = gemm_call_split,
    .known = gemm_known,
};
