#include "config.h"
#include "profile/walk.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "profile/walk_impl.h"

typedef struct walks {          /* that go in step */
    walk *w;                    /* [n] */
    int n, n_layer, n_pass;
    int pass;                   /* at work */
    const rkv_model *m;
    rkv_team *team;
    float *x;                   /* rows of all of them */
    float *scratch, *thread;    /* the largest's */
    void *panels;
    rkv_panels panel[RKV_W_COUNT];
} walks;

/* ---- what is asked for ---- */

static rkv_status check_variant(const walk *w, int i, rkv_error *e)
{
    const rkv_variant *v = &w->in->v[i];
    const rkv_config *c = &w->m->config;
    if (v->layer < 0 || v->layer >= c->n_layer || rkv_session_skips(w->s, v->layer))
        return rkv_fail(e, RKV_E_ARG, "walk: variant %d is in layer %d, expected one of %d that "
                        "does not slide", i, v->layer, c->n_layer);
    if (i && v->layer < v[-1].layer)
        return rkv_fail(e, RKV_E_ARG, "walk: variant %d is in layer %d, the one before it in %d",
                        i, v->layer, v[-1].layer);
    if (v->head < -1 || v->head >= c->n_kv_head)
        return rkv_fail(e, RKV_E_ARG, "walk: variant %d is in KV head %d, expected -1 to %d", i,
                        v->head, c->n_kv_head - 1);
    if (!(v->amount > 0.0 && v->amount <= v->what->most))
        return rkv_fail(e, RKV_E_ARG,
                        "walk: %s of %g in variant %d, expected more than 0 and at most %g",
                        v->what->name, v->amount, i, v->what->most);
    return RKV_OK;
}

/* Whether tokens are selected, and can be. */
static rkv_status check_selection(walk *w, rkv_error *e)
{
    const rkv_walk_options *o = w->in->o;
    w->selects = o->error != NULL;
    for (int i = 0; i < w->in->n_variant; i++)
        w->selects |= w->in->v[i].what->selects;
    if (!w->selects)
        return RKV_OK;
    for (int g = 0; o->error && g < o->n_grid; g++)
        if (!(o->grid[g] > 0.0 && o->grid[g] <= 1.0))
            return rkv_fail(e, RKV_E_ARG, "walk: share %g, expected more than 0 and at most 1",
                            o->grid[g]);
    w->policy = o->policy ? *o->policy : rkv_policy_default();
    w->policy.budget_kind = RKV_BUDGET_SHARE;   /* without one it would look at nothing */
    w->policy.budget = 0.5;
    RKV_TRY(rkv_policy_check(&w->policy, e));
    if (!rkv_policy_active(&w->policy))
        return rkv_fail(e, RKV_E_ARG, "walk: selector '%s' drops nothing", w->policy.selector);
    return rkv_session_check_compress(w->s, &w->policy, e);
}

/* NULL for no bytes. */
static void *take(size_t n, int *lost)
{
    void *p = n ? rkv_mem_alloc(n) : NULL;
    *lost |= n && !p;
    return p;
}

static rkv_status alloc(walk *w, rkv_error *e)
{
    const walk_bytes n = rkv_walk_bytes_of(w);
    int lost = 0;
    w->tables = take(n.tables, &lost);
    w->pos = take(n.pos, &lost);
    w->saved = take(n.saved, &lost);
    w->score = take(n.score, &lost);
    w->diff = take(n.diff, &lost);
    w->whole = take(n.whole, &lost);
    return lost ? rkv_fail(e, RKV_E_MEM, "sweep: out of memory for %d fed tokens", w->n_fed)
                : RKV_OK;
}

static void free_walk(walk *w)
{
    rkv_mem_free(w->tables);
    rkv_mem_free(w->pos);
    rkv_mem_free(w->saved);
    rkv_mem_free(w->score);
    rkv_mem_free(w->diff);
    rkv_mem_free(w->whole);
    rkv_kl_free(w->kl);
}

