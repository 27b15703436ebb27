/* Speed of every kernel of kernels.def whose op has a row below, at every tier this CPU has.
 * bench_kernels [--kernel PATTERN] [--samples N] [--cpu N] [--json]
 * One thread, pinned; each kernel is warmed, then timed N (>= 30) times over calls of at least 0.2
 * ms. Shape "cache" stays in the second-level cache, "memory" streams its weights from memory. The
 * ceiling is this machine's read bandwidth of one thread, measured in the same run. */
#include "config.h"

#include <fnmatch.h>
#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "cpu.h"
#include "kernels.h"
#include "kernels/inputs.h"

typedef void (*kernel_fn)(void);

enum {
    BIG_BYTES = 96 << 20, /* beyond any cache of one socket that we know */
    N_IN = 2048,          /* columns of a product: its inputs stay in the first-level cache */
    MIN_SAMPLE_NS = 200000,
    WARM_NS = 20000000,
    MAX_SAMPLES = 1000
};

/* Buffers of one measurement, and its size. */
typedef struct bench_case {
    unsigned char *w; /* BIG_BYTES of blocks */
    float *x, *y;
    int n_out; /* rows of N_IN */
    ptrdiff_t w_stride;
} bench_case;

/* One row per op: what one call does with a case, and how many bytes it touches per element beside
 * the packed ones. */
static void run_unpack(kernel_fn f, const bench_case *c)
{
    ((RKV_PROTO_unpack(*))f)(c->y, c->w, (int64_t)c->n_out * N_IN);
}

static void run_matvec(kernel_fn f, const bench_case *c)
{
    ((RKV_PROTO_matvec(*))f)(c->y, c->n_out, c->w, c->w_stride, c->x, N_IN, 1, c->n_out, N_IN);
}

static const struct bench_op {
    const char *op;
    void (*run)(kernel_fn f, const bench_case *c);
    size_t extra_bytes;
    int cache_rows; /* rows of the shape "cache" */
    int streams;    /* has the shape "memory" */
} ops[] = {
    {"unpack", run_unpack, sizeof(float), 16, 0},
    {"matvec", run_matvec, 0, 64, 1},
};
enum { n_op = sizeof ops / sizeof *ops };

