/* Selectors on made models of every family, against their definitions in double, computed from the
 * observed queries and the cache of an uncompressed session; and head-wise budgets: totals, memory,
 * what must be equal to the bit. */
#include "config.h"
#include "made.h"

#include <math.h>

#include "base/mem.h"
#include "engine/plan.h"
#include "engine/query_stats.h"
#include "engine/session.h"

enum { N = 300, MORE = 20 };

static int32_t ids[N + MORE];

static void must(rkv_status s, const rkv_error *e)
{
    if (s) {
        fprintf(stderr, "unexpected: %s\n", e->text);
        exit(1);
    }
}

static rkv_session *prefilled(const rkv_model *m, const rkv_session_options *o)
{
    rkv_error e = {0};
    rkv_session *s = NULL;
    must(rkv_session_create(&s, m, o, &e), &e);
    must(rkv_session_prefill(s, ids, N, &e), &e);
    return s;
}

/* Everything is observed, every query is kept. */
static rkv_session *observed_session(const rkv_model *m)
{
    rkv_session_options o = rkv_session_options_default();
    o.n_thread = 1;
    o.observe = RKV_OBSERVE_QUERIES | RKV_OBSERVE_MASS | RKV_OBSERVE_STATS;
    o.policy.window = N;
    return prefilled(m, &o);
}

/* ---- the definitions ---- */

static double *rows_of(const rkv_session *s, int l, int h, int values)
{
    const int d = s->m->config.d_head;
    const rkv_kv_view kv = rkv_kv_view_of(s->kv, l, h);
    float *x = malloc(sizeof *x * N * (size_t)d);
    double *out = malloc(sizeof *out * N * (size_t)d);
    s->m->backend.ops.unpack[values ? kv.v_type : kv.k_type](x, values ? kv.v : kv.k,
                                                             (int64_t)N * d);
    for (int i = 0; i < N * d; i++)
        out[i] = (double)x[i];
    free(x);
    return out;
}

/* Rotates a row by the cosines and sines of its pairs. */
static void rotate(const rkv_model *m, int l, double *x, const double *c, const double *s)
{
    const rkv_rope *r = &m->rope[m->layer[l].rope];
    for (int i = 0; i < r->n_pair; i++) {
        double *a = x + (m->config.rope_neox ? i : 2 * i),
               *b = x + (m->config.rope_neox ? i + r->n_pair : 2 * i + 1);
        const double first = *a * c[i] - *b * s[i];
        *b = *a * s[i] + *b * c[i];
        *a = first;
    }
}

/* Query head g's query at position t before rotation, not scaled. */
static void plain_query(const rkv_session *s, int l, int head, int t, double *out)
{
    const rkv_config *c = &s->m->config;
    const rkv_rope *r = &s->m->rope[s->m->layer[l].rope];
    const float *q = rkv_session_seen_q(s, l) + ((ptrdiff_t)t * c->n_head + head) * c->d_head;
    double cosine[RKV_MAX_D_HEAD], sine[RKV_MAX_D_HEAD];
    for (int i = 0; i < c->d_head; i++)
        out[i] = (double)q[i] / (double)c->attn_scale;
    for (int i = 0; i < r->n_pair; i++) {
        cosine[i] = cos(t * r->inv_freq[i]) / r->magnitude;
        sine[i] = -sin(t * r->inv_freq[i]) / r->magnitude;
    }
    rotate(s->m, l, out, cosine, sine);
}

/* mean[d], cov[d][d] of the queries after the sinks. */
static void slow_stats(const rkv_session *s, int l, int head, int n_sink, double *mean, double *cov)
{
    const int d = s->m->config.d_head, count = N - n_sink;
    double *q = malloc(sizeof *q * N * (size_t)d);
    memset(mean, 0, sizeof *mean * (size_t)d);
    memset(cov, 0, sizeof *cov * (size_t)(d * d));
    for (int t = n_sink; t < N; t++) {
        plain_query(s, l, head, t, q + (ptrdiff_t)t * d);
        for (int i = 0; i < d; i++)
            mean[i] += q[(ptrdiff_t)t * d + i] / count;
    }
    for (int t = n_sink; t < N; t++)
        for (int i = 0; i < d; i++)
            for (int k = 0; k < d; k++)
                cov[i * d + k] += (q[(ptrdiff_t)t * d + i] - mean[i]) *
                                  (q[(ptrdiff_t)t * d + k] - mean[k]) / count;
    free(q);
}

