/* Tokenizers from listed tokens, for tests that say exactly what is in a vocabulary. */
#ifndef RKV_TINY_TOKENS_H
#define RKV_TINY_TOKENS_H

#include "text/tok.h"
#include "tiny/gguf_write.h"

typedef struct tiny_token {
    const char *text;
    int type;                   /* 1 normal, 2 unknown, 3 control, 4 user, 5 unused, 6 byte */
    float score;
} tiny_token;

/* Adds tokenizer.ggml.{model, tokens, token_type}, .scores for "llama", .pre unless it is NULL,
 * .merges unless it is NULL (lines separated by '\n'). */
void tiny_tokens(gguf_writer *w, const char *model, const char *pre, const tiny_token *token,
                 size_t n, const char *merges);

/* A tokenizer and the file in memory that it reads. */
typedef struct tiny_tok {
    rkv_text file;
    rkv_gguf *gguf;
    rkv_tok *tok;
} tiny_tok;

/* Makes the file, which is called x.gguf, and opens both; frees w. After a failure there is nothing
 * to close. */
rkv_status tiny_tok_open(tiny_tok *t, gguf_writer *w, rkv_error *e);
void tiny_tok_close(tiny_tok *t);

/* The tokenizer of tiny_vocab. */
rkv_status tiny_tok_made(tiny_tok *t, const char *tokenizer, const char *family, int n_vocab,
                         rkv_error *e);

#endif
