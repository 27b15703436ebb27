/* Drivers of kv_score and kv_mix, for every KV type. */
#include "config.h"
#include "case.h"
#include "kernels.h"

#include <math.h>
#include <string.h>

#include "tol.h"

typedef RKV_PROTO_kv_score(*score_fn);
typedef RKV_PROTO_kv_mix(*mix_fn);

enum { N_Q, N_SLOT, D_HEAD }; /* dim[] of both */
enum { MAX_D = 600, MAX_SLOT = 500 };

static int n_case(rkv_dtype dt)
{
    (void)dt;
    return 420;
}

static void draw_shape(kernel_case *c, int index, case_rng *r)
{
    static const int usual[] = {64, 128, 80, 96, 256, 576};
    c->kind = (input_kind)(index % INPUT_KINDS);
    c->dim[N_Q] = index % 20;
    c->dim[N_SLOT] = index < 400 ? case_dim(150, r) : (int)rng_below(r, MAX_SLOT);
    const int block_len = rkv_dtype_get(c->kernel->dt)->block_len;
    const int d = rng_below(r, 2) ? usual[rng_below(r, 6)] : case_dim(200, r);
    c->dim[D_HEAD] = d / block_len * block_len;
}

static operand *draw_rows(kernel_case *c, case_rng *r)
{
    const rkv_dtype_desc *d = rkv_dtype_get(c->kernel->dt);
    const size_t n_block = (size_t)(c->dim[D_HEAD] / d->block_len);
    operand *o =
        case_operand(c, OPERAND_IN, (size_t)c->dim[N_SLOT], n_block, (size_t)d->block_bytes);
    input_blocks(c->kernel->dt, o->data, o->n_row * n_block, c->kind, 0, r);
    return o;
}

/* Keys or values as floats, for the bounds of the sums. */
static const float *unpacked(const kernel_case *c, int operand_index)
{
    static float rows[MAX_SLOT * MAX_D];
    rkv_ops ops;
    rkv_ops_init(&ops, 0);
    ops.unpack[c->kernel->dt](rows, c->op[operand_index].data,
                              (int64_t)c->dim[N_SLOT] * c->dim[D_HEAD]);
    return rows;
}

static int split_queries(const kernel_case *c)
{
    return c->dim[N_Q] > 1 ? c->dim[N_Q] - 1 : 0;
}

static void draw_score(kernel_case *c, int index, case_rng *r)
{
    draw_shape(c, index, r);
    case_floats(c, OPERAND_OUT, (size_t)c->dim[N_Q], (size_t)c->dim[N_SLOT], r)->apart = 1;
    case_floats(c, OPERAND_IN, (size_t)c->dim[N_Q], (size_t)c->dim[D_HEAD], r);
    draw_rows(c, r);
}

static void call_score(kernel_fn f, const kernel_case *c)
{
    ((score_fn)f)(at_floats(c, 0), elem_stride(c, 0), at_floats(c, 1), c->op[2].at, c->dim[N_Q],
                  c->dim[N_SLOT], c->dim[D_HEAD]);
}

/* Queries are independent, and so are slots. */
static int split_score(const kernel_case *c)
{
    return split_queries(c) + (c->dim[N_SLOT] > 1 ? c->dim[N_SLOT] - 1 : 0);
}

static void call_split_score(kernel_fn f, const kernel_case *c, int way)
{
    const int n_q = c->dim[N_Q], n_slot = c->dim[N_SLOT], d = c->dim[D_HEAD];
    const ptrdiff_t lds = elem_stride(c, 0);
    float *s = at_floats(c, 0), *q = at_floats(c, 1);
    const unsigned char *k = c->op[2].at;
    const int cut = way + 1, slot = cut - split_queries(c);
    if (slot <= 0) {
        ((score_fn)f)(s + cut * lds, lds, q + cut * d, k, n_q - cut, n_slot, d);
        ((score_fn)f)(s, lds, q, k, cut, n_slot, d);
    } else {
        const size_t row_bytes = c->op[2].row_len * c->op[2].elem;
        ((score_fn)f)(s + slot, lds, q, k + (size_t)slot * row_bytes, n_q, n_slot - slot, d);
        ((score_fn)f)(s, lds, q, k, n_q, slot, d);
    }
}

static int judge_score(const kernel_case *c, char *text)
{
    const int d = c->dim[D_HEAD];
    const float *q = c->op[1].data, *k = unpacked(c, 2);
    size_t e = 0;
    for (int i = 0; i < c->dim[N_Q]; i++)
        for (int t = 0; t < c->dim[N_SLOT]; t++, e++) {
            double sum = 0.0;
            for (int j = 0; j < d; j++)
                sum += fabs((double)q[i * d + j] * (double)k[t * d + j]);
            if (!judge_within(c, 0, e, tol_sum(d, sum), text))
                return 0;
        }
    return 1;
}

