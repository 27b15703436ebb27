#include "config.h"
#include "text/tok_impl.h"

#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "text/unicode.h"

enum {
    MAX_TEXT = 1 << 30,
    MAX_WORD_BITS = 12                  /* 64 KB of words: they stay in the second-level cache */
};

static const uint32_t not_text = RKV_PIECE_CONTROL | RKV_PIECE_UNKNOWN;

static rkv_status load_model(rkv_tok *t, const rkv_gguf *g, rkv_error *e)
{
    const char *name;
    size_t n;
    RKV_TRY(rkv_gguf_string(g, "tokenizer.ggml.model", &name, &n, e));
    t->is_spm = n == 5 && !memcmp(name, "llama", 5);
    if (!t->is_spm && !(n == 4 && !memcmp(name, "gpt2", 4)))
        return rkv_fail(e, RKV_E_UNSUPPORTED,
                        "%s: tokenizer '%.*s' is not supported; 'gpt2' (byte-level BPE) "
                        "and 'llama' (SentencePiece) are",
                        rkv_gguf_path(g), (int)(n < 64 ? n : 64), name);
    RKV_TRY(rkv_vocab_load(&t->vocab, g, t->is_spm, e));
    return t->is_spm ? rkv_spm_load(t, g, e) : rkv_bpe_load(t, g, e);
}

static rkv_status load_flag(const rkv_gguf *g, const char *key, int *flag, rkv_error *e)
{
    return rkv_gguf_has(g, key) ? rkv_gguf_bool(g, key, flag, e) : RKV_OK;
}

rkv_status rkv_tok_create(rkv_tok **out, const rkv_gguf *g, rkv_error *e)
{
    rkv_tok *t = rkv_mem_calloc(1, sizeof *t);
    if (!t)
        return rkv_fail(e, RKV_E_MEM, "%s: out of memory", rkv_gguf_path(g));
    rkv_status s;
    if ((s = load_model(t, g, e)) ||
        (s = load_flag(g, "tokenizer.ggml.add_bos_token", &t->add_bos, e)) ||
        (s = load_flag(g, "tokenizer.ggml.add_eos_token", &t->add_eos, e))) {
        rkv_tok_free(t);
        return s;
    }
    *out = t;
    return RKV_OK;
}

void rkv_tok_free(rkv_tok *t)
{
    if (!t)
        return;
    rkv_vocab_free(&t->vocab);
    rkv_pretok_free(t->bpe.pretok);
    rkv_mem_free(t->bpe.slot);
    rkv_mem_free(t->spm.key);
    rkv_mem_free(t->spm.joins);
    rkv_mem_free(t);
}

int rkv_tok_n_vocab(const rkv_tok *t)
{
    return t->vocab.n;
}

int32_t rkv_tok_bos(const rkv_tok *t)
{
    return t->vocab.bos;
}

int32_t rkv_tok_eos(const rkv_tok *t)
{
    return t->vocab.eos;
}

int rkv_tok_adds_bos(const rkv_tok *t)
{
    return t->add_bos && t->vocab.bos >= 0;
}

int rkv_tok_adds_eos(const rkv_tok *t)
{
    return t->add_eos && t->vocab.eos >= 0;
}

int rkv_tok_is_end(const rkv_tok *t, int32_t id)
{
    return id >= 0 && id < t->vocab.n && t->vocab.piece[id].kind & RKV_PIECE_END;
}

const char *rkv_tok_piece(const rkv_tok *t, int32_t id, size_t *n)
{
    *n = t->vocab.piece[id].n;
    return t->vocab.piece[id].text;
}

/* ---- text to ids ---- */

rkv_status rkv_tok_reserve(rkv_tok_work *w, size_t n, rkv_error *e)
{
    if (w->cap - w->n_id >= n)
        return RKV_OK;
    const size_t cap = w->n_id + n + w->cap / 2;        /* n is bounded by the text: no overflow */
    int32_t *ids = rkv_mem_realloc(w->ids, rkv_mem_product(cap, sizeof *ids));
    if (!ids)
        return rkv_fail(e, RKV_E_MEM, "tokenizer: out of memory for %zu ids", cap);
    w->ids = ids;
    w->cap = cap;
    return RKV_OK;
}

rkv_status rkv_tok_reserve_buffer(rkv_tok_work *w, size_t n, rkv_error *e)
{
    if (w->buffer_cap >= n)
        return RKV_OK;
    rkv_mem_free(w->buffer);
    w->buffer_cap = 0;
    w->buffer = rkv_mem_alloc(n + n / 2);
    if (!w->buffer)
        return rkv_fail(e, RKV_E_MEM, "tokenizer: out of memory for %zu bytes", n);
    w->buffer_cap = n + n / 2;
    return RKV_OK;
}

static int is_space(char c)
{
    return (unsigned char)c < 0x80 && rkv_ascii_class[(unsigned char)c] == RKV_CLASS_SPACE;
}

static rkv_status add_id(rkv_tok_work *w, int32_t id, rkv_error *e)
{
    RKV_TRY(rkv_tok_reserve(w, 1, e));
    w->ids[w->n_id++] = id;
    return RKV_OK;
}

