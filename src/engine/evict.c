/* Eviction while decoding: budgets, what is remembered of queries, and the choice. */
#include "config.h"
#include "engine/evict.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/scoring.h"

/* ---- options ---- */

rkv_status rkv_evict_check(const rkv_session_options *o, rkv_error *e)
{
    enum { MOST = 1 << 20 };
    const rkv_policy *p = &o->policy;
    const rkv_selector *selector = rkv_selector_find(p->selector);
    const double most = o->decode_kind == RKV_BUDGET_SHARE ? 1.0 : 1e18;
    if (o->decode_kind == RKV_BUDGET_NONE)
        return RKV_OK;
    if (!(o->decode_budget > 0.0 && o->decode_budget <= most))
        return rkv_fail(e, RKV_E_ARG, "decode budget is %g, expected more than 0 and at most %g",
                        o->decode_budget, most);
    if (o->decode_interval < 1 || o->decode_interval > MOST)
        return rkv_fail(e, RKV_E_ARG, "decode budget: interval of %d tokens, expected 1 to %d",
                        o->decode_interval, MOST);
    if (selector->keeps_all)
        return rkv_fail(e, RKV_E_ARG, "decode budget: selector '%s' evicts nothing; choose a "
                        "policy, such as snapkv", selector->name);
    if (selector->needs_stats)
        return rkv_fail(e, RKV_E_ARG, "decode budget: selector '%s' goes by statistics of all "
                        "queries, which are not kept while decoding; choose another, such as "
                        "snapkv or h2o", selector->name);
    if (p->adakv || p->criticalkv)
        return rkv_fail(e, RKV_E_ARG, "decode budget: %s acts on prompts only; choose a policy "
                        "without it", p->adakv ? "adakv" : "criticalkv");
    if (p->published)
        return rkv_fail(e, RKV_E_ARG, "decode budget: the published steps of pyramid miss the "
                        "total, which must hold; choose the exact ones");
    return RKV_OK;
}

/* ---- budgets ---- */

static int n_unit(const rkv_session *s)
{
    return s->m->config.n_layer * s->m->config.n_kv_head;
}

rkv_status rkv_evict_create(rkv_session *s, rkv_error *e)
{
    rkv_eviction *v = &s->evict;
    if (s->o.decode_kind == RKV_BUDGET_NONE)
        return RKV_OK;
    v->left = rkv_mem_calloc((size_t)n_unit(s), sizeof *v->left);
    v->mass_at = rkv_mem_calloc((size_t)n_unit(s), sizeof *v->mass_at);
    if (!v->left || !v->mass_at)
        return rkv_fail(e, RKV_E_MEM, "session: out of memory");
    return RKV_OK;
}

void rkv_evict_free(rkv_session *s)
{
    rkv_mem_free(s->evict.left);
    rkv_mem_free(s->evict.mass_at);
    rkv_mem_free(s->evict.memory);
}

void rkv_evict_forget(rkv_session *s)
{
    rkv_eviction *v = &s->evict;
    rkv_mem_free(v->memory);
    *v = (rkv_eviction){.left = v->left, .mass_at = v->mass_at};
}

/* Some head of the prompt would hold more than it may. */
static int passes(const rkv_session *s)
{
    int over = 0;
    for (int l = 0; l < s->m->config.n_layer; l++)
        for (int h = 0; h < s->m->config.n_kv_head; h++)
            over |= rkv_evict_bounds(s, l) &&
                    rkv_session_budgets(s, l)[h] > rkv_evict_most(s, l, h);
    return over;
}

static void cut_prompt(rkv_session *s)
{
    const int n_head = s->m->config.n_kv_head;
    int64_t sum = 0, n = 0;
    for (int l = 0; l < s->m->config.n_layer; l++)
        for (int h = 0; rkv_evict_bounds(s, l) && h < n_head; h++) {
            int *budget = &rkv_session_budgets(s, l)[h];
            const int left = s->evict.left[l * n_head + h];
            *budget = *budget < left ? *budget : left;
            sum += *budget;
            n++;
        }
    s->cap = (int)(sum / n);
}

