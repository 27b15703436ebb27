/* kv_score and kv_mix for one KV type on the vector vocabulary; contracts in kernels.h. Included
 * once per type, with KV_DT its name and KV_ELEM its element.
 * A tile of keys or values is made floats once, for all queries: it stays in the first-level cache,
 * memory is read in one pass, and a query's sums do not depend on how many queries there are. */

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
    KV_KEY_D = 512,   /* longest part of a key that a tile holds */
    KV_VALUES = 4096, /* floats of a tile of values */
    KV_AHEAD = 4096,  /* bytes from what is read to what is prefetched */
    KV_VALUE_D = 256, /* longest part of a value */
};

/* sum[i][j] += q_i . row first + j of the tile, lane by lane, over n_q x rows products; n_q and
 * rows are constants. q: n_q queries, stride apart; n: the last elements, where there are no 8. */
static RKV_ALWAYS_INLINE void kv_step(vf *sum, const float *q, ptrdiff_t stride, const float *tile,
                                      int n, const int n_q, const int rows)
{
    RKV_UNROLL(2)
    for (int i = 0; i < n_q; i++) {
        const vf x = n < 8 ? v_load8_n(q + i * stride, n) : v_load8(q + i * stride);
        RKV_UNROLL(8)
        for (int j = 0; j < rows; j++)
            sum[i * rows + j] = v_fma(x, v_load(tile + j * V_LEN), sum[i * rows + j]);
    }
}

/* The same over d elements; tile[d / 8, rounded up][V_ROWS][V_LEN]. */
static RKV_ALWAYS_INLINE void kv_add_dots(vf *sum, const float *q, ptrdiff_t stride,
                                          const float *tile, int d, const int n_q, const int rows)
{
    int e = 0;
    for (; e + 8 <= d; e += 8, tile += V_ROWS * V_LEN)
        kv_step(sum, q + e, stride, tile, 8, n_q, rows);
    if (e < d)
        kv_step(sum, q + e, stride, tile, d - e, n_q, rows);
}

static RKV_ALWAYS_INLINE vf kv_sums(const vf *s)
{
    return v_sum8(s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]);
}

static RKV_ALWAYS_INLINE void kv_store(float *s, vf score, int n)
{
    if (n == V_LEN)
        v_store(s, score);
    else
        v_store_n(s, score, n);
}

/* Two queries by half of the rows, twice: a vector of the tile is loaded once for both. */
static inline void kv_score_two(float *s, ptrdiff_t lds, const float *q, const float *tile, int n,
                                int d)
{
    enum { HALF = V_ROWS / 2 };
    vf half[2];
    RKV_UNROLL(2)
    for (int h = 0; h < 2; h++) {
        vf sum[V_ROWS];
        RKV_UNROLL(8)
        for (int j = 0; j < V_ROWS; j++)
            sum[j] = v_zero();
        kv_add_dots(sum, q, d, tile + h * HALF * V_LEN, d, 2, HALF);
        half[h] = kv_sums(sum);
    }
    kv_store(s, v_firsts(half[0], half[1]), n);
    kv_store(s + lds, v_seconds(half[0], half[1]), n);
}

/* Scores of n keys, a tile of d elements, for all queries. */
static void kv_score_tile(float *s, ptrdiff_t lds, const float *q, const float *tile, int n_q,
                          int n, int d)
{
    int i = 0;
    for (; i + 2 <= n_q; i += 2)
        kv_score_two(s + i * lds, lds, q + (ptrdiff_t)i * d, tile, n, d);
    if (i == n_q)
        return;
    vf sum[V_ROWS];
    RKV_UNROLL(8)
    for (int j = 0; j < V_ROWS; j++)
        sum[j] = v_zero();
    kv_add_dots(sum, q + (ptrdiff_t)i * d, 0, tile, d, 1, V_ROWS);
    kv_store(s + i * lds, kv_sums(sum), n);
}
#endif

/* n elements made floats, and what follows a page later asked for. */
static void KV_NAME(kv_floats_, KV_DT)(float *out, const KV_ELEM *in, int n)
{
    enum { STEP = 4 * V_LEN, LINE = 64 / sizeof(KV_ELEM), AHEAD = KV_AHEAD / sizeof(KV_ELEM) };
    int i = 0;
    for (; i + STEP <= n; i += STEP) {
        RKV_UNROLL(4)
        for (int line = 0; line < STEP; line += LINE)
            v_fetch(in + i + AHEAD + line);
        RKV_UNROLL(4)
        for (int v = 0; v < STEP; v += V_LEN)
            v_store(out + i + v, KV_LOAD(in + i + v));
    }
    for (; i + V_LEN <= n; i += V_LEN)
        v_store(out + i, KV_LOAD(in + i));
    if (i < n)
        v_store_n(out + i, KV_LOAD_N(in + i, n - i), n - i);
}