static void softmax(double *x, int n)
{
    double top = -INFINITY, sum = 0.0;
    for (int t = 0; t < n; t++)
        top = fmax(top, x[t]);
    for (int t = 0; t < n; t++)
        sum += x[t] = exp(x[t] - top);
    for (int t = 0; t < n; t++)
        x[t] /= sum;
}

static double norm_of(const double *x, int n)
{
    double sum = 0.0;
    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

/* R S R', R the mean rotation: of the rows, and then of the columns. */
static void turn_covariance(const rkv_model *m, int l, double *cov, const double *c,
                            const double *s)
{
    const int d = m->config.d_head;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < d; i++)
            rotate(m, l, cov + i * d, c, s);
        for (int i = 0; i < d; i++)
            for (int j = 0; j < i; j++) {
                const double x = cov[i * d + j];
                cov[i * d + j] = cov[j * d + i];
                cov[j * d + i] = x;
            }
    }
}

static void slow_expected(const rkv_policy *p, const rkv_session *s, int l, int h, double *score)
{
    const rkv_config *c = &s->m->config;
    const rkv_rope *r = &s->m->rope[s->m->layer[l].rope];
    const int d = c->d_head, n_group = c->n_head / c->n_kv_head;
    const double scale = (double)c->attn_scale;
    double *k = rows_of(s, l, h, 0), *v = rows_of(s, l, h, 1), *logit = malloc(sizeof *logit * N);
    double *mean = malloc(sizeof *mean * (size_t)(d * (d + 1))), *cov = mean + d;
    double cosine[RKV_MAX_D_HEAD] = {0}, sine[RKV_MAX_D_HEAD] = {0}, product[RKV_MAX_D_HEAD];
    for (int i = 0; i < r->n_pair; i++)
        for (int t = N; t < N + p->n_future; t++) {
            cosine[i] += cos(t * r->inv_freq[i]) * r->magnitude / p->n_future;
            sine[i] += sin(t * r->inv_freq[i]) * r->magnitude / p->n_future;
        }
    memset(score, 0, sizeof *score * N);
    for (int g = 0; g < n_group; g++) {
        slow_stats(s, l, h * n_group + g, p->n_sink, mean, cov);
        rotate(s->m, l, mean, cosine, sine);
        turn_covariance(s->m, l, cov, cosine, sine);
        for (int t = p->n_sink; t < N; t++) {
            const double *key = k + (ptrdiff_t)t * d;
            double x = 0.0;
            for (int i = 0; i < d; i++) {
                product[i] = 0.0;
                for (int j = 0; j < d; j++)
                    product[i] += cov[i * d + j] * key[j];
            }
            for (int i = 0; i < d; i++)
                x += scale * mean[i] * key[i] +
                     (p->use_covariance ? 0.5 * scale * scale * product[i] * key[i] : 0.0);
            logit[t] = x;
        }
        softmax(logit + p->n_sink, N - p->n_sink);
        for (int t = p->n_sink; t < N; t++)
            score[t] += logit[t] / n_group;
    }
    for (int t = 0; t < N; t++) {
        if (p->use_value_norm)
            score[t] = (score[t] + p->epsilon) * norm_of(v + (ptrdiff_t)t * d, d);
        if (t < p->n_sink)
            score[t] = INFINITY;
    }
    free(k);
    free(v);
    free(logit);
    free(mean);
}

