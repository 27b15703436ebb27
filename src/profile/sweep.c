#include "config.h"
#include "profile/sweep.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/noise.h"

enum {
    SEGMENT = 2048,             /* slots perturbed at a time: a multiple of the attention tile */
    TILE = RKV_ATTN_TILE
};

typedef struct walk {
    const rkv_session *s;
    const rkv_model *m;
    const rkv_sweep_options *o;
    int n_prompt, n_fed;
    int n_group, max_group; /* row groups of n_fed rows: 0 is the reference, then the variants */
    int n_new;                  /* the last ones, perturbed in the layer at hand: one per seed */
    int chunk_group;            /* first group of the rows that are in the step now */
    float *x;                   /* [max_group][n_fed][d_model] */
    int32_t *pos;               /* [max_group * n_fed] */
    float *tables, *scratch, *norm;
    void *panels;
    float *thread;              /* scratch of the attention items */
    size_t thread_floats;
    int group_of_layer[RKV_MAX_LAYER];  /* first variant of a layer; -1: none */
    rkv_panels w[RKV_W_COUNT];
    rkv_step step;
} walk;

/* ---- attention of one group of rows over one KV head ---- */

typedef struct item {           /* per-thread scratch, cut up */
    float *q, *out, *m, *l;     /* [n_fed * n_group_heads][...] */
    int32_t *lo, *hi;
    float *k_own,
        *v_own; /* [TILE - 1 + n_fed][d_head]: the prompt's last slots, then the rows' own */
    float *v_plain;             /* [SEGMENT][d_head] */
    float *attend;
} item;

static size_t item_floats(const rkv_model *m, int n_fed)
{
    const rkv_config *c = &m->config;
    const size_t rows = (size_t)n_fed * (size_t)(c->n_head / c->n_kv_head), d = (size_t)c->d_head;
    const size_t n = rows * (2 * d + 4) + 2 * ((size_t)TILE + (size_t)n_fed) * d + SEGMENT * d +
                     rkv_attend_scratch(&m->backend, (int)rows, c->d_head);
    return (n + 15) / 16 * 16;
}

static item cut(const walk *w, float *scratch)
{
    const rkv_config *c = &w->m->config;
    const size_t rows = (size_t)w->n_fed * (size_t)(c->n_head / c->n_kv_head),
                 d = (size_t)c->d_head;
    const size_t own = ((size_t)TILE + (size_t)w->n_fed) * d;
    item t = {.q = scratch, .out = scratch + rows * d, .m = scratch + 2 * rows * d};
    t.l = t.m + rows;
    t.lo = (int32_t *)(void *)(t.l + rows);
    t.hi = t.lo + rows;
    t.k_own = (float *)(void *)(t.hi + rows);
    t.v_own = t.k_own + own;
    t.v_plain = t.v_own + own;
    t.attend = t.v_plain + SEGMENT * d;
    return t;
}

void rkv_sweep_perturb(float *out, const rkv_backend *be, const rkv_kv_view *kv, int h, int first,
                       int n, int n_prompt, uint64_t key, double noise)
{
    const int d = kv->d_head;
    const char *v = kv->v;
    double eps[RKV_MAX_D_HEAD];
    be->ops.unpack[kv->v_type](out, v + rkv_dtype_bytes(rkv_dtype_get(kv->v_type), (size_t)first *
                               (size_t)d), (int64_t)n * d);
    for (int t = 0; t < n; t++) {
        float *row = out + (ptrdiff_t)t * d;
        double square = 0.0;
        for (int i = 0; i < d; i++)
            square += (double)row[i] * (double)row[i];
        const double scale = noise * sqrt(square) / sqrt(d);
        const uint64_t slot = (uint64_t)h * (uint64_t)n_prompt + (uint64_t)(first + t);
        rkv_noise_normal(eps, key, slot * (uint64_t)d, d);
        for (int i = 0; i < d; i++)
            row[i] = (float)((double)row[i] + scale * eps[i]);
    }
}

/* Rows of the KV type as they come back from the cache. */
static void through_cache(const rkv_backend *be, rkv_dtype type, float *out, const float *in, int d)
{
    uint64_t stored[RKV_MAX_D_HEAD / 2];        /* no KV type takes more than 4 bytes a number */
    be->ops.pack[type](stored, in, d);
    be->ops.unpack[type](out, stored, d);
}

/* The last slots of the prompt that do not fill a tile, and the group's own rows, as one run: it
 * starts at a multiple of the tile, so that no bit differs from a cache that holds both. Returns
 * its length. */
