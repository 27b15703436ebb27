/* unpack of the block formats and matvec of all weights on the vector vocabulary; contracts in
 * kernels.h. The tier writes codes_<type> for each format and describes it by a row RKV_PLAIN,
 * RKV_SMALL or RKV_LARGE. All of it is inlined into the kernels, so that a description costs
 * nothing. */
#ifndef RKV_TMPL_WEIGHTS_H
#define RKV_TMPL_WEIGHTS_H

#include <stddef.h>
#include <string.h>

#include "attr.h"
#include "tmpl/codes.h"

enum { N_VEC = 32 / V_LEN };

/* 32 weights or inputs in order. */
typedef struct rkv_w32 {
    vf v[N_VEC];
} rkv_w32;

/* What makes a weight of what codes returns: nothing more, s code, or s code + o. */
typedef enum rkv_kind { RKV_WEIGHT, RKV_SCALE, RKV_AFFINE } rkv_kind;

/* Large blocks have 256 weights, small ones 32; 32 plain numbers count as a small block. */
typedef struct rkv_format {
    int bytes; /* of a block */
    int unit;  /* weights of a unit; 32: small blocks, or large ones of eight like parts */
    int group; /* weights per scale: 16 or 32 */
    int small;
    rkv_kind kind;
    void (*scales)(rkv_scales *p, const void *block, int bytes, int n); /* NULL: plain numbers */
    rkv_w32 (*codes)(const void *block, const rkv_scales *p, int u, int i);
} rkv_format;

enum {
    RKV_STEP = 256,  /* weights that share a call of scales */
    RKV_AHEAD = 2048, /* bytes to prefetch ahead: covers memory latency */
    /* Inputs for which codes are unpacked once: their sums take half of the registers. */
    RKV_TOGETHER = V_LEN == 16 ? 4 : 2
};

static RKV_ALWAYS_INLINE rkv_w32 rkv_load_w32(const float *x)
{
    rkv_w32 w;
    RKV_UNROLL(16)
    for (int k = 0; k < N_VEC; k++)
        w.v[k] = v_load(x + V_LEN * k);
    return w;
}

static RKV_ALWAYS_INLINE int rkv_step_bytes(const rkv_format *f)
{
    return f->small ? RKV_STEP / 32 * f->bytes : f->bytes;
}

/* Group of vector k of the 32 weights i of unit u. */
static RKV_ALWAYS_INLINE int rkv_group(const rkv_format *f, int u, int i, int k)
{
    return u * (f->unit / f->group) + (32 * i + V_LEN * k) / f->group;
}

/* The exact weights of codes. */
static RKV_ALWAYS_INLINE rkv_w32 rkv_weights(const rkv_format *f, rkv_w32 q, const rkv_scales *p,
                                             int u, int i)
{
    if (f->kind == RKV_WEIGHT)
        return q;
    RKV_UNROLL(16)
    for (int k = 0; k < N_VEC; k++) {
        const int g = rkv_group(f, u, i, k);
        const vf s = v_set(p->s[g]);
        /* s code is exact, so that one FMA rounds like the decoder's sum. */
        q.v[k] = f->kind == RKV_SCALE ? v_mul(s, q.v[k]) : v_fma(s, q.v[k], v_set(p->o[g]));
    }
    return q;
}

/* The sum of a row in two chains: the core can work further ahead (measured: up to a fifth). */
typedef struct rkv_acc {
    vf v[2];
} rkv_acc;

/* acc + the products of 32 weights: plain numbers, or s code + o. A minimum must be added to each
 * weight first: its own sum would be much larger than the result where the weights are small. */
static RKV_ALWAYS_INLINE rkv_acc rkv_dot32(const rkv_format *f, rkv_acc acc, rkv_w32 q, rkv_w32 x,
                                           const rkv_scales *p, int u, int i)
{
    enum { EACH = N_VEC / 2 };
    if (f->kind == RKV_AFFINE)
        q = rkv_weights(f, q, p, u, i);
    RKV_UNROLL(16)
    for (int k = 0; k < N_VEC; k += EACH) {
        vf *sum = &acc.v[k / EACH % 2];
        RKV_UNROLL(16)
        for (int j = k; j < k + EACH; j++)
            *sum = v_fma(q.v[j], x.v[j], *sum);
    }
    return acc;
}

