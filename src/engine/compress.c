/* From a policy to a smaller cache: budgets, selection per KV head, compaction. */
#include "config.h"
#include "engine/evict.h"
#include "engine/query_stats.h"
#include "engine/scores.h"
#include "engine/scoring.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

rkv_status rkv_session_budget(rkv_session *s, const rkv_policy *p, int n, rkv_error *e)
{
    const rkv_config *c = &s->m->config;
    uint8_t skip[RKV_MAX_LAYER];
    for (int l = 0; l < c->n_layer; l++)
        skip[l] = (uint8_t)rkv_session_skips(s, l);
    const double bytes = (double)(s->kv->k_bytes + s->kv->v_bytes) * c->n_kv_head;
    RKV_TRY(rkv_budget_heads(s->budget, &s->cap, p, c->n_layer, c->n_kv_head, skip, n, bytes, e));
    return rkv_evict_budget(s, n, e);
}

/* ---- what heads are scored by ---- */

void rkv_scoring_begin(rkv_scoring *c, const rkv_session *s, const rkv_policy *p, int l)
{
    c->s = s;
    c->p = p;
    c->selector = rkv_selector_find(p->selector);
    c->l = l;
    c->q = NULL;
    c->n_query = c->first = 0;
    c->n_row = 1;
    for (int h = 0; h < s->m->config.n_kv_head; h++)
        c->view[h] = rkv_kv_view_of(s->kv, l, h);
}

static const float *query(const rkv_scoring *c, int i)
{
    const rkv_config *config = &c->s->m->config;
    return c->q + (size_t)((c->first + i) % c->n_row) * (size_t)config->n_head *
           (size_t)config->d_head;
}

/* Floats of a group's queries at one position. */
static size_t group_floats(const rkv_scoring *c)
{
    const rkv_config *config = &c->s->m->config;
    return (size_t)(config->n_head / config->n_kv_head) * (size_t)config->d_head;
}

size_t rkv_scoring_query_floats(const rkv_scoring *c)
{
    return (size_t)c->n_query * group_floats(c);
}

rkv_observed rkv_scoring_observed(const rkv_scoring *c, int h, float *q)
{
    const rkv_model *m = c->s->m;
    const size_t row = group_floats(c);
    for (int i = 0; q && i < c->n_query; i++)
        memcpy(q + (size_t)i * row, query(c, i) + (size_t)h * row, row * sizeof *q);
    return (rkv_observed){
        .be = &m->backend, .kv = c->view[h], .q = q, .n_query = c->n_query,
        .n_group = m->config.n_head / m->config.n_kv_head, .h = h,
        .n_kv_head = m->config.n_kv_head, .layer = c->view,
        .layer_q = c->n_query ? query(c, c->n_query - 1) : NULL,
        .w_o = &m->layer[c->l].w[RKV_W_O]};
}

/* ---- compression of a prompt ---- */

typedef struct job {            /* selection in one layer */
    rkv_scoring of;
    const float *mass, *recent; /* [n_kv_head][n] */
    rkv_query_stats stats;      /* of the layer's first group; mean NULL: not looked at */
    float cosine[RKV_MAX_D_HEAD / 2], back_sine[RKV_MAX_D_HEAD / 2];    /* what stats refers to */
    int n;
    int *budget;                /* [n_kv_head] */
    int n_shrinking, head[RKV_MAX_HEAD];        /* heads that get a smaller block */
    int32_t *keep;              /* what each of them keeps, one after the other */
    size_t keep_at[RKV_MAX_HEAD];
    float *scratch;             /* [n_shrinking][head_floats] */
    size_t head_floats;
} job;

/* q: room for the gathered queries; NULL: the selector's score is not asked for. */
static rkv_observed observed(const job *j, int h, float *q, rkv_query_stats *stats)
{
    rkv_observed o = rkv_scoring_observed(&j->of, h, q);
    o.mass = j->mass ? j->mass + (ptrdiff_t)h * j->n : NULL;
    o.recent = j->recent ? j->recent + (ptrdiff_t)h * j->n : NULL;
    *stats = j->stats;
    if (stats->mean) {
        stats->mean += h * o.n_group * stats->step;
        o.stats = stats;
    }
    return o;
}

