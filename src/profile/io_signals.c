/* The numbers of layers, how certain they are, and how orders of layers agree, as JSON. */
#include "config.h"
#include "profile/profile.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/mem.h"
#include "profile/stats.h"

static const char *const extra_name[RKV_EXTRA_COUNT] = {
    [RKV_EXTRA_LOCAL] = "local",
    [RKV_EXTRA_KEYS] = "keys",
    [RKV_EXTRA_KEYS_VALUES] = "keys_values",
    [RKV_EXTRA_DAMAGE] = "damage",
};

const char *const rkv_order_name[RKV_ORDER_COUNT] = {
    [RKV_ORDER_SENSITIVITY] = "sensitivity",
    [RKV_ORDER_DAMAGE] = "damage",
    [RKV_ORDER_ESTIMATE] = "estimated_damage",
    [RKV_ORDER_LOCAL] = "local",
    [RKV_ORDER_KEYS] = "keys",
    [RKV_ORDER_KEYS_VALUES] = "keys_values",
    [RKV_ORDER_INDEX] = "layer_index",
    [RKV_ORDER_RANDOM] = "random",
};

/* Members of a layer of the sensitivity. */
static const struct {
    const char *key;
    size_t offset;
} certainties[] = {
    {"rank", offsetof(rkv_layer_certainty, rank)},
    {"rank_low", offsetof(rkv_layer_certainty, rank_low)},
    {"rank_high", offsetof(rkv_layer_certainty, rank_high)},
    {"budget", offsetof(rkv_layer_certainty, budget)},
    {"budget_low", offsetof(rkv_layer_certainty, budget_low)},
    {"budget_high", offsetof(rkv_layer_certainty, budget_high)},
};
enum { N_CERTAINTY = sizeof certainties / sizeof *certainties };

static double *certainty_at(rkv_layer_certainty *c, int i)
{
    return (double *)(void *)((char *)c + certainties[i].offset);
}

rkv_status rkv_profile_add_extra(rkv_profile *p, enum rkv_extra which, rkv_error *e)
{
    rkv_layer_signal *s = rkv_mem_calloc((size_t)p->n_layer, sizeof *s);
    if (!s)
        return rkv_fail(e, RKV_E_MEM, "profile: out of memory for %d layers", p->n_layer);
    rkv_profile_clear(s, p->n_layer);
    rkv_mem_free(p->extra[which]);
    p->extra[which] = s;
    return RKV_OK;
}

/* ---- reading ---- */

/* A number from low to high; NaN for null. */
static rkv_status parse_or_null(double *out, const cJSON *x, const char *key, double low,
                                double high, const char *source, rkv_error *e)
{
    const cJSON *v;
    RKV_TRY(rkv_json_get(&v, x, key, source, e));
    *out = NAN;
    return cJSON_IsNull(v) ? RKV_OK : rkv_json_number(out, x, key, low, high, source, e);
}

static rkv_status parse_certainty(rkv_layer_certainty *c, const cJSON *x, const char *source,
                                  rkv_error *e)
{
    for (int i = 0; i < N_CERTAINTY; i++)
        if (rkv_json_has(x, certainties[i].key))
            RKV_TRY(parse_or_null(certainty_at(c, i), x, certainties[i].key, 0.0, 1e9, source, e));
    return RKV_OK;
}