/* Rows for the known results, [2][32] with values in the first three elements; they are
 * representable in every KV type (in q4_0 and q8_0 the block's largest magnitude decides the
 * scale). */
static void pack_rows(rkv_dtype dt, void *rows)
{
    float plain[64] = {1.0f, 2.0f, -8.0f, [32] = 4.0f, 0.0f, -8.0f};
    rkv_ops ops;
    rkv_ops_init(&ops, 0);
    ops.pack[dt](rows, plain, 64);
}

static int known_score(kernel_fn f, rkv_dtype dt, char *text)
{
    static const float q[64] = {1.0f, 1.0f, 1.0f, [32] = 3.0f, 0.0f, -1.0f};
    static const double want[] = {-5.0, -4.0, 11.0, 20.0};
    float rows[64], got[4];
    pack_rows(dt, rows);
    ((score_fn)f)(got, 2, q, rows, 2, 2, 32);
    return judge_known(got, want, 4, dt == RKV_DT_f32 || dt == RKV_DT_f16 ? 0.0 : 0x1p18, text);
}

const op_driver drive_kv_score = {
    .op = "kv_score",
    .dim = {"n_q", "n_slot", "d_head"},
    .n_case = n_case,
    .draw = draw_score,
    .call = call_score,
    .judge = judge_score,
    .n_split = split_score,
    .call_split = call_split_score,
    .known = known_score,
};

static void draw_mix(kernel_case *c, int index, case_rng *r)
{
    draw_shape(c, index, r);
    case_floats(c, OPERAND_INOUT, (size_t)c->dim[N_Q], (size_t)c->dim[D_HEAD], r);
    case_floats(c, OPERAND_IN, (size_t)c->dim[N_Q], (size_t)c->dim[N_SLOT], r)->apart = 1;
    draw_rows(c, r);
}

static void call_mix(kernel_fn f, const kernel_case *c)
{
    ((mix_fn)f)(at_floats(c, 0), at_floats(c, 1), elem_stride(c, 1), c->op[2].at, c->dim[N_Q],
                c->dim[N_SLOT], c->dim[D_HEAD]);
}

static void call_split_mix(kernel_fn f, const kernel_case *c, int way)
{
    const int n_q = c->dim[N_Q], n_slot = c->dim[N_SLOT], d = c->dim[D_HEAD], cut = way + 1;
    const ptrdiff_t ldp = elem_stride(c, 1);
    float *out = at_floats(c, 0), *p = at_floats(c, 1);
    ((mix_fn)f)(out + cut * d, p + cut * ldp, ldp, c->op[2].at, n_q - cut, n_slot, d);
    ((mix_fn)f)(out, p, ldp, c->op[2].at, cut, n_slot, d);
}

static int judge_mix(const kernel_case *c, char *text)
{
    const int d = c->dim[D_HEAD], n_slot = c->dim[N_SLOT];
    const float *before = c->op[0].data, *p = c->op[1].data, *v = unpacked(c, 2);
    for (int i = 0; i < c->dim[N_Q]; i++)
        for (int j = 0; j < d; j++) {
            double sum = fabs((double)before[i * d + j]);
            for (int t = 0; t < n_slot; t++)
                sum += fabs((double)p[i * n_slot + t] * (double)v[t * d + j]);
            if (!judge_within(c, 0, (size_t)(i * d + j), tol_sum(n_slot + 1, sum), text))
                return 0;
        }
    return 1;
}

static int known_mix(kernel_fn f, rkv_dtype dt, char *text)
{
    static const float p[] = {1.0f, 0.5f, 0.0f, -1.0f};
    static const double want[] = {3.0, 3.0, -12.0, -4.0, 1.0, 8.0};
    float rows[64], out[64];
    for (int i = 0; i < 64; i++)
        out[i] = i % 32 == 1;
    pack_rows(dt, rows);
    ((mix_fn)f)(out, p, 2, rows, 2, 2, 32);
    memcpy(out + 3, out + 32, 3 * sizeof *out);
    return judge_known(out, want, 6, dt == RKV_DT_f32 || dt == RKV_DT_f16 ? 0.0 : 0x1p18, text);
}

const op_driver drive_kv_mix = {
    .op = "kv_mix",
    .dim = {"n_q", "n_slot", "d_head"},
    .n_case = n_case,
    .draw = draw_mix,
    .call = call_mix,
    .judge = judge_mix,
    .n_split = split_queries,
    .call_split = call_split_mix,
    .known = known_mix,
};
