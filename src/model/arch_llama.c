/* Llama 2 and 3, Mistral, SmolLM: pre-norm, rotary pairs (2i, 2i + 1), SwiGLU.
 * Source: Touvron et al. 2023 (LLaMA), section 2.2; Q and K rows lie permuted for such pairs in
 * GGUF. */
#include "config.h"
#include "model/model.h"

static rkv_status configure(rkv_model *m, rkv_error *e)
{
    /* Mixtures of experts share the name; their tensors would be missing one by one. */
    int64_t n_expert = 0;
    if (rkv_gguf_has(m->file, "llama.expert_count"))
        RKV_TRY(rkv_gguf_int(m->file, "llama.expert_count", 0, INT32_MAX, &n_expert, e));
    if (n_expert)
        return rkv_fail(e, RKV_E_UNSUPPORTED,
                        "%s: a mixture of %lld experts; only dense models run",
                        rkv_gguf_path(m->file), (long long)n_expert);
    return RKV_OK;
}

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
    .configure = configure,
    .vectors = 1u << RKV_V_ATTN_NORM | 1u << RKV_V_FFN_NORM,
    .layer = layer,
};
