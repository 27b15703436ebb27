#include "config.h"
#include "tiny/model.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "noise.h"
#include "tiny/gguf_write.h"
#include "tiny/vocab.h"
#include "tiny/weights.h"

enum { LLAMA = 1, QWEN2 = 2, QWEN3 = 4, GEMMA3 = 8, ALL = 15 };

typedef struct family {
    const char *name, *tokenizer;
    unsigned bit;
    float freq_base, eps;
} family;

static const family families[] = {
    {"llama", "bpe", LLAMA, 500000.0f, 1e-5f},
    {"qwen2", "bpe", QWEN2, 1000000.0f, 1e-6f},
    {"qwen3", "bpe", QWEN3, 1000000.0f, 1e-6f},
    {"gemma3", "spm", GEMMA3, 1000000.0f, 1e-6f},
};

/* general.file_type of a file whose matrices are of a type (llama.h, enum llama_ftype). */
static const uint32_t file_type[RKV_DT_COUNT] = {
    [RKV_DT_f32] = 0,   [RKV_DT_f16] = 1,   [RKV_DT_bf16] = 32,   [RKV_DT_q4_0] = 2,
    [RKV_DT_q4_1] = 3,  [RKV_DT_q5_0] = 8,  [RKV_DT_q5_1] = 9,    [RKV_DT_q8_0] = 7,
    [RKV_DT_q2_k] = 10, [RKV_DT_q3_k] = 12, [RKV_DT_q4_k] = 15,   [RKV_DT_q5_k] = 17,
    [RKV_DT_q6_k] = 18, [RKV_DT_iq4_nl] = 25, [RKV_DT_iq4_xs] = 30,
};
enum { FILE_TYPE_Q4_K_M = 15, FILE_TYPE_GUESSED = 1024 };

/* What a type becomes when its blocks do not divide a row; itself: f16. */
static const rkv_dtype fallback[RKV_DT_COUNT] = {
    [RKV_DT_f32] = RKV_DT_f32,   [RKV_DT_f16] = RKV_DT_f16,   [RKV_DT_bf16] = RKV_DT_bf16,
    [RKV_DT_q4_0] = RKV_DT_q4_0, [RKV_DT_q4_1] = RKV_DT_q4_1, [RKV_DT_q5_0] = RKV_DT_q5_0,
    [RKV_DT_q5_1] = RKV_DT_q5_1, [RKV_DT_q8_0] = RKV_DT_q8_0, [RKV_DT_q2_k] = RKV_DT_q4_0,
    [RKV_DT_q3_k] = RKV_DT_q4_0, [RKV_DT_q4_k] = RKV_DT_q5_0, [RKV_DT_q5_k] = RKV_DT_q5_1,
    [RKV_DT_q6_k] = RKV_DT_q8_0, [RKV_DT_iq4_nl] = RKV_DT_iq4_nl, [RKV_DT_iq4_xs] = RKV_DT_iq4_nl,
};

/* Lengths of a tensor's sides, and how its values are drawn. */
typedef enum side { ONE, MODEL, HEAD, QUERY, KEY, FF, VOCAB } side;
typedef enum rule { NORM, LAST_NORM, QK_NORM, BIAS, PLAIN, QK, EMBED, OUTPUT } rule;

typedef struct row {
    const char *name;
    unsigned families;
    side in, out;
    rule rule;
} row;

