/* Damage curves: in profile files, and as budgets per layer or KV head. */
#include "config.h"
#include "check.h"
#include "parse_failing.h"

#include <math.h>
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

static double uniform(void)
{
    return rkv_noise_uniform(79, seed++);
}

static void must(rkv_status s, const rkv_error *e)
{
    if (s) {
        fprintf(stderr, "unexpected: %s\n", e->text);
        exit(1);
    }
}

/* A profile whose layers all count but those in skip (may be NULL). */
static rkv_profile *made_profile(int n_layer, int n_kv_head, const uint8_t *skip)
{
    const rkv_model_info info = {.path = "made", .name = "made", .arch = "llama",
                                 .quantization = "f32", .fingerprint = "0000000000000000",
                                 .tier = "ref", .n_layer = n_layer, .n_kv_head = n_kv_head};
    rkv_profile *p = NULL;
    rkv_error e = {0};
    must(rkv_profile_create(&p, &info, &e), &e);
    p->noise = 0.5;
    p->n_seed = p->n_response = p->n_example = 1;
    p->n_position = 1;
    for (int l = 0; l < n_layer; l++)
        if (!skip || !skip[l])
            p->sensitivity[l] = (rkv_layer_signal){1, 0.1 * l, NAN, NAN};
    return p;
}

static rkv_curves *add_curves(rkv_profile *p, int measured, int per_head, const double *grid,
                              int n_grid)
{
    rkv_error e = {0};
    rkv_curves *c = NULL;
    must(rkv_profile_add_curves(p, &c, measured, per_head, "blend", grid, n_grid, &e), &e);
    return c;
}

static const double grid6[] = {0.03, 0.05, 0.1, 0.2, 0.3, 0.5};

/* ---- files ---- */

/* Three layers, the second outside the budget, two KV heads; curves of both units. */
static rkv_profile *written_profile(void)
{
    static const uint8_t skip[] = {0, 1, 0};
    rkv_profile *p = made_profile(3, 2, skip);
    rkv_curves *heads = add_curves(p, 0, 1, grid6, 6), *layers = add_curves(p, 1, 0, grid6, 2);
    for (int l = 0; l < 3; l += 2)
        for (int i = 0; i < 12; i++) {
            heads->damage[12 * l + i] = (l + 1) / (3.0 + i);
            heads->se[12 * l + i] = i % 2 ? (double)NAN : 1e-3 / (7.0 + i);
            if (i < 2)
                layers->damage[2 * l + i] = i ? 0.0 : 0.5;
        }
    return p;
}

static int same(double x, double y)
{
    return x == y || (isnan(x) && isnan(y));
}

static void check_file(void)
{
    rkv_profile *p = written_profile(), *back = NULL;
    rkv_error e = {0};
    char *text = NULL, *again = NULL;
    size_t n = 0, n_again = 0;
    must(rkv_profile_print(p, &text, &n, &e), &e);
    CHECK(!rkv_profile_parse(&back, text, n, "p.json", &e), "%s", e.text);
    must(rkv_profile_print(back, &again, &n_again, &e), &e);
    CHECK(n == n_again && !memcmp(text, again, n), "same bytes");
    CHECK(rkv_profile_n_kv_head(back) == 2 && back->n_curves == 2, "%d curves", back->n_curves);
    for (int i = 0; i < 2; i++) {
        const rkv_curves *a = &p->curves[i], *b = rkv_profile_find_curves(back, i, !i);
        const size_t size = (size_t)3 * (i ? 1 : 2) * (size_t)a->n_grid;
        int differ = !b || a->n_grid != b->n_grid || strcmp(b->selector, "blend") ||
                     memcmp(a->grid, b->grid, sizeof a->grid);
        for (size_t k = 0; !differ && k < size; k++)
            differ = !same(a->damage[k], b->damage[k]) || !same(a->se[k], b->se[k]);
        CHECK(!differ, "curves %d differ", i);
    }
    CHECK(!rkv_profile_find_curves(back, 1, 1) && !rkv_profile_find_curves(back, 0, 0), "others");
    const double *grid, *damage;
    CHECK(rkv_profile_curve(back, 0, 2, 1, &grid, &damage) == 6 && grid[5] == 0.5 &&
              damage[0] == 3.0 / 9.0, "a head's curve");
    CHECK(rkv_profile_curve(back, 1, 0, -1, &grid, &damage) == 2 && damage[0] == 0.5, "a layer's");
    CHECK(!rkv_profile_curve(back, 0, 3, 0, &grid, &damage) &&
              !rkv_profile_curve(back, 0, 0, 2, &grid, &damage) &&
              !rkv_profile_curve(back, 1, 0, 0, &grid, &damage), "no curve");
    rkv_profile_free(back);
    check_parse_without_memory(text, n);
    rkv_mem_free(text);
    rkv_mem_free(again);
    rkv_profile_free(p);
}

