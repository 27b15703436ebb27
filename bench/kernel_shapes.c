/* Shapes as the engine uses them: rows of 2048 for weights, chunks of 256 slots in decode
 * (RKV_ATTN_CHUNK), tiles of 64 slots in prefill (RKV_ATTN_TILE). */
#include "config.h"
#include "kernel_shapes.h"

#include <math.h>

enum { CHUNK = 256 };

static const void *row(const kernel_args *a, ptrdiff_t element)
{
    return a->w + rkv_dtype_bytes(rkv_dtype_get(a->dt), (size_t)element);
}

#define SHAPES(op) static const kernel_shape op##_shapes[]
#define RUN(op) static void run_##op(kernel_fn f, const kernel_args *a, const kernel_shape *s)
#define CALL(op) ((RKV_PROTO_##op(*))f)

/* ---- weights ---- */

SHAPES(unpack) = {
    {"cache: 16 rows of 2048", 0, 16, 2048, 0, 16 * 2048, 16 * 2048, 0},
    {"memory: 1024 rows of 2048", 1, 1024, 2048, 0, 1024 * 2048, 0, 0},
};
RUN(unpack)
{
    for (int i = 0; i < s->m; i++)
        CALL(unpack)(a->y + (s->from_memory ? 0 : i * s->n), row(a, (ptrdiff_t)i * s->n), s->n);
}

SHAPES(pack) = {{"cache: 256 rows of 128", 0, 256, 128, 0, 256 * 128, 256 * 128, 0}};
RUN(pack)
{
    for (int i = 0; i < s->m; i++)
        CALL(pack)((void *)row(a, (ptrdiff_t)i * s->n), a->x + i * s->n, s->n);
}

SHAPES(pack_pairs) = {{"cache: tile of 64 x 64", 0, 64, 64, 0, 0, 4 * 64 * 64, 0}};
RUN(pack_pairs)
{
    for (int i = 0; i < s->m; i++) {
        float *hi = a->y + i * s->n, *lo = hi + s->m * s->n;
        const float *in = a->x + i * 2 * s->n;
        CALL(pack_pairs)(hi, lo, in, in + s->n, s->n);
    }
}

SHAPES(pack_int16) = {{"cache: 64 blocks of 256", 0, 64, 256, 0, 0, 1.5 * 64 * 256, 0}};
RUN(pack_int16)
{
    for (int i = 0; i < s->m; i++)
        a->y[i] = CALL(pack_int16)((int16_t *)(void *)(a->y + 1024) + i * s->n, a->x + i * s->n,
                                   s->n);
}

SHAPES(matvec) = {
    {"cache: 32 x 2048", 0, 32, 2048, 0, 32 * 2048, 0, 2.0 * 32 * 2048},
    {"memory: 1024 x 2048", 1, 1024, 2048, 0, 1024 * 2048, 0, 2.0 * 1024 * 2048},
};
RUN(matvec)
{
    const ptrdiff_t stride = (const unsigned char *)row(a, s->n) - a->w;
    CALL(matvec)(a->y, s->m, a->w, stride, a->x, s->n, 1, s->m, s->n);
}

/* ---- matrix products ---- */

/* Of the panels that the tier's table asks for, two or one in 32 columns. */
SHAPES(gemm) = {
    {"cache: 256 x 32 x 256", 0, 256, 32, 256, 0, 0, 2.0 * 256 * 32 * 256},
    {"cache: tile of 64 x 64 x 64", 0, 64, 64, 64, 0, 0, 2.0 * 64 * 64 * 64},
    {"cache: tile of 64 x 64 x 128", 0, 64, 64, 128, 0, 0, 2.0 * 64 * 64 * 128},
};
RUN(gemm)
{
    const int panel = s->n == 32 ? a->gemm_nr : s->n;
    for (int j = 0; j < s->n; j += panel)
        CALL(gemm)(a->y + j, s->n, a->x, s->k, a->z + j * s->k, panel, s->m, panel, s->k, 0);
}

/* The next panel, which is prefetched, lies behind this one. */
SHAPES(gemm_pairs) = {
    {"cache: 256 x 32 x 512", 0, 256, 32, 512, 0, 0, 2.0 * 256 * 32 * 512},
    {"cache: tile of 64 x 64 x 192", 0, 64, 64, 192, 0, 0, 2.0 * 64 * 64 * 192},
};
RUN(gemm_pairs)
{
    const ptrdiff_t lda = s->k + 32;            /* no power of two: rows of a share no set */
    const uint16_t *rows = (const uint16_t *)(const void *)a->w, *pairs = rows + s->m * lda;
    CALL(gemm_pairs)(a->y, s->n, rows, lda, pairs, s->n, s->m, s->n, s->k, 0);
}

/* Zeros: integers take the same time whatever they are, and these never leave 32 bits. */
SHAPES(gemm_int16) = {{"cache: 256 x 32 x 256", 0, 256, 32, 256, 0, 0, 2.0 * 256 * 32 * 256}};
RUN(gemm_int16)
{
    static const int16_t rows[256 * (256 + 32)], pairs[32 * 256];
    CALL(gemm_int16)(a->y, s->n, rows, s->k + 32, a->x, 1, pairs, s->n, a->z, s->m, s->n, s->k, 0);
}

