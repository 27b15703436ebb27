/* Products with a weight matrix: one row straight from the stored weights, many rows from panels.
 */
#include "config.h"
#include "backend/backend.h"

#include <stdint.h>

#include "backend/blas.h"
#include "base/mem.h"

enum {
    UNPACK = 256, /* elements of a row unpacked at a time: a multiple of every block */
    NR_MAX = 32,
    /* Depth of a pass: a panel slice [KC][nr] and its rows of x stay in the first-level cache. */
    KC = 256,
    /* Rows that share one pass over the panels: x[MC][KC] stays in the second-level cache. */
    MC = 256
};

static int least(int a, int b)
{
    return a < b ? a : b;
}

static const void *matrix_row(const rkv_matrix *w, int row)
{
    return (const char *)w->data + row * w->row_stride;
}

void rkv_matvec(const rkv_backend *be, float *y, const rkv_matrix *w, const float *x, int n_thread)
{
    enum { GRAIN = 64 };        /* rows per unit of work: whole cache lines of y */
    const int n_unit = (w->n_out + GRAIN - 1) / GRAIN;
    #pragma omp parallel for schedule(static) num_threads(n_thread) if (n_thread > 1)
    for (int u = 0; u < n_unit; u++) {
        const int first = u * GRAIN, n = least(GRAIN, w->n_out - first);
        be->ops.matvec[w->type](y + first, matrix_row(w, first), w->row_stride, x, n, w->n_in);
    }
}

size_t rkv_panels_bytes(const rkv_matrix *w)
{
    return rkv_mem_product(rkv_mem_product((size_t)w->n_out, (size_t)w->n_in), sizeof(float));
}

/* Elements [k0, k0 + n) of row `row`, unpacked. */
static void unpack_part(const rkv_backend *be, float *out, const rkv_matrix *w, int row, int k0,
                        int n)
{
    const rkv_dtype_desc *d = rkv_dtype_get(w->type);
    const char *src = matrix_row(w, row);
    be->ops.unpack[w->type](out, src + rkv_dtype_bytes(d, (size_t)k0), n);
}

/* One panel: nr rows from `first` on, as [n_in][nr]. */
static void pack_panel(const rkv_backend *be, float *dst, const rkv_matrix *w, int first, int nr)
{
    float rows[NR_MAX * UNPACK];
    for (int k0 = 0; k0 < w->n_in; k0 += UNPACK) {
        const int n = least(UNPACK, w->n_in - k0);
        for (int r = 0; r < nr; r++)
            unpack_part(be, rows + r * UNPACK, w, first + r, k0, n);
        be->ops.transpose[RKV_DT_f32](dst + (size_t)k0 * (size_t)nr, nr, rows, UNPACK, nr, n);
    }
}

rkv_panels rkv_panels_pack(const rkv_backend *be, float *data, const rkv_matrix *w, int first,
                           int n_out, int n_thread)
{
    const size_t n_in = (size_t)w->n_in;
    const int nr = be->blas ? 1 : be->ops.gemm_nr, n_panel = (n_out + nr - 1) / nr;
    #pragma omp parallel for schedule(static) num_threads(n_thread) if (n_thread > 1)
    for (int p = 0; p < n_panel; p++) {
        float *dst = data + (size_t)p * (size_t)nr * n_in;
        if (be->blas)
            be->ops.unpack[w->type](dst, matrix_row(w, first + p), w->n_in);
        else
            pack_panel(be, dst, w, first + p * nr, least(nr, n_out - p * nr));
    }
    return (rkv_panels){data, n_out, w->n_in};
}

/* Rows [i0, i0 + m) of the product with one panel, one pass of depth KC after the other. */
static void panel_product(const rkv_ops *ops, float *out, ptrdiff_t ldo, const float *x,
                          ptrdiff_t ldx, int m, const float *panel, int nr, int n_in)
{
    for (int k0 = 0; k0 < n_in; k0 += KC)
        ops->gemm[RKV_DT_f32](out, ldo, x + k0, ldx, panel + (size_t)k0 * (size_t)nr, nr, m, nr,
                              least(KC, n_in - k0), k0 > 0);
}

void rkv_panels_product(const rkv_backend *be, float *out, ptrdiff_t ldo, const float *x,
                        ptrdiff_t ldx, int n_row, const rkv_panels *w, int n_thread)
{
#ifdef HAVE_OPENBLAS
    if (be->blas) {
        rkv_blas_sgemm_nt(out, (int)ldo, x, (int)ldx, w->data, w->n_in, n_row, w->n_out, w->n_in,
                          n_thread);
        return;
    }
#endif
    const int nr = be->ops.gemm_nr, n_panel = (w->n_out + nr - 1) / nr;
    for (int i0 = 0; i0 < n_row; i0 += MC) {
        const int m = least(MC, n_row - i0);
        #pragma omp parallel for schedule(static) num_threads(n_thread) if (n_thread > 1)
        for (int p = 0; p < n_panel; p++)
            panel_product(&be->ops, out + i0 * ldo + (ptrdiff_t)p * nr, ldo, x + i0 * ldx, ldx, m,
                          w->data + (size_t)p * (size_t)nr * (size_t)w->n_in,
                          least(nr, w->n_out - p * nr), w->n_in);
    }
}
