/* rkv eval inside: statistics against known values, made samples (length, depth, answers,
 * repetition), prompts, and the numbers of a run against the session's own calls. */
#include "config.h"
#include "check.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "noise.h"
#include "eval/compare.h"
#include "eval/eval.h"
#include "eval/made.h"
#include "eval/measure.h"
#include "made.h"
#include "scratch.h"

static rkv_eval_options options(void)
{
    return (rkv_eval_options){.samples = 1, .depths = 3, .seed = 5, .protocol = 'Q', .response = 32,
                              .n_chunk = 64, .n_thread = 1, .k_type = "f16", .v_type = "f16"};
}

/* ---- statistics ---- */

static void check_statistics(void)
{
    enum { N = 60 };
    static double a[N], b[N], scratch[N + RKV_RESAMPLES];
    static int pick[N];
    CHECK(fabs(rkv_sign_test(8, 0) - 2.0 / 256) < 1e-12, "%g", rkv_sign_test(8, 0));
    CHECK(fabs(rkv_sign_test(1, 3) - 10.0 / 16) < 1e-12, "%g", rkv_sign_test(1, 3));
    CHECK(rkv_sign_test(0, 0) == 1.0 && fabs(rkv_sign_test(5, 5) - 1.0) < 1e-12, "none, and even");
    CHECK(fabs(rkv_sign_test(400, 600) - 2.7282e-10) < 1e-13, "%g", rkv_sign_test(400, 600));
    const rkv_interval w = rkv_wilson(8, 10), all = rkv_wilson(10, 10), none = rkv_wilson(0, 0);
    CHECK(fabs(w.low - 0.490162) < 1e-6 && fabs(w.high - 0.943318) < 1e-6, "%g %g", w.low, w.high);
    CHECK(fabs(all.low - 0.722467) < 1e-6 && fabs(all.high - 1.0) < 1e-12, "%g %g", all.low,
          all.high);
    CHECK(none.low == 0.0 && none.high == 1.0, "%g %g", none.low, none.high);
    for (int i = 0; i < N; i++) {
        b[i] = 10.0 * rkv_noise_uniform(1, (uint64_t)i);
        a[i] = b[i] + rkv_noise_deviate(2, (uint64_t)i) + 1.0;
    }
    const rkv_paired d = rkv_pairs_compare(a, b, N, scratch, pick),
                     again = rkv_pairs_compare(a, b, N, scratch, pick),
                     back = rkv_pairs_compare(b, a, N, scratch, pick);
    CHECK(d.mean > 0.6 && d.mean < 1.4 && d.interval.low > 0.4 && d.interval.high < 1.6 &&
              d.interval.low < d.mean && d.mean < d.interval.high, "pairs, not samples: %g (%g "
          "to %g)", d.mean, d.interval.low, d.interval.high);
    /* The interval is about 2 * 1.96 / sqrt(60) wide. */
    CHECK(fabs(d.interval.high - d.interval.low - 0.506) < 0.15, "%g to %g", d.interval.low,
          d.interval.high);
    CHECK(!memcmp(&d, &again, sizeof d) && back.mean == -d.mean && back.wins == d.losses &&
              d.wins + d.losses + d.ties == N && d.p < 1e-4, "%d %d %d", d.wins, d.losses, d.ties);
    const rkv_paired few = rkv_pairs_compare(a, b, RKV_LEAST_PAIRS - 1, scratch, pick);
    CHECK(rkv_paired_sign(&d) == 1 && rkv_paired_sign(&back) == -1, "they differ");
    CHECK(few.mean > 0.0 && rkv_paired_sign(&few) == 0, "too few to tell");
    CHECK(rkv_sign_test(RKV_LEAST_PAIRS, 0) < 0.05 && rkv_sign_test(RKV_LEAST_PAIRS - 1, 0) > 0.05,
          "what few is");
    const rkv_paired same = rkv_pairs_compare(a, a, N, scratch, pick);
    CHECK(same.ties == N && same.p == 1.0 && same.interval.low == 0.0 && same.interval.high == 0.0,
          "equal sides");
    CHECK(rkv_paired_sign(&same) == 0, "equal sides do not differ");
    CHECK(isnan(rkv_pairs_compare(a, b, 0, scratch, pick).mean), "no pair");
}

/* ---- made samples ---- */

static int count_of(const char *text, const char *part)
{
    int n = 0;
    for (const char *p = strstr(text, part); p; p = strstr(p + 1, part))
        n++;
    return n;
}

