#include "config.h"
#include "profile/measure.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

enum { ANSWER_UNITS = 4 };      /* a decoded token takes longer than a row of a batch */

typedef struct work {           /* on one example */
    rkv_measurer *c;
    int example;                /* its index in the file */
    const rkv_example *x;
    rkv_measured *row;
    int complete;               /* nothing is left to do */
    rkv_session *s;             /* after prefill */
    int32_t *fed;               /* [o->n_response] */
    uint8_t *have;              /* [n_item] the outcome is known */
    rkv_variant *variant;       /* [n_item] those of a walk, and what they are in the plan */
    int *index;
    rkv_outcome *out;           /* [n_item] of the walk */
    int have_error;
    int64_t at, size, done;     /* units of finished parts, of the part at hand, and done of it */
} work;

typedef struct part {           /* of one walk, as its variants become final */
    work *w;
    int with_error;             /* estimates are made, and not kept yet */
    int n;
    rkv_walk_options o;
    rkv_status status;
    rkv_error error;
} part;

typedef struct batch {          /* examples that go through the layers together */
    rkv_measurer *c;
    work *w;
    int n;
    rkv_session **s;            /* [n] those at work, what they take, and who they are */
    const int32_t **ids;
    size_t *n_id;
    int32_t *id;
    part *part;
    rkv_walk *walk;
} batch;

/* ---- progress ---- */

/* A variant's rows go through half of the layers on average. */
static int64_t walk_units(int n_variant, int n_fed)
{
    return ((int64_t)n_variant / 2 + 1) * n_fed;
}

static int64_t main_units(const rkv_plan *p, const rkv_profile_options *o)
{
    return walk_units(p->n_main, o->n_response);
}

int64_t rkv_measure_units(const rkv_plan *p, const rkv_profile_options *o, size_t n_prompt)
{
    const int64_t answer = o->from_answers ? 0 : (int64_t)ANSWER_UNITS * o->n_response;
    const int n_curve = p->n_item - p->n_main;
    return (int64_t)n_prompt + answer + main_units(p, o) +
           (n_curve ? walk_units(n_curve, RKV_CURVE_POSITIONS) : 0);
}

static void next_part(work *w, int64_t size)
{
    w->at += w->size;
    w->size = size;
    w->done = 0;
}

static int progress(void *ctx, const char *phase, int64_t done, int64_t total)
{
    work *w = ctx;
    const rkv_measurer *c = w->c;
    int64_t all = 0;
    (void)phase;
    w->done = total > 0 ? w->size * done / total : 0;
    for (int i = 0; i < c->batch->n; i++)
        all += c->batch->w[i].at + c->batch->w[i].done;
    return c->report(c->ctx, all);
}

/* ---- the answer ---- */

/* The next token of an answer into fed; *more: it goes on, and the session must take that token. */
static rkv_status answer_token(work *w, rkv_sampler *sampler, int *more, rkv_error *e)
{
    rkv_measured *row = w->row;
    const int n = w->c->o->n_response;
    const int32_t id = rkv_sampler_next(sampler, rkv_session_logits(w->s));
    *more = 0;
    if (id < 0)
        return rkv_fail(e, RKV_E_UNSUPPORTED, "example %d: after %d tokens of the answer the "
                        "model's logits are not finite", w->example, row->n_fed);
    if (rkv_token_is_end(w->s->m, id))
        return RKV_OK;
    w->fed[row->n_fed++] = id;
    *more = row->n_fed < n;
    return progress(w, "answer", row->n_fed, n)
               ? rkv_fail(e, RKV_E_CANCELLED, "interrupted in the answer, at token %d of %d",
                          row->n_fed, n)
               : RKV_OK;
}

/* The model's own greedy answers after the prompts that the n sessions of b->s hold, whose works
 * are b->part[i].w, token by token together, without the end token. */
