/* Sessions with a decode budget on made models, and all that they show, for tests. */
#ifndef RKV_EVICT_BED_H
#define RKV_EVICT_BED_H

#include "made_curves.h"

#include "engine/evict.h"

enum { N = 120, MORE = 160, CTX = N + MORE };

static int32_t ids[CTX];       /* what sessions are fed */
static rkv_error e;

static inline void must(rkv_status s)
{
    if (s) {
        fprintf(stderr, "unexpected: %s\n", e.text);
        exit(1);
    }
}

/* budget "": the prompt is kept whole; decode "": no decode budget. */
static inline rkv_session_options options_of(const char *policy, const char *budget,
                                             const char *decode, int interval,
                                             const rkv_profile *profile)
{
    rkv_policy d = rkv_policy_default();
    rkv_session_options o = rkv_session_options_default();
    must(rkv_policy_set_name(&o.policy, policy, &e));
    must(rkv_policy_set_budget(&o.policy, *budget ? budget : "full", &e));
    must(rkv_policy_set_budget(&d, *decode ? decode : "full", &e));
    o.policy.profile = profile;
    o.policy.recent = 40;
    o.decode_kind = d.budget_kind;
    o.decode_budget = d.budget;
    o.decode_interval = interval;
    o.n_ctx = CTX;
    o.n_thread = 1;
    return o;
}

static inline rkv_session *make(const rkv_model *m, const rkv_session_options *o)
{
    rkv_session *s = NULL;
    must(rkv_session_create(&s, m, o, &e));
    return s;
}

static inline rkv_session *prefilled(const rkv_model *m, const rkv_session_options *o, int n)
{
    rkv_session *s = make(m, o);
    must(rkv_session_prefill(s, ids, (size_t)n, &e));
    return s;
}

static inline uint64_t digest(uint64_t h, const void *p, size_t n)
{
    for (const unsigned char *b = p; n--; b++)
        h = (h ^ *b) * 1099511628211u;
    return h;
}

/* All that a session shows. */
static inline uint64_t look(const rkv_session *s)
{
    const rkv_config *c = &s->m->config;
    const rkv_kv_info kv = rkv_session_kv_info(s);
    const int64_t numbers[] = {rkv_session_n_past(s), (int64_t)kv.bytes, (int64_t)kv.bytes_full,
                               kv.n_kept, kv.cap, kv.decode_cap, kv.n_eviction};
    uint64_t x = digest(1, numbers, sizeof numbers);
    for (int l = 0; l < c->n_layer; l++)
        for (int h = 0; h < c->n_kv_head; h++) {
            const rkv_kv_head *head = rkv_kv_at(s->kv, l, h);
            const size_t n = (size_t)head->n_slot;
            x = digest(digest(x, head->k, n * s->kv->k_bytes), head->v, n * s->kv->v_bytes);
            x = digest(x, head->pos, n * sizeof *head->pos);
        }
    return s->has_logits ? digest(x, s->logits, (size_t)c->n_vocab * sizeof(float)) : x;
}

/* n tokens of ids from the session's position on. */
static inline void decode(rkv_session *s, int n)
{
    for (int i = 0; i < n; i++)
        must(rkv_session_decode(s, ids[s->n_past], &e));
}

/* Two families, whose models are tested; the second has sliding layers. */
static inline tiny_options each_family(void (*check)(const tiny_options *t, uint32_t seed))
{
    tiny_options t = tiny_defaults();
    setenv("RKV_GEMM", "own", 1);
    t.type = "f32";
    t.n_head = 4;
    t.n_kv_head = 2;
    t.d_head = 32;
    t.d_model = t.n_head * t.d_head;
    check(&t, 5);
    t.family = "gemma3";
    t.n_layer = 4;
    t.window = 50;
    t.pattern = 2;
    t.tied = 1;
    check(&t, 11);
    return t;
}

#endif
