/* The arithmetic of a walk's memory. walk.c takes its sizes from here, so that the plan and the
 * allocations cannot differ. */
#include "config.h"
#include "profile/walk_impl.h"

#include "base/mem.h"

void rkv_walk_set_passes(walk *w)
{
    const rkv_walk_options *o = w->in->o;
    const int n = w->in->n_variant, room = o->batch_rows / w->n_fed - 1;
    w->per_pass = !o->batch_rows || room > n ? n : room < 1 ? 1 : room;
    w->n_pass = n ? (n + w->per_pass - 1) / w->per_pass : o->error != NULL;
}

walk_bytes rkv_walk_bytes_of(const walk *w)
{
    const rkv_config *c = &w->m->config;
    const size_t n_fed = (size_t)w->n_fed, group = walk_group_floats(w) * sizeof(float),
                 table = n_fed * (size_t)w->m->rope[0].n_pair * sizeof(float),
                 attention = n_fed * (size_t)c->n_head * (size_t)c->d_head * sizeof(float);
    const int errors = w->in->o->error != NULL;
    return (walk_bytes){
        .tables = 2 * (size_t)w->m->n_rope * table,
        .pos = (size_t)walk_chunk(w) * n_fed * sizeof *w->pos,
        .saved = w->n_pass > 1 ? rkv_mem_product((size_t)c->n_layer + 1, group) : 0,
        .score = w->selects ? rkv_mem_product((size_t)c->n_kv_head,
                                              (size_t)w->n_prompt * sizeof *w->score) : 0,
        .diff = errors ? rkv_mem_product((size_t)w->in->o->n_grid, attention) : 0,
        .whole = errors ? n_fed * sizeof *w->whole : 0,
        .x = rkv_mem_product(1 + (size_t)w->per_pass, group),
    };
}

/* What rkv_model_head takes for n_row rows. */
static uint64_t head_bytes(const rkv_model *m, uint64_t n_row)
{
    const int d = m->config.d_model;
    return rkv_panels_scratch(&m->backend, d) +
           rkv_panels_bytes(&m->backend, RKV_HEAD_COLUMNS, d) +
           n_row * RKV_HEAD_COLUMNS * sizeof(float);
}

uint64_t rkv_walks_bytes(const rkv_session *s, const rkv_walk_shape *shape, int n)
{
    double wanted;
    const rkv_walk_options o = {.batch_rows = shape->batch_rows, .n_grid = shape->n_grid,
                                .error = shape->n_grid ? &wanted : NULL};
    const rkv_walk in = {.s = s, .n_fed = shape->n_fed, .n_variant = shape->n_variant, .o = &o};
    walk w = {.in = &in, .m = s->m, .s = s, .n_prompt = shape->n_prompt, .n_fed = shape->n_fed,
              .selects = shape->policy != NULL, .team = s->team};
    if (shape->policy)
        w.policy = *shape->policy;
    rkv_walk_set_passes(&w);
    const walk_bytes b = rkv_walk_bytes_of(&w);
    const uint64_t each = sizeof w + b.tables + b.pos + b.saved + b.score + b.diff + b.whole + b.x;
    const uint64_t floats = rkv_step_scratch(&s->m->config, walk_chunk(&w) * w.n_fed) +
                            (uint64_t)rkv_team_size(s->team) * rkv_walk_thread_floats(&w);
    const uint64_t rows = (1 + (uint64_t)w.per_pass) * (uint64_t)w.n_fed;
    uint64_t end = 0;
    if (shape->n_variant)
        end = (uint64_t)n * rkv_kl_bytes(rows, RKV_HEAD_COLUMNS, s->team) +
              head_bytes(s->m, (uint64_t)n * rows);
    return (uint64_t)n * each + floats * sizeof(float) + rkv_model_panels_bytes(s->m) + end;
}