/* TOVA has one ranking of a layer's positions for all its heads, so they must hold the same. */
static rkv_status check_alike(const rkv_session *s, rkv_error *e)
{
    const int n_head = s->m->config.n_kv_head;
    const rkv_selector *selector = rkv_selector_find(s->o.policy.selector);
    for (int l = 0; selector->ranks_layer && l < s->m->config.n_layer; l++)
        for (int h = 1; rkv_evict_bounds(s, l) && h < n_head; h++)
            if (s->evict.left[l * n_head + h] != s->evict.left[l * n_head] ||
                rkv_session_budgets(s, l)[h] != rkv_session_budgets(s, l)[0])
                return rkv_fail(e, RKV_E_ARG, "decode budget: selector '%s' ranks tokens for all "
                                "heads of a layer alike, but allocator '%s' gives them budgets of "
                                "their own", selector->name, s->o.policy.allocator);
    return RKV_OK;
}

rkv_status rkv_evict_budget(rkv_session *s, int n, rkv_error *e)
{
    const rkv_config *c = &s->m->config;
    rkv_policy p = s->o.policy;
    uint8_t skip[RKV_MAX_LAYER];
    char shown[40];
    int n_layer = 0;
    s->evict.cap = 0;
    for (int l = 0; l < c->n_layer; l++)
        n_layer += !(skip[l] = (uint8_t)rkv_session_skips(s, l));
    if (s->o.decode_kind == RKV_BUDGET_NONE || !n_layer)    /* the policy's budget has told that */
        return RKV_OK;
    p.budget_kind = s->o.decode_kind;
    p.budget = s->o.decode_budget;
    const double bytes = (double)(s->kv->k_bytes + s->kv->v_bytes) * c->n_kv_head,
                 want = rkv_budget_tokens(&p, n_layer, n, bytes, shown);
    const int floor_tokens = rkv_policy_floor(&p), interval = s->o.decode_interval;
    if (want >= s->o.n_ctx)                     /* never reached */
        return RKV_OK;
    if (want < floor_tokens + interval)
        return rkv_fail(e, RKV_E_ARG,
                        "decode budget %s is %.0f per layer and head with a prompt of %d tokens, "
                        "below the floor of %d (window %d + %d) and an interval of %d; ask for at "
                        "least %d tokens, or for a smaller interval or window", shown, want, n,
                        floor_tokens, p.window, p.n_sink, interval, floor_tokens + interval);
    p.budget_kind = RKV_BUDGET_TOKENS;
    p.budget = want - interval;
    RKV_TRY(rkv_budget_heads(s->evict.left, NULL, &p, c->n_layer, c->n_kv_head, skip,
                             s->o.n_ctx - interval, bytes, e));
    s->evict.cap = (int)want;
    RKV_TRY(check_alike(s, e));
    if (passes(s))
        cut_prompt(s);
    return RKV_OK;
}

/* ---- memory ---- */

/* The most that is left of a head. */
static int most_left(const rkv_session *s)
{
    int most = 0;
    for (int l = 0; l < s->m->config.n_layer; l++)
        for (int h = 0; rkv_evict_bounds(s, l) && h < s->m->config.n_kv_head; h++) {
            const int left = s->evict.left[l * s->m->config.n_kv_head + h];
            most = left > most ? left : most;
        }
    return most;
}

static int keeps_mass(const rkv_session *s)
{
    return rkv_policy_observes(&s->o.policy) & (RKV_OBSERVE_MASS | RKV_OBSERVE_RECENT);
}

static size_t query_row(const rkv_session *s)
{
    return (size_t)s->m->config.n_head * (size_t)s->m->config.d_head;
}

static float *take(float *base, size_t *used, size_t n)
{
    float *p = base ? base + *used : NULL;
    *used += (n + 15) / 16 * 16;                /* each part begins at a cache line */
    return p;
}

