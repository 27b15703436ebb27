#include "config.h"
#include "engine/scores.h"

#include <string.h>

#include "base/mem.h"

struct rkv_scores {
    const rkv_model *m; /* NULL: nothing is held */
    rkv_policy of;
    int n; /* of a head: the tokens before the window */
    float *score;       /* [n_layer][n_kv_head][n] */
    uint8_t *have;      /* [n_layer][n_kv_head] */
};

rkv_status rkv_scores_create(rkv_scores **out, rkv_error *e)
{
    *out = rkv_mem_calloc(1, sizeof **out);
    return *out ? RKV_OK : rkv_fail(e, RKV_E_MEM, "scores: out of memory");
}

static void clear(rkv_scores *c)
{
    rkv_mem_free(c->score);
    rkv_mem_free(c->have);
    *c = (rkv_scores){0};
}

void rkv_scores_free(rkv_scores *c)
{
    if (c)
        clear(c);
    rkv_mem_free(c);
}

rkv_status rkv_scores_begin(rkv_scores *c, const rkv_session *s, const rkv_policy *p, rkv_error *e)
{
    const int n = s->n_prompt - (p->window < s->n_prompt ? p->window : s->n_prompt);
    if (c->m == s->m && c->n == n && rkv_policy_scores_alike(&c->of, p))
        return RKV_OK;
    clear(c);
    const size_t heads = (size_t)s->m->config.n_layer * (size_t)s->m->config.n_kv_head;
    c->score = rkv_mem_alloc(rkv_mem_product(heads, (size_t)n * sizeof(float)));
    c->have = rkv_mem_calloc(heads, 1);
    if (!c->score || !c->have) {
        clear(c);
        return rkv_fail(e, RKV_E_MEM, "scores: out of memory for %zu heads of %d tokens", heads, n);
    }
    c->m = s->m;
    c->of = *p;
    c->of.selector = rkv_selector_find(p->selector)->name; /* the caller's may go */
    c->n = n;
    return RKV_OK;
}

static size_t head_at(const rkv_scores *c, int l, int h)
{
    return (size_t)l * (size_t)c->m->config.n_kv_head + (size_t)h;
}

int rkv_scores_get(const rkv_scores *c, int l, int h, float *score)
{
    const size_t at = head_at(c, l, h);
    if (c->have[at])
        memcpy(score, c->score + at * (size_t)c->n, (size_t)c->n * sizeof *score);
    return c->have[at];
}

void rkv_scores_keep(rkv_scores *c, int l, int h, const float *score)
{
    const size_t at = head_at(c, l, h);
    memcpy(c->score + at * (size_t)c->n, score, (size_t)c->n * sizeof *score);
    c->have[at] = 1;
}