static void set_step(walk *w)
{
    const rkv_model *m = w->m;
    const size_t table = (size_t)w->n_fed * (size_t)m->rope[0].n_pair;
    for (int i = 0; i < walk_chunk(w) * w->n_fed; i++)
        w->pos[i] = w->n_prompt + i % w->n_fed;
    w->step = (rkv_step){.be = &m->backend, .team = w->team, .pos = w->pos,
                         .rope_first = w->n_prompt, .attend = rkv_walk_attend, .attend_ctx = w};
    for (int r = 0; r < m->n_rope; r++) {
        float *cosine = w->tables + 2 * (size_t)r * table, *sine = cosine + table;
        rkv_rope_table(&m->rope[r], cosine, sine, w->n_prompt, w->n_fed, NULL);
        w->step.cosine[r] = cosine;
        w->step.sine[r] = sine;
    }
}

/* Everything of a walk that is its own; `in`, m, s and team are set. */
static rkv_status prepare(walk *w, rkv_error *e)
{
    const rkv_walk_options *o = w->in->o;
    const int n = w->in->n_variant, n_error = w->m->config.n_kv_head * o->n_grid;
    w->n_prompt = w->s->n_past;
    w->n_fed = w->in->n_fed;
    w->drop = rkv_perturb_find("drop");
    if (w->n_fed < 1 || w->n_prompt < 1)
        return rkv_fail(e, RKV_E_ARG, "walk: %d fed tokens behind %d, expected at least 1",
                        w->n_fed, w->n_prompt);
    for (int i = 0; i < n; i++)
        RKV_TRY(check_variant(w, i, e));
    RKV_TRY(check_selection(w, e));
    rkv_walk_set_passes(w);
    RKV_TRY(alloc(w, e));
    for (int i = 0; o->error && i < w->m->config.n_layer * n_error; i++)
        o->error[i] = (double)NAN;
    set_step(w);
    return RKV_OK;
}

/* ---- one pass: the reference or what was saved of it, and some of the variants ---- */

static int in_pass(const walk *w, int pass)
{
    return pass < w->n_pass;
}

/* First layer that a pass goes through. */
static int first_layer(const walk *w)
{
    return w->from_group ? w->in->v[w->first].layer : 0;
}

/* Sets the walk's batch up; x: its rows. */
static void begin_pass(walk *w, int pass, float *x)
{
    w->first = pass * w->per_pass;
    w->n = w->in->n_variant - w->first < w->per_pass ? w->in->n_variant - w->first : w->per_pass;
    w->n_group = 1;
    w->from_group = pass > 0;
    w->x = x;
    if (pass == 0) {
        rkv_model_embed(w->m, w->x, w->in->fed, w->n_fed);
        if (w->saved)
            memcpy(w->saved, w->x, walk_group_floats(w) * sizeof *w->x);
        return;
    }
    memcpy(w->x, w->saved + (size_t)first_layer(w) * walk_group_floats(w),
           walk_group_floats(w) * sizeof *w->x);
}

/* The variants of layer l join: they enter it with the reference's rows. */
static void join(walk *w, int l)
{
    const size_t group = walk_group_floats(w);
    w->n_new = 0;
    while (w->n_group <= w->n && walk_variant(w, w->n_group)->layer == l) {
        memcpy(w->x + (size_t)w->n_group++ * group, w->x, group * sizeof *w->x);
        w->n_new++;
    }
}

/* Mean over positions of |x' - x| / |x|. */
static double relative_change(const walk *w, const float *reference, const float *x)
{
    const int d = w->m->config.d_model;
    double sum = 0.0;
    for (int t = 0; t < w->n_fed; t++, reference += d, x += d) {
        double change = 0.0, size = 0.0;
        for (int i = 0; i < d; i++) {
            const double by = (double)x[i] - (double)reference[i];
            change += by * by;
            size += (double)reference[i] * (double)reference[i];
        }
        sum += change == 0.0 ? 0.0 : sqrt(change / size);
    }
    return sum / w->n_fed;
}

/* The reference's rows that leave layer l: to `saved`, or from there; and what the new variants
 * have made of them. */
static void leave(walk *w, int l)
{
    const size_t group = walk_group_floats(w), bytes = group * sizeof *w->x;
    float *saved = w->saved ? w->saved + (size_t)(l + 1) * group : NULL;
    if (w->from_group)
        memcpy(w->x, saved, bytes);
    else if (saved)
        memcpy(saved, w->x, bytes);
    for (int g = w->n_group - w->n_new; g < w->n_group; g++)
        w->in->out[w->first + g - 1].local = relative_change(w, w->x, w->x + (size_t)g * group);
}

