/* One token for each of some sessions of one model: straight products with the stored weights,
 * which are read once for all of them, and attention split over chunks of slots so that every K and
 * V byte is read once and all threads have work (flash-decoding, Dao et al. 2023). Chunks and their
 * order are fixed, and a row's products depend on that row alone, so that the bits depend neither
 * on the thread count nor on who else decodes. */
#include "config.h"
#include "engine/evict.h"

#include <string.h>

#include "base/mem.h"

enum { CHUNK = RKV_ATTN_CHUNK };

typedef struct decode {
    int n;                      /* rows: sessions with a past */
    rkv_session **s;            /* [n] */
    int32_t *id, *pos;          /* [n] */
    int *first_item;            /* [n * n_kv_head + 1] chunks of the heads before */
    float *rows, *x, *norm;     /* step scratch; [n][d_model] */
    float *angles;              /* [2][n][d_head] */
    float *logits;              /* [n][n_vocab]; a single session's own */
    float *o, *m, *l;           /* partial results of all chunks, [chunk][n_group][...] */
    float *score;               /* scratch per thread */
    float *weight;              /* ... or the weights of all chunks, which somebody sums */
} decode;

static int chunks(int n_slot)
{
    return (n_slot + CHUNK - 1) / CHUNK;
}

/* ---- attention ---- */

typedef struct item_job {
    const decode *d;
    const rkv_backend *be;
    const float *q;             /* [n][n_head][d_head], scaled */
    int l, n_kv_head, n_group, d_head;
} item_job;

/* The head that item i belongs to, counted through all sessions. */
static int head_of(const decode *d, int n_head, int i)
{
    int a = 0, b = n_head - 1;
    while (a < b) {
        const int mid = a + (b - a) / 2;
        if (d->first_item[mid + 1] <= i)
            a = mid + 1;
        else
            b = mid;
    }
    return a;
}

static void item_part(void *ctx, int i, int thread)
{
    const item_job *j = ctx;
    const decode *d = j->d;
    const int head = head_of(d, d->n * j->n_kv_head, i), k = head / j->n_kv_head;
    const rkv_session *s = d->s[k];
    const rkv_kv_view kv = rkv_kv_view_of(s->kv, j->l, head % j->n_kv_head);
    const int first = rkv_session_first_visible(s, j->l, &kv, d->pos[k]) +
                      (i - d->first_item[head]) * CHUNK;
    const int n = kv.n_slot - first < CHUNK ? kv.n_slot - first : CHUNK;
    const ptrdiff_t row = (ptrdiff_t)i * j->n_group;
    rkv_attend_chunk(j->be, d->o + row * j->d_head, d->m + row, d->l + row,
                     j->q + (ptrdiff_t)head * j->n_group * j->d_head, j->n_group, &kv, first, n,
                     d->weight ? d->weight + row * CHUNK
                               : d->score + (ptrdiff_t)thread * j->n_group * CHUNK);
}

static void merge(const item_job *j, float *att)
{
    const decode *d = j->d;
    for (int i = 0; i < d->n * j->n_kv_head * j->n_group; i++) {
        const int head = i / j->n_group;
        const ptrdiff_t row = (ptrdiff_t)d->first_item[head] * j->n_group + i % j->n_group;
        rkv_attend_merge(att + (ptrdiff_t)i * j->d_head, j->d_head, d->o + row * j->d_head,
                         (ptrdiff_t)j->n_group * j->d_head, d->m + row, d->l + row, j->n_group,
                         d->first_item[head + 1] - d->first_item[head]);
    }
}

/* Appends the row's k and v to one head's cache. Returns the chunks that the row sees of it. */
static int append(const decode *d, const rkv_step *step, int l, int row, int h)
{
    const rkv_session *s = d->s[row];
    const rkv_config *c = &s->m->config;
    const ptrdiff_t at = ((ptrdiff_t)row * c->n_kv_head + h) * c->d_head;
    rkv_kv_append(s->kv, step->be, l, h, step->k + at, 0, step->v + at, 0, 1, d->pos[row]);
    const rkv_kv_view kv = rkv_kv_view_of(s->kv, l, h);
    return chunks(kv.n_slot - rkv_session_first_visible(s, l, &kv, d->pos[row]));
}

/* For evictions to come: the rows' queries, and what attention their keys got. */
static void remember(const item_job *j)
{
    const decode *d = j->d;
    for (int i = 0; i < d->n; i++) {
        rkv_session *s = d->s[i];
        if (!rkv_evict_bounds(s, j->l))
            continue;
        rkv_evict_look(s, j->l, d->pos[i],
                       j->q + (ptrdiff_t)i * j->n_kv_head * j->n_group * j->d_head);
        for (int h = 0; d->weight && h < j->n_kv_head; h++) {
            const ptrdiff_t row = (ptrdiff_t)d->first_item[i * j->n_kv_head + h] * j->n_group;
            rkv_evict_add_mass(s, j->l, h, d->weight + row * CHUNK, d->m + row, d->l + row);
        }
    }
}

