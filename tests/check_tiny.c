/* Made models: same bytes for the same options, keys and tensors of each family, values' deviation,
 * consistent vocabularies. */
#include "config.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/mem.h"
#include "file/gguf.h"
#include "scratch.h"
#include "tiny/model.h"
#include "tiny/weights.h"

static uint64_t file_hash(const char *path)
{
    rkv_hash h = rkv_hash_init();
    char block[4096];
    size_t n;
    FILE *f = fopen(path, "rb");
    while (f && (n = fread(block, 1, sizeof block, f)))
        rkv_hash_add(&h, block, n);
    if (f)
        fclose(f);
    return rkv_hash_end(&h);
}

static rkv_gguf *make(const tiny_options *o, const char *name)
{
    rkv_error e = {0};
    rkv_gguf *g = NULL;
    CHECK(!tiny_write(o, scratch_path(name), &e), "%s", e.text);
    CHECK(!rkv_gguf_open(&g, scratch_path(name), &e), "%s", e.text);
    return g;
}

static void check_deterministic(void)
{
    tiny_options o = tiny_defaults();
    rkv_error e = {0};
    uint64_t h[4];
    for (int i = 0; i < 4; i++) {
        o.seed = i == 2 ? 2 : 1;
        o.type = i == 3 ? "all" : "q4_0";
        CHECK(!tiny_write(&o, scratch_path("h.gguf"), &e), "%s", e.text);
        h[i] = file_hash(scratch_path("h.gguf"));
    }
    CHECK(h[0] == h[1], "two runs differ");
    CHECK(h[0] != h[2] && h[0] != h[3], "seed or type makes no difference");
    /* One pinned: machines and compilers agree. A change of what is written changes it. */
    CHECK(h[0] == UINT64_C(0x320e856dc56c92e5), "this machine makes another file: %#llx",
          (unsigned long long)h[0]);
    unlink(scratch_path("h.gguf"));
}

/* Pieces of a stream do not depend on how it is cut. */
static void check_pieces(void)
{
    static unsigned char whole[64 * 256], cut[64 * 256];
    for (int i = 0; i < RKV_DT_COUNT; i++) {
        const rkv_dtype t = (rkv_dtype)i;
        const size_t bytes = (size_t)rkv_dtype_get(t)->block_bytes;
        tiny_weights(whole, t, 7, 0, 64, 0.0f, 1.0f);
        tiny_weights(cut, t, 7, 0, 5, 0.0f, 1.0f);
        tiny_weights(cut + 5 * bytes, t, 7, 5, 59, 0.0f, 1.0f);
        CHECK(!memcmp(whole, cut, 64 * bytes), "%s", rkv_dtype_get(t)->name);
    }
    enum { N = 20000 };
    static float x[N];
    tiny_weights(x, RKV_DT_f32, 3, 0, N, 1.0f, 0.1f);
    double sum = 0.0, square = 0.0;
    for (int i = 0; i < N; i++)
        sum += x[i], square += (double)x[i] * x[i];
    CHECK(fabs(sum / N - 1.0) < 0.005 && fabs(sqrt(square / N - sum / N * sum / N) - 0.1) < 0.003,
          "mean %g, square %g", sum / N, square / N);
}

static int64_t get_int(const rkv_gguf *g, const char *family, const char *name)
{
    char key[128];
    int64_t v = -1;
    rkv_error e = {0};
    snprintf(key, sizeof key, "%s.%s", family, name);
    CHECK(!rkv_gguf_int(g, key, 0, INT32_MAX, &v, &e), "%s", e.text);
    return v;
}

static int has(const rkv_gguf *g, const char *family, const char *name)
{
    char key[128];
    snprintf(key, sizeof key, "%s.%s", family, name);
    return rkv_gguf_has(g, key);
}

/* A tensor has this shape; absent when d0 is 0. */
static void shape(const rkv_gguf *g, const char *name, int64_t d0, int64_t d1)
{
    const rkv_tensor *t = rkv_gguf_tensor(g, name);
    CHECK((t != NULL) == (d0 != 0), "%s", name);
    if (t && d0)
        CHECK(t->dim[0] == d0 && t->dim[1] == d1 && t->n_dim == (d1 > 1 ? 2 : 1), "%s is %lld %lld",
              name, (long long)t->dim[0], (long long)t->dim[1]);
}

