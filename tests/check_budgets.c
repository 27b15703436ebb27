/* Allocators: known values, rules at the edges, and exact totals over random cases, of which
 * --cases N says how many. */
#include "config.h"
#include "made_profile.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "policy/policy.h"

enum { MAX_LAYER = 40, MAX_HEAD = 8, MAX_UNIT = MAX_LAYER * MAX_HEAD };

static uint64_t seed = 7;
static char warning[512];       /* the last one */

static uint64_t draw(uint64_t n)
{
    return rkv_hash_mix(seed++ * UINT64_C(0x9E3779B97F4A7C15)) % n;
}

static double uniform(void)
{
    return (double)draw(1u << 30) / (1u << 30);
}

static void note(void *ctx, int level, const char *line)
{
    (void)ctx;
    if (level == RKV_LOG_WARN)
        snprintf(warning, sizeof warning, "%s", line);
}

static rkv_policy policy_of(const char *name, const char *budget)
{
    rkv_error e = {0};
    rkv_policy p = rkv_policy_default();
    if (rkv_policy_set_name(&p, name, &e) || rkv_policy_set_budget(&p, budget, &e)) {
        fprintf(stderr, "%s\n", e.text);
        exit(1);
    }
    return p;
}

static int64_t sum_of(const int *b, int n)
{
    int64_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += b[i];
    return sum;
}

/* SmolLM2's 30 layers at 10 % of 1,500 tokens: METHOD section 7 has the total of the steps. */
static void check_pyramid(void)
{
    rkv_error e = {0};
    rkv_policy p = policy_of("pyramid", "10%");
    int b[30], cap, falls = 1;
    CHECK(!rkv_budget_heads(b, &cap, &p, 30, 1, NULL, 1500, 0, &e) && sum_of(b, 30) == 4500, "%s",
          e.text);
    for (int l = 0; l < 30; l++) {      /* 32 + 230.1 - l 224.2 / 29, rounded up or down */
        const double line = 32 + 230.1 - l * (230.1 - 5.9) / 29;
        falls &= b[l] >= floor(line) && b[l] <= ceil(line);
    }
    CHECK(falls && b[0] == 262 && b[29] == 38, "from %d to %d", b[0], b[29]);
    p.published = 1;
    warning[0] = 0;
    CHECK(!rkv_budget_heads(b, &cap, &p, 30, 1, NULL, 1500, 0, &e) && sum_of(b, 30) == 4845, "%lld",
          (long long)sum_of(b, 30));
    CHECK(b[0] == 32 + 231 && b[1] == 32 + 224 && b[29] == 32 + 231 - 29 * 7, "steps of 7: %d %d",
          b[0], b[29]);
    CHECK(strstr(warning, "4845 tokens for a budget of 4500"), "%s", warning);
    CHECK(rkv_budget_heads(b, &cap, &p, 30, 1, NULL, 200, 0, &e) == RKV_E_ARG, "20 of 200");
    p.budget_kind = RKV_BUDGET_TOKENS;
    p.budget = 150;                     /* 118 beside the window; the prompt is below twice that */
    CHECK(!rkv_budget_heads(b, &cap, &p, 30, 1, NULL, 230, 0, &e) && b[0] == 150 && b[29] == 150,
          "flat where the prompt is short: %d %d", b[0], b[29]);
    /* Steps from the prompt's length when the line would begin above it: 216 beside the window,
     * last 2 x 118 - 216 = 20, 6 a step. */
    CHECK(!rkv_budget_heads(b, &cap, &p, 30, 1, NULL, 248, 0, &e) && b[0] == 248 &&
              b[29] == 32 + 216 - 29 * 6, "cut at the prompt: %d %d", b[0], b[29]);
    p.published = 0;
    CHECK(!rkv_budget_heads(b, &cap, &p, 30, 1, NULL, 248, 0, &e) && b[0] == 248 && b[29] == 52 &&
              sum_of(b, 30) == 4500, "cut, exact: %d %d", b[0], b[29]);
    for (int published = 0; published < 2; published++) {
        p.published = published;
        CHECK(!rkv_budget_heads(b, &cap, &p, 1, 1, NULL, 1500, 0, &e) && b[0] == 150,
              "one layer: %d", b[0]);
    }
}

