/* Lanes of 64 bits on AVX2: VL_LEN doubles (vl) or integers (vu). Same words as wide_avx512.h. */
#ifndef RKV_WIDE_AVX2_H
#define RKV_WIDE_AVX2_H

#include <immintrin.h>
#include <stdint.h>

enum { VL_LEN = 4 };

typedef __m256d vl;
typedef __m256i vu;

static inline vl vl_set(double a)
{
    return _mm256_set1_pd(a);
}

static inline vl vl_add(vl a, vl b)
{
    return _mm256_add_pd(a, b);
}

static inline vl vl_sub(vl a, vl b)
{
    return _mm256_sub_pd(a, b);
}

static inline vl vl_mul(vl a, vl b)
{
    return _mm256_mul_pd(a, b);
}

static inline vl vl_div(vl a, vl b)
{
    return _mm256_div_pd(a, b);
}

static inline vl vl_sqrt(vl a)
{
    return _mm256_sqrt_pd(a);
}

static inline void vl_store(double *p, vl a)
{
    _mm256_storeu_pd(p, a);
}

static inline vl vl_of_bits(vu a)
{
    return _mm256_castsi256_pd(a);
}

static inline vu vu_of_bits(vl a)
{
    return _mm256_castpd_si256(a);
}

static inline vu vu_set(uint64_t a)
{
    return _mm256_set1_epi64x((long long)a);
}

/* a, a + step, a + 2 step, ... */
static inline vu vu_series(uint64_t a, uint64_t step)
{
    return _mm256_setr_epi64x((long long)a, (long long)(a + step), (long long)(a + 2 * step),
                              (long long)(a + 3 * step));
}

static inline vu vu_add(vu a, vu b)
{
    return _mm256_add_epi64(a, b);
}

static inline vu vu_and(vu a, vu b)
{
    return _mm256_and_si256(a, b);
}

static inline vu vu_xor(vu a, vu b)
{
    return _mm256_xor_si256(a, b);
}

/* To the right, zeros in front. */
static inline vu vu_shift(vu a, int n)
{
    return _mm256_srli_epi64(a, n);
}

static inline vu vu_shift_left(vu a, int n)
{
    return _mm256_slli_epi64(a, n);
}

/* The lower 64 bits of the products, from three products of halves. */
static inline vu vu_times(vu a, uint64_t b)
{
    const vu low = vu_set(b), high = vu_set(b >> 32);
    const vu across = _mm256_add_epi64(_mm256_mul_epu32(_mm256_srli_epi64(a, 32), low),
                                       _mm256_mul_epu32(a, high));
    return _mm256_add_epi64(_mm256_mul_epu32(a, low), _mm256_slli_epi64(across, 32));
}

/* Integers below 2^53 as doubles, exactly: the halves of 32 bits as mantissas of 2^52 and 2^84. */
static inline vl vl_from_53(vu a)
{
    const vl low = vl_of_bits(_mm256_blend_epi32(a, vu_set(0x4330000000000000), 0xaa));
    const vl high = vl_of_bits(vu_xor(_mm256_srli_epi64(a, 32), vu_set(0x4530000000000000)));
    return vl_add(vl_sub(high, vl_set(0x1p84 + 0x1p52)), low);
}

/* odd where the lowest bit of a is set, else even. */
static inline vl vl_choose_odd(vu a, vl odd, vl even)
{
    return _mm256_blendv_pd(even, odd, vl_of_bits(_mm256_slli_epi64(a, 63)));
}

#endif
