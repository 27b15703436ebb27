/* From examples to a profile: statistics against known values, the table of numbers, its parts put
 * together, runs that cannot go on. */
#include "config.h"
#include "made.h"

#include <math.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "noise.h"
#include "model/model.h"
#include "profile/stats.h"
#include "profile/table.h"
#include "scratch.h"

static void must(rkv_status s, const rkv_error *e)
{
    if (s) {
        fprintf(stderr, "unexpected: %s\n", e->text);
        exit(1);
    }
}

/* ---- statistics ---- */

static double spearman(const double *x, const double *y, int n)
{
    double rank[2 * 16];
    rkv_ranked scratch[16];
    return rkv_spearman(x, y, n, rank, scratch);
}

static void check_spearman(void)
{
    /* Ranks 1 2.5 2.5 4 against 1 3 2 4: Pearson 4.5 / sqrt(4.5 * 5). */
    const double x[] = {1, 2, 2, 3}, y[] = {1, 3, 2, 4};
    CHECK(fabs(spearman(x, y, 4) - 4.5 / sqrt(22.5)) < 1e-15, "ties: %g", spearman(x, y, 4));
    /* No ties: 1 - 6 sum d^2 / (n (n^2 - 1)), d = 0 3 -2 -1 0, n = 5: 1 - 84 / 120. */
    const double a[] = {10, 20, 30, 40, 50}, b[] = {1, 7, 2, 3, 9};
    CHECK(fabs(spearman(a, b, 5) - (1.0 - 6.0 * (0 + 4 + 1 + 1 + 0) / 120.0)) < 1e-15, "%g",
          spearman(a, b, 5));
    const double down[] = {5, 4, 3, 2, 1}, flat[] = {7, 7, 7, 7, 7};
    CHECK(spearman(a, down, 5) == -1.0 && spearman(a, a, 5) == 1.0, "signed");
    CHECK(isnan(spearman(a, flat, 5)) && isnan(spearman(a, b, 1)), "no order, no correlation");
    double rank[5];
    rkv_ranked scratch[5];
    const double z[] = {3, -1, 3, 3, 0};
    rkv_ranks(rank, z, 5, scratch);
    CHECK(rank[0] == 4 && rank[1] == 1 && rank[2] == 4 && rank[3] == 4 && rank[4] == 2,
          "%g %g %g %g %g", rank[0], rank[1], rank[2], rank[3], rank[4]);
}

/* Of 12 layers no relation looks like E|r|, about sqrt(2 / (pi (n - 1))) = 0.241. */
static void check_random(void)
{
    enum { N = 12 };
    double x[N], rank[2 * N], shuffled[N], sorted[N];
    rkv_ranked scratch[N];
    for (int i = 0; i < N; i++)
        x[i] = i;
    const double r = rkv_spearman_random(x, N, rank, scratch, shuffled);
    CHECK(fabs(r - 0.241) < 0.02, "random control %g", r);
    CHECK(r == rkv_spearman_random(x, N, rank, scratch, shuffled), "the same again");
    rkv_ranks(sorted, shuffled, N, scratch);
    double sum = 0.0;
    for (int i = 0; i < N; i++)
        sum += sorted[i] * sorted[i];
    CHECK(sum == 650.0, "a shuffle holds every number once: %g", sum);
}

static void check_resampling(void)
{
    enum { N = 10 };
    int pick[N], again[N], count[N] = {0}, same = 0;
    for (int r = 0; r < RKV_RESAMPLES; r++) {
        rkv_resample(pick, N, r);
        rkv_resample(again, N, r);
        CHECK(!memcmp(pick, again, sizeof pick), "resample %d is the same again", r);
        for (int i = 0; i < N; i++)
            count[pick[i]]++;
        if (r) {
            rkv_resample(again, N, r - 1);
            same += !memcmp(pick, again, sizeof pick);
        }
    }
    for (int i = 0; i < N; i++)                 /* 1000 each, standard deviation 30 */
        CHECK(abs(count[i] - RKV_RESAMPLES) < 150, "index %d drawn %d times", i, count[i]);
    CHECK(!same, "%d resamples repeat the one before", same);
    double x[1001];
    for (int i = 0; i < 1001; i++)
        x[i] = (i * 487) % 1001;                /* 0 .. 1000 shuffled */
    const rkv_interval in = rkv_interval_of(x, 1001);
    CHECK(in.low == 25.0 && in.high == 975.0, "%g to %g", in.low, in.high);
    double one[] = {3.0};
    CHECK(rkv_interval_of(one, 1).low == 3.0 && rkv_interval_of(one, 1).high == 3.0, "one value");
}

