/* matvec of block formats with AVX2, on x rounded to 16 bits: pairs of products are added as
 * integers (vpmaddwd), twice as many at a time as floats.
 *
 * Two groups of weights with a scale each share a register, one in either half, so that conversion
 * and scaling serve both. Weights meet x in the order in which bytes fall apart into words: those
 * at even places, then those at odd ones; x is rounded into that order once. */
#include "config.h"
#include "kernels.h"

#include <math.h>

#include "vec/vec_avx2.h"

#include "attr.h"
#include "tmpl/codes.h"
#include "tmpl/steps16.h"

enum { TOP = 32767 }; /* largest code of x */

/* x = scale code within every 32. A unit of weights is 64 or 32 of them, with a sum of products for
 * its first scale in the low four lanes and for its second in the high ones. */
typedef struct x16 {
    _Alignas(32) int16_t code[COLS]; /* in the order of the units */
    _Alignas(32) int32_t lane[COLS / 4]; /* of a unit: the offset times the sum of the lane's x */
    /* Of every 32, in the order of the lanes within a step. */
    _Alignas(32) float scale[COLS / 32], sum[COLS / 32];
} x16;

/* Where the x of 64 weights lie: of 0 .. 15 of two blocks those at even places, those at odd ones,
 * then the same of 16 .. 31; or of each block those at even places and those at odd ones. */
typedef enum order { BLOCK_PAIRS, BLOCKS } order;

/* Words of a unit's codes, to meet x in its order; two of them in a unit of 32. */
typedef struct codes {
    __m256i v[4];
} codes;

typedef struct format {
    int bytes, small; /* of a block; blocks of 32 weights rather than 256 */
    int width;        /* weights of a unit: 64, or 32 with a scale per 16 */
    order order;
    int offset, affine; /* what a code exceeds its value by; weights are s code + o */
    /* Scales of n blocks, and minima, lane by lane: 0 2 4 6 1 3 5 7; those of 16 groups in two.
     * have: as for dot_step in matvec16.h. */
    void (*scales)(__m256 s[2], __m256 *o, const void *block, int n, int have);
    codes (*unit)(const void *block, int p, int have);
} format;

/* ---- x ---- */

static RKV_ALWAYS_INLINE float largest(const __m256 v[4])
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    __m256 m = _mm256_setzero_ps();
    RKV_UNROLL(4)
    for (int k = 0; k < 4; k++)
        m = _mm256_max_ps(m, _mm256_andnot_ps(sign, v[k]));
    return v_top(m);
}

static inline int sum8(__m256i v)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

/* Words of v as int32, those at even places. */
static inline __m256i even_words(__m256i v)
{
    return _mm256_srai_epi32(_mm256_slli_epi32(v, 16), 16);
}

/* Codes of 32 numbers in order to those at even places and those at odd ones. */
static inline void fall_apart(__m256i out[2], __m256i low, __m256i high)
{
    const __m256i even = _mm256_packs_epi32(even_words(low), even_words(high));
    const __m256i odd =
        _mm256_packs_epi32(_mm256_srai_epi32(low, 16), _mm256_srai_epi32(high, 16));
    out[0] = _mm256_permute4x64_epi64(even, 0xd8);
    out[1] = _mm256_permute4x64_epi64(odd, 0xd8);
}

/* Whether one of the 32 is NaN. */
static RKV_ALWAYS_INLINE int any_nan(const __m256 v[4])
{
    return _mm256_movemask_ps(_mm256_or_ps(_mm256_cmp_ps(v[0], v[1], _CMP_UNORD_Q),
                                           _mm256_cmp_ps(v[2], v[3], _CMP_UNORD_Q)));
}

/* Rounds 32 numbers to q; their scale, NaN where one of them is, and the sum of their codes. */
static RKV_ALWAYS_INLINE float round32(__m256i q[2], int *sum, const float *x)
{
    const float least = 0x1p-100f; /* below it the inverse of the scale would overflow */
    const __m256 v[4] = {_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8), _mm256_loadu_ps(x + 16),
                         _mm256_loadu_ps(x + 24)};
    const float found = largest(v), top = found > least ? found : least;
    const __m256 inverse = _mm256_set1_ps((float)TOP / top);
    __m256i code[4], all = _mm256_setzero_si256();
    RKV_UNROLL(4)
    for (int k = 0; k < 4; k++) {
        code[k] = _mm256_cvtps_epi32(_mm256_mul_ps(v[k], inverse));
        all = _mm256_add_epi32(all, code[k]);
    }
    const __m256i low = _mm256_packs_epi32(code[0], code[1]);
    const __m256i high = _mm256_packs_epi32(code[2], code[3]);
    fall_apart(q, _mm256_permute4x64_epi64(low, 0xd8), _mm256_permute4x64_epi64(high, 0xd8));
    *sum = sum8(all);
    return any_nan(v) ? NAN : top / (float)TOP;
}

