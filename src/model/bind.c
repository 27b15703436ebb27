/* From the keys and tensors of a file to a model: every number is checked before it is used. */
#include "config.h"
#include "model/model.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

static rkv_status read_int(const rkv_model *m, const char *suffix, int64_t min, int64_t max,
                           int *out, rkv_error *e)
{
    char key[128];
    int64_t v;
    snprintf(key, sizeof key, "%s.%s", m->arch->name, suffix);
    RKV_TRY(rkv_gguf_int(m->file, key, min, max, &v, e));
    *out = (int)v;
    return RKV_OK;
}

static int has(const rkv_model *m, const char *suffix)
{
    char key[128];
    snprintf(key, sizeof key, "%s.%s", m->arch->name, suffix);
    return rkv_gguf_has(m->file, key);
}

/* The KV heads of every layer: one number, or one per layer that must agree. */
static rkv_status read_kv_heads(rkv_model *m, rkv_error *e)
{
    rkv_config *c = &m->config;
    char key[128];
    snprintf(key, sizeof key, "%s.attention.head_count_kv", m->arch->name);
    const size_t n = rkv_gguf_array_count(m->file, key);
    if (!n) {
        c->n_kv_head = c->n_head;
        return rkv_gguf_has(m->file, key)
                   ? read_int(m, "attention.head_count_kv", 1, c->n_head, &c->n_kv_head, e)
                   : RKV_OK;
    }
    int64_t count[RKV_MAX_LAYER];
    RKV_TRY(rkv_gguf_ints(m->file, key, count, (size_t)c->n_layer, e));
    for (int l = 0; l < c->n_layer; l++)
        if (count[l] != count[0] || count[l] < 1 || count[l] > c->n_head)
            return rkv_fail(e, RKV_E_UNSUPPORTED,
                            "%s: key '%s': layer %d has %lld KV heads, layer 0 has "
                            "%lld; only models with one count run",
                            rkv_gguf_path(m->file), key, l, (long long)count[l],
                            (long long)count[0]);
    c->n_kv_head = (int)count[0];
    return RKV_OK;
}

static rkv_status read_heads(rkv_model *m, rkv_error *e)
{
    rkv_config *c = &m->config;
    RKV_TRY(read_int(m, "attention.head_count", 1, RKV_MAX_HEAD, &c->n_head, e));
    RKV_TRY(read_kv_heads(m, e));
    if (c->n_head % c->n_kv_head)
        return rkv_fail(e, RKV_E_FORMAT, "%s: %d heads cannot be divided over %d KV heads",
                        rkv_gguf_path(m->file), c->n_head, c->n_kv_head);
    c->d_head = c->d_model / c->n_head;
    if (has(m, "attention.key_length"))
        RKV_TRY(read_int(m, "attention.key_length", 2, RKV_MAX_D_HEAD, &c->d_head, e));
    int d_value = c->d_head;
    if (has(m, "attention.value_length"))
        RKV_TRY(read_int(m, "attention.value_length", 2, RKV_MAX_D_HEAD, &d_value, e));
    if (d_value != c->d_head)
        return rkv_fail(e, RKV_E_UNSUPPORTED,
                        "%s: keys have %d numbers per head, values %d; only equal "
                        "widths run",
                        rkv_gguf_path(m->file), c->d_head, d_value);
    if (c->d_head < 2 || c->d_head > RKV_MAX_D_HEAD || c->d_head % 2)
        return rkv_fail(e, RKV_E_FORMAT,
                        "%s: %d numbers per head, expected an even number up to %d",
                        rkv_gguf_path(m->file), c->d_head, RKV_MAX_D_HEAD);
    return RKV_OK;
}

static rkv_status read_config(rkv_model *m, rkv_error *e)
{
    rkv_config *c = &m->config;
    char key[128];
    double eps;
    RKV_TRY(read_int(m, "block_count", 1, RKV_MAX_LAYER, &c->n_layer, e));
    RKV_TRY(read_int(m, "embedding_length", 1, RKV_MAX_WIDTH, &c->d_model, e));
    RKV_TRY(read_int(m, "feed_forward_length", 1, RKV_MAX_WIDTH, &c->d_ff, e));
    RKV_TRY(read_int(m, "context_length", 1, RKV_MAX_CTX, &c->n_ctx_train, e));
    RKV_TRY(read_heads(m, e));
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", m->arch->name);
    RKV_TRY(rkv_gguf_float(m->file, key, 0.0, 1.0, &eps, e));
    c->norm_eps = (float)eps;
    c->attn_scale = (float)(1.0 / sqrt(c->d_head));
    c->embed_scale = 1.0f;
    c->rope_neox = m->arch->rope_neox;
    c->n_ctx_most = RKV_MAX_CTX;
    m->layer = rkv_mem_calloc((size_t)c->n_layer, sizeof *m->layer);
    if (!m->layer)
        return rkv_fail(e, RKV_E_MEM, "%s: out of memory", rkv_gguf_path(m->file));
    if (m->arch->configure)
        RKV_TRY(m->arch->configure(m, e));
    RKV_TRY(rkv_model_bind_rope(m, e)); /* before the context may be limited: scaling looks at it */
    return rkv_model_check_keys(m, e);
}

