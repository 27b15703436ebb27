#include "config.h"
#include "profile/measure.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

enum { ANSWER_UNITS = 4 };      /* a decoded token takes longer than a row of a batch */

typedef struct work {           /* on one example */
    rkv_measurer *c;
    const rkv_example *x;
    rkv_measured *row;
    rkv_session *s;             /* after prefill */
    int32_t *fed;               /* [o->n_response] */
    uint8_t *have;              /* [n_item] the outcome is known */
    rkv_variant *variant;       /* [n_item] those of a walk, and what they are in the plan */
    int *index;
    rkv_outcome *out;           /* [n_item] of the walk */
    int have_error;
    int64_t start_ns, prefill_ns, answer_ns;
} work;

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

static void next_part(rkv_measurer *c, int64_t size)
{
    c->at += c->size;
    c->size = size;
}

static int progress(void *ctx, const char *phase, int64_t done, int64_t total)
{
    const rkv_measurer *c = ctx;
    (void)phase;
    return c->report(c->ctx, c->at + (total > 0 ? c->size * done / total : 0));
}

/* ---- the answer ---- */

/* The model's own greedy answer after the prompt that s holds, up to n tokens, without the end
 * token. */
static rkv_status greedy_answer(rkv_measurer *c, rkv_session *s, int32_t *out, int n, int *n_out,
                                rkv_error *e)
{
    rkv_sampler *sampler;
    RKV_TRY(rkv_sampler_create(&sampler, s->m->config.n_vocab, NULL, e));
    rkv_status status = RKV_OK;
    *n_out = 0;
    while (!status && *n_out < n) {
        const int32_t id = rkv_sampler_next(sampler, rkv_session_logits(s));
        if (id < 0)
            status = rkv_fail(e, RKV_E_UNSUPPORTED, "after %d tokens of the answer the model's "
                              "logits are not finite", *n_out);
        if (id < 0 || rkv_token_is_end(s->m, id))
            break;
        out[(*n_out)++] = id;
        if (progress(c, "answer", *n_out, n))
            status = rkv_fail(e, RKV_E_CANCELLED, "interrupted in the answer, at token %d of %d",
                              *n_out, n);
        if (!status && *n_out < n)
            status = rkv_session_decode(s, id, e);
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
static rkv_status find_response(work *w, rkv_error *e)
{
    rkv_measurer *c = w->c;
    rkv_measured *row = w->row;
    const rkv_example *x = w->x;
    const int n = c->o->n_response;
    next_part(c, c->o->from_answers ? 0 : (int64_t)ANSWER_UNITS * n);
    if (row->state == RKV_EXAMPLE_USED)
        return RKV_OK;
    if (x->response) {
        row->n_fed = x->n_response < (size_t)n ? (int)x->n_response : n;
        memcpy(w->fed, x->response, (size_t)row->n_fed * sizeof *w->fed);
    } else {
        RKV_TRY(greedy_answer(c, w->s, w->fed, n, &row->n_fed, e));
        rewind_to_prompt(w->s, (int)x->n_prompt);
    }
    row->state = row->n_fed < RKV_MIN_RESPONSE ? RKV_EXAMPLE_SHORT : RKV_EXAMPLE_USED;
    return rkv_resume_put(c->resume, c->example, row->state, w->fed,
                          row->state == RKV_EXAMPLE_USED ? row->n_fed : 0, e);
}

/* ---- the walks ---- */

typedef struct part {           /* of one walk, as its variants become final */
    work *w;
    int with_error;             /* estimates are made, and not kept yet */
    int n;
    rkv_status status;
    rkv_error error;
} part;

/* Overflow in the model would make a profile that nothing can read. */
static rkv_status check_finite(const work *w, const rkv_variant *v, const rkv_outcome *o,
                               rkv_error *e)
{
    if (isfinite(o->kl) && isfinite(o->local))
        return RKV_OK;
    return rkv_fail(e, RKV_E_UNSUPPORTED,
                    "example %d: KL of layer %d is %g, its own change %g: the model's logits are "
                    "not finite",
                    w->c->example, v->layer, o->kl, o->local);
}

/* Keeps n outcomes, and the estimates if they are new. */
static rkv_status keep(part *p, int first, int n, rkv_error *e)
{
    const rkv_measurer *c = p->w->c;
    rkv_measured *row = p->w->row;
    if (!rkv_measured_valid(row, c->plan))
        return rkv_fail(e, RKV_E_UNSUPPORTED, "example %d: an estimate is no number: the model's "
                        "activations are not finite", c->example);
    const double *error = p->with_error ? row->error : NULL;
    p->with_error = 0;
    return rkv_resume_put_outcomes(c->resume, c->example, row->out, p->w->index + first, n, error,
                                   c->plan->n_error, e);
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

/* The variants [from, to) of the plan that are missing, compared at the first n_fed tokens. */
static rkv_status walk(work *w, int from, int to, int n_fed, rkv_error *e)
{
    rkv_measurer *c = w->c;
    const rkv_plan *plan = c->plan;
    const rkv_profile *head = plan->head;
    part p = {.w = w, .with_error = from == 0 && plan->n_error && !w->have_error};
    for (int i = from; i < to; i++)
        if (!w->have[i]) {
            w->index[p.n] = i;
            w->variant[p.n++] = plan->item[i].v;
        }
    next_part(c, from == to && !p.with_error ? 0 : walk_units(to - from, n_fed));
    if (!p.n && !p.with_error)
        return RKV_OK;
    const rkv_walk_options o = {.example = c->example, .policy = &c->policy,
                                .batch_rows = c->o->batch_rows, .grid = head->grid,
                                .n_grid = p.with_error ? head->n_grid : 0,
                                .error = p.with_error ? w->row->error : NULL,
                                .done = keep_part, .ctx = &p};
    const rkv_status s = rkv_walk_run(w->out, w->s, w->fed, n_fed, w->variant, p.n, &o, e);
    if (p.status) {
        if (e)
            *e = p.error;
        return p.status;
    }
    return s || !p.with_error ? s : keep(&p, 0, 0, e);  /* no variant was missing */
}

static rkv_status run_walks(work *w, rkv_error *e)
{
    const rkv_plan *p = w->c->plan;
    const int n_fed = w->row->n_fed;
    RKV_TRY(walk(w, 0, p->n_main, n_fed, e));
    return walk(w, p->n_main, p->n_item,
                n_fed < RKV_CURVE_POSITIONS ? n_fed : RKV_CURVE_POSITIONS, e);
}

/* ---- one example ---- */

static int selects(const rkv_profile *head)
{
    return (head->signals & ~(unsigned)(RKV_SIGNAL_VALUES | RKV_SIGNAL_KEYS |
                                        RKV_SIGNAL_KEYS_VALUES)) != 0;
}

static rkv_status prefill(work *w, rkv_error *e)
{
    rkv_measurer *c = w->c;
    rkv_session_options so = rkv_session_options_default();
    so.n_ctx = (int)w->x->n_prompt + c->o->n_response;
    so.n_thread = c->o->n_thread;
    so.observe = selects(c->plan->head) ? rkv_policy_observes(&c->policy) : 0;
    so.progress = progress;
    so.progress_ctx = c;
    next_part(c, (int64_t)w->x->n_prompt);
    RKV_TRY(rkv_session_create(&w->s, c->m, &so, e));
    return rkv_session_prefill(w->s, w->x->prompt, w->x->n_prompt, e);
}

/* What a folder of --resume holds of the example; its numbers are checked like an input's. */
static rkv_status get_finished(work *w, int *complete, rkv_error *e)
{
    const rkv_measurer *c = w->c;
    const rkv_plan *p = c->plan;
    rkv_measured *row = w->row;
    RKV_TRY(rkv_resume_get(c->resume, c->example, &row->state, w->fed, c->o->n_response,
                           &row->n_fed, e));
    *complete = row->state == RKV_EXAMPLE_SHORT || row->state == RKV_EXAMPLE_LONG;
    if (row->state != RKV_EXAMPLE_USED)
        return RKV_OK;
    int damaged = row->n_fed < RKV_MIN_RESPONSE;
    for (int i = 0; i < row->n_fed; i++)
        damaged |= w->fed[i] < 0 || w->fed[i] >= c->m->config.n_vocab;
    if (damaged)
        return rkv_resume_damaged(c->resume, c->example, e);
    RKV_TRY(rkv_resume_get_outcomes(c->resume, c->example, row->out, w->have, p->n_item, e));
    w->have_error = 1;
    if (p->n_error)
        RKV_TRY(rkv_resume_get_errors(c->resume, c->example, row->error, p->n_error,
                                      &w->have_error, e));
    int missing = !w->have_error;
    for (int i = 0; i < p->n_item; i++)
        missing |= !w->have[i];
    *complete = !missing;
    rkv_measured known = *row;
    known.error = w->have_error ? row->error : NULL;
    return rkv_measured_valid(&known, p) ? RKV_OK : rkv_resume_damaged(c->resume, c->example, e);
}

static void say(const work *w)
{
    const double prefill_s = 1e-9 * (double)(w->prefill_ns - w->start_ns);
    const double walk_s = 1e-9 * (double)(rkv_clock_ns() - w->answer_ns);
    rkv_log(RKV_LOG_INFO,
            "example %d: prompt %zu tokens, prefill %.3f s, answer of %d tokens %.3f s, sweep "
            "%.3f s (%.2f prefills)",
            w->c->example, w->x->n_prompt, prefill_s, w->row->n_fed,
            1e-9 * (double)(w->answer_ns - w->prefill_ns), walk_s, walk_s / prefill_s);
}

static rkv_status run_parts(work *w, rkv_error *e)
{
    int complete;
    RKV_TRY(get_finished(w, &complete, e));
    if (complete)
        return RKV_OK;
    w->start_ns = rkv_clock_ns();
    RKV_TRY(prefill(w, e));
    w->prefill_ns = rkv_clock_ns();
    RKV_TRY(find_response(w, e));
    w->answer_ns = rkv_clock_ns();
    if (w->row->state == RKV_EXAMPLE_SHORT)
        return RKV_OK;
    RKV_TRY(run_walks(w, e));
    say(w);
    return RKV_OK;
}

rkv_status rkv_measure(rkv_measured *row, rkv_measurer *c, const rkv_example *x, rkv_error *e)
{
    const size_t n = (size_t)c->plan->n_item + 1;
    work w = {.c = c, .x = x, .row = row};
    c->at = c->size = 0;
    w.fed = rkv_mem_alloc((size_t)c->o->n_response * sizeof *w.fed);
    w.have = rkv_mem_calloc(n, sizeof *w.have);
    w.variant = rkv_mem_alloc(n * sizeof *w.variant);
    w.index = rkv_mem_alloc(n * sizeof *w.index);
    w.out = rkv_mem_alloc(n * sizeof *w.out);
    rkv_status s = RKV_OK;
    if (!w.fed || !w.have || !w.variant || !w.index || !w.out)
        s = rkv_fail(e, RKV_E_MEM, "profile: out of memory for %zu variants", n);
    if (!s)
        s = rkv_measured_alloc(row, c->plan, e);
    if (!s)
        s = run_parts(&w, e);
    if (row->state != RKV_EXAMPLE_USED)
        rkv_measured_free(row);
    rkv_session_free(w.s);
    rkv_mem_free(w.fed);
    rkv_mem_free(w.have);
    rkv_mem_free(w.variant);
    rkv_mem_free(w.index);
    rkv_mem_free(w.out);
    return s;
}
