/* What the block formats share: fields are bytes, so that a block may lie at any address. */
#ifndef RKV_FMT_BLOCK_H
#define RKV_FMT_BLOCK_H

#include <stdint.h>
#include <string.h>

#include "f16.h"

/* 16-bit and 32-bit fields; the files and every machine we build for are little-endian. */
static inline uint16_t rkv_u16_at(const uint8_t *p)
{
    uint16_t u;
    memcpy(&u, p, sizeof u);
    return u;
}

static inline uint32_t rkv_u32_at(const uint8_t *p)
{
    uint32_t u;
    memcpy(&u, p, sizeof u);
    return u;
}

/* A binary16 field. */
static inline float rkv_half_at(const uint8_t *p)
{
    return rkv_f16_to_f32(rkv_u16_at(p));
}

#endif
