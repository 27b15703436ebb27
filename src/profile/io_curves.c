/* The damage curves of a profile, in memory and as JSON. */
#include "config.h"
#include "profile/profile.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

enum { MAX_CURVES = 4 };        /* two kinds of two units */

static const char *const kind_name[] = {"estimated", "measured"};
static const char *const unit_name[] = {"layer", "head"};

/* Units of a layer. */
static int units_of(const rkv_profile *p, int per_head)
{
    return per_head ? p->n_kv_head : 1;
}

/* Place of layer l, KV head h in damage and se. */
static size_t place(const rkv_profile *p, const rkv_curves *c, int l, int h)
{
    return ((size_t)l * (size_t)units_of(p, c->per_head) + (size_t)h) * (size_t)c->n_grid;
}

const rkv_curves *rkv_profile_find_curves(const rkv_profile *p, int measured, int per_head)
{
    for (int i = 0; i < p->n_curves; i++)
        if (p->curves[i].measured == !!measured && p->curves[i].per_head == !!per_head)
            return &p->curves[i];
    return NULL;
}

int rkv_profile_curve(const rkv_profile *p, int measured, int l, int h, const double **grid,
                      const double **damage)
{
    const rkv_curves *c = rkv_profile_find_curves(p, measured, h >= 0);
    if (!c || l < 0 || l >= p->n_layer || h >= p->n_kv_head)
        return 0;
    *grid = c->grid;
    *damage = c->damage + place(p, c, l, h < 0 ? 0 : h);
    return c->n_grid;
}

static void free_one(rkv_curves *c)
{
    rkv_mem_free(c->selector);
    rkv_mem_free(c->damage);
    rkv_mem_free(c->se);
}

void rkv_profile_free_curves(rkv_profile *p)
{
    for (int i = 0; i < p->n_curves; i++)
        free_one(&p->curves[i]);
    rkv_mem_free(p->curves);
}

/* source and bad: what names the fault, and the status it has. */
static rkv_status check_curves(const rkv_profile *p, const rkv_curves *c, const char *source,
                               rkv_status bad, rkv_error *e)
{
    if (rkv_profile_find_curves(p, c->measured, c->per_head))
        return rkv_fail(e, bad, "%s: curves: %s ones of each %s are there twice", source,
                        kind_name[c->measured], unit_name[c->per_head]);
    if (c->per_head && p->n_kv_head < 1)
        return rkv_fail(e, bad, "%s: curves of each head, but 'n_kv_head' is missing", source);
    if (c->n_grid < 1 || c->n_grid > RKV_MAX_GRID)
        return rkv_fail(e, bad, "%s: curves: %d shares in 'grid', expected 1 to %d", source,
                        c->n_grid, RKV_MAX_GRID);
    const int i = rkv_profile_bad_share(c->grid, c->n_grid);
    if (i >= 0)
        return rkv_fail(e, bad, "%s: curves: share #%d of 'grid' is %g, expected ascending numbers "
                        "between 0 and 1", source, i, c->grid[i]);
    return RKV_OK;
}

/* Adds c, whose arrays and selector it allocates. */
static rkv_status add(rkv_profile *p, rkv_curves **out, rkv_curves c, const char *selector,
                      rkv_error *e)
{
    const size_t n = place(p, &c, p->n_layer, 0), bytes = rkv_mem_product(n, sizeof *c.damage);
    if (!p->curves)
        p->curves = rkv_mem_calloc(MAX_CURVES, sizeof *p->curves);
    c.selector = rkv_mem_strdup(selector);
    c.damage = rkv_mem_alloc(bytes);
    c.se = rkv_mem_alloc(bytes);
    if (!p->curves || !c.selector || !c.damage || !c.se) {
        free_one(&c);
        return rkv_fail(e, RKV_E_MEM, "profile: out of memory for curves of %zu numbers", n);
    }
    for (size_t i = 0; i < n; i++)
        c.damage[i] = c.se[i] = NAN;
    *out = &p->curves[p->n_curves++];
    **out = c;
    return RKV_OK;
}

rkv_status rkv_profile_add_curves(rkv_profile *p, rkv_curves **out, int measured, int per_head,
                                  const char *selector, const double *grid, int n_grid,
                                  rkv_error *e)
{
    rkv_curves c = {.measured = !!measured, .per_head = !!per_head, .n_grid = n_grid};
    for (int i = 0; n_grid <= RKV_MAX_GRID && i < n_grid; i++)
        c.grid[i] = grid[i];
    RKV_TRY(check_curves(p, &c, "profile", RKV_E_ARG, e));
    return add(p, out, c, selector, e);
}

/* ---- reading ---- */

static rkv_status parse_choice(int *out, const cJSON *x, const char *key, const char *const name[2],
                               const char *source, rkv_error *e)
{
    const char *word;
    RKV_TRY(rkv_json_string(&word, x, key, source, e));
    *out = !strcmp(word, name[1]);
    if (*out || !strcmp(word, name[0]))
        return RKV_OK;
    return rkv_fail(e, RKV_E_FORMAT, "%s: curves: key '%s' is '%.40s', expected %s or %s", source,
                    key, word, name[0], name[1]);
}

/* Kind, unit and grid of curves without arrays. */
static rkv_status parse_head(rkv_curves *c, const cJSON *x, const char *source, rkv_error *e)
{
    const cJSON *array;
    RKV_TRY(parse_choice(&c->measured, x, "kind", kind_name, source, e));
    RKV_TRY(parse_choice(&c->per_head, x, "unit", unit_name, source, e));
    RKV_TRY(rkv_json_array(&array, x, "grid", source, e));
    for (const cJSON *v = array->child; v; v = v->next, c->n_grid++)
        if (c->n_grid < RKV_MAX_GRID)
            c->grid[c->n_grid] = cJSON_IsNumber(v) ? v->valuedouble : (double)NAN;
    return RKV_OK;
}

