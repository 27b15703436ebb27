/* Vocabularies: special tokens, ends of an answer, decoding, broken files, failing memory. */
#include "config.h"
#include "check.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "rkv.h"
#include "text/vocab.h"
#include "tiny/tokens.h"
#include "tiny/vocab.h"

enum { NORMAL = 1, UNKNOWN, CONTROL, USER, UNUSED, BYTE };
#define COUNT(a) (sizeof(a) / sizeof *(a))

static tiny_tok open_tokens(const char *model, const char *pre, const tiny_token *token, size_t n,
                            const char *merges, const char *name)
{
    gguf_writer w = gguf_writer_init();
    tiny_tok m;
    rkv_error e = {0};
    tiny_tokens(&w, model, pre, token, n, merges);
    if (name)
        gguf_key_string(&w, "general.name", name);
    CHECK(!tiny_tok_open(&m, &w, &e), "%s", e.text);
    return m;
}

/* Encodes a text into the ids that follow, which -1 ends. */
static void check_ids(const tiny_tok *m, unsigned flags, const char *text, ...)
{
    if (!m->tok)
        return;
    int32_t *ids = NULL;
    size_t n = 0, i = 0;
    rkv_error e = {0};
    CHECK(!rkv_tok_encode(m->tok, text, strlen(text), flags, &ids, &n, &e), "%s: %s", text, e.text);
    va_list ap;
    va_start(ap, text);
    int want;
    while ((want = va_arg(ap, int)) >= 0 && i < n && ids[i] == want)
        i++;
    va_end(ap);
    CHECK(want < 0 && i == n, "'%s': id #%zu of %zu is %d, expected %d", text, i, n,
          i < n ? ids[i] : -1, want);
    rkv_mem_free(ids);
}

/* Decodes the ids, which -1 ends. */
static void check_text(const tiny_tok *m, int with_special, const char *want, ...)
{
    if (!m->tok)
        return;
    int32_t ids[16];
    size_t n = 0, n_text = 0;
    va_list ap;
    va_start(ap, want);
    for (int id; (id = va_arg(ap, int)) >= 0;)
        ids[n++] = id;
    va_end(ap);
    char *text = NULL;
    rkv_error e = {0};
    CHECK(!rkv_tok_decode(m->tok, ids, n, with_special, &text, &n_text, &e), "%s", e.text);
    CHECK(text && n_text == strlen(want) && !strcmp(text, want), "'%s', expected '%s'", text, want);
    rkv_mem_free(text);
}

#define GA "\u0120"    /* how GPT-2 writes a space */
#define SP "\u2581"    /* how SentencePiece does */

/* The numbers are ids. */
static const tiny_token bpe_tokens[] = {
    {"a", NORMAL, 0}, {"b", NORMAL, 0}, {"c", NORMAL, 0}, {GA, NORMAL, 0},                  /* 0 */
    {"ab", NORMAL, 0}, {GA "a", NORMAL, 0}, {"abc", NORMAL, 0}, {"bc", NORMAL, 0},          /* 4 */
    {"<x>", CONTROL, 0}, {"<x>y", CONTROL, 0}, {"<user>", USER, 0}, {"<unk>", UNKNOWN, 0},  /* 8 */
    {"1", NORMAL, 0}, {"\u00e9", NORMAL, 0}, {"\uff5c", NORMAL, 0},                         /* 12 */
    {"<|im_end|>", NORMAL, 0}, {"<|end|>", CONTROL, 0}, {"\u00c3\u00a9", NORMAL, 0},        /* 15 */
};

