/* Names, budgets and selection, without a model. */
#include "config.h"
#include "made_profile.h"
#include "parse_failing.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "noise.h"
#include "policy/policy.h"
#include "profile/profile.h"

static uint64_t seed = 1;

static uint64_t draw(uint64_t n)
{
    return rkv_hash_mix(seed++ * UINT64_C(0x9E3779B97F4A7C15)) % n;
}

static void check_names(void)
{
    rkv_policy p = rkv_policy_default();
    rkv_error e = {0};
    CHECK(!rkv_policy_set_name(&p, "snapkv", &e) && !strcmp(p.selector, "snapkv") &&
          !strcmp(p.allocator, "uniform"), "snapkv");
    CHECK(!rkv_policy_set_name(&p, "ripple", &e) && !strcmp(p.selector, "snapkv") &&
          !strcmp(p.allocator, "ripple"), "ripple");
    CHECK(!rkv_policy_set_name(&p, "full:uniform", &e) && !strcmp(p.selector, "full"), "pair");
    CHECK(!rkv_policy_set_name(&p, "snapkv\xc3\x97ripple", &e) && !strcmp(p.allocator, "ripple"),
          "times");
    CHECK(!rkv_policy_set_name(&p, "snapkvxuniform", &e) && !strcmp(p.allocator, "uniform"), "x");
    CHECK(!rkv_policy_set_name(&p, "h2o:ripple", &e) && !strcmp(p.selector, "h2o") &&
          !strcmp(p.allocator, "ripple"), "h2o:ripple");
    static const struct {
        const char *name;
        int observes;
    } needs[] = {{"full", 0}, {"snapkv", RKV_OBSERVE_QUERIES}, {"ripple", RKV_OBSERVE_QUERIES},
                 {"h2o", RKV_OBSERVE_MASS}, {"observed", RKV_OBSERVE_MASS},
                 {"blend", RKV_OBSERVE_QUERIES | RKV_OBSERVE_RECENT},
                 {"streaming", 0},
                 {"tova", RKV_OBSERVE_QUERIES}, {"knorm", 0}, {"expected", RKV_OBSERVE_STATS},
                 {"pyramid", RKV_OBSERVE_QUERIES}, {"local", RKV_OBSERVE_QUERIES},
                 {"adakv", RKV_OBSERVE_QUERIES}, {"criticalkv", RKV_OBSERVE_QUERIES},
                 {"curve", RKV_OBSERVE_QUERIES | RKV_OBSERVE_RECENT}};
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
        p = rkv_policy_default();
        CHECK(!rkv_policy_set_name(&p, needs[i].name, &e) && !rkv_policy_observes(&p) &&
              !rkv_policy_set_budget(&p, "20%", &e) &&
              rkv_policy_observes(&p) == needs[i].observes, "%s observes %d", needs[i].name,
              rkv_policy_observes(&p));
    }
    p.recent = 0;
    CHECK(rkv_policy_observes(&p) == (RKV_OBSERVE_QUERIES | RKV_OBSERVE_MASS), "all queries");
    CHECK(!rkv_policy_set_name(&p, "curve", &e) && !strcmp(p.selector, "blend") &&
          !strcmp(p.allocator, "curve"), "curve");
    p.recent = -1;
    CHECK(rkv_policy_check(&p, &e) == RKV_E_ARG && strstr(e.text, "recent is -1"), "%s", e.text);
    CHECK(!rkv_policy_set_name(&p, "pyramid+criticalkv+adakv", &e) && p.adakv && p.criticalkv &&
              !strcmp(p.allocator, "pyramid"), "modifiers");
    CHECK(!rkv_policy_set_name(&p, "expectedxrandom+adakv", &e) && p.adakv && !p.criticalkv &&
              !strcmp(p.selector, "expected") && !strcmp(p.allocator, "random"),
          "they are cleared");
    CHECK(!rkv_policy_set_name(&p, "adakv", &e) && p.adakv && !strcmp(p.selector, "snapkv"),
          "adakv");
    CHECK(!rkv_policy_set_name(&p, "snapkv", &e) && !p.adakv, "snapkv again");
    const char *const wrong[] = {"adakv+", "snapkv+", "snapkv+ada", "+adakv",
                                 "snapkv+adakv:uniform", "", ":", "snap", "snapkv:", ":ripple",
                                 "ripple:snapkv", "x"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK(rkv_policy_set_name(&p, wrong[i], &e) == RKV_E_ARG && strstr(e.text, "snapkv"),
              "'%s'", wrong[i]);
}

