/* What a prefill will take of memory, known before it starts (plan.c). */
#ifndef RKV_PLAN_H
#define RKV_PLAN_H

#include "engine/session.h"

/* A prefill of one row multiplies with the stored weights, as decode does: to
 * unpack them all takes nine times as long (Qwen2.5 0.5B, AVX2: 300 ms against 34). More rows would
 * gain up to about 30, but then a prompt in parts would not give the bits of the whole. */
static inline int rkv_prefill_is_straight(int n)
{
    return n == 1;
}

typedef struct rkv_prefill_plan {       /* all in bytes, but for the counts */
    uint64_t x, pos, tables;    /* buffers of the call, for each session */
    uint64_t panels, scratch, n_old, attention; /* for all of them in turn */
    uint64_t observed;          /* queries kept for selection; 0: none */
    int n_observed;             /* their positions */
    uint64_t mass, recent;      /* of keys, kept for selection, see rkv_observation; 0: none */
    uint64_t mass_sums, tile_mass;      /* for all in turn, where there is either */
    uint64_t stats;             /* of queries, kept for selection; 0: none */
    uint64_t stat_sums, stat_work;      /* for all in turn, where there are any */
    uint64_t evict;             /* for a decode budget, see evict.h; 0: none */
    int n_chunk;                /* rows per pass inside a layer; of several sessions: the most */
    int n_tok;                  /* of all sessions */
    int compresses;             /* every session removes something */
    uint64_t kv;                /* growth of the cache at its peak, with what selection takes */
    uint64_t logits;            /* rows handed out; at another time than kv's peak */
    uint64_t total;             /* at the peak, beyond what is allocated before the call */
} rkv_prefill_plan;

/* The policy that acts on what the session takes next; NULL: nothing is removed. */
const rkv_policy *rkv_prefill_policy(const rkv_session *s);

/* Plan of taking n[i] >= 1 tokens more in each of n_session sessions of one model; those that hold
 * nothing have their budgets for it in s->budget (rkv_session_budget). with_rows: logits of every
 * row are handed out, by one session. total is what the library's own allocations add up to,
 * exactly but for OpenBLAS; with adakv, where heads share by scores not known yet, at most. */
rkv_prefill_plan rkv_prefill_plan_of(rkv_session *const *s, const size_t *n, size_t n_session,
                                     int with_rows);

/* RKV_E_MEM, with the numbers and what would help, when the plan cannot fit what is available. */
rkv_status rkv_prefill_plan_check(const rkv_prefill_plan *p, rkv_error *e);

/* Room that stays free behind the first prompt of n tokens; later prompts take what they need. */
int rkv_prefill_room(const rkv_session *s, int n);

/* Slots that are reserved for n more tokens in every head of a layer of which so many heads shrink
 * afterwards: without room when all do, since each is given its own then. */
int rkv_prefill_slots(const rkv_session *s, int n, int n_shrinking);

/* Slots that a sliding layer holds after the first prompt, room included. */
int rkv_prefill_sliding_cap(const rkv_session *s);

/* Rows of logits that are handed out at a time. */
int rkv_prefill_logit_rows(const rkv_session *s, int n);

#endif
