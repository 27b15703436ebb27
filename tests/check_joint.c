/* Prompts that go through the layers together: each session ends with the bits that it would have
 * by itself, the memory is what was planned, and a failure leaves every session empty. */
#include "config.h"
#include "made.h"

#include "base/mem.h"
#include "engine/session.h"

enum { N = 300, SHORT = 48, MORE = 3, KINDS = 8 };

/* Sessions that differ in what may differ. */
static const struct kind {
    int n_prompt, n_ctx, n_thread, n_chunk;
    const char *k_type, *v_type, *policy, *budget;
    int observe;
} kinds[KINDS] = {
    {N, N + MORE, 2, 64, "f16", "f16", "snapkv", "80%", 0},
    {5, 400, 1, 256, "f16", "f16", "full", "full", 0},
    {1, 0, 1, 256, "bf16", "q8_0", "full", "full", 0},      /* without panels */
    {130, 400, 2, 7, "q8_0", "f16", "h2o", "80%", RKV_OBSERVE_QUERIES},
    {N, 400, 1, 256, "f32", "q4_0", "full", "full", RKV_OBSERVE_QUERIES | RKV_OBSERVE_MASS},
    {217, 0, 1, 300, "f16", "f16", "observed", "90%", RKV_OBSERVE_MASS},
    {60, 400, 2, 256, "f16", "f16", "full", "full", RKV_OBSERVE_MASS},
    {1, 400, 2, 256, "f16", "f16", "snapkv", "40", 0},
};

static int32_t ids[N + MORE];
static rkv_error e;

static void must(rkv_status s)
{
    if (s) {
        fprintf(stderr, "unexpected: %s\n", e.text);
        exit(1);
    }
}

static rkv_session *make(const rkv_model *m, int kind)
{
    const struct kind *k = &kinds[kind];
    rkv_session_options o = rkv_session_options_default();
    rkv_session *s = NULL;
    o.n_ctx = k->n_ctx;
    o.n_thread = k->n_thread;
    o.n_chunk = k->n_chunk;
    o.k_type = k->k_type;
    o.v_type = k->v_type;
    o.observe = k->observe;
    must(rkv_policy_set_name(&o.policy, k->policy, &e));
    must(rkv_policy_set_budget(&o.policy, k->budget, &e));
    must(rkv_session_create(&s, m, &o, &e));
    return s;
}

/* ---- all that a session holds, as one number ---- */

static uint64_t digest(uint64_t h, const void *p, size_t n)
{
    for (const unsigned char *b = p; n--; b++)
        h = (h ^ *b) * 1099511628211u;
    return h;
}

static uint64_t look(const rkv_session *s)
{
    const rkv_config *c = &s->m->config;
    const rkv_kv_info kv = rkv_session_kv_info(s);
    const int64_t numbers[] = {rkv_session_n_past(s), (int64_t)kv.bytes, (int64_t)kv.bytes_full,
                               kv.n_prompt, kv.n_kept, kv.cap, s->compressed, s->has_logits,
                               s->seen.n_query, s->seen.q != NULL, s->seen.mass != NULL};
    uint64_t h = digest(1, numbers, sizeof numbers);
    for (int l = 0; l < c->n_layer; l++)
        for (int k = 0; k < c->n_kv_head; k++) {
            const rkv_kv_head *a = rkv_kv_at(s->kv, l, k);
            const size_t n = (size_t)a->n_slot;
            h = digest(h, &a->cap, sizeof a->cap);
            h = digest(digest(h, a->k, n * s->kv->k_bytes), a->v, n * s->kv->v_bytes);
            h = digest(h, a->pos, n * sizeof *a->pos);
        }
    for (int l = 0; l < c->n_layer && s->seen.q; l++)
        h = digest(h, rkv_session_seen_q(s, l), (size_t)s->seen.n_query * (size_t)c->n_head *
                   (size_t)c->d_head * sizeof(float));
    for (int l = 0; l < c->n_layer && s->seen.mass; l++)        /* sliding layers have none */
        if (!rkv_session_skips(s, l))
            h = digest(h, rkv_session_seen_mass(s, l, s->n_prompt),
                       (size_t)c->n_kv_head * (size_t)s->n_prompt * sizeof(float));
    return s->has_logits ? digest(h, s->logits, (size_t)c->n_vocab * sizeof(float)) : h;
}

/* Some more tokens, so that what no getter shows counts too. */
static uint64_t look_further(rkv_session *s)
{
    uint64_t h = look(s);
    for (int i = 0; i < MORE && rkv_session_n_past(s) < s->o.n_ctx; i++) {
        must(rkv_session_decode(s, ids[N + i], &e));
        h ^= look(s) * (uint64_t)(2 * i + 3);
    }
    return h;
}

/* ---- equal bits ---- */

typedef struct group {          /* of sessions of the kinds from `first` on */
    rkv_session *s[KINDS];
    const int32_t *ids[KINDS];
    size_t n[KINDS], count;
} group;