/* Attention of query head `head` at position `at`, added to score with a weight. */
static void add_attention(const rkv_session *s, int l, int head, int at, const double *k,
                          double weight, double *score)
{
    const rkv_config *c = &s->m->config;
    const float *q = rkv_session_seen_q(s, l) + ((ptrdiff_t)at * c->n_head + head) * c->d_head;
    double w[N];
    for (int t = 0; t <= at; t++) {
        w[t] = 0.0;
        for (int i = 0; i < c->d_head; i++)
            w[t] += (double)q[i] * k[(ptrdiff_t)t * c->d_head + i];
    }
    softmax(w, at + 1);
    for (int t = 0; t <= at; t++)
        score[t] += weight * w[t];
}

static void slow_tova(const rkv_session *s, int l, double *score)
{
    const rkv_config *c = &s->m->config;
    memset(score, 0, sizeof *score * N);
    for (int head = 0; head < c->n_head; head++) {
        double *k = rows_of(s, l, head / (c->n_head / c->n_kv_head), 0);
        add_attention(s, l, head, N - 1, k, 1.0 / c->n_head, score);
        free(k);
    }
}

/* Window sums, mean over the group, not pooled. */
static void slow_snapkv(const rkv_policy *p, const rkv_session *s, int l, int h, double *score)
{
    const rkv_config *c = &s->m->config;
    const int n_group = c->n_head / c->n_kv_head;
    double *k = rows_of(s, l, h, 0);
    memset(score, 0, sizeof *score * N);
    for (int g = 0; g < n_group; g++)
        for (int at = N - p->window; at < N; at++)
            add_attention(s, l, h * n_group + g, at, k, 1.0 / n_group, score);
    free(k);
}

static void slow_scores(const rkv_policy *p, const rkv_session *s, int l, int h, double *score)
{
    const int d = s->m->config.d_head;
    if (!strcmp(p->selector, "expected")) {
        slow_expected(p, s, l, h, score);
    } else if (!strcmp(p->selector, "tova")) {
        slow_tova(s, l, score);
    } else if (!strcmp(p->selector, "snapkv")) {
        slow_snapkv(p, s, l, h, score);
    } else if (!strcmp(p->selector, "knorm")) {
        double *k = rows_of(s, l, h, 0);
        for (int t = 0; t < N; t++)
            score[t] = -norm_of(k + (ptrdiff_t)t * d, d);
        free(k);
    } else {
        for (int t = 0; t < N; t++)
            score[t] = t < p->n_sink ? INFINITY : t;
    }
}

/* Multiplies by the mean over the group of |W_O v|_1, but for the best of the first stage. */
static void slow_critical(const rkv_policy *p, const rkv_session *s, int l, int h, int budget,
                          double *score)
{
    const rkv_config *c = &s->m->config;
    const rkv_matrix *w = &s->m->layer[l].w[RKV_W_O];
    const int d = c->d_head, n_group = c->n_head / c->n_kv_head, n_scored = N - p->window;
    const int queries = !strcmp(p->selector, "snapkv") ? p->window : 1;
    const int first = (int)(p->first_stage * budget + 1e-9) - p->window;
    double *v = rows_of(s, l, h, 1), *norm = calloc(N, sizeof *norm), was[N];
    float *row = malloc(sizeof *row * (size_t)w->n_in);
    for (int g = 0; g < n_group; g++)
        for (int j = 0; j < c->d_model; j++) {
            s->m->backend.ops.unpack[w->type](row, (const char *)w->data + j * w->row_stride,
                                              w->n_in);
            for (int t = 0; t < n_scored; t++) {
                double x = 0.0;
                for (int i = 0; i < d; i++)
                    x += (double)row[(h * n_group + g) * d + i] * v[(ptrdiff_t)t * d + i];
                norm[t] += fabs(x) / n_group;
            }
        }
    memcpy(was, score, sizeof was);
    for (int t = 0; t < n_scored; t++) {
        int better = 0;
        for (int u = 0; u < n_scored; u++)
            better += was[u] > was[t] || (was[u] == was[t] && u < t);
        score[t] = better < first ? INFINITY : (was[t] + p->critical_epsilon * queries) * norm[t];
    }
    free(v);
    free(norm);
    free(row);
}

