/* Tokenizers: text <-> ids, from the vocabulary of a GGUF file.
 * Two algorithms, byte-level BPE (tok_bpe.c, with the pre-tokenizers of pretok.c) and SentencePiece
 * (tok_spm.c); special tokens are split off before either. Time O(n log n), constant stack, for any
 * bytes. Sources: Sennrich et al. 2016 (BPE); Kudo & Richardson 2018 (SentencePiece). */
#ifndef RKV_TOK_H
#define RKV_TOK_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "file/gguf.h"

typedef struct rkv_tok rkv_tok;

/* Reads the tokenizer of a file; g must outlive it. RKV_E_FORMAT (broken vocabulary, merges,
 * scores), RKV_E_UNSUPPORTED (an algorithm we do not have, named), RKV_E_MEM. */
rkv_status rkv_tok_create(rkv_tok **out, const rkv_gguf *g, rkv_error *e);
void rkv_tok_free(rkv_tok *t);

int rkv_tok_n_vocab(const rkv_tok *t);
int32_t rkv_tok_bos(const rkv_tok *t);          /* -1: none */
int32_t rkv_tok_eos(const rkv_tok *t);          /* -1: none */
int rkv_tok_adds_bos(const rkv_tok *t);         /* the model wants BOS in front of a text */
int rkv_tok_adds_eos(const rkv_tok *t);         /* ... EOS after it (never put there by encoding) */
int rkv_tok_is_end(const rkv_tok *t, int32_t id);       /* EOS, EOT and other ends of an answer */

/* flags: RKV_TOK_BOS, RKV_TOK_SPECIAL of rkv.h. *ids from rkv_mem_alloc, owned by the caller.
 * A byte that belongs to no well-formed character is encoded as that byte; where the vocabulary has
 * no token for a byte, it is lost (BPE) or becomes the unknown token (SentencePiece).
 * RKV_E_ARG: text over 1 GiB, or too hard for a pre-tokenizer that PCRE2 runs; RKV_E_MEM. */
rkv_status rkv_tok_encode(const rkv_tok *t, const char *text, size_t n_byte, unsigned flags,
                          int32_t **ids, size_t *n_id, rkv_error *e);

/* *text from rkv_mem_alloc, 0-terminated; may hold any byte. with_special: control tokens are
 * written out instead of dropped. Where encoding puts a space in front of a text, one leading space
 * of the first token, or of the first after BOS, is dropped again; so an answer is decoded as a
 * whole, or with its earlier ids in front. RKV_E_ARG: id out of range; RKV_E_MEM. */
rkv_status rkv_tok_decode(const rkv_tok *t, const int32_t *ids, size_t n_id, int with_special,
                          char **text, size_t *n_byte, rkv_error *e);

/* The token's own text as it stands in the vocabulary (not unescaped), n bytes. id in range. */
const char *rkv_tok_piece(const rkv_tok *t, int32_t id, size_t *n);

#endif
