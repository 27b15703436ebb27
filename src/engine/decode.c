/* One token: straight products with the stored weights, attention split over chunks of slots so
 * that every K and V byte is read once and all threads have work (flash-decoding, Dao et al. 2023).
 * Chunks and their order are fixed, so the bits do not depend on the thread count. */
#include "config.h"
#include "engine/session.h"

#include <string.h>

#include "base/mem.h"

enum { CHUNK = RKV_ATTN_CHUNK };

typedef struct decode {
    rkv_session *s;
    int *first_item;            /* [n_kv_head + 1] chunks of the heads before */
    float *o, *m, *l;           /* partial results of all chunks, [chunk][n_group][...] */
    float *score, *q;           /* scratch per thread; scaled queries */
} decode;

static int chunks(int n_slot)
{
    return (n_slot + CHUNK - 1) / CHUNK;
}

static void run_item(const decode *d, int l, int h, int chunk, int32_t p, int thread)
{
    const rkv_session *s = d->s;
    const rkv_config *c = &s->m->config;
    const int n_group = c->n_head / c->n_kv_head;
    const rkv_kv_view kv = rkv_kv_view_of(s->kv, l, h);
    const int first = rkv_session_first_visible(s, l, &kv, p) + chunk * CHUNK;
    const int n = kv.n_slot - first < CHUNK ? kv.n_slot - first : CHUNK;
    const ptrdiff_t row = ((ptrdiff_t)d->first_item[h] + chunk) * n_group;
    rkv_attend_chunk(&s->m->backend, d->o + row * c->d_head, d->m + row, d->l + row,
                     d->q + (ptrdiff_t)h * n_group * c->d_head, n_group, &kv, first, n,
                     d->score + (ptrdiff_t)thread * n_group * CHUNK);
}

static void merge(const decode *d, rkv_step *step)
{
    const rkv_config *c = &d->s->m->config;
    const int n_group = c->n_head / c->n_kv_head;
    for (int i = 0; i < c->n_head; i++) {
        const int h = i / n_group, g = i % n_group;
        const ptrdiff_t row = (ptrdiff_t)d->first_item[h] * n_group + g;
        rkv_attend_merge(step->att + (ptrdiff_t)i * c->d_head, c->d_head, d->o + row * c->d_head,
                         (ptrdiff_t)n_group * c->d_head, d->m + row, d->l + row, n_group,
                         d->first_item[h + 1] - d->first_item[h]);
    }
}

typedef struct item_job {
    const decode *d;
    int l;
    int32_t pos;
} item_job;

static void item_part(void *ctx, int i, int thread)
{
    const item_job *j = ctx;
    int h = 0;
    while (j->d->first_item[h + 1] <= i)
        h++;
    run_item(j->d, j->l, h, i - j->d->first_item[h], j->pos, thread);
}

static void attend(void *ctx, rkv_step *step, int l)
{
    decode *d = ctx;
    rkv_session *s = d->s;
    const rkv_config *c = &s->m->config;
    const int32_t p = step->pos[0];
    d->first_item[0] = 0;
    for (int h = 0; h < c->n_kv_head; h++) {
        rkv_kv_append(s->kv, step->be, l, h, step->k + (ptrdiff_t)h * c->d_head, 0,
                      step->v + (ptrdiff_t)h * c->d_head, 0, 1, p);
        const rkv_kv_view kv = rkv_kv_view_of(s->kv, l, h);
        const int n_slot = kv.n_slot - rkv_session_first_visible(s, l, &kv, p);
        d->first_item[h + 1] = d->first_item[h] + chunks(n_slot);
    }
    memcpy(d->q, step->q, (size_t)c->n_head * (size_t)c->d_head * sizeof *d->q);
    step->be->ops.scale[RKV_DT_f32](d->q, c->attn_scale, c->n_head * c->d_head);
    const int n_item = d->first_item[c->n_kv_head];
    item_job j = {d, l, p};
    rkv_team_run(n_item > 2 ? step->team : NULL, item_part, &j, n_item);
    merge(d, step);
}

