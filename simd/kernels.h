/* The heavy operations: contracts, and the table that holds one implementation of each.
 *
 * Kernels are leaves: no allocation, threads, errno, statics or change of the floating-point mode.
 * They work for every length, need no alignment beyond the element's own, and touch no byte outside
 * their operands, reading included. Outputs overlap inputs only where the contract says so.
 * Sums: |got - exact| <= (n + 2) 2^-24 sum|terms| with n terms; elementwise <= 2 ULP, with exp 4
 * ULP. A result depends on nothing but the operands (not on alignment, nor on neighbouring rows),
 * so that every split of rows over threads or batches gives the same bits within one tier.
 *
 * kernels.def registers each implementation for dispatch, for tests/check_kernels and for bench. */
#ifndef RKV_KERNELS_H
#define RKV_KERNELS_H

#ifndef PACKAGE_VERSION
#error "include config.h first: it decides which kernels there are"
#endif

#include <stddef.h>
#include <stdint.h>

#include "dtypes.h"

/* Unpacks n elements of a weight row: out[n] f32 = src. n % block_len == 0, n >= 0.
 * Exact: each value is rounded once per multiplication the format's definition has (the order of
 * operations in fmt/<type>.h), so all tiers agree to the bit. Source: ggml block formats. */
#define RKV_PROTO_unpack(name) void(name)(float *out, const void *src, int64_t n)

/* Packs n floats into a row of the type: dst = in, round to nearest even; overflow gives infinity,
 * a NaN becomes quiet. Block formats by the encoding in fmt/<type>.h. n % block_len == 0, n >= 0.
 */
#define RKV_PROTO_pack(name) void(name)(void *dst, const float *in, int64_t n)

/* Two rows of n floats as pairs of 16 bits, as gemm_pairs takes them in b: pair i of hi is (a[i],
 * b[i]), rounded as pack does; that of lo what the rounding took away, a[i] - hi and b[i] - hi,
 * rounded in turn (NaN where hi is not finite). lo may be NULL. Each is n pairs; n >= 0. Two
 * numbers of bf16 hold 16 bits or more of a float's 24, and a half-precision number whole. */
#define RKV_PROTO_pack_pairs(name) \
    void(name)(void *hi, void *lo, const float *a, const float *b, int n)

/* A block of 0 <= n <= 256 floats as integers of 16 bits: out[i] = in[i] times the inverse scale,
 * to nearest even; returns the scale norm / 32750, norm = max(sqrt(sum in^2), 2^-100): as fine as
 * products of two blocks allow that must not overflow 32 bits (int16.h has the proof). out[i] times
 * the scale is off by norm / 65000 at most. A block that is not finite becomes zeros with the scale
 * NaN. out must not overlap in.
 * All tiers agree to the bit: squares add up in double, one sum for each i modulo 16 in ascending
 * i; sum l takes sum l + 8, then l + 4, l + 2, l + 1. */
#define RKV_PROTO_pack_int16(name) float(name)(int16_t *out, const float *in, int n)

/* y[j][r] = sum_i w[r][i] x[j][i] for n_x inputs and n_out rows of n_in elements, w_stride bytes
 * apart; ldy, ldx: floats from input to input. n_x, n_out >= 0, n_in >= 0 and a multiple of
 * block_len. A NaN in an input makes its sums NaN. The bits of y[j][r] depend on row r and input j
 * alone, so that inputs may be divided over calls like rows. Sum tolerance, where a weight s code +
 * o of a block format counts as the terms s code and o. With block formats x may be rounded to 16
 * bits in blocks of 32: that adds at most 2^-15.99 max(|x|, 2^-100) sum|w| per block. Calls with
 * many rows are cheaper per row; weights are read from memory once for every 8 inputs or more. */
#define RKV_PROTO_matvec(name)                                                                     \
    void(name)(float *y, ptrdiff_t ldy, const void *w, ptrdiff_t w_stride, const float *x,         \
               ptrdiff_t ldx, int n_x, int n_out, int n_in)

/* c[i][j] = (acc ? c[i][j] : 0) + sum_p a[i][p] b[p][j], i < m, j < n, p < k; any of them may be 0.
 * ldc, lda, ldb: elements from row to row. SIMD tiers: one chain of FMAs in ascending p per
 * element, so that neither the tile nor a split of k over calls changes a bit; ref: a double sum
 * per call. Sum tolerance. Fastest when n is the table's gemm_nr and b one panel [k][gemm_nr]. */
