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

typedef struct rkv_prefill_plan {       /* all in bytes */
    uint64_t x, pos, tables, panels, scratch, n_old, attention;         /* buffers of the call */
    uint64_t observed;          /* queries kept for selection; 0: none */
    int n_observed;             /* their positions */
    uint64_t mass, recent;      /* of keys, kept for selection, see rkv_observation; 0: none */
    uint64_t mass_sums, tile_mass;      /* buffers of the call, where there is either */
    int n_chunk;                /* rows per pass inside a layer */
    uint64_t kv;                /* growth of the cache at its peak, with what selection takes */
    uint64_t logits;            /* rows handed out; at another time than kv's peak */
    uint64_t total;             /* at the peak, beyond what is allocated before the call */
} rkv_prefill_plan;

/* Plan of taking n >= 1 tokens more; those of a first prompt have their budgets in s->budget
 * (rkv_session_budget). policy: NULL when nothing is removed; with_rows: logits of every row are
 * handed out. total is what the library's own allocations add up to, exactly but for OpenBLAS. */
rkv_prefill_plan rkv_prefill_plan_of(const rkv_session *s, const rkv_policy *policy, int n,
                                     int with_rows);

/* RKV_E_MEM, with the numbers and what would help, when the plan cannot fit what is available. */
rkv_status rkv_prefill_plan_check(const rkv_prefill_plan *p, const rkv_policy *policy,
                                  int n, rkv_error *e);

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