static void check_signals(void)
{
    const double s[] = {1.0, NAN, 2.0, 3.0}, local[] = {9.0, NAN, 1.0, 5.0};
    const uint8_t skip[] = {0, 1, 0, 0};
    rkv_error e = {0};
    rkv_profile *profile = made_profile(4, 0, s);
    rkv_policy p = policy_of("local", "21%");
    int b[4], c[4], cap;
    CHECK(rkv_budget_heads(b, &cap, &p, 4, 1, skip, 1000, 0, &e) == RKV_E_ARG &&
              strstr(e.text, "'local' needs a profile"), "%s", e.text);
    p.profile = profile;
    p.ratio = p.gamma = 4.0;
    CHECK(rkv_budget_heads(b, &cap, &p, 4, 1, skip, 1000, 0, &e) == RKV_E_MISMATCH &&
              strstr(e.text, "no layer-local signal"), "%s", e.text);
    made_local(profile, local);         /* weights 4, 1, 2 */
    CHECK(!rkv_budget_heads(b, &cap, &p, 4, 1, skip, 1000, 0, &e) && b[0] == 360 && b[1] == 1000 &&
              b[2] == 90 && b[3] == 180, "local: %d %d %d", b[0], b[2], b[3]);
    p.allocator = "reversed";           /* ripple's 1, 2, 4 from behind */
    CHECK(!rkv_budget_heads(b, &cap, &p, 4, 1, skip, 1000, 0, &e) && b[0] == 360 && b[2] == 180 &&
              b[3] == 90, "reversed: %d %d %d", b[0], b[2], b[3]);
    rkv_profile_free(profile);
    p = policy_of("snapkv:random", "21%");
    p.ratio = p.gamma = 4.0;
    CHECK(!rkv_budget_heads(b, &cap, &p, 4, 1, skip, 1000, 0, &e) && sum_of(b, 4) == 1630 &&
              b[1] == 1000, "random needs no profile: %s", e.text);
    CHECK(!rkv_budget_heads(c, &cap, &p, 4, 1, skip, 1000, 0, &e) && !memcmp(b, c, sizeof b),
          "the same seed, the same budgets");
    p.seed = 1;
    CHECK(!rkv_budget_heads(c, &cap, &p, 4, 1, skip, 1000, 0, &e) && memcmp(b, c, sizeof b),
          "another seed, others");
}

/* ---- budgets of the user's own ---- */

static rkv_status parse(rkv_budgets **b, const char *text, rkv_error *e)
{
    return rkv_budgets_parse(b, text, strlen(text), "b.json", e);
}

static void check_bad_files(void)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"[]", "layers"}, {"{\"layers\": []}", "is empty"}, {"{\"layers\": [1]}", "layer"},
        {"{\"layers\": [{\"layer\": 0}]}", "'budget' is missing"},
        {"{\"layers\": [{\"layer\": 0, \"budget\": 0}]}", "is 0, expected a positive"},
        {"{\"layers\": [{\"layer\": 0, \"budget\": -1}]}", "'budget'"},
        {"{\"layers\": [{\"layer\": 4096, \"budget\": 1}]}", "'layer'"},
        {"{\"layers\": [{\"layer\": 1, \"budget\": 1}, {\"layer\": 1, \"budget\": 2}]}",
         "two budgets"},
        {"{\"layers\": [{\"layer\": 0, \"budgets\": []}]}", "0 KV heads"},
        {"{\"layers\": [{\"layer\": 0, \"budgets\": [1, \"x\"]}]}", "not a number"},
        {"{\"layers\": [{\"layer\": 0, \"budgets\": [1, 0]}]}", "expected a positive"},
        {"{\"layers\": [{\"layer\": 0, \"budgets\": [1, 2]}, {\"layer\": 1, \"budgets\": [1]}]}",
         "1 KV heads, expected 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rkv_error e = {0};
        rkv_budgets *b = NULL;
        CHECK(parse(&b, cases[i].text, &e) == RKV_E_FORMAT && strstr(e.text, cases[i].words) && !b,
              "%s: '%s'", cases[i].text, e.text);
        rkv_budgets_free(b);
    }
    rkv_budgets *b = NULL;
    rkv_error e = {0};
    CHECK(rkv_budgets_load(&b, "/nonexistent/b.json", &e) == RKV_E_IO, "%s", e.text);
}