static void refuse(const char *from, const char *to, const char *words)
{
    rkv_profile *p = written_profile(), *back = NULL;
    rkv_error e = {0};
    char *text = NULL;
    static char changed[16384];
    size_t n = 0;
    must(rkv_profile_print(p, &text, &n, &e), &e);
    const char *at = strstr(text, from);
    CHECK(at != NULL, "'%s' is not in the profile", from);
    snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at ? at - text : 0), text, to,
             at ? at + strlen(from) : "");
    const rkv_status got = rkv_profile_parse(&back, changed, strlen(changed), "p.json", &e);
    CHECK(got == RKV_E_FORMAT && strstr(e.text, words) && !strncmp(e.text, "p.json: ", 8),
          "%s -> %s: %d '%s'", from, to, got, e.text);
    rkv_profile_free(back);
    rkv_mem_free(text);
    rkv_profile_free(p);
}

static void check_refused(void)
{
    refuse("\"grid\": [0.03, 0.05", "\"grid\": [0.03, 0.03", "share #1 of 'grid' is 0.03");
    refuse("\"grid\": [0.03, 0.05", "\"grid\": [0.05, 0.03", "share #1 of 'grid' is 0.03");
    refuse("\"grid\": [0.03", "\"grid\": [0", "share #0 of 'grid' is 0,");
    refuse("\"grid\": [0.03", "\"grid\": [-0.03", "share #0");
    refuse("\"grid\": [0.03", "\"grid\": [null", "share #0");
    refuse("0.3, 0.5], \"units\"", "0.3, 1], \"units\"", "share #5 of 'grid' is 1,");
    refuse("0.3, 0.5], \"units\"", "0.3], \"units\"", "6 numbers in 'damage', but 5 shares");
    refuse("\"grid\": [0.03", "\"grid\": [1e-9,2e-9,3e-9,4e-9,5e-9,6e-9,7e-9,8e-9,9e-9,1e-8,2e-8,"
           "3e-8,4e-8,5e-8,6e-8,7e-8,8e-8,9e-8,1e-7,2e-7,3e-7,4e-7,5e-7,6e-7,7e-7,8e-7,9e-7,0.03",
           "33 shares");
    refuse("\"grid\": [0.03, 0.05, 0.1, 0.2, 0.3, 0.5]", "\"grid\": []", "0 shares");
    refuse("\"grid\": [0.03, 0.05, 0.1, 0.2, 0.3, 0.5]", "\"grid\": 3", "not an array");
    refuse("\"kind\": \"estimated\"", "\"kind\": \"guessed\"", "'kind' is 'guessed'");
    refuse("\"kind\": \"estimated\"", "\"kind\": 0", "'kind' is not a string");
    refuse("\"unit\": \"head\"", "\"unit\": \"token\"", "expected layer or head");
    refuse("\"unit\": \"head\", \"selector\"", "\"unit\": \"head\", \"chooser\"", "'selector'");
    refuse("\"damage\": [0.3333", "\"damage\": [-0.3333", "'damage' holds -0.333");
    refuse("\"damage\": [0.3333", "\"damage\": [null, 0.3333", "7 numbers");
    refuse("0.25, 0.2", "null, 0.2", "'damage' holds nan");
    refuse("0.25, 0.2", "\"1\", 0.2", "'damage' holds nan");
    refuse("0.25, 0.2", "1e10, 0.2", "'damage' holds 1e+10");
    refuse("\"se\": [0.0001", "\"se\": [-0.0001", "'se' holds -0.0001");
    refuse("null, 0.0001", "true, 0.0001", "or null");
    refuse("\"kv_head\": 1", "\"kv_head\": 0", "layer 0, KV head 0 is there twice");
    refuse("\"kv_head\": 1", "\"kv_head\": 2", "'kv_head' is 2, expected 0 to 1");
    refuse("\"kv_head\": 1", "\"head\": 1", "'kv_head' is missing");
    refuse("{\"layer\": 2, \"kv_head\": 1", "{\"layer\": 1, \"kv_head\": 1", "no sensitivity");
    refuse("{\"layer\": 2, \"kv_head\": 1", "{\"layer\": 3, \"kv_head\": 1", "expected 0 to 2");
    refuse("\"kind\": \"measured\", \"unit\": \"layer\"", "\"kind\": \"estimated\", \"unit\": "
           "\"head\"", "estimated ones of each head are there twice");
    refuse(", \"n_kv_head\": 2", "", "'n_kv_head' is missing");
    refuse("\"n_kv_head\": 2", "\"n_kv_head\": 3", "layer 0, KV head 2 is missing in 'units'");
    refuse("\"n_kv_head\": 2", "\"n_kv_head\": 0", "n_kv_head");
    refuse("\"curves\": [", "\"curves\": [3, ", "'kind' is missing");
    refuse("\"curves\": [", "\"curves\": {\"a\": [", "not JSON");
}

