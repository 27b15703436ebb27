/* From a policy to a smaller cache: budgets, selection per KV head, compaction. */
#include "config.h"
#include "engine/session.h"

#include <string.h>

#include "base/mem.h"

rkv_status rkv_session_budget(rkv_session *s, const rkv_policy *p, int n, rkv_error *e)
{
    const rkv_config *c = &s->m->config;
    uint8_t skip[RKV_MAX_LAYER];
    for (int l = 0; l < c->n_layer; l++)
        skip[l] = (uint8_t)rkv_session_skips(s, l);
    const double bytes = (double)(s->kv->k_bytes + s->kv->v_bytes) * c->n_kv_head;
    return rkv_budget_layers(s->budget, &s->cap, p, c->n_layer, skip, n, bytes, e);
}

typedef struct job {            /* selection in one layer */
    const rkv_session *s;
    const rkv_policy *p;
    const rkv_selector *selector;
    const float *q;             /* [n_query][n_head][d_head] */
    const float *mass;          /* [n_kv_head][n] */
    int n_query, l, n, budget;
    size_t head_floats;         /* scratch per head */
} job;

/* Queries of one KV head's group, gathered: [n_query][n_group][d_head]. */
static void gather_group(const job *j, int h, float *out)
{
    const rkv_config *c = &j->s->m->config;
    const int n_group = c->n_head / c->n_kv_head;
    const size_t row = (size_t)n_group * (size_t)c->d_head;
    for (int i = 0; i < j->n_query; i++)
        memcpy(out + (size_t)i * row, j->q + (size_t)i * (size_t)c->n_head * (size_t)c->d_head +
               (size_t)h * row, row * sizeof *out);
}

static void score_head(const job *j, int h, float *score, float *scratch)
{
    const rkv_config *c = &j->s->m->config;
    const int n_group = c->n_head / c->n_kv_head;
    float *q = scratch, *work = q + (size_t)j->n_query * (size_t)n_group * (size_t)c->d_head;
    gather_group(j, h, q);
    const rkv_observed o = {
        .be = &j->s->m->backend, .kv = rkv_kv_view_of(j->s->kv, j->l, h), .q = q,
        .n_query = j->n_query, .n_group = n_group,
        .mass = j->mass ? j->mass + (ptrdiff_t)h * j->n : NULL};
    j->selector->score(j->p, &o, score, work);
}

/* Chooses the slots of one head into keep[budget]. */
static void select_head(const job *j, int h, int32_t *keep, float *scratch)
{
    float *score = scratch, *work = scratch + j->n;
    score_head(j, h, score, work);
    rkv_keep_best(keep, score, j->n, j->p->window, j->budget, (uint32_t *)work);
}

typedef struct head_job {
    const job *j;
    int32_t *keep;
    float *scratch;
} head_job;

static void head_part(void *ctx, int h, int thread)
{
    const head_job *x = ctx;
    (void)thread;
    select_head(x->j, h, x->keep + (ptrdiff_t)h * x->j->budget,
                x->scratch + (size_t)h * x->j->head_floats);
}

static void select_layer(const job *j, int32_t *keep, float *scratch)
{
    head_job x = {j, keep, scratch};
    rkv_team_run(j->s->team, head_part, &x, j->s->m->config.n_kv_head);
}

/* Queries that the policy looks at. */
static int queries_of(const rkv_policy *p, int n)
{
    const int want = rkv_policy_n_query(p);
    return want < n ? want : n;
}

size_t rkv_session_compress_floats(const rkv_session *s, const rkv_policy *p, int n)
{
    const rkv_config *c = &s->m->config;
    const rkv_selector *selector = rkv_selector_find(p->selector);
    const int n_group = c->n_head / c->n_kv_head;
    const size_t work = selector->scratch ? selector->scratch(p, n, n_group, c->d_head) : 0;
    return (size_t)queries_of(p, n) * (size_t)n_group * (size_t)c->d_head + (size_t)n +
           (work > (size_t)n ? work : (size_t)n);
}

static job job_of(const rkv_session *s, const rkv_policy *p, int l, int budget)
{
    const rkv_config *c = &s->m->config;
    const int n = rkv_kv_at(s->kv, l, 0)->n_slot;
    job j = {.s = s,
             .p = p,
             .selector = rkv_selector_find(p->selector),
             .n_query = queries_of(p, n),
             .mass = rkv_session_seen_mass(s, l, n),
             .l = l,
             .n = n,
             .budget = budget,
             .head_floats = rkv_session_compress_floats(s, p, n)};
    if (j.n_query)      /* more may have been seen than the policy looks at: the last of them */
        j.q = rkv_session_seen_q(s, l) + (size_t)(s->seen.n_query - j.n_query) *
              (size_t)c->n_head * (size_t)c->d_head;
    return j;
}

void rkv_session_score_head(const rkv_session *s, const rkv_policy *p, int l, int h, float *score,
                            float *scratch)
{
    const job j = job_of(s, p, l, 0);
    score_head(&j, h, score, scratch);
}

rkv_status rkv_session_compress_layer(rkv_session *s, const rkv_policy *p, int l, int room,
                                      rkv_error *e)
{
    const rkv_config *c = &s->m->config;
    const int n = rkv_kv_at(s->kv, l, 0)->n_slot, budget = s->budget[l];
    if (budget >= n)
        return RKV_OK;
    const job j = job_of(s, p, l, budget);
    float *scratch =
        rkv_mem_alloc(rkv_mem_product((size_t)c->n_kv_head, j.head_floats * sizeof *scratch));
    int32_t *keep =
        rkv_mem_alloc(rkv_mem_product((size_t)c->n_kv_head, (size_t)budget * sizeof *keep));
    rkv_status status = RKV_OK;
    if (!scratch || !keep)
        status = rkv_fail(e, RKV_E_MEM, "selection in layer %d: out of memory for %d tokens", l, n);
    else
        select_layer(&j, keep, scratch);
    for (int h = 0; !status && h < c->n_kv_head; h++)
        status =
            rkv_kv_compact(s->kv, l, h, keep + (ptrdiff_t)h * budget, budget, budget + room, e);
    rkv_mem_free(scratch);
    rkv_mem_free(keep);
    return status;
}

rkv_status rkv_session_check_compress(const rkv_session *s, const rkv_policy *p, rkv_error *e)
{
    if (!s->n_prompt || s->n_past != s->n_prompt || s->compressed)
        return rkv_fail(e, RKV_E_ARG,
                        "compress: needs a session that was prefilled once and not yet "
                        "compressed");
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
    return RKV_OK;
}

rkv_status rkv_session_compress(rkv_session *s, const rkv_policy *p, rkv_error *e)
{
    const rkv_config *c = &s->m->config;
    RKV_TRY(rkv_policy_check(p, e));
    if (p->profile)
        RKV_TRY(rkv_profile_check(p->profile, s->m, e));
    if (!rkv_policy_active(p))
        return RKV_OK;
    RKV_TRY(rkv_session_check_compress(s, p, e));
    RKV_TRY(rkv_session_budget(s, p, s->n_prompt, e));
    s->compressed = 1;                          /* also when memory ends half-way */
    for (int l = 0; l < c->n_layer; l++)
        if (!rkv_session_skips(s, l))
            RKV_TRY(rkv_session_compress_layer(s, p, l, rkv_session_room(s), e));
    return RKV_OK;
}