static inline void store32(void *to, __m256i v)
{
    _mm256_store_si256((__m256i *)to, v);
}

static inline __m256i low_lanes(__m256i a, __m256i b)
{
    return _mm256_permute2x128_si256(a, b, 0x20);
}

static inline __m256i high_lanes(__m256i a, __m256i b)
{
    return _mm256_permute2x128_si256(a, b, 0x31);
}

/* Codes of 64 numbers in the format's order. */
static RKV_ALWAYS_INLINE void store64(const format *f, x16 *out, int i, const __m256i a[2],
                                      const __m256i b[2])
{
    const int pairs = f->order == BLOCK_PAIRS;
    const __m256i q[4] = {
        pairs ? low_lanes(a[0], b[0]) : a[0], pairs ? low_lanes(a[1], b[1]) : a[1],
        pairs ? high_lanes(a[0], b[0]) : b[0], pairs ? high_lanes(a[1], b[1]) : b[1]};
    const __m256i o = _mm256_set1_epi16((short)f->offset);
    __m256i sum[4];
    RKV_UNROLL(4)
    for (int k = 0; k < 4; k++) {
        store32(out->code + i + 16 * k, q[k]);
        sum[k] = _mm256_madd_epi16(q[k], o);
    }
    const __m256i first = _mm256_add_epi32(sum[0], sum[1]);
    const __m256i second = _mm256_add_epi32(sum[2], sum[3]);
    int32_t *lane = out->lane + i / f->width * 8;
    store32(lane, f->width == 64 ? _mm256_add_epi32(first, second) : first);
    if (f->width == 32)
        store32(lane + 8, second);
}

/* n numbers, a multiple of 32, and zeros behind up to a whole step. */
static RKV_ALWAYS_INLINE void round_x(const format *f, x16 *out, const float *x, int n)
{
    for (int i = 0; i < n || i % STEP; i += 64) {
        __m256i q[2][2];
        RKV_UNROLL(2)
        for (int k = 0; k < 2; k++) {
            const int b = (i / 32 + k) % 8, lane = f->width == 64 ? b % 2 * 4 + b / 2 : b;
            const int at = i / STEP * 8 + lane;
            int sum = 0;
            q[k][0] = q[k][1] = _mm256_setzero_si256();
            out->scale[at] = i + 32 * k < n ? round32(q[k], &sum, x + i + 32 * k) : 0.0f;
            out->sum[at] = out->scale[at] * (float)sum;
        }
        store64(f, out, i, q[0], q[1]);
    }
}

/* ---- codes ---- */

static inline __m256i words(int v)
{
    return _mm256_set1_epi16((short)v);
}

static inline codes of_unsigned(__m256i low, __m256i high)
{
    return (codes){{_mm256_and_si256(low, words(255)), _mm256_srli_epi16(low, 8),
                    _mm256_and_si256(high, words(255)), _mm256_srli_epi16(high, 8)}};
}

static inline codes of_signed(__m256i low, __m256i high)
{
    return (codes){{_mm256_srai_epi16(_mm256_slli_epi16(low, 8), 8), _mm256_srai_epi16(low, 8),
                    _mm256_srai_epi16(_mm256_slli_epi16(high, 8), 8), _mm256_srai_epi16(high, 8)}};
}

/* The low nibbles of bytes, then the high ones. */
static inline codes of_nibbles(__m256i v)
{
    const __m256i low = words(15);
    return (codes){{_mm256_and_si256(v, low), _mm256_and_si256(_mm256_srli_epi16(v, 8), low),
                    _mm256_and_si256(_mm256_srli_epi16(v, 4), low), _mm256_srli_epi16(v, 12)}};
}

/* 16 bytes of two blocks. */
static inline __m256i two_blocks(const void *first, const void *second)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(rkv_load16(first)), rkv_load16(second),
                                   1);
}

/* 16 in byte j where bit j of the 16 bits from byte `from` of a half on is set. */
static inline __m256i fifth_bits(__m256i v, int from)
{
    const int a = from * 0x01010101, b = a + 0x01010101;
    const __m256i place = _mm256_setr_epi32(a, a, b, b, a, a, b, b);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201u);
    const __m256i found = _mm256_and_si256(_mm256_shuffle_epi8(v, place), bit);
    return _mm256_and_si256(_mm256_cmpeq_epi8(found, bit), _mm256_set1_epi8(16));
}