/* What add_curves refuses, and what it takes. */
static void check_add(void)
{
    rkv_profile *p = made_profile(2, 0, NULL);
    rkv_error e = {0};
    rkv_curves *c = NULL;
    const double bad[] = {0.1, 0.1}, whole[] = {0.5, 1.0}, nan[] = {NAN};
    CHECK(rkv_profile_add_curves(p, &c, 0, 1, "blend", grid6, 6, &e) == RKV_E_ARG &&
              strstr(e.text, "n_kv_head"), "%s", e.text);
    p->n_kv_head = 2;
    CHECK(rkv_profile_add_curves(p, &c, 0, 1, "blend", bad, 2, &e) == RKV_E_ARG, "bad grid");
    CHECK(rkv_profile_add_curves(p, &c, 0, 1, "blend", whole, 2, &e) == RKV_E_ARG, "whole");
    CHECK(rkv_profile_add_curves(p, &c, 0, 1, "blend", nan, 1, &e) == RKV_E_ARG, "NaN");
    CHECK(rkv_profile_add_curves(p, &c, 0, 1, "blend", grid6, 0, &e) == RKV_E_ARG, "empty");
    CHECK(rkv_profile_add_curves(p, &c, 0, 1, "blend", grid6, 33, &e) == RKV_E_ARG &&
              strstr(e.text, "33 shares"), "%s", e.text);
    const rkv_curves *first = add_curves(p, 0, 1, grid6, 6);
    CHECK(isnan(first->damage[23]) && isnan(first->se[0]), "filled with NaN");
    CHECK(rkv_profile_add_curves(p, &c, 0, 1, "blend", grid6, 6, &e) == RKV_E_ARG &&
              strstr(e.text, "twice"), "%s", e.text);
    add_curves(p, 0, 0, grid6, 6);
    add_curves(p, 1, 1, grid6, 6);
    for (int k = 1;; k++) {
        rkv_mem_fail_after(k);
        const rkv_status status = rkv_profile_add_curves(p, &c, 1, 0, "blend", grid6, 6, &e);
        rkv_mem_fail_after(0);
        if (!status)
            break;
        CHECK(status == RKV_E_MEM && p->n_curves == 3, "allocation %d: %s", k, e.text);
    }
    CHECK(first == rkv_profile_find_curves(p, 0, 1) && p->n_curves == 4, "curves do not move");
    rkv_profile_free(p);
}

