/* The pinned generator: counter-based, so that any thread, rank or device draws the same numbers.
 * Source: METHOD section 7, row "generator"; mix is the finalizer of SplitMix64.
 *
 * Keys, words and uniforms are the same bits everywhere: integers, and IEEE operations that round
 * correctly. Deviates use the logarithm and the cosine of the platform, which do not promise that;
 * RKV_NOISE_TOL says how far two platforms may lie apart. */
#ifndef RKV_NOISE_H
#define RKV_NOISE_H

#include <math.h>
#include <stdint.h>

#include "mix.h"

/* |a - b| <= RKV_NOISE_TOL |b| for one deviate by two platforms: log within 1 ulp on each (2 ulp,
 * halved by the root), cos within 1 ulp (glibc) and 2 ulp (CUDA), roots and products rounded on
 * both; an ulp is at most 2^-52 of the value. Source: glibc manual, "Known Maximum Errors"; CUDA
 * Programming Guide, "Mathematical Functions" (bounds from tests, not proofs). */
#define RKV_NOISE_TOL 0x6p-52

/* Key of one stream. */
RKV_HOST_DEVICE static inline uint64_t rkv_noise_key(uint64_t example, uint64_t seed,
                                                     uint64_t layer)
{
    return rkv_hash_mix(UINT64_C(1000003) * example + UINT64_C(1009) * seed + layer + 1);
}

/* From counter to counter (the golden ratio's 64 bits: Steele, Lea & Flood 2014). */
#define RKV_NOISE_STEP UINT64_C(0x9E3779B97F4A7C15)

/* Word j of a stream. */
RKV_HOST_DEVICE static inline uint64_t rkv_noise_word(uint64_t key, uint64_t j)
{
    return rkv_hash_mix(key + (j + 1) * RKV_NOISE_STEP);
}

/* Uniform in (0, 1]: never 0; 1 only by rounding, for one word in 2^53. */
RKV_HOST_DEVICE static inline double rkv_noise_uniform(uint64_t key, uint64_t j)
{
    return ((double)(rkv_noise_word(key, j) >> 11) + 0.5) * 0x1p-53;
}

/* Standard normal deviate i of a stream (Box & Muller 1958, cosine half). */
RKV_HOST_DEVICE static inline double rkv_noise_deviate(uint64_t key, uint64_t i)
{
    const double two_pi = 6.283185307179586476925;
    const double radius = sqrt(-2.0 * log(rkv_noise_uniform(key, 2 * i)));
    return radius * cos(two_pi * rkv_noise_uniform(key, 2 * i + 1));
}

/* out[i] = deviate first + i of the stream, i < n: what the kernels (op normal) and the device are
 * held against. */
static inline void rkv_noise_normal(double *out, uint64_t key, uint64_t first, int n)
{
    for (int i = 0; i < n; i++)
        out[i] = rkv_noise_deviate(key, first + (uint64_t)i);
}

#endif
