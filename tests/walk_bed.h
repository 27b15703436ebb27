/* What the tests of the walk share: sessions to walk from, and the slow way, which edits the cache
 * of a fork and runs the tokens through it. */
#ifndef RKV_WALK_BED_H
#define RKV_WALK_BED_H

#include "made.h"

#include <math.h>

#include "engine/prefill.h"
#include "base/mem.h"
#include "profile/walk.h"

static inline void must(rkv_status s, const rkv_error *e)
{
    if (s) {
        fprintf(stderr, "unexpected: %s\n", e->text);
        exit(1);
    }
}

static inline rkv_policy bed_policy(const char *selector, int window)
{
    rkv_error e = {0};
    rkv_policy p = rkv_policy_default();
    must(rkv_policy_set_name(&p, selector, &e), &e);
    p.window = window;
    return p;
}

/* n tokens in a session that has observed all that selectors with the window look at. */
static inline rkv_session *bed_session(const rkv_model *m, const char *kv_type, int n_thread,
                                       const int32_t *ids, int n, int room, int window)
{
    rkv_error e = {0};
    rkv_session *s;
    rkv_session_options o = rkv_session_options_default();
    o.k_type = o.v_type = kv_type;
    o.n_thread = n_thread;
    o.n_ctx = n + room;
    o.observe = RKV_OBSERVE_QUERIES | RKV_OBSERVE_MASS;
    o.policy.window = window;
    must(rkv_session_create(&s, m, &o, &e), &e);
    must(rkv_session_prefill(s, ids, (size_t)n, &e), &e);
    return s;
}

/* What the policy's selector keeps of a head at a share, by compressing a fork: keep[n]. */
static inline int bed_kept(const rkv_session *s, const rkv_policy *selector, double share, int l,
                           int h, int32_t *keep)
{
    rkv_error e = {0};
    rkv_session *f;
    rkv_policy p = *selector;
    const int32_t *pos = NULL;
    const int least = p.window + RKV_FLOOR_EXTRA, n = s->n_prompt;
    const int cap = (int)(share * n + 0.5 + 1e-7);
    p.budget_kind = RKV_BUDGET_TOKENS;
    p.budget = cap < least ? (least < n ? least : n) : cap;
    must(rkv_session_fork(&f, s, &e), &e);
    must(rkv_session_compress(f, &p, &e), &e);
    const int n_keep = rkv_session_kept(f, l, h, &pos);
    memcpy(keep, pos, (size_t)n_keep * sizeof *keep);
    rkv_session_free(f);
    return n_keep;
}

/* A fork in which one head, or with -1 all of layer l, is really compressed. */
static inline rkv_session *bed_compressed(const rkv_session *s, const rkv_policy *selector,
                                          double share, int l, int head)
{
    rkv_error e = {0};
    rkv_session *f;
    int32_t *keep = malloc((size_t)s->n_prompt * sizeof *keep);
    must(rkv_session_fork(&f, s, &e), &e);
    for (int h = 0; h < s->kv->n_kv_head; h++)
        if (head < 0 || head == h) {
            const int n = bed_kept(s, selector, share, l, h, keep);
            must(rkv_kv_compact(f->kv, l, h, keep, n, n + rkv_session_room(f), &e), &e);
        }
    free(keep);
    return f;
}

typedef struct bed_rows {
    float *logits;              /* [n][n_vocab] */
    int n_vocab;
} bed_rows;

static inline int bed_collect(void *ctx, int64_t i0, int n_row, const float *logits)
{
    const bed_rows *r = ctx;
    memcpy(r->logits + (size_t)i0 * (size_t)r->n_vocab, logits,
           (size_t)n_row * (size_t)r->n_vocab * sizeof *logits);
    return 0;
}

