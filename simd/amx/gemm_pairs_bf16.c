/* gemm_pairs on AMX: blocks of 32 x 32 of c in four tiles, two tiles of a, two of b.
 *
 * The speed to expect, from Intel's optimization manual (chapter on AMX), not measured: a
 * TDPBF16PS takes the multiplier for 16 cycles and does 16 x 16 x 32 products; a tile comes from
 * the first-level cache in 8 cycles. A step of 32 in k is four instructions, 64 cycles, and four
 * loads, 32 cycles, which run beside them: 512 products per cycle, 1.5 T products (3 T operations)
 * per second at 3 GHz. With k = 512, 16 steps, c costs four loads and four stores of 16 cycles to
 * 1,024 cycles of products. Then the 32 KiB of b stay in the first-level cache while all rows pass,
 * and a comes from the second level: 2 KiB per step, 32 bytes per cycle. */
#include "config.h"
#include "kernels.h"

#include <immintrin.h>

#include "attr.h"

enum {
    TILE = 16,       /* rows of a tile, and its columns of 32 bits */
    SIDE = 2 * TILE, /* of a block */
    STEP = 32        /* k of one instruction */
};

/* Tiles: macros, since the intrinsics paste them into instructions. */
#define C00 0
#define C01 1
#define C10 2
#define C11 3
#define A0 4
#define A1 5
#define B0 6
#define B1 7

/* What LDTILECFG reads. Source: Intel SDM volume 2, LDTILECFG, palette 1. */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t colsb[16]; /* bytes of a row */
    uint8_t rows[16];
} tile_config;

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Leaves a tile without rows or columns unconfigured: half a shape is a fault. */
static void shape(volatile tile_config *t, int tile, int rows, int columns)
{
    if (rows <= 0 || columns <= 0)
        return;
    t->rows[tile] = (uint8_t)rows;
    t->colsb[tile] = (uint16_t)(4 * columns);
}

/* Tiles for a block of c of rows x columns, each 1 to 32. volatile: in GCC 12 _tile_loadconfig
 * tells the compiler of the first eight bytes only, so the others would be stored too late. */
static void configure(int rows, int columns)
{
    volatile tile_config t = {.palette = 1};
    const int r0 = least(rows, TILE), c0 = least(columns, TILE);
    shape(&t, C00, r0, c0);
    shape(&t, C01, r0, columns - TILE);
    shape(&t, C10, rows - TILE, c0);
    shape(&t, C11, rows - TILE, columns - TILE);
    shape(&t, A0, r0, TILE);
    shape(&t, A1, rows - TILE, TILE);
    shape(&t, B0, TILE, c0);
    shape(&t, B1, TILE, columns - TILE);
    _tile_loadconfig((const void *)&t);
}

typedef struct block {
    float *c;
    const uint16_t *a, *b;
    ptrdiff_t ldc, lda, ldb;
    int k, acc;
    const char *next; /* cache lines to prefetch, so many per step */
    int n_line;
} block;

/* Does something with each tile of c that the block has. */
#define EACH_C(DO)                                                                                 \
    do {                                                                                           \
        DO(C00, t->c);                                                                             \
        if (across > 1)                                                                            \
            DO(C01, t->c + TILE);                                                                  \
        if (down > 1)                                                                              \
            DO(C10, t->c + TILE * t->ldc);                                                         \
        if (down > 1 && across > 1)                                                                \
            DO(C11, t->c + TILE * t->ldc + TILE);                                                  \
    } while (0)
#define ZERO(tile, at) _tile_zero(tile)
#define LOAD(tile, at) _tile_loadd(tile, at, 4 * t->ldc)
#define STORE(tile, at) _tile_stored(tile, at, 4 * t->ldc)

/* A block of one or two tiles each way; both are constants at every call. */
static RKV_ALWAYS_INLINE void run_block(const block *t, const int down, const int across)
{
    const ptrdiff_t a_stride = 2 * t->lda, b_stride = 4 * t->ldb;
    const uint16_t *a = t->a, *b = t->b;
    const char *next = t->next;
    if (t->acc)
        EACH_C(LOAD);
    else
        EACH_C(ZERO);
    for (int p = 0; p < t->k; p += STEP, a += STEP, b += STEP * t->ldb) {
        _tile_loadd(A0, a, a_stride);
        _tile_loadd(B0, b, b_stride);
        _tile_dpbf16ps(C00, A0, B0);
        if (across > 1) {
            _tile_loadd(B1, b + 2 * TILE, b_stride);
            _tile_dpbf16ps(C01, A0, B1);
        }
        if (down > 1) {
            _tile_loadd(A1, a + TILE * t->lda, a_stride);
            _tile_dpbf16ps(C10, A1, B0);
        }
        if (down > 1 && across > 1)
            _tile_dpbf16ps(C11, A1, B1);
        for (int i = 0; i < t->n_line; i++, next += 64)
            _mm_prefetch(next, _MM_HINT_T1);
    }
    EACH_C(STORE);
}

static void run_any(const block *t, int rows, int columns)
{
    if (rows > TILE && columns > TILE)
        run_block(t, 2, 2);
    else if (rows > TILE)
        run_block(t, 2, 1);
    else if (columns > TILE)
        run_block(t, 1, 2);
    else
        run_block(t, 1, 1);
}

void rkv_gemm_pairs_bf16_amx(float *c, ptrdiff_t ldc, const uint16_t *a, ptrdiff_t lda,
                             const uint16_t *b, ptrdiff_t ldb, int m, int n, int k, int acc)
{
    /* What lies behind b is fetched to the second level, a share with each block: waited for in one
     * go, 32 KiB from memory would take as long as 256 rows of products. */
    const int n_block = (m + SIDE - 1) / SIDE;
    const ptrdiff_t share = n_block ? (SIDE + n_block - 1) / n_block : 0;
    for (int j = 0; j < n; j += SIDE) {
        const int columns = least(SIDE, n - j);
        const char *next = (const char *)(b + k * ldb);
        for (int i = 0, rows; i < m; i += rows) {
            rows = least(SIDE, m - i);
            if (i == 0 || rows < SIDE)
                configure(rows, columns);
            const block t = {c + i * ldc + j, a + i * lda, b + 2 * j, ldc, lda, ldb, k, acc, next,
                             (int)share};
            run_any(&t, rows, columns);
            next += share * 64 * (k / STEP);
        }
    }
    _tile_release();
}
