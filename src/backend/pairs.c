#include "config.h"
#include "backend/pairs.h"

#include <string.h>

#include "base/mem.h"

enum {
    NR = 32,      /* rows of w in a panel */
    UNPACK = 256, /* elements of a row unpacked at a time: a multiple of every block and of 32 */
    /* Rows that share one pass: their slice of x, 256 KiB, stays in the second-level cache for all
     * panels of a part. */
    MC = 256,
    PANELS = 8 /* at most so many panels make up a part */
};

/* What the two kinds of numbers differ in. */
typedef struct form {
    /* Inputs of a slice, the depth of a pass: a panel of them, 32 KiB, stays in the first-level
     * cache. For integers that is a block, and what the op takes. */
    int depth;
    int scale; /* numbers that a row's scale of a slice takes the room of */
} form;

static form form_of(const rkv_backend *be)
{
    const form bf16 = {512, 0}, int16 = {UNPACK, sizeof(float) / sizeof(int16_t)};
    return be->gemm == RKV_GEMM_INT16 ? int16 : bf16;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Numbers of a row of n_in inputs, scales included. */
static int row_numbers(form f, int n_in)
{
    const int depth = rkv_pairs_depth(n_in);
    return depth + (depth + f.depth - 1) / f.depth * f.scale;
}

/* Numbers from row to row of the rounded inputs: an odd number of cache lines, since the rows of a
 * tile would else fall into few sets of the first-level cache. */
static ptrdiff_t row_step(form f, int n_in)
{
    enum { LINE = 64 / sizeof(uint16_t) };
    return (ptrdiff_t)((row_numbers(f, n_in) + LINE - 1) / LINE | 1) * LINE;
}

size_t rkv_pairs_bytes(const rkv_backend *be, int n_out, int n_in)
{
    return rkv_mem_product(
        rkv_mem_product((size_t)n_out, (size_t)row_numbers(form_of(be), n_in)), sizeof(uint16_t));
}

size_t rkv_pairs_scratch(const rkv_backend *be, int n_in)
{
    return (size_t)row_step(form_of(be), n_in) * MC * sizeof(uint16_t);
}

/* The scales, where there are some, and then the pairs, of the panel of the slice from input k on
 * that begins with weight row j. */
static uint16_t *panel_at(form f, const rkv_panels *p, int j, int k)
{
    const int depth = least(f.depth, rkv_pairs_depth(p->n_in) - k);
    const size_t before = (size_t)(k / f.depth) * (size_t)(f.depth + f.scale);
    return (uint16_t *)p->data + before * (size_t)p->n_out + (size_t)j * (size_t)(depth + f.scale);
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
    const form f = form_of(job->be);
    const rkv_ops *ops = &job->be->ops;
    const int j = part * NR, nr = least(NR, job->p->n_out - j), n_in = job->w->n_in;
    float row[UNPACK];
    uint16_t rows[NR * UNPACK];
    (void)thread;
    for (int k = 0; k < n_in; k += UNPACK) {
        const int n = least(UNPACK, n_in - k), all = rkv_pairs_depth(n), at = k % f.depth;
        uint16_t *panel = panel_at(f, job->p, j, k - at);
        memset(row + n, 0, (size_t)(all - n) * sizeof *row);
        for (int r = 0; r < nr; r++) {
            uint16_t *to = rows + r * UNPACK;
            rkv_matrix_unpack(job->be, row, job->w, job->first + j + r, k, n);
            if (f.scale)
                ((float *)panel)[r] = ops->pack_int16[RKV_DT_f32]((int16_t *)to, row, all);
            else
                ops->pack[RKV_DT_bf16](to, row, all);
        }
        ops->transpose[RKV_DT_f32](panel + (size_t)nr * (size_t)(f.scale + at), nr, rows,
                                   UNPACK / 2, nr, all / 2);
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
    form f;
    float *out;
    const float *x;
    ptrdiff_t ldo, ldx;
    int m, n_panel;
    const rkv_panels *w;
    int first, n;               /* inputs */
} product_job;

/* First slice with inputs of the product. */
static int first_slice(const product_job *job)
{
    return job->first / job->f.depth * job->f.depth;
}

/* Inputs [k, k + n) of a row as integers, 0 outside the product's; returns the scale. */
static float round_slice(const product_job *job, int16_t *to, const float *x, int k, int n)
{
    const int a = k > job->first ? k : job->first, b = least(k + n, job->first + job->n);
    float slice[UNPACK] = {0.0f};
    if (b - a == n)
        return job->ops->pack_int16[RKV_DT_f32](to, x + (a - job->first), n);
    memcpy(slice + (a - k), x + (a - job->first), (size_t)(b - a) * sizeof *x);
    return job->ops->pack_int16[RKV_DT_f32](to, slice, n);
}

/* A row's numbers, and behind them a scale for each slice. */
static void round_rows(void *ctx, int first, int end)
{
    const product_job *job = ctx;
    const form f = job->f;
    const int n = job->w->n_in, depth = rkv_pairs_depth(n), end_in = job->first + job->n;
    for (int i = first; i < end; i++) {
        uint16_t *to = (uint16_t *)job->w->scratch + i * row_step(f, n);
        const float *x = job->x + i * job->ldx;
        float *scale = (float *)(to + depth);
        if (!f.scale) {
            memset(to, 0, (size_t)job->first * sizeof *to);
            job->ops->pack[RKV_DT_bf16](to + job->first, x, job->n);
            memset(to + end_in, 0, (size_t)(depth - end_in) * sizeof *to);
            continue;
        }
        for (int k = first_slice(job); k < end_in; k += f.depth)
            scale[k / f.depth] = round_slice(job, (int16_t *)to + k, x, k, least(f.depth, n - k));
        memset(to + n, 0, (size_t)(depth - n) * sizeof *to);
    }
}

/* All rows of a pass times a panel: the slice from input k on, nr weight rows from j on. */
static void panel_product(const product_job *job, int j, int nr, int k)
{
    const form f = job->f;
    const rkv_panels *w = job->w;
    const int all = rkv_pairs_depth(w->n_in), depth = least(f.depth, all - k);
    const ptrdiff_t step = row_step(f, w->n_in);
    const uint16_t *x = w->scratch, *panel = panel_at(f, w, j, k);
    if (f.scale)
        job->ops->gemm_int16[RKV_DT_f32](
            job->out + j, job->ldo, (const int16_t *)x + k, step,
            (const float *)(x + all) + k / f.depth, step / f.scale,
            (const int16_t *)panel + nr * f.scale, nr, (const float *)panel, job->m, nr, depth,
            k > first_slice(job));
    else
        job->ops->gemm_pairs[RKV_DT_bf16](job->out + j, job->ldo, x + k, step, panel, nr, job->m,
                                          nr, depth, k > first_slice(job));
}

static void product_part(void *ctx, int part, int thread)
{
    const product_job *job = ctx;
    const int from = part * job->n_panel * NR, to = least(from + job->n_panel * NR, job->w->n_out);
    (void)thread;
    for (int k = first_slice(job); k < job->first + job->n; k += job->f.depth)
        for (int j = from; j < to; j += NR)
            panel_product(job, j, least(NR, to - j), k);
}

void rkv_pairs_product(const rkv_backend *be, float *out, ptrdiff_t ldo, const float *x,
                       ptrdiff_t ldx, int n_row, const rkv_panels *w, int first, int n,
                       rkv_team *team)
{
    enum { GRAIN = 8 };
    const int n_panel = (w->n_out + NR - 1) / NR, share = n_panel / (2 * rkv_team_size(team));
    for (int i = 0; i < n_row; i += MC) {
        product_job job = {&be->ops,
                           form_of(be),
                           out + i * ldo,
                           x + i * ldx,
                           ldo,
                           ldx,
                           least(MC, n_row - i),
                           share < 1 ? 1 : least(share, PANELS),
                           w,
                           first,
                           n};
        rkv_team_ranges(team, round_rows, &job, job.m, GRAIN);
        rkv_team_run(team, product_part, &job, (n_panel + job.n_panel - 1) / job.n_panel);
    }
}