static rkv_status missing(const rkv_model *m, const char *name, rkv_error *e)
{
    return rkv_fail(e, RKV_E_FORMAT, "%s: tensor '%s' is missing", rkv_gguf_path(m->file), name);
}

/* Type and alignment of a tensor that will be used. */
static rkv_status check_usable(const rkv_model *m, const rkv_tensor *t, rkv_error *e)
{
    if (t->type == RKV_DT_COUNT) {
        unsigned id = 0;
        for (int i = 0; i < rkv_gguf_n_tensor(m->file); i++)
            if (rkv_gguf_tensor_at(m->file, i) == t)
                id = rkv_gguf_tensor_type_id(m->file, i);
        return rkv_fail(e, RKV_E_UNSUPPORTED,
                        "%s: tensor '%s' has type id %u, which this version cannot "
                        "read",
                        rkv_gguf_path(m->file), t->name, id);
    }
    if ((uintptr_t)t->data % 4)
        return rkv_fail(e, RKV_E_UNSUPPORTED, "%s: tensor '%s' is not aligned to 4 bytes",
                        rkv_gguf_path(m->file), t->name);
    return RKV_OK;
}

enum { SHAPE_TEXT = 96 };

/* "64 x 64 x 2": all dimensions that the file gives. */
static const char *shape_text(char text[SHAPE_TEXT], const rkv_tensor *t)
{
    int n = snprintf(text, SHAPE_TEXT, "%lld", (long long)t->dim[0]);
    for (int i = 1; i < t->n_dim; i++)
        n += snprintf(text + n, (size_t)(SHAPE_TEXT - n), " x %lld", (long long)t->dim[i]);
    return text;
}

/* Binds a tensor of n_out rows of n_in elements; n_out 0: any count. */
static rkv_status bind_matrix(const rkv_model *m, rkv_matrix *out, const char *name, int64_t n_in,
                              int64_t n_out, rkv_error *e)
{
    const rkv_tensor *t = rkv_gguf_tensor(m->file, name);
    if (!t)
        return missing(m, name, e);
    RKV_TRY(check_usable(m, t, e));
    const int shaped = t->n_dim <= 2 && t->dim[0] == n_in && t->dim[1] <= INT32_MAX;
    if (!shaped || (n_out && t->dim[1] != n_out)) {
        char found[SHAPE_TEXT], expected[32] = "any count up to 2147483647";
        if (n_out)
            snprintf(expected, sizeof expected, "%lld", (long long)n_out);
        return rkv_fail(e, RKV_E_FORMAT, "%s: tensor '%s' has shape %s, expected %lld x %s",
                        rkv_gguf_path(m->file), name, shape_text(found, t), (long long)n_in,
                        expected);
    }
    const rkv_dtype_desc *d = rkv_dtype_get(t->type);
    *out = (rkv_matrix){t->data, (ptrdiff_t)rkv_dtype_bytes(d, (size_t)n_in), t->type,
                        (int)t->dim[1], (int)n_in};
    return RKV_OK;
}

/* An f32 copy of a vector of n elements; NULL when it may be and is absent. */
static rkv_status bind_vector(const rkv_model *m, float **out, const char *name, int64_t n,
                              int required, rkv_error *e)
{
    const rkv_tensor *t = rkv_gguf_tensor(m->file, name);
    if (!t)
        return required ? missing(m, name, e) : RKV_OK;
    RKV_TRY(check_usable(m, t, e));
    if (t->n_dim != 1 || t->dim[0] != n) {
        char found[SHAPE_TEXT];
        return rkv_fail(e, RKV_E_FORMAT, "%s: tensor '%s' has shape %s, expected %lld",
                        rkv_gguf_path(m->file), name, shape_text(found, t), (long long)n);
    }
    *out = rkv_mem_alloc((size_t)n * sizeof **out);
    if (!*out)
        return rkv_fail(e, RKV_E_MEM, "%s: out of memory", rkv_gguf_path(m->file));
    m->backend.ops.unpack[t->type](*out, t->data, n);
    return RKV_OK;
}

/* Names within a layer, as bind_layer fills them. */
static const char *const matrix_name[RKV_W_COUNT] = {
    [RKV_W_Q] = "attn_q.weight",      [RKV_W_K] = "attn_k.weight",
    [RKV_W_V] = "attn_v.weight",      [RKV_W_O] = "attn_output.weight",
    [RKV_W_GATE] = "ffn_gate.weight", [RKV_W_UP] = "ffn_up.weight",
    [RKV_W_DOWN] = "ffn_down.weight",
};
static const char *const vector_name[RKV_V_COUNT] = {
    [RKV_V_ATTN_NORM] = "attn_norm.weight",
    [RKV_V_FFN_NORM] = "ffn_norm.weight",
    [RKV_V_ATTN_POST_NORM] = "post_attention_norm.weight",
    [RKV_V_FFN_POST_NORM] = "post_ffw_norm.weight",
    [RKV_V_Q_NORM] = "attn_q_norm.weight",
    [RKV_V_K_NORM] = "attn_k_norm.weight",
    [RKV_V_Q_BIAS] = "attn_q.bias",
    [RKV_V_K_BIAS] = "attn_k.bias",
    [RKV_V_V_BIAS] = "attn_v.bias",
};