static void check_budget_text(void)
{
    static const struct {
        const char *text;
        rkv_budget_kind kind;
        double value;
    } good[] = {
        {"20%", RKV_BUDGET_SHARE, 0.2},          {"12.5%", RKV_BUDGET_SHARE, 0.125},
        {"100%", RKV_BUDGET_SHARE, 1.0},         {"4096", RKV_BUDGET_TOKENS, 4096},
        {"512M", RKV_BUDGET_BYTES, 536870912.0}, {"1.5g", RKV_BUDGET_BYTES, 1610612736.0},
        {"64k", RKV_BUDGET_BYTES, 65536.0},
    };
    static const char *const bad[] = {"",
                                      "%",
                                      "0%",
                                      "0",
                                      "101%",
                                      "-5%",
                                      "1e3",
                                      "0x10",
                                      "inf",
                                      "nan",
                                      "5 %",
                                      "5%%",
                                      "1,5%",
                                      "12T",
                                      "1..5%",
                                      "20% ",
                                      "99999999999999999999"};
    rkv_error e = {0};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        rkv_policy p = rkv_policy_default();
        CHECK(!rkv_policy_set_budget(&p, good[i].text, &e) && p.budget_kind == good[i].kind &&
                  fabs(p.budget - good[i].value) < 1e-12 * good[i].value,
              "%s: %s", good[i].text, e.text);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        rkv_policy p = rkv_policy_default();
        CHECK(rkv_policy_set_budget(&p, bad[i], &e) == RKV_E_ARG && e.text[0], "'%s' passes",
              bad[i]);
    }
}

/* Totals are exact for the longest prompts that an int can count, too. */
static void check_large(void)
{
    enum { MAX = 300 };
    static const int most[] = {1 << 24, 1 << 27, INT_MAX};
    int wrong = 0;
    for (int i = 0; i < 3000; i++) {
        const int n = 1 + (int)draw(MAX), lo = 36, hi = most[i % 3] - (int)draw(1000);
        double w[MAX];
        rkv_part part[MAX];
        int b[MAX];
        for (int u = 0; u < n; u++)
            w[u] = draw(3) ? exp(2.0 * rkv_noise_uniform(78, seed++) - 1.0) : 1.0;
        const int cap = draw(4) ? lo + (int)draw((uint64_t)(hi - lo)) : hi - (int)draw(5);
        rkv_divide(b, w, n, (int64_t)cap * n, lo, hi, i % 2 ? 2.0 : 0.0, part);
        int64_t total = 0;
        for (int u = 0; u < n; u++) {
            total += b[u];
            wrong += b[u] < lo || b[u] > hi;
        }
        wrong += total != (int64_t)cap * n;
    }
    CHECK(wrong == 0, "%d of 3000 large divisions are not exact", wrong);
    double w[] = {87, 87, 87, 87, 87, 87, 87, 87, 4};   /* nearly whole shares */
    rkv_part part[9];
    int b[9];
    for (int u = 0; u < 9; u++)
        w[u] = 1e8 + w[u] / 100.0;
    rkv_divide(b, w, 9, 900000007, 1, INT_MAX, 0.0, part);
    CHECK(b[0] == 100000001 && b[6] == 100000001 && b[7] == 100000000 && b[8] == 100000000,
          "largest remainders: %d %d %d", b[6], b[7], b[8]);
}

/* Totals, floors and ceilings over random cases; growth when the budget grows. Largest remainder
 * may, on rare constellations, take back one token while the total grows (the Alabama paradox of
 * apportionment); the real-valued shares never shrink. Both facts are checked. */