static const struct bench_row {
    const char *name, *op, *type;
    rkv_dtype dt;
    uint32_t isa;
    kernel_fn fn;
} rows[] = {
#define RKV_KERNEL(op, dt, isa) \
    {"rkv_" #op "_" #dt "_" #isa,       #op, #dt, RKV_DT_##dt, RKV_ISA_##isa, \
     (kernel_fn)rkv_##op##_##dt##_##isa},
#include "kernels.def"
#undef RKV_KERNEL
};
enum { n_row = sizeof rows / sizeof *rows };

typedef struct bench_result {
    double ns, spread;   /* median of a call; interquartile range over it */
    double gb_s, elem_s; /* 1e9 bytes, elements per second */
} bench_result;

static double ref_ns[n_op][RKV_DT_COUNT]; /* per element, shape "cache" */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Calls until min_ns have passed; ns of one. */
static double time_calls(const struct bench_op *op, kernel_fn f, const bench_case *c,
                         int64_t min_ns)
{
    const int64_t from = rkv_clock_ns();
    int64_t n = 0, passed;
    do {
        op->run(f, c);
        n++;
        passed = rkv_clock_ns() - from;
    } while (passed < min_ns);
    return (double)passed / (double)n;
}

static bench_result measure(const struct bench_op *op, const struct bench_row *k,
                            const bench_case *c, int n_sample)
{
    double sample[MAX_SAMPLES];
    (void)time_calls(op, k->fn, c, WARM_NS);
    for (int i = 0; i < n_sample; i++)
        sample[i] = time_calls(op, k->fn, c, MIN_SAMPLE_NS);
    qsort(sample, (size_t)n_sample, sizeof *sample, by_value);
    const double elem = (double)c->n_out * N_IN;
    const size_t packed = rkv_dtype_bytes(rkv_dtype_get(k->dt), N_IN) * (size_t)c->n_out;
    bench_result r = {.ns = sample[n_sample / 2]};
    r.spread = (sample[n_sample * 3 / 4] - sample[n_sample / 4]) / r.ns;
    r.gb_s = ((double)packed + elem * (double)op->extra_bytes) / r.ns;
    r.elem_s = elem / r.ns * 1e9;
    return r;
}

/* Fills the buffer with one megabyte of blocks, again and again. */
static void fill(unsigned char *w, rkv_dtype dt)
{
    const size_t bytes = (size_t)rkv_dtype_get(dt)->block_bytes, n = ((size_t)1 << 20) / bytes;
    case_rng r = rng_create(1, rkv_dtype_get(dt)->name, 0);
    input_blocks(dt, w, n, INPUT_UNIFORM, 0, &r);
    for (size_t at = n * bytes; at < BIG_BYTES; at += n * bytes)
        memcpy(w + at, w, BIG_BYTES - at < n * bytes ? BIG_BYTES - at : n * bytes);
}

/* Best of some passes of one thread over the buffer, GB/s. Eight sums keep the loads independent.
 */
static double read_ceiling(const unsigned char *w)
{
    double best = 0.0;
    for (int pass = 0; pass < 8; pass++) {
        uint64_t sum[8] = {0}, word[8];
        const int64_t from = rkv_clock_ns();
        for (size_t at = 0; at < BIG_BYTES; at += sizeof word) {
            memcpy(word, w + at, sizeof word);
            for (int i = 0; i < 8; i++)
                sum[i] += word[i];
        }
        const volatile uint64_t keep =
            sum[0] ^ sum[1] ^ sum[2] ^ sum[3] ^ sum[4] ^ sum[5] ^ sum[6] ^ sum[7];
        (void)keep;
        const double gb_s = (double)BIG_BYTES / (double)(rkv_clock_ns() - from);
        best = gb_s > best ? gb_s : best;
    }
    return best;
}

static void print_row(rkv_text *json, const struct bench_row *k, const char *shape,
                      const bench_result *r, double ratio, double share)
{
    if (!json) {
        printf("%-24s %-7s %10.0f %5.1f%% %7.2f %8.3f", k->name, shape, r->ns, 100.0 * r->spread,
               r->gb_s, r->elem_s * 1e-9);
        printf(ratio > 0.0 ? " %7.2f" : "       -", ratio);
        printf(share > 0.0 ? " %5.0f%%\n" : "      -\n", 100.0 * share);
        fflush(stdout);
        return;
    }
    rkv_text_printf(
        json, "%s\n  {\"kernel\": \"%s\", \"op\": \"%s\", \"type\": \"%s\", \"shape\": \"%s\", ",
        json->data[json->n - 1] == '[' ? "" : ",", k->name, k->op, k->type, shape);
    rkv_text_printf(json, "\"ns\": %.0f, \"spread\": %.4f, \"gb_s\": %.3f, \"elements_s\": %.4g",
                    r->ns, r->spread, r->gb_s, r->elem_s);
    if (ratio > 0.0)
        rkv_text_printf(json, ", \"ratio_to_ref\": %.3f", ratio);
    if (share > 0.0)
        rkv_text_printf(json, ", \"ceiling_share\": %.3f", share);
    rkv_text_printf(json, "}");
}

static void bench_row(rkv_text *json, const struct bench_row *k, int o, bench_case *c, int n_sample,
                      double ceiling)
{
    const struct bench_op *op = &ops[o];
    c->w_stride = (ptrdiff_t)rkv_dtype_bytes(rkv_dtype_get(k->dt), N_IN);
    c->n_out = op->cache_rows;
    bench_result r = measure(op, k, c, n_sample);
    const double per_elem = 1e9 / r.elem_s;
    if (!k->isa)
        ref_ns[o][k->dt] = per_elem;
    print_row(json, k, "cache", &r, ref_ns[o][k->dt] / per_elem, 0.0);
    if (!op->streams || !k->isa) /* nobody waits for a reference */
        return;
    c->n_out = (int)(BIG_BYTES / c->w_stride);
    r = measure(op, k, c, n_sample);
    print_row(json, k, "memory", &r, 0.0, r.gb_s / ceiling);
}

static int pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu >= 0 ? cpu : sched_getcpu(), &set);
    return sched_setaffinity(0, sizeof set, &set);
}

