#include "config.h"
#include "kernels.h"

#include <string.h>

#include "cpu.h"

void rkv_ops_init(rkv_ops *ops, uint32_t features)
{
    memset(ops, 0, sizeof *ops);
    ops->features = features;
    ops->gemm_nr = (features & RKV_ISA_avx512) == RKV_ISA_avx512 ? 32 : 16;
#define RKV_KERNEL(op, dt, isa) \
    if ((features & RKV_ISA_##isa) == RKV_ISA_##isa) \
        ops->op[RKV_DT_##dt] = rkv_##op##_##dt##_##isa;
#include "kernels.def"
#undef RKV_KERNEL
}