/* Nibbles v and fifth bits h of two blocks. */
static inline codes of_fifth(__m256i v, __m256i h)
{
    return of_unsigned(_mm256_or_si256(rkv_bits(v, 0, 15), fifth_bits(h, 0)),
                       _mm256_or_si256(rkv_bits(v, 4, 15), fifth_bits(h, 2)));
}

/* Nibbles that stand for one of 16 values. */
static inline codes of_table(__m256i v)
{
    const __m256i table = _mm256_broadcastsi128_si256(rkv_iq4_table());
    return of_signed(_mm256_shuffle_epi8(table, rkv_bits(v, 0, 15)),
                     _mm256_shuffle_epi8(table, rkv_bits(v, 4, 15)));
}

/* Two small blocks, p of the pairs. */
#define RKV_UNIT_PAIR(dt, codes_of_pair) \
    static RKV_ALWAYS_INLINE codes unit_##dt(const void *block, int p, int have) \
    { \
        const rkv_##dt *a = (const rkv_##dt *)block + block_of(2 * p, have); \
        const rkv_##dt *b = (const rkv_##dt *)block + block_of(2 * p + 1, have); \
        return codes_of_pair; \
    }
RKV_UNIT_PAIR(q4_0, of_nibbles(two_blocks(a->qs, b->qs)))
RKV_UNIT_PAIR(q4_1, of_nibbles(two_blocks(a->qs, b->qs)))
RKV_UNIT_PAIR(q5_0, of_fifth(two_blocks(a->qs, b->qs), two_blocks(a->qh, b->qh)))
RKV_UNIT_PAIR(q5_1, of_fifth(two_blocks(a->qs, b->qs), two_blocks(a->qh, b->qh)))
RKV_UNIT_PAIR(q8_0, of_signed(two_blocks(a->qs, b->qs), two_blocks(a->qs + 16, b->qs + 16)))
RKV_UNIT_PAIR(iq4_nl, of_table(two_blocks(a->qs, b->qs)))

/* Weights 64 p .. of a large block. */
static RKV_ALWAYS_INLINE codes unit_iq4_xs(const void *block, int p, int have)
{
    (void)have;
    const uint8_t *qs = ((const rkv_iq4_xs *)block)->qs + 32 * p;
    return of_table(two_blocks(qs, qs + 16));
}

static RKV_ALWAYS_INLINE codes unit_q4_k(const void *block, int p, int have)
{
    (void)have;
    return of_nibbles(rkv_load32(((const rkv_q4_k *)block)->qs + 32 * p));
}

static RKV_ALWAYS_INLINE codes unit_q5_k(const void *block, int p, int have)
{
    (void)have;
    return of_unsigned(rkv_q5_k_codes(block, p, 0), rkv_q5_k_codes(block, p, 1));
}

/* Weights 32 p .. of a large block; nothing in the second half. */
static RKV_ALWAYS_INLINE codes unit_q3_k(const void *block, int p, int have)
{
    (void)have;
    return of_unsigned(rkv_q3_k_codes(block, p / 4, p % 4), _mm256_setzero_si256());
}

static RKV_ALWAYS_INLINE codes unit_q6_k(const void *block, int p, int have)
{
    (void)have;
    return of_unsigned(rkv_q6_k_codes(block, p / 4, p % 4), _mm256_setzero_si256());
}

/* ---- scales ---- */

/* The numbers of binary16 at the same place of n blocks, lane by lane; 0 from there on. */
static RKV_ALWAYS_INLINE __m256 half_lanes(const void *first, int bytes, const int n, int have)
{
    const uint8_t *b = first;
    uint64_t lane[2] = {0, 0};
    RKV_UNROLL(8)
    for (int i = 0; i < n; i++)
        lane[i % 2] |= (uint64_t)rkv_u16_at(b + block_of(i, have) * bytes) << 16 * (i / 2);
    RKV_INTEGERS(lane[0], lane[1]);
    return _mm256_cvtph_ps(_mm_set_epi64x((long long)lane[1], (long long)lane[0]));
}

/* The signed bytes 0 .. 7 of v from `from` on, lane by lane. */
static RKV_ALWAYS_INLINE __m256 byte_lanes(__m256i v, int from)
{
    const int top = (int)((unsigned)from << 24 | 0x808080);
    const __m256i place =
        _mm256_add_epi32(_mm256_set1_epi32(top), _mm256_setr_epi32(0, 2 << 24, 4 << 24, 6 << 24,
                                                                   1 << 24, 3 << 24, 5 << 24,
                                                                   7 << 24));
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_shuffle_epi8(v, place), 24));
}

