/* gemm on AVX2: 6 x 16 sums in 12 of the 16 registers; 24 KiB of b. With k = 4864, blocks of 256
 * reach 82 % of the FMA peak on Zen 3, of 384 and 512 86 %, of 768 85 %. */
#include "config.h"
#include "kernels.h"

#include "attr.h"
#include "vec/vec_avx2.h"

#define RKV_TIER(kernel) rkv_##kernel##_avx2
#define GEMM_ROWS 6
#define GEMM_K_BLOCK 384
#define GEMM_EACH_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6)
#include "tmpl/gemm.h"
