/* Qwen 2 and 2.5: like Llama with biases on q, k, v and rotary pairs (i, i + n_pair).
 * Source: Yang et al. 2024 (Qwen2), section 2.2. */
#include "config.h"
#include "model/model.h"

static void layer(const rkv_model *m, rkv_step *s, int l)
{
    rkv_block_qkv(m, s, l);
    rkv_block_rope(m, s, l);
    s->attend(s->attend_ctx, s, l);
    rkv_block_attn_out(m, s, l);
    rkv_block_ffn(m, s, l, RKV_ACT_SILU);
}

const rkv_arch rkv_arch_qwen2 = {
    .name = "qwen2",
    .rope_neox = 1,
    .vectors = 1u << RKV_V_ATTN_NORM | 1u << RKV_V_FFN_NORM | 1u << RKV_V_Q_BIAS |
               1u << RKV_V_K_BIAS | 1u << RKV_V_V_BIAS,
    .layer = layer,
};
