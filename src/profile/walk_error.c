/* Estimated errors: what compressing one KV head does to its layer's attention output. */
#include "config.h"
#include "profile/walk_impl.h"

typedef struct error_job {
    const walk *w;
    int l;
} error_job;

/* Floats of a row of one head's group of queries. */
static int head_floats(const walk *w)
{
    return w->m->config.n_head / w->m->config.n_kv_head * w->m->config.d_head;
}

/* o - o' of (head, share), [n_fed][head_floats], at its place in w->diff. */
static float *diff_at(const walk *w, int h, int g)
{
    const ptrdiff_t block = (ptrdiff_t)w->n_fed * head_floats(w);
    return w->diff + ((ptrdiff_t)h * w->in->o->n_grid + g) * block;
}

static void diff_part(void *ctx, int i, int thread)
{
    const error_job *j = ctx;
    const walk *w = j->w;
    const int n_grid = w->in->o->n_grid, h = i / n_grid, g = i % n_grid, n = head_floats(w);
    const rkv_variant v = {w->drop, j->l, h, 0, w->in->o->grid[g]};
    const float *att = w->step.att + (ptrdiff_t)h * n;
    float *diff = diff_at(w, h, g);
    rkv_walk_attend_variant(w, j->l, h, 0, &v, diff, n,
                            w->thread + (size_t)thread * w->thread_floats);
    for (int t = 0; t < w->n_fed; t++, diff += n, att += w->m->config.n_kv_head * n)
        for (int c = 0; c < n; c++)
            diff[c] = att[c] - diff[c];
}

static double square(const float *x, int n)
{
    double sum = 0.0;
    for (int i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

/* Mean over positions of |rows of x W_O|^2 / whole, x being inputs [first, first + n) of W_O. */
static double mean_ratio(const walk *w, const rkv_step *step, const float *x, int first, int n,
                         const double *whole)
{
    const int d_model = w->m->config.d_model;
    double sum = 0.0;
    rkv_panels_product_inputs(step->be, step->h, d_model, x, n, w->n_fed, &step->panels[RKV_W_O],
                              first, n, step->team);
    for (int t = 0; t < w->n_fed; t++) {
        const double part = square(step->h + (ptrdiff_t)t * d_model, d_model);
        sum += part == 0.0 ? 0.0 : part / whole[t];
    }
    return sum / w->n_fed;
}

/* Uses step->h, which is free between the products that fill q, k, v and W_O's own. */
void rkv_walk_errors(walk *w, rkv_step *step, int l)
{
    const rkv_config *c = &w->m->config;
    const int n_grid = w->in->o->n_grid, n = head_floats(w), n_in = c->n_head * c->d_head;
    double *error = w->in->o->error + (ptrdiff_t)l * c->n_kv_head * n_grid;
    error_job j = {w, l};
    rkv_panels_product(step->be, step->h, c->d_model, step->att, n_in, w->n_fed,
                       &step->panels[RKV_W_O], step->team);
    for (int t = 0; t < w->n_fed; t++)
        w->whole[t] = square(step->h + (ptrdiff_t)t * c->d_model, c->d_model);
    rkv_team_run(step->team, diff_part, &j, c->n_kv_head * n_grid);
    for (int i = 0; i < c->n_kv_head * n_grid; i++)
        error[i] = mean_ratio(w, step, diff_at(w, i / n_grid, i % n_grid), i / n_grid * n, n,
                              w->whole);
}
