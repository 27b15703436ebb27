/* matvec of block formats with AVX-512 VNNI, on x rounded to 16 bits: code = 256 high + low, two
 * signed bytes, and vpdpbusd adds the products of 64 unsigned codes of weights with either.
 *
 * Codes of weights stay bytes. 64 of them are four parts of 16, one in each quarter of a register,
 * in the order in which the format's bytes fall apart; x is rounded into that order once. A sum of
 * four products has a lane, so that quarters or halves of a register share a scale. */
#include "config.h"
#include "kernels.h"

#include <math.h>
#include <string.h>

#include "vec/vec_avx512.h"

#include "attr.h"
#include "tmpl/codes.h"
#include "tmpl/steps16.h"

enum { TOP = 32639 }; /* largest code of x: 127 in both bytes */

/* x = scale code within every 32. */
typedef struct x16 {
    _Alignas(64) int8_t high[COLS], low[COLS]; /* in the order of the codes */
    _Alignas(64) int32_t lane[COLS / 4]; /* the offset times the sum of the lane's x */
    /* Of every 32, or with a scale for each 16 weights of every 16. */
    _Alignas(64) float scale[COLS / 16], sum[COLS / 16];
} x16;

/* What the quarters of the four registers of a step hold, as numbers of their 16 weights, and which
 * scales they have:
 *     SEQUENCE  in order; a scale for 32
 *     GROUPS    the same; a scale for 16
 *     NIBBLES   low nibbles of four blocks of 32, then the high ones, which share scales: 0 2 4 6,
 *               1 3 5 7, ...
 *     HALVES    low nibbles of 32 bytes belong to 32 weights, high ones to the next: 0 1 4 5, 2 3 6
 *               7, ...; a scale for 32 */
typedef enum order { SEQUENCE, GROUPS, NIBBLES, HALVES } order;

/* Codes of 128 weights. */
typedef struct codes {
    __m512i v[2];
} codes;

typedef struct format {
    int bytes, small; /* of a block; blocks of 32 weights rather than 256 */
    order order;
    int offset, affine; /* what a code exceeds its value by; weights are s code + o */
    /* Scales of a step's groups in order, and minima; of its first 4 blocks if n is 4. have: as for
     * dot_step in matvec16.h. */
    void (*scales)(__m512 *s, __m512 *o, const void *block, int n, int have);
    codes (*unit)(const void *block, int p, int have);
} format;

/* ---- x ---- */

/* Which 16 weights of a step quarter q of its registers holds. */
static RKV_ALWAYS_INLINE int part_of(order as, int q)
{
    const int c = q / 4, l = q % 4;
    return as == NIBBLES  ? c / 2 * 8 + 2 * l + c % 2
           : as == HALVES ? c / 2 * 8 + c % 2 * 2 + l / 2 * 4 + l % 2
                          : q;
}

/* Rounds 32 numbers; their scale, NaN where one of them is. */
static RKV_ALWAYS_INLINE float round32(__m512i q[2], const float *x)
{
    const float least = 0x1p-100f; /* below it the inverse of the scale would overflow */
    const __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
    const float found = v_top(_mm512_max_ps(_mm512_abs_ps(a), _mm512_abs_ps(b)));
    const float top = found > least ? found : least;
    const __m512 inverse = _mm512_set1_ps((float)TOP / top);
    q[0] = _mm512_cvtps_epi32(_mm512_mul_ps(a, inverse));
    q[1] = _mm512_cvtps_epi32(_mm512_mul_ps(b, inverse));
    return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q) ? NAN : top / (float)TOP;
}

/* Scale and sum of the 16 weights from `at` on; 32 share them where scales do. */
static RKV_ALWAYS_INLINE void note_part(const format *f, x16 *out, int at, float scale, int sum)
{
    const int g = f->order == GROUPS ? at / 16 : at / STEP * 16 + at % STEP / 32;
    out->scale[g] = scale;
    out->sum[g] += scale * (float)sum;
}

