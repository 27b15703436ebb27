/* Finished examples of a sweep, kept in a SQLite database so that an interrupted one can go on. */
#ifndef RKV_RESUME_H
#define RKV_RESUME_H

#include "base/err.h"
#include "rkv.h"

typedef struct rkv_resume rkv_resume;

enum rkv_example_state { RKV_EXAMPLE_NEW, RKV_EXAMPLE_USED, RKV_EXAMPLE_SHORT, RKV_EXAMPLE_LONG };

/* Opens or makes DIR/profile.sqlite. signature: everything the numbers depend on; a folder made
 * with another one is RKV_E_MISMATCH. RKV_E_UNSUPPORTED: built without SQLite; RKV_E_IO; RKV_E_MEM.
 */
rkv_status rkv_resume_open(rkv_resume **out, const char *dir, const char *signature, rkv_error *e);
void rkv_resume_close(rkv_resume *r);

/* State of example i; for a used one also kl[n], whose values the caller judges, and the number of
 * response tokens, at least 1. r may be NULL: nothing is known. RKV_E_IO, RKV_E_FORMAT. */
rkv_status rkv_resume_get(rkv_resume *r, int i, enum rkv_example_state *state, double *kl, int n,
                          int *n_fed, rkv_error *e);
/* RKV_E_FORMAT: what was stored of example i cannot be. */
rkv_status rkv_resume_damaged(const rkv_resume *r, int i, rkv_error *e);
/* Stores it durably, whole or not at all. r may be NULL. */
rkv_status rkv_resume_put(rkv_resume *r, int i, enum rkv_example_state state, const double *kl,
                          int n, int n_fed, rkv_error *e);

#endif
