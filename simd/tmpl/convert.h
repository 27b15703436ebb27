/* unpack, pack and pack_pairs of plain 16-bit numbers on the vector vocabulary; contracts in
 * kernels.h. */

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
