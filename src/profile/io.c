/* Profiles as JSON: whole and valid, or refused. */
#include "config.h"
#include "profile/profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"

enum { MAX_BYTES = 64 << 20 };

static const char format[] = "ripplekv-profile";

static rkv_status no_memory(const char *source, rkv_error *e)
{
    return rkv_fail(e, RKV_E_MEM, "%s: out of memory", source);
}

void rkv_profile_clear(rkv_layer_signal *s, int n_layer)
{
    for (int l = 0; l < n_layer; l++)
        s[l] = (rkv_layer_signal){0, NAN, NAN, NAN};
}

rkv_status rkv_profile_alloc_layers(rkv_profile *p, int n_layer, const char *source, rkv_error *e)
{
    const size_t n = (size_t)n_layer;
    p->n_layer = n_layer;
    p->sensitivity = rkv_mem_calloc(n, sizeof *p->sensitivity);
    p->certainty = rkv_mem_calloc(n, sizeof *p->certainty);
    if (!p->sensitivity || !p->certainty)
        return no_memory(source, e);
    rkv_profile_clear(p->sensitivity, n_layer);
    for (int l = 0; l < n_layer; l++)
        p->certainty[l] = (rkv_layer_certainty){NAN, NAN, NAN, NAN, NAN, NAN};
    return RKV_OK;
}

/* NULL stays NULL: not known. */
static int copy(char **out, const char *s)
{
    *out = s ? rkv_mem_strdup(s) : NULL;
    return !s || *out;
}

rkv_status rkv_profile_create(rkv_profile **out, const rkv_model_info *info, rkv_error *e)
{
    rkv_profile *p = rkv_mem_calloc(1, sizeof *p);
    if (!p)
        return no_memory(info->path, e);
    const int copied = copy(&p->model_name, info->name) & copy(&p->arch, info->arch) &
                       copy(&p->quantization, info->quantization) &
                       copy(&p->fingerprint, info->fingerprint) & copy(&p->tier, info->tier) &
                       copy(&p->arithmetic, info->arithmetic) &
                       copy(&p->rope_scaling, info->rope_scaling);
    p->rope_base = info->rope_base;
    p->rope_factor = info->rope_factor;
    p->n_kv_head = info->n_kv_head;
    rkv_status s = rkv_profile_alloc_layers(p, info->n_layer, info->path, e);
    if (!s && !copied)
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
    rkv_mem_free(p->arithmetic);
    rkv_mem_free(p->rope_scaling);
    rkv_mem_free(p->selector);
    rkv_mem_free(p->sensitivity);
    rkv_mem_free(p->certainty);
    for (int i = 0; i < RKV_EXTRA_COUNT; i++)
        rkv_mem_free(p->extra[i]);
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

double rkv_profile_local(const rkv_profile *p, int l)
{
    const rkv_layer_signal *local = p->extra[RKV_EXTRA_LOCAL];
    return local && l >= 0 && l < p->n_layer ? local[l].mean : (double)NAN;
}

static int other_rope(const rkv_profile *p, const rkv_model_info *i)
{
    return p->rope_scaling && (strcmp(p->rope_scaling, i->rope_scaling) ||
                               p->rope_base != i->rope_base || p->rope_factor != i->rope_factor);
}

rkv_status rkv_profile_check(const rkv_profile *p, const rkv_model *m, rkv_error *e)
{
    const rkv_model_info *i = rkv_model_get_info(m);
    if (strcmp(p->fingerprint, i->fingerprint) || p->n_layer != i->n_layer)
        return rkv_fail(
            e, RKV_E_MISMATCH,
            "the profile is of model '%.80s' (%s, %d layers, fingerprint %.16s), "
            "the model is '%.80s' (%s, %d layers, fingerprint %s); make one for it with rkv "
            "profile",
            p->model_name, p->quantization, p->n_layer, p->fingerprint, i->name, i->quantization,
            i->n_layer, i->fingerprint);
    if (other_rope(p, i))
        return rkv_fail(e, RKV_E_MISMATCH,
                        "the profile was made with RoPE base %g, scaling %.20s by %g, the model "
                        "now has base %g, scaling %s by %g; make a profile for these settings",
                        p->rope_base, p->rope_scaling, p->rope_factor, i->rope_base,
                        i->rope_scaling, i->rope_factor);
    if (p->arithmetic && strcmp(p->arithmetic, i->arithmetic))
        rkv_log(RKV_LOG_WARN,
                "the profile was made with products in %.20s, here they are in %s: "
                "rkv profile --check tells whether it holds",
                p->arithmetic, i->arithmetic);
    return RKV_OK;
}

/* ---- reading and writing ---- */

int rkv_profile_bad_share(const double *grid, int n)
{
    for (int i = 0; i < n; i++)
        if (!(grid[i] > (i ? grid[i - 1] : 0.0) && grid[i] < 1.0))
            return i;
    return -1;
}

void rkv_profile_print_numbers(rkv_text *t, const char *key, const double *x, size_t stride,
                               size_t n)
{
    rkv_text_printf(t, ", \"%s\": [", key);
    for (size_t i = 0; i < n; i++) {
        rkv_text_printf(t, i ? ", " : "");
        rkv_text_number(t, x[i * stride]);
    }
    rkv_text_printf(t, "]");
}

static rkv_status parse_examples(rkv_profile *p, const cJSON *root, const char *source,
                                 rkv_error *e)
{
    const cJSON *x;
    double position;
    RKV_TRY(rkv_json_get(&x, root, "examples", source, e));
    RKV_TRY(rkv_json_int(&p->n_example, x, "used", 1, INT32_MAX, source, e));
    RKV_TRY(rkv_json_int(&p->n_skipped_short, x, "skipped_short_answer", 0, INT32_MAX, source, e));
    RKV_TRY(rkv_json_int(&p->n_skipped_long, x, "skipped_long_prompt", 0, INT32_MAX, source, e));
    RKV_TRY(rkv_json_number(&position, x, "positions", 1.0, 1e15, source, e));
    p->n_position = (int64_t)position;
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
        s = rkv_profile_parse_head(p, root, format, source, e);
    if (!s)
        s = parse_examples(p, root, source, e);
    if (!s)
        s = rkv_profile_parse_signals(p, root, source, e);
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

rkv_status rkv_profile_print(const rkv_profile *p, char **text, size_t *n, rkv_error *e)
{
    rkv_text t = {0};
    rkv_text_printf(&t, "{\n");
    rkv_profile_print_head(&t, p, format);
    rkv_text_printf(&t, ",\n  \"examples\": {\"used\": %d, \"skipped_short_answer\": %d, "
                    "\"skipped_long_prompt\": %d, \"positions\": %lld}", p->n_example,
                    p->n_skipped_short, p->n_skipped_long, (long long)p->n_position);
    rkv_profile_print_signals(&t, p);
    rkv_profile_print_curves(&t, p);
    rkv_text_printf(&t, "\n}\n");
    return rkv_text_take(&t, text, n) ? RKV_OK : no_memory("profile", e);
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
