/* The arithmetic of a bound: prefill's plan, told apart by what grows with the batch. */
#include "config.h"
#include "engine/bound.h"

#include "base/mem.h"
#include "engine/plan.h"

static uint64_t all_weights(const rkv_model *m)
{
    uint64_t n = rkv_matrix_bytes(&m->embed);
    if (m->head.data != m->embed.data)
        n += rkv_matrix_bytes(&m->head);
    for (int l = 0; l < m->config.n_layer; l++)
        n += rkv_model_layer_bytes(m, l);
    return n;
}

/* Panels of a part of the head. */
static uint64_t head_bytes(const rkv_model *m)
{
    return rkv_panels_scratch(&m->backend, m->config.d_model) +
           rkv_panels_bytes(&m->backend, RKV_HEAD_COLUMNS, m->config.d_model);
}

/* Rows of a walk with their norms and columns of logits. */
static uint64_t rows_bytes(const rkv_model *m, int n_row)
{
    return (uint64_t)n_row * (2 * (uint64_t)m->config.d_model + RKV_HEAD_COLUMNS) * sizeof(float);
}

/* A session's logits and its part of decode's scratch, for a cache of n slots. */
static uint64_t decode_bytes(const rkv_model *m, int n)
{
    const rkv_config *c = &m->config;
    const uint64_t chunks = ((uint64_t)n / RKV_ATTN_CHUNK + 1) * (uint64_t)c->n_head;
    return sizeof(float) * (2 * (uint64_t)c->n_vocab + rkv_step_scratch(c, 1) +
                            chunks * ((uint64_t)c->d_head + 2) + 4 * (uint64_t)c->d_model);
}

rkv_bound rkv_bound_of(rkv_session *s, int n_prompt, int n_response, int n_row)
{
    const rkv_model *m = s->m;
    const rkv_kv *kv = s->kv;
    const size_t n = (size_t)n_prompt;
    const rkv_prefill_plan p = rkv_prefill_plan_of(&s, &n, 1, 0);
    const int room = rkv_prefill_room(s, n_prompt), beyond = n_response > room ? n_response : 0;
    const uint64_t slot = kv->k_bytes + kv->v_bytes + sizeof *kv->head->pos;
    const uint64_t slots = (uint64_t)kv->n_layer * (uint64_t)kv->n_kv_head * slot;
    return (rkv_bound){
        .whole = all_weights(m),
        .streamed = rkv_model_stream_bytes(m),
        .fixed = rkv_mem_current() + p.panels + p.scratch + p.n_old + p.attention + p.mass_sums +
                 p.tile_mass + head_bytes(m),
        .example = p.x + p.pos + p.tables + p.observed + p.mass + p.recent + p.kv +
                   (uint64_t)beyond * slots + decode_bytes(m, n_prompt + n_response) +
                   rows_bytes(m, n_row),
    };
}

rkv_status rkv_bound_fit(int *n_example, int *streams, const rkv_bound *b, int n_most,
                         uint64_t bytes, rkv_error *e)
{
    *streams = b->whole + b->fixed + b->example > bytes;
    const uint64_t beside = b->fixed + (*streams ? b->streamed : b->whole);
    if (beside + b->example > bytes)
        return rkv_fail(e, RKV_E_MEM,
                        "one example takes %.1f MiB beside %.1f MiB of weights, read layer by "
                        "layer, and %.1f MiB of buffers: %.1f MiB in all; the bound is %.1f MiB; "
                        "use --batch-rows, shorter prompts or a larger --memory",
                        (double)b->example / 0x1p20, (double)b->streamed / 0x1p20,
                        (double)b->fixed / 0x1p20, (double)(beside + b->example) / 0x1p20,
                        (double)bytes / 0x1p20);
    const uint64_t n = (bytes - beside) / b->example;
    *n_example = n < (uint64_t)n_most ? (int)n : n_most;
    return RKV_OK;
}