/* Tells how far the pass is, all but `left` groups of layer l being done. */
static rkv_status report(const walks *a, const walk *w, int l, int left, rkv_error *e)
{
    const rkv_session_options *o = &w->s->o;
    const int64_t layers = (int64_t)a->pass * a->n_layer + l + 1, all = w->n + 1;
    if (o->progress && o->progress(o->progress_ctx, "sweep", layers * all - left,
                                   (int64_t)a->n_pass * a->n_layer * all))
        return rkv_fail(e, RKV_E_CANCELLED, "interrupted in the sweep, at layer %d of %d", l,
                        a->n_layer);
    return RKV_OK;
}

static rkv_status run_layer(const walks *a, walk *w, int l, rkv_error *e)
{
    const rkv_config *c = &w->m->config;
    join(w, l);
    if (w->score)
        rkv_walk_score(w, l);
    const int step = walk_chunk(w);
    for (int g = w->from_group; g < w->n_group; g += step) {
        w->chunk_group = g;
        w->step.n_tok = (w->n_group - g < step ? w->n_group - g : step) * w->n_fed;
        w->step.x = w->x + (size_t)g * walk_group_floats(w);
        rkv_step_place(&w->step, c, w->step.n_tok, w->scratch);
        w->m->arch->layer(w->m, &w->step, l);
        const int left = w->n_group - g - step;
        RKV_TRY(report(a, w, l, left > 0 ? left : 0, e));
    }
    leave(w, l);
    return RKV_OK;
}

/* ---- KL of a pass ---- */

static int pass_rows(const walk *w)
{
    return (1 + w->n) * w->n_fed;
}

typedef struct columns {
    walks *a;
    int pass;
} columns;

static int add_columns(void *ctx, int c0, int n_col, const float *logits, int ld)
{
    const columns *x = ctx;
    (void)c0;
    for (int i = 0; i < x->a->n; i++)           /* a piece of a large batch takes a while */
        if (in_pass(&x->a->w[i], x->pass) &&
            report(x->a, &x->a->w[i], x->a->n_layer - 1, 0, NULL))
            return 1;
    for (int i = 0; i < x->a->n; i++) {
        const walk *w = &x->a->w[i];
        if (!in_pass(w, x->pass))
            continue;
        if (w->kl)
            rkv_kl_add(w->kl, logits, n_col, ld);
        logits += (ptrdiff_t)pass_rows(w) * ld;
    }
    return 0;
}

/* Means over the positions of each variant of the pass. */
static rkv_status end_walk(walk *w, rkv_error *e)
{
    double *kl = rkv_mem_alloc(rkv_mem_product((size_t)w->n, (size_t)w->n_fed * sizeof *kl));
    if (!kl)
        return rkv_fail(e, RKV_E_MEM, "sweep: out of memory for %d variants", w->n);
    rkv_kl_end(w->kl, kl);
    rkv_kl_free(w->kl);
    w->kl = NULL;
    for (int i = 0; i < w->n; i++) {
        double sum = 0.0;
        for (int t = 0; t < w->n_fed; t++)
            sum += kl[i * w->n_fed + t];
        w->in->out[w->first + i].kl = sum / w->n_fed;
    }
    rkv_mem_free(kl);
    const rkv_walk_options *o = w->in->o;
    if (o->done && o->done(o->ctx, w->first, w->n))
        return rkv_fail(e, RKV_E_CANCELLED, "interrupted after %d of %d variants of the sweep",
                        w->first + w->n, w->in->n_variant);
    return RKV_OK;
}

static rkv_status end_pass(walks *a, int pass, rkv_error *e)
{
    columns x = {a, pass};
    int rows = 0, n = 0;
    for (int i = 0; i < a->n; i++) {
        walk *w = &a->w[i];
        if (!in_pass(w, pass))
            continue;
        if (w->n)
            RKV_TRY(rkv_kl_create(&w->kl, w->n_fed, pass_rows(w), RKV_HEAD_COLUMNS, a->team, e));
        rows += pass_rows(w);
        n += w->n;
    }
    if (!n)
        return RKV_OK;
    RKV_TRY(rkv_model_head(a->m, a->x, rows, a->x, a->team, add_columns, &x, e));
    for (int i = 0; i < a->n; i++)
        if (a->w[i].kl)
            RKV_TRY(end_walk(&a->w[i], e));
    return RKV_OK;
}

