/* gemm on the vector vocabulary; contract in kernels.h. The tier defines GEMM_ROWS, the rows of its
 * register tile (2 GEMM_ROWS sums, two vectors of b and a broadcast must fit the registers),
 * GEMM_EACH_ROWS(X), which is X(1) X(2) ... X(GEMM_ROWS), and GEMM_K_BLOCK: so many rows of a panel
 * of b stay in the first-level cache while all rows of a pass over them.
 * Every element is one chain of FMAs in ascending p, so tiles and blocks of k are free to choose.
 */

typedef struct gemm_part {
    float *c;
    const float *a, *b;
    ptrdiff_t ldc, lda, ldb;
    int k, acc;
} gemm_part;

/* rows x vecs vectors of c; both are constants at every call, so that the sums live in registers.
 * n: columns, where they do not fill the vectors; else 0. */
static RKV_ALWAYS_INLINE void gemm_tile(const gemm_part *t, int n, const int rows, const int vecs)
{
    const ptrdiff_t lda = t->lda, ldb = t->ldb, ldc = t->ldc;
    const float *a = t->a, *b = t->b;
    float *c = t->c;
    vf sum[GEMM_ROWS][8];
    RKV_UNROLL(16)
    for (int r = 0; r < rows; r++) {
        RKV_UNROLL(8)
        for (int v = 0; v < vecs; v++) {
            const float *from = c + r * ldc + v * V_LEN;
            sum[r][v] = !t->acc ? v_zero() : n ? v_load_n(from, n - v * V_LEN) : v_load(from);
        }
    }
    for (int p = t->k; p > 0; p--, a++, b += ldb) {
        vf x[8];
        RKV_UNROLL(8)
        for (int v = 0; v < vecs; v++)
            x[v] = n ? v_load_n(b + v * V_LEN, n - v * V_LEN) : v_load(b + v * V_LEN);
        RKV_UNROLL(16)
        for (int r = 0; r < rows; r++) {
            const vf f = v_set(a[r * lda]);
            RKV_UNROLL(8)
            for (int v = 0; v < vecs; v++)
                sum[r][v] = v_fma(f, x[v], sum[r][v]);
        }
    }
    RKV_UNROLL(16)
    for (int r = 0; r < rows; r++) {
        RKV_UNROLL(8)
        for (int v = 0; v < vecs; v++) {
            float *to = c + r * ldc + v * V_LEN;
            if (n)
                v_store_n(to, sum[r][v], n - v * V_LEN);
            else
                v_store(to, sum[r][v]);
        }
    }
}

typedef void (*gemm_fn)(const gemm_part *t, int n);

#define GEMM_FULL(rows)                                                                            \
    static void gemm_full_##rows(const gemm_part *t, int n)                                        \
    {                                                                                              \
        (void)n;                                                                                   \
        gemm_tile(t, 0, rows, 2);                                                                  \
    }
#define GEMM_TAIL(rows)                                                                            \
    static void gemm_tail_##rows(const gemm_part *t, int n)                                        \
    {                                                                                              \
        gemm_tile(t, n, rows, 2);                                                                  \
    }
GEMM_EACH_ROWS(GEMM_FULL)
GEMM_EACH_ROWS(GEMM_TAIL)

/* Few rows leave chains too few to hide the latency of an FMA, so they take more columns. */
static void gemm_1x8(const gemm_part *t, int n)
{
    (void)n;
    gemm_tile(t, 0, 1, 8);
}

static void gemm_2x4(const gemm_part *t, int n)
{
    (void)n;
    gemm_tile(t, 0, 2, 4);
}

static void gemm_3x4(const gemm_part *t, int n)
{
    (void)n;
    gemm_tile(t, 0, 3, 4);
}

static const struct {
    int vecs;
    gemm_fn run;
} gemm_wide[] = {{0, NULL}, {8, gemm_1x8}, {4, gemm_2x4}, {4, gemm_3x4}};

#define GEMM_FULL_NAME(rows) gemm_full_##rows,
#define GEMM_TAIL_NAME(rows) gemm_tail_##rows,
static const gemm_fn gemm_full[] = {NULL, GEMM_EACH_ROWS(GEMM_FULL_NAME)};
static const gemm_fn gemm_tail[] = {NULL, GEMM_EACH_ROWS(GEMM_TAIL_NAME)};

/* All m rows of n columns that one tile spans; k is the whole of it, run in blocks. */
static void gemm_columns(gemm_part t, int m, int k, int n, int wide)
{
    const gemm_fn *fns = n < 2 * V_LEN ? gemm_tail : gemm_full;
    const int k_block = m > GEMM_ROWS ? GEMM_K_BLOCK : k;
    for (int p = 0; p < k || p == 0; p += k_block) {
        gemm_part u = t;
        u.b += p * t.ldb;
        u.k = k - p < k_block ? k - p : k_block;
        u.acc = t.acc || p > 0;
        /* Two balanced tiles at the end: a full one's small rest would starve the FMA units. */
        for (int i = 0, rows; i < m; i += rows) {
            const int left = m - i;
            rows = left <= GEMM_ROWS ? left : left < 2 * GEMM_ROWS ? (left + 1) / 2 : GEMM_ROWS;
            u.a = t.a + i * t.lda + p;
            u.c = t.c + i * t.ldc;
            (wide ? gemm_wide[rows].run : fns[rows])(&u, n);
        }
        if (k <= k_block)
            break;
    }
}

void RKV_TIER(gemm_f32)(float *c, ptrdiff_t ldc, const float *a, ptrdiff_t lda, const float *b,
                        ptrdiff_t ldb, int m, int n, int k, int acc)
{
    for (int j = 0, columns; j < n && m > 0; j += columns) {
        const int left = n - j;
        const int wide = m <= 3 && left >= gemm_wide[m].vecs * V_LEN;
        columns = wide ? gemm_wide[m].vecs * V_LEN : left < 2 * V_LEN ? left : 2 * V_LEN;
        const gemm_part t = {c + j, a, b + j, ldc, lda, ldb, k, acc};
        gemm_columns(t, m, k, columns, wide);
    }
}