/* ---- budgets ---- */

static rkv_policy policy_of(const char *name, double share, const rkv_profile *profile)
{
    rkv_policy p = rkv_policy_default();
    rkv_error e = {0};
    must(rkv_policy_set_name(&p, name, &e), &e);
    p.budget_kind = RKV_BUDGET_SHARE;
    p.budget = share;
    p.profile = profile;
    return p;
}

enum { MOST_LAYER = 12, MOST_HEAD = 5 };

/* Curves over six decades, falling or not, some zero from somewhere on, some zero. */
static rkv_profile *random_profile(int n_layer, int n_kv_head, const uint8_t *skip)
{
    rkv_profile *p = made_profile(n_layer, n_kv_head, skip);
    double grid[6];
    for (int i = 0; i < 6; i++)
        grid[i] = grid6[i] * (0.9 + 0.2 * uniform());
    const int n_grid = 1 + (int)draw(6);
    for (int k = 0; k < 4; k++) {
        rkv_curves *c = add_curves(p, k / 2, k % 2, grid, n_grid);
        for (int l = 0; l < n_layer; l++)
            for (int h = 0; !(skip && skip[l]) && h < (k % 2 ? n_kv_head : 1); h++) {
                double *d = c->damage + (l * (k % 2 ? n_kv_head : 1) + h) * n_grid;
                double x = draw(8) ? exp(14.0 * uniform() - 13.0) : 0.0;
                for (int i = 0; i < n_grid; i++) {
                    d[i] = x;
                    x *= draw(20) ? 0.05 + 1.1 * uniform() : 0.0;
                }
            }
    }
    return p;
}

/* One random case: how many rules it breaks. */
static int broken_rules(const char *name)
{
    const int n_layer = 1 + (int)draw(MOST_LAYER), n_head = 1 + (int)draw(MOST_HEAD);
    uint8_t skip[MOST_LAYER];
    int n_unit = 0, b[MOST_LAYER * MOST_HEAD], more[MOST_LAYER * MOST_HEAD], cap = 0, bad = 0;
    for (int l = 0; l < n_layer; l++)
        n_unit += !(skip[l] = l && draw(4) == 0);
    rkv_profile *profile = random_profile(n_layer, n_head, skip);
    rkv_policy p = policy_of(name, 0.05 + 0.9 * uniform(), profile);
    rkv_error e = {0};
    p.window = 1 + (int)draw(40);
    p.curves_measured = (int)draw(2);
    p.unit_layers = (int)draw(2);
    const int n = p.window + 5 + (int)(draw(2) ? draw(3000) : draw(1 << 20));
    p.budget_kind = RKV_BUDGET_TOKENS;
    p.budget = p.window + 4 + (int)draw((uint64_t)(n - p.window - 4));
    must(rkv_budget_heads(b, &cap, &p, n_layer, n_head, skip, n, 0, &e), &e);
    p.budget += 1;
    must(rkv_budget_heads(more, NULL, &p, n_layer, n_head, skip, n, 0, &e), &e);
    int64_t total = 0;
    for (int i = 0; i < n_layer * n_head; i++) {
        const int l = i / n_head;
        bad += skip[l] ? b[i] != n : b[i] < p.window + 4 || b[i] > n || more[i] < b[i] - 1;
        bad += p.unit_layers && b[i] != b[l * n_head];
        total += skip[l] ? 0 : b[i];
    }
    bad += total != (int64_t)n_unit * n_head * cap || cap != (int)p.budget - 1;
    rkv_profile_free(profile);
    return bad;
}

static void check_rules(void)
{
    static const char *const names[] = {"snapkv:curve", "snapkv:root"};
    for (int k = 0; k < 2; k++) {
        int bad = 0;
        for (int i = 0; i < 1000; i++)
            bad += broken_rules(names[k]) > 0;
        CHECK(!bad, "%s: %d of 1000 cases break a bound, a total, or fall when the budget grows",
              names[k], bad);
    }
}

