/* Attention mass and the selectors that use it, on made models of every family: against the whole
 * attention matrix in double, computed from the observed queries and the cached keys; and what must
 * be equal to the bit. */
#include "config.h"
#include "made.h"

#include <math.h>

#include "engine/scores.h"
#include "engine/session.h"

enum { N = 500, WINDOW = 32, RECENT = 101 };

static int32_t ids[N];

static void must(rkv_status s, const rkv_error *e)
{
    if (s) {
        fprintf(stderr, "unexpected: %s\n", e->text);
        exit(1);
    }
}

static rkv_session *prefilled(const rkv_model *m, const rkv_session_options *o, int n)
{
    rkv_error e = {0};
    rkv_session *s = NULL;
    must(rkv_session_create(&s, m, o, &e), &e);
    must(rkv_session_prefill(s, ids, (size_t)n, &e), &e);
    return s;
}

static rkv_session_options observing(int n_thread)
{
    rkv_session_options o = rkv_session_options_default();
    o.n_thread = n_thread;
    o.observe = RKV_OBSERVE_QUERIES | RKV_OBSERVE_MASS | RKV_OBSERVE_RECENT;
    o.policy.window = N;        /* every query is kept: the reference starts from them */
    o.policy.recent = RECENT;
    return o;
}

static size_t mass_bytes(const rkv_model *m, int n)
{
    return (size_t)rkv_model_get_info(m)->n_kv_head * (size_t)n * sizeof(float);
}

/* ---- the reference ---- */

/* w[n] = the softmax weights of query row q over keys [0, n_seen), in double. */
static void weights_of(double *w, const float *q, const float *k, int n_seen, int d)
{
    double top = -INFINITY, sum = 0.0;
    for (int t = 0; t < n_seen; t++) {
        w[t] = 0.0;
        for (int e = 0; e < d; e++)
            w[t] += (double)q[e] * (double)k[(ptrdiff_t)t * d + e];
        top = fmax(top, w[t]);
    }
    for (int t = 0; t < n_seen; t++)
        sum += w[t] = exp(w[t] - top);
    for (int t = 0; t < n_seen; t++)
        w[t] /= sum;
}

/* mass[n_kv_head][n] of layer l from queries [first, n), row by row of the attention matrix of each
 * query head. */
static double *slow_mass(const rkv_session *s, int l, int n, int first)
{
    const rkv_config *c = &s->m->config;
    const int d = c->d_head, n_group = c->n_head / c->n_kv_head;
    double *mass = calloc((size_t)c->n_kv_head * (size_t)n, sizeof *mass);
    double *w = malloc(sizeof *w * (size_t)n);
    float *k = malloc(sizeof *k * (size_t)n * (size_t)d);
    const float *q = rkv_session_seen_q(s, l);
    for (int h = 0; h < c->n_head; h++) {
        double *to = mass + (ptrdiff_t)(h / n_group) * n;
        const rkv_kv_view kv = rkv_kv_view_of(s->kv, l, h / n_group);
        s->m->backend.ops.unpack[kv.k_type](k, kv.k, (int64_t)n * d);
        for (int i = first > 0 ? first : 0; i < n; i++) {
            weights_of(w, q + ((ptrdiff_t)i * c->n_head + h) * d, k, i + 1, d);
            for (int t = 0; t <= i; t++)
                to[t] += w[t];
        }
    }
    free(w);
    free(k);
    return mass;
}

/* score[t] -= rank of x[t] among n, the largest first, by counting; x may be pooled by 7 first. */
static void slow_rank(double *score, const double *x, int n, int pooled)
{
    static double y[N];
    for (int t = 0; t < n; t++) {
        y[t] = x[t];
        for (int i = t - 3; pooled && i <= t + 3; i++)
            y[t] = i >= 0 && i < n ? fmax(y[t], x[i]) : y[t];
    }
    for (int t = 0; t < n; t++)
        for (int u = 0; u < n; u++)
            score[t] -= (y[u] > y[t]) + 0.5 * (y[u] == y[t] && u != t);
}

