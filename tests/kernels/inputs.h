/* Seeded inputs of every kind that has ever broken a kernel. */
#ifndef INPUTS_H
#define INPUTS_H

#include <stddef.h>
#include <stdint.h>

#include "dtypes.h"

/* A stream of random words; the same seed, name and case give the same stream on every machine. */
typedef struct case_rng {
    uint64_t key, next;
} case_rng;

case_rng rng_create(uint64_t seed, const char *name, int index);
uint64_t rng_word(case_rng *r);
/* In [0, n); n >= 1. */
size_t rng_below(case_rng *r, size_t n);
/* In (-1, 1). */
float rng_signed(case_rng *r);

typedef enum input_kind {
    INPUT_UNIFORM,                      /* in (-1, 1) */
    INPUT_MIXED,                        /* signed powers of two times a uniform, 2^-20 to 2^20 */
    INPUT_EQUAL,                        /* one value everywhere */
    INPUT_ZERO,                         /* +0 and -0 */
    INPUT_TINY,                         /* about 1e-20: squares lose bits or vanish */
    INPUT_DENORMAL,                     /* below 2^-126 */
    INPUT_HUGE,                         /* about 1e15: long sums of products stay finite */
    INPUT_KINDS
} input_kind;

extern const char *const input_kind_name[INPUT_KINDS];

void input_floats(float *out, size_t n, input_kind kind, case_rng *r);

/* Half precision of the same kinds, within its range; all finite. */
void input_halfs(uint16_t *out, size_t n, input_kind kind, case_rng *r);

/* n blocks of a weight or KV type: plain numbers of that kind, or random quanta under finite scales
 * of that kind. When kind is INPUT_MIXED and wild is set, all but f32 also hold NaN and infinity.
 */
void input_blocks(rkv_dtype dt, void *out, size_t n, input_kind kind, int wild, case_rng *r);

/* Masks scores: by mode none, some, all but one, or all become -inf. */
enum { INPUT_MASKS = 4 };
void input_mask(float *s, size_t n, int mode, case_rng *r);

/* All exponents of binary32 with mantissas at every rounding edge of binary16 and of bfloat16, both
 * signs. */
enum { INPUT_EDGES = 2 * 256 * 18 };
void input_edges(float *out);

#endif
