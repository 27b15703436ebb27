/* The arithmetic of prefill's memory. prefill.c takes its sizes from here, so that the plan and the
 * allocations cannot differ. */
#include "config.h"
#include "engine/plan.h"

#include <limits.h>

#include "base/mem.h"
#include "engine/evict.h"
#include "engine/prefill.h"
#include "engine/query_stats.h"

static int least(int a, int b)
{
    return a < b ? a : b;
}

int rkv_prefill_room(const rkv_session *s, int n)
{
    return least(s->o.n_ctx - s->n_past - n, rkv_session_room(s));
}

int rkv_prefill_slots(const rkv_session *s, int n, int n_shrinking)
{
    return n + (n_shrinking == s->m->config.n_kv_head ? 0 : rkv_prefill_room(s, n));
}

int rkv_prefill_sliding_cap(const rkv_session *s)
{
    return s->m->config.sliding_window - 1 + least(RKV_SLIDING_ROOM, rkv_session_room(s));
}

int rkv_prefill_logit_rows(const rkv_session *s, int n)
{
    const size_t most_bytes = (size_t)64 << 20;
    const size_t row = (size_t)s->m->config.n_vocab * sizeof(float);
    return least(n, row < most_bytes ? (int)(most_bytes / row) : 1);
}

/* ---- the cache ---- */

typedef struct growth {         /* of the cache, in bytes; may fall below where it began */
    int64_t now, peak;
} growth;

static void grow(growth *g, int64_t bytes, int64_t transient)
{
    g->now += bytes;
    if (g->now + transient > g->peak)
        g->peak = g->now + transient;
}

/* A head gets a block of cap slots for its old one; `beside` bytes are taken meanwhile. */
static void replace_head(growth *g, const rkv_session *s, int *old, int cap, int64_t beside)
{
    const rkv_kv *kv = s->kv;
    const int64_t slot = (int64_t)(kv->k_bytes + kv->v_bytes + sizeof *kv->head->pos);
    grow(g, cap * slot, beside);
    grow(g, -*old * slot, beside);
    *old = cap;
}

/* What a head may keep at most when the heads of a layer share `left` tokens, n_after more of them
 * come, and those that took before took the most: the order that needs the most memory. */
static int most_of(const rkv_policy *p, int64_t left, int n_after, int n)
{
    const int64_t most = left - (int64_t)n_after * least(rkv_policy_floor(p), n);
    return most < n ? (int)most : n;
}

static void plan_layer(growth *g, const rkv_session *s, const rkv_policy *p, int l, int n)
{
    const int first = s->n_past == 0, n_head = s->kv->n_kv_head;
    const int shrinks = p && first ? rkv_session_n_shrinking(s, l, n) : 0;
    const int more = rkv_prefill_slots(s, n, shrinks), room = rkv_prefill_room(s, n);
    int cap[RKV_MAX_HEAD];
    for (int h = 0; h < n_head; h++) {
        const rkv_kv_head *head = rkv_kv_at(s->kv, l, h);
        cap[h] = head->cap;
        if (cap[h] < head->n_slot + more)
            replace_head(g, s, &cap[h], head->n_slot + more, 0);
    }
    const int64_t beside = shrinks ? (int64_t)rkv_session_compress_bytes(s, p, l, n) : 0;
    const int *budget = rkv_session_budgets(s, l);
    int64_t left = 0;
    for (int h = 0; shrinks && h < n_head; h++)
        left += budget[h];
    for (int h = 0; shrinks && h < n_head; h++) {
        const int stays = p->adakv ? most_of(p, left, n_head - 1 - h, n) : budget[h];
        left -= stays;
        if (p->adakv || stays < n || rkv_evict_bounds(s, l))
            replace_head(g, s, &cap[h], rkv_session_block(s, l, h, stays, room), beside);
    }
    const int stay = s->m->config.sliding_window - 1;
    for (int h = 0; first && rkv_session_skips(s, l) && n > stay && h < n_head; h++)
        replace_head(g, s, &cap[h], rkv_prefill_sliding_cap(s), stay * (int64_t)sizeof(int32_t));
}

/* ---- the whole ---- */