static int own_slots(const walk *w, const item *t, const rkv_kv_view *kv, int n_whole,
                     const float *v_tail, int row0, int h)
{
    const rkv_config *c = &w->m->config;
    const rkv_backend *be = &w->m->backend;
    const int d = c->d_head, n_tail = kv->n_slot - n_whole;
    const size_t at = (size_t)n_whole * (size_t)d;
    be->ops.unpack[kv->k_type](t->k_own,
                               (const char *)kv->k + rkv_dtype_bytes(rkv_dtype_get(kv->k_type), at),
                               (int64_t)n_tail * d);
    if (v_tail)
        memcpy(t->v_own, v_tail, (size_t)n_tail * (size_t)d * sizeof *v_tail);
    else
        be->ops.unpack[kv->v_type](
            t->v_own, (const char *)kv->v + rkv_dtype_bytes(rkv_dtype_get(kv->v_type), at),
            (int64_t)n_tail * d);
    for (int i = 0; i < w->n_fed; i++) {
        const ptrdiff_t from = ((ptrdiff_t)(row0 + i) * c->n_kv_head + h) * d;
        const ptrdiff_t to = (ptrdiff_t)(n_tail + i) * d;
        through_cache(be, kv->k_type, t->k_own + to, w->step.k + from, d);
        through_cache(be, kv->v_type, t->v_own + to, w->step.v + from, d);
    }
    return n_tail + w->n_fed;
}

/* Queries of the group, gathered and scaled, and what each sees of the prompt's slots. */
static void gather(const walk *w, const item *t, const rkv_kv_view *kv, int l, int row0, int h)
{
    const rkv_config *c = &w->m->config;
    const int n_group = c->n_head / c->n_kv_head;
    const size_t row = (size_t)n_group * (size_t)c->d_head;
    for (int i = 0; i < w->n_fed; i++) {
        const int from = rkv_session_first_visible(w->s, l, kv, w->n_prompt + i);
        for (int g = 0; g < n_group; g++)
            t->lo[i * n_group + g] = from;
        memcpy(t->q + (size_t)i * row,
               w->step.q + ((size_t)(row0 + i) * (size_t)c->n_kv_head + (size_t)h) * row,
               row * sizeof *t->q);
    }
    w->m->backend.ops.scale[RKV_DT_f32](t->q, c->attn_scale, w->n_fed * n_group * c->d_head);
}

/* The whole tiles of the prompt's slots, [0, n_whole); seed < 0: as stored, else perturbed. Leaves
 * the perturbed Values after n_whole in v_plain. */
static void attend_prompt(const walk *w, const item *t, const rkv_kv_view *kv, int l, int h,
                          int n_whole, int seed)
{
    const rkv_config *c = &w->m->config;
    const rkv_backend *be = &w->m->backend;
    const int rows = w->n_fed * (c->n_head / c->n_kv_head);
    const uint64_t key = rkv_noise_key((uint64_t)w->o->example, (uint64_t)seed, (uint64_t)l);
    const int step = seed < 0 ? (n_whole ? n_whole : 1) : SEGMENT;
    for (int first = 0; first < n_whole; first += step) {
        const int n = n_whole - first < step ? n_whole - first : step;
        rkv_kv_view part = *kv;
        part.n_slot = n;
        part.k = (const char *)kv->k + (size_t)first * w->s->kv->k_bytes;
        part.v = (const char *)kv->v + (size_t)first * w->s->kv->v_bytes;
        for (int r = 0; r < rows; r++)
            t->hi[r] = n;
        if (seed >= 0)
            rkv_sweep_perturb(t->v_plain, be, kv, h, first, n, w->n_prompt, key, w->o->noise);
        rkv_attend_add(be, t->out, t->m, t->l, t->q, rows, t->lo, t->hi, &part,
                       seed >= 0 ? t->v_plain : NULL, NULL, t->attend);
    }
    if (seed >= 0)
        rkv_sweep_perturb(t->v_plain, be, kv, h, n_whole, kv->n_slot - n_whole, w->n_prompt, key,
                          w->o->noise);
}

