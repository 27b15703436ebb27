/* gemm_int16 on AVX-512 VNNI: 14 x 32 sums in 28 of the 32 registers. An instruction adds 32
 * products where an FMA adds 16 (bench/results/mca.json). */
#include "config.h"
#include "kernels.h"

#include <string.h>

#include "attr.h"
#include "vec/vec_avx512.h"

static RKV_ALWAYS_INLINE vi add_pairs(vi sum, vi a, vi b)
{
    return _mm512_dpwssd_epi32(sum, a, b);
}

#define RKV_TIER(kernel) rkv_##kernel##_vnni
#define GEMM_ROWS 14
#define GEMM_EACH_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#include "tmpl/gemm_int16.h"