/* Scores [n_kv_head][n] of layer l by the definitions of METHOD sections 7 and 8, of positions
 * before the window. */
static double *slow_scores(const rkv_policy *p, const rkv_session *s, int l, int n)
{
    const rkv_config *c = &s->m->config;
    const int n_group = c->n_head / c->n_kv_head, n_scored = n - WINDOW;
    const int blend = !strcmp(p->selector, "blend"), observed = !strcmp(p->selector, "observed");
    double *mass = slow_mass(s, l, n, blend && p->recent ? n - p->recent : 0);
    if (!blend) {
        for (int i = 0; i < c->n_kv_head * n; i++)
            mass[i] /= n_group * (observed ? n - i % n : 1);
        return mass;
    }
    double *window = slow_mass(s, l, n, n_scored);
    double *score = calloc((size_t)c->n_kv_head * (size_t)n, sizeof *score);
    for (int h = 0; h < c->n_kv_head; h++) {
        slow_rank(score + h * n, window + h * n, n_scored, 1);
        slow_rank(score + h * n, mass + h * n, n_scored, 0);
    }
    free(window);
    free(mass);
    return score;
}

/* Positions of [0, n) that stay: each but the window's is compared with all others. near: how many
 * of them have a score within `slack` of one that is decided otherwise; relative to the score, or
 * absolute when the scores are ranks. */
static int slow_keep(uint8_t *stays, const double *score, int n, int budget, double slack)
{
    const int n_scored = n - WINDOW;
    int near = 0;
    double least = INFINITY, most = -INFINITY;
    for (int t = 0; t < n; t++) {
        int better = 0;
        for (int u = 0; t < n_scored && u < n_scored; u++)
            better += score[u] > score[t] || (score[u] == score[t] && u < t);
        stays[t] = t >= n_scored || better < budget - WINDOW;
        if (t < n_scored && stays[t])
            least = fmin(least, score[t]);
        else if (t < n_scored)
            most = fmax(most, score[t]);
    }
    for (int t = 0; t < n_scored; t++)
        near += fabs(score[t] - (stays[t] ? most : least)) <= slack * fmax(score[t], slack >= 1.0);
    return near;
}

/* ---- the checks ---- */

static const float *seen(const rkv_session *s, int recent, int l)
{
    return recent ? rkv_session_seen_recent(s, l, s->n_prompt)
                  : rkv_session_seen_mass(s, l, s->n_prompt);
}

/* Sums of every compressible layer are those of the reference within `tolerance`, and add up to the
 * number of queries. */
static void check_sums(const rkv_session *s, const char *what, double tolerance)
{
    const rkv_config *c = &s->m->config;
    const int n = s->n_prompt, n_group = c->n_head / c->n_kv_head;
    for (int i = 0; i < 2 * c->n_layer; i++) {
        const int l = i / 2, n_query = i % 2 && RECENT < n ? RECENT : n;
        double worst = 0.0, total = 0.0;
        if (rkv_session_skips(s, l))
            continue;
        const float *got = seen(s, i % 2, l);
        double *want = slow_mass(s, l, n, n - n_query);
        for (int k = 0; k < c->n_kv_head * n; k++)
            worst = fmax(worst, fabs((double)got[k] / want[k] - 1.0));
        for (int h = 0; h < c->n_kv_head; h++) {
            double sum = 0.0;
            for (int t = 0; t < n; t++)
                sum += (double)got[h * n + t];
            total = fmax(total, fabs(sum / ((double)n_query * n_group) - 1.0));
        }
        free(want);
        CHECK(worst < tolerance, "%s: a sum of %d queries is off by %g of it", what, n_query,
              worst);
        CHECK(total < 1e-5, "%s: all sums of %d queries are off by %g", what, n_query, total);
    }
}

