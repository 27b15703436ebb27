/* Attention of many new rows: appended to the cache first, then each tile of rows sees what it may.
 */
#include "config.h"
#include "engine/prefill.h"

#include <string.h>


/* Positions whose group of query heads makes up one tile; fewer when the weights of n_mass keys are
 * kept for each. */
static int positions_per_tile(const rkv_config *c, int n_mass)
{
    int rows = RKV_ROWS_PER_TILE;
    if (n_mass && RKV_MASS_FLOATS / n_mass < rows)
        rows = RKV_MASS_FLOATS / n_mass;
    if (rows < RKV_MASS_LEAST_ROWS)
        rows = RKV_MASS_LEAST_ROWS;
    const int n = rows / (c->n_head / c->n_kv_head);
    return n > 0 ? n : 1;
}

static int rows_per_tile(const rkv_config *c, int n_mass)
{
    return positions_per_tile(c, n_mass) * (c->n_head / c->n_kv_head);
}

/* queries and outputs, running maximum and sum, ranges (as wide as floats), attention's own */
static size_t tile_floats(const rkv_model *m, int rows)
{
    const size_t d = (size_t)m->config.d_head;
    return (size_t)rows * (2 * d + 4) + rkv_attend_scratch(&m->backend, rows, m->config.d_head);
}

size_t rkv_row_attention_floats(const rkv_model *m, int n_mass)
{
    size_t n = tile_floats(m, rows_per_tile(&m->config, 0));
    if (n_mass) {
        const int rows = rows_per_tile(&m->config, n_mass);
        const size_t with_mass =
            tile_floats(m, rows) + rkv_attend_kept_floats(&m->backend, rows, n_mass);
        n = with_mass > n ? with_mass : n;
    }
    return (n + 15) / 16 * 16;
}

int rkv_row_attention_tiles(const rkv_model *m, int chunk, int n_mass)
{
    const int per_tile = positions_per_tile(&m->config, n_mass);
    return (chunk + per_tile - 1) / per_tile;
}

int rkv_row_attention_chunk(const rkv_model *m, int n_chunk, int n_mass)
{
    if (!n_mass)
        return n_chunk;
    const int n_tile = rkv_row_attention_tiles(m, n_chunk, n_mass);
    return (n_tile < RKV_MASS_TILES ? n_tile : RKV_MASS_TILES) *
           positions_per_tile(&m->config, n_mass);
}

typedef struct layer_job {
    const rkv_row_attention *a;
    const rkv_step *step;
    int l, n_tile;
    int per_tile;               /* positions */
    int n_mass;                 /* keys whose mass is summed; 0: none */
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

/* Keys that the positions before the end of tile t of the step see; the first prompt's slots are
 * its positions. */
static int tile_end(const layer_job *j, int t)
{
    const int end = (t + 1) * j->per_tile, n_tok = j->step->n_tok;
    return j->step->pos[0] + (end < n_tok ? end : n_tok);
}

static float *tile_mass(const layer_job *j, int h, int t)
{
    return j->a->tile_mass + ((ptrdiff_t)h * j->n_tile + t) * j->n_mass;
}

/* Rows of the step whose positions make up tile t, for one KV head. */
static void attend_tile(const layer_job *j, int h, int t, float *scratch)
{
    const rkv_row_attention *a = j->a;
    const rkv_step *step = j->step;
    const rkv_config *c = &a->s->m->config;
    const int d = c->d_head, n_group = c->n_head / c->n_kv_head;
    const int first = t * j->per_tile, left = step->n_tok - first,
              n_pos = left < j->per_tile ? left : j->per_tile;
    const int n_q = n_pos * n_group;
    const size_t row = (size_t)n_group * (size_t)d;
    float *q = scratch, *out = q + (size_t)n_q * (size_t)d, *m = out + (size_t)n_q * (size_t)d;
    float *sum = m + n_q;
    int32_t *lo = (int32_t *)(void *)(sum + n_q), *hi = lo + n_q;
    float *work = (float *)(void *)(hi + n_q),
          *kept_memory = work + rkv_attend_scratch(step->be, n_q, d);
    const rkv_kv_view kv = rkv_kv_view_of(a->s->kv, j->l, h);
    for (int i = 0; i < n_pos; i++) {
        const int32_t p = step->pos[first + i];
        const int from = rkv_session_first_visible(a->s, j->l, &kv, p);
        for (int g = 0; g < n_group; g++) {
            lo[i * n_group + g] = from;
            hi[i * n_group + g] = a->n_old[h] + (p - a->pos0) + 1;
        }
        memcpy(q + (size_t)i * row,
               step->q + ((size_t)(first + i) * (size_t)c->n_kv_head + (size_t)h) * row,
               row * sizeof *q);
    }
    step->be->ops.scale[RKV_DT_f32](q, c->attn_scale, n_q * d);
    rkv_attend_kept kept;
    if (j->n_mass)
        kept = rkv_attend_kept_cut(step->be, kept_memory, n_q, tile_end(j, t));
    rkv_attend_begin(out, m, sum, n_q, d);
    rkv_attend_add(step->be, out, m, sum, q, n_q, lo, hi, &kv, NULL, j->n_mass ? &kept : NULL,
                   work);
    if (j->n_mass)
        rkv_attend_mass(step->be, tile_mass(j, h, t), &kept, m, sum, n_q, lo, hi, &kv, work);
    rkv_attend_end(step->be, out, sum, n_q, d);
    for (int i = 0; i < n_pos; i++)
        memcpy(step->att + ((size_t)(first + i) * (size_t)c->n_kv_head + (size_t)h) * row,
               out + (size_t)i * row, row * sizeof *out);
}

static void tile_part(void *ctx, int i, int thread)
{
    const layer_job *j = ctx;
    const rkv_row_attention *a = j->a;
    attend_tile(j, i / j->n_tile, i % j->n_tile,
                a->scratch + (size_t)thread * rkv_row_attention_floats(a->s->m, a->n_mass));
}

/* The chunk's tiles in order, in double: each is a sum of no more than RKV_ROWS_PER_TILE terms in
 * float, so the error does not grow with the prompt. */
static void mass_part(void *ctx, int h, int thread)
{
    const layer_job *j = ctx;
    double *mass = j->a->mass + (ptrdiff_t)h * j->n_mass;
    (void)thread;
    for (int t = 0; t < j->n_tile; t++) {
        const float *more = tile_mass(j, h, t);
        const int n = tile_end(j, t);
        for (int i = 0; i < n; i++)
            mass[i] += (double)more[i];
    }
}

void rkv_row_attention_run(void *ctx, rkv_step *step, int l)
{
    const rkv_row_attention *a = ctx;
    const rkv_config *c = &a->s->m->config;
    const int n_mass = a->mass ? a->n_mass : 0;
    layer_job j = {a, step, l, rkv_row_attention_tiles(a->s->m, step->n_tok, n_mass),
                   positions_per_tile(c, n_mass), n_mass};
    rkv_team_run(step->n_tok > 8 ? step->team : NULL, append_head, &j, c->n_kv_head);
    observe(a, step);
    /* Tiles differ in cost (a causal triangle): whoever is free takes the next. */
    rkv_team_run(step->team, tile_part, &j, c->n_kv_head * j.n_tile);
    if (n_mass)
        rkv_team_run(step->team, mass_part, &j, c->n_kv_head);
}