static void score_head(const job *j, int h, float *score, float *scratch)
{
    rkv_query_stats stats;
    const rkv_observed o = observed(j, h, scratch, &stats);
    j->of.selector->score(j->of.p, &o, score, scratch + rkv_scoring_query_floats(&j->of));
}

static float *score_of(const job *j, int i)
{
    return j->scratch + (size_t)i * j->head_floats;
}

static void score_part(void *ctx, int i, int thread)
{
    const job *j = ctx;
    float *score = score_of(j, i);
    (void)thread;
    rkv_scores *known = j->of.s->scores;
    const int h = j->head[i];
    if (j->budget[h] >= j->n && !j->of.p->adakv)
        return;
    if (known && rkv_scores_get(known, j->of.l, h, score))
        return;
    score_head(j, h, score, score + j->n);
    if (known)
        rkv_scores_keep(known, j->of.l, h, score);
}

/* Chooses the slots of the i-th head that shrinks. */
static void keep_part(void *ctx, int i, int thread)
{
    const job *j = ctx;
    const int h = j->head[i];
    float *score = score_of(j, i), *work = score + j->n;
    int32_t *keep = j->keep + j->keep_at[i];
    (void)thread;
    if (j->budget[h] == j->n) {                 /* adakv or a decode budget gave it all */
        for (int t = 0; t < j->n; t++)
            keep[t] = t;
        return;
    }
    if (j->of.p->criticalkv) {
        rkv_query_stats stats;
        const rkv_observed o = observed(j, h, NULL, &stats);
        rkv_critical_rescore(j->of.p, &o, score, j->budget[h], work);
    }
    rkv_keep_best(keep, score, j->n, j->of.p->window, j->budget[h], (uint32_t *)work);
}

/* Queries that the policy looks at. */
static int queries_of(const rkv_policy *p, int n)
{
    const int want = rkv_policy_n_query(p);
    return want < n ? want : n;
}

size_t rkv_session_score_floats(const rkv_session *s, const rkv_policy *p, int n)
{
    const rkv_config *c = &s->m->config;
    const rkv_selector *selector = rkv_selector_find(p->selector);
    const int n_group = c->n_head / c->n_kv_head;
    const size_t q = (size_t)queries_of(p, n) * (size_t)n_group * (size_t)c->d_head,
                 scores = selector->scratch ? selector->scratch(p, n, n_group, c->d_head) : 0,
                 critical = p->criticalkv ? rkv_critical_floats(n, c->d_head, c->d_model) : 0;
    const size_t work = q + scores > critical ? q + scores : critical;
    return (size_t)n + (work > (size_t)n ? work : (size_t)n);
}

/* The heads that get another block. Returns how many slots they keep. */
static size_t list_heads(job *j)
{
    const int n_head = j->of.s->m->config.n_kv_head, bound = rkv_evict_bounds(j->of.s, j->of.l);
    size_t n_keep = 0;
    int any = 0;
    for (int h = 0; h < n_head; h++)
        any |= j->budget[h] < j->n;
    for (int h = 0; h < n_head; h++)
        if (j->budget[h] < j->n || bound || (any && j->of.p->adakv)) {
            j->head[j->n_shrinking++] = h;
            n_keep += (size_t)j->budget[h];
        }
    return n_keep;
}

/* Heads share by their scores, when they do; then it is known where what each keeps goes. */
static void place_heads(job *j)
{
    float *score[RKV_MAX_HEAD];
    uint32_t *work[RKV_MAX_HEAD];
    for (int i = 0; i < j->n_shrinking; i++) {
        score[i] = score_of(j, i);
        work[i] = (uint32_t *)(void *)(score[i] + j->n);
    }
    if (j->of.p->adakv)
        rkv_split_budget(j->budget, j->n_shrinking, j->of.p, score, work, j->n);
    for (int i = 1; i < j->n_shrinking; i++)
        j->keep_at[i] = j->keep_at[i - 1] + (size_t)j->budget[j->head[i - 1]];
}