/* The lanes' offsets of a step; registers that share scales have one sum. */
static RKV_ALWAYS_INLINE void note_lanes(const format *f, x16 *out, int at)
{
    const __m512i o = _mm512_set1_epi8((char)f->offset);
    __m512i before = vi_zero();
    for (int c = 0; c < 4; c++) {
        const __m512i high = vi_load(out->high + at + 64 * c);
        const __m512i low = vi_load(out->low + at + 64 * c);
        __m512i sum = _mm512_slli_epi32(_mm512_dpbusd_epi32(vi_zero(), o, high), 8);
        sum = _mm512_dpbusd_epi32(sum, o, low);
        if (f->order == NIBBLES && c % 2)
            sum = _mm512_add_epi32(sum, before);
        before = sum;
        _mm512_store_si512(out->lane + at / 4 + 16 * (f->order == NIBBLES ? c / 2 : c), sum);
    }
}

/* n numbers, a multiple of 32, and zeros behind up to a whole step. */
static RKV_ALWAYS_INLINE void round_x(const format *f, x16 *out, const float *x, int n)
{
    int place[16]; /* where in a step its 16 numbers i go */
    for (int q = 0; q < 16; q++)
        place[part_of(f->order, q)] = 16 * q;
    for (int i = 0; i < n || i % STEP; i += 32) {
        __m512i q[2] = {vi_zero(), vi_zero()};
        const float scale = i < n ? round32(q, x + i) : 0.0f;
        if (i % STEP == 0) /* also of groups that there are not, which meet minima of 0 */
            _mm512_store_ps(out->sum + i / 16, v_zero());
        for (int k = 0; k < 2; k++) {
            const int at = i / STEP * STEP + place[i % STEP / 16 + k];
            const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(q[k], vi_set(128)), 8);
            const __m512i low = _mm512_sub_epi32(q[k], _mm512_slli_epi32(high, 8));
            _mm_store_si128((__m128i *)(out->high + at), _mm512_cvtepi32_epi8(high));
            _mm_store_si128((__m128i *)(out->low + at), _mm512_cvtepi32_epi8(low));
            note_part(f, out, i + 16 * k, scale, f->affine ? _mm512_reduce_add_epi32(q[k]) : 0);
        }
        if (f->offset && i % STEP == STEP - 32)
            note_lanes(f, out, i / STEP * STEP);
    }
}

/* ---- codes ---- */

static inline __m512i bytes(int v)
{
    return _mm512_set1_epi8((char)v);
}

/* Bits n .. of every byte moved to bit 0 .., and masked. */
static inline __m512i bits(__m512i v, unsigned n, int mask)
{
    return _mm512_and_si512(_mm512_srli_epi16(v, n), bytes(mask));
}

static inline codes of_nibbles(__m512i v)
{
    return (codes){{bits(v, 0, 15), bits(v, 4, 15)}};
}

/* Four small blocks of a step: what `first` is of the first, the places of all. */
typedef struct four {
    const uint8_t *at[4];
} four;

static RKV_ALWAYS_INLINE four four_of(const uint8_t *first, int bytes_of_block, int p, int have)
{
    four b;
    RKV_UNROLL(4)
    for (int i = 0; i < 4; i++)
        b.at[i] = first + block_of(4 * p + i, have) * bytes_of_block;
    return b;
}

/* 16 bytes of each. */
static RKV_ALWAYS_INLINE __m512i load_four(four b)
{
    __m512i v = _mm512_castsi128_si512(rkv_load16(b.at[0]));
    v = _mm512_mask_broadcast_i32x4(v, 0x00f0, rkv_load16(b.at[1]));
    v = _mm512_mask_broadcast_i32x4(v, 0x0f00, rkv_load16(b.at[2]));
    return _mm512_mask_broadcast_i32x4(v, 0xf000, rkv_load16(b.at[3]));
}