static void attend_group(const walk *w, int l, int g, int h, float *scratch)
{
    const rkv_config *c = &w->m->config;
    const rkv_backend *be = &w->m->backend;
    const int n_group = c->n_head / c->n_kv_head, rows = w->n_fed * n_group, row0 = g * w->n_fed;
    const int seed = w->chunk_group + g - (w->n_group - w->n_new);
    const item t = cut(w, scratch);
    const rkv_kv_view kv = rkv_kv_view_of(w->s->kv, l, h);
    const int tiles = (kv.phase + kv.n_slot) / TILE * TILE, n_whole = tiles ? tiles - kv.phase : 0;
    gather(w, &t, &kv, l, row0, h);
    rkv_attend_begin(t.out, t.m, t.l, rows, c->d_head);
    attend_prompt(w, &t, &kv, l, h, n_whole, seed);
    const int n_own = own_slots(w, &t, &kv, n_whole, seed >= 0 ? t.v_plain : NULL, row0, h);
    const rkv_kv_view own = {t.k_own, t.v_own, NULL, RKV_DT_f32, RKV_DT_f32, n_own, c->d_head,
                             n_whole ? 0 : kv.phase};
    for (int r = 0; r < rows; r++) {
        t.lo[r] = t.lo[r] > n_whole ? t.lo[r] - n_whole : 0;
        t.hi[r] = n_own - w->n_fed + r / n_group + 1;
    }
    rkv_attend_add(be, t.out, t.m, t.l, t.q, rows, t.lo, t.hi, &own, NULL, NULL, t.attend);
    rkv_attend_end(be, t.out, t.l, rows, c->d_head);
    const size_t row = (size_t)n_group * (size_t)c->d_head;
    for (int i = 0; i < w->n_fed; i++)
        memcpy(w->step.att + ((size_t)(row0 + i) * (size_t)c->n_kv_head + (size_t)h) * row,
               t.out + (size_t)i * row, row * sizeof *t.out);
}

typedef struct group_job {
    const walk *w;
    int l;
} group_job;

static void group_part(void *ctx, int i, int thread)
{
    const group_job *j = ctx;
    const int n_head = j->w->m->config.n_kv_head;
    attend_group(j->w, j->l, i / n_head, i % n_head,
                 j->w->thread + (size_t)thread * j->w->thread_floats);
}

static void attend(void *ctx, rkv_step *step, int l)
{
    const walk *w = ctx;
    group_job j = {w, l};
    rkv_team_run(step->team, group_part, &j, step->n_tok / w->n_fed * w->m->config.n_kv_head);
}

/* ---- the walk ---- */

static int chunk_groups(const walk *w)
{
    const int n = w->s->o.n_chunk / w->n_fed;
    return n > 0 ? n : 1;
}

static rkv_status alloc(walk *w, rkv_error *e)
{
    const rkv_config *c = &w->m->config;
    const size_t rows = (size_t)w->max_group * (size_t)w->n_fed, d_model = (size_t)c->d_model;
    const size_t table = (size_t)w->n_fed * (size_t)w->m->rope[0].n_pair;
    w->thread_floats = item_floats(w->m, w->n_fed);
    w->x = rkv_mem_alloc(rkv_mem_product(rows, d_model * sizeof *w->x));
    w->norm = rkv_mem_alloc(rkv_mem_product(rows, d_model * sizeof *w->norm));
    w->pos = rkv_mem_alloc(rows * sizeof *w->pos);
    w->tables = rkv_mem_alloc(2 * (size_t)w->m->n_rope * table * sizeof *w->tables);
    w->panels = rkv_mem_alloc(rkv_model_panels_bytes(w->m));
    w->scratch =
        rkv_mem_alloc(rkv_step_scratch(c, chunk_groups(w) * w->n_fed) * sizeof *w->scratch);
    w->thread =
        rkv_mem_alloc((size_t)rkv_team_size(w->s->team) * w->thread_floats * sizeof *w->thread);
    if (!w->x || !w->norm || !w->pos || !w->tables || !w->panels || !w->scratch || !w->thread)
        return rkv_fail(e, RKV_E_MEM, "sweep: out of memory for %d variants of %d tokens",
                        w->max_group, w->n_fed);
    return RKV_OK;
}

static void free_all(walk *w)
{
    rkv_mem_free(w->x);
    rkv_mem_free(w->norm);
    rkv_mem_free(w->pos);
    rkv_mem_free(w->tables);
    rkv_mem_free(w->panels);
    rkv_mem_free(w->scratch);
    rkv_mem_free(w->thread);
}

