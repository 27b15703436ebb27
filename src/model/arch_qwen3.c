/* Qwen 3, dense: no biases, RMS norm on each head's q and k before the rotation.
 * Source: Yang et al. 2025 (Qwen3 technical report), section 2. */
#include "config.h"
#include "model/model.h"

static void layer(const rkv_model *m, rkv_step *s, int l)
{
    rkv_block_qkv(m, s, l);
    rkv_block_qk_norm(m, s, l);
    rkv_block_rope(m, s, l);
    s->attend(s->attend_ctx, s, l);
    rkv_block_attn_out(m, s, l);
    rkv_block_ffn(m, s, l, RKV_ACT_SILU);
}

const rkv_arch rkv_arch_qwen3 = {
    .name = "qwen3",
    .rope_neox = 1,
    .vectors =
        1u << RKV_V_ATTN_NORM | 1u << RKV_V_FFN_NORM | 1u << RKV_V_Q_NORM | 1u << RKV_V_K_NORM,
    .layer = layer,
};
