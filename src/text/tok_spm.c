/* SentencePiece's BPE: characters are merged as long as some token is their union, the token of the
 * highest score first; what stays a character without a token becomes its bytes.
 * Source: Kudo & Richardson 2018; sentencepiece, bpe_model.cc; llama.cpp, src/llama-vocab.cpp. */
#include "config.h"
#include "text/tok_impl.h"

#include <math.h>

#include "base/mem.h"
#include "base/utf8.h"

static const char space_text[] = "\u2581";
enum { SPACE_BYTES = 3 };

static int is_space_text(const char *p, size_t n)
{
    return n >= SPACE_BYTES && !memcmp(p, space_text, SPACE_BYTES);
}

/* Length of the character at p; a stray byte is one. */
static size_t char_length(const char *p, size_t n)
{
    const size_t len = rkv_utf8_length((const unsigned char *)p, n);
    return len ? len : 1;
}

/* First and last byte of the character of len bytes at p; a space is one, however written. */
static unsigned char first_byte(const char *p, size_t len)
{
    return is_space_text(p, len) ? ' ' : (unsigned char)p[0];
}

static unsigned char last_byte(const char *p, size_t len)
{
    return is_space_text(p, len) ? ' ' : (unsigned char)p[len - 1];
}

/* Notes which characters may stand side by side inside a token. Two that never do are never merged,
 * and the text falls into words there. */
static void note_joins(unsigned char *joins, const rkv_piece *p)
{
    size_t len;
    int last = -1;
    for (size_t i = 0; i < p->n; i += len) {
        len = char_length(p->text + i, p->n - i);
        if (last >= 0)
            joins[last << 8 | first_byte(p->text + i, len)] = 1;
        last = last_byte(p->text + i, len);
    }
}

/* Floats in reverse order as integers below RKV_NO_KEY; not a number is none. */
static uint32_t key_of(float score)
{
    const float f = score + 0.0f;               /* -0 is 0 */
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits & 0x80000000u ? bits : ~(bits | 0x80000000u);
}

static rkv_status load_scores(rkv_tok *t, float *score, const rkv_gguf *g, rkv_error *e)
{
    const size_t n = (size_t)t->vocab.n;
    RKV_TRY(rkv_gguf_floats(g, "tokenizer.ggml.scores", score, n, e));
    for (size_t i = 0; i < n; i++) {
        const rkv_piece *p = &t->vocab.piece[i];
        if (isnan(score[i]))
            return rkv_fail(e, RKV_E_FORMAT, "%s: the score of token #%zu is not a number",
                            rkv_gguf_path(g), i);
        const int mergeable = p->kind & (RKV_PIECE_NORMAL | RKV_PIECE_USER | RKV_PIECE_UNUSED) &&
                              !(p->kind & RKV_PIECE_CONTROL);
        t->spm.key[i] = mergeable ? key_of(score[i]) : RKV_NO_KEY;
        if (mergeable)
            note_joins(t->spm.joins, p);
    }
    return RKV_OK;
}

rkv_status rkv_spm_load(rkv_tok *t, const rkv_gguf *g, rkv_error *e)
{
    static const char prefix_key[] = "tokenizer.ggml.add_space_prefix";
    const size_t n = (size_t)t->vocab.n;
    t->add_bos = 1;
    t->spm.add_prefix = 1;
    if (rkv_gguf_has(g, prefix_key))
        RKV_TRY(rkv_gguf_bool(g, prefix_key, &t->spm.add_prefix, e));
    t->spm.key = rkv_mem_alloc(rkv_mem_product(n, sizeof *t->spm.key));
    t->spm.joins = rkv_mem_calloc(256, 256);
    float *score = rkv_mem_alloc(rkv_mem_product(n, sizeof *score));
    rkv_status s = RKV_OK;
    if (!t->spm.key || !t->spm.joins || !score)
        s = rkv_fail(e, RKV_E_MEM, "%s: out of memory for scores", rkv_gguf_path(g));
    else
        s = load_scores(t, score, g, e);
    rkv_mem_free(score);
    return s;
}

/* A text on its way through the merging loop. */
typedef struct spm_text {
    const rkv_tok *t;
    const char *text;
} spm_text;

/* The token of n bytes that merging may lead to; -1: none. */
static int32_t find_mergeable(const rkv_tok *t, const char *text, size_t n)
{
    const int32_t id = rkv_vocab_find(&t->vocab, text, n);
    return id < 0 || t->spm.key[id] == RKV_NO_KEY ? -1 : id;
}

