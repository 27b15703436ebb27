/* unpack of every weight format with AVX2, and matvec of those that matvec16.c leaves. */
#include "config.h"
#include "kernels.h"

#include "vec/vec_avx2.h"

#define RKV_TIER(kernel) rkv_##kernel##_avx2
#define RKV_BLOCK_MATVEC(dt)
#include "tmpl/weights.h"

/* ---- four bits: each number apart; eight bytes give eight low and eight high ones ---- */

/* Eight bytes as numbers. */
static RKV_ALWAYS_INLINE __m256i bytes8(const uint8_t *p)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
}

static RKV_ALWAYS_INLINE __m256 nibble(const uint8_t *p, int high, int offset)
{
    const __m256i v = bytes8(p);
    const __m256i q = high ? _mm256_srli_epi32(v, 4) : _mm256_and_si256(v, _mm256_set1_epi32(15));
    return _mm256_cvtepi32_ps(offset ? _mm256_sub_epi32(q, _mm256_set1_epi32(offset)) : q);
}

static RKV_ALWAYS_INLINE rkv_w32 nibbles(const uint8_t *qs, int offset)
{
    return (rkv_w32){{nibble(qs, 0, offset), nibble(qs + 8, 0, offset), nibble(qs, 1, offset),
                      nibble(qs + 8, 1, offset)}};
}

static RKV_ALWAYS_INLINE rkv_w32 codes_q4_0(const void *block, const rkv_scales *p, int u, int i)
{
    const rkv_q4_0 *b = (const rkv_q4_0 *)block + u;
    (void)p, (void)i;
    return nibbles(b->qs, 8);
}

static RKV_ALWAYS_INLINE rkv_w32 codes_q4_1(const void *block, const rkv_scales *p, int u, int i)
{
    const rkv_q4_1 *b = (const rkv_q4_1 *)block + u;
    (void)p, (void)i;
    return nibbles(b->qs, 0);
}

static RKV_ALWAYS_INLINE rkv_w32 codes_q4_k(const void *block, const rkv_scales *p, int u, int i)
{
    const uint8_t *qs = ((const rkv_q4_k *)block)->qs + 32 * u;
    (void)p;
    return (rkv_w32){
        {nibble(qs, i, 0), nibble(qs + 8, i, 0), nibble(qs + 16, i, 0), nibble(qs + 24, i, 0)}};
}

/* ---- large blocks: 32 bytes, then numbers ---- */

/* Four bytes of either lane as floats, less an offset. */
static RKV_ALWAYS_INLINE __m256 widen8(__m256i code, int low, int high, int offset)
{
    const __m256i first = _mm256_setr_m128i(_mm_set1_epi32(low - 256), _mm_set1_epi32(high - 256));
    const __m256i place = _mm256_add_epi32(first, _mm256_setr_epi32(0, 1, 2, 3, 0, 1, 2, 3));
    const __m256i v = _mm256_shuffle_epi8(code, place); /* bytes 1 to 3 of each become zero */
    return _mm256_cvtepi32_ps(offset ? _mm256_sub_epi32(v, _mm256_set1_epi32(offset)) : v);
}

static RKV_ALWAYS_INLINE rkv_w32 widen(__m256i code, int offset)
{
    const __m256i a = _mm256_permute2x128_si256(code, code, 0x00);
    const __m256i b = _mm256_permute2x128_si256(code, code, 0x11);
    return (rkv_w32){{widen8(a, 0, 4, offset), widen8(a, 8, 12, offset), widen8(b, 0, 4, offset),
                      widen8(b, 8, 12, offset)}};
}

/* A format by its bytes. */
#define RKV_CODES(dt, offset) \
    static RKV_ALWAYS_INLINE rkv_w32 codes_##dt(const void *block, const rkv_scales *p, int u, \
                                                int i) \
    { \
        (void)p; \
        return widen(rkv_##dt##_codes(block, u, i), offset); \
    }
RKV_CODES(q2_k, 0)
RKV_CODES(q3_k, 4)
RKV_CODES(q5_k, 0)
RKV_CODES(q6_k, 32)

/* ---- 32 weights in 16 bytes: bytes in lane order, then numbers ---- */

/* In lane order, codes 0-3, 8-11, 16-19, 24-27 of 32 lie in the low lane and the others in the high
 * one, so that eight in sequence are one shuffle within the lanes away. */
static inline __m256i lane_nibbles(const uint8_t *qs)
{
    const __m256i order = _mm256_setr_epi32(0, 2, 0, 2, 1, 3, 1, 3);
    const __m256i up = _mm256_setr_epi32(0, 0, 4, 4, 0, 0, 4, 4);
    const __m256 both = _mm256_castsi256_ps(_mm256_broadcastsi128_si256(rkv_load16(qs)));
    const __m256i v = _mm256_castps_si256(_mm256_permutevar_ps(both, order));
    return _mm256_and_si256(_mm256_srlv_epi32(v, up), _mm256_set1_epi8(15));
}

/* 16 where a bit of 32 is set, else 0. */
static inline __m256i lane_fifths(const uint8_t *qh)
{
    const __m256i spread =
        _mm256_broadcastsi128_si256(_mm_setr_epi32(0, 0x01010101, 0x02020202, 0x03030303));
    const __m256i bit =
        _mm256_setr_m128i(_mm_set1_epi32(0x08040201), _mm_set1_epi32((int)0x80402010));
    const __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32((int)rkv_u32_at(qh)), spread);
    const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(v, bit), bit);
    return _mm256_and_si256(set, _mm256_set1_epi8(16));
}

