/* The vector vocabulary on AVX-512 (F, BW, DQ, VL): 16 floats. Same words as vec_avx2.h. */
#ifndef RKV_VEC_AVX512_H
#define RKV_VEC_AVX512_H

#if !defined __AVX512F__ || !defined __AVX512BW__ || !defined __AVX512DQ__ || !defined __AVX512VL__
#error "this file needs the flags of the avx512 tier"
#endif

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

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

static inline vf v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

static inline void v_store(float *p, vf a)
{
    _mm512_storeu_ps(p, a);
}

static inline vf v_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}

static inline vf v_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}

/* a b + c with one rounding. */
static inline vf v_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

/* Sum of the elements, always in this order. */
static inline float v_sum(vf a)
{
    const __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}

#endif