static void check_family(const char *family)
{
    const int qwen2 = !strcmp(family, "qwen2"), qwen3 = !strcmp(family, "qwen3");
    const int gemma = !strcmp(family, "gemma3"), llama = !strcmp(family, "llama");
    tiny_options o = tiny_defaults();
    o.family = family;
    o.pattern = 3;
    o.d_ff = 96;
    o.rope = llama ? "llama3" : "yarn";
    rkv_gguf *g = make(&o, "f.gguf");
    if (!g)
        return;
    CHECK(get_int(g, family, "block_count") == 2 && get_int(g, family, "context_length") == 1024 &&
              get_int(g, family, "embedding_length") == 64 &&
              get_int(g, family, "feed_forward_length") == 96 &&
              get_int(g, family, "attention.head_count") == 4 &&
              get_int(g, family, "attention.head_count_kv") == 2,
          "%s", family);
    CHECK(has(g, family, "attention.key_length") == (qwen3 || gemma), "%s", family);
    CHECK(has(g, family, "vocab_size") == llama, "%s", family);
    CHECK(has(g, family, "attention.sliding_window") == gemma &&
          has(g, family, "attention.sliding_window_pattern") == gemma, "%s", family);
    CHECK(has(g, family, "rope.scaling.type") == !llama &&
          has(g, family, "rope.scaling.original_context_length") == !llama, "%s", family);
    shape(g, "rope_freqs.weight", llama ? 8 : 0, 1);
    shape(g, "token_embd.weight", 64, 512);
    shape(g, "output.weight", gemma ? 0 : 64, 512);
    shape(g, "output_norm.weight", 64, 1);
    shape(g, "blk.1.attn_norm.weight", 64, 1);
    shape(g, "blk.1.attn_q.weight", 64, 64);
    shape(g, "blk.1.attn_k.weight", 64, 32);
    shape(g, "blk.1.attn_v.weight", 64, 32);
    shape(g, "blk.1.attn_output.weight", 64, 64);
    shape(g, "blk.1.attn_q.bias", qwen2 ? 64 : 0, 1);
    shape(g, "blk.1.attn_k.bias", qwen2 ? 32 : 0, 1);
    shape(g, "blk.1.attn_v.bias", qwen2 ? 32 : 0, 1);
    shape(g, "blk.1.attn_q_norm.weight", qwen3 || gemma ? 16 : 0, 1);
    shape(g, "blk.1.attn_k_norm.weight", qwen3 || gemma ? 16 : 0, 1);
    shape(g, "blk.1.post_attention_norm.weight", gemma ? 64 : 0, 1);
    shape(g, "blk.1.post_ffw_norm.weight", gemma ? 64 : 0, 1);
    shape(g, "blk.1.ffn_norm.weight", 64, 1);
    shape(g, "blk.1.ffn_gate.weight", 64, 96);
    shape(g, "blk.1.ffn_up.weight", 64, 96);
    shape(g, "blk.1.ffn_down.weight", 96, 64);
    shape(g, "blk.2.attn_norm.weight", 0, 0);
    if (llama) { /* base 500000, 16: waves 6, 32, 167, 861, 4443, 22911 .. */
        const float *f = rkv_gguf_tensor(g, "rope_freqs.weight")->data;
        CHECK(f[0] == 1.0f && f[3] == 1.0f && fabsf(f[4] - 2.6945f) < 0.001f && f[5] == 8.0f,
              "%g %g", f[4], f[5]);
    }
    rkv_gguf_close(g);
}

