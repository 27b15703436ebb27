#include "config.h"
#include "backend/pairs.h"

#include <string.h>

#include "base/mem.h"

enum {
    NR = 32,      /* rows of w in a panel */
    UNPACK = 256, /* elements of a row unpacked at a time: a multiple of every block and of 32 */
    /* Depth of a pass: a panel's slice, 32 KiB, stays in the first-level cache. */
    KC = 512,
    /* Rows that share one pass: their slice of x, 256 KiB, stays in the second-level cache for all
     * panels of a part. */
    MC = 256,
    PANELS = 8 /* at most so many panels make up a part */
};

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Numbers from row to row of the rounded inputs: an odd number of cache lines, since the rows of a
 * tile would else fall into few sets of the first-level cache. */
static ptrdiff_t row_step(int n_in)
{
    enum { LINE = 64 / sizeof(uint16_t) };
    return (ptrdiff_t)(rkv_pairs_depth(n_in) / LINE | 1) * LINE;
}

size_t rkv_pairs_bytes(int n_out, int n_in)
{
    return rkv_mem_product(rkv_mem_product((size_t)n_out, (size_t)rkv_pairs_depth(n_in)),
                           sizeof(uint16_t));
}

size_t rkv_pairs_scratch(int n_in)
{
    return (size_t)row_step(n_in) * MC * sizeof(uint16_t);
}

/* Pair row k / 2 of the panel that begins with weight row j. */
static uint16_t *panel_at(const rkv_panels *p, int j, int k)
{
    const int slice = k / KC * KC, depth = least(KC, rkv_pairs_depth(p->n_in) - slice);
    return (uint16_t *)p->data + (size_t)slice * (size_t)p->n_out + (size_t)j * (size_t)depth +
           (size_t)(k - slice) * (size_t)least(NR, p->n_out - j);
}

typedef struct pack_job {
    const rkv_backend *be;
    const rkv_panels *p;
    const rkv_matrix *w;
    int first;
} pack_job;

static void pack_part(void *ctx, int part, int thread)
{
    const pack_job *job = ctx;
    const int j = part * NR, nr = least(NR, job->p->n_out - j), n_in = job->w->n_in;
    float row[UNPACK];
    uint16_t rows[NR * UNPACK];
    (void)thread;
    for (int k = 0; k < n_in; k += UNPACK) {
        const int n = least(UNPACK, n_in - k), all = rkv_pairs_depth(n);
        memset(row + n, 0, (size_t)(all - n) * sizeof *row);
        for (int r = 0; r < nr; r++) {
            rkv_matrix_unpack(job->be, row, job->w, job->first + j + r, k, n);
            job->be->ops.pack[RKV_DT_bf16](rows + r * UNPACK, row, all);
        }
        job->be->ops.transpose[RKV_DT_f32](panel_at(job->p, j, k), nr, rows, UNPACK / 2, nr,
                                           all / 2);
    }
}

void rkv_pairs_pack(const rkv_backend *be, const rkv_panels *p, const rkv_matrix *w, int first,
                    rkv_team *team)
{
    pack_job job = {be, p, w, first};
    rkv_team_run(team, pack_part, &job, (p->n_out + NR - 1) / NR);
}

typedef struct product_job {
    const rkv_ops *ops;
    float *out;
    const float *x;
    ptrdiff_t ldo, ldx;
    int m, n_panel;
    const rkv_panels *w;
} product_job;

static void round_rows(void *ctx, int first, int end)
{
    const product_job *job = ctx;
    const int n = job->w->n_in;
    for (int i = first; i < end; i++) {
        uint16_t *to = (uint16_t *)job->w->scratch + i * row_step(n);
        job->ops->pack[RKV_DT_bf16](to, job->x + i * job->ldx, n);
        memset(to + n, 0, (size_t)(rkv_pairs_depth(n) - n) * sizeof *to);
    }
}

static void product_part(void *ctx, int part, int thread)
{
    const product_job *job = ctx;
    const rkv_panels *w = job->w;
    const int from = part * job->n_panel * NR, to = least(from + job->n_panel * NR, w->n_out);
    const int depth = rkv_pairs_depth(w->n_in);
    const ptrdiff_t lda = row_step(w->n_in);
    (void)thread;
    for (int k = 0; k < depth; k += KC)
        for (int j = from; j < to; j += NR) {
            const int nr = least(NR, to - j);
            job->ops->gemm_pairs[RKV_DT_bf16](
                job->out + j, job->ldo, (const uint16_t *)w->scratch + k, lda, panel_at(w, j, k),
                nr, job->m, nr, least(KC, depth - k), k > 0);
        }
}

void rkv_pairs_product(const rkv_backend *be, float *out, ptrdiff_t ldo, const float *x,
                       ptrdiff_t ldx, int n_row, const rkv_panels *w, rkv_team *team)
{
    enum { GRAIN = 8 };
    const int n_panel = (w->n_out + NR - 1) / NR, share = n_panel / (2 * rkv_team_size(team));
    for (int i = 0; i < n_row; i += MC) {
        product_job job = {&be->ops,
                           out + i * ldo,
                           x + i * ldx,
                           ldo,
                           ldx,
                           least(MC, n_row - i),
                           share < 1 ? 1 : least(share, PANELS),
                           w};
        rkv_team_ranges(team, round_rows, &job, job.m, GRAIN);
        rkv_team_run(team, product_part, &job, (n_panel + job.n_panel - 1) / job.n_panel);
    }
}
