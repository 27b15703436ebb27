/* The processes of one mpirun, which share the examples of a profile. Open MPI's library is loaded
 * when mpirun has started the process; with --with-mpi whatever MPI configure found is linked. */
#ifndef RKV_WORLD_H
#define RKV_WORLD_H

#include <stddef.h>

#include "base/err.h"

typedef struct rkv_world {
    int rank, size;             /* this process's number from 0; how many there are, at least 1 */
} rkv_world;

/* rank 0 of 1 when this process is not one of several. The first call of a process starts MPI,
 * which stays until the process ends. Whoever ends before all ranks met once (rkv_world_agree) ends
 * the others, too: mpirun sees to that. RKV_E_UNSUPPORTED: started by a launcher whose MPI this
 * build cannot load; says which and what to do. */
rkv_status rkv_world_open(rkv_world *r, rkv_error *e);

/* Tells all other ranks that this one gives up: their rkv_world_failed turns true soon. */
void rkv_world_fail(const rkv_world *r);
/* Some other rank has given up; asked between pieces of work. Does not wait. */
int rkv_world_failed(const rkv_world *r);

/* All ranks meet here. Returns the status of the lowest rank that failed, and its text in *e, on
 * every rank; RKV_OK when none did. */
rkv_status rkv_world_agree(const rkv_world *r, rkv_status mine, rkv_error *e);

/* Rank 0 receives the n bytes of every other rank, one after the other, by receive. Other ranks
 * give theirs. All ranks must call it, and agree on the result (rkv_world_agree), which rank 0
 * knows first: receive's, RKV_E_MEM. */
typedef rkv_status rkv_world_receive(void *ctx, int rank, const void *bytes, size_t n,
                                     rkv_error *e);
rkv_status rkv_world_gather(const rkv_world *r, const void *mine, size_t n,
                            rkv_world_receive *receive, void *ctx, rkv_error *e);

#endif
