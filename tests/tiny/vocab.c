#include "config.h"
#include "tiny/vocab.h"

#include <stdio.h>
#include <string.h>

enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, BYTE = 6 };        /* token types of the format */

typedef struct control {
    const char *text;
    int type;
} control;

/* What differs between families. Ids count from the first control token. */
typedef struct special {
    const char *tokenizer, *family, *pre;
    control token[6];
    int bos, eos, unknown, padding;     /* -1: the key is absent */
    int add_bos, add_space_prefix;
    const char *chat_template;
} special;

#define CHATML \
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] " \
    "+ '<|im_end|>\n' }}{% endfor %}" \
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
#define LLAMA3 \
    "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m['role'] " \
    "+ '<|end_header_id|>\n\n' + m['content'] | trim + '<|eot_id|>' }}{% endfor %}" \
    "{% if add_generation_prompt %}" \
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
#define PLAIN \
    "{{ bos_token }}{% for m in messages %}{{ '[' + m['role'] + '] ' + m['content'] + '\n' }}" \
    "{% endfor %}{% if add_generation_prompt %}{{ '[assistant] ' }}{% endif %}"
#define GEMMA \
    "{{ bos_token }}{% for m in messages %}{{ '<start_of_turn>' + ('model' if m['role'] == " \
    "'assistant' else m['role']) + '\n' + m['content'] | trim + '<end_of_turn>\n' }}{% endfor %}" \
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"

#define QWEN_TOKENS {{"<|endoftext|>", CONTROL}, {"<|im_start|>", CONTROL}, {"<|im_end|>", CONTROL}}

static const special table[] = {
    {"bpe", "llama", "llama-bpe",
     {{"<|begin_of_text|>", CONTROL}, {"<|end_of_text|>", CONTROL},
      {"<|start_header_id|>", CONTROL}, {"<|end_header_id|>", CONTROL}, {"<|eot_id|>", CONTROL}},
     0, 4, -1, -1, 1, 0, LLAMA3},
    {"bpe", "qwen2", "qwen2", QWEN_TOKENS, 0, 2, -1, 0, 0, 0, CHATML},
    {"bpe", "qwen3", "qwen2", QWEN_TOKENS, 0, 2, -1, 0, 0, 0, CHATML},
    {"bpe", "gemma3", "gpt-2",
     {{"<pad>", CONTROL}, {"<eos>", CONTROL}, {"<bos>", CONTROL}, {"<start_of_turn>", CONTROL},
      {"<end_of_turn>", CONTROL}},
     2, 1, -1, 0, 1, 0, GEMMA},
    {"spm", "gemma3", "default",
     {{"<pad>", CONTROL}, {"<eos>", CONTROL}, {"<bos>", CONTROL}, {"<unk>", UNKNOWN},
      {"<start_of_turn>", CONTROL}, {"<end_of_turn>", CONTROL}},
     2, 1, 3, 0, 1, 0, GEMMA},
    {"spm", NULL, "default", {{"<unk>", UNKNOWN}, {"<s>", CONTROL}, {"</s>", CONTROL}},
     1, 2, 0, -1, 1, 1, PLAIN},
};

typedef struct vocab {
    rkv_text tokens, types, scores, merges;     /* elements of the arrays */
    int n, n_merge;
    const char *space;          /* what stands for a space in front of a word */
} vocab;

/* The first merges; _ is the space. Each side is a letter or the result of an earlier row. */
static const char *const common[][2] = {
    {"_", "t"},  {"h", "e"},  {"_", "a"},  {"i", "n"},  {"_t", "he"}, {"r", "e"},  {"o", "n"},
    {"e", "r"},  {"_", "s"},  {"a", "t"},  {"e", "n"},  {"o", "r"},   {"_", "w"},  {"i", "s"},
    {"i", "t"},  {"_", "o"},  {"o", "u"},  {"a", "n"},  {"e", "s"},   {"_", "c"},  {"in", "g"},
    {"e", "d"},  {"_", "b"},  {"_", "f"},  {"n", "d"},  {"_a", "nd"}, {"_", "m"},  {"_", "p"},
    {"_o", "f"}, {"_", "in"}, {"_t", "o"}, {"_", "h"},  {"l", "l"},   {"l", "e"},  {"a", "r"},
    {"_", "d"},
};
enum { N_COMMON = sizeof common / sizeof *common };

