/* Prefill, layer by layer: the whole prompt goes through one layer, that layer's cache is
 * compressed, and only then the next layer starts. Each layer's weights are unpacked once, and no
 * more than one layer's full cache exists at a time. Rows go in chunks inside a layer. Several
 * sessions go through a layer one after the other, before any of them goes on to the next. Source:
 * METHOD section 6. */
#include "config.h"
#include "engine/prefill.h"

#include <string.h>

#include "base/mem.h"
#include "engine/evict.h"
#include "engine/plan.h"
#include "engine/query_stats.h"

typedef struct prefill {        /* of one session */
    rkv_session *s;
    int n, first_prompt, straight;      /* straight: without panels */
    const rkv_policy *policy;   /* NULL: nothing is removed */
    float *x;                   /* [n][d_model] */
    int32_t *pos;               /* [n] */
    float *tables;
    float *scratch;             /* the call's */
    int *n_old;                 /* [n_kv_head]; the call's */
    double *mass; /* [n_kv_head][n] of the layer at hand, for each sum; NULL: nobody asks */
    float *tile_mass;           /* ... and tile; both the call's */
    int n_chunk;
    rkv_step step;
    rkv_row_attention attention;        /* with the call's scratch */
    rkv_stat_sums stats;        /* in the call's memory; sum NULL: nobody asks */
} prefill;

typedef struct call {           /* of sessions of one model; they take turns with its memory */
    prefill *of;                /* [n] */
    size_t n;
    void *panels;
    rkv_panels w[RKV_W_COUNT];  /* of the layer at hand */
    float *scratch, *attention, *tile_mass;
    int *n_old;
    double *mass, *stat_sum;
    float *stat_work;
} call;

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* On a machine whose size_t is too short for it there is no memory either. */
static void *take(uint64_t n)
{
    return rkv_mem_alloc(n < SIZE_MAX ? (size_t)n : SIZE_MAX);
}

static rkv_status no_memory(int n, rkv_error *e)
{
    return rkv_fail(e, RKV_E_MEM,
                    "prefill of %d tokens: out of memory, %llu bytes are available; use a "
                    "smaller prompt or --ubatch-size",
                    n, (unsigned long long)rkv_mem_available(NULL));
}

static rkv_status alloc_own(prefill *f, const rkv_prefill_plan *p, rkv_error *e)
{
    rkv_session *s = f->s;
    f->x = take(p->x);
    f->pos = take(p->pos);
    f->tables = take(p->tables);
    f->n_chunk = p->n_chunk;
    if (p->observed) {
        s->seen.q = take(p->observed);
        s->seen.n_query = p->n_observed;
    }
    if (p->mass)
        s->seen.mass = take(p->mass);
    if (p->recent) {
        s->seen.recent = take(p->recent);
        s->seen.n_recent = rkv_policy_recent(&s->o.policy, f->n);
    }
    if (p->stats) {
        s->seen.stats = take(p->stats);
        s->seen.stats_first = s->o.policy.n_sink;
    }
    void *evict = p->evict ? take(p->evict) : NULL;
    if (evict)
        rkv_evict_place(s, evict);
    if (!f->x || !f->pos || !f->tables || (p->observed && !s->seen.q) ||
        (p->stats && !s->seen.stats) || (p->evict && !evict) ||
        (p->mass && !s->seen.mass) || (p->recent && !s->seen.recent))
        return no_memory(f->n, e);
    return RKV_OK;
}

static rkv_status alloc_shared(call *c, const rkv_prefill_plan *p, rkv_error *e)
{
    c->panels = take(p->panels);
    c->scratch = take(p->scratch);
    c->n_old = take(p->n_old);
    c->attention = take(p->attention);
    if (p->mass_sums) {
        c->mass = take(p->mass_sums);
        c->tile_mass = take(p->tile_mass);
    }
    if (p->stat_sums) {
        c->stat_sum = take(p->stat_sums);
        c->stat_work = take(p->stat_work);
    }
    if (!c->panels || !c->scratch || !c->n_old || !c->attention ||
        (p->stat_sums && (!c->stat_sum || !c->stat_work)) ||
        (p->mass_sums && (!c->mass || !c->tile_mass)))
        return no_memory(p->n_tok, e);
    return RKV_OK;
}

