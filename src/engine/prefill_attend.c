/* Attention of many new rows: appended to the cache first, then each tile of rows sees what it may.
 */
#include "config.h"
#include "engine/prefill.h"

#include <string.h>


/* Positions whose group of query heads makes up so many rows. */
static int positions_of(const rkv_config *c, int rows)
{
    const int n = rows / (c->n_head / c->n_kv_head);
    return n > 0 ? n : 1;
}

static int rows_of(const rkv_config *c, int rows)
{
    return positions_of(c, rows) * (c->n_head / c->n_kv_head);
}

size_t rkv_row_attention_floats(const rkv_model *m, int n_mass)
{
    const rkv_config *c = &m->config;
    /* queries and outputs, running maximum and sum, ranges (as wide as floats), attention's own */
    const int rows = rows_of(c, RKV_ROWS_PER_TILE);
    size_t n = (size_t)rows * (2 * (size_t)c->d_head + 4) +
               rkv_attend_scratch(&m->backend, rows, c->d_head);
    if (n_mass)
        n += rkv_attend_kept_floats(&m->backend, rows_of(c, RKV_MASS_ROWS), n_mass);
    return (n + 15) / 16 * 16;
}

int rkv_row_attention_tiles(const rkv_model *m, int chunk)
{
    const int per_tile = positions_of(&m->config, RKV_ROWS_PER_TILE);
    return (chunk + per_tile - 1) / per_tile;
}

int rkv_row_attention_chunk(const rkv_model *m, int n_chunk, int with_mass)
{
    const int n_tile = rkv_row_attention_tiles(m, n_chunk);
    if (!with_mass)
        return n_chunk;
    return (n_tile < RKV_MASS_TILES ? n_tile : RKV_MASS_TILES) *
           positions_of(&m->config, RKV_ROWS_PER_TILE);
}