/* A layer's tensors in the order of converted files. */
static const row layer_rows[] = {
    {"attn_norm.weight", ALL, MODEL, ONE, NORM},
    {"ffn_down.weight", ALL, FF, MODEL, PLAIN},
    {"ffn_gate.weight", ALL, MODEL, FF, PLAIN},
    {"ffn_up.weight", ALL, MODEL, FF, PLAIN},
    {"post_attention_norm.weight", GEMMA3, MODEL, ONE, NORM},
    {"post_ffw_norm.weight", GEMMA3, MODEL, ONE, NORM},
    {"ffn_norm.weight", ALL, MODEL, ONE, NORM},
    {"attn_k_norm.weight", QWEN3 | GEMMA3, HEAD, ONE, QK_NORM},
    {"attn_k.bias", QWEN2, KEY, ONE, BIAS},
    {"attn_k.weight", ALL, MODEL, KEY, QK},
    {"attn_output.weight", ALL, QUERY, MODEL, PLAIN},
    {"attn_q_norm.weight", QWEN3 | GEMMA3, HEAD, ONE, QK_NORM},
    {"attn_q.bias", QWEN2, QUERY, ONE, BIAS},
    {"attn_q.weight", ALL, MODEL, QUERY, QK},
    {"attn_v.bias", QWEN2, KEY, ONE, BIAS},
    {"attn_v.weight", ALL, MODEL, KEY, PLAIN},
};
enum { N_LAYER_ROW = sizeof layer_rows / sizeof *layer_rows };
static const row output_row = {"output.weight", ALL, MODEL, VOCAB, OUTPUT};
static const row embed_row = {"token_embd.weight", ALL, MODEL, VOCAB, EMBED};
static const row last_norm_row = {"output_norm.weight", ALL, MODEL, ONE, LAST_NORM};

typedef struct tensor {
    char name[RKV_GGUF_MAX_TENSOR_NAME + 1];
    const row *row;             /* NULL: the rope factors */
    rkv_dtype type;
    uint32_t n_dim;
    uint64_t dims[2];
    size_t bytes;
} tensor;

typedef struct maker {
    const tiny_options *o;
    const family *f;
    int tied;
    int mixed, all;             /* types change from tensor to tensor */
    rkv_dtype type;
    tensor *tensor;
    int n_tensor;
} maker;

tiny_options tiny_defaults(void)
{
    return (tiny_options){.family = "llama", .n_layer = 2, .n_head = 4, .n_kv_head = 2,
                          .d_head = 16, .d_model = 64, .d_ff = 128, .n_vocab = 512, .n_ctx = 1024,
                          .type = "f32", .rope = "none", .seed = 1, .window = 16, .n_shard = 1};
}

static uint64_t length(const tiny_options *o, side s)
{
    const int64_t n[] = {[ONE] = 1, [MODEL] = o->d_model, [HEAD] = o->d_head,
                         [QUERY] = (int64_t)o->n_head * o->d_head,
                         [KEY] = (int64_t)o->n_kv_head * o->d_head, [FF] = o->d_ff,
                         [VOCAB] = o->n_vocab};
    return (uint64_t)n[s];
}

/* Mean and deviation of a tensor's values. */
static void distribution(const maker *m, const tensor *t, float *center, float *std)
{
    const float qk_gain = 1.6f, fan_in = 1.0f / sqrtf((float)t->dims[0]);
    const int has_qk_norm = (m->f->bit & (QWEN3 | GEMMA3)) != 0;
    *center = 0.0f;
    switch (t->row->rule) {
    case NORM: *center = 1.0f, *std = 0.1f; break;
    /* Tied and with norms of one sign, the likeliest token would always be the one before. */
    case LAST_NORM: *center = m->tied ? 0.0f : 1.0f, *std = m->tied ? 1.0f : 0.1f; break;
    case QK_NORM: *center = qk_gain, *std = 0.1f; break;
    case BIAS: *std = 0.2f; break;
    case QK: *std = has_qk_norm ? fan_in : qk_gain * fan_in; break;
    case OUTPUT: *std = 2.0f * fan_in; break;
    /* Tied, it is the output too; gemma's graph multiplies its input by sqrt(d_model). */
    case EMBED: *std = m->tied ? 2.0f * fan_in : 1.0f; break;
    default: *std = fan_in;
    }
}

/* Q4_K_M keeps the embedding, and every third layer's most sensitive matrices, in Q6_K. */
static rkv_dtype mixed_type(const maker *m, const row *r, int l)
{
    const int n = m->o->n_layer, more = l < n / 8 || l >= 7 * n / 8 || (l - n / 8) % 3 == 2;
    const int sensitive = !strcmp(r->name, "attn_v.weight") || !strcmp(r->name, "ffn_down.weight");
    return r->out == VOCAB || (sensitive && more) ? RKV_DT_q6_k : RKV_DT_q4_k;
}

