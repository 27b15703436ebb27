/* KL divergence over a vocabulary that passes by in pieces, so that no row of logits is kept whole.
 */
#include "config.h"
#include "profile/kl.h"

#include <math.h>

#include "base/mem.h"

typedef struct sums {           /* of one row, relative to its largest logit so far */
    double top, z;              /* max; sum exp(logit - top) */
    double cross;               /* sum exp(ref - ref top) (ref - logit): variants only */
} sums;

struct rkv_kl_stream {
    int n_ref, n_row, n_col_max;
    rkv_team *team;
    sums *row;                  /* [n_row] */
    double *weight;             /* [team][n_col_max] exp(ref - ref top) of one row */
};

static size_t weight_bytes(int n_col_max, const rkv_team *team)
{
    return (size_t)rkv_team_size(team) * (size_t)n_col_max * sizeof(double);
}

uint64_t rkv_kl_bytes(uint64_t n_row, int n_col_max, const rkv_team *team)
{
    return sizeof(rkv_kl_stream) + n_row * sizeof(sums) + weight_bytes(n_col_max, team);
}

rkv_status rkv_kl_create(rkv_kl_stream **out, int n_ref, int n_row, int n_col_max, rkv_team *team,
                         rkv_error *e)
{
    rkv_kl_stream *s = rkv_mem_calloc(1, sizeof *s);
    if (s) {
        *s = (rkv_kl_stream){
            .n_ref = n_ref, .n_row = n_row, .n_col_max = n_col_max, .team = team};
        s->row = rkv_mem_alloc((size_t)n_row * sizeof *s->row);
        s->weight = rkv_mem_alloc(weight_bytes(n_col_max, team));
    }
    if (!s || !s->row || !s->weight) {
        rkv_kl_free(s);
        return rkv_fail(e, RKV_E_MEM, "KL: out of memory for %d rows", n_row);
    }
    for (int i = 0; i < n_row; i++)
        s->row[i] = (sums){-INFINITY, 0.0, 0.0};
    *out = s;
    return RKV_OK;
}

void rkv_kl_free(rkv_kl_stream *s)
{
    if (!s)
        return;
    rkv_mem_free(s->row);
    rkv_mem_free(s->weight);
    rkv_mem_free(s);
}

/* Raises the maximum over the new columns; returns what earlier sums must be multiplied by. */
static double raise_top(sums *r, const float *x, int n)
{
    const double old = r->top;
    for (int i = 0; i < n; i++)
        r->top = (double)x[i] > r->top ? (double)x[i] : r->top;
    return isinf(old) ? 0.0 : exp(old - r->top);
}

/* One reference row and all rows that are compared with it. */
static void add_position(rkv_kl_stream *s, int i, const float *logits, int n, int ld,
                         double *weight)
{
    const float *ref = logits + (ptrdiff_t)i * ld;
    const double f = raise_top(&s->row[i], ref, n);
    s->row[i].z *= f;
    for (int c = 0; c < n; c++) {
        weight[c] = exp((double)ref[c] - s->row[i].top);
        s->row[i].z += weight[c];
    }
    for (int r = i + s->n_ref; r < s->n_row; r += s->n_ref) {
        const float *x = logits + (ptrdiff_t)r * ld;
        sums *v = &s->row[r];
        v->z *= raise_top(v, x, n);
        double cross = v->cross * f;
        for (int c = 0; c < n; c++) {
            v->z += exp((double)x[c] - v->top);
            cross += weight[c] * ((double)ref[c] - (double)x[c]);
        }
        v->cross = cross;
    }
}

typedef struct add_job {
    rkv_kl_stream *s;
    const float *logits;
    int n_col, ld;
} add_job;

static void add_part(void *ctx, int i, int thread)
{
    const add_job *j = ctx;
    add_position(j->s, i, j->logits, j->n_col, j->ld,
                 j->s->weight + (ptrdiff_t)thread * j->s->n_col_max);
}

void rkv_kl_add(rkv_kl_stream *s, const float *logits, int n_col, int ld)
{
    add_job j = {s, logits, n_col, ld};
    rkv_team_run(s->team, add_part, &j, s->n_ref);
}

void rkv_kl_end(const rkv_kl_stream *s, double *kl)
{
    for (int r = s->n_ref; r < s->n_row; r++) {
        const sums *p = &s->row[r % s->n_ref], *q = &s->row[r];
        const double v = q->cross / p->z + (q->top + log(q->z)) - (p->top + log(p->z));
        kl[r - s->n_ref] = v < 0.0 ? 0.0 : v;   /* not a number stays what it is */
    }
}
