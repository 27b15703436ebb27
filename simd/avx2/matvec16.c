/* matvec of block formats with AVX2, on x rounded to 16 bits: pairs of products are added as
 * integers (vpmaddwd), twice as many at a time as floats. */
#include "config.h"
#include "kernels.h"

#include "vec/vec_avx2.h"

#include "attr.h"
#include "tmpl/codes.h"

enum {
    STEP = 256,   /* weights that share a call of scales */
    COLS = 4096,  /* columns at a time: their x16 stays in the first-level cache */
    AHEAD = 2048, /* bytes to prefetch ahead: covers memory latency */
    INPUTS = 8,   /* inputs at a time: their x16 take 75 KB of stack */
    TOGETHER = 4, /* of those, for which codes are unpacked once */
    TOP = 32767   /* largest code of x */
};

/* x = scale code within every 32, and the sums of those; scale and sum are 0 up to a whole step. */
typedef struct x16 {
    int16_t code[COLS];
    float scale[COLS / 32 + 8], sum[COLS / 32 + 8];
} x16;

/* Codes of 32 weights, less their offset. */
typedef struct w16 {
    __m256i a, b;
} w16;

typedef struct format {
    int bytes, unit, group; /* of a block; weights of a unit (codes.h); weights per scale */
    int small, affine;      /* blocks of 32; weights are s code + o */
    void (*scales)(rkv_scales *p, const void *block, int bytes, int n);
    w16 (*codes)(const void *block, int u, int i);
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

/* n numbers, a multiple of 32, and zeros behind. */
static void round_x(x16 *out, const float *x, int n)
{
    const float least = 0x1p-100f; /* below it the inverse of the scale would overflow */
    for (int g = 0; g < n / 32; g++, x += 32) {
        const __m256 v[4] = {_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8), _mm256_loadu_ps(x + 16),
                             _mm256_loadu_ps(x + 24)};
        const float found = largest(v), top = found > least ? found : least;
        const __m256 inverse = _mm256_set1_ps((float)TOP / top);
        __m256i q[4], sum = _mm256_setzero_si256();
        RKV_UNROLL(4)
        for (int k = 0; k < 4; k++) {
            q[k] = _mm256_cvtps_epi32(_mm256_mul_ps(v[k], inverse));
            sum = _mm256_add_epi32(sum, q[k]);
        }
        const __m256i low = _mm256_packs_epi32(q[0], q[1]), high = _mm256_packs_epi32(q[2], q[3]);
        __m256i *to = (__m256i *)(void *)(out->code + 32 * g);
        _mm256_storeu_si256(to, _mm256_permute4x64_epi64(low, 0xd8));
        _mm256_storeu_si256(to + 1, _mm256_permute4x64_epi64(high, 0xd8));
        out->scale[g] = top / (float)TOP;
        out->sum[g] = out->scale[g] * (float)sum8(sum);
    }
    for (int g = n / 32; g % 8; g++)
        out->scale[g] = out->sum[g] = 0.0f;
}

/* ---- codes ---- */

static inline __m256i bytes16(const uint8_t *p)
{
    return _mm256_cvtepu8_epi16(rkv_load16(p));
}

static inline w16 nibbles(const uint8_t *qs, int offset)
{
    const __m256i v = bytes16(qs), o = _mm256_set1_epi16((short)offset);
    const w16 w = {_mm256_and_si256(v, _mm256_set1_epi16(15)), _mm256_srli_epi16(v, 4)};
    return offset ? (w16){_mm256_sub_epi16(w.a, o), _mm256_sub_epi16(w.b, o)} : w;
}

/* 32 bytes with a sign. */
static inline w16 signed32(__m256i v)
{
    return (w16){_mm256_cvtepi8_epi16(_mm256_castsi256_si128(v)),
                 _mm256_cvtepi8_epi16(_mm256_extracti128_si256(v, 1))};
}

static RKV_ALWAYS_INLINE w16 codes_q4_0(const void *block, int u, int i)
{
    (void)i;
    return nibbles(((const rkv_q4_0 *)block)[u].qs, 8);
}

static RKV_ALWAYS_INLINE w16 codes_q4_1(const void *block, int u, int i)
{
    (void)i;
    return nibbles(((const rkv_q4_1 *)block)[u].qs, 0);
}

