/* Attention of many new rows over a session's ragged cache (prefill_attend.c). */
#ifndef RKV_PREFILL_H
#define RKV_PREFILL_H

#include "engine/session.h"

/* Query rows of one tile: enough that unpacking 64 keys is a small part of multiplying with them.
 */
enum { RKV_ROWS_PER_TILE = 192 };

typedef struct rkv_row_attention {
    rkv_session *s;
    int32_t pos0;               /* position of the first new row of the call */
    const int *n_old;           /* [n_kv_head] slots of this layer before the call */
    float *observed;            /* [n_query][n_head][d_head] of this layer, or NULL */
    int32_t observe_from;       /* position of observed row 0 */
    int n_query;
    float *scratch;             /* [team] times rkv_row_attention_floats */
} rkv_row_attention;

/* Floats of scratch per thread. */
size_t rkv_row_attention_floats(const rkv_model *m);

/* The attend callback of rkv_step: appends k and v of the step's rows to the cache (room is
 * reserved), copies observed queries, fills att. ctx: rkv_row_attention. */
void rkv_row_attention_run(void *ctx, rkv_step *step, int l);

#endif
