/* A team runs every part once, whatever the numbers of threads and parts, also when its threads
 * have gone to sleep in between; build with -fsanitize=thread to see that parts do not race. */
#include "config.h"
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/team.h"

enum { MAX_PART = 3000 };

typedef struct seen {
    int count[MAX_PART]; /* runs of each part: written by whoever runs it, without a lock */
    int size, stranger;  /* a thread index outside the team was seen */
} seen;

static void count(void *ctx, int part, int thread)
{
    seen *s = ctx;
    s->count[part]++;
    if (thread < 0 || thread >= s->size)
        s->stranger = 1;
}

static void mark(void *ctx, int first, int end)
{
    for (int i = first; i < end; i++)
        ((seen *)ctx)->count[i]++;
}

/* Parts that ran another number of times than `times`. */
static int wrong(const seen *s, int n, int times)
{
    int bad = 0;
    for (int i = 0; i < MAX_PART; i++)
        bad += s->count[i] != (i < n ? times : 0);
    return bad;
}

static void check_size(int n_thread)
{
    static const int parts[] = {0, 1, 2, 3, 7, 64, MAX_PART};
    static seen s;
    rkv_team *t = NULL;
    rkv_error e = {0};
    CHECK(!rkv_team_create(&t, n_thread, &e), "%s", e.text);
    CHECK(rkv_team_size(t) == n_thread, "size %d", rkv_team_size(t));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        s = (seen){.size = n_thread};
        for (int k = 0; k < 50; k++)
            rkv_team_run(t, count, &s, parts[i]);
        CHECK(!wrong(&s, parts[i], 50) && !s.stranger, "%d threads, %d parts: %d wrong", n_thread,
              parts[i], wrong(&s, parts[i], 50));
        nanosleep(&(struct timespec){0, 2000000}, NULL); /* long enough for all to sleep */
    }
    for (int grain = 1; grain < 40; grain += 6) {
        s = (seen){.size = n_thread};
        rkv_team_ranges(t, mark, &s, 100, grain);
        CHECK(!wrong(&s, 100, 1), "%d threads, grain %d", n_thread, grain);
    }
    rkv_team_free(t);
}

static void look_at_mask(void *ctx, int part, int thread)
{
    int *wrong_mask = ctx;
    sigset_t blocked;
    (void)part;
    nanosleep(&(struct timespec){0, 1000000}, NULL);    /* that all threads come to it */
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    if (thread && (sigismember(&blocked, SIGBUS) || sigismember(&blocked, SIGSEGV) ||
                   !sigismember(&blocked, SIGINT) || !sigismember(&blocked, SIGTERM)))
        wrong_mask[thread] = 2;
    else
        wrong_mask[thread] |= 1;
}

/* Helpers leave SIGINT to the caller, and take what their own instructions raise. */
static void check_signals(void)
{
    int seen_mask[4] = {0}, helpers = 0, bad = 0;
    rkv_team *t = NULL;
    rkv_error e = {0};
    CHECK(!rkv_team_create(&t, 4, &e), "%s", e.text);
    rkv_team_run(t, look_at_mask, seen_mask, 64);
    for (int i = 1; i < 4; i++) {
        helpers += seen_mask[i] != 0;
        bad += seen_mask[i] > 1;
    }
    CHECK(helpers > 0 && !bad, "%d of %d helpers block the wrong signals", bad, helpers);
    rkv_team_free(t);
}

int main(void)
{
    static seen s = {.size = 1};
    rkv_error e = {0};
    rkv_team *t = NULL;
    rkv_team_run(NULL, count, &s, 9);
    CHECK(!wrong(&s, 9, 1), "no team");
    CHECK(rkv_team_size(NULL) == 1, "size of no team");
    for (int n = 1; n <= 9; n++)
        check_size(n);
    check_signals();
    CHECK(!rkv_team_create(&t, 4, &e), "%s", e.text);
    rkv_team_free(t); /* never ran */
    rkv_team_free(NULL);
    rkv_mem_fail_after(1);
    CHECK(rkv_team_create(&t, 4, &e) == RKV_E_MEM, "%s", e.text);
    rkv_mem_fail_after(0);
    CHECK(rkv_mem_current() == 0, "%llu bytes left", (unsigned long long)rkv_mem_current());
    return check_end("team");
}