/* Answers of a sample, from what its text must say. */
static void check_answers(const rkv_sample *x)
{
    const char *end = x->prompt + x->question, *name = x->task->name;
    char *text = rkv_mem_strdup(x->prompt);
    if (!text)
        return;
    text[end - x->prompt] = 0;                  /* an answer is no part of the question */
    const int words = !strcmp(name, "cwe") || !strcmp(name, "fwe");
    for (int i = 0; i < x->reference.n_answer; i++) {
        const char *a = x->reference.answer[i];
        const int n = count_of(text, a);
        CHECK(words ? n >= (i ? 1 : 2) : n >= 1, "%s: '%s' comes %d times", x->id, a, n);
    }
    static const struct {
        const char *name;
        int n;
    } counts[] = {{"vt", 5}, {"cwe", 10}, {"fwe", 3}, {"niah_multivalue", 4},
                  {"niah_multiquery", 4}};
    int want = 1;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        want = strcmp(counts[i].name, name) ? want : counts[i].n;
    CHECK(x->reference.n_answer == want, "%s: %d answers", x->id, x->reference.n_answer);
    if (x->depth >= 0.0) {
        const char *body = strstr(text, "\n\n"), *found = strstr(text, x->reference.answer[0]);
        const double at = (double)(found - body) / (double)(end - x->prompt - (body - text));
        CHECK(fabs(at - x->depth) < 0.12, "%s: depth %g, found at %g", x->id, x->depth, at);
    }
    rkv_mem_free(text);
}

static void check_made_line(const rkv_samples *s, int i, const rkv_model *m)
{
    rkv_sample x;
    rkv_error e = {0};
    size_t n = 0;
    CHECK(!rkv_samples_get(&x, s, i, 512, &e), "%s", e.text);
    CHECK(!rkv_eval_prompt_count(&n, x.prompt, x.task, 0, m, &e), "%s", e.text);
    const int total = (int)n + x.max_gen;
    CHECK(total <= x.length && total > x.length - 150, "%s: %d of %d tokens", x.id, total,
          x.length);
    CHECK(x.question > 0 && x.prompt[strlen(x.prompt) - 1] == ':', "%s: its question", x.id);
    check_answers(&x);
    rkv_sample_free(&x);
}

static void check_samples(const rkv_model *m)
{
    static const int ruler[] = {2000, 4000}, needle[] = {1500};
    rkv_eval_options o = options();
    rkv_error e = {0};
    char *text = NULL, *again = NULL, *other = NULL;
    size_t n, n_again, n_other;
    o.ruler = ruler, o.n_ruler = 2;
    o.needle = needle, o.n_needle = 1;
    CHECK(!rkv_eval_write(&text, &n, m, &o, &e) && !rkv_eval_write(&again, &n_again, m, &o, &e),
          "%s", e.text);
    o.seed = 6;
    CHECK(!rkv_eval_write(&other, &n_other, m, &o, &e), "%s", e.text);
    if (!text || !again || !other)
        return;
    CHECK(n == n_again && !memcmp(text, again, n), "one seed makes one text");
    CHECK(n != n_other || memcmp(text, other, n), "another seed another text");
    rkv_free(again);
    rkv_free(other);
    rkv_samples s;
    CHECK(!rkv_samples_take(&s, text, n, "made", 512, &e) && s.n == 2 * 13 + 3, "%d: %s", s.n,
          e.text);
    for (int i = 0; i < s.n; i++)
        check_made_line(&s, i, m);
    rkv_samples_free(&s);
    static const int none[] = {40};
    o.ruler = none, o.n_ruler = 1;
    CHECK(rkv_eval_write(&text, &n, m, &o, &e) == RKV_E_ARG && strstr(e.text, "too short"), "%s",
          e.text);
}

/* ---- prompts ---- */