/* Tokens of a prompt of the kind, no more than `most`. */
static size_t length(int kind, int most)
{
    return (size_t)(kinds[kind].n_prompt < most ? kinds[kind].n_prompt : most);
}

static group make_group(const rkv_model *m, int count, int first, int most)
{
    group g = {.count = (size_t)count};
    for (int i = 0; i < count; i++) {
        const int k = (first + i) % KINDS;
        g.s[i] = make(m, k);
        g.ids[i] = ids;
        g.n[i] = length(k, most);
    }
    return g;
}

static void free_group(const group *g)
{
    for (size_t i = 0; i < g->count; i++)
        rkv_session_free(g->s[i]);
}

static void look_alone(const rkv_model *m, uint64_t *want, uint64_t *further, int most)
{
    for (int k = 0; k < KINDS; k++) {
        rkv_session *s = make(m, k);
        must(rkv_session_prefill(s, ids, length(k, most), &e));
        want[k] = look(s);
        further[k] = look_further(s);
        rkv_session_free(s);
    }
}

static void check_together(const rkv_model *m, const uint64_t *want, const uint64_t *further,
                           int count, int first)
{
    const group g = make_group(m, count, first, N);
    rkv_mem_peak_reset();
    must(rkv_sessions_prefill(g.s, g.ids, g.n, g.count, &e));
    const uint64_t peak = rkv_mem_peak();
    for (int i = 0; i < count; i++) {
        const int k = (first + i) % KINDS;
        CHECK(rkv_session_plan_bytes(g.s[i]) == peak, "%d from kind %d: planned %llu, peak %llu",
              count, first, (unsigned long long)rkv_session_plan_bytes(g.s[i]),
              (unsigned long long)peak);
        CHECK(look(g.s[i]) == want[k], "%d sessions from kind %d on: kind %d differs", count, first,
              k);
        CHECK(look_further(g.s[i]) == further[k], "%d sessions from kind %d on: kind %d, later",
              count, first, k);
    }
    free_group(&g);
}

/* ---- failures ---- */

static void check_empty(const group *g, const uint64_t *before, const char *what, int k)
{
    for (size_t i = 0; i < g->count; i++)
        CHECK(look(g->s[i]) == before[i] && !rkv_session_logits(g->s[i]),
              "%s %d: session #%zu has changed", what, k, i);
}

/* Each allocation fails once; the same sessions then take their prompts as if nothing had been. */
static void check_no_memory(const rkv_model *m, const uint64_t *want)
{
    const uint64_t start = rkv_mem_current();
    int k = 0;
    for (rkv_status status = RKV_E_MEM; status;) {
        uint64_t before[KINDS];
        const group g = make_group(m, 4, 0, SHORT);
        for (size_t i = 0; i < g.count; i++)
            before[i] = look(g.s[i]);
        const uint64_t held = rkv_mem_current();
        rkv_mem_fail_after(++k);
        status = rkv_sessions_prefill(g.s, g.ids, g.n, g.count, &e);
        rkv_mem_fail_after(0);
        if (status) {
            CHECK(status == RKV_E_MEM, "allocation %d: %s", k, e.text);
            check_empty(&g, before, "allocation", k);
            CHECK(rkv_mem_current() == held, "allocation %d is kept", k);
            if (k % 16 == 1) {
                must(rkv_sessions_prefill(g.s, g.ids, g.n, g.count, &e));
                for (size_t i = 0; i < g.count; i++)
                    CHECK(look(g.s[i]) == want[i], "after allocation %d: session #%zu", k, i);
            }
        }
        free_group(&g);
        CHECK(rkv_mem_current() == start, "allocation %d leaks", k);
    }
    CHECK(k > 60, "only %d allocations", k);
}

typedef struct stop {
    int left;                   /* calls until it says so; -1 once it did */
    int64_t last, total;
    int falls;
} stop;

static int count_down(void *ctx, const char *phase, int64_t done, int64_t total)
{
    stop *t = ctx;
    t->falls += done < t->last || strcmp(phase, "prefill") != 0;
    t->last = done;
    t->total = total;
    return t->left-- == 0;
}

/* Any session's progress stops all; undisturbed, each sees its own tokens pass. */
static void check_stopped(const rkv_model *m, const uint64_t *want)
{
    static const int lefts[] = {0, 1, 1000};
    for (size_t t = 0; t < sizeof lefts / sizeof *lefts; t++) {
        const group g = make_group(m, 5, 0, SHORT);
        uint64_t before[KINDS];
        stop at[2] = {{lefts[t], 0, 0, 0}, {1000, 0, 0, 0}};
        g.s[3]->o.progress = g.s[0]->o.progress = count_down;
        g.s[3]->o.progress_ctx = &at[0];
        g.s[0]->o.progress_ctx = &at[1];
        for (size_t i = 0; i < g.count; i++)
            before[i] = look(g.s[i]);
        const rkv_status s = rkv_sessions_prefill(g.s, g.ids, g.n, g.count, &e);
        if (lefts[t] < 1000) {
            CHECK(s == RKV_E_CANCELLED && strstr(e.text, "session #3: interrupted in prefill"),
                  "%d %s", s, e.text);
            check_empty(&g, before, "stop", lefts[t]);
        } else {
            must(s);
            for (int i = 0; i < 2; i++)
                CHECK(!at[i].falls && at[i].last == at[i].total &&
                          at[i].total == (int64_t)g.n[i ? 0 : 3],
                      "progress %d: %lld of %lld", i, (long long)at[i].last,
                      (long long)at[i].total);
            for (size_t i = 0; i < g.count; i++)
                CHECK(look(g.s[i]) == want[i], "with progress: session #%zu", i);
        }
        free_group(&g);
    }
}