static void plan_observation(rkv_prefill_plan *out, const rkv_session *s, const rkv_policy *p,
                             int n)
{
    const rkv_config *c = &s->m->config;
    const int all = s->o.observe, wanted = all | (p ? rkv_policy_observes(p) : 0);
    const uint64_t n_layer = (uint64_t)c->n_layer,
                   keys = (uint64_t)c->n_kv_head * (uint64_t)n * sizeof(float);
    int want = p ? rkv_policy_n_query(p) : 0;
    if (all & RKV_OBSERVE_QUERIES && s->o.policy.window > want)
        want = s->o.policy.window;
    if (s->n_past)
        return;
    out->n_observed = least(want, n);
    out->observed = (uint64_t)out->n_observed * (all & RKV_OBSERVE_QUERIES ? n_layer : 1) *
                    (uint64_t)c->n_head * (uint64_t)c->d_head * sizeof(float);
    if (wanted & RKV_OBSERVE_MASS)
        out->mass = (all & RKV_OBSERVE_MASS ? n_layer : 1) * keys;
    if (wanted & RKV_OBSERVE_RECENT)
        out->recent = (all & RKV_OBSERVE_RECENT ? n_layer : 1) * keys;
    if (wanted & RKV_OBSERVE_STATS) {
        const uint64_t n_head = (uint64_t)c->n_head, numbers = n_head * rkv_stat_floats(c->d_head);
        out->stats = (all & RKV_OBSERVE_STATS ? n_layer : 1) * numbers * sizeof(float);
        out->stat_sums = numbers * sizeof(double);
        out->stat_work = n_head * rkv_stat_work_floats(c->d_head) * sizeof(float);
    }
}

/* Chunks, and what depends on them. */
static void plan_chunk(rkv_prefill_plan *out, const rkv_session *s, int n)
{
    const rkv_model *m = s->m;
    const int n_sum = (out->mass > 0) + (out->recent > 0), n_mass = n_sum ? n : 0;
    const uint64_t keys = (uint64_t)n_sum * (uint64_t)n * (uint64_t)m->config.n_kv_head;
    out->n_chunk = rkv_row_attention_chunk(m, least(s->o.n_chunk, n), n_mass > 0);
    out->scratch = rkv_step_scratch(&m->config, least(out->n_chunk, n)) * sizeof(float);
    out->attention =
        (uint64_t)rkv_team_size(s->team) * rkv_row_attention_floats(m, n_mass) * sizeof(float);
    out->mass_sums = keys * sizeof(double);
    out->tile_mass =
        keys * (uint64_t)rkv_row_attention_tiles(m, out->n_chunk) * sizeof(float);
}

/* Rows of logits, their normed inputs, and what rkv_model_head takes. */
static uint64_t logit_bytes(const rkv_session *s, int n)
{
    const rkv_config *c = &s->m->config;
    const rkv_backend *be = &s->m->backend;
    const uint64_t rows = (uint64_t)rkv_prefill_logit_rows(s, n), d = (uint64_t)c->d_model;
    return sizeof(float) * rows * ((uint64_t)c->n_vocab + d + RKV_HEAD_COLUMNS) +
           rkv_panels_scratch(be, c->d_model) + rkv_panels_bytes(be, RKV_HEAD_COLUMNS, c->d_model);
}

const rkv_policy *rkv_prefill_policy(const rkv_session *s)
{
    return !s->n_past && rkv_policy_active(&s->o.policy) ? &s->o.policy : NULL;
}

/* What one session asks for, but for its cache. */
static rkv_prefill_plan plan_buffers(const rkv_session *s, int n)
{
    const rkv_model *m = s->m;
    const uint64_t rows = (uint64_t)n;
    const rkv_policy *policy = rkv_prefill_policy(s);
    rkv_prefill_plan p = {
        .x = rows * (uint64_t)m->config.d_model * sizeof(float),
        .pos = rows * sizeof(int32_t),
        .tables = rows * (uint64_t)m->rope[0].n_pair * 2 * (uint64_t)m->n_rope * sizeof(float),
        .panels = rkv_prefill_is_straight(n) ? 0 : rkv_model_panels_bytes(m),
        .n_old = (uint64_t)m->config.n_kv_head * sizeof(int),
        .n_tok = n,
        .compresses = policy != NULL,
    };
    plan_observation(&p, s, policy, n);
    plan_chunk(&p, s, n);
    if (!s->n_past)
        p.evict = rkv_evict_bytes(s);
    return p;
}

