/* The vector vocabulary on AVX-512 F, BW, DQ, VL: 16 floats. The words and their rules: vec_avx2.h.
 * v_sum8 adds in the same order as there, so that scores have the same bits. */
#ifndef RKV_VEC_AVX512_H
#define RKV_VEC_AVX512_H

#if !defined RKV_EMULATE_AVX512 && (!defined __AVX512F__ || !defined __AVX512BW__ ||               \
                                    !defined __AVX512DQ__ || !defined __AVX512VL__)
#error "this file needs the flags of the avx512 tier"
#endif

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "attr.h"

enum { V_LEN = 16 };

typedef __m512 vf;

static inline vf v_zero(void)
{
    return _mm512_setzero_ps();
}

static inline vf v_set(float a)
{
    return _mm512_set1_ps(a);
}

static inline __mmask16 v_mask(int n)
{
    const __m512i index = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_cmpgt_epi32_mask(_mm512_set1_epi32(n), index);
}

static inline vf v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

static inline vf v_load_n(const float *p, int n)
{
    return _mm512_maskz_loadu_ps(v_mask(n), p);
}

static inline void v_store(float *p, vf a)
{
    _mm512_storeu_ps(p, a);
}

static inline void v_store_n(float *p, vf a, int n)
{
    _mm512_mask_storeu_ps(p, v_mask(n), a);
}

static inline void v_fetch(const void *p)
{
    _mm_prefetch((const char *)p, _MM_HINT_T0);
}

typedef __m512i vi;

static inline vi vi_zero(void)
{
    return _mm512_setzero_si512();
}

static inline vi vi_set(int32_t a)
{
    return _mm512_set1_epi32(a);
}

static inline vi vi_load(const void *p)
{
    return _mm512_loadu_si512(p);
}

static inline vi vi_load_n(const void *p, int n)
{
    return _mm512_castps_si512(v_load_n(p, n)); /* a load changes no bit */
}

static inline vf v_from_int(vi a)
{
    return _mm512_cvtepi32_ps(a);
}

static inline void v_store_int16(int16_t *p, vf a)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(a)));
}

static inline void v_store_int16_n(int16_t *p, vf a, int n)
{
    _mm256_mask_storeu_epi16(p, v_mask(n), _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(a)));
}

static inline vf v_load_f32(const float *p)
{
    return v_load(p);
}

static inline vf v_load_f32_n(const float *p, int n)
{
    return v_load_n(p, n);
}

static inline __m256i v_halfs(const uint16_t *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

static inline __m256i v_halfs_n(const uint16_t *p, int n)
{
    return _mm256_maskz_loadu_epi16(v_mask(n), p);
}

static inline vf v_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(v_halfs(p));
}

static inline vf v_load_f16_n(const uint16_t *p, int n)
{
    return _mm512_cvtph_ps(v_halfs_n(p, n));
}

static inline void v_store_f16(uint16_t *p, vf a)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

static inline void v_store_f16_n(uint16_t *p, vf a, int n)
{
    _mm256_mask_storeu_epi16(p, v_mask(n), _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

static inline vf v_from_bf16(__m256i h)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

static inline vf v_load_bf16(const uint16_t *p)
{
    return v_from_bf16(v_halfs(p));
}

static inline vf v_load_bf16_n(const uint16_t *p, int n)
{
    return v_from_bf16(v_halfs_n(p, n));
}

static inline __m512i v_words_bf16(vf a)
{
    const __m512i u = _mm512_castps_si512(a), top = _mm512_srli_epi32(u, 16);
    const __m512i odd = _mm512_and_si512(top, _mm512_set1_epi32(1));
    const __m512i half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    const __m512i near = _mm512_srli_epi32(_mm512_add_epi32(u, half), 16);
    const __m512i mag = _mm512_and_si512(u, _mm512_set1_epi32(0x7fffffff));
    const __mmask16 nan = _mm512_cmpgt_epi32_mask(mag, _mm512_set1_epi32(0x7f800000));
    const __m512i quiet = _mm512_or_si512(top, _mm512_set1_epi32(0x40));
    return _mm512_mask_mov_epi32(near, nan, quiet);
}

static inline __m256i v_to_bf16(vf a)
{
    return _mm512_cvtepi32_epi16(v_words_bf16(a));
}

static inline vf v_near_bf16(vf a)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(v_words_bf16(a), 16));
}