/* signal[n_layer]; certainty: [n_layer] or NULL. */
static rkv_status parse_layers(const rkv_profile *p, const cJSON *root, const char *key,
                               rkv_layer_signal *signal, rkv_layer_certainty *certainty,
                               const char *source, rkv_error *e)
{
    const cJSON *array;
    RKV_TRY(rkv_json_array(&array, root, key, source, e));
    if (!array->child)
        return rkv_fail(e, RKV_E_FORMAT, "%s: key '%s' is empty", source, key);
    for (const cJSON *x = array->child; x; x = x->next) {
        int l;
        RKV_TRY(rkv_json_int(&l, x, "layer", 0, p->n_layer - 1, source, e));
        rkv_layer_signal *s = &signal[l];
        if (s->in_budget)
            return rkv_fail(e, RKV_E_FORMAT, "%s: layer %d has two sensitivities in '%s'", source,
                            l, key);
        s->in_budget = 1;
        RKV_TRY(rkv_json_number(&s->mean, x, "mean", 0.0, 1e9, source, e));
        RKV_TRY(parse_or_null(&s->se_examples, x, "se_examples", 0.0, 1e9, source, e));
        RKV_TRY(parse_or_null(&s->se_seeds, x, "se_seeds", 0.0, 1e9, source, e));
        if (certainty)
            RKV_TRY(parse_certainty(&certainty[l], x, source, e));
    }
    return RKV_OK;
}

static rkv_status parse_spearman(double row[RKV_ORDER_COUNT], const cJSON *x, const char *source,
                                 rkv_error *e)
{
    for (int j = 0; j < RKV_ORDER_COUNT; j++)
        if (rkv_json_has(x, rkv_order_name[j]))
            RKV_TRY(parse_or_null(&row[j], x, rkv_order_name[j], -1.0 - 1e-9, 1.0 + 1e-9, source,
                                  e));
    return RKV_OK;
}

static rkv_status parse_agreement(rkv_diagnostics *d, const cJSON *x, const char *source,
                                  rkv_error *e)
{
    const cJSON *array;
    RKV_TRY(rkv_json_array(&array, x, "agreement", source, e));
    for (const cJSON *v = array->child; v; v = v->next) {
        if (d->n_agreement == RKV_MAX_AGREEMENT)
            return rkv_fail(e, RKV_E_FORMAT, "%s: key 'agreement' has over %d elements", source,
                            RKV_MAX_AGREEMENT);
        RKV_TRY(rkv_json_int(&d->agreement[d->n_agreement].k, v, "examples", 1, INT32_MAX, source,
                             e));
        RKV_TRY(parse_or_null(&d->agreement[d->n_agreement++].spearman, v, "spearman",
                              -1.0 - 1e-9, 1.0 + 1e-9, source, e));
    }
    return RKV_OK;
}

static rkv_status parse_diagnostics(rkv_diagnostics *d, const cJSON *root, const char *source,
                                    rkv_error *e)
{
    const cJSON *x, *spearman, *row, *more;
    for (int i = 0; i < RKV_ORDER_ROWS; i++)
        for (int j = 0; j < RKV_ORDER_COUNT; j++)
            d->spearman[i][j] = NAN;
    if (!rkv_json_has(root, "diagnostics"))
        return RKV_OK;
    d->known = 1;
    RKV_TRY(rkv_json_get(&x, root, "diagnostics", source, e));
    RKV_TRY(parse_or_null(&d->widest, x, "widest_budget", 0.0, 1e9, source, e));
    RKV_TRY(rkv_json_get(&more, x, "more_examples", source, e));
    if (!cJSON_IsNull(more))
        RKV_TRY(rkv_json_int(&d->n_more, x, "more_examples", 0, INT32_MAX, source, e));
    RKV_TRY(rkv_json_get(&spearman, x, "spearman", source, e));
    for (int i = 0; i < RKV_ORDER_ROWS; i++)
        if (rkv_json_has(spearman, rkv_order_name[i])) {
            RKV_TRY(rkv_json_get(&row, spearman, rkv_order_name[i], source, e));
            RKV_TRY(parse_spearman(d->spearman[i], row, source, e));
        }
    return parse_agreement(d, x, source, e);
}