static void set_step(prefill *f, const call *c)
{
    const rkv_session *s = f->s;
    const rkv_model *m = s->m;
    const size_t table = (size_t)f->n * (size_t)m->rope[0].n_pair;
    f->scratch = c->scratch;
    f->n_old = c->n_old;
    for (int i = 0; i < f->n; i++)
        f->pos[i] = s->n_past + i;
    f->step = (rkv_step){.be = &m->backend,
                         .team = s->team,
                         .rope_first = s->n_past,
                         .panels = f->straight ? NULL : c->w,
                         .attend = rkv_row_attention_run,
                         .attend_ctx = &f->attention,
                         .look_ctx = &f->stats};
    for (int r = 0; r < m->n_rope; r++) {
        float *cosine = f->tables + 2 * (size_t)r * table, *sine = cosine + table;
        rkv_rope_table(&m->rope[r], cosine, sine, s->n_past, f->n, s->team);
        f->step.cosine[r] = cosine;
        f->step.sine[r] = sine;
    }
    f->attention.s = f->s;
    f->attention.scratch = c->attention;
    f->tile_mass = c->tile_mass;
    f->attention.pos0 = s->n_past;
    f->attention.n_old = f->n_old;
    f->attention.n_query = s->seen.n_query;
    f->attention.observe_from = f->n - f->attention.n_query;
    f->attention.n_mass = f->mass ? f->n : 0;
}

/* Where the sums of layer l go in the end; NULL: not this one, or not of this layer. */
static float *kept_sums(const prefill *f, int l, int k, int shrinks)
{
    const rkv_session *s = f->s;
    const int bit = k == RKV_SUM_ALL ? RKV_OBSERVE_MASS : RKV_OBSERVE_RECENT;
    if (!f->mass || rkv_session_skips(s, l) || !(shrinks || s->o.observe & bit))
        return NULL;
    return k == RKV_SUM_ALL ? rkv_session_seen_mass(s, l, f->n)
                            : rkv_session_seen_recent(s, l, f->n);
}

/* What is observed of layer l, before it begins. */
static void observe(prefill *f, int l, int shrinks)
{
    const rkv_session *s = f->s;
    const size_t keys = (size_t)s->m->config.n_kv_head * (size_t)f->n,
                 tile = keys * (size_t)rkv_row_attention_tiles(s->m, f->n_chunk);
    size_t used = 0;            /* sums before: of one kind alone, the memory is for one */
    f->attention.observed = f->first_prompt ? rkv_session_seen_q(s, l) : NULL;
    for (int k = 0; k < RKV_SUM_COUNT; k++) {
        const int kept = kept_sums(f, l, k, shrinks) != NULL;
        const int from = k == RKV_SUM_RECENT ? f->n - s->seen.n_recent : 0;
        f->attention.sum[k] = (rkv_row_sum){.from = from};
        if (!kept)
            continue;
        f->attention.sum[k].total = f->mass + used * keys;
        f->attention.sum[k].tile = f->tile_mass + used * tile;
        for (size_t i = 0; i < keys; i++)
            f->attention.sum[k].total[i] = 0.0;
        used++;
    }
}

/* Whether queries of layer l are looked at, before it begins. */
static void observe_stats(prefill *f, int l, int shrinks)
{
    const rkv_session *s = f->s;
    const int wanted = f->stats.sum && !rkv_session_skips(s, l) &&
                       (shrinks || s->o.observe & RKV_OBSERVE_STATS);
    f->step.look = wanted ? rkv_stat_look : NULL;
    if (wanted)
        rkv_stat_begin(&f->stats);
}

/* The sums of the layer that is done, for selectors. */
static void keep_sums(const prefill *f, int l, int shrinks)
{
    if (f->step.look)
        rkv_stat_end(&f->stats, f->step.be, rkv_session_seen_stats(f->s, l), f->n);
    const size_t keys = (size_t)f->s->m->config.n_kv_head * (size_t)f->n;
    for (int k = 0; k < RKV_SUM_COUNT; k++) {
        float *to = kept_sums(f, l, k, shrinks);
        for (size_t i = 0; to && i < keys; i++)
            to[i] = (float)f->attention.sum[k].total[i];
    }
}