static void check_prompts(const rkv_model *m)
{
    rkv_eval_options o = options();
    rkv_sample x = {.id = (char *)"x", .task = rkv_task_find("hotpotqa"), .max_gen = 8};
    rkv_eval_prompt p, whole;
    rkv_error e = {0};
    rkv_text t = {0};
    for (int i = 0; i < 300; i++)
        rkv_text_printf(&t, "word%d ", i);
    x.question = t.n;
    rkv_text_printf(&t, "\n\nAnswer the question: why?");
    x.prompt = t.data;
    CHECK(!rkv_eval_prompt_make(&whole, &x, m, &o, &e), "%s", e.text);
    o.max_length = 200;
    CHECK(!rkv_eval_prompt_make(&p, &x, m, &o, &e), "%s", e.text);
    CHECK(whole.n > 500 && p.n > 190 && p.n < 300 && !memcmp(p.ids, whole.ids, 100 * sizeof *p.ids),
          "%zu of %zu", p.n, whole.n);
    CHECK(p.ids[p.n - 1] == whole.ids[whole.n - 1], "the end stays");
    rkv_eval_prompt_free(&p);
    o.max_length = 0;
    o.n_ctx = 300;
    CHECK(!rkv_eval_prompt_make(&p, &x, m, &o, &e) && p.n + 8 <= 300 && p.n > 200, "%zu: %s", p.n,
          e.text);
    rkv_eval_prompt_free(&p);
    o.n_ctx = 0;
    o.protocol = 'A';
    CHECK(!rkv_eval_prompt_make(&p, &x, m, &o, &e) && p.n_question > 5 &&
              p.n + p.n_question <= whole.n + 4, "%zu + %zu: %s", p.n, p.n_question, e.text);
    rkv_eval_prompt_free(&p);
    x.question = strlen(x.prompt);
    CHECK(rkv_eval_prompt_make(&p, &x, m, &o, &e) == RKV_E_UNSUPPORTED && strstr(e.text, "'x'"),
          "%s", e.text);
    o.n_ctx = 9;
    CHECK(rkv_eval_prompt_make(&p, &x, m, &o, &e) == RKV_E_ARG && strstr(e.text, "room"), "%s",
          e.text);
    rkv_eval_prompt_free(&whole);
    rkv_text_free(&t);
}

/* ---- numbers ---- */

static rkv_eval_policy policy(const char *name, const char *budget)
{
    rkv_eval_policy p = {name, budget, rkv_policy_default()};
    rkv_error e = {0};
    CHECK(!rkv_policy_set_name(&p.policy, name, &e), "%s", e.text);
    CHECK(!rkv_policy_set_budget(&p.policy, budget, &e), "%s", e.text);
    return p;
}

static rkv_session *prefilled(const rkv_model *m, const rkv_policy *p, const int32_t *ids, size_t n)
{
    rkv_session *s = NULL;
    rkv_error e = {0};
    rkv_session_options o = rkv_session_options_default();
    o.n_thread = 1;
    o.n_chunk = 64;
    o.policy = *p;
    CHECK(!rkv_session_create(&s, m, &o, &e) && !rkv_session_prefill(s, ids, n, &e), "%s", e.text);
    return s;
}

static float *logits_of(rkv_session *s, const int32_t *ids, int n, int n_vocab)
{
    float *out = rkv_mem_alloc((size_t)n * (size_t)n_vocab * sizeof *out);
    rkv_error e = {0};
    for (int i = 0; out && i < n; i++) {        /* token by token: rounded elsewhere */
        CHECK(!rkv_session_decode(s, ids[i], &e), "%s", e.text);
        memcpy(out + (size_t)i * (size_t)n_vocab, rkv_session_logits(s),
               (size_t)n_vocab * sizeof *out);
    }
    return out;
}

/* KL of a policy over the full cache's greedy answer, by sessions that were made for it. */
static double kl_by_sessions(const rkv_model *m, const rkv_policy *p, const rkv_eval_prompt *x,
                             int max_gen, int32_t *answer, int *n_answer)
{
    const rkv_policy none = rkv_policy_default();
    const int n_vocab = rkv_model_get_info(m)->n_vocab;
    rkv_session *full = prefilled(m, &none, x->ids, x->n), *small = prefilled(m, p, x->ids, x->n);
    rkv_error e = {0};
    double sum = 0.0;
    for (*n_answer = 0; *n_answer < max_gen; ++*n_answer) {
        const float *l = rkv_session_logits(full);
        int32_t best = 0;
        for (int32_t i = 1; i < n_vocab; i++)
            best = l[i] > l[best] ? i : best;
        if (rkv_token_is_end(m, best))
            break;
        answer[*n_answer] = best;
        CHECK(!rkv_session_decode(full, best, &e), "%s", e.text);
    }
    rkv_session_free(full);
    full = prefilled(m, &none, x->ids, x->n);
    float *a = logits_of(full, answer, *n_answer, n_vocab),
          *b = logits_of(small, answer, *n_answer, n_vocab);
    for (int i = 0; a && b && i < *n_answer; i++)
        sum += rkv_logits_kl(a + (ptrdiff_t)i * n_vocab, b + (ptrdiff_t)i * n_vocab, n_vocab);
    rkv_mem_free(a);
    rkv_mem_free(b);
    rkv_session_free(full);
    rkv_session_free(small);
    return *n_answer ? sum / *n_answer : (double)NAN;
}