/* ---- the checks ---- */

/* Kept positions of a head that the definition would not keep; those near the cut apart. */
static int head_wrong(const rkv_session *got, int l, int h, int window, const double *score,
                      int *near)
{
    const int32_t *pos;
    const int n = rkv_session_kept(got, l, h, &pos), n_scored = N - window;
    double cut = INFINITY, best = -INFINITY;
    uint8_t stays[N] = {0};
    int wrong = n != rkv_session_head_budget(got, l, h);
    for (int i = 0; i < n; i++)
        stays[pos[i]] = 1;
    for (int t = 0; t < n_scored; t++)
        if (stays[t])
            cut = fmin(cut, score[t]);
        else
            best = fmax(best, score[t]);
    for (int t = n_scored; t < N; t++)
        wrong += !stays[t];
    if (n < N && best > cut) {          /* something better went: only within rounding */
        const int is_near = best - cut <= 3e-5 * fabs(best);
        *near += is_near;
        wrong += !is_near;
    }
    return wrong;
}

typedef struct test_case {
    const char *policy, *budget;
    int window, n_sink, variant;        /* bit 0: without covariance; 1: without norm; 2: epsilon */
} test_case;

static rkv_session_options options_of(const test_case *c)
{
    rkv_error e = {0};
    rkv_session_options o = rkv_session_options_default();
    must(rkv_policy_set_name(&o.policy, c->policy, &e), &e);
    must(rkv_policy_set_budget(&o.policy, c->budget, &e), &e);
    o.policy.window = c->window;
    o.policy.n_sink = c->n_sink;
    o.policy.pool_kernel = 1;
    o.policy.n_future = 100;
    o.policy.use_covariance = !(c->variant & 1);
    o.policy.use_value_norm = !(c->variant & 2);
    o.policy.epsilon = c->variant & 4 ? 0.01 : 0.0;
    return o;
}

/* The same sets however the prompt is cut and shared out, and when chosen later. */
static void check_same(const rkv_session *want, const test_case *c)
{
    static const int threads[] = {2, 3, 1}, chunks[] = {33, 1, 256};
    rkv_error e = {0};
    for (int i = 0; i < 3; i++) {
        rkv_session_options o = options_of(c);
        const rkv_policy policy = o.policy;
        o.n_thread = threads[i];
        o.n_chunk = chunks[i];
        if (i == 2) {
            o.observe = rkv_policy_observes(&policy);
            o.policy.budget_kind = RKV_BUDGET_NONE;
        }
        rkv_session *s = prefilled(want->m, &o), *fork = NULL;
        if (i == 2) {
            must(rkv_session_fork(&fork, s, &e), &e);
            rkv_session_free(s);
            s = fork;
            must(rkv_session_compress(s, &policy, &e), &e);
        }
        int apart = 0;
        for (int l = 0; l < want->m->config.n_layer; l++)
            for (int h = 0; h < want->m->config.n_kv_head; h++) {
                const int32_t *x, *y;
                const int n = rkv_session_kept(want, l, h, &x);
                apart += n != rkv_session_kept(s, l, h, &y) || memcmp(x, y, sizeof *x * (size_t)n);
            }
        CHECK(!apart, "%s, case %d: %d heads differ", c->policy, i, apart);
        rkv_session_free(s);
    }
}