static void check_files(void)
{
    const char *by_layer = "{\"total\": 9, \"layers\": [{\"layer\": 2, \"budget\": 60},"
                           " {\"layer\": 0, \"budget\": 240, \"sliding\": true}]}",
               *by_head = "{\"layers\": [{\"layer\": 0, \"budgets\": [100, 44]},"
                          " {\"layer\": 1, \"budget\": 72},"
                          " {\"layer\": 2, \"budgets\": [36, 108]}]}";
    const uint8_t skip[] = {0, 1, 0};
    rkv_error e = {0};
    rkv_budgets *b = NULL;
    rkv_policy p = policy_of("snapkv:file", "150");
    int of[6], cap;
    CHECK(rkv_budget_heads(of, &cap, &p, 3, 2, skip, 1000, 0, &e) == RKV_E_ARG &&
              strstr(e.text, "--kv-budgets"), "%s", e.text);
    CHECK(!parse(&b, by_layer, &e), "%s", e.text);
    p.budgets = b;
    CHECK(!rkv_budget_heads(of, &cap, &p, 3, 2, skip, 1000, 0, &e) && of[0] == 240 &&
              of[1] == 240 && of[2] == 1000 && of[4] == 60 && of[5] == 60, "as they are: %d %d",
          of[0], of[4]);
    p.budget = 75;                      /* 120 and 30, but none falls under 36 */
    CHECK(!rkv_budget_heads(of, &cap, &p, 3, 2, skip, 1000, 0, &e) && of[0] == 114 && of[4] == 36,
          "scaled within the floor: %d %d", of[0], of[4]);
    CHECK(rkv_budget_heads(of, &cap, &p, 3, 2, NULL, 1000, 0, &e) == RKV_E_MISMATCH &&
              strstr(e.text, "none for layer 1"), "%s", e.text);
    rkv_budgets_free(b);
    CHECK(!parse(&b, by_head, &e) && rkv_budgets_n_layer(b) == 3 && rkv_budgets_n_kv_head(b) == 2,
          "%s", e.text);
    p.budgets = b;
    p.budget = 72;
    CHECK(!rkv_budget_heads(of, &cap, &p, 3, 2, NULL, 1000, 0, &e) && of[0] == 100 && of[1] == 44 &&
              of[2] == 72 && of[3] == 72 && of[4] == 36 && of[5] == 108, "by head: %d %d",
          of[0], of[1]);
    p.unit_layers = 1;
    CHECK(!rkv_budget_heads(of, &cap, &p, 3, 2, NULL, 1000, 0, &e) && of[0] == 72 && of[1] == 72,
          "layers as units: %d %d", of[0], of[1]);
    CHECK(rkv_budget_heads(of, &cap, &p, 3, 1, NULL, 1000, 0, &e) == RKV_E_MISMATCH &&
              strstr(e.text, "2 KV heads, the model 1"), "%s", e.text);
    rkv_budgets_free(b);
    int k = 0;
    for (rkv_status s = RKV_E_MEM; s; ) {       /* every allocation but cJSON's fails once */
        b = NULL;
        rkv_mem_fail_after(++k);
        s = parse(&b, by_head, &e);
        rkv_mem_fail_after(0);
        CHECK(!s || (s == RKV_E_MEM && !b), "allocation %d: %s", k, e.text);
        rkv_budgets_free(b);
    }
    CHECK(k == 5, "%d allocations", k);
    check_bad_files();
}

/* ---- the edges ---- */

/* What happens where there is nothing to divide, and that it is told. */
static void check_edges(void)
{
    static const char *const names[] = {"snapkv", "pyramid", "snapkv:random", "streaming", "adakv"};
    const uint8_t all[] = {1, 1};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        rkv_error e = {0};
        rkv_policy p = policy_of(names[i], "10%");
        int b[2], cap;
        warning[0] = 0;                 /* shorter than the window and the sinks */
        CHECK(!rkv_budget_heads(b, &cap, &p, 2, 1, NULL, 30, 0, &e) && cap == 30 && b[1] == 30 &&
                  strstr(warning, "30 tokens is kept whole"), "%s, short: '%s'", names[i], warning);
        CHECK(rkv_budget_heads(b, &cap, &p, 2, 1, NULL, 100, 0, &e) == RKV_E_ARG &&
                  strstr(e.text, "below the floor of 36 (window 32 + 4)"), "%s", e.text);
        warning[0] = 0;                 /* no layer to compress */
        CHECK(!rkv_budget_heads(b, &cap, &p, 2, 1, all, 1000, 0, &e) && b[0] == 1000 &&
                  strstr(warning, "every layer has a sliding window"), "%s: '%s'", names[i],
              warning);
        p.n_sink = 0;                   /* a floor as peers have it */
        CHECK(!rkv_budget_heads(b, &cap, &p, 2, 1, NULL, 320, 0, &e) && cap == 32 && b[0] == 32 &&
                  b[1] == 32, "%s: the bare window: %s", names[i], e.text);
        warning[0] = 0;
        CHECK(!rkv_budget_heads(b, &cap, &p, 1, 1, NULL, 1000, 0, &e) && b[0] == 100 && !*warning,
              "%s: one layer, and nothing to tell", names[i]);
        CHECK(rkv_policy_set_budget(&p, "0%", &e) == RKV_E_ARG &&
                  rkv_policy_set_budget(&p, "0", &e) == RKV_E_ARG, "a budget of nothing");
    }
    rkv_error e = {0};
    rkv_policy p = policy_of("streaming", "10%");
    int b[1], cap;
    p.window = p.n_sink = 0;            /* and still a token stays */
    CHECK(rkv_budget_heads(b, &cap, &p, 1, 1, NULL, 4, 0, &e) == RKV_E_ARG &&
              strstr(e.text, "is 0 per layer and head, below the floor of 1"), "%s", e.text);
    CHECK(!rkv_budget_heads(b, &cap, &p, 1, 1, NULL, 5, 0, &e) && b[0] == 1, "%s", e.text);
    p.selector = "snapkv";
    CHECK(rkv_policy_check(&p, &e) == RKV_E_ARG && strstr(e.text, "'snapkv', which observes by it"),
          "%s", e.text);
    static const char *const incomparable[] = {"blend:uniform+adakv", "knorm:uniform+criticalkv",
                                               "streaming:uniform+adakv"};
    for (int i = 0; i < 3; i++) {
        p = policy_of("snapkv", "10%");
        CHECK(!rkv_policy_set_name(&p, incomparable[i], &e) &&
                  rkv_policy_check(&p, &e) == RKV_E_ARG && strstr(e.text, "attention"), "%s: %s",
              incomparable[i], e.text);
    }
    p.adakv_forced = 1;
    CHECK(!rkv_policy_check(&p, &e), "kvpress's form compares any scores: %s", e.text);
}