/* value where bit j of half is clear, in word j. */
static inline __m256i where_clear(uint16_t half, int value)
{
    const __m256i bit = _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096,
                                          8192, 16384, (short)0x8000);
    const __m256i set = _mm256_and_si256(_mm256_set1_epi16((short)half), bit);
    const __m256i clear = _mm256_cmpeq_epi16(set, _mm256_setzero_si256());
    return _mm256_and_si256(clear, _mm256_set1_epi16((short)value));
}

/* A clear fifth bit takes 16 off: as bits, it sets all from the fifth on. */
static RKV_ALWAYS_INLINE w16 codes_q5_0(const void *block, int u, int i)
{
    const rkv_q5_0 *b = (const rkv_q5_0 *)block + u;
    const w16 w = nibbles(b->qs, 0);
    (void)i;
    return (w16){_mm256_or_si256(w.a, where_clear(rkv_u16_at(b->qh), -16)),
                 _mm256_or_si256(w.b, where_clear(rkv_u16_at(b->qh + 2), -16))};
}

static RKV_ALWAYS_INLINE w16 codes_q5_1(const void *block, int u, int i)
{
    const rkv_q5_1 *b = (const rkv_q5_1 *)block + u;
    const w16 w = nibbles(b->qs, 0);
    const uint32_t clear = ~rkv_u32_at(b->qh);
    (void)i;
    return (w16){_mm256_or_si256(w.a, where_clear((uint16_t)clear, 16)),
                 _mm256_or_si256(w.b, where_clear((uint16_t)(clear >> 16), 16))};
}

static RKV_ALWAYS_INLINE w16 codes_q8_0(const void *block, int u, int i)
{
    const int8_t *q = ((const rkv_q8_0 *)block)[u].qs;
    (void)i;
    return (w16){_mm256_cvtepi8_epi16(rkv_load16(q)), _mm256_cvtepi8_epi16(rkv_load16(q + 16))};
}

static RKV_ALWAYS_INLINE w16 codes_q4_k(const void *block, int u, int i)
{
    const uint8_t *qs = ((const rkv_q4_k *)block)->qs + 32 * u;
    const __m256i a = bytes16(qs), b = bytes16(qs + 16), low = _mm256_set1_epi16(15);
    return i ? (w16){_mm256_srli_epi16(a, 4), _mm256_srli_epi16(b, 4)}
             : (w16){_mm256_and_si256(a, low), _mm256_and_si256(b, low)};
}

static RKV_ALWAYS_INLINE w16 codes_q5_k(const void *block, int u, int i)
{
    return signed32(rkv_q5_k_codes(block, u, i));
}

static RKV_ALWAYS_INLINE w16 codes_q3_k(const void *block, int u, int i)
{
    return signed32(_mm256_sub_epi8(rkv_q3_k_codes(block, u, i), _mm256_set1_epi8(4)));
}

static RKV_ALWAYS_INLINE w16 codes_q6_k(const void *block, int u, int i)
{
    return signed32(_mm256_sub_epi8(rkv_q6_k_codes(block, u, i), _mm256_set1_epi8(32)));
}

static inline w16 iq4(const uint8_t *qs)
{
    const __m128i v = rkv_load16(qs), low = _mm_set1_epi8(15), table = rkv_iq4_table();
    const __m128i a = _mm_shuffle_epi8(table, _mm_and_si128(v, low));
    const __m128i b = _mm_shuffle_epi8(table, _mm_and_si128(_mm_srli_epi16(v, 4), low));
    return (w16){_mm256_cvtepi8_epi16(a), _mm256_cvtepi8_epi16(b)};
}

static RKV_ALWAYS_INLINE w16 codes_iq4_nl(const void *block, int u, int i)
{
    (void)i;
    return iq4(((const rkv_iq4_nl *)block)[u].qs);
}

static RKV_ALWAYS_INLINE w16 codes_iq4_xs(const void *block, int u, int i)
{
    (void)i;
    return iq4(((const rkv_iq4_xs *)block)->qs + 16 * u);
}

/* ---- products ---- */

static RKV_ALWAYS_INLINE int step_bytes(const format *f)
{
    return f->small ? STEP / 32 * f->bytes : f->bytes;
}