static RKV_ALWAYS_INLINE rkv_w32 lane_widen(__m256i code, int offset)
{
    return (rkv_w32){{widen8(code, 0, 0, offset), widen8(code, 4, 4, offset),
                      widen8(code, 8, 8, offset), widen8(code, 12, 12, offset)}};
}

static RKV_ALWAYS_INLINE rkv_w32 codes_q5_0(const void *block, const rkv_scales *p, int u, int i)
{
    const rkv_q5_0 *b = (const rkv_q5_0 *)block + u;
    (void)p, (void)i;
    return lane_widen(_mm256_or_si256(lane_nibbles(b->qs), lane_fifths(b->qh)), 16);
}

static RKV_ALWAYS_INLINE rkv_w32 codes_q5_1(const void *block, const rkv_scales *p, int u, int i)
{
    const rkv_q5_1 *b = (const rkv_q5_1 *)block + u;
    (void)p, (void)i;
    return lane_widen(_mm256_or_si256(lane_nibbles(b->qs), lane_fifths(b->qh)), 0);
}

static RKV_ALWAYS_INLINE rkv_w32 lane_iq4(const uint8_t *qs)
{
    const __m128i table = _mm_xor_si128(rkv_iq4_table(), _mm_set1_epi8(-128)); /* + 128 */
    return lane_widen(_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), lane_nibbles(qs)),
                      128);
}

static RKV_ALWAYS_INLINE rkv_w32 codes_iq4_nl(const void *block, const rkv_scales *p, int u, int i)
{
    (void)p, (void)i;
    return lane_iq4(((const rkv_iq4_nl *)block)[u].qs);
}

static RKV_ALWAYS_INLINE rkv_w32 codes_iq4_xs(const void *block, const rkv_scales *p, int u, int i)
{
    (void)p, (void)i;
    return lane_iq4(((const rkv_iq4_xs *)block)->qs + 16 * u);
}

/* ---- numbers ---- */

static RKV_ALWAYS_INLINE rkv_w32 codes_q8_0(const void *block, const rkv_scales *p, int u, int i)
{
    const rkv_q8_0 *b = (const rkv_q8_0 *)block + u;
    rkv_w32 w;
    (void)p, (void)i;
    RKV_UNROLL(4)
    for (int k = 0; k < N_VEC; k++)
        w.v[k] = _mm256_cvtepi32_ps(
            _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(b->qs + 8 * k))));
    return w;
}

RKV_PLAIN(f32, float)
RKV_PLAIN(f16, uint16_t)
RKV_PLAIN(bf16, uint16_t)
RKV_SMALL(q4_0, 18, RKV_SCALE, rkv_small_scales)
RKV_SMALL(q4_1, 20, RKV_AFFINE, rkv_small_pairs)
RKV_SMALL(q5_0, 22, RKV_SCALE, rkv_small_scales)
RKV_SMALL(q5_1, 24, RKV_AFFINE, rkv_small_pairs)
RKV_SMALL(q8_0, 34, RKV_SCALE, rkv_small_scales)
RKV_LARGE(q2_k, 84, 128, 16, RKV_AFFINE, rkv_q2_k_scales)
RKV_LARGE(q3_k, 110, 128, 16, RKV_SCALE, rkv_q3_k_scales)
RKV_LARGE(q4_k, 144, 64, 32, RKV_AFFINE, rkv_q4_k_scales)
RKV_LARGE(q5_k, 176, 64, 32, RKV_AFFINE, rkv_q4_k_scales)
RKV_LARGE(q6_k, 210, 128, 16, RKV_SCALE, rkv_q6_k_scales)
RKV_SMALL(iq4_nl, 18, RKV_SCALE, rkv_small_scales)
RKV_LARGE(iq4_xs, 136, 32, 32, RKV_SCALE, rkv_iq4_xs_scales)
RKV_MATVEC(q2_k)
