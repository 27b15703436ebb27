/* The decode budget the slow way: all keys, values and queries stay, the rule says which of them
 * live, and attention in double sees those only. One token at a time, from the first on. */
#ifndef RKV_EVICT_ORACLE_H
#define RKV_EVICT_ORACLE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/session.h"

enum { ORACLE_MOST = 512, ORACLE_UNITS = 16 };

typedef struct oracle_head {    /* of a layer */
    int n, at[ORACLE_MOST];     /* positions that live */
    int budget, left;           /* of the prompt; after an eviction */
    double mass[ORACLE_MOST];   /* by position */
} oracle_head;

typedef struct oracle {
    const rkv_model *m;
    rkv_policy p;
    rkv_dtype type;             /* of the cache */
    /* Whose stored keys and values are taken where it holds the position, since a difference of one
     * rounding can become one of a whole f16; NULL: none. */
    const rkv_session *stored;
    int n_prompt, n_past, interval, bound, count;
    float *k, *v;               /* [n_layer][ORACLE_MOST][n_kv_head * d_head] as stored */
    float *q;                   /* [n_layer][ORACLE_MOST][n_head * d_head] scaled */
    oracle_head head[ORACLE_UNITS];
    float *logits;
} oracle;

static oracle_head *oracle_at(oracle *o, int l, int h)
{
    return &o->head[l * o->m->config.n_kv_head + h];
}

static float *oracle_row(float *x, int l, int pos, int width)
{
    return x + ((size_t)l * ORACLE_MOST + (size_t)pos) * (size_t)width;
}

/* w[i] = attention of query head g of KV head h at position pos over the slots at or before it. */
static void oracle_weights(oracle *o, double *w, int l, int h, int g, int pos)
{
    const rkv_config *c = &o->m->config;
    const oracle_head *u = oracle_at(o, l, h);
    const float *q = oracle_row(o->q, l, pos, c->n_head * c->d_head) +
                     (h * (c->n_head / c->n_kv_head) + g) * c->d_head;
    double top = -INFINITY, sum = 0.0;
    for (int i = 0; i < u->n; i++) {
        const float *k = oracle_row(o->k, l, u->at[i], c->n_kv_head * c->d_head) + h * c->d_head;
        w[i] = u->at[i] > pos ? -INFINITY : 0.0;
        for (int e = 0; e < c->d_head; e++)
            w[i] += (double)q[e] * (double)k[e];
        top = fmax(top, w[i]);
    }
    for (int i = 0; i < u->n; i++)
        sum += w[i] = exp(w[i] - top);
    for (int i = 0; i < u->n; i++)
        w[i] /= sum;
}

static void oracle_store(const oracle *o, float *to, const float *x, int n)
{
    char block[4 * RKV_MAX_D_HEAD];
    const int d = o->m->config.d_head;
    for (int i = 0; i < n; i += d) {
        o->m->backend.ops.pack[o->type](block, x + i, d);
        o->m->backend.ops.unpack[o->type](to + i, block, d);
    }
}

/* Layer l's stored key and value of position pos. */
static void oracle_take(oracle *o, int l, int pos)
{
    const int d = o->m->config.d_head, n_head = o->m->config.n_kv_head;
    for (int h = 0; o->stored && h < n_head; h++) {
        const rkv_kv *kv = o->stored->kv;
        const rkv_kv_view v = rkv_kv_view_of(kv, l, h);
        for (int i = 0; i < v.n_slot; i++)
            if (v.pos[i] == pos) {
                const size_t at = (size_t)i;
                o->m->backend.ops.unpack[o->type](oracle_row(o->k, l, pos, n_head * d) + h * d,
                                                  (const char *)v.k + at * kv->k_bytes, d);
                o->m->backend.ops.unpack[o->type](oracle_row(o->v, l, pos, n_head * d) + h * d,
                                                  (const char *)v.v + at * kv->v_bytes, d);
            }
    }
}

static void oracle_attend(void *ctx, rkv_step *step, int l)
{
    oracle *o = ctx;
    const rkv_config *c = &o->m->config;
    const int pos = step->pos[0], n_group = c->n_head / c->n_kv_head, d = c->d_head;
    const int counts = strcmp(o->p.selector, "blend") || pos >= o->n_prompt - o->p.recent;
    float *q = oracle_row(o->q, l, pos, c->n_head * d);
    double w[ORACLE_MOST];
    oracle_store(o, oracle_row(o->k, l, pos, c->n_kv_head * d), step->k, c->n_kv_head * d);
    oracle_store(o, oracle_row(o->v, l, pos, c->n_kv_head * d), step->v, c->n_kv_head * d);
    oracle_take(o, l, pos);
    for (int i = 0; i < c->n_head * d; i++)
        q[i] = step->q[i] * c->attn_scale;
    for (int i = 0; i < c->n_head; i++) {
        const int h = i / n_group;
        oracle_head *u = oracle_at(o, l, h);
        if (i % n_group == 0) {
            u->at[u->n++] = pos;
            u->mass[pos] = 0.0;
        }
        if (o->m->layer[l].sliding && u->at[0] <= pos - c->sliding_window)
            memmove(u->at, u->at + 1, (size_t)--u->n * sizeof *u->at);
        oracle_weights(o, w, l, h, i % n_group, pos);
        for (int e = 0; e < d; e++) {
            double sum = 0.0;
            for (int t = 0; t < u->n; t++)
                sum += w[t] * (double)oracle_row(o->v, l, u->at[t], c->n_kv_head * d)[h * d + e];
            step->att[i * d + e] = (float)sum;
        }
        for (int t = 0; counts && t < u->n; t++)
            u->mass[u->at[t]] += w[t];
    }
}

