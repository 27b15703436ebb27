/* A team of threads that shares out one loop at a time: the caller and n - 1 helpers, which live as
 * long as the team. Parts are claimed one by one, so that a helper that the machine keeps waiting
 * costs nothing: the others do its parts. A thread with nothing to do spins for some microseconds
 * and then sleeps, so that an idle team takes no CPU time from others.
 *
 * Which thread runs a part is left open: what a part computes must not depend on it. */
#ifndef RKV_TEAM_H
#define RKV_TEAM_H

#include "base/err.h"

typedef struct rkv_team rkv_team;

/* Part `part` of a loop, on thread `thread` (0 .. size - 1: an index for scratch memory). */
typedef void rkv_part_fn(void *ctx, int part, int thread);

enum { RKV_TEAM_MAX_PARTS = 1 << 24 };

/* A team of n_thread >= 1, the caller included; helpers start when the team first has work. Where
 * the system refuses a thread, the team is smaller. RKV_E_MEM. */
rkv_status rkv_team_create(rkv_team **out, int n_thread, rkv_error *e);
void rkv_team_free(rkv_team *t);

/* n_thread of the team; 1 for NULL, which is a team of the caller alone. */
int rkv_team_size(const rkv_team *t);

/* Runs parts 0 .. n_part - 1 (at most RKV_TEAM_MAX_PARTS) and returns when all are done. One caller
 * at a time, and not from within a part. */
void rkv_team_run(rkv_team *t, rkv_part_fn *fn, void *ctx, int n_part);

/* Items [first, end) of a loop. */
typedef void rkv_range_fn(void *ctx, int first, int end);

/* The same for n items in parts of `grain` of them. */
void rkv_team_ranges(rkv_team *t, rkv_range_fn *fn, void *ctx, int n, int grain);

#endif
