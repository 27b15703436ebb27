/* Load mode "stream": weights come from the file when they are about to be used, and go when they
 * have been. Nothing happens in the other modes. */
#include "config.h"
#include "model/model.h"

static void ahead(const rkv_model *m, const rkv_matrix *w, int first, int n)
{
    rkv_gguf_ahead(m->file, (const char *)w->data + first * w->row_stride,
                   (size_t)n * (size_t)w->row_stride);
}

static void drop(const rkv_model *m, const rkv_matrix *w, int first, int n)
{
    rkv_gguf_drop(m->file, (const char *)w->data + first * w->row_stride,
                  (size_t)n * (size_t)w->row_stride);
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* The run of the head's rows from c0 on; none past the end. */
static void head_ahead(const rkv_model *m, int c0)
{
    if (c0 < m->head.n_out)
        ahead(m, &m->head, c0, least(RKV_HEAD_COLUMNS, m->head.n_out - c0));
}

static void layer_ahead(const rkv_model *m, int l)
{
    for (int i = 0; i < RKV_W_COUNT; i++)
        ahead(m, &m->layer[l].w[i], 0, m->layer[l].w[i].n_out);
}

void rkv_model_layer_begin(const rkv_model *m, int l)
{
    if (!m->streams)
        return;
    if (l == 0)
        layer_ahead(m, 0);
    if (l + 1 < m->config.n_layer)
        layer_ahead(m, l + 1);
    else
        head_ahead(m, 0);
}

void rkv_model_layer_end(const rkv_model *m, int l)
{
    for (int i = 0; m->streams && i < RKV_W_COUNT; i++)
        drop(m, &m->layer[l].w[i], 0, m->layer[l].w[i].n_out);
}

void rkv_model_head_begin(const rkv_model *m, int c0)
{
    if (m->streams)
        head_ahead(m, c0 + RKV_HEAD_COLUMNS);
}

void rkv_model_head_end(const rkv_model *m, int c0)
{
    if (m->streams)
        drop(m, &m->head, c0, least(RKV_HEAD_COLUMNS, m->head.n_out - c0));
}

void rkv_model_embed_end(const rkv_model *m)
{
    if (m->streams)
        drop(m, &m->embed, 0, m->embed.n_out);
}

void rkv_model_load_end(const rkv_model *m)
{
    for (int i = 0; m->streams && i < rkv_gguf_n_tensor(m->file); i++) {
        const rkv_tensor *t = rkv_gguf_tensor_at(m->file, i);
        rkv_gguf_drop(m->file, t->data, t->bytes);
    }
}

uint64_t rkv_model_layer_bytes(const rkv_model *m, int l)
{
    uint64_t n = 0;
    for (int i = 0; i < RKV_W_COUNT; i++)
        n += rkv_matrix_bytes(&m->layer[l].w[i]);
    return n;
}

uint64_t rkv_model_stream_bytes(const rkv_model *m)
{
    const uint64_t run = (uint64_t)m->head.row_stride *
                         (uint64_t)least(RKV_HEAD_COLUMNS, m->head.n_out);
    uint64_t most = 2 * run;
    for (int l = 0; l < m->config.n_layer; l++) {
        const uint64_t next = l + 1 < m->config.n_layer ? rkv_model_layer_bytes(m, l + 1) : run;
        const uint64_t both = rkv_model_layer_bytes(m, l) + next;
        most = both > most ? both : most;
    }
    return most;
}