/* ---- the rule ---- */

/* Attention of the last n_query queries to each slot, mean over the group, pooled; in float, which
 * is where ties are decided. */
static void oracle_snapkv(oracle *o, float *score, int l, int h)
{
    const int n_group = o->m->config.n_head / o->m->config.n_kv_head, half = o->p.pool_kernel / 2;
    const oracle_head *u = oracle_at(o, l, h);
    const int n = u->n - o->p.window;
    double w[ORACLE_MOST], sum[ORACLE_MOST] = {0};
    for (int pos = o->n_past - 1; pos >= 0 && pos >= o->n_past - o->p.window; pos--)
        for (int g = 0; g < n_group; g++) {
            oracle_weights(o, w, l, h, g, pos);
            for (int i = 0; i < u->n; i++)
                sum[i] += w[i] / n_group;
        }
    for (int i = 0; i < n; i++) {
        score[i] = 0.0f;
        for (int t = i - half; t <= i + half; t++)
            if (t >= 0 && t < n)
                score[i] = fmaxf(score[i], (float)sum[t]);
    }
}

/* Average ranks, 0 for the largest. */
static void oracle_add_ranks(float *rank, const float *x, int n)
{
    for (int i = 0; i < n; i++) {
        int above = 0, equal = 0;
        for (int t = 0; t < n; t++)
            above += x[t] > x[i], equal += x[t] == x[i];
        rank[i] -= (float)above + 0.5f * (float)(equal - 1);
    }
}

static void oracle_score(oracle *o, float *score, int l, int h)
{
    const rkv_config *c = &o->m->config;
    const int n_group = c->n_head / c->n_kv_head;
    const oracle_head *u = oracle_at(o, l, h);
    const char *name = o->p.selector;
    const int n = u->n - o->p.window;
    float x[ORACLE_MOST];
    double w[ORACLE_MOST];
    memset(score, 0, ORACLE_MOST * sizeof *score);
    for (int i = 0; i < n; i++) {
        const int pos = u->at[i];
        const float *k = oracle_row(o->k, l, pos, c->n_kv_head * c->d_head) + h * c->d_head;
        double norm = 0.0;
        for (int e = 0; e < c->d_head; e++)
            norm += (double)k[e] * (double)k[e];
        if (!strcmp(name, "streaming"))
            score[i] = i < o->p.n_sink ? INFINITY : (float)i;
        else if (!strcmp(name, "knorm"))
            score[i] = -(float)sqrt(norm);
        else if (!strcmp(name, "h2o"))
            score[i] = (float)u->mass[pos];
        else if (!strcmp(name, "observed"))
            score[i] = (float)(u->mass[pos] / (o->n_past - pos));
        x[i] = (float)u->mass[pos];
    }
    for (int i = 0; !strcmp(name, "tova") && i < c->n_head; i++) {
        oracle_weights(o, w, l, i / n_group, i % n_group, o->n_past - 1);
        for (int t = 0; t < n; t++)
            score[t] += (float)w[t];
    }
    if (!strcmp(name, "snapkv"))
        oracle_snapkv(o, score, l, h);
    if (!strcmp(name, "blend")) {
        oracle_add_ranks(score, x, n);
        oracle_snapkv(o, x, l, h);
        oracle_add_ranks(score, x, n);
    }
}

/* The window and the best of the others; of equal ones the lower. */
static void oracle_keep(oracle_head *u, const float *score, int window, int budget)
{
    const int n = u->n - window;
    int kept = 0;
    if (budget >= u->n)
        return;
    for (int i = 0; i < n; i++) {
        int before = 0;
        for (int t = 0; t < n; t++)
            before += score[t] > score[i] || (score[t] == score[i] && t < i);
        if (before < budget - window)
            u->at[kept++] = u->at[i];
    }
    memmove(u->at + kept, u->at + n, (size_t)window * sizeof *u->at);
    u->n = kept + window;
}

/* Every head keeps its prompt's budget, or what an eviction leaves. All are scored before any of
 * their layer goes down, since TOVA looks at all. */
