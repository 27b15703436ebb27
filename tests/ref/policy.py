"""Which cached tokens stay: exact integer budgets per layer, and selection by SnapKV, H2O, observed
attention, and the blend of SnapKV's ranks with those of the attention of the last queries.

Budgets are rational arithmetic: given the weights, no rounding decides. Sources: Xu et al. 2026
(RippleKV), Li et al. 2024 (SnapKV), Zhang et al. 2023 (H2O), kvpress (observed attention), METHOD
section 8 of this project (blend); where they leave a choice open, the pinned one of this project.
"""
from fractions import Fraction

import numpy as np

from forward import softmax

WINDOW, KERNEL, SINKS, RECENT = 32, 7, 4, 512


def cap_of(text, n):
    """Mean tokens per layer and KV head of a budget ("10%" or "4096") for n prompt tokens."""
    if not text.endswith("%"):
        return min(int(text), n)
    share = Fraction(text[:-1]) / 100
    if not 0 < share <= 1:
        raise ValueError(f"budget {text} is not in (0, 100] %")
    return int(share * n + Fraction(1, 2))


def ripple_weights(s, r=1.5, gamma=2.0):
    """Weights of mean 1 from sensitivities: r ** (s scaled to [0, 1]), in [1/gamma, gamma]."""
    s = np.asarray(s, np.float64)
    span = s.max() - s.min()
    scaled = (s - s.min()) / span if span > 0 else np.zeros_like(s)
    w = np.clip(r ** scaled, 1 / gamma, gamma)
    return w / w.mean()


def fill(weights, total, low, high):
    """Real shares clip(c * w, low, high) of a total, c common to all: exact, as fractions."""
    w = [Fraction(float(x)) for x in weights]
    if not len(w) * low <= total <= len(w) * high:
        raise ValueError(f"{total} tokens do not fit {len(w)} layers of {low} to {high}")

    def shares(c):
        return [min(max(c * x, Fraction(low)), Fraction(high)) for x in w]

    # The sum grows with c, linearly between the points where a layer meets a bound.
    points = sorted({Fraction(bound) / x for x in w for bound in (low, high)})
    above = next(i for i, c in enumerate(points) if sum(shares(c)) >= total)
    if above == 0:
        return shares(points[0])
    left, right = sum(shares(points[above - 1])), sum(shares(points[above]))
    c = points[above - 1] + (points[above] - points[above - 1]) * (total - left) / (right - left)
    return shares(c)


def largest_remainder(shares, total):
    """Integers of that total, each share rounded down or up; ties go to the lower index. Also the
    distance between the smallest remainder that was rounded up and the largest that was not."""
    whole = [int(x) for x in shares]
    rest = [x - i for x, i in zip(shares, whole)]
    order = sorted(range(len(shares)), key=lambda i: (-rest[i], i))
    n_up = total - sum(whole)
    for i in order[:n_up]:
        whole[i] += 1
    tight = 0 < n_up < len(order)
    gap = float(rest[order[n_up - 1]] - rest[order[n_up]]) if tight else 1.0
    return whole, gap


def layer_budgets(weights, cap, n, window=WINDOW):
    """Tokens per KV head of each compressible layer, their sum exact; and the rounding gap."""
    floor = min(window + SINKS, n)
    if cap < floor:
        raise ValueError(f"a budget of {cap} tokens is under the floor of {floor}")
    total = len(weights) * cap
    return largest_remainder(fill(weights, total, floor, n), total)


def pool(score, kernel, average=False):
    """Centred pooling along the last axis, kernel odd; the mean counts zero padding."""
    if not score.shape[-1]:
        return score.copy()
    half = kernel // 2
    wide = np.pad(score, [(0, 0)] * (score.ndim - 1) + [(half, half)],
                  constant_values=0.0 if average else -np.inf)
    parts = np.lib.stride_tricks.sliding_window_view(wide, kernel, axis=-1)
    return parts.mean(axis=-1) if average else parts.max(axis=-1)


