/* Block formats in 128-bit and 256-bit registers: what the x86 tiers share. Layouts: fmt/.
 *
 * Scales come for 256 weights at a time: one large block, or up to 8 small ones. A weight is s code
 * + o with the s and o of its group of 16 or 32; formats without a minimum leave o alone. All s and
 * o are exact products, as in the decoders. Codes come as 32 bytes, unsigned, before the format's
 * offset: those of the 32 weights i of unit u, where a unit is the stretch of a large block after
 * which its layout repeats. */
#ifndef RKV_TMPL_CODES_H
#define RKV_TMPL_CODES_H

#include <immintrin.h>
#include <string.h>

#include "fmt/iq4_nl.h"
#include "fmt/iq4_xs.h"
#include "fmt/q2_k.h"
#include "fmt/q3_k.h"
#include "fmt/q4_0.h"
#include "fmt/q4_1.h"
#include "fmt/q4_k.h"
#include "fmt/q5_0.h"
#include "fmt/q5_1.h"
#include "fmt/q5_k.h"
#include "fmt/q6_k.h"
#include "fmt/q8_0.h"

typedef struct rkv_scales {
    float s[16], o[16];
} rkv_scales;

static inline __m128i rkv_load16(const void *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

static inline __m256i rkv_load32(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

static inline float rkv_half(const uint8_t *p)
{
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(rkv_u16_at(p))));
}

/* The 16 values of iq4_nl. */
static inline __m128i rkv_iq4_table(void)
{
    static const int8_t value[16] = {RKV_IQ4_VALUES};
    return rkv_load16(value);
}

/* ---- scales ---- */

/* out[i] = d times the signed byte i of v, i < 8. */
static inline void rkv_scale8(float *out, float d, __m128i v)
{
    const __m256 f = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v));
    _mm256_storeu_ps(out, _mm256_mul_ps(_mm256_set1_ps(d), f));
}

static inline void rkv_scale16(float *out, float d, __m128i v)
{
    rkv_scale8(out, d, v);
    rkv_scale8(out + 8, d, _mm_unpackhi_epi64(v, v));
}

/* n <= 8 small blocks with one scale; d comes first in all of them. */
static inline void rkv_small_scales(rkv_scales *p, const void *block, int bytes, int n)
{
    const uint8_t *b = block;
    if (n < 8) {
        for (int i = 0; i < n; i++)
            p->s[i] = rkv_half(b + i * bytes);
        return;
    }
    __m128i v = _mm_cvtsi32_si128(rkv_u16_at(b));
    v = _mm_insert_epi16(v, rkv_u16_at(b + bytes), 1);
    v = _mm_insert_epi16(v, rkv_u16_at(b + 2 * bytes), 2);
    v = _mm_insert_epi16(v, rkv_u16_at(b + 3 * bytes), 3);
    v = _mm_insert_epi16(v, rkv_u16_at(b + 4 * bytes), 4);
    v = _mm_insert_epi16(v, rkv_u16_at(b + 5 * bytes), 5);
    v = _mm_insert_epi16(v, rkv_u16_at(b + 6 * bytes), 6);
    v = _mm_insert_epi16(v, rkv_u16_at(b + 7 * bytes), 7);
    _mm256_storeu_ps(p->s, _mm256_cvtph_ps(v));
}

/* Four blocks with scale and minimum: d m d m d m d m. */
static inline __m256 rkv_four_pairs(const uint8_t *b, int bytes)
{
    return _mm256_cvtph_ps(_mm_set_epi32((int)rkv_u32_at(b + 3 * bytes),
                                         (int)rkv_u32_at(b + 2 * bytes), (int)rkv_u32_at(b + bytes),
                                         (int)rkv_u32_at(b)));
}

