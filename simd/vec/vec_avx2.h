/* The vector vocabulary on AVX2, FMA and F16C: 8 floats. Same words as vec_avx512.h; the templates
 * in tmpl/ are written in them. *_n versions touch the first n elements only, and
 * load 0 beyond; an n below 0 counts as 0, above V_LEN as V_LEN. Nothing needs alignment. */
#ifndef RKV_VEC_AVX2_H
#define RKV_VEC_AVX2_H

#if !defined __AVX2__ || !defined __FMA__ || !defined __F16C__
#error "this file needs the flags of the avx2 tier"
#endif

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "attr.h"

enum { V_LEN = 8 };

typedef __m256 vf;

static inline vf v_zero(void)
{
    return _mm256_setzero_ps();
}

static inline vf v_set(float a)
{
    return _mm256_set1_ps(a);
}

static inline __m256i v_mask(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline vf v_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

static inline vf v_load_n(const float *p, int n)
{
    return _mm256_maskload_ps(p, v_mask(n));
}

static inline void v_store(float *p, vf a)
{
    _mm256_storeu_ps(p, a);
}

static inline void v_store_n(float *p, vf a, int n)
{
    _mm256_maskstore_ps(p, v_mask(n), a);
}

/* Asks for the cache line of p, which need not be readable. */
static inline void v_fetch(const void *p)
{
    _mm_prefetch((const char *)p, _MM_HINT_T0);
}

/* V_LEN integers of 32 bits, or pairs of 16. */
typedef __m256i vi;

static inline vi vi_zero(void)
{
    return _mm256_setzero_si256();
}

static inline vi vi_set(int32_t a)
{
    return _mm256_set1_epi32(a);
}

static inline vi vi_load(const void *p)
{
    return _mm256_loadu_si256(p);
}

static inline vi vi_load_n(const void *p, int n)
{
    return _mm256_maskload_epi32(p, v_mask(n));
}

static inline vf v_from_int(vi a)
{
    return _mm256_cvtepi32_ps(a);
}

/* Rounded to nearest even as integers of 16 bits, where they fit. */
static inline void v_store_int16(int16_t *p, vf a)
{
    const __m256i u = _mm256_cvtps_epi32(a);
    _mm_storeu_si128((__m128i *)p,
                     _mm_packs_epi32(_mm256_castsi256_si128(u), _mm256_extracti128_si256(u, 1)));
}

static inline void v_store_int16_n(int16_t *p, vf a, int n)
{
    int16_t some[8];
    v_store_int16(some, a);
    for (int i = 0; i < n; i++)
        p[i] = some[i];
}

static inline vf v_load_f32(const float *p)
{
    return v_load(p);
}

static inline vf v_load_f32_n(const float *p, int n)
{
    return v_load_n(p, n);
}

/* Half precision; there is no masked load of 16-bit elements, so tails go through memory. */
static inline vf v_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

static inline __m128i v_halfs_n(const uint16_t *p, int n)
{
    uint16_t some[8] = {0};
    for (int i = 0; i < n; i++)
        some[i] = p[i];
    return _mm_loadu_si128((const __m128i *)some);
}

static inline vf v_load_f16_n(const uint16_t *p, int n)
{
    return _mm256_cvtph_ps(v_halfs_n(p, n));
}

static inline void v_store_f16(uint16_t *p, vf a)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

static inline void v_store_f16_n(uint16_t *p, vf a, int n)
{
    uint16_t some[8];
    v_store_f16(some, a);
    for (int i = 0; i < n; i++)
        p[i] = some[i];
}

static inline vf v_from_bf16(__m128i h)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

static inline vf v_load_bf16(const uint16_t *p)
{
    return v_from_bf16(_mm_loadu_si128((const __m128i *)p));
}

static inline vf v_load_bf16_n(const uint16_t *p, int n)
{
    return v_from_bf16(v_halfs_n(p, n));
}

/* Rounded to nearest even as integers of 32 bits; a NaN becomes quiet. */
static inline __m256i v_words_bf16(vf a)
{
    const __m256i u = _mm256_castps_si256(a), top = _mm256_srli_epi32(u, 16);
    const __m256i odd = _mm256_and_si256(top, _mm256_set1_epi32(1));
    const __m256i half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    const __m256i near = _mm256_srli_epi32(_mm256_add_epi32(u, half), 16);
    const __m256i mag = _mm256_and_si256(u, _mm256_set1_epi32(0x7fffffff));
    const __m256i nan = _mm256_cmpgt_epi32(mag, _mm256_set1_epi32(0x7f800000));
    const __m256i quiet = _mm256_or_si256(top, _mm256_set1_epi32(0x40));
    return _mm256_blendv_epi8(near, quiet, nan);
}

static inline __m128i v_to_bf16(vf a)
{
    const __m256i h = v_words_bf16(a);
    return _mm_packus_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
}

/* a rounded to bf16, as floats. */
static inline vf v_near_bf16(vf a)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(v_words_bf16(a), 16));
}

