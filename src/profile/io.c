/* Profiles as JSON: whole and valid, or refused. */
#include "config.h"
#include "profile/profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"

enum { MAX_LAYER = 1024, MAX_HEAD = 1024, MAX_BYTES = 64 << 20 };

static rkv_status no_memory(const char *source, rkv_error *e)
{
    return rkv_fail(e, RKV_E_MEM, "%s: out of memory", source);
}

static rkv_status alloc_layers(rkv_profile *p, int n_layer, const char *source, rkv_error *e)
{
    p->n_layer = n_layer;
    p->sensitivity = rkv_mem_calloc((size_t)n_layer, sizeof *p->sensitivity);
    if (!p->sensitivity)
        return no_memory(source, e);
    for (int l = 0; l < n_layer; l++)
        p->sensitivity[l] = (rkv_layer_signal){0, NAN, NAN, NAN};
    return RKV_OK;
}

rkv_status rkv_profile_create(rkv_profile **out, const rkv_model_info *info, rkv_error *e)
{
    rkv_profile *p = rkv_mem_calloc(1, sizeof *p);
    if (!p)
        return no_memory(info->path, e);
    p->model_name = rkv_mem_strdup(info->name);
    p->arch = rkv_mem_strdup(info->arch);
    p->quantization = rkv_mem_strdup(info->quantization);
    p->fingerprint = rkv_mem_strdup(info->fingerprint);
    p->tier = rkv_mem_strdup(info->tier);
    p->n_kv_head = info->n_kv_head;
    rkv_status s = alloc_layers(p, info->n_layer, info->path, e);
    if (!p->model_name || !p->arch || !p->quantization || !p->fingerprint || !p->tier)
        s = no_memory(info->path, e);
    if (s) {
        rkv_profile_free(p);
        return s;
    }
    *out = p;
    return RKV_OK;
}

void rkv_profile_free(rkv_profile *p)
{
    if (!p)
        return;
    rkv_mem_free(p->model_name);
    rkv_mem_free(p->arch);
    rkv_mem_free(p->quantization);
    rkv_mem_free(p->fingerprint);
    rkv_mem_free(p->tier);
    rkv_mem_free(p->sensitivity);
    rkv_profile_free_curves(p);
    rkv_mem_free(p);
}

int rkv_profile_n_layer(const rkv_profile *p)
{
    return p->n_layer;
}

int rkv_profile_n_kv_head(const rkv_profile *p)
{
    return p->n_kv_head;
}

double rkv_profile_sensitivity(const rkv_profile *p, int l)
{
    return l >= 0 && l < p->n_layer ? p->sensitivity[l].mean : (double)NAN;
}

rkv_status rkv_profile_check(const rkv_profile *p, const rkv_model *m, rkv_error *e)
{
    const rkv_model_info *i = rkv_model_get_info(m);
    if (!strcmp(p->fingerprint, i->fingerprint) && p->n_layer == i->n_layer)
        return RKV_OK;
    return rkv_fail(
        e, RKV_E_MISMATCH,
        "the profile is of model '%.80s' (%s, %d layers, fingerprint %.16s), "
        "the model is '%.80s' (%s, %d layers, fingerprint %s); make one for it with rkv profile",
        p->model_name, p->quantization, p->n_layer, p->fingerprint, i->name, i->quantization,
        i->n_layer, i->fingerprint);
}

/* ---- reading ---- */

static rkv_status copy_string(char **out, const cJSON *object, const char *key, const char *source,
                              rkv_error *e)
{
    const char *s;
    RKV_TRY(rkv_json_string(&s, object, key, source, e));
    *out = rkv_mem_strdup(s);
    return *out ? RKV_OK : no_memory(source, e);
}

