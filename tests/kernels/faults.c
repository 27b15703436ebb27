/* The kernel test tested: kernels with one planted fault each, and what must be found in them.
 * Every driver is here at least once, and every way in which case.c can find a fault. */
#include "config.h"
#include "check.h"

#include <math.h>
#include <signal.h>
#include <string.h>

#include "noise.h"
#include "cpu.h"
#include "f16.h"
#include "kernels.h"
#include "normal.h"
#include "run.h"

#if defined __SSE__
#include <xmmintrin.h>
#endif

/* Shapes of known results are at most so long. They run on plain memory, so faults that a sanitizer
 * would die of begin beyond, and so do some that shall be found by another check. */
enum { KNOWN = 8 };

/* Reads the element at p, which is not the kernel's and need not be aligned; the value stays out of
 * the result. */
static void touch(const void *p)
{
    const volatile unsigned char *bytes = p;
    for (size_t i = 0; i < sizeof(float); i++)
        (void)bytes[i];
}

static int whole(int n) /* a loop over full vectors, its tail forgotten */
{
    return n / 8 * 8;
}

static RKV_PROTO_add(add_drops_tail)
{
    rkv_add_f32_ref(x, y, n > KNOWN ? whole(n) : n);
}

static RKV_PROTO_add(add_reads_on)
{
    rkv_add_f32_ref(x, y, n);
    if (n > KNOWN)
        touch(y + n);
}

static RKV_PROTO_add(add_reads_before)
{
    rkv_add_f32_ref(x, y, n);
    if (n > KNOWN)
        touch(y - 1);
}

static RKV_PROTO_add(add_writes_on)
{
    rkv_add_f32_ref(x, y, n);
    if (n > KNOWN) /* a full vector stored at the end */
        for (int i = n; i < whole(n) + 8; i++)
            x[i] = 0.0f;
}

static RKV_PROTO_add(add_changes_mode)
{
    rkv_add_f32_ref(x, y, n);
#if defined __SSE__
    _mm_setcsr(_mm_getcsr() | 0x8040); /* denormals are zero */
#endif
}

static RKV_PROTO_add(add_flushes_denormals)
{
    for (int i = 0; i < n; i++)
        x[i] = fabsf(x[i] + y[i]) < 0x1p-126f ? copysignf(0.0f, x[i] + y[i]) : x[i] + y[i];
}

static RKV_PROTO_scale(scale_of_another_tier)
{
    rkv_scale_f32_ref(x, a, n);
    if (n == 64)
        raise(SIGILL);
}

static RKV_PROTO_scale(scale_divides)
{
    rkv_scale_f32_ref(x, a, n);
    if (!n)
        raise(SIGFPE);
}

static RKV_PROTO_scale(scale_once_more)
{
    rkv_scale_f32_ref(x, a, n);
    for (int i = 8; i < n && i < 9; i++) /* an element in two vectors */
        x[i] *= a;
}

static RKV_PROTO_silu_mul(silu_spoils_input)
{
    for (int i = 0; i < n; i++)
        out[i] = 0.0f;
    rkv_silu_mul_f32_ref(out, gate, up, n);
}

static RKV_PROTO_silu_mul(silu_is_rough)
{
    rkv_silu_mul_f32_ref(out, gate, up, n);
    for (int i = KNOWN; i < n; i++)
        out[i] *= 1.0f + 0x1p-19f;
}

static RKV_PROTO_gelu_mul(gelu_is_rough)
{
    for (int i = 0; i < n; i++) { /* the sigmoid approximation, another function */
        const double z = (double)gate[i];
        out[i] = (float)(z / (1.0 + exp(-1.702 * z)) * (double)up[i]);
    }
}

static RKV_PROTO_rmsnorm(rmsnorm_by_alignment)
{
    float ss = 0.0f; /* sums the aligned part first */
    const int head = (int)((64 - (uintptr_t)x % 64) % 64 / sizeof *x);
    for (int i = head; i < n; i++)
        ss += x[i] * x[i];
    for (int i = 0; i < head && i < n; i++)
        ss += x[i] * x[i];
    const float scale = 1.0f / sqrtf(ss / (float)n + eps);
    for (int i = 0; i < n; i++)
        out[i] = x[i] * scale * g[i];
}

static RKV_PROTO_rmsnorm(rmsnorm_without_eps)
{
    (void)eps;
    rkv_rmsnorm_f32_ref(out, x, g, n, 0.0f);
}

