/* Mean and covariance of a layer's queries before rotation, gathered while a prompt goes through it
 * (query_stats.c). */
#ifndef RKV_QUERY_STATS_H
#define RKV_QUERY_STATS_H

#include "model/model.h"

typedef struct rkv_stat_sums {  /* of one layer at a time */
    double *sum;                /* [n_head] rows: d_head sums, then [d_head][d_head] of products */
    float *work;                /* [n_head] times rkv_stat_work_floats */
    int32_t first;              /* position from which on queries count */
    int d_head, n_head;
} rkv_stat_sums;

/* Numbers of one query head: of its sums, and of what is kept of them. */
static inline size_t rkv_stat_floats(int d_head)
{
    return (size_t)d_head * (size_t)(d_head + 1);
}

/* Floats of work for one query head. */
size_t rkv_stat_work_floats(int d_head);

void rkv_stat_begin(const rkv_stat_sums *s);

/* The look callback of rkv_step; ctx: rkv_stat_sums. Rows in order of their positions. Products are
 * added in blocks of positions that lie at fixed places, so that no bit depends on the chunks. */
void rkv_stat_look(void *ctx, const rkv_step *step, int l);

/* out [n_head] rows of rkv_stat_floats: means, then covariances, of the queries at positions
 * [first, n); zeros when there are none. */
void rkv_stat_end(const rkv_stat_sums *s, const rkv_backend *be, float *out, int n);

#endif
