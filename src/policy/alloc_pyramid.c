/* PyramidKV: budgets fall in a line from the first layer to the last, on top of the window; the
 * least is 1 / beta of the mean. Source: Cai et al. 2024 (PyramidKV); the published steps as in
 * KVCache-Factory. METHOD section 7 has the choices: only the budgets are rounded, not the line. */
#include "config.h"
#include "policy/policy.h"

typedef struct line {           /* beside the window */
    double first, last;
} line;

/* mean: of the budget beside the window; room: of the prompt. */
static line line_of(double mean, double least, double room)
{
    line x = {2.0 * mean - least, least};
    if (x.first >= room) {
        x.first = room;
        x.last = 2.0 * mean - room;
    }
    return x;
}

static rkv_status weights(double *w, const rkv_division *d, rkv_error *e)
{
    const double mean = (double)d->total / d->n - d->p->window;
    const line x = line_of(mean, mean / d->p->beta, d->hi - d->p->window);
    (void)e;
    for (int u = 0; u < d->n; u++)
        w[u] = d->p->window + (d->n > 1 ? x.first + (x.last - x.first) * u / (d->n - 1) : mean);
    return RKV_OK;
}

/* Whole steps; all alike where the prompt is shorter than twice the mean. */
static void published(int *b, const rkv_division *d)
{
    const int window = d->p->window, mean = (int)(d->total / d->n) - window;
    const line x = line_of(mean, (int)(mean / d->p->beta), d->hi - window);
    const int flat = d->n == 1 || d->hi < 2 * (int64_t)mean;
    const int step = flat ? 0 : ((int)x.first - (int)x.last) / (d->n - 1);
    for (int u = 0; u < d->n; u++)
        b[u] = window + (flat ? mean : (int)x.first - u * step);
}

const rkv_allocator rkv_allocator_pyramid = {
    .name = "pyramid", .weights = weights, .published = published,
};