def snapkv_scores(q, k, scale, kernel=KERNEL, average=False, pool_first=False):
    """Scores [n_kv_head][n - W] of the positions before the window, in float64.
    q [W][n_head][d_head]: queries of the last W positions; k [n_kv_head][n][d_head]."""
    w, n_head, _ = q.shape
    n_kv_head, n, _ = k.shape
    q = q.astype(np.float64).reshape(w, n_kv_head, n_head // n_kv_head, -1).transpose(1, 2, 0, 3)
    score = q @ k.astype(np.float64).transpose(0, 2, 1)[:, None] * scale
    score[..., np.arange(n) > np.arange(n - w, n)[:, None]] = -np.inf
    mass = softmax(score).sum(axis=2)[..., :n - w]
    if pool_first:
        return pool(mass, kernel, average).mean(axis=1)
    return pool(mass.mean(axis=1), kernel, average)


def attention_mass(q, k, scale, rows=128, recent=0):
    """Attention [n_kv_head][n] that each key gets, summed over the last `recent` queries (0: all n),
    mean over the group, in float64. q [n][n_head][d_head], k [n_kv_head][n][d_head]: of all positions
    of the prompt."""
    n, n_head, _ = q.shape
    group, start = n_head // len(k), max(n - recent, 0) if recent else 0
    mass = np.zeros(k.shape[:2])
    for h, keys in enumerate(k.astype(np.float64)):
        for i in range(start, n, rows):
            part = q[i:i + rows, h * group:(h + 1) * group].astype(np.float64)
            score = part @ keys.T * scale
            hidden = np.arange(n) > np.arange(i, i + len(part))[:, None, None]
            np.copyto(score, -np.inf, where=hidden)
            mass[h] += softmax(score).sum(axis=(0, 1)) / group
    return mass


def ranks(x):
    """Average ranks from 0, smallest first; equal values share theirs."""
    x = np.asarray(x)
    ordered = np.sort(x)
    return (np.searchsorted(ordered, x, "left") + np.searchsorted(ordered, x, "right") - 1) / 2


def blend_parts(q, k, scale, window=WINDOW, recent=RECENT, **pooling):
    """The two scores [n_kv_head][n - window] whose ranks the blend adds."""
    mass = attention_mass(q, k, scale, recent=recent)
    return snapkv_scores(q[-window:], k, scale, **pooling), mass[:, :max(mass.shape[1] - window, 0)]


def blend(parts):
    """Minus the sum of the ranks, largest first, of the parts: the higher the more worth keeping."""
    return -sum(np.stack([ranks(-row) for row in part]) for part in parts)


def scores(selector, q, k, scale, window=WINDOW, recent=RECENT, **pooling):
    """Scores [n_kv_head][n - window] of a selector; q and k as for attention_mass."""
    if selector == "snapkv":
        return snapkv_scores(q[-window:], k, scale, **pooling)
    if selector == "blend":
        return blend(blend_parts(q, k, scale, window, recent, **pooling))
    mass = attention_mass(q, k, scale)
    n = mass.shape[1]
    if selector == "observed":          # by the number of queries that see the key
        mass = mass / (n - np.arange(n))
    return mass[:, :max(n - window, 0)]


def top_positions(score, n_keep):
    """The n_keep best positions, ascending; equal scores: the lower position wins. Also the lowest
    score that stays, and the highest that goes."""
    order = np.argsort(-score, kind="stable")
    cut = float(score[order[n_keep - 1]]) if n_keep else np.inf
    dropped = float(score[order[n_keep]]) if n_keep < len(order) else -np.inf
    return np.sort(order[:n_keep]), cut, dropped


def snapkv_keep(score, n, budget):
    """Kept positions of one KV head, ascending: the best of score [n - W], then the window; and the
    two scores around the cut. A prompt no longer than the budget is left alone."""
    if n <= budget:
        return np.arange(n), -np.inf, -np.inf
    best, cut, dropped = top_positions(score, budget - (n - len(score)))
    return np.concatenate([best, np.arange(len(score), n)]), cut, dropped