/* n weights of a step, a multiple of 32. */
static RKV_ALWAYS_INLINE void rkv_unpack_step(const rkv_format *f, float *out, const char *block,
                                              int n)
{
    rkv_scales p;
    f->scales(&p, block, f->bytes, n / 32);
    for (int u = 0; u < n / f->unit; u++, out += f->unit) {
        RKV_UNROLL(16)
        for (int i = 0; i < f->unit / 32; i++) {
            const rkv_w32 w = rkv_weights(f, f->codes(block, &p, u, i), &p, u, i);
            RKV_UNROLL(16)
            for (int k = 0; k < N_VEC; k++)
                v_store(out + 32 * i + V_LEN * k, w.v[k]);
        }
    }
}

/* acc[r][k] += row r times input k over n weights of a step, a multiple of 32. */
static RKV_ALWAYS_INLINE void rkv_dot_step(const rkv_format *f, rkv_acc acc[2][RKV_TOGETHER],
                                           const char *block, ptrdiff_t w_stride, const float *x,
                                           ptrdiff_t ldx, int n, const int n_row, const int n_x)
{
    rkv_scales p[2];
    RKV_UNROLL(16)
    for (int r = 0; r < n_row; r++)
        if (f->scales)
            f->scales(&p[r], block + r * w_stride, f->bytes, n / 32);
    for (int u = 0; u < n / f->unit; u++, x += f->unit) {
        RKV_UNROLL(16)
        for (int i = 0; i < f->unit / 32; i++) {
            RKV_UNROLL(16)
            for (int r = 0; r < n_row; r++) {
                const rkv_w32 q = f->codes(block + r * w_stride, &p[r], u, i);
                RKV_UNROLL(16)
                for (int k = 0; k < n_x; k++)
                    acc[r][k] = rkv_dot32(f, acc[r][k], q, rkv_load_w32(x + k * ldx + 32 * i),
                                          &p[r], u, i);
            }
        }
    }
}

/* Asks for what lies RKV_AHEAD behind a step: usually a later part of the row or a following row;
 * harmless where there is none. */
static RKV_ALWAYS_INLINE void rkv_prefetch(const rkv_format *f, const char *block,
                                           ptrdiff_t w_stride, const int n_row)
{
    RKV_UNROLL(16)
    for (int r = 0; r < n_row; r++) {
        const uintptr_t at = (uintptr_t)(block + r * w_stride) + RKV_AHEAD;
        RKV_UNROLL(16)
        for (int b = 0; b < rkv_step_bytes(f); b += 64)
            _mm_prefetch((const char *)(at + (uintptr_t)b), _MM_HINT_T0);
    }
}

static RKV_ALWAYS_INLINE void rkv_unpack(const rkv_format *f, float *out, const void *src,
                                         int64_t n)
{
    const char *block = src;
    for (; n >= RKV_STEP; n -= RKV_STEP, block += rkv_step_bytes(f), out += RKV_STEP)
        rkv_unpack_step(f, out, block, RKV_STEP);
    if (f->small)
        rkv_unpack_step(f, out, block, (int)n);
}

/* y[k][r] of n_row = 1 or 2 rows and n_x <= RKV_TOGETHER inputs. The same operations in the same
 * order for any. */
static RKV_ALWAYS_INLINE void rkv_rows(const rkv_format *f, float *y, ptrdiff_t ldy, const char *w,
                                       ptrdiff_t w_stride, const float *x, ptrdiff_t ldx, int n_in,
                                       const int n_row, const int n_x)
{
    rkv_acc acc[2][RKV_TOGETHER];
    const char *block = w;
    int i = 0;
    RKV_UNROLL(16)
    for (int r = 0; r < n_row; r++) {
        RKV_UNROLL(16)
        for (int k = 0; k < n_x; k++)
            acc[r][k].v[0] = acc[r][k].v[1] = v_zero();
    }
    for (; n_in - i >= RKV_STEP; i += RKV_STEP, block += rkv_step_bytes(f)) {
        rkv_prefetch(f, block, w_stride, n_row);
        rkv_dot_step(f, acc, block, w_stride, x + i, ldx, RKV_STEP, n_row, n_x);
    }
    if (f->small && n_in - i >= 32) {
        const int n = (n_in - i) / 32 * 32;
        rkv_dot_step(f, acc, block, w_stride, x + i, ldx, n, n_row, n_x);
        i += n;
    }
    if (!f->scales && i < n_in) { /* a rest of plain numbers, filled up with zeros */
        const size_t rest = (size_t)(n_in - i), bytes = rest * (size_t)f->bytes / 32;
        float in[2][32] = {{0.0f}}, x32[RKV_TOGETHER][32] = {{0.0f}};
        for (int r = 0; r < n_row; r++)
            memcpy(in[r], w + r * w_stride + i / 32 * f->bytes, bytes);
        for (int k = 0; k < n_x; k++)
            memcpy(x32[k], x + k * ldx + i, rest * sizeof *x);
        rkv_dot_step(f, acc, (const char *)in[0], sizeof in[0], x32[0], 32, 32, n_row, n_x);
    }
    RKV_UNROLL(16)
    for (int r = 0; r < n_row; r++) {
        RKV_UNROLL(16)
        for (int k = 0; k < n_x; k++)
            y[k * ldy + r] = v_sum(v_add(acc[r][k].v[0], acc[r][k].v[1]));
    }
}

