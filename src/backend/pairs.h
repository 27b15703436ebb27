/* Products with many rows of 16-bit numbers: in bf16, weights and inputs rounded to nearest even,
 * sums as the op gemm_pairs defines them; or in integers, each 256 inputs of a row with a scale, as
 * the ops pack_int16 and gemm_int16 define them. Called by the functions of backend.h.
 *
 * Panels: [slice of 512 inputs][panel of 32 weight rows][slice / 2][nr] pairs (w[j][2 q],
 * w[j][2 q + 1]), n_in padded with zeros to a multiple of 32; the last panel is as wide as there
 * are rows left. The panels of a slice lie behind each other in the order in which a product reads
 * them. Integers have slices of 256 inputs, and [nr] scales in front of each panel. */
#ifndef RKV_PAIRS_H
#define RKV_PAIRS_H

#include "backend/backend.h"

/* Depth of a product of n terms in pairs: n padded to a multiple of 32, as gemm_pairs wants it. */
static inline int rkv_pairs_depth(int n)
{
    enum { STEP = 32 };
    return (n + STEP - 1) / STEP * STEP;
}

size_t rkv_pairs_bytes(const rkv_backend *be, int n_out, int n_in);
size_t rkv_pairs_scratch(const rkv_backend *be, int n_in);

/* Rows [first, first + p->n_out) of w into p->data. */
void rkv_pairs_pack(const rkv_backend *be, const rkv_panels *p, const rkv_matrix *w, int first,
                    rkv_team *team);

/* Of inputs [first, first + n). */
void rkv_pairs_product(const rkv_backend *be, float *out, ptrdiff_t ldo, const float *x,
                       ptrdiff_t ldx, int n_row, const rkv_panels *w, int first, int n,
                       rkv_team *team);

/* Elements [k0, k0 + n) of row `row` of w, unpacked; both are multiples of the type's block, or the
 * row ends there. product.c */
void rkv_matrix_unpack(const rkv_backend *be, float *out, const rkv_matrix *w, int row, int k0,
                       int n);

#endif