static rkv_status greedy_answers(batch *b, int n, rkv_error *e)
{
    rkv_sampler *sampler;
    RKV_TRY(rkv_sampler_create(&sampler, b->c->m->config.n_vocab, NULL, e));
    rkv_status status = RKV_OK;
    while (!status && n > 0) {
        int left = 0;
        for (int i = 0; !status && i < n; i++) {
            int more;
            work *w = b->part[i].w;
            status = answer_token(w, sampler, &more, e);
            if (status || !more)
                continue;
            b->s[left] = w->s;
            b->id[left] = w->fed[w->row->n_fed - 1];
            b->part[left++].w = w;
        }
        n = left;
        if (!status && n)
            status = rkv_sessions_decode(b->s, b->id, (size_t)n, e);
    }
    rkv_sampler_free(sampler);
    return status;
}

/* Takes the answer's tokens out of the cache again. */
static void rewind_to_prompt(rkv_session *s, int n_prompt)
{
    for (int l = 0; l < s->m->config.n_layer; l++)
        rkv_kv_truncate(s->kv, l, n_prompt);
    s->n_past = n_prompt;
}

/* Response tokens to feed: those of before, the data's, or the model's own greedy answer. */
static rkv_status find_responses(batch *b, rkv_error *e)
{
    const rkv_profile_options *o = b->c->o;
    int n_greedy = 0;
    for (int i = 0; i < b->n; i++) {
        work *w = &b->w[i];
        rkv_measured *row = w->row;
        next_part(w, o->from_answers ? 0 : (int64_t)ANSWER_UNITS * o->n_response);
        if (w->complete || row->state == RKV_EXAMPLE_USED)
            continue;
        row->n_fed = 0;
        if (w->x->response) {
            row->n_fed = w->x->n_response < (size_t)o->n_response ? (int)w->x->n_response
                                                                  : o->n_response;
            memcpy(w->fed, w->x->response, (size_t)row->n_fed * sizeof *w->fed);
        } else {
            b->part[n_greedy].w = w;
            b->s[n_greedy++] = w->s;
        }
    }
    RKV_TRY(greedy_answers(b, n_greedy, e));
    for (int i = 0; i < b->n; i++) {
        work *w = &b->w[i];
        rkv_measured *row = w->row;
        if (w->complete || row->state == RKV_EXAMPLE_USED)
            continue;
        rewind_to_prompt(w->s, (int)w->x->n_prompt);
        row->state = row->n_fed < RKV_MIN_RESPONSE ? RKV_EXAMPLE_SHORT : RKV_EXAMPLE_USED;
        w->complete = row->state == RKV_EXAMPLE_SHORT;
        RKV_TRY(rkv_resume_put(b->c->resume, w->example, row->state, w->fed,
                               w->complete ? 0 : row->n_fed, e));
    }
    return RKV_OK;
}

/* ---- the walks ---- */

/* Overflow in the model would make a profile that nothing can read. */
static rkv_status check_finite(const work *w, const rkv_variant *v, const rkv_outcome *o,
                               rkv_error *e)
{
    if (isfinite(o->kl) && isfinite(o->local))
        return RKV_OK;
    return rkv_fail(e, RKV_E_UNSUPPORTED,
                    "example %d: KL of layer %d is %g, its own change %g: the model's logits are "
                    "not finite",
                    w->example, v->layer, o->kl, o->local);
}

/* Keeps n outcomes, and the estimates if they are new. */
static rkv_status keep(part *p, int first, int n, rkv_error *e)
{
    const rkv_measurer *c = p->w->c;
    rkv_measured *row = p->w->row;
    if (!rkv_measured_valid(row, c->plan))
        return rkv_fail(e, RKV_E_UNSUPPORTED, "example %d: an estimate is no number: the model's "
                        "activations are not finite", p->w->example);
    const double *error = p->with_error ? row->error : NULL;
    p->with_error = 0;
    return rkv_resume_put_outcomes(c->resume, p->w->example, row->out, p->w->index + first, n,
                                   error, c->plan->n_error, e);
}