static void check_types(void)
{
    static const struct { const char *type; int wide; const char *matrix, *embed, *down; } row[] = {
        {"f16", 0, "f16", "f16", "f16"},          {"bf16", 0, "bf16", "bf16", "bf16"},
        {"q4_0", 0, "q4_0", "q4_0", "q4_0"},      {"q8_0", 0, "q8_0", "q8_0", "q8_0"},
        {"q4_k", 0, "q5_0", "q5_0", "q5_0"},      {"q6_k", 0, "q8_0", "q8_0", "q8_0"},
        {"q2_k", 1, "q2_k", "q2_k", "q2_k"},      {"q3_k", 1, "q3_k", "q3_k", "q3_k"},
        {"q4_k", 1, "q4_k", "q4_k", "q4_k"},      {"iq4_xs", 1, "iq4_xs", "iq4_xs", "iq4_xs"},
        {"iq4_xs", 0, "iq4_nl", "iq4_nl", "iq4_nl"}, {"mixed", 1, "q4_k", "q6_k", "q6_k"},
        {"mixed", 0, "q5_0", "q8_0", "q8_0"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        tiny_options o = tiny_defaults();
        o.type = row[i].type;
        o.n_layer = 4;
        if (row[i].wide)
            o.d_model = o.d_ff = 256, o.d_head = 64;
        rkv_gguf *g = make(&o, "t.gguf");
        if (!g)
            continue;
        const struct { const char *tensor, *type; } want[] = {
            {"blk.0.attn_q.weight", row[i].matrix}, {"token_embd.weight", row[i].embed},
            {"blk.3.ffn_down.weight", row[i].down}, {"blk.0.attn_norm.weight", "f32"},
        };
        for (size_t j = 0; j < sizeof want / sizeof *want; j++) {
            const char *got = rkv_dtype_get(rkv_gguf_tensor(g, want[j].tensor)->type)->name;
            CHECK(!strcmp(got, want[j].type), "%s: %s is %s", row[i].type, want[j].tensor, got);
        }
        rkv_gguf_close(g);
    }
}

/* Rows that no block divides, heads that do not add up to the model's width, shards, odd options.
 */
static void check_options(void)
{
    tiny_options o = tiny_defaults();
    o.type = "q8_0";
    o.d_ff = 40;
    o.d_head = 24;
    rkv_gguf *g = make(&o, "o.gguf");
    if (g) {
        CHECK(rkv_gguf_tensor(g, "blk.0.ffn_down.weight")->type == RKV_DT_f16,
              "f16 fits everything");
        shape(g, "blk.0.attn_q.weight", 64, 96);
        CHECK(get_int(g, "llama", "attention.key_length") == 24, "key_length");
    }
    rkv_gguf_close(g);
    o = tiny_defaults();
    o.n_shard = 3;
    g = make(&o, "s-00001-of-00003.gguf");
    if (g)
        CHECK(rkv_gguf_n_tensor(g) == 21, "%d", rkv_gguf_n_tensor(g));
    rkv_gguf_close(g);
    static const char *const bad[] = {"qwen9", "q9_9", "ntk", "char"};
    for (int i = 0; i < 4; i++) {
        rkv_error e = {0};
        o = tiny_defaults();
        const char **member[] = {&o.family, &o.type, &o.rope, &o.tokenizer};
        *member[i] = bad[i];
        CHECK(tiny_write(&o, scratch_path("o.gguf"), &e) == RKV_E_ARG, "%s: %s", bad[i], e.text);
    }
    o = tiny_defaults();
    o.n_kv_head = 3;
    CHECK(tiny_write(&o, scratch_path("o.gguf"), NULL) == RKV_E_ARG, "3 KV heads for 4");
    o = tiny_defaults();
    o.n_shard = 2;
    CHECK(tiny_write(&o, scratch_path("o.gguf"), NULL) == RKV_E_ARG, "a name that is no shard's");
    o = tiny_defaults();
    CHECK(tiny_write(&o, "/nonexistent/x", NULL) == RKV_E_IO, "no folder");
    if (!access("/dev/full", W_OK))
        CHECK(tiny_write(&o, "/dev/full", NULL) == RKV_E_IO, "a full disk");
    else
        SKIP(1, "no /dev/full");
}

/* Index of a token; -1: none. Quadratic, for small vocabularies. */
static int find_token(const rkv_gguf *g, int n_vocab, const char *s, size_t n)
{
    for (int i = 0; i < n_vocab; i++) {
        size_t len;
        const char *t = rkv_gguf_strings_at(g, "tokenizer.ggml.tokens", (size_t)i, &len);
        if (len == n && !memcmp(t, s, n))
            return i;
    }
    return -1;
}

/* Tokens are distinct, and each merge joins two of them to a later one. */
static void check_vocab(const char *family, const char *tokenizer, int n_vocab)
{
    tiny_options o = tiny_defaults();
    o.family = family;
    o.tokenizer = tokenizer;
    o.n_vocab = n_vocab;
    rkv_gguf *g = make(&o, "v.gguf");
    if (!g)
        return;
    rkv_error e = {0};
    size_t n = 0, n_merge = 0;
    CHECK(!rkv_gguf_strings(g, "tokenizer.ggml.tokens", &n, &e) && n == (size_t)n_vocab, "%zu %s",
          n, e.text);
    int twice = 0;
    for (int i = 0; i < n_vocab; i++) {
        size_t len;
        const char *t = rkv_gguf_strings_at(g, "tokenizer.ggml.tokens", (size_t)i, &len);
        twice += find_token(g, n_vocab, t, len) != i;
    }
    CHECK(!twice, "%d tokens occur twice", twice);
    CHECK(rkv_gguf_array_count(g, "tokenizer.ggml.token_type") == n, "types");
    if (!strcmp(tokenizer, "spm")) {
        static float scores[1024];
        CHECK(!rkv_gguf_floats(g, "tokenizer.ggml.scores", scores, n, &e), "%s", e.text);
        CHECK(find_token(g, n_vocab, "<0xFF>", 6) > 0 &&
                  find_token(g, n_vocab, "\xe2\x96\x81the", 6) > 0,
              "byte tokens and pieces");
    } else {
        CHECK(!rkv_gguf_strings(g, "tokenizer.ggml.merges", &n_merge, &e) && n_merge > 200, "%s",
              e.text);
    }
    for (size_t i = 0; i < n_merge; i++) {
        char joined[64];
        size_t len;
        const char *m = rkv_gguf_strings_at(g, "tokenizer.ggml.merges", i, &len);
        const char *space = memchr(m, ' ', len);
        CHECK(space, "merge %zu has no space", i);
        const size_t left = (size_t)(space - m), right = len - left - 1;
        memcpy(joined, m, left);
        memcpy(joined + left, space + 1, right);
        const int a = find_token(g, n_vocab, m, left), b = find_token(g, n_vocab, space + 1, right);
        const int c = find_token(g, n_vocab, joined, left + right);
        CHECK(a >= 0 && b >= 0 && c > a && c > b && c == 256 + (int)i, "merge %zu '%.*s'", i,
              (int)len, m);
    }
    int64_t bos = -1, eos = -1;
    CHECK(!rkv_gguf_int(g, "tokenizer.ggml.bos_token_id", 0, n_vocab - 1, &bos, &e) &&
              !rkv_gguf_int(g, "tokenizer.ggml.eos_token_id", 0, n_vocab - 1, &eos, &e) &&
              bos != eos,
          "%s", e.text);
    rkv_gguf_close(g);
}

static void check_memory(void)
{
    tiny_options o = tiny_defaults();
    rkv_status s = RKV_E_MEM;
    const uint64_t before = rkv_mem_current();
    for (long k = 1; k < 10000 && s; k++) {
        rkv_mem_fail_after(k);
        s = tiny_write(&o, scratch_path("m.gguf"), NULL);
        rkv_mem_fail_after(0);
        CHECK(!s || rkv_mem_current() == before, "allocation %ld leaks", k);
    }
    CHECK(!s, "never written");
}

int main(void)
{
    if (!scratch_make())
        return check_end("tiny");
    static const char *const family[] = {"llama", "qwen2", "qwen3", "gemma3"};
    check_deterministic();
    check_pieces();
    for (int i = 0; i < 4; i++) {
        check_family(family[i]);
        check_vocab(family[i], "bpe", 600);
        check_vocab(family[i], "spm", 700);
    }
    check_types();
    check_options();
    check_memory();
    static const char *const made[] = {"f.gguf", "t.gguf", "o.gguf", "v.gguf", "m.gguf",
                                       "s-00001-of-00003.gguf", "s-00002-of-00003.gguf",
                                       "s-00003-of-00003.gguf"};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        unlink(scratch_path(made[i]));
    scratch_remove();
    return check_end("tiny");
}
