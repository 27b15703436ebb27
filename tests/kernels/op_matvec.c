/* Driver of matvec, for every weight type. */
#include "config.h"
#include "case.h"
#include "kernels.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tol.h"

typedef RKV_PROTO_matvec(*matvec_fn);

enum { N_X, N_OUT, N_IN }; /* dim[] */
enum { Y, W, X };     /* operands */
enum { MAX_IN = 4096 };

static int n_case(rkv_dtype dt)
{
    (void)dt;
    return 60 * INPUT_KINDS;
}

/* Rows of up to 300 numbers or 20 blocks, now and then of 4096 numbers; every number of inputs with
 * every kind of them. */
static void draw(kernel_case *c, int index, case_rng *r)
{
    const rkv_dtype_desc *d = rkv_dtype_get(c->kernel->dt);
    static const int inputs[] = {1, 2, 0, 3, 8, 5, 9};
    c->kind = (input_kind)(index % INPUT_KINDS);
    c->dim[N_X] = inputs[index / INPUT_KINDS % (int)(sizeof inputs / sizeof *inputs)];
    c->dim[N_OUT] = index % 15;
    const int n_block = index >= 53 * INPUT_KINDS ? MAX_IN / d->block_len
                        : d->block_len == 1       ? case_dim(300, r)
                                                  : (int)rng_below(r, d->block_len == 32 ? 20 : 5);
    c->dim[N_IN] = n_block * d->block_len;
    case_operand(c, OPERAND_OUT, (size_t)c->dim[N_X], (size_t)c->dim[N_OUT], sizeof(float))->apart =
        1;
    operand *w =
        case_operand(c, OPERAND_IN, (size_t)c->dim[N_OUT], (size_t)n_block, (size_t)d->block_bytes);
    w->apart = 1;
    input_blocks(c->kernel->dt, w->data, w->n_row * w->row_len, c->kind, 0, r);
    case_floats(c, OPERAND_IN, (size_t)c->dim[N_X], (size_t)c->dim[N_IN], r)->apart = 1;
}

/* Inputs [x0, x0 + n_x) times rows [r0, r0 + n_out). */
static void call_part(kernel_fn f, const kernel_case *c, int x0, int n_x, int r0, int n_out)
{
    const ptrdiff_t ldy = elem_stride(c, Y), ldx = elem_stride(c, X), stride = c->op[W].stride;
    ((matvec_fn)f)(at_floats(c, Y) + x0 * ldy + r0, ldy, c->op[W].at + r0 * stride, stride,
                   at_floats(c, X) + x0 * ldx, ldx, n_x, n_out, c->dim[N_IN]);
}

static void call(kernel_fn f, const kernel_case *c)
{
    call_part(f, c, 0, c->dim[N_X], 0, c->dim[N_OUT]);
}

static int cuts(int n)
{
    return n > 1 ? n - 1 : 0;
}

/* Rows are independent, and so are inputs. */
static int n_split(const kernel_case *c)
{
    return cuts(c->dim[N_OUT]) + cuts(c->dim[N_X]);
}

static void call_split(kernel_fn f, const kernel_case *c, int way)
{
    const int n_x = c->dim[N_X], n_out = c->dim[N_OUT], by_row = way < cuts(n_out);
    const int cut = 1 + (by_row ? way : way - cuts(n_out));
    call_part(f, c, by_row ? 0 : cut, by_row ? n_x : n_x - cut, by_row ? cut : 0,
              by_row ? n_out - cut : n_out);
    call_part(f, c, 0, by_row ? n_x : cut, 0, by_row ? cut : n_out);
}

/* Where the codes of a format with minima lie in its block; the others have none. */
static const struct {
    rkv_dtype dt;
    int from, to;
} minima[] = {{RKV_DT_q4_1, 4, 20}, {RKV_DT_q5_1, 4, 24}, {RKV_DT_q2_k, 16, 80},
              {RKV_DT_q4_k, 16, 144}, {RKV_DT_q5_k, 16, 176}};

/* o of every weight: what a row without codes unpacks to; 0 for formats without. */
static void unpack_minima(float *o, const rkv_ops *ops, const unsigned char *w,
                          const kernel_case *c)
{
    static unsigned char copy[MAX_IN * 4];
    const size_t bytes = c->op[W].row_len * c->op[W].elem, block = c->op[W].elem;
    memset(o, 0, (size_t)c->dim[N_IN] * sizeof *o);
    for (size_t k = 0; k < sizeof minima / sizeof *minima; k++) {
        if (minima[k].dt != c->kernel->dt)
            continue;
        memcpy(copy, w, bytes);
        for (size_t b = 0; b < bytes; b += block)
            memset(copy + b + minima[k].from, 0, (size_t)(minima[k].to - minima[k].from));
        ops->unpack[c->kernel->dt](o, copy, c->dim[N_IN]);
    }
}

