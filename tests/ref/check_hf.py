#!/usr/bin/env python3
"""The reference against Hugging Face transformers on small random models of every family.

A scratch check: skipped (exit 77) where torch and transformers are not installed."""
import os
import sys
import tempfile

try:
    import torch
    import transformers
except ImportError as e:
    print(f"hf: 0 passed, 0 failed, 1 skipped ({e})")
    sys.exit(77)
import numpy as np

import tiny
from forward import Session, logits
from gguf_model import Model

TOLERANCE = 1e-4
NAMES = {               # in GGUF -> in transformers
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
GEMMA_NAMES = {**NAMES, "post_attention_norm": "post_attention_layernorm",
               "ffn_norm": "pre_feedforward_layernorm",
               "post_ffw_norm": "post_feedforward_layernorm"}
OUTER = {"token_embd.weight": "model.embed_tokens.weight",
         "output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight"}
CLASSES = {"llama": ("LlamaConfig", "LlamaForCausalLM"),
           "qwen2": ("Qwen2Config", "Qwen2ForCausalLM"),
           "qwen3": ("Qwen3Config", "Qwen3ForCausalLM"),
           "gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM")}
CASES = [("llama", "none", {}), ("llama", "linear", {}), ("llama", "llama3", {}),
         ("llama", "yarn", {}), ("qwen2", "none", {}), ("qwen2", "yarn", {}),
         ("qwen3", "none", {"tied": True}), ("qwen3", "linear", {}), ("qwen3", "yarn", {}),
         ("gemma3", "none", {}), ("gemma3", "linear", {"window": 7}),
         ("gemma3", "none", {"softcap": 2.0})]


def rope_parameters(key, scaling):
    rope = {"rope_type": "default" if scaling == "none" else scaling,
            "rope_theta": key("rope.freq_base")}
    if scaling == "llama3":
        return {**rope, **tiny.LLAMA3}
    if scaling != "none":
        rope["factor"] = key("rope.scaling.factor")
    if scaling == "yarn":
        rope["original_max_position_embeddings"] = key("rope.scaling.original_context_length")
    return rope


def to_transformers(fields, tensors, scaling):
    family = fields["general.architecture"]

    def key(name):
        return fields[f"{family}.{name}"]

    rope, n_layer = rope_parameters(key, scaling), key("block_count")
    options = dict(
        vocab_size=len(tensors["token_embd.weight"]), hidden_size=key("embedding_length"),
        intermediate_size=key("feed_forward_length"), num_hidden_layers=n_layer,
        num_attention_heads=key("attention.head_count"), head_dim=key("attention.key_length"),
        num_key_value_heads=key("attention.head_count_kv"), rms_norm_eps=1e-6, rope_parameters=rope,
        max_position_embeddings=key("context_length"), attn_implementation="eager",
        tie_word_embeddings="output.weight" not in tensors)
    if family == "gemma3":
        kinds = ["full_attention" if l % 6 == 5 else "sliding_attention" for l in range(n_layer)]
        options.update(
            layer_types=kinds, sliding_window=key("attention.sliding_window"),
            query_pre_attn_scalar=key("attention.key_length"),
            final_logit_softcapping=fields.get("gemma3.final_logit_softcapping"), rope_parameters={
                "full_attention": rope,
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})
    config, model = (getattr(transformers, name) for name in CLASSES[family])
    model = model(config(**options)).eval()
    missing, unknown = model.load_state_dict(state(family, key, tensors), strict=False)
    left = [n for n in missing if n != "lm_head.weight"]
    if left or unknown:
        raise ValueError(f"{family}: not set {left}, not known {unknown}")
    model.tie_weights()
    return model


def state(family, key, tensors):
    out = {}
    for name, t in tensors.items():
        if name == "rope_freqs.weight":
            continue
        if family == "llama" and (".attn_q." in name or ".attn_k." in name):
            # rows of a head: pairs (2i, 2i+1) in GGUF, (i, i + d/2) in transformers
            d = key("attention.key_length")
            t = t.reshape(-1, d // 2, 2, t.shape[-1]).swapaxes(1, 2).reshape(t.shape)
        if family == "gemma3" and name.endswith("norm.weight"):
            t = t - 1
        if name in OUTER:
            out[OUTER[name]] = torch.from_numpy(t)
        else:
            _, l, part, kind = name.split(".")
            names = GEMMA_NAMES if family == "gemma3" else NAMES
            out[f"model.layers.{l}.{names[part]}.{kind}"] = torch.from_numpy(t)
    return out


def main():
    failed = 0
    for i, (family, scaling, options) in enumerate(CASES):
        fields, tensors = tiny.make(family, scaling, seed=i, **options)
        ids = np.random.default_rng(i).integers(0, 160, 100)
        with torch.no_grad():
            peer = to_transformers(fields, tensors, scaling)
            want = peer(torch.from_numpy(ids)[None]).logits[0].numpy()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tiny.gguf")
            tiny.write(path, fields, tensors)
            model = Model(path)
            got = logits(model, Session(model).rows(ids, chunk=33))
        apart = np.abs(got - want).max()
        failed += not apart < TOLERANCE
        print(f"{family} {scaling} {options}: max |difference| {apart:.2e} of logits up to "
              f"{np.abs(want).max():.1f}")
    print(f"hf: {len(CASES) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
