/* Whether a profile fits in memory, told before the work: how many examples go together, or which
 * option would help. */
#include "config.h"
#include "profile/measure.h"

#include <limits.h>
#include <stdio.h>

#include "base/mem.h"
#include "engine/bound.h"
#include "engine/plan.h"

enum { MOST = 256 };            /* examples of a batch */

typedef struct need {           /* in bytes, beyond what there is */
    uint64_t held;              /* all the time: sessions, tables of numbers */
    uint64_t prompt;            /* prefill at its peak */
    uint64_t answer;            /* decode, and the caches from here on */
    uint64_t walk;              /* beside those */
    uint64_t total;             /* of the worse of both parts */
    uint64_t left;              /* what may be taken */
    int64_t n_row;              /* of the largest pass of an example's walk */
} need;

/* The larger of the two walks of n examples, and its rows. */
static uint64_t walk_bytes(const rkv_measurer *c, const rkv_session *s, int n_prompt,
                           int batch_rows, int n, int64_t *n_row)
{
    const rkv_plan *p = c->plan;
    const int n_grid = p->n_error ? p->head->n_grid : 0, n_curve = p->n_item - p->n_main;
    const int n_fed = c->o->n_response;
    const int drops = (p->head->signals & RKV_SIGNAL_DAMAGE) != 0;
    const rkv_walk_shape main = {n_prompt, n_fed, p->n_main, batch_rows,
                                 drops || n_grid ? &c->policy : NULL, n_grid};
    const rkv_walk_shape curves = {n_prompt, RKV_CURVE_POSITIONS, n_curve, batch_rows, &c->policy,
                                   0};
    const uint64_t a = rkv_walks_bytes(s, &main, n);
    const uint64_t b = n_curve ? rkv_walks_bytes(s, &curves, n) : 0;
    const int64_t rows = a >= b ? ((int64_t)p->n_main + 1) * n_fed
                                : ((int64_t)n_curve + 1) * RKV_CURVE_POSITIONS;
    *n_row = !batch_rows || rows < batch_rows ? rows : batch_rows;
    return a >= b ? a : b;
}

/* What n examples of n_prompt tokens take that go together, each in passes of batch_rows rows;
 * table: of all their numbers. */
static rkv_status find_need(need *out, const rkv_measurer *c, size_t n_prompt, int batch_rows,
                            int n, uint64_t table, rkv_error *e)
{
    const rkv_session_options so = rkv_measure_session(c, n_prompt);
    const uint64_t before = rkv_mem_current();
    rkv_session *s;
    int64_t n_row;
    RKV_TRY(rkv_session_create(&s, c->m, &so, e));
    const uint64_t made = rkv_mem_current() - before, more = (uint64_t)n - 1;
    const rkv_prefill_plan p = rkv_prefill_plan_of(&s, &n_prompt, 1, 0);
    const uint64_t rows = p.x + p.pos + p.tables,
                   seen = p.observed + p.mass + p.recent + p.stats;
    const uint64_t answer =
        rkv_bound_of(s, (int)n_prompt, c->o->n_response, 0).example - rows + p.stats;
    const uint64_t walk = walk_bytes(c, s, (int)n_prompt, batch_rows, n, &n_row);
    *out = (need){
        .prompt = p.total + more * (rows + seen + p.kv),
        .answer = (uint64_t)n * answer,
        .walk = walk,
        .held = more * made + (uint64_t)n * rkv_measure_bytes(c) + table,
        .left = rkv_mem_available(NULL),    /* while the team's threads have their stacks */
        .n_row = n_row,
    };
    rkv_session_free(s);
    const uint64_t late = out->answer + out->walk;
    out->total = out->held + (late > out->prompt ? late : out->prompt);
    return RKV_OK;
}

/* With what the allocator rounds up to huge pages, and leaves between its blocks. */
static int fits(const need *n)
{
    const uint64_t slack = (16 << 20) + n->total / 32;
    return n->total + slack <= n->left;
}

static double mib(uint64_t bytes)
{
    return (double)bytes / 0x1p20;
}

/* ---- what would help ---- */

/* The most rows at a time with which one example fits, below n_row, which does not; 0: none. */
static int fitting_rows(const rkv_measurer *c, size_t n_prompt, int64_t n_row, uint64_t table)
{
    const int n_fed = c->o->n_response;
    const int64_t most = n_row < INT_MAX - n_fed ? n_row : INT_MAX - n_fed;
    int good = 1, bad = (int)((most + n_fed - 1) / n_fed);      /* times n_fed rows */
    while (bad - good > 1) {
        const int mid = good + (bad - good) / 2;
        need x;
        if (!find_need(&x, c, n_prompt, mid * n_fed, 1, table, NULL) && fits(&x))
            good = mid;
        else
            bad = mid;
    }
    return good > 1 ? good * n_fed : 0;         /* the reference, and a variant */
}

