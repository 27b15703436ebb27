/* How many examples fit in a bound of memory, and whether the whole model does (bound.c). */
#ifndef RKV_BOUND_H
#define RKV_BOUND_H

#include "engine/session.h"

typedef struct rkv_bound {      /* all in bytes */
    uint64_t whole;             /* weights that stay in the file's mapping */
    uint64_t streamed;          /* weights in load mode "stream": two layers */
    /* What the library holds already, and buffers that examples use in turn: panels of a layer and
     * of the head, scratch of its products and attention. */
    uint64_t fixed;
    /* Each example: cache of all layers, what it observes, its rows in prefill, in decode,
     * and in a walk with their tile of logits. */
    uint64_t example;
} rkv_bound;

/* What examples of n_prompt tokens take that are prefilled together (rkv_sessions_prefill), answer
 * with n_response tokens together (rkv_sessions_decode), and go through the layers once more
 * together, as n_row rows each. s: a session without a past and without a policy, with the
 * options that theirs will have. n_prompt, n_response >= 1, n_row >= 0. The program's own code and
 * data, and the pages of the file's keys, come on top: some 10 MiB. */
rkv_bound rkv_bound_of(rkv_session *s, int n_prompt, int n_response, int n_row);

/* The most examples of a batch, at most n_most >= 1, that fit in `bytes`, and whether they do so
 * only by streaming: a model that fits beside one example stays whole. RKV_E_MEM, with the numbers:
 * not even one example fits beside streamed weights. */
rkv_status rkv_bound_fit(int *n_example, int *streams, const rkv_bound *b, int n_most,
                         uint64_t bytes, rkv_error *e);

#endif
