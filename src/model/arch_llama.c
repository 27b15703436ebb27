/* Llama 2 and 3, Mistral, SmolLM: pre-norm, rotary pairs (2i, 2i + 1), SwiGLU.
 * Source: Touvron et al. 2023 (LLaMA), section 2.2; Q and K rows lie permuted for such pairs in
 * GGUF. */
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

const rkv_arch rkv_arch_llama = {
    .name = "llama",
    .vectors = 1u << RKV_V_ATTN_NORM | 1u << RKV_V_FFN_NORM,
    .layer = layer,
};
