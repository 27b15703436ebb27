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

#define KV_DT bf16
#define KV_ELEM uint16_t
#include "tmpl/kv.h"

#include "fmt/q4_0.h"
#include "fmt/q8_0.h"
#include "tmpl/kv_blocks.h"
KV_BLOCKS(q4_0, 18)
KV_BLOCKS(q8_0, 34)