static void check_bpe(void)
{
    tiny_tok m = open_tokens("gpt2", "smollm", bpe_tokens, COUNT(bpe_tokens),
                             "a b\nb c\nab c\n" GA " a", NULL);
    check_ids(&m, 0, "abc", 6, -1);
    check_ids(&m, 0, "bcab", 7, 4, -1);         /* 'a b' comes before 'b c', everywhere */
    check_ids(&m, 0, " a a", 5, 5, -1);
    check_ids(&m, 0, "a11", 0, 12, 12, -1);
    check_ids(&m, 0, "zaz", 0, -1);             /* no token, no id */
    check_ids(&m, 0, "<x>a", 0, -1);            /* a control token's text is only text */
    check_ids(&m, RKV_TOK_SPECIAL, "a<x>b<x>y<user><unk>", 0, 8, 1, 9, 10, 11, -1);
    check_ids(&m, 0, "a<user>b", 0, 10, 1, -1); /* a user-defined one always counts */
    check_ids(&m, RKV_TOK_SPECIAL, "<x<x>", 8, -1);
    check_ids(&m, RKV_TOK_BOS, "a", 0, -1);     /* the file names no BOS */
    check_ids(&m, RKV_TOK_SPECIAL, "a<|im_end|>", 0, 15, -1);   /* of normal type, but an end */
    check_text(&m, 0, "abc a\xe9", 6, 8, 5, 11, 13, -1);
    check_text(&m, 1, "abc<x> a<unk><user>", 6, 8, 5, 11, 10, -1);
    check_text(&m, 0, "\xef\xbd\x9c\xc3\xa9", 14, 17, -1);      /* 14 stands for no byte: itself */
    CHECK(m.tok && rkv_tok_bos(m.tok) == -1 && rkv_tok_eos(m.tok) == -1 && !rkv_tok_adds_bos(m.tok),
          "ids");
    CHECK(m.tok && rkv_tok_is_end(m.tok, 15) && rkv_tok_is_end(m.tok, 16) &&
              !rkv_tok_is_end(m.tok, 8) && !rkv_tok_is_end(m.tok, -1) && !rkv_tok_is_end(m.tok, 99),
          "ends");
    char *text = NULL;
    rkv_error e = {0};
    CHECK(rkv_tok_decode(m.tok, (int32_t[]){0, 18}, 2, 0, &text, NULL, &e) == RKV_E_ARG &&
          strstr(e.text, "#1 is 18, expected 0 to 17"), "%s", e.text);
    int32_t *ids;
    size_t n;
    CHECK(rkv_tok_encode(m.tok, "", ((size_t)1 << 30) + 1, 0, &ids, &n, &e) == RKV_E_ARG, "%s",
          e.text);
    CHECK(!rkv_tok_decode(m.tok, NULL, 0, 0, &text, NULL, &e) && !strcmp(text, ""), "%s", e.text);
    rkv_mem_free(text);
    tiny_tok_close(&m);

    /* Whole words first: "abc" cannot be reached by merges here. */
    m = open_tokens("gpt2", "llama-bpe", bpe_tokens, COUNT(bpe_tokens), "b c", NULL);
    check_ids(&m, 0, "abc abc", 6, 3, 0, 7, -1);
    tiny_tok_close(&m);
    m = open_tokens("gpt2", "qwen2", bpe_tokens, COUNT(bpe_tokens), "b c", NULL);
    check_ids(&m, 0, "abc", 0, 7, -1);
    tiny_tok_close(&m);
}

static const tiny_token spm_tokens[] = {
    {"<unk>", UNKNOWN, 0}, {"<s>", CONTROL, 0}, {"</s>", CONTROL, 0}, {SP, NORMAL, -3},     /* 0 */
    {"a", NORMAL, -4}, {"b", NORMAL, -5}, {SP "a", NORMAL, -2}, {"ab", NORMAL, -1},         /* 4 */
    {SP SP, NORMAL, -9}, {"<0xC3>", BYTE, 0}, {"<0xA9>", BYTE, 0}, {"<u>", USER, 0},        /* 8 */
    {"<0x0A>", BYTE, 0}, {"s>", NORMAL, -20}, {"<", NORMAL, -20}, {"s", NORMAL, -20},       /* 12 */
    {">", NORMAL, -20}, {"a\u00e9", NORMAL, -30},                                           /* 16 */
};