/* ---- the optimum, by all ways to divide ---- */

enum { N = 500, FLOOR = 5, UNITS = 4 };         /* a step is a token */

/* y[N + 1] = the curve of METHOD section 8 at whole tokens, then its lower hull from FLOOR to N,
 * each point by all chords over it. */
static void slow_hull(double *y, const double *grid, const double *damage, int n_grid)
{
    static double curve[N + 1];
    for (int t = FLOOR; t <= N; t++) {
        const double b = (double)t / N;
        int i = 0;
        while (i + 2 < n_grid && b > grid[i + 1])
            i++;
        double k = log(damage[i + 1] / damage[i]) / log(grid[i + 1] / grid[i]);
        curve[t] = b >= grid[n_grid - 1] ? damage[n_grid - 1] * (1 - b) / (1 - grid[n_grid - 1])
                                         : damage[i] * pow(b / grid[i], k);
    }
    for (int t = FLOOR; t <= N; t++) {
        y[t] = curve[t];
        for (int a = FLOOR; a < t; a++)
            for (int b = t + 1; b <= N; b++)
                y[t] = fmin(y[t], curve[a] + (curve[b] - curve[a]) * (t - a) / (b - a));
    }
}

/* The least sum of y[u][b[u]] with FLOOR <= b[u] <= N and this total. */
static double least_sum(double y[UNITS][N + 1], int total)
{
    static double best[2][UNITS * N + 1];
    for (int t = 0; t <= UNITS * N; t++)
        best[0][t] = t ? INFINITY : 0.0;
    for (int u = 0; u < UNITS; u++)
        for (int t = 0; t <= total; t++) {
            double *to = &best[(u + 1) % 2][t];
            *to = INFINITY;
            for (int b = FLOOR; b <= N && b <= t; b++)
                *to = fmin(*to, best[u % 2][t - b] + y[u][b]);
        }
    return best[UNITS % 2][total];
}

static void check_optimal(void)
{
    static double y[UNITS][N + 1];
    rkv_error e = {0};
    for (int i = 0; i < 3; i++) {
        rkv_profile *profile = made_profile(2, 2, NULL);
        rkv_curves *c = add_curves(profile, 0, 1, grid6, 6);
        for (int u = 0; u < UNITS; u++) {
            double x = exp(6.0 * uniform() - 5.0);
            for (int k = 0; k < 6; k++, x *= 0.1 + 0.8 * uniform())
                c->damage[u * 6 + k] = x;
            slow_hull(y[u], grid6, c->damage + u * 6, 6);
        }
        for (int cap = FLOOR; cap <= N; cap += 33) {
            rkv_policy p = policy_of("snapkv:curve", 1.0, profile);
            int b[UNITS];
            double sum = 0.0;
            p.window = 1;
            p.budget_kind = RKV_BUDGET_TOKENS;
            p.budget = cap;
            must(rkv_budget_heads(b, NULL, &p, 2, 2, NULL, N, 0, &e), &e);
            for (int u = 0; u < UNITS; u++)
                sum += y[u][b[u]];
            const double least = least_sum(y, UNITS * cap);
            CHECK(fabs(sum - least) <= 1e-9 * least + 1e-12, "%d tokens: %d %d %d %d give %.17g, "
                  "the least is %.17g", cap, b[0], b[1], b[2], b[3], sum, least);
        }
        rkv_profile_free(profile);
    }
}

/* ---- single cases ---- */

static void fill_curves(rkv_curves *c, int u, const double *damage)
{
    memcpy(c->damage + u * c->n_grid, damage, (size_t)c->n_grid * sizeof *damage);
}