static int find_op(const char *name)
{
    for (int o = 0; o < n_op; o++)
        if (!strcmp(ops[o].op, name))
            return o;
    return -1;
}

static void bench_all(rkv_text *json, const char *pattern, bench_case *c, int n_sample,
                      double ceiling)
{
    const uint32_t have = rkv_cpu_detect();
    int filled = -1;
    for (int dt = 0; dt < RKV_DT_COUNT; dt++)
        for (int i = 0; i < n_row; i++) {
            const int o = find_op(rows[i].op);
            if ((int)rows[i].dt != dt || o < 0 || fnmatch(pattern, rows[i].name, 0) ||
                (have & rows[i].isa) != rows[i].isa)
                continue;
            if (filled != dt)
                fill(c->w, (rkv_dtype)(filled = dt));
            bench_row(json, &rows[i], o, c, n_sample, ceiling);
        }
}

typedef struct bench_options {
    const char *pattern;
    int n_sample, cpu, as_json;
} bench_options;

/* 0 when the options are wrong. */
static int parse(bench_options *o, int argc, char **argv)
{
    static const struct option options[] = {
        {"kernel", required_argument, NULL, 'k'},
        {"samples", required_argument, NULL, 's'},
        {"cpu", required_argument, NULL, 'c'},
        {"json", no_argument, NULL, 'j'},
        {NULL, 0, NULL, 0},
    };
    *o = (bench_options){.pattern = "*", .n_sample = 31, .cpu = -1};
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
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
        default:
            return 0;
        }
    return optind == argc && o->n_sample >= 30 && o->n_sample <= MAX_SAMPLES && !pin(o->cpu);
}

int main(int argc, char **argv)
{
    bench_options o;
    if (!parse(&o, argc, argv)) {
        fprintf(stderr,
                "usage: bench_kernels [--kernel PATTERN] [--samples 30..%d] [--cpu N] [--json]\n",
                MAX_SAMPLES);
        return 2;
    }
    bench_case c = {.w = rkv_mem_alloc(BIG_BYTES), .x = rkv_mem_alloc(N_IN * sizeof(float))};
    /* A row has two bits per weight at least, so there are no more rows than that. */
    c.y = rkv_mem_calloc((size_t)BIG_BYTES / (N_IN / 4), sizeof *c.y);
    if (!c.w || !c.x || !c.y) {
        fputs("bench_kernels: out of memory\n", stderr);
        return 1;
    }
    case_rng r = rng_create(1, "x", 0);
    input_floats(c.x, N_IN, INPUT_UNIFORM, &r);
    fill(c.w, RKV_DT_f32);
    const double ceiling = read_ceiling(c.w);
    const char *tier = rkv_cpu_tier_name(rkv_cpu_detect());
    rkv_text json = {0};
    if (o.as_json)
        rkv_text_printf(
            &json, "{\"tier\": \"%s\", \"samples\": %d, \"read_ceiling_gb_s\": %.2f, \"rows\": [",
            tier, o.n_sample, ceiling);
    else
        printf("tier %s, %d samples, read ceiling of one thread %.2f GB/s\n"
               "%-24s %-7s %10s %6s %7s %8s %7s %6s\n",
               tier, o.n_sample, ceiling, "kernel", "shape", "ns", "spread", "GB/s", "Gelem/s",
               "x ref", "ceil");
    bench_all(o.as_json ? &json : NULL, o.pattern, &c, o.n_sample, ceiling);
    if (json.data && !json.bad)
        printf("%s\n]}\n", json.data);
    const int bad = json.bad;
    rkv_text_free(&json);
    rkv_mem_free(c.w);
    rkv_mem_free(c.x);
    rkv_mem_free(c.y);
    return bad;
}