static RKV_PROTO_rmsnorm(rmsnorm_skips_lane)
{
    double ss = 0.0;
    for (int i = 0; i < n; i++)
        ss += i % 8 == 7 ? 0.0 : (double)x[i] * (double)x[i];
    for (int i = 0; i < n; i++)
        out[i] = (float)((double)x[i] / sqrt(ss / n + (double)eps) * (double)g[i]);
}

/* The factor from the difference alone: NaN while everything is masked. */
static RKV_PROTO_softmax_step(softmax_gives_nan)
{
    const float old = *m;
    (void)rkv_softmax_step_f32_ref(s, n, m, l);
    return expf(old - *m);
}

static RKV_PROTO_softmax_step(softmax_forgets)
{
    *l = 0.0f;
    return rkv_softmax_step_f32_ref(s, n, m, l);
}

static RKV_PROTO_softmax_step(softmax_drops_tail)
{
    return rkv_softmax_step_f32_ref(s, whole(n), m, l);
}

static RKV_PROTO_rope_norm(rope_norm_turns_back)
{
    for (int i = 0; i < n_pair; i++) {
        const float a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = a * cosine[i] + b * sine[i];
        x[2 * i + 1] = b * cosine[i] - a * sine[i];
    }
}

static RKV_PROTO_rope_neox(rope_neox_turns_rest)
{
    rkv_rope_neox_f32_ref(x, cosine, sine, n_pair);
    x[2 * n_pair] += 1.0f;
}

#include "faults_gemm.h"

static RKV_PROTO_transpose(transpose_quiets)
{
    rkv_transpose_f32_ref(dst, ldd, src, lds, n_row, n_col);
    uint32_t *to = dst;
    for (int c = 0; c < n_col; c++)
        for (int r = 0; r < n_row; r++)
            to[c * ldd + r] |= (to[c * ldd + r] & 0x7fffffff) > 0x7f800000 ? 0x400000 : 0;
}

static RKV_PROTO_transpose(transpose_drops_tail)
{
    rkv_transpose_f32_ref(dst, ldd, src, lds, n_row, n_col > KNOWN ? whole(n_col) : n_col);
}

static RKV_PROTO_kv_score(score_skips_lane)
{
    for (int i = 0; i < n_q; i++)
        for (int t = 0; t < n_slot; t++) {
            double sum = 0.0;
            for (int e = 0; e < d_head; e++)
                sum += e % 16 == 15
                           ? 0.0
                           : (double)q[i * d_head + e] * (double)((const float *)k)[t * d_head + e];
            s[i * lds + t] = (float)sum;
        }
}

static RKV_PROTO_kv_score(score_reads_next_key)
{
    rkv_kv_score_f16_ref(s, lds, q, k, n_q, n_slot, d_head);
    const volatile uint16_t *key = k;
    if (n_q && n_slot > KNOWN)
        (void)key[n_slot * d_head];
}

static RKV_PROTO_kv_mix(mix_changes_weights)
{
    rkv_kv_mix_f16_ref(out, p, ldp, v, n_q, n_slot, d_head);
    for (int i = 0; i < n_q && n_slot > KNOWN; i++)
        ((float *)(uintptr_t)p)[i * ldp] = 0.0f;
}

/* A query's sum depends on how many there are: by pairs of slots for pairs of queries. */
static RKV_PROTO_kv_mix(mix_by_neighbours)
{
    for (int i = 0; i < n_q; i++)
        for (int e = 0; e < d_head; e++) {
            float sum[2] = {out[i * d_head + e], 0.0f};
            for (int t = 0; t < n_slot; t++)
                sum[t % 2 && n_q > 1] += p[i * ldp + t] * ((const float *)v)[t * d_head + e];
            out[i * d_head + e] = sum[0] + sum[1];
        }
}

static RKV_PROTO_matvec(matvec_skips_block)
{
    rkv_matvec_q4_k_ref(y, ldy, w, w_stride, x, ldx, n_x, n_out, n_in > 256 ? n_in - 256 : n_in);
}

static RKV_PROTO_matvec(matvec_ignores_stride)
{
    (void)w_stride;
    rkv_matvec_q8_0_ref(y, ldy, w, n_in / 32 * 34, x, ldx, n_x, n_out, n_in);
}

