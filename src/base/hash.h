/* 64-bit hash of a byte stream, for fingerprints and caches; not cryptographic.
 * The same on every machine: input is read as little-endian words. */
#ifndef RKV_HASH_H
#define RKV_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "mix.h"

typedef struct rkv_hash {
    uint64_t state, length;
} rkv_hash;

static inline rkv_hash rkv_hash_init(void)
{
    return (rkv_hash){UINT64_C(0x9E3779B97F4A7C15), 0};
}

/* Adds n bytes. A field is hashed by one call: the split into calls is part of the hash. */
static inline void rkv_hash_add(rkv_hash *h, const void *data, size_t n)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i += 8) {
        uint64_t w = 0;
        for (size_t j = 0; j < 8 && i + j < n; j++)
            w |= (uint64_t)p[i + j] << 8 * j;
        h->state = rkv_hash_mix(h->state ^ w) + UINT64_C(0x9E3779B97F4A7C15);
    }
    h->length += n;
    h->state = rkv_hash_mix(h->state ^ n);
}

static inline uint64_t rkv_hash_end(const rkv_hash *h)
{
    return rkv_hash_mix(h->state ^ h->length);
}

#endif
