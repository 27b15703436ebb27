/* Drivers of the ops on one or two rows: add, scale, silu_mul, gelu_mul, rmsnorm, softmax_step. */
#include "config.h"
#include "case.h"
#include "kernels.h"

#include <math.h>

#include "tol.h"

typedef RKV_PROTO_add(*add_fn);
typedef RKV_PROTO_scale(*scale_fn);
typedef RKV_PROTO_silu_mul(*gated_fn);
typedef RKV_PROTO_rmsnorm(*rmsnorm_fn);
typedef RKV_PROTO_softmax_step(*softmax_fn);

static void draw_length(kernel_case *c, int index, case_rng *r)
{
    c->kind = (input_kind)(index / CASE_LENGTHS);
    c->dim[0] = case_length(index, r);
}

static void draw_add(kernel_case *c, int index, case_rng *r)
{
    draw_length(c, index, r);
    case_floats(c, OPERAND_INOUT, 1, (size_t)c->dim[0], r);
    case_floats(c, OPERAND_IN, 1, (size_t)c->dim[0], r);
}

static void call_add(kernel_fn f, const kernel_case *c)
{
    ((add_fn)f)(at_floats(c, 0), at_floats(c, 1), c->dim[0]);
}

static void split_add(kernel_fn f, const kernel_case *c, int way)
{
    const int cut = way + 1;
    ((add_fn)f)(at_floats(c, 0) + cut, at_floats(c, 1) + cut, c->dim[0] - cut);
    ((add_fn)f)(at_floats(c, 0), at_floats(c, 1), cut);
}

static int judge_first(const kernel_case *c, char *text)
{
    return judge_bits(c, 0, text);
}

static int known_add(kernel_fn f, rkv_dtype dt, char *text)
{
    static const float y[] = {0.5f, 0x1p-24f, 0x1p-23f};
    static const double want[] = {1.5, 1.0, 1.0 + 0x1p-23};
    float x[] = {1.0f, 1.0f, 1.0f};
    (void)dt;
    ((add_fn)f)(x, y, 3);
    return judge_known(x, want, 3, 0.0, text);
}

static void draw_scale(kernel_case *c, int index, case_rng *r)
{
    draw_length(c, index, r);
    case_floats(c, OPERAND_INOUT, 1, (size_t)c->dim[0], r);
    c->arg[0] = rng_signed(r) * 4.0f;
}

static void call_scale(kernel_fn f, const kernel_case *c)
{
    ((scale_fn)f)(at_floats(c, 0), c->arg[0], c->dim[0]);
}

static void split_scale(kernel_fn f, const kernel_case *c, int way)
{
    ((scale_fn)f)(at_floats(c, 0) + way + 1, c->arg[0], c->dim[0] - way - 1);
    ((scale_fn)f)(at_floats(c, 0), c->arg[0], way + 1);
}

static int known_scale(kernel_fn f, rkv_dtype dt, char *text)
{
    static const double want[] = {-3.0, 6.0, -0.75};
    float x[] = {2.0f, -4.0f, 0.5f};
    (void)dt;
    ((scale_fn)f)(x, -1.5f, 3);
    return judge_known(x, want, 3, 0.0, text);
}

/* out, gate, up; uniform gates reach beyond the range of exp. */
static void draw_gated(kernel_case *c, int index, case_rng *r)
{
    draw_length(c, index, r);
    case_operand(c, OPERAND_OUT, 1, (size_t)c->dim[0], sizeof(float))->share =
        2 + (int)rng_below(r, 2);
    float *gate = case_floats(c, OPERAND_IN, 1, (size_t)c->dim[0], r)->data;
    case_floats(c, OPERAND_IN, 1, (size_t)c->dim[0], r);
    for (int i = 0; i < c->dim[0] && c->kind == INPUT_UNIFORM; i++)
        gate[i] *= i % 2 ? 110.0f : 8.0f;
}

static void call_gated(kernel_fn f, const kernel_case *c)
{
    ((gated_fn)f)(at_floats(c, 0), at_floats(c, 1), at_floats(c, 2), c->dim[0]);
}

static void split_gated(kernel_fn f, const kernel_case *c, int way)
{
    const int cut = way + 1;
    float *out = at_floats(c, 0), *gate = at_floats(c, 1), *up = at_floats(c, 2);
    ((gated_fn)f)(out + cut, gate + cut, up + cut, c->dim[0] - cut);
    ((gated_fn)f)(out, gate, up, cut);
}

static int judge_silu(const kernel_case *c, char *text)
{
    const float *want = c->op[0].want, *up = c->op[2].data;
    for (int i = 0; i < c->dim[0]; i++) {
        const double bound = 8.0 * tol_ulp_width(want[i]) + 0x1p-120 * fabs((double)up[i]);
        if (!judge_within(c, 0, (size_t)i, bound, text))
            return 0;
    }
    return 1;
}

