/* Pieces of a transformer layer that families share. */
#include "config.h"
#include "model/model.h"

#include <string.h>

enum { GRAIN = 8 };             /* rows of a part: fewer are not worth another thread */

size_t rkv_step_scratch(const rkv_config *c, int n_tok)
{
    const size_t q = (size_t)c->n_head * (size_t)c->d_head,
                 kv = (size_t)c->n_kv_head * (size_t)c->d_head;
    return (size_t)n_tok * ((size_t)c->d_model + 2 * q + 2 * kv + 2 * (size_t)c->d_ff);
}

void rkv_step_place(rkv_step *s, const rkv_config *c, int n_tok, float *scratch)
{
    const size_t n = (size_t)n_tok, d = (size_t)c->d_head;
    s->h = scratch;
    s->q = s->h + n * (size_t)c->d_model;
    s->att = s->q + n * (size_t)c->n_head * d;
    s->k = s->att + n * (size_t)c->n_head * d;
    s->v = s->k + n * (size_t)c->n_kv_head * d;
    s->gate = s->v + n * (size_t)c->n_kv_head * d;
    s->up = s->gate + n * (size_t)c->d_ff;
}

/* out[n_tok][n_out] = W in[n_tok][n_in]. */
static void product(const rkv_model *m, rkv_step *s, int l, enum rkv_weight which, float *out,
                    const float *in)
{
    const rkv_matrix *w = &m->layer[l].w[which];
    if (s->panels) {
        rkv_panels_product(s->be, out, w->n_out, in, w->n_in, s->n_tok, &s->panels[which],
                           s->team);
        return;
    }
    rkv_matvec(s->be, out, w->n_out, w, in, w->n_in, s->n_tok, s->team);
}

/* What the loops over rows below work on; each uses some of it. */
typedef struct row_job {
    const rkv_model *m;
    rkv_step *s;
    float *out;
    const float *x, *g;
    int n;                      /* floats of a row */
    int l;
    enum rkv_act act;
} row_job;

static void norm_rows(void *ctx, int first, int end)
{
    const row_job *j = ctx;
    for (int i = first; i < end; i++)
        j->s->be->ops.rmsnorm[RKV_DT_f32](j->out + (ptrdiff_t)i * j->n, j->x + (ptrdiff_t)i * j->n,
                                          j->g, j->n, j->m->config.norm_eps);
}

/* RMS norm of n_vec vectors of n numbers, one after the other; out may be x. */
static void norm(const rkv_model *m, rkv_step *s, float *out, const float *x, const float *g,
                 int n_vec, int n)
{
    row_job j = {.m = m, .s = s, .out = out, .x = x, .g = g, .n = n};
    rkv_team_ranges(s->n_tok > GRAIN ? s->team : NULL, norm_rows, &j, n_vec, GRAIN);
}

/* Adds a vector to every row; nothing when there is none. */
static void bias(rkv_step *s, float *x, int n, const float *b)
{
    if (!b)
        return;
    for (int i = 0; i < s->n_tok; i++)
        s->be->ops.add[RKV_DT_f32](x + (ptrdiff_t)i * n, b, n);
}

static void add_rows(void *ctx, int first, int end)
{
    const row_job *j = ctx;
    for (int i = first; i < end; i++)
        j->s->be->ops.add[RKV_DT_f32](j->out + (ptrdiff_t)i * j->n, j->x + (ptrdiff_t)i * j->n,
                                      j->n);
}

/* x += y, both [n_tok][d_model]. */
static void residual(const rkv_model *m, rkv_step *s, const float *y)
{
    row_job j = {.s = s, .out = s->x, .x = y, .n = m->config.d_model};
    rkv_team_ranges(s->team, add_rows, &j, s->n_tok, GRAIN);
}

void rkv_block_qkv(const rkv_model *m, rkv_step *s, int l)
{
    const rkv_config *c = &m->config;
    float *const *v = m->layer[l].v;
    norm(m, s, s->h, s->x, v[RKV_V_ATTN_NORM], s->n_tok, c->d_model);
    product(m, s, l, RKV_W_Q, s->q, s->h);
    product(m, s, l, RKV_W_K, s->k, s->h);
    product(m, s, l, RKV_W_V, s->v, s->h);
    bias(s, s->q, c->n_head * c->d_head, v[RKV_V_Q_BIAS]);
    bias(s, s->k, c->n_kv_head * c->d_head, v[RKV_V_K_BIAS]);
    bias(s, s->v, c->n_kv_head * c->d_head, v[RKV_V_V_BIAS]);
}

void rkv_block_qk_norm(const rkv_model *m, rkv_step *s, int l)
{
    const rkv_config *c = &m->config;
    norm(m, s, s->q, s->q, m->layer[l].v[RKV_V_Q_NORM], s->n_tok * c->n_head, c->d_head);
    norm(m, s, s->k, s->k, m->layer[l].v[RKV_V_K_NORM], s->n_tok * c->n_kv_head, c->d_head);
}