/* Threads, chunks, and what else is observed change no bit; nor does it change the logits. */
static void check_same_bits(const rkv_model *m, const rkv_session *want, const char *what,
                            int n_case)
{
    static const int threads[] = {2, 1, 3, 1, 2}, chunks[] = {100, 256, 7, 1, 1000},
                     observe[] = {7, 2, 4, 7, 5};
    const int n = want->n_prompt;
    const size_t row = (size_t)rkv_model_get_info(m)->n_vocab * sizeof(float);
    for (int i = 0; i < n_case; i++) {
        rkv_session_options o = observing(threads[i]);
        o.n_chunk = chunks[i];
        o.observe = observe[i];
        rkv_session *s = prefilled(m, &o, n);
        int differ = 0;
        for (int k = 0; k < 2 * m->config.n_layer; k++)
            if (!rkv_session_skips(s, k / 2) && seen(s, k % 2, k / 2))
                differ += !!memcmp(seen(s, k % 2, k / 2), seen(want, k % 2, k / 2),
                                   mass_bytes(m, n));
        CHECK(!differ, "%s: %d threads, chunks of %d, observe %d: %d layers differ", what,
              threads[i], chunks[i], observe[i], differ);
        CHECK(!s->seen.mass == !(observe[i] & RKV_OBSERVE_MASS) &&
                  !s->seen.recent == !(observe[i] & RKV_OBSERVE_RECENT), "as asked for");
        CHECK(!memcmp(rkv_session_logits(s), rkv_session_logits(want), row),
              "%s: logits, %d threads, chunks of %d", what, threads[i], chunks[i]);
        rkv_session_free(s);
    }
    rkv_session_options o = rkv_session_options_default();
    rkv_session *plain = prefilled(m, &o, n);
    CHECK(!memcmp(rkv_session_logits(plain), rkv_session_logits(want), row),
          "%s: logits with and without mass", what);
    CHECK(!plain->seen.q && !plain->seen.mass && !plain->seen.recent, "nothing is kept unasked");
    rkv_session_free(plain);
}

/* Kept sets are the reference's, on the way and afterwards, for any chunk and thread count. Blends
 * are compared by ranks, of which rounding may shift some by one. */
static void check_kept(const rkv_model *m, const rkv_session *full, const char *policy,
                       const char *budget, int recent, double tolerance)
{
    rkv_error e = {0};
    const rkv_config *c = &m->config;
    const int n = full->n_prompt, blend = !strcmp(policy, "blend");
    static int n_case;
    rkv_session_options o = rkv_session_options_default();
    must(rkv_policy_set_name(&o.policy, policy, &e), &e);
    must(rkv_policy_set_budget(&o.policy, budget, &e), &e);
    o.policy.recent = recent;
    o.n_chunk = n_case % 3 ? 256 : 50;
    o.n_thread = 1 + n_case++ % 2;
    rkv_session *way = prefilled(m, &o, n), *later = NULL;
    must(rkv_session_fork(&later, full, &e), &e);
    must(rkv_session_compress(later, &o.policy, &e), &e);
    int wrong = 0, differ = 0, near = 0;
    uint8_t stays[N];
    for (int l = 0; l < c->n_layer; l++) {
        if (rkv_session_skips(way, l))
            continue;
        double *score = slow_scores(&o.policy, full, l, n);
        for (int h = 0; h < c->n_kv_head; h++) {
            const int32_t *a, *b;
            const int na = rkv_session_kept(way, l, h, &a), nb = rkv_session_kept(later, l, h, &b);
            const int want = rkv_session_head_budget(way, l, h);
            near += slow_keep(stays, score + h * n, n, want, blend ? 1.0 : tolerance);
            differ += na != nb || memcmp(a, b, (size_t)na * sizeof *a);
            wrong += na != want;
            for (int i = 0; i < na; i++)
                wrong += !stays[a[i]];
        }
        free(score);
    }
    CHECK(wrong <= near, "%s %s: %d positions differ from the reference's, %d are near the cut",
          policy, budget, wrong, near);
    CHECK(near < 20, "%s %s: %d positions are near the cut", policy, budget, near);
    CHECK(!differ, "%s %s: %d heads differ when compressed later", policy, budget, differ);
    CHECK(!way->seen.mass && !way->seen.recent && later->seen.mass && later->seen.recent,
          "mass is kept where it was asked for");
    rkv_session_free(way);
    rkv_session_free(later);
}