int rkv_session_block(const rkv_session *s, int l, int h, int n_keep, int room)
{
    return rkv_evict_bounds(s, l) ? rkv_evict_most(s, l, h) : n_keep + room;
}

size_t rkv_session_compress_bytes(const rkv_session *s, const rkv_policy *p, int l, int n)
{
    job j = {.of = {.s = s, .p = p, .l = l}, .n = n, .budget = rkv_session_budgets(s, l)};
    const size_t n_keep = list_heads(&j);
    return (size_t)j.n_shrinking * rkv_session_score_floats(s, p, n) * sizeof *j.scratch +
           n_keep * sizeof *j.keep;
}

static rkv_status compress_heads(rkv_session *s, job *j, int room, rkv_error *e)
{
    if (!j->scratch || !j->keep)
        return rkv_fail(e, RKV_E_MEM, "selection in layer %d: out of memory for %d tokens",
                        j->of.l, j->n);
    rkv_team_run(s->team, score_part, j, j->n_shrinking);
    place_heads(j);
    rkv_team_run(s->team, keep_part, j, j->n_shrinking);
    for (int i = 0; i < j->n_shrinking; i++) {
        const int h = j->head[i], n_keep = j->budget[h];
        RKV_TRY(rkv_kv_compact(s->kv, j->of.l, h, j->keep + j->keep_at[i], n_keep,
                               rkv_session_block(s, j->of.l, h, n_keep, room), e));
    }
    if (rkv_evict_bounds(s, j->of.l))
        rkv_evict_seed(s, j->of.l, j->n);
    return RKV_OK;
}

/* The mean rotation of the n_future positions after n, with what else there is to know. */
static void set_stats(job *j)
{
    const rkv_model *m = j->of.s->m;
    const rkv_rope *rope = &m->rope[m->layer[j->of.l].rope];
    const float *seen = rkv_session_seen_stats(j->of.s, j->of.l);
    const int n_future = j->of.p->n_future;
    if (!seen || !j->of.selector->needs_stats)
        return;
    for (int i = 0; i < rope->n_pair; i++) {
        double c = 0.0, s = 0.0;
        for (int t = 0; t < n_future; t++) {
            const double angle = ((double)j->n + t) * rope->inv_freq[i];
            c += cos(angle);
            s += sin(angle);
        }
        j->cosine[i] = (float)(c / n_future * rope->magnitude);
        j->back_sine[i] = (float)(-s / n_future * rope->magnitude);
    }
    j->stats = (rkv_query_stats){.mean = seen, .step = (ptrdiff_t)rkv_stat_floats(m->config.d_head),
                                 .cosine = j->cosine, .back_sine = j->back_sine,
                                 .n_pair = rope->n_pair, .neox = m->config.rope_neox,
                                 .scale = m->config.attn_scale};
}

static void job_begin(job *j, const rkv_session *s, const rkv_policy *p, int l)
{
    const rkv_config *c = &s->m->config;
    const int n = rkv_kv_at(s->kv, l, 0)->n_slot;
    *j = (job){.mass = rkv_session_seen_mass(s, l, n),
               .recent = rkv_session_seen_recent(s, l, n),
               .n = n,
               .head_floats = rkv_session_score_floats(s, p, n)};
    rkv_scoring_begin(&j->of, s, p, l);
    j->of.n_query = queries_of(p, n);
    if (j->of.n_query) { /* more may have been seen than the policy looks at: the last of them */
        j->of.q = rkv_session_seen_q(s, l) + (size_t)(s->seen.n_query - j->of.n_query) *
                  (size_t)c->n_head * (size_t)c->d_head;
        j->of.n_row = j->of.n_query;
    }
    set_stats(j);
}

void rkv_session_score_head(const rkv_session *s, const rkv_policy *p, int l, int h, float *score,
                            float *scratch)
{
    job j;
    job_begin(&j, s, p, l);
    score_head(&j, h, score, scratch);
}