static int keep_part(void *ctx, int first, int n)
{
    part *p = ctx;
    work *w = p->w;
    for (int j = first; !p->status && j < first + n; j++) {
        p->status = check_finite(w, &w->variant[j], &w->out[j], &p->error);
        w->row->out[w->index[j]] = w->out[j];
        w->have[w->index[j]] = 1;
    }
    if (!p->status)
        p->status = keep(p, first, n, &p->error);
    return p->status != RKV_OK;
}

/* The variants [from, to) of the plan that are missing, compared at the first n_fed tokens. Whether
 * there is anything to walk for. */
static int prepare_walk(part *p, rkv_walk *walk, work *w, int from, int to, int n_fed)
{
    const rkv_measurer *c = w->c;
    const rkv_plan *plan = c->plan;
    const rkv_profile *head = plan->head;
    *p = (part){.w = w, .with_error = from == 0 && plan->n_error && !w->have_error};
    for (int i = from; i < to; i++)
        if (!w->have[i]) {
            w->index[p->n] = i;
            w->variant[p->n++] = plan->item[i].v;
        }
    next_part(w, from == to && !p->with_error ? 0 : walk_units(to - from, n_fed));
    p->o = (rkv_walk_options){.example = w->example, .policy = &c->policy,
                              .batch_rows = c->o->batch_rows, .grid = head->grid,
                              .n_grid = p->with_error ? head->n_grid : 0,
                              .error = p->with_error ? w->row->error : NULL,
                              .done = keep_part, .ctx = p};
    *walk = (rkv_walk){w->out, w->s, w->fed, n_fed, w->variant, p->n, &p->o};
    return p->n || p->with_error;
}

static rkv_status walk(batch *b, int from, int to, int n_fed_most, rkv_error *e)
{
    int n = 0;
    for (int i = 0; i < b->n; i++) {
        work *w = &b->w[i];
        const int n_fed = w->row->n_fed < n_fed_most ? w->row->n_fed : n_fed_most;
        if (!w->complete)
            n += prepare_walk(&b->part[n], &b->walk[n], w, from, to, n_fed);
    }
    const rkv_status s = rkv_walks_run(b->walk, n, e);
    for (int i = 0; i < n; i++)
        if (b->part[i].status) {
            if (e)
                *e = b->part[i].error;
            return b->part[i].status;
        }
    for (int i = 0; !s && i < n; i++)
        if (b->part[i].with_error)              /* no variant was missing */
            RKV_TRY(keep(&b->part[i], 0, 0, e));
    return s;
}

static rkv_status run_walks(batch *b, rkv_error *e)
{
    const rkv_plan *p = b->c->plan;
    RKV_TRY(walk(b, 0, p->n_main, b->c->o->n_response, e));
    return walk(b, p->n_main, p->n_item, RKV_CURVE_POSITIONS, e);
}

/* ---- a batch of examples ---- */

static int selects(const rkv_profile *head)
{
    return (head->signals & ~(unsigned)(RKV_SIGNAL_VALUES | RKV_SIGNAL_KEYS |
                                        RKV_SIGNAL_KEYS_VALUES)) != 0;
}

rkv_session_options rkv_measure_session(const rkv_measurer *c, size_t n_prompt)
{
    rkv_session_options so = rkv_session_options_default();
    so.n_ctx = (int)n_prompt + c->o->n_response;
    so.n_thread = c->o->n_thread;
    so.observe = selects(c->plan->head) ? rkv_policy_observes(&c->policy) : 0;
    return so;
}

static rkv_status create_session(work *w, rkv_error *e)
{
    const rkv_measurer *c = w->c;
    rkv_session_options so = rkv_measure_session(c, w->x->n_prompt);
    so.progress = progress;
    so.progress_ctx = w;
    next_part(w, (int64_t)w->x->n_prompt);
    return rkv_session_create(&w->s, c->m, &so, e);
}

