/* Attention of the walk's rows: over the prompt's slots, as stored or as a variant leaves them, and
 * over the rows' own. */
#include "config.h"
#include "profile/walk_impl.h"

#include <string.h>

#include "noise.h"

enum {
    SEGMENT = 512,              /* slots edited at a time: a multiple of the attention tile */
    BUNDLE_ROWS = 192,          /* query rows that share an unpacked tile, as in prefill */
    TILE = RKV_ATTN_TILE
};

/* ---- scratch of one item: a bundle of groups over one KV head ---- */

typedef struct item {
    float *q, *out, *m, *l;     /* [bundle * n_fed * n_group_heads][...] */
    int32_t *lo, *hi;
    float *k_own, *v_own; /* [TILE + n_fed][d_head]: the prompt's last slots, then the rows' own */
    float *k_edit, *v_edit;     /* [SEGMENT][d_head] */
    int32_t *keep;              /* [n_prompt] */
    uint32_t *order;            /* [n_prompt] */
    float *attend;
} item;

static int group_heads(const walk *w)
{
    return w->m->config.n_head / w->m->config.n_kv_head;
}

/* Groups that go together where they see the same slots. In layers that slide their rows' first
 * slots would not ascend. */
static int bundle(const walk *w, int l)
{
    const int n = BUNDLE_ROWS / (w->n_fed * group_heads(w));
    return w->m->layer[l].sliding || n < 1 ? 1 : n;
}

static size_t most_rows(const walk *w)
{
    const int rows = w->n_fed * group_heads(w);
    return (size_t)(rows > BUNDLE_ROWS ? rows : BUNDLE_ROWS);
}

size_t rkv_walk_thread_floats(const walk *w)
{
    const size_t rows = most_rows(w), d = (size_t)w->m->config.d_head;
    const size_t n = rows * (2 * d + 4) +
                     2 * (TILE + (size_t)w->n_fed + SEGMENT) * d + 2 * (size_t)w->n_prompt +
                     rkv_attend_scratch(&w->m->backend, (int)rows, (int)d);
    const size_t score = w->selects ? rkv_session_score_floats(w->s, &w->policy, w->n_prompt) : 0;
    return ((n > score ? n : score) + 15) / 16 * 16;
}

static item cut(const walk *w, float *scratch)
{
    const size_t rows = most_rows(w), d = (size_t)w->m->config.d_head;
    const size_t own = (TILE + (size_t)w->n_fed) * d;
    item t = {.q = scratch, .out = scratch + rows * d, .m = scratch + 2 * rows * d};
    t.l = t.m + rows;
    t.lo = (int32_t *)(void *)(t.l + rows);
    t.hi = t.lo + rows;
    t.k_own = (float *)(void *)(t.hi + rows);
    t.v_own = t.k_own + own;
    t.k_edit = t.v_own + own;
    t.v_edit = t.k_edit + SEGMENT * d;
    t.keep = (int32_t *)(void *)(t.v_edit + SEGMENT * d);
    t.order = (uint32_t *)(void *)(t.keep + w->n_prompt);
    t.attend = (float *)(void *)(t.order + w->n_prompt);
    return t;
}

/* ---- the prompt's slots ---- */

typedef struct source {         /* those of one head, as the rows see them */
    rkv_perturb_slots s;
    rkv_perturb_fn *slots;
    int phase;                  /* of its first slot */
} source;

/* Tokens that stay of the prompt. */
static int cap_of(const walk *w, double share)
{
    const int n = w->n_prompt, least = w->policy.window + RKV_FLOOR_EXTRA;
    const int cap = rkv_budget_share(share, n);
    return cap < least ? (least < n ? least : n) : cap < n ? cap : n;
}

static source source_of(const walk *w, const item *t, int l, int h, const rkv_variant *v)
{
    const rkv_kv_view kv = rkv_kv_view_of(w->s->kv, l, h);
    source r = {{.be = &w->m->backend, .kv = kv, .n = kv.n_slot, .h = h,
                 .n_kv_head = w->m->config.n_kv_head, .n_prompt = w->n_prompt},
                rkv_perturb_stored, kv.phase};
    if (!v || (v->head >= 0 && v->head != h))
        return r;
    r.s.amount = v->amount;
    r.s.key = rkv_noise_key((uint64_t)w->in->o->example, (uint64_t)v->seed, (uint64_t)l);
    r.slots = v->what->slots;
    const int cap = v->what->selects ? cap_of(w, v->amount) : kv.n_slot;
    if (cap < kv.n_slot) {
        rkv_keep_best(t->keep, w->score + (ptrdiff_t)h * w->n_prompt, kv.n_slot, w->policy.window,
                      cap, t->order);
        r.s.keep = t->keep;
        r.s.n = cap;
        r.phase = kv.pos[t->keep[0]] % TILE;
    }
    return r;
}