/* Two rows at a time share the loads of x and keep two streams from memory busy. All inputs go
 * through them before the next two, so that their bytes are still near. */
static RKV_ALWAYS_INLINE void rkv_matvec(const rkv_format *f, float *y, ptrdiff_t ldy,
                                         const void *w, ptrdiff_t w_stride, const float *x,
                                         ptrdiff_t ldx, int n_x, int n_out, int n_in)
{
    const char *row = w;
    int r = 0;
    for (; r + 2 <= n_out; r += 2, row += 2 * w_stride) {
        int k = 0;
        for (; n_x - k >= RKV_TOGETHER; k += RKV_TOGETHER)
            rkv_rows(f, y + k * ldy + r, ldy, row, w_stride, x + k * ldx, ldx, n_in, 2,
                     RKV_TOGETHER);
        for (; k < n_x; k++)
            rkv_rows(f, y + k * ldy + r, ldy, row, w_stride, x + k * ldx, ldx, n_in, 2, 1);
    }
    for (int k = 0; k < n_x && r < n_out; k++)
        rkv_rows(f, y + k * ldy + r, ldy, row, w_stride, x + k * ldx, ldx, n_in, 1, 1);
}

/* Kernels of a type: element of a plain one; bytes of a block, weights of a unit and per scale,
 * kind, scales of the others. */
#define RKV_PLAIN(dt, type) \
    static RKV_ALWAYS_INLINE rkv_w32 codes_##dt(const void *block, const rkv_scales *p, int u, \
                                                int i) \
    { \
        rkv_w32 w; \
        (void)p, (void)i; \
        RKV_UNROLL(16) \
        for (int k = 0; k < N_VEC; k++) \
            w.v[k] = v_load_##dt((const type *)block + 32 * u + V_LEN * k); \
        return w; \
    } \
    RKV_FORMAT(dt, 32 * (int)sizeof(type), 32, 32, 1, RKV_WEIGHT, NULL) \
    RKV_MATVEC(dt)
#define RKV_SMALL(dt, bytes, kind, scales) \
    RKV_FORMAT(dt, bytes, 32, 32, 1, kind, scales) \
    RKV_UNPACK(dt) \
    RKV_BLOCK_MATVEC(dt)
#define RKV_LARGE(dt, bytes, unit, group, kind, scales) \
    RKV_FORMAT(dt, bytes, unit, group, 0, kind, scales) \
    RKV_UNPACK(dt) \
    RKV_BLOCK_MATVEC(dt)

#define RKV_FORMAT(dt, bytes, unit, group, small, kind, scales) \
    static const rkv_format format_##dt = {bytes, unit, group, small, kind, scales, codes_##dt};
#define RKV_MATVEC(dt) \
    RKV_PROTO_matvec(RKV_TIER(matvec_##dt)) \
    { \
        rkv_matvec(&format_##dt, y, ldy, w, w_stride, x, ldx, n_x, n_out, n_in); \
    }
#define RKV_UNPACK(dt) \
    void RKV_TIER(unpack_##dt)(float *out, const void *src, int64_t n) \
    { \
        rkv_unpack(&format_##dt, out, src, n); \
    }
/* A tier with another matvec for block formats defines this as nothing. */
#ifndef RKV_BLOCK_MATVEC
#define RKV_BLOCK_MATVEC RKV_MATVEC
#endif

#endif
