/* Made models: seeded random weights with the tensors and keys that llama.cpp's converters give
 * each family (sources: src/llama-arch.cpp, src/models and conversion/ of llama.cpp, real files).
 *
 * Every family: general.{architecture, type, name, file_type, quantization_version} and, under its
 * own prefix, block_count, context_length, embedding_length, feed_forward_length,
 * attention.head_count, attention.head_count_kv, attention.layer_norm_rms_epsilon, rope.freq_base;
 * the tokenizer's keys (vocab.h). Integers are uint32, reals float32.
 *   llama    also vocab_size and rope.dimension_count; attention.{key,value}_length only when
 *            d_head is not d_model / n_head
 *   qwen2    nothing more; d_model = n_head * d_head
 *   qwen3    attention.{key,value}_length
 *   gemma3   attention.{key,value}_length, attention.sliding_window, and, when asked for,
 *            attention.sliding_window_pattern (converters leave it out, which means 6: every sixth
 *            layer sees everything); no rope.freq_base_swa: 10000 for the sliding layers
 * rope linear: rope.scaling.{type, factor}; yarn: also rope.scaling.original_context_length;
 * llama3: no key but the tensor rope_freqs.weight, factors 8, 1 and 4, original context 8192.
 *
 * Tensors: token_embd, output_norm, blk.N.{attn_norm, attn_q, attn_k, attn_v, attn_output,
 * ffn_norm, ffn_gate, ffn_up, ffn_down}.weight; output.weight unless tied (gemma3 always is);
 *   qwen2    blk.N.attn_{q,k,v}.bias
 *   qwen3    blk.N.attn_{q,k}_norm.weight [d_head]
 *   gemma3   the same and blk.N.post_{attention,ffw}_norm.weight
 * Vectors are f32, matrices of the type asked for. Rows that a type's blocks do not divide get the
 * type that llama.cpp's quantizer falls back to. Norm weights are those the graph multiplies by
 * (for gemma3 with the 1 added, as in real files).
 *
 * Weights: normal with 1 / sqrt(inputs), so that normed activations give values about 1; query and
 * key get a gain (in their norm where they have one) that makes attention far from uniform; logits
 * have a deviation of about 2. Norm weights are near 1, but the last one's of a tied model are of
 * either sign. */
#ifndef RKV_TINY_MODEL_H
#define RKV_TINY_MODEL_H

#include <stdint.h>

#include "base/err.h"

typedef struct tiny_options {
    const char *family;         /* llama, qwen2, qwen3, gemma3 */
    int n_layer, n_head, n_kv_head, d_head, d_model, d_ff, n_vocab, n_ctx;
    const char *type;           /* an element type; "mixed": as Q4_K_M files; "all": in turn */
    const char *rope;           /* none, linear, llama3, yarn */
    const char *tokenizer;      /* bpe, spm; NULL: the family's own */
    uint64_t seed;
    int tied;                   /* no output.weight */
    int window;                 /* gemma3's sliding window in tokens; 0: none */
    int pattern;                /* gemma3's sliding_window_pattern; 0: no key; -1: bools */
    const char *extra;          /* one more key, "SUFFIX TYPE VALUE", of u32, f32, bool; NULL */
    int n_shard;                /* files; the name must then end in -00001-of-0000N.gguf */
} tiny_options;

/* Two layers of a small model; runs in milliseconds. */
tiny_options tiny_defaults(void);

/* Writes the model to path, streaming; the same options give the same bytes.
 * RKV_E_ARG: options that do not fit together; RKV_E_IO; RKV_E_MEM. */
rkv_status tiny_write(const tiny_options *o, const char *path, rkv_error *e);

#endif