/* ---- random cases ---- */

enum { N_PROFILE = 24 };

typedef struct pool {
    rkv_profile *of[N_PROFILE];
    int n_layer[N_PROFILE], n_kv_head[N_PROFILE];
    uint8_t skip[N_PROFILE][MAX_LAYER];
    rkv_budgets *file[N_PROFILE];
} pool;

/* Signals and curves that a real model could have, and some that are all alike or nothing. */
static void fill_profile(pool *x, int i)
{
    static const double grid[] = {0.03, 0.1, 0.3};
    double s[MAX_LAYER], local[MAX_LAYER];
    char text[16384] = "{\"layers\": [";
    rkv_curves *c = NULL;
    rkv_error e = {0};
    const int n = 1 + (int)draw(i % 2 ? MAX_LAYER : 8), n_head = 1 + (int)draw(MAX_HEAD),
              alike = i % 6 == 0;
    x->n_layer[i] = n;
    x->n_kv_head[i] = n_head;
    for (int l = 0; l < n; l++) {
        x->skip[i][l] = i % 3 == 0 && l && draw(3) == 0;
        s[l] = x->skip[i][l] ? NAN : alike ? 1.0 : exp(8.0 * uniform() - 8.0);
        local[l] = alike ? 0.0 : uniform();
        char *at = text + strlen(text);
        at += sprintf(at, "%s{\"layer\": %d, \"budget%s%.4f", l ? ", " : "", l,
                      i % 2 ? "s\": [" : "\": ", exp(6.0 * uniform()));
        for (int h = 1; i % 2 && h < n_head; h++)
            at += sprintf(at, ", %.4f", exp(6.0 * uniform()));
        strcat(text, i % 2 ? "]}" : "}");
    }
    strcat(text, "]}");
    x->of[i] = made_profile(n, n_head, s);
    made_local(x->of[i], local);
    if (rkv_profile_add_curves(x->of[i], &c, 0, 1, "blend", grid, 3, &e) ||
        parse(&x->file[i], text, &e)) {
        fprintf(stderr, "%s\n", e.text);
        exit(1);
    }
    for (int u = 0; u < n * n_head; u++) {
        double damage = alike ? 0.0 : exp(12.0 * uniform() - 12.0);
        for (int k = 0; k < 3; k++, damage *= uniform())
            c->damage[u * 3 + k] = damage;
    }
}

static const char *const allocators[] = {
#define RKV_ALLOCATOR(name) #name,
#include "policy/policy.def"
#undef RKV_ALLOCATOR
};
enum { N_ALLOCATOR = sizeof allocators / sizeof *allocators };

