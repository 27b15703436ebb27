#include "config.h"
#include "base/team.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/thread.h"

enum {
    SPIN = 1000,                /* pauses before a thread sleeps: about 20 to 40 us */
    PART_BITS = 24              /* of the next part in the ticket */
};

typedef struct helper {
    rkv_team *team;
    pthread_t thread;
    int index;
} helper;

struct rkv_team {
    int n_thread, n_started, tried;     /* wanted; helpers that run; start was tried */
    int spin;
    rkv_part_fn *fn;            /* of the loop; written only while no ticket is valid */
    void *ctx;
    /* n_part, then the next part to claim in the low bits: one fetch_add claims a part and says
     * whether there was one, also to a helper that comes late and finds another loop. */
    _Alignas(64) _Atomic uint64_t ticket;
    _Alignas(64) _Atomic uint32_t loop; /* counts loops; helpers sleep on it */
    _Atomic uint32_t sleeping;  /* helpers asleep, or about to be */
    _Alignas(64) _Atomic uint32_t done; /* parts done; the caller sleeps on it */
    _Atomic uint32_t caller_sleeps, stop;
    helper helpers[];
};

static void pause_cpu(void)
{
#if defined __x86_64__ || defined __i386__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("yield");
#endif
}

static void sleep_while(_Atomic uint32_t *word, uint32_t value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void wake(_Atomic uint32_t *word, int n)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

/* Claims and runs parts until none is left. */
static void work(rkv_team *t, int thread)
{
    const uint64_t mask = ((uint64_t)1 << PART_BITS) - 1;
    for (;;) {
        const uint64_t ticket = atomic_fetch_add_explicit(&t->ticket, 1, memory_order_acquire);
        const uint64_t part = ticket & mask, n_part = ticket >> PART_BITS;
        if (part >= n_part)
            return;
        t->fn(t->ctx, (int)part, thread);
        const uint32_t done = atomic_fetch_add(&t->done, 1) + 1;
        if (thread && done == n_part && atomic_load(&t->caller_sleeps))
            wake(&t->done, 1);
    }
}

static void *help(void *arg)
{
    const helper *h = arg;
    rkv_team *t = h->team;
    uint32_t seen = 0;
    for (;;) {
        uint32_t now = atomic_load_explicit(&t->loop, memory_order_acquire);
        for (int i = 0; now == seen && i < t->spin; i++) {
            pause_cpu();
            now = atomic_load_explicit(&t->loop, memory_order_acquire);
        }
        if (now == seen) {
            atomic_fetch_add(&t->sleeping, 1);
            while ((now = atomic_load(&t->loop)) == seen)
                sleep_while(&t->loop, seen);
            atomic_fetch_sub(&t->sleeping, 1);
        }
        seen = now;
        if (atomic_load(&t->stop))
            return NULL;
        work(t, h->index);
    }
}

/* Helpers leave the process's signals to its own threads; those that a helper's own instruction
 * raises (a page of a mapped file that is gone) must reach a handler: blocked, they kill. */
static void start(rkv_team *t)
{
    static const int own[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP};
    sigset_t all, before;
    t->tried = 1;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        sigdelset(&all, own[i]);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 0; i < t->n_thread - 1; i++) {
        helper *h = &t->helpers[t->n_started];
        *h = (helper){.team = t, .index = t->n_started + 1};
        if (!pthread_create(&h->thread, NULL, help, h))
            t->n_started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

rkv_status rkv_team_create(rkv_team **out, int n_thread, rkv_error *e)
{
    rkv_team *t = rkv_mem_calloc(1, sizeof *t + (size_t)n_thread * sizeof(helper));
    if (!t)
        return rkv_fail(e, RKV_E_MEM, "team of %d threads: out of memory", n_thread);
    t->n_thread = n_thread;
    /* More threads than CPUs: one that spins keeps another from its work. */
    t->spin = n_thread <= rkv_thread_available() ? SPIN : 0;
    *out = t;
    return RKV_OK;
}

void rkv_team_free(rkv_team *t)
{
    if (!t)
        return;
    atomic_store(&t->stop, 1);
    atomic_fetch_add(&t->loop, 1);
    wake(&t->loop, t->n_started);
    for (int i = 0; i < t->n_started; i++)
        pthread_join(t->helpers[i].thread, NULL);
    rkv_mem_free(t);
}

int rkv_team_size(const rkv_team *t)
{
    return t ? t->n_thread : 1;
}

/* Waits for parts that helpers still run. */
static void wait_done(rkv_team *t, uint32_t n_part)
{
    uint32_t done = atomic_load_explicit(&t->done, memory_order_acquire);
    for (int i = 0; done != n_part && i < t->spin; i++) {
        pause_cpu();
        done = atomic_load_explicit(&t->done, memory_order_acquire);
    }
    if (done == n_part)
        return;
    atomic_store(&t->caller_sleeps, 1);
    while ((done = atomic_load(&t->done)) != n_part)
        sleep_while(&t->done, done);
    atomic_store(&t->caller_sleeps, 0);
}

void rkv_team_run(rkv_team *t, rkv_part_fn *fn, void *ctx, int n_part)
{
    if (t && t->n_thread > 1 && n_part > 1 && !t->tried)
        start(t);
    if (!t || !t->n_started || n_part <= 1) {
        for (int i = 0; i < n_part; i++)
            fn(ctx, i, 0);
        return;
    }
    t->fn = fn;
    t->ctx = ctx;
    atomic_store_explicit(&t->done, 0, memory_order_relaxed);
    atomic_store_explicit(&t->ticket, (uint64_t)n_part << PART_BITS, memory_order_release);
    atomic_fetch_add(&t->loop, 1);
    const uint32_t asleep = atomic_load(&t->sleeping);
    if (asleep)
        wake(&t->loop, n_part - 1 < (int)asleep ? n_part - 1 : (int)asleep);
    work(t, 0);
    wait_done(t, (uint32_t)n_part);
}

typedef struct range_job {
    rkv_range_fn *fn;
    void *ctx;
    int n, grain;
} range_job;

static void range_part(void *ctx, int part, int thread)
{
    const range_job *j = ctx;
    const int first = part * j->grain, end = first + j->grain;
    (void)thread;
    j->fn(j->ctx, first, end < j->n ? end : j->n);
}

void rkv_team_ranges(rkv_team *t, rkv_range_fn *fn, void *ctx, int n, int grain)
{
    range_job j = {fn, ctx, n, grain};
    rkv_team_run(t, range_part, &j, n / grain + (n % grain != 0));
}