static void check_divide(void)
{
    enum { MAX = 64 };
    long n_case = 0, paradox = 0, wrong = 0, jump = 0;
    for (int i = 0; i < 20000; i++) {
        const int n = 1 + (int)draw(MAX), window = 1 + (int)draw(64), lo = window + 4;
        const int hi = lo + 1 + (int)draw(3000);
        const double bound = draw(2) ? 1.0 + (double)draw(300) / 100.0 : 0.0;
        double w[MAX];
        rkv_part part[MAX];
        int a[MAX], b[MAX];
        for (int u = 0; u < n; u++)
            w[u] = draw(8) ? exp(6.0 * rkv_noise_uniform(77, seed++) - 3.0) : 1.0;
        const int cap = lo + (int)draw((uint64_t)(hi - lo));
        rkv_divide(a, w, n, (int64_t)cap * n, lo, hi, bound, part);
        rkv_divide(b, w, n, (int64_t)(cap + 1) * n, lo, hi, bound, part);
        int64_t total = 0;
        for (int u = 0; u < n; u++) {
            total += a[u];
            wrong += a[u] < lo || a[u] > hi;
            paradox += b[u] < a[u];
            jump += b[u] < a[u] - 1;
        }
        wrong += total != (int64_t)cap * n;
        n_case++;
    }
    CHECK(wrong == 0, "%ld of %ld cases break a bound or the total", wrong, n_case);
    CHECK(jump == 0, "%ld shares fall by more than the rounding", jump);
    CHECK(paradox < n_case / 100, "%ld of %ld", paradox, n_case);
    check_large();
    double w[] = {1, 1, 1};
    rkv_part part[3];
    int b[3];
    rkv_divide(b, w, 3, 11, 1, 10, 0.0, part);
    CHECK(b[0] == 4 && b[1] == 4 && b[2] == 3, "ties to the lower unit: %d %d %d", b[0], b[1],
          b[2]);
    double steep[] = {1000, 1, 1};
    rkv_divide(b, steep, 3, 60, 10, 30, 0.0, part);
    CHECK(b[0] == 30 && b[1] == 15 && b[2] == 15, "water-filling: %d %d %d", b[0], b[1], b[2]);
}

/* Budgets of a profile worked out by hand: s = 0, 0.5, 1 of [1, 3], r = 4: weights 1, 2, 4. */
static void check_ripple(void)
{
    const double s[] = {1.0, NAN, 2.0, 3.0};
    const uint8_t skip[] = {0, 1, 0, 0};
    rkv_profile *profile = made_profile(4, 0, s);
    rkv_policy p = rkv_policy_default();
    rkv_error e = {0};
    int b[4], cap;
    CHECK(!rkv_policy_set_name(&p, "ripple", &e) && !rkv_policy_set_budget(&p, "70%", &e), "%s",
          e.text);
    CHECK(rkv_budget_heads(b, &cap, &p, 4, 1, skip, 1000, 0, &e) == RKV_E_ARG &&
              strstr(e.text, "profile"),
          "no profile: %s", e.text);
    p.profile = profile;
    p.ratio = 4.0;
    p.gamma = 4.0;
    p.budget = 0.21;
    CHECK(!rkv_budget_heads(b, &cap, &p, 4, 1, skip, 1000, 0, &e), "%s", e.text);
    CHECK(cap == 210 && b[0] == 90 && b[1] == 1000 && b[2] == 180 && b[3] == 360, "%d %d %d %d",
          b[0], b[1], b[2], b[3]);
    p.gamma = 2.0;              /* clipped to 1, 2, 2 */
    CHECK(!rkv_budget_heads(b, &cap, &p, 4, 1, skip, 1000, 0, &e), "%s", e.text);
    CHECK(b[0] == 126 && b[2] == 252 && b[3] == 252, "%d %d %d", b[0], b[2], b[3]);
    p.budget = 0.05;            /* 50 each: the first may not fall under 36 */
    CHECK(!rkv_budget_heads(b, &cap, &p, 4, 1, skip, 1000, 0, &e), "%s", e.text);
    CHECK(b[0] == 36 && b[2] == 57 && b[3] == 57, "%d %d %d", b[0], b[2], b[3]);
    rkv_profile_free(profile);
}