static rkv_dtype choose_type(const maker *m, const row *r, int l, uint64_t row_length)
{
    if (r->out == ONE)
        return RKV_DT_f32;
    rkv_dtype t = m->type;
    if (m->mixed)
        t = mixed_type(m, r, l);
    if (m->all)
        t = (rkv_dtype)(m->n_tensor % RKV_DT_COUNT);
    if (row_length % (uint64_t)rkv_dtype_get(t)->block_len)
        t = fallback[t];
    return row_length % (uint64_t)rkv_dtype_get(t)->block_len ? RKV_DT_f16 : t;
}

static rkv_status add_tensor(maker *m, const row *r, int l, rkv_error *e)
{
    tensor *t = &m->tensor[m->n_tensor];
    t->row = r;
    if (l >= 0)
        snprintf(t->name, sizeof t->name, "blk.%d.%s", l, r->name);
    else
        snprintf(t->name, sizeof t->name, "%s", r->name);
    t->dims[0] = length(m->o, r->in);
    t->dims[1] = length(m->o, r->out);
    t->n_dim = r->out == ONE ? 1 : 2;
    t->type = choose_type(m, r, l, t->dims[0]);
    RKV_TRY(rkv_gguf_tensor_bytes(t->type, t->dims, t->n_dim, &t->bytes, t->name, e));
    m->n_tensor++;
    return RKV_OK;
}

static rkv_status list_tensors(maker *m, rkv_error *e)
{
    const tiny_options *o = m->o;
    m->tensor = rkv_mem_calloc((size_t)o->n_layer * N_LAYER_ROW + 4, sizeof *m->tensor);
    if (!m->tensor)
        return rkv_fail(e, RKV_E_MEM, "out of memory for %d layers", o->n_layer);
    if (!strcmp(o->rope, "llama3")) {
        tensor *t = &m->tensor[m->n_tensor++];
        *t = (tensor){.name = "rope_freqs.weight", .type = RKV_DT_f32, .n_dim = 1,
                      .dims = {(uint64_t)o->d_head / 2, 1}, .bytes = (size_t)o->d_head / 2 * 4};
    }
    if (!m->tied)
        RKV_TRY(add_tensor(m, &output_row, -1, e));
    RKV_TRY(add_tensor(m, &embed_row, -1, e));
    for (int l = 0; l < o->n_layer; l++)
        for (int i = 0; i < N_LAYER_ROW; i++)
            if (layer_rows[i].families & m->f->bit)
                RKV_TRY(add_tensor(m, &layer_rows[i], l, e));
    return add_tensor(m, &last_norm_row, -1, e);
}

/* ---- keys ---- */

/* "family.name"; the result lives until the next call. */
static const char *key(const maker *m, const char *name)
{
    static char s[128];
    snprintf(s, sizeof s, "%s.%s", m->f->name, name);
    return s;
}

static void put_int(const maker *m, gguf_writer *w, const char *name, int v)
{
    gguf_key_u32(w, key(m, name), (uint32_t)v);
}

static void put_window(const maker *m, gguf_writer *w)
{
    const tiny_options *o = m->o;
    if (m->f->bit != GEMMA3 || !o->window)
        return;
    put_int(m, w, "attention.sliding_window", o->window);
    if (o->pattern > 0)
        put_int(m, w, "attention.sliding_window_pattern", o->pattern);
    if (o->pattern >= 0)
        return;
    rkv_text bools = {0};
    for (int l = 0; l < o->n_layer; l++)
        rkv_text_add(&bools, l % 2 ? "\0" : "\1", 1);
    gguf_key_array(w, key(m, "attention.sliding_window_pattern"), RKV_GGUF_BOOL, bools.n,
                   bools.data, bools.n);
    w->keys.bad |= bools.bad;
    rkv_text_free(&bools);
}