/* Logits of the fed tokens behind the session, which is used up. */
static inline bed_rows bed_logits(rkv_session *s, const int32_t *fed, int n)
{
    rkv_error e = {0};
    const int n_vocab = s->m->config.n_vocab;
    bed_rows r = {malloc((size_t)n * (size_t)n_vocab * sizeof(float)), n_vocab};
    must(rkv_session_score(s, fed, (size_t)n, 0, bed_collect, &r, &e), &e);
    rkv_session_free(s);
    return r;
}

/* ---- the rows inside ---- */

typedef struct bed_layer {      /* of the fed tokens */
    int l;
    float *att;                 /* [n][n_head * d_head] */
    float *x;                   /* [n][d_model] leaving the layer */
    rkv_row_attention attention;
} bed_layer;

static inline void bed_attend(void *ctx, rkv_step *step, int l)
{
    bed_layer *b = ctx;
    const rkv_config *c = &b->attention.s->m->config;
    rkv_row_attention_run(&b->attention, step, l);
    if (l == b->l)
        memcpy(b->att, step->att,
               (size_t)step->n_tok * (size_t)c->n_head * (size_t)c->d_head * sizeof *b->att);
}

/* Runs the fed tokens up to layer l with the engine's own attention; the session is used up. */
static inline bed_layer bed_run(rkv_session *s, const int32_t *fed, int n, int l)
{
    const rkv_model *m = s->m;
    const rkv_config *c = &m->config;
    rkv_error e = {0};
    const size_t rows = (size_t)n, table = rows * (size_t)m->rope[0].n_pair;
    int *n_old = malloc((size_t)c->n_kv_head * sizeof *n_old);
    int32_t *pos = malloc(rows * sizeof *pos);
    float *tables = malloc(2 * (size_t)m->n_rope * table * sizeof *tables);
    float *scratch = malloc(rkv_step_scratch(c, n) * sizeof *scratch);
    void *panels = rkv_mem_alloc(rkv_model_panels_bytes(m));
    rkv_panels w[RKV_W_COUNT];
    bed_layer b = {.l = l, .attention = {.s = s, .pos0 = s->n_past, .n_old = n_old}};
    b.att = malloc(rows * (size_t)c->n_head * (size_t)c->d_head * sizeof *b.att);
    b.x = malloc(rows * (size_t)c->d_model * sizeof *b.x);
    b.attention.scratch = rkv_mem_alloc((size_t)rkv_team_size(s->team) *
                                        rkv_row_attention_floats(m, 0) * sizeof(float));
    rkv_step step = {.be = &m->backend, .team = s->team, .n_tok = n, .pos = pos,
                     .rope_first = s->n_past, .panels = w, .x = b.x, .attend = bed_attend,
                     .attend_ctx = &b};
    for (int r = 0; r < m->n_rope; r++) {
        float *cosine = tables + 2 * (size_t)r * table, *sine = cosine + table;
        rkv_rope_table(&m->rope[r], cosine, sine, s->n_past, n, NULL);
        step.cosine[r] = cosine;
        step.sine[r] = sine;
    }
    for (int i = 0; i < n; i++)
        pos[i] = s->n_past + i;
    rkv_model_embed(m, b.x, fed, n);
    rkv_step_place(&step, c, n, scratch);
    for (int i = 0; i <= l; i++) {
        int most = 0;
        for (int h = 0; h < c->n_kv_head; h++) {
            n_old[h] = rkv_kv_at(s->kv, i, h)->n_slot;
            most = n_old[h] > most ? n_old[h] : most;
        }
        must(rkv_kv_reserve(s->kv, i, most + n, &e), &e);
        rkv_model_panels(m, i, w, panels, s->team);
        m->arch->layer(m, &step, i);
    }
    free(n_old), free(pos), free(tables), free(scratch);
    rkv_mem_free(panels);
    rkv_mem_free(b.attention.scratch);
    rkv_session_free(s);
    return b;
}

static inline void bed_layer_free(bed_layer *b)
{
    free(b->att);
    free(b->x);
}

#endif