static RKV_PROTO_matvec(matvec_reads_next_block)
{
    rkv_matvec_q6_k_ref(y, ldy, w, w_stride, x, ldx, n_x, n_out, n_in);
    if (n_out && n_in)
        touch((const float *)w + (w_stride * (n_out - 1) + n_in / 256 * 210) / 4);
}

static RKV_PROTO_matvec(matvec_packs_inputs)
{
    (void)ldx;
    rkv_matvec_q5_0_ref(y, ldy, w, w_stride, x, n_in, n_x, n_out, n_in);
}

static RKV_PROTO_matvec(matvec_reads_next_input)
{
    rkv_matvec_f32_ref(y, ldy, w, w_stride, x, ldx, n_x, n_out, n_in);
    if (n_x && n_out && n_in > KNOWN)
        touch(x + ldx * (n_x - 1) + n_in);
}

/* The sum of a row in one order, or in another. */
static void matvec_in_order(float *y, ptrdiff_t ldy, const float *w, ptrdiff_t w_stride,
                            const float *x, ptrdiff_t ldx, int n_x, int n_out, int n_in, int other)
{
    for (int j = 0; j < n_x; j++)
        for (int r = 0; r < n_out; r++) {
            float sum[2] = {0.0f, 0.0f};
            for (int i = 0; i < n_in; i++)
                sum[i % 2 && other] += w[r * w_stride / 4 + i] * x[j * ldx + i];
            y[j * ldy + r] = sum[0] + sum[1];
        }
}

/* Pairs of rows are summed in another order than a single one. */
static RKV_PROTO_matvec(matvec_by_neighbours)
{
    matvec_in_order(y, ldy, w, w_stride, x, ldx, n_x, n_out, n_in, n_out > 1);
}

/* So are pairs of inputs. */
static RKV_PROTO_matvec(matvec_by_inputs)
{
    matvec_in_order(y, ldy, w, w_stride, x, ldx, n_x, n_out, n_in, n_x > 1);
}

static RKV_PROTO_unpack(unpack_swaps_nibbles)
{
    rkv_unpack_q5_k_ref(out, src, n);
    for (int64_t i = 0; i < n; i += 64) {
        const float t = out[i + 31];
        out[i + 31] = out[i + 63];
        out[i + 63] = t;
    }
}

static RKV_PROTO_unpack(unpack_flushes_halfs)
{
    const uint16_t *h = src;
    for (int64_t i = 0; i < n; i++)
        out[i] = h[i] & 0x7c00 ? rkv_f16_to_f32(h[i]) : 0.0f;
}

static RKV_PROTO_pack(pack_truncates)
{
    uint16_t *h = dst;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t u = rkv_f32_to_bits(in[i]);
        h[i] = rkv_f32_to_f16(rkv_f32_from_bits((u & 0x7fffffff) < 0x7f800000 ? u & ~0x1fffu : u));
    }
}

/* Right everywhere but where a tie goes up instead of to even. */
static RKV_PROTO_pack(pack_ties_up)
{
    rkv_pack_f16_ref(dst, in, n);
    for (int64_t i = 0; i < n; i++) {
        const uint32_t u = rkv_f32_to_bits(in[i]), mag = u & 0x7fffffff;
        if (mag >= 0x38800000 && mag < 0x47000000 && (u & 0x1fff) == 0x1000)
            ((uint16_t *)dst)[i] = rkv_f32_to_f16(rkv_f32_from_bits(u + 1));
    }
}

static RKV_PROTO_pack(pack_bf16_ties_up)
{
    for (int64_t i = 0; i < n; i++)
        ((uint16_t *)dst)[i] = (uint16_t)((rkv_f32_to_bits(in[i]) + 0x8000) >> 16);
}

/* The usual rounding, which turns a NaN whose mantissa is full into a number. */
static RKV_PROTO_pack(pack_bf16_loses_nan)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t u = rkv_f32_to_bits(in[i]);
        ((uint16_t *)dst)[i] = (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
    }
}

static RKV_PROTO_pack_pairs(pack_pairs_swaps)
{
    rkv_pack_pairs_bf16_ref(hi, lo, b, a, n);
}

static RKV_PROTO_pack_pairs(pack_pairs_drops_tail)
{
    rkv_pack_pairs_bf16_ref(hi, lo, a, b, n > KNOWN ? whole(n) : n);
}