static void check_refusals(const rkv_model *m, const rkv_model *other)
{
    group g = make_group(m, 3, 0, SHORT);
    uint64_t before[KINDS];
    rkv_session *foreign = make(other, 1), *old = make(m, 1), *own = g.s[2];
    must(rkv_session_prefill(old, ids, 2, &e));
    const int32_t wrong[] = {0, -1};
    for (size_t i = 0; i < g.count; i++)
        before[i] = look(g.s[i]);
    const struct {
        rkv_session *third;
        size_t count, n;
        const int32_t *ids;
        const char *text;
    } bad[] = {
        {own, 0, 1, ids, "prefill of 0 sessions, expected 1 to 1024"},
        {own, 1025, 1, ids, "prefill of 1025 sessions"},
        {g.s[1], 3, 1, ids, "prefill: sessions #1 and #2 are the same"},
        {foreign, 3, 1, ids, "prefill: sessions #0 and #2 are of different models"},
        {old, 3, 1, ids, "prefill: session #2 holds 2 tokens"},
        {own, 3, 0, ids, "session #2: the prompt is empty"},
        {own, 3, 2, wrong, "session #2: token id #1 is -1"},
        {own, 3, (size_t)-1, ids, "session #2:"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        g.s[2] = bad[i].third, g.n[2] = bad[i].n, g.ids[2] = bad[i].ids;
        CHECK(rkv_sessions_prefill(g.s, g.ids, g.n, bad[i].count, &e) == RKV_E_ARG &&
                  strstr(e.text, bad[i].text),
              "%s, expected %s", e.text, bad[i].text);
        CHECK(rkv_sessions_prefill(g.s, g.ids, g.n, bad[i].count, NULL) == RKV_E_ARG, "no text");
    }
    g.s[2] = own;
    check_empty(&g, before, "refusals", 0);
    free_group(&g);
    rkv_session_free(foreign);
    rkv_session_free(old);
}

/* A policy that cannot be met in one session leaves all as they were. */
static void check_infeasible(const rkv_model *m)
{
    group g = make_group(m, 2, 0, SHORT);
    uint64_t before[KINDS];
    must(rkv_policy_set_budget(&g.s[1]->o.policy, "3", &e));
    g.s[1]->o.policy.selector = "snapkv";
    g.n[1] = SHORT;
    for (size_t i = 0; i < g.count; i++)
        before[i] = look(g.s[i]);
    CHECK(rkv_sessions_prefill(g.s, g.ids, g.n, g.count, &e) == RKV_E_ARG &&
              strstr(e.text, "session #1: "), "%s", e.text);
    check_empty(&g, before, "infeasible", 0);
    free_group(&g);
}

static void check_family(const tiny_options *t)
{
    static const int sizes[] = {1, 2, 3, KINDS};
    uint64_t want[KINDS], further[KINDS], short_want[KINDS];
    rkv_model *m = made_model(t), *other = made_model(t);
    look_alone(m, want, further, N);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int first = 0; first < KINDS; first += 2 + 2 * (int)i)
            check_together(m, want, further, sizes[i], first);
    look_alone(m, short_want, further, SHORT);
    check_no_memory(m, short_want);
    check_stopped(m, short_want);
    check_refusals(m, other);
    check_infeasible(m);
    rkv_model_free(m);
    rkv_model_free(other);
}

int main(void)
{
    static const struct {
        const char *family, *type, *gemm;
    } models[] = {
        {"llama", "mixed", "own"}, {"qwen2", "q8_0", "int16"}, {"gemma3", "mixed", "bf16"},
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        tiny_options t = tiny_defaults();
        t.family = models[i].family;
        t.type = models[i].type;
        t.d_head = 32;
        t.d_model = t.n_head * t.d_head;
        if (!strcmp(t.family, "gemma3")) {
            t.n_layer = 3;
            t.window = 50;
            t.pattern = 2;
            t.tied = 1;
        }
        setenv("RKV_GEMM", models[i].gemm, 1);
        made_ids(ids, N + MORE, t.n_vocab, 23);
        check_family(&t);
    }
    CHECK(rkv_mem_current() == 0, "%llu bytes leaked", (unsigned long long)rkv_mem_current());
    return check_end("joint");
}
