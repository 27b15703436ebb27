/* The decode-time budget on made models: never passed, exact, the tokens that the rule names, and
 * what must be equal to the bit. */
#include "config.h"
#include "evict_oracle.h"

#include "evict_bed.h"

#include "base/mem.h"
#include "engine/plan.h"

/* ---- the bound ---- */

/* What holds between any two tokens: how many things are wrong. */
static int faults(const rkv_session *s, int cap)
{
    const rkv_config *c = &s->m->config;
    int64_t total = 0, bytes = 0, units = 0;
    int wrong = 0;
    for (int l = 0; l < c->n_layer; l++)
        for (int h = 0; h < c->n_kv_head; h++) {
            const rkv_kv_head *head = rkv_kv_at(s->kv, l, h);
            const int n = head->n_slot, window = s->o.policy.window;
            bytes += (int64_t)n * (int64_t)(s->kv->k_bytes + s->kv->v_bytes);
            for (int i = 1; i < n; i++)
                wrong += head->pos[i] <= head->pos[i - 1];
            if (rkv_session_skips(s, l))
                continue;
            units++;
            total += n;
            wrong += n > rkv_evict_most(s, l, h) || head->cap != rkv_evict_most(s, l, h);
            for (int i = 1; i <= window && i <= s->n_past; i++)
                wrong += i > n || head->pos[n - i] != s->n_past - i;
            for (int i = 0; !strcmp(s->o.policy.selector, "streaming") && i < 4; i++)
                wrong += i < s->n_past && head->pos[i] != i;
        }
    const rkv_kv_info kv = rkv_session_kv_info(s);
    return wrong + (total > units * cap) + (bytes != (int64_t)kv.bytes) + (kv.decode_cap != cap);
}

/* Slots of heads that are bounded, and how many hold what an eviction leaves. */
static int64_t slots(const rkv_session *s, int *n_left, int64_t *sum_left)
{
    int64_t total = 0;
    *n_left = 0, *sum_left = 0;
    for (int l = 0; l < s->m->config.n_layer; l++)
        for (int h = 0; rkv_evict_bounds(s, l) && h < s->m->config.n_kv_head; h++) {
            const int n = rkv_kv_at(s->kv, l, h)->n_slot,
                      left = rkv_evict_most(s, l, h) - s->o.decode_interval;
            total += n;
            *sum_left += left;
            *n_left += n == left + 1;           /* and the token since */
        }
    return total;
}

static int64_t n_bounded(const rkv_session *s)
{
    int64_t n = 0;
    for (int l = 0; l < s->m->config.n_layer; l++)
        n += rkv_evict_bounds(s, l) ? s->m->config.n_kv_head : 0;
    return n;
}

static const char *const selectors[] = {"streaming", "snapkv", "h2o", "observed", "tova", "knorm",
                                        "blend"};
static const char *const allocators[] = {"uniform", "pyramid", "ripple", "random", "reversed",
                                         "curve", "root"};

