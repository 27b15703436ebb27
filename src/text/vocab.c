#include "config.h"
#include "text/vocab.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

static const char tokens_key[] = "tokenizer.ggml.tokens";
static const char types_key[] = "tokenizer.ggml.token_type";

static rkv_status out_of_memory(const rkv_gguf *g, rkv_error *e)
{
    return rkv_fail(e, RKV_E_MEM, "%s: out of memory for the vocabulary", rkv_gguf_path(g));
}

int32_t rkv_vocab_find(const rkv_vocab *v, const char *text, size_t n)
{
    if (n > v->longest)
        return -1;
    const uint64_t h = rkv_bytes_hash(text, n);
    for (uint32_t i = (uint32_t)h & v->mask; v->slot[i].id >= 0; i = (i + 1) & v->mask) {
        const rkv_piece *p = &v->piece[v->slot[i].id];
        if (v->slot[i].tag == h >> 32 && p->n == n && !memcmp(p->text, text, n))
            return v->slot[i].id;
    }
    return -1;
}

/* Enters token id. A table that a hostile file made degenerate is refused rather than searched. */
static rkv_status enter(rkv_vocab *v, int32_t id, const rkv_gguf *g, rkv_error *e)
{
    const rkv_piece *p = &v->piece[id];
    const uint64_t h = rkv_bytes_hash(p->text, p->n);
    uint32_t i = (uint32_t)h & v->mask;
    for (int probe = 0; v->slot[i].id >= 0; i = (i + 1) & v->mask) {
        const rkv_piece *q = &v->piece[v->slot[i].id];
        if (v->slot[i].tag == h >> 32 && q->n == p->n && !memcmp(q->text, p->text, p->n))
            return rkv_fail(e, RKV_E_FORMAT, "%s: tokens #%d and #%d have the same text",
                            rkv_gguf_path(g), v->slot[i].id, id);
        if (++probe == RKV_MAX_PROBE)
            return rkv_fail(e, RKV_E_FORMAT, "%s: the texts of %d tokens collide with token #%d",
                            rkv_gguf_path(g), RKV_MAX_PROBE, id);
    }
    v->slot[i] = (rkv_text_slot){(uint32_t)(h >> 32), id};
    return RKV_OK;
}

