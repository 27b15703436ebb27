/* Format, model and settings: what a profile and a shard of one begin with. */
#include "config.h"
#include "profile/profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { MAX_LAYER = 1024, MAX_HEAD = 1024 };

static rkv_status no_memory(const char *source, rkv_error *e)
{
    return rkv_fail(e, RKV_E_MEM, "%s: out of memory", source);
}

static rkv_status copy_string(char **out, const cJSON *object, const char *key, const char *source,
                              rkv_error *e)
{
    const char *s;
    RKV_TRY(rkv_json_string(&s, object, key, source, e));
    *out = rkv_mem_strdup(s);
    return *out ? RKV_OK : no_memory(source, e);
}

static rkv_status check_format(const cJSON *root, const char *format, const char *source,
                               rkv_error *e)
{
    const char *found;
    int version;
    RKV_TRY(rkv_json_string(&found, root, "format", source, e));
    if (strcmp(found, format))
        return rkv_fail(e, RKV_E_FORMAT, "%s: key 'format' is '%.40s', expected '%s'", source,
                        found, format);
    RKV_TRY(rkv_json_int(&version, root, "version", 1, 1 << 20, source, e));
    if (version > RKV_PROFILE_VERSION)
        return rkv_fail(e, RKV_E_UNSUPPORTED,
                        "%s: profile format version %d, this is ripplekv %s, which "
                        "reads up to version %d; use a newer ripplekv",
                        source, version, rkv_version(), RKV_PROFILE_VERSION);
    return RKV_OK;
}

static rkv_status parse_model(rkv_profile *p, const cJSON *root, const char *source, rkv_error *e)
{
    const cJSON *model;
    int n_layer;
    RKV_TRY(rkv_json_get(&model, root, "model", source, e));
    RKV_TRY(copy_string(&p->model_name, model, "name", source, e));
    RKV_TRY(copy_string(&p->arch, model, "arch", source, e));
    RKV_TRY(copy_string(&p->quantization, model, "quantization", source, e));
    RKV_TRY(copy_string(&p->fingerprint, model, "fingerprint", source, e));
    RKV_TRY(rkv_json_int(&n_layer, model, "n_layer", 1, MAX_LAYER, source, e));
    if (rkv_json_has(model, "n_kv_head"))       /* not in the first files of version 1 */
        RKV_TRY(rkv_json_int(&p->n_kv_head, model, "n_kv_head", 1, MAX_HEAD, source, e));
    return rkv_profile_alloc_layers(p, n_layer, source, e);
}

static rkv_status parse_response(rkv_profile *p, const cJSON *s, const char *source, rkv_error *e)
{
    const char *response;
    RKV_TRY(rkv_json_string(&response, s, "response", source, e));
    p->from_answers = !strcmp(response, "answers");
    if (p->from_answers || !strcmp(response, "greedy"))
        return RKV_OK;
    return rkv_fail(e, RKV_E_FORMAT, "%s: key 'response' is '%.40s', expected greedy or answers",
                    source, response);
}

/* What the first files of version 1 do not tell. */
static rkv_status parse_origin(rkv_profile *p, const cJSON *s, const char *source, rkv_error *e)
{
    const char *hash;
    if (rkv_json_has(s, "context"))
        RKV_TRY(rkv_json_int(&p->n_ctx, s, "context", 0, INT32_MAX, source, e));
    if (!rkv_json_has(s, "data_hash"))
        return RKV_OK;
    RKV_TRY(rkv_json_string(&hash, s, "data_hash", source, e));
    p->data_hash = strtoull(hash, NULL, 16);
    if (strlen(hash) == 16 && strspn(hash, "0123456789abcdef") == 16)
        return RKV_OK;
    return rkv_fail(e, RKV_E_FORMAT, "%s: key 'data_hash' is '%.40s', expected 16 hexadecimal "
                    "digits", source, hash);
}

/* Ascending shares between 0 and 1. */
static rkv_status parse_grid(double *grid, int *n, const cJSON *s, const char *key,
                             const char *source, rkv_error *e)
{
    const cJSON *array;
    if (!rkv_json_has(s, key))
        return RKV_OK;
    RKV_TRY(rkv_json_array(&array, s, key, source, e));
    for (const cJSON *v = array->child; v && *n < RKV_MAX_GRID; v = v->next)
        grid[(*n)++] = cJSON_IsNumber(v) ? v->valuedouble : (double)NAN;
    const int size = cJSON_GetArraySize(array), i = rkv_profile_bad_share(grid, *n);
    if (i < 0 && size == *n)
        return RKV_OK;
    if (i < 0)
        return rkv_fail(e, RKV_E_FORMAT, "%s: key '%s' has %d numbers, expected at most %d", source,
                        key, size, RKV_MAX_GRID);
    return rkv_fail(e, RKV_E_FORMAT, "%s: key '%s', number %d is %g, expected ascending ones "
                    "between 0 and 1", source, key, i + 1, grid[i]);
}

static rkv_status parse_rope(rkv_profile *p, const cJSON *s, const char *source, rkv_error *e)
{
    const cJSON *rope;
    if (!rkv_json_has(s, "rope"))
        return RKV_OK;
    RKV_TRY(rkv_json_get(&rope, s, "rope", source, e));
    RKV_TRY(rkv_json_number(&p->rope_base, rope, "base", 0.0, 1e15, source, e));
    RKV_TRY(rkv_json_number(&p->rope_factor, rope, "factor", 0.0, 1e9, source, e));
    return copy_string(&p->rope_scaling, rope, "scaling", source, e);
}