static void check_spm(void)
{
    tiny_tok m = open_tokens("llama", "default", spm_tokens, COUNT(spm_tokens), NULL, NULL);
    check_ids(&m, RKV_TOK_BOS, "ab", 1, 3, 7, -1); /* the highest score first: ab, not _a */
    check_ids(&m, 0, "a", 6, -1);
    check_ids(&m, 0, "", -1);
    check_ids(&m, RKV_TOK_BOS, "", 1, -1);
    check_ids(&m, 0, "  a", 8, 6, -1);
    check_ids(&m, 0, "b\u00e9\n", 3, 5, 9, 10, 12, -1);     /* no token but bytes */
    check_ids(&m, 0, "ba\u00e9", 3, 5, 17, -1);     /* but one for it and its neighbour */
    check_ids(&m, 0, "b\xc3\xc3", 3, 5, 9, 9, -1);
    check_ids(&m, 0, "bz", 3, 5, 0, -1);                        /* no bytes either */
    check_ids(&m, 0, "a<u>a", 6, 11, 6, -1); /* the prefix comes back after a special */
    check_ids(&m, 0, "<s>", 3, 14, 13, -1);  /* text never becomes a control token */
    check_ids(&m, RKV_TOK_SPECIAL, "<s>a</s>", 1, 6, 2, -1);
    check_text(&m, 0, "a a", 6, 6, -1);
    check_text(&m, 0, "a", 1, 6, 2, -1);
    check_text(&m, 1, "<s>a</s>", 1, 6, 2, -1);
    check_text(&m, 0, " a", 8, 4, -1);
    check_text(&m, 0, "b\xc3\xa9\n", 3, 5, 9, 10, 12, -1);
    check_text(&m, 0, "a a", 4, 6, -1);
    CHECK(m.tok && rkv_tok_bos(m.tok) == 1 && rkv_tok_eos(m.tok) == 2 && rkv_tok_adds_bos(m.tok) &&
          !rkv_tok_adds_eos(m.tok) && rkv_tok_is_end(m.tok, 2), "defaults");
    tiny_tok_close(&m);

    gguf_writer w = gguf_writer_init();
    rkv_error e = {0};
    tiny_tokens(&w, "llama", NULL, spm_tokens, COUNT(spm_tokens), NULL);
    gguf_key_bool(&w, "tokenizer.ggml.add_space_prefix", 0);
    gguf_key_bool(&w, "tokenizer.ggml.add_bos_token", 0);
    gguf_key_bool(&w, "tokenizer.ggml.add_eos_token", 1);
    gguf_key_u32(&w, "tokenizer.ggml.bos_token_id", UINT32_MAX);
    gguf_key_u32(&w, "tokenizer.ggml.eot_token_id", 11);
    CHECK(!tiny_tok_open(&m, &w, &e), "%s", e.text);
    check_ids(&m, RKV_TOK_BOS, "a a", 4, 6, -1);
    check_text(&m, 0, " a", 6, -1);
    CHECK(m.tok && rkv_tok_bos(m.tok) == -1 && !rkv_tok_adds_bos(m.tok) &&
              rkv_tok_adds_eos(m.tok) && rkv_tok_is_end(m.tok, 11),
          "keys");
    tiny_tok_close(&m);
}

