/* Speed of every kernel of kernels.def, at every tier that this CPU has, on the shapes of
 * kernel_shapes.c.
 *     bench_kernels [--kernel PATTERN] [--samples N] [--cpu N] [--json] [--quick]
 * One thread, pinned; each kernel is warmed, then timed N (>= 30) times over calls of at least 0.2
 * ms. The shares are of what one thread reached of this machine's ceilings in the same run
 * (ceilings.h): bytes read from memory where a shape streams from there, f32 multiply-adds in the
 * CPU's widest registers where a kernel's work is products (integer and bf16 products can pass
 * that), else bytes from the second-level cache, written ones counted like those read. --quick: one
 * call each, for tests; its figures mean nothing. */
#include "config.h"

#include <fnmatch.h>
#include <getopt.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "ceilings.h"
#include "cpu.h"
#include "kernel_shapes.h"
#include "kernels/inputs.h"
#include "rkv.h"

enum { MIN_SAMPLE_NS = 200000, WARM_NS = 20000000, MAX_SAMPLES = 1000, MAX_SHAPES = 8 };

static const struct bench_row {
    const char *name, *type;
    int bench;                  /* of kernel_benches */
    rkv_dtype dt;
    uint32_t isa;
    kernel_fn fn;
} rows[] = {
#define RKV_KERNEL(op, dt, isa) \
    {"rkv_" #op "_" #dt "_" #isa,       #dt, BENCH_##op, RKV_DT_##dt, RKV_ISA_##isa, \
     (kernel_fn)rkv_##op##_##dt##_##isa},
#include "kernels.def"
#undef RKV_KERNEL
};
enum { n_row = sizeof rows / sizeof *rows };

typedef struct options {
    const char *pattern;
    int n_sample, cpu, as_json, quick;
} options;

typedef struct bench {
    options o;
    ceilings top;
    unsigned char *w;           /* STREAM_BYTES of the type at work */
    float *x, *y, *z;           /* PLAIN_FLOATS each */
    double ref_ns[N_BENCH][MAX_SHAPES][RKV_DT_COUNT];
    rkv_text json;
} bench;

typedef struct result {
    double ns, spread;          /* median of a call; interquartile range over it */
    double gb_s, gflop_s;       /* 1e9 bytes, 1e9 operations per second; 0: not stated */
    double share, ratio;        /* of the ceiling; speed over ref's */
    const char *of;             /* the ceiling */
} result;

/* ---- measuring ---- */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static size_t typed_bytes(const struct bench_row *k, const kernel_shape *s)
{
    return rkv_dtype_bytes(rkv_dtype_get(k->dt), (size_t)s->typed);
}

/* Calls until min_ns have passed; ns of one. In a stream, the next call begins where this ended. */
static double time_calls(const bench *b, const struct bench_row *k, const kernel_shape *s,
                         kernel_args *a, int64_t min_ns)
{
    const size_t step = s->from_memory ? typed_bytes(k, s) : 0;
    const int64_t from = rkv_clock_ns();
    int64_t n = 0, passed;
    do {
        kernel_benches[k->bench].run(k->fn, a, s);
        n++;
        a->w += step;
        if ((size_t)(a->w - b->w) + step > STREAM_BYTES)
            a->w = b->w;
        passed = rkv_clock_ns() - from;
    } while (passed < min_ns);
    return (double)passed / (double)n;
}

static void set_share(result *r, const ceilings *top, const kernel_shape *s)
{
    if (s->from_memory)
        r->of = "memory read", r->share = r->gb_s / top->read_gb_s;
    else if (s->flops > 0.0)
        r->of = "multiply-adds", r->share = r->gflop_s / top->fma_gflop_s;
    else
        r->of = "cache read", r->share = r->gb_s / top->cache_gb_s;
}

static result measure(bench *b, const struct bench_row *k, int shape)
{
    const kernel_shape *s = &kernel_benches[k->bench].shape[shape];
    double sample[MAX_SAMPLES];
    rkv_ops table;
    rkv_ops_init(&table, k->isa);
    kernel_args a = {.w = b->w, .x = b->x, .y = b->y, .z = b->z, .dt = k->dt};
    a.gemm_nr = table.gemm_nr;
    memcpy(b->y, b->x, PLAIN_FLOATS * sizeof *b->y);
    const int n = b->o.quick ? 1 : b->o.n_sample;
    if (!b->o.quick)
        (void)time_calls(b, k, s, &a, WARM_NS);
    for (int i = 0; i < n; i++)
        sample[i] = time_calls(b, k, s, &a, b->o.quick ? 0 : MIN_SAMPLE_NS);
    qsort(sample, (size_t)n, sizeof *sample, by_value);
    result r = {.ns = sample[n / 2]};
    r.spread = (sample[n * 3 / 4] - sample[n / 4]) / r.ns;
    r.gb_s = ((double)typed_bytes(k, s) + s->floats * (double)sizeof(float)) / r.ns;
    r.gflop_s = s->flops / r.ns;
    set_share(&r, &b->top, s);
    double *ref = &b->ref_ns[k->bench][shape][k->dt];
    if (!k->isa)
        *ref = r.ns;
    r.ratio = *ref / r.ns;
    return r;
}

/* ---- output ---- */

static void print_md(const struct bench_row *k, const kernel_shape *s, const result *r)
{
    printf("| %s | %s | %.0f | %.1f %% | ", k->name, s->name, r->ns, 100.0 * r->spread);
    printf(r->gb_s > 0.0 ? "%.2f | " : "| ", r->gb_s);
    printf(r->gflop_s > 0.0 ? "%.2f | " : "| ", r->gflop_s);
    printf("%.0f %% of %s | ", 100.0 * r->share, r->of);
    printf(r->ratio > 0.0 ? "%.2f |\n" : "|\n", r->ratio);
    fflush(stdout);
}

static void add_json(rkv_text *json, const struct bench_row *k, const kernel_shape *s,
                     const result *r)
{
    rkv_text_printf(json,
                    "%s\n  {\"kernel\": \"%s\", \"op\": \"%s\", \"type\": \"%s\", \"shape\": "
                    "\"%s\", \"ns\": %.1f, \"spread\": %.4f, ",
                    json->data[json->n - 1] == '[' ? "" : ",", k->name,
                    kernel_benches[k->bench].op, k->type, s->name, r->ns, r->spread);
    if (r->gb_s > 0.0)
        rkv_text_printf(json, "\"gb_s\": %.4g, ", r->gb_s);
    if (r->gflop_s > 0.0)
        rkv_text_printf(json, "\"gflop_s\": %.4g, ", r->gflop_s);
    if (r->ratio > 0.0)
        rkv_text_printf(json, "\"ratio_to_ref\": %.4g, ", r->ratio);
    rkv_text_printf(json, "\"share\": %.4g, \"of\": \"%s\"}", r->share, r->of);
}

static void begin_output(bench *b, const char *cpu)
{
    const char *tier = rkv_cpu_tier_name(rkv_cpu_detect());
    const ceilings *t = &b->top;
    if (b->o.as_json)
        rkv_text_printf(&b->json,
                        "{\"command\": \"build/bench_kernels --json > bench/results/kernels.json\""
                        ", \"cpu\": \"%s\", \"tier\": \"%s\", \"samples\": %d,\n \"ceilings\": "
                        "{\"threads\": 1, \"read_gb_s\": %.2f, \"cache_gb_s\": %.1f, "
                        "\"fma_gflop_s\": %.1f, \"fma_bits\": %d},\n \"rows\": [",
                        cpu, tier, b->o.n_sample, t->read_gb_s, t->cache_gb_s, t->fma_gflop_s,
                        t->fma_bits);
    else
        printf("%s, tier %s, %d samples. Ceilings of one thread: %.2f GB/s from memory, %.1f from "
               "the second-level cache, %.1f GFLOP/s in %d bits.\n\n"
               "| kernel | shape | ns | spread | GB/s | GFLOP/s | share | x ref |\n"
               "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
               cpu, tier, b->o.n_sample, t->read_gb_s, t->cache_gb_s, t->fma_gflop_s, t->fma_bits);
}

/* ---- the run ---- */

static int pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu >= 0 ? cpu : sched_getcpu(), &set);
    return sched_setaffinity(0, sizeof set, &set);
}