/* One random case; every step is looked at. */
static void check_case(const rkv_model *m, const rkv_profile *profile, uint32_t *seed)
{
    uint32_t r[8];
    char policy[40], prompt[16] = "", bound[16], what[120];
    for (int i = 0; i < 8; i++)
        r[i] = (*seed = *seed * 1664525u + 1013904223u) >> 8;
    const char *selector = selectors[r[4] % 7];
    const int window = (int)(r[0] % 24) + rkv_selector_find(selector)->needs_window,
              interval = 1 + (int)(r[1] % 40), n = 1 + (int)(r[2] % N),
              cap = window + 4 + interval + (int)(r[3] % 90);
    snprintf(policy, sizeof policy, "%s:%s", selector,
             allocators[r[5] % (strcmp(selector, "tova") ? 7 : 5)]);
    snprintf(bound, sizeof bound, "%d", cap);
    if (r[6] % 3 == 0 && window + 4 < n)
        snprintf(prompt, sizeof prompt, "%d", window + 4 + (int)(r[7] % (uint32_t)n));
    snprintf(what, sizeof what, "%s, window %d, prompt of %d to '%s', bound %d, interval %d",
             policy, window, n, prompt, cap, interval);
    rkv_session_options o = options_of(policy, prompt, bound, interval, profile);
    o.policy.window = window;
    rkv_session *s = prefilled(m, &o, n);
    int wrong = faults(s, cap), n_left;
    int64_t last = 0, at = -interval, sum;
    for (int i = n; i < CTX; i++) {
        must(rkv_session_decode(s, ids[i], &e));
        wrong += faults(s, cap);
        if (s->evict.count == last)
            continue;
        wrong += s->evict.count != last + 1 || i - at < interval;
        last = s->evict.count;
        at = i;
        const int64_t total = slots(s, &n_left, &sum);
        wrong += sum != n_bounded(s) * (cap - interval);
        wrong += n_left == n_bounded(s) && total != n_bounded(s) * (cap - interval + 1);
    }
    CHECK(!wrong, "%s: %d faults", what, wrong);
    CHECK(s->evict.count > 0 || cap > 150, "%s: no eviction", what);
    rkv_session_free(s);
}

/* ---- against the rule ---- */

static int heads_apart(const rkv_session *s, const oracle *o)
{
    int apart = 0;
    for (int l = 0; l < s->m->config.n_layer; l++)
        for (int h = 0; h < s->m->config.n_kv_head; h++) {
            const int32_t *pos;
            const int n = rkv_session_kept(s, l, h, &pos);
            const oracle_head *u = &o->head[l * s->m->config.n_kv_head + h];
            /* Of a sliding layer, what the next token sees. */
            const int seen = s->m->config.sliding_window - 1, sliding = rkv_session_skips(s, l),
                      want = sliding && u->n > seen ? seen : u->n;
            int same = sliding ? n >= want : n == want;
            for (int i = 1; same && i <= want; i++)
                same = pos[n - i] == u->at[u->n - i];
            apart += !same;
        }
    return apart;
}

static int best(const float *logits, int n)
{
    int top = 0;
    for (int i = 1; i < n; i++)
        top = logits[i] > logits[top] ? i : top;
    return top;
}

/* Tokens that differ from each other: equal ones have keys of equal norm in the first layer, but
 * for rounding, which must not choose. */
static int32_t distinct(int i, int n_vocab)
{
    return (int32_t)((37 * i + 5) % n_vocab);
}

static void check_rule(const rkv_model *m, const rkv_profile *profile, const char *policy,
                       const char *prompt, int cap, int interval, const char *type)
{
    char bound[16], what[100];
    snprintf(bound, sizeof bound, "%d", cap);
    snprintf(what, sizeof what, "%s, prompt to '%s', %s, bound %d, interval %d", policy, prompt,
             type, cap, interval);
    rkv_session_options so = options_of(policy, prompt, bound, interval, profile);
    so.k_type = so.v_type = type;
    so.policy.window = 12;
    const int n_vocab = m->config.n_vocab, norms = !strncmp(policy, "knorm", 5),
              rounds = strcmp(type, "f32") != 0;
    int32_t prompt_ids[N];
    for (int i = 0; i < N; i++)
        prompt_ids[i] = norms ? distinct(i, n_vocab) : ids[i];
    rkv_session *s = make(m, &so);
    must(rkv_session_prefill(s, prompt_ids, N, &e));
    oracle *o = oracle_create(m, &so.policy, type, N, cap, interval, CTX);
    int apart = 0, other = 0;
    double most = 0.0;
    rkv_session_options whole = options_of("full", "", "", interval, NULL);
    whole.k_type = whole.v_type = type;
    rkv_session *all = make(m, &whole);
    must(rkv_session_prefill(all, prompt_ids, N, &e));
    o->stored = rounds ? all : NULL;
    for (int i = 0; i < N; i++)
        oracle_token(o, prompt_ids[i]);
    rkv_session_free(all);
    o->stored = rounds ? s : NULL;
    for (int i = N; i < CTX; i++) {
        const int top = best(s->logits, n_vocab);
        const int32_t id = norms ? distinct(i, n_vocab) : top;
        other += top != best(o->logits, n_vocab);
        for (int t = 0; t < n_vocab; t++)
            most = fmax(most, fabs((double)s->logits[t] - (double)o->logits[t]));
        apart += heads_apart(s, o);
        must(rkv_session_decode(s, id, &e));
        oracle_token(o, id);
    }
    CHECK(!apart, "%s: %d heads hold other tokens", what, apart);
    CHECK(!other && most < 1e-4, "%s: %d other answers, logits differ by %g", what, other, most);
    CHECK(s->evict.count == o->count && (!o->bound || o->count > 2), "%s: %lld evictions, %d", what,
          (long long)s->evict.count, o->count);
    oracle_free(o);
    rkv_session_free(s);
}

