#include "config.h"
#include "engine/query_stats.h"

#include <string.h>

enum { BLOCK = 64 };            /* positions whose products are one sum of floats */

typedef struct head_work {
    float *shift;               /* [d] the first query that counts: sums are of what differs from
                                   it, since a large constant part would drown the covariance */
    float *rows, *columns;      /* [BLOCK][d], [d][BLOCK] */
    float *part;                /* [d][d] */
    double *mean, *product;     /* [d], [d][d] */
} head_work;

size_t rkv_stat_work_floats(int d_head)
{
    const size_t d = (size_t)d_head;
    return d + 2 * BLOCK * d + d * d;
}

static head_work cut(const rkv_stat_sums *s, int h)
{
    const ptrdiff_t d = s->d_head;
    head_work w = {.shift = s->work + h * (ptrdiff_t)rkv_stat_work_floats(s->d_head),
                   .mean = s->sum + h * (ptrdiff_t)rkv_stat_floats(s->d_head)};
    w.rows = w.shift + d;
    w.columns = w.rows + BLOCK * d;
    w.part = w.columns + BLOCK * d;
    w.product = w.mean + d;
    return w;
}

void rkv_stat_begin(const rkv_stat_sums *s)
{
    const size_t n = (size_t)s->n_head * rkv_stat_floats(s->d_head);
    for (size_t i = 0; i < n; i++)
        s->sum[i] = 0.0;
}

/* Adds the n rows that wait. */
static void add_block(const rkv_backend *be, const head_work *w, int d, int n)
{
    be->ops.transpose[RKV_DT_f32](w->columns, BLOCK, w->rows, d, n, d);
    be->ops.gemm[RKV_DT_f32](w->part, d, w->columns, BLOCK, w->rows, d, d, d, n, 0);
    for (int i = 0; i < d * d; i++)
        w->product[i] += (double)w->part[i];
}

typedef struct look_job {
    const rkv_stat_sums *s;
    const rkv_step *step;
} look_job;

static void look_head(void *ctx, int h, int thread)
{
    const look_job *j = ctx;
    const rkv_stat_sums *s = j->s;
    const int d = s->d_head;
    const head_work w = cut(s, h);
    (void)thread;
    for (int i = 0; i < j->step->n_tok; i++) {
        const float *q = j->step->q + ((ptrdiff_t)i * s->n_head + h) * d;
        const int32_t at = j->step->pos[i] - s->first;
        float *row = w.rows + (at & (BLOCK - 1)) * (ptrdiff_t)d;
        if (at < 0)
            continue;
        if (at == 0)
            memcpy(w.shift, q, (size_t)d * sizeof *q);
        for (int c = 0; c < d; c++) {
            row[c] = q[c] - w.shift[c];
            w.mean[c] += (double)row[c];
        }
        if ((at & (BLOCK - 1)) == BLOCK - 1)
            add_block(j->step->be, &w, d, BLOCK);
    }
}

void rkv_stat_look(void *ctx, const rkv_step *step, int l)
{
    look_job j = {ctx, step};
    (void)l;
    rkv_team_run(step->team, look_head, &j, j.s->n_head);
}

void rkv_stat_end(const rkv_stat_sums *s, const rkv_backend *be, float *out, int n)
{
    const int d = s->d_head, count = n - s->first;
    const size_t head = rkv_stat_floats(d);
    if (count <= 0) {
        memset(out, 0, (size_t)s->n_head * head * sizeof *out);
        return;
    }
    for (int h = 0; h < s->n_head; h++, out += head) {
        const head_work w = cut(s, h);
        if (count % BLOCK)
            add_block(be, &w, d, count % BLOCK);
        for (int a = 0; a < d; a++) {
            const double mean = w.mean[a] / count;
            out[a] = (float)((double)w.shift[a] + mean);
            for (int b = 0; b < d; b++)
                out[(a + 1) * d + b] =
                    (float)(w.product[a * d + b] / count - mean * (w.mean[b] / count));
        }
    }
}