static void attend(void *ctx, rkv_step *step, int l)
{
    const decode *d = ctx;
    const rkv_config *c = &d->s[0]->m->config;
    int n_item = 0;
    for (int i = 0; i < d->n * c->n_kv_head; i++) {
        d->first_item[i] = n_item;
        n_item += append(d, step, l, i / c->n_kv_head, i % c->n_kv_head);
    }
    d->first_item[d->n * c->n_kv_head] = n_item;
    step->be->ops.scale[RKV_DT_f32](step->q, c->attn_scale, d->n * c->n_head * c->d_head);
    item_job j = {d, step->be, step->q, l, c->n_kv_head, c->n_head / c->n_kv_head, c->d_head};
    rkv_team_run(n_item > 2 ? step->team : NULL, item_part, &j, n_item);
    merge(&j, step->att);
    remember(&j);
}

/* ---- room ---- */

/* Whether a head of layer l has no free slot; *most: slots of the longest. */
static int is_full(const rkv_session *s, int l, int *most)
{
    int full = 0;
    *most = 0;
    for (int h = 0; h < s->m->config.n_kv_head; h++) {
        const rkv_kv_head *head = rkv_kv_at(s->kv, l, h);
        full |= head->n_slot == head->cap;
        *most = head->n_slot > *most ? head->n_slot : *most;
    }
    return full;
}

/* A sliding layer makes room by dropping what nobody sees any more. */
static int can_drop(const rkv_session *s, int l, int most)
{
    return rkv_session_skips(s, l) && most >= s->m->config.sliding_window;
}

/* One free slot in every head of the layers that cannot drop or evict one. */
static rkv_status reserve(rkv_session *s, rkv_error *e)
{
    for (int l = 0, most; l < s->m->config.n_layer; l++)
        if (!rkv_evict_bounds(s, l) && is_full(s, l, &most) && !can_drop(s, l, most))
            RKV_TRY(rkv_kv_reserve(s->kv, l, rkv_session_room(s), e));
    return RKV_OK;
}

static void drop_unseen(rkv_session *s)
{
    for (int l = 0, most; l < s->m->config.n_layer; l++)
        if (is_full(s, l, &most) && can_drop(s, l, most))
            rkv_kv_drop_front(s->kv, l, most - (s->m->config.sliding_window - 1));
}

/* Chunks of the layer with the most of them, when all slots are taken. */
static size_t most_chunks(rkv_session *const *s, size_t n)
{
    const rkv_config *c = &s[0]->m->config;
    size_t most = 0;
    for (int l = 0; l < c->n_layer; l++) {
        size_t in_layer = 0;
        for (size_t i = 0; i < n; i++)
            for (int h = 0; h < c->n_kv_head; h++)
                in_layer += (size_t)chunks(rkv_kv_at(s[i]->kv, l, h)->cap);
        most = in_layer > most ? in_layer : most;
    }
    return most;
}

/* ---- scratch ---- */

static void *take(float *base, size_t *used, size_t n)
{
    float *p = base ? base + *used : NULL;
    *used += n;
    return p;
}

/* Cuts the scratch memory of a call and returns how many floats it takes; base == NULL: only that.
 */
static size_t cut(decode *d, float *base, const rkv_session *first, size_t n_chunk, int with_mass)
{
    const rkv_config *c = &first->m->config;
    const size_t n = (size_t)d->n, row = (size_t)c->d_model, d_head = (size_t)c->d_head;
    const size_t partial = n_chunk * (size_t)(c->n_head / c->n_kv_head);
    const size_t n_thread = (size_t)rkv_team_size(first->team);
    size_t used = 0;
    d->s = take(base, &used, (n * sizeof *d->s + sizeof *base - 1) / sizeof *base);
    d->id = take(base, &used, n);
    d->pos = take(base, &used, n);
    d->first_item = take(base, &used, n * (size_t)c->n_kv_head + 1);
    d->rows = take(base, &used, rkv_step_scratch(c, d->n));
    d->x = take(base, &used, n * row);
    d->norm = take(base, &used, n * row);
    d->angles = take(base, &used, 2 * n * d_head);
    d->logits = take(base, &used, n > 1 ? n * (size_t)c->n_vocab : 0);
    d->o = take(base, &used, partial * d_head);
    d->m = take(base, &used, partial);
    d->l = take(base, &used, partial);
    d->score = take(base, &used, n_thread * (size_t)(c->n_head / c->n_kv_head) * CHUNK);
    d->weight = with_mass ? take(base, &used, partial * CHUNK) : NULL;
    return used;
}

