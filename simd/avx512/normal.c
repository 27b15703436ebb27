/* Normal deviates of the pinned generator on AVX-512. */
#include "config.h"
#include "kernels.h"

#include <string.h>

#include "attr.h"
#include "noise.h"
#include "normal.h"
#include "vec/wide_avx512.h"

#define RKV_TIER(kernel) rkv_##kernel##_avx512
#include "tmpl/normal.h"