/* What the texts and the model's name say where the format says nothing. */
static void check_implied(void)
{
    static const tiny_token phi[] = {
        {"<unk>", UNKNOWN, 0}, {"<s>", CONTROL, 0},      {"</s>", CONTROL, 0},    {SP, NORMAL, 0},
        {"a", NORMAL, 0},      {"<|user|>", CONTROL, 0}, {"<|end|>", CONTROL, 0},
    };
    tiny_tok m = open_tokens("llama", NULL, phi, COUNT(phi), NULL, "My Phi-3 model");
    check_ids(&m, RKV_TOK_SPECIAL, "<|user|> \n\ta<s> a", 5, 3, 4, 1, 3, 3, 4, -1);
    tiny_tok_close(&m);
    m = open_tokens("llama", NULL, phi, COUNT(phi), NULL, NULL);
    check_ids(&m, RKV_TOK_SPECIAL, "<|user|> a", 5, 3, 3, 4, -1);
    tiny_tok_close(&m);

    static const tiny_token harmony[] = {{"a", NORMAL, 0}, {"<|return|>", CONTROL, 0},
                                         {"<|call|>", CONTROL, 0}, {"<|end|>", CONTROL, 0},
                                         {"<|channel|>", CONTROL, 0}, {"<mask>", CONTROL, 0}};
    m = open_tokens("gpt2", "jina-v2-code", harmony, COUNT(harmony), "", NULL);
    check_text(&m, 0, "a<|end|><|channel|>", 0, 1, 3, 4, -1);
    check_ids(&m, RKV_TOK_SPECIAL, "a \n<mask>a", 0, 5, 0, -1);
    CHECK(m.tok && rkv_tok_is_end(m.tok, 1) && rkv_tok_is_end(m.tok, 2) &&
              !rkv_tok_is_end(m.tok, 3),
          "ends");
    tiny_tok_close(&m);

    static const tiny_token fim[] = {
        {"a", NORMAL, 0}, {"<PRE>", USER, 0}, {"<|file_sep|>", NORMAL, 0}, {"</s>", NORMAL, 0},
        {"<|tool_response>", NORMAL, 0},
    };
    m = open_tokens("gpt2", "gpt-2", fim, COUNT(fim), "", NULL);
    check_text(&m, 0, "a</s>", 0, 1, 2, 3, 4, -1);
    CHECK(m.tok && rkv_tok_is_end(m.tok, 2) && !rkv_tok_is_end(m.tok, 3) &&
              !rkv_tok_is_end(m.tok, 1),
          "ends");
    tiny_tok_close(&m);
}

/* ---- broken vocabularies ---- */

static void check_refused(gguf_writer *w, rkv_status status, const char *expected)
{
    tiny_tok m;
    rkv_error e = {0};
    const rkv_status s = tiny_tok_open(&m, w, &e);
    CHECK(s == status && e.status == status && strstr(e.text, expected) &&
              !strncmp(e.text, "x.gguf: ", 8),
          "%s: '%s', expected '%s'", rkv_status_name(s), e.text, expected);
    tiny_tok_close(&m);
}

static const tiny_token three[] = {{"a", NORMAL, 0}, {"b", NORMAL, 0}, {"ab", NORMAL, 0}};

/* Tokens that are wrong in one way. */
static void refuse_tokens(const char *model, const tiny_token *token, size_t n, const char *merges,
                          const char *expected)
{
    gguf_writer w = gguf_writer_init();
    tiny_tokens(&w, model, "gpt-2", token, n, merges);
    check_refused(&w, RKV_E_FORMAT, expected);
}