/* Cuts the memory up and returns how many floats it takes; base NULL: only that. */
static size_t cut(rkv_eviction *v, const rkv_session *s, float *base)
{
    const int n_head = s->m->config.n_kv_head, most = most_left(s);
    size_t n_mass = 0, n_layer = 0, used = 0;
    for (int l = 0; l < s->m->config.n_layer; l++) {
        n_layer += (size_t)rkv_evict_bounds(s, l);
        for (int h = 0; h < n_head; h++) {
            v->mass_at[l * n_head + h] = n_mass;
            if (rkv_evict_bounds(s, l) && keeps_mass(s))
                n_mass += (size_t)rkv_evict_most(s, l, h);
        }
    }
    v->n_query = rkv_policy_n_query(&s->o.policy);
    v->work_floats = rkv_session_score_floats(s, &s->o.policy, most + s->o.decode_interval);
    v->work_floats = (v->work_floats + 15) / 16 * 16;
    v->q = take(base, &used, n_layer * (size_t)v->n_query * query_row(s));
    v->mass = take(base, &used, n_mass);
    v->work = take(base, &used, (size_t)rkv_team_size(s->team) * v->work_floats);
    v->keep = (int32_t *)(void *)take(base, &used, (size_t)n_head * (size_t)most);
    if (!n_mass)
        v->mass = NULL;
    return used;
}

size_t rkv_evict_bytes(const rkv_session *s)
{
    rkv_eviction scratch = s->evict;
    return s->evict.cap ? cut(&scratch, s, NULL) * sizeof(float) : 0;
}

void rkv_evict_place(rkv_session *s, void *memory)
{
    s->evict.memory = memory;
    cut(&s->evict, s, memory);
}

rkv_status rkv_evict_copy(rkv_session *to, const rkv_session *from, rkv_error *e)
{
    if (!from->evict.cap)
        return RKV_OK;
    memcpy(to->evict.left, from->evict.left, (size_t)n_unit(from) * sizeof *to->evict.left);
    to->evict.cap = from->evict.cap;
    float *memory = rkv_mem_alloc(rkv_evict_bytes(to));
    if (!memory)
        return rkv_fail(e, RKV_E_MEM, "session: out of memory for a copy of what was observed");
    rkv_evict_place(to, memory);
    to->evict.count = from->evict.count;
    /* Scratch is behind it, of a team that may have another size. */
    memcpy(memory, from->evict.memory,
           (size_t)(from->evict.work - from->evict.memory) * sizeof *memory);
    return RKV_OK;
}

/* ---- what is remembered ---- */

/* Row of the layer's ring that position pos lies in. */
static float *ring_row(const rkv_session *s, int l, int32_t pos)
{
    const rkv_eviction *v = &s->evict;
    size_t before = 0;
    for (int i = 0; i < l; i++)
        before += (size_t)rkv_evict_bounds(s, i);
    return v->q + (before * (size_t)v->n_query + (size_t)(pos % v->n_query)) * query_row(s);
}

static float *mass_of(const rkv_session *s, int l, int h)
{
    const rkv_eviction *v = &s->evict;
    return v->mass ? v->mass + v->mass_at[l * s->m->config.n_kv_head + h] : NULL;
}

void rkv_evict_look(rkv_session *s, int l, int32_t pos, const float *q)
{
    if (s->evict.n_query)
        memcpy(ring_row(s, l, pos), q, query_row(s) * sizeof *q);
}

void rkv_evict_seed(rkv_session *s, int l, int n)
{
    const rkv_eviction *v = &s->evict;
    const int n_seen = s->seen.n_query < v->n_query ? s->seen.n_query : v->n_query;
    const float *q = rkv_session_seen_q(s, l);
    for (int i = 0; i < n_seen; i++)
        rkv_evict_look(s, l, n - n_seen + i,
                       q + (size_t)(s->seen.n_query - n_seen + i) * query_row(s));
    const int of_all = rkv_policy_observes(&s->o.policy) & RKV_OBSERVE_MASS;
    const float *seen =
        of_all ? rkv_session_seen_mass(s, l, n) : rkv_session_seen_recent(s, l, n);
    for (int h = 0; v->mass && h < s->m->config.n_kv_head; h++) {
        const rkv_kv_head *head = rkv_kv_at(s->kv, l, h);
        float *mass = mass_of(s, l, h);
        for (int i = 0; i < head->n_slot; i++)
            mass[i] = seen[(size_t)h * (size_t)n + (size_t)head->pos[i]];
    }
}