/* ---- made tables ---- */

enum { LAYERS = 5, HEADS = 2, SEEDS = 2, SLIDING = 3 };

static rkv_profile *made_head(unsigned signals)
{
    static const double grid[] = {0.05, 0.1, 0.4};
    const rkv_model_info info = {.path = "m", .name = "made", .arch = "llama",
                                 .quantization = "f32", .fingerprint = "0123456789abcdef",
                                 .tier = "ref", .arithmetic = "f32", .rope_scaling = "none",
                                 .rope_base = 10000.0, .rope_factor = 1.0, .n_layer = LAYERS,
                                 .n_kv_head = HEADS};
    rkv_error e = {0};
    rkv_profile *p;
    must(rkv_profile_create(&p, &info, &e), &e);
    p->noise = 0.5;
    p->n_seed = SEEDS;
    p->n_response = 32;
    p->data_hash = 17;
    p->n_ctx = 1000;
    p->signals = signals;
    p->damage_budget = 0.1;
    p->n_grid = p->n_head_grid = 3;
    memcpy(p->grid, grid, sizeof grid);
    memcpy(p->head_grid, grid, sizeof grid);
    p->selector = rkv_mem_strdup("snapkv");
    for (int l = 0; l < LAYERS; l++)
        p->sensitivity[l].in_budget = l != SLIDING;
    return p;
}

/* A number in (0, 1) of three indices. */
static double made_number(int a, int b, int c)
{
    return rkv_noise_uniform(rkv_noise_key((uint64_t)a, (uint64_t)b, (uint64_t)c), 0);
}

/* A table of n examples, one in four of them skipped; spread: how much examples differ. Shard s of
 * n_shard holds its rows only. */
static rkv_table *made_table(unsigned signals, int n, double spread, int s, int n_shard)
{
    rkv_error e = {0};
    rkv_table *t;
    must(rkv_table_create(&t, made_head(signals), n, &e), &e);
    t->shard = s;
    t->n_shard = n_shard;
    for (int i = 0; i < n; i++) {
        rkv_measured *row = &t->row[i];
        if (!rkv_table_has(t, i))
            continue;
        row->state = i % 8 == 3 ? RKV_EXAMPLE_SHORT : i % 8 == 6 ? RKV_EXAMPLE_LONG
                                                                 : RKV_EXAMPLE_USED;
        row->n_fed = row->state == RKV_EXAMPLE_USED ? 8 + i % 20 : 0;
        if (row->state != RKV_EXAMPLE_USED)
            continue;
        must(rkv_measured_alloc(row, &t->plan, &e), &e);
        for (int v = 0; v < t->plan.n_item; v++) {
            const rkv_planned *item = &t->plan.item[v];
            row->out[v].kl = 0.2 * (1 + item->v.layer) * (1 + item->v.layer) *
                             (1.0 + spread * (made_number(i, v, 0) - 0.5));
            row->out[v].local = made_number(i, v, 1);
        }
        for (size_t u = 0; u < t->plan.n_error; u++)
            row->error[u] = (int)(u / (HEADS * 3)) == SLIDING ? (double)NAN
                                                              : made_number(i, (int)u, 2);
    }
    return t;
}

static char *profile_text(rkv_table *t)
{
    rkv_error e = {0};
    rkv_profile *p;
    char *text;
    size_t n;
    must(rkv_table_summarize(&p, t, "made", &e), &e);
    must(rkv_profile_print(p, &text, &n, &e), &e);
    rkv_profile_free(p);
    rkv_table_free(t);
    return text;
}

static const unsigned all_signals = RKV_SIGNAL_VALUES | RKV_SIGNAL_KEYS | RKV_SIGNAL_KEYS_VALUES |
                                    RKV_SIGNAL_DAMAGE | RKV_SIGNAL_CURVES |
                                    RKV_SIGNAL_LAYER_CURVES | RKV_SIGNAL_HEAD_CURVES;