/* The longest prompt that fits with the fewest rows at a time; 0: none. */
static int fitting_prompt(const rkv_measurer *c, size_t n_prompt, uint64_t table)
{
    size_t good = 0, bad = n_prompt;
    while (bad - good > 1) {
        const size_t mid = good + (bad - good) / 2;
        need x;
        if (!find_need(&x, c, mid, 2 * c->o->n_response, 1, table, NULL) && fits(&x))
            good = mid;
        else
            bad = mid;
    }
    return (int)good;
}

static rkv_status refuse(const need *x, const rkv_measurer *c, size_t n_prompt, uint64_t table,
                         rkv_error *e)
{
    char hint[80] = "a smaller model";
    const int rows = fitting_rows(c, n_prompt, x->n_row, table);
    const int prompt = rows ? 0 : fitting_prompt(c, n_prompt, table);
    if (rows)
        snprintf(hint, sizeof hint, "--batch-rows %d", rows);
    else if (prompt)
        snprintf(hint, sizeof hint, "--batch-rows %d -c %d, which skips longer prompts",
                 2 * c->o->n_response, prompt);
    return rkv_fail(e, RKV_E_MEM, "profile: an example of %zu tokens takes %.1f MiB (prompt %.1f, "
                    "%lld rows at a time of the sweep %.1f) beside %.1f in use; %.1f MiB are "
                    "available: use %s", n_prompt, mib(x->total), mib(x->prompt),
                    (long long)x->n_row,
                    mib(x->walk), mib(rkv_mem_current()), mib(x->left), hint);
}

/* ---- the bound of the user ---- */

static rkv_status fit_bound(int *n, int *streams, rkv_bound *b, const rkv_measurer *c,
                            size_t n_prompt, int batch_rows, rkv_error *e)
{
    const rkv_session_options so = rkv_measure_session(c, n_prompt);
    rkv_session *s;
    int64_t n_row;
    RKV_TRY(rkv_session_create(&s, c->m, &so, e));
    *b = rkv_bound_of(s, (int)n_prompt, c->o->n_response, 0);
    b->example += rkv_prefill_plan_of(&s, &n_prompt, 1, 0).stats + rkv_measure_bytes(c) +
                  walk_bytes(c, s, (int)n_prompt, batch_rows, 2, &n_row) -
                  walk_bytes(c, s, (int)n_prompt, batch_rows, 1, &n_row);
    b->whole = c->m->streams ? b->streamed : b->whole;
    rkv_session_free(s);
    return rkv_bound_fit(n, streams, b, MOST, c->o->memory, e);
}

/* As many as fit beside the weights in the bound. */
static rkv_status choose_batch(int *n, const rkv_measurer *c, size_t n_prompt, rkv_error *e)
{
    rkv_bound b;
    int streams;
    const int fewest = 2 * c->o->n_response;
    rkv_error why = {0};
    const rkv_status s = fit_bound(n, &streams, &b, c, n_prompt, c->o->batch_rows, &why);
    if (s == RKV_E_MEM && !fit_bound(n, &streams, &b, c, n_prompt, fewest, NULL))
        return rkv_fail(e, s, "%.400s; --batch-rows %d would fit", why.text, fewest);
    if (s) {
        if (e)
            *e = why;
        return s;
    }
    if (streams && !c->m->streams)
        return rkv_fail(e, RKV_E_MEM, "the weights take %.1f MiB of the bound of %.1f MiB: read "
                        "them by layers (load mode stream)", mib(b.whole), mib(c->o->memory));
    rkv_log(RKV_LOG_INFO, "%d examples at a time, %.1f MiB each, beside %.1f MiB", *n,
            mib(b.example), mib(b.fixed + b.whole));
    return RKV_OK;
}

rkv_status rkv_measure_fit(int *n, const rkv_measurer *c, size_t n_prompt, int n_row, rkv_error *e)
{
    need one, two;
    const rkv_plan *p = c->plan;
    const uint64_t row = ((uint64_t)p->n_item + 1) * sizeof(rkv_outcome) +
                         p->n_error * sizeof(double);
    const uint64_t table = (uint64_t)n_row * row;
    const uint64_t small = 16 << 20;            /* its allocations themselves can fail */
    *n = 1;
    if (c->o->memory)
        RKV_TRY(choose_batch(n, c, n_prompt, e));
    RKV_TRY(find_need(&one, c, n_prompt, c->o->batch_rows, 1, table, e));
    rkv_log(RKV_LOG_INFO, "an example of %zu tokens takes %.3f MiB, %lld rows at a time", n_prompt,
            mib(one.total), (long long)one.n_row);
    if (!fits(&one) && one.total > small)
        return refuse(&one, c, n_prompt, table, e);
    while (*n > 1) {            /* a bound that promises more than there is */
        RKV_TRY(find_need(&two, c, n_prompt, c->o->batch_rows, *n, table, e));
        if (fits(&two))
            break;
        *n /= 2;
    }
    return RKV_OK;
}
