/* Byte-level BPE. The vocabulary writes each byte as a character that can be seen: printable
 * Latin-1 stands for itself, the other 68 bytes are U+0100 and up in order.
 * Source: Radford et al. 2019 (GPT-2), bytes_to_unicode of its encoder.py. */
#include "config.h"
#include "text/tok_impl.h"

#include <stdio.h>

#include "base/mem.h"
#include "text/unicode.h"

enum { MAX_MERGE = 1 << 22, N_SHIFTED = 68 };

static const char merges_key[] = "tokenizer.ggml.merges";

static int is_printable(int byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
}

/* The character that stands for a byte: UTF-8 in out, its length. */
static size_t encode_byte(int byte, char out[2])
{
    int c = byte;
    if (!is_printable(byte)) {
        c = 0x100;
        for (int b = 0; b < byte; b++)
            c += !is_printable(b);
    }
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    out[0] = (char)(0xc0 | c >> 6);
    out[1] = (char)(0x80 | (c & 0x3f));
    return 2;
}

/* Byte n of those that are not printable. */
static int shifted_byte(int n)
{
    return n < 0x21 ? n : n < 0x21 + 0x22 ? n - 0x21 + 0x7f : 0xad;
}

size_t rkv_bpe_decode_char(const char *p, size_t n, char out[4], size_t *n_out)
{
    const unsigned char c = (unsigned char)*p;
    size_t len = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;       /* texts are well-formed */
    if (len > n)
        len = n;
    const int code = len == 2 ? (int)rkv_utf8_decode((const unsigned char *)p, 2) : 0;
    *n_out = 1;
    if (code >= 0x100 && code < 0x100 + N_SHIFTED) {
        out[0] = (char)shifted_byte(code - 0x100);
    } else if (code && code < 0x100 && is_printable(code)) {
        out[0] = (char)code;
    } else {                                    /* not of the alphabet, or ASCII: itself */
        memcpy(out, p, len);
        *n_out = len;
    }
    return len;
}

static uint32_t pair_index(const rkv_bpe *b, uint64_t pair)
{
    return (uint32_t)((pair * UINT64_C(0x9E3779B97F4A7C15)) >> (64 - b->bits));
}

/* The slot of a pair, or the empty one where it would be. */
static rkv_pair_slot *find_pair(const rkv_bpe *b, uint64_t pair, int *probes)
{
    const uint32_t mask = ((uint32_t)1 << b->bits) - 1;
    uint32_t i = pair_index(b, pair);
    *probes = 0;
    while (b->slot[i].id >= 0 && b->slot[i].pair != pair) {
        i = (i + 1) & mask;
        ++*probes;
    }
    return &b->slot[i];
}

static int32_t join_pair(const void *ctx, int32_t left, int32_t right, uint32_t begin, uint32_t end,
                         uint32_t *key)
{
    (void)begin;
    (void)end;
    if (left < 0 || right < 0)
        return -1;
    int probes;
    const rkv_pair_slot *s = find_pair(ctx, (uint64_t)left << 32 | (uint32_t)right, &probes);
    *key = s->rank;
    return s->id;
}

/* Enters merge number rank, "left right". A part that is no token could never come about. */
static rkv_status enter_merge(rkv_tok *t, const rkv_gguf *g, uint32_t rank, char *joined,
                              rkv_error *e)
{
    size_t n;
    const char *line = rkv_gguf_strings_at(g, merges_key, rank, &n);
    const char *space = n > 2 ? memchr(line + 1, ' ', n - 2) : NULL;
    if (!space)
        return rkv_fail(e, RKV_E_FORMAT, "%s: merge #%u is not two parts with a space between",
                        rkv_gguf_path(g), rank);
    const size_t n_left = (size_t)(space - line), n_right = n - n_left - 1;
    const int32_t left = rkv_vocab_find(&t->vocab, line, n_left);
    const int32_t right = rkv_vocab_find(&t->vocab, space + 1, n_right);
    int32_t id = -1;
    if (left >= 0 && right >= 0) {      /* so each is at most as long as the longest token */
        memcpy(joined, line, n_left);
        memcpy(joined + n_left, space + 1, n_right);
        id = rkv_vocab_find(&t->vocab, joined, n_left + n_right);
    }
    if (id < 0)
        return rkv_fail(e, RKV_E_FORMAT, "%s: merge #%u: %s is not in the vocabulary",
                        rkv_gguf_path(g), rank, left < 0 ? "its left part" : right < 0 ?
                        "its right part" : "what it makes");
    int probes;
    const uint64_t pair = (uint64_t)left << 32 | (uint32_t)right;
    rkv_pair_slot *s = find_pair(&t->bpe, pair, &probes);
    if (probes >= RKV_MAX_PROBE)
        return rkv_fail(e, RKV_E_FORMAT, "%s: merge #%u collides with %d others", rkv_gguf_path(g),
                        rank, probes);
    if (s->id < 0)                              /* of equal lines the first counts */
        *s = (rkv_pair_slot){pair, rank, id};
    return RKV_OK;
}