static void check_caps(void)
{
    static const struct {
        const char *budget;
        int n, cap;             /* cap 0: refused */
    } cases[] = {
        {"10%", 1000, 100},     {"10%", 1004, 100}, {"10%", 1005, 101}, {"100%", 1000, 1000},
        {"99.99%", 1000, 1000}, {"36", 1000, 36},   {"35", 1000, 0},    {"5000", 1000, 1000},
        {"10%", 359, 36},       {"10%", 354, 0},    {"1%", 30, 30},     {"1%", 36, 36},
        {"10%", 2147483635, 214748364}, {"10%", 2147483645, 214748365},
        {"30%", 134217725, 40265318}, {"50%", 2147483647, 1073741824},
        {"1%", 37, 0},          {"256k", 1000, 64}, {"100k", 1000, 0},  {"1g", 1000, 1000},
    };
    rkv_error e = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rkv_policy p = rkv_policy_default();
        int b[8], cap = -1;
        rkv_policy_set_name(&p, "snapkv", &e);
        rkv_policy_set_budget(&p, cases[i].budget, &e);
        const rkv_status s = rkv_budget_heads(b, &cap, &p, 8, 1, NULL, cases[i].n, 512.0, &e);
        CHECK(s == (cases[i].cap ? RKV_OK : RKV_E_ARG), "%s of %d: %s", cases[i].budget, cases[i].n,
              e.text);
        CHECK(!cases[i].cap || (cap == cases[i].cap && b[0] == cap && b[7] == cap),
              "%s of %d gives %d", cases[i].budget, cases[i].n, cap);
        CHECK(cases[i].cap || strstr(e.text, "floor of 36"), "%s", e.text);
    }
    rkv_policy p = rkv_policy_default();
    int b[1];
    rkv_policy_set_name(&p, "snapkv", &e);
    rkv_policy_set_budget(&p, "256k", &e);
    const double bytes[] = {0.0, -1.0, NAN, INFINITY};
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
        CHECK(rkv_budget_heads(b, NULL, &p, 1, 1, NULL, 1000, bytes[i], &e) == RKV_E_ARG &&
                  strstr(e.text, "a token of"), "%g bytes: %s", bytes[i], e.text);
    rkv_policy_set_budget(&p, "10%", &e);
    p.pool_kernel = 4;
    CHECK(rkv_budget_heads(b, NULL, &p, 1, 1, NULL, 1000, 0, &e) == RKV_E_ARG &&
              strstr(e.text, "odd"),
          "%s", e.text);
}

/* ---- selection ---- */

static void check_pooling(void)
{
    const float x[] = {1, 5, 2, 0, 3};
    float y[5];
    rkv_pool_max(y, x, 5, 3);
    CHECK(y[0] == 5 && y[1] == 5 && y[2] == 5 && y[3] == 3 && y[4] == 3, "max");
    rkv_pool_mean(y, x, 5, 3);
    CHECK(y[0] == 2 && y[1] == 8.0f / 3 && y[4] == 1, "mean with zero padding: %g %g %g",
          (double)y[0], (double)y[1], (double)y[4]);
    rkv_pool_max(y, x, 5, 99);
    CHECK(y[0] == 5 && y[4] == 5, "kernel wider than the row");
    rkv_pool_max(y, x, 5, 1);
    CHECK(!memcmp(x, y, sizeof x), "kernel of one");
}

typedef struct ranked {
    float score;
    int pos;
} ranked;

static int by_score(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    return x->score != y->score ? (x->score > y->score ? -1 : 1) : x->pos - y->pos;
}

static int by_position(const void *a, const void *b)
{
    return *(const int32_t *)a - *(const int32_t *)b;
}

