"""Sensitivity of each layer the slow way: perturb its Values, rerun everything above, measure KL.

Source: Xu et al. 2026 (RippleKV), profiling; this project pins the generator and what counts.
"""
import numpy as np

from forward import Session, greedy, layer_rows, logits

SIGMA, SEEDS = 0.5, 4
N_RESPONSE, N_RESPONSE_MIN = 32, 8
STEP = 0x9E3779B97F4A7C15


def mix(z):
    """64-bit mixing of an array of uint64 (the finaliser of SplitMix64, Steele et al. 2014)."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def noise_key(example, seed, layer):
    return int(mix(np.array([1000003 * example + 1009 * seed + layer + 1], np.uint64))[0])


def normal(key, n, first=0):
    """Elements first .. first + n - 1 of the stream of a key: standard normal, float64."""
    word = np.arange(2 * first, 2 * (first + n), dtype=np.uint64)
    word = mix(np.uint64(key) + (word + np.uint64(1)) * np.uint64(STEP))
    u = ((word >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0 ** -53
    return np.sqrt(-2 * np.log(u[0::2])) * np.cos(2 * np.pi * u[1::2])


def perturbed(v, sigma, key, first=0):
    """v [n_kv_head][n][d_head] with noise scaled by each vector's own norm, from element first of the
    key's stream on."""
    wide = v.astype(np.float64)
    size = np.linalg.norm(wide, axis=-1, keepdims=True) / np.sqrt(v.shape[-1])
    return (wide + sigma * size * normal(key, v.size, first).reshape(v.shape)).astype(v.dtype)


def noisy(cache, sigma, key, values=True, keys=False):
    """A layer's cache with noise on its Values, its rotated Keys, or both. The Keys' elements follow
    all those of the Values in the stream, whether these are used or not."""
    v = np.stack(cache.v)
    if values:
        cache = cache.with_values(perturbed(v, sigma, key))
    if keys:
        cache = cache.with_keys(perturbed(np.stack(cache.k), sigma, key, first=v.size))
    return cache


def log_probabilities(row):
    """Of logits [..][n_vocab], in float64."""
    wide = row.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True))


def kl(p, q):
    """KL(p || q) in nats of logits [..][n_vocab], one number per row."""
    p, q = log_probabilities(p), log_probabilities(q)
    return (np.exp(p) * (p - q)).sum(axis=-1)


class Example:
    """A prompt with its full cache, and the answer's rows at the entry of each layer. watch sees the
    prompt's prefill (Session.rows)."""

    def __init__(self, model, prompt, response=None, n_response=N_RESPONSE, half=False, watch=None):
        self.model, self.n = model, len(prompt)
        self.prefix = Session(model, half)
        row = self.prefix.next_logits(prompt, watch)
        if response is None:
            response, _ = greedy(self.prefix.fork(), row, n_response, model.config.ends)
        self.response = list(response[:n_response])
        self.inputs = []
        if self.response:
            def keep(l, x, q, cache):
                self.inputs.append(x)
            self.inputs.append(self.prefix.fork().rows(self.response, watch=keep))
            self.reference = logits(model, self.inputs[-1])

    @property
    def positions(self):
        """Of the answer's rows."""
        return self.n + np.arange(len(self.response))

    def edited(self, l, cache, n=None):
        """Logits of the answer's first n rows (None: all) when layer l holds this cache of the prompt:
        everything from layer l up is computed again. The cache given stays as it is."""
        x, pos = self.inputs[l][:n], self.positions[:n]
        for j in range(l, self.model.config.n_layer):
            below = cache if j == l else self.prefix.caches[j]
            x, _ = layer_rows(self.model, j, x, below.copy(), pos)
        return logits(self.model, x)

    def kl_of(self, l, cache, n=None):
        """Mean KL over the answer's first n positions when layer l holds this cache of the prompt."""
        return float(kl(self.reference[:n], self.edited(l, cache, n)).mean())

    def local_of(self, l, cache):
        """Relative change of layer l's own output rows, mean over the answer's positions."""
        changed, _ = layer_rows(self.model, l, self.inputs[l], cache.copy(), self.positions)
        usual = self.inputs[l + 1].astype(np.float64)
        return float((np.linalg.norm(changed - usual, axis=-1) / np.linalg.norm(usual, axis=-1)).mean())

    def sensitivity(self, l, sigma, key, values=True, keys=False):
        """Mean KL over the answer's positions under noise on layer l's cache of the prompt."""
        return self.kl_of(l, noisy(self.prefix.caches[l], sigma, key, values, keys))


def sweep(model, examples, sigma=SIGMA, n_seed=SEEDS, n_response=N_RESPONSE, half=False, log=None):
    """Sensitivities [n_used][n_seed][compressible layer] of (index, prompt, response or None), and
    the indices used. Examples with too short an answer are left out."""
    table, used = [], []
    for index, prompt, response in examples:
        e = Example(model, prompt, response, n_response, half)
        if len(e.response) >= N_RESPONSE_MIN:
            table.append([[e.sensitivity(l, sigma, noise_key(index, seed, l))
                           for l in model.config.compressible] for seed in range(n_seed)])
            used.append(index)
        if log:
            log(index, e)
    return np.array(table), used