static void put_rope(const maker *m, gguf_writer *w)
{
    const tiny_options *o = m->o;
    gguf_key_f32(w, key(m, "rope.freq_base"), m->f->freq_base);
    const int yarn = !strcmp(o->rope, "yarn");
    if (!yarn && strcmp(o->rope, "linear"))
        return;
    gguf_key_string(w, key(m, "rope.scaling.type"), o->rope);
    gguf_key_f32(w, key(m, "rope.scaling.factor"), 4.0f);
    if (yarn)
        put_int(m, w, "rope.scaling.original_context_length", o->n_ctx > 4 ? o->n_ctx / 4 : 1);
}

static int put_extra(const maker *m, gguf_writer *w, const char *extra)
{
    char suffix[64], type[8];
    double v;
    if (sscanf(extra, "%63s %7s %lf", suffix, type, &v) != 3)
        return 0;
    if (!strcmp(type, "u32"))
        gguf_key_u32(w, key(m, suffix), (uint32_t)v);
    else if (!strcmp(type, "f32"))
        gguf_key_f32(w, key(m, suffix), (float)v);
    else if (!strcmp(type, "bool"))
        gguf_key_bool(w, key(m, suffix), v != 0.0);
    else
        return 0;
    return 1;
}

static rkv_status put_keys(const maker *m, gguf_writer *w, rkv_error *e)
{
    const tiny_options *o = m->o;
    char name[96];
    snprintf(name, sizeof name, "made %s %s, seed %" PRIu64, m->f->name, o->type, o->seed);
    gguf_key_string(w, "general.architecture", m->f->name);
    gguf_key_string(w, "general.type", "model");
    gguf_key_string(w, "general.name", name);
    put_int(m, w, "block_count", o->n_layer);
    put_int(m, w, "context_length", o->n_ctx);
    put_int(m, w, "embedding_length", o->d_model);
    put_int(m, w, "feed_forward_length", o->d_ff);
    put_int(m, w, "attention.head_count", o->n_head);
    put_int(m, w, "attention.head_count_kv", o->n_kv_head);
    put_rope(m, w);
    gguf_key_f32(w, key(m, "attention.layer_norm_rms_epsilon"), m->f->eps);
    const int odd_head = o->n_head * o->d_head != o->d_model;
    if (m->f->bit & (QWEN3 | GEMMA3) || odd_head) {
        put_int(m, w, "attention.key_length", o->d_head);
        put_int(m, w, "attention.value_length", o->d_head);
    }
    put_window(m, w);
    if (o->extra && !put_extra(m, w, o->extra))
        return rkv_fail(e, RKV_E_ARG, "'%s': expected SUFFIX TYPE VALUE", o->extra);
    const uint32_t several = m->mixed ? FILE_TYPE_Q4_K_M : FILE_TYPE_GUESSED;
    gguf_key_u32(w, "general.file_type", m->mixed || m->all ? several : file_type[m->type]);
    if (m->f->bit == LLAMA) {
        put_int(m, w, "vocab_size", o->n_vocab);
        put_int(m, w, "rope.dimension_count", o->d_head);
    }
    const char *tokenizer = o->tokenizer ? o->tokenizer : m->f->tokenizer;
    const char *wrong = tiny_vocab(w, tokenizer, m->f->name, o->n_vocab);
    if (wrong)
        return rkv_fail(e, RKV_E_ARG, "%d tokens: %s", o->n_vocab, wrong);
    gguf_key_u32(w, "general.quantization_version", 2);
    return RKV_OK;
}

/* ---- data ---- */

/* Divisors of the rotation frequencies. Source: rope_type llama3 in conversion/llama.py. */
static void rope_factors(const maker *m, float *out)
{
    const double factor = 8.0, low = 1.0, high = 4.0, context = 8192.0;
    const double two_pi = 6.283185307179586476925;
    for (int i = 0; i < m->o->d_head / 2; i++) {
        const double wave = two_pi * pow(m->f->freq_base, 2.0 * i / m->o->d_head);
        const double smooth = (context / wave - low) / (high - low);
        double divisor = 1.0 / ((1.0 - smooth) / factor + smooth);
        if (wave < context / high)
            divisor = 1.0;
        if (wave > context / low)
            divisor = factor;
        out[i] = (float)divisor;
    }
}

