/* Random weights of any element type, for made models: each block is a function of (key, its
 * number) alone, so that any part can be written at any time. The same bytes on every machine. */
#ifndef RKV_TINY_WEIGHTS_H
#define RKV_TINY_WEIGHTS_H

#include <stddef.h>
#include <stdint.h>

#include "dtypes.h"

/* Blocks first .. first + n_block - 1 of a stream: values with mean about center and standard
 * deviation about std; center is 0 for types with blocks. Quants are random, scales of either sign.
 */
void tiny_weights(void *dst, rkv_dtype type, uint64_t key, uint64_t first, size_t n_block,
                  float center, float std);

#endif