static rkv_status report(const prefill *f, int l, int done, rkv_error *e)
{
    const rkv_session *s = f->s;
    if (!s->o.progress)
        return RKV_OK;
    const int64_t n_layer = s->m->config.n_layer;
    const int64_t at = ((int64_t)l * f->n + done) / n_layer;
    if (s->o.progress(s->o.progress_ctx, "prefill", at, f->n))
        return rkv_fail(e, RKV_E_CANCELLED, "interrupted in prefill, at layer %d of %d", l,
                        (int)n_layer);
    return RKV_OK;
}

/* A sliding layer keeps what the next token can see; its room is refilled by dropping old slots. */
static rkv_status trim_sliding(prefill *f, int l, rkv_error *e)
{
    rkv_session *s = f->s;
    const int stay = s->m->config.sliding_window - 1, n = rkv_kv_at(s->kv, l, 0)->n_slot;
    if (n <= stay)
        return RKV_OK;
    if (!f->first_prompt) { /* undone only by keeping everything until the end */
        rkv_kv_drop_front(s->kv, l, n - stay);
        return RKV_OK;
    }
    int32_t *keep = rkv_mem_alloc((size_t)stay * sizeof *keep);
    if (!keep && stay)
        return rkv_fail(e, RKV_E_MEM, "prefill: out of memory in layer %d", l);
    for (int i = 0; i < stay; i++)
        keep[i] = n - stay + i;
    rkv_status status = RKV_OK;
    for (int h = 0; !status && h < s->m->config.n_kv_head; h++)
        status = rkv_kv_compact(s->kv, l, h, keep, stay, rkv_prefill_sliding_cap(s), e);
    rkv_mem_free(keep);
    return status;
}

static rkv_status run_layer(prefill *f, int l, rkv_error *e)
{
    rkv_session *s = f->s;
    const rkv_model *m = s->m;
    const int shrinks = f->policy ? rkv_session_n_shrinking(s, l, f->n) : 0;
    for (int h = 0; h < m->config.n_kv_head; h++)
        f->n_old[h] = rkv_kv_at(s->kv, l, h)->n_slot;
    const int room = rkv_prefill_room(s, f->n);
    RKV_TRY(rkv_kv_reserve(s->kv, l, rkv_prefill_slots(s, f->n, shrinks), e));
    observe(f, l, shrinks);
    observe_stats(f, l, shrinks);
    for (int i = 0; i < f->n; i += f->n_chunk) {
        f->step.n_tok = least(f->n_chunk, f->n - i);
        f->step.pos = f->pos + i;
        f->step.x = f->x + (ptrdiff_t)i * m->config.d_model;
        rkv_step_place(&f->step, &m->config, f->step.n_tok, f->scratch);
        m->arch->layer(m, &f->step, l);
        RKV_TRY(report(f, l, i + f->step.n_tok, e));
    }
    keep_sums(f, l, shrinks);
    if (shrinks)
        RKV_TRY(rkv_session_compress_layer(s, f->policy, l, room, e));
    return f->first_prompt && rkv_session_skips(s, l) ? trim_sliding(f, l, e) : RKV_OK;
}

/* ---- logits of many rows ---- */

typedef struct collector {      /* assembles whole rows from columns of the head */
    float *rows;                /* [n_row][n_vocab] */
    int n_row, n_vocab;
} collector;

static int collect(void *ctx, int c0, int n_col, const float *logits, int ld)
{
    const collector *t = ctx;
    for (int i = 0; i < t->n_row; i++)
        memcpy(t->rows + (size_t)i * (size_t)t->n_vocab + c0, logits + (ptrdiff_t)i * ld,
               (size_t)n_col * sizeof *logits);
    return 0;
}

