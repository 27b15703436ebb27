/* Driver of normal, the deviates of the pinned generator: the same bits by every tier. */
#include "config.h"
#include "case.h"
#include "kernels.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "noise.h"

typedef RKV_PROTO_normal(*normal_fn);

static int n_case(rkv_dtype dt)
{
    (void)dt;
    return 3 * CASE_LENGTHS;
}

/* Operand 0 holds the key and the first element; streams are entered also where counters wrap. */
static void draw_normal(kernel_case *c, int index, case_rng *r)
{
    static const uint64_t starts[] = {0, 12345678901, UINT64_MAX / 2 - 3};
    c->dim[0] = case_length(index % CASE_LENGTHS, r);
    uint64_t *in = case_operand(c, OPERAND_IN, 1, 2, sizeof *in)->data;
    in[0] = rng_word(r);
    in[1] = starts[index / CASE_LENGTHS];
    case_operand(c, OPERAND_OUT, 1, (size_t)c->dim[0], sizeof(double));
}

/* Elements [from, from + n) of the case. */
static void call_part(kernel_fn f, const kernel_case *c, int from, int n)
{
    uint64_t in[2];
    memcpy(in, c->op[0].at, sizeof in);
    double *out = (double *)(void *)c->op[1].at;
    ((normal_fn)f)(out + from, in[0], in[1] + (uint64_t)from, n);
}

static void call_normal(kernel_fn f, const kernel_case *c)
{
    call_part(f, c, 0, c->dim[0]);
}

static void split_normal(kernel_fn f, const kernel_case *c, int way)
{
    call_part(f, c, way + 1, c->dim[0] - way - 1);
    call_part(f, c, 0, way + 1);
}

static int judge_normal(const kernel_case *c, char *text)
{
    return judge_bits(c, 1, text);
}

static int near(double got, double want, const char *what, char *text)
{
    if (fabs(got - want) <= RKV_NOISE_TOL * fabs(want))
        return 1;
    snprintf(text, FAULT_TEXT, "known results: %s is %.17g, expected %.17g", what, got, want);
    return 0;
}

/* Keys, found by inverting the generator, whose first or second uniform lies at an edge. */
static const struct {
    const char *what;
    uint64_t key;
} edges[] = {
    {"a first uniform of 1", UINT64_C(0x31628af67b2131ab)},
    {"a first uniform of 2^-54", UINT64_C(0x61c8864680b583eb)},
    {"a first uniform beside the root of 1/2", UINT64_C(0x177e5623fa79c5fe)},
    {"a second uniform beside 0", UINT64_C(0xc3910c8d016b07d6)},
    {"a second uniform beside 1/8", UINT64_C(0xf80a4e4f0006f273)},
    {"a second uniform beside 1/4", UINT64_C(0xdf34b4d6f769de72)},
    {"a second uniform beside 1/2", UINT64_C(0x91b678364ed2d930)},
    {"a second uniform beside 3/4", UINT64_C(0x7da5fb0dda6641a2)},
    {"a second uniform of 1", UINT64_C(0x932b113cfbd6b596)},
};

/* The numbers of METHOD section 7, and those of the platform's logarithm and cosine. */
static int known_normal(kernel_fn f, rkv_dtype dt, char *text)
{
    static const double pinned[] = {-0.527811906779536, 1.2314283841015077, -1.4742856270537026};
    double got[500];
    (void)dt;
    ((normal_fn)f)(got, UINT64_C(6238072747940578789), 0, 3);
    for (int i = 0; i < 3; i++)
        if (!near(got[i], pinned[i], "a number of METHOD section 7", text))
            return 0;
    ((normal_fn)f)(got, UINT64_C(4780042144263421312), 0, 1);
    if (!near(got[0], -0.9472830275295018, "a number of METHOD section 7", text))
        return 0;
    for (size_t k = 0; k < sizeof edges / sizeof *edges; k++) {
        ((normal_fn)f)(got, edges[k].key, 0, 500);
        for (uint64_t i = 0; i < 500; i++)
            if (!near(got[i], rkv_noise_deviate(edges[k].key, i), edges[k].what, text))
                return 0;
    }
    return 1;
}

const op_driver drive_normal = {
    .op = "normal",
    .dim = {"n"},
    .n_case = n_case,
    .draw = draw_normal,
    .call = call_normal,
    .judge = judge_normal,
    .n_split = split_row,
    .call_split = split_normal,
    .known = known_normal,
};
