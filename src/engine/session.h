/* A session: one timeline over an immutable model. Inside view for the engine, the sweep and tests.
 */
#ifndef RKV_SESSION_H
#define RKV_SESSION_H

#include "kv/kv.h"
#include "model/model.h"
#include "policy/policy.h"
#include "rkv.h"

/* What selectors score by, of the first prompt. Kept for every layer where its bit is set in
 * o.observe; else one layer's worth, reused: layers are compressed as they are done. */
typedef struct rkv_observation {
    float *q; /* [n_layer or 1][n_query][n_head][d_head], scaled and rotated; NULL: not kept */
    int n_query;                /* of the last positions */
    float *mass; /* [n_layer or 1][n_kv_head][n] attention that each key got from all queries of the
                    group; NULL: not kept. Layers that are skipped have none */
    float *recent;              /* the same of the last n_recent queries */
    int n_recent;
    float *stats; /* [n_layer or 1][n_head] means and covariances (query_stats.h) of the queries at
                     positions from stats_first on; NULL: not kept */
    int stats_first;
} rkv_observation;

/* The decode-time budget; evict.h. */
typedef struct rkv_eviction {
    int cap;                    /* mean tokens per layer and KV head at most; 0: none in force */
    int *left; /* [n_layer][n_kv_head] that an eviction leaves: the head holds o.decode_interval
                  more at most; NULL: no budget was asked for */
    size_t *mass_at;            /* [n_layer][n_kv_head] where its part of mass begins */
    float *memory;              /* cut into what follows; owned */
    float *q; /* [n_layer][n_query][n_head][d_head] scaled and rotated; of position p in row
                 p mod n_query; sliding layers have none, and leave no gap */
    float *mass; /* attention that each slot's key got from queries that count; NULL: not kept */
    int n_query;
    float *work;                /* [team][work_floats] */
    size_t work_floats;
    int32_t *keep;              /* [n_kv_head][most that is left of a head] */
    int64_t count;              /* evictions so far */
} rkv_eviction;

struct rkv_session {
    const rkv_model *m;
    rkv_session_options o;      /* as given, with defaults filled in */
    rkv_team *team;
    rkv_kv *kv;
    int n_past;                 /* positions taken */
    int n_prompt;               /* length of the first prompt; 0 before it */
    int cap;                    /* mean budget per layer and KV head */
    int *budget;                /* [n_layer][n_kv_head], of the first prompt */
    int compressed;
    rkv_scores *scores;         /* of the call at hand: where scores are kept and found; or NULL */
    uint64_t plan_bytes;        /* of all allocations at the peak of the last prefill */
    rkv_eviction evict;
    rkv_observation seen;
    float *logits;              /* [n_vocab]; valid when has_logits */
    int has_logits;
    float *work; /* decode's scratch: grows with the cache, and with sessions beside */
    size_t n_work;              /* floats of it */
};

/* Back to a session without a past; in a session that has only a first prompt, that undoes it. */
void rkv_session_forget(rkv_session *s);

/* Tokens of room that a head is given beyond what it holds: what is left of n_ctx, within reason.
 */
int rkv_session_room(const rkv_session *s);

/* Budgets [n_kv_head] of layer l. */
static inline int *rkv_session_budgets(const rkv_session *s, int l)
{
    return s->budget + (ptrdiff_t)l * s->m->config.n_kv_head;
}

/* Heads of layer l of a prompt of n tokens that get another block: those whose budget is below n,
 * or all when the session's policy has them share what is less than the whole (adakv), or a decode
 * budget bounds them; 0 for a layer that is outside the budget. */
int rkv_session_n_shrinking(const rkv_session *s, int l, int n);

/* The layer is outside the budget. */
static inline int rkv_session_skips(const rkv_session *s, int l)
{
    return s->m->layer[l].sliding;
}

/* First slot of a head that position p sees: 0 but in sliding layers; n_slot when it sees none. */
int rkv_session_first_visible(const rkv_session *s, int l, const rkv_kv_view *kv, int32_t p);

/* Slots that stay free behind the first prompt in a sliding layer: so many tokens follow before the
 * prompt's oldest are dropped. */
enum { RKV_SLIDING_ROOM = 256 };

/* Checks ids and length before anything is touched. */
rkv_status rkv_session_check_ids(const rkv_session *s, const int32_t *ids, size_t n, rkv_error *e);

/* n sessions that one call of `what` may serve: 1 <= n <= RKV_MAX_SESSIONS, of one model, none
 * twice. RKV_E_ARG. */
enum { RKV_MAX_SESSIONS = 1024 };
rkv_status rkv_sessions_check(rkv_session *const *s, size_t n, const char *what, rkv_error *e);

/* Returns status; says in e, when it is an error, which of n > 1 sessions it is about. */
rkv_status rkv_sessions_about(rkv_status status, size_t i, size_t n, rkv_error *e);

/* What s->seen holds of layer l (of the layer at hand, where it holds one):
 * q[n_query][n_head][d_head], mass and recent [n_kv_head][n], n the length of the first prompt;
 * NULL: not kept. */
float *rkv_session_seen_q(const rkv_session *s, int l);
float *rkv_session_seen_mass(const rkv_session *s, int l, int n);
float *rkv_session_seen_recent(const rkv_session *s, int l, int n);
/* [n_head] rows of rkv_stat_floats; NULL: not kept. */
float *rkv_session_seen_stats(const rkv_session *s, int l);

/* Of n queries of a prompt, how many are recent to the policy. */
static inline int rkv_policy_recent(const rkv_policy *p, int n)
{
    return p->recent < n ? p->recent : n;
}

/* compress.c: chooses and keeps slots of layer l of the first prompt, in all heads whose budget
 * asks for it, by what was seen of it, leaving `room` free slots in each of these. RKV_E_MEM: some
 * heads may be done, the others are as they were. */
rkv_status rkv_session_compress_layer(rkv_session *s, const rkv_policy *p, int l, int room,
                                      rkv_error *e);

/* Slots of the block that a head which keeps n_keep of its first prompt gets. */
int rkv_session_block(const rkv_session *s, int l, int h, int n_keep, int room);

/* Bytes that this takes meanwhile in layer l of n slots: scratch of the heads that shrink, and what
 * they keep. */
size_t rkv_session_compress_bytes(const rkv_session *s, const rkv_policy *p, int l, int n);

/* Scores of one head of an uncompressed layer of the first prompt, by the policy's selector:
 * score[n - window] of n slots, room for n. scratch: rkv_session_score_floats. The kept slots of
 * any budget are rkv_keep_best of them. */
void rkv_session_score_head(const rkv_session *s, const rkv_policy *p, int l, int h, float *score,
                            float *scratch);
size_t rkv_session_score_floats(const rkv_session *s, const rkv_policy *p, int n);

/* RKV_E_ARG: the session holds more or less than its first prompt, is compressed, or has not
 * observed what the policy needs. */
rkv_status rkv_session_check_compress(const rkv_session *s, const rkv_policy *p, rkv_error *e);

/* Budgets of the policy for a prompt of n tokens into s->budget and s->cap, within the decode
 * budget. */
rkv_status rkv_session_budget(rkv_session *s, const rkv_policy *p, int n, rkv_error *e);

#endif