/* The sequence of number i: lengths 2, 3, ..; the first letter may be the space. Its left part is a
 * sequence before it. Returns its length. */
static int sequence(char *out, int64_t i)
{
    int len = 2;
    int64_t count = 27 * 26;
    while (i >= count) {
        i -= count;
        count *= 26;
        len++;
    }
    for (int j = len - 1; j > 0; j--, i /= 26)
        out[j] = (char)('a' + i % 26);
    out[0] = i ? (char)('a' + i - 1) : '_';
    out[len] = 0;
    return len;
}

static int is_common(const char *text)
{
    for (int i = 0; i < N_COMMON; i++) {
        const size_t n = strlen(common[i][0]);
        if (!strncmp(text, common[i][0], n) && !strcmp(text + n, common[i][1]))
            return 1;
    }
    return 0;
}

/* The next piece's left and right part; *at counts from 0. */
static void next_piece(char *left, char *right, int64_t *at)
{
    if (*at < N_COMMON) {
        strcpy(left, common[*at][0]);
        strcpy(right, common[*at][1]);
        ++*at;
        return;
    }
    int len;
    do
        len = sequence(left, (*at)++ - N_COMMON);
    while (is_common(left));
    right[0] = left[len - 1];
    right[1] = 0;
    left[len - 1] = 0;
}

static void add_token(vocab *v, const char *text, size_t n, int type, float score)
{
    gguf_add_string(&v->tokens, text, n);
    gguf_add_u32(&v->types, (uint32_t)type);
    gguf_add_f32(&v->scores, score);
    v->n++;
}

/* text with the space's spelling. */
static void spell(const vocab *v, char *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '_')
            out += strlen(strcpy(out, v->space));
        else
            *out++ = *text;
    }
    *out = 0;
}

/* One token per piece until the vocabulary has n tokens, and its merge. */
static void add_pieces(vocab *v, int n)
{
    for (int64_t at = 0; v->n < n;) {
        char left[16], right[16], a[64], b[64], both[160];
        next_piece(left, right, &at);
        spell(v, a, left);
        spell(v, b, right);
        snprintf(both, sizeof both, "%s%s", a, b);
        add_token(v, both, strlen(both), NORMAL, -(float)v->n_merge);
        snprintf(both, sizeof both, "%s %s", a, b);
        gguf_add_string(&v->merges, both, strlen(both));
        v->n_merge++;
    }
}

static void add_controls(vocab *v, const special *s)
{
    for (size_t i = 0; i < sizeof s->token / sizeof *s->token && s->token[i].text; i++)
        add_token(v, s->token[i].text, strlen(s->token[i].text), s->token[i].type, 0.0f);
}

static int n_control(const special *s)
{
    int n = 0;
    while (n < (int)(sizeof s->token / sizeof *s->token) && s->token[n].text)
        n++;
    return n;
}

/* GPT-2's visible stand-in for a byte: itself in Latin-1 when it is a graphic character there, else
 * one of the letters from U+0100 on, in order of the bytes. */
static void add_byte_letters(vocab *v)
{
    for (int pass = 0; pass < 2; pass++)
        for (int b = 0, other = 256; b < 256; b++) {
            const int graphic = (b > 32 && b < 127) || (b > 160 && b != 173);
            const int c = graphic ? b : other;
            other += !graphic;
            if (graphic == pass)
                continue;
            char utf8[2] = {(char)c};
            if (c >= 128) {
                utf8[0] = (char)(0xc0 | c >> 6);
                utf8[1] = (char)(0x80 | (c & 63));
            }
            add_token(v, utf8, c < 128 ? 1 : 2, NORMAL, 0.0f);
        }
}

static const char *build_bpe(vocab *v, const special *s, int n_vocab, int *first)
{
    *first = n_vocab - n_control(s);
    if (*first < 256)
        return "a bpe vocabulary needs at least 261 tokens";
    v->space = "\xc4\xa0";
    add_byte_letters(v);
    add_pieces(v, *first);
    add_controls(v, s);
    return NULL;
}

