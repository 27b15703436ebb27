/* Made vocabularies, as the converters of llama.cpp write real ones (keys tokenizer.*). */
#ifndef RKV_TINY_VOCAB_H
#define RKV_TINY_VOCAB_H

#include "tiny/gguf_write.h"

/* Adds the keys of a vocabulary of n_vocab tokens for a family; returns what is wrong, or NULL.
 *
 * bpe: 256 byte tokens in GPT-2's order and spelling, merges (common English ones first, then all
 *   sequences of letters by length), the family's control tokens last.
 *   Keys: tokenizer.ggml.model "gpt2", .pre, .tokens, .token_type, .merges,
 *   .{bos,eos,padding}_token_id, .add_bos_token, tokenizer.chat_template.
 * spm: control tokens, byte tokens <0x00> to <0xFF>, pieces with falling scores, single characters.
 *   Keys: tokenizer.ggml.model "llama", .pre "default", .tokens, .scores, .token_type,
 *   .{bos,eos,unknown,padding}_token_id, .add_bos_token, .add_eos_token, .add_space_prefix,
 *   tokenizer.chat_template. */
const char *tiny_vocab(gguf_writer *w, const char *tokenizer, const char *family, int n_vocab);

#endif