/* Against a full sort, on scores with many exact ties and both signs. */
static void check_keep_best(void)
{
    enum { MAX = 3000 };
    static float score[MAX];
    static ranked order[MAX];
    static int32_t keep[MAX], want[MAX];
    static uint32_t work[MAX];
    int wrong = 0;
    for (int i = 0; i < 2000; i++) {
        const int window = 1 + (int)draw(40), n = window + 2 + (int)draw(i < 1900 ? 200 : MAX - 50);
        const int budget = window + (int)draw((uint64_t)(n - window));
        const uint64_t levels = 1 + draw(20);
        for (int t = 0; t < n - window; t++) {
            score[t] = (float)draw(levels) / 7.0f - (draw(10) ? 0.0f : 1.0f);
            order[t] = (ranked){score[t], t};
        }
        qsort(order, (size_t)(n - window), sizeof *order, by_score);
        for (int k = 0; k < budget - window; k++)
            want[k] = order[k].pos;
        qsort(want, (size_t)(budget - window), sizeof *want, by_position);
        for (int k = 0; k < window; k++)
            want[budget - window + k] = n - window + k;
        rkv_keep_best(keep, score, n, window, budget, work);
        wrong += memcmp(keep, want, (size_t)budget * sizeof *keep) != 0;
    }
    CHECK(wrong == 0, "%d selections differ from a sort", wrong);
    const float special[] = {NAN, -INFINITY, -0.0f, 0.0f, INFINITY, 1.0f};
    rkv_keep_best(keep, special, 7, 1, 4, work);
    CHECK(keep[0] == 2 && keep[1] == 4 && keep[2] == 5 && keep[3] == 6, "%d %d %d", keep[0],
          keep[1], keep[2]);
}

/* Ranks against counting, which are halves where values are equal; they are added. */
static void check_ranks(void)
{
    enum { MAX = 700 };
    static float x[MAX], rank[MAX];
    static uint32_t work[4 * MAX];
    const float special[] = {1.0f, NAN, -0.0f, INFINITY, 0.0f, -INFINITY, NAN};
    const float expected[] = {1, 5.5f, 2.5f, 0, 2.5f, 4, 5.5f};
    int wrong = 0;
    for (int i = 0; i < 300; i++) {
        const int n = (int)draw(MAX);
        const uint64_t levels = 1 + draw(i % 2 ? 10 : 100000);
        for (int t = 0; t < n; t++) {
            x[t] = (float)draw(levels) / 7.0f - (draw(10) ? 0.0f : 1e4f);
            rank[t] = 10.0f;
        }
        rkv_add_ranks(rank, x, n, work);
        for (int t = 0; t < n; t++) {
            double want = 10.0;
            for (int u = 0; u < n; u++)
                want += (x[u] > x[t]) + 0.5 * (x[u] == x[t] && u != t);
            wrong += (double)rank[t] != want;
        }
    }
    CHECK(!wrong, "%d ranks differ", wrong);
    memset(rank, 0, sizeof rank);
    rkv_add_ranks(rank, special, 7, work);
    CHECK(!memcmp(rank, expected, sizeof expected), "%g %g %g %g %g %g %g", (double)rank[0],
          (double)rank[1], (double)rank[2], (double)rank[3], (double)rank[4], (double)rank[5],
          (double)rank[6]);
}

static void check_profile_file(void)
{
    const double s[] = {0.1, NAN, 1.0 / 3.0};
    rkv_profile *p = made_profile(3, 0, s), *back = NULL;
    rkv_error e = {0};
    char *text = NULL;
    size_t n = 0;
    p->noise = 0.5;
    p->n_ctx = 4096;
    p->data_hash = UINT64_C(0x0123456789abcdef);
    CHECK(!rkv_profile_print(p, &text, &n, &e), "%s", e.text);
    CHECK(strstr(text, "\"context\": 4096, \"data_hash\": \"0123456789abcdef\""), "%s", text);
    CHECK(!rkv_profile_parse(&back, text, n, "p.json", &e), "%s", e.text);
    CHECK(back && rkv_profile_n_layer(back) == 3 && rkv_profile_sensitivity(back, 0) == 0.1 &&
              isnan(rkv_profile_sensitivity(back, 1)) &&
              rkv_profile_sensitivity(back, 2) == 1.0 / 3.0 &&
              isnan(rkv_profile_sensitivity(back, 3)) && isnan(rkv_profile_sensitivity(back, -1)),
          "round trip");
    char *again = NULL;
    size_t n_again = 0;
    CHECK(!rkv_profile_print(back, &again, &n_again, &e) && n == n_again && !memcmp(text, again, n),
          "same bytes");
    rkv_mem_free(again);
    rkv_profile_free(back);
    int passed = 0;
    for (size_t cut = 0; cut + 2 < n;
         cut++) { /* every prefix but the one without the last newline */
        back = NULL;
        passed += rkv_profile_parse(&back, text, cut, "p.json", &e) != RKV_E_FORMAT;
        rkv_profile_free(back);
    }
    CHECK(passed == 0, "%d prefixes are accepted", passed);
    check_parse_without_memory(text, n);
    rkv_mem_free(text);
    rkv_profile_free(p);
}

