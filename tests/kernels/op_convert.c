/* Drivers of unpack, pack and pack_pairs: exact. */
#include "config.h"
#include "case.h"
#include "kernels.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef RKV_PROTO_unpack(*unpack_fn);
typedef RKV_PROTO_pack(*pack_fn);
typedef RKV_PROTO_pack_pairs(*pack_pairs_fn);

enum { EDGE_CASES = 2 };

/* Plain numbers take all lengths; blocks are longer, so fewer of them do. */
static int n_case(rkv_dtype dt)
{
    return rkv_dtype_get(dt)->block_len == 1 ? case_rows(dt) + EDGE_CASES : 20 * INPUT_KINDS;
}

static int n_block(const kernel_case *c, int index, case_rng *r)
{
    if (rkv_dtype_get(c->kernel->dt)->block_len == 1)
        return case_length(index, r);
    const int i = index % 20;
    return i < 17 ? i : 17 + (int)rng_below(r, 100);
}

static int is_edge(const kernel_case *c, int index)
{
    return rkv_dtype_get(c->kernel->dt)->block_len == 1 && index >= case_rows(c->kernel->dt);
}

static void draw_unpack(kernel_case *c, int index, case_rng *r)
{
    const rkv_dtype_desc *d = rkv_dtype_get(c->kernel->dt);
    c->kind = (input_kind)(index / (d->block_len == 1 ? CASE_LENGTHS : 20) % INPUT_KINDS);
    const int n = is_edge(c, index) ? 0x10000 : n_block(c, index, r);
    c->dim[0] = n * d->block_len;
    operand *src = case_operand(c, OPERAND_IN, 1, (size_t)n, (size_t)d->block_bytes);
    input_blocks(c->kernel->dt, src->data, (size_t)n, c->kind, 1, r);
    if (is_edge(c, index) && d->block_bytes == 2) /* every value that the type has */
        for (int i = 0; i < n; i++)
            ((uint16_t *)src->data)[i] = (uint16_t)i;
    case_operand(c, OPERAND_OUT, 1, (size_t)c->dim[0], sizeof(float));
}

static void call_unpack(kernel_fn f, const kernel_case *c)
{
    ((unpack_fn)f)(at_floats(c, 1), c->op[0].at, c->dim[0]);
}

static int split_blocks(const kernel_case *c)
{
    const int n = c->dim[0] / rkv_dtype_get(c->kernel->dt)->block_len;
    return n > 1 ? n - 1 : 0;
}

static void split_unpack(kernel_fn f, const kernel_case *c, int way)
{
    const rkv_dtype_desc *d = rkv_dtype_get(c->kernel->dt);
    const int cut = (way + 1) * d->block_len;
    ((unpack_fn)f)(at_floats(c, 1) + cut, c->op[0].at + (way + 1) * d->block_bytes,
                   c->dim[0] - cut);
    ((unpack_fn)f)(at_floats(c, 1), c->op[0].at, cut);
}

/* The bits, but for those of a NaN. */
static int judge_unpack(const kernel_case *c, char *text)
{
    const float *got = c->op[1].got;
    float *want = c->op[1].want;
    for (int i = 0; i < c->dim[0]; i++)
        if (isnan(got[i]) && isnan(want[i]))
            want[i] = got[i];
    return judge_bits(c, 1, text);
}

/* Quantized types are held against independent values in the test of their formats. */
static int known_unpack(kernel_fn f, rkv_dtype dt, char *text)
{
    static const float f32[] = {1.0f, -2.5f, 65504.0f, 0.0f};
    static const uint16_t f16[] = {0x3c00, 0xc100, 0x7bff, 0x0000};
    static const uint16_t bf16[] = {0x3f80, 0xc020, 0x477f, 0x0000};
    static const double want[] = {1.0, -2.5, 65504.0, 0.0}, want_bf16[] = {1.0, -2.5, 65280.0, 0.0};
    const void *src = dt == RKV_DT_f32 ? (const void *)f32 : dt == RKV_DT_f16 ? f16 : bf16;
    if (rkv_dtype_get(dt)->block_len > 1)
        return 1;
    float got[4];
    ((unpack_fn)f)(got, src, 4);
    return judge_known(got, dt == RKV_DT_bf16 ? want_bf16 : want, 4, 0.0, text);
}

static void draw_pack(kernel_case *c, int index, case_rng *r)
{
    const rkv_dtype_desc *d = rkv_dtype_get(c->kernel->dt);
    c->kind = (input_kind)(index / (d->block_len == 1 ? CASE_LENGTHS : 20) % INPUT_KINDS);
    const int edge = is_edge(c, index);
    c->dim[0] = edge ? INPUT_EDGES : n_block(c, index, r) * d->block_len;
    operand *in = case_floats(c, OPERAND_IN, 1, (size_t)c->dim[0], r);
    if (edge)
        input_edges(in->data);
    case_operand(c, OPERAND_OUT, 1, (size_t)(c->dim[0] / d->block_len), (size_t)d->block_bytes);
}

static void call_pack(kernel_fn f, const kernel_case *c)
{
    ((pack_fn)f)(c->op[1].at, at_floats(c, 0), c->dim[0]);
}

