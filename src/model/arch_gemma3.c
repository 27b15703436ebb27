/* Gemma 3, text: five sliding-window layers to one full layer, each kind with its own RoPE base;
 * norms on q and k, and after each sublayer; GeGLU; embeddings scaled by sqrt(d_model). Source:
 * Gemma Team 2025 (Gemma 3 technical report), section 2. The norm weights in GGUF have the model's
 * "+ 1" folded in. */
#include "config.h"
#include "model/model.h"

#include <math.h>

static rkv_status read_sliding(rkv_model *m, rkv_error *e)
{
    enum { PERIOD = 6 };        /* the published pattern: layers 5, 11, ... are full */
    static const char pattern[] = "gemma3.attention.sliding_window_pattern";
    const int n = m->config.n_layer;
    int64_t window = 0, period = PERIOD;
    if (rkv_gguf_has(m->file, "gemma3.attention.sliding_window"))
        RKV_TRY(
            rkv_gguf_int(m->file, "gemma3.attention.sliding_window", 0, RKV_MAX_CTX, &window, e));
    m->config.sliding_window = (int)window;
    if (!window)
        return RKV_OK;
    if (rkv_gguf_array_count(m->file, pattern)) {       /* one flag per layer */
        int64_t flag[RKV_MAX_LAYER];
        RKV_TRY(rkv_gguf_ints(m->file, pattern, flag, (size_t)n, e));
        for (int l = 0; l < n; l++)
            m->layer[l].sliding = flag[l] != 0;
        return RKV_OK;
    }
    if (rkv_gguf_has(m->file, pattern))
        RKV_TRY(rkv_gguf_int(m->file, pattern, 0, RKV_MAX_LAYER, &period, e));
    for (int l = 0; l < n; l++)
        m->layer[l].sliding = period == 0 || l % period < period - 1;
    return RKV_OK;
}

static rkv_status configure(rkv_model *m, rkv_error *e)
{
    rkv_config *c = &m->config;
    c->embed_scale = sqrtf((float)c->d_model);
    /* The 27B model alone scales by its nominal head width; its depth is how it is told apart. */
    enum { DEPTH_27B = 62 };
    const double width =
        c->n_layer == DEPTH_27B ? (double)(c->d_model / c->n_head) : (double)c->d_head;
    c->attn_scale = (float)(1.0 / sqrt(width));
    double cap = 0.0;
    if (rkv_gguf_has(m->file, "gemma3.final_logit_softcapping"))
        RKV_TRY(rkv_gguf_float(m->file, "gemma3.final_logit_softcapping", 0.0, 1e6, &cap, e));
    c->logit_cap = (float)cap;
    return read_sliding(m, e);
}

static void layer(const rkv_model *m, rkv_step *s, int l)
{
    rkv_block_qkv(m, s, l);
    rkv_block_qk_norm(m, s, l);
    rkv_block_rope(m, s, l);
    s->attend(s->attend_ctx, s, l);
    rkv_block_attn_out(m, s, l);
    rkv_block_ffn(m, s, l, RKV_ACT_GELU);
}

const rkv_arch rkv_arch_gemma3 = {
    .name = "gemma3",
    .rope_neox = 1,
    .configure = configure,
    .vectors = 1u << RKV_V_ATTN_NORM | 1u << RKV_V_FFN_NORM | 1u << RKV_V_ATTN_POST_NORM |
               1u << RKV_V_FFN_POST_NORM | 1u << RKV_V_Q_NORM | 1u << RKV_V_K_NORM,
    .layer = layer,
};
