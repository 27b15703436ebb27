/* What the files of the tokenizer share. */
#ifndef RKV_TOK_IMPL_H
#define RKV_TOK_IMPL_H

#include "text/merge.h"
#include "text/pretok.h"
#include "text/tok.h"
#include "text/vocab.h"

typedef struct rkv_pair_slot {
    uint64_t pair;                      /* left id << 32 | right id */
    uint32_t rank;
    int32_t id;                         /* token that the pair becomes; -1: the slot is empty */
} rkv_pair_slot;

typedef struct rkv_bpe {                /* tok_bpe.c */
    rkv_pretok *pretok;
    int whole_words;                    /* a word that is a token is not merged from its parts */
    rkv_pair_slot *slot;                /* [1 << bits] */
    int bits;
    int32_t byte[256];                  /* token of a single byte; -1: none */
    char text[256][2];                  /* how the vocabulary writes it, text_bytes long */
    unsigned char text_bytes[256];
} rkv_bpe;

typedef struct rkv_spm {                /* tok_spm.c */
    uint32_t *key;                      /* [n_vocab] of merging into a token, RKV_NO_KEY: never */
    unsigned char *joins;               /* [256 * 256]: some token has this byte before that one */
    int add_prefix;                     /* a space goes in front of a text */
} rkv_spm;

struct rkv_tok {
    rkv_vocab vocab;
    int is_spm;
    int add_bos, add_eos;
    rkv_bpe bpe;                        /* unless is_spm */
    rkv_spm spm;                        /* if is_spm */
};

/* Where an earlier occurrence of a word lies in the text, and its ids among those so far. */
typedef struct rkv_word {
    uint32_t at, n, id, n_id;
} rkv_word;

/* One call of rkv_tok_encode. */
typedef struct rkv_tok_work {
    const char *text;                   /* the whole text */
    int32_t *ids;
    size_t n_id, cap;
    rkv_word *word;                     /* [1 << word_bits], by hash; n == 0: empty */
    int word_bits;
    rkv_merge merge;
    rkv_pretok_run *run;                /* NULL for SentencePiece */
    char *buffer;
    size_t buffer_cap;
} rkv_tok_work;

/* Room for n more ids, n bytes of buffer (whose contents are lost). RKV_E_MEM. */
rkv_status rkv_tok_reserve(rkv_tok_work *w, size_t n, rkv_error *e);
rkv_status rkv_tok_reserve_buffer(rkv_tok_work *w, size_t n, rkv_error *e);

/* The entry for the word [at, at + n) of the text; it holds that word already when *hit. */
static inline rkv_word *rkv_tok_word(rkv_tok_work *w, size_t at, size_t n, int *hit)
{
    const uint64_t h = rkv_bytes_hash(w->text + at, n);
    rkv_word *word = &w->word[h >> (64 - w->word_bits)];
    *hit = word->n == n && !memcmp(w->text + word->at, w->text + at, n);
    return word;
}

/* Adds the ids of an earlier word once more. RKV_E_MEM. */
static inline rkv_status rkv_tok_repeat(rkv_tok_work *w, const rkv_word *word, rkv_error *e)
{
    RKV_TRY(rkv_tok_reserve(w, word->n_id, e));
    memcpy(w->ids + w->n_id, w->ids + word->id, word->n_id * sizeof *w->ids);
    w->n_id += word->n_id;
    return RKV_OK;
}

/* Adds the ids of [begin, end) of the work's text. after_special: it begins the text or follows a
 * special token. RKV_E_MEM; RKV_E_ARG (see rkv_pretok_next). */
rkv_status rkv_bpe_encode(const rkv_tok *t, rkv_tok_work *w, size_t begin, size_t end,
                          rkv_error *e);
rkv_status rkv_spm_encode(const rkv_tok *t, rkv_tok_work *w, size_t begin, size_t end,
                          int after_special, rkv_error *e);

/* Read what the algorithm needs beside the vocabulary. */
rkv_status rkv_bpe_load(rkv_tok *t, const rkv_gguf *g, rkv_error *e);
rkv_status rkv_spm_load(rkv_tok *t, const rkv_gguf *g, rkv_error *e);

/* Text of a byte-level token's character at p (n bytes are there): *out its 1 to 4 bytes; returns
 * how many bytes of p it took, *n_out how many it gave. */
size_t rkv_bpe_decode_char(const char *p, size_t n, char out[4], size_t *n_out);

#endif
