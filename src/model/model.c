/* Loading a model, describing it, and its first and last step: embedding and output head. */
#include "config.h"
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "cpu.h"

#define RKV_ARCH(name) extern const rkv_arch rkv_arch_##name;
#include "model/arch.def"
#undef RKV_ARCH

static const rkv_arch *const arches[] = {
#define RKV_ARCH(name) &rkv_arch_##name,
#include "model/arch.def"
#undef RKV_ARCH
};

const rkv_arch *rkv_arch_find(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof arches / sizeof *arches; i++)
        if (strlen(arches[i]->name) == n && !memcmp(arches[i]->name, name, n))
            return arches[i];
    return NULL;
}

const char *rkv_arch_list(void)
{
#define RKV_ARCH(name) ", " #name
    return (""
#include "model/arch.def"
            ) + 2;
#undef RKV_ARCH
}

/* Shapes, types and three samples of each tensor: tells two quantizations of one model apart, and
 * costs a few page reads per tensor. */
static void set_fingerprint(rkv_model *m)
{
    enum { SAMPLE = 1024 };
    rkv_hash h = rkv_hash_init();
    rkv_hash_add(&h, m->arch->name, strlen(m->arch->name));
    for (int i = 0; i < rkv_gguf_n_tensor(m->file); i++) {
        const rkv_tensor *t = rkv_gguf_tensor_at(m->file, i);
        const uint32_t type = rkv_gguf_tensor_type_id(m->file, i);
        rkv_hash_add(&h, t->name, strlen(t->name));
        rkv_hash_add(&h, &type, sizeof type);
        rkv_hash_add(&h, t->dim, sizeof t->dim);
        const size_t n = t->bytes < SAMPLE ? t->bytes : SAMPLE;
        const size_t at[] = {0, (t->bytes - n) / 2, t->bytes - n};
        for (int j = 0; t->data && j < 3; j++)
            rkv_hash_add(&h, (const char *)t->data + at[j], n);
    }
    snprintf(m->fingerprint, sizeof m->fingerprint, "%016llx",
             (unsigned long long)rkv_hash_end(&h));
}

/* A 0-terminated copy of a string key; NULL with RKV_OK when the file has none. */
static rkv_status copy_string(const rkv_model *m, const char *key, char **out, rkv_error *e)
{
    const char *s;
    size_t n;
    if (!rkv_gguf_has(m->file, key))
        return RKV_OK;
    RKV_TRY(rkv_gguf_string(m->file, key, &s, &n, e));
    *out = rkv_mem_alloc(n + 1);
    if (!*out)
        return rkv_fail(e, RKV_E_MEM, "%s: out of memory", rkv_gguf_path(m->file));
    memcpy(*out, s, n);
    (*out)[n] = 0;
    return RKV_OK;
}

static void set_info(rkv_model *m)
{
    const rkv_config *c = &m->config;
    rkv_model_info *i = &m->info;
    const char *path = rkv_gguf_path(m->file), *slash = strrchr(path, '/');
    *i = (rkv_model_info){
        .path = path,
        .name = m->name && *m->name ? m->name
                : slash             ? slash + 1
                                    : path,
        .arch = m->arch ? m->arch->name : "",
        .fingerprint = m->fingerprint,
        .chat_template = m->chat_template,
        .tier = m->backend.tier,
        .n_layer = c->n_layer,
        .n_head = c->n_head,
        .n_kv_head = c->n_kv_head,
        .d_head = c->d_head,
        .d_model = c->d_model,
        .d_ff = c->d_ff,
        .n_vocab = c->n_vocab,
        .n_ctx_train = c->n_ctx_train,
        .sliding_window = c->sliding_window,
        .file_bytes = rkv_gguf_file_bytes(m->file),
        .load = m->load,
        .arithmetic = rkv_backend_arithmetic(&m->backend),
        .rope_scaling = m->rope[0].scaling ? m->rope[0].scaling : "none",
        .rope_base = m->rope[0].base,
        .rope_factor = m->rope[0].factor,
    };
    i->step_bytes = rkv_matrix_bytes(&m->head);
    for (int l = 0; m->layer && l < c->n_layer; l++) {
        i->n_layer_sliding += m->layer[l].sliding;
        i->step_bytes += rkv_model_layer_bytes(m, l);
    }
    if (m->layer)
        i->stream_bytes = rkv_model_stream_bytes(m);
    int64_t of_type[RKV_DT_COUNT] = {0};
    for (int t = 0; t < rkv_gguf_n_tensor(m->file); t++) {
        const rkv_tensor *x = rkv_gguf_tensor_at(m->file, t);
        if (x->type == RKV_DT_COUNT)            /* its shape is not held against any bytes */
            continue;
        const int64_t n = x->dim[0] * x->dim[1] * x->dim[2] * x->dim[3];
        i->n_param += n;
        of_type[x->type] += n;
    }
    int best = 0;
    for (int t = 1; t < RKV_DT_COUNT; t++)
        best = of_type[t] > of_type[best] ? t : best;
    i->quantization = rkv_dtype_get((rkv_dtype)best)->name;
}