static int32_t join_text(const void *ctx, int32_t left, int32_t right, uint32_t begin, uint32_t end,
                         uint32_t *key)
{
    const spm_text *s = ctx;
    (void)left;                         /* a character may be no token and yet part of one */
    (void)right;
    const int32_t id = find_mergeable(s->t, s->text + begin, end - begin);
    if (id >= 0)
        *key = s->t->spm.key[id];
    return id;
}

/* Ids of the bytes of a character that has no token. */
static void encode_bytes(const rkv_tok *t, rkv_tok_work *w, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (t->vocab.byte[(unsigned char)p[i]] < 0) {
            if (t->vocab.unknown >= 0)
                w->ids[w->n_id++] = t->vocab.unknown;
            return;
        }
    for (size_t i = 0; i < n; i++)
        w->ids[w->n_id++] = t->vocab.byte[(unsigned char)p[i]];
}

/* Merges the n >= 1 bytes of w->buffer. */
static rkv_status encode_buffer(const rkv_tok *t, rkv_tok_work *w, size_t n, rkv_error *e)
{
    const char *text = w->buffer;
    rkv_merge *m = &w->merge;
    RKV_TRY(rkv_tok_reserve(w, n, e));
    RKV_TRY(rkv_merge_reserve(m, n, e));
    uint32_t prev = RKV_NO_SYMBOL;
    for (uint32_t at = 0, len; at < n; prev = at, at += len) {
        len = (uint32_t)char_length(text + at, n - at);
        rkv_merge_put(m, at, len, prev, at + len == n, find_mergeable(t, text + at, len));
    }
    rkv_merge_run(m, (uint32_t)n, join_text, &(spm_text){t, text});
    for (uint32_t at = 0; at != RKV_NO_SYMBOL; at = m->symbol[at].next) {
        const rkv_symbol *s = &m->symbol[at];
        const uint32_t end = s->next == RKV_NO_SYMBOL ? (uint32_t)n : s->next;
        if (s->id >= 0)
            w->ids[w->n_id++] = s->id;
        else
            encode_bytes(t, w, text + at, end - at);
    }
    return RKV_OK;
}

/* Encodes [at, at + n) of the text with its spaces escaped, with one more in front if prefix. */
static rkv_status encode_word(const rkv_tok *t, rkv_tok_work *w, size_t at, size_t n, int prefix,
                              rkv_error *e)
{
    RKV_TRY(rkv_tok_reserve_buffer(w, SPACE_BYTES * (n + 1), e));
    size_t len = 0;
    if (prefix) {
        memcpy(w->buffer, space_text, SPACE_BYTES);
        len = SPACE_BYTES;
    }
    for (size_t i = at; i < at + n; i++) {
        if (w->text[i] == ' ') {
            memcpy(w->buffer + len, space_text, SPACE_BYTES);
            len += SPACE_BYTES;
        } else {
            w->buffer[len++] = w->text[i];
        }
    }
    return encode_buffer(t, w, len, e);
}

/* End of the word that begins at: the next place where no token goes on. */
static size_t word_end(const rkv_spm *s, const char *text, size_t at, size_t end)
{
    size_t len = char_length(text + at, end - at);
    for (;;) {
        const size_t next = at + len;
        if (next == end)
            return end;
        const int last = last_byte(text + at, len);
        at = next;
        len = char_length(text + at, end - at);
        if (!s->joins[last << 8 | first_byte(text + at, len)])
            return at;
    }
}

rkv_status rkv_spm_encode(const rkv_tok *t, rkv_tok_work *w, size_t begin, size_t end,
                          int after_special, rkv_error *e)
{
    int prefix = t->spm.add_prefix && after_special;
    for (size_t at = begin, next; at < end; at = next, prefix = 0) {
        next = word_end(&t->spm, w->text, at, end);
        int hit = 0;
        rkv_word *word = prefix ? NULL : rkv_tok_word(w, at, next - at, &hit);
        if (hit) {
            RKV_TRY(rkv_tok_repeat(w, word, e));
            continue;
        }
        const size_t first = w->n_id;
        RKV_TRY(encode_word(t, w, at, next - at, prefix, e));
        if (word)
            *word = (rkv_word){(uint32_t)at, (uint32_t)(next - at), (uint32_t)first,
                               (uint32_t)(w->n_id - first)};
    }
    return RKV_OK;
}
