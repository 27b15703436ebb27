/* What the block formats share: fields are bytes, so that a block may lie at any address. */
#ifndef RKV_FMT_BLOCK_H
#define RKV_FMT_BLOCK_H

#include <stdint.h>

#include "f16.h"

/* A little-endian 16-bit or 32-bit field. */
static inline uint16_t rkv_u16_at(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t rkv_u32_at(const uint8_t *p)
{
    return rkv_u16_at(p) | (uint32_t)rkv_u16_at(p + 2) << 16;
}

/* A binary16 field. */
static inline float rkv_half_at(const uint8_t *p)
{
    return rkv_f16_to_f32(rkv_u16_at(p));
}

#endif