/* 32 bytes twice, those of the second half n bits down. */
static RKV_ALWAYS_INLINE __m512i twice(const uint8_t *p, int n)
{
    const __m512i v = _mm512_broadcast_i64x4(rkv_load32(p));
    return _mm512_mask_srli_epi16(v, 0xffff0000, v, (unsigned)n);
}

/* Nibbles v and the fifth bits of four blocks. */
static RKV_ALWAYS_INLINE codes of_fifth(__m512i v, four h)
{
    uint64_t low = 0, high = 0;
    RKV_UNROLL(4)
    for (int b = 0; b < 4; b++) {
        low |= (uint64_t)rkv_u16_at(h.at[b]) << 16 * b;
        high |= (uint64_t)rkv_u16_at(h.at[b] + 2) << 16 * b;
    }
    const codes q = of_nibbles(v);
    return (codes){{_mm512_mask_add_epi8(q.v[0], low, q.v[0], bytes(16)),
                    _mm512_mask_add_epi8(q.v[1], high, q.v[1], bytes(16))}};
}

/* Nibbles that stand for one of 16 values; codes are 128 more. */
static RKV_ALWAYS_INLINE codes of_table(__m512i v)
{
    const __m128i over = _mm_xor_si128(rkv_iq4_table(), _mm_set1_epi8(-128));
    const __m512i table = _mm512_broadcast_i32x4(over);
    const codes q = of_nibbles(v);
    return (codes){{_mm512_shuffle_epi8(table, q.v[0]), _mm512_shuffle_epi8(table, q.v[1])}};
}

/* Four small blocks, p of the fours; FOUR: a member of all. */
#define FOUR(member) four_of(b->member, sizeof *b, p, have)
#define RKV_UNIT_FOUR(dt, codes_of_four) \
    static RKV_ALWAYS_INLINE codes unit_##dt(const void *block, int p, int have) \
    { \
        const rkv_##dt *b = block; \
        return codes_of_four; \
    }
RKV_UNIT_FOUR(q4_0, of_nibbles(load_four(FOUR(qs))))
RKV_UNIT_FOUR(q4_1, of_nibbles(load_four(FOUR(qs))))
RKV_UNIT_FOUR(q5_0, of_fifth(load_four(FOUR(qs)), FOUR(qh)))
RKV_UNIT_FOUR(q5_1, of_fifth(load_four(FOUR(qs)), FOUR(qh)))
RKV_UNIT_FOUR(iq4_nl, of_table(load_four(FOUR(qs))))

static RKV_ALWAYS_INLINE __m512i two_q8_0(const rkv_q8_0 *b, int i, int have)
{
    const __m256i first = rkv_load32(b[block_of(i, have)].qs);
    const __m256i second = rkv_load32(b[block_of(i + 1, have)].qs);
    const __m512i v = _mm512_mask_broadcast_i64x4(_mm512_castsi256_si512(first), 0xf0, second);
    return _mm512_xor_si512(v, bytes(128));
}

static RKV_ALWAYS_INLINE codes unit_q8_0(const void *block, int p, int have)
{
    return (codes){{two_q8_0(block, 4 * p, have), two_q8_0(block, 4 * p + 2, have)}};
}

/* Weights 128 p .. of a large block. */
static RKV_ALWAYS_INLINE codes unit_iq4_xs(const void *block, int p, int have)
{
    (void)have;
    return of_table(vi_load(((const rkv_iq4_xs *)block)->qs + 64 * p));
}

static RKV_ALWAYS_INLINE codes unit_q4_k(const void *block, int p, int have)
{
    (void)have;
    return of_nibbles(vi_load(((const rkv_q4_k *)block)->qs + 64 * p));
}

