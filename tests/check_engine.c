/* Sessions on made models of every family: what must be equal to the bit, and what must agree. */
#include "config.h"
#include "made.h"

#include <math.h>

#include "backend/blas.h"
#include "base/mem.h"
#include "engine/session.h"

enum { N = 300, MORE = 40, WINDOW = 32 };

typedef struct run {            /* logits after a prompt, then of some decoded tokens */
    float *logits;              /* [1 + MORE][n_vocab] */
    int n_vocab;
    rkv_kv_info kv;
} run;

static int32_t ids[N + MORE];

static rkv_session *make(const rkv_model *m, const rkv_session_options *o)
{
    rkv_session *s = NULL;
    rkv_error e = {0};
    if (rkv_session_create(&s, m, o, &e)) {
        fprintf(stderr, "session: %s\n", e.text);
        exit(1);
    }
    return s;
}

static void must(rkv_status s, const rkv_error *e)
{
    if (s) {
        fprintf(stderr, "unexpected: %s\n", e->text);
        exit(1);
    }
}

/* Decodes MORE ids and collects all logits. */
static run finish(rkv_session *s, const rkv_model *m)
{
    rkv_error e = {0};
    run r = {.n_vocab = rkv_model_get_info(m)->n_vocab};
    const size_t row = (size_t)r.n_vocab * sizeof(float);
    r.logits = malloc((1 + MORE) * row);
    memcpy(r.logits, rkv_session_logits(s), row);
    for (int i = 0; i < MORE; i++) {
        must(rkv_session_decode(s, ids[N + i], &e), &e);
        memcpy((char *)r.logits + (size_t)(1 + i) * row, rkv_session_logits(s), row);
    }
    r.kv = rkv_session_kv_info(s);
    rkv_session_free(s);
    return r;
}

static run run_session(const rkv_model *m, const rkv_session_options *o)
{
    rkv_error e = {0};
    rkv_session *s = make(m, o);
    must(rkv_session_prefill(s, ids, N, &e), &e);
    return finish(s, m);
}

static int same(const run *a, const run *b)
{
    return !memcmp(a->logits, b->logits, (size_t)(1 + MORE) * (size_t)a->n_vocab * sizeof(float));
}

static double furthest(const float *a, const float *b, size_t n)
{
    double most = 0.0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

/* The result depends neither on threads, nor on the chunk, nor on a cut of the prompt into
 * calls of more than one token, nor on a budget that takes everything. */
static void check_same_bits(const rkv_model *m, const rkv_session_options *base, const run *want)
{
    rkv_error e = {0};
    rkv_session_options o = *base;
    static const int threads[] = {2, 3}, chunks[] = {1, 7, 64, 1000};
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        o = *base;
        o.n_thread = threads[i];
        run r = run_session(m, &o);
        CHECK(same(want, &r), "%d threads", threads[i]);
        free(r.logits);
    }
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        o = *base;
        o.n_chunk = chunks[i];
        run r = run_session(m, &o);
        CHECK(same(want, &r), "chunks of %d", chunks[i]);
        free(r.logits);
    }
    o = *base;
    must(rkv_policy_set_name(&o.policy, "snapkv", &e), &e);
    must(rkv_policy_set_budget(&o.policy, "100%", &e), &e);
    run full = run_session(m, &o);
    CHECK(same(want, &full) && full.kv.bytes == want->kv.bytes, "a budget of 100 %%");
    free(full.logits);
    rkv_session *s = make(m, base);
    must(rkv_session_prefill(s, ids, 100, &e), &e);
    must(rkv_session_prefill(s, ids + 100, 2, &e), &e);
    must(rkv_session_prefill(s, ids + 102, N - 102, &e), &e);
    run parts = finish(s, m);
    CHECK(same(want, &parts), "prompt in three parts");
    free(parts.logits);
}

