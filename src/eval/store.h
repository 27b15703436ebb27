/* Finished samples of rkv eval in a SQLite database (WAL): table run, one row per model and
 * settings; table result, one row per sample, policy and budget, which a report can be made from.
 * A store may be NULL everywhere: nothing is known, nothing is kept. */
#ifndef RKV_STORE_H
#define RKV_STORE_H

#include "eval/measure.h"

typedef struct rkv_store rkv_store;

/* Opens or makes the file, and the run in it that the signature names. RKV_E_UNSUPPORTED: built
 * without SQLite; RKV_E_WRITE; RKV_E_IO; RKV_E_FORMAT: a database of something else; RKV_E_MEM. */
rkv_status rkv_store_open(rkv_store **out, const char *path, const char *signature,
                          const rkv_model_info *model, char protocol, rkv_error *e);
void rkv_store_close(rkv_store *s);

/* Fills the rows [1 + o->n_policy] of a sample that are stored. RKV_E_IO; RKV_E_FORMAT: what is
 * stored cannot be; RKV_E_MEM. */
rkv_status rkv_store_get(rkv_store *s, rkv_eval_row *row, uint64_t sample,
                         const rkv_eval_options *o, rkv_error *e);
/* Stores the rows of one sample, durably, all or none; those that are there stay. RKV_E_WRITE;
 * RKV_E_FORMAT; RKV_E_MEM. */
rkv_status rkv_store_put(rkv_store *s, const rkv_eval_row *row, const rkv_sample *x,
                         const rkv_eval_options *o, rkv_error *e);

#endif