/* Another rounding of what is left. */
static RKV_PROTO_pack_pairs(pack_pairs_truncates_rest)
{
    uint16_t *h = hi, *l = lo;
    rkv_pack_pairs_bf16_ref(hi, lo, a, b, n);
    for (int i = 0; l && i < n; i++) {
        const uint32_t rest = rkv_f32_to_bits(a[i] - rkv_bf16_to_f32(h[2 * i]));
        l[2 * i] = (uint16_t)(rest >> 16 | ((rest & 0x7fffffff) > 0x7f800000 ? 0x40 : 0));
    }
}

static RKV_PROTO_pack_pairs(pack_pairs_reads_before)
{
    rkv_pack_pairs_bf16_ref(hi, lo, a, b, n);
    if (n > KNOWN)
        touch(b - 1);
}

/* The platform's logarithm and cosine: right, but not on every platform to the same bit. */
static RKV_PROTO_normal(normal_by_platform)
{
    for (int i = 0; i < n; i++)
        out[i] = rkv_noise_deviate(key, first + (uint64_t)i);
}

static RKV_PROTO_normal(normal_from_start)
{
    (void)first;
    rkv_normal_f32_ref(out, key, 0, n);
}

static RKV_PROTO_normal(normal_by_sine)
{
    for (int i = 0; i < n; i++)
        out[i] = sqrt(-2.0 * log(rkv_noise_uniform(key, 2 * (first + (uint64_t)i)))) *
                 sin(RKV_TWO_PI * rkv_noise_uniform(key, 2 * (first + (uint64_t)i) + 1));
}

/* A right kernel that is no reference: it must pass, or the test finds what is not there. */
static RKV_PROTO_gemm(gemm_one_chain)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float sum = acc ? c[i * ldc + j] : 0.0f;
            for (int p = 0; p < k; p++)
                sum = fmaf(a[i * lda + p], b[p * ldb + j], sum);
            c[i * ldc + j] = sum;
        }
}

