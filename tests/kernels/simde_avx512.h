/* Read before every source of the avx512 tier when it is built for a CPU without AVX-512: SIMDe's
 * portable intrinsics under the native names, and in plain C those that its release in Debian 12
 * (0.7.4) lacks. They do what Intel's Intrinsics Guide says; nothing but the element that a mask
 * selects is touched. */
#ifndef SIMDE_AVX512_H
#define SIMDE_AVX512_H

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/fma.h>

#include <stdint.h>

/* name(mask, from): elements of a type, or 0. */
#define EMULATE_LOAD(name, vector, mask, element, n, whole)                                        \
    static inline vector emulated##name(mask m, const void *from)                                  \
    {                                                                                              \
        const element *p = from;                                                                   \
        element out[n];                                                                            \
        for (int i = 0; i < (n); i++)                                                              \
            out[i] = m >> i & 1 ? p[i] : 0;                                                        \
        return whole((const void *)out);                                                           \
    }

#define EMULATE_STORE(name, vector, mask, element, n, whole)                                       \
    static inline void emulated##name(void *to, mask m, vector a)                                  \
    {                                                                                              \
        element *p = to, some[n];                                                                  \
        whole((void *)some, a);                                                                    \
        for (int i = 0; i < (n); i++)                                                              \
            if (m >> i & 1)                                                                        \
                p[i] = some[i];                                                                    \
    }

EMULATE_LOAD(_mm512_maskz_loadu_ps, __m512, __mmask16, float, 16, _mm512_loadu_ps)
EMULATE_LOAD(_mm256_maskz_loadu_ps, __m256, __mmask8, float, 8, _mm256_loadu_ps)
EMULATE_LOAD(_mm256_maskz_loadu_epi16, __m256i, __mmask16, uint16_t, 16, _mm256_loadu_si256)
EMULATE_STORE(_mm512_mask_storeu_ps, __m512, __mmask16, float, 16, _mm512_storeu_ps)
EMULATE_STORE(_mm256_mask_storeu_epi16, __m256i, __mmask16, uint16_t, 16, _mm256_storeu_si256)
#define _mm512_maskz_loadu_ps emulated_mm512_maskz_loadu_ps
#define _mm256_maskz_loadu_ps emulated_mm256_maskz_loadu_ps
#define _mm256_maskz_loadu_epi16 emulated_mm256_maskz_loadu_epi16
#define _mm512_mask_storeu_ps emulated_mm512_mask_storeu_ps
#define _mm256_mask_storeu_epi16 emulated_mm256_mask_storeu_epi16

/* The rest through memory. */
static inline __m256 emulated_mm512_extractf32x8_ps(__m512 a, int half)
{
    float x[16];
    _mm512_storeu_ps(x, a);
    return _mm256_loadu_ps(x + 8 * half);
}
#undef _mm512_extractf32x8_ps
#define _mm512_extractf32x8_ps emulated_mm512_extractf32x8_ps

static inline __m512d emulated_mm512_cvtepu64_pd(__m512i a)
{
    uint64_t in[8];
    double x[8];
    _mm512_storeu_si512(in, a);
    for (int i = 0; i < 8; i++)
        x[i] = (double)in[i];
    return _mm512_loadu_pd(x);
}
#undef _mm512_cvtepu64_pd
#define _mm512_cvtepu64_pd emulated_mm512_cvtepu64_pd

/* SIMDe multiplies signed numbers, whose overflow is undefined. */
static inline __m512i emulated_mm512_mullo_epi64(__m512i a, __m512i b)
{
    uint64_t x[8], y[8];
    _mm512_storeu_si512(x, a);
    _mm512_storeu_si512(y, b);
    for (int i = 0; i < 8; i++)
        x[i] *= y[i];
    return _mm512_loadu_si512(x);
}
#undef _mm512_mullo_epi64
#define _mm512_mullo_epi64 emulated_mm512_mullo_epi64

static inline __m512 emulated_mm512_cvtph_ps(__m256i a)
{
    float x[16];
    _mm256_storeu_ps(x, _mm256_cvtph_ps(_mm256_castsi256_si128(a)));
    _mm256_storeu_ps(x + 8, _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1)));
    return _mm512_loadu_ps(x);
}
#define _mm512_cvtph_ps emulated_mm512_cvtph_ps

/* Rounds to nearest even, the only mode in use. */
static inline __m256i emulated_mm512_cvtps_ph(__m512 a, int rounding)
{
    float x[16];
    (void)rounding;
    _mm512_storeu_ps(x, a);
    const __m128i lo = _mm256_cvtps_ph(_mm256_loadu_ps(x), _MM_FROUND_TO_NEAREST_INT);
    const __m128i hi = _mm256_cvtps_ph(_mm256_loadu_ps(x + 8), _MM_FROUND_TO_NEAREST_INT);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(lo), hi, 1);
}
#undef _mm512_cvtps_ph
#define _mm512_cvtps_ph emulated_mm512_cvtps_ph

static inline __m512d emulated_mm512_cvtps_pd(__m256 a)
{
    float x[8];
    double y[8];
    _mm256_storeu_ps(x, a);
    for (int i = 0; i < 8; i++)
        y[i] = (double)x[i];
    return _mm512_loadu_pd(y);
}
#define _mm512_cvtps_pd emulated_mm512_cvtps_pd