static inline __m256 half_all(const uint8_t *p)
{
    return _mm256_set1_ps(rkv_half(p));
}

#define RKV_SMALL_SCALES(dt) \
    static RKV_ALWAYS_INLINE void scales_##dt(__m256 s[2], __m256 *o, const void *block, int n, \
                                              int have) \
    { \
        (void)o; \
        s[0] = half_lanes(block, (int)sizeof(rkv_##dt), n, have); \
    }
#define RKV_SMALL_PAIRS(dt) \
    static RKV_ALWAYS_INLINE void scales_##dt(__m256 s[2], __m256 *o, const void *block, int n, \
                                              int have) \
    { \
        s[0] = half_lanes(((const rkv_##dt *)block)->d, (int)sizeof(rkv_##dt), n, have); \
        *o = half_lanes(((const rkv_##dt *)block)->m, (int)sizeof(rkv_##dt), n, have); \
    }
RKV_SMALL_SCALES(q4_0)
RKV_SMALL_PAIRS(q4_1)
RKV_SMALL_SCALES(q5_0)
RKV_SMALL_PAIRS(q5_1)
RKV_SMALL_SCALES(q8_0)
RKV_SMALL_SCALES(iq4_nl)

static RKV_ALWAYS_INLINE void scales_q4_k(__m256 s[2], __m256 *o, const void *block, int n,
                                          int have)
{
    const rkv_q4_k *b = block;
    (void)n, (void)have;
    const __m256i v = _mm256_broadcastsi128_si256(rkv_q4_k_scale_bytes(b));
    s[0] = _mm256_mul_ps(half_all(b->d), byte_lanes(v, 0));
    *o = _mm256_mul_ps(half_all(b->dmin), byte_lanes(v, 8));
    *o = _mm256_xor_ps(*o, _mm256_set1_ps(-0.0f));
}

/* The same scales come first. */
static RKV_ALWAYS_INLINE void scales_q5_k(__m256 s[2], __m256 *o, const void *block, int n,
                                          int have)
{
    scales_q4_k(s, o, block, n, have);
}

static RKV_ALWAYS_INLINE void scales_16(__m256 s[2], const uint8_t *d, __m128i bytes)
{
    const __m256i v = _mm256_broadcastsi128_si256(bytes);
    s[0] = _mm256_mul_ps(half_all(d), byte_lanes(v, 0));
    s[1] = _mm256_mul_ps(half_all(d), byte_lanes(v, 8));
}

static RKV_ALWAYS_INLINE void scales_q3_k(__m256 s[2], __m256 *o, const void *block, int n,
                                          int have)
{
    const rkv_q3_k *b = block;
    (void)o, (void)n, (void)have;
    scales_16(s, b->d, rkv_q3_k_scale_bytes(b));
}

static RKV_ALWAYS_INLINE void scales_q6_k(__m256 s[2], __m256 *o, const void *block, int n,
                                          int have)
{
    const rkv_q6_k *b = block;
    (void)o, (void)n, (void)have;
    scales_16(s, b->d, rkv_load16(b->scales));
}

static RKV_ALWAYS_INLINE void scales_iq4_xs(__m256 s[2], __m256 *o, const void *block, int n,
                                            int have)
{
    const rkv_iq4_xs *b = block;
    (void)o, (void)n, (void)have;
    const __m256i v = _mm256_broadcastsi128_si256(rkv_iq4_xs_scale_bytes(b));
    s[0] = _mm256_mul_ps(half_all(b->d), byte_lanes(v, 0));
}

/* ---- products ---- */

/* Lane p of either half of v in all lanes of that half. */
static RKV_ALWAYS_INLINE __m256 spread(__m256 v, int p)
{
    return p == 0   ? _mm256_permute_ps(v, 0x00)
           : p == 1 ? _mm256_permute_ps(v, 0x55)
           : p == 2 ? _mm256_permute_ps(v, 0xaa)
                    : _mm256_permute_ps(v, 0xff);
}

/* Words a and b times the 32 numbers from x on. */
static RKV_ALWAYS_INLINE __m256i dot32(__m256i a, __m256i b, const int16_t *x)
{
    return _mm256_add_epi32(_mm256_madd_epi16(a, rkv_load32(x)),
                            _mm256_madd_epi16(b, rkv_load32(x + 16)));
}

/* A unit times x: the sum of its first scale in the low half, that of its second in the high one.
 * Both stay below 2^29. */
static RKV_ALWAYS_INLINE __m256i dot_unit(const format *f, const codes *w, const int16_t *x)
{
    const __m256i a = dot32(w->v[0], w->v[1], x);
    if (f->width == 32)
        return a;
    const __m256i b = dot32(w->v[2], w->v[3], x + 32);
    return f->order == BLOCK_PAIRS ? _mm256_add_epi32(a, b)
                                   : _mm256_add_epi32(low_lanes(a, b), high_lanes(a, b));
}

/* Sums of n_x inputs, in two chains each: the core can work further ahead. */
typedef struct sums {
    __m256 v[INPUTS][2];
} sums;

static RKV_ALWAYS_INLINE void start(sums *acc, int j)
{
    acc->v[j][0] = acc->v[j][1] = _mm256_setzero_ps();
}

static RKV_ALWAYS_INLINE float total(const format *f, const sums *acc, int j)
{
    (void)f;
    return v_sum(_mm256_add_ps(acc->v[j][0], acc->v[j][1]));
}

static RKV_ALWAYS_INLINE void dot_step(const format *f, sums *acc, const char *block, const x16 *x,
                                       const int n_x, int i0, const int n, int have)
{
    __m256 s[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()}, o = _mm256_setzero_ps();
    __m256 by[INPUTS][2];
    f->scales(s, &o, block, n / 32, have);
    RKV_UNROLL(8)
    for (int j = 0; j < n_x; j++) {
        const __m256 xs = _mm256_load_ps(x[j].scale + i0 / 32);
        if (f->affine)
            acc->v[j][0] = _mm256_fmadd_ps(o, _mm256_load_ps(x[j].sum + i0 / 32), acc->v[j][0]);
        if (f->width == 64) {
            by[j][0] = _mm256_mul_ps(s[0], xs);
        } else {
            by[j][0] = _mm256_mul_ps(s[0], _mm256_permute2f128_ps(xs, xs, 0x00));
            by[j][1] = _mm256_mul_ps(s[1], _mm256_permute2f128_ps(xs, xs, 0x11));
        }
    }
    const unsigned first = (unsigned)i0 / (unsigned)f->width * 8;
    const int n_unit = n / f->width;
    RKV_UNROLL(8)
    for (int p = 0; p < n_unit; p++) {
        const codes w = f->unit(block, p, have);
        RKV_UNROLL(8)
        for (int j = 0; j < n_x; j++) {
            __m256i sum = dot_unit(f, &w, x[j].code + i0 + p * f->width);
            if (f->offset)
                sum = _mm256_sub_epi32(sum, rkv_load32(x[j].lane + first + 8 * p));
            acc->v[j][p % 2] = _mm256_fmadd_ps(spread(by[j][p / 4], p % 4), _mm256_cvtepi32_ps(sum),
                                               acc->v[j][p % 2]);
        }
    }
}

#include "tmpl/matvec16.h"

#define RKV_MATVEC16(dt, small, width, order, offset, affine) \
    static const format format_##dt = {(int)sizeof(rkv_##dt), small, width, order, offset, affine, \
                                       scales_##dt, unit_##dt}; \
    RKV_PROTO_matvec(rkv_matvec_##dt##_avx2) \
    { \
        matvec16(&format_##dt, y, ldy, w, w_stride, x, ldx, n_x, n_out, n_in); \
    }
RKV_MATVEC16(q4_0, 1, 64, BLOCK_PAIRS, 8, 0)
RKV_MATVEC16(q4_1, 1, 64, BLOCK_PAIRS, 0, 1)
RKV_MATVEC16(q5_0, 1, 64, BLOCK_PAIRS, 16, 0)
RKV_MATVEC16(q5_1, 1, 64, BLOCK_PAIRS, 0, 1)
RKV_MATVEC16(q8_0, 1, 64, BLOCK_PAIRS, 0, 0)
RKV_MATVEC16(iq4_nl, 1, 64, BLOCK_PAIRS, 0, 0)
RKV_MATVEC16(q3_k, 0, 32, BLOCKS, 4, 0)
RKV_MATVEC16(q4_k, 0, 64, BLOCKS, 0, 1)
RKV_MATVEC16(q5_k, 0, 64, BLOCKS, 0, 1)
RKV_MATVEC16(q6_k, 0, 32, BLOCKS, 32, 0)
RKV_MATVEC16(iq4_xs, 0, 64, BLOCK_PAIRS, 0, 0)