static void raise_to(uint64_t *most, uint64_t v)
{
    if (v > *most)
        *most = v;
}

/* Another session joins. */
static void add_buffers(rkv_prefill_plan *to, const rkv_prefill_plan *p)
{
    to->x += p->x;
    to->pos += p->pos;
    to->tables += p->tables;
    to->observed += p->observed;
    to->mass += p->mass;
    to->recent += p->recent;
    to->stats += p->stats;
    to->evict += p->evict;
    raise_to(&to->stat_sums, p->stat_sums);
    raise_to(&to->stat_work, p->stat_work);
    raise_to(&to->panels, p->panels);
    raise_to(&to->scratch, p->scratch);
    raise_to(&to->n_old, p->n_old);
    raise_to(&to->attention, p->attention);
    raise_to(&to->mass_sums, p->mass_sums);
    raise_to(&to->tile_mass, p->tile_mass);
    to->n_observed = to->n_observed > p->n_observed ? to->n_observed : p->n_observed;
    to->n_chunk = to->n_chunk > p->n_chunk ? to->n_chunk : p->n_chunk;
    to->n_tok = p->n_tok < INT_MAX - to->n_tok ? to->n_tok + p->n_tok : INT_MAX;
    to->compresses &= p->compresses;
}

rkv_prefill_plan rkv_prefill_plan_of(rkv_session *const *s, const size_t *n, size_t n_session,
                                     int with_rows)
{
    growth g = {0};
    rkv_prefill_plan p = plan_buffers(s[0], (int)n[0]);
    for (size_t i = 1; i < n_session; i++) {
        const rkv_prefill_plan more = plan_buffers(s[i], (int)n[i]);
        add_buffers(&p, &more);
    }
    for (int l = 0; l < s[0]->m->config.n_layer; l++)
        for (size_t i = 0; i < n_session; i++)
            plan_layer(&g, s[i], rkv_prefill_policy(s[i]), l, (int)n[i]);
    p.kv = (uint64_t)g.peak;
    if (with_rows)
        p.logits = logit_bytes(s[0], (int)n[0]);
    const int64_t late = g.now + (int64_t)p.logits;
    p.total = p.x + p.pos + p.tables + p.panels + p.scratch + p.n_old + p.attention + p.observed +
              p.mass + p.recent + p.mass_sums + p.tile_mass + p.stats + p.stat_sums + p.stat_work +
              p.evict +
              (uint64_t)(late > g.peak ? late : g.peak);
    return p;
}

/* The option that acts on the largest part. */
static const char *hint(const rkv_prefill_plan *p, uint64_t rows, uint64_t work)
{
    if (p->kv >= rows && p->kv >= work)
        return p->compresses ? "a smaller --kv-budget or a shorter prompt"
                             : "a --kv-policy with a --kv-budget, or a shorter prompt";
    if (rows >= work)
        return "a shorter prompt";
    return p->scratch > p->panels ? "a smaller --ubatch-size" : "a smaller model";
}

rkv_status rkv_prefill_plan_check(const rkv_prefill_plan *p, rkv_error *e)
{
    const uint64_t small = 16 << 20;            /* its allocations themselves can fail */
    const uint64_t rows = p->x + p->pos + p->tables + p->observed + p->mass + p->recent +
                          p->mass_sums + p->tile_mass + p->stats + p->evict;
    const uint64_t work = p->stat_sums + p->stat_work + p->panels + p->scratch + p->n_old +
                          p->attention + p->logits;
    if (p->total <= small)
        return RKV_OK;
    const uint64_t left = rkv_mem_available(NULL);
    if (p->total <= left)
        return RKV_OK;
    return rkv_fail(e, RKV_E_MEM,
                    "prefill of %d tokens needs %.1f MiB (KV cache %.1f, rows %.1f, scratch %.1f) "
                    "beside %.1f in use; %.1f MiB are available: use %s",
                    p->n_tok, (double)p->total / 0x1p20, (double)p->kv / 0x1p20,
                    (double)rows / 0x1p20, (double)work / 0x1p20,
                    (double)rkv_mem_current() / 0x1p20, (double)left / 0x1p20,
                    hint(p, rows, work));
}