rkv_status rkv_session_compress_layer(rkv_session *s, const rkv_policy *p, int l, int room,
                                      rkv_error *e)
{
    job j;
    job_begin(&j, s, p, l);
    j.budget = rkv_session_budgets(s, l);
    const size_t n_keep = list_heads(&j);
    if (!j.n_shrinking)
        return RKV_OK;
    j.scratch = rkv_mem_alloc(
        rkv_mem_product((size_t)j.n_shrinking, j.head_floats * sizeof *j.scratch));
    j.keep = rkv_mem_alloc(rkv_mem_product(n_keep, sizeof *j.keep));
    const rkv_status status = compress_heads(s, &j, room, e);
    rkv_mem_free(j.scratch);
    rkv_mem_free(j.keep);
    return status;
}

rkv_status rkv_session_check_compress(const rkv_session *s, const rkv_policy *p, rkv_error *e)
{
    if (!s->n_prompt || s->n_past != s->n_prompt || s->compressed)
        return rkv_fail(e, RKV_E_ARG,
                        "compress: needs a session that was prefilled once and not yet "
                        "compressed");
    if (s->evict.left)
        return rkv_fail(e, RKV_E_ARG, "compress: the session has a decode budget, within which its "
                        "own policy keeps the prompt");
    const int want = queries_of(p, s->n_prompt);
    if (s->seen.n_query < want)
        return rkv_fail(e, RKV_E_ARG,
                        "compress: the session observed %d queries, the policy needs %d; "
                        "create it with RKV_OBSERVE_QUERIES and at least that window",
                        s->seen.n_query, want);
    if (rkv_policy_observes(p) & RKV_OBSERVE_MASS && !s->seen.mass)
        return rkv_fail(e, RKV_E_ARG,
                        "compress: selector '%s' needs the attention mass of the keys; create the "
                        "session with RKV_OBSERVE_MASS",
                        p->selector);
    if (rkv_policy_observes(p) & RKV_OBSERVE_STATS &&
        (!s->seen.stats || s->seen.stats_first != p->n_sink))
        return rkv_fail(e, RKV_E_ARG,
                        "compress: selector '%s' needs statistics of the queries after %d sinks; "
                        "create the session with RKV_OBSERVE_STATS and the same 'n_sink'",
                        p->selector, p->n_sink);
    const int recent = rkv_policy_recent(p, s->n_prompt);
    if (rkv_policy_observes(p) & RKV_OBSERVE_RECENT && s->seen.n_recent != recent)
        return rkv_fail(e, RKV_E_ARG,
                        "compress: selector '%s' needs the attention mass of the last %d queries, "
                        "the session observed that of %d; create it with RKV_OBSERVE_RECENT and "
                        "the same 'recent'",
                        p->selector, recent, s->seen.n_recent);
    return RKV_OK;
}

rkv_status rkv_session_compress(rkv_session *s, const rkv_policy *p, rkv_error *e)
{
    return rkv_session_compress_with(s, p, NULL, e);
}

static rkv_status compress_layers(rkv_session *s, const rkv_policy *p, rkv_error *e)
{
    for (int l = 0; l < s->m->config.n_layer; l++)
        if (!rkv_session_skips(s, l))
            RKV_TRY(rkv_session_compress_layer(s, p, l, rkv_session_room(s), e));
    return RKV_OK;
}

rkv_status rkv_session_compress_with(rkv_session *s, const rkv_policy *p, rkv_scores *scores,
                                     rkv_error *e)
{
    RKV_TRY(rkv_policy_check(p, e));
    if (p->profile)
        RKV_TRY(rkv_profile_check(p->profile, s->m, e));
    if (!rkv_policy_active(p))
        return RKV_OK;
    RKV_TRY(rkv_session_check_compress(s, p, e));
    RKV_TRY(rkv_session_budget(s, p, s->n_prompt, e));
    if (scores)
        RKV_TRY(rkv_scores_begin(scores, s, p, e));
    s->compressed = 1;                          /* also when memory ends half-way */
    s->scores = scores;
    const rkv_status status = compress_layers(s, p, e);
    s->scores = NULL;
    return status;
}
