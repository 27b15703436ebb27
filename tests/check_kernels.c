/* Every kernel of kernels.def against its reference, at every tier that this CPU has.
 * check_kernels [--seed N] [--kernel PATTERN] [--skip PATTERN] [--case I] [--cases N] [--list]
 *               [--readable]
 * PATTERN is a shell pattern of kernel names; --cases runs at most N cases per kernel, evenly
 * chosen; --readable lets reads, not writes, go beyond operands: for emulators (guard.h). */
#include "config.h"
#include "check.h"

#include <fnmatch.h>
#include <getopt.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "cpu.h"
#include "kernels.h"
#include "kernels/run.h"

static const kernel_row rows[] = {
#define RKV_KERNEL(op, dt, isa)                                                                    \
    {"rkv_" #op "_" #dt "_" #isa,       #op, #isa, RKV_DT_##dt, RKV_ISA_##isa,                     \
     (kernel_fn)rkv_##op##_##dt##_##isa},
#include "kernels.def"
#undef RKV_KERNEL
};
enum { n_rows = sizeof rows / sizeof *rows };

/* Tiers that can run here. The builds that emulate tiers are for those alone; AVX-512 and its VNNI
 * are emulated by AVX2, AMX by portable C. */
#if defined RKV_EMULATE_AMX
static const char *const all = "*_amx";
static uint32_t features(void)
{
    return RKV_ISA_amx;
}
#elif defined RKV_EMULATE_AVX512
static const char *const all = "*[5n][1n][2i]"; /* avx512, vnni */
static uint32_t features(void)
{
    const uint32_t have = rkv_cpu_detect();
    return have & RKV_ISA_avx2 ? have | RKV_ISA_vnni : have;
}
#else
static const char *const all = "*";
static uint32_t features(void)
{
    return rkv_cpu_detect();
}
#endif

static int same_op(const kernel_row *a, const kernel_row *b)
{
    return a->dt == b->dt && !strcmp(a->op, b->op);
}

static kernel_fn reference(const kernel_row *k)
{
    for (int i = 0; i < n_rows; i++)
        if (same_op(&rows[i], k) && !rows[i].isa)
            return rows[i].fn;
    return NULL;
}

/* Dispatch takes the last row that fits, so a row must not come after a stronger one. */
static int in_order(int i)
{
    for (int j = 0; j < i; j++)
        if (same_op(&rows[j], &rows[i]) && (rows[j].isa & rows[i].isa) == rows[i].isa)
            return 0;
    return 1;
}

static void check_row(int i, uint32_t have, const run_options *o)
{
    const kernel_row *k = &rows[i];
    const op_driver *d = run_driver(k->op);
    const kernel_fn ref = reference(k);
    const char *trouble = !d             ? "its op has no driver in tests/kernels"
                          : !ref         ? "there is no reference"
                          : !in_order(i) ? "its row comes after one of a stronger or equal tier"
                                         : NULL;
    if (trouble) {
        CHECK(!trouble, "%s: %s", k->name, trouble);
        return;
    }
    if ((have & k->isa) != k->isa) {
        SKIP(1, "%s: this CPU has no %s", k->name, k->tier);
        return;
    }
    const int64_t from = rkv_clock_ns();
    const run_result r = run_kernel(k, ref, d, o);
    CHECK(!r.failed, "%s: %s\n    again: --kernel %s --seed %llu", k->name, r.text, k->name,
          (unsigned long long)o->seed);
    printf("%-28s %5d cases %7.3f s  %s\n", k->name, r.n_case,
           1e-9 * (double)(rkv_clock_ns() - from), r.failed ? "FAILED" : "ok");
}

typedef struct arguments {
    run_options run;
    const char *wanted, *unwanted;
    int list, readable;
} arguments;

static int parse(arguments *a, int argc, char **argv)
{
    static const struct option options[] = {
        {"seed", required_argument, NULL, 's'},
        {"kernel", required_argument, NULL, 'k'},
        {"skip", required_argument, NULL, 'x'},
        {"case", required_argument, NULL, 'i'},
        {"cases", required_argument, NULL, 'n'},
        {"list", no_argument, NULL, 'l'},
        {"readable", no_argument, NULL, 'r'},
        {NULL, 0, NULL, 0},
    };
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
        if (c == 's')
            a->run.seed = strtoull(optarg, NULL, 0);
        else if (c == 'k')
            a->wanted = optarg;
        else if (c == 'x')
            a->unwanted = optarg;
        else if (c == 'i')
            a->run.only_case = atoi(optarg);
        else if (c == 'n')
            a->run.n_case = atoi(optarg);
        else if (c == 'l')
            a->list = 1;
        else if (c == 'r')
            a->readable = 1;
        else
            return 0;
    return optind == argc;
}

int main(int argc, char **argv)
{
    arguments a = {{(uint64_t)time(NULL), 0, -1}, all, "", 0, 0};
    if (!parse(&a, argc, argv)) {
        fputs("usage: check_kernels [--seed N] [--kernel PATTERN] [--skip PATTERN] [--case I]\n"
              "                     [--cases N] [--list] [--readable]\n",
              stderr);
        return 2;
    }
    if (!run_open(a.readable)) {
        fputs("check_kernels: out of memory\n", stderr);
        return 1;
    }
    const uint32_t have = features();
    printf("seed %llu, tier %s\n", (unsigned long long)a.run.seed, rkv_cpu_tier_name(have));
    for (int i = 0; i < n_rows; i++) {
        const char *name = rows[i].name;
        if (fnmatch(a.wanted, name, 0))
            continue;
        if (a.list)
            printf("%s%s\n", name, (have & rows[i].isa) == rows[i].isa ? "" : " (not on this CPU)");
        else if (!fnmatch(a.unwanted, name, 0))
            SKIP(1, "%s: not wanted", name);
        else
            check_row(i, have, &a.run);
        fflush(stdout);
    }
    return a.list ? 0 : check_end("kernels");
}