/* Vectors that a family uses: those it requires, and biases where a file has them. */
static int uses_vector(const rkv_model *m, int i)
{
    return (m->arch->vectors >> i & 1) || i == RKV_V_Q_BIAS || i == RKV_V_K_BIAS ||
           i == RKV_V_V_BIAS;
}

static rkv_status bind_layer(rkv_model *m, int l, rkv_error *e)
{
    const rkv_config *c = &m->config;
    const int q = c->n_head * c->d_head, kv = c->n_kv_head * c->d_head;
    const struct {
        int n_in, n_out;
    } matrix[RKV_W_COUNT] = {
        [RKV_W_Q] = {c->d_model, q},        [RKV_W_K] = {c->d_model, kv},
        [RKV_W_V] = {c->d_model, kv},       [RKV_W_O] = {q, c->d_model},
        [RKV_W_GATE] = {c->d_model, c->d_ff}, [RKV_W_UP] = {c->d_model, c->d_ff},
        [RKV_W_DOWN] = {c->d_ff, c->d_model},
    };
    const int vector[RKV_V_COUNT] = {
        [RKV_V_ATTN_NORM] = c->d_model,
        [RKV_V_FFN_NORM] = c->d_model,
        [RKV_V_ATTN_POST_NORM] = c->d_model,
        [RKV_V_FFN_POST_NORM] = c->d_model,
        [RKV_V_Q_NORM] = c->d_head,
        [RKV_V_K_NORM] = c->d_head,
        [RKV_V_Q_BIAS] = q,
        [RKV_V_K_BIAS] = kv,
        [RKV_V_V_BIAS] = kv,
    };
    char name[64];
    for (int i = 0; i < RKV_W_COUNT; i++) {
        snprintf(name, sizeof name, "blk.%d.%s", l, matrix_name[i]);
        RKV_TRY(bind_matrix(m, &m->layer[l].w[i], name, matrix[i].n_in, matrix[i].n_out, e));
    }
    for (int i = 0; i < RKV_V_COUNT; i++) {
        snprintf(name, sizeof name, "blk.%d.%s", l, vector_name[i]);
        if (uses_vector(m, i))
            RKV_TRY(bind_vector(m, &m->layer[l].v[i], name, vector[i],
                                (int)(m->arch->vectors >> i & 1), e));
    }
    return RKV_OK;
}

/* The tensor has a place in the family's arithmetic. */
static int is_used(const rkv_model *m, const char *name)
{
    static const char *const whole[] = {"token_embd.weight", "output.weight", "output_norm.weight",
                                        "rope_freqs.weight"};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if (!strcmp(name, whole[i]))
            return 1;
    int l, at = 0;
    if (sscanf(name, "blk.%d.%n", &l, &at) != 1 || !at || l < 0 || l >= m->config.n_layer)
        return 0;
    for (int i = 0; i < RKV_W_COUNT; i++)
        if (!strcmp(name + at, matrix_name[i]))
            return 1;
    for (int i = 0; i < RKV_V_COUNT; i++)
        if (!strcmp(name + at, vector_name[i]) && uses_vector(m, i))
            return 1;
    /* written by old converters; angles follow from the keys */
    return !strcmp(name + at, "attn_rot_embd.weight");
}

/* A tensor without a place means another model: better refused than run wrongly. */
static rkv_status refuse_strangers(const rkv_model *m, rkv_error *e)
{
    for (int i = 0; i < rkv_gguf_n_tensor(m->file); i++) {
        const rkv_tensor *t = rkv_gguf_tensor_at(m->file, i);
        if (!is_used(m, t->name))
            return rkv_fail(e, RKV_E_UNSUPPORTED,
                            "%s: tensor '%s' belongs to a variant of %s that this "
                            "version cannot run",
                            rkv_gguf_path(m->file), t->name, m->arch->name);
    }
    return RKV_OK;
}

rkv_status rkv_model_bind(rkv_model *m, rkv_error *e)
{
    RKV_TRY(read_config(m, e));
    rkv_config *c = &m->config;
    RKV_TRY(refuse_strangers(m, e));
    RKV_TRY(bind_matrix(m, &m->embed, "token_embd.weight", c->d_model, 0, e));
    c->n_vocab = m->embed.n_out;
    m->head = m->embed;
    if (rkv_gguf_tensor(m->file, "output.weight"))
        RKV_TRY(bind_matrix(m, &m->head, "output.weight", c->d_model, c->n_vocab, e));
    RKV_TRY(bind_vector(m, &m->output_norm, "output_norm.weight", c->d_model, 1, e));
    for (int l = 0; l < c->n_layer; l++)
        RKV_TRY(bind_layer(m, l, e));
    return RKV_OK;
}
