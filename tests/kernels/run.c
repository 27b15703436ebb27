#include "config.h"
#include "run.h"

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#if defined __SSE__
#include <xmmintrin.h>
#endif

static const struct {
    int number;
    const char *name;
} fatal[] = {
    {SIGSEGV, "SIGSEGV (outside the operands)"},
    {SIGBUS, "SIGBUS"},
    {SIGILL, "SIGILL (an instruction of another tier?)"},
    {SIGFPE, "SIGFPE"},
};
enum { n_fatal = sizeof fatal / sizeof *fatal };

static sigjmp_buf before_kernel;
static volatile sig_atomic_t in_kernel;
static volatile int ref_phase;

static void on_signal(int number)
{
    if (in_kernel) {
        in_kernel = 0;
        siglongjmp(before_kernel, number);
    }
    signal(number, SIG_DFL); /* a fault of the test itself: die of it */
    raise(number);
}

int run_open(int readable)
{
    struct sigaction a = {.sa_handler = on_signal};
    sigemptyset(&a.sa_mask);
    for (int i = 0; i < n_fatal; i++)
        sigaction(fatal[i].number, &a, NULL);
    return case_open(readable);
}

#define OP_DRIVER(name) extern const op_driver drive_##name;
#include "ops.def"
#undef OP_DRIVER

const op_driver *run_driver(const char *op)
{
    static const op_driver *const all[] = {
#define OP_DRIVER(name) &drive_##name,
#include "ops.def"
#undef OP_DRIVER
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i]->op, op))
            return all[i];
    return NULL;
}

/* Rounding, traps, denormals; without the flags that any operation may raise. */
static unsigned fp_mode(void)
{
#if defined __SSE__
    return _mm_getcsr() & ~0x3fu;
#else
    return 0;
#endif
}

static void fp_restore(unsigned mode)
{
#if defined __SSE__
    _mm_setcsr(mode);
#else
    (void)mode;
#endif
}

/* Case index, or the known results when it is negative; the text of its fault, or of its crash. */
static int run_guarded(const kernel_row *k, kernel_fn ref, const op_driver *d, uint64_t seed,
                       int index, char *text)
{
    ref_phase = 0;
    const unsigned mode = fp_mode();
    const int number = sigsetjmp(before_kernel, 1);
    if (number) {
        fp_restore(mode);
        const char *name = "a signal";
        for (int i = 0; i < n_fatal; i++)
            if (fatal[i].number == number)
                name = fatal[i].name;
        snprintf(text, FAULT_TEXT, "%s%s", ref_phase ? "the reference died of " : "", name);
        return 0;
    }
    in_kernel = 1;
    const int ok = index < 0 ? d->known(k->fn, k->dt, text)
                             : case_run(k, ref, d, seed, index, &ref_phase, text);
    in_kernel = 0;
    if (fp_mode() == mode)
        return ok;
    snprintf(text, FAULT_TEXT, "the floating-point mode changed from %#x to %#x", mode, fp_mode());
    fp_restore(mode);
    return 0;
}

run_result run_kernel(const kernel_row *k, kernel_fn ref, const op_driver *d, const run_options *o)
{
    run_result res = {0};
    char text[FAULT_TEXT] = "", shape[FAULT_TEXT] = "";
    if (!run_guarded(k, ref, d, o->seed, -1, text)) {
        res.failed = 1;
        snprintf(res.text, sizeof res.text, "known results: %.*s", FAULT_TEXT, text);
        return res;
    }
    const int all = d->n_case(k->dt), n = o->n_case && o->n_case < all ? o->n_case : all;
    for (int i = 0; i < n; i++) {
        const int index = o->only_case >= 0 ? o->only_case : (int)((int64_t)i * all / n);
        res.n_case++;
        if (!run_guarded(k, ref, d, o->seed, index, text)) {
            case_describe(d, shape);
            res.failed = 1;
            snprintf(res.text, sizeof res.text, "case %d (%.*s): %.*s", index, FAULT_TEXT / 2,
                     shape, FAULT_TEXT, text);
            return res;
        }
        if (o->only_case >= 0)
            break;
    }
    return res;
}