/* v with the bits of `mask` in h. */
static inline __m512i with_bits(__m512i v, __m512i h, int mask)
{
    return _mm512_ternarylogic_epi32(v, h, bytes(mask), 0xf8); /* v | (h & mask) */
}

static RKV_ALWAYS_INLINE codes unit_q5_k(const void *block, int p, int have)
{
    const rkv_q5_k *b = block;
    (void)have;
    const codes q = of_nibbles(vi_load(b->qs + 64 * p));
    const __m512i h = twice(b->qh, 2); /* bits 4 p and 4 p + 1, two lower in the second half */
    const __m512i low = p ? h : _mm512_slli_epi16(h, 4);
    const __m512i high = p ? _mm512_srli_epi16(h, 1) : _mm512_slli_epi16(h, 3);
    return (codes){{with_bits(q.v[0], low, 16), with_bits(q.v[1], high, 16)}};
}

static RKV_ALWAYS_INLINE codes unit_q2_k(const void *block, int p, int have)
{
    (void)have;
    const __m512i v = twice(((const rkv_q2_k *)block)->qs + 32 * p, 2);
    return (codes){{bits(v, 0, 3), bits(v, 4, 3)}};
}

static RKV_ALWAYS_INLINE codes unit_q3_k(const void *block, int p, int have)
{
    const rkv_q3_k *b = block;
    (void)have;
    const __m512i v = twice(b->qs + 32 * p, 2), h = twice(b->hmask, 1);
    const __m512i low = p ? _mm512_srli_epi16(h, 2) : _mm512_slli_epi16(h, 2);
    const __m512i high = p ? _mm512_srli_epi16(h, 4) : h;
    return (codes){{with_bits(bits(v, 0, 3), low, 4), with_bits(bits(v, 4, 3), high, 4)}};
}

static RKV_ALWAYS_INLINE codes unit_q6_k(const void *block, int p, int have)
{
    const rkv_q6_k *b = block;
    (void)have;
    const codes q = of_nibbles(vi_load(b->ql + 64 * p));
    const __m512i h = twice(b->qh + 32 * p, 2);
    return (codes){{with_bits(q.v[0], _mm512_slli_epi16(h, 4), 48), with_bits(q.v[1], h, 48)}};
}

/* ---- scales ---- */

/* The numbers of binary16 at the same place of n blocks. */
static RKV_ALWAYS_INLINE __m512 half_lanes(const void *first, int step, const int n, int have)
{
    const uint8_t *b = first;
    uint64_t lane[2] = {0, 0};
    RKV_UNROLL(8)
    for (int i = 0; i < n; i++)
        lane[i / 4] |= (uint64_t)rkv_u16_at(b + block_of(i, have) * step) << 16 * (i % 4);
    RKV_INTEGERS(lane[0], lane[1]);
    const __m128i half = _mm_set_epi64x((long long)lane[1], (long long)lane[0]);
    return _mm512_zextps256_ps512(_mm256_cvtph_ps(half));
}

static RKV_ALWAYS_INLINE __m512 of_bytes(__m128i v, const uint8_t *d)
{
    return _mm512_mul_ps(_mm512_set1_ps(rkv_half(d)), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(v)));
}

/* Bytes 0 .. 7 alone. */
static RKV_ALWAYS_INLINE __m512 of_low_bytes(__m128i v, const uint8_t *d)
{
    return of_bytes(_mm_move_epi64(v), d);
}

