/* Special tokens: what their texts say about them where the file says nothing, and how they are
 * found in a text. Source of the texts and rules: llama.cpp, src/llama-vocab.cpp. */
#include "config.h"
#include "text/vocab.h"

#include <stdlib.h>

#include "base/mem.h"

/* A role that a key may give to a token, or else the first of these texts that there is. */
typedef struct role {
    const char *key, *old_key;
    int is_end;
    const char *text[9];
} role;

static const role roles[] = {
    /* Every text that llama.cpp knows for the first two is among the ends below. */
    {"tokenizer.ggml.eot_token_id", NULL, 1, {NULL}},
    {"tokenizer.ggml.eom_token_id", NULL, 1, {NULL}},
    {"tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id", 0,
     {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<\uff5cfim\u2581begin\uff5c>", "<PRE>",
      "\u2581<PRE>", "<|code_prefix|>", "<|prefix|>"}},
    {"tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id", 0,
     {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<\uff5cfim\u2581hole\uff5c>", "<SUF>",
      "\u2581<SUF>", "<|code_suffix|>", "<|suffix|>"}},
    {"tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id", 0,
     {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<\uff5cfim\u2581end\uff5c>", "<MID>",
      "\u2581<MID>", "<|code_middle|>", "<|middle|>"}},
    {"tokenizer.ggml.fim_pad_token_id", NULL, 1,
     {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"}},
    {"tokenizer.ggml.fim_rep_token_id", NULL, 1,
     {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}},
    {"tokenizer.ggml.fim_sep_token_id", NULL, 1, {"<|file_sep|>"}},
};

/* Texts that end an answer wherever they occur. */
static const char *const ends[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
    "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]",
    "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>", "[e~[",
};

/* Marks inside of an answer (gpt-oss), which are shown. */
static const char *const shown[] = {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"};

static rkv_piece *piece_of(const rkv_vocab *v, const char *text)
{
    const int32_t id = rkv_vocab_find(v, text, strlen(text));
    return id < 0 ? NULL : &v->piece[id];
}

static int ends_with(const rkv_vocab *v, const char *text)
{
    const rkv_piece *p = piece_of(v, text);
    return p && p->kind & RKV_PIECE_END;
}

static rkv_status load_role(rkv_vocab *v, const role *r, const rkv_gguf *g, rkv_error *e)
{
    int32_t id = -1;
    RKV_TRY(rkv_vocab_get_id(g, r->key, v->n, &id, e));
    if (r->old_key)
        RKV_TRY(rkv_vocab_get_id(g, r->old_key, v->n, &id, e));
    rkv_piece *p = id < 0 ? NULL : &v->piece[id];
    for (int i = 0; !p && r->text[i]; i++)
        if ((p = piece_of(v, r->text[i])))
            p->kind |= RKV_PIECE_CONTROL;       /* converters forget to say so */
    if (p && r->is_end)
        p->kind |= RKV_PIECE_END;
    return RKV_OK;
}

static rkv_status load_ends(rkv_vocab *v, const rkv_gguf *g, rkv_error *e)
{
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        RKV_TRY(load_role(v, &roles[i], g, e));
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        rkv_piece *p = piece_of(v, ends[i]);
        if (p)
            p->kind |= RKV_PIECE_CONTROL | RKV_PIECE_END;
    }
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        rkv_piece *p = piece_of(v, shown[i]);
        if (p)
            p->kind = RKV_PIECE_USER;
    }
    if (v->eos >= 0)
        v->piece[v->eos].kind |= RKV_PIECE_END;

    /* Two families use a text of the list for something else. */
    const int call = ends_with(v, "<|call|>") || ends_with(v, "<|calls|>");
    if (call && ends_with(v, "<|end|>") &&
        (ends_with(v, "<|return|>") || ends_with(v, "<|flush|>")))
        piece_of(v, "<|end|>")->kind = RKV_PIECE_USER;
    if (ends_with(v, "</s>") && (ends_with(v, "<|tool_response>") || ends_with(v, "<|plamo:eos|>")))
        piece_of(v, "</s>")->kind = RKV_PIECE_NORMAL;
    return RKV_OK;
}

/* Whether the value of an optional string key contains word, whatever the case of ASCII letters. */
static int key_contains(const rkv_gguf *g, const char *key, const char *word)
{
    const char *s;
    size_t n;
    const size_t len = strlen(word);
    if (!rkv_gguf_has(g, key) || rkv_gguf_string(g, key, &s, &n, NULL))
        return 0;
    for (size_t i = 0; i + len <= n; i++) {
        size_t j = 0;
        while (j < len &&
               (s[i + j] >= 'A' && s[i + j] <= 'Z' ? s[i + j] + 0x20 : s[i + j]) == word[j])
            j++;
        if (j == len)
            return 1;
    }
    return 0;
}

/* The format has no place for these properties, so they hang on the model's name. */
static void load_strips(rkv_vocab *v, const rkv_gguf *g)
{
    static const char pre[] = "tokenizer.ggml.pre", name[] = "general.name";
    static const char *const unstripped[] = {"<unk>", "<s>", "<|endoftext|>"};
    rkv_piece *mask = NULL;
    if (key_contains(g, pre, "jina-v2-de") || key_contains(g, pre, "jina-v2-es") ||
        key_contains(g, pre, "jina-v2-code"))
        mask = piece_of(v, "<mask>");
    else if (key_contains(g, name, "modern-bert"))
        mask = piece_of(v, "[MASK]");
    if (mask)
        mask->kind |= RKV_PIECE_LSTRIP;
    if (!key_contains(g, name, "phi-3") && !key_contains(g, name, "phi3"))
        return;
    for (int32_t i = 0; i < v->n; i++)
        if (v->piece[i].kind & (RKV_PIECE_CONTROL | RKV_PIECE_USER | RKV_PIECE_UNKNOWN))
            v->piece[i].kind |= RKV_PIECE_RSTRIP;
    for (size_t i = 0; i < sizeof unstripped / sizeof *unstripped; i++) {
        rkv_piece *p = piece_of(v, unstripped[i]);
        if (p)
            p->kind &= ~(uint32_t)RKV_PIECE_RSTRIP;
    }
}

static int compare_special(const void *a, const void *b)
{
    const rkv_special *x = a, *y = b;
    const int c = memcmp(x->text, y->text, x->n < y->n ? x->n : y->n);
    return c ? c : (x->n > y->n) - (x->n < y->n);
}

static int is_special(const rkv_piece *p)
{
    return p->n && p->kind & (RKV_PIECE_CONTROL | RKV_PIECE_USER | RKV_PIECE_UNKNOWN);
}

static rkv_status load_table(rkv_vocab *v, const rkv_gguf *g, rkv_error *e)
{
    uint32_t n = 0;
    for (int32_t i = 0; i < v->n; i++) {
        if (!is_special(&v->piece[i]))
            continue;
        if (v->piece[i].n > RKV_MAX_SPECIAL)
            return rkv_fail(e, RKV_E_FORMAT, "%s: special token #%d has %u bytes, at most %d are "
                            "looked for", rkv_gguf_path(g), i, v->piece[i].n, RKV_MAX_SPECIAL);
        n++;
    }
    v->special = rkv_mem_alloc(n * sizeof *v->special);
    if (!v->special)
        return rkv_fail(e, RKV_E_MEM, "%s: out of memory for the vocabulary", rkv_gguf_path(g));
    for (int32_t i = 0; i < v->n; i++)
        if (is_special(&v->piece[i]))
            v->special[v->n_special++] = (rkv_special){v->piece[i].text, v->piece[i].n, i};
    qsort(v->special, n, sizeof *v->special, compare_special);
    for (uint32_t i = 0; i < n; i++)
        v->first[(unsigned char)v->special[i].text[0] + 1]++;
    for (int c = 0; c < 256; c++)
        v->first[c + 1] += v->first[c];
    return RKV_OK;
}

rkv_status rkv_vocab_load_special(rkv_vocab *v, const rkv_gguf *g, rkv_error *e)
{
    RKV_TRY(load_ends(v, g, e));
    load_strips(v, g);
    return load_table(v, g, e);
}

/* First of special[low, high), which agree in their first at bytes and are longer, whose next byte
 * is not below c. */
static uint32_t bound(const rkv_special *special, uint32_t low, uint32_t high, size_t at, int c)
{
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if ((unsigned char)special[middle].text[at] < c)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest special token that begins at p, of which n >= 1 bytes are there; -1: none. */
static int32_t match(const rkv_vocab *v, const char *p, size_t n, uint32_t excluded)
{
    int32_t found = -1;
    uint32_t low = v->first[(unsigned char)p[0]], high = v->first[(unsigned char)p[0] + 1];
    for (size_t at = 1; low < high; at++) {
        const rkv_special *s = &v->special[low];
        if (s->n == at) {                       /* the shortest sorts first */
            if (!(v->piece[s->id].kind & excluded))
                found = s->id;
            low++;
        }
        if (at == n)
            break;
        const int c = (unsigned char)p[at];
        if (low < high && (unsigned char)v->special[low].text[at] == c &&
            (unsigned char)v->special[high - 1].text[at] == c)
            continue;                           /* they all go on like the text */
        low = bound(v->special, low, high, at, c);
        high = bound(v->special, low, high, at, c + 1);
    }
    return found;
}

int32_t rkv_vocab_next_special(const rkv_vocab *v, const char *text, size_t n, size_t from,
                               int with_control, size_t *begin)
{
    const uint32_t excluded = with_control ? 0 : RKV_PIECE_CONTROL | RKV_PIECE_UNKNOWN;
    for (size_t i = from; i < n && v->n_special; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (v->first[c] == v->first[c + 1])
            continue;
        const int32_t id = match(v, text + i, n - i, excluded);
        if (id >= 0) {
            *begin = i;
            return id;
        }
    }
    *begin = n;
    return -1;
}
