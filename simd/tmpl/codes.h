/* Block formats in 128-bit and 256-bit registers, for every x86 tier: the scales of a block as floats,
 * and 32 of its weights at a time as bytes. The layouts are described in fmt/.
 *
 * rkv_<type>_scales(p, block): weight = s code + o with the s and o of its group of 16 or 32 weights;
 * formats without a minimum leave o alone. All s and o are exact products, as in the decoders.
 * rkv_<type>_codes(block, i): weights 32 i .. 32 i + 31 in order, unsigned, before the format's offset. */
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

/* ---- scales ------------------------------------------------------------------------------------ */

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

/* A block of 32 with one scale; d comes first in all of them. */
static inline void rkv_one_scale(rkv_scales *p, const void *block)
{
    p->s[0] = rkv_half(block);
}

/* A block of 32 with scale and minimum; d and m come first in all of them. */
static inline void rkv_one_pair(rkv_scales *p, const void *block)
{
    p->s[0] = rkv_half(block);
    p->o[0] = rkv_half((const uint8_t *)block + 2);
}

static inline void rkv_q2_k_scales(rkv_scales *p, const void *block)
{
    const rkv_q2_k *b = block;
    const __m128i v = rkv_load16(b->scales), low = _mm_set1_epi8(15);
    rkv_scale16(p->s, rkv_half(b->d), _mm_and_si128(v, low));
    rkv_scale16(p->o, -rkv_half(b->dmin), _mm_and_si128(_mm_srli_epi16(v, 4), low));
}

static inline void rkv_q3_k_scales(rkv_scales *p, const void *block)
{
    const rkv_q3_k *b = block;
    const __m128i two = _mm_set_epi32(6, 4, 2, 0), low = _mm_set1_epi8(15), high = _mm_set1_epi8(3);
    const __m128i l = _mm_loadl_epi64((const __m128i *)b->scales);
    const __m128i l16 = _mm_and_si128(_mm_unpacklo_epi64(l, _mm_srli_epi16(l, 4)), low);
    const __m128i h = _mm_set1_epi32((int)rkv_u32_at(b->scales + 8));
    const __m128i h16 = _mm_and_si128(_mm_srlv_epi32(h, two), high);
    const __m128i v = _mm_or_si128(l16, _mm_slli_epi16(h16, 4));
    rkv_scale16(p->s, rkv_half(b->d), _mm_sub_epi8(v, _mm_set1_epi8(32)));
}

/* q4_k and q5_k: the same 16 bytes come first in both. */
static inline void rkv_q4_k_scales(rkv_scales *p, const void *block)
{
    const rkv_q4_k *b = block;
    const uint32_t u0 = rkv_u32_at(b->scales), u1 = rkv_u32_at(b->scales + 4);
    const uint32_t u2 = rkv_u32_at(b->scales + 8), low = 0x0f0f0f0f, top = 0x30303030, six = 0x3f3f3f3f;
    const uint32_t s1 = (u2 & low) | (u0 >> 2 & top), m1 = (u2 >> 4 & low) | (u1 >> 2 & top);
    const __m128i v = _mm_set_epi32((int)m1, (int)(u1 & six), (int)s1, (int)(u0 & six));
    rkv_scale8(p->s, rkv_half(b->d), v);
    rkv_scale8(p->o, -rkv_half(b->dmin), _mm_unpackhi_epi64(v, v));
}

static inline void rkv_q6_k_scales(rkv_scales *p, const void *block)
{
    const rkv_q6_k *b = block;
    rkv_scale16(p->s, rkv_half(b->d), rkv_load16(b->scales));
}

static inline void rkv_iq4_xs_scales(rkv_scales *p, const void *block)
{
    const rkv_iq4_xs *b = block;
    const uint32_t l = rkv_u32_at(b->scales_l), h = rkv_u16_at(b->scales_h);
    /* Nibbles 0, 2, 4, 6 of l and pairs 0, 2, 4, 6 of h fall into bytes; the odd ones follow. */
    const __m128i pairs = _mm_set1_epi32((int)h);
    const __m128i h4 = _mm_and_si128(_mm_srlv_epi32(pairs, _mm_set_epi32(12, 8, 4, 0)), _mm_set1_epi32(15));
    const __m128i two = _mm_or_si128(_mm_and_si128(h4, _mm_set1_epi32(3)),
                                     _mm_slli_epi32(_mm_and_si128(h4, _mm_set1_epi32(12)), 6));
    const __m128i place = _mm_set_epi8(-1, -1, -1, -1, -1, -1, -1, -1, 13, 12, 9, 8, 5, 4, 1, 0);
    const __m128i high = _mm_slli_epi16(_mm_shuffle_epi8(two, place), 4);
    const __m128i v = _mm_cvtsi32_si128((int)l), even = _mm_and_si128(v, _mm_set1_epi8(15));
    const __m128i odd = _mm_and_si128(_mm_srli_epi16(v, 4), _mm_set1_epi8(15));
    const __m128i low = _mm_unpacklo_epi8(even, odd);
    rkv_scale8(p->s, rkv_half(b->d), _mm_sub_epi8(_mm_or_si128(low, high), _mm_set1_epi8(32)));
}