SHAPES(transpose) = {
    {"cache: panels of 32 rows of 256", 0, 32, 256, 0, 0, 2 * 32 * 256, 0},
    {"cache: tile of 64 x 128", 0, 64, 128, 0, 0, 2 * 64 * 128, 0},
};
RUN(transpose)
{
    const int rows = s->m == 32 ? a->gemm_nr : s->m;
    for (int i = 0; i < s->m; i += rows)
        CALL(transpose)(a->y + i * s->n, rows, a->x + i * s->n, s->n, rows, s->n);
}

/* ---- attention in decode: m queries of a group, n slots of k ---- */

#define KV_SHAPE(where, memory, queries, slots, d) \
    {where ": " #slots " slots of " #d ", " #queries " queries", memory, queries, slots, d, \
     (slots) * (d), 0, 2.0 * (queries) * (slots) * (d)}
#define KV_SHAPES                                                                                  \
    {                                                                                              \
        KV_SHAPE("cache", 0, 3, 256, 64), KV_SHAPE("cache", 0, 4, 256, 128),                       \
        KV_SHAPE("memory", 1, 3, 8192, 64), KV_SHAPE("memory", 1, 7, 8192, 64),                    \
        KV_SHAPE("memory", 1, 4, 8192, 128)                                                        \
    }
SHAPES(kv_score) = KV_SHAPES;
RUN(kv_score)
{
    for (int t = 0; t < s->n; t += CHUNK)
        CALL(kv_score)(a->y, CHUNK, a->x, row(a, (ptrdiff_t)t * s->k), s->m, CHUNK, s->k);
}

SHAPES(kv_mix) = KV_SHAPES;
RUN(kv_mix)
{
    for (int t = 0; t < s->n; t += CHUNK)
        CALL(kv_mix)(a->y, a->x, CHUNK, row(a, (ptrdiff_t)t * s->k), s->m, CHUNK, s->k);
}

SHAPES(softmax_step) = {{"cache: 8 rows of 256", 0, 8, 256, 0, 0, 2 * 8 * 256, 0}};
RUN(softmax_step)
{
    for (int i = 0; i < s->m; i++) {
        float most = -INFINITY, sum = 0.0f;
        CALL(softmax_step)(a->y + i * s->n, s->n, &most, &sum);
    }
}

/* ---- rows of the residual stream ---- */

SHAPES(rmsnorm) = {{"cache: 8 rows of 2048", 0, 8, 2048, 0, 0, 2 * 8 * 2048 + 2048, 0}};
RUN(rmsnorm)
{
    for (int i = 0; i < s->m; i++)
        CALL(rmsnorm)(a->y + i * s->n, a->x + i * s->n, a->z, s->n, 1e-5f);
}

SHAPES(add) = {{"cache: 8 rows of 2048", 0, 8, 2048, 0, 0, 3 * 8 * 2048, 0}};
RUN(add)
{
    for (int i = 0; i < s->m; i++)
        CALL(add)(a->y + i * s->n, a->x + i * s->n, s->n);
}

SHAPES(scale) = {
    {"cache: 64 rows of 64", 0, 64, 64, 0, 0, 2 * 64 * 64, 0},
    {"cache: 8 rows of 2048", 0, 8, 2048, 0, 0, 2 * 8 * 2048, 0},
};
RUN(scale)
{
    for (int i = 0; i < s->m; i++)
        CALL(scale)(a->y + i * s->n, -1.0f, s->n);
}

SHAPES(silu_mul) = {{"cache: 4 rows of 4096", 0, 4, 4096, 0, 0, 3 * 4 * 4096, 0}};
RUN(silu_mul)
{
    for (int i = 0; i < s->m; i++)
        CALL(silu_mul)(a->y + i * s->n, a->x + i * s->n, a->z + i * s->n, s->n);
}

SHAPES(gelu_mul) = {{"cache: 4 rows of 4096", 0, 4, 4096, 0, 0, 3 * 4 * 4096, 0}};
RUN(gelu_mul)
{
    for (int i = 0; i < s->m; i++)
        CALL(gelu_mul)(a->y + i * s->n, a->x + i * s->n, a->z + i * s->n, s->n);
}

/* m heads of n pairs. */
#define ROPE_SHAPES                                                                                \
    {                                                                                              \
        {"cache: 32 heads of 64", 0, 32, 32, 0, 0, 2 * 32 * 64, 0},                                \
        {"cache: 32 heads of 128", 0, 32, 64, 0, 0, 2 * 32 * 128, 0},                              \
    }
SHAPES(rope_norm) = ROPE_SHAPES;
RUN(rope_norm)
{
    for (int h = 0; h < s->m; h++)
        CALL(rope_norm)(a->y + h * 2 * s->n, a->z, a->z + PLAIN_FLOATS / 2, s->n);
}

SHAPES(rope_neox) = ROPE_SHAPES;
RUN(rope_neox)
{
    for (int h = 0; h < s->m; h++)
        CALL(rope_neox)(a->y + h * 2 * s->n, a->z, a->z + PLAIN_FLOATS / 2, s->n);
}

/* The noise of m slots of a KV head: numbers of 8 bytes. */
SHAPES(normal) = {{"cache: 64 rows of 64", 0, 64, 64, 0, 0, 2 * 64 * 64, 0}};
RUN(normal)
{
    for (int i = 0; i < s->m; i++)
        CALL(normal)((double *)(void *)a->y + i * s->n, 1, (uint64_t)(i * s->n), s->n);
}

const kernel_bench kernel_benches[N_BENCH] = {
#define RKV_OP(op) {#op, run_##op, op##_shapes, sizeof op##_shapes / sizeof *op##_shapes},
    RKV_OPS
#undef RKV_OP
};