static rkv_status open_file(rkv_model *m, const char *path, rkv_error *e)
{
    m->load = "mmap";
    RKV_TRY(rkv_backend_init(&m->backend, e));
    return rkv_gguf_open(&m->file, path, e);
}

/* What every use of the file needs: its text side. */
static rkv_status bind_text(rkv_model *m, rkv_error *e)
{
    RKV_TRY(rkv_tok_create(&m->tok, m->file, e));
    RKV_TRY(copy_string(m, "tokenizer.chat_template", &m->chat_template, e));
    RKV_TRY(copy_string(m, "general.name", &m->name, e));
    m->config.n_vocab = rkv_tok_n_vocab(m->tok);
    return RKV_OK;
}

static rkv_status load_vocab(rkv_model *m, const char *path, const rkv_model_options *o,
                             rkv_error *e)
{
    (void)o;
    RKV_TRY(open_file(m, path, e));
    return bind_text(m, e);
}

/* Of a table with an output matrix beside it a step reads one row: no reason to hold it twice. */
static const char *stays(const rkv_model *m)
{
    return rkv_gguf_tensor(m->file, "output.weight") ? "token_embd.weight" : NULL;
}

static rkv_status copy_weights(rkv_model *m, rkv_error *e)
{
    const uint64_t bytes = rkv_gguf_copy_bytes(m->file, stays(m)), left = rkv_mem_available(NULL);
    if (bytes > left)
        return rkv_fail(e, RKV_E_MEM,
                        "%s: a copy of the weights takes %.1f MiB, %.1f MiB are available; use "
                        "--load-mode mmap", rkv_gguf_path(m->file), (double)bytes / 0x1p20,
                        (double)left / 0x1p20);
    RKV_TRY(rkv_gguf_copy(m->file, stays(m), e));
    m->load = "memory";
    return RKV_OK;
}

static rkv_status copy_if_better(rkv_model *m, rkv_error *e)
{
    (void)e;
    if (rkv_mem_huge_pages("/sys/kernel/mm/transparent_hugepage/enabled") &&
        rkv_gguf_copy_bytes(m->file, stays(m)) <= rkv_mem_available(NULL) / 4)
        copy_weights(m, NULL);                  /* the mapping serves as well */
    return RKV_OK;
}

static rkv_status lock_mapping(rkv_model *m, rkv_error *e)
{
    RKV_TRY(rkv_gguf_lock(m->file, e));
    m->load = "mlock";
    return RKV_OK;
}

static rkv_status keep_mapping(rkv_model *m, rkv_error *e)
{
    (void)m, (void)e;
    return RKV_OK;
}

static rkv_status stream_mapping(rkv_model *m, rkv_error *e)
{
    RKV_TRY(rkv_gguf_stream(m->file, e));
    m->load = "stream";
    m->streams = 1;
    return RKV_OK;
}

