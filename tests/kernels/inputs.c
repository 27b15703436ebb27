#include "config.h"
#include "inputs.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "noise.h"
#include "f16.h"

const char *const input_kind_name[INPUT_KINDS] = {"uniform", "mixed",    "equal", "zero",
                                                  "tiny",    "denormal", "huge"};

case_rng rng_create(uint64_t seed, const char *name, int index)
{
    rkv_hash h = rkv_hash_init();
    rkv_hash_add(&h, name, strlen(name));
    return (case_rng){rkv_noise_key((uint64_t)index, seed, rkv_hash_end(&h)), 0};
}

uint64_t rng_word(case_rng *r)
{
    return rkv_noise_word(r->key, r->next++);
}

size_t rng_below(case_rng *r, size_t n)
{
    return (size_t)(rng_word(r) >> 16) % n;
}

float rng_signed(case_rng *r)
{
    return (float)((int32_t)(rng_word(r) >> 40) - (1 << 23)) * 0x1p-23f;
}

static float draw(input_kind kind, case_rng *r)
{
    static const float scale[INPUT_KINDS] = {
        [INPUT_UNIFORM] = 1.0f, [INPUT_EQUAL] = 1.0f,         [INPUT_ZERO] = 0.0f,
        [INPUT_TINY] = 1e-20f,  [INPUT_DENORMAL] = 0x1p-126f, [INPUT_HUGE] = 1e15f,
    };
    const float u = rng_signed(r);
    return kind == INPUT_MIXED ? ldexpf(u, (int)rng_below(r, 41) - 20) : u * scale[kind];
}

void input_floats(float *out, size_t n, input_kind kind, case_rng *r)
{
    const float first = draw(kind, r);
    for (size_t i = 0; i < n; i++)
        out[i] = kind == INPUT_EQUAL ? first : draw(kind, r);
}

void input_halfs(uint16_t *out, size_t n, input_kind kind, case_rng *r)
{
    static const float scale[INPUT_KINDS] = {
        [INPUT_UNIFORM] = 1.0f,
        [INPUT_MIXED] = 0x1p-5f,
        [INPUT_EQUAL] = 1.0f,
        [INPUT_ZERO] = 1.0f,
        [INPUT_TINY] = 1e-3f / 1e-20f,
        [INPUT_DENORMAL] = 0x1p112f,
        [INPUT_HUGE] = 65504.0f / 1e15f,
    };
    const uint16_t first = rkv_f32_to_f16(draw(kind, r) * scale[kind]);
    for (size_t i = 0; i < n; i++)
        out[i] = kind == INPUT_EQUAL ? first : rkv_f32_to_f16(draw(kind, r) * scale[kind]);
}

/* Where a block keeps its f16 scales; the other bytes are quanta. Source: ggml block formats. */
static const struct {
    rkv_dtype dt;
    int n, at[2];
} scales[] = {
    {RKV_DT_q4_0, 1, {0}},    {RKV_DT_q4_1, 2, {0, 2}}, {RKV_DT_q5_0, 1, {0}},
    {RKV_DT_q5_1, 2, {0, 2}}, {RKV_DT_q8_0, 1, {0}},    {RKV_DT_q2_k, 2, {80, 82}},
    {RKV_DT_q3_k, 1, {108}},  {RKV_DT_q4_k, 2, {0, 2}}, {RKV_DT_q5_k, 2, {0, 2}},
    {RKV_DT_q6_k, 1, {208}},  {RKV_DT_iq4_nl, 1, {0}},  {RKV_DT_iq4_xs, 1, {0}},
};

static void random_bytes(unsigned char *out, size_t n, case_rng *r)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (unsigned char)(rng_word(r) >> 32);
}

static void quantized(rkv_dtype dt, unsigned char *out, size_t n, input_kind kind, case_rng *r)
{
    const size_t bytes = (size_t)rkv_dtype_get(dt)->block_bytes;
    random_bytes(out, n * bytes, r);
    for (size_t s = 0; s < sizeof scales / sizeof *scales; s++)
        for (size_t i = 0; i < n && scales[s].dt == dt; i++)
            for (int j = 0; j < scales[s].n; j++) {
                uint16_t h;
                input_halfs(&h, 1, kind, r);
                memcpy(out + i * bytes + scales[s].at[j], &h, sizeof h);
            }
}

void input_blocks(rkv_dtype dt, void *out, size_t n, input_kind kind, int wild, case_rng *r)
{
    uint16_t *half = out;
    if (dt == RKV_DT_f32)
        input_floats(out, n, kind, r);
    else if (wild && kind == INPUT_MIXED)
        random_bytes(out, n * (size_t)rkv_dtype_get(dt)->block_bytes, r);
    else if (dt != RKV_DT_f16 && dt != RKV_DT_bf16)
        quantized(dt, out, n, kind, r);
    else if (dt == RKV_DT_f16)
        input_halfs(out, n, kind, r);
    else
        for (size_t i = 0; i < n; i++)
            half[i] = rkv_f32_to_bf16(draw(kind, r));
}

void input_mask(float *s, size_t n, int mode, case_rng *r)
{
    const size_t kept = n ? rng_below(r, n) : 0;
    for (size_t i = 0; i < n; i++)
        if (mode == 3 || (mode == 2 && i != kept) || (mode == 1 && rng_word(r) >> 63))
            s[i] = -INFINITY;
}

void input_edges(float *out)
{
    static const uint32_t mantissa[] = {0x000000, 0x000001, 0x000fff, 0x001000, 0x001001, 0x001fff,
                                        0x002000, 0x003000, 0x007fff, 0x008000, 0x008001, 0x018000,
                                        0x400000, 0x7f7fff, 0x7f8000, 0x7fefff, 0x7ff000, 0x7fffff};
    size_t n = 0;
    for (uint32_t top = 0; top < 512; top++) /* sign and exponent */
        for (size_t m = 0; m < sizeof mantissa / sizeof *mantissa; m++)
            out[n++] = rkv_f32_from_bits(top << 23 | mantissa[m]);
}