static const char *build_spm(vocab *v, const special *s, int n_vocab, int *first)
{
    *first = 0;
    if (n_vocab < n_control(s) + 256 + 27)
        return "an spm vocabulary needs at least 289 tokens";
    v->space = "\xe2\x96\x81";
    add_controls(v, s);
    for (int b = 0; b < 256; b++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", b);
        add_token(v, text, 6, BYTE, 0.0f);
    }
    /* Letters are parts of pieces; the others are cut when the vocabulary is too small. */
    static const char single[] = "_abcdefghijklmnopqrstuvwxyz.,'ETAOINSHRDLU0123456789!?;:-\"()";
    int n_single = (int)sizeof single - 1;
    if (v->n + n_single > n_vocab)
        n_single = n_vocab - v->n;
    add_pieces(v, n_vocab - n_single);
    for (int i = 0; i < n_single; i++) {
        char text[8];
        spell(v, text, (const char[2]){single[i]});
        add_token(v, text, strlen(text), NORMAL, -(float)(v->n_merge + i));
    }
    return NULL;
}

static void id_key(gguf_writer *w, const char *name, int first, int id)
{
    if (id >= 0)
        gguf_key_u32(w, name, (uint32_t)(first + id));
}

static void add_keys(gguf_writer *w, const special *s, const vocab *v, int first)
{
    const int spm = !strcmp(s->tokenizer, "spm");
    const size_t n = (size_t)v->n;
    gguf_key_string(w, "tokenizer.ggml.model", spm ? "llama" : "gpt2");
    gguf_key_string(w, "tokenizer.ggml.pre", s->pre);
    gguf_key_array(w, "tokenizer.ggml.tokens", RKV_GGUF_STRING, n, v->tokens.data, v->tokens.n);
    if (spm)
        gguf_key_array(w, "tokenizer.ggml.scores", RKV_GGUF_F32, n, v->scores.data, v->scores.n);
    gguf_key_array(w, "tokenizer.ggml.token_type", RKV_GGUF_I32, n, v->types.data, v->types.n);
    if (!spm)
        gguf_key_array(w, "tokenizer.ggml.merges", RKV_GGUF_STRING, (uint64_t)v->n_merge,
                       v->merges.data, v->merges.n);
    id_key(w, "tokenizer.ggml.bos_token_id", first, s->bos);
    id_key(w, "tokenizer.ggml.eos_token_id", first, s->eos);
    id_key(w, "tokenizer.ggml.unknown_token_id", first, s->unknown);
    id_key(w, "tokenizer.ggml.padding_token_id", first, s->padding);
    gguf_key_bool(w, "tokenizer.ggml.add_bos_token", s->add_bos);
    if (spm) {
        gguf_key_bool(w, "tokenizer.ggml.add_eos_token", 0);
        gguf_key_bool(w, "tokenizer.ggml.add_space_prefix", s->add_space_prefix);
    }
    gguf_key_string(w, "tokenizer.chat_template", s->chat_template);
}

const char *tiny_vocab(gguf_writer *w, const char *tokenizer, const char *family, int n_vocab)
{
    const special *s = NULL;
    for (size_t i = 0; i < sizeof table / sizeof *table && !s; i++)
        if (!strcmp(table[i].tokenizer, tokenizer) &&
            (!table[i].family || !strcmp(table[i].family, family)))
            s = &table[i];
    if (!s)
        return "no such tokenizer: bpe or spm";
    vocab v = {0};
    int first;
    const char *wrong = !strcmp(tokenizer, "spm") ? build_spm(&v, s, n_vocab, &first)
                                                  : build_bpe(&v, s, n_vocab, &first);
    if (!wrong)
        add_keys(w, s, &v, first);
    if (v.tokens.bad || v.types.bad || v.scores.bad || v.merges.bad)
        wrong = "out of memory";
    rkv_text_free(&v.tokens);
    rkv_text_free(&v.types);
    rkv_text_free(&v.scores);
    rkv_text_free(&v.merges);
    return wrong;
}