static rkv_status hand_out_logits(prefill *f, size_t first, rkv_logits_fn *fn, void *ctx,
                                  rkv_error *e)
{
    const rkv_model *m = f->s->m;
    const size_t row_bytes = (size_t)m->config.n_vocab * sizeof(float);
    const int step = rkv_prefill_logit_rows(f->s, f->n);
    collector t = {rkv_mem_alloc((size_t)step * row_bytes), 0, m->config.n_vocab};
    float *norm = rkv_mem_alloc((size_t)step * (size_t)m->config.d_model * sizeof *norm);
    rkv_status status = RKV_OK;
    if (!t.rows || !norm)
        status = rkv_fail(e, RKV_E_MEM, "score: out of memory for %d rows of logits", step);
    for (int i = (int)first; !status && i < f->n; i += step) {
        t.n_row = least(step, f->n - i);
        status = rkv_model_head(m, f->x + (ptrdiff_t)i * m->config.d_model, t.n_row, norm,
                                f->s->team, collect, &t, e);
        if (!status && fn(ctx, i, t.n_row, t.rows))
            status = rkv_fail(e, RKV_E_CANCELLED, "interrupted");
    }
    rkv_mem_free(t.rows);
    rkv_mem_free(norm);
    return status;
}

/* ---- the call ---- */

/* Everything that can be known before memory is taken. */
static rkv_status prepare(call *c, rkv_session *const *s, const size_t *n, int with_rows,
                          rkv_prefill_plan *plan, rkv_error *e)
{
    for (size_t i = 0; i < c->n; i++)
        if (!s[i]->n_past)
            RKV_TRY(rkv_sessions_about(rkv_session_budget(s[i], &s[i]->o.policy, (int)n[i], e), i,
                                       c->n, e));
    *plan = rkv_prefill_plan_of(s, n, c->n, with_rows);
    RKV_TRY(rkv_prefill_plan_check(plan, e));
    for (size_t i = 0; i < c->n; i++)
        s[i]->plan_bytes = rkv_mem_current() + plan->total;
    return RKV_OK;
}

static rkv_status start(call *c, rkv_session *const *s, const int32_t *const *ids, const size_t *n,
                        int with_rows, rkv_error *e)
{
    rkv_prefill_plan plan;
    RKV_TRY(prepare(c, s, n, with_rows, &plan, e));
    RKV_TRY(alloc_shared(c, &plan, e));
    for (size_t i = 0; i < c->n; i++) {
        prefill *f = &c->of[i];
        const rkv_prefill_plan own = rkv_prefill_plan_of(&s[i], &n[i], 1, 0);
        RKV_TRY(alloc_own(f, &own, e));
        f->mass = own.mass_sums ? c->mass : NULL;
        f->stats = (rkv_stat_sums){own.stat_sums ? c->stat_sum : NULL, c->stat_work,
                                   s[i]->seen.stats_first, f->s->m->config.d_head,
                                   f->s->m->config.n_head};
        set_step(f, c);
        rkv_model_embed(f->s->m, f->x, ids[i], f->n);
    }
    return RKV_OK;
}

static rkv_status run_layers(call *c, rkv_error *e)
{
    const rkv_session *s = c->of[0].s;
    int straight = 1;
    for (size_t i = 0; i < c->n; i++)
        straight &= c->of[i].straight;
    rkv_status status = RKV_OK;
    for (int l = 0; !status && l < s->m->config.n_layer; l++) {
        rkv_model_layer_begin(s->m, l);
        if (!straight)
            rkv_model_panels(s->m, l, c->w, c->panels, s->team);
        for (size_t i = 0; !status && i < c->n; i++)
            status = rkv_sessions_about(run_layer(&c->of[i], l, e), i, c->n, e);
        rkv_model_layer_end(s->m, l);
    }
    return status;
}

static void last_logits(const prefill *f)
{
    rkv_session *s = f->s;
    rkv_model_head_rows(s->m, f->x + (ptrdiff_t)(f->n - 1) * s->m->config.d_model, 1, f->scratch,
                        s->logits, s->team);
}

/* Drops what was observed but for these RKV_OBSERVE_ bits. */
static void forget(rkv_session *s, int but)
{
    if (!(but & RKV_OBSERVE_QUERIES)) {
        rkv_mem_free(s->seen.q);
        s->seen.q = NULL;
        s->seen.n_query = 0;
    }
    if (!(but & RKV_OBSERVE_MASS)) {
        rkv_mem_free(s->seen.mass);
        s->seen.mass = NULL;
    }
    if (!(but & RKV_OBSERVE_STATS)) {
        rkv_mem_free(s->seen.stats);
        s->seen.stats = NULL;
    }
    if (!(but & RKV_OBSERVE_RECENT)) {
        rkv_mem_free(s->seen.recent);
        s->seen.recent = NULL;
        s->seen.n_recent = 0;
    }
}