/* One case: how many rules it breaks. */
static int one_case(const pool *x, rkv_policy *p)
{
    static int b[MAX_UNIT];
    const int i = (int)draw(N_PROFILE), n_layer = x->n_layer[i], n_head = x->n_kv_head[i];
    rkv_error e = {0};
    p->allocator = allocators[draw(N_ALLOCATOR)];
    p->profile = x->of[i];
    p->budgets = x->file[i];
    p->window = (int)draw(draw(2) ? 65 : 3) + 1;
    p->n_sink = draw(3) ? 4 : (int)draw(9);
    p->unit_layers = (int)draw(2);
    p->beta = draw(2) ? 20.0 : 1.0 + 40.0 * uniform();
    p->ratio = 1.0 + 9.0 * uniform() * uniform();
    p->gamma = 1.0 + 3.0 * uniform();
    p->seed = draw(1000);
    const int lo = p->window + p->n_sink, n = lo + 1 + (int)draw(draw(50) ? 4000 : 3000000);
    p->budget_kind = draw(2) ? RKV_BUDGET_TOKENS : RKV_BUDGET_SHARE;
    const int want = lo + (int)draw((uint64_t)(n - lo));
    p->budget = p->budget_kind == RKV_BUDGET_TOKENS ? want : (double)want / n;
    int cap = 0, n_unit = 0, wrong = 0;
    if (rkv_budget_heads(b, &cap, p, n_layer, n_head, x->skip[i], n, 0, &e)) {
        fprintf(stderr, "%s of %d: %s\n", p->allocator, n, e.text);
        return 1;
    }
    int64_t total = 0;
    for (int u = 0; u < n_layer * n_head; u++) {
        if (x->skip[i][u / n_head]) {
            wrong += b[u] != n;
            continue;
        }
        wrong += b[u] < lo || b[u] > n;
        total += b[u];
        n_unit++;
    }
    wrong += cap != want || total != (int64_t)want * n_unit;
    if (wrong)
        fprintf(stderr, "%s of %d tokens, cap %d for %d: %lld for %lld\n", p->allocator, n, cap,
                want, (long long)total, (long long)want * n_unit);
    return wrong;
}

/* Heads that share: the same total, everyone within the floor and the prompt. */
static int one_split(rkv_policy *p)
{
    enum { MOST = 200 };
    static float score[MAX_HEAD][MOST];
    static uint32_t work[MAX_HEAD][MOST];
    float *scores[MAX_HEAD];
    uint32_t *works[MAX_HEAD];
    const int n_head = 1 + (int)draw(MAX_HEAD), levels = 1 + (int)draw(draw(2) ? 5 : 100000);
    p->window = (int)draw(20);
    p->n_sink = 1 + (int)draw(5);
    p->safeguard = draw(3) ? 0.2 : uniform();
    p->adakv_forced = (int)draw(2);
    const int lo = p->window + p->n_sink, n = lo + 1 + (int)draw(MOST - 50);
    int b[MAX_HEAD], wrong = 0;
    int64_t total = 0, after = 0;
    for (int h = 0; h < n_head; h++) {
        scores[h] = score[h];
        works[h] = work[h];
        total += b[h] = lo + (int)draw((uint64_t)(n - lo + 1));
        const float scale = expf(4.0f * (float)uniform());
        for (int t = 0; t < n - p->window; t++)
            score[h][t] = t < 2 && draw(4) == 0 ? INFINITY : scale * (float)draw((uint64_t)levels);
    }
    rkv_split_budget(b, n_head, p, scores, works, n);
    for (int h = 0; h < n_head; h++) {
        wrong += b[h] < lo || b[h] > n;
        after += b[h];
    }
    return wrong + (after != total);
}

static void check_totals(long n_case)
{
    static pool x;
    rkv_policy p = policy_of("snapkv", "10%");
    long wrong = 0, wrong_split = 0;
    for (int i = 0; i < N_PROFILE; i++)
        fill_profile(&x, i);
    for (long i = 0; i < n_case && wrong < 10; i++)
        wrong += one_case(&x, &p);
    for (long i = 0; i < n_case / 4; i++)
        wrong_split += one_split(&p);
    CHECK(!wrong, "%ld totals or bounds of %ld cases are wrong", wrong, n_case);
    CHECK(!wrong_split, "%ld splits of %ld are wrong", wrong_split, n_case / 4);
    printf("%ld divisions, %ld splits\n", n_case, n_case / 4);
    for (int i = 0; i < N_PROFILE; i++) {
        rkv_profile_free(x.of[i]);
        rkv_budgets_free(x.file[i]);
    }
}

int main(int argc, char **argv)
{
    const int given = argc == 3 && !strcmp(argv[1], "--cases");
    const long n_case = given ? strtol(argv[2], NULL, 10) : 20000;
    rkv_log_set(note, NULL);
    check_pyramid();
    check_signals();
    check_files();
    check_edges();
    check_totals(n_case);
    return check_end("budgets");
}
