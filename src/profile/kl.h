/* KL of many rows against reference rows, vocabulary columns in any number of pieces. */
#ifndef RKV_KL_H
#define RKV_KL_H

#include "base/err.h"
#include "base/team.h"

/* Row i of the reference is compared with rows n_ref + i, 2 n_ref + i, ... of n_row rows in all.
 * Sums in double. */
typedef struct rkv_kl_stream rkv_kl_stream;
rkv_status rkv_kl_create(rkv_kl_stream **out, int n_ref, int n_row, int n_col_max, rkv_team *team,
                         rkv_error *e);
/* logits[n_row][ld], the first n_col of each row being new columns. */
void rkv_kl_add(rkv_kl_stream *s, const float *logits, int n_col, int ld);
/* kl[n_row - n_ref]: of the rows after the reference. */
void rkv_kl_end(const rkv_kl_stream *s, double *kl);
/* What such a stream takes, in bytes. */
uint64_t rkv_kl_bytes(uint64_t n_row, int n_col_max, const rkv_team *team);
void rkv_kl_free(rkv_kl_stream *s);

#endif