/* Fills w with one megabyte of blocks, again and again. */
static void fill(unsigned char *w, rkv_dtype dt)
{
    const size_t bytes = (size_t)rkv_dtype_get(dt)->block_bytes, n = ((size_t)1 << 20) / bytes;
    case_rng r = rng_create(1, rkv_dtype_get(dt)->name, 0);
    input_blocks(dt, w, n, INPUT_UNIFORM, 0, &r);
    for (size_t at = n * bytes; at < STREAM_BYTES; at += n * bytes)
        memcpy(w + at, w, STREAM_BYTES - at < n * bytes ? STREAM_BYTES - at : n * bytes);
}

static void run_rows(bench *b)
{
    const uint32_t have = rkv_cpu_detect();
    int filled = -1;
    for (int dt = 0; dt < RKV_DT_COUNT; dt++)
        for (int i = 0; i < n_row; i++) {
            const struct bench_row *k = &rows[i];
            if ((int)k->dt != dt || fnmatch(b->o.pattern, k->name, 0) ||
                (have & k->isa) != k->isa)
                continue;
            if (filled != dt)
                fill(b->w, (rkv_dtype)(filled = dt));
            for (int n = 0; n < kernel_benches[k->bench].n_shape; n++) {
                const kernel_shape *s = &kernel_benches[k->bench].shape[n];
                const result r = measure(b, k, n);
                if (b->o.as_json)
                    add_json(&b->json, k, s, &r);
                else
                    print_md(k, s, &r);
            }
        }
}