static void refuse_profile(const char *from, const char *to, rkv_status expected, const char *words)
{
    const double s[] = {0.1, 0.2};
    rkv_profile *p = made_profile(2, 0, s), *back = NULL;
    rkv_error e = {0};
    char *text = NULL, changed[4096];
    size_t n = 0;
    p->noise = 0.5;
    if (rkv_profile_print(p, &text, &n, &e))
        abort();
    const char *at = strstr(text, from);
    CHECK(at != NULL, "'%s' is not in the profile", from);
    snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at ? at - text : 0), text, to,
             at ? at + strlen(from) : "");
    const rkv_status got = rkv_profile_parse(&back, changed, strlen(changed), "p.json", &e);
    CHECK(got == expected && strstr(e.text, words), "%s -> %s: %d '%s'", from, to, got, e.text);
    rkv_profile_free(back);
    rkv_mem_free(text);
    rkv_profile_free(p);
}

static void check_bad_profiles(void)
{
    refuse_profile("\"version\": 1", "\"version\": 2", RKV_E_UNSUPPORTED, "version 2");
    refuse_profile("\"version\": 1", "\"version\": \"1\"", RKV_E_FORMAT, "not a number");
    refuse_profile("ripplekv-profile", "something", RKV_E_FORMAT, "expected 'ripplekv-profile'");
    refuse_profile("\"layer\": 1", "\"layer\": 0", RKV_E_FORMAT, "two sensitivities");
    refuse_profile("\"layer\": 1", "\"layer\": 2", RKV_E_FORMAT, "expected 0 to 1");
    refuse_profile("\"layer\": 1", "\"layer\": 0.5", RKV_E_FORMAT, "whole number");
    refuse_profile("\"greedy\"", "\"Greedy\"", RKV_E_FORMAT, "expected greedy or answers");
    refuse_profile("\"greedy\"", "\"sampled\"", RKV_E_FORMAT, "'response' is 'sampled'");
    refuse_profile("\"data_hash\": \"0", "\"data_hash\": \"", RKV_E_FORMAT, "16 hexadecimal");
    refuse_profile("\"data_hash\": \"0", "\"data_hash\": \"x", RKV_E_FORMAT, "16 hexadecimal");
    refuse_profile("\"context\": 0", "\"context\": -1", RKV_E_FORMAT, "'context'");
    refuse_profile("\"mean\": 0.1", "\"mean\": -0.1", RKV_E_FORMAT, "'mean'");
    refuse_profile("\"mean\": 0.1", "\"mean\": \"0.1\"", RKV_E_FORMAT, "not a number");
    refuse_profile("\"mean\": 0.1", "\"mean\": null", RKV_E_FORMAT, "not a number");
    refuse_profile("\"mean\": 0.1", "\"mean\": 1e999", RKV_E_FORMAT, "out of range");
    refuse_profile("\"mean\"", "\"men\"", RKV_E_FORMAT, "'mean' is missing");
    refuse_profile("\"n_layer\": 2", "\"n_layer\": 0", RKV_E_FORMAT, "n_layer");
    refuse_profile("\"n_layer\": 2", "\"n_layer\": 99999", RKV_E_FORMAT, "n_layer");
    refuse_profile("\"fingerprint\"", "\"name\"", RKV_E_FORMAT, "occurs twice");
}

int main(void)
{
    check_names();
    check_budget_text();
    check_divide();
    check_ripple();
    check_caps();
    check_pooling();
    check_keep_best();
    check_ranks();
    check_profile_file();
    check_bad_profiles();
    return check_end("policy");
}