static rkv_status prefill(batch *b, rkv_error *e)
{
    size_t n = 0;
    for (int i = 0; i < b->n; i++) {
        work *w = &b->w[i];
        if (w->complete)
            continue;
        RKV_TRY(create_session(w, e));
        b->s[n] = w->s;
        b->ids[n] = w->x->prompt;
        b->n_id[n++] = w->x->n_prompt;
    }
    return n ? rkv_sessions_prefill(b->s, b->ids, b->n_id, n, e) : RKV_OK;
}

/* What a folder of --resume holds of the example; its numbers are checked like an input's. */
static rkv_status get_finished(work *w, rkv_error *e)
{
    const rkv_measurer *c = w->c;
    const rkv_plan *p = c->plan;
    rkv_measured *row = w->row;
    RKV_TRY(rkv_resume_get(c->resume, w->example, &row->state, w->fed, c->o->n_response,
                           &row->n_fed, e));
    w->complete = row->state == RKV_EXAMPLE_SHORT || row->state == RKV_EXAMPLE_LONG;
    if (row->state != RKV_EXAMPLE_USED)
        return RKV_OK;
    int damaged = row->n_fed < RKV_MIN_RESPONSE;
    for (int i = 0; i < row->n_fed; i++)
        damaged |= w->fed[i] < 0 || w->fed[i] >= c->m->config.n_vocab;
    if (damaged)
        return rkv_resume_damaged(c->resume, w->example, e);
    RKV_TRY(rkv_resume_get_outcomes(c->resume, w->example, row->out, w->have, p->n_item, e));
    w->have_error = 1;
    if (p->n_error)
        RKV_TRY(rkv_resume_get_errors(c->resume, w->example, row->error, p->n_error,
                                      &w->have_error, e));
    int missing = !w->have_error;
    for (int i = 0; i < p->n_item; i++)
        missing |= !w->have[i];
    w->complete = !missing;
    rkv_measured known = *row;
    known.error = w->have_error ? row->error : NULL;
    return rkv_measured_valid(&known, p) ? RKV_OK : rkv_resume_damaged(c->resume, w->example, e);
}

static void count_cost(const batch *b, const int64_t at[4])
{
    rkv_profile_cost *cost = b->c->o->cost;
    if (!cost)
        return;
    cost->prefill_s += 1e-9 * (double)(at[1] - at[0]);
    cost->answer_s += 1e-9 * (double)(at[2] - at[1]);
    cost->walk_s += 1e-9 * (double)(at[3] - at[2]);
    for (int i = 0; i < b->n; i++)
        cost->n_example += b->w[i].s != NULL;
}

static void say(const batch *b, const int64_t at[4])
{
    size_t n_token = 0;
    int n = 0, n_fed = 0;
    for (int i = 0; i < b->n; i++)
        if (b->w[i].s) {
            n_token += b->w[i].x->n_prompt;
            n_fed += b->w[i].row->n_fed;
            n++;
        }
    const double prefill_s = 1e-9 * (double)(at[1] - at[0]);
    const double walk_s = 1e-9 * (double)(at[3] - at[2]);
    rkv_log(RKV_LOG_INFO,
            "example %d%s: prompt %zu tokens, prefill %.3f s, answer of %d tokens %.3f s, sweep "
            "%.3f s (%.2f prefills)",
            b->w->example, n > 1 ? " and on" : "", n_token, prefill_s, n_fed,
            1e-9 * (double)(at[2] - at[1]), walk_s, walk_s / prefill_s);
}