#define RKV_PROTO_gemm(name) \
    void(name)(float *c, ptrdiff_t ldc, const float *a, ptrdiff_t lda, const float *b, \
               ptrdiff_t ldb, int m, int n, int k, int acc)

/* c[i][j] = (acc ? c[i][j] : 0) + sum_p a[i][p] b[p][j] of numbers of 16 bits, i < m, j < n, p < k;
 * k % 32 == 0, any of them may be 0. a: rows of k numbers, lda numbers apart. b: k / 2 rows, ldb
 * pairs apart, whose pair j is (b[2 q][j], b[2 q + 1][j]).
 * Sums, by the definition of TDPBF16PS: of each 32 p, the products of even p are one chain of FMAs
 * in ascending p and those of odd p another, both from 0; then c += even + odd. A denormal counts
 * as 0 wherever it goes in or comes out. So neither the tile nor a split of k at multiples of 32
 * changes a bit. Sum tolerance with k + 3 terms, and 2^-126 per term for the denormals.
 * Fastest when n is 32 and b one panel [k / 2][32] with the next call's panel behind it, which is
 * prefetched. Source: Intel SDM volume 2, TDPBF16PS. */
#define RKV_PROTO_gemm_pairs(name)                                                                 \
    void(name)(float *c, ptrdiff_t ldc, const uint16_t *a, ptrdiff_t lda, const uint16_t *b,       \
               ptrdiff_t ldb, int m, int n, int k, int acc)

/* The same with integers, for one block of pack_int16 in each row of a and each column of b:
 *     c[i][j] = fma((float)S b_scale[j], a_scale[i], acc ? c[i][j] : 0), S = sum_p a[i][p] b[p][j].
 * a_scale: lds floats from row to row. k % 2 == 0; any of m, n, k may be 0. S is exact: no sum of
 * some of its products may leave 32 bits, and no number may be -32768. So all tiers agree to the
 * bit, whatever the tile. A product of packed floats is off by 2^-15 sqrt(1/6) |a| |b| rms, with
 * the norms of its two blocks, however uneven they are. */
#define RKV_PROTO_gemm_int16(name)                                                                 \
    void(name)(float *c, ptrdiff_t ldc, const int16_t *a, ptrdiff_t lda, const float *a_scale,     \
               ptrdiff_t lds, const int16_t *b, ptrdiff_t ldb, const float *b_scale, int m, int n, \
               int k, int acc)

/* dst[c][r] = src[r][c] for words of 32 bits, r < n_row, c < n_col; ldd, lds: words from row to
 * row. Floats or pairs of 16 bits: no bit changes. */
#define RKV_PROTO_transpose(name) \
    void(name)(void *dst, ptrdiff_t ldd, const void *src, ptrdiff_t lds, int n_row, int n_col)

/* s[i][t] = q[i] . k[t] for n_q queries [n_q][d_head] f32 and n_slot keys [n_slot][d_head] of the
 * KV type; lds: floats from row to row of s. d_head % block_len == 0, and <= 4096 in block formats;
 * any count may be 0. Sum tolerance. Let lds (and ldp below) be no multiple of 1024: the rows would
 * share the sets of the cache. */
#define RKV_PROTO_kv_score(name)                                                                   \
    void(name)(float *s, ptrdiff_t lds, const float *q, const void *k, int n_q, int n_slot,        \
               int d_head)

/* out[i] += sum_t p[i][t] v[t] for n_q rows of weights and n_slot values [n_slot][d_head] of the KV
 * type; out[n_q][d_head] f32; ldp: floats from row to row of p. Sum tolerance. */
#define RKV_PROTO_kv_mix(name)                                                                     \
    void(name)(float *out, const float *p, ptrdiff_t ldp, const void *v, int n_q, int n_slot,      \
               int d_head)

/* One step of an online softmax over a row of n scores (n >= 0; -inf masks a score; no NaN, no
 * +inf). With m' = max(*m, max s):
 *     s[i] = exp(s[i] - m');  *l = *l exp(*m - m') + sum_i s[i];  *m = m'.
 * Returns exp(*m - m') as it was before the step: what earlier sums must be multiplied by; 1 when
 * nothing has been seen yet and the whole row is masked (s becomes 0). Start: *m = -inf, *l = 0.
 * exp(s[i] - m') <= 2 ULP beyond the rounding of the difference, which adds |s[i] - m'| ULP.
 * Source: online softmax, Milakov & Gimelshein 2018, algorithm 3. */