static void check_bad_tokens(void)
{
    refuse_tokens("gpt2", NULL, 0, "", "0 tokens, expected 1");
    refuse_tokens("gpt2", (tiny_token[]){{"a", 1, 0}, {"b", 1, 0}, {"a", 3, 0}}, 3, "",
                  "tokens #0 and #2 have the same text");
    refuse_tokens("gpt2", (tiny_token[]){{"a", 1, 0}, {"b\xc3", 1, 0}}, 2, "",
                  "token #1 has byte 0xc3 at 1, expected UTF-8");
    refuse_tokens("gpt2", (tiny_token[]){{"a", 7, 0}}, 1, "", "token #0 is of type 7");
    refuse_tokens("gpt2", (tiny_token[]){{"a", -1, 0}}, 1, "", "token #0 is of type -1");
    static const char *const bytes[] = {"<0x-1>", "<0xZZ>", "<0x100>", "<0x1>",
                                        "<0xab>", "0x0A",   ""};
    for (size_t i = 0; i < COUNT(bytes); i++)
        refuse_tokens("llama", (tiny_token[]){{"a", 1, 0}, {bytes[i], 6, 0}}, 2, NULL,
                      "token #1 stands for a byte");
    refuse_tokens("llama", (tiny_token[]){{"a", 1, NAN}}, 1, NULL,
                  "the score of token #0 is not a number");
    char *huge = malloc((1 << 20) + 1);
    memset(huge, 'x', 1 << 20);
    huge[1 << 20] = 0;
    refuse_tokens("gpt2", (tiny_token[]){{huge, 1, 0}}, 1, "", "token #0 has 1048576 bytes");
    huge[RKV_MAX_SPECIAL + 1] = 0;
    for (int type = 2; type <= 4; type++)       /* unknown, control, user-defined */
        refuse_tokens("gpt2", (tiny_token[]){{"a", 1, 0}, {huge, type, 0}}, 2, "",
                      "special token #1 has 513 bytes, at most 512");
    free(huge);
    refuse_tokens("gpt2", three, 3, NULL, "key 'tokenizer.ggml.merges' is missing");
    refuse_tokens("gpt2", three, 3, "a b\nab", "merge #1 is not two parts");
    refuse_tokens("gpt2", three, 3, "a b\na ", "merge #1 is not two parts");
    refuse_tokens("gpt2", three, 3, "x b", "merge #0: its left part is not in the vocabulary");
    refuse_tokens("gpt2", three, 3, "a x", "merge #0: its right part is not in the vocabulary");
    refuse_tokens("gpt2", three, 3, "b a", "merge #0: what it makes is not in the vocabulary");
    refuse_tokens("gpt2", three, 3, "a b c", "merge #0: its right part");
}

static void check_bad_keys(void)
{
    static const struct { const char *key; uint32_t value; const char *expected; } id[] = {
        {"tokenizer.ggml.bos_token_id", 3, "3, expected 0 to 2"},
        {"tokenizer.ggml.eos_token_id", 0x80000000u, "expected 0 to 2"},
        {"tokenizer.ggml.unknown_token_id", 4, "expected 0 to 2"},
        {"tokenizer.ggml.eot_token_id", 5, "expected 0 to 2"},
        {"tokenizer.ggml.add_bos_token", 1, "type uint32, expected bool"},
    };
    for (size_t i = 0; i < COUNT(id); i++) {
        gguf_writer w = gguf_writer_init();
        tiny_tokens(&w, "gpt2", "gpt-2", three, 3, "");
        gguf_key_u32(&w, id[i].key, id[i].value);
        check_refused(&w, RKV_E_FORMAT, id[i].expected);
    }
    gguf_writer w = gguf_writer_init();
    tiny_tokens(&w, "bert", NULL, three, 3, NULL);
    check_refused(&w, RKV_E_UNSUPPORTED, "tokenizer 'bert' is not supported");
    w = gguf_writer_init();
    tiny_tokens(&w, "gpt2", "kimi-k2", three, 3, "");
    check_refused(&w, RKV_E_UNSUPPORTED, "pre-tokenizer 'kimi-k2' is not supported");
    w = gguf_writer_init();
    check_refused(&w, RKV_E_FORMAT, "key 'tokenizer.ggml.model' is missing");
    w = gguf_writer_init();
    gguf_key_u32(&w, "tokenizer.ggml.model", 1);
    check_refused(&w, RKV_E_FORMAT, "expected string");
}