/* The numbers of a profile, computed here once more from the table. */
static void check_summary(void)
{
    rkv_error e = {0};
    rkv_profile *p;
    rkv_table *t = made_table(all_signals, 16, 0.5, 1, 1);
    const int l = 2, h = 1, g = 2;
    double mean[16], error[16], drop[16], sum = 0.0, sum_error = 0.0, sum_drop = 0.0;
    int n = 0;
    for (int i = 0; i < 16; i++) {
        const rkv_measured *row = &t->row[i];
        if (row->state != RKV_EXAMPLE_USED)
            continue;
        mean[n] = error[n] = drop[n] = 0.0;
        for (int v = 0; v < t->plan.n_item; v++) {
            const rkv_planned *item = &t->plan.item[v];
            if (item->v.layer == l && item->signal == RKV_SIGNAL_VALUES)
                mean[n] += row->out[v].kl / SEEDS;
            if (item->v.layer == l && item->signal == RKV_SIGNAL_HEAD_CURVES &&
                item->v.head == h && item->v.amount == 0.4)
                drop[n] = row->out[v].kl;
        }
        error[n] = row->error[(l * HEADS + h) * 3 + g];
        sum += mean[n];
        sum_error += error[n];
        sum_drop += drop[n++];
    }
    must(rkv_table_summarize(&p, t, "made", &e), &e);
    CHECK(n == 12 && p->n_example == n && p->n_skipped_short == 2 && p->n_skipped_long == 2,
          "%d used, %d, %d", p->n_example, p->n_skipped_short, p->n_skipped_long);
    CHECK(fabs(p->sensitivity[l].mean - sum / n) < 1e-15, "%g", p->sensitivity[l].mean);
    double var = 0.0;
    for (int i = 0; i < n; i++)
        var += (mean[i] - sum / n) * (mean[i] - sum / n) / (n - 1) / n;
    CHECK(fabs(p->sensitivity[l].se_examples - sqrt(var)) < 1e-12, "%g, expected %g",
          p->sensitivity[l].se_examples, sqrt(var));
    const rkv_curves *c = rkv_profile_find_curves(p, 0, 1), *m = rkv_profile_find_curves(p, 1, 1);
    const int at = (l * HEADS + h) * 3 + g;
    CHECK(fabs(c->damage[at] - sum / n * sum_error / n) < 1e-15, "estimate %g", c->damage[at]);
    CHECK(fabs(m->damage[at] - sum_drop / n) < 1e-15, "measured %g", m->damage[at]);
    double jack = 0.0, all = 0.0, without[16];
    for (int i = 0; i < n; i++)
        all += without[i] = (sum - mean[i]) / (n - 1) * (sum_error - error[i]) / (n - 1);
    for (int i = 0; i < n; i++)
        jack += (without[i] - all / n) * (without[i] - all / n) * (n - 1) / n;
    CHECK(fabs(c->se[at] - sqrt(jack)) < 1e-12, "jackknife %g, expected %g", c->se[at],
          sqrt(jack));
    CHECK(isnan(c->damage[SLIDING * HEADS * 3]) && isnan(p->sensitivity[SLIDING].mean), "sliding");
    CHECK(rkv_profile_find_curves(p, 1, 0) && p->extra[RKV_EXTRA_KEYS][4].in_budget &&
              !p->extra[RKV_EXTRA_DAMAGE][SLIDING].in_budget, "further signals");
    rkv_profile_free(p);
    rkv_table_free(t);
}

