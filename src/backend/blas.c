#include "config.h"
#include "backend/blas.h"

#include <stdio.h>

#ifdef HAVE_OPENBLAS
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>

#include "base/symbol.h"

#define LIBRARY "libopenblas.so.0"

/* Values of cblas.h (CBLAS interface, BLAS Technical Forum 2001, annex B) and of openblas_config.h.
 */
enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112, PARALLEL_OPENMP = 2 };

typedef void sgemm_fn(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                      const float *a, int lda, const float *b, int ldb, float beta, float *c,
                      int ldc);
typedef int parallel_fn(void);
typedef char *text_fn(void);
typedef void threads_fn(int);

static struct {
    sgemm_fn *sgemm;
    parallel_fn *parallel;
    threads_fn *set_threads;
    text_fn *config, *core;
    char name[128];
    rkv_error error;            /* of the one attempt */
} blas;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    void *l = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!l) {
        rkv_fail(&blas.error, RKV_E_UNSUPPORTED,
                 "OpenBLAS: %.200s; install libopenblas0-openmp, or set RKV_GEMM=own", dlerror());
        return;
    }
    if (!rkv_symbol_find(l, "cblas_sgemm", &blas.sgemm) ||
        !rkv_symbol_find(l, "openblas_get_parallel", &blas.parallel) ||
        !rkv_symbol_find(l, "openblas_set_num_threads", &blas.set_threads) ||
        !rkv_symbol_find(l, "openblas_get_config", &blas.config) ||
        !rkv_symbol_find(l, "openblas_get_corename", &blas.core)) {
        rkv_fail(&blas.error, RKV_E_UNSUPPORTED, "OpenBLAS: %s lacks a function: %.200s", LIBRARY,
                 dlerror());
        return;
    }
    if (blas.parallel() != PARALLEL_OPENMP) {
        rkv_fail(&blas.error, RKV_E_UNSUPPORTED,
                 "OpenBLAS: %s was built with threads of kind %d, expected %d (OpenMP); install "
                 "libopenblas0-openmp, or set RKV_GEMM=own",
                 LIBRARY, blas.parallel(), PARALLEL_OPENMP);
        return;
    }
    snprintf(blas.name, sizeof blas.name, "%.80s (%.40s)", blas.config(), blas.core());
}

rkv_status rkv_blas_load(rkv_error *e)
{
    pthread_once(&once, load);
    if (!blas.name[0] && e)
        *e = blas.error;
    return blas.name[0] ? RKV_OK : RKV_E_UNSUPPORTED;
}

const char *rkv_blas_name(void)
{
    return blas.name[0] ? blas.name : "not loaded";
}

void rkv_blas_sgemm_nt(float *out, int ldo, const float *a, int lda, const float *b, int ldb, int m,
                       int n, int k, int n_thread)
{
    blas.set_threads(n_thread);
    blas.sgemm(ROW_MAJOR, NO_TRANS, TRANS, m, n, k, 1.0f, a, lda, b, ldb, 0.0f, out, ldo);
}
#else
rkv_status rkv_blas_load(rkv_error *e)
{
    return rkv_fail(e, RKV_E_UNSUPPORTED, "OpenBLAS: this build has none; set RKV_GEMM=own");
}

const char *rkv_blas_name(void)
{
    return "none";
}
#endif