/* Scratch of the first session, which grows as caches and calls do; the rows of the call in it. */
static rkv_status place(decode *d, rkv_session *const *s, const int32_t *ids, size_t n,
                        rkv_error *e)
{
    rkv_session *first = s[0];
    int with_mass = 0;
    for (size_t i = 0; i < n; i++)
        with_mass |= s[i]->evict.mass != NULL;
    const size_t n_chunk = most_chunks(s, n), need = cut(d, NULL, first, n_chunk, with_mass);
    if (first->n_work < need) {
        float *work = rkv_mem_alloc(rkv_mem_product(need, sizeof *work));
        if (!work)
            return rkv_fail(e, RKV_E_MEM, "decode: out of memory for %zu bytes of scratch",
                            need * sizeof *work);
        rkv_mem_free(first->work);
        first->work = work;
        first->n_work = need;
    }
    cut(d, first->work, first, n_chunk, with_mass);
    d->n = 0;
    for (size_t i = 0; i < n; i++) {
        if (!s[i]->n_past)
            continue;
        d->s[d->n] = s[i];
        d->pos[d->n] = s[i]->n_past;
        d->id[d->n++] = ids[i];
    }
    if (d->n == 1)
        d->logits = d->s[0]->logits;
    return RKV_OK;
}

/* ---- the call ---- */

static rkv_status check(rkv_session *const *s, const int32_t *ids, size_t n, rkv_error *e)
{
    RKV_TRY(rkv_sessions_check(s, n, "decode", e));
    for (size_t i = 0; i < n; i++)
        RKV_TRY(rkv_sessions_about(rkv_session_check_ids(s[i], &ids[i], 1, e), i, n, e));
    return RKV_OK;
}

/* The ids of sessions without a past are their prompts. All of them are taken, or none. */
static rkv_status take_prompts(const decode *d, rkv_session *const *s, const int32_t *ids, size_t n,
                               rkv_error *e)
{
    rkv_status status = RKV_OK;
    size_t end = 0;
    for (; end < n; end++)
        if (!s[end]->n_past &&
            (status = rkv_sessions_about(rkv_session_prefill(s[end], &ids[end], 1, e), end, n,
                                         e)))
            break;
    int row = 0;
    for (size_t i = 0; status && i < end; i++)
        if (row < d->n && d->s[row] == s[i])
            row++;
        else
            rkv_session_forget(s[i]);
    return status;
}

static void run(decode *d, rkv_team *team)
{
    const rkv_model *m = d->s[0]->m;
    const rkv_config *c = &m->config;
    rkv_step step = {.be = &m->backend, .team = team, .n_tok = d->n, .pos = d->pos,
                     .rope_first = -1, .x = d->x, .attend = attend, .attend_ctx = d};
    rkv_step_place(&step, c, d->n, d->rows);
    for (int r = 0; r < m->n_rope; r++) {
        const int n_pair = m->rope[r].n_pair;
        float *cosine = d->angles + (ptrdiff_t)r * d->n * c->d_head, *sine = cosine + d->n * n_pair;
        for (int i = 0; i < d->n; i++)
            rkv_rope_table(&m->rope[r], cosine + (ptrdiff_t)i * n_pair,
                           sine + (ptrdiff_t)i * n_pair, d->pos[i], 1, NULL);
        step.cosine[r] = cosine;
        step.sine[r] = sine;
    }
    for (int i = 0; i < d->n; i++) {
        drop_unseen(d->s[i]);
        rkv_evict_make_room(d->s[i]);
    }
    rkv_model_embed(m, d->x, d->id, d->n);
    for (int l = 0; l < c->n_layer; l++) {
        rkv_model_layer_begin(m, l);
        m->arch->layer(m, &step, l);
        rkv_model_layer_end(m, l);
    }
    rkv_model_head_rows(m, d->x, d->n, d->norm, d->logits, team);
    for (int i = 0; i < d->n; i++) {
        rkv_session *s = d->s[i];
        if (d->n > 1)
            memcpy(s->logits, d->logits + (ptrdiff_t)i * c->n_vocab,
                   (size_t)c->n_vocab * sizeof *s->logits);
        s->n_past++;
        s->has_logits = 1;
    }
}

rkv_status rkv_sessions_decode(rkv_session *const *s, const int32_t *ids, size_t n, rkv_error *e)
{
    decode d = {0};
    RKV_TRY(check(s, ids, n, e));
    for (size_t i = 0; i < n; i++) {
        if (!s[i]->n_past)
            continue;
        d.n++;
        RKV_TRY(rkv_sessions_about(reserve(s[i], e), i, n, e));
    }
    if (d.n)
        RKV_TRY(place(&d, s, ids, n, e));
    RKV_TRY(take_prompts(&d, s, ids, n, e));
    if (d.n)
        run(&d, s[0]->team);
    return RKV_OK;
}

rkv_status rkv_session_decode(rkv_session *s, int32_t id, rkv_error *e)
{
    return rkv_sessions_decode(&s, &id, 1, e);
}
