/* Finished parts of a profile, kept in a SQLite database so that an interrupted one can go on: the
 * answer of each example, the outcome of each variant, the estimates. Each call stores its part
 * durably, whole or not at all; RKV_E_WRITE when it cannot. r may be NULL everywhere: nothing is
 * known, nothing is kept. */
#ifndef RKV_RESUME_H
#define RKV_RESUME_H

#include "base/err.h"
#include "profile/walk.h"
#include "rkv.h"

typedef struct rkv_resume rkv_resume;

enum rkv_example_state {
    RKV_EXAMPLE_NEW,
    RKV_EXAMPLE_USED,           /* its answer is known; numbers may be missing */
    RKV_EXAMPLE_SHORT,
    RKV_EXAMPLE_LONG
};

/* Opens or makes DIR/NAME.sqlite. signature: everything the numbers depend on; a folder made with
 * another one is RKV_E_MISMATCH. RKV_E_UNSUPPORTED: built without SQLite; RKV_E_FORMAT: it is
 * damaged; RKV_E_IO; RKV_E_WRITE; RKV_E_MEM. */
rkv_status rkv_resume_open(rkv_resume **out, const char *dir, const char *name,
                           const char *signature, rkv_error *e);
void rkv_resume_close(rkv_resume *r);

/* State of example i; for a used one also the tokens that are fed, 1 <= *n_fed <= n_max. RKV_E_IO;
 * RKV_E_FORMAT: what is stored cannot be. */
rkv_status rkv_resume_get(rkv_resume *r, int i, enum rkv_example_state *state, int32_t *fed,
                          int n_max, int *n_fed, rkv_error *e);
rkv_status rkv_resume_put(rkv_resume *r, int i, enum rkv_example_state state, const int32_t *fed,
                          int n_fed, rkv_error *e);

/* Outcomes of variants: out[v] and have[v] = 1 for those that are stored, v < n. */
rkv_status rkv_resume_get_outcomes(rkv_resume *r, int i, rkv_outcome *out, uint8_t *have, int n,
                                   rkv_error *e);
/* Stores out[index[j]], j < n, and error[n_error] unless that is NULL. */
rkv_status rkv_resume_put_outcomes(rkv_resume *r, int i, const rkv_outcome *out, const int *index,
                                   int n, const double *error, size_t n_error, rkv_error *e);
/* Estimates; *have = 1 when they are stored. */
rkv_status rkv_resume_get_errors(rkv_resume *r, int i, double *error, size_t n, int *have,
                                 rkv_error *e);

/* RKV_E_FORMAT: what was stored of example i cannot be. */
rkv_status rkv_resume_damaged(const rkv_resume *r, int i, rkv_error *e);

#endif
