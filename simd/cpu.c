#include "config.h"
#include "cpu.h"

#include <string.h>

static const struct {
    const char *name;
    uint32_t mask;
} tiers[] = {
    {"ref", RKV_ISA_ref},
    {"avx2", RKV_ISA_avx2},
    {"avx512", RKV_ISA_avx512},
    {"vnni", RKV_ISA_vnni},
    {"amx", RKV_ISA_amx},
};
enum { n_tiers = sizeof tiers / sizeof *tiers };

#if defined __x86_64__ || defined __i386__
#include <cpuid.h>

static uint64_t xcr0(void)
{
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

#if defined HAVE_AMX && defined __x86_64__ && defined __linux__
#include <sys/syscall.h>
#include <unistd.h>

/* Values of arch_prctl (Linux, arch/x86/include/uapi/asm/prctl.h). Kernels before 5.16 refuse. */
static int amx_permitted(void)
{
    enum { REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, REQ_XCOMP_PERM, XTILEDATA) == 0;
}
#else
static int amx_permitted(void)
{
    return 0;
}
#endif

uint32_t rkv_cpu_detect(void)
{
    enum { FMA = 1 << 12, OSXSAVE = 1 << 27, AVX = 1 << 28, F16C = 1 << 29 };       /* 1: ecx */
    enum { AVX2 = 1 << 5, AVX512F = 1 << 16, AVX512DQ = 1 << 17, AVX512BW = 1 << 30 }; /* 7: ebx */
    const uint32_t avx512vl = 1u << 31;
    enum { AVX512_VNNI = 1 << 11 };                                                 /* 7: ecx */
    enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 };                                /* 7: edx */
    enum { YMM = 0x06, ZMM = 0xe6, TILE = 0x60000 };    /* register states that XCR0 names */
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) ||
        (c & (FMA | OSXSAVE | AVX | F16C)) != (FMA | OSXSAVE | AVX | F16C))
        return 0;
    const uint64_t saved = xcr0();
    if ((saved & YMM) != YMM || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & AVX2))
        return 0;
    uint32_t features = RKV_ISA_avx2;
    const uint32_t want = AVX512F | AVX512DQ | AVX512BW | avx512vl;
    if ((saved & ZMM) == ZMM && (b & want) == want)
        features |= RKV_ISA_avx512;
#ifdef HAVE_VNNI /* else the tier would have no kernels of its own, and int16 be slower than f32 */
    if (features == RKV_ISA_avx512 && c & AVX512_VNNI)
        features |= RKV_ISA_vnni;
#endif
    const uint32_t tiles = AMX_BF16 | AMX_TILE;
    if (features == RKV_ISA_vnni && (saved & TILE) == TILE && (d & tiles) == tiles &&
        amx_permitted())
        features |= RKV_ISA_amx;
    return features;
}
#else
uint32_t rkv_cpu_detect(void)
{
    return 0;
}
#endif

uint32_t rkv_cpu_tier_mask(const char *name, int *ok)
{
    for (int i = 0; i < n_tiers; i++)
        if (!strcmp(tiers[i].name, name))
            return *ok = 1, tiers[i].mask;
    return *ok = 0, 0;
}

const char *rkv_cpu_tier_name(uint32_t features)
{
    int best = 0;
    for (int i = 0; i < n_tiers; i++)
        if ((features & tiers[i].mask) == tiers[i].mask)
            best = i;
    return tiers[best].name;
}

const char *rkv_cpu_tier_list(void)
{
    return "ref, avx2, avx512, vnni, amx";
}