/* The tile of d elements of V_LEN keys, which lie stride elements apart. */
static void KV_NAME(kv_keys_, KV_DT)(float *tile, const KV_ELEM *k, ptrdiff_t stride, int d)
{
    enum { LINE = 64 / sizeof(KV_ELEM), AHEAD = KV_AHEAD / sizeof(KV_ELEM) };
    for (int i = 0; i < V_LEN * d; i += LINE)
        v_fetch(k + AHEAD + i);
    int e = 0;
    for (; e + 8 <= d; e += 8, tile += V_ROWS * V_LEN) {
        RKV_UNROLL(8)
        for (int j = 0; j < V_ROWS; j++)
            v_store(tile + j * V_LEN,
                    KV_PAIR(k + v_row(j, 0) * stride + e, k + v_row(j, 1) * stride + e));
    }
    for (int j = 0; e < d && j < V_ROWS; j++)
        v_store(tile + j * V_LEN,
                KV_PAIR_N(k + v_row(j, 0) * stride + e, k + v_row(j, 1) * stride + e, d - e));
}

/* The same of the last keys, n < V_LEN. One beyond is a copy of the last, so that nothing outside
 * is read. */
static void KV_NAME(kv_last_keys_, KV_DT)(float *tile, const KV_ELEM *k, ptrdiff_t stride, int n,
                                          int d)
{
    for (int j = 0; j < V_ROWS; j++) {
        const int lo = v_row(j, 0), hi = v_row(j, 1);
        const KV_ELEM *p = k + (lo < n ? lo : n - 1) * stride;
        const KV_ELEM *r = k + (hi < n ? hi : n - 1) * stride;
        for (int e = 0; e < d; e += 8)
            v_store(tile + e * V_ROWS / 8 * V_LEN + j * V_LEN,
                    d - e < 8 ? KV_PAIR_N(p + e, r + e, d - e) : KV_PAIR(p + e, r + e));
    }
}

static void KV_NAME(kv_tile_, KV_DT)(float *tile, const KV_ELEM *k, ptrdiff_t stride, int n, int d)
{
    if (n == V_LEN)
        KV_NAME(kv_keys_, KV_DT)(tile, k, stride, d);
    else
        KV_NAME(kv_last_keys_, KV_DT)(tile, k, stride, n, d);
}

/* Keys longer than a tile, in parts, anew for each query. */
static void KV_NAME(kv_score_long_, KV_DT)(float *s, ptrdiff_t lds, const float *q,
                                           const KV_ELEM *k, float *tile, int n_q, int n,
                                           int d_head)
{
    for (int i = 0; i < n_q; i++) {
        vf sum[V_ROWS];
        RKV_UNROLL(8)
        for (int j = 0; j < V_ROWS; j++)
            sum[j] = v_zero();
        for (int e = 0; e < d_head; e += KV_KEY_D) {
            const int d = d_head - e < KV_KEY_D ? d_head - e : KV_KEY_D;
            KV_NAME(kv_tile_, KV_DT)(tile, k + e, d_head, n, d);
            kv_add_dots(sum, q + (ptrdiff_t)i * d_head + e, 0, tile, d, 1, V_ROWS);
        }
        kv_store(s + i * lds, kv_sums(sum), n);
    }
}

/* A score is 8 chains of FMAs, of elements e, e + 8, ..., and their sum. */
void KV_FN(kv_score_)(float *s, ptrdiff_t lds, const float *q, const void *k, int n_q, int n_slot,
                      int d_head)
{
    _Alignas(64) float tile[KV_KEY_D * V_LEN];
    for (int t = 0; t < n_slot; t += V_LEN) {
        const KV_ELEM *key = (const KV_ELEM *)k + (ptrdiff_t)t * d_head;
        const int n = n_slot - t < V_LEN ? n_slot - t : V_LEN;
        if (d_head > KV_KEY_D) {
            KV_NAME(kv_score_long_, KV_DT)(s + t, lds, q, key, tile, n_q, n, d_head);
            continue;
        }
        KV_NAME(kv_tile_, KV_DT)(tile, key, d_head, n, d_head);
        kv_score_tile(s + t, lds, q, tile, n_q, n, d_head);
    }
}

/* Weighted values are a product of matrices: a chain of FMAs in ascending t for each element. */
void KV_FN(kv_mix_)(float *out, const float *p, ptrdiff_t ldp, const void *v, int n_q, int n_slot,
                    int d_head)
{
    _Alignas(64) float tile[KV_VALUES];
    for (int e = 0; e < d_head; e += KV_VALUE_D) {
        const int d = d_head - e < KV_VALUE_D ? d_head - e : KV_VALUE_D, n_row = KV_VALUES / d;
        for (int t = 0; t < n_slot; t += n_row) {
            const int n = n_slot - t < n_row ? n_slot - t : n_row;
            const KV_ELEM *row = (const KV_ELEM *)v + (ptrdiff_t)t * d_head + e;
            const int piece = d == d_head ? n * d : d; /* whole rows follow each other */
            for (int i = 0; i < n * d; i += piece, row += d_head)
                KV_NAME(kv_floats_, KV_DT)(tile + i, row, piece);
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