#define RKV_SMALL_SCALES(dt) \
    static RKV_ALWAYS_INLINE void scales_##dt(__m512 *s, __m512 *o, const void *block, int n, \
                                              int have) \
    { \
        (void)o; \
        *s = half_lanes(block, (int)sizeof(rkv_##dt), n, have); \
    }
#define RKV_SMALL_PAIRS(dt) \
    static RKV_ALWAYS_INLINE void scales_##dt(__m512 *s, __m512 *o, const void *block, int n, \
                                              int have) \
    { \
        *s = half_lanes(((const rkv_##dt *)block)->d, (int)sizeof(rkv_##dt), n, have); \
        *o = half_lanes(((const rkv_##dt *)block)->m, (int)sizeof(rkv_##dt), n, have); \
    }
RKV_SMALL_SCALES(q4_0)
RKV_SMALL_PAIRS(q4_1)
RKV_SMALL_SCALES(q5_0)
RKV_SMALL_PAIRS(q5_1)
RKV_SMALL_SCALES(q8_0)
RKV_SMALL_SCALES(iq4_nl)

static inline __m512 negative(__m512 a)
{
    return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f));
}

static RKV_ALWAYS_INLINE void scales_q4_k(__m512 *s, __m512 *o, const void *block, int n, int have)
{
    const rkv_q4_k *b = block;
    (void)n, (void)have;
    const __m128i v = rkv_q4_k_scale_bytes(b);
    *s = of_low_bytes(v, b->d);
    *o = negative(of_low_bytes(_mm_srli_si128(v, 8), b->dmin));
}

/* The same scales come first. */
static RKV_ALWAYS_INLINE void scales_q5_k(__m512 *s, __m512 *o, const void *block, int n, int have)
{
    scales_q4_k(s, o, block, n, have);
}

static RKV_ALWAYS_INLINE void scales_q2_k(__m512 *s, __m512 *o, const void *block, int n, int have)
{
    const rkv_q2_k *b = block;
    (void)n, (void)have;
    const __m128i v = rkv_load16(b->scales), low = _mm_set1_epi8(15);
    *s = of_bytes(_mm_and_si128(v, low), b->d);
    *o = negative(of_bytes(_mm_and_si128(_mm_srli_epi16(v, 4), low), b->dmin));
}

static RKV_ALWAYS_INLINE void scales_q3_k(__m512 *s, __m512 *o, const void *block, int n, int have)
{
    const rkv_q3_k *b = block;
    (void)o, (void)n, (void)have;
    *s = of_bytes(rkv_q3_k_scale_bytes(b), b->d);
}

static RKV_ALWAYS_INLINE void scales_q6_k(__m512 *s, __m512 *o, const void *block, int n, int have)
{
    const rkv_q6_k *b = block;
    (void)o, (void)n, (void)have;
    *s = of_bytes(rkv_load16(b->scales), b->d);
}

static RKV_ALWAYS_INLINE void scales_iq4_xs(__m512 *s, __m512 *o, const void *block, int n,
                                            int have)
{
    const rkv_iq4_xs *b = block;
    (void)o, (void)n, (void)have;
    *s = of_low_bytes(rkv_iq4_xs_scale_bytes(b), b->d);
}

/* ---- products ---- */

/* Of each input: sums in two chains, so that the core can work further ahead, and of minima. */
typedef struct sums {
    __m512 v[INPUTS][2], o[INPUTS];
} sums;

static RKV_ALWAYS_INLINE void start(sums *acc, int j)
{
    acc->v[j][0] = acc->v[j][1] = acc->o[j] = v_zero();
}

static RKV_ALWAYS_INLINE float total(const format *f, const sums *acc, int j)
{
    const __m512 both = v_add(acc->v[j][0], acc->v[j][1]);
    return v_sum(f->affine ? v_add(both, acc->o[j]) : both);
}

/* Scales of the lanes of register c of a step. */
static RKV_ALWAYS_INLINE __m512 spread(order as, __m512 s, int c)
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i quarter = _mm512_srli_epi32(lane, 2), half = _mm512_srli_epi32(lane, 3);
    const __m512i at = as == GROUPS    ? _mm512_add_epi32(quarter, vi_set(4 * c))
                       : as == NIBBLES ? _mm512_add_epi32(quarter, vi_set(c / 2 * 4))
                       : as == HALVES
                           ? _mm512_add_epi32(_mm512_slli_epi32(half, 1), vi_set(c / 2 * 4 + c % 2))
                           : _mm512_add_epi32(half, vi_set(2 * c));
    return _mm512_permutexvar_ps(at, s);
}

/* n <= 2 registers of codes times x, whose places begin at `at`: sums of each lane, below 2^27. */
static RKV_ALWAYS_INLINE __m512i dot(const __m512i *w, const x16 *x, int at, const int n)
{
    __m512i sum = _mm512_dpbusd_epi32(vi_zero(), w[0], vi_load(x->high + at));
    if (n == 2)
        sum = _mm512_dpbusd_epi32(sum, w[1], vi_load(x->high + at + 64));
    sum = _mm512_dpbusd_epi32(_mm512_slli_epi32(sum, 8), w[0], vi_load(x->low + at));
    return n == 2 ? _mm512_dpbusd_epi32(sum, w[1], vi_load(x->low + at + 64)) : sum;
}

static RKV_ALWAYS_INLINE void dot_step(const format *f, sums *acc, const char *block, const x16 *x,
                                       const int n_x, int i0, const int n, int have)
{
    const int n_one = f->order == NIBBLES ? 2 : 1; /* registers that share scales */
    const int g0 = i0 / 16;
    __m512 s = v_zero(), o = v_zero(), by[INPUTS];
    f->scales(&s, &o, block, n / 32, have);
    RKV_UNROLL(8)
    for (int j = 0; j < n_x; j++) {
        by[j] = v_mul(s, v_load(x[j].scale + g0));
        if (f->affine)
            acc->o[j] = v_fma(o, v_load(x[j].sum + g0), acc->o[j]);
    }
    RKV_UNROLL(8)
    for (int p = 0; p < n / 128; p++) {
        const codes w = f->unit(block, p, have);
        RKV_UNROLL(8)
        for (int k = 0; k < 2; k += n_one) {
            const int c = 2 * p + k;
            RKV_UNROLL(8)
            for (int j = 0; j < n_x; j++) {
                __m512i sum = dot(w.v + k, &x[j], i0 + 64 * c, n_one);
                if (f->offset)
                    sum = _mm512_sub_epi32(sum, vi_load(x[j].lane + i0 / 4 + 16 * (c / n_one)));
                acc->v[j][c / n_one % 2] = v_fma(spread(f->order, by[j], c), v_from_int(sum),
                                                 acc->v[j][c / n_one % 2]);
            }
        }
    }
}

#include "tmpl/matvec16.h"

#define RKV_MATVEC16(dt, small, order, offset, affine) \
    static const format format_##dt = {(int)sizeof(rkv_##dt), small, order, offset, affine, \
                                       scales_##dt, unit_##dt}; \
    RKV_PROTO_matvec(rkv_matvec_##dt##_vnni) \
    { \
        matvec16(&format_##dt, y, ldy, w, w_stride, x, ldx, n_x, n_out, n_in); \
    }
RKV_MATVEC16(q4_0, 1, NIBBLES, 8, 0)
RKV_MATVEC16(q4_1, 1, NIBBLES, 0, 1)
RKV_MATVEC16(q5_0, 1, NIBBLES, 16, 0)
RKV_MATVEC16(q5_1, 1, NIBBLES, 0, 1)
RKV_MATVEC16(q8_0, 1, SEQUENCE, 128, 0)
RKV_MATVEC16(iq4_nl, 1, NIBBLES, 128, 0)
RKV_MATVEC16(q2_k, 0, GROUPS, 0, 1)
RKV_MATVEC16(q3_k, 0, GROUPS, 4, 0)
RKV_MATVEC16(q4_k, 0, HALVES, 0, 1)
RKV_MATVEC16(q5_k, 0, HALVES, 0, 1)
RKV_MATVEC16(q6_k, 0, GROUPS, 32, 0)
RKV_MATVEC16(iq4_xs, 0, NIBBLES, 128, 0)
