/* Sessions whose KV heads have budgets of their own, on made models: exact counts, room and memory,
 * the same kept sets on the way and afterwards, and what must be equal to the bit. */
#include "config.h"
#include "made_curves.h"

#include "base/mem.h"
#include "engine/session.h"

enum { N = 300, MORE = 60 };

static int32_t ids[N + MORE];

static void must(rkv_status s, const rkv_error *e)
{
    if (s) {
        fprintf(stderr, "unexpected: %s\n", e->text);
        exit(1);
    }
}

static rkv_session *make(const rkv_model *m, const rkv_session_options *o)
{
    rkv_error e = {0};
    rkv_session *s = NULL;
    must(rkv_session_create(&s, m, o, &e), &e);
    return s;
}

static rkv_session_options options_of(const rkv_profile *p, const char *budget, int n_thread)
{
    rkv_error e = {0};
    rkv_session_options o = rkv_session_options_default();
    must(rkv_policy_set_name(&o.policy, "curve", &e), &e);
    must(rkv_policy_set_budget(&o.policy, budget, &e), &e);
    o.policy.profile = p;
    o.policy.recent = 100;
    o.n_thread = n_thread;
    o.n_ctx = 2000;
    return o;
}

/* Kept sets of both are the same: how many heads differ. */
static int heads_apart(const rkv_session *a, const rkv_session *b)
{
    int apart = 0;
    for (int l = 0; l < a->m->config.n_layer; l++)
        for (int h = 0; h < a->m->config.n_kv_head; h++) {
            const int32_t *x, *y;
            const int n = rkv_session_kept(a, l, h, &x);
            apart += n != rkv_session_kept(b, l, h, &y) || memcmp(x, y, (size_t)n * sizeof *x);
        }
    return apart;
}

/* What the session keeps is what its budgets say, which add up and differ. */
static void check_counts(const rkv_session *s, const char *what)
{
    const rkv_config *c = &s->m->config;
    int64_t total = 0, n_layer = 0, slots = 0, least = N, most = 0;
    int wrong = 0, room = 0;
    for (int l = 0; l < c->n_layer; l++)
        for (int h = 0; h < c->n_kv_head; h++) {
            const int32_t *pos;
            const int n = rkv_session_kept(s, l, h, &pos), want = rkv_session_head_budget(s, l, h);
            slots += n;
            if (rkv_session_skips(s, l))
                continue;
            room += rkv_kv_at(s->kv, l, h)->cap < n + 1000;
            n_layer += h == 0;
            total += want;
            least = want < least ? want : least;
            most = want > most ? want : most;
            wrong += n != want || pos[n - 1] != N - 1;
        }
    const rkv_kv_info kv = rkv_session_kv_info(s);
    CHECK(!wrong && !room, "%s: %d heads keep other than their budget, %d have no room", what,
          wrong, room);
    CHECK(total == n_layer * c->n_kv_head * kv.cap && kv.n_kept == n_layer * kv.cap, "%s: %lld",
          what, (long long)total);
    CHECK(kv.bytes == (uint64_t)slots * (s->kv->k_bytes + s->kv->v_bytes), "%s: bytes", what);
    CHECK(least < kv.cap && most > kv.cap, "%s: budgets from %lld to %lld", what, (long long)least,
          (long long)most);
}

/* Some tokens one by one, then some at once: digest of the logits, which must not be all alike. */
static void go_on(rkv_session *s, float *logits)
{
    rkv_error e = {0};
    const size_t row = (size_t)s->m->config.n_vocab;
    for (int i = 0; i < 3; i++, logits += row) {
        must(rkv_session_decode(s, ids[N + i], &e), &e);
        memcpy(logits, rkv_session_logits(s), row * sizeof *logits);
    }
    must(rkv_session_prefill(s, ids + N + 3, MORE - 3, &e), &e);
    memcpy(logits, rkv_session_logits(s), row * sizeof *logits);
}

/* Later tokens make every head longer by as many, and no head as long as the longest. */
static void check_growth(rkv_session *s)
{
    const rkv_config *c = &s->m->config;
    const int most = N + MORE + 1024;
    int wrong = 0;
    for (int l = 0; l < c->n_layer; l++)
        for (int h = 0; h < c->n_kv_head; h++) {
            const rkv_kv_head *head = rkv_kv_at(s->kv, l, h);
            const int budget = rkv_session_head_budget(s, l, h);
            if (rkv_session_skips(s, l))
                continue;
            wrong += head->n_slot != budget + MORE || head->cap > most - N + budget;
        }
    CHECK(!wrong, "%d heads have other lengths or too much room", wrong);
}

