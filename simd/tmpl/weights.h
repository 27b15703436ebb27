/* unpack and matvec over any weight format, written once for every x86 tier. The including file defines
 *   vf, RKV_NV                     a vector of floats; how many of them hold 32
 *   vf_load vf_store vf_set1 vf_zero vf_mul vf_add vf_fma (a b + c) vf_sum (of all lanes)
 * and describes each format by a rkv_format. All of it is inlined, so that a description costs nothing. */
#ifndef RKV_TMPL_WEIGHTS_H
#define RKV_TMPL_WEIGHTS_H

#include <stddef.h>
#include <string.h>

#include "tmpl/codes.h"

#if defined __clang__
#define RKV_INLINE static inline __attribute__((always_inline))
#define RKV_UNROLL _Pragma("clang loop unroll(full)")
#elif defined __GNUC__
#define RKV_INLINE static inline __attribute__((always_inline))
#define RKV_UNROLL _Pragma("GCC unroll 16")
#else
#define RKV_INLINE static inline
#define RKV_UNROLL
#endif

/* 32 weights or inputs in order. */
typedef struct rkv_w32 {
    vf v[RKV_NV];
} rkv_w32;

/* What makes a weight of a code: nothing, s code, or s code + o. */
typedef enum rkv_kind { RKV_WEIGHT, RKV_SCALE, RKV_AFFINE } rkv_kind;

typedef struct rkv_format {
    int len, bytes;             /* of a block; of 32 plain numbers */
    int group;                  /* weights per scale: 16 or 32 */
    rkv_kind kind;
    void (*scales)(rkv_scales *p, const void *block);           /* NULL: plain numbers */
    rkv_w32 (*codes)(const void *block, const rkv_scales *p, int i);   /* 32 i .. 32 i + 31 */
} rkv_format;

enum {
    RKV_MAX_BYTES = 32 * sizeof(float),     /* of 32 plain numbers */
    RKV_AHEAD = 2048                        /* bytes to prefetch ahead: covers memory latency */
};

RKV_INLINE rkv_w32 rkv_load_w32(const float *x)
{
    rkv_w32 w;
    RKV_UNROLL
    for (int k = 0; k < RKV_NV; k++)
        w.v[k] = vf_load(x + 32 / RKV_NV * k);
    return w;
}

/* Group of vector k of the 32 weights i. */
RKV_INLINE int rkv_group(const rkv_format *f, int i, int k)
{
    return (32 * i + 32 / RKV_NV * k) / f->group;
}

/* The exact weights. */
RKV_INLINE rkv_w32 rkv_weights(const rkv_format *f, rkv_w32 q, const rkv_scales *p, int i)
{
    if (f->kind == RKV_WEIGHT)
        return q;
    RKV_UNROLL
    for (int k = 0; k < RKV_NV; k++) {
        const vf s = vf_set1(p->s[rkv_group(f, i, k)]);
        /* s code is exact, so that one FMA rounds like the decoder's sum. */
        q.v[k] = f->kind == RKV_SCALE ? vf_mul(s, q.v[k])
                                      : vf_fma(s, q.v[k], vf_set1(p->o[rkv_group(f, i, k)]));
    }
    return q;
}

/* acc + the products of 32 weights. A scale is applied to the sum of its group: one product for all, and
 * no other magnitudes than those of the terms. A minimum must be added to each weight first: its own sum
 * would be much larger than the result where the weights are small. */
RKV_INLINE vf rkv_dot32(const rkv_format *f, vf acc, rkv_w32 q, rkv_w32 x, const rkv_scales *p, int i)
{
    const int n = f->kind == RKV_SCALE ? f->group * RKV_NV / 32 : RKV_NV;
    if (f->kind == RKV_AFFINE)
        q = rkv_weights(f, q, p, i);
    RKV_UNROLL
    for (int k = 0; k < RKV_NV; k += n) {
        vf t = vf_mul(q.v[k], x.v[k]);
        RKV_UNROLL
        for (int j = k + 1; j < k + n; j++)
            t = vf_fma(q.v[j], x.v[j], t);
        acc = f->kind == RKV_SCALE ? vf_fma(vf_set1(p->s[rkv_group(f, i, k)]), t, acc) : vf_add(acc, t);
    }
    return acc;
}