static rkv_status write_bytes(FILE *f, const void *p, size_t n, const char *path, rkv_error *e)
{
    if (fwrite(p, 1, n, f) == n)
        return RKV_OK;
    return rkv_fail(e, RKV_E_IO, "%s: cannot write: %s", path, strerror(errno));
}

/* Draws tensor i in pieces of the buffer, then pads to the next one. */
static rkv_status write_tensor(const maker *m, int i, FILE *f, unsigned char *buffer, size_t size,
                               const char *path, rkv_error *e)
{
    const tensor *t = &m->tensor[i];
    if (!t->row) {
        float factors[1024];
        rope_factors(m, factors);
        RKV_TRY(write_bytes(f, factors, t->bytes, path, e));
    } else {
        const size_t block = (size_t)rkv_dtype_get(t->type)->block_bytes, most = size / block;
        const uint64_t stream = rkv_noise_key(0, m->o->seed, (uint64_t)i);
        float center, std;
        distribution(m, t, &center, &std);
        for (size_t at = 0, n; at < t->bytes / block; at += n) {
            n = t->bytes / block - at < most ? t->bytes / block - at : most;
            tiny_weights(buffer, t->type, stream, at, n, center, std);
            RKV_TRY(write_bytes(f, buffer, n * block, path, e));
        }
    }
    static const char zero[32];
    return write_bytes(f, zero, (32 - t->bytes % 32) % 32, path, e);
}

static rkv_status write_file(const maker *m, const gguf_writer *w, int first, int end,
                             const char *path, rkv_error *e)
{
    enum { BUFFER = 1 << 20 };
    rkv_status s = RKV_E_MEM;
    rkv_text head = {0};
    FILE *f = NULL;
    unsigned char *buffer = rkv_mem_alloc(BUFFER);
    gguf_head(w, &head);
    if (!buffer || head.bad || w->keys.bad || w->tensors.bad) {
        rkv_fail(e, s, "%s: out of memory", path);
        goto done;
    }
    f = fopen(path, "wb");
    if (!f) {
        s = rkv_fail(e, RKV_E_IO, "%s: cannot create: %s", path, strerror(errno));
        goto done;
    }
    s = write_bytes(f, head.data, head.n, path, e);
    for (int i = first; i < end && !s; i++)
        s = write_tensor(m, i, f, buffer, BUFFER, path, e);
done:
    if (f && fclose(f) && !s)
        s = rkv_fail(e, RKV_E_IO, "%s: cannot write: %s", path, strerror(errno));
    rkv_text_free(&head);
    rkv_mem_free(buffer);
    return s;
}

/* Shard k of n, from 0: all keys go into the first, an even share of the tensors into each. */
static rkv_status write_shard(const maker *m, int k, int n, const char *path, rkv_error *e)
{
    const int first = (int)((int64_t)m->n_tensor * k / n);
    const int end = (int)((int64_t)m->n_tensor * (k + 1) / n);
    gguf_writer w = gguf_writer_init();
    rkv_status s = k ? RKV_OK : put_keys(m, &w, e);
    if (n > 1)
        gguf_key_split(&w, (uint16_t)k, (uint16_t)n, m->n_tensor);
    for (int i = first; i < end; i++) {
        const tensor *t = &m->tensor[i];
        gguf_tensor(&w, t->name, rkv_dtype_get(t->type)->ggml_id, t->n_dim, t->dims, t->bytes);
    }
    if (!s)
        s = write_file(m, &w, first, end, path, e);
    gguf_writer_free(&w);
    return s;
}

