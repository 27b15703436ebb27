/* Element types of weights and of the KV cache, one row each.
 * RKV_DTYPE(name, ggml_id, block_len, block_bytes): name as in files and options; id of the type in
 * GGUF files (format page: ggml docs/gguf.md); elements per block; bytes per block. */
#ifndef RKV_DTYPES_H
#define RKV_DTYPES_H

#include <stddef.h>
#include <stdint.h>

#define RKV_DTYPES \
    RKV_DTYPE(f32, 0, 1, 4) \
    RKV_DTYPE(f16, 1, 1, 2) \
    RKV_DTYPE(bf16, 30, 1, 2) \
    RKV_DTYPE(q4_0, 2, 32, 18) \
    RKV_DTYPE(q4_1, 3, 32, 20) \
    RKV_DTYPE(q5_0, 6, 32, 22) \
    RKV_DTYPE(q5_1, 7, 32, 24) \
    RKV_DTYPE(q8_0, 8, 32, 34) \
    RKV_DTYPE(q2_k, 10, 256, 84) \
    RKV_DTYPE(q3_k, 11, 256, 110) \
    RKV_DTYPE(q4_k, 12, 256, 144) \
    RKV_DTYPE(q5_k, 13, 256, 176) \
    RKV_DTYPE(q6_k, 14, 256, 210) \
    RKV_DTYPE(iq4_nl, 20, 32, 18) \
    RKV_DTYPE(iq4_xs, 23, 256, 136)

typedef enum rkv_dtype {
#define RKV_DTYPE(name, id, len, bytes) RKV_DT_##name,
    RKV_DTYPES
#undef RKV_DTYPE
    RKV_DT_COUNT
} rkv_dtype;

typedef struct rkv_dtype_desc {
    const char *name;
    uint32_t ggml_id;
    int block_len, block_bytes;
} rkv_dtype_desc;

/* Description of a type; dt must be one of the enumerators. */
const rkv_dtype_desc *rkv_dtype_get(rkv_dtype dt);

/* Type of a GGUF type id; RKV_DT_COUNT when we have no such type. */
rkv_dtype rkv_dtype_from_ggml(uint32_t id);

/* Type by its name, any case; RKV_DT_COUNT when unknown. */
rkv_dtype rkv_dtype_from_name(const char *name);

/* Bytes of n_elem elements stored as dt; n_elem must be a multiple of block_len and fit (the caller
 * of hostile sizes goes through rkv_gguf, which owns the overflow checks). */
static inline size_t rkv_dtype_bytes(const rkv_dtype_desc *d, size_t n_elem)
{
    return n_elem / (size_t)d->block_len * (size_t)d->block_bytes;
}

#endif