/* Exact totals of every layer, bytes that say so, and no more memory than planned. */
static void check_memory(const rkv_session *s, const test_case *c, uint64_t before)
{
    const rkv_config *m = &s->m->config;
    const rkv_kv_info kv = rkv_session_kv_info(s);
    uint64_t slots = 0;
    int wrong = 0;
    for (int l = 0; l < m->n_layer; l++) {
        int64_t total = 0;
        for (int h = 0; h < m->n_kv_head; h++) {
            const rkv_kv_head *head = rkv_kv_at(s->kv, l, h);
            total += rkv_session_head_budget(s, l, h);
            slots += (uint64_t)head->n_slot;
            if (!rkv_session_skips(s, l))
                wrong += head->n_slot != rkv_session_head_budget(s, l, h) ||
                         head->cap > head->n_slot + 1024;
        }
        if (!rkv_session_skips(s, l) && strstr(c->policy, "uniform"))
            wrong += total != (int64_t)kv.cap * m->n_kv_head;
    }
    CHECK(!wrong && kv.bytes == slots * (s->kv->k_bytes + s->kv->v_bytes), "%s %s: %d wrong",
          c->policy, c->budget, wrong);
    CHECK(before < rkv_mem_peak() && rkv_mem_peak() <= rkv_session_plan_bytes(s),
          "%s %s: %llu bytes, planned %llu", c->policy, c->budget,
          (unsigned long long)rkv_mem_peak(),
          (unsigned long long)rkv_session_plan_bytes(s));
}

static void check_case(const rkv_session *full, const test_case *c, int with_same)
{
    rkv_error e = {0};
    rkv_session_options o = options_of(c);
    const rkv_model *m = full->m;
    const rkv_policy *p = &o.policy;
    int wrong = 0, near = 0;
    o.n_ctx = 1000;
    rkv_session *s = NULL;
    must(rkv_session_create(&s, m, &o, &e), &e);
    const uint64_t before = rkv_mem_current();
    rkv_mem_peak_reset();
    must(rkv_session_prefill(s, ids, N, &e), &e);
    check_memory(s, c, before);
    for (int l = 0; l < m->config.n_layer; l++)
        for (int h = 0; h < m->config.n_kv_head; h++) {
            double score[N];
            if (rkv_session_skips(s, l))
                continue;
            slow_scores(p, full, l, h, score);
            if (p->criticalkv)
                slow_critical(p, full, l, h, rkv_session_head_budget(s, l, h), score);
            wrong += head_wrong(s, l, h, p->window, score, &near);
        }
    CHECK(!wrong && near < 6, "%s %s, window %d, variant %d: %d wrong, %d near the cut", c->policy,
          c->budget, c->window, c->variant, wrong, near);
    must(rkv_session_decode(s, ids[N], &e), &e);
    must(rkv_session_prefill(s, ids + N + 1, MORE - 1, &e), &e);
    CHECK(isfinite((double)rkv_session_logits(s)[0]) && rkv_session_n_past(s) == N + MORE,
          "goes on");
    rkv_session_free(s);
    if (with_same) {
        o.n_ctx = 0;
        s = prefilled(m, &o);
        check_same(s, c);
        rkv_session_free(s);
    }
}

/* Statistics on the way are those of the observed queries. */
static void check_stats(const rkv_session *full)
{
    const rkv_config *c = &full->m->config;
    const int d = c->d_head;
    double worst = 0.0, mean[RKV_MAX_D_HEAD];
    double *cov = malloc(sizeof *cov * (size_t)(d * d));
    for (int l = 0; l < c->n_layer; l++)
        for (int head = 0; head < c->n_head && !rkv_session_skips(full, l); head++) {
            const float *got =
                rkv_session_seen_stats(full, l) + (ptrdiff_t)head * (ptrdiff_t)rkv_stat_floats(d);
            double size = 0.0;
            slow_stats(full, l, head, 4, mean, cov);
            for (int i = 0; i < d; i++)
                size = fmax(size, cov[i * d + i]);
            for (int i = 0; i < d; i++) {
                worst = fmax(worst, fabs((double)got[i] - mean[i]) / sqrt(size));
                for (int k = 0; k < d; k++)
                    worst = fmax(worst, fabs((double)got[(i + 1) * d + k] - cov[i * d + k]) / size);
            }
        }
    CHECK(worst < 3e-5, "means or covariances are off by %g of the variance", worst);
    free(cov);
}