/* Copies compressed one after the other with shared scores keep what each keeps alone; scores are
 * found again by policies that score alike, and by no others. */
static void check_shared_scores(const rkv_model *m, const rkv_session *full)
{
    static const struct {
        const char *policy, *budget;
        int kernel, found;
    } cases[] = {{"snapkv", "20%", 7, 0}, {"pyramid", "20%", 7, 1}, {"snapkv+adakv", "40%", 7, 1},
                 {"snapkv+criticalkv", "30%", 7, 1}, {"snapkv", "20%", 7, 1},
                 {"snapkv", "20%", 5, 0}, {"blend", "30%", 7, 0}, {"h2o", "20%", 7, 0},
                 {"h2o", "full", 7, 0}, {"h2o", "10%", 7, 1}};
    rkv_error e = {0};
    rkv_scores *scores;
    static float score[N];
    int last = 0;
    must(rkv_scores_create(&scores, &e), &e);
    while (last < m->config.n_layer - 1 && rkv_session_skips(full, last))
        last++;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rkv_policy p = rkv_policy_default();
        char name[32];
        rkv_session *alone, *shared;
        snprintf(name, sizeof name, "%s", cases[i].policy);
        must(rkv_policy_set_name(&p, name, &e), &e);
        must(rkv_policy_set_budget(&p, cases[i].budget, &e), &e);
        p.recent = RECENT;
        p.pool_kernel = cases[i].kernel;
        must(rkv_session_fork(&alone, full, &e), &e);
        must(rkv_session_fork(&shared, full, &e), &e);
        must(rkv_session_compress(alone, &p, &e), &e);
        if (rkv_policy_active(&p)) {
            must(rkv_scores_begin(scores, shared, &p, &e), &e);
            CHECK(rkv_scores_get(scores, last, 0, score) == cases[i].found,
                  "case %zu, %s: scores are there: %d", i, name, !cases[i].found);
        }
        must(rkv_session_compress_with(shared, &p, scores, &e), &e);
        int differ = 0;
        for (int l = 0; l < m->config.n_layer; l++)
            for (int h = 0; h < m->config.n_kv_head; h++) {
                const int32_t *a, *b;
                const int n = rkv_session_kept(alone, l, h, &a);
                differ += n != rkv_session_kept(shared, l, h, &b) ||
                          (n && memcmp(a, b, (size_t)n * sizeof *a));
            }
        CHECK(!differ && !shared->scores, "case %zu, %s: %d heads differ", i, name, differ);
        rkv_session_free(alone);
        rkv_session_free(shared);
    }
    rkv_scores_free(scores);
    rkv_scores_free(NULL);
}

/* A session that did not observe what the policy needs refuses, and stays as it was. */
static void check_refused(const rkv_model *m)
{
    static const struct {
        int observe;
        const char *policy, *words;
    } cases[] = {{0, "h2o", "needs the attention mass"},
                 {RKV_OBSERVE_QUERIES, "observed", "'observed' needs"},
                 {RKV_OBSERVE_MASS, "snapkv", "observed 0 queries"},
                 {RKV_OBSERVE_QUERIES | RKV_OBSERVE_MASS, "blend",
                  "of the last 200 queries, the session observed that of 0"},
                 {RKV_OBSERVE_MASS | RKV_OBSERVE_RECENT, "blend", "observed 0 queries"}};
    rkv_error e = {0};
    rkv_policy p = rkv_policy_default();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rkv_session_options o = rkv_session_options_default();
        o.observe = cases[i].observe;
        rkv_session *s = prefilled(m, &o, 200);
        must(rkv_policy_set_name(&p, cases[i].policy, &e), &e);
        must(rkv_policy_set_budget(&p, "30%", &e), &e);
        CHECK(rkv_session_compress(s, &p, &e) == RKV_E_ARG && strstr(e.text, cases[i].words), "%s",
              e.text);
        CHECK(!s->compressed && rkv_session_kv_info(s).bytes == rkv_session_kv_info(s).bytes_full,
              "%s: nothing was changed", cases[i].policy);
        rkv_session_free(s);
    }
    rkv_session_options o = rkv_session_options_default();
    rkv_session *s;
    o.observe = 16;
    CHECK(rkv_session_create(&s, m, &o, &e) == RKV_E_ARG && strstr(e.text, "observe is 16"), "%s",
          e.text);
    o.observe = RKV_OBSERVE_RECENT;
    o.policy.recent = 0;
    CHECK(rkv_session_create(&s, m, &o, &e) == RKV_E_ARG && strstr(e.text, "'recent' is 0"), "%s",
          e.text);
    o = observing(1);           /* of the last 101 */
    s = prefilled(m, &o, 200);
    must(rkv_policy_set_name(&p, "blend", &e), &e);
    p.recent = 100;
    CHECK(rkv_session_compress(s, &p, &e) == RKV_E_ARG && !s->compressed &&
              strstr(e.text, "last 100 queries, the session observed that of 101"), "%s", e.text);
    rkv_session_free(s);
}