/* What certainty says of tables whose certainty is known. */
static void check_certainty(void)
{
    rkv_error e = {0};
    rkv_profile *p;
    double widest, before = 1.0;
    int layer;
    rkv_table *t = made_table(RKV_SIGNAL_VALUES, 16, 0.0, 1, 1);        /* all examples alike */
    must(rkv_table_widest(&widest, &layer, t, &e), &e);
    CHECK(fabs(widest) < 1e-12, "no spread: widest %g", widest);
    must(rkv_table_summarize(&p, t, "made", &e), &e);
    static const double rank[] = {1, 2, 3, 0, 4};
    double sum = 0.0;
    for (int l = 0; l < LAYERS; l++) {
        const rkv_layer_certainty *c = &p->certainty[l];
        if (l == SLIDING) {
            CHECK(isnan(c->rank) && isnan(c->budget), "sliding");
            continue;
        }
        CHECK(c->rank == rank[l] && c->rank_low == rank[l] && c->rank_high == rank[l], "layer %d",
              l);
        sum += c->budget;
    }
    CHECK(fabs(sum - 4.0) < 1e-12 && p->diagnostics.n_more == 0, "budgets of mean 1: %g", sum);
    /* Weights 1.5^s, s = 0, 3 / 24, 8 / 24, 1 of 1, 4, 9, 25: over their mean. */
    const double w[] = {1.0, pow(1.5, 3.0 / 24), pow(1.5, 8.0 / 24), 1.5};
    CHECK(fabs(p->certainty[4].budget - 1.5 * 4 / (w[0] + w[1] + w[2] + w[3])) < 1e-12, "%g",
          p->certainty[4].budget);
    CHECK(p->diagnostics.n_agreement == 3 && p->diagnostics.agreement[2].k == 8 &&
              p->diagnostics.agreement[2].spearman == 1.0, "agreement");
    CHECK(p->diagnostics.spearman[0][RKV_ORDER_INDEX] == 1.0 &&
              isnan(p->diagnostics.spearman[0][RKV_ORDER_DAMAGE]), "orders");
    rkv_profile_free(p);
    rkv_table_free(t);
    for (int n = 8; n <= 512; n *= 8) {         /* narrows about as 1 / sqrt(n) */
        t = made_table(RKV_SIGNAL_VALUES, n, 1.5, 1, 1);
        must(rkv_table_widest(&widest, &layer, t, &e), &e);
        CHECK(widest > 0.0 && (n == 8 || fabs(before / widest / sqrt(8.0) - 1.0) < 0.5),
              "%d examples: %g after %g", n, widest, before);
        must(rkv_table_summarize(&p, t, "made", &e), &e);
        const int more = p->diagnostics.n_more;
        const double ratio = widest / RKV_STABLE;
        CHECK((more == 0) == (widest <= RKV_STABLE) &&
                  (!more || abs(more - (int)(p->n_example * (ratio * ratio - 1))) <= 1),
              "%d examples: %d more", n, more);
        before = widest;
        rkv_profile_free(p);
        rkv_table_free(t);
    }
    t = made_table(RKV_SIGNAL_VALUES, 1, 1.0, 1, 1);    /* one example tells no spread */
    must(rkv_table_widest(&widest, &layer, t, &e), &e);
    CHECK(isnan(widest), "one example: %g", widest);
    rkv_table_free(t);
}

/* A profile is read back as it was written, diagnostics included. */
static void check_round_trip(void)
{
    rkv_error e = {0};
    rkv_profile *p;
    char *text = profile_text(made_table(all_signals, 16, 0.5, 1, 1)), *again, *report;
    size_t n;
    must(rkv_profile_parse(&p, text, strlen(text), "p.json", &e), &e);
    must(rkv_profile_print(p, &again, &n, &e), &e);
    CHECK(!strcmp(text, again), "printed, parsed and printed again");
    must(rkv_profile_report(p, &report, &e), &e);
    CHECK(strstr(report, "sliding window") && strstr(report, "12 examples used, 2 skipped") &&
              strstr(report, "Spearman of damage with"), "%s", report);
    rkv_free(report);
    rkv_mem_free(again);
    rkv_profile_free(p);
    int refused = 0, tried = 0;
    for (size_t cut = 0; cut + 2 < strlen(text); cut += 97, tried++)
        refused += rkv_profile_parse(&p, text, cut, "p.json", &e) == RKV_E_FORMAT;
    CHECK(refused == tried, "%d of %d cuts refused", refused, tried);
    rkv_mem_free(text);
}

/* ---- parts ---- */

static rkv_status join_made(char **text, unsigned signals, int n, int n_shard, int skip,
                            int twice, rkv_error *e)
{
    rkv_table *part[8];
    const char *name[] = {"p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7"};
    int m = 0;
    for (int s = n_shard; s >= 1; s--) {        /* any order */
        if (s == skip)
            continue;
        rkv_table *t = made_table(signals, n, 0.5, s, n_shard);
        char *as_text;
        size_t length;
        must(rkv_table_print(t, &as_text, &length, e), e);
        rkv_table_free(t);
        must(rkv_table_parse(&part[m++], as_text, length, "part", e), e);
        rkv_mem_free(as_text);
    }
    if (twice)
        part[m++] = made_table(signals, n, 0.5, twice, n_shard);
    const rkv_status s = rkv_table_join(part, name, m, e);
    for (int i = !s; i < m; i++)
        rkv_table_free(part[i]);
    if (!s)
        *text = profile_text(part[0]);
    return s;
}

