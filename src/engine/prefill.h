/* Attention of many new rows over a session's ragged cache (prefill_attend.c). */
#ifndef RKV_PREFILL_H
#define RKV_PREFILL_H

#include "engine/session.h"

/* Query rows of one tile: enough that unpacking 64 keys is a small part of multiplying with them.
 */
enum { RKV_ROWS_PER_TILE = 192 };

/* Where the attention mass of the keys is summed, weights stay until their rows are done. The rows
 * of a tile go in so many at a time: their weights for 2048 keys fit a second-level cache of 512
 * KiB. At 8192 keys 192 rows at once took 8 to 17 % longer; at 32768 less time, but three times the
 * memory. A chunk then holds so many tiles at most. */
enum { RKV_MASS_ROWS = 64, RKV_MASS_TILES = 16 };

/* Attention that keys get, summed over rows: of all positions, or of the last. */
enum { RKV_SUM_ALL, RKV_SUM_RECENT, RKV_SUM_COUNT };

typedef struct rkv_row_sum {
    double *total;              /* [n_kv_head][n_mass] of this layer, to be added to; or NULL */
    float *tile;                /* [n_kv_head][tiles of a chunk][n_mass] */
    int32_t from;               /* first position that counts */
} rkv_row_sum;

typedef struct rkv_row_attention {
    rkv_session *s;
    int32_t pos0;               /* position of the first new row of the call */
    const int *n_old;           /* [n_kv_head] slots of this layer before the call */
    float *observed;            /* [n_query][n_head][d_head] of this layer, or NULL */
    int32_t observe_from;       /* position of observed row 0 */
    int n_query;
    rkv_row_sum sum[RKV_SUM_COUNT];
    int n_mass; /* length of the first prompt, whose slots are its positions; 0: no sum anywhere */
    float *scratch;             /* [team] times rkv_row_attention_floats */
} rkv_row_attention;

/* Floats of scratch per thread. n_mass: as above. */
size_t rkv_row_attention_floats(const rkv_model *m, int n_mass);

/* Rows of a chunk where n_chunk were asked for: with mass whole tiles, so that no tile, whose sums
 * are rounded on their own, depends on n_chunk; at most RKV_MASS_TILES. */
int rkv_row_attention_chunk(const rkv_model *m, int n_chunk, int with_mass);

/* Tiles of a chunk. */
int rkv_row_attention_tiles(const rkv_model *m, int chunk);

/* The attend callback of rkv_step: appends k and v of the step's rows to the cache (room is
 * reserved), copies observed queries, fills att. ctx: rkv_row_attention. */
void rkv_row_attention_run(void *ctx, rkv_step *step, int l);

#endif