static rkv_status check_format(const cJSON *root, const char *source, rkv_error *e)
{
    const char *format;
    int version;
    RKV_TRY(rkv_json_string(&format, root, "format", source, e));
    if (strcmp(format, "ripplekv-profile"))
        return rkv_fail(e, RKV_E_FORMAT, "%s: key 'format' is '%.40s', expected 'ripplekv-profile'",
                        source, format);
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
    return alloc_layers(p, n_layer, source, e);
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

static rkv_status parse_settings(rkv_profile *p, const cJSON *root, const char *source,
                                 rkv_error *e)
{
    const cJSON *s, *x;
    double position;
    RKV_TRY(rkv_json_get(&s, root, "settings", source, e));
    RKV_TRY(rkv_json_number(&p->noise, s, "noise", 0.0, 1e3, source, e));
    RKV_TRY(rkv_json_int(&p->n_seed, s, "noise_seeds", 1, 1 << 20, source, e));
    RKV_TRY(rkv_json_int(&p->n_response, s, "response_tokens", 1, 1 << 20, source, e));
    RKV_TRY(parse_response(p, s, source, e));
    RKV_TRY(parse_origin(p, s, source, e));
    RKV_TRY(copy_string(&p->tier, s, "tier", source, e));
    RKV_TRY(rkv_json_get(&x, root, "examples", source, e));
    RKV_TRY(rkv_json_int(&p->n_example, x, "used", 1, INT32_MAX, source, e));
    RKV_TRY(rkv_json_int(&p->n_skipped_short, x, "skipped_short_answer", 0, INT32_MAX, source, e));
    RKV_TRY(rkv_json_int(&p->n_skipped_long, x, "skipped_long_prompt", 0, INT32_MAX, source, e));
    RKV_TRY(rkv_json_number(&position, x, "positions", 1.0, 1e15, source, e));
    p->n_position = (int64_t)position;
    return RKV_OK;
}

/* A standard error; null (NaN) where one example or one seed cannot tell. */
static rkv_status parse_error(double *out, const cJSON *x, const char *key, const char *source,
                              rkv_error *e)
{
    const cJSON *v;
    RKV_TRY(rkv_json_get(&v, x, key, source, e));
    *out = NAN;
    return cJSON_IsNull(v) ? RKV_OK : rkv_json_number(out, x, key, 0.0, 1e9, source, e);
}

static rkv_status parse_sensitivity(rkv_profile *p, const cJSON *root, const char *source,
                                    rkv_error *e)
{
    const cJSON *array;
    RKV_TRY(rkv_json_array(&array, root, "sensitivity", source, e));
    if (!array->child)
        return rkv_fail(e, RKV_E_FORMAT, "%s: key 'sensitivity' is empty", source);
    for (const cJSON *x = array->child; x; x = x->next) {
        int l;
        RKV_TRY(rkv_json_int(&l, x, "layer", 0, p->n_layer - 1, source, e));
        rkv_layer_signal *s = &p->sensitivity[l];
        if (s->in_budget)
            return rkv_fail(e, RKV_E_FORMAT, "%s: layer %d has two sensitivities", source, l);
        s->in_budget = 1;
        RKV_TRY(rkv_json_number(&s->mean, x, "mean", 0.0, 1e9, source, e));
        RKV_TRY(parse_error(&s->se_examples, x, "se_examples", source, e));
        RKV_TRY(parse_error(&s->se_seeds, x, "se_seeds", source, e));
    }
    return RKV_OK;
}

rkv_status rkv_profile_parse(rkv_profile **out, const char *text, size_t n, const char *source,
                             rkv_error *e)
{
    cJSON *root;
    RKV_TRY(rkv_json_parse(&root, text, n, source, e));
    rkv_profile *p = rkv_mem_calloc(1, sizeof *p);
    rkv_status s = p ? RKV_OK : no_memory(source, e);
    if (!s)
        s = check_format(root, source, e);
    if (!s)
        s = parse_model(p, root, source, e);
    if (!s)
        s = parse_settings(p, root, source, e);
    if (!s)
        s = parse_sensitivity(p, root, source, e);
    if (!s)
        s = rkv_profile_parse_curves(p, root, source, e);
    cJSON_Delete(root);
    if (s) {
        rkv_profile_free(p);
        return s;
    }
    *out = p;
    return RKV_OK;
}

rkv_status rkv_profile_load(rkv_profile **out, const char *path, rkv_error *e)
{
    char *text;
    size_t n;
    RKV_TRY(rkv_json_read_file(&text, &n, path, MAX_BYTES, e));
    const rkv_status s = rkv_profile_parse(out, text, n, path, e);
    rkv_mem_free(text);
    return s;
}

/* ---- writing ---- */

static void put_string(rkv_text *t, const char *key, const char *value)
{
    rkv_text_printf(t, "\"%s\": ", key);
    rkv_text_json(t, value, strlen(value));
}

static void put_number(rkv_text *t, const char *key, double value)
{
    rkv_text_printf(t, ", \"%s\": ", key);
    rkv_text_number(t, value);
}

static void print_sensitivity(rkv_text *t, const rkv_profile *p)
{
    const char *separator = "\n";
    rkv_text_printf(t, "  \"sensitivity\": [");
    for (int l = 0; l < p->n_layer; l++) {
        const rkv_layer_signal *s = &p->sensitivity[l];
        if (!s->in_budget)
            continue;
        rkv_text_printf(t, "%s    {\"layer\": %d", separator, l);
        put_number(t, "mean", s->mean);
        put_number(t, "se_examples", s->se_examples);
        put_number(t, "se_seeds", s->se_seeds);
        rkv_text_printf(t, "}");
        separator = ",\n";
    }
    rkv_text_printf(t, "\n  ]");
}

rkv_status rkv_profile_print(const rkv_profile *p, char **text, size_t *n, rkv_error *e)
{
    rkv_text t = {0};
    rkv_text_printf(&t,
                    "{\n  \"format\": \"ripplekv-profile\",\n  \"version\": %d,\n  \"model\": {",
                    RKV_PROFILE_VERSION);
    put_string(&t, "name", p->model_name);
    rkv_text_printf(&t, ", ");
    put_string(&t, "arch", p->arch);
    rkv_text_printf(&t, ", ");
    put_string(&t, "quantization", p->quantization);
    rkv_text_printf(&t, ", ");
    put_string(&t, "fingerprint", p->fingerprint);
    rkv_text_printf(&t, ", \"n_layer\": %d", p->n_layer);
    if (p->n_kv_head)
        rkv_text_printf(&t, ", \"n_kv_head\": %d", p->n_kv_head);
    rkv_text_printf(&t, "},\n  \"settings\": {");
    put_string(&t, "response", p->from_answers ? "answers" : "greedy");
    put_number(&t, "noise", p->noise);
    rkv_text_printf(&t,
                    ", \"noise_seeds\": %d, \"response_tokens\": %d, \"context\": %d, "
                    "\"data_hash\": \"%016llx\", ",
                    p->n_seed, p->n_response, p->n_ctx, (unsigned long long)p->data_hash);
    put_string(&t, "perturbed", "values of all prompt tokens of one layer");
    rkv_text_printf(&t, ", ");
    put_string(&t, "signal", "KL(full || perturbed), nats, mean over fed answer tokens");
    rkv_text_printf(&t, ", ");
    put_string(&t, "tier", p->tier);
    rkv_text_printf(&t, "},\n  \"examples\": {\"used\": %d, \"skipped_short_answer\": %d, "
                    "\"skipped_long_prompt\": %d, \"positions\": %lld},\n", p->n_example,
                    p->n_skipped_short, p->n_skipped_long, (long long)p->n_position);
    print_sensitivity(&t, p);
    rkv_profile_print_curves(&t, p);
    rkv_text_printf(&t, "\n}\n");
    if (t.bad) {
        rkv_text_free(&t);
        return no_memory("profile", e);
    }
    *text = t.data;
    *n = t.n;
    return RKV_OK;
}

rkv_status rkv_profile_save(const rkv_profile *p, const char *path, rkv_error *e)
{
    char *text;
    size_t n;
    RKV_TRY(rkv_profile_print(p, &text, &n, e));
    const rkv_status s = rkv_file_replace(path, text, n, e);
    rkv_mem_free(text);
    return s;
}