/* A call of one token is a step of decode. */
static void check_one_token(const rkv_model *m, const rkv_session_options *base)
{
    rkv_error e = {0};
    run r[2];
    for (int decode = 0; decode < 2; decode++) {
        rkv_session *s = make(m, base);
        must(rkv_session_prefill(s, ids, N - 1, &e), &e);
        must(decode ? rkv_session_decode(s, ids[N - 1], &e)
                    : rkv_session_prefill(s, ids + N - 1, 1, &e), &e);
        r[decode] = finish(s, m);
    }
    CHECK(same(&r[0], &r[1]), "prefill of one token and decode");
    free(r[0].logits);
    free(r[1].logits);
}

/* Decoded logits agree with those of one prefill over everything. */
static void check_decode(const rkv_model *m, const rkv_session_options *base, const run *want)
{
    rkv_error e = {0};
    rkv_session *s = make(m, base);
    must(rkv_session_prefill(s, ids, N + MORE, &e), &e);
    const size_t n = (size_t)want->n_vocab;
    const double d = furthest(rkv_session_logits(s), want->logits + MORE * n, n);
    CHECK(d < 2e-2, "decode and prefill differ by %g", d);
    CHECK(rkv_session_n_past(s) == N + MORE, "positions");
    rkv_session_free(s);
}

static int count_rows(void *ctx, int64_t i0, int n_row, const float *logits)
{
    const run *want = ctx;
    const size_t n = (size_t)want->n_vocab;
    for (int i = 0; i < n_row; i++)
        if (i0 + i == N - 1)
            CHECK(furthest(logits + (size_t)i * n, want->logits, n) < 2e-3, "last row");
    check_passed += n_row > 0;
    return 0;
}

static void check_score(const rkv_model *m, const rkv_session_options *base, run *want)
{
    rkv_error e = {0};
    rkv_session *s = make(m, base);
    must(rkv_session_score(s, ids, N, 5, count_rows, want, &e), &e);
    rkv_session_free(s);
}

/* Kept sets: exact totals, the window inside, ascending; the same whether the prompt was compressed
 * on the way or afterwards; and decoding after either gives the same bits. */
static void check_compression(const rkv_model *m, const rkv_session_options *base,
                              const char *selector)
{
    rkv_error e = {0};
    const rkv_model_info *info = rkv_model_get_info(m);
    rkv_session_options o = *base;
    must(rkv_policy_set_name(&o.policy, selector, &e), &e);
    must(rkv_policy_set_budget(&o.policy, "20%", &e), &e);
    rkv_session *a = make(m, &o), *b, *c;
    must(rkv_session_prefill(a, ids, N, &e), &e);
    const rkv_policy policy = o.policy;
    o.observe = rkv_policy_observes(&policy);
    o.policy.budget_kind = RKV_BUDGET_NONE;
    b = make(m, &o);
    must(rkv_session_prefill(b, ids, N, &e), &e);
    must(rkv_session_fork(&c, b, &e), &e);
    must(rkv_session_compress(c, &policy, &e), &e);
    int wrong = 0, n_sliding = 0;
    for (int l = 0; l < info->n_layer; l++)
        for (int h = 0; h < info->n_kv_head; h++) {
            const int32_t *pa, *pc;
            const int na = rkv_session_kept(a, l, h, &pa), nc = rkv_session_kept(c, l, h, &pc);
            wrong += na != nc || memcmp(pa, pc, (size_t)na * sizeof *pa);
            if (rkv_model_layer_is_sliding(m, l)) {
                n_sliding++;
                continue;
            }
            wrong += na != N / 5 || rkv_session_head_budget(a, l, h) != na;
            for (int i = 1; i < na; i++)
                wrong += pa[i] <= pa[i - 1];
            for (int i = 0; i < WINDOW; i++)
                wrong += pa[na - WINDOW + i] != N - WINDOW + i;
        }
    CHECK(wrong == 0, "%d faults in the kept sets", wrong);
    const rkv_kv_info kv = rkv_session_kv_info(a);
    CHECK(kv.n_kept == (int64_t)(N / 5) * (info->n_layer - info->n_layer_sliding) &&
              kv.cap == N / 5,
          "total");
    CHECK(n_sliding == info->n_layer_sliding * info->n_kv_head, "sliding layers");
    CHECK(kv.bytes < kv.bytes_full, "%llu of %llu bytes", (unsigned long long)kv.bytes,
          (unsigned long long)kv.bytes_full);
    CHECK(rkv_session_compress(c, &policy, &e) == RKV_E_ARG, "compressed twice");
    run ra = finish(a, m), rc = finish(c, m), rb = finish(b, m);
    CHECK(same(&ra, &rc), "compressed on the way or afterwards");
    CHECK(!memcmp(ra.logits, rb.logits, (size_t)ra.n_vocab * sizeof(float)),
          "first logits come from the full cache");
    CHECK(!same(&ra, &rb), "a fifth of the cache changes later logits");
    free(ra.logits);
    free(rb.logits);
    free(rc.logits);
}

