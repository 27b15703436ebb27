/* Choosing kernels for this machine. */
#include "config.h"
#include "backend/backend.h"

#include <stdlib.h>
#include <string.h>

#include "backend/blas.h"
#include "cpu.h"

/* Features to use: those of the CPU, cut down to the tier that RKV_CPU names. */
static rkv_status choose_features(uint32_t *features, int *forced, rkv_error *e)
{
    const uint32_t have = rkv_cpu_detect();
    const char *name = getenv("RKV_CPU");
    *forced = name && *name;
    *features = have;
    if (!*forced)
        return RKV_OK;
    int known;
    const uint32_t want = rkv_cpu_tier_mask(name, &known);
    if (!known)
        return rkv_fail(e, RKV_E_ARG, "RKV_CPU=%.40s: unknown tier, expected one of %s", name,
                        rkv_cpu_tier_list());
    if ((have & want) != want)
        return rkv_fail(e, RKV_E_ARG, "RKV_CPU=%.40s: this CPU can run no more than tier %s", name,
                        rkv_cpu_tier_name(have));
    *features = want;
    return RKV_OK;
}

static const char *const path_name[RKV_GEMM_PATHS] = {
    [RKV_GEMM_OWN] = "own",
    [RKV_GEMM_BLAS] = "blas",
    [RKV_GEMM_BF16] = "bf16",
    [RKV_GEMM_INT16] = "int16",
};

const char *rkv_backend_arithmetic(const rkv_backend *be)
{
    const int f32 = be->gemm == RKV_GEMM_OWN || be->gemm == RKV_GEMM_BLAS;
    return f32 ? "f32" : path_name[be->gemm];
}

/* The path that suits the kernels. */
static rkv_gemm_path usual_path(uint32_t features, int forced)
{
    if ((features & RKV_ISA_amx) == RKV_ISA_amx)
        return RKV_GEMM_BF16;
    if ((features & RKV_ISA_vnni) == RKV_ISA_vnni)
        return RKV_GEMM_INT16;
    return features == RKV_ISA_ref && !forced && rkv_blas_load(NULL) == RKV_OK ? RKV_GEMM_BLAS
                                                                              : RKV_GEMM_OWN;
}

rkv_status rkv_backend_init(rkv_backend *be, rkv_error *e)
{
    uint32_t features;
    int forced;
    RKV_TRY(choose_features(&features, &forced, e));
    rkv_ops_init(&be->ops, features);
    be->tier = rkv_cpu_tier_name(features);
    const char *want = getenv("RKV_GEMM");
    if (!want || !*want || !strcmp(want, "auto")) {
        be->gemm = usual_path(features, forced);
        return RKV_OK;
    }
    int path = 0;
    while (path < RKV_GEMM_PATHS && strcmp(want, path_name[path]))
        path++;
    if (path == RKV_GEMM_PATHS)
        return rkv_fail(e, RKV_E_ARG, "RKV_GEMM=%.40s: expected auto, own, blas, bf16 or int16",
                        want);
    if (path == RKV_GEMM_BLAS)
        RKV_TRY(rkv_blas_load(e));
    be->gemm = (rkv_gemm_path)path;
    return RKV_OK;
}
