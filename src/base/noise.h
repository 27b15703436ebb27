/* The pinned generator: counter-based, so that any thread, rank or device draws the same numbers.
 * Source: METHOD section 7, row "generator"; mix is the finalizer of SplitMix64. */
#ifndef RKV_NOISE_H
#define RKV_NOISE_H

#include <stdint.h>

#include "base/hash.h"

/* Key of one stream. */
static inline uint64_t rkv_noise_key(uint64_t example, uint64_t seed, uint64_t layer)
{
    return rkv_hash_mix(UINT64_C(1000003) * example + UINT64_C(1009) * seed + layer + 1);
}

/* Word j of a stream. */
static inline uint64_t rkv_noise_word(uint64_t key, uint64_t j)
{
    return rkv_hash_mix(key + (j + 1) * UINT64_C(0x9E3779B97F4A7C15));
}

/* Uniform in (0, 1), never an end point. */
static inline double rkv_noise_uniform(uint64_t key, uint64_t j)
{
    return ((double)(rkv_noise_word(key, j) >> 11) + 0.5) * 0x1p-53;
}

/* out[i] = standard normal deviate first + i of the stream, i < n (Box & Muller 1958, cosine half).
 */
void rkv_noise_normal(double *out, uint64_t key, uint64_t first, int n);

#endif