/* ---- codes ------------------------------------------------------------------------------------- */

/* Bits n .. of every byte moved to bit 0 .. (n < 0: up), and masked. */
static inline __m256i rkv_bits(__m256i v, int n, int mask)
{
    const __m256i moved = n >= 0 ? _mm256_srli_epi16(v, n) : _mm256_slli_epi16(v, -n);
    return _mm256_and_si256(moved, _mm256_set1_epi8((char)mask));
}

/* The 32 nibbles of 16 bytes: all low ones, then all high ones. */
static inline __m256i rkv_nibbles(const uint8_t *qs)
{
    const __m256i v = _mm256_broadcastsi128_si256(rkv_load16(qs));
    const __m256i up = _mm256_set_epi64x(4, 4, 0, 0);
    return _mm256_and_si256(_mm256_srlv_epi64(v, up), _mm256_set1_epi8(15));
}

/* Byte i is 16 where bit i of the 32 is set, else 0. */
static inline __m256i rkv_fifth(const uint8_t *qh)
{
    const __m256i spread = _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202, 0x0101010101010101, 0);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    const __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32((int)rkv_u32_at(qh)), spread);
    const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(v, bit), bit);
    return _mm256_and_si256(set, _mm256_set1_epi8(16));
}

static inline __m256i rkv_q4_0_codes(const void *block, int i)
{
    const rkv_q4_0 *b = block;
    (void)i;
    return rkv_nibbles(b->qs);
}

static inline __m256i rkv_q4_1_codes(const void *block, int i)
{
    const rkv_q4_1 *b = block;
    (void)i;
    return rkv_nibbles(b->qs);
}

static inline __m256i rkv_q5_0_codes(const void *block, int i)
{
    const rkv_q5_0 *b = block;
    (void)i;
    return _mm256_or_si256(rkv_nibbles(b->qs), rkv_fifth(b->qh));
}

static inline __m256i rkv_q5_1_codes(const void *block, int i)
{
    const rkv_q5_1 *b = block;
    (void)i;
    return _mm256_or_si256(rkv_nibbles(b->qs), rkv_fifth(b->qh));
}

static inline __m256i rkv_q2_k_codes(const void *block, int i)
{
    const rkv_q2_k *b = block;
    return rkv_bits(rkv_load32(b->qs + i / 4 * 32), 2 * (i % 4), 3);
}

static inline __m256i rkv_q3_k_codes(const void *block, int i)
{
    const rkv_q3_k *b = block;
    const __m256i low = rkv_bits(rkv_load32(b->qs + i / 4 * 32), 2 * (i % 4), 3);
    return _mm256_or_si256(low, rkv_bits(rkv_load32(b->hmask), i - 2, 4));
}

static inline __m256i rkv_q4_k_codes(const void *block, int i)
{
    const rkv_q4_k *b = block;
    return rkv_bits(rkv_load32(b->qs + i / 2 * 32), 4 * (i % 2), 15);
}

static inline __m256i rkv_q5_k_codes(const void *block, int i)
{
    const rkv_q5_k *b = block;
    const __m256i low = rkv_bits(rkv_load32(b->qs + i / 2 * 32), 4 * (i % 2), 15);
    return _mm256_or_si256(low, rkv_bits(rkv_load32(b->qh), i - 4, 16));
}

static inline __m256i rkv_q6_k_codes(const void *block, int i)
{
    const rkv_q6_k *b = block;
    const int n = i / 4, r = i % 4;
    const __m256i low = rkv_bits(rkv_load32(b->ql + 64 * n + r % 2 * 32), r / 2 * 4, 15);
    return _mm256_or_si256(low, rkv_bits(rkv_load32(b->qh + 32 * n), 2 * r - 4, 48));
}

/* The table's values + 128. */
static inline __m256i rkv_iq4_values(__m256i code)
{
    const __m128i table = _mm_setr_epi8(RKV_IQ4_VALUES);
    const __m256i both = _mm256_broadcastsi128_si256(_mm_xor_si128(table, _mm_set1_epi8(-128)));
    return _mm256_shuffle_epi8(both, code);
}

static inline __m256i rkv_iq4_nl_codes(const void *block, int i)
{
    const rkv_iq4_nl *b = block;
    (void)i;
    return rkv_iq4_values(rkv_nibbles(b->qs));
}

static inline __m256i rkv_iq4_xs_codes(const void *block, int i)
{
    const rkv_iq4_xs *b = block;
    return rkv_iq4_values(rkv_nibbles(b->qs + 16 * i));
}

#endif