static inline vf v_bf16_pairs(vf a, vf b)
{
    const __m512i high = _mm512_slli_epi32(v_words_bf16(b), 16);
    return _mm512_castsi512_ps(_mm512_or_si512(v_words_bf16(a), high));
}

static inline void v_store_bf16(uint16_t *p, vf a)
{
    _mm256_storeu_si256((__m256i *)p, v_to_bf16(a));
}

static inline void v_store_bf16_n(uint16_t *p, vf a, int n)
{
    _mm256_mask_storeu_epi16(p, v_mask(n), v_to_bf16(a));
}

static inline vf v_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}

static inline vf v_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}

static inline vf v_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}

static inline vf v_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}

static inline vf v_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}

static inline vf v_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}

static inline vf v_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static inline vf v_fnma(vf a, vf b, vf c)
{
    return _mm512_fnmadd_ps(a, b, c);
}

static inline vf v_fms(vf a, vf b, vf c)
{
    return _mm512_fmsub_ps(a, b, c);
}

static inline vf v_round(vf a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline vf v_ldexp(vf a, vf n)
{
    return _mm512_scalef_ps(a, n);
}

static inline float v_sum(vf a)
{
    const __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}

static inline float v_top(vf a)
{
    const __m256 b = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
}

typedef struct vd {
    __m512d lo, hi;
} vd;

static inline vd vd_zero(void)
{
    return (vd){_mm512_setzero_pd(), _mm512_setzero_pd()};
}

static inline vd vd_add_square(vd s, vf a)
{
    const __m512d lo = _mm512_cvtps_pd(_mm512_castps512_ps256(a));
    const __m512d hi = _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1));
    return (vd){_mm512_fmadd_pd(lo, lo, s.lo), _mm512_fmadd_pd(hi, hi, s.hi)};
}

static inline vd vd_add(vd a, vd b)
{
    return (vd){_mm512_add_pd(a.lo, b.lo), _mm512_add_pd(a.hi, b.hi)};
}

static inline double vd_sum(vd s)
{
    const __m512d a = _mm512_add_pd(s.lo, s.hi);
    const __m256d b = _mm256_add_pd(_mm512_castpd512_pd256(a), _mm512_extractf64x4_pd(a, 1));
    const __m128d c = _mm_add_pd(_mm256_castpd256_pd128(b), _mm256_extractf128_pd(b, 1));
    return _mm_cvtsd_f64(_mm_add_sd(c, _mm_unpackhi_pd(c, c)));
}

static inline vf v_twice(__m256 a)
{
    const __m512i index = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return _mm512_permutexvar_ps(index, _mm512_castps256_ps512(a));
}

static inline __m256 v_load_half_n(const float *p, int n)
{
    return _mm256_maskz_loadu_ps((__mmask8)v_mask(n), p);
}

static inline vf v_load_twice(const float *p)
{
    return v_twice(_mm256_loadu_ps(p));
}

static inline vf v_load_twice_n(const float *p, int n)
{
    return v_twice(v_load_half_n(p, n));
}

static inline vf v_turn(vf x, vf c, vf s)
{
    return _mm512_fmaddsub_ps(x, c, v_mul(_mm512_shuffle_ps(x, x, 0xb1), s));
}

