/* What follows an evicted or compressed cache (second turns, going back, another question), and the
 * decode budgets that are refused. */
#include "config.h"
#include "evict_bed.h"

#include "base/mem.h"

/* ---- turns ---- */

static char logged[512];

static void keep_log(void *ctx, int level, const char *line)
{
    (void)ctx;
    if (level == RKV_LOG_INFO)
        snprintf(logged, sizeof logged, "%s", line);
}

static int stop_later(void *ctx, const char *phase, int64_t done, int64_t total)
{
    (void)phase, (void)total;
    return done == *(int *)ctx;
}

static int count_rows(void *ctx, int64_t i0, int n_row, const float *logits)
{
    int *n = ctx;
    CHECK(n_row == 1 && i0 == 5 + *n && logits, "row %lld", (long long)i0);
    ++*n;
    return 0;
}

/* A second turn goes on behind what is held, token by token, and is told; a stop keeps the tokens
 * before it. */
static void check_second_turn(const rkv_model *m)
{
    enum { TURN = 50 };
    rkv_session_options o = options_of("snapkv", "", "70", 16, NULL);
    rkv_session *a = prefilled(m, &o, N), *b = prefilled(m, &o, N);
    int stop = -1, rows = 0;
    logged[0] = 0;
    rkv_log_set(keep_log, NULL);
    must(rkv_session_score(a, ids + N, TURN, 5, count_rows, &rows, &e));
    CHECK(strstr(logged, "50 tokens follow a compressed cache"), "log: %s", logged);
    rkv_log_set(NULL, NULL);
    decode(b, TURN);
    CHECK(look(a) == look(b) && rows == TURN - 5, "a turn at once, and token by token");
    stop = 20;
    a->o.progress = stop_later;
    a->o.progress_ctx = &stop;
    CHECK(rkv_session_prefill(a, ids + N + TURN, TURN, &e) == RKV_E_CANCELLED, "%s", e.text);
    decode(b, 20);
    CHECK(look(a) == look(b), "stopped after 20");
    rkv_session_free(a);
    rkv_session_free(b);
}

/* Behind a prompt that was compressed, a turn's tokens take the true positions, not those of the
 * slots, in each head, whether they come at once or one by one; and so with a decode budget. */
static void check_positions(const rkv_model *m, const char *bound)
{
    enum { TURN = 30 };
    const rkv_session_options o = options_of("snapkv", "50%", bound, 16, NULL);
    rkv_session *s = prefilled(m, &o, N), *single = prefilled(m, &o, N);
    const int n_vocab = m->config.n_vocab, n_head = m->config.n_kv_head;
    int wrong = 0, fewer = 0;
    double most = 0.0;
    must(rkv_session_prefill(s, ids + N, TURN, &e));
    decode(single, TURN);
    decode(s, 1);
    decode(single, 1);
    for (int i = 0; i < m->config.n_layer * n_head; i++) {
        const int32_t *pos;
        const int n = rkv_session_kept(s, i / n_head, i % n_head, &pos);
        fewer += n < N + TURN + 1;
        for (int t = 1; t <= TURN + 1; t++)
            wrong += n < t || pos[n - t] != N + TURN + 1 - t;
    }
    for (int i = 0; i < n_vocab; i++)
        most = fmax(most, fabs((double)s->logits[i] - (double)single->logits[i]));
    CHECK(rkv_session_n_past(s) == N + TURN + 1 && !wrong && fewer > 0,
          "bound '%s': %d wrong positions, %d heads lack tokens", bound, wrong, fewer);
    CHECK(most < 1e-3, "bound '%s': logits differ by %g", bound, most);
    rkv_session_free(s);
    rkv_session_free(single);
}

/* Pitfalls of caches that lack tokens: going back into what is gone, another question on the same
 * prefix, a second compression, are refused and change nothing. */
static void check_going_back(const rkv_model *m)
{
    rkv_session_options o = options_of("snapkv", "", "70", 16, NULL);
    rkv_session *s = prefilled(m, &o, N), *prefix = NULL;
    decode(s, 60);
    must(rkv_session_fork(&prefix, s, &e));
    const uint64_t was = look(s);
    CHECK(rkv_session_rewind(prefix, N, &e) == RKV_E_ARG && strstr(e.text, "decode budget") &&
              look(prefix) == was, "%s", e.text);
    rkv_policy again = o.policy;
    must(rkv_policy_set_budget(&again, "50%", &e));
    CHECK(rkv_session_compress(prefix, &again, &e) == RKV_E_ARG &&
              strstr(e.text, "not yet compressed") && look(prefix) == was, "%s", e.text);
    CHECK(rkv_session_rewind(prefix, -1, &e) == RKV_E_ARG &&
              rkv_session_rewind(prefix, N + 61, &e) == RKV_E_ARG, "%s", e.text);
    CHECK(!rkv_session_rewind(prefix, N + 60, &e) && look(prefix) == was, "to where it is");
    must(rkv_session_rewind(prefix, 0, &e));
    must(rkv_session_prefill(prefix, ids, N, &e));
    decode(prefix, 60);
    CHECK(look(prefix) == was, "to the beginning");
    must(rkv_session_rewind(prefix, 0, &e));
    must(rkv_session_prefill(prefix, ids, 40, &e));     /* fits, so nothing is compressed yet */
    CHECK(rkv_session_compress(prefix, &again, &e) == RKV_E_ARG &&
              strstr(e.text, "decode budget") && rkv_session_n_past(prefix) == 40, "%s", e.text);
    rkv_session_free(prefix);
    rkv_session_free(s);
}