static rkv_status load_merges(rkv_tok *t, const rkv_gguf *g, rkv_error *e)
{
    size_t n;
    RKV_TRY(rkv_gguf_strings(g, merges_key, &n, e));
    if (n > MAX_MERGE)
        return rkv_fail(e, RKV_E_FORMAT, "%s: %zu merges, at most %d are read", rkv_gguf_path(g), n,
                        MAX_MERGE);
    t->bpe.bits = 4;
    while ((size_t)1 << t->bpe.bits < n + n / 2)
        t->bpe.bits++;
    const size_t bytes = ((size_t)1 << t->bpe.bits) * sizeof *t->bpe.slot;
    t->bpe.slot = rkv_mem_alloc(bytes);
    char *joined = rkv_mem_alloc(2 * (size_t)t->vocab.longest);
    rkv_status s = RKV_OK;
    if (!t->bpe.slot || !joined) {
        s = rkv_fail(e, RKV_E_MEM, "%s: out of memory for %zu merges", rkv_gguf_path(g), n);
    } else {
        memset(t->bpe.slot, 0xff, bytes);
        for (size_t i = 0; i < n && !s; i++)
            s = enter_merge(t, g, (uint32_t)i, joined, e);
    }
    rkv_mem_free(joined);
    return s;
}

static rkv_status load_pretok(rkv_tok *t, const rkv_gguf *g, rkv_error *e)
{
    static const char key[] = "tokenizer.ggml.pre";
    const char *name = "default";
    size_t n = strlen(name);
    if (rkv_gguf_has(g, key))
        RKV_TRY(rkv_gguf_string(g, key, &name, &n, e));
    else
        rkv_log(RKV_LOG_WARN, "%s: key '%s' is missing: words are cut as in old files, which may "
                "not be how the model learned them", rkv_gguf_path(g), key);
    const rkv_pretok_desc *d = rkv_pretok_find(name, n);
    if (!d)
        return rkv_fail(e, RKV_E_UNSUPPORTED, "%s: pre-tokenizer '%.*s' is not supported",
                        rkv_gguf_path(g), (int)(n < 64 ? n : 64), name);
    t->bpe.whole_words = (d->flags & RKV_PRETOK_WHOLE) != 0;
    t->add_bos = (d->flags & RKV_PRETOK_BOS) != 0;
    char what[240];
    snprintf(what, sizeof what, "%.150s: pre-tokenizer '%.*s'", rkv_gguf_path(g),
             (int)(n < 64 ? n : 64), name);
    return rkv_pretok_create(&t->bpe.pretok, d, 0, what, e);
}

rkv_status rkv_bpe_load(rkv_tok *t, const rkv_gguf *g, rkv_error *e)
{
    for (int i = 0; i < 256; i++) {
        const size_t n = encode_byte(i, t->bpe.text[i]);
        t->bpe.text_bytes[i] = (unsigned char)n;
        t->bpe.byte[i] = rkv_vocab_find(&t->vocab, t->bpe.text[i], n);
    }
    RKV_TRY(load_pretok(t, g, e));
    return load_merges(t, g, e);
}

/* The token that is the whole word; -1: there is none. */
static int32_t find_whole(const rkv_tok *t, rkv_tok_work *w, const unsigned char *word, size_t n)
{
    if (n > t->vocab.longest)
        return -1;
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        memcpy(w->buffer + len, t->bpe.text[word[i]], 2);
        len += t->bpe.text_bytes[word[i]];
    }
    const int32_t id = rkv_vocab_find(&t->vocab, w->buffer, len);
    return id < 0 || t->vocab.piece[id].kind & RKV_PIECE_CONTROL ? -1 : id;
}

static rkv_status encode_word(const rkv_tok *t, rkv_tok_work *w, size_t at, size_t n, rkv_error *e)
{
    const unsigned char *word = (const unsigned char *)w->text + at;
    RKV_TRY(rkv_tok_reserve(w, n, e));
    int32_t id = -1;
    if (t->bpe.whole_words)
        id = find_whole(t, w, word, n);
    else if (n == 1)
        id = t->bpe.byte[word[0]];
    if (id >= 0) {
        w->ids[w->n_id++] = id;
        return RKV_OK;
    }
    rkv_merge *m = &w->merge;
    RKV_TRY(rkv_merge_reserve(m, n, e));
    for (uint32_t i = 0; i < n; i++)
        rkv_merge_put(m, i, 1, i ? i - 1 : RKV_NO_SYMBOL, i + 1 == n, t->bpe.byte[word[i]]);
    rkv_merge_run(m, (uint32_t)n, join_pair, &t->bpe);
    for (uint32_t i = 0; i != RKV_NO_SYMBOL; i = m->symbol[i].next)
        if (m->symbol[i].id >= 0)               /* some vocabularies lack bytes that no text has */
            w->ids[w->n_id++] = m->symbol[i].id;
    return RKV_OK;
}

rkv_status rkv_bpe_encode(const rkv_tok *t, rkv_tok_work *w, size_t begin, size_t end, rkv_error *e)
{
    if (t->bpe.whole_words)
        RKV_TRY(rkv_tok_reserve_buffer(w, 2 * (size_t)t->vocab.longest, e));
    RKV_TRY(rkv_pretok_start(w->run, w->text + begin, end - begin, e));
    for (;;) {
        size_t from, to;
        RKV_TRY(rkv_pretok_next(w->run, &from, &to, e));
        if (from == to)
            return RKV_OK;
        const size_t n = to - from;
        int hit;
        rkv_word *word = rkv_tok_word(w, begin + from, n, &hit);
        if (hit) {
            RKV_TRY(rkv_tok_repeat(w, word, e));
            continue;
        }
        const size_t first = w->n_id;
        RKV_TRY(encode_word(t, w, begin + from, n, e));
        *word = (rkv_word){(uint32_t)(begin + from), (uint32_t)n, (uint32_t)first,
                           (uint32_t)(w->n_id - first)};
    }
}