static int known_silu(kernel_fn f, rkv_dtype dt, char *text)
{
    static const float gate[] = {1.0f, -1.0f, 0.0f, 100.0f}, up[] = {1.0f, 2.0f, 3.0f, 0.5f};
    static const double want[] = {0.73105857863000488, -0.53788284273999024, 0.0, 50.0};
    float got[4];
    (void)dt;
    ((gated_fn)f)(got, gate, up, 4);
    return judge_known(got, want, 4, 8.0, text);
}

static int judge_gelu(const kernel_case *c, char *text)
{
    const float *gate = c->op[1].data, *up = c->op[2].data;
    for (int i = 0; i < c->dim[0]; i++) {
        const double bound =
            0x1p-22 * fmax(fabs((double)gate[i]), 1.0) * fabs((double)up[i]) + 0x1p-149;
        if (!judge_within(c, 0, (size_t)i, bound, text))
            return 0;
    }
    return 1;
}

static int known_gelu(kernel_fn f, rkv_dtype dt, char *text)
{
    static const float gate[] = {1.0f, -1.0f, 0.0f, 10.0f}, up[] = {1.0f, 1.0f, 3.0f, 0.5f};
    static const double want[] = {0.84119199060827672, -0.15880800939172324, 0.0, 5.0};
    float got[4];
    (void)dt;
    ((gated_fn)f)(got, gate, up, 4);
    return judge_known(got, want, 4, 8.0, text);
}

static void draw_rmsnorm(kernel_case *c, int index, case_rng *r)
{
    draw_length(c, index, r);
    c->dim[0] += c->dim[0] == 0;
    case_operand(c, OPERAND_OUT, 1, (size_t)c->dim[0], sizeof(float))->share = 2;
    const float *x = case_floats(c, OPERAND_IN, 1, (size_t)c->dim[0], r)->data;
    float *g = case_operand(c, OPERAND_IN, 1, (size_t)c->dim[0], sizeof(float))->data;
    input_floats(g, (size_t)c->dim[0], INPUT_UNIFORM, r);
    double ss = 0.0;
    for (int i = 0; i < c->dim[0]; i++)
        ss += (double)x[i] * (double)x[i];
    c->arg[0] = ss / c->dim[0] < 0x1p-200 || rng_below(r, 2) ? 1e-6f : 0.0f;
}

static void call_rmsnorm(kernel_fn f, const kernel_case *c)
{
    ((rmsnorm_fn)f)(at_floats(c, 0), at_floats(c, 1), at_floats(c, 2), c->dim[0], c->arg[0]);
}

static int judge_rmsnorm(const kernel_case *c, char *text)
{
    const float *want = c->op[0].want;
    for (int i = 0; i < c->dim[0]; i++) {
        const double v = fabs((double)want[i]);
        const double bound = 4.0 * tol_ulp_width(want[i]) + 0.5 * tol_sum(c->dim[0], v);
        if (!judge_within(c, 0, (size_t)i, bound, text))
            return 0;
    }
    return 1;
}

static int known_rmsnorm(kernel_fn f, rkv_dtype dt, char *text)
{
    static const float x[] = {3.0f, 4.0f}, g[] = {1.0f, 2.0f};
    static const double want[] = {0.84852813742385702,
                                  2.2627416997969521}; /* 3, 8 / sqrt(25 / 2) */
    float got[2];
    (void)dt;
    ((rmsnorm_fn)f)(got, x, g, 2, 0.0f);
    return judge_known(got, want, 2, 4.0, text);
}

/* s, m, l, and the result as an output; a step may be the first (m = -inf, l = 0). */
static void draw_softmax(kernel_case *c, int index, case_rng *r)
{
    static const float range[] = {1.0f, 20.0f, 110.0f};
    draw_length(c, index, r);
    float *s = case_floats(c, OPERAND_INOUT, 1, (size_t)c->dim[0], r)->data;
    const float wide = range[rng_below(r, 3)];
    for (int i = 0; i < c->dim[0]; i++)
        s[i] *= wide;
    c->dim[1] = (int)rng_below(r, INPUT_MASKS);
    input_mask(s, (size_t)c->dim[0], c->dim[1], r);
    float *m = case_floats(c, OPERAND_INOUT, 1, 1, r)->data,
          *l = case_floats(c, OPERAND_INOUT, 1, 1, r)->data;
    const int first = (int)rng_below(r, 2);
    *m = first ? -INFINITY : *m * wide;
    *l = first ? 0.0f : 1.0f + 50.0f * fabsf(rng_signed(r));
    case_operand(c, OPERAND_OUT, 1, 1, sizeof(float));
}

static void call_softmax(kernel_fn f, const kernel_case *c)
{
    *at_floats(c, 3) =
        ((softmax_fn)f)(at_floats(c, 0), c->dim[0], at_floats(c, 1), at_floats(c, 2));
}