static void check_rules(const rkv_model *m, const rkv_profile *profile)
{
    for (int i = 0; i < 7; i++) {
        char by_layer[40], by_head[40];
        snprintf(by_layer, sizeof by_layer, "%s:ripple", selectors[i]);
        snprintf(by_head, sizeof by_head, "%s:%s", selectors[i],
                 strcmp(selectors[i], "tova") ? "curve" : "pyramid");
        check_rule(m, profile, selectors[i], "", 70, 20, "f32");
        check_rule(m, profile, by_layer, "60%", 90, 1, "f32");
        check_rule(m, profile, by_head, "", 130, 33, "f32");
        check_rule(m, profile, by_head, "30%", 48, 8, "f16");
        check_rule(m, profile, selectors[i], "", 270, 3, "f32");        /* more than one chunk */
    }
    check_rule(m, profile, "snapkv", "40%", CTX, 20, "f32");
}

/* ---- equal bits ---- */

/* Digests after the prompt and after each token. */
static void run(const rkv_model *m, const rkv_session_options *o, uint64_t *out)
{
    rkv_session *s = prefilled(m, o, N);
    *out++ = look(s);
    for (int i = N; i < CTX; i++) {
        must(rkv_session_decode(s, ids[i], &e));
        *out++ = look(s);
    }
    rkv_session_free(s);
}

/* Threads, types; a bound of all there may be, in each unit, is none. */
static void check_same_bits(const rkv_model *m, const char *policy, const char *type)
{
    static uint64_t want[MORE + 1], got[MORE + 1];
    rkv_session_options o = options_of(policy, "", "80", 16, NULL);
    o.k_type = o.v_type = type;
    run(m, &o, want);
    for (int t = 2; t < 4; t++) {
        o.n_thread = t;
        o.n_chunk = 40 * t;
        run(m, &o, got);
        CHECK(!memcmp(want, got, sizeof want), "%s, %s: %d threads", policy, type, t);
    }
    o = options_of(policy, "50%", "", 16, NULL);
    o.k_type = o.v_type = type;
    run(m, &o, want);
    rkv_session *s = make(m, &o);
    const double slot = (double)(s->kv->k_bytes + s->kv->v_bytes) * m->config.n_kv_head *
                        (m->config.n_layer - m->info.n_layer_sliding);
    rkv_session_free(s);
    static const char *const whole[] = {"280", "1000000", "999G", "all bytes"};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        o = options_of(policy, "50%", i == 3 ? "1k" : whole[i], 16, NULL);
        o.k_type = o.v_type = type;
        if (i == 3)
            o.decode_budget = slot * CTX;
        run(m, &o, got);
        CHECK(!memcmp(want, got, sizeof want), "%s, %s: a bound of %s", policy, type, whole[i]);
    }
    o = options_of(policy, "50%", "279", 16, NULL);     /* in force, just not reached */
    o.k_type = o.v_type = type;
    s = prefilled(m, &o, N);
    decode(s, MORE - 1);
    CHECK(s->evict.count == 0 && s->evict.cap == 279, "a bound of 279");
    rkv_session_free(s);
}

