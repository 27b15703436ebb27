/* Pieces of a transformer layer that families share. */
#include "config.h"
#include "model/model.h"

#include <string.h>

enum { MANY_ROWS = 8 };         /* below, a parallel region costs more than it gives */

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
                           s->n_thread);
        return;
    }
    for (int i = 0; i < s->n_tok; i++)
        rkv_matvec(s->be, out + (ptrdiff_t)i * w->n_out, w, in + (ptrdiff_t)i * w->n_in,
                   s->n_thread);
}

/* RMS norm of n_vec vectors of n numbers, one after the other; out may be x. */
static void norm(const rkv_model *m, rkv_step *s, float *out, const float *x, const float *g,
                 int n_vec, int n)
{
    const float eps = m->config.norm_eps;
    #pragma omp parallel for schedule(static) num_threads(s->n_thread) if (s->n_tok >= MANY_ROWS)
    for (int i = 0; i < n_vec; i++)
        s->be->ops.rmsnorm[RKV_DT_f32](out + (ptrdiff_t)i * n, x + (ptrdiff_t)i * n, g, n, eps);
}

/* Adds a vector to every row; nothing when there is none. */
static void bias(rkv_step *s, float *x, int n, const float *b)
{
    if (!b)
        return;
    for (int i = 0; i < s->n_tok; i++)
        s->be->ops.add[RKV_DT_f32](x + (ptrdiff_t)i * n, b, n);
}

/* x += y, both [n_tok][d_model]. */
static void residual(const rkv_model *m, rkv_step *s, const float *y)
{
    const int d = m->config.d_model;
    #pragma omp parallel for schedule(static) num_threads(s->n_thread) if (s->n_tok >= MANY_ROWS)
    for (int i = 0; i < s->n_tok; i++)
        s->be->ops.add[RKV_DT_f32](s->x + (ptrdiff_t)i * d, y + (ptrdiff_t)i * d, d);
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

void rkv_block_rope(const rkv_model *m, rkv_step *s, int l)
{
    const rkv_config *c = &m->config;
    const int r = m->layer[l].rope, n_pair = m->rope[r].n_pair;
    #pragma omp parallel for schedule(static) num_threads(s->n_thread) if (s->n_tok >= MANY_ROWS)
    for (int i = 0; i < s->n_tok; i++) {
        const ptrdiff_t row = (ptrdiff_t)(s->pos[i] - s->rope_first) * n_pair;
        const float *cosine = s->cosine[r] + row, *sine = s->sine[r] + row;
        rotate_heads(m, s, s->q + (ptrdiff_t)i * c->n_head * c->d_head, c->n_head, cosine, sine,
                     n_pair);
        rotate_heads(m, s, s->k + (ptrdiff_t)i * c->n_kv_head * c->d_head, c->n_kv_head, cosine,
                     sine, n_pair);
    }
}

void rkv_block_attn_out(const rkv_model *m, rkv_step *s, int l)
{
    const float *g = m->layer[l].v[RKV_V_ATTN_POST_NORM];
    product(m, s, l, RKV_W_O, s->h, s->att);
    if (g)
        norm(m, s, s->h, s->h, g, s->n_tok, m->config.d_model);
    residual(m, s, s->h);
}

void rkv_block_ffn(const rkv_model *m, rkv_step *s, int l, enum rkv_act act)
{
    const rkv_config *c = &m->config;
    float *const *v = m->layer[l].v;
    norm(m, s, s->h, s->x, v[RKV_V_FFN_NORM], s->n_tok, c->d_model);
    product(m, s, l, RKV_W_GATE, s->gate, s->h);
    product(m, s, l, RKV_W_UP, s->up, s->h);
    #pragma omp parallel for schedule(static) num_threads(s->n_thread) if (s->n_tok >= MANY_ROWS)
    for (int i = 0; i < s->n_tok; i++) {
        float *gate = s->gate + (ptrdiff_t)i * c->d_ff;
        const float *up = s->up + (ptrdiff_t)i * c->d_ff;
        if (act == RKV_ACT_GELU)
            s->be->ops.gelu_mul[RKV_DT_f32](gate, gate, up, c->d_ff);
        else
            s->be->ops.silu_mul[RKV_DT_f32](gate, gate, up, c->d_ff);
    }
    product(m, s, l, RKV_W_DOWN, s->h, s->gate);
    if (v[RKV_V_FFN_POST_NORM])
        norm(m, s, s->h, s->h, v[RKV_V_FFN_POST_NORM], s->n_tok, c->d_model);
    residual(m, s, s->h);
}

size_t rkv_model_panels_bytes(const rkv_model *m, int l)
{
    size_t n = 0;
    for (int i = 0; i < RKV_W_COUNT; i++)
        n += (rkv_panels_bytes(&m->layer[l].w[i]) + 63) / 64 * 64;
    return n;
}

void rkv_model_panels(const rkv_model *m, int l, rkv_panels out[RKV_W_COUNT], float *data,
                      int n_thread)
{
    for (int i = 0; i < RKV_W_COUNT; i++) {
        const rkv_matrix *w = &m->layer[l].w[i];
        out[i] = rkv_panels_pack(&m->backend, data, w, 0, w->n_out, n_thread);
        data += (rkv_panels_bytes(w) + 63) / 64 * 64 / sizeof *data;
    }
}