void rkv_evict_add_mass(rkv_session *s, int l, int h, const float *weight, const float *m,
                        const float *sum)
{
    const int n = rkv_kv_at(s->kv, l, h)->n_slot,
              n_group = s->m->config.n_head / s->m->config.n_kv_head,
              n_chunk = (n + RKV_ATTN_CHUNK - 1) / RKV_ATTN_CHUNK;
    float *mass = mass_of(s, l, h);
    if (!mass)
        return;
    mass[n - 1] = 0.0f;
    for (int g = 0; g < n_group; g++) {
        float top = -INFINITY, total = 0.0f;
        for (int c = 0; c < n_chunk; c++)
            top = m[c * n_group + g] > top ? m[c * n_group + g] : top;
        for (int c = 0; c < n_chunk; c++)
            total += sum[c * n_group + g] * expf(m[c * n_group + g] - top);
        for (int c = 0; c < n_chunk; c++) {
            const int first = c * RKV_ATTN_CHUNK,
                      len = n - first < RKV_ATTN_CHUNK ? n - first : RKV_ATTN_CHUNK;
            const float factor = expf(m[c * n_group + g] - top) / total,
                        *w = weight + ((ptrdiff_t)c * n_group + g) * RKV_ATTN_CHUNK;
            for (int t = 0; t < len; t++)
                mass[first + t] += factor * w[t];
        }
    }
}

/* ---- eviction ---- */

typedef struct job {            /* in one layer */
    rkv_scoring of;
    const rkv_eviction *v;
    const int *left;            /* [n_kv_head] */
    int most_left;
} job;

/* What head h keeps; NULL: all that it has. */
static int32_t *kept(const job *j, int h)
{
    return j->of.view[h].n_slot > j->left[h] ? j->v->keep + (ptrdiff_t)h * j->most_left : NULL;
}

static void select_part(void *ctx, int h, int thread)
{
    const job *j = ctx;
    const rkv_scoring *of = &j->of;
    const int n = of->view[h].n_slot;
    float *score = j->v->work + (size_t)thread * j->v->work_floats, *work = score + n;
    if (!kept(j, h))
        return;
    rkv_observed o = rkv_scoring_observed(of, h, work);
    o.mass = o.recent = mass_of(of->s, of->l, h);
    of->selector->score(of->p, &o, score, work + rkv_scoring_query_floats(of));
    rkv_keep_best(kept(j, h), score, n, of->p->window, j->left[h], (uint32_t *)(void *)work);
}

static void evict_layer(rkv_session *s, int l)
{
    const rkv_eviction *v = &s->evict;
    const int n_head = s->m->config.n_kv_head;
    job j = {.v = v, .left = v->left + (ptrdiff_t)l * n_head, .most_left = most_left(s)};
    rkv_scoring_begin(&j.of, s, &s->o.policy, l);
    if (v->n_query) {
        j.of.n_query = s->n_past < v->n_query ? s->n_past : v->n_query;
        j.of.n_row = v->n_query;
        j.of.first = (s->n_past - j.of.n_query) % v->n_query;
        j.of.q = ring_row(s, l, 0);
    }
    rkv_team_run(s->team, select_part, &j, n_head);
    for (int h = 0; h < n_head; h++) {
        const int32_t *keep = kept(&j, h);
        float *mass = mass_of(s, l, h);
        if (!keep)
            continue;
        rkv_kv_keep(s->kv, l, h, keep, j.left[h]);
        for (int i = 0; mass && i < j.left[h]; i++)
            mass[i] = mass[keep[i]];
    }
}

static int has_room(const rkv_session *s)
{
    for (int l = 0; l < s->m->config.n_layer; l++)
        for (int h = 0; rkv_evict_bounds(s, l) && h < s->m->config.n_kv_head; h++)
            if (rkv_kv_at(s->kv, l, h)->n_slot >= rkv_evict_most(s, l, h))
                return 0;
    return 1;
}

void rkv_evict_make_room(rkv_session *s)
{
    if (!s->evict.cap || has_room(s))
        return;
    for (int l = 0; l < s->m->config.n_layer; l++)
        if (rkv_evict_bounds(s, l))
            evict_layer(s, l);
    s->compressed = 1;
    s->evict.count++;
}