static void undo(const prefill *f)
{
    rkv_session *s = f->s;
    if (f->first_prompt)
        rkv_session_forget(s);
    for (int l = 0; l < s->m->config.n_layer; l++)
        rkv_kv_truncate(s->kv, l, s->n_past);
}

static void commit(prefill *f)
{
    rkv_session *s = f->s;
    s->n_past += f->n;
    s->has_logits = 1;
    if (f->first_prompt) {
        s->n_prompt = f->n;
        s->compressed = f->policy && s->cap < f->n;
        forget(s, s->o.observe);
        return;
    }
    for (int l = 0; l < s->m->config.n_layer; l++)
        if (rkv_session_skips(s, l))
            trim_sliding(f, l, NULL);           /* in place: cannot fail */
}

static prefill begin(rkv_session *s, size_t n)
{
    return (prefill){.s = s,
                     .n = (int)n,
                     .first_prompt = s->n_past == 0,
                     .straight = rkv_prefill_is_straight((int)n),
                     .policy = rkv_prefill_policy(s)};
}

/* All sessions take their ids, or none. */
static void end(call *c, rkv_status status)
{
    for (size_t i = 0; i < c->n; i++) {
        prefill *f = &c->of[i];
        if (status)
            undo(f);
        else
            commit(f);
        rkv_mem_free(f->x);
        rkv_mem_free(f->pos);
        rkv_mem_free(f->tables);
    }
    rkv_mem_free(c->panels);
    rkv_mem_free(c->scratch);
    rkv_mem_free(c->attention);
    rkv_mem_free(c->tile_mass);
    rkv_mem_free(c->n_old);
    rkv_mem_free(c->mass);
    rkv_mem_free(c->stat_sum);
    rkv_mem_free(c->stat_work);
}

/* Later ids in a session with a decode budget: each may evict, which decode does. */
static rkv_status take_one_by_one(rkv_session *s, const int32_t *ids, size_t n, size_t first,
                                  rkv_logits_fn *fn, void *ctx, rkv_error *e)
{
    for (size_t i = 0; i < n; i++) {
        if (s->o.progress && s->o.progress(s->o.progress_ctx, "prefill", (int64_t)i, (int64_t)n))
            return rkv_fail(e, RKV_E_CANCELLED, "interrupted in prefill, at token %zu of %zu", i,
                            n);
        RKV_TRY(rkv_session_decode(s, ids[i], e));
        if (fn && i >= first && fn(ctx, (int64_t)i, 1, s->logits))
            return rkv_fail(e, RKV_E_CANCELLED, "interrupted");
    }
    return RKV_OK;
}

static void tell_compressed(const rkv_session *s, size_t n)
{
    if (!s->compressed)
        return;
    const rkv_kv_info kv = rkv_session_kv_info(s);
    rkv_log(RKV_LOG_INFO, "prefill: %zu tokens follow a compressed cache, which holds %llu of "
            "%llu bytes", n, (unsigned long long)kv.bytes, (unsigned long long)kv.bytes_full);
}

/* ids[i][n[i]] to s[i], all through the layers together; of: room for each. fn, with ctx[i], sees
 * rows from first on; NULL: nobody does. */
static rkv_status take_together(rkv_session *const *s, size_t n_session, const int32_t *const *ids,
                                const size_t *n, prefill *of, size_t first, rkv_logits_fn *fn,
                                void *const *ctx, rkv_error *e)
{
    call c = {.n = n_session, .of = of};
    for (size_t i = 0; i < n_session; i++) {
        of[i] = begin(s[i], n[i]);
        tell_compressed(s[i], n[i]);
    }
    rkv_status status = start(&c, s, ids, n, fn != NULL, e);
    if (!status)
        status = run_layers(&c, e);
    for (size_t i = 0; !status && fn && i < n_session; i++)
        status = hand_out_logits(&of[i], first, fn, ctx[i], e);
    for (size_t i = 0; !status && i < n_session; i++)
        last_logits(&of[i]);
    end(&c, status);
    return status;
}