/* An array of n numbers from 0 on; NaN: null, where it may stand. */
static rkv_status parse_numbers(double *out, int n, const cJSON *unit, const char *key,
                                int may_be_null, const char *source, rkv_error *e)
{
    const cJSON *array;
    RKV_TRY(rkv_json_array(&array, unit, key, source, e));
    if (cJSON_GetArraySize(array) != n)
        return rkv_fail(e, RKV_E_FORMAT, "%s: curves: %d numbers in '%s', but %d shares in 'grid'",
                        source, cJSON_GetArraySize(array), key, n);
    for (const cJSON *v = array->child; v; v = v->next) {
        *out = cJSON_IsNumber(v) ? v->valuedouble : (double)NAN;
        if (!(*out >= 0.0 && *out <= 1e9) && !(may_be_null && cJSON_IsNull(v)))
            return rkv_fail(e, RKV_E_FORMAT,
                            "%s: curves: '%s' holds %g, expected numbers from 0 to 1e9%s", source,
                            key, *out, may_be_null ? " or null" : "");
        out++;
    }
    return RKV_OK;
}

static rkv_status parse_unit(const rkv_profile *p, rkv_curves *c, const cJSON *unit,
                             const char *source, rkv_error *e)
{
    int l, h = 0;
    RKV_TRY(rkv_json_int(&l, unit, "layer", 0, p->n_layer - 1, source, e));
    if (c->per_head)
        RKV_TRY(rkv_json_int(&h, unit, "kv_head", 0, p->n_kv_head - 1, source, e));
    double *damage = c->damage + place(p, c, l, h);
    if (!p->sensitivity[l].in_budget)
        return rkv_fail(e, RKV_E_FORMAT, "%s: curves: layer %d has a curve, but no sensitivity",
                        source, l);
    if (!isnan(*damage))
        return rkv_fail(e, RKV_E_FORMAT, "%s: curves: layer %d, KV head %d is there twice", source,
                        l, h);
    RKV_TRY(parse_numbers(damage, c->n_grid, unit, "damage", 0, source, e));
    return parse_numbers(c->se + place(p, c, l, h), c->n_grid, unit, "se", 1, source, e);
}

static rkv_status parse_one(rkv_profile *p, const cJSON *x, const char *source, rkv_error *e)
{
    rkv_curves head = {0}, *c;
    const char *selector;
    const cJSON *units;
    RKV_TRY(parse_head(&head, x, source, e));
    RKV_TRY(rkv_json_string(&selector, x, "selector", source, e));
    RKV_TRY(rkv_json_array(&units, x, "units", source, e));
    RKV_TRY(check_curves(p, &head, source, RKV_E_FORMAT, e));
    RKV_TRY(add(p, &c, head, selector, e));
    for (const cJSON *u = units->child; u; u = u->next)
        RKV_TRY(parse_unit(p, c, u, source, e));
    for (int l = 0; l < p->n_layer; l++)
        for (int h = 0; p->sensitivity[l].in_budget && h < units_of(p, c->per_head); h++)
            if (isnan(c->damage[place(p, c, l, h)]))
                return rkv_fail(e, RKV_E_FORMAT,
                                "%s: curves: layer %d, KV head %d is missing in 'units'", source, l,
                                h);
    return RKV_OK;
}

rkv_status rkv_profile_parse_curves(rkv_profile *p, const cJSON *root, const char *source,
                                    rkv_error *e)
{
    const cJSON *array;
    if (!rkv_json_has(root, "curves"))
        return RKV_OK;
    RKV_TRY(rkv_json_array(&array, root, "curves", source, e));
    for (const cJSON *x = array->child; x; x = x->next)
        RKV_TRY(parse_one(p, x, source, e));
    return RKV_OK;
}

/* ---- writing ---- */

static void print_one(rkv_text *t, const rkv_profile *p, const rkv_curves *c)
{
    const char *separator = "\n";
    const size_t n = (size_t)c->n_grid;
    rkv_text_printf(t, "    {\"kind\": \"%s\", \"unit\": \"%s\", \"selector\": ",
                    kind_name[c->measured], unit_name[c->per_head]);
    rkv_text_json(t, c->selector, strlen(c->selector));
    rkv_profile_print_numbers(t, "grid", c->grid, 1, n);
    rkv_text_printf(t, ", \"units\": [");
    for (int l = 0; l < p->n_layer; l++)
        for (int h = 0; p->sensitivity[l].in_budget && h < units_of(p, c->per_head); h++) {
            rkv_text_printf(t, "%s      {\"layer\": %d", separator, l);
            if (c->per_head)
                rkv_text_printf(t, ", \"kv_head\": %d", h);
            rkv_profile_print_numbers(t, "damage", c->damage + place(p, c, l, h), 1, n);
            rkv_profile_print_numbers(t, "se", c->se + place(p, c, l, h), 1, n);
            rkv_text_printf(t, "}");
            separator = ",\n";
        }
    rkv_text_printf(t, "\n    ]}");
}

void rkv_profile_print_curves(rkv_text *t, const rkv_profile *p)
{
    if (!p->n_curves)
        return;
    rkv_text_printf(t, ",\n  \"curves\": [\n");
    for (int i = 0; i < p->n_curves; i++) {
        rkv_text_printf(t, i ? ",\n" : "");
        print_one(t, p, &p->curves[i]);
    }
    rkv_text_printf(t, "\n  ]");
}