/* Equal curves get the same, to the token that is over; zeros too. */
static void check_equal(void)
{
    static const double equal[] = {0.9, 0.5, 0.2, 0.1, 0.02, 0.01}, none[6] = {0},
                        steep[] = {9, 7, 5, 3, 2, 1};
    rkv_error e = {0};
    for (int k = 0; k < 2; k++) {
        rkv_profile *profile = made_profile(3, 2, NULL);
        rkv_curves *c = add_curves(profile, 0, 1, grid6, 6);
        for (int u = 0; u < 6; u++)
            fill_curves(c, u, k ? none : equal);
        static const char *const names[] = {"snapkv:curve", "snapkv:root"};
        for (int i = 0; i < 2; i++) {
            rkv_policy p = policy_of(names[i], 0.1, profile);
            int b[6], differ = 0;
            for (int share = 4; share < 100; share += 5) {
                p.budget = share / 100.0;
                must(rkv_budget_heads(b, NULL, &p, 3, 2, NULL, 1234, 0, &e), &e);
                for (int u = 1; u < 6; u++)
                    differ += b[u] != b[0];
            }
            CHECK(!differ, "%s: %d equal units differ", names[i], differ);
        }
        fill_curves(c, 4, steep);       /* a unit that matters among some that do not */
        rkv_policy p = policy_of("snapkv:curve", 0.2, profile);
        int b[6];
        must(rkv_budget_heads(b, NULL, &p, 3, 2, NULL, 1000, 0, &e), &e);
        CHECK(!k || (b[4] == 1000 && b[0] == 40 && b[5] == 40), "%d %d %d", b[0], b[4], b[5]);
        CHECK(k || (b[4] > 500 && b[0] == b[5]), "%d %d %d", b[0], b[4], b[5]);
        rkv_profile_free(profile);
    }
}

/* D(10 %) = 1, 4, 16, 0: weights 1, 2, 4, and the floor. */
static void check_root(void)
{
    static const double grid[] = {0.05, 0.2}, damage[] = {2, 0.5, 8, 2, 32, 8, 0, 0};
    rkv_profile *profile = made_profile(2, 2, NULL);
    rkv_curves *c = add_curves(profile, 1, 1, grid, 2);
    rkv_error e = {0};
    memcpy(c->damage, damage, sizeof damage);
    rkv_policy p = policy_of("snapkv:root", 0.184, profile);
    int b[4];
    p.curves_measured = 1;
    must(rkv_budget_heads(b, NULL, &p, 2, 2, NULL, 1000, 0, &e), &e);
    CHECK(b[0] == 100 && b[1] == 200 && b[2] == 400 && b[3] == 36, "%d %d %d %d", b[0], b[1], b[2],
          b[3]);
    rkv_profile_free(profile);
}

/* Estimated curves of a layer are the sum of its heads'; measured ones are its own. */
static void check_layers(void)
{
    rkv_profile *a = made_profile(3, 2, NULL), *b = made_profile(3, 2, NULL);
    rkv_curves *heads = add_curves(a, 0, 1, grid6, 6), *layers = add_curves(b, 1, 0, grid6, 6);
    rkv_error e = {0};
    int x[6], y[6];
    for (int l = 0; l < 3; l++)
        for (int i = 0; i < 6; i++) {
            heads->damage[(2 * l + 0) * 6 + i] = 0.01 * (l + 1) / (i + 1);
            heads->damage[(2 * l + 1) * 6 + i] = 0.3 * l / (i * i + 1);
            layers->damage[l * 6 + i] = heads->damage[(2 * l + 0) * 6 + i] +
                                        heads->damage[(2 * l + 1) * 6 + i];
        }
    rkv_policy p = policy_of("snapkv:curve", 0.2, a), q = policy_of("snapkv:curve", 0.2, b);
    p.unit_layers = q.unit_layers = q.curves_measured = 1;
    must(rkv_budget_heads(x, NULL, &p, 3, 2, NULL, 1500, 0, &e), &e);
    must(rkv_budget_heads(y, NULL, &q, 3, 2, NULL, 1500, 0, &e), &e);
    CHECK(!memcmp(x, y, sizeof x) && x[0] < x[2] && x[4] == x[5], "%d %d, %d %d", x[0], x[2], y[0],
          y[2]);
    rkv_profile_free(a);
    rkv_profile_free(b);
}

/* Below the first share damage goes on to grow, as b^-k with k = 1.36: the optimum of two such
 * units has them in the ratio 3^(1 / (k + 1)) = 1.59, to a step of 200 tokens. */
