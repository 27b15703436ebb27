/* Sources: the block layouts of ggml-common.h; the root mean squares below follow from them for
 * uniform quants. */
#include "config.h"
#include "tiny/weights.h"

#include "noise.h"
#include "f16.h"

/* One block's own stream of random words. */
typedef struct stream {
    uint64_t key, at;
    float center, std;
} stream;

static uint64_t next(stream *s)
{
    return rkv_noise_word(s->key, s->at++);
}

/* In [0, 1). */
static float next_uniform(stream *s)
{
    return (float)(next(s) >> 40) * 0x1p-24f;
}

/* Near enough to a normal deviate: the sum of four uniform ones (Irwin-Hall), integers up to the
 * last multiplication. */
static float next_value(stream *s)
{
    const uint64_t w = next(s);
    const int sum = (int)((w & 0xffff) + (w >> 16 & 0xffff) + (w >> 32 & 0xffff) + (w >> 48));
    return s->center + (float)(sum - 131070) * (s->std / 37837.2f);
}

static void put_u16(unsigned char *b, uint16_t v)
{
    b[0] = (unsigned char)v;
    b[1] = (unsigned char)(v >> 8);
}

static void put_f16(unsigned char *b, float v)
{
    put_u16(b, rkv_f32_to_f16(v));
}

static void put_random(unsigned char *b, int n, stream *s)
{
    for (int i = 0; i < n; i += 8) {
        const uint64_t w = next(s);
        for (int j = i; j < i + 8 && j < n; j++)
            b[j] = (unsigned char)(w >> 8 * (j - i));
    }
}

/* A block's scale for quants whose root mean square is rms: varies by a quarter, with either sign
 * (which also centers the types whose quants are not). */
static float next_scale(stream *s, float rms)
{
    const float u = next_uniform(s), d = s->std * (0.75f + 0.5f * u) / (1.0104f * rms);
    return next(s) & 1 ? d : -d;
}

static void fill_f32(unsigned char *b, stream *s)
{
    const uint32_t v = rkv_f32_to_bits(next_value(s));
    put_u16(b, (uint16_t)v);
    put_u16(b + 2, (uint16_t)(v >> 16));
}

static void fill_f16(unsigned char *b, stream *s)
{
    put_f16(b, next_value(s));
}

static void fill_bf16(unsigned char *b, stream *s)
{
    put_u16(b, rkv_f32_to_bf16(next_value(s)));
}

/* d (q - 8), q in 0..15. */
static void fill_q4_0(unsigned char *b, stream *s)
{
    put_f16(b, next_scale(s, 4.6368f));
    put_random(b + 2, 16, s);
}

/* d q + m with m near -7.5 d. */
static void fill_q4_1(unsigned char *b, stream *s)
{
    const float d = next_scale(s, 4.6188f);
    put_f16(b, d);
    put_f16(b + 2, -d * (7.0f + next_uniform(s)));
    put_random(b + 4, 16, s);
}

/* d (q - 16), q in 0..31. */
static void fill_q5_0(unsigned char *b, stream *s)
{
    put_f16(b, next_scale(s, 9.2466f));
    put_random(b + 2, 20, s);
}

/* d q + m with m near -15.5 d. */
static void fill_q5_1(unsigned char *b, stream *s)
{
    const float d = next_scale(s, 9.2376f);
    put_f16(b, d);
    put_f16(b + 2, -d * (15.0f + next_uniform(s)));
    put_random(b + 4, 20, s);
}

/* d q, q in -127..127: a quantizer does not make -128. */
static void fill_q8_0(unsigned char *b, stream *s)
{
    put_f16(b, next_scale(s, 73.895f));
    put_random(b + 2, 32, s);
    for (int i = 2; i < 34; i++)
        b[i] += b[i] == 0x80;
}

/* d sc q - dmin m; sc and m are the nibbles of the first 16 bytes, q in 0..3. m is near sc and dmin
 * near 1.5 d. */
static void fill_q2_k(unsigned char *b, stream *s)
{
    put_random(b, 80, s);
    for (int i = 0; i < 16; i++) {
        const int sc = 8 + (b[i] & 7), m = sc ^ (b[i] >> 7);
        b[i] = (unsigned char)(sc | m << 4);
    }
    const float d = next_scale(s, 11.726f * 1.1214f);
    put_f16(b + 80, d);
    put_f16(b + 82, 1.5f * d * (0.9f + 0.2f * next_uniform(s)));
}

/* d (sc - 32) (q - 4): any bits are good. */
static void fill_q3_k(unsigned char *b, stream *s)
{
    put_random(b, 108, s);
    put_f16(b + 108, next_scale(s, 43.34f));
}

/* Scales of q4_k and q5_k: eight sc and eight m of six bits in 12 bytes; sc in 32..63, m near sc.
 */
static void put_scales(unsigned char *b, stream *s)
{
    unsigned char r[8];
    int sc[8], m[8];
    put_random(r, 8, s);
    for (int i = 0; i < 8; i++) {
        sc[i] = 32 + (r[i] & 31);
        m[i] = sc[i] ^ (r[i] >> 5 & 3);
    }
    for (int i = 0; i < 4; i++) {
        b[i] = (unsigned char)(sc[i] | sc[i + 4] >> 4 << 6);
        b[i + 4] = (unsigned char)(m[i] | m[i + 4] >> 4 << 6);
        b[i + 8] = (unsigned char)((sc[i + 4] & 15) | (m[i + 4] & 15) << 4);
    }
}

/* d sc q - dmin m with dmin near center d, then the scales, then n bytes of quants. */
static void fill_sc_m(unsigned char *b, stream *s, float rms, float center, int n)
{
    const float d = next_scale(s, 48.39f * rms);
    put_f16(b, d);
    put_f16(b + 2, center * d * (0.9f + 0.2f * next_uniform(s)));
    put_scales(b + 4, s);
    put_random(b + 16, n, s);
}

static void fill_q4_k(unsigned char *b, stream *s)
{
    fill_sc_m(b, s, 4.6301f, 7.5f, 128);
}

static void fill_q5_k(unsigned char *b, stream *s)
{
    fill_sc_m(b, s, 9.2764f, 15.5f, 160);
}

/* d sc (q - 32), sc of eight bits. */
static void fill_q6_k(unsigned char *b, stream *s)
{
    put_random(b, 208, s);
    put_f16(b + 208, next_scale(s, 73.90f * 18.48f));
}

/* d v[q] with the type's table of 16 values. */
static void fill_iq4_nl(unsigned char *b, stream *s)
{
    put_f16(b, next_scale(s, 67.44f));
    put_random(b + 2, 16, s);
}

/* d (sc - 32) v[q]. */
static void fill_iq4_xs(unsigned char *b, stream *s)
{
    put_f16(b, next_scale(s, 18.48f * 67.44f));
    put_random(b + 2, 134, s);
}

static void (*const fill[RKV_DT_COUNT])(unsigned char *, stream *) = {
#define RKV_DTYPE(name, id, len, bytes) [RKV_DT_##name] = fill_##name,
    RKV_DTYPES
#undef RKV_DTYPE
};

void tiny_weights(void *dst, rkv_dtype type, uint64_t key, uint64_t first, size_t n_block,
                  float center, float std)
{
    unsigned char *b = dst;
    const size_t bytes = (size_t)rkv_dtype_get(type)->block_bytes;
    for (size_t i = 0; i < n_block; i++) {
        stream s = {rkv_noise_word(key, first + i), 0, center, std};
        fill[type](b + i * bytes, &s);
    }
}