static rkv_status load_texts(rkv_vocab *v, const rkv_gguf *g, rkv_error *e)
{
    for (int32_t i = 0; i < v->n; i++) {
        size_t n;
        const char *text = rkv_gguf_strings_at(g, tokens_key, (size_t)i, &n);
        if (n > RKV_MAX_PIECE)
            return rkv_fail(e, RKV_E_FORMAT, "%s: token #%d has %zu bytes, at most %d are read",
                            rkv_gguf_path(g), i, n, RKV_MAX_PIECE);
        for (size_t at = 0; at < n;) {
            const size_t len = rkv_utf8_length((const unsigned char *)text + at, n - at);
            if (!len)
                return rkv_fail(e, RKV_E_FORMAT,
                                "%s: token #%d has byte 0x%02x at %zu, expected UTF-8 text",
                                rkv_gguf_path(g), i, (unsigned char)text[at], at);
            at += len;
        }
        v->piece[i] = (rkv_piece){text, (uint32_t)n, RKV_PIECE_NORMAL};
        if (n > v->longest)
            v->longest = (uint32_t)n;
        if (n)                          /* real files have holes: such tokens match no text */
            RKV_TRY(enter(v, i, g, e));
    }
    return RKV_OK;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Value of a text <0xXX>; -1: it is something else. */
static int byte_of(const rkv_piece *p)
{
    if (p->n != 6 || memcmp(p->text, "<0x", 3) || p->text[5] != '>')
        return -1;
    const int high = hex_digit(p->text[3]), low = hex_digit(p->text[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

static rkv_status load_kinds(rkv_vocab *v, const rkv_gguf *g, rkv_error *e)
{
    /* In the order of the format's ids; undefined ones behave like normal ones. */
    static const uint32_t kind[] = {RKV_PIECE_NORMAL,  RKV_PIECE_NORMAL, RKV_PIECE_UNKNOWN,
                                    RKV_PIECE_CONTROL, RKV_PIECE_USER,   RKV_PIECE_UNUSED,
                                    RKV_PIECE_BYTE};
    if (!rkv_gguf_has(g, types_key)) {
        for (int32_t i = 0; i < v->n; i++)
            if (byte_of(&v->piece[i]) >= 0)
                v->piece[i].kind = RKV_PIECE_BYTE;
        return RKV_OK;
    }
    int64_t *type = rkv_mem_alloc(rkv_mem_product((size_t)v->n, sizeof *type));
    if (!type)
        return out_of_memory(g, e);
    rkv_status s = rkv_gguf_ints(g, types_key, type, (size_t)v->n, e);
    for (int32_t i = 0; i < v->n && !s; i++) {
        if (type[i] < 0 || type[i] >= (int64_t)(sizeof kind / sizeof *kind))
            s = rkv_fail(e, RKV_E_FORMAT, "%s: token #%d is of type %lld, expected 0 to 6",
                         rkv_gguf_path(g), i, (long long)type[i]);
        else
            v->piece[i].kind = kind[type[i]];
    }
    rkv_mem_free(type);
    return s;
}

static rkv_status load_bytes(rkv_vocab *v, const rkv_gguf *g, rkv_error *e)
{
    for (int i = 0; i < 256; i++)
        v->byte[i] = -1;
    for (int32_t i = 0; i < v->n; i++) {
        if (v->piece[i].kind != RKV_PIECE_BYTE)
            continue;
        const int b = byte_of(&v->piece[i]);
        if (b < 0)
            return rkv_fail(e, RKV_E_FORMAT, "%s: token #%d stands for a byte, but its text is "
                            "not <0x00> to <0xFF>", rkv_gguf_path(g), i);
        v->byte[b] = i;
    }
    return RKV_OK;
}

rkv_status rkv_vocab_get_id(const rkv_gguf *g, const char *key, int32_t n, int32_t *id,
                            rkv_error *e)
{
    if (*id >= n)                               /* a default beyond a small vocabulary */
        *id = -1;
    if (!rkv_gguf_has(g, key))
        return RKV_OK;
    int64_t value;
    RKV_TRY(rkv_gguf_int(g, key, INT64_MIN, INT64_MAX, &value, e));
    if (value == -1 || value == UINT32_MAX) {   /* how converters write "none" */
        *id = -1;
        return RKV_OK;
    }
    RKV_TRY(rkv_gguf_int(g, key, 0, n - 1, &value, e));
    *id = (int32_t)value;
    return RKV_OK;
}

rkv_status rkv_vocab_load(rkv_vocab *v, const rkv_gguf *g, int is_spm, rkv_error *e)
{
    size_t n;
    RKV_TRY(rkv_gguf_strings(g, tokens_key, &n, e));
    if (n < 1 || n > RKV_MAX_VOCAB)
        return rkv_fail(e, RKV_E_FORMAT, "%s: %zu tokens, expected 1 to %d", rkv_gguf_path(g), n,
                        RKV_MAX_VOCAB);
    v->n = (int32_t)n;
    size_t n_slot = 16;
    while (n_slot < 2 * n)
        n_slot *= 2;
    v->mask = (uint32_t)n_slot - 1;
    v->piece = rkv_mem_calloc(n, sizeof *v->piece);
    v->slot = rkv_mem_alloc(n_slot * sizeof *v->slot);
    if (!v->piece || !v->slot)
        return out_of_memory(g, e);
    memset(v->slot, 0xff, n_slot * sizeof *v->slot);
    RKV_TRY(load_texts(v, g, e));
    RKV_TRY(load_kinds(v, g, e));
    RKV_TRY(load_bytes(v, g, e));
    v->bos = is_spm ? 1 : -1;
    v->eos = is_spm ? 2 : -1;
    v->unknown = is_spm ? 0 : -1;
    RKV_TRY(rkv_vocab_get_id(g, "tokenizer.ggml.bos_token_id", v->n, &v->bos, e));
    RKV_TRY(rkv_vocab_get_id(g, "tokenizer.ggml.eos_token_id", v->n, &v->eos, e));
    RKV_TRY(rkv_vocab_get_id(g, "tokenizer.ggml.unknown_token_id", v->n, &v->unknown, e));
    return rkv_vocab_load_special(v, g, e);
}

void rkv_vocab_free(rkv_vocab *v)
{
    rkv_mem_free(v->piece);
    rkv_mem_free(v->slot);
    rkv_mem_free(v->special);
}