static int stop_later(void *ctx, const char *phase, int64_t done, int64_t total)
{
    (void)phase, (void)done, (void)total;
    return --*(int *)ctx < 0;
}

/* A stopped call leaves the session as it was: the rest of the test then gives the same bits. */
static void check_rollback(const rkv_model *m, const rkv_session_options *base, const run *want)
{
    rkv_error e = {0};
    rkv_session_options o = *base;
    int left = 2;
    o.progress = stop_later;
    o.progress_ctx = &left;
    o.n_chunk = 64;
    rkv_session *s = make(m, &o);
    CHECK(rkv_session_prefill(s, ids, N, &e) == RKV_E_CANCELLED && rkv_session_n_past(s) == 0 &&
          !rkv_session_logits(s) && rkv_session_kv_info(s).bytes == 0, "first prompt: %s", e.text);
    CHECK(rkv_session_kv_info(s).n_kept == 0 && rkv_session_kv_info(s).cap == 0, "its budget");
    left = 1000;
    must(rkv_session_prefill(s, ids, 200, &e), &e);
    left = 2;
    CHECK(rkv_session_prefill(s, ids + 200, N - 200, &e) == RKV_E_CANCELLED &&
              rkv_session_n_past(s) == 200,
          "second: %s", e.text);
    left = 1000;
    must(rkv_session_prefill(s, ids + 200, N - 200, &e), &e);
    run r = finish(s, m);
    CHECK(same(want, &r), "after two stops");
    free(r.logits);
}