static rkv_status run_parts(batch *b, rkv_error *e)
{
    int left = 0;
    int64_t at[4];
    b->c->skipped = 0;
    for (int i = 0; i < b->n; i++) {
        work *w = &b->w[i];
        RKV_TRY(get_finished(w, e));
        left += !w->complete;
        if (w->complete)
            b->c->skipped += rkv_measure_units(b->c->plan, b->c->o, w->x->n_prompt);
    }
    if (!left)
        return RKV_OK;
    at[0] = rkv_clock_ns();
    RKV_TRY(prefill(b, e));
    at[1] = rkv_clock_ns();
    RKV_TRY(find_responses(b, e));
    at[2] = rkv_clock_ns();
    RKV_TRY(run_walks(b, e));
    at[3] = rkv_clock_ns();
    say(b, at);
    count_cost(b, at);
    return RKV_OK;
}

uint64_t rkv_measure_bytes(const rkv_measurer *c)
{
    const work *w = NULL;
    const uint64_t each = sizeof *w->have + sizeof *w->variant + sizeof *w->index + sizeof *w->out;
    return ((uint64_t)c->plan->n_item + 1) * each +
           (uint64_t)c->o->n_response * sizeof *w->fed + sizeof *w + sizeof(part) +
           sizeof(rkv_walk);
}

static rkv_status alloc_work(work *w, rkv_error *e)
{
    const rkv_measurer *c = w->c;
    const size_t n = (size_t)c->plan->n_item + 1;
    w->fed = rkv_mem_alloc((size_t)c->o->n_response * sizeof *w->fed);
    w->have = rkv_mem_calloc(n, sizeof *w->have);
    w->variant = rkv_mem_alloc(n * sizeof *w->variant);
    w->index = rkv_mem_alloc(n * sizeof *w->index);
    w->out = rkv_mem_alloc(n * sizeof *w->out);
    if (!w->fed || !w->have || !w->variant || !w->index || !w->out)
        return rkv_fail(e, RKV_E_MEM, "profile: out of memory for %zu variants", n);
    return rkv_measured_alloc(w->row, c->plan, e);
}

static void free_work(work *w)
{
    if (w->row->state != RKV_EXAMPLE_USED)
        rkv_measured_free(w->row);
    rkv_session_free(w->s);
    rkv_mem_free(w->fed);
    rkv_mem_free(w->have);
    rkv_mem_free(w->variant);
    rkv_mem_free(w->index);
    rkv_mem_free(w->out);
}

static rkv_status alloc_batch(batch *b, rkv_error *e)
{
    const size_t n = (size_t)b->n;
    b->w = rkv_mem_calloc(n, sizeof *b->w);
    b->s = rkv_mem_alloc(n * sizeof(rkv_session *));
    b->ids = rkv_mem_alloc(n * sizeof *b->ids);
    b->n_id = rkv_mem_alloc(n * sizeof *b->n_id);
    b->id = rkv_mem_alloc(n * sizeof *b->id);
    b->part = rkv_mem_alloc(n * sizeof *b->part);
    b->walk = rkv_mem_alloc(n * sizeof *b->walk);
    if (b->w && b->s && b->ids && b->n_id && b->id && b->part && b->walk)
        return RKV_OK;
    return rkv_fail(e, RKV_E_MEM, "profile: out of memory for %zu examples", n);
}

rkv_status rkv_measure(rkv_measurer *c, const rkv_to_measure *x, int n, rkv_error *e)
{
    batch b = {.c = c, .n = n};
    c->batch = &b;
    rkv_status s = alloc_batch(&b, e);
    for (int i = 0; b.w && i < n; i++)
        b.w[i] = (work){.c = c, .example = x[i].example, .x = &x[i].x, .row = x[i].row};
    for (int i = 0; !s && i < n; i++)
        s = alloc_work(&b.w[i], e);
    if (!s)
        s = run_parts(&b, e);
    for (int i = 0; b.w && i < n; i++)
        free_work(&b.w[i]);
    rkv_mem_free(b.w);
    rkv_mem_free(b.s);
    rkv_mem_free(b.ids);
    rkv_mem_free(b.n_id);
    rkv_mem_free(b.id);
    rkv_mem_free(b.part);
    rkv_mem_free(b.walk);
    c->batch = NULL;
    return s;
}