/* Puts the weights where the options want them, before anything points at them. */
static rkv_status place_weights(rkv_model *m, const char *load, rkv_error *e)
{
    static const struct {
        const char *name;
        rkv_status (*place)(rkv_model *m, rkv_error *e);
    } modes[] = {{"auto", copy_if_better}, {"none", copy_weights}, {"mmap", keep_mapping},
                 {"mlock", lock_mapping}, {"stream", stream_mapping}};
    for (size_t i = 0; load && i < sizeof modes / sizeof *modes; i++)
        if (!strcmp(load, modes[i].name))
            return modes[i].place(m, e);
    return rkv_fail(e, RKV_E_ARG, "load '%.40s', expected auto, none, mmap, mlock or stream",
                    load ? load : "");
}

static rkv_status load(rkv_model *m, const char *path, const rkv_model_options *o, rkv_error *e)
{
    const char *arch;
    size_t n;
    RKV_TRY(open_file(m, path, e));
    RKV_TRY(rkv_gguf_string(m->file, "general.architecture", &arch, &n, e));
    m->arch = rkv_arch_find(arch, n);
    if (!m->arch)
        return rkv_fail(e, RKV_E_UNSUPPORTED, "%s: architecture '%.*s', supported are %s", path,
                        (int)(n < 40 ? n : 40), arch, rkv_arch_list());
    RKV_TRY(place_weights(m, o->load, e));
    RKV_TRY(bind_text(m, e));
    RKV_TRY(rkv_model_bind(m, e));
    if (rkv_tok_n_vocab(m->tok) != m->config.n_vocab)
        return rkv_fail(e, RKV_E_FORMAT, "%s: the tokenizer has %d tokens, the embedding %d rows",
                        path, rkv_tok_n_vocab(m->tok), m->config.n_vocab);
    set_fingerprint(m);
    rkv_model_load_end(m);
    return RKV_OK;
}

typedef rkv_status load_fn(rkv_model *m, const char *path, const rkv_model_options *o,
                           rkv_error *e);

static rkv_status load_by(load_fn *how, rkv_model **out, const char *path,
                          const rkv_model_options *o, rkv_error *e)
{
    rkv_model *m = rkv_mem_calloc(1, sizeof *m);
    if (!m)
        return rkv_fail(e, RKV_E_MEM, "%s: out of memory", path);
    const rkv_status s = how(m, path, o, e);
    if (s) {
        rkv_model_free(m);
        return s;
    }
    set_info(m);
    *out = m;
    return RKV_OK;
}

rkv_model_options rkv_model_options_default(void)
{
    return (rkv_model_options){.load = "auto"};
}

rkv_status rkv_model_load_with(rkv_model **out, const char *path, const rkv_model_options *o,
                               rkv_error *e)
{
    return load_by(load, out, path, o, e);
}

rkv_status rkv_model_load(rkv_model **out, const char *path, rkv_error *e)
{
    const rkv_model_options o = rkv_model_options_default();
    return rkv_model_load_with(out, path, &o, e);
}

rkv_status rkv_model_load_vocab(rkv_model **out, const char *path, rkv_error *e)
{
    return load_by(load_vocab, out, path, NULL, e);
}

void rkv_model_free(rkv_model *m)
{
    if (!m)
        return;
    for (int l = 0; m->layer && l < m->config.n_layer; l++)
        for (int i = 0; i < RKV_V_COUNT; i++)
            rkv_mem_free(m->layer[l].v[i]);
    rkv_mem_free(m->layer);
    rkv_mem_free(m->output_norm);
    rkv_mem_free(m->rope[0].inv_freq);
    rkv_mem_free(m->rope[1].inv_freq);
    rkv_mem_free(m->chat_template);
    rkv_mem_free(m->name);
    rkv_tok_free(m->tok);
    rkv_gguf_close(m->file);
    rkv_mem_free(m);
}

const rkv_model_info *rkv_model_get_info(const rkv_model *m)
{
    return &m->info;
}

int rkv_model_layer_is_sliding(const rkv_model *m, int l)
{
    return l >= 0 && l < m->config.n_layer && m->layer[l].sliding;
}