/* ---- all passes of all walks ---- */

static rkv_status run_pass(walks *a, int pass, rkv_error *e)
{
    float *x = a->x;
    int first = a->n_layer;
    a->pass = pass;
    for (int i = 0; i < a->n; i++) {
        walk *w = &a->w[i];
        if (!in_pass(w, pass))
            continue;
        begin_pass(w, pass, x);
        x += (size_t)(1 + w->n) * walk_group_floats(w);
        first = first_layer(w) < first ? first_layer(w) : first;
    }
    for (int l = first; l < a->n_layer; l++) {
        rkv_model_layer_begin(a->m, l);
        rkv_model_panels(a->m, l, a->panel, a->panels, a->team);
        for (int i = 0; i < a->n; i++)
            if (in_pass(&a->w[i], pass) && l >= first_layer(&a->w[i]))
                RKV_TRY(run_layer(a, &a->w[i], l, e));
        rkv_model_layer_end(a->m, l);
    }
    return end_pass(a, pass, e);
}

/* What the walks share, and their places in it. */
static rkv_status share(walks *a, rkv_error *e)
{
    size_t x = 0, scratch = 0, thread = 0;
    for (int i = 0; i < a->n; i++) {
        walk *w = &a->w[i];
        const size_t step = rkv_step_scratch(&a->m->config, walk_chunk(w) * w->n_fed);
        w->thread_floats = rkv_walk_thread_floats(w);
        x += rkv_walk_bytes_of(w).x;
        scratch = step > scratch ? step : scratch;
        thread = w->thread_floats > thread ? w->thread_floats : thread;
        a->n_pass = w->n_pass > a->n_pass ? w->n_pass : a->n_pass;
    }
    a->x = rkv_mem_alloc(x);
    a->scratch = rkv_mem_alloc(scratch * sizeof *a->scratch);
    a->thread = rkv_mem_alloc((size_t)rkv_team_size(a->team) * thread * sizeof *a->thread);
    a->panels = rkv_mem_alloc(rkv_model_panels_bytes(a->m));
    if (!a->x || !a->scratch || !a->thread || !a->panels)
        return rkv_fail(e, RKV_E_MEM, "sweep: out of memory for %zu bytes of rows; use "
                        "--batch-rows N or fewer --noise-seeds", x);
    for (int i = 0; i < a->n; i++) {
        a->w[i].scratch = a->scratch;
        a->w[i].thread = a->thread;
        a->w[i].step.panels = a->panel;
    }
    return RKV_OK;
}

rkv_status rkv_walks_run(const rkv_walk *in, int n, rkv_error *e)
{
    if (n < 1)
        return RKV_OK;
    walks a = {.w = rkv_mem_calloc((size_t)n, sizeof *a.w), .n = n, .m = in->s->m,
               .n_layer = in->s->m->config.n_layer, .team = in->s->team};
    if (!a.w)
        return rkv_fail(e, RKV_E_MEM, "sweep: out of memory for %d walks", n);
    rkv_status status = RKV_OK;
    for (int i = 0; !status && i < n; i++) {
        a.w[i].in = &in[i];
        a.w[i].m = a.m;
        a.w[i].s = in[i].s;
        a.w[i].team = a.team;
        status = prepare(&a.w[i], e);
    }
    if (!status)
        status = share(&a, e);
    for (int pass = 0; !status && pass < a.n_pass; pass++)
        status = run_pass(&a, pass, e);
    for (int i = 0; i < n; i++)
        free_walk(&a.w[i]);
    rkv_mem_free(a.w);
    rkv_mem_free(a.x);
    rkv_mem_free(a.scratch);
    rkv_mem_free(a.thread);
    rkv_mem_free(a.panels);
    return status;
}

rkv_status rkv_walk_run(rkv_outcome *out, const rkv_session *s, const int32_t *fed, int n_fed,
                        const rkv_variant *v, int n_variant, const rkv_walk_options *o,
                        rkv_error *e)
{
    const rkv_walk one = {out, s, fed, n_fed, v, n_variant, o};
    return rkv_walks_run(&one, 1, e);
}
