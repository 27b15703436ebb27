/* Damage curves: in profile files, and as budgets per layer or KV head. */
#include "config.h"
#include "check.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "profile/profile.h"

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
    for (int k = 1;; k++) {                     /* every allocation but cJSON's fails once */
        back = NULL;
        rkv_mem_fail_after(k);
        const rkv_status status = rkv_profile_parse(&back, text, n, "p.json", &e);
        rkv_mem_fail_after(0);
        rkv_profile_free(back);
        if (!status)
            break;
        CHECK(status == RKV_E_MEM, "allocation %d: %s", k, e.text);
    }
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

int main(void)
{
    check_file();
    check_refused();
    check_add();
    return check_end("curves");
}