static void check_join(void)
{
    rkv_error e = {0};
    char *whole = profile_text(made_table(all_signals, 13, 0.5, 1, 1)), *text;
    for (int n_shard = 1; n_shard <= 7; n_shard++) {
        must(join_made(&text, all_signals, 13, n_shard, 0, 0, &e), &e);
        CHECK(!strcmp(text, whole), "%d parts: the same bytes", n_shard);
        rkv_mem_free(text);
    }
    rkv_mem_free(whole);
    CHECK(join_made(&text, all_signals, 13, 3, 2, 0, &e) == RKV_E_MISMATCH &&
              strstr(e.text, "shard 2 of 3 is missing"), "%s", e.text);
    CHECK(join_made(&text, all_signals, 13, 3, 0, 2, &e) == RKV_E_MISMATCH &&
              strstr(e.text, "shard 2 of 3 is there twice: p1 and p3"), "%s", e.text);
    const char *name[] = {"a", "b"};
    for (int what = 0; what < 6; what++) {
        rkv_table *part[] = {made_table(all_signals, 13, 0.5, 1, 2),
                             made_table(all_signals, what == 0 ? 12 : 13, 0.5, 2, 2)};
        static const char *const key[] = {"'examples'", "'noise'", "'fingerprint'", "'data_hash'",
                                          "'layers'", "RKV_CPU="};
        part[1]->head->noise = what == 1 ? 0.25 : 0.5;
        part[1]->head->fingerprint[5] = what == 2 ? 'f' : '5';
        part[1]->head->data_hash += what == 3;
        part[1]->head->sensitivity[SLIDING].in_budget = what == 4;
        part[1]->head->tier[0] ^= what == 5;
        CHECK(rkv_table_join(part, name, 2, &e) == RKV_E_MISMATCH && strstr(e.text, key[what]),
              "%s: %s", key[what], e.text);
        rkv_table_free(part[0]);
        rkv_table_free(part[1]);
    }
}

/* Every failing allocation of merging, summing up and reporting is survived. */
static void check_no_memory(void)
{
    const rkv_profile_cost cost = {1.0, 2.0, 3.0, 9};
    rkv_error e = {0};
    rkv_table *t = made_table(all_signals, 9, 0.5, 1, 1), *back;
    char *text, *printed;
    size_t n, n_printed;
    must(rkv_table_print(t, &text, &n, &e), &e);
    rkv_table_free(t);
    const uint64_t before = rkv_mem_current();
    int k = 1;
    for (rkv_status s = RKV_E_MEM; s; k++) {
        rkv_profile *p = NULL;
        back = NULL;
        rkv_mem_fail_after(k);
        s = rkv_table_parse(&back, text, n, "part", &e);
        if (!s)
            s = rkv_table_summarize(&p, back, "made", &e);
        printed = NULL;
        if (!s)
            s = rkv_profile_print(p, &printed, &n_printed, &e);
        if (!s)
            s = rkv_profile_html(p, &cost, "/dev/null", &e);
        rkv_mem_fail_after(0);
        CHECK(!s || s == RKV_E_MEM, "allocation %d: %s", k, e.text);
        rkv_mem_free(printed);
        rkv_profile_free(p);
        rkv_table_free(back);
        if (s && s != RKV_E_MEM)
            break;
    }
    CHECK(k > 20 && rkv_mem_current() == before, "%d allocations, %llu bytes left", k,
          (unsigned long long)(rkv_mem_current() - before));
    rkv_mem_free(text);
}

/* ---- validity ---- */

static char last_log[600];

static void on_log(void *ctx, int level, const char *line)
{
    (void)ctx;
    if (level <= RKV_LOG_WARN)
        snprintf(last_log, sizeof last_log, "%s", line);
}