/* The whole tiles of the prompt's slots, [0, n_whole), for `rows` rows. */
static void attend_prompt(const walk *w, const item *t, const source *r, int n_whole, int rows)
{
    const int edited = r->slots != rkv_perturb_stored;
    for (int first = 0, n; first < n_whole; first += n) {
        n = n_whole - first;
        if (edited && n > SEGMENT)      /* up to the end of a tile */
            n = SEGMENT - (first ? 0 : r->phase);
        rkv_kv_view part = r->slots(&r->s, first, n, t->k_edit, t->v_edit);
        part.phase = first ? 0 : r->phase;
        for (int i = 0; i < rows; i++)
            t->hi[i] = n;
        rkv_attend_add(&w->m->backend, t->out, t->m, t->l, t->q, rows, t->lo, t->hi, &part, NULL,
                       t->attend);
    }
}

/* ---- the rows' own slots ---- */

/* A row of the KV type as it comes back from the cache. */
static void through_cache(const rkv_backend *be, rkv_dtype type, float *out, const float *in, int d)
{
    uint64_t stored[RKV_MAX_D_HEAD / 2];        /* no KV type takes more than 4 bytes a number */
    be->ops.pack[type](stored, in, d);
    be->ops.unpack[type](out, stored, d);
}

/* The last slots of the prompt, which do not fill a tile: the first of what own_slots completes. */
static void tail_slots(const walk *w, const item *t, const source *r, int n_whole)
{
    const rkv_ops *ops = &w->m->backend.ops;
    const int n = r->s.n - n_whole, d = w->m->config.d_head;
    const rkv_kv_view part = r->slots(&r->s, n_whole, n, t->k_edit, t->v_edit);
    ops->unpack[part.k_type](t->k_own, part.k, (int64_t)n * d);
    ops->unpack[part.v_type](t->v_own, part.v, (int64_t)n * d);
}

/* Behind n_tail slots the group's own rows, as one run: it starts at a multiple of the tile, so
 * that no bit differs from a cache that holds both. */
static void own_slots(const walk *w, const item *t, int n_tail, int row0, int h)
{
    const rkv_config *c = &w->m->config;
    const rkv_kv *kv = w->s->kv;
    const int d = c->d_head;
    for (int i = 0; i < w->n_fed; i++) {
        const ptrdiff_t from = ((ptrdiff_t)(row0 + i) * c->n_kv_head + h) * d;
        const ptrdiff_t to = (ptrdiff_t)(n_tail + i) * d;
        through_cache(&w->m->backend, kv->k_type, t->k_own + to, w->step.k + from, d);
        through_cache(&w->m->backend, kv->v_type, t->v_own + to, w->step.v + from, d);
    }
}

/* What is left for the rows of group i of the bundle: the tail and their own slots. */
static void attend_own(const walk *w, const item *t, const source *r, int n_whole, int i, int row0,
                       int h)
{
    const int d = w->m->config.d_head, heads = group_heads(w), rows = w->n_fed * heads;
    const int at = i * rows, n_tail = r->s.n - n_whole, n_own = n_tail + w->n_fed;
    int32_t *lo = t->lo + at, *hi = t->hi + at;
    own_slots(w, t, n_tail, row0 + i * w->n_fed, h);
    const rkv_kv_view own = {t->k_own, t->v_own, NULL, RKV_DT_f32, RKV_DT_f32, n_own, d,
                             n_whole ? 0 : r->phase};
    for (int q = 0; q < rows; q++) {
        lo[q] = lo[q] > n_whole ? lo[q] - n_whole : 0;
        hi[q] = n_tail + q / heads + 1;
    }
    rkv_attend_add(&w->m->backend, t->out + (ptrdiff_t)at * d, t->m + at, t->l + at,
                   t->q + (ptrdiff_t)at * d, rows, lo, hi, &own, NULL, t->attend);
}

/* ---- one item ---- */

/* Queries of n groups from step row row0 on, gathered and scaled, and where each begins to see. */
static void gather(const walk *w, const item *t, const rkv_kv_view *kv, int l, int row0, int n,
                   int h)
{
    const rkv_config *c = &w->m->config;
    const int heads = group_heads(w);
    const size_t row = (size_t)heads * (size_t)c->d_head;
    for (int i = 0; i < n * w->n_fed; i++) {
        const int from = rkv_session_first_visible(w->s, l, kv, w->n_prompt + i % w->n_fed);
        for (int g = 0; g < heads; g++)
            t->lo[i * heads + g] = from;
        memcpy(t->q + (size_t)i * row,
               w->step.q + ((size_t)(row0 + i) * (size_t)c->n_kv_head + (size_t)h) * row,
               row * sizeof *t->q);
    }
    w->m->backend.ops.scale[RKV_DT_f32](t->q, c->attn_scale, n * w->n_fed * heads * c->d_head);
}