/* Pairs (a[i], b[i]) of 16 bits: a[i] in the low half of word i. */
static inline vf v_bf16_pairs(vf a, vf b)
{
    const __m256i high = _mm256_slli_epi32(v_words_bf16(b), 16);
    return _mm256_castsi256_ps(_mm256_or_si256(v_words_bf16(a), high));
}

static inline void v_store_bf16(uint16_t *p, vf a)
{
    _mm_storeu_si128((__m128i *)p, v_to_bf16(a));
}

static inline void v_store_bf16_n(uint16_t *p, vf a, int n)
{
    uint16_t some[8];
    v_store_bf16(some, a);
    for (int i = 0; i < n; i++)
        p[i] = some[i];
}

static inline vf v_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}

static inline vf v_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}

static inline vf v_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}

static inline vf v_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}

static inline vf v_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}

static inline vf v_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}

/* a b + c, c - a b and a b - c with one rounding. */
static inline vf v_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static inline vf v_fnma(vf a, vf b, vf c)
{
    return _mm256_fnmadd_ps(a, b, c);
}

static inline vf v_fms(vf a, vf b, vf c)
{
    return _mm256_fmsub_ps(a, b, c);
}

/* Nearest integer, ties to even. */
static inline vf v_round(vf a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* a 2^n for integers n in [-152, 130], rounded once; 2^n alone may be no float, its halves are. */
static inline vf v_ldexp(vf a, vf n)
{
    const __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
    const __m256i rest = _mm256_sub_epi32(whole, half), bias = _mm256_set1_epi32(127);
    const vf f = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    const vf g = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
    return v_mul(v_mul(a, f), g);
}

/* Sum and maximum of the elements, always in this order. */
static inline float v_sum(vf a)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}

static inline float v_top(vf a)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
}

/* Sums in double: V_LEN of them. */
typedef struct vd {
    __m256d lo, hi;
} vd;

static inline vd vd_zero(void)
{
    return (vd){_mm256_setzero_pd(), _mm256_setzero_pd()};
}

/* s + a^2, exact but for the sum. */
static inline vd vd_add_square(vd s, vf a)
{
    const __m256d lo = _mm256_cvtps_pd(_mm256_castps256_ps128(a));
    const __m256d hi = _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1));
    return (vd){_mm256_fmadd_pd(lo, lo, s.lo), _mm256_fmadd_pd(hi, hi, s.hi)};
}

static inline vd vd_add(vd a, vd b)
{
    return (vd){_mm256_add_pd(a.lo, b.lo), _mm256_add_pd(a.hi, b.hi)};
}

/* The upper half of the sums goes to the lower one, again and again. */
static inline double vd_sum(vd s)
{
    const __m256d a = _mm256_add_pd(s.lo, s.hi);
    const __m128d b = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
    return _mm_cvtsd_f64(_mm_add_sd(b, _mm_unpackhi_pd(b, b)));
}

/* Each of V_LEN / 2 floats twice; the n version touches the first n of them. */
static inline vf v_twice(__m128 a)
{
    return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(a),
                                    _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
}

static inline vf v_load_twice(const float *p)
{
    return v_twice(_mm_loadu_ps(p));
}

static inline vf v_load_twice_n(const float *p, int n)
{
    return v_twice(_mm_maskload_ps(p, _mm256_castsi256_si128(v_mask(n))));
}