typedef struct layer_job {
    const rkv_row_attention *a;
    const rkv_step *step;
    int l;
    int per_tile, n_tile;       /* positions of a tile, tiles */
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

typedef struct span {           /* positions of the step, for one KV head */
    int h, first, n;
} span;

/* The attention of the span. sums [RKV_SUM_COUNT]: what each key gets of its rows is added there;
 * NULL: nowhere. */
static void attend_span(const layer_job *j, span r, const rkv_attend_sum *sums, float *scratch)
{
    const rkv_row_attention *a = j->a;
    const rkv_step *step = j->step;
    const rkv_config *c = &a->s->m->config;
    const int d = c->d_head, n_group = c->n_head / c->n_kv_head, n_q = r.n * n_group;
    const size_t row = (size_t)n_group * (size_t)d, step_row = (size_t)c->n_kv_head * row,
                 at = (size_t)r.first * step_row + (size_t)r.h * row;
    float *q = scratch, *out = q + (ptrdiff_t)n_q * d, *m = out + (ptrdiff_t)n_q * d;
    float *sum = m + n_q;
    int32_t *lo = (int32_t *)(void *)(sum + n_q), *hi = lo + n_q;
    float *work = (float *)(void *)(hi + n_q);
    const rkv_kv_view kv = rkv_kv_view_of(a->s->kv, j->l, r.h);
    for (int i = 0; i < r.n; i++) {
        const int32_t p = step->pos[r.first + i];
        const int from = rkv_session_first_visible(a->s, j->l, &kv, p);
        for (int g = 0; g < n_group; g++) {
            lo[i * n_group + g] = from;
            hi[i * n_group + g] = a->n_old[r.h] + (p - a->pos0) + 1;
        }
        memcpy(q + (size_t)i * row, step->q + at + (size_t)i * step_row, row * sizeof *q);
    }
    step->be->ops.scale[RKV_DT_f32](q, c->attn_scale, n_q * d);
    rkv_attend_kept kept;
    if (sums)
        kept = rkv_attend_kept_cut(step->be, work + rkv_attend_scratch(step->be, n_q, d), n_q,
                                   kv.n_slot);
    rkv_attend_begin(out, m, sum, n_q, d);
    rkv_attend_add(step->be, out, m, sum, q, n_q, lo, hi, &kv, sums ? &kept : NULL, work);
    if (sums)
        rkv_attend_mass(step->be, sums, RKV_SUM_COUNT, &kept, m, sum, n_q, lo, hi, &kv, work);
    rkv_attend_end(step->be, out, sum, n_q, d);
    for (int i = 0; i < r.n; i++)
        memcpy(step->att + at + (size_t)i * step_row, out + (size_t)i * row, row * sizeof *out);
}

/* One past the last position of tile t. */
static int tile_end(const layer_job *j, int t)
{
    return (t + 1) * j->per_tile < j->step->n_tok ? (t + 1) * j->per_tile : j->step->n_tok;
}

/* What tile t adds to a sum; NULL: nothing, since none of its positions counts. */
static float *tile_sum(const layer_job *j, const rkv_row_sum *sum, int h, int t)
{
    if (!sum->total || j->step->pos[0] + tile_end(j, t) <= sum->from)
        return NULL;
    return sum->tile + ((ptrdiff_t)h * j->n_tile + t) * j->a->n_mass;
}

/* Which rows of the span count in which sum of the tile; 0: none in any. */
static int place_sums(rkv_attend_sum *sum, const layer_job *j, int t, span r)
{
    const rkv_row_attention *a = j->a;
    const rkv_config *c = &a->s->m->config;
    int wanted = 0;
    for (int k = 0; k < RKV_SUM_COUNT; k++) {
        const int skip = a->sum[k].from - (j->step->pos[0] + r.first);
        sum[k].mass = skip < r.n ? tile_sum(j, &a->sum[k], r.h, t) : NULL;
        sum[k].first = skip > 0 && skip < r.n ? skip * (c->n_head / c->n_kv_head) : 0;
        wanted |= sum[k].mass != NULL;
    }
    return wanted;
}

static void tile_part(void *ctx, int i, int thread)
{
    const layer_job *j = ctx;
    const rkv_row_attention *a = j->a;
    const int h = i / j->n_tile, t = i % j->n_tile, end = tile_end(j, t);
    float *scratch = a->scratch + (size_t)thread * rkv_row_attention_floats(a->s->m, a->n_mass);
    rkv_attend_sum sum[RKV_SUM_COUNT];
    span r = {h, t * j->per_tile, end - t * j->per_tile};
    for (int k = 0; k < RKV_SUM_COUNT; k++) {
        float *to = tile_sum(j, &a->sum[k], h, t);
        if (to)
            memset(to, 0, (size_t)(j->step->pos[0] + end) * sizeof *to);
    }
    if (!place_sums(sum, j, t, r)) {
        attend_span(j, r, NULL, scratch);
        return;
    }
    /* The spans are the same whatever is summed, and so are the bits of a sum. */
    for (const int most = positions_of(&a->s->m->config, RKV_MASS_ROWS); r.first < end;
         r.first += r.n) {
        r.n = end - r.first < most ? end - r.first : most;
        attend_span(j, r, place_sums(sum, j, t, r) ? sum : NULL, scratch);
    }
}

/* The chunk's tiles in order, in double: each is a sum of no more than RKV_ROWS_PER_TILE terms in
 * float, so the error does not grow with the prompt. */
static void sum_part(void *ctx, int i, int thread)
{
    const layer_job *j = ctx;
    const int n_head = j->a->s->m->config.n_kv_head, h = i % n_head;
    const rkv_row_sum *sum = &j->a->sum[i / n_head];
    (void)thread;
    for (int t = 0; t < j->n_tile; t++) {
        const float *more = tile_sum(j, sum, h, t);
        const int n = more ? j->step->pos[0] + tile_end(j, t) : 0;
        double *total = n ? sum->total + (ptrdiff_t)h * j->a->n_mass : NULL;
        for (int k = 0; k < n; k++)
            total[k] += (double)more[k];
    }
}

void rkv_row_attention_run(void *ctx, rkv_step *step, int l)
{
    const rkv_row_attention *a = ctx;
    const rkv_config *c = &a->s->m->config;
    layer_job j = {a, step, l, positions_of(c, RKV_ROWS_PER_TILE),
                   rkv_row_attention_tiles(a->s->m, step->n_tok)};
    rkv_team_run(step->n_tok > 8 ? step->team : NULL, append_head, &j, c->n_kv_head);
    observe(a, step);
    /* Tiles differ in cost (a causal triangle): whoever is free takes the next. */
    rkv_team_run(step->team, tile_part, &j, c->n_kv_head * j.n_tile);
    if (a->sum[RKV_SUM_ALL].total || a->sum[RKV_SUM_RECENT].total)
        rkv_team_run(step->team, sum_part, &j, RKV_SUM_COUNT * c->n_kv_head);
}