/* Squares of 4 x 4 in the 128-bit lanes, then of lanes. */
static RKV_ALWAYS_INLINE void v_transpose(vf *x)
{
    vf y[16];
    RKV_UNROLL(4)
    for (int i = 0; i < 16; i += 4) {
        const vf a = _mm512_unpacklo_ps(x[i], x[i + 1]), b = _mm512_unpackhi_ps(x[i], x[i + 1]);
        const vf c = _mm512_unpacklo_ps(x[i + 2], x[i + 3]),
                 d = _mm512_unpackhi_ps(x[i + 2], x[i + 3]);
        y[i] = _mm512_shuffle_ps(a, c, 0x44);
        y[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
        y[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
        y[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
    }
    RKV_UNROLL(4)
    for (int i = 0; i < 4; i++) {
        const vf a = _mm512_shuffle_f32x4(y[i], y[i + 4], 0x44),
                 b = _mm512_shuffle_f32x4(y[i], y[i + 4], 0xee);
        const vf c = _mm512_shuffle_f32x4(y[i + 8], y[i + 12], 0x44);
        const vf d = _mm512_shuffle_f32x4(y[i + 8], y[i + 12], 0xee);
        x[i] = _mm512_shuffle_f32x4(a, c, 0x88);
        x[i + 4] = _mm512_shuffle_f32x4(a, c, 0xdd);
        x[i + 8] = _mm512_shuffle_f32x4(b, d, 0x88);
        x[i + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
}

/* Two rows to a vector, so that a sum of 8 elements needs no more steps than in AVX2. */
enum { V_ROWS = 8 };

static inline int v_row(int j, int half)
{
    return j / 4 * 8 + half * 4 + j % 4;
}

static inline vf v_pair(__m256 a, __m256 b)
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(a), b, 1);
}

static inline vf v_pair_f32(const float *p, const float *second)
{
    return v_pair(_mm256_loadu_ps(p), _mm256_loadu_ps(second));
}

static inline vf v_pair_f32_n(const float *p, const float *second, int n)
{
    return v_pair(v_load_half_n(p, n), v_load_half_n(second, n));
}

static inline __m256i v_pair_words(__m128i a, __m128i b)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
}

static inline vf v_pair_f16(const uint16_t *p, const uint16_t *second)
{
    return _mm512_cvtph_ps(v_pair_words(_mm_loadu_si128((const __m128i *)p),
                                        _mm_loadu_si128((const __m128i *)second)));
}

static inline vf v_pair_f16_n(const uint16_t *p, const uint16_t *second, int n)
{
    return _mm512_cvtph_ps(v_pair_words(_mm256_castsi256_si128(v_halfs_n(p, n)),
                                        _mm256_castsi256_si128(v_halfs_n(second, n))));
}

static inline vf v_pair_bf16(const uint16_t *p, const uint16_t *second)
{
    return v_from_bf16(v_pair_words(_mm_loadu_si128((const __m128i *)p),
                                        _mm_loadu_si128((const __m128i *)second)));
}

static inline vf v_pair_bf16_n(const uint16_t *p, const uint16_t *second, int n)
{
    return v_from_bf16(v_pair_words(_mm256_castsi256_si128(v_halfs_n(p, n)),
                                        _mm256_castsi256_si128(v_halfs_n(second, n))));
}

static inline vf v_load8(const float *p)
{
    return _mm512_broadcast_f32x8(_mm256_loadu_ps(p));
}

static inline vf v_load8_n(const float *p, int n)
{
    return _mm512_broadcast_f32x8(v_load_half_n(p, n));
}

static inline vf v_sum8(vf a, vf b, vf c, vf d, vf e, vf f, vf g, vf h)
{
#define RKV_FOLD(x, y) v_add(_mm512_mask_blend_ps(0xcccc, x, y), _mm512_shuffle_ps(x, y, 0x4e))
#define RKV_JOIN(x, y) v_add(_mm512_shuffle_ps(x, y, 0x88), _mm512_shuffle_ps(x, y, 0xdd))
    const vf abcd = RKV_JOIN(RKV_FOLD(a, b), RKV_FOLD(c, d));
    const vf efgh = RKV_JOIN(RKV_FOLD(e, f), RKV_FOLD(g, h));
    return v_add(_mm512_shuffle_f32x4(abcd, efgh, 0x88), _mm512_shuffle_f32x4(abcd, efgh, 0xdd));
#undef RKV_FOLD
#undef RKV_JOIN
}

static inline vf v_firsts(vf low_rows, vf high_rows)
{
    return _mm512_shuffle_f32x4(low_rows, high_rows, 0x44);
}

static inline vf v_seconds(vf low_rows, vf high_rows)
{
    return _mm512_shuffle_f32x4(low_rows, high_rows, 0xee);
}

#endif