static void check_validity(void)
{
    tiny_options o = tiny_defaults();
    rkv_model *m = made_model(&o);
    rkv_error e = {0};
    rkv_profile *p;
    must(rkv_profile_create(&p, rkv_model_get_info(m), &e), &e);
    rkv_log_set(on_log, NULL);
    CHECK(!rkv_profile_check(p, m, &e) && !*last_log, "%s %s", e.text, last_log);
    char here[16];
    snprintf(here, sizeof here, "%s", p->arithmetic);
    strcpy(p->arithmetic, "xxx");
    CHECK(!rkv_profile_check(p, m, &e) && strstr(last_log, "xxx") && strstr(last_log, here),
          "a warning: %s", last_log);
    rkv_log_set(NULL, NULL);
    p->rope_base *= 2.0;
    CHECK(rkv_profile_check(p, m, &e) == RKV_E_MISMATCH && strstr(e.text, "RoPE base"), "%s",
          e.text);
    p->rope_base /= 2.0;
    p->rope_factor = 4.0;
    CHECK(rkv_profile_check(p, m, &e) == RKV_E_MISMATCH && strstr(e.text, "by 4"), "%s", e.text);
    rkv_profile_free(p);
    rkv_model_free(m);
}

/* A model that overflows gives an error, neither an abort nor a profile of zeros. */
static void check_not_finite(void)
{
    tiny_options t = tiny_defaults();
    rkv_model *m = made_model(&t);
    m->layer[1].v[RKV_V_ATTN_NORM][0] = INFINITY;
    char path[] = "/tmp/rkv-data-XXXXXX";
    FILE *f = fdopen(mkstemp(path), "w");
    fputs("{\"prompt_ids\": [1, 2, 3, 4], \"response_ids\": [5, 6, 7, 8, 9, 10, 11, 12]}\n", f);
    fclose(f);
    rkv_profile_options o = rkv_profile_options_default();
    o.from_answers = 1;
    o.signals = RKV_SIGNAL_VALUES;
    o.selector = "snapkv";
    o.n_thread = 1;
    rkv_profile *p = NULL;
    rkv_error e = {0};
    CHECK(rkv_profile_run(&p, m, path, &o, &e) == RKV_E_UNSUPPORTED &&
              strstr(e.text, "not finite"), "%s", e.text);
    rkv_profile_free(p);
    unlink(path);
    rkv_model_free(m);
}

/* What a damaged database holds is an error, not an example that was never run. */
static void check_damaged_resume(void)
{
#ifdef HAVE_SQLITE
    enum { ROWS = 100, VALUES = 100 };
    static rkv_outcome out[VALUES];
    static int index[VALUES];
    static uint8_t have[VALUES];
    const int32_t fed[8] = {0};
    int32_t got[8];
    rkv_error e = {0};
    rkv_resume *r = NULL;
    if (!scratch_make())
        return;
    for (int i = 0; i < VALUES; i++)
        index[i] = i;
    must(rkv_resume_open(&r, scratch_dir, "x", "signature", &e), &e);
    for (int i = 0; i < ROWS; i++) {
        must(rkv_resume_put(r, i, RKV_EXAMPLE_USED, fed, 8, &e), &e);
        must(rkv_resume_put_outcomes(r, i, out, index, VALUES, NULL, 0, &e), &e);
    }
    rkv_resume_close(r);
    FILE *f = fopen(scratch_path("x.sqlite"), "r+b");
    fseek(f, 0, SEEK_END);
    const long size = ftell(f);
    fseek(f, size / 2, SEEK_SET);
    for (long i = size / 2; i < size; i++)
        fputc(0xff, f);
    fclose(f);
    must(rkv_resume_open(&r, scratch_dir, "x", "signature", &e), &e);
    int lost = 0, refused = 0;
    for (int i = 0; i < ROWS; i++) {
        enum rkv_example_state state;
        int n_fed;
        memset(have, 0, sizeof have);
        rkv_status s = rkv_resume_get(r, i, &state, got, 8, &n_fed, &e);
        if (!s)
            s = rkv_resume_get_outcomes(r, i, out, have, VALUES, &e);
        refused += s == RKV_E_FORMAT;
        lost += !s && (state == RKV_EXAMPLE_NEW || memchr(have, 0, VALUES));
    }
    CHECK(refused > 0 && lost == 0, "%d refused, %d lost of %d", refused, lost, ROWS);
    rkv_resume_close(r);
    static const char *const files[] = {"x.sqlite", "x.sqlite-wal", "x.sqlite-shm"};
    for (int i = 0; i < 3; i++)
        unlink(scratch_path(files[i]));
    scratch_remove();
#else
    SKIP(1, "built without SQLite");
#endif
}

int main(void)
{
    check_spearman();
    check_random();
    check_resampling();
    check_summary();
    check_certainty();
    check_round_trip();
    check_join();
    check_no_memory();
    check_validity();
    check_damaged_resume();
    check_not_finite();
    return check_end("profile");
}
