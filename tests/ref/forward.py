"""The forward pass on dequantised weights: prompts in row chunks, single tokens, ragged caches.

Everything is in the model's floating type, except that RoPE angles are always float64.
Sources: Vaswani et al. 2017; Zhang and Sennrich 2019 (RMSNorm); Su et al. 2021 (RoPE); Shazeer 2020
(gated units); Ainslie et al. 2023 (GQA); Peng et al. 2023 (YaRN); Gemma 3 and Qwen3 reports.
"""
import numpy as np

from gguf_model import NEOX


def rms_norm(x, gain, eps):
    scale = 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + x.dtype.type(eps))
    return x * scale * gain


def silu(x):
    with np.errstate(over="ignore"):        # exp(-x) = inf gives the limit -0
        return x / (1 + np.exp(-x))


def gelu(x):
    """The tanh form, as Gemma was trained."""
    return 0.5 * x * (1 + np.tanh(x.dtype.type(np.sqrt(2 / np.pi)) * (x + 0.044715 * x * x * x)))


def softmax(x):
    """Over the last axis; -inf gives exactly 0."""
    e = x - x.max(axis=-1, keepdims=True)
    np.exp(e, out=e)
    e /= e.sum(axis=-1, keepdims=True)
    return e


def rope_frequencies(rope):
    """Radians per position of each pair, and the factor on cos and sin, in float64."""
    i = np.arange(rope.n_rot // 2)
    freq = float(rope.base) ** (-2.0 * i / rope.n_rot)
    if rope.divisors:
        freq = freq / np.array(rope.divisors)
    if rope.kind == "linear":
        return freq / rope.factor, 1.0
    if rope.kind == "yarn":
        def pair_of(turns):         # the pair that turns so often within the original context
            ratio = rope.n_ctx_train / (turns * 2 * np.pi)
            return rope.n_rot * np.log(ratio) / (2 * np.log(rope.base))
        low = max(np.floor(pair_of(rope.beta_fast)), 0)
        high = min(np.ceil(pair_of(rope.beta_slow)), rope.n_rot - 1)
        ramp = np.clip((i - low) / max(high - low, 0.001), 0, 1)
        keep = (1 - ramp) * rope.extrapolation
        return (freq / rope.factor * (1 - keep) + freq * keep,
                rope.attention or 1 + 0.1 * np.log(rope.factor))
    return freq, 1.0


def rotate(x, pos, rope):
    """x [n][head][d_head] at positions pos [n]."""
    freq, size = rope_frequencies(rope)
    angle = np.asarray(pos, np.float64)[:, None, None] * freq
    cos, sin = (np.cos(angle) * size).astype(x.dtype), (np.sin(angle) * size).astype(x.dtype)
    half = rope.n_rot // 2
    if rope.pairs == NEOX:
        first, second = slice(0, half), slice(half, rope.n_rot)
    else:
        first, second = slice(0, rope.n_rot, 2), slice(1, rope.n_rot, 2)
    a, b = x[..., first], x[..., second]
    out = x.copy()
    out[..., first], out[..., second] = a * cos - b * sin, a * sin + b * cos
    return out


class Cache:
    """Keys and values of one layer; each KV head holds its own ascending positions."""

    def __init__(self, n_kv_head, d_head, dtype, half=False):
        self.k = [np.zeros((0, d_head), dtype)] * n_kv_head
        self.v = [np.zeros((0, d_head), dtype)] * n_kv_head
        self.pos = [np.zeros(0, np.int64)] * n_kv_head
        self.half = half            # round what is stored to float16

    def copy(self):
        other = Cache.__new__(Cache)
        other.k, other.v, other.pos = list(self.k), list(self.v), list(self.pos)
        other.half = self.half
        return other

    def _stored(self, x):
        return x.astype(np.float16).astype(x.dtype) if self.half else x

    def append(self, k, v, pos):
        """k, v [n][n_kv_head][d_head]."""
        for h in range(len(self.k)):
            self.k[h] = np.concatenate([self.k[h], self._stored(k[:, h])])
            self.v[h] = np.concatenate([self.v[h], self._stored(v[:, h])])
            self.pos[h] = np.concatenate([self.pos[h], pos])

    def keep(self, h, kept):
        """Drops from KV head h all positions but these."""
        at = np.isin(self.pos[h], kept)
        self.k[h], self.v[h], self.pos[h] = self.k[h][at], self.v[h][at], self.pos[h][at]

    def with_values(self, v):
        """The same keys, but values v [n_kv_head][n][d_head], as they are."""
        other = self.copy()
        other.v = list(v)
        return other

    def with_keys(self, k):
        """The same values, but (rotated) keys k [n_kv_head][n][d_head], as they are."""
        other = self.copy()
        other.k = list(k)
        return other


def attend(q, cache, pos, scale, window):
    """Rows q [n][n_head][d_head] at ascending positions pos over a cache; [n][n_head * d_head].
    A query at p sees the keys at p - window < k <= p; window 0: all up to p."""
    n, n_head, d_head = q.shape
    group = n_head // len(cache.k)
    out = np.empty_like(q)
    for h in range(len(cache.k)):
        k_pos = cache.pos[h]
        first = np.searchsorted(k_pos, pos[0] - window + 1) if window else 0
        seen = slice(first, np.searchsorted(k_pos, pos[-1], "right"))
        apart = pos[:, None] - k_pos[None, seen]
        hidden = (apart < 0) | (apart >= window) if window else apart < 0
        heads = slice(h * group, (h + 1) * group)
        score = (q[:, heads] * q.dtype.type(scale)).transpose(1, 0, 2) @ cache.k[h][seen].T
        np.copyto(score, -np.inf, where=hidden)
        out[:, heads] = (softmax(score) @ cache.v[h][seen]).transpose(1, 0, 2)
    return out.reshape(n, n_head * d_head)


def linear(x, w, bias=None):
    y = x @ w.T
    return y if bias is None else y + bias


def attention_rows(model, l, x, cache, pos):
    """What layer l's attention gives for rows x [n][d_model] before W_O; their keys and values join the
    cache. Returns [n][n_head * d_head] and the rotated queries [n][n_head][d_head]."""
    c, w, n = model.config, model.layer(l), len(x)
    a = rms_norm(x, w.attn_norm, c.eps)
    q = linear(a, w.q, w.q_bias).reshape(n, c.n_head, c.d_head)
    k = linear(a, w.k, w.k_bias).reshape(n, c.n_kv_head, c.d_head)
    v = linear(a, w.v, w.v_bias).reshape(n, c.n_kv_head, c.d_head)
    if w.q_norm is not None:
        q, k = rms_norm(q, w.q_norm, c.eps), rms_norm(k, w.k_norm, c.eps)
    rope = c.rope_sliding if c.sliding[l] else c.rope
    q, k = rotate(q, pos, rope), rotate(k, pos, rope)
    cache.append(k, v, pos)
    return attend(q, cache, pos, c.attn_scale, c.window if c.sliding[l] else 0), q


def layer_rows(model, l, x, cache, pos):
    """Rows x [n][d_model] through layer l; their keys and values join the cache. Returns the rows
    and the rotated queries [n][n_head][d_head]."""
    c, w = model.config, model.layer(l)
    a, q = attention_rows(model, l, x, cache, pos)
    a = linear(a, w.o, w.o_bias)
    x = x + (a if w.o_norm is None else rms_norm(a, w.o_norm, c.eps))
    f = rms_norm(x, w.ffn_norm, c.eps)
    gate = (gelu if c.family == "gemma3" else silu)(linear(f, w.gate, w.gate_bias))
    f = linear(gate * linear(f, w.up, w.up_bias), w.down, w.down_bias)
    return x + (f if w.down_norm is None else rms_norm(f, w.down_norm, c.eps)), q


def logits(model, x):
    """[n][n_vocab] of final rows x."""
    c = model.config
    y = linear(rms_norm(x, model.tensor("output_norm.weight"), c.eps), model.output(),
               model.tensor("output.bias"))
    return np.tanh(y / c.softcap) * y.dtype.type(c.softcap) if c.softcap else y


class Session:
    """One timeline: a cache per layer."""

    def __init__(self, model, half=False):
        c = model.config
        self.model, self.n_past = model, 0
        self.caches = [Cache(c.n_kv_head, c.d_head, model.dtype, half) for _ in range(c.n_layer)]

    def fork(self):
        other = Session.__new__(Session)
        other.model, other.n_past = self.model, self.n_past
        other.caches = [c.copy() for c in self.caches]
        return other

    def rows(self, ids, chunk=256, watch=None):
        """Takes ids, layer by layer and in row chunks; returns the final rows [n][d_model].
        watch(l, x, q, cache) sees each layer when done: its input rows and all rotated queries."""
        x = self.model.embed(ids)
        pos = self.n_past + np.arange(len(ids))
        for l, cache in enumerate(self.caches):
            parts = [slice(i, i + chunk) for i in range(0, len(ids), chunk)]
            done = [layer_rows(self.model, l, x[part], cache, pos[part]) for part in parts]
            if watch:
                watch(l, x, np.concatenate([q for _, q in done]), cache)
            x = np.concatenate([y for y, _ in done])
        self.n_past += len(ids)
        return x

    def next_logits(self, ids, watch=None):
        """Takes ids; logits [n_vocab] after the last."""
        return logits(self.model, self.rows(ids, watch=watch)[-1:])[0]


def greedy(session, row, n, ends=()):
    """Up to n ids continuing a session whose last logits are row, ending before an end token; and
    for each the distance between the two largest logits. The lower id wins a tie."""
    ids, gaps = [], []
    while True:
        best = int(np.argmax(row))
        if len(ids) == n or best in ends:
            return ids, gaps
        second = np.partition(row, -2)[-2]
        ids.append(best)
        gaps.append(float(row[best] - second))
        if len(ids) < n:
            row = session.next_logits([best])