/* Pairs (a, b) turned by cosines and sines that stand twice: (a c - b s, b c + a s). */
static inline vf v_turn(vf x, vf c, vf s)
{
    return _mm256_fmaddsub_ps(x, c, v_mul(_mm256_permute_ps(x, 0xb1), s));
}

/* x[i][j] becomes x[j][i]: pairs of rows, then of pairs, then of halves. */
static RKV_ALWAYS_INLINE void v_transpose(vf *x)
{
    vf y[8];
    RKV_UNROLL(2)
    for (int i = 0; i < 8; i += 4) {
        const vf a = _mm256_unpacklo_ps(x[i], x[i + 1]), b = _mm256_unpackhi_ps(x[i], x[i + 1]);
        const vf c = _mm256_unpacklo_ps(x[i + 2], x[i + 3]);
        const vf d = _mm256_unpackhi_ps(x[i + 2], x[i + 3]);
        y[i] = _mm256_shuffle_ps(a, c, 0x44);
        y[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
        y[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
        y[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
    }
    RKV_UNROLL(4)
    for (int i = 0; i < 4; i++) {
        x[i] = _mm256_permute2f128_ps(y[i], y[i + 4], 0x20);
        x[i + 4] = _mm256_permute2f128_ps(y[i], y[i + 4], 0x31);
    }
}

/* Rows of keys: a vector holds 8 elements of V_LEN / 8 rows, which is one row here and two in
 * AVX-512; the first of vector j is row v_row(j, 0), the second v_row(j, 1). */
enum { V_ROWS = 8 };

static inline int v_row(int j, int half)
{
    (void)half;
    return j;
}

/* 8 elements of a row and 8 of a second row, which is the same here. */
static inline vf v_pair_f32(const float *p, const float *second)
{
    (void)second;
    return v_load(p);
}

static inline vf v_pair_f32_n(const float *p, const float *second, int n)
{
    (void)second;
    return v_load_n(p, n);
}

static inline vf v_pair_f16(const uint16_t *p, const uint16_t *second)
{
    (void)second;
    return v_load_f16(p);
}

static inline vf v_pair_f16_n(const uint16_t *p, const uint16_t *second, int n)
{
    (void)second;
    return v_load_f16_n(p, n);
}

static inline vf v_pair_bf16(const uint16_t *p, const uint16_t *second)
{
    (void)second;
    return v_load_bf16(p);
}

static inline vf v_pair_bf16_n(const uint16_t *p, const uint16_t *second, int n)
{
    (void)second;
    return v_load_bf16_n(p, n);
}

/* 8 floats, once for each row of a vector. */
static inline vf v_load8(const float *p)
{
    return v_load(p);
}

static inline vf v_load8_n(const float *p, int n)
{
    return v_load_n(p, n);
}

/* Sums of the 8 elements of each row, in the order of rows. */
static inline vf v_sum8(vf a, vf b, vf c, vf d, vf e, vf f, vf g, vf h)
{
#define RKV_FOLD(x, y) _mm256_add_ps(_mm256_blend_ps(x, y, 0xcc), _mm256_shuffle_ps(x, y, 0x4e))
#define RKV_JOIN(x, y) _mm256_add_ps(_mm256_shuffle_ps(x, y, 0x88), _mm256_shuffle_ps(x, y, 0xdd))
    const vf abcd = RKV_JOIN(RKV_FOLD(a, b), RKV_FOLD(c, d));
    const vf efgh = RKV_JOIN(RKV_FOLD(e, f), RKV_FOLD(g, h));
    return _mm256_add_ps(_mm256_blend_ps(abcd, efgh, 0xf0),
                         _mm256_permute2f128_ps(abcd, efgh, 0x21));
#undef RKV_FOLD
#undef RKV_JOIN
}

/* Of two results of v_sum8 whose vectors a to d belong to one query and e to h to another: the sums
 * of the first query, and of the second, in the order of rows. */
static inline vf v_firsts(vf low_rows, vf high_rows)
{
    return _mm256_permute2f128_ps(low_rows, high_rows, 0x20);
}

static inline vf v_seconds(vf low_rows, vf high_rows)
{
    return _mm256_permute2f128_ps(low_rows, high_rows, 0x31);
}

#endif