RKV_INLINE void rkv_unpack_block(const rkv_format *f, float *out, const char *block)
{
    rkv_scales p;
    if (f->scales)
        f->scales(&p, block);
    RKV_UNROLL
    for (int i = 0; i < f->len / 32; i++) {
        const rkv_w32 w = rkv_weights(f, f->codes(block, &p, i), &p, i);
        RKV_UNROLL
        for (int k = 0; k < RKV_NV; k++)
            vf_store(out + 32 * i + 32 / RKV_NV * k, w.v[k]);
    }
}

RKV_INLINE void rkv_unpack(const rkv_format *f, float *out, const void *src, int64_t n)
{
    const char *block = src;
    for (; n >= f->len; n -= f->len, block += f->bytes, out += f->len)
        rkv_unpack_block(f, out, block);
    if (!f->scales && n > 0) {                  /* a rest of plain numbers */
        char in[RKV_MAX_BYTES] = {0};
        float rest[32];
        memcpy(in, block, (size_t)n * (size_t)f->bytes / 32);
        rkv_unpack_block(f, rest, in);
        memcpy(out, rest, (size_t)n * sizeof *out);
    }
}

/* acc[r] += block of row r times x. */
RKV_INLINE void rkv_dot_blocks(const rkv_format *f, vf *acc, const char *block, ptrdiff_t w_stride,
                               const float *x, const int n_row)
{
    rkv_scales p[2];
    RKV_UNROLL
    for (int r = 0; r < n_row; r++)
        if (f->scales)
            f->scales(&p[r], block + r * w_stride);
    RKV_UNROLL
    for (int i = 0; i < f->len / 32; i++) {
        const rkv_w32 x32 = rkv_load_w32(x + 32 * i);
        RKV_UNROLL
        for (int r = 0; r < n_row; r++)
            acc[r] = rkv_dot32(f, acc[r], f->codes(block + r * w_stride, &p[r], i), x32, &p[r], i);
    }
}

/* y[r] of n_row = 1 or 2 rows. The same operations in the same order for either. */
RKV_INLINE void rkv_rows(const rkv_format *f, float *y, const char *w, ptrdiff_t w_stride, const float *x,
                         int n_in, const int n_row)
{
    vf acc[2] = {vf_zero(), vf_zero()};
    int i = 0;
    for (; i + f->len <= n_in; i += f->len, w += f->bytes) {
        RKV_UNROLL
        for (int r = 0; r < n_row; r++) {
            RKV_UNROLL
            for (int b = 0; b < f->bytes; b += 64)
                _mm_prefetch(w + r * w_stride + RKV_AHEAD + b, _MM_HINT_T0);
        }
        rkv_dot_blocks(f, acc, w, w_stride, x + i, n_row);
    }
    if (!f->scales && i < n_in) {               /* a rest of plain numbers: zeros fill it up */
        const size_t n = (size_t)(n_in - i), bytes = n * (size_t)f->bytes / 32;
        char in[2][RKV_MAX_BYTES] = {{0}};
        float rest[32] = {0.0f};
        for (int r = 0; r < n_row; r++)
            memcpy(in[r], w + r * w_stride, bytes);
        memcpy(rest, x + i, n * sizeof *rest);
        rkv_dot_blocks(f, acc, in[0], RKV_MAX_BYTES, rest, n_row);
    }
    RKV_UNROLL
    for (int r = 0; r < n_row; r++)
        y[r] = vf_sum(acc[r]);
}

/* Two rows at a time share the loads of x and keep two streams from memory busy. */
RKV_INLINE void rkv_matvec(const rkv_format *f, float *y, const void *w, ptrdiff_t w_stride,
                           const float *x, int n_out, int n_in)
{
    const char *row = w;
    int r = 0;
    for (; r + 2 <= n_out; r += 2, row += 2 * w_stride)
        rkv_rows(f, y + r, row, w_stride, x, n_in, 2);
    if (r < n_out)
        rkv_rows(f, y + r, row, w_stride, x, n_in, 1);
}

/* Both kernels of a format f in a tier. */
#define RKV_WEIGHT_KERNELS(dt, isa, f) \
    void rkv_unpack_##dt##_##isa(float *out, const void *src, int64_t n) \
    { \
        rkv_unpack(f, out, src, n); \
    } \
    void rkv_matvec_##dt##_##isa(float *y, const void *w, ptrdiff_t w_stride, const float *x, int n_out, \
                                 int n_in) \
    { \
        rkv_matvec(f, y, w, w_stride, x, n_out, n_in); \
    }

#endif
