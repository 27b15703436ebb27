/* transpose on the vector vocabulary; contract in kernels.h. */

static inline void transpose_full(float *dst, ptrdiff_t ldd, const float *src, ptrdiff_t lds)
{
    vf x[V_LEN];
    RKV_UNROLL(16)
    for (int i = 0; i < V_LEN; i++)
        x[i] = v_load(src + i * lds);
    v_transpose(x);
    RKV_UNROLL(16)
    for (int i = 0; i < V_LEN; i++)
        v_store(dst + i * ldd, x[i]);
}

/* A square at the edge: the parts that do not exist are neither read nor written. */
static void transpose_edge(float *dst, ptrdiff_t ldd, const float *src, ptrdiff_t lds, int n_row,
                           int n_col)
{
    vf x[V_LEN];
    for (int i = 0; i < V_LEN; i++)
        x[i] = i < n_row ? v_load_n(src + i * lds, n_col) : v_zero();
    v_transpose(x);
    for (int i = 0; i < n_col; i++)
        v_store_n(dst + i * ldd, x[i], n_row);
}

static void transpose_square(float *dst, ptrdiff_t ldd, const float *src, ptrdiff_t lds, int n_row,
                             int n_col)
{
    if (n_row >= V_LEN && n_col >= V_LEN)
        transpose_full(dst, ldd, src, lds);
    else
        transpose_edge(dst, ldd, src, lds, n_row < V_LEN ? n_row : V_LEN,
                       n_col < V_LEN ? n_col : V_LEN);
}

/* Strips of 64 rows: the cache lines of a strip are used up, on both sides, before they are
 * evicted. */
void RKV_TIER(transpose_f32)(void *dst, ptrdiff_t ldd, const void *src, ptrdiff_t lds, int n_row,
                             int n_col)
{
    enum { STRIP = 64 };
    float *to = dst; /* moved by vector registers, which keep every bit */
    const float *from = src;
    for (int top = 0; top < n_row; top += STRIP)
        for (int c = 0; c < n_col; c += V_LEN)
            for (int r = top; r < n_row && r < top + STRIP; r += V_LEN)
                transpose_square(to + c * ldd + r, ldd, from + r * lds + c, lds, n_row - r,
                                 n_col - c);
}