/* Lengths around one token, the window, the floor, and a tile. */
static void check_lengths(const rkv_model *m)
{
    static const int lengths[] = {1, 2, 31, 32, 33, 36, 37, 63, 64, 65, 129};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        char what[32];
        const int n = lengths[i];
        rkv_session_options o = observing(2);
        rkv_session *s = prefilled(m, &o, n);
        snprintf(what, sizeof what, "%d tokens", n);
        check_sums(s, what, 1e-3);
        check_kept(m, s, "h2o", "36", RECENT, 1e-4);
        check_kept(m, s, "observed", "36", RECENT, 1e-4);
        check_kept(m, s, "blend", "36", RECENT, 1e-4);
        rkv_session_free(s);
    }
}

static rkv_model *model_on(const tiny_options *t, const char *path)
{
    setenv("RKV_GEMM", path, 1);
    return made_model(t);
}

static void check_f32(const tiny_options *t)
{
    rkv_model *m = model_on(t, "own");
    rkv_session_options o = observing(1);
    rkv_session *s = prefilled(m, &o, N);
    check_sums(s, t->family, 2e-5);
    check_same_bits(m, s, t->family, 5);
    static const char *const budgets[] = {"36", "10%", "30%"};
    for (int i = 0; i < 3; i++) {
        check_kept(m, s, "h2o", budgets[i], RECENT, 2e-5);
        check_kept(m, s, "observed", budgets[i], RECENT, 2e-5);
        check_kept(m, s, "blend", budgets[i], RECENT, 2e-5);
        check_kept(m, s, "blend", budgets[i], 0, 2e-5);
    }
    check_shared_scores(m, s);
    check_refused(m);
    check_lengths(m);
    rkv_session_free(s);
    rkv_model_free(m);
}

/* In portable C where there is no AMX: less of it. */
static void check_bf16(const tiny_options *t)
{
    char what[40];
    snprintf(what, sizeof what, "%s, bf16", t->family);
    rkv_model *m = model_on(t, "bf16");
    rkv_session_options o = observing(1);
    rkv_session *s = prefilled(m, &o, 370);
    check_sums(s, what, 4e-3);
    check_same_bits(m, s, what, 3);
    check_kept(m, s, "h2o", "10%", RECENT, 4e-3);
    rkv_session_free(s);
    rkv_model_free(m);
}

int main(void)
{
    static const struct {
        const char *family;
        int n_layer, n_head, n_kv_head, window;
    } cases[] = {{"llama", 2, 4, 2, 0}, {"qwen2", 1, 6, 1, 0}, {"qwen3", 2, 3, 3, 0},
                 {"gemma3", 2, 4, 2, 50}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tiny_options t = tiny_defaults();
        t.family = cases[i].family;
        t.n_layer = cases[i].n_layer;
        t.n_head = cases[i].n_head;
        t.n_kv_head = cases[i].n_kv_head;
        t.d_model = t.n_head * t.d_head;
        t.window = cases[i].window;
        t.pattern = cases[i].window ? 2 : 0;
        made_ids(ids, N, t.n_vocab, 11);
        check_f32(&t);
        if (cases[i].n_layer == 2)
            check_bf16(&t);
    }
    return check_end("mass");
}
