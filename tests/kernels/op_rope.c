/* Drivers of rope_norm and rope_neox. */
#include "config.h"
#include "case.h"
#include "kernels.h"

#include <math.h>
#include <string.h>

#include "tol.h"

typedef RKV_PROTO_rope_norm(*rope_fn);

/* Elements after the pairs belong to the operand and must stay. */
static void draw_rope(kernel_case *c, int index, case_rng *r)
{
    c->kind = (input_kind)(index / CASE_LENGTHS);
    c->dim[0] = case_length(index, r);
    c->dim[1] = (int)rng_below(r, 3);
    const size_t n = (size_t)c->dim[0];
    case_floats(c, OPERAND_INOUT, 1, 2 * n + (size_t)c->dim[1], r);
    float *cosine = case_operand(c, OPERAND_IN, 1, n, sizeof(float))->data;
    float *sine = case_operand(c, OPERAND_IN, 1, n, sizeof(float))->data;
    for (size_t i = 0; i < n; i++) {
        const float angle = rng_signed(r) * 3.2f;
        cosine[i] = cosf(angle), sine[i] = sinf(angle);
    }
}

static void call_rope(kernel_fn f, const kernel_case *c)
{
    ((rope_fn)f)(at_floats(c, 0), at_floats(c, 1), at_floats(c, 2), c->dim[0]);
}

static void split_norm(kernel_fn f, const kernel_case *c, int way)
{
    const int cut = way + 1;
    ((rope_fn)f)(at_floats(c, 0) + 2 * cut, at_floats(c, 1) + cut, at_floats(c, 2) + cut,
                 c->dim[0] - cut);
    ((rope_fn)f)(at_floats(c, 0), at_floats(c, 1), at_floats(c, 2), cut);
}

/* Pairs are x[i step], x[i step + other]. */
static int judge_rope(const kernel_case *c, int step, int other, char *text)
{
    const float *x = c->op[0].data, *cosine = c->op[1].data, *sine = c->op[2].data;
    for (int i = 0; i < c->dim[0]; i++) {
        const size_t e = (size_t)(i * step), o = e + (size_t)other;
        const double a = fabs((double)x[e]), b = fabs((double)x[o]);
        const double co = fabs((double)cosine[i]), si = fabs((double)sine[i]);
        if (!judge_within(c, 0, e, tol_sum(2.0, a * co + b * si), text) ||
            !judge_within(c, 0, o, tol_sum(2.0, a * si + b * co), text))
            return 0;
    }
    for (int i = 2 * c->dim[0]; i < 2 * c->dim[0] + c->dim[1]; i++)
        if (!judge_within(c, 0, (size_t)i, 0.0, text))
            return 0;
    return 1;
}

static int judge_norm(const kernel_case *c, char *text)
{
    return judge_rope(c, 2, 1, text);
}

static int judge_neox(const kernel_case *c, char *text)
{
    return judge_rope(c, 1, c->dim[0], text);
}

/* A quarter turn, none, and one of 3-4-5. */
static const float cosine3[] = {0.0f, 1.0f, 0.6f}, sine3[] = {1.0f, 0.0f, 0.8f};

static int known_norm(kernel_fn f, rkv_dtype dt, char *text)
{
    static const double want[] = {-2.0, 1.0, 3.0, 4.0, -1.8, 7.6, 9.0};
    float x[] = {1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f, 9.0f};
    (void)dt;
    ((rope_fn)f)(x, cosine3, sine3, 3);
    return judge_known(x, want, 7, 6.0, text);
}

static int known_neox(kernel_fn f, rkv_dtype dt, char *text)
{
    static const double want[] = {-2.0, 3.0, -1.8, 1.0, 4.0, 7.6, 9.0};
    float x[] = {1.0f, 3.0f, 5.0f, 2.0f, 4.0f, 6.0f, 9.0f};
    (void)dt;
    ((rope_fn)f)(x, cosine3, sine3, 3);
    return judge_known(x, want, 7, 6.0, text);
}

const op_driver drive_rope_norm = {
    .op = "rope_norm",
    .dim = {"n_pair", "rest"},
    .n_case = case_rows,
    .draw = draw_rope,
    .call = call_rope,
    .judge = judge_norm,
    .n_split = split_row,
    .call_split = split_norm,
    .known = known_norm,
};

const op_driver drive_rope_neox = {
    .op = "rope_neox",
    .dim = {"n_pair", "rest"},
    .n_case = case_rows,
    .draw = draw_rope,
    .call = call_rope,
    .judge = judge_neox,
    .known = known_neox,
};