/* Units are those of a budget: bytes and shares come to tokens, and blocks are no larger. */
static void check_units(const rkv_model *m)
{
    const int units = (m->config.n_layer - m->info.n_layer_sliding) * m->config.n_kv_head;
    rkv_session_options o = options_of("snapkv", "", "60%", 16, NULL);
    rkv_session *s = prefilled(m, &o, N);
    const size_t slot = s->kv->k_bytes + s->kv->v_bytes;
    CHECK(s->evict.cap == 72, "60 %% of %d: %d", N, s->evict.cap);
    rkv_session_free(s);
    o.decode_kind = RKV_BUDGET_BYTES;
    o.decode_budget = (double)slot * units * 75 - 1;
    s = prefilled(m, &o, N);
    CHECK(s->evict.cap == 74, "bytes of less than 75: %d", s->evict.cap);
    decode(s, MORE);
    size_t taken = 0;
    for (int l = 0; l < m->config.n_layer; l++)
        for (int h = 0; rkv_evict_bounds(s, l) && h < m->config.n_kv_head; h++)
            taken += (size_t)rkv_kv_at(s->kv, l, h)->cap;
    CHECK((double)(taken * slot) <= o.decode_budget, "%zu slots are allocated", taken);
    rkv_session_free(s);
}

/* A batch gives each session the bits that it has alone; so does a fork, at any moment. */
static void check_batch(const rkv_model *m, const rkv_profile *profile)
{
    enum { KINDS = 5 };
    static uint64_t want[KINDS][MORE];
    static const char *const policy[KINDS] = {"h2o", "snapkv", "full", "blend:curve", "tova"};
    rkv_session *s[KINDS], *fork = NULL;
    int wrong = 0;
    for (int round = 0; round < 2; round++) {
        for (int k = 0; k < KINDS; k++) {
            const char *bound = k == 2 ? "" : k % 2 ? "70" : "90";
            const rkv_session_options o = options_of(policy[k], "", bound, 7 + k, profile);
            s[k] = make(m, &o);
            s[k]->o.n_thread = 1 + k % 2;
            must(rkv_session_prefill(s[k], ids, (size_t)(k == 4 ? 1 : N - 11 * k), &e));
        }
        for (int i = 0; i < 100; i++) {
            int32_t id[KINDS];
            for (int k = 0; k < KINDS; k++)
                id[k] = ids[s[k]->n_past];
            for (int k = 0; !round && k < KINDS; k++)
                must(rkv_session_decode(s[k], id[k], &e));
            if (round)
                must(rkv_sessions_decode(s, id, KINDS, &e));
            for (int k = 0; k < KINDS; k++) {
                wrong += round && want[k][i] != look(s[k]);
                want[k][i] = look(s[k]);
            }
            if (round && i % 5 == 0) {          /* the fork goes on in its place */
                must(rkv_session_fork(&fork, s[i / 5 % KINDS], &e));
                rkv_session_free(s[i / 5 % KINDS]);
                s[i / 5 % KINDS] = fork;
            }
        }
        for (int k = 0; k < KINDS; k++)
            rkv_session_free(s[k]);
    }
    CHECK(!wrong, "%d states differ", wrong);
}

/* ---- memory ---- */

/* Prefill takes what is planned, decode nothing after its first token. */
static void check_memory(const rkv_model *m, const char *policy, const char *bound, int threads)
{
    rkv_session_options o = options_of(policy, "", bound, 16, NULL);
    const size_t n = N;
    o.n_thread = threads;
    rkv_session *s = make(m, &o);
    must(rkv_session_budget(s, &s->o.policy, N, &e));
    const rkv_prefill_plan plan = rkv_prefill_plan_of(&s, &n, 1, 0);
    const uint64_t before = rkv_mem_current();
    rkv_mem_peak_reset();
    must(rkv_session_prefill(s, ids, n, &e));
    CHECK(rkv_mem_peak() - before == plan.total, "%s: %llu bytes, planned %llu", policy,
          (unsigned long long)(rkv_mem_peak() - before), (unsigned long long)plan.total);
    decode(s, 1);
    rkv_mem_peak_reset();
    const uint64_t held = rkv_mem_current();
    rkv_mem_fail_after(m->info.n_layer_sliding ? 0 : 1);
    decode(s, MORE - 2);
    rkv_mem_fail_after(0);
    CHECK(m->info.n_layer_sliding || rkv_mem_peak() == held, "%s: decode takes memory", policy);
    CHECK(s->evict.count > 2, "%s: evictions", policy);
    rkv_session_free(s);
}

