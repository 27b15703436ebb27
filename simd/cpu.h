/* What this CPU and this kernel can run, as a bit mask; tiers are sets of features.
 * A feature counts only if the operating system saves its registers (XGETBV). AMX's are large, so
 * Linux wants to be asked once per process; detection asks. From then on the process's signal
 * stacks (sigaltstack) must hold them. */
#ifndef RKV_CPU_H
#define RKV_CPU_H

#include <stdint.h>

enum {
    RKV_ISA_ref = 0,                    /* portable C: always there */
    RKV_ISA_avx2 = 1 << 0,              /* AVX2, FMA and F16C */
    RKV_ISA_avx512 = 1 << 1 | 1 << 0,   /* F, BW, DQ, VL on top of avx2 */
    RKV_ISA_vnni = 1 << 2 | 1 << 1 | 1 << 0, /* AVX512_VNNI on top of avx512 */
    RKV_ISA_amx = 1 << 3 | 1 << 2 | 1 << 1 | 1 << 0, /* TILE and BF16 on top of vnni */
};

/* Features of this machine. */
uint32_t rkv_cpu_detect(void);

/* Features up to the named tier ("ref", "avx2", "avx512", "vnni", "amx"); 0 and *ok = 0 for
 * others. */
uint32_t rkv_cpu_tier_mask(const char *name, int *ok);

/* Name of the strongest tier within a mask. */
const char *rkv_cpu_tier_name(uint32_t features);

/* Tier names, weakest first, separated by ", "; for messages. */
const char *rkv_cpu_tier_list(void);

#endif
