/* Attention of many new rows: appended to the cache first, then each tile of rows sees what it may.
 */
#include "config.h"
#include "engine/prefill.h"

#include <string.h>


/* Positions whose group of query heads makes up one tile. */
static int positions_per_tile(const rkv_config *c)
{
    const int n = RKV_ROWS_PER_TILE / (c->n_head / c->n_kv_head);
    return n > 0 ? n : 1;
}

static int rows_per_tile(const rkv_config *c)
{
    return positions_per_tile(c) * (c->n_head / c->n_kv_head);
}

size_t rkv_row_attention_floats(const rkv_model *m)
{
    const rkv_config *c = &m->config;
    /* queries and outputs, running maximum and sum, ranges (as wide as floats), attention's own */
    const size_t rows = (size_t)rows_per_tile(c);
    const size_t n = rows * (2 * (size_t)c->d_head + 4) +
                     rkv_attend_scratch(&m->backend, (int)rows, c->d_head);
    return (n + 15) / 16 * 16;
}

typedef struct layer_job {
    const rkv_row_attention *a;
    const rkv_step *step;
    int l, n_tile;
} layer_job;

static void append_head(void *ctx, int h, int thread)
{
    const layer_job *j = ctx;
    const rkv_step *step = j->step;
    const rkv_config *c = &j->a->s->m->config;
    const ptrdiff_t ld = (ptrdiff_t)c->n_kv_head * c->d_head;
    (void)thread;
    rkv_kv_append(j->a->s->kv, step->be, j->l, h, step->k + (ptrdiff_t)h * c->d_head, ld,
                  step->v + (ptrdiff_t)h * c->d_head, ld, step->n_tok, step->pos[0]);
}

static void observe(const rkv_row_attention *a, const rkv_step *step)
{
    const rkv_config *c = &a->s->m->config;
    const size_t row = (size_t)c->n_head * (size_t)c->d_head;
    for (int i = 0; a->observed && i < step->n_tok; i++) {
        const int32_t at = step->pos[i] - a->observe_from;
        if (at < 0 || at >= a->n_query)
            continue;
        float *to = a->observed + (size_t)at * row;
        memcpy(to, step->q + (size_t)i * row, row * sizeof *to);
        step->be->ops.scale[RKV_DT_f32](to, c->attn_scale, (int)row);
    }
}

/* Rows of the step whose positions make up tile t, for one KV head. */
static void attend_tile(const rkv_row_attention *a, const rkv_step *step, int l, int h, int t,
                        float *scratch)
{
    const rkv_config *c = &a->s->m->config;
    const int d = c->d_head, n_group = c->n_head / c->n_kv_head, per_tile = positions_per_tile(c);
    const int first = t * per_tile, left = step->n_tok - first,
              n_pos = left < per_tile ? left : per_tile;
    const int n_q = n_pos * n_group, rows = rows_per_tile(c);
    const size_t row = (size_t)n_group * (size_t)d;
    float *q = scratch, *out = q + (size_t)rows * (size_t)d, *m = out + (size_t)rows * (size_t)d;
    float *sum = m + rows;
    int32_t *lo = (int32_t *)(void *)(sum + rows), *hi = lo + rows;
    const rkv_kv_view kv = rkv_kv_view_of(a->s->kv, l, h);
    for (int i = 0; i < n_pos; i++) {
        const int32_t p = step->pos[first + i];
        const int from = rkv_session_first_visible(a->s, l, &kv, p);
        for (int g = 0; g < n_group; g++) {
            lo[i * n_group + g] = from;
            hi[i * n_group + g] = a->n_old[h] + (p - a->pos0) + 1;
        }
        memcpy(q + (size_t)i * row,
               step->q + ((size_t)(first + i) * (size_t)c->n_kv_head + (size_t)h) * row,
               row * sizeof *q);
    }
    step->be->ops.scale[RKV_DT_f32](q, c->attn_scale, n_q * d);
    rkv_attend_begin(out, m, sum, n_q, d);
    rkv_attend_add(step->be, out, m, sum, q, n_q, lo, hi, &kv, NULL, (float *)(void *)(hi + rows));
    rkv_attend_end(step->be, out, sum, n_q, d);
    for (int i = 0; i < n_pos; i++)
        memcpy(step->att + ((size_t)(first + i) * (size_t)c->n_kv_head + (size_t)h) * row,
               out + (size_t)i * row, row * sizeof *out);
}

static void tile_part(void *ctx, int i, int thread)
{
    const layer_job *j = ctx;
    attend_tile(j->a, j->step, j->l, i / j->n_tile, i % j->n_tile,
                j->a->scratch + (size_t)thread * rkv_row_attention_floats(j->a->s->m));
}

void rkv_row_attention_run(void *ctx, rkv_step *step, int l)
{
    const rkv_row_attention *a = ctx;
    const rkv_config *c = &a->s->m->config;
    const int per_tile = positions_per_tile(c);
    layer_job j = {a, step, l, (step->n_tok + per_tile - 1) / per_tile};
    rkv_team_run(step->n_tok > 8 ? step->team : NULL, append_head, &j, c->n_kv_head);
    observe(a, step);
    /* Tiles differ in cost (a causal triangle): whoever is free takes the next. */
    rkv_team_run(step->team, tile_part, &j, c->n_kv_head * j.n_tile);
}