static void rotate_heads(const rkv_model *m, const rkv_step *s, float *x, int n_head,
                         const float *cosine, const float *sine, int n_pair)
{
    const int d = m->config.d_head;
    for (int h = 0; h < n_head; h++)
        if (m->config.rope_neox)
            s->be->ops.rope_neox[RKV_DT_f32](x + (ptrdiff_t)h * d, cosine, sine, n_pair);
        else
            s->be->ops.rope_norm[RKV_DT_f32](x + (ptrdiff_t)h * d, cosine, sine, n_pair);
}

static void rope_rows(void *ctx, int first, int end)
{
    const row_job *j = ctx;
    const rkv_config *c = &j->m->config;
    const rkv_step *s = j->s;
    const int r = j->m->layer[j->l].rope, n_pair = j->m->rope[r].n_pair;
    for (int i = first; i < end; i++) {
        const ptrdiff_t row =
            (ptrdiff_t)(s->rope_first < 0 ? i : s->pos[i] - s->rope_first) * n_pair;
        const float *cosine = s->cosine[r] + row, *sine = s->sine[r] + row;
        rotate_heads(j->m, s, s->q + (ptrdiff_t)i * c->n_head * c->d_head, c->n_head, cosine, sine,
                     n_pair);
        rotate_heads(j->m, s, s->k + (ptrdiff_t)i * c->n_kv_head * c->d_head, c->n_kv_head, cosine,
                     sine, n_pair);
    }
}

void rkv_block_rope(const rkv_model *m, rkv_step *s, int l)
{
    row_job j = {.m = m, .s = s, .l = l};
    if (s->look)
        s->look(s->look_ctx, s, l);
    rkv_team_ranges(s->team, rope_rows, &j, s->n_tok, GRAIN);
}

void rkv_block_attn_out(const rkv_model *m, rkv_step *s, int l)
{
    const float *g = m->layer[l].v[RKV_V_ATTN_POST_NORM];
    product(m, s, l, RKV_W_O, s->h, s->att);
    if (g)
        norm(m, s, s->h, s->h, g, s->n_tok, m->config.d_model);
    residual(m, s, s->h);
}

static void act_rows(void *ctx, int first, int end)
{
    const row_job *j = ctx;
    const int d_ff = j->m->config.d_ff;
    for (int i = first; i < end; i++) {
        float *gate = j->s->gate + (ptrdiff_t)i * d_ff;
        const float *up = j->s->up + (ptrdiff_t)i * d_ff;
        if (j->act == RKV_ACT_GELU)
            j->s->be->ops.gelu_mul[RKV_DT_f32](gate, gate, up, d_ff);
        else
            j->s->be->ops.silu_mul[RKV_DT_f32](gate, gate, up, d_ff);
    }
}

void rkv_block_ffn(const rkv_model *m, rkv_step *s, int l, enum rkv_act act)
{
    float *const *v = m->layer[l].v;
    norm(m, s, s->h, s->x, v[RKV_V_FFN_NORM], s->n_tok, m->config.d_model);
    product(m, s, l, RKV_W_GATE, s->gate, s->h);
    product(m, s, l, RKV_W_UP, s->up, s->h);
    row_job j = {.m = m, .s = s, .act = act};
    rkv_team_ranges(s->team, act_rows, &j, s->n_tok, GRAIN);
    product(m, s, l, RKV_W_DOWN, s->h, s->gate);
    if (v[RKV_V_FFN_POST_NORM])
        norm(m, s, s->h, s->h, v[RKV_V_FFN_POST_NORM], s->n_tok, m->config.d_model);
    residual(m, s, s->h);
}

/* Bytes of matrix i of a layer, the next one's alignment included. */
static size_t panel_bytes(const rkv_model *m, int l, int i)
{
    const rkv_matrix *w = &m->layer[l].w[i];
    return (rkv_panels_bytes(&m->backend, w->n_out, w->n_in) + 63) / 64 * 64;
}

/* Scratch that a layer's matrices share. */
static size_t layer_scratch(const rkv_model *m, int l)
{
    size_t most = 0;
    for (int i = 0; i < RKV_W_COUNT; i++) {
        const size_t n = rkv_panels_scratch(&m->backend, m->layer[l].w[i].n_in);
        most = n > most ? n : most;
    }
    return most;
}

size_t rkv_model_panels_bytes(const rkv_model *m)
{
    size_t most = 0;
    for (int l = 0; l < m->config.n_layer; l++) {
        size_t n = layer_scratch(m, l);
        for (int i = 0; i < RKV_W_COUNT; i++)
            n += panel_bytes(m, l, i);
        most = n > most ? n : most;
    }
    return most;
}

void rkv_model_panels(const rkv_model *m, int l, rkv_panels out[RKV_W_COUNT], void *data,
                      rkv_team *team)
{
    char *scratch = data, *at = scratch + layer_scratch(m, l);
    for (int i = 0; i < RKV_W_COUNT; i++) {
        const rkv_matrix *w = &m->layer[l].w[i];
        out[i] = rkv_panels_pack(&m->backend, at, scratch, w, 0, w->n_out, team);
        at += panel_bytes(m, l, i);
    }
}