static void check_row(const rkv_model *m, const rkv_eval_row *r, const rkv_eval_policy *p,
                      const rkv_eval_prompt *x, int max_gen)
{
    int32_t answer[64];
    int n = 0;
    const double kl = kl_by_sessions(m, &p->policy, x, max_gen, answer, &n);
    rkv_session *s = prefilled(m, &p->policy, x->ids, x->n);
    const rkv_kv_info kv = rkv_session_kv_info(s);
    CHECK(r->state == RKV_EVAL_DONE && fabs(r->kl - kl) <= 1e-4 + 1e-3 * kl, "%s@%s: KL %g, by "
          "sessions %g", p->name, p->budget, r->kl, kl);
    CHECK(r->kept == kv.n_kept && r->bytes == kv.bytes && r->bytes_full == kv.bytes_full &&
              r->n_prompt == (int)x->n && !r->untouched, "%s@%s: %lld kept, %lld", p->name,
          p->budget, (long long)r->kept, (long long)kv.n_kept);
    rkv_session_free(s);
}

static void check_numbers(const rkv_model *m)
{
    enum { N_POLICY = 10, N_PROMPT = 300, MAX_GEN = 12 };
    const rkv_eval_policy list[N_POLICY] = {
        policy("snapkv", "30%"), policy("h2o", "30%"), policy("blend", "30%"),
        policy("observed", "50%"), policy("snapkv", "100%"), policy("snapkv", "5000"),
        policy("h2o", "10%"), policy("h2o", "40"), policy("snapkv", "20%"), policy("h2o", "20%")};
    int32_t ids[N_PROMPT];
    static const char *const reference[] = {"an answer"};
    rkv_eval_options o = options();
    rkv_eval_row row[1 + N_POLICY] = {{.state = RKV_EVAL_MISSING}};
    const rkv_sample x = {.id = (char *)"x", .task = rkv_task_find("qasper"), .max_gen = MAX_GEN,
                          .reference = {reference, NULL, 1, 0}};
    const rkv_eval_prompt p = {.ids = ids, .n = N_PROMPT};
    const double place[] = {0, 1, 1};
    rkv_error e = {0};
    made_ids(ids, N_PROMPT, rkv_model_get_info(m)->n_vocab, 3);
    o.policy = list;
    o.n_policy = N_POLICY;
    CHECK(!rkv_eval_measure(row, &x, &p, 1, m, &o, place, &e), "%s", e.text);
    CHECK(row[0].state == RKV_EVAL_DONE && row[0].kl == 0.0 && row[0].bytes == row[0].bytes_full,
          "the full cache");
    for (int i = 0; i < N_POLICY; i++)
        if (i != 4 && i != 5 && i != 6)
            check_row(m, &row[1 + i], &list[i], &p, MAX_GEN);
    for (int c = 5; c <= 6; c++)
        CHECK(row[c].state == RKV_EVAL_DONE && row[c].kl == 0.0 && row[c].untouched &&
                  row[c].answer && !strcmp(row[c].answer, row[0].answer), "a budget of everything");
    CHECK(row[7].state == RKV_EVAL_REFUSED && row[7].why && strstr(row[7].why, "floor") &&
              isnan(row[7].score), "below the floor: %s", row[7].why ? row[7].why : "nothing");
    for (int i = 0; i <= N_POLICY; i++)
        rkv_eval_row_free(&row[i]);
}

/* ---- a run over a file ---- */

