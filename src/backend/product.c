/* Products with a weight matrix: few rows straight from the stored weights, many rows from panels.
 */
#include "config.h"
#include "backend/backend.h"

#include <stdint.h>

#include "backend/blas.h"
#include "backend/pairs.h"
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

typedef struct matvec_job {
    const rkv_backend *be;
    float *y;
    ptrdiff_t ldy;
    const rkv_matrix *w;
    const float *x;
    ptrdiff_t ldx;
    int n_x, run;               /* inputs; rows of a part */
} matvec_job;

static void matvec_part(void *ctx, int part, int thread)
{
    const matvec_job *j = ctx;
    const int first = part * j->run, n = least(j->run, j->w->n_out - first);
    (void)thread;
    j->be->ops.matvec[j->w->type](j->y + first, j->ldy, matrix_row(j->w, first), j->w->row_stride,
                                  j->x, j->ldx, j->n_x, n, j->w->n_in);
}

void rkv_matvec(const rkv_backend *be, float *y, ptrdiff_t ldy, const rkv_matrix *w, const float *x,
                ptrdiff_t ldx, int n_x, rkv_team *team)
{
    /* Two runs of rows per thread: few, since a call prepares x once for all its rows, but more
     * than threads, for one that comes late. GRAIN: whole cache lines of y. */
    enum { GRAIN = 16, LEAST = 64 };
    const int n_part = 2 * rkv_team_size(team), share = (w->n_out + n_part - 1) / n_part;
    const int run = share > LEAST ? (share + GRAIN - 1) / GRAIN * GRAIN : LEAST;
    matvec_job j = {be, y, ldy, w, x, ldx, n_x, run};
    rkv_team_run(team, matvec_part, &j, (w->n_out + run - 1) / run);
}

static int in_pairs(const rkv_backend *be)
{
    return be->gemm == RKV_GEMM_BF16 || be->gemm == RKV_GEMM_INT16;
}

size_t rkv_panels_bytes(const rkv_backend *be, int n_out, int n_in)
{
    if (in_pairs(be))
        return rkv_pairs_bytes(be, n_out, n_in);
    return rkv_mem_product(rkv_mem_product((size_t)n_out, (size_t)n_in), sizeof(float));
}

size_t rkv_panels_scratch(const rkv_backend *be, int n_in)
{
    return in_pairs(be) ? rkv_pairs_scratch(be, n_in) : 0;
}

void rkv_matrix_unpack(const rkv_backend *be, float *out, const rkv_matrix *w, int row, int k0,
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
            rkv_matrix_unpack(be, rows + r * UNPACK, w, first + r, k0, n);
        be->ops.transpose[RKV_DT_f32](dst + (size_t)k0 * (size_t)nr, nr, rows, UNPACK, nr, n);
    }
}

typedef struct pack_job {
    const rkv_backend *be;
    float *data;
    const rkv_matrix *w;
    int first, n_out, nr;
} pack_job;

static void pack_part(void *ctx, int p, int thread)
{
    const pack_job *j = ctx;
    float *dst = j->data + (size_t)p * (size_t)j->nr * (size_t)j->w->n_in;
    (void)thread;
    if (j->be->gemm == RKV_GEMM_BLAS)
        j->be->ops.unpack[j->w->type](dst, matrix_row(j->w, j->first + p), j->w->n_in);
    else
        pack_panel(j->be, dst, j->w, j->first + p * j->nr, least(j->nr, j->n_out - p * j->nr));
}

rkv_panels rkv_panels_pack(const rkv_backend *be, void *data, void *scratch, const rkv_matrix *w,
                           int first, int n_out, rkv_team *team)
{
    const rkv_panels p = {data, scratch, n_out, w->n_in};
    if (in_pairs(be)) {
        rkv_pairs_pack(be, &p, w, first, team);
        return p;
    }
    pack_job j = {be, data, w, first, n_out, be->gemm == RKV_GEMM_BLAS ? 1 : be->ops.gemm_nr};
    rkv_team_run(team, pack_part, &j, (n_out + j.nr - 1) / j.nr);
    return p;
}

/* Rows [i0, i0 + m) of the product with one panel, one pass of depth KC after the other. */
static void panel_product(const rkv_ops *ops, float *out, ptrdiff_t ldo, const float *x,
                          ptrdiff_t ldx, int m, const float *panel, int nr, int n_in)
{
    for (int k0 = 0; k0 < n_in; k0 += KC)
        ops->gemm[RKV_DT_f32](out, ldo, x + k0, ldx, panel + (size_t)k0 * (size_t)nr, nr, m, nr,
                              least(KC, n_in - k0), k0 > 0);
}

typedef struct product_job {
    const rkv_ops *ops;
    float *out;
    ptrdiff_t ldo;
    const float *x;
    ptrdiff_t ldx;
    int m, nr;
    const rkv_panels *w;
    int first, n;               /* inputs */
} product_job;

static void product_part(void *ctx, int p, int thread)
{
    const product_job *j = ctx;
    const int nr = least(j->nr, j->w->n_out - p * j->nr);
    (void)thread;
    panel_product(j->ops, j->out + (ptrdiff_t)p * j->nr, j->ldo, j->x, j->ldx, j->m,
                  (const float *)j->w->data + (size_t)p * (size_t)j->nr * (size_t)j->w->n_in +
                      (size_t)j->first * (size_t)nr,
                  nr, j->n);
}

void rkv_panels_product_inputs(const rkv_backend *be, float *out, ptrdiff_t ldo, const float *x,
                               ptrdiff_t ldx, int n_row, const rkv_panels *w, int first, int n,
                               rkv_team *team)
{
#ifdef HAVE_OPENBLAS
    if (be->gemm == RKV_GEMM_BLAS) {
        rkv_blas_sgemm_nt(out, (int)ldo, x, (int)ldx, (const float *)w->data + first, w->n_in,
                          n_row, w->n_out, n, rkv_team_size(team));
        return;
    }
#endif
    if (in_pairs(be)) {
        rkv_pairs_product(be, out, ldo, x, ldx, n_row, w, first, n, team);
        return;
    }
    const int nr = be->ops.gemm_nr;
    for (int i0 = 0; i0 < n_row; i0 += MC) {
        product_job j = {&be->ops, out + i0 * ldo, ldo, x + i0 * ldx, ldx, least(MC, n_row - i0),
                         nr, w, first, n};
        rkv_team_run(team, product_part, &j, (w->n_out + nr - 1) / nr);
    }
}

void rkv_panels_product(const rkv_backend *be, float *out, ptrdiff_t ldo, const float *x,
                        ptrdiff_t ldx, int n_row, const rkv_panels *w, rkv_team *team)
{
    rkv_panels_product_inputs(be, out, ldo, x, ldx, n_row, w, 0, w->n_in, team);
}
