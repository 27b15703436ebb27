/* What the KV heads of one layer are scored by: of a prompt that is compressed, or of a cache that
 * is evicted from (compress.c). */
#ifndef RKV_SCORING_H
#define RKV_SCORING_H

#include "engine/session.h"

typedef struct rkv_scoring {
    const rkv_session *s;
    const rkv_policy *p;
    const rkv_selector *selector;
    int l;
    const float *q; /* rows [n_head][d_head]; query i lies in row (first + i) mod n_row */
    int n_query, first, n_row;
    rkv_kv_view view[RKV_MAX_HEAD];
} rkv_scoring;

/* Of layer l of s, whose slots it looks at; queries are to be added. */
void rkv_scoring_begin(rkv_scoring *c, const rkv_session *s, const rkv_policy *p, int l);

/* Floats of a group's gathered queries. */
size_t rkv_scoring_query_floats(const rkv_scoring *c);

/* What head h is scored by, but for attention mass and statistics. q: room for the queries of its
 * group, which are gathered there; NULL: they are not looked at. */
rkv_observed rkv_scoring_observed(const rkv_scoring *c, int h, float *q);

#endif