static void start(walk *w, const int32_t *fed)
{
    const rkv_model *m = w->m;
    const size_t table = (size_t)w->n_fed * (size_t)m->rope[0].n_pair;
    for (int i = 0; i < w->max_group * w->n_fed; i++)
        w->pos[i] = w->n_prompt + i % w->n_fed;
    w->step = (rkv_step){.be = &m->backend, .team = w->s->team, .rope_first = w->n_prompt,
                         .panels = w->w, .attend = attend, .attend_ctx = w};
    for (int r = 0; r < m->n_rope; r++) {
        float *cosine = w->tables + 2 * (size_t)r * table, *sine = cosine + table;
        rkv_rope_table(&m->rope[r], cosine, sine, w->n_prompt, w->n_fed, NULL);
        w->step.cosine[r] = cosine;
        w->step.sine[r] = sine;
    }
    rkv_model_embed(m, w->x, fed, w->n_fed);
    w->n_group = 1;
}

/* The variants of layer l join: they enter it with the reference's rows. */
static void join(walk *w, int l)
{
    const size_t group = (size_t)w->n_fed * (size_t)w->m->config.d_model;
    w->n_new = rkv_session_skips(w->s, l) ? 0 : w->o->n_seed;
    w->group_of_layer[l] = w->n_new ? w->n_group : -1;
    for (int i = 0; i < w->n_new; i++)
        memcpy(w->x + (size_t)w->n_group++ * group, w->x, group * sizeof *w->x);
}

static rkv_status run_layer(walk *w, int l, rkv_error *e)
{
    const rkv_session_options *o = &w->s->o;
    const rkv_config *c = &w->m->config;
    join(w, l);
    rkv_model_panels(w->m, l, w->w, w->panels, w->s->team);
    const int step = chunk_groups(w);
    for (int g = 0; g < w->n_group; g += step) {
        w->chunk_group = g;
        w->step.n_tok = (w->n_group - g < step ? w->n_group - g : step) * w->n_fed;
        w->step.pos = w->pos;
        w->step.x = w->x + (ptrdiff_t)g * w->n_fed * c->d_model;
        rkv_step_place(&w->step, c, w->step.n_tok, w->scratch);
        w->m->arch->layer(w->m, &w->step, l);
    }
    if (o->progress && o->progress(o->progress_ctx, "sweep", l + 1, c->n_layer))
        return rkv_fail(e, RKV_E_CANCELLED, "interrupted in the sweep, at layer %d of %d", l,
                        c->n_layer);
    return RKV_OK;
}

static int add_columns(void *ctx, int c0, int n_col, const float *logits, int ld)
{
    (void)c0;
    rkv_kl_add(ctx, logits, n_col, ld);
    return 0;
}

/* KL of all variants, and its mean over positions, for each (seed, layer). */
static rkv_status finish(walk *w, double *kl, rkv_error *e)
{
    const int rows = w->n_group * w->n_fed, n_layer = w->m->config.n_layer;
    double *row_kl = rkv_mem_alloc((size_t)rows * sizeof *row_kl);
    rkv_kl_stream *stream = NULL;
    rkv_status s = row_kl ? RKV_OK : rkv_fail(e, RKV_E_MEM, "sweep: out of memory");
    if (!s)
        s = rkv_kl_create(&stream, w->n_fed, rows, RKV_HEAD_COLUMNS, w->s->team, e);
    if (!s)
        s = rkv_model_head(w->m, w->x, rows, w->norm, w->s->team, add_columns, stream, e);
    if (!s) {
        rkv_kl_end(stream, row_kl);
        for (int i = 0; i < w->o->n_seed * n_layer; i++) {
            const int seed = i / n_layer, group = w->group_of_layer[i % n_layer];
            double sum = 0.0;
            for (int t = 0; group >= 0 && t < w->n_fed; t++)
                sum += row_kl[(group + seed - 1) * w->n_fed + t];
            kl[i] = group >= 0 ? sum / w->n_fed : (double)NAN;
        }
    }
    rkv_kl_free(stream);
    rkv_mem_free(row_kl);
    return s;
}

rkv_status rkv_sweep_run(double *kl, const rkv_session *s, const int32_t *fed, int n_fed,
                         const rkv_sweep_options *o, rkv_error *e)
{
    walk w = {.s = s, .m = s->m, .o = o, .n_prompt = s->n_past, .n_fed = n_fed, .max_group = 1};
    for (int l = 0; l < s->m->config.n_layer; l++)
        w.max_group += rkv_session_skips(s, l) ? 0 : o->n_seed;
    rkv_status status = alloc(&w, e);
    if (!status)
        start(&w, fed);
    for (int l = 0; !status && l < s->m->config.n_layer; l++)
        status = run_layer(&w, l, e);
    if (!status)
        status = finish(&w, kl, e);
    free_all(&w);
    return status;
}