/* Arrays of another element type or length than the tokens have. */
static void check_bad_arrays(void)
{
    static const struct {
        const char *key;
        uint32_t type;
        uint64_t n;
        size_t bytes;
        const char *expected;
    } row[] = {
        {"tokenizer.ggml.scores", RKV_GGUF_U8, 3, 3, "array of uint8, expected array of floats"},
        {"tokenizer.ggml.scores", RKV_GGUF_F32, 2, 8, "2 elements, expected 3"},
        {"tokenizer.ggml.scores", RKV_GGUF_F32, 4, 16, "4 elements, expected 3"},
        {"tokenizer.ggml.token_type", RKV_GGUF_F32, 3, 12,
         "array of float32, expected array of integers"},
        {"tokenizer.ggml.token_type", RKV_GGUF_I32, 2, 8, "2 elements, expected 3"},
        {"tokenizer.ggml.merges", RKV_GGUF_U8, 3, 3, "array of uint8, expected array of string"},
    };
    static const char zeros[64];
    const char *const tokens[] = {"a", "b", "ab"};
    for (size_t i = 0; i < COUNT(row); i++) {
        gguf_writer w = gguf_writer_init();
        gguf_key_string(&w, "tokenizer.ggml.model", i < 3 ? "llama" : "gpt2");
        gguf_key_string(&w, "tokenizer.ggml.pre", "gpt-2");
        gguf_key_strings(&w, "tokenizer.ggml.tokens", tokens, 3);
        gguf_key_array(&w, row[i].key, row[i].type, row[i].n, zeros, row[i].bytes);
        check_refused(&w, RKV_E_FORMAT, row[i].expected);
    }
    gguf_writer w = gguf_writer_init();
    gguf_key_string(&w, "tokenizer.ggml.model", "llama");
    gguf_key_array(&w, "tokenizer.ggml.tokens", RKV_GGUF_U32, 3, zeros, 12);
    check_refused(&w, RKV_E_FORMAT, "expected array of string");
    w = gguf_writer_init();
    gguf_key_string(&w, "tokenizer.ggml.model", "llama");
    gguf_key_strings(&w, "tokenizer.ggml.tokens", tokens, 3);
    check_refused(&w, RKV_E_FORMAT, "key 'tokenizer.ggml.scores' is missing");
}

/* Odd, but with a meaning. */
static void check_odd(void)
{
    static const tiny_token holes[] = {{"a", NORMAL, 0}, {"", NORMAL, 0}, {"", USER, 0},
                                       {"", CONTROL, 0}, {"b", 0, 0},     {" ", NORMAL, 0},
                                       {GA, NORMAL, 0}};
    tiny_tok m = open_tokens("gpt2", "gpt-2", holes, COUNT(holes), "", NULL);
    check_ids(&m, RKV_TOK_SPECIAL, "ab a", 0, 4, 6, 0, -1);
    check_text(&m, 1, "ab  ", 0, 1, 2, 3, 4, 5, 6, -1);
    tiny_tok_close(&m);
    m = open_tokens("gpt2", "gpt-2", three, 3, "a b\na b", NULL);
    check_ids(&m, 0, "abab", 2, 2, -1);          /* of equal merges the first counts */
    tiny_tok_close(&m);
    /* No types: everything is normal, but for what looks like a byte. */
    gguf_writer w = gguf_writer_init();
    const char *const tokens[] = {"a", "<0x0A>", SP};
    rkv_error e = {0};
    gguf_key_string(&w, "tokenizer.ggml.model", "llama");
    gguf_key_strings(&w, "tokenizer.ggml.tokens", tokens, 3);
    static const char infinities[] = "\0\0\x80\xff\0\0\x80\x7f\0\0\0\0";
    gguf_key_array(&w, "tokenizer.ggml.scores", RKV_GGUF_F32, 3, infinities, 12);
    CHECK(!tiny_tok_open(&m, &w, &e), "%s", e.text);
    check_ids(&m, 0, "a\na", 2, 0, 1, 0, -1);
    check_text(&m, 0, "a\n", 2, 0, 1, -1);
    tiny_tok_close(&m);
}