/* name(a): sixteen integers of one type to sixteen numbers of another. */
#define EMULATE_CONVERT(name, vector, narrow, save, result, wide, load)                            \
    static inline result emulated##name(vector a)                                                  \
    {                                                                                              \
        narrow x[16];                                                                              \
        wide y[16];                                                                                \
        save((void *)x, a);                                                                        \
        for (int i = 0; i < 16; i++)                                                               \
            y[i] = (wide)x[i];                                                                     \
        return load((const void *)y);                                                              \
    }

EMULATE_CONVERT(_mm512_cvtepu16_epi32, __m256i, uint16_t, _mm256_storeu_si256, __m512i, uint32_t,
                _mm512_loadu_si512)
EMULATE_CONVERT(_mm512_cvtepu8_epi32, __m128i, uint8_t, _mm_storeu_si128, __m512i, uint32_t,
                _mm512_loadu_si512)
EMULATE_CONVERT(_mm512_cvtepi8_epi32, __m128i, int8_t, _mm_storeu_si128, __m512i, int32_t,
                _mm512_loadu_si512)
EMULATE_CONVERT(_mm512_cvtepi32_ps, __m512i, int32_t, _mm512_storeu_si512, __m512, float,
                _mm512_loadu_ps)
EMULATE_CONVERT(_mm512_cvtepi32_epi16, __m512i, uint32_t, _mm512_storeu_si512, __m256i, uint16_t,
                _mm256_loadu_si256)
EMULATE_CONVERT(_mm512_cvtepi32_epi8, __m512i, uint32_t, _mm512_storeu_si512, __m128i, uint8_t,
                _mm_loadu_si128)
#undef _mm512_cvtepi8_epi32
#undef _mm512_cvtepi32_ps
#define _mm512_cvtepi32_epi8 emulated_mm512_cvtepi32_epi8
#define _mm512_cvtepi32_epi16 emulated_mm512_cvtepi32_epi16
#define _mm512_cvtepu16_epi32 emulated_mm512_cvtepu16_epi32
#define _mm512_cvtepu8_epi32 emulated_mm512_cvtepu8_epi32
#define _mm512_cvtepi8_epi32 emulated_mm512_cvtepi8_epi32
#define _mm512_cvtepi32_ps emulated_mm512_cvtepi32_ps

static inline __m512i emulated_mm512_srai_epi32(__m512i a, unsigned n)
{
    int32_t x[16];
    _mm512_storeu_si512(x, a);
    for (int i = 0; i < 16; i++)
        x[i] >>= n;
    return _mm512_loadu_si512(x);
}
#define _mm512_srai_epi32 emulated_mm512_srai_epi32

static inline int emulated_mm512_reduce_add_epi32(__m512i a)
{
    uint32_t x[16], sum = 0;
    _mm512_storeu_si512(x, a);
    for (int i = 0; i < 16; i++)
        sum += x[i];
    return (int)sum;
}
#define _mm512_reduce_add_epi32 emulated_mm512_reduce_add_epi32

/* SIMDe wants a literal count, which an argument of an inlined function is not. */
static inline __m512i emulated_mm512_srli_epi16(__m512i a, unsigned n)
{
    uint16_t x[32];
    _mm512_storeu_si512(x, a);
    for (int i = 0; i < 32; i++)
        x[i] = (uint16_t)(x[i] >> n);
    return _mm512_loadu_si512(x);
}
#undef _mm512_srli_epi16
#define _mm512_srli_epi16 emulated_mm512_srli_epi16

static inline __m512i emulated_mm512_mask_srli_epi16(__m512i from, __mmask32 m, __m512i a,
                                                     unsigned n)
{
    uint16_t x[32], y[32];
    _mm512_storeu_si512(x, from);
    _mm512_storeu_si512(y, a);
    for (int i = 0; i < 32; i++)
        if (m >> i & 1)
            x[i] = (uint16_t)(y[i] >> n);
    return _mm512_loadu_si512(x);
}
#define _mm512_mask_srli_epi16 emulated_mm512_mask_srli_epi16

/* Rounds to nearest even, the only mode in use. */
static inline __m512i emulated_mm512_cvtps_epi32(__m512 a)
{
    float x[16];
    int32_t y[16];
    _mm512_storeu_ps(x, a);
    for (int i = 0; i < 16; i += 8)
        _mm256_storeu_si256((__m256i *)(y + i), _mm256_cvtps_epi32(_mm256_loadu_ps(x + i)));
    return _mm512_loadu_si512(y);
}
#define _mm512_cvtps_epi32 emulated_mm512_cvtps_epi32

static inline __m512 emulated_mm512_fmaddsub_ps(__m512 a, __m512 b, __m512 c)
{
    float x[16], y[16], z[16];
    _mm512_storeu_ps(x, a);
    _mm512_storeu_ps(y, b);
    _mm512_storeu_ps(z, c);
    for (int i = 0; i < 16; i += 8)
        _mm256_storeu_ps(x + i, _mm256_fmaddsub_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i),
                                                   _mm256_loadu_ps(z + i)));
    return _mm512_loadu_ps(x);
}
#define _mm512_fmaddsub_ps emulated_mm512_fmaddsub_ps

static inline __m512 emulated_mm512_zextps256_ps512(__m256 a)
{
    float x[16] = {0.0f};
    _mm256_storeu_ps(x, a);
    return _mm512_loadu_ps(x);
}
#define _mm512_zextps256_ps512 emulated_mm512_zextps256_ps512

#undef _mm512_shuffle_f32x4
#define _mm512_shuffle_f32x4 simde_mm512_shuffle_f32x4

#endif