/* n <= 8 small blocks with scale and minimum; d and m come first in all of them. */
static inline void rkv_small_pairs(rkv_scales *p, const void *block, int bytes, int n)
{
    const uint8_t *b = block;
    if (n < 8) {
        for (int i = 0; i < n; i++) {
            p->s[i] = rkv_half(b + i * bytes);
            p->o[i] = rkv_half(b + i * bytes + 2);
        }
        return;
    }
    const __m256 low = rkv_four_pairs(b, bytes), high = rkv_four_pairs(b + 4 * bytes, bytes);
    const __m256d d = _mm256_castps_pd(_mm256_shuffle_ps(low, high, 0x88)); /* 0 1 4 5 2 3 6 7 */
    const __m256d m = _mm256_castps_pd(_mm256_shuffle_ps(low, high, 0xdd));
    _mm256_storeu_ps(p->s, _mm256_castpd_ps(_mm256_permute4x64_pd(d, 0xd8)));
    _mm256_storeu_ps(p->o, _mm256_castpd_ps(_mm256_permute4x64_pd(m, 0xd8)));
}

static inline void rkv_q2_k_scales(rkv_scales *p, const void *block, int bytes, int n)
{
    const rkv_q2_k *b = block;
    (void)bytes, (void)n;
    const __m128i v = rkv_load16(b->scales), low = _mm_set1_epi8(15);
    rkv_scale16(p->s, rkv_half(b->d), _mm_and_si128(v, low));
    rkv_scale16(p->o, -rkv_half(b->dmin), _mm_and_si128(_mm_srli_epi16(v, 4), low));
}

/* The 16 signed scales. */
static inline __m128i rkv_q3_k_scale_bytes(const rkv_q3_k *b)
{
    const __m128i two = _mm_set_epi32(6, 4, 2, 0), low = _mm_set1_epi8(15), high = _mm_set1_epi8(3);
    const __m128i l = _mm_loadl_epi64((const __m128i *)b->scales);
    const __m128i l16 = _mm_and_si128(_mm_unpacklo_epi64(l, _mm_srli_epi16(l, 4)), low);
    const __m128i h = _mm_set1_epi32((int)rkv_u32_at(b->scales + 8));
    const __m128i h16 = _mm_and_si128(_mm_srlv_epi32(h, two), high);
    return _mm_sub_epi8(_mm_or_si128(l16, _mm_slli_epi16(h16, 4)), _mm_set1_epi8(32));
}

static inline void rkv_q3_k_scales(rkv_scales *p, const void *block, int bytes, int n)
{
    const rkv_q3_k *b = block;
    (void)bytes, (void)n;
    rkv_scale16(p->s, rkv_half(b->d), rkv_q3_k_scale_bytes(b));
}

/* The 8 scales, then the 8 minima, of q4_k and q5_k: the same 16 bytes come first in both. */
static inline __m128i rkv_q4_k_scale_bytes(const rkv_q4_k *b)
{
    const uint32_t u0 = rkv_u32_at(b->scales), u1 = rkv_u32_at(b->scales + 4);
    const uint32_t u2 = rkv_u32_at(b->scales + 8), low = 0x0f0f0f0f, top = 0x30303030,
                   six = 0x3f3f3f3f;
    const uint32_t s1 = (u2 & low) | (u0 >> 2 & top), m1 = (u2 >> 4 & low) | (u1 >> 2 & top);
    return _mm_set_epi64x((long long)((uint64_t)m1 << 32 | (u1 & six)),
                          (long long)((uint64_t)s1 << 32 | (u0 & six)));
}

static inline void rkv_q4_k_scales(rkv_scales *p, const void *block, int bytes, int n)
{
    const rkv_q4_k *b = block;
    (void)bytes, (void)n;
    const __m128i v = rkv_q4_k_scale_bytes(b);
    rkv_scale8(p->s, rkv_half(b->d), v);
    rkv_scale8(p->o, -rkv_half(b->dmin), _mm_unpackhi_epi64(v, v));
}

static inline void rkv_q6_k_scales(rkv_scales *p, const void *block, int bytes, int n)
{
    const rkv_q6_k *b = block;
    (void)bytes, (void)n;
    rkv_scale16(p->s, rkv_half(b->d), rkv_load16(b->scales));
}