static void check_refusals(const rkv_model *m)
{
    rkv_error e = {0};
    rkv_session_options o = rkv_session_options_default();
    o.n_ctx = 10;
    rkv_session *s = make(m, &o);
    const int32_t negative[] = {1, -1}, large[] = {rkv_model_get_info(m)->n_vocab};
    CHECK(rkv_session_prefill(s, ids, 0, &e) == RKV_E_ARG && strstr(e.text, "empty"), "%s", e.text);
    CHECK(rkv_session_prefill(s, ids, 11, &e) == RKV_E_ARG && strstr(e.text, "context of 10"), "%s",
          e.text);
    CHECK(rkv_session_prefill(s, negative, 2, &e) == RKV_E_ARG && strstr(e.text, "#1 is -1"), "%s",
          e.text);
    CHECK(rkv_session_prefill(s, large, 1, &e) == RKV_E_ARG, "%s", e.text);
    CHECK(rkv_session_score(s, ids, 10, 11, count_rows, NULL, &e) == RKV_E_ARG &&
              rkv_session_n_past(s) == 0, "rows from 11 of 10 on: %s", e.text);
    CHECK(rkv_session_score(s, ids, 10, SIZE_MAX, count_rows, NULL, &e) == RKV_E_ARG, "%s",
          e.text);
    must(rkv_session_prefill(s, ids, 10, &e), &e);
    CHECK(rkv_session_decode(s, 1, &e) == RKV_E_ARG && strstr(e.text, "context of 10"), "%s",
          e.text);
    rkv_session_free(s);
    static const struct {
        int n_ctx, n_thread, n_chunk;
        const char *k, *v;
    } bad[] = {{-1, 0, 256, "f16", "f16"}, {0, -1, 256, "f16", "f16"}, {0, 0, 0, "f16", "f16"},
               {0, 0, 256, "q9", "f16"}, {0, 0, 256, "f16", "q4_k"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        o = rkv_session_options_default();
        o.n_ctx = bad[i].n_ctx;
        o.n_thread = bad[i].n_thread;
        o.n_chunk = bad[i].n_chunk;
        o.k_type = bad[i].k;
        o.v_type = bad[i].v;
        CHECK(rkv_session_create(&s, m, &o, &e) == RKV_E_ARG, "options %zu pass", i);
    }
    o = rkv_session_options_default();
    must(rkv_policy_set_name(&o.policy, "ripple", &e), &e);
    must(rkv_policy_set_budget(&o.policy, "20%", &e), &e);
    CHECK(rkv_session_create(&s, m, &o, &e) == RKV_E_ARG && strstr(e.text, "profile"), "%s",
          e.text);
    must(rkv_policy_set_name(&o.policy, "snapkv", &e), &e);
    must(rkv_policy_set_budget(&o.policy, "35", &e), &e);
    s = make(m, &o);
    CHECK(rkv_session_prefill(s, ids, N, &e) == RKV_E_ARG && strstr(e.text, "floor"), "%s", e.text);
    CHECK(rkv_session_n_past(s) == 0, "nothing was taken");
    rkv_session_free(s);
}

/* The strings of the options need not outlive the call. */
static void check_borrowed(const rkv_model *m)
{
    rkv_error e = {0};
    char type[] = "f32", selector[] = "snapkv", allocator[] = "uniform";
    rkv_session_options o = rkv_session_options_default();
    o.k_type = o.v_type = type;
    o.policy.selector = selector;
    o.policy.allocator = allocator;
    o.policy.budget_kind = RKV_BUDGET_TOKENS;
    o.policy.budget = 40;
    rkv_session *s = make(m, &o), *f = NULL;
    memset(type, 'x', sizeof type - 1);
    memset(selector, 'x', sizeof selector - 1);
    memset(allocator, 'x', sizeof allocator - 1);
    CHECK(!rkv_session_fork(&f, s, &e), "%s", e.text);
    CHECK(!rkv_session_prefill(s, ids, N, &e) && rkv_session_kv_info(s).cap == 40, "%s", e.text);
    rkv_session_free(s);
    rkv_session_free(f);
}

/* Compression that ends half-way for want of memory is an error, and no second one may follow: it
 * would keep other tokens. */
static void check_half_compressed(const rkv_model *m, const char *selector)
{
    rkv_error e = {0};
    rkv_session_options o = rkv_session_options_default();
    o.n_thread = 1;
    o.observe = RKV_OBSERVE_QUERIES | RKV_OBSERVE_MASS | RKV_OBSERVE_RECENT;
    rkv_session *s = make(m, &o);
    must(rkv_session_prefill(s, ids, N, &e), &e);
    rkv_policy p = rkv_policy_default();
    must(rkv_policy_set_name(&p, selector, &e), &e);
    must(rkv_policy_set_budget(&p, "20%", &e), &e);
    int k = 0, refused = 0;
    for (rkv_status st = RKV_E_MEM; st; k++) {
        rkv_session *f = NULL;
        must(rkv_session_fork(&f, s, &e), &e);
        rkv_mem_fail_after(k + 1);
        st = rkv_session_compress(f, &p, &e);
        rkv_mem_fail_after(0);
        CHECK(!st || st == RKV_E_MEM, "allocation %d: %s", k, e.text);
        const int whole = rkv_session_kv_info(f).bytes == rkv_session_kv_info(s).bytes;
        const rkv_status again = st ? rkv_session_compress(f, &p, &e) : RKV_E_ARG;
        refused += st && again == RKV_E_ARG;
        CHECK(whole || again == RKV_E_ARG, "allocation %d: compressed once more", k);
        rkv_session_free(f);
    }
    CHECK(k > 5 && refused > 0, "%s: %d allocations, %d refused", selector, k, refused);
    rkv_session_free(s);
}

/* Short prompts: one token, fewer than the window, exactly the floor; a tight budget on them. */
static void check_short(const rkv_model *m, const char *selector)
{
    static const int lengths[] = {1, 2, 31, 32, 33, 36, 63, 64, 65, 128};
    rkv_error e = {0};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const int n = lengths[i];
        rkv_session_options o = rkv_session_options_default();
        must(rkv_policy_set_name(&o.policy, selector, &e), &e);
        must(rkv_policy_set_budget(&o.policy, "36", &e), &e);
        rkv_session *s = make(m, &o);
        must(rkv_session_prefill(s, ids, (size_t)n, &e), &e);
        must(rkv_session_decode(s, ids[n], &e), &e);
        const rkv_kv_info kv = rkv_session_kv_info(s);
        CHECK(kv.cap == (n < 36 ? n : 36), "%s, %d tokens: cap %d", selector, n, kv.cap);
        int bad = 0;
        for (int t = 0; t < rkv_model_get_info(m)->n_vocab; t++)
            bad += !isfinite(rkv_session_logits(s)[t]);
        CHECK(bad == 0, "%s, %d tokens: %d logits are not finite", selector, n, bad);
        rkv_session_free(s);
    }
}