static void oracle_cut(oracle *o, int prompt)
{
    const rkv_config *c = &o->m->config;
    static float score[ORACLE_UNITS][ORACLE_MOST];
    for (int l = 0; l < c->n_layer; l++) {
        if (o->m->layer[l].sliding)
            continue;
        for (int h = 0; h < c->n_kv_head; h++)
            oracle_score(o, score[h], l, h);
        for (int h = 0; h < c->n_kv_head; h++) {
            oracle_head *u = oracle_at(o, l, h);
            oracle_keep(u, score[h], o->p.window, prompt ? u->budget : u->left);
        }
    }
}

/* ---- the timeline ---- */

static void oracle_budgets(oracle *o, double cap, int n_ctx, const rkv_policy *prompt)
{
    const rkv_config *c = &o->m->config;
    int first[ORACLE_UNITS], left[ORACLE_UNITS], passes = 0;
    uint8_t skip[RKV_MAX_LAYER];
    rkv_policy p = *prompt;
    for (int l = 0; l < c->n_layer; l++)
        skip[l] = (uint8_t)o->m->layer[l].sliding;
    for (int i = 0; i < c->n_layer * c->n_kv_head; i++)
        first[i] = left[i] = o->n_prompt;
    if (rkv_policy_active(prompt))
        rkv_budget_heads(first, NULL, prompt, c->n_layer, c->n_kv_head, skip, o->n_prompt, 1, NULL);
    o->bound = cap < n_ctx;
    p.budget_kind = RKV_BUDGET_TOKENS;
    p.budget = cap - o->interval;
    if (o->bound)
        rkv_budget_heads(left, NULL, &p, c->n_layer, c->n_kv_head, skip, n_ctx - o->interval, 1,
                         NULL);
    for (int i = 0; o->bound && i < c->n_layer * c->n_kv_head; i++)
        passes |= !skip[i / c->n_kv_head] && first[i] > left[i] + o->interval;
    for (int i = 0; i < c->n_layer * c->n_kv_head; i++) {
        o->head[i].left = left[i];
        o->head[i].budget = passes && left[i] < first[i] ? left[i] : first[i];
    }
}

static void oracle_token(oracle *o, int32_t id)
{
    const rkv_model *m = o->m;
    const rkv_config *c = &m->config;
    const int32_t pos = o->n_past;
    float *scratch = malloc((rkv_step_scratch(c, 1) + 2 * (size_t)c->d_model) * sizeof *scratch),
          *x = scratch + rkv_step_scratch(c, 1), angles[4][RKV_MAX_D_HEAD];
    int full = 0;
    for (int i = 0; o->bound && i < c->n_layer * c->n_kv_head; i++)
        full |= !m->layer[i / c->n_kv_head].sliding && o->n_past >= o->n_prompt &&
                o->head[i].n >= o->head[i].left + o->interval;
    if (full)
        oracle_cut(o, 0);
    o->count += full;
    rkv_step step = {.be = &m->backend, .n_tok = 1, .pos = &pos, .rope_first = -1, .x = x,
                     .attend = oracle_attend, .attend_ctx = o};
    rkv_step_place(&step, c, 1, scratch);
    for (int r = 0; r < m->n_rope; r++) {
        rkv_rope_table(&m->rope[r], angles[2 * r], angles[2 * r + 1], pos, 1, NULL);
        step.cosine[r] = angles[2 * r];
        step.sine[r] = angles[2 * r + 1];
    }
    rkv_model_embed(m, x, &id, 1);
    for (int l = 0; l < c->n_layer; l++)
        m->arch->layer(m, &step, l);
    rkv_model_head_rows(m, x, 1, x + c->d_model, o->logits, NULL);
    o->n_past++;
    if (o->n_past == o->n_prompt)
        oracle_cut(o, 1);
    free(scratch);
}

/* Decode budget of cap tokens (at least n_ctx: none) after a prompt under the policy. */
static oracle *oracle_create(const rkv_model *m, const rkv_policy *p, const char *type,
                             int n_prompt, double cap, int interval, int n_ctx)
{
    const rkv_config *c = &m->config;
    const size_t rows = (size_t)c->n_layer * ORACLE_MOST, d = (size_t)c->d_head;
    oracle *o = calloc(1, sizeof *o);
    *o = (oracle){.m = m, .p = *p, .type = rkv_dtype_from_name(type), .n_prompt = n_prompt,
                  .interval = interval};
    o->k = calloc(rows * (size_t)c->n_kv_head * d, sizeof *o->k);
    o->v = calloc(rows * (size_t)c->n_kv_head * d, sizeof *o->v);
    o->q = calloc(rows * (size_t)c->n_head * d, sizeof *o->q);
    o->logits = calloc((size_t)c->n_vocab, sizeof *o->logits);
    oracle_budgets(o, cap, n_ctx, p);
    return o;
}

static void oracle_free(oracle *o)
{
    free(o->k);
    free(o->v);
    free(o->q);
    free(o->logits);
    free(o);
}

#endif
