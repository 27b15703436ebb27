/* OpenBLAS, loaded when it is first needed: its start-up reserves memory and threads that a process
 * which uses our own kernels should not pay for (under a tight memory limit it does not even
 * return). */
#ifndef RKV_BLAS_H
#define RKV_BLAS_H

#include <stddef.h>

#include "base/err.h"

/* Loads the OpenMP flavour of OpenBLAS; later calls cost nothing. RKV_E_UNSUPPORTED: built without,
 * not installed, or with other threads than OpenMP's. */
rkv_status rkv_blas_load(rkv_error *e);

/* "0.3.21 ... (core)"; "not loaded" before rkv_blas_load; "none" when built without. */
const char *rkv_blas_name(void);

/* out[m][n] = a[m][k] b[n][k]^T; ldo, lda, ldb: floats from row to row. After rkv_blas_load. */
void rkv_blas_sgemm_nt(float *out, int ldo, const float *a, int lda, const float *b, int ldb, int m,
                       int n, int k, int n_thread);

#endif
