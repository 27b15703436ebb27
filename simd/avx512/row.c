/* Rows, elements and transposition on AVX-512. */
#include "config.h"
#include "kernels.h"

#include <math.h>
#include <string.h>

#include "attr.h"
#include "vec/vec_avx512.h"
#include "vec/exp.h"

#define RKV_TIER(kernel) rkv_##kernel##_avx512
#include "tmpl/convert.h"
#include "tmpl/elementwise.h"
#include "tmpl/row.h"
#include "tmpl/transpose.h"
