/* The kernels of cuda/ as a host compiler builds them. */
#ifndef RKV_HOST_KERNELS_H
#define RKV_HOST_KERNELS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
/* rkv_noise_normal_kernel with the geometry of cuda/noise.cu; 0 or an error number. */
int host_noise_normal(double *out, uint64_t key, uint64_t first, int n);

/* rkv_noise_key, _word and _uniform as the C++ compiler sees them. */
uint64_t host_noise_key(uint64_t example, uint64_t seed, uint64_t layer);
uint64_t host_noise_word(uint64_t key, uint64_t j);
double host_noise_uniform(uint64_t key, uint64_t j);
#ifdef __cplusplus
}
#endif

#endif