/* 0 when the options are wrong. */
static int parse(options *o, int argc, char **argv)
{
    static const struct option names[] = {
        {"kernel", required_argument, NULL, 'k'}, {"samples", required_argument, NULL, 's'},
        {"cpu", required_argument, NULL, 'c'},    {"json", no_argument, NULL, 'j'},
        {"quick", no_argument, NULL, 'q'},        {NULL, 0, NULL, 0},
    };
    *o = (options){.pattern = "*", .n_sample = 31, .cpu = -1};
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;)
        switch (c) {
        case 'k':
            o->pattern = optarg;
            break;
        case 's':
            o->n_sample = atoi(optarg);
            break;
        case 'c':
            o->cpu = atoi(optarg);
            break;
        case 'j':
            o->as_json = 1;
            break;
        case 'q':
            o->quick = 1;
            break;
        default:
            return 0;
        }
    return optind == argc && o->n_sample >= 30 && o->n_sample <= MAX_SAMPLES && !pin(o->cpu);
}

/* 0, or -1 when there is no memory for it. */
static int prepare(bench *b)
{
    if (ceilings_measure(&b->top, 1))
        return -1;
    b->w = rkv_mem_alloc(STREAM_BYTES);
    b->x = rkv_mem_alloc(PLAIN_FLOATS * sizeof *b->x);
    b->y = rkv_mem_alloc(PLAIN_FLOATS * sizeof *b->y);
    b->z = rkv_mem_alloc(PLAIN_FLOATS * sizeof *b->z);
    if (!b->w || !b->x || !b->y || !b->z)
        return -1;
    case_rng r = rng_create(1, "x", 0);
    input_floats(b->x, PLAIN_FLOATS, INPUT_UNIFORM, &r);
    for (int i = 0; i < PLAIN_FLOATS / 2; i++) {
        b->z[i] = cosf((float)i);
        b->z[PLAIN_FLOATS / 2 + i] = sinf((float)i);
    }
    return 0;
}

int main(int argc, char **argv)
{
    static bench b;
    rkv_machine_info machine;
    rkv_error e;
    if (!parse(&b.o, argc, argv)) {
        fprintf(stderr,
                "usage: bench_kernels [--kernel PATTERN] [--samples 30..%d] [--cpu N] [--json] "
                "[--quick]\n",
                MAX_SAMPLES);
        return 2;
    }
    if (prepare(&b) || rkv_machine_get_info(&machine, &e)) {
        fputs("bench_kernels: out of memory\n", stderr);
        return 4;
    }
    begin_output(&b, machine.cpu);
    run_rows(&b);
    if (b.o.as_json && !b.json.bad)
        printf("%s\n]}\n", b.json.data);
    const int bad = b.json.bad;
    rkv_text_free(&b.json);
    rkv_mem_free(b.w);
    rkv_mem_free(b.x);
    rkv_mem_free(b.y);
    rkv_mem_free(b.z);
    return bad;
}