/* Cuts the n bytes of the work's text at special tokens and encodes what lies between. */
static rkv_status encode(const rkv_tok *t, rkv_tok_work *w, size_t n, unsigned flags, rkv_error *e)
{
    const int bos = flags & RKV_TOK_BOS && rkv_tok_adds_bos(t);
    if (bos)
        RKV_TRY(add_id(w, t->vocab.bos, e));
    int after_special = 1;
    for (size_t at = 0; at < n;) {
        size_t begin;
        const int32_t id =
            rkv_vocab_next_special(&t->vocab, w->text, n, at, flags & RKV_TOK_SPECIAL, &begin);
        const rkv_piece *p = id < 0 ? NULL : &t->vocab.piece[id];
        size_t end = begin;
        while (p && p->kind & RKV_PIECE_LSTRIP && end > at && is_space(w->text[end - 1]))
            end--;
        if (end > at) {
            RKV_TRY(t->is_spm ? rkv_spm_encode(t, w, at, end, after_special, e)
                              : rkv_bpe_encode(t, w, at, end, e));
            after_special = 0;
        }
        if (!p)
            break;
        if (bos && id == t->vocab.bos && w->n_id == 1)
            rkv_log(RKV_LOG_WARN, "the text begins with BOS, which is put in front of it anyway");
        RKV_TRY(add_id(w, id, e));
        after_special = 1;
        at = begin + p->n;
        while (p->kind & RKV_PIECE_RSTRIP && at < n && is_space(w->text[at]))
            at++;
    }
    return RKV_OK;
}

rkv_status rkv_tok_encode(const rkv_tok *t, const char *text, size_t n_byte, unsigned flags,
                          int32_t **ids, size_t *n_id, rkv_error *e)
{
    if (n_byte > MAX_TEXT)
        return rkv_fail(e, RKV_E_ARG, "text: %zu bytes, at most %d can be tokenized", n_byte,
                        MAX_TEXT);
    rkv_tok_work w = {.text = text, .word_bits = 4};
    while (w.word_bits < MAX_WORD_BITS && n_byte >> (w.word_bits + 2))
        w.word_bits++;
    rkv_status s = rkv_tok_reserve(&w, n_byte / 3 + 16, e);
    if (!s && !(w.word = rkv_mem_calloc((size_t)1 << w.word_bits, sizeof *w.word)))
        s = rkv_fail(e, RKV_E_MEM, "tokenizer: out of memory");
    if (!s && !t->is_spm)
        s = rkv_pretok_run_create(&w.run, t->bpe.pretok, e);
    if (!s)
        s = encode(t, &w, n_byte, flags, e);
    rkv_pretok_run_free(w.run);
    rkv_merge_free(&w.merge);
    rkv_mem_free(w.word);
    rkv_mem_free(w.buffer);
    if (s) {
        rkv_mem_free(w.ids);
        return s;
    }
    *ids = w.ids;
    *n_id = w.n_id;
    return RKV_OK;
}

/* ---- ids to text ---- */

static void add_byte_level(rkv_text *out, const rkv_piece *p)
{
    for (size_t i = 0; i < p->n;) {
        char bytes[4];
        size_t n;
        i += rkv_bpe_decode_char(p->text + i, p->n - i, bytes, &n);
        rkv_text_add(out, bytes, n);
    }
}

/* The text with U+2581 as spaces. */
static void add_spaced(rkv_text *out, const rkv_piece *p)
{
    size_t from = 0;
    for (size_t i = 0; i + 3 <= p->n;) {
        if (memcmp(p->text + i, "\u2581", 3)) {
            i++;
            continue;
        }
        rkv_text_add(out, p->text + from, i - from);
        rkv_text_add(out, " ", 1);
        from = i += 3;
    }
    rkv_text_add(out, p->text + from, p->n - from);
}

static void add_piece(rkv_text *out, const rkv_tok *t, int32_t id, int with_special)
{
    const rkv_piece *p = &t->vocab.piece[id];
    if (p->kind & not_text && !with_special)
        return;
    if (p->kind & RKV_PIECE_BYTE) {
        const int high = p->text[3] <= '9' ? p->text[3] - '0' : p->text[3] - 'A' + 10;
        const int low = p->text[4] <= '9' ? p->text[4] - '0' : p->text[4] - 'A' + 10;
        const char byte = (char)(high << 4 | low);
        rkv_text_add(out, &byte, 1);
    } else if (p->kind & (not_text | RKV_PIECE_USER)) {
        rkv_text_add(out, p->text, p->n);
    } else if (t->is_spm) {
        add_spaced(out, p);
    } else {
        add_byte_level(out, p);
    }
}

/* Takes back one space at position at, where the first token's text begins. */
static void drop_space(rkv_text *out, size_t at)
{
    if (out->bad || out->n <= at || out->data[at] != ' ')
        return;
    memmove(out->data + at, out->data + at + 1, out->n - at);
    out->n--;
}

rkv_status rkv_tok_decode(const rkv_tok *t, const int32_t *ids, size_t n_id, int with_special,
                          char **text, size_t *n_byte, rkv_error *e)
{
    for (size_t i = 0; i < n_id; i++)
        if (ids[i] < 0 || ids[i] >= t->vocab.n)
            return rkv_fail(e, RKV_E_ARG, "token id #%zu is %d, expected 0 to %d", i, ids[i],
                            t->vocab.n - 1);
    rkv_text out = {0};
    rkv_text_add(&out, "", 0);
    int strip = t->is_spm && t->spm.add_prefix;
    for (size_t i = 0; i < n_id; i++) {
        const size_t at = out.n;
        add_piece(&out, t, ids[i], with_special);
        if (i == 0 && ids[i] == t->vocab.bos)
            continue;
        if (strip)
            drop_space(&out, at);
        strip = 0;
    }
    if (!rkv_text_take(&out, text, n_byte))
        return rkv_fail(e, RKV_E_MEM, "tokenizer: out of memory for the text of %zu ids", n_id);
    return RKV_OK;
}