/* Every allocation fails once; the session is then as it was. */
static void check_no_memory(const rkv_model *m, const char *policy)
{
    const rkv_session_options o = options_of(policy, "", "70", 16, NULL);
    const uint64_t before = rkv_mem_current();
    int k = 0, later = 0;
    for (rkv_status st = RKV_E_MEM; st;) {
        rkv_session *s = NULL, *f = NULL;
        rkv_mem_fail_after(++k);
        st = rkv_session_create(&s, m, &o, &e);
        if (!st && (st = rkv_session_prefill(s, ids, N, &e))) {
            rkv_mem_fail_after(0);
            CHECK(s->n_past == 0 && !s->evict.memory, "allocation %d: a past", k);
            must(rkv_session_prefill(s, ids, N, &e));
        }
        for (int i = 0; !st && i < 40; i++) {
            const uint64_t was = look(s);
            if ((st = rkv_session_decode(s, ids[s->n_past], &e)))
                CHECK(look(s) == was, "allocation %d: changed", k);
            later += st != 0;
        }
        if (!st)
            st = rkv_session_fork(&f, s, &e);
        rkv_mem_fail_after(0);
        CHECK(!st || st == RKV_E_MEM, "allocation %d: %s", k, e.text);
        rkv_session_free(s);
        rkv_session_free(f);
        CHECK(rkv_mem_current() == before, "allocation %d leaks", k);
    }
    CHECK(k > 20 && later, "%s: %d allocations, %d in decode", policy, k, later);
}

static void check_family(const tiny_options *t, uint32_t seed)
{
    static const char *const types[] = {"f16", "q8_0", "q4_0", "bf16"};
    rkv_model *m = made_model(t);
    rkv_profile *profile = made_curves(m);
    made_ids(ids, CTX, t->n_vocab, seed);
    check_rules(m, profile);
    for (int i = 0; i < 150; i++)
        check_case(m, profile, &seed);
    for (int i = 0; i < 7; i++)
        check_same_bits(m, selectors[i], types[i % 4]);
    check_units(m);
    check_batch(m, profile);
    check_memory(m, "h2o", "70", 1);
    check_memory(m, "snapkv:pyramid", "100", 3);
    check_memory(m, "blend", "150", 2);
    check_no_memory(m, "blend");
    check_no_memory(m, "streaming");
    rkv_profile_free(profile);
    rkv_model_free(m);
}

/* Prefill on the paths of 16-bit numbers, where what is observed is less exact: the bound and the
 * bits hold all the same. */
static void check_path(const tiny_options *t, const char *path, uint32_t seed)
{
    setenv("RKV_GEMM", path, 1);
    rkv_model *m = made_model(t);
    rkv_profile *profile = made_curves(m);
    made_ids(ids, CTX, t->n_vocab, seed);
    for (int i = 0; i < 30; i++)
        check_case(m, profile, &seed);
    check_same_bits(m, "blend", "f16");
    check_same_bits(m, "observed", "q8_0");
    check_batch(m, profile);
    check_memory(m, "h2o", "70", 2);
    rkv_profile_free(profile);
    rkv_model_free(m);
}

int main(void)
{
    const tiny_options t = each_family(check_family);
    check_path(&t, "bf16", 17);
    check_path(&t, "int16", 19);
    CHECK(rkv_mem_current() == 0, "%llu bytes leaked", (unsigned long long)rkv_mem_current());
    return check_end("evict");
}
