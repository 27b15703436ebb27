/* Lanes of 64 bits on AVX-512 F and DQ: VL_LEN doubles (vl) or integers (vu). Same words as
 * wide_avx2.h, where they are explained. */
#ifndef RKV_WIDE_AVX512_H
#define RKV_WIDE_AVX512_H

#include <immintrin.h>
#include <stdint.h>

enum { VL_LEN = 8 };

typedef __m512d vl;
typedef __m512i vu;

static inline vl vl_set(double a)
{
    return _mm512_set1_pd(a);
}

static inline vl vl_add(vl a, vl b)
{
    return _mm512_add_pd(a, b);
}

static inline vl vl_sub(vl a, vl b)
{
    return _mm512_sub_pd(a, b);
}

static inline vl vl_mul(vl a, vl b)
{
    return _mm512_mul_pd(a, b);
}

static inline vl vl_div(vl a, vl b)
{
    return _mm512_div_pd(a, b);
}

static inline vl vl_sqrt(vl a)
{
    return _mm512_sqrt_pd(a);
}

static inline void vl_store(double *p, vl a)
{
    _mm512_storeu_pd(p, a);
}

static inline vl vl_of_bits(vu a)
{
    return _mm512_castsi512_pd(a);
}

static inline vu vu_of_bits(vl a)
{
    return _mm512_castpd_si512(a);
}

static inline vu vu_set(uint64_t a)
{
    return _mm512_set1_epi64((long long)a);
}

static inline vu vu_add(vu a, vu b)
{
    return _mm512_add_epi64(a, b);
}

static inline vu vu_and(vu a, vu b)
{
    return _mm512_and_si512(a, b);
}

static inline vu vu_xor(vu a, vu b)
{
    return _mm512_xor_si512(a, b);
}

static inline vu vu_shift(vu a, int n)
{
    return _mm512_srl_epi64(a, _mm_cvtsi32_si128(n));
}

static inline vu vu_shift_left(vu a, int n)
{
    return _mm512_sll_epi64(a, _mm_cvtsi32_si128(n));
}

static inline vu vu_times(vu a, uint64_t b)
{
    return _mm512_mullo_epi64(a, vu_set(b));
}

static inline vu vu_series(uint64_t a, uint64_t step)
{
    uint64_t s[VL_LEN];
    for (int i = 0; i < VL_LEN; i++)
        s[i] = a + (uint64_t)i * step;
    return _mm512_loadu_si512(s);
}

static inline vl vl_from_53(vu a)
{
    return _mm512_cvtepu64_pd(a);
}

static inline vl vl_choose_odd(vu a, vl odd, vl even)
{
    return _mm512_mask_blend_pd(_mm512_test_epi64_mask(a, vu_set(1)), even, odd);
}

#endif
