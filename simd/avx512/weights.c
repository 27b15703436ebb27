/* unpack of every weight format with AVX-512, and matvec of plain numbers and q2_k: for the others
 * matvec of the avx2 tier is faster here, too, where there is no VNNI (integers of 16 bits against
 * floats; measured, Zen 5). */
#include "config.h"
#include "kernels.h"

#include "vec/vec_avx512.h"

#define RKV_TIER(kernel) rkv_##kernel##_avx512
#define RKV_BLOCK_MATVEC(dt)
#include "tmpl/weights.h"

/* 16 bytes as numbers. */
static RKV_ALWAYS_INLINE __m512i bytes16(const void *p)
{
    return _mm512_cvtepu8_epi32(rkv_load16(p));
}

/* ---- four bits: a table of 16 weights in a register ---- */

/* The weights of 16 low or high nibbles; a shuffle looks at four bits of each number only. */
static RKV_ALWAYS_INLINE vf look_up(vf table, const uint8_t *qs, int high)
{
    const __m512i v = bytes16(qs);
    return _mm512_permutexvar_ps(high ? _mm512_srli_epi32(v, 4) : v, table);
}

/* The numbers from first on. */
static RKV_ALWAYS_INLINE vf table_from(int first)
{
    const __m512i count =
        _mm512_cvtepi8_epi32(_mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    return _mm512_cvtepi32_ps(_mm512_add_epi32(count, _mm512_set1_epi32(first)));
}

static RKV_ALWAYS_INLINE vf table_iq4(void)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(rkv_iq4_table()));
}

static RKV_ALWAYS_INLINE rkv_w32 small_nibbles(vf table, const uint8_t *qs)
{
    return (rkv_w32){{look_up(table, qs, 0), look_up(table, qs, 1)}};
}

static RKV_ALWAYS_INLINE rkv_w32 codes_q4_0(const void *block, const rkv_scales *p, int u, int i)
{
    (void)i;
    return small_nibbles(v_mul(v_set(p->s[u]), table_from(-8)), ((const rkv_q4_0 *)block)[u].qs);
}

static RKV_ALWAYS_INLINE rkv_w32 codes_q4_1(const void *block, const rkv_scales *p, int u, int i)
{
    const vf table = v_fma(v_set(p->s[u]), table_from(0), v_set(p->o[u]));
    (void)i;
    return small_nibbles(table, ((const rkv_q4_1 *)block)[u].qs);
}

static RKV_ALWAYS_INLINE rkv_w32 codes_q4_k(const void *block, const rkv_scales *p, int u, int i)
{
    const uint8_t *qs = ((const rkv_q4_k *)block)->qs + 32 * u;
    const vf table = v_fma(v_set(p->s[2 * u + i]), table_from(0), v_set(p->o[2 * u + i]));
    return (rkv_w32){{look_up(table, qs, i), look_up(table, qs + 16, i)}};
}

static RKV_ALWAYS_INLINE rkv_w32 codes_iq4_nl(const void *block, const rkv_scales *p, int u, int i)
{
    (void)i;
    return small_nibbles(v_mul(v_set(p->s[u]), table_iq4()), ((const rkv_iq4_nl *)block)[u].qs);
}

static RKV_ALWAYS_INLINE rkv_w32 codes_iq4_xs(const void *block, const rkv_scales *p, int u, int i)
{
    (void)i;
    return small_nibbles(v_mul(v_set(p->s[u]), table_iq4()),
                         ((const rkv_iq4_xs *)block)->qs + 16 * u);
}

/* ---- five bits: the fifth from a mask ---- */

/* Nibbles and fifth bits, less 16 where signed_ is set. */
static RKV_ALWAYS_INLINE rkv_w32 small_fives(const uint8_t *qs, const uint8_t *qh, int signed_)
{
    const __m512i v = bytes16(qs), c = _mm512_set1_epi32(16);
    const __m512i low = _mm512_and_si512(v, _mm512_set1_epi32(15)), high = _mm512_srli_epi32(v, 4);
    const __mmask16 a = rkv_u16_at(qh), b = rkv_u16_at(qh + 2);
    if (!signed_)
        return (rkv_w32){{_mm512_cvtepi32_ps(_mm512_mask_add_epi32(low, a, low, c)),
                          _mm512_cvtepi32_ps(_mm512_mask_add_epi32(high, b, high, c))}};
    return (rkv_w32){{_mm512_cvtepi32_ps(_mm512_mask_sub_epi32(low, (__mmask16)~a, low, c)),
                      _mm512_cvtepi32_ps(_mm512_mask_sub_epi32(high, (__mmask16)~b, high, c))}};
}

static RKV_ALWAYS_INLINE rkv_w32 codes_q5_0(const void *block, const rkv_scales *p, int u, int i)
{
    const rkv_q5_0 *b = (const rkv_q5_0 *)block + u;
    (void)p, (void)i;
    return small_fives(b->qs, b->qh, 1);
}

static RKV_ALWAYS_INLINE rkv_w32 codes_q5_1(const void *block, const rkv_scales *p, int u, int i)
{
    const rkv_q5_1 *b = (const rkv_q5_1 *)block + u;
    (void)p, (void)i;
    return small_fives(b->qs, b->qh, 0);
}

/* ---- others: bytes, then numbers ---- */

/* 32 bytes as floats, less an offset. */
static RKV_ALWAYS_INLINE rkv_w32 widen(__m256i code, int offset)
{
    const __m256i v = _mm256_sub_epi8(code, _mm256_set1_epi8((char)offset));
    return (rkv_w32){{_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_castsi256_si128(v))),
                      _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_extracti128_si256(v, 1)))}};
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

static RKV_ALWAYS_INLINE rkv_w32 codes_q8_0(const void *block, const rkv_scales *p, int u, int i)
{
    (void)p, (void)i;
    return widen(rkv_load32(((const rkv_q8_0 *)block)[u].qs), 0);
}

RKV_PLAIN(f32, float)
RKV_PLAIN(f16, uint16_t)
RKV_PLAIN(bf16, uint16_t)
RKV_SMALL(q4_0, 18, RKV_WEIGHT, rkv_small_scales)
RKV_SMALL(q4_1, 20, RKV_WEIGHT, rkv_small_pairs)
RKV_SMALL(q5_0, 22, RKV_SCALE, rkv_small_scales)
RKV_SMALL(q5_1, 24, RKV_AFFINE, rkv_small_pairs)
RKV_SMALL(q8_0, 34, RKV_SCALE, rkv_small_scales)
RKV_LARGE(q2_k, 84, 128, 16, RKV_AFFINE, rkv_q2_k_scales)
RKV_LARGE(q3_k, 110, 128, 16, RKV_SCALE, rkv_q3_k_scales)
RKV_LARGE(q4_k, 144, 64, 32, RKV_WEIGHT, rkv_q4_k_scales)
RKV_LARGE(q5_k, 176, 64, 32, RKV_AFFINE, rkv_q4_k_scales)
RKV_LARGE(q6_k, 210, 128, 16, RKV_SCALE, rkv_q6_k_scales)
RKV_SMALL(iq4_nl, 18, RKV_WEIGHT, rkv_small_scales)
RKV_LARGE(iq4_xs, 136, 32, 32, RKV_WEIGHT, rkv_iq4_xs_scales)
RKV_MATVEC(q2_k)
