/* The walk inside: what its files share. */
#ifndef RKV_WALK_IMPL_H
#define RKV_WALK_IMPL_H

#include "profile/kl.h"
#include "profile/walk.h"

typedef struct walk {           /* one example's rows */
    const rkv_walk *in;
    const rkv_model *m;
    const rkv_session *s;
    rkv_policy policy;          /* of drops and errors, active whatever its budget was */
    const rkv_perturb *drop;
    int n_prompt, n_fed;
    int selects;                /* tokens are selected, for drops or errors */
    int per_pass, n_pass;       /* variants of a pass; passes */
    int first, n;               /* variants of the pass at hand */
    int n_group;                /* groups of n_fed rows in the batch: 0 is the reference */
    int n_new;                  /* the last ones, perturbed in the layer at hand */
    int from_group;             /* 1: the reference's rows come from `saved`, and are not run */
    int chunk_group;            /* first group of the rows that are in the step now */
    float *x;                   /* [1 + n][n_fed][d_model], of the pass */
    float *saved; /* [n_layer + 1][n_fed][d_model] reference rows entering each layer, and leaving
                     the last; NULL: one pass */
    float *score;               /* [n_kv_head][n_prompt] of the layer at hand; NULL: no selection */
    float *diff;                /* [n_kv_head][n_grid][n_fed][floats of a group of heads]; NULL: no
                                   errors wanted */
    double *whole;              /* [n_fed] |o W_O|^2 */
    float *tables, *scratch;
    int32_t *pos;
    rkv_kl_stream *kl;
    rkv_step step;
    rkv_team *team;
    float *thread;              /* scratch of a thread's items */
    size_t thread_floats;
} walk;

/* Variant of group g >= 1. */
static inline const rkv_variant *walk_variant(const walk *w, int g)
{
    return &w->in->v[w->first + g - 1];
}

/* Groups that are a chunk of the rows inside a layer. */
static inline int walk_chunk(const walk *w)
{
    const int n = w->s->o.n_chunk / w->n_fed;
    return n > 0 ? n : 1;
}

/* The layer's errors are wanted, and of the pass at hand. */
static inline int walk_errors(const walk *w, int l)
{
    return w->diff && !w->from_group && !rkv_session_skips(w->s, l);
}

static inline size_t walk_group_floats(const walk *w)
{
    return (size_t)w->n_fed * (size_t)w->m->config.d_model;
}

/* walk_plan.c */

typedef struct walk_bytes {     /* of what a walk has for itself; 0: it does without */
    size_t tables, pos, saved, score, diff, whole;
    size_t x;                   /* its rows among those of all */
} walk_bytes;

/* Both need what is asked for, n_prompt, n_fed and selects; the second also the passes. */
void rkv_walk_set_passes(walk *w);
walk_bytes rkv_walk_bytes_of(const walk *w);

/* walk_attend.c */

/* Floats of scratch of a thread. */
size_t rkv_walk_thread_floats(const walk *w);
/* Scores of the layer's heads, where something selects in it. */
void rkv_walk_score(walk *w, int l);
/* The attend callback of rkv_step; ctx: walk. */
void rkv_walk_attend(void *ctx, rkv_step *step, int l);
/* to[n_fed][n_group heads][d_head], rows ld floats apart: attention of group g's rows over head h
 * as variant v (NULL: none) leaves it. */
void rkv_walk_attend_variant(const walk *w, int l, int h, int row0, const rkv_variant *v, float *to,
                             ptrdiff_t ld, float *scratch);

/* walk_error.c: errors of the layer, whose step holds q, k, v and att of the reference's rows. */
void rkv_walk_errors(walk *w, rkv_step *step, int l);

#endif
