/* unpack and matvec of every weight format with AVX2. */
#include "config.h"
#include "kernels.h"

#include <immintrin.h>

typedef __m256 vf;
#define RKV_NV 4
#define vf_load _mm256_loadu_ps
#define vf_store _mm256_storeu_ps
#define vf_set1 _mm256_set1_ps
#define vf_zero _mm256_setzero_ps
#define vf_mul _mm256_mul_ps
#define vf_add _mm256_add_ps
#define vf_fma _mm256_fmadd_ps

static inline float vf_sum(__m256 v)
{
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

#include "tmpl/weights.h"

/* Eight bytes as numbers. */
RKV_INLINE __m256i bytes8(const uint8_t *p)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
}

/* 32 bytes as floats, less an offset. Shuffles within lanes cost less here than conversions of bytes that
 * cross them. */
RKV_INLINE rkv_w32 widen(__m256i code, int offset)
{
    const __m256i none = _mm256_set1_epi32(-256);       /* bytes 1 to 3 of each number become zero */
    const __m256i place = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i first = _mm256_or_si256(none, place);
    const __m256i second = _mm256_or_si256(none, _mm256_add_epi32(place, _mm256_set1_epi32(8)));
    const __m256i half[2] = {_mm256_permute2x128_si256(code, code, 0x00),
                             _mm256_permute2x128_si256(code, code, 0x11)};
    rkv_w32 w;
    RKV_UNROLL
    for (int k = 0; k < RKV_NV; k++) {
        __m256i v = _mm256_shuffle_epi8(half[k / 2], k % 2 ? second : first);
        if (offset)
            v = _mm256_sub_epi32(v, _mm256_set1_epi32(offset));
        w.v[k] = _mm256_cvtepi32_ps(v);
    }
    return w;
}

/* A format by its bytes. */
#define RKV_CODES(dt, offset) \
    RKV_INLINE rkv_w32 codes_##dt(const void *block, const rkv_scales *p, int i) \
    { \
        (void)p; \
        return widen(rkv_##dt##_codes(block, i), offset); \
    }
RKV_CODES(q5_0, 16)
RKV_CODES(q5_1, 0)
RKV_CODES(q2_k, 0)
RKV_CODES(q3_k, 4)
RKV_CODES(q5_k, 0)
RKV_CODES(q6_k, 32)
RKV_CODES(iq4_nl, 128)
RKV_CODES(iq4_xs, 128)

/* Nibbles are cheaper one number at a time: the same eight bytes give low and high ones. */
RKV_INLINE __m256 nibble(const uint8_t *p, int high, int offset)
{
    const __m256i v = bytes8(p);
    const __m256i q = high ? _mm256_srli_epi32(v, 4) : _mm256_and_si256(v, _mm256_set1_epi32(15));
    return _mm256_cvtepi32_ps(offset ? _mm256_sub_epi32(q, _mm256_set1_epi32(offset)) : q);
}

RKV_INLINE rkv_w32 nibbles(const uint8_t *qs, int offset)
{
    return (rkv_w32){{nibble(qs, 0, offset), nibble(qs + 8, 0, offset), nibble(qs, 1, offset),
                      nibble(qs + 8, 1, offset)}};
}

RKV_INLINE rkv_w32 codes_q4_0(const void *block, const rkv_scales *p, int i)
{
    const rkv_q4_0 *b = block;
    (void)p, (void)i;
    return nibbles(b->qs, 8);
}

RKV_INLINE rkv_w32 codes_q4_1(const void *block, const rkv_scales *p, int i)
{
    const rkv_q4_1 *b = block;
    (void)p, (void)i;
    return nibbles(b->qs, 0);
}

RKV_INLINE rkv_w32 codes_q4_k(const void *block, const rkv_scales *p, int i)
{
    const rkv_q4_k *b = block;
    const uint8_t *qs = b->qs + i / 2 * 32;
    const int high = i % 2;
    (void)p;
    return (rkv_w32){{nibble(qs, high, 0), nibble(qs + 8, high, 0), nibble(qs + 16, high, 0),
                      nibble(qs + 24, high, 0)}};
}

RKV_INLINE rkv_w32 codes_q8_0(const void *block, const rkv_scales *p, int i)
{
    const rkv_q8_0 *b = block;
    rkv_w32 w;
    (void)p, (void)i;
    RKV_UNROLL
    for (int k = 0; k < RKV_NV; k++)
        w.v[k] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(b->qs + 8 * k))));
    return w;
}

RKV_INLINE rkv_w32 codes_f32(const void *block, const rkv_scales *p, int i)
{
    (void)p, (void)i;
    return rkv_load_w32(block);
}

RKV_INLINE rkv_w32 codes_f16(const void *block, const rkv_scales *p, int i)
{
    const uint16_t *h = block;
    rkv_w32 w;
    (void)p, (void)i;
    RKV_UNROLL
    for (int k = 0; k < RKV_NV; k++)
        w.v[k] = _mm256_cvtph_ps(rkv_load16(h + 8 * k));
    return w;
}

RKV_INLINE rkv_w32 codes_bf16(const void *block, const rkv_scales *p, int i)
{
    const uint16_t *h = block;
    rkv_w32 w;
    (void)p, (void)i;
    RKV_UNROLL
    for (int k = 0; k < RKV_NV; k++) {
        const __m256i v = _mm256_cvtepu16_epi32(rkv_load16(h + 8 * k));
        w.v[k] = _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
    }
    return w;
}

/* type, weights and bytes of a block, weights per scale, kind, scales */
#define RKV_FORMATS \
    RKV_FORMAT(f32, 32, 128, 32, RKV_WEIGHT, NULL) \
    RKV_FORMAT(f16, 32, 64, 32, RKV_WEIGHT, NULL) \
    RKV_FORMAT(bf16, 32, 64, 32, RKV_WEIGHT, NULL) \
    RKV_FORMAT(q4_0, 32, 18, 32, RKV_SCALE, rkv_one_scale) \
    RKV_FORMAT(q4_1, 32, 20, 32, RKV_AFFINE, rkv_one_pair) \
    RKV_FORMAT(q5_0, 32, 22, 32, RKV_SCALE, rkv_one_scale) \
    RKV_FORMAT(q5_1, 32, 24, 32, RKV_AFFINE, rkv_one_pair) \
    RKV_FORMAT(q8_0, 32, 34, 32, RKV_SCALE, rkv_one_scale) \
    RKV_FORMAT(q2_k, 256, 84, 16, RKV_AFFINE, rkv_q2_k_scales) \
    RKV_FORMAT(q3_k, 256, 110, 16, RKV_SCALE, rkv_q3_k_scales) \
    RKV_FORMAT(q4_k, 256, 144, 32, RKV_AFFINE, rkv_q4_k_scales) \
    RKV_FORMAT(q5_k, 256, 176, 32, RKV_AFFINE, rkv_q4_k_scales) \
    RKV_FORMAT(q6_k, 256, 210, 16, RKV_SCALE, rkv_q6_k_scales) \
    RKV_FORMAT(iq4_nl, 32, 18, 32, RKV_SCALE, rkv_one_scale) \
    RKV_FORMAT(iq4_xs, 256, 136, 32, RKV_SCALE, rkv_iq4_xs_scales)

#define RKV_FORMAT(dt, len, bytes, group, kind, scales) \
    static const rkv_format format_##dt = {len, bytes, group, kind, scales, codes_##dt}; \
    RKV_WEIGHT_KERNELS(dt, avx2, &format_##dt)
RKV_FORMATS
#undef RKV_FORMAT
