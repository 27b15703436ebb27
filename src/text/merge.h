/* The merging loop of byte-pair encoding: of all neighbours that may be joined, the pair with the
 * least key is joined first, of equal ones the leftmost, until none is left. O(n log n) by a heap;
 * n bytes of text take 36 n bytes. Source: Sennrich et al. 2016. */
#ifndef RKV_MERGE_H
#define RKV_MERGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define RKV_NO_SYMBOL UINT32_MAX
#define RKV_NO_KEY UINT32_MAX

/* A symbol is known by the offset of its first byte in the text. */
typedef struct rkv_symbol {
    int32_t id;                         /* its token; -1: none */
    uint32_t prev, next;                /* neighbours; RKV_NO_SYMBOL at the ends */
    uint32_t key;                       /* of the pair with next; RKV_NO_KEY: not to be joined */
    int32_t joined;                     /* token of that pair */
} rkv_symbol;

typedef struct rkv_merge {              /* zeroed at first */
    rkv_symbol *symbol;                 /* [cap] */
    uint64_t *heap;                     /* [2 * cap]: key << 32 | offset of the left symbol */
    size_t cap, n_heap;
} rkv_merge;

/* Token of symbols left and right, which together are the bytes [begin, end) of the text; -1: they
 * cannot be joined. *key receives the pair's key, below RKV_NO_KEY. */
typedef int32_t rkv_join_fn(const void *ctx, int32_t left, int32_t right, uint32_t begin,
                            uint32_t end, uint32_t *key);

/* Room for a text of n bytes. RKV_E_MEM. */
rkv_status rkv_merge_reserve(rkv_merge *m, size_t n, rkv_error *e);
void rkv_merge_free(rkv_merge *m);

/* The symbol of n_byte bytes at offset at follows the one at prev; last: it ends the text. */
static inline void rkv_merge_put(rkv_merge *m, uint32_t at, uint32_t n_byte, uint32_t prev,
                                 int last, int32_t id)
{
    m->symbol[at] = (rkv_symbol){id, prev, last ? RKV_NO_SYMBOL : at + n_byte, RKV_NO_KEY, -1};
}

/* Joins the symbols of a text of n bytes; what is left is the list from symbol 0 on. */
void rkv_merge_run(rkv_merge *m, uint32_t n, rkv_join_fn *join, const void *ctx);

#endif