/* What rounding x in blocks of 32 may add to a row. */
static double rounding(const float *row, const float *x, int n)
{
    double all = 0.0;
    for (int i = 0; i < n; i += 32) {
        double top = 0x1p-100, sum = 0.0;
        for (int j = i; j < n && j < i + 32; j++) {
            top = fmax(top, fabs((double)x[j]));
            sum += fabs((double)row[j]);
        }
        all += exp2(-15.99) * top * sum;
    }
    return all;
}

static double tolerance(const kernel_case *c, const float *row, const float *o, const float *x)
{
    const int n = c->dim[N_IN], block = rkv_dtype_get(c->kernel->dt)->block_len > 1;
    double sum = 0.0;
    for (int j = 0; j < n; j++)
        sum += (fabs((double)row[j]) + 2.0 * fabs((double)o[j])) * fabs((double)x[j]);
    return tol_sum(n, sum) + (block ? rounding(row, x, n) : 0.0);
}

static int judge(const kernel_case *c, char *text)
{
    static float row[MAX_IN], o[MAX_IN];
    const unsigned char *w = c->op[W].data;
    const int n_out = c->dim[N_OUT], n = c->dim[N_IN];
    rkv_ops ops;
    rkv_ops_init(&ops, 0);
    for (int i = 0; i < n_out; i++, w += c->op[W].row_len * c->op[W].elem) {
        ops.unpack[c->kernel->dt](row, w, n);
        unpack_minima(o, &ops, w, c);
        for (int k = 0; k < c->dim[N_X]; k++)
            if (!judge_within(c, Y, (size_t)(k * n_out + i),
                              tolerance(c, row, o, (const float *)c->op[X].data + k * n), text))
                return 0;
    }
    return 1;
}

/* Products with no columns are 0; two rows of two plain numbers, with one between them, times two
 * inputs; a block of q8_0. The other formats are held against independent values in the test of the
 * formats. */
static int known(kernel_fn f, rkv_dtype dt, char *text)
{
    static const unsigned char nothing[256 * 4];    /* a block of zeros */
    static const float bad[256] = {[5] = NAN}, good[256] = {1.0f};
    static const float x[] = {2.0f, -1.0f, 9.0f, 0.0f, 4.0f};
    static const float f32[] = {1.0f, -2.5f, 7.0f, 0.5f, 4.0f};
    static const uint16_t f16[] = {0x3c00, 0xc100, 0x4700, 0x3800, 0x4400};
    static const uint16_t bf16[] = {0x3f80, 0xc020, 0x40e0, 0x3f00, 0x4080};
    static const unsigned char q8_0[34] = {0x00, 0x38, 9, 246}; /* 0.5, 9, -10 */
    static const float x8[32] = {2.0f, -2.0f};
    static const double zero[] = {0.0, 0.0, 1.0, 0.0, 0.0}, want_q8_0[] = {19.0};
    static const double want[] = {4.5, -3.0, 1.0, -10.0, 16.0}; /* nothing between the inputs */
    const int bytes = rkv_dtype_get(dt)->block_bytes;
    float got[] = {1.0f, 1.0f, 1.0f, 1.0f, 1.0f};
    const int len = rkv_dtype_get(dt)->block_len;
    ((matvec_fn)f)(got, 1, nothing, bytes, bad, 256, 1, 1, len > 1 ? len : 32);
    ((matvec_fn)f)(got + 1, 1, nothing, bytes, good, 256, 1, 1, len > 1 ? len : 32);
    if (!isnan(got[0]) || got[1] != 0.0f) {
        snprintf(text, FAULT_TEXT, "0 times NaN is %g, 0 times 1 is %g", (double)got[0],
                 (double)got[1]);
        return 0;
    }
    got[0] = got[1] = 1.0f;
    ((matvec_fn)f)(got, 3, q8_0, bytes, x, 3, 2, 2, 0);
    if (!judge_known(got, zero, 5, 0.0, text))
        return 0;
    if (dt == RKV_DT_q8_0) {
        ((matvec_fn)f)(got, 1, q8_0, bytes, x8, 32, 1, 1, 32);
        return judge_known(got, want_q8_0, 1, 2.0, text);
    }
    if (rkv_dtype_get(dt)->block_len > 1)
        return 1;
    const void *w = dt == RKV_DT_f32 ? (const void *)f32 : dt == RKV_DT_f16 ? f16 : bf16;
    ((matvec_fn)f)(got, 3, w, 3 * bytes, x, 3, 2, 2, 2);
    return judge_known(got, want, 5, 0.0, text);
}

const op_driver drive_matvec = {
    .op = "matvec",
    .dim = {"n_x", "n_out", "n_in"},
    .n_case = n_case,
    .draw = draw,
    .call = call,
    .judge = judge,
    .n_split = n_split,
    .call_split = call_split,
    .known = known,
};
