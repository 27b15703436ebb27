/* Keys of a file that would change the arithmetic, and that this version does not follow. With the
 * value under which they change nothing they stand in real files; with any other the model would
 * run, and give wrong numbers. Names: llama-arch.cpp of llama.cpp. */
#include "config.h"
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum kind { INT, REAL, BOOL };

typedef struct plain_key {
    const char *suffix;
    enum kind kind;
    double neutral, also;       /* values that change nothing */
    const char *but;            /* the family that follows the key; NULL: none */
} plain_key;

static const plain_key plain[] = {
    {"attention.causal", BOOL, 1, 1, NULL},
    {"attention.clamp_kqv", REAL, 0, 0, NULL},
    {"attention.max_alibi_bias", REAL, 0, 0, NULL},
    {"attention.output_scale", REAL, 1, 0, NULL},
    {"attention.value_scale", REAL, 1, 0, NULL},
    {"attention.shared_kv_layers", INT, 0, 0, NULL},
    {"attn_logit_softcapping", REAL, 0, 0, NULL},
    {"final_logit_softcapping", REAL, 0, 0, "gemma3"},
    {"logit_scale", REAL, 1, 0, NULL},
    {"residual_scale", REAL, 1, 0, NULL},
    {"use_parallel_residual", BOOL, 0, 0, NULL},
    {"expert_count", INT, 0, 0, NULL},
    {"expert_used_count", INT, 0, 0, NULL},
    {"nextn_predict_layers", INT, 0, 0, NULL},
    {"rope.scaling.alpha", REAL, 0, 0, NULL},
    {"rope.scaling.yarn_log_multiplier", REAL, 0, 0, NULL},
    {"rope.scaling.yarn_ext_factor", REAL, 1, -1, NULL},        /* -1: by the kind of scaling */
    {"rope.scaling.yarn_attn_factor", REAL, 1, 1, NULL},
};

static rkv_status read_value(const rkv_model *m, const char *key, enum kind kind, double *v,
                             rkv_error *e)
{
    int64_t whole = 0;
    int flag = 0;
    if (kind == REAL)
        return rkv_gguf_float(m->file, key, -INFINITY, INFINITY, v, e);
    if (kind == INT)
        RKV_TRY(rkv_gguf_int(m->file, key, INT64_MIN, INT64_MAX, &whole, e));
    else
        RKV_TRY(rkv_gguf_bool(m->file, key, &flag, e));
    *v = kind == INT ? (double)whole : flag;
    return RKV_OK;
}

/* A scale of 0 means that the family's own holds. */
static int is_neutral(double v, double neutral, double also)
{
    return v == also || fabs(v - neutral) <= 1e-6 * fabs(neutral);
}

static rkv_status check_key(const rkv_model *m, const plain_key *k, rkv_error *e)
{
    char key[128];
    double v;
    snprintf(key, sizeof key, "%s.%s", m->arch->name, k->suffix);
    if (!rkv_gguf_has(m->file, key) || (k->but && !strcmp(m->arch->name, k->but)))
        return RKV_OK;
    RKV_TRY(read_value(m, key, k->kind, &v, e));
    if (is_neutral(v, k->neutral, k->also))
        return RKV_OK;
    return rkv_fail(e, RKV_E_UNSUPPORTED,
                    "%s: key '%s' is %.9g; this version supports %s models with %.9g only",
                    rkv_gguf_path(m->file), key, v, m->arch->name, k->neutral);
}

/* Families without sliding layers of their own: attention to everything is the same as long as
 * nothing lies outside the window, so the context ends there. */
static rkv_status limit_context(rkv_model *m, rkv_error *e)
{
    rkv_config *c = &m->config;
    char key[128];
    int64_t window;
    snprintf(key, sizeof key, "%s.attention.sliding_window", m->arch->name);
    if (c->sliding_window || !strcmp(m->arch->name, "gemma3") || !rkv_gguf_has(m->file, key))
        return RKV_OK;
    RKV_TRY(rkv_gguf_int(m->file, key, 0, UINT32_MAX, &window, e));
    if (!window || window >= c->n_ctx_train)
        return RKV_OK;
    c->n_ctx_most = c->n_ctx_train = (int)window;
    rkv_log(RKV_LOG_WARN, "%s: key '%s' is %d, which this version follows for %s models by "
            "limiting the context to it", rkv_gguf_path(m->file), key, (int)window, m->arch->name);
    return RKV_OK;
}

rkv_status rkv_model_check_keys(rkv_model *m, rkv_error *e)
{
    const rkv_config *c = &m->config;
    const double d_head = c->d_head;
    const plain_key own[] = {   /* what the model has anyway */
        {"attention.scale", REAL, (double)c->attn_scale, 0, NULL},
        {"embedding_scale", REAL, (double)c->embed_scale, 0, NULL},
        {"attention.key_length_swa", INT, d_head, d_head, NULL},
        {"attention.value_length_swa", INT, d_head, d_head, NULL},
    };
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        RKV_TRY(check_key(m, &plain[i], e));
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        RKV_TRY(check_key(m, &own[i], e));
    return limit_context(m, e);
}