static void split_pack(kernel_fn f, const kernel_case *c, int way)
{
    const rkv_dtype_desc *d = rkv_dtype_get(c->kernel->dt);
    const int cut = (way + 1) * d->block_len;
    ((pack_fn)f)(c->op[1].at + (way + 1) * d->block_bytes, at_floats(c, 0) + cut, c->dim[0] - cut);
    ((pack_fn)f)(c->op[1].at, at_floats(c, 0), cut);
}

/* Blocks: no number further off than half a step of its scale, or a whole one where a step on top
 * is missing, and what the largest number, 8 or 127 steps, is off for the rounding of the scale; a
 * scale below binary16's range or above it costs what the range lacks. */
static int judge_codes(const kernel_case *c, char *text)
{
    const rkv_dtype dt = c->kernel->dt;
    const float *in = c->op[0].data, most = dt == RKV_DT_q8_0 ? 127.0f : 8.0f;
    rkv_ops ops;
    rkv_ops_init(&ops, 0);
    for (int b = 0; b < c->dim[0] / 32; b++, in += 32) {
        float out[32], top = 0.0f;
        ops.unpack[dt](out, (const char *)c->op[1].got + b * rkv_dtype_get(dt)->block_bytes, 32);
        for (int i = 0; i < 32; i++)
            top = fmaxf(top, fabsf(in[i]));
        const float step = top / most, rounding = fmaxf(top * 0x1p-11f, most * 0x1p-25f);
        for (int i = 0; i < 32 && top < 65504.0f * most; i++)
            if (!(fabsf(out[i] - in[i]) <=
                  (dt == RKV_DT_q8_0 ? 0.5f : 1.0f) * step * (1.0f + 0x1p-20f) + rounding)) {
                snprintf(text, FAULT_TEXT, "block %d, number %d: %g became %g, step %g", b, i,
                         (double)in[i], (double)out[i], (double)step);
                return 0;
            }
    }
    return 1;
}

static int judge_pack(const kernel_case *c, char *text)
{
    return judge_bits(c, 1, text) &&
           (rkv_dtype_get(c->kernel->dt)->block_len == 1 || judge_codes(c, text));
}

/* Of the 16-bit types: ties to even, the largest number, the first that becomes infinity, the
 * smallest numbers. */
enum { N_KNOWN = 10 };
static const struct {
    rkv_dtype dt;
    float in[N_KNOWN];
    uint16_t out[N_KNOWN];
} known_16[] = {
    {RKV_DT_f16,
     {1.0f, 1.0f + 0x1p-11f, 1.0f + 0x3p-11f, 65519.0f, 65520.0f, -INFINITY, 0x1p-25f, 0x1.8p-25f,
      -0x1p-14f, -0.0f},
     {0x3c00, 0x3c00, 0x3c02, 0x7bff, 0x7c00, 0xfc00, 0x0000, 0x0001, 0x8400, 0x8000}},
    {RKV_DT_bf16,
     {1.0f, 1.0f + 0x1p-8f, 1.0f + 0x3p-8f, 0x1.fefffep127f, 0x1.ffp127f, -INFINITY, 0x1p-134f,
      0x1.8p-134f, -0x1p-133f, -0.0f},
     {0x3f80, 0x3f80, 0x3f82, 0x7f7f, 0x7f80, 0xff80, 0x0000, 0x0001, 0x8001, 0x8000}},
};

/* Blocks: of two largest magnitudes the negative one takes code -8; ties to even; NaN and infinity
 * show. */
static int known_blocks(kernel_fn f, rkv_dtype dt)
{
    const float in[32] = {8.0f, -8.0f, 2.5f, 3.5f}, nan[32] = {1.0f, NAN}, inf[32] = {-INFINITY};
    const float want[4] = {dt == RKV_DT_q4_0 ? 7.0f : 8.0f, -8.0f};
    unsigned char block[34];
    float out[32];
    rkv_ops ops;
    rkv_ops_init(&ops, 0);
    ((pack_fn)f)(block, in, 32);
    ops.unpack[dt](out, block, 32);
    int ok = fabsf(out[0] - want[0]) < 0.01f && fabsf(out[1] - want[1]) < 0.01f && out[31] == 0.0f;
    if (dt == RKV_DT_q4_0)
        ok &= out[2] == 2.0f && out[3] == 4.0f;
    for (int i = 0; i < 2; i++) {
        ((pack_fn)f)(block, i ? inf : nan, 32);
        ops.unpack[dt](out, block, 32);
        ok &= isnan(out[0]) && isnan(out[31]);
    }
    return ok;
}

static int known_pack(kernel_fn f, rkv_dtype dt, char *text)
{
    int ok = rkv_dtype_get(dt)->block_len == 1 || known_blocks(f, dt);
    for (size_t i = 0; i < sizeof known_16 / sizeof *known_16; i++) {
        unsigned char got[sizeof known_16->in];
        const void *want = dt == RKV_DT_f32 ? (const void *)known_16[i].in : known_16[i].out;
        if (dt != RKV_DT_f32 && dt != known_16[i].dt)
            continue;
        ((pack_fn)f)(got, known_16[i].in, N_KNOWN);
        ok &= !memcmp(got, want, N_KNOWN * (size_t)rkv_dtype_get(dt)->block_bytes);
    }
    if (!ok)
        snprintf(text, FAULT_TEXT, "a value at an edge is packed wrongly");
    return ok;
}