/* isa: ref for the reference with a fault, whose sums may depend on how gemm is called. */
#define ROW(op, dt, isa, fn, found)                                                                \
    {                                                                                              \
        {#fn, #op, #isa, RKV_DT_##dt, RKV_ISA_##isa, (kernel_fn)fn},                               \
            (kernel_fn)rkv_##op##_##dt##_ref, found                                                \
    }
static const struct {
    kernel_row kernel;
    kernel_fn ref;
    const char *found; /* part of the message; NULL: nothing is wrong */
} planted[] = {
    ROW(gemm, f32, avx2, gemm_one_chain, NULL),
    ROW(add, f32, ref, add_drops_tail, "reference"),
    ROW(add, f32, ref, add_reads_on, "SIGSEGV"),
    ROW(add, f32, ref, add_reads_before, "SIGSEGV"),
    ROW(add, f32, ref, add_writes_on, "SIGSEGV"),
#if defined __SSE__
    ROW(add, f32, ref, add_changes_mode, "floating-point mode"),
#endif
    ROW(add, f32, ref, add_flushes_denormals, "denormal"),
    ROW(scale, f32, ref, scale_of_another_tier, "SIGILL"),
    ROW(scale, f32, ref, scale_divides, "SIGFPE"),
    ROW(scale, f32, ref, scale_once_more, "reference"),
    ROW(silu_mul, f32, ref, silu_spoils_input, "output over input"),
    ROW(silu_mul, f32, ref, silu_is_rough, "bound"),
    ROW(gelu_mul, f32, ref, gelu_is_rough, "known results"),
    ROW(rmsnorm, f32, ref, rmsnorm_by_alignment, "other bits"),
    ROW(rmsnorm, f32, ref, rmsnorm_without_eps, "bound"),
    ROW(rmsnorm, f32, ref, rmsnorm_skips_lane, "bound"),
    ROW(softmax_step, f32, ref, softmax_gives_nan, "known results"),
    ROW(softmax_step, f32, ref, softmax_forgets, "known results"),
    ROW(softmax_step, f32, ref, softmax_drops_tail, "known results"),
    ROW(rope_norm, f32, ref, rope_norm_turns_back, "known results"),
    ROW(rope_neox, f32, ref, rope_neox_turns_rest, "known results"),
    ROW(normal, f32, ref, normal_by_platform, "other bits"),
    ROW(normal, f32, ref, normal_from_start, "other bits"),
    ROW(normal, f32, ref, normal_by_sine, "known results"),
    ROW(gemm, f32, ref, gemm_drops_rows, "reference"),
    ROW(gemm, f32, ref, gemm_skips_term, "reference"),
    ROW(gemm, f32, ref, gemm_reads_gap, "SIGSEGV"),
    ROW(gemm, f32, ref, gemm_writes_gap, "outside was changed"),
    ROW(gemm, f32, ref, gemm_uses_garbage, "known results"),
    ROW(gemm, f32, avx2, gemm_two_chains, "divided into two calls"),
    ROW(gemm_pairs, bf16, ref, pairs_swaps, "known results"),
    ROW(gemm_pairs, bf16, ref, pairs_keeps_denormals, "known results"),
    ROW(gemm_pairs, bf16, ref, pairs_skips_rest, "exact"),
    ROW(gemm_pairs, bf16, ref, pairs_reads_whole_tile, "SIGSEGV"),
    ROW(gemm_pairs, bf16, ref, pairs_writes_whole_tile, "outside was changed"),
    ROW(gemm_pairs, bf16, ref, pairs_by_neighbours, "divided into two calls"),
    ROW(gemm_int16, f32, ref, int16_swaps, "known results"),
    ROW(gemm_int16, f32, ref, int16_scales_at_once, "other bits"),
    ROW(gemm_int16, f32, ref, int16_reads_whole_vector, "SIGSEGV"),
    ROW(pack_int16, f32, ref, pack_int16_by_value, "known results"),
    ROW(transpose, f32, ref, transpose_drops_tail, "other bits"),
    ROW(transpose, f32, ref, transpose_quiets, "other bits"),
    ROW(kv_score, f32, ref, score_skips_lane, "reference"),
    ROW(kv_score, f16, ref, score_reads_next_key, "SIGSEGV"),
    ROW(kv_mix, f16, ref, mix_changes_weights, "input operand 1"),
    ROW(kv_mix, f32, ref, mix_by_neighbours, "divided into two calls"),
    ROW(matvec, q4_k, ref, matvec_skips_block, "reference"),
    ROW(matvec, q8_0, ref, matvec_ignores_stride, "reference"),
    ROW(matvec, q6_k, ref, matvec_reads_next_block, "SIGSEGV"),
    ROW(matvec, q5_0, ref, matvec_packs_inputs, "reference"),
    ROW(matvec, f32, ref, matvec_reads_next_input, "SIGSEGV"),
    ROW(matvec, f32, ref, matvec_by_neighbours, "divided into two calls"),
    ROW(matvec, f32, ref, matvec_by_inputs, "divided into two calls"),
    ROW(unpack, q5_k, ref, unpack_swaps_nibbles, "other bits"),
    ROW(unpack, f16, ref, unpack_flushes_halfs, "other bits"),
    ROW(pack, f16, ref, pack_truncates, "known results"),
    ROW(pack, f16, ref, pack_ties_up, "known results"),
    ROW(pack, bf16, ref, pack_bf16_ties_up, "known results"),
    ROW(pack, bf16, ref, pack_bf16_loses_nan, "other bits"),
    ROW(pack_pairs, bf16, ref, pack_pairs_swaps, "known results"),
    ROW(pack_pairs, bf16, ref, pack_pairs_drops_tail, "other bits"),
    ROW(pack_pairs, bf16, ref, pack_pairs_truncates_rest, "other bits"),
    ROW(pack_pairs, bf16, ref, pack_pairs_reads_before, "SIGSEGV"),
};
#undef ROW

int main(void)
{
    if (!run_open(0)) {
        fputs("check_kernel_faults: out of memory\n", stderr);
        return 1;
    }
    const run_options o = {.seed = 1, .only_case = -1};
    for (size_t i = 0; i < sizeof planted / sizeof *planted; i++) {
        const kernel_row *k = &planted[i].kernel;
        const run_result r = run_kernel(k, planted[i].ref, run_driver(k->op), &o);
        if (planted[i].found)
            CHECK(r.failed && strstr(r.text, planted[i].found), "%s: '%s', expected '%s'", k->name,
                  r.text, planted[i].found);
        else
            CHECK(!r.failed, "%s: %s", k->name, r.text);
    }
    CHECK(!run_driver("no_such_op"), "an op without a driver");
    return check_end("kernel faults");
}