rkv_status rkv_session_score(rkv_session *s, const int32_t *ids, size_t n, size_t first,
                             rkv_logits_fn *fn, void *ctx, rkv_error *e)
{
    prefill of;
    RKV_TRY(rkv_session_check_ids(s, ids, n, e));
    if (first > n)
        return rkv_fail(e, RKV_E_ARG, "score: from row %zu of %zu on", first, n);
    if (s->n_past && s->evict.cap) {
        tell_compressed(s, n);
        return take_one_by_one(s, ids, n, first, fn, ctx, e);
    }
    return take_together(&s, 1, &ids, &n, &of, first, fn, &ctx, e);
}

rkv_status rkv_sessions_score(rkv_session *const *s, size_t n_session, const int32_t *ids,
                              size_t n, size_t first, rkv_logits_fn *fn, void *const *ctx,
                              rkv_error *e)
{
    RKV_TRY(rkv_sessions_check(s, n_session, "score", e));
    if (first > n)
        return rkv_fail(e, RKV_E_ARG, "score: from row %zu of %zu on", first, n);
    if (!fn || !ctx)
        return rkv_fail(e, RKV_E_ARG, "score: nobody takes the rows; give a function and contexts");
    for (size_t i = 0; i < n_session; i++) {
        RKV_TRY(rkv_sessions_about(rkv_session_check_ids(s[i], ids, n, e), i, n_session, e));
        if (!s[i]->n_past || s[i]->evict.cap)
            return rkv_fail(e, RKV_E_ARG, "score: session #%zu %s", i,
                            s[i]->n_past ? "has a decode budget" : "has no prompt yet");
    }
    const int32_t **all_ids = rkv_mem_alloc(rkv_mem_product(n_session, sizeof *all_ids));
    size_t *all_n = rkv_mem_alloc(rkv_mem_product(n_session, sizeof *all_n));
    prefill *of = rkv_mem_alloc(rkv_mem_product(n_session, sizeof *of));
    rkv_status status = RKV_OK;
    if (!all_ids || !all_n || !of) {
        status = rkv_fail(e, RKV_E_MEM, "score in %zu sessions: out of memory", n_session);
    } else {
        for (size_t i = 0; i < n_session; i++) {
            all_ids[i] = ids;
            all_n[i] = n;
        }
        status = take_together(s, n_session, all_ids, all_n, of, first, fn, ctx, e);
    }
    rkv_mem_free(all_ids);
    rkv_mem_free(all_n);
    rkv_mem_free(of);
    return status;
}

rkv_status rkv_session_prefill(rkv_session *s, const int32_t *ids, size_t n, rkv_error *e)
{
    if (n == 1 && s->n_past)
        return rkv_session_decode(s, ids[0], e);
    return rkv_session_score(s, ids, n, 0, NULL, NULL, e);
}

static rkv_status check_prompts(rkv_session *const *s, const int32_t *const *ids, const size_t *n,
                                size_t n_session, rkv_error *e)
{
    RKV_TRY(rkv_sessions_check(s, n_session, "prefill", e));
    for (size_t i = 0; i < n_session; i++) {
        if (s[i]->n_past)
            return rkv_fail(e, RKV_E_ARG,
                            "prefill: session #%zu holds %d tokens, expected one without a past", i,
                            s[i]->n_past);
        RKV_TRY(rkv_sessions_about(rkv_session_check_ids(s[i], ids[i], n[i], e), i, n_session, e));
    }
    return RKV_OK;
}

rkv_status rkv_sessions_prefill(rkv_session *const *s, const int32_t *const *ids, const size_t *n,
                                size_t n_session, rkv_error *e)
{
    RKV_TRY(check_prompts(s, ids, n, n_session, e));
    prefill *of = rkv_mem_alloc(n_session * sizeof *of);
    if (!of)
        return rkv_fail(e, RKV_E_MEM, "prefill of %zu sessions: out of memory", n_session);
    const rkv_status status = take_together(s, n_session, ids, n, of, 0, NULL, NULL, e);
    rkv_mem_free(of);
    return status;
}
