/* gemm on AVX-512: 14 x 32 sums in 28 of the 32 registers; 32 KiB of b. */
#include "config.h"
#include "kernels.h"

#include "attr.h"
#include "vec/vec_avx512.h"

#define RKV_TIER(kernel) rkv_##kernel##_avx512
#define GEMM_ROWS 14
#define GEMM_K_BLOCK 256
#define GEMM_EACH_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#include "tmpl/gemm.h"
