/* kv_score and kv_mix for one KV type on the vector vocabulary; contracts in kernels.h. Included once per
 * type, with KV_DT its name, KV_ELEM its element and, after the first, the tier's gemm above.
 * A tile of keys or values is made floats once, for all queries: it stays in the first-level cache, memory
 * is read in one pass, and a query's sums do not depend on how many queries there are. */

#define KV_PASTE(a, b) a##b
#define KV_NAME(a, b) KV_PASTE(a, b)
#define KV_FN(op) RKV_TIER(KV_NAME(op, KV_DT))
#define KV_LOAD KV_NAME(v_load_, KV_DT)
#define KV_LOAD_N KV_NAME(KV_NAME(v_load_, KV_DT), _n)
#define KV_PAIR KV_NAME(v_pair_, KV_DT)
#define KV_PAIR_N KV_NAME(KV_NAME(v_pair_, KV_DT), _n)

#ifndef RKV_KV_TILE
#define RKV_KV_TILE
enum {
    KV_KEY_D = 512,                     /* longest part of a key that a tile holds */
    KV_VALUES = 4096,                   /* floats of a tile of values */
    KV_AHEAD = 4096,
    KV_VALUE_D = 256,                   /* longest part of a value */
};

/* Asks for the bytes some rows after these n, which will be read soon. */
static inline void kv_fetch(const void *p, size_t n)
{
    for (size_t i = 0; i < n; i += 64)
        v_fetch((const char *)p + KV_AHEAD + i);
}

/* sum[j] += q . tile, lane by lane, over d elements; tile[d / 8, rounded up][V_ROWS][V_LEN]. */
static RKV_ALWAYS_INLINE void kv_add_dots(vf *sum, const float *q, const float *tile, int d)
{
    int e = 0;
    for (; e + 8 <= d; e += 8, tile += V_ROWS * V_LEN) {
        const vf x = v_load8(q + e);
        RKV_UNROLL(8)
        for (int j = 0; j < V_ROWS; j++)
            sum[j] = v_fma(x, v_load(tile + j * V_LEN), sum[j]);
    }
    if (e == d)
        return;
    const vf x = v_load8_n(q + e, d - e);
    RKV_UNROLL(8)
    for (int j = 0; j < V_ROWS; j++)
        sum[j] = v_fma(x, v_load(tile + j * V_LEN), sum[j]);
}
#endif

/* The tile of d elements of n <= V_LEN keys, which lie stride elements apart. A key beyond n is a copy of
 * the last, so that nothing outside is read. */
static void KV_NAME(kv_keys_, KV_DT)(float *tile, const KV_ELEM *k, ptrdiff_t stride, int n, int d)
{
    for (int j = 0; j < V_ROWS; j++, tile += V_LEN) {
        const int lo = v_row(j, 0), hi = v_row(j, 1);
        const KV_ELEM *p = k + (lo < n ? lo : n - 1) * stride, *r = k + (hi < n ? hi : n - 1) * stride;
        float *out = tile;
        int e = 0;
        kv_fetch(p, (size_t)d * sizeof *p);
        for (; e + 8 <= d; e += 8, out += V_ROWS * V_LEN)
            v_store(out, KV_PAIR(p + e, r + e));
        if (e < d)
            v_store(out, KV_PAIR_N(p + e, r + e, d - e));
    }
}

/* A score is 8 chains of FMAs, of elements e, e + 8, ..., and their sum. */
void KV_FN(kv_score_)(float *s, ptrdiff_t lds, const float *q, const void *k, int n_q, int n_slot,
                      int d_head)
{
    float tile[KV_KEY_D * V_LEN];
    for (int t = 0; t < n_slot; t += V_LEN) {
        const KV_ELEM *key = (const KV_ELEM *)k + (ptrdiff_t)t * d_head;
        const int n = n_slot - t < V_LEN ? n_slot - t : V_LEN;
        for (int i = 0; i < n_q; i++) {
            const float *query = q + (ptrdiff_t)i * d_head;
            vf sum[V_ROWS];
            RKV_UNROLL(8)
            for (int j = 0; j < V_ROWS; j++)
                sum[j] = v_zero();
            for (int e = 0; e < d_head; e += KV_KEY_D) {
                const int d = d_head - e < KV_KEY_D ? d_head - e : KV_KEY_D;
                if (i == 0 || d_head > KV_KEY_D)
                    KV_NAME(kv_keys_, KV_DT)(tile, key + e, d_head, n, d);
                kv_add_dots(sum, query + e, tile, d);
            }
            const vf score = v_sum8(sum[0], sum[1], sum[2], sum[3], sum[4], sum[5], sum[6], sum[7]);
            if (n == V_LEN)
                v_store(s + i * lds + t, score);
            else
                v_store_n(s + i * lds + t, score, n);
        }
    }
}

/* Weighted values are a product of matrices: a chain of FMAs in ascending t for each element. */
void KV_FN(kv_mix_)(float *out, const float *p, ptrdiff_t ldp, const void *v, int n_q, int n_slot,
                    int d_head)
{
    float tile[KV_VALUES];
    for (int e = 0; e < d_head; e += KV_VALUE_D) {
        const int d = d_head - e < KV_VALUE_D ? d_head - e : KV_VALUE_D, n_row = KV_VALUES / d;
        for (int t = 0; t < n_slot; t += n_row) {
            const int n = n_slot - t < n_row ? n_slot - t : n_row;
            for (int r = 0; r < n; r++) {
                const KV_ELEM *row = (const KV_ELEM *)v + (ptrdiff_t)(t + r) * d_head + e;
                float *to = tile + r * d;
                int c = 0;
                kv_fetch(row, (size_t)d * sizeof *row);
                for (; c + V_LEN <= d; c += V_LEN)
                    v_store(to + c, KV_LOAD(row + c));
                if (c < d)
                    v_store_n(to + c, KV_LOAD_N(row + c, d - c), d - c);
            }
            RKV_TIER(gemm_f32)(out + e, d_head, p + t, ldp, tile, d, n_q, d, n, 1);
        }
    }
}

#undef KV_PASTE
#undef KV_NAME
#undef KV_FN
#undef KV_LOAD
#undef KV_LOAD_N
#undef KV_PAIR
#undef KV_PAIR_N
#undef KV_DT
#undef KV_ELEM