static void check_below(void)
{
    static const double damage[] = {3, 1.5, 0.6, 0.2, 0.1, 0.05, 1, 0.5, 0.2, 0.07, 0.03, 0.01};
    rkv_profile *profile = made_profile(1, 2, NULL);
    rkv_curves *c = add_curves(profile, 0, 1, grid6, 6);
    rkv_error e = {0};
    int b[2];
    memcpy(c->damage, damage, sizeof damage);
    rkv_policy p = policy_of("snapkv:curve", 0.01, profile);
    must(rkv_budget_heads(b, NULL, &p, 1, 2, NULL, 100000, 0, &e), &e);
    CHECK(abs(b[0] - 1229) <= 200 && b[0] + b[1] == 2000, "%d %d", b[0], b[1]);
    rkv_profile_free(profile);
}

static void refuse_budget(const rkv_policy *p, int n_kv_head, rkv_status status, const char *words)
{
    rkv_error e = {0};
    int b[64];
    const rkv_status got = rkv_budget_heads(b, NULL, p, 2, n_kv_head, NULL, 1000, 0, &e);
    CHECK(got == status && strstr(e.text, words), "%d: '%s', expected '%s'", got, e.text, words);
}

static void check_missing(void)
{
    rkv_profile *profile = made_profile(2, 2, NULL);
    rkv_policy p = policy_of("snapkv:curve", 0.2, NULL);
    refuse_budget(&p, 2, RKV_E_ARG, "'curve' needs a profile of the model; make one with rkv "
                  "profile --signals curves and name it with --kv-profile");
    p.curves_measured = 1;
    refuse_budget(&p, 2, RKV_E_ARG, "rkv profile --signals head-curves");
    p.allocator = "root";
    refuse_budget(&p, 2, RKV_E_ARG, "'root' needs a profile");
    p.profile = profile;
    refuse_budget(&p, 2, RKV_E_MISMATCH, "no measured damage curves of each KV head; make one that "
                  "has with rkv profile --signals head-curves");
    p.unit_layers = 1;
    refuse_budget(&p, 2, RKV_E_MISMATCH, "of each layer; make one that has with rkv profile "
                  "--signals layer-curves");
    p.curves_measured = 0;
    refuse_budget(&p, 2, RKV_E_MISMATCH, "no estimated damage curves of each KV head");
    add_curves(profile, 0, 1, grid6, 6);
    refuse_budget(&p, 2, RKV_E_MISMATCH, "no curve for layer 0");
    refuse_budget(&p, 3, RKV_E_MISMATCH, "2 KV heads, the model 3");
    p.unit_layers = 2;
    refuse_budget(&p, 2, RKV_E_ARG, "unit_layers is 2");
    p.unit_layers = 0;
    p.curves_measured = -1;
    refuse_budget(&p, 2, RKV_E_ARG, "curves_measured is -1");
    rkv_profile_free(profile);
}

static void check_no_memory(void)
{
    rkv_profile *profile = random_profile(3, 2, NULL);
    rkv_policy p = policy_of("snapkv:curve", 0.3, profile);
    rkv_error e = {0};
    int b[6], k = 1;
    for (;; k++) {
        const uint64_t before = rkv_mem_current();
        rkv_mem_fail_after(k);
        const rkv_status status = rkv_budget_heads(b, NULL, &p, 3, 2, NULL, 1000, 0, &e);
        rkv_mem_fail_after(0);
        CHECK(rkv_mem_current() == before, "allocation %d: nothing stays", k);
        if (!status)
            break;
        CHECK(status == RKV_E_MEM, "allocation %d: %s", k, e.text);
    }
    CHECK(k == 6, "%d allocations", k - 1);
    rkv_profile_free(profile);
}

int main(void)
{
    check_file();
    check_refused();
    check_add();
    check_rules();
    check_optimal();
    check_equal();
    check_root();
    check_layers();
    check_below();
    check_missing();
    check_no_memory();
    return check_end("curves");
}