static void check_budget(const rkv_model *m, const rkv_profile *p, const char *budget)
{
    rkv_error e = {0};
    const size_t bytes = 4 * (size_t)m->config.n_vocab * sizeof(float);
    float *want = malloc(bytes), *got = malloc(bytes);
    rkv_session_options o = options_of(p, budget, 1);
    const rkv_policy policy = o.policy;
    rkv_session *way = make(m, &o), *fork, *later;
    must(rkv_session_prefill(way, ids, N, &e), &e);
    check_counts(way, budget);
    must(rkv_session_fork(&fork, way, &e), &e);
    CHECK(!heads_apart(way, fork), "%s: a fork", budget);
    go_on(way, want);
    check_growth(way);
    go_on(fork, got);
    CHECK(!memcmp(want, got, bytes), "%s: a fork goes on as the other", budget);
    for (int i = 0; i < 3; i++) {
        o = options_of(p, budget, 1 + i % 2);
        o.n_chunk = i ? 33 : 256;
        o.observe = rkv_policy_observes(&policy);
        o.policy.budget_kind = RKV_BUDGET_NONE;
        rkv_session *full = make(m, &o);
        must(rkv_session_prefill(full, ids, N, &e), &e);
        must(rkv_session_fork(&later, full, &e), &e);
        must(rkv_session_compress(later, &policy, &e), &e);
        check_counts(later, "later");
        CHECK(later->cap == way->cap, "cap %d", later->cap);
        go_on(later, got);
        CHECK(!heads_apart(way, later) && !memcmp(want, got, bytes),
              "%s: compressed later, case %d", budget, i);
        rkv_session_free(full);
        rkv_session_free(later);
    }
    rkv_session_free(way);
    rkv_session_free(fork);
    free(want);
    free(got);
}

/* Every allocation fails once, in prefill with compression, in later tokens and in compression
 * afterwards; nothing leaks, and a prefill that failed can be tried again. */
static void check_no_memory(const rkv_model *m, const rkv_profile *p)
{
    rkv_error e = {0};
    rkv_session_options o = options_of(p, "30%", 1);
    const rkv_policy policy = o.policy;
    o.observe = rkv_policy_observes(&policy);
    o.policy.budget_kind = RKV_BUDGET_NONE;
    rkv_session *full = make(m, &o);
    must(rkv_session_prefill(full, ids, N, &e), &e);
    o = options_of(p, "30%", 1);
    const uint64_t before = rkv_mem_current();
    int k = 0;
    for (rkv_status st = RKV_E_MEM; st;) {
        rkv_session *s = NULL, *f = NULL;
        rkv_mem_fail_after(++k);
        st = rkv_session_create(&s, m, &o, &e);
        if (!st && (st = rkv_session_prefill(s, ids, N, &e))) {
            rkv_mem_fail_after(0);
            CHECK(!rkv_session_n_past(s) && !rkv_session_prefill(s, ids, N, &e), "%s", e.text);
        }
        if (!st)
            st = rkv_session_prefill(s, ids + N, MORE, &e);
        if (!st)
            st = rkv_session_fork(&f, full, &e);
        if (!st)
            st = rkv_session_compress(f, &policy, &e);
        rkv_mem_fail_after(0);
        CHECK(!st || st == RKV_E_MEM, "allocation %d: %s", k, e.text);
        rkv_session_free(s);
        rkv_session_free(f);
        CHECK(rkv_mem_current() == before, "allocation %d leaks", k);
    }
    CHECK(k > 50, "only %d allocations", k);
    rkv_session_free(full);
}

/* A profile without curves, and none, are refused before the work. */
static void check_refused(const rkv_model *m)
{
    rkv_error e = {0};
    rkv_profile *plain = NULL;
    rkv_session *s = NULL;
    rkv_session_options o = options_of(NULL, "20%", 1);
    CHECK(rkv_session_create(&s, m, &o, &e) == RKV_E_ARG && strstr(e.text, "rkv profile --signals"),
          "%s", e.text);
    must(rkv_profile_create(&plain, rkv_model_get_info(m), &e), &e);
    o.policy.profile = plain;
    CHECK(rkv_session_create(&s, m, &o, &e) == RKV_E_MISMATCH && strstr(e.text, "damage curves"),
          "%s", e.text);
    rkv_profile_free(plain);
}

int main(void)
{
    static const char *const families[] = {"llama", "qwen3", "gemma3"};
    setenv("RKV_GEMM", "own", 1);
    for (int i = 0; i < 3; i++) {
        tiny_options t = tiny_defaults();
        t.family = families[i];
        t.n_layer = 4;
        t.n_head = i == 1 ? 3 : 4;
        t.n_kv_head = i == 1 ? 3 : 2;
        t.d_model = t.n_head * t.d_head;
        t.window = i == 2 ? 50 : 0;
        t.pattern = i == 2 ? 2 : 0;
        rkv_model *m = made_model(&t);
        rkv_profile *p = made_curves(m);
        made_ids(ids, N + MORE, t.n_vocab, 13);
        check_budget(m, p, "15%");
        check_budget(m, p, "40%");
        check_budget(m, p, "85%");      /* some heads keep all */
        check_no_memory(m, p);
        check_refused(m);
        rkv_profile_free(p);
        rkv_model_free(m);
    }
    return check_end("ragged");
}
