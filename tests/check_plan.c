/* Memory that a prefill takes: planned against counted, and refused when it is not there. */
#include "config.h"
#include "made_curves.h"

#include <sys/resource.h>
#include <sys/wait.h>

#include "base/mem.h"
#include "engine/plan.h"

enum { N = 300, MORE = 50 };

static int32_t ids[N + MORE];

static void must(rkv_status s, const rkv_error *e)
{
    if (s) {
        fprintf(stderr, "unexpected: %s\n", e->text);
        exit(1);
    }
}

static int drop_rows(void *ctx, int64_t i0, int n_row, const float *logits)
{
    (void)ctx, (void)i0, (void)n_row, (void)logits;
    return 0;
}

/* One prefill of n ids, with rows of logits or without: the peak it was planned and counted at. */
static void check_prefill(rkv_session *s, const int32_t *at, int n, int with_rows, const char *what)
{
    rkv_error e = {0};
    const size_t count = (size_t)n;
    if (!s->n_past)
        must(rkv_session_budget(s, &s->o.policy, n, &e), &e);
    const rkv_prefill_plan plan = rkv_prefill_plan_of(&s, &count, 1, with_rows);
    const uint64_t before = rkv_mem_current();
    rkv_mem_peak_reset();
    must(rkv_session_score(s, at, (size_t)n, 0, with_rows ? drop_rows : NULL, NULL, &e), &e);
    const uint64_t counted = rkv_mem_peak() - before;
    CHECK(plan.total == counted, "%s: %d ids take %llu bytes, planned %llu", what, n,
          (unsigned long long)counted, (unsigned long long)plan.total);
    CHECK(rkv_session_plan_bytes(s) == before + counted, "%s: told %llu bytes, had %llu", what,
          (unsigned long long)rkv_session_plan_bytes(s), (unsigned long long)(before + counted));
}

static void check_sizes(const rkv_model *m, const rkv_profile *profile, const char *family)
{
    static const struct {
        const char *policy, *budget;
        int n_ctx, n_thread, n_chunk, observe;
        const char *type;
    } cases[] = {
        {"full", "full", 4000, 1, 256, 0, "f16"}, {"full", "full", N + MORE, 3, 7, 0, "f32"},
        {"full", "full", 4000, 1, 64, 1, "f16"},  {"snapkv", "20%", 4000, 1, 256, 0, "f16"},
        {"snapkv", "90%", 4000, 2, 300, 0, "f16"}, /* and its room: more than the whole prompt */
        {"snapkv", "50%", N + MORE, 1, 1, 1, "f32"}, {"snapkv", "100%", 4000, 1, 256, 0, "f16"},
        {"h2o", "20%", 4000, 1, 256, 0, "f16"},   {"h2o", "90%", N + MORE, 3, 1, 3, "f16"},
        {"observed", "30%", 4000, 2, 7, 1, "f32"}, {"full", "full", 4000, 1, 256, 2, "f16"},
        {"snapkv", "30%", 4000, 1, 64, 2, "f16"}, {"blend", "20%", 4000, 2, 64, 0, "f16"},
        {"blend", "30%", 4000, 1, 7, 7, "f32"},   {"h2o", "20%", 4000, 1, 256, 4, "f16"},
        {"curve", "15%", 4000, 1, 256, 0, "f16"}, {"snapkv:curve", "85%", 4000, 2, 256, 4, "f16"},
        {"h2o:root", "70%", N + MORE, 3, 256, 3, "f16"},
    };
    rkv_error e = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int with_rows = 0; with_rows < 2; with_rows++) {
            rkv_session_options o = rkv_session_options_default();
            rkv_session *s;
            char what[64];
            o.n_ctx = cases[i].n_ctx;
            o.n_thread = cases[i].n_thread;
            o.n_chunk = cases[i].n_chunk;
            o.observe = cases[i].observe;
            o.k_type = cases[i].type;
            must(rkv_policy_set_name(&o.policy, cases[i].policy, &e), &e);
            must(rkv_policy_set_budget(&o.policy, cases[i].budget, &e), &e);
            o.policy.profile = profile;
            must(rkv_session_create(&s, m, &o, &e), &e);
            snprintf(what, sizeof what, "%s, case %zu%s", family, i, with_rows ? ", rows" : "");
            check_prefill(s, ids, N, with_rows, what);
            check_prefill(s, ids + N, MORE, with_rows, what);
            rkv_session_free(s);
        }
}

/* In a child with little memory left: refused at once, with the option that helps. */
static int refuse(const rkv_model *m, int n, int n_chunk, const char *type, const char *policy,
                  const char *hint)
{
    rkv_error e = {0};
    rkv_session *s;
    rkv_session_options o = rkv_session_options_default();
    o.n_ctx = n;
    o.n_thread = 1;
    o.n_chunk = n_chunk;
    o.k_type = o.v_type = type;
    must(rkv_policy_set_name(&o.policy, policy, &e), &e);
    must(rkv_policy_set_budget(&o.policy, strcmp(policy, "full") ? "90%" : "full", &e), &e);
    must(rkv_session_create(&s, m, &o, &e), &e);
    int32_t *many = calloc((size_t)n, sizeof *many);
    struct rlimit r = {20 << 20, 20 << 20};
    setrlimit(RLIMIT_DATA, &r);
    const rkv_status status = rkv_session_prefill(s, many, (size_t)n, &e);
    const int ok = status == RKV_E_MEM && strstr(e.text, "needs") && strstr(e.text, hint) &&
                   !rkv_session_n_past(s);
    if (!ok)
        fprintf(stderr, "%d: %s\n", status, e.text);
    return ok;
}

static void check_refused(const rkv_model *m, int sliding)
{
    static const struct {
        int n, n_chunk;
        const char *type, *policy, *hint;
        int sliding;            /* of the model that has just the largest part wanted */
    } cases[] = {
        {200000, 256, "f32", "full", "a --kv-policy with a --kv-budget", 0},
        {200000, 256, "f32", "snapkv", "a smaller --kv-budget", 0},
        {200000, 256, "f16", "full", "use a shorter prompt", 1},
        {60000, 60000, "f16", "full", "a smaller --ubatch-size", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].sliding != sliding)
            continue;
        fflush(NULL);
        const pid_t pid = fork();
        if (!pid)
            _exit(!refuse(m, cases[i].n, cases[i].n_chunk, cases[i].type, cases[i].policy,
                          cases[i].hint));
        int status = -1;
        waitpid(pid, &status, 0);
        CHECK(status == 0, "%d tokens with %s: '%s' is missing", cases[i].n, cases[i].policy,
              cases[i].hint);
    }
}

static void check_family(tiny_options t, const char *family, const char *gemm)
{
    const int sliding = !strcmp(family, "gemma3");
    t.family = family;
    t.n_layer = 4;
    t.window = sliding ? 50 : 0;
    t.pattern = sliding ? 2 : 0;
    setenv("RKV_GEMM", gemm, 1);
    rkv_model *m = made_model(&t);
    rkv_profile *profile = made_curves(m);
    check_sizes(m, profile, family);
    rkv_profile_free(profile);
    if (CHECK_SANITIZED)
        SKIP(2, "sanitizers need their address space");
    else
        check_refused(m, sliding);
    rkv_model_free(m);
}

int main(void)
{
    const tiny_options t = tiny_defaults();
    made_ids(ids, N + MORE, t.n_vocab, 5);
    static const char *const gemm[] = {"own", "bf16", "int16"};
    for (int i = 0; i < 3; i++) {
        check_family(t, "llama", gemm[i]);
        check_family(t, "gemma3", gemm[i]);
    }
    return check_end("plan");
}