rkv_status rkv_profile_parse_signals(rkv_profile *p, const cJSON *root, const char *source,
                                     rkv_error *e)
{
    RKV_TRY(parse_layers(p, root, "sensitivity", p->sensitivity, p->certainty, source, e));
    for (int i = 0; i < RKV_EXTRA_COUNT; i++)
        if (rkv_json_has(root, extra_name[i])) {
            RKV_TRY(rkv_profile_add_extra(p, (enum rkv_extra)i, e));
            RKV_TRY(parse_layers(p, root, extra_name[i], p->extra[i], NULL, source, e));
        }
    return parse_diagnostics(&p->diagnostics, root, source, e);
}

/* ---- writing ---- */

static void put_number(rkv_text *t, const char *key, double value)
{
    rkv_text_printf(t, ", \"%s\": ", key);
    rkv_text_number(t, value);
}

static void print_layers(rkv_text *t, const rkv_profile *p, const char *key,
                         const rkv_layer_signal *signal, rkv_layer_certainty *certainty)
{
    const char *separator = "\n";
    rkv_text_printf(t, ",\n  \"%s\": [", key);
    for (int l = 0; l < p->n_layer; l++) {
        const rkv_layer_signal *s = &signal[l];
        if (!s->in_budget)
            continue;
        rkv_text_printf(t, "%s    {\"layer\": %d", separator, l);
        put_number(t, "mean", s->mean);
        put_number(t, "se_examples", s->se_examples);
        put_number(t, "se_seeds", s->se_seeds);
        for (int i = 0; certainty && !isnan(certainty[l].rank) && i < N_CERTAINTY; i++)
            put_number(t, certainties[i].key, *certainty_at(&certainty[l], i));
        rkv_text_printf(t, "}");
        separator = ",\n";
    }
    rkv_text_printf(t, "\n  ]");
}

static void print_spearman(rkv_text *t, const rkv_diagnostics *d)
{
    const char *row_separator = "";
    rkv_text_printf(t, ", \"spearman\": {");
    for (int i = 0; i < RKV_ORDER_ROWS; i++) {
        const char *separator = "";
        if (isnan(d->spearman[i][RKV_ORDER_RANDOM]))    /* the order itself is not there */
            continue;
        rkv_text_printf(t, "%s\n    \"%s\": {", row_separator, rkv_order_name[i]);
        for (int j = 0; j < RKV_ORDER_COUNT; j++) {
            if (isnan(d->spearman[i][j]))
                continue;
            rkv_text_printf(t, "%s\"%s\": ", separator, rkv_order_name[j]);
            rkv_text_number(t, d->spearman[i][j]);
            separator = ", ";
        }
        rkv_text_printf(t, "}");
        row_separator = ",";
    }
    rkv_text_printf(t, "}");
}

static void print_diagnostics(rkv_text *t, const rkv_diagnostics *d)
{
    if (!d->known)
        return;
    rkv_text_printf(t, ",\n  \"diagnostics\": {\"resamples\": %d", RKV_RESAMPLES);
    put_number(t, "stable_within", RKV_STABLE);
    put_number(t, "widest_budget", d->widest);
    if (isnan(d->widest))
        rkv_text_printf(t, ", \"more_examples\": null");
    else
        rkv_text_printf(t, ", \"more_examples\": %d", d->n_more);
    print_spearman(t, d);
    rkv_text_printf(t, ",\n    \"agreement\": [");
    for (int i = 0; i < d->n_agreement; i++) {
        rkv_text_printf(t, "%s{\"examples\": %d", i ? ", " : "", d->agreement[i].k);
        put_number(t, "spearman", d->agreement[i].spearman);
        rkv_text_printf(t, "}");
    }
    rkv_text_printf(t, "]}");
}

void rkv_profile_print_signals(rkv_text *t, const rkv_profile *p)
{
    print_layers(t, p, "sensitivity", p->sensitivity, p->certainty);
    for (int i = 0; i < RKV_EXTRA_COUNT; i++)
        if (p->extra[i])
            print_layers(t, p, extra_name[i], p->extra[i], NULL);
    print_diagnostics(t, &p->diagnostics);
}