static rkv_status write_all(const maker *m, const char *path, rkv_error *e)
{
    const int n = m->o->n_shard;
    const size_t len = strlen(path);
    char name[4096], first[32];
    if (n == 1)
        return write_shard(m, 0, 1, path, e);
    const int suffix = snprintf(first, sizeof first, "-00001-of-%05d.gguf", n);
    if (len < (size_t)suffix || len >= sizeof name || strcmp(path + len - suffix, first))
        return rkv_fail(e, RKV_E_ARG, "%s: %d shards, expected a name that ends in %s", path, n,
                        first);
    for (int k = 0; k < n; k++) {
        snprintf(name, sizeof name, "%.*s-%05d-of-%05d.gguf", (int)len - suffix, path, k + 1, n);
        RKV_TRY(write_shard(m, k, n, name, e));
    }
    return RKV_OK;
}

/* ---- options ---- */

static rkv_status check_options(const tiny_options *o, rkv_error *e)
{
    const struct { const char *name; int v, min, max; } range[] = {
        {"layers", o->n_layer, 1, 1024},      {"heads", o->n_head, 1, 1024},
        {"kv-heads", o->n_kv_head, 1, 1024},  {"d-head", o->d_head, 2, 1024},
        {"d-model", o->d_model, 1, 1 << 20},  {"d-ff", o->d_ff, 1, 1 << 20},
        {"vocab", o->n_vocab, 1, 480000},     {"ctx", o->n_ctx, 1, 1 << 30},
        {"window", o->window, 0, 1 << 30},    {"pattern", o->pattern, -1, 1024},
        {"shards", o->n_shard, 1, 99999},
    };
    for (size_t i = 0; i < sizeof range / sizeof *range; i++)
        if (range[i].v < range[i].min || range[i].v > range[i].max)
            return rkv_fail(e, RKV_E_ARG, "%s %d, expected %d to %d", range[i].name, range[i].v,
                            range[i].min, range[i].max);
    if (o->n_head % o->n_kv_head)
        return rkv_fail(e, RKV_E_ARG, "%d heads, expected a multiple of the %d KV heads", o->n_head,
                        o->n_kv_head);
    if (o->d_head % 2)
        return rkv_fail(e, RKV_E_ARG, "d-head %d, expected an even number", o->d_head);
    static const char *const ropes[] = {"none", "linear", "llama3", "yarn"};
    for (size_t i = 0; i < sizeof ropes / sizeof *ropes; i++)
        if (!strcmp(o->rope, ropes[i]))
            return RKV_OK;
    return rkv_fail(e, RKV_E_ARG, "rope '%s', expected none, linear, llama3 or yarn", o->rope);
}

static rkv_status maker_init(maker *m, const tiny_options *o, rkv_error *e)
{
    RKV_TRY(check_options(o, e));
    m->o = o;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (!strcmp(families[i].name, o->family))
            m->f = &families[i];
    if (!m->f)
        return rkv_fail(e, RKV_E_ARG, "family '%s', expected llama, qwen2, qwen3 or gemma3",
                        o->family);
    if (m->f->bit == QWEN2 && o->n_head * o->d_head != o->d_model)
        return rkv_fail(e, RKV_E_ARG, "d-model %d, expected heads times d-head for qwen2",
                        o->d_model);
    m->tied = o->tied || m->f->bit == GEMMA3;
    m->mixed = !strcmp(o->type, "mixed");
    m->all = !strcmp(o->type, "all");
    m->type = rkv_dtype_from_name(o->type);
    if (m->type == RKV_DT_COUNT && !m->mixed && !m->all)
        return rkv_fail(e, RKV_E_ARG, "type '%s', expected an element type, mixed or all", o->type);
    return RKV_OK;
}

rkv_status tiny_write(const tiny_options *o, const char *path, rkv_error *e)
{
    maker m = {0};
    rkv_status s = maker_init(&m, o, e);
    if (!s)
        s = list_tensors(&m, e);
    if (!s && o->n_shard > m.n_tensor)
        s = rkv_fail(e, RKV_E_ARG, "%d shards for %d tensors", o->n_shard, m.n_tensor);
    if (!s)
        s = write_all(&m, path, e);
    rkv_mem_free(m.tensor);
    return s;
}
