/* Scores of keys and sums of values on AVX-512. */
#include "config.h"
#include "kernels.h"

#include "attr.h"
#include "vec/vec_avx512.h"

#define RKV_TIER(kernel) RKV_TIER_(kernel)
#define RKV_TIER_(kernel) rkv_##kernel##_avx512

#define KV_DT f32
#define KV_ELEM float
#include "tmpl/kv.h"

#define KV_DT f16
#define KV_ELEM uint16_t
#include "tmpl/kv.h"
