"""A GGUF model for the reference: hyperparameters and float tensors.

Part of an independent check of the product, which never imports it. Sources: ggml's GGUF page for the
file format, the PyPI package gguf for reading and dequantising, llama.cpp for the names of keys and
tensors, their defaults, and which family rotates which pairs.
"""
from collections import namedtuple
from dataclasses import dataclass

import gguf
import numpy as np

NORMAL, NEOX = "normal", "neox"     # RoPE on pairs (2i, 2i+1), or (i, i + n_rot/2)
ROPE_PAIRS = {"llama": NORMAL, "qwen2": NEOX, "qwen3": NEOX, "gemma3": NEOX}
END_TEXTS = {"</s>", "<eos>", "<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>",
             "<|eom_id|>", "<end_of_turn>"}
UNREAD = {"tokenizer.ggml.merges", "tokenizer.ggml.scores", "tokenizer.ggml.token_type"}     # slow


@dataclass(frozen=True)
class Rope:
    """Rotation of one kind of layer: base, and what stretches it."""
    base: float
    n_rot: int
    pairs: str
    kind: str = "none"              # "none", "linear" or "yarn"
    factor: float = 1.0
    n_ctx_train: int = 0            # positions of the original training, for YaRN
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    extrapolation: float = 1.0
    attention: float = 0.0          # YaRN's factor on cos and sin; 0: 1 + 0.1 ln(factor)
    divisors: tuple = ()            # Llama 3: one per pair, from the tensor rope_freqs


@dataclass(frozen=True)
class Config:
    family: str
    n_layer: int
    n_head: int
    n_kv_head: int
    d_head: int
    d_model: int
    eps: float
    rope: Rope                      # of layers that see everything
    rope_sliding: Rope
    window: int                     # positions a sliding layer sees, its own too; 0: no such layer
    sliding: tuple                  # one bool per layer
    attn_scale: float
    softcap: float                  # final logits become c tanh(x / c); 0: off
    ends: tuple                     # ids that end an answer

    @property
    def compressible(self):
        """Layers inside a KV budget."""
        return [l for l in range(self.n_layer) if not self.sliding[l]]


def _one(value):
    """A count that may be stored per layer; layers that differ are not supported."""
    if isinstance(value, list):
        if len(set(value)) != 1:
            raise ValueError(f"counts differ between layers: {value}")
        return value[0]
    return value


def _sliding(key, family, n_layer):
    window = key("attention.sliding_window", 0) if family == "gemma3" else 0
    if not window:
        return 0, (False,) * n_layer
    pattern = key("attention.sliding_window_pattern", 6)
    if isinstance(pattern, list):
        return window, tuple(bool(p) for p in pattern)
    return window, tuple(pattern == 0 or l % pattern < pattern - 1 for l in range(n_layer))


def _rope(key, family, d_head, divisors):
    kind = key("rope.scaling.type", "linear")
    factor = key("rope.scaling.factor", key("rope.scale_linear", 0.0)) or 1.0
    if kind not in ("none", "linear", "yarn"):
        raise ValueError(f"RoPE scaling {kind} is not supported")
    n_rot = key("rope.dimension_count", d_head)
    attention = key("rope.scaling.yarn_attn_factor", 0.0)
    whole = Rope(base=key("rope.freq_base", 10000.0), n_rot=n_rot, pairs=ROPE_PAIRS[family],
                 kind=kind, factor=factor,
                 n_ctx_train=key("rope.scaling.original_context_length", key("context_length", 0)),
                 beta_fast=key("rope.scaling.yarn_beta_fast", 32.0),
                 beta_slow=key("rope.scaling.yarn_beta_slow", 1.0),
                 extrapolation=key("rope.scaling.yarn_ext_factor", 1.0),
                 attention=attention, divisors=divisors)
    near = Rope(base=key("rope.freq_base_swa", 10000.0), n_rot=n_rot, pairs=ROPE_PAIRS[family])
    return whole, near


