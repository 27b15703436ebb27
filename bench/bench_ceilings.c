/* What the machine can do at most, for the shares that the other benches state: bytes per second
 * read from memory and multiply-adds per second in registers, by all threads together.
 *     bench_ceilings [THREADS]
 * One JSON object: threads, read_gb_s (1e9 bytes), fma_gflop_s (f32, two operations each, in the
 * widest registers of the CPU), fma_bits. Best of some runs: a ceiling is what was reached once. */
#include "config.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attr.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/team.h"
#include "base/thread.h"
#include "cpu.h"

enum {
    RUNS = 12,
    CHAINS = 10,                 /* more than latency times width of the FMA units */
    N_FMA = 1 << 22
};
static const size_t share_bytes = (size_t)256 << 20; /* per thread: beyond every cache */

typedef uint64_t words __attribute__((vector_size(32), aligned(8)));

typedef struct ceiling {
    const char *bytes;
    volatile uint64_t *keep; /* [threads] results, so that the work is done */
} ceiling;

static void read_share(void *ctx, int part, int thread)
{
    const ceiling *c = ctx;
    const char *p = c->bytes + (size_t)part * share_bytes;
    words sum[4] = {{0}};
    (void)thread;
    for (size_t at = 0; at < share_bytes; at += sizeof sum) {
        words w[4];
        memcpy(w, p + at, sizeof w);
        for (int i = 0; i < 4; i++)
            sum[i] ^= w[i];
    }
    const words all = sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
    c->keep[part] = all[0] ^ all[1] ^ all[2] ^ all[3];
}

/* CHAINS chains of sum = sum b + sum in vectors of so many floats; the sums go to infinity. */
#define MULTIPLY_ADD(name, target, floats, step) \
    typedef float name##_v __attribute__((vector_size(4 * (floats)))); \
    target static void name(void *ctx, int part, int thread) \
    { \
        name##_v sum[CHAINS], b = {1.0f}; \
        (void)thread; \
        RKV_UNROLL(16) \
        for (int k = 0; k < CHAINS; k++) \
            sum[k] = b; \
        for (int n = 0; n < N_FMA; n++) { \
            RKV_UNROLL(16) \
            for (int k = 0; k < CHAINS; k++) \
                step; \
        } \
        RKV_UNROLL(16) \
        for (int k = 1; k < CHAINS; k++) \
            sum[0] += sum[k]; \
        ((const ceiling *)ctx)->keep[part] = sum[0][0] > 1.0f; \
    }
#if defined __x86_64__
#define FMA __asm__("vfmadd231ps %1, %1, %0" : "+v"(sum[k]) : "v"(b))
MULTIPLY_ADD(fma_512, __attribute__((target("avx512f"))), 16, FMA)
MULTIPLY_ADD(fma_256, __attribute__((target("avx2,fma"))), 8, FMA)
#endif
MULTIPLY_ADD(fma_128, , 4, sum[k] = sum[k] * b + b)

/* Best seconds of a loop over the team. */
static double best(rkv_team *team, rkv_part_fn *fn, ceiling *c)
{
    double least = 1e30;
    for (int i = 0; i < RUNS; i++) {
        const int64_t from = rkv_clock_ns();
        rkv_team_run(team, fn, c, rkv_team_size(team));
        const double s = 1e-9 * (double)(rkv_clock_ns() - from);
        least = s < least ? s : least;
    }
    return least;
}

int main(int argc, char **argv)
{
    const int n = argc > 1 ? atoi(argv[1]) : rkv_thread_available();
    rkv_error e;
    rkv_team *team = NULL;
    if (n < 1 || argc > 2) {
        fputs("usage: bench_ceilings [THREADS]\n", stderr);
        return 2;
    }
    char *bytes = rkv_mem_alloc((size_t)n * share_bytes);
    ceiling c = {bytes, rkv_mem_calloc((size_t)n, sizeof(uint64_t))};
    if (!bytes || !c.keep || rkv_team_create(&team, n, &e)) {
        fprintf(stderr, "bench_ceilings: out of memory for %d threads\n", n);
        return 4;
    }
    memset(bytes, 1, (size_t)n * share_bytes);
    int bits = 128;
    rkv_part_fn *fma = fma_128;
#if defined __x86_64__
    const uint32_t have = rkv_cpu_detect();
    if ((have & RKV_ISA_avx512) == RKV_ISA_avx512)
        bits = 512, fma = fma_512;
    else if (have & RKV_ISA_avx2)
        bits = 256, fma = fma_256;
#endif
    const double read_s = best(team, read_share, &c), fma_s = best(team, fma, &c);
    printf("{\"threads\": %d, \"read_gb_s\": %.2f, \"fma_gflop_s\": %.1f, \"fma_bits\": %d}\n", n,
           1e-9 * n * (double)share_bytes / read_s,
           1e-9 * n * 2.0 * CHAINS * (bits / 32) * (double)N_FMA / fma_s, bits);
    rkv_team_free(team);
    rkv_mem_free((void *)c.keep);
    rkv_mem_free(bytes);
    return 0;
}
