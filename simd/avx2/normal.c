/* Normal deviates of the pinned generator on AVX2. */
#include "config.h"
#include "kernels.h"

#include <string.h>

#include "attr.h"
#include "noise.h"
#include "normal.h"
#include "vec/wide_avx2.h"

#define RKV_TIER(kernel) rkv_##kernel##_avx2
#include "tmpl/normal.h"
