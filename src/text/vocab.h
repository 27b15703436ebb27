/* Vocabulary of a tokenizer: the texts of its tokens, what kind each is, and the way from text to
 * id. Texts are those of the file; byte-level vocabularies write each byte as a character (see
 * tok_bpe.c), SentencePiece writes a space as U+2581. */
#ifndef RKV_VOCAB_H
#define RKV_VOCAB_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/err.h"
#include "file/gguf.h"

/* Limits of our own, far above any real vocabulary. */
enum {
    RKV_MAX_VOCAB = 1 << 24,            /* tokens */
    RKV_MAX_PIECE = 65535,              /* bytes of one token's text */
    RKV_MAX_SPECIAL = 512,              /* ... of a token that is found by its text */
    RKV_MAX_PROBE = 1024                /* steps of a look-up in one of our hash tables */
};

/* Kinds and properties of a token. */
enum {
    RKV_PIECE_NORMAL = 1,
    RKV_PIECE_UNKNOWN = 2,
    RKV_PIECE_CONTROL = 4,
    RKV_PIECE_USER = 8,                 /* added to the vocabulary: found in a text first of all */
    RKV_PIECE_UNUSED = 16,
    RKV_PIECE_BYTE = 32,                /* <0xXX> */
    RKV_PIECE_LSTRIP = 64,              /* swallows white space in front of it */
    RKV_PIECE_RSTRIP = 128,             /* ... and after it */
    RKV_PIECE_END = 256                 /* ends an answer */
};

typedef struct rkv_piece {
    const char *text;                   /* [n], in the file's mapping */
    uint32_t n;
    uint32_t kind;                      /* RKV_PIECE_ bits */
} rkv_piece;

typedef struct rkv_text_slot {
    uint32_t tag;                       /* upper half of the text's hash */
    int32_t id;                         /* -1: empty */
} rkv_text_slot;

typedef struct rkv_special {            /* a token that is found in a text by its own text */
    const char *text;
    uint32_t n;
    int32_t id;
} rkv_special;

typedef struct rkv_vocab {
    rkv_piece *piece;                   /* [n] */
    int32_t n;
    uint32_t longest;                   /* bytes of the longest text */
    rkv_text_slot *slot;                /* [mask + 1] */
    uint32_t mask;
    rkv_special *special;               /* [n_special], sorted by text */
    uint32_t n_special;
    uint32_t first[257];                /* those that begin with byte c: [first[c], first[c + 1]) */
    int32_t byte[256];                  /* ids of <0xXX>; -1: none */
    int32_t bos, eos, unknown;          /* -1: none */
} rkv_vocab;

/* 64-bit hash of n bytes, for tables that live in this process. */
static inline uint64_t rkv_bytes_hash(const char *p, size_t n)
{
    const uint64_t k = UINT64_C(0x9E3779B97F4A7C15);
    uint64_t h = n * k;
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        h = (h ^ w) * k;
        h ^= h >> 29;
    }
    uint32_t low = 0, high = 0;                 /* the rest: n bytes, which may be read twice */
    if (n >= 4) {
        memcpy(&low, p, 4);
        memcpy(&high, p + n - 4, 4);
    } else if (n) {
        low = (uint32_t)(unsigned char)p[0] << 16 | (uint32_t)(unsigned char)p[n / 2] << 8 |
              (unsigned char)p[n - 1];
    }
    h = (h ^ (low | (uint64_t)high << 32)) * k;
    return h ^ h >> 32;
}

/* Reads tokens, kinds and special ids of a file, which must outlive *v (zeroed before). is_spm: the
 * ids that SentencePiece gives BOS, EOS and UNK hold when the file names none. RKV_E_FORMAT,
 * RKV_E_MEM; rkv_vocab_free after either outcome. */
rkv_status rkv_vocab_load(rkv_vocab *v, const rkv_gguf *g, int is_spm, rkv_error *e);
void rkv_vocab_free(rkv_vocab *v);

/* The token with exactly this text; -1: none. */
int32_t rkv_vocab_find(const rkv_vocab *v, const char *text, size_t n);

/* Optional id of a key, in [0, n); "none" may stand in the file. *id keeps its value, cut to -1
 * when out of range, without the key. */
rkv_status rkv_vocab_get_id(const rkv_gguf *g, const char *key, int32_t n, int32_t *id,
                            rkv_error *e);

/* vocab_special.c: kinds that texts imply, ends of an answer, the table of special tokens. */
rkv_status rkv_vocab_load_special(rkv_vocab *v, const rkv_gguf *g, rkv_error *e);

/* The first token at or after text + from that its own text stands for: its id, *begin its place;
 * of several at one place the longest. User-defined tokens always, control and unknown ones if
 * with_control. -1: none, *begin = n. At most RKV_MAX_SPECIAL steps for each byte. */
int32_t rkv_vocab_next_special(const rkv_vocab *v, const char *text, size_t n, size_t from,
                               int with_control, size_t *begin);

#endif