/* The 8 signed scales, and nothing of use behind. */
static inline __m128i rkv_iq4_xs_scale_bytes(const rkv_iq4_xs *b)
{
    const uint32_t l = rkv_u32_at(b->scales_l), h = rkv_u16_at(b->scales_h);
    /* Nibbles 0, 2, 4, 6 of l and pairs 0, 2, 4, 6 of h fall into bytes; the odd ones follow. */
    const __m128i pairs = _mm_set1_epi32((int)h);
    const __m128i h4 =
        _mm_and_si128(_mm_srlv_epi32(pairs, _mm_set_epi32(12, 8, 4, 0)), _mm_set1_epi32(15));
    const __m128i two = _mm_or_si128(_mm_and_si128(h4, _mm_set1_epi32(3)),
                                     _mm_slli_epi32(_mm_and_si128(h4, _mm_set1_epi32(12)), 6));
    const __m128i place = _mm_set_epi8(-1, -1, -1, -1, -1, -1, -1, -1, 13, 12, 9, 8, 5, 4, 1, 0);
    const __m128i high = _mm_slli_epi16(_mm_shuffle_epi8(two, place), 4);
    const __m128i v = _mm_cvtsi32_si128((int)l), even = _mm_and_si128(v, _mm_set1_epi8(15));
    const __m128i odd = _mm_and_si128(_mm_srli_epi16(v, 4), _mm_set1_epi8(15));
    const __m128i low = _mm_unpacklo_epi8(even, odd);
    return _mm_sub_epi8(_mm_or_si128(low, high), _mm_set1_epi8(32));
}

static inline void rkv_iq4_xs_scales(rkv_scales *p, const void *block, int bytes, int n)
{
    const rkv_iq4_xs *b = block;
    (void)bytes, (void)n;
    rkv_scale8(p->s, rkv_half(b->d), rkv_iq4_xs_scale_bytes(b));
}

/* ---- codes ---- */

/* Bits n .. of every byte moved to bit 0 .. (n < 0: up), and masked. */
static inline __m256i rkv_bits(__m256i v, int n, int mask)
{
    const __m256i moved = n >= 0 ? _mm256_srli_epi16(v, n) : _mm256_slli_epi16(v, -n);
    return _mm256_and_si256(moved, _mm256_set1_epi8((char)mask));
}

static inline __m256i rkv_q2_k_codes(const void *block, int u, int i)
{
    const rkv_q2_k *b = block;
    return rkv_bits(rkv_load32(b->qs + 32 * u), 2 * i, 3);
}

static inline __m256i rkv_q3_k_codes(const void *block, int u, int i)
{
    const rkv_q3_k *b = block;
    const __m256i low = rkv_bits(rkv_load32(b->qs + 32 * u), 2 * i, 3);
    const __m256i high = _mm256_srl_epi16(rkv_load32(b->hmask), _mm_cvtsi32_si128(4 * u));
    return _mm256_or_si256(low, rkv_bits(high, i - 2, 4));
}

static inline __m256i rkv_q5_k_codes(const void *block, int u, int i)
{
    const rkv_q5_k *b = block;
    const __m256i low = rkv_bits(rkv_load32(b->qs + 32 * u), 4 * i, 15);
    const __m256i high = _mm256_srl_epi16(rkv_load32(b->qh), _mm_cvtsi32_si128(2 * u));
    return _mm256_or_si256(low, rkv_bits(high, i - 4, 16));
}

static inline __m256i rkv_q6_k_codes(const void *block, int u, int i)
{
    const rkv_q6_k *b = block;
    const __m256i low = rkv_bits(rkv_load32(b->ql + 64 * u + i % 2 * 32), i / 2 * 4, 15);
    return _mm256_or_si256(low, rkv_bits(rkv_load32(b->qh + 32 * u), 2 * i - 4, 48));
}

#endif