/* ---- failing memory ---- */

static rkv_status create_and_use(const rkv_gguf *g, const char *text, rkv_error *e)
{
    rkv_tok *t = NULL;
    int32_t *ids = NULL;
    char *back = NULL;
    size_t n, n_back;
    rkv_status s = rkv_tok_create(&t, g, e);
    if (!s)
        s = rkv_tok_encode(t, text, strlen(text), RKV_TOK_BOS | RKV_TOK_SPECIAL, &ids, &n, e);
    if (!s)
        s = rkv_tok_decode(t, ids, n, 0, &back, &n_back, e);
    rkv_mem_free(ids);
    rkv_mem_free(back);
    rkv_tok_free(t);
    return s;
}

static void check_failing(gguf_writer *w, const char *what)
{
    char text[600] = "the and\n<|im_end|> \xff 123 ";
    memset(text + strlen(text), 't', sizeof text - 1 - strlen(text));
    tiny_tok m;
    rkv_error e = {0};
    rkv_status s = tiny_tok_open(&m, w, &e);
    if (s == RKV_E_UNSUPPORTED) {
        SKIP(1, "%s", e.text);
        return;
    }
    CHECK(!s, "%s", e.text);
    const uint64_t before = rkv_mem_current();
    long k = 0;
    do {
        e = (rkv_error){0};
        rkv_mem_fail_after(++k);
        s = create_and_use(m.gguf, text, &e);
        rkv_mem_fail_after(0);
        CHECK(s == RKV_OK || (s == RKV_E_MEM && e.status == s && e.text[0]),
              "%s, allocation %ld: %s", what, k, e.text);
        CHECK(rkv_mem_current() == before, "%s, allocation %ld: memory is lost", what, k);
    } while (s == RKV_E_MEM && k < 1000);
    CHECK(s == RKV_OK && k > 5, "%s: %ld allocations", what, k);
    tiny_tok_close(&m);
}

/* Tensors of unknown types have shapes that no bytes bound: their elements are not added up. */
static void check_unknown_tensors(void)
{
    gguf_writer w = gguf_writer_init();
    const uint64_t dims[] = {UINT64_C(1) << 62};
    char path[] = "/tmp/rkv-made-XXXXXX";
    rkv_model *m = NULL;
    rkv_error e = {0};
    tiny_vocab(&w, "bpe", "llama", 600);
    gguf_tensor(&w, "a", 999, 1, dims, 32);
    gguf_tensor(&w, "b", 999, 1, dims, 32);
    const int fd = mkstemp(path);
    CHECK(fd >= 0 && gguf_save(&w, path), "%s", path);
    CHECK(!rkv_model_load_vocab(&m, path, &e), "%s", e.text);
    if (m)
        CHECK(rkv_model_get_info(m)->n_param == 0, "%lld parameters",
              (long long)rkv_model_get_info(m)->n_param);
    rkv_model_free(m);
    close(fd);
    unlink(path);
    gguf_writer_free(&w);
}

int main(void)
{
    check_unknown_tensors();
    check_bpe();
    check_spm();
    check_implied();
    check_bad_tokens();
    check_bad_keys();
    check_bad_arrays();
    check_odd();
    static const char *const made[][2] = {{"bpe", "llama"}, {"bpe", "qwen2"}, {"spm", "llama"}};
    for (size_t i = 0; i < COUNT(made); i++) {
        gguf_writer w = gguf_writer_init();
        CHECK(!tiny_vocab(&w, made[i][0], made[i][1], 400), "%s", made[i][1]);
        check_failing(&w, made[i][1]);
    }
    gguf_writer w = gguf_writer_init();
    tiny_tokens(&w, "gpt2", "deepseek-llm", three, 3, "a b");
    check_failing(&w, "deepseek-llm");
    return check_end("vocab");
}
