/* Pre-tokenizers: how byte-level BPE cuts a text into the words that it merges inside.
 *
 * A pre-tokenizer is a list of regular expressions. The first cuts the text into its matches and
 * the gaps between them; each later one cuts every piece so far, to which it is a text of its own.
 * Frequent expressions are scanned by hand-written code, others by PCRE2. Time is linear in the
 * text for all of them, the stack constant.
 * Source: names and expressions are those of the models' tokenizer.json files and of llama.cpp's
 * src/llama-vocab.cpp; where the latter simplified one for std::regex, the former counts. */
#ifndef RKV_PRETOK_H
#define RKV_PRETOK_H

#include <stddef.h>

#include "base/err.h"

enum { RKV_PRETOK_MAX_PASS = 6 };

/* What a name implies for the tokenizer around it. */
enum {
    RKV_PRETOK_WHOLE = 1,       /* a word that is a token is not merged from its parts */
    RKV_PRETOK_BOS = 2          /* the model wants BOS unless its file says otherwise */
};

typedef struct rkv_pretok_desc {
    const char *names;          /* separated by single spaces */
    unsigned flags;
    const char *pass[RKV_PRETOK_MAX_PASS];      /* expressions; NULL past the last */
} rkv_pretok_desc;

/* The row of a name (value of tokenizer.ggml.pre, n bytes); NULL: unknown. */
const rkv_pretok_desc *rkv_pretok_find(const char *name, size_t n);

/* End of the piece of text[pos, end) that begins at pos < end. */
typedef size_t rkv_pretok_scan(const char *text, size_t pos, size_t end);

/* The hand-written code for an expression of the table; NULL: there is none. */
rkv_pretok_scan *rkv_pretok_scanner(const char *expression);

typedef struct rkv_pretok rkv_pretok;

/* regex_only: leave the hand-written code aside (to test it). RKV_E_UNSUPPORTED without PCRE2 when
 * an expression needs it; RKV_E_MEM. Errors begin with what. */
rkv_status rkv_pretok_create(rkv_pretok **out, const rkv_pretok_desc *d, int regex_only,
                             const char *what, rkv_error *e);
void rkv_pretok_free(rkv_pretok *p);

/* One walk over a text after another; owned by one thread, p may be shared. */
typedef struct rkv_pretok_run rkv_pretok_run;

rkv_status rkv_pretok_run_create(rkv_pretok_run **out, const rkv_pretok *p, rkv_error *e);
void rkv_pretok_run_free(rkv_pretok_run *r);

/* Starts on n bytes of text, which must stay until the next start. RKV_E_MEM. */
rkv_status rkv_pretok_start(rkv_pretok_run *r, const char *text, size_t n, rkv_error *e);
/* The next word is [*begin, *end) of the text; *begin == *end after the last. RKV_E_MEM; RKV_E_ARG
 * when PCRE2 gave up at one of its limits. */
rkv_status rkv_pretok_next(rkv_pretok_run *r, size_t *begin, size_t *end, rkv_error *e);

#endif