static int judge_softmax(const kernel_case *c, char *text)
{
    const float *before = c->op[0].data, *want = c->op[0].want;
    const float m = *(const float *)c->op[1].data, top = *(const float *)c->op[1].want;
    const float l = *(const float *)c->op[2].data, factor = *(const float *)c->op[3].want;
    double slack = 0.0; /* of l: what its terms may be off by */
    for (int i = 0; i < c->dim[0]; i++) {
        const double ulp = want[i] > 0.0f ? 3.0 + fabs((double)before[i] - (double)top) : 0.0;
        if (!judge_within(c, 0, (size_t)i, ulp * tol_ulp_width(want[i]), text))
            return 0;
        slack += ulp * tol_ulp_width(want[i]);
    }
    const double factor_ulp =
        factor > 0.0f ? 3.0 + (factor < 1.0f ? fabs((double)m - (double)top) : 0.0) : 0.0;
    slack += factor_ulp * tol_ulp_width(factor) * (double)l;
    const double sum = (double)*(const float *)c->op[2].want;
    return judge_ulp(c, 1, 0.0, text) &&
           judge_within(c, 2, 0, slack + tol_sum(c->dim[0] + 1, sum), text) &&
           judge_within(c, 3, 0, factor_ulp * tol_ulp_width(factor), text);
}

/* Below a maximum of 0 the scores are exp itself: 2 ULP, exactly 0 from -104 down. */
static int known_exp(softmax_fn f, char *text)
{
    enum { N = 1000 };
    float s[N], m = 0.0f, l = 1.0f;
    double want[N];
    for (int i = 0; i < N; i++) {
        s[i] = -0.1049f * (float)i;
        want[i] = s[i] <= -104.0f ? 0.0 : exp((double)s[i]);
    }
    f(s, N, &m, &l);
    return judge_known(s, want, N, 2.0, text);
}

static int known_softmax(kernel_fn f, rkv_dtype dt, char *text)
{
    static const double want[] = {0.36787944117144233, 1.0, 0.0, 1.0, 1.3678794411714423, 0.0};
    static const double next[] = {1.0, 0.0, 1.0, 3.0, 1.1851223153600677, 0.13533528323661270};
    float s[6] = {0.0f, 1.0f, -INFINITY, -INFINITY, 0.0f}, m = -INFINITY, l = 0.0f;
    (void)dt;
    const float nothing =
        ((softmax_fn)f)(s + 2, 2, &m, &l); /* all masked: as if there was no step */
    const double zero[] = {0.0, 0.0, 0.0, 1.0};
    float got[6] = {s[2], s[3], l, nothing};
    if (!judge_known(got, zero, 4, 0.0, text) || m != -INFINITY)
        return 0;
    s[2] = -INFINITY;
    got[5] = ((softmax_fn)f)(s, 3, &m, &l);
    got[0] = s[0], got[1] = s[1], got[2] = s[2], got[3] = m, got[4] = l;
    if (!judge_known(got, want, 6, 4.0, text))
        return 0;
    s[0] = 3.0f, s[1] = -200.0f;
    got[5] = ((softmax_fn)f)(s, 2, &m, &l);
    got[0] = s[0], got[1] = s[1], got[2] = 1.0f, got[3] = m, got[4] = l;
    return judge_known(got, next, 6, 6.0, text) && known_exp((softmax_fn)f, text);
}

const op_driver drive_add = {
    .op = "add",
    .dim = {"n"},
    .n_case = case_rows,
    .draw = draw_add,
    .call = call_add,
    .judge = judge_first,
    .n_split = split_row,
    .call_split = split_add,
    .known = known_add,
};

const op_driver drive_scale = {
    .op = "scale",
    .dim = {"n"},
    .n_case = case_rows,
    .draw = draw_scale,
    .call = call_scale,
    .judge = judge_first,
    .n_split = split_row,
    .call_split = split_scale,
    .known = known_scale,
};

const op_driver drive_silu_mul = {
    .op = "silu_mul",
    .dim = {"n"},
    .n_case = case_rows,
    .draw = draw_gated,
    .call = call_gated,
    .judge = judge_silu,
    .n_split = split_row,
    .call_split = split_gated,
    .known = known_silu,
};

const op_driver drive_gelu_mul = {
    .op = "gelu_mul",
    .dim = {"n"},
    .n_case = case_rows,
    .draw = draw_gated,
    .call = call_gated,
    .judge = judge_gelu,
    .n_split = split_row,
    .call_split = split_gated,
    .known = known_gelu,
};

const op_driver drive_rmsnorm = {
    .op = "rmsnorm",
    .dim = {"n"},
    .n_case = case_rows,
    .draw = draw_rmsnorm,
    .call = call_rmsnorm,
    .judge = judge_rmsnorm,
    .known = known_rmsnorm,
};

const op_driver drive_softmax_step = {
    .op = "softmax_step",
    .dim = {"n", "mask"},
    .n_case = case_rows,
    .draw = draw_softmax,
    .call = call_softmax,
    .judge = judge_softmax,
    .known = known_softmax,
};