/* Every allocation fails once, in loading, prefill with compression, decode and fork; nothing
 * leaks. */
static void check_no_memory(const tiny_options *t, const char *selector, int observe)
{
    rkv_error e = {0};
    char path[] = "/tmp/rkv-made-XXXXXX";
    const int fd = mkstemp(path);
    must(tiny_write(t, path, &e), &e);
    close(fd);
    const uint64_t before = rkv_mem_current();
    int k = 0, done = 0;
    while (!done) {
        rkv_model *m = NULL;
        rkv_session *s = NULL, *f = NULL;
        rkv_session_options o = rkv_session_options_default();
        o.n_thread = 1;
        o.observe = observe;
        must(rkv_policy_set_name(&o.policy, selector, &e), &e);
        must(rkv_policy_set_budget(&o.policy, "30%", &e), &e);
        rkv_mem_fail_after(++k);
        rkv_status st = rkv_model_load(&m, path, &e);
        if (!st)
            st = rkv_session_create(&s, m, &o, &e);
        if (!st)
            st = rkv_session_prefill(s, ids, N, &e);
        if (!st)
            st = rkv_session_decode(s, ids[0], &e);
        if (!st)
            st = rkv_session_fork(&f, s, &e);
        rkv_mem_fail_after(0);
        if (st && st != RKV_E_MEM)
            CHECK(0, "allocation %d: %s", k, e.text);
        rkv_session_free(s);
        rkv_session_free(f);
        rkv_model_free(m);
        if (rkv_mem_current() != before)
            CHECK(0, "allocation %d leaks %lld bytes", k, (long long)(rkv_mem_current() - before));
        done = !st;
    }
    CHECK(k > 50, "only %d allocations", k);
    unlink(path);
}

/* OpenBLAS in prefill: the same logits but for rounding, half-precision keys included. Without it,
 * RKV_GEMM=blas is refused. */
static void check_blas(const tiny_options *t, const run *want)
{
    setenv("RKV_GEMM", "blas", 1);
    rkv_error e = {0};
    if (rkv_blas_load(NULL)) {
        rkv_model *m = NULL;
        char path[] = "/tmp/rkv-made-XXXXXX";
        close(mkstemp(path));
        must(tiny_write(t, path, &e), &e);
        CHECK(rkv_model_load(&m, path, &e) == RKV_E_UNSUPPORTED, "%s", e.text);
        CHECK(strstr(e.text, "RKV_GEMM=own"), "%s", e.text);
        unlink(path);
    } else {
        rkv_session_options o = rkv_session_options_default();
        o.n_thread = 1;
        rkv_model *m = made_model(t);
        run r = run_session(m, &o);
        const double apart =
            furthest(r.logits, want->logits, (size_t)(1 + MORE) * (size_t)r.n_vocab);
        CHECK(apart < 5e-3 && apart > 0.0, "logits differ by %g", apart);
        free(r.logits);
        rkv_model_free(m);
    }
    setenv("RKV_GEMM", "own", 1);
}

/* Small cache types: bytes as promised, everything equal to the bit that must be, logits as near to
 * those of f32 as the type allows, and no nearer than a type that lost nothing would be. Heads that
 * blocks do not divide are refused. */