/* Rows of protocol A that share a context are measured together, and come out as if alone. */
static void check_shared_context(const rkv_model *m, const char *path)
{
    const rkv_eval_policy list[] = {policy("snapkv", "30%"), policy("h2o", "30%")};
    rkv_eval_options o = options();
    rkv_error e = {0};
    char *all = NULL, *part[3] = {NULL, NULL, NULL};
    FILE *f = fopen(path, "w");
    CHECK(f != NULL, "%s", path);
    for (int i = 0; f && i < 3; i++) {
        fprintf(f, "{\"id\":\"%d\",\"task\":\"%s\",\"max_gen\":9,\"answers\":[\"x\"],"
                "\"context\":\"", i, i < 2 ? "qasper" : "hotpotqa");
        for (int k = 0; k < 60; k++)
            fprintf(f, "line %d of the text. ", k);
        fprintf(f, "\",\"input\":\"Question %d?\"}\n", i);
    }
    if (f)
        fclose(f);
    o.data = path;
    o.policy = list;
    o.n_policy = 2;
    o.protocol = 'A';
    CHECK(!rkv_eval_run(&all, NULL, m, &o, RKV_EVAL_CSV, NULL, &e), "%s", e.text);
    o.n_shard = 3;
    for (o.shard = 1; o.shard <= 3; o.shard++)
        CHECK(!rkv_eval_run(&part[o.shard - 1], NULL, m, &o, RKV_EVAL_JSON, NULL, &e), "%s",
              e.text);
    double mean[2] = {0, 0};
    cJSON *parsed = NULL;
    for (int i = 0; i < 2 && part[i]; i++) {
        CHECK(!rkv_json_parse(&parsed, part[i], strlen(part[i]), "part", &e), "%s", e.text);
        const cJSON *p = cJSON_GetObjectItem(parsed, "policies");
        for (int c = 0; c < 2; c++)
            mean[c] += cJSON_GetObjectItem(cJSON_GetArrayItem(p, c + 1), "kl")->valuedouble / 2;
        cJSON_Delete(parsed);
    }
    for (int c = 0; all && c < 2; c++) {
        char want[80];
        snprintf(want, sizeof want, "%s,30%%,A,qasper,2,", list[c].name);
        const char *row = strstr(all, want);
        double score = 0, kl = -1;
        CHECK(row && sscanf(row + strlen(want), "%lf,%lf", &score, &kl) == 2 &&
                  fabs(kl - mean[c]) <= 1e-5 * mean[c] && kl > 0.0, "%s: %g together, %g alone",
              want, kl, mean[c]);
    }
    CHECK(all && strstr(all, "full,100%,A,hotpotqa,1,"), "%s", all);
    rkv_free(all);
    for (int i = 0; i < 3; i++)
        rkv_free(part[i]);
}

static void check_failing_memory(const rkv_model *m, const char *path)
{
    const rkv_eval_policy list[] = {policy("snapkv", "30%")};
    static const int needle[] = {600};
    rkv_eval_options o = options();
    o.policy = list;
    o.n_policy = 1;
    o.data = path;
    o.limit = 1;
    const uint64_t before = rkv_mem_current();
    int tries = 0, done = 0;
    for (int k = 1; !done; k += 1 + k / 12, tries++) {
        char *text = NULL, *html = NULL;
        rkv_error e = {0};
        rkv_mem_fail_after(k);
        const rkv_status s = rkv_eval_run(&text, &html, m, &o, RKV_EVAL_TEXT, NULL, &e);
        rkv_mem_fail_after(0);
        done = !s;
        CHECK(!s == !!text && !s == !!html, "allocation %d: both texts, or none", k);
        rkv_free(text);
        rkv_free(html);
        CHECK(!s || s == RKV_E_MEM, "allocation %d: %s", k, e.text);
        CHECK(rkv_mem_current() == before, "allocation %d: %lld bytes are left", k,
              (long long)(rkv_mem_current() - before));
    }
    CHECK(tries > 10, "%d tries", tries);
    o.data = NULL;
    o.needle = needle, o.n_needle = 1;
    for (int k = 1, end = 0; !end; k += 1 + k / 6) {
        char *text = NULL;
        size_t n;
        rkv_error e = {0};
        rkv_mem_fail_after(k);
        const rkv_status s = rkv_eval_write(&text, &n, m, &o, &e);
        rkv_mem_fail_after(0);
        end = !s;
        rkv_free(text);
        CHECK(!s || s == RKV_E_MEM, "allocation %d: %s", k, e.text);
    }
    CHECK(rkv_mem_current() == before, "samples: %lld bytes are left",
          (long long)(rkv_mem_current() - before));
}

int main(void)
{
    tiny_options t = tiny_defaults();
    t.n_ctx = 8192;
    rkv_model *m = made_model(&t);
    check_statistics();
    check_samples(m);
    check_prompts(m);
    check_numbers(m);
    if (scratch_make()) {
        check_shared_context(m, scratch_path("data.jsonl"));
        check_failing_memory(m, scratch_path("data.jsonl"));
        unlink(scratch_path("data.jsonl"));
        scratch_remove();
    }
    rkv_model_free(m);
    return check_end("eval");
}
