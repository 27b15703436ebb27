/* A bijection of 64-bit words, alone in its header since GPU code (CUDA C++) includes it too. */
#ifndef RKV_MIX_H
#define RKV_MIX_H

#include <stdint.h>

/* Before a function that runs on the host and, compiled by nvcc, on the device as well. Such a
 * header keeps to the common part of C11 and C++17. */
#ifdef __CUDACC__
#define RKV_HOST_DEVICE __host__ __device__
#else
#define RKV_HOST_DEVICE
#endif

/* The finalizer of SplitMix64 (Steele, Lea & Flood 2014): spreads every bit. */
RKV_HOST_DEVICE static inline uint64_t rkv_hash_mix(uint64_t z)
{
    z ^= z >> 30;
    z *= UINT64_C(0xBF58476D1CE4E5B9);
    z ^= z >> 27;
    z *= UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

#endif
