/* gemm_int16 on the vector vocabulary; contract in kernels.h. The tier defines GEMM_ROWS and
 * GEMM_EACH_ROWS(X) as for gemm.h, and add_pairs(sum, a, b): sum plus the products of each pair.
 * A block of 256 x 32 numbers of b, 16 KiB, stays in the first-level cache while all rows pass. */

typedef struct int16_part {
    float *c;
    const int16_t *a, *b;
    const float *a_scale, *b_scale;
    ptrdiff_t ldc, lda, lds, ldb;
    int k, acc;
} int16_part;

static RKV_ALWAYS_INLINE vi pair_of(const int16_t *p)
{
    int32_t pair;
    memcpy(&pair, p, sizeof pair);
    return vi_set(pair);
}

/* c = sum b a, or c + sum b a, in the first n columns. */
static RKV_ALWAYS_INLINE void add_to(float *c, vi sum, const float *b, vf a, int acc, int n)
{
    const int full = n >= V_LEN;
    const vf old = !acc ? v_zero() : full ? v_load(c) : v_load_n(c, n);
    const vf now = v_fma(v_mul(v_from_int(sum), full ? v_load(b) : v_load_n(b, n)), a, old);
    if (full)
        v_store(c, now);
    else
        v_store_n(c, now, n);
}

/* rows x two vectors of c, rows a constant at every call, so that the sums live in registers.
 * n: columns, where they do not fill the vectors; else 0. */
static RKV_ALWAYS_INLINE void int16_tile(const int16_part *t, int n, const int rows)
{
    const ptrdiff_t lda = t->lda, ldb = t->ldb;
    const int16_t *a = t->a, *b = t->b;
    vi sum[GEMM_ROWS][2], done[GEMM_ROWS][2];
    RKV_UNROLL(16)
    for (int r = 0; r < rows; r++)
        sum[r][0] = sum[r][1] = vi_zero();
    for (int p = t->k; p > 0; p -= 2, a += 2, b += 2 * ldb) {
        const vi x = n ? vi_load_n(b, n) : vi_load(b);
        const vi y = n ? vi_load_n(b + 2 * V_LEN, n - V_LEN) : vi_load(b + 2 * V_LEN);
        RKV_UNROLL(16)
        for (int r = 0; r < rows; r++) {
            const vi f = pair_of(a + r * lda);
            sum[r][0] = add_pairs(sum[r][0], f, x);
            sum[r][1] = add_pairs(sum[r][1], f, y);
        }
    }
    /* Through memory: what follows the loop makes GCC 12 keep sums there inside it. */
    RKV_UNROLL(16)
    for (int r = 0; r < rows; r++)
        done[r][0] = sum[r][0], done[r][1] = sum[r][1];
    for (int r = 0; r < rows; r++) {
        float *c = t->c + r * t->ldc;
        const vf scale = v_set(t->a_scale[r * t->lds]);
        add_to(c, done[r][0], t->b_scale, scale, t->acc, n ? n : V_LEN);
        add_to(c + V_LEN, done[r][1], t->b_scale + V_LEN, scale, t->acc, n ? n - V_LEN : V_LEN);
    }
}

typedef void (*int16_fn)(const int16_part *t, int n);

#define INT16_FULL(rows)                                                                           \
    static void int16_full_##rows(const int16_part *t, int n)                                      \
    {                                                                                              \
        (void)n;                                                                                   \
        int16_tile(t, 0, rows);                                                                    \
    }
#define INT16_TAIL(rows)                                                                           \
    static void int16_tail_##rows(const int16_part *t, int n)                                      \
    {                                                                                              \
        int16_tile(t, n, rows);                                                                    \
    }
GEMM_EACH_ROWS(INT16_FULL)
GEMM_EACH_ROWS(INT16_TAIL)

#define INT16_FULL_NAME(rows) int16_full_##rows,
#define INT16_TAIL_NAME(rows) int16_tail_##rows,
static const int16_fn int16_full[] = {NULL, GEMM_EACH_ROWS(INT16_FULL_NAME)};
static const int16_fn int16_tail[] = {NULL, GEMM_EACH_ROWS(INT16_TAIL_NAME)};

void RKV_TIER(gemm_int16_f32)(float *c, ptrdiff_t ldc, const int16_t *a, ptrdiff_t lda,
                              const float *a_scale, ptrdiff_t lds, const int16_t *b, ptrdiff_t ldb,
                              const float *b_scale, int m, int n, int k, int acc)
{
    enum { COLUMNS = 2 * V_LEN };
    for (int j = 0; j < n; j += COLUMNS) {
        const int16_fn *fns = n - j < COLUMNS ? int16_tail : int16_full;
        /* Two balanced tiles at the end: a full one's small rest would starve the multipliers. */
        for (int i = 0, rows; i < m; i += rows) {
            const int left = m - i;
            rows = left <= GEMM_ROWS ? left : left < 2 * GEMM_ROWS ? (left + 1) / 2 : GEMM_ROWS;
            const int16_part t = {c + i * ldc + j,
                                  a + i * lda,
                                  b + 2 * (ptrdiff_t)j,
                                  a_scale + i * lds,
                                  b_scale + j,
                                  ldc,
                                  lda,
                                  lds,
                                  ldb,
                                  k,
                                  acc};
            fns[rows](&t, n - j);
        }
    }
}