/* Scales of a step of a row times those of an input, and what the minima add. */
static RKV_ALWAYS_INLINE __m256 times_scales(const format *f, float *s, const rkv_scales *p,
                                             const x16 *x, int g, __m256 acc)
{
    const __m256 xs = _mm256_loadu_ps(x->scale + g);
    if (f->affine)
        acc = _mm256_fmadd_ps(_mm256_loadu_ps(p->o), _mm256_loadu_ps(x->sum + g), acc);
    if (f->group == 32) {
        _mm256_storeu_ps(s, _mm256_mul_ps(_mm256_loadu_ps(p->s), xs));
        return acc;
    }
    const __m256 a = _mm256_unpacklo_ps(xs, xs), b = _mm256_unpackhi_ps(xs, xs);
    const __m256 low = _mm256_permute2f128_ps(a, b, 0x20);
    const __m256 high = _mm256_permute2f128_ps(a, b, 0x31);
    _mm256_storeu_ps(s, _mm256_mul_ps(_mm256_loadu_ps(p->s), low));
    _mm256_storeu_ps(s + 8, _mm256_mul_ps(_mm256_loadu_ps(p->s + 8), high));
    return acc;
}

/* acc + 32 products; j: which 32 of the step. Their integer sums stay below 2^25. */
static RKV_ALWAYS_INLINE __m256 dot32(const format *f, __m256 acc, w16 w, __m256i x0, __m256i x1,
                                      const float *s, int j)
{
    const __m256i a = _mm256_madd_epi16(w.a, x0), b = _mm256_madd_epi16(w.b, x1);
    if (f->group == 32)
        return _mm256_fmadd_ps(_mm256_set1_ps(s[j]),
                               _mm256_cvtepi32_ps(_mm256_add_epi32(a, b)), acc);
    acc = _mm256_fmadd_ps(_mm256_set1_ps(s[2 * j]), _mm256_cvtepi32_ps(a), acc);
    return _mm256_fmadd_ps(_mm256_set1_ps(s[2 * j + 1]), _mm256_cvtepi32_ps(b), acc);
}

/* acc[r][k] += row r times input k over n weights of a step, a multiple of 32, from column i0 of x
 * on. */
static RKV_ALWAYS_INLINE void dot_step(const format *f, __m256 acc[2][TOGETHER], const char *block,
                                       ptrdiff_t w_stride, const x16 *x, int i0, int n,
                                       const int n_row, const int n_x)
{
    float s[2][TOGETHER][STEP / 16];
    RKV_UNROLL(2)
    for (int r = 0; r < n_row; r++) {
        const uintptr_t at = (uintptr_t)(block + r * w_stride) + AHEAD;
        rkv_scales p;
        if (n < STEP)
            p = (rkv_scales){0};
        f->scales(&p, block + r * w_stride, f->bytes, n / 32);
        RKV_UNROLL(4)
        for (int k = 0; k < n_x; k++)
            acc[r][k] = times_scales(f, s[r][k], &p, &x[k], i0 / 32, acc[r][k]);
        RKV_UNROLL(16)
        for (int b = 0; b < step_bytes(f); b += 64)
            _mm_prefetch((const char *)(at + (uintptr_t)b), _MM_HINT_T0);
    }
    for (int u = 0; u < n / f->unit; u++) {
        RKV_UNROLL(4)
        for (int i = 0; i < f->unit / 32; i++) {
            const int j = u * (f->unit / 32) + i;
            RKV_UNROLL(2)
            for (int r = 0; r < n_row; r++) {
                const w16 w = f->codes(block + r * w_stride, u, i);
                RKV_UNROLL(4)
                for (int k = 0; k < n_x; k++) {
                    const int16_t *code = x[k].code + i0 + 32 * j;
                    acc[r][k] = dot32(f, acc[r][k], w, rkv_load32(code), rkv_load32(code + 16),
                                      s[r][k], j);
                }
            }
        }
    }
}

/* y[k][r] += the products of n_row = 1 or 2 rows with n columns of n_x = 1, 2 or 4 inputs. The same
 * operations in the same order for any. */
static RKV_ALWAYS_INLINE void rows(const format *f, float *y, ptrdiff_t ldy, const char *block,
                                   ptrdiff_t w_stride, const x16 *x, int n, const int n_row,
                                   const int n_x)
{
    __m256 acc[2][TOGETHER];
    int i = 0;
    RKV_UNROLL(2)
    for (int r = 0; r < n_row; r++) {
        RKV_UNROLL(4)
        for (int k = 0; k < n_x; k++)
            acc[r][k] = _mm256_setzero_ps();
    }
    for (; n - i >= STEP; i += STEP, block += step_bytes(f))
        dot_step(f, acc, block, w_stride, x, i, STEP, n_row, n_x);
    if (f->small && i < n)
        dot_step(f, acc, block, w_stride, x, i, n - i, n_row, n_x);
    RKV_UNROLL(2)
    for (int r = 0; r < n_row; r++) {
        RKV_UNROLL(4)
        for (int k = 0; k < n_x; k++)
            y[k * ldy + r] += v_sum(acc[r][k]);
    }
}