/* One free slot in every head; sliding layers make it by dropping what nobody sees any more. */
static rkv_status make_room(rkv_session *s, rkv_error *e)
{
    const rkv_config *c = &s->m->config;
    for (int l = 0; l < c->n_layer; l++) {
        int most = 0, full = 0;
        for (int h = 0; h < c->n_kv_head; h++) {
            const rkv_kv_head *head = rkv_kv_at(s->kv, l, h);
            full |= head->n_slot == head->cap;
            most = head->n_slot > most ? head->n_slot : most;
        }
        if (full && rkv_session_skips(s, l) && most >= c->sliding_window)
            rkv_kv_drop_front(s->kv, l, most - (c->sliding_window - 1));
        else if (full)
            RKV_TRY(rkv_kv_reserve(s->kv, l, most + rkv_session_room(s), e));
    }
    return RKV_OK;
}

/* Scratch for the partial results of the longest layer. */
static rkv_status place(decode *d, rkv_error *e)
{
    rkv_session *s = d->s;
    const rkv_config *c = &s->m->config;
    const int n_group = c->n_head / c->n_kv_head;
    size_t most = 0;
    for (int l = 0; l < c->n_layer; l++) {
        size_t n = 0;
        for (int h = 0; h < c->n_kv_head; h++)
            n += (size_t)chunks(rkv_kv_at(s->kv, l, h)->cap);
        most = n > most ? n : most;
    }
    const size_t q = (size_t)c->n_head * (size_t)c->d_head;
    const size_t items = (size_t)c->n_kv_head + 1, rows = most * (size_t)n_group;
    const size_t score = (size_t)rkv_team_size(s->team) * (size_t)n_group * CHUNK;
    const size_t need = rows * ((size_t)c->d_head + 2) + score + q + items;
    if (s->n_part < need) {
        float *part = rkv_mem_alloc(need * sizeof *part);
        if (!part)
            return rkv_fail(e, RKV_E_MEM, "decode: out of memory for %zu bytes of scratch",
                            need * sizeof *part);
        rkv_mem_free(s->part);
        s->part = part;
        s->n_part = need;
    }
    d->o = s->part;
    d->m = d->o + rows * (size_t)c->d_head;
    d->l = d->m + rows;
    d->score = d->l + rows;
    d->q = d->score + score;
    d->first_item = (int *)(void *)(d->q + q);
    return RKV_OK;
}

rkv_status rkv_session_decode(rkv_session *s, int32_t id, rkv_error *e)
{
    const rkv_model *m = s->m;
    const rkv_config *c = &m->config;
    RKV_TRY(rkv_session_check_ids(s, &id, 1, e));
    if (!s->n_past)
        return rkv_session_prefill(s, &id, 1, e);
    RKV_TRY(make_room(s, e));
    decode d = {.s = s};
    RKV_TRY(place(&d, e));
    const int32_t pos = s->n_past;
    float *x = s->row + rkv_step_scratch(c, 1), *table = x + 2 * c->d_model;
    rkv_step step = {.be = &m->backend, .team = s->team, .n_tok = 1, .pos = &pos,
                     .rope_first = pos, .x = x, .attend = attend, .attend_ctx = &d};
    rkv_step_place(&step, c, 1, s->row);
    for (int r = 0; r < m->n_rope; r++) {
        float *cosine = table + (ptrdiff_t)r * c->d_head, *sine = cosine + m->rope[r].n_pair;
        rkv_rope_table(&m->rope[r], cosine, sine, pos, 1, NULL);
        step.cosine[r] = cosine;
        step.sine[r] = sine;
    }
    rkv_model_embed(m, x, &id, 1);
    for (int l = 0; l < c->n_layer; l++)
        m->arch->layer(m, &step, l);
    rkv_model_head_rows(m, x, 1, x + c->d_model, s->logits, s->team);
    s->n_past++;
    s->has_logits = 1;
    return RKV_OK;
}
