/* unpack, pack, pack_pairs and pack_int16 of plain numbers on the vector vocabulary; contracts in
 * kernels.h. */
#include "int16.h"

void RKV_TIER(unpack_f16)(float *out, const void *src, int64_t n)
{
    const uint16_t *h = src;
    int64_t i = 0;
    for (; i + V_LEN <= n; i += V_LEN)
        v_store(out + i, v_load_f16(h + i));
    if (i < n)
        v_store_n(out + i, v_load_f16_n(h + i, (int)(n - i)), (int)(n - i));
}

void RKV_TIER(unpack_bf16)(float *out, const void *src, int64_t n)
{
    const uint16_t *h = src;
    int64_t i = 0;
    for (; i + V_LEN <= n; i += V_LEN)
        v_store(out + i, v_load_bf16(h + i));
    if (i < n)
        v_store_n(out + i, v_load_bf16_n(h + i, (int)(n - i)), (int)(n - i));
}

void RKV_TIER(pack_f16)(void *dst, const float *in, int64_t n)
{
    uint16_t *h = dst;
    int64_t i = 0;
    for (; i + V_LEN <= n; i += V_LEN)
        v_store_f16(h + i, v_load(in + i));
    if (i < n)
        v_store_f16_n(h + i, v_load_n(in + i, (int)(n - i)), (int)(n - i));
}

void RKV_TIER(pack_bf16)(void *dst, const float *in, int64_t n)
{
    uint16_t *b = dst;
    int64_t i = 0;
    for (; i + V_LEN <= n; i += V_LEN)
        v_store_bf16(b + i, v_load(in + i));
    if (i < n)
        v_store_bf16_n(b + i, v_load_n(in + i, (int)(n - i)), (int)(n - i));
}

static inline void pairs_to(float *to, vf a, vf b, int n)
{
    if (n >= V_LEN)
        v_store(to, v_bf16_pairs(a, b));
    else
        v_store_n(to, v_bf16_pairs(a, b), n);
}

void RKV_TIER(pack_pairs_bf16)(void *hi, void *lo, const float *a, const float *b, int n)
{
    float *h = hi, *l = lo; /* words, moved by vector registers, which keep every bit */
    for (int i = 0; i < n; i += V_LEN) {
        const int left = n - i;
        const vf x = left >= V_LEN ? v_load(a + i) : v_load_n(a + i, left);
        const vf y = left >= V_LEN ? v_load(b + i) : v_load_n(b + i, left);
        pairs_to(h + i, x, y, left);
        if (l)
            pairs_to(l + i, v_sub(x, v_near_bf16(x)), v_sub(y, v_near_bf16(y)), left);
    }
}

static inline vf load_some(const float *p, int n)
{
    return n >= V_LEN ? v_load(p) : v_load_n(p, n);
}

float RKV_TIER(pack_int16_f32)(int16_t *out, const float *in, int n)
{
    enum { LANES = 16, SUMS = LANES / V_LEN };
    vd sum[2] = {vd_zero(), vd_zero()};
    for (int i = 0; i < n; i += LANES) {
        RKV_UNROLL(2)
        for (int s = 0, at = i; s < SUMS && at < n; s++, at += V_LEN)
            sum[s] = vd_add_square(sum[s], load_some(in + at, n - at));
    }
    float inverse;
    const float scale = rkv_int16_scale(vd_sum(vd_add(sum[0], sum[1])), &inverse);
    if (inverse == 0.0f) {
        memset(out, 0, (size_t)n * sizeof *out);
        return scale;
    }
    int i = 0;
    for (; i + V_LEN <= n; i += V_LEN)
        v_store_int16(out + i, v_mul(v_load(in + i), v_set(inverse)));
    if (i < n)
        v_store_int16_n(out + i, v_mul(v_load_n(in + i, n - i), v_set(inverse)), n - i);
    return scale;
}
