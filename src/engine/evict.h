/* The decode-time budget: heads have blocks of a fixed size, and when one is full, all of them are
 * cut down to what their share leaves. What selectors look at is kept up to date token by token
 * (evict.c). Its memory is there from the first prompt on; decode's own scratch (decode.c) holds
 * the weights of a step, too. Choices: METHOD section 7. */
#ifndef RKV_EVICT_H
#define RKV_EVICT_H

#include "engine/session.h"

/* Options that cannot be served. RKV_E_ARG. */
rkv_status rkv_evict_check(const rkv_session_options *o, rkv_error *e);

/* Memory for budgets, where the session's options ask for one. RKV_E_MEM. */
rkv_status rkv_evict_create(rkv_session *s, rkv_error *e);
void rkv_evict_free(rkv_session *s);

/* Back to the state before a first prompt. */
void rkv_evict_forget(rkv_session *s);

/* What a fork takes over; s->kv of both is the same. RKV_E_MEM. */
rkv_status rkv_evict_copy(rkv_session *to, const rkv_session *from, rkv_error *e);

/* Budgets for a first prompt of n tokens, of which s->budget and s->cap say what the policy keeps:
 * a prompt that passes the decode budget is cut to what an eviction would leave. RKV_E_ARG: it
 * cannot be met. */
rkv_status rkv_evict_budget(rkv_session *s, int n, rkv_error *e);

/* Bytes that are to be allocated for the first prompt, and given to rkv_evict_place; 0: none. */
size_t rkv_evict_bytes(const rkv_session *s);
void rkv_evict_place(rkv_session *s, void *memory);

/* Takes over what was observed of layer l of a first prompt of n tokens, whose heads hold what they
 * keep. */
void rkv_evict_seed(rkv_session *s, int l, int n);

/* The budget bounds layer l. */
static inline int rkv_evict_bounds(const rkv_session *s, int l)
{
    return s->evict.cap && !rkv_session_skips(s, l);
}

/* Most tokens that a head of such a layer may hold. */
static inline int rkv_evict_most(const rkv_session *s, int l, int h)
{
    return s->evict.left[(ptrdiff_t)l * s->m->config.n_kv_head + h] + s->o.decode_interval;
}

/* Evicts when some head has no room for one token more; a head with fewer slots than that leaves
 * stays as it is. */
void rkv_evict_make_room(rkv_session *s);

/* The scaled and rotated queries [n_head][d_head] of position pos in such a layer. */
void rkv_evict_look(rkv_session *s, int l, int32_t pos, const float *q);

/* Adds the attention of the newest token, in chunks of RKV_ATTN_CHUNK slots, to the mass of head h
 * of such a layer: weight[n_chunk][n_group][RKV_ATTN_CHUNK] = exp(score - m), m and sum
 * [n_chunk][n_group] the maximum and the sum of each row. */
void rkv_evict_add_mass(rkv_session *s, int l, int h, const float *weight, const float *m,
                        const float *sum);

#endif