/* Every allocation fails once; nothing leaks. */
static void check_no_memory(const rkv_model *m, const test_case *c)
{
    rkv_error e = {0};
    const rkv_session_options o = options_of(c);
    const uint64_t before = rkv_mem_current();
    int k = 0;
    for (rkv_status st = RKV_E_MEM; st;) {
        rkv_session *s = NULL;
        rkv_mem_fail_after(++k);
        st = rkv_session_create(&s, m, &o, &e);
        if (!st)
            st = rkv_session_prefill(s, ids, N, &e);
        rkv_mem_fail_after(0);
        CHECK(!st || st == RKV_E_MEM, "allocation %d: %s", k, e.text);
        rkv_session_free(s);
        CHECK(rkv_mem_current() == before, "allocation %d leaks", k);
    }
    CHECK(k > 20, "only %d allocations", k);
}

/* Statistics that were not asked for, or of other queries, are refused, and heads do share. */
static void check_refused(const rkv_session *full)
{
    rkv_error e = {0};
    rkv_session_options o = rkv_session_options_default();
    rkv_session *s = prefilled(full->m, &o), *fork = NULL;
    const test_case c = {"expected", "30%", 32, 4, 0};
    rkv_policy p = options_of(&c).policy;
    CHECK(rkv_session_compress(s, &p, &e) == RKV_E_ARG && strstr(e.text, "RKV_OBSERVE_STATS"), "%s",
          e.text);
    rkv_session_free(s);
    must(rkv_session_fork(&fork, full, &e), &e);
    p.n_sink = 3;
    CHECK(rkv_session_compress(fork, &p, &e) == RKV_E_ARG && strstr(e.text, "after 3 sinks"), "%s",
          e.text);
    p.n_sink = 4;
    CHECK(!rkv_session_compress(fork, &p, &e), "%s", e.text);
    rkv_session_free(fork);
}

static void check_model(const tiny_options *t)
{
    static const test_case cases[] = {
        {"streaming:uniform", "20%", 32, 4, 0}, {"streaming:uniform", "20%", 0, 7, 0},
        {"knorm:uniform", "20%", 32, 4, 0}, {"knorm:pyramid", "40%", 0, 4, 0},
        {"tova:uniform", "20%", 1, 4, 0}, {"tova:random", "30%", 0, 0, 0},
        {"expected:uniform", "20%", 32, 4, 0}, {"expected:uniform", "30%", 0, 4, 1},
        {"expected:pyramid", "30%", 8, 3, 2}, {"expected:random", "10%", 4, 4, 4},
        {"snapkv:uniform+criticalkv", "30%", 16, 4, 0},
        {"expected:uniform+criticalkv", "20%", 4, 4, 0},
        {"tova:uniform+criticalkv", "20%", 1, 0, 0},
        {"snapkv:uniform+adakv", "20%", 16, 4, 0}, {"snapkv:uniform+adakv", "85%", 16, 4, 0},
        {"expected:uniform+adakv+criticalkv", "20%", 8, 4, 0},
        {"snapkv:pyramid+adakv", "30%", 8, 4, 0},
    };
    rkv_model *m = made_model(t);
    made_ids(ids, N + MORE, t->n_vocab, 17);
    rkv_session *full = observed_session(m);
    check_stats(full);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_case(full, &cases[i], i % 3 == 0);
    check_refused(full);
    rkv_session_free(full);
    check_no_memory(m, &cases[15]);
    rkv_model_free(m);
}

int main(void)
{
    static const struct {
        const char *family;
        int n_head, n_kv_head, window;
    } cases[] = {{"llama", 4, 2, 0}, {"qwen2", 6, 3, 0}, {"qwen3", 3, 1, 0}, {"gemma3", 4, 2, 50}};
    setenv("RKV_GEMM", "own", 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tiny_options t = tiny_defaults();
        t.family = cases[i].family;
        t.n_layer = 2;
        t.n_head = cases[i].n_head;
        t.n_kv_head = cases[i].n_kv_head;
        t.d_model = t.n_head * t.d_head;
        t.window = cases[i].window;
        t.pattern = cases[i].window ? 2 : 0;
        check_model(&t);
    }
    return check_end("selectors");
}