static void check_going_back_compressed(const rkv_model *m)
{
    rkv_session_options o = options_of("snapkv", "50%", "", 16, NULL);
    rkv_session *s = prefilled(m, &o, N);
    const uint64_t was = look(s);
    decode(s, 9);
    CHECK(rkv_session_rewind(s, N - 1, &e) == RKV_E_ARG && strstr(e.text, "was compressed") &&
              rkv_session_n_past(s) == N + 9, "%s", e.text);
    must(rkv_session_rewind(s, N, &e));
    CHECK(rkv_session_n_past(s) == N && !rkv_session_logits(s), "behind the prompt");
    rkv_session *again = prefilled(m, &o, N);
    CHECK(look(again) == was, "the prompt once more");
    decode(again, 9);
    decode(s, 9);
    CHECK(look(s) == look(again), "an answer once more");
    rkv_session_free(again);
    rkv_session_free(s);
    o = options_of("full", "", "", 16, NULL);           /* a prefix that is all there is free */
    s = prefilled(m, &o, N);
    again = prefilled(m, &o, 90);
    decode(s, 9);
    if (m->info.n_layer_sliding) {
        CHECK(rkv_session_rewind(s, 60, &e) == RKV_E_ARG && strstr(e.text, "sliding window"), "%s",
              e.text);
    } else {
        must(rkv_session_rewind(s, 90, &e));
        must(rkv_session_prefill(s, ids + 90, 30, &e));
        must(rkv_session_prefill(again, ids + 90, 30, &e));
        CHECK(look(s) == look(again) && rkv_session_kv_info(s).n_prompt == 90, "another ending");
    }
    rkv_session_free(again);
    rkv_session_free(s);
}

/* ---- refusals ---- */

static void refused(const rkv_model *m, const rkv_session_options *o, const char *part)
{
    rkv_session *s = NULL;
    rkv_status st = rkv_session_create(&s, m, o, &e);
    if (!st) {
        const uint64_t was = look(s);
        st = rkv_session_prefill(s, ids, N, &e);
        CHECK(look(s) == was, "%s: changed", part);
    }
    CHECK(st == RKV_E_ARG && strstr(e.text, part), "%d %s, expected %s", st, e.text, part);
    rkv_session_free(s);
}

static void check_refusals(const rkv_model *m, const rkv_profile *profile)
{
    static const struct {
        const char *policy, *bound, *part;
        int interval;
    } bad[] = {
        {"full", "70", "selector 'full' evicts nothing", 16},
        {"expected", "70", "selector 'expected' goes by statistics", 16},
        {"adakv", "70", "adakv acts on prompts only", 16},
        {"snapkv+criticalkv", "70", "criticalkv acts on prompts only", 16},
        {"tova:curve", "70", "'tova' ranks tokens for all heads", 16},
        {"snapkv", "70", "interval of 0 tokens", 0},
        {"snapkv", "51", "ask for at least 52 tokens", 16},
        {"snapkv", "1", "below the floor of 36", 16},
        {"h2o", "40%", "decode budget 40 % is 48 per layer and head", 16},
        {"h2o", "70", "interval of 1048577 tokens", (1 << 20) + 1},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const rkv_session_options o = options_of(bad[i].policy, "", bad[i].bound, bad[i].interval,
                                                 profile);
        refused(m, &o, bad[i].part);
    }
    static const double values[] = {0.0, -3.0, NAN, INFINITY, 1e19};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        for (int kind = RKV_BUDGET_SHARE; kind <= RKV_BUDGET_BYTES; kind++) {
            rkv_session_options o = options_of("snapkv", "", "70", 16, NULL);
            o.decode_kind = (rkv_budget_kind)kind;
            o.decode_budget = values[i];
            refused(m, &o, "decode budget is ");
        }
    rkv_session_options o = options_of("snapkv", "", "52", 16, NULL);
    rkv_session *s = prefilled(m, &o, N);
    CHECK(s->evict.cap == 52, "just above the floor");
    rkv_session_free(s);
    o = options_of("pyramid", "", "70", 16, NULL);
    o.policy.published = 1;
    refused(m, &o, "published steps");
}

static void check_family(const tiny_options *t, uint32_t seed)
{
    rkv_model *m = made_model(t);
    rkv_profile *profile = made_curves(m);
    made_ids(ids, CTX, t->n_vocab, seed);
    check_second_turn(m);
    check_positions(m, "");
    check_positions(m, "100");
    check_going_back(m);
    check_going_back_compressed(m);
    check_refusals(m, profile);
    rkv_profile_free(profile);
    rkv_model_free(m);
}

int main(void)
{
    each_family(check_family);
    CHECK(rkv_mem_current() == 0, "%llu bytes leaked", (unsigned long long)rkv_mem_current());
    return check_end("turns");
}