def config_of(fields, tensors):
    """Config from the key/value fields (name -> value) and the tensors of a file."""
    family = fields["general.architecture"]
    if family not in ROPE_PAIRS:
        raise ValueError(f"family {family} is not supported")

    def key(name, default=None):
        value = fields.get(f"{family}.{name}", default)
        if value is None:
            raise ValueError(f"{family}.{name} is missing")
        return value

    n_layer, d_model = key("block_count"), key("embedding_length")
    n_head = _one(key("attention.head_count"))
    d_head = key("attention.key_length", d_model // n_head)
    if key("attention.value_length", d_head) != d_head:
        raise ValueError("key and value heads of different sizes are not supported")
    window, sliding = _sliding(key, family, n_layer)
    has_divisors = "rope_freqs.weight" in tensors
    divisors = tuple(tensors["rope_freqs.weight"].tolist()) if has_divisors else ()
    rope, rope_sliding = _rope(key, family, d_head, divisors)
    # Gemma-3-27B alone scales by its d_model / n_head instead of its head size.
    d_scale = d_model // n_head if family == "gemma3" and n_layer == 62 else d_head
    ends = {fields[k] for k in ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                "tokenizer.ggml.eom_token_id") if k in fields}
    ends |= {i for i, t in enumerate(fields.get("tokenizer.ggml.tokens", ())) if t in END_TEXTS}
    return Config(family=family, n_layer=n_layer, n_head=n_head,
                  n_kv_head=_one(key("attention.head_count_kv", n_head)), d_head=d_head,
                  d_model=d_model, eps=key("attention.layer_norm_rms_epsilon"), rope=rope,
                  rope_sliding=rope_sliding, window=window, sliding=sliding,
                  attn_scale=1.0 / np.sqrt(d_scale), softcap=key("final_logit_softcapping", 0.0),
                  ends=tuple(sorted(ends)))


# GGUFReader slices its memory map once per string of the vocabulary: much cheaper on a plain array.
_memmap = np.memmap
np.memmap = lambda *args, **options: np.asarray(_memmap(*args, **options))


class Tensors:
    """The tensors of a GGUF file by name, dequantised to float32 when asked for."""

    def __init__(self, reader):
        self._raw = {t.name: t for t in reader.tensors}

    def __contains__(self, name):
        return name in self._raw

    def __getitem__(self, name):
        t = self._raw[name]
        flat = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32, copy=False)
        return flat.reshape([int(n) for n in reversed(t.shape)])

    def rows(self, name, ids):
        """Some rows of a matrix, without dequantising the rest."""
        t = self._raw[name]
        return gguf.quants.dequantize(t.data[ids], t.tensor_type).astype(np.float32, copy=False)


LAYER_TENSORS = {           # name here -> name in the file; None where a family has no such tensor
    "attn_norm": "attn_norm.weight",
    "q": "attn_q.weight", "k": "attn_k.weight", "v": "attn_v.weight",
    "q_bias": "attn_q.bias", "k_bias": "attn_k.bias", "v_bias": "attn_v.bias",
    "q_norm": "attn_q_norm.weight", "k_norm": "attn_k_norm.weight",
    "o": "attn_output.weight", "o_bias": "attn_output.bias", "o_norm": "post_attention_norm.weight",
    "ffn_norm": "ffn_norm.weight", "gate": "ffn_gate.weight", "up": "ffn_up.weight",
    "down": "ffn_down.weight", "gate_bias": "ffn_gate.bias", "up_bias": "ffn_up.bias",
    "down_bias": "ffn_down.bias", "down_norm": "post_ffw_norm.weight",
}
Layer = namedtuple("Layer", LAYER_TENSORS)


class Model:
    """Weights in one floating type; each tensor is dequantised once, when first used."""

    def __init__(self, path, dtype=np.float32):
        reader = gguf.GGUFReader(path)
        self.tensors = Tensors(reader)
        fields = {k: f.contents() for k, f in reader.fields.items() if k not in UNREAD}
        self.config = config_of(fields, self.tensors)
        self.dtype = dtype
        self._kept = {}

    def tensor(self, name):
        if name not in self._kept:
            found = name in self.tensors
            self._kept[name] = self.tensors[name].astype(self.dtype, copy=False) if found else None
        return self._kept[name]

    def layer(self, l):
        return Layer(*(self.tensor(f"blk.{l}.{name}") for name in LAYER_TENSORS.values()))

    def embed(self, ids):
        """[n][d_model]; Gemma scales by sqrt(d_model) taken in float32."""
        x = self.tensors.rows("token_embd.weight", np.asarray(ids)).astype(self.dtype)
        if self.config.family == "gemma3":
            x *= self.dtype(np.sqrt(np.float32(self.config.d_model)))
        return x

    def output(self):
        """[n_vocab][d_model]: tied to the embedding when the file has no output matrix."""
        tied = "output.weight" not in self.tensors
        return self.tensor("token_embd.weight" if tied else "output.weight")