/* n groups of rows from step row row0 on over one head; the result to rows of `to`, ld apart. */
static void attend_bundle(const walk *w, int l, int h, int row0, int n, const rkv_variant *v,
                          float *to, ptrdiff_t ld, float *scratch)
{
    const rkv_config *c = &w->m->config;
    const int heads = group_heads(w), rows = n * w->n_fed * heads;
    const item t = cut(w, scratch);
    const source r = source_of(w, &t, l, h, v);
    const int tiles = (r.phase + r.s.n) / TILE * TILE, n_whole = tiles ? tiles - r.phase : 0;
    gather(w, &t, &r.s.kv, l, row0, n, h);
    rkv_attend_begin(t.out, t.m, t.l, rows, c->d_head);
    attend_prompt(w, &t, &r, n_whole, rows);
    tail_slots(w, &t, &r, n_whole);
    for (int i = 0; i < n; i++)
        attend_own(w, &t, &r, n_whole, i, row0, h);
    rkv_attend_end(&w->m->backend, t.out, t.l, rows, c->d_head);
    const size_t row = (size_t)heads * (size_t)c->d_head;
    for (int i = 0; i < n * w->n_fed; i++)
        memcpy(to + i * ld, t.out + (size_t)i * row, row * sizeof *to);
}

void rkv_walk_attend_variant(const walk *w, int l, int h, int row0, const rkv_variant *v, float *to,
                             ptrdiff_t ld, float *scratch)
{
    attend_bundle(w, l, h, row0, 1, v, to, ld, scratch);
}

/* ---- all of a step ---- */

typedef struct step_job {
    const walk *w;
    int l, per, n_old, n_bundle;        /* groups as they were; their bundles of `per` */
} step_job;

static void step_part(void *ctx, int i, int thread)
{
    const step_job *j = ctx;
    const walk *w = j->w;
    const rkv_config *c = &w->m->config;
    const int b = i / c->n_kv_head, h = i % c->n_kv_head, heads = group_heads(w);
    const int fresh = b >= j->n_bundle;         /* a group that is perturbed here */
    const int g = fresh ? j->n_old + b - j->n_bundle : b * j->per;
    const int n = fresh ? 1 : g + j->per < j->n_old ? j->per : j->n_old - g;
    const ptrdiff_t ld = (ptrdiff_t)c->n_head * c->d_head;
    attend_bundle(w, j->l, h, g * w->n_fed, n,
                  fresh ? walk_variant(w, w->chunk_group + g) : NULL,
                  w->step.att + (ptrdiff_t)g * w->n_fed * ld + (ptrdiff_t)h * heads * c->d_head,
                  ld, w->thread + (size_t)thread * w->thread_floats);
}

void rkv_walk_attend(void *ctx, rkv_step *step, int l)
{
    walk *w = ctx;
    const int n = step->n_tok / w->n_fed, fresh_from = w->n_group - w->n_new - w->chunk_group;
    step_job j = {.w = w, .l = l, .per = bundle(w, l)};
    j.n_old = fresh_from < 0 ? 0 : fresh_from < n ? fresh_from : n;
    j.n_bundle = (j.n_old + j.per - 1) / j.per;
    rkv_team_run(step->team, step_part, &j,
                 (j.n_bundle + n - j.n_old) * w->m->config.n_kv_head);
    if (w->chunk_group == 0 && walk_errors(w, l))
        rkv_walk_errors(w, step, l);
}

/* ---- selection ---- */

typedef struct score_job {
    const walk *w;
    int l;
} score_job;

static void score_part(void *ctx, int h, int thread)
{
    const score_job *j = ctx;
    const walk *w = j->w;
    rkv_session_score_head(w->s, &w->policy, j->l, h, w->score + (ptrdiff_t)h * w->n_prompt,
                           w->thread + (size_t)thread * w->thread_floats);
}

void rkv_walk_score(walk *w, int l)
{
    int wanted = walk_errors(w, l);
    for (int g = w->n_group - w->n_new; g < w->n_group; g++)
        wanted |= walk_variant(w, g)->what->selects;
    score_job j = {w, l};
    if (wanted && cap_of(w, 0.0) < w->n_prompt)
        rkv_team_run(w->team, score_part, &j, w->m->config.n_kv_head);
}