/* What was measured beside the sensitivity; not in the first files of version 1 either. */
static rkv_status parse_measured(rkv_profile *p, const cJSON *s, const char *source, rkv_error *e)
{
    const char *list;
    p->signals = RKV_SIGNAL_VALUES;
    if (rkv_json_has(s, "arithmetic"))
        RKV_TRY(copy_string(&p->arithmetic, s, "arithmetic", source, e));
    RKV_TRY(parse_rope(p, s, source, e));
    if (!rkv_json_has(s, "signals"))
        return RKV_OK;
    RKV_TRY(rkv_json_string(&list, s, "signals", source, e));
    rkv_error why;
    if (rkv_signals_parse(&p->signals, list, &why))
        return rkv_fail(e, RKV_E_FORMAT, "%s: %s", source, why.text);
    RKV_TRY(copy_string(&p->selector, s, "selector", source, e));
    RKV_TRY(rkv_json_number(&p->damage_budget, s, "damage_budget", 0.0, 1.0, source, e));
    RKV_TRY(parse_grid(p->grid, &p->n_grid, s, "grid", source, e));
    return parse_grid(p->head_grid, &p->n_head_grid, s, "head_grid", source, e);
}

static rkv_status parse_settings(rkv_profile *p, const cJSON *root, const char *source,
                                 rkv_error *e)
{
    const cJSON *s;
    RKV_TRY(rkv_json_get(&s, root, "settings", source, e));
    RKV_TRY(rkv_json_number(&p->noise, s, "noise", 0.0, 1e3, source, e));
    RKV_TRY(rkv_json_int(&p->n_seed, s, "noise_seeds", 1, 1 << 20, source, e));
    RKV_TRY(rkv_json_int(&p->n_response, s, "response_tokens", 1, 1 << 20, source, e));
    RKV_TRY(parse_response(p, s, source, e));
    RKV_TRY(parse_origin(p, s, source, e));
    RKV_TRY(copy_string(&p->tier, s, "tier", source, e));
    return parse_measured(p, s, source, e);
}

rkv_status rkv_profile_parse_head(rkv_profile *p, const cJSON *root, const char *format,
                                  const char *source, rkv_error *e)
{
    RKV_TRY(check_format(root, format, source, e));
    RKV_TRY(parse_model(p, root, source, e));
    return parse_settings(p, root, source, e);
}

/* ---- writing ---- */

static void put_string(rkv_text *t, const char *key, const char *value)
{
    rkv_text_printf(t, "\"%s\": ", key);
    rkv_text_json(t, value, strlen(value));
}

static void put_number(rkv_text *t, const char *key, double value)
{
    rkv_text_printf(t, "\"%s\": ", key);
    rkv_text_number(t, value);
}

static void put_next_string(rkv_text *t, const char *key, const char *value)
{
    rkv_text_printf(t, ", ");
    put_string(t, key, value);
}

static void put_next_number(rkv_text *t, const char *key, double value)
{
    rkv_text_printf(t, ", ");
    put_number(t, key, value);
}

static void print_model(rkv_text *t, const rkv_profile *p)
{
    rkv_text_printf(t, "  \"model\": {");
    put_string(t, "name", p->model_name);
    put_next_string(t, "arch", p->arch);
    put_next_string(t, "quantization", p->quantization);
    put_next_string(t, "fingerprint", p->fingerprint);
    rkv_text_printf(t, ", \"n_layer\": %d", p->n_layer);
    if (p->n_kv_head)
        rkv_text_printf(t, ", \"n_kv_head\": %d", p->n_kv_head);
    rkv_text_printf(t, "},\n");
}

static void print_measured(rkv_text *t, const rkv_profile *p)
{
    char signals[128];
    if (p->arithmetic)
        put_next_string(t, "arithmetic", p->arithmetic);
    if (p->rope_scaling) {
        rkv_text_printf(t, ", \"rope\": {");
        put_number(t, "base", p->rope_base);
        put_next_string(t, "scaling", p->rope_scaling);
        put_next_number(t, "factor", p->rope_factor);
        rkv_text_printf(t, "}");
    }
    if (!p->selector)
        return;
    rkv_signals_print(signals, p->signals);
    put_next_string(t, "signals", signals);
    put_next_string(t, "selector", p->selector);
    put_next_number(t, "damage_budget", p->damage_budget);
    rkv_profile_print_numbers(t, "grid", p->grid, 1, (size_t)p->n_grid);
    rkv_profile_print_numbers(t, "head_grid", p->head_grid, 1, (size_t)p->n_head_grid);
}

void rkv_profile_print_head(rkv_text *t, const rkv_profile *p, const char *format)
{
    rkv_text_printf(t, "  \"format\": \"%s\",\n  \"version\": %d,\n", format,
                    RKV_PROFILE_VERSION);
    print_model(t, p);
    rkv_text_printf(t, "  \"settings\": {");
    put_string(t, "response", p->from_answers ? "answers" : "greedy");
    put_next_number(t, "noise", p->noise);
    rkv_text_printf(t,
                    ", \"noise_seeds\": %d, \"response_tokens\": %d, \"context\": %d, "
                    "\"data_hash\": \"%016llx\"",
                    p->n_seed, p->n_response, p->n_ctx, (unsigned long long)p->data_hash);
    put_next_string(t, "perturbed", "values of all prompt tokens of one layer");
    put_next_string(t, "signal", "KL(full || perturbed), nats, mean over fed answer tokens");
    put_next_string(t, "tier", p->tier);
    print_measured(t, p);
    rkv_text_printf(t, "}");
}
