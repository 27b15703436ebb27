"""Small seeded models as GGUF files, one per family, for the tests of the reference."""
import gguf
import numpy as np

SCALING = {             # name -> keys without the family's prefix
    "none": {},
    "linear": {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
    "llama3": {},       # in the tensor rope_freqs
    "yarn": {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
             "rope.scaling.original_context_length": 32},
}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}


def llama3_divisors(base, n_rot):
    """What Llama 3.1 divides the frequencies by: long waves by factor, short ones by 1."""
    wave = 2 * np.pi * base ** (2 * np.arange(n_rot // 2) / n_rot)
    n_ctx, low, high = (LLAMA3[k] for k in ("original_max_position_embeddings", "low_freq_factor",
                                            "high_freq_factor"))
    smooth = np.clip((n_ctx / wave - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / LLAMA3["factor"] + smooth)).astype(np.float32)


def make(family, scaling="none", seed=0, tied=False, window=12, softcap=0.0):
    """Fields (name -> value) and tensors (name -> float32 array) of a small random model."""
    rng = np.random.default_rng(seed)
    d_model, n_head, n_kv_head, d_ff, n_vocab, n_layer = 48, 6, 2, 64, 160, 3
    d_head = 8 if family in ("llama", "qwen2") else 16
    keys = {"context_length": 1024, "embedding_length": d_model, "block_count": n_layer,
            "feed_forward_length": d_ff, "attention.head_count": n_head,
            "attention.head_count_kv": n_kv_head, "attention.layer_norm_rms_epsilon": 1e-6,
            "attention.key_length": d_head, "attention.value_length": d_head,
            "rope.dimension_count": d_head, "rope.freq_base": 10000.0, **SCALING[scaling]}
    if family == "gemma3":
        keys.update({"block_count": 7, "rope.freq_base": 1000000.0,
                     "attention.sliding_window": window})
    if softcap:
        keys["final_logit_softcapping"] = softcap

    def matrix(rows, columns):
        return (rng.standard_normal((rows, columns)) / np.sqrt(columns)).astype(np.float32)

    def vector(n, middle):
        return (middle + 0.3 * rng.standard_normal(n)).astype(np.float32)

    tensors = {"token_embd.weight": matrix(n_vocab, d_model),
               "output_norm.weight": vector(d_model, 1)}
    if not tied and family != "gemma3":
        tensors["output.weight"] = matrix(n_vocab, d_model)
    if scaling == "llama3":
        tensors["rope_freqs.weight"] = llama3_divisors(10000.0, d_head)
    for l in range(keys["block_count"]):
        layer = {"attn_norm.weight": vector(d_model, 1), "ffn_norm.weight": vector(d_model, 1),
                 "attn_q.weight": matrix(n_head * d_head, d_model),
                 "attn_k.weight": matrix(n_kv_head * d_head, d_model),
                 "attn_v.weight": matrix(n_kv_head * d_head, d_model),
                 "attn_output.weight": matrix(d_model, n_head * d_head),
                 "ffn_gate.weight": matrix(d_ff, d_model), "ffn_up.weight": matrix(d_ff, d_model),
                 "ffn_down.weight": matrix(d_model, d_ff)}
        if family == "qwen2":
            layer.update({"attn_q.bias": vector(n_head * d_head, 0),
                          "attn_k.bias": vector(n_kv_head * d_head, 0),
                          "attn_v.bias": vector(n_kv_head * d_head, 0)})
        if family in ("qwen3", "gemma3"):
            layer.update({"attn_q_norm.weight": vector(d_head, 1),
                          "attn_k_norm.weight": vector(d_head, 1)})
        if family == "gemma3":
            layer.update({"post_attention_norm.weight": vector(d_model, 1),
                          "post_ffw_norm.weight": vector(d_model, 1)})
        tensors.update({f"blk.{l}.{name}": t for name, t in layer.items()})
    fields = {"general.architecture": family, **{f"{family}.{k}": v for k, v in keys.items()}}
    return fields, tensors


def write(path, fields, tensors):
    writer = gguf.GGUFWriter(path, fields["general.architecture"])
    add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string,
           list: writer.add_array}
    for name, value in fields.items():
        if name != "general.architecture":          # the writer has put it in
            add[type(value)](name, value)
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