#define RKV_PROTO_softmax_step(name) float(name)(float *s, int n, float *m, float *l)

/* out[i] = x[i] g[i] / sqrt(mean x^2 + eps); out may be x. n >= 1, eps >= 0, and the root's
 * argument within 2^-200 and 2^200. 4 ULP beyond the sum. Source: Zhang & Sennrich 2019. */
#define RKV_PROTO_rmsnorm(name) \
    void(name)(float *out, const float *x, const float *g, int n, float eps)

/* x[i] += y[i]. Exact up to the one rounding. */
#define RKV_PROTO_add(name) void(name)(float *x, const float *y, int n)

/* x[i] *= a. */
#define RKV_PROTO_scale(name) void(name)(float *x, float a, int n)

/* out[i] = silu(gate[i]) up[i], silu(z) = z / (1 + exp(-z)); out may be gate or up. 8 ULP, and
 * 2^-120 |up[i]| where exp(-z) overflows. */
#define RKV_PROTO_silu_mul(name) void(name)(float *out, const float *gate, const float *up, int n)

/* out[i] = gelu(gate[i]) up[i], the tanh form 0.5 z (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3))); out
 * may be gate or up. Absolute error <= 2^-22 max(|z|, 1) |up|. Source: Hendrycks & Gimpel 2016. */
#define RKV_PROTO_gelu_mul(name) void(name)(float *out, const float *gate, const float *up, int n)

/* Rotates pairs of one head in place by the angles whose cosines and sines are given:
 * (a, b) -> (a c - b s, a s + b c) for n_pair pairs; rope_norm pairs x[2i], x[2i+1]; rope_neox
 * pairs x[i], x[i + n_pair]. Elements after 2 n_pair stay. Source: Su et al. 2021, 3.4.2. */
#define RKV_PROTO_rope_norm(name) \
    void(name)(float *x, const float *cosine, const float *sine, int n_pair)
#define RKV_PROTO_rope_neox(name) \
    void(name)(float *x, const float *cosine, const float *sine, int n_pair)

/* out[i] = deviate first + i of the pinned generator's stream `key`, i < n: sqrt(-2 ln u_{2j})
 * cos(2 pi u_{2j+1}) with the uniforms of noise.h, within RKV_NOISE_TOL of the platform's log
 * and cos; n >= 0. All tiers agree to the bit. Source: METHOD section 7, row "generator". */
#define RKV_PROTO_normal(name) void(name)(double *out, uint64_t key, uint64_t first, int n)

/* Every op, once: its name is the member of struct rkv_ops and the first word in kernels.def. */
#define RKV_OPS \
    RKV_OP(unpack) \
    RKV_OP(pack) \
    RKV_OP(pack_pairs) \
    RKV_OP(pack_int16) \
    RKV_OP(matvec) \
    RKV_OP(gemm) \
    RKV_OP(gemm_pairs) \
    RKV_OP(gemm_int16) \
    RKV_OP(transpose) \
    RKV_OP(kv_score) \
    RKV_OP(kv_mix) \
    RKV_OP(softmax_step) \
    RKV_OP(rmsnorm) \
    RKV_OP(add) \
    RKV_OP(scale) \
    RKV_OP(silu_mul) \
    RKV_OP(gelu_mul) \
    RKV_OP(rope_norm) \
    RKV_OP(rope_neox) \
    RKV_OP(normal)

/* Ops on plain floats are registered under f32. An entry is NULL where the type has no such op. */
typedef struct rkv_ops {
#define RKV_OP(op) RKV_PROTO_##op(*op[RKV_DT_COUNT]);
    RKV_OPS
#undef RKV_OP
    int gemm_nr;                        /* columns of a gemm panel: 16 or 32 */
    uint32_t features;                  /* the mask the table was made for */
} rkv_ops;

/* Fills the table with the strongest kernels that the feature mask allows (see cpu.h). */
void rkv_ops_init(rkv_ops *ops, uint32_t features);

/* Declarations of all kernels, from their rows. */
#define RKV_KERNEL(op, dt, isa) RKV_PROTO_##op(rkv_##op##_##dt##_##isa);
#include "kernels.def"
#undef RKV_KERNEL

#endif