const op_driver drive_unpack = {
    .op = "unpack",
    .dim = {"n"},
    .n_case = n_case,
    .draw = draw_unpack,
    .call = call_unpack,
    .judge = judge_unpack,
    .n_split = split_blocks,
    .call_split = split_unpack,
    .known = known_unpack,
};

const op_driver drive_pack = {
    .op = "pack",
    .dim = {"n"},
    .n_case = n_case,
    .draw = draw_pack,
    .call = call_pack,
    .judge = judge_pack,
    .n_split = split_blocks,
    .call_split = split_pack,
    .known = known_pack,
};

enum { N, WITH_LO };     /* dim[] of pack_pairs */
enum { HI, LO, ROW_A, ROW_B };

static void draw_pack_pairs(kernel_case *c, int index, case_rng *r)
{
    const int edge = is_edge(c, index);
    c->kind = (input_kind)(index / CASE_LENGTHS % INPUT_KINDS);
    c->dim[N] = edge ? INPUT_EDGES : case_length(index, r);
    c->dim[WITH_LO] = edge || rng_below(r, 4) > 0;
    const size_t n = (size_t)c->dim[N];
    case_operand(c, OPERAND_OUT, 1, n, 2 * sizeof(uint16_t));
    case_operand(c, OPERAND_OUT, 1, c->dim[WITH_LO] ? n : 0, 2 * sizeof(uint16_t));
    float *a = case_floats(c, OPERAND_IN, 1, n, r)->data;
    float *b = case_floats(c, OPERAND_IN, 1, n, r)->data;
    if (!edge)
        return;
    input_edges(a);
    for (size_t i = 0; i < n; i++)
        b[i] = a[n - 1 - i];
}

static void pack_pairs_part(kernel_fn f, const kernel_case *c, int from, int n)
{
    unsigned char *lo = c->dim[WITH_LO] ? c->op[LO].at + 4 * from : NULL;
    ((pack_pairs_fn)f)(c->op[HI].at + 4 * from, lo, at_floats(c, ROW_A) + from,
                       at_floats(c, ROW_B) + from, n);
}

static void call_pack_pairs(kernel_fn f, const kernel_case *c)
{
    pack_pairs_part(f, c, 0, c->dim[N]);
}

static void split_pack_pairs(kernel_fn f, const kernel_case *c, int way)
{
    pack_pairs_part(f, c, way + 1, c->dim[N] - way - 1);
    pack_pairs_part(f, c, 0, way + 1);
}

static int is_nan_16(uint16_t h)
{
    return (h & 0x7fff) > 0x7f80;
}

/* The bits, but for those of a NaN that a difference gave. */
static int judge_pack_pairs(const kernel_case *c, char *text)
{
    const uint16_t *got = c->op[LO].got;
    uint16_t *want = c->op[LO].want;
    for (size_t i = 0; i < 2 * c->op[LO].row_len; i++)
        if (is_nan_16(got[i]) && is_nan_16(want[i]))
            want[i] = got[i];
    return judge_bits(c, HI, text) && judge_bits(c, LO, text);
}

/* 1 + 2^-9 + 2^-17: 1 and 2^-9; the tie 1 + 2^-8: 1 and 2^-8; 1 + 3 2^-8: up to 1 + 2^-6, so
 * -2^-8. */
static int known_pack_pairs(kernel_fn f, rkv_dtype dt, char *text)
{
    static const float a[] = {1.0f + 0x1p-9f + 0x1p-17f, 1.0f + 0x1p-8f};
    static const float b[] = {1.0f + 0x3p-8f, -INFINITY};
    static const uint16_t hi[] = {0x3f80, 0x3f82, 0x3f80, 0xff80}, lo[] = {0x3b00, 0xbb80, 0x3b80};
    uint16_t got_hi[4], got_lo[4], alone[4];
    (void)dt;
    ((pack_pairs_fn)f)(got_hi, got_lo, a, b, 2);
    ((pack_pairs_fn)f)(alone, NULL, a, b, 2);
    const int ok = !memcmp(got_hi, hi, sizeof hi) && !memcmp(alone, hi, sizeof hi) &&
                   !memcmp(got_lo, lo, sizeof lo) && is_nan_16(got_lo[3]);
    if (!ok)
        snprintf(text, FAULT_TEXT, "pairs %04x %04x, rest %04x %04x", got_hi[0], got_hi[1],
                 got_lo[0], got_lo[1]);
    return ok;
}

const op_driver drive_pack_pairs = {
    .op = "pack_pairs",
    .dim = {"n", "with_lo"},
    .n_case = n_case,
    .draw = draw_pack_pairs,
    .call = call_pack_pairs,
    .judge = judge_pack_pairs,
    .n_split = split_blocks,
    .call_split = split_pack_pairs,
    .known = known_pack_pairs,
};