void rkv_model_embed(const rkv_model *m, float *x, const int32_t *ids, int n)
{
    const rkv_matrix *w = &m->embed;
    const int d = m->config.d_model;
    for (int i = 0; i < n; i++) {
        float *row = x + (ptrdiff_t)i * d;
        m->backend.ops.unpack[w->type](row, (const char *)w->data + ids[i] * w->row_stride, d);
        if (m->config.embed_scale != 1.0f)
            m->backend.ops.scale[RKV_DT_f32](row, m->config.embed_scale, d);
    }
    rkv_model_embed_end(m);
}

/* The final norm of n_row rows. */
static void final_norm(const rkv_model *m, float *norm, const float *x, int n_row)
{
    const int d = m->config.d_model;
    for (int i = 0; i < n_row; i++)
        m->backend.ops.rmsnorm[RKV_DT_f32](norm + (ptrdiff_t)i * d, x + (ptrdiff_t)i * d,
                                           m->output_norm, d, m->config.norm_eps);
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

static void cap_logits(float *logits, int n, float cap)
{
    for (int i = 0; cap > 0.0f && i < n; i++)
        logits[i] = cap * tanhf(logits[i] / cap);
}

rkv_status rkv_model_head(const rkv_model *m, const float *x, int n_row, float *norm,
                          rkv_team *team, rkv_head_fn *fn, void *ctx, rkv_error *e)
{
    enum { COLUMNS = RKV_HEAD_COLUMNS };
    const rkv_backend *be = &m->backend;
    const int d = m->config.d_model, n_vocab = m->config.n_vocab;
    const size_t scratch = rkv_panels_scratch(be, d);
    char *panels = rkv_mem_alloc(scratch + rkv_panels_bytes(be, COLUMNS, d));
    float *logits = rkv_mem_alloc(rkv_mem_product((size_t)n_row, COLUMNS * sizeof *logits));
    rkv_status s = RKV_OK;
    if (!panels || !logits)
        s = rkv_fail(e, RKV_E_MEM, "output head: out of memory for %d rows of logits; "
                     "fewer rows at a time need less", n_row);
    else
        final_norm(m, norm, x, n_row);
    for (int c0 = 0; !s && c0 < n_vocab; c0 += COLUMNS) {
        const int n = least(COLUMNS, n_vocab - c0);
        rkv_model_head_begin(m, c0);
        const rkv_panels w = rkv_panels_pack(be, panels + scratch, panels, &m->head, c0, n, team);
        rkv_model_head_end(m, c0);
        rkv_panels_product(be, logits, COLUMNS, norm, d, n_row, &w, team);
        for (int i = 0; i < n_row; i++)
            cap_logits(logits + (ptrdiff_t)i * COLUMNS, n, m->config.logit_cap);
        if (fn(ctx, c0, n, logits, COLUMNS))
            s = rkv_fail(e, RKV_E_CANCELLED, "interrupted");
    }
    rkv_mem_free(panels);
    rkv_mem_free(logits);
    return s;
}

void rkv_model_head_rows(const rkv_model *m, const float *x, int n_row, float *norm, float *logits,
                         rkv_team *team)
{
    const int d = m->config.d_model, n_vocab = m->config.n_vocab;
    final_norm(m, norm, x, n_row);
    rkv_matrix part = m->head;
    part.n_out = m->streams ? RKV_HEAD_COLUMNS : n_vocab;
    for (int c0 = 0; c0 < n_vocab; c0 += part.n_out) {
        part.data = (const char *)m->head.data + c0 * m->head.row_stride;
        part.n_out = least(part.n_out, n_vocab - c0);
        rkv_model_head_begin(m, c0);
        rkv_matvec(&m->backend, logits + c0, n_vocab, &part, norm, d, n_row, team);
        rkv_model_head_end(m, c0);
    }
    for (int i = 0; i < n_row; i++)
        cap_logits(logits + (ptrdiff_t)i * n_vocab, n_vocab, m->config.logit_cap);
}