/* Adds the products with n columns of every row and of n_x <= INPUTS inputs. Two rows at a time
 * share the loads of x and keep two streams from memory busy; all inputs go through them before the
 * next two, so that their bytes are still near. */
static RKV_ALWAYS_INLINE void add_columns(const format *f, float *y, ptrdiff_t ldy, const char *row,
                                          ptrdiff_t w_stride, const x16 *x, int n_x, int n_out,
                                          int n)
{
    int r = 0;
    for (; r + 2 <= n_out; r += 2, row += 2 * w_stride) {
        int k = 0;
        for (; n_x - k >= 4; k += 4)
            rows(f, y + k * ldy + r, ldy, row, w_stride, &x[k], n, 2, 4);
        for (; n_x - k >= 2; k += 2)
            rows(f, y + k * ldy + r, ldy, row, w_stride, &x[k], n, 2, 2);
        if (k < n_x)
            rows(f, y + k * ldy + r, ldy, row, w_stride, &x[k], n, 2, 1);
    }
    for (int k = 0; k < n_x && r < n_out; k++)
        rows(f, y + k * ldy + r, ldy, row, w_stride, &x[k], n, 1, 1);
}

static RKV_ALWAYS_INLINE void matvec16(const format *f, float *y, ptrdiff_t ldy, const void *w,
                                       ptrdiff_t w_stride, const float *x, ptrdiff_t ldx, int n_x,
                                       int n_out, int n_in)
{
    x16 part[INPUTS];
    for (int j = 0; j < n_x; j++)
        memset(y + j * ldy, 0, (size_t)(n_out > 0 ? n_out : 0) * sizeof *y);
    for (int j0 = 0; j0 < n_x; j0 += INPUTS) {
        const int n_part = n_x - j0 < INPUTS ? n_x - j0 : INPUTS;
        for (int i0 = 0; i0 < n_in; i0 += COLS) {
            const int n = n_in - i0 < COLS ? n_in - i0 : COLS;
            for (int j = 0; j < n_part; j++)
                round_x(&part[j], x + (j0 + j) * ldx + i0, n);
            add_columns(f, y + j0 * ldy, ldy,
                        (const char *)w + (ptrdiff_t)(i0 / STEP) * step_bytes(f), w_stride, part,
                        n_part, n_out, n);
        }
    }
}

#define RKV_MATVEC16(dt, bytes, unit, group, small, affine, scales) \
    static const format format_##dt = {bytes, unit, group, small, affine, scales, codes_##dt}; \
    RKV_PROTO_matvec(rkv_matvec_##dt##_avx2) \
    { \
        matvec16(&format_##dt, y, ldy, w, w_stride, x, ldx, n_x, n_out, n_in); \
    }
RKV_MATVEC16(q4_0, 18, 32, 32, 1, 0, rkv_small_scales)
RKV_MATVEC16(q4_1, 20, 32, 32, 1, 1, rkv_small_pairs)
RKV_MATVEC16(q5_0, 22, 32, 32, 1, 0, rkv_small_scales)
RKV_MATVEC16(q5_1, 24, 32, 32, 1, 1, rkv_small_pairs)
RKV_MATVEC16(q8_0, 34, 32, 32, 1, 0, rkv_small_scales)
RKV_MATVEC16(q3_k, 110, 128, 16, 0, 0, rkv_q3_k_scales)
RKV_MATVEC16(q4_k, 144, 64, 32, 0, 1, rkv_q4_k_scales)
RKV_MATVEC16(q5_k, 176, 64, 32, 0, 1, rkv_q4_k_scales)
RKV_MATVEC16(q6_k, 210, 128, 16, 0, 0, rkv_q6_k_scales)
RKV_MATVEC16(iq4_nl, 18, 32, 32, 1, 0, rkv_small_scales)
RKV_MATVEC16(iq4_xs, 136, 32, 32, 0, 0, rkv_iq4_xs_scales)