static void check_cache_types(tiny_options t, const rkv_model *narrow)
{
    static const struct {
        const char *name;
        double bits, least, most;
    } types[] = {{"bf16", 16.0, 1e-5, 0.1}, {"q8_0", 8.5, 1e-5, 0.2}, {"q4_0", 4.5, 1e-3, 3.0}};
    rkv_error e = {0};
    t.d_head = 32;
    t.d_model = t.n_head * t.d_head;
    rkv_model *m = made_model(&t);
    rkv_session_options o = rkv_session_options_default();
    o.n_thread = 1;
    o.k_type = o.v_type = "f32";
    run exact = run_session(m, &o);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        o.k_type = o.v_type = types[i].name;
        run r = run_session(m, &o);
        const double apart =
            furthest(r.logits, exact.logits, (size_t)(1 + MORE) * (size_t)r.n_vocab);
        CHECK(apart > types[i].least && apart < types[i].most, "%s: logits differ by %g",
              types[i].name, apart);
        CHECK((double)r.kv.bytes == (double)exact.kv.bytes * types[i].bits / 32.0,
              "%s: %llu bytes, %llu in f32", types[i].name, (unsigned long long)r.kv.bytes,
              (unsigned long long)exact.kv.bytes);
        check_same_bits(m, &o, &r);
        check_one_token(m, &o);
        check_decode(m, &o, &r);
        check_compression(m, &o, "snapkv");
        check_compression(m, &o, "h2o");
        check_compression(m, &o, "blend");
        free(r.logits);
    }
    rkv_session *s;
    o.k_type = "f16", o.v_type = "q8_0";
    CHECK(rkv_session_create(&s, narrow, &o, &e) == RKV_E_ARG && strstr(e.text, "blocks of 32"),
          "heads of 16: %s", e.text);
    free(exact.logits);
    rkv_model_free(m);
}

static void check_family(const tiny_options *t)
{
    rkv_model *m = made_model(t);
    rkv_session_options base = rkv_session_options_default();
    base.n_thread = 1;
    made_ids(ids, N + MORE, rkv_model_get_info(m)->n_vocab, 7);
    run want = run_session(m, &base);
    check_same_bits(m, &base, &want);
    check_decode(m, &base, &want);
    check_score(m, &base, &want);
    check_compression(m, &base, "snapkv");
    check_compression(m, &base, "h2o");
    check_compression(m, &base, "observed");
    check_compression(m, &base, "blend");
    check_rollback(m, &base, &want);
    check_short(m, "snapkv");
    check_short(m, "h2o");
    check_short(m, "observed");
    check_short(m, "blend");
    check_refusals(m);
    check_borrowed(m);
    check_half_compressed(m, "snapkv");
    check_half_compressed(m, "observed");
    check_half_compressed(m, "blend");
    check_blas(t, &want);
    check_cache_types(*t, m);
    free(want.logits);
    rkv_model_free(m);
}

int main(void)
{
    setenv("RKV_GEMM", "own", 1); /* the tolerances are those of f32; check_pairs has the others */
    tiny_options t = tiny_defaults();
    static const char *const families[] = {"llama", "qwen2", "qwen3"};
    static const char *const ropes[] = {"llama3", "linear", "yarn"};
    for (int i = 0; i < 3; i++) {
        t = tiny_defaults();
        t.family = families[i];
        t.rope = ropes[i];
        t.type = i == 0 ? "mixed" : "f16";
        check_family(&t);
    }
    t = tiny_defaults();
    t.family = "gemma3";
    t.n_layer = 4;
    t.window = 50;
    t.pattern = 2;
    t.tied = 1;
    check_family(&t);
    t.n_layer = 2;
    check_no_memory(&t, "snapkv", RKV_OBSERVE_QUERIES);
    check_no_memory(&t, "h2o", RKV_OBSERVE_QUERIES | RKV_OBSERVE_MASS);
    check_no_memory(&t, "observed", 0);
    check_no_memory(&t, "blend", RKV_OBSERVE_MASS | RKV_OBSERVE_RECENT);
    return check_end("engine");
}
