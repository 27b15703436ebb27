#include "config.h"
#include "ceilings.h"

#include <stdint.h>
#include <string.h>

#include "attr.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/team.h"
#include "cpu.h"

enum {
    RUNS = 12,
    CHAINS = 10,                 /* more than latency times width of the FMA units */
    N_FMA = 1 << 22,
    CACHE_BYTES = 128 << 10,     /* beyond the first level, well within the second */
    SHARE_BYTES = 256 << 20      /* per thread: beyond every cache */
};

typedef struct job {
    const char *bytes;          /* [n_thread][SHARE_BYTES] */
    size_t n, passes;           /* bytes of each share that are read, and how often */
    volatile uint64_t *keep;    /* [n_thread] results, so that the work is done */
} job;

/* Eight sums of vectors of so many bytes over the share, which is as aligned. */
#define READ(name, target, width)                                                                  \
    typedef uint64_t name##_v __attribute__((vector_size(width), may_alias));                      \
    target static void name(void *ctx, int part, int thread)                                       \
    {                                                                                              \
        const job *j = ctx;                                                                        \
        const name##_v *p = (const void *)(j->bytes + (size_t)part * SHARE_BYTES);                 \
        name##_v sum[8] = {{0}};                                                                   \
        (void)thread;                                                                              \
        for (size_t pass = 0; pass < j->passes; pass++)                                            \
            for (size_t at = 0; at < j->n / sizeof *p; at += 8) {                                  \
                RKV_UNROLL(8)                                                                      \
                for (int i = 0; i < 8; i++)                                                        \
                    sum[i] += p[at + (size_t)i];                                                   \
            }                                                                                      \
        RKV_UNROLL(8)                                                                              \
        for (int i = 1; i < 8; i++)                                                                \
            sum[0] ^= sum[i];                                                                      \
        for (size_t i = 0; i < sizeof *p / sizeof(uint64_t); i++)                                  \
            j->keep[part] ^= sum[0][i];                                                            \
    }

/* CHAINS chains of sum = sum b + sum in vectors of so many floats; the sums go to infinity. */
#define MULTIPLY_ADD(name, target, floats, step)                                                   \
    typedef float name##_v __attribute__((vector_size(4 * (floats))));                             \
    target static void name(void *ctx, int part, int thread)                                       \
    {                                                                                              \
        name##_v sum[CHAINS], b = {1.0f};                                                          \
        (void)thread;                                                                              \
        RKV_UNROLL(16)                                                                             \
        for (int k = 0; k < CHAINS; k++)                                                           \
            sum[k] = b;                                                                            \
        for (int n = 0; n < N_FMA; n++) {                                                          \
            RKV_UNROLL(16)                                                                         \
            for (int k = 0; k < CHAINS; k++)                                                       \
                step;                                                                              \
        }                                                                                          \
        RKV_UNROLL(16)                                                                             \
        for (int k = 1; k < CHAINS; k++)                                                           \
            sum[0] += sum[k];                                                                      \
        ((const job *)ctx)->keep[part] = sum[0][0] > 1.0f;                                         \
    }
#if defined __x86_64__
#define AVX2 __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx512f")))
#define FMA __asm__("vfmadd231ps %1, %1, %0" : "+v"(sum[k]) : "v"(b))
READ(read_512, AVX512, 64)
READ(read_256, AVX2, 32)
MULTIPLY_ADD(fma_512, AVX512, 16, FMA)
MULTIPLY_ADD(fma_256, AVX2, 8, FMA)
#endif
READ(read_128, , 16)
MULTIPLY_ADD(fma_128, , 4, sum[k] = sum[k] * b + b)

/* The CPU's widest registers, weakest first. */
static const struct width {
    int bits;
    uint32_t isa;
    rkv_part_fn *read, *fma;
} widths[] = {
    {128, RKV_ISA_ref, read_128, fma_128},
#if defined __x86_64__
    {256, RKV_ISA_avx2, read_256, fma_256},
    {512, RKV_ISA_avx512, read_512, fma_512},
#endif
};

/* Best seconds of a loop over the team. */
static double best(rkv_team *team, rkv_part_fn *fn, job *j)
{
    double least = 1e30;
    for (int i = 0; i < RUNS; i++) {
        const int64_t from = rkv_clock_ns();
        rkv_team_run(team, fn, j, rkv_team_size(team));
        const double s = 1e-9 * (double)(rkv_clock_ns() - from);
        least = s < least ? s : least;
    }
    return least;
}

int ceilings_measure(ceilings *c, int n_thread)
{
    const size_t all = rkv_mem_product((size_t)n_thread, SHARE_BYTES);
    const uint32_t have = rkv_cpu_detect();
    struct width w = widths[0];
    rkv_team *team = NULL;
    char *bytes = rkv_mem_alloc(all);
    job j = {bytes, SHARE_BYTES, 1, rkv_mem_calloc((size_t)n_thread, sizeof(uint64_t))};
    const int bad = !bytes || !j.keep || rkv_team_create(&team, n_thread, NULL);
    if (!bad) {
        for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
            if ((have & widths[i].isa) == widths[i].isa)
                w = widths[i];
        memset(bytes, 1, all);
        *c = (ceilings){.n_thread = rkv_team_size(team), .fma_bits = w.bits};
        const double giga = 1e-9 * c->n_thread;
        c->read_gb_s = giga * SHARE_BYTES / best(team, w.read, &j);
        j.n = CACHE_BYTES, j.passes = SHARE_BYTES / CACHE_BYTES;
        c->cache_gb_s = giga * SHARE_BYTES / best(team, w.read, &j);
        c->fma_gflop_s = giga * 2.0 * CHAINS * (w.bits / 32) * N_FMA / best(team, w.fma, &j);
    }
    rkv_team_free(team);
    rkv_mem_free((void *)j.keep);
    rkv_mem_free(bytes);
    return bad ? -1 : 0;
}
