"""What two peers keep by default, written from the facts about them (KV_METHODS of this project; no code
of theirs): kvpress (presses on random K and V), and KVCache-Factory. In float64.

q [n][n_head][d] rotated and scaled, plain [n][n_head][d] before that, k, v [n_kv_head][n][d]. Each
returns kept positions per KV head, ascending, and how near the closest decision was, relative to the
score that decided it."""
import numpy as np


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def attention(q, k):
    """Weights [n_kv_head][group][n_query][n] of the last queries."""
    n_query, n_head, _ = q.shape
    n_kv_head, n, _ = k.shape
    q = q.astype(np.float64).reshape(n_query, n_kv_head, n_head // n_kv_head, -1).transpose(1, 2, 0, 3)
    score = q @ k.astype(np.float64).transpose(0, 2, 1)[:, None]
    score[..., np.arange(n) > np.arange(n - n_query, n)[:, None]] = -np.inf
    return softmax(score)


def best(score, n_keep):
    """The n_keep best, ties to the lower position, and the gap at the cut."""
    order = np.argsort(-score, kind="stable")
    if not 0 < n_keep < len(score):
        return np.sort(order[:n_keep]), np.inf
    cut, dropped = score[order[n_keep - 1]], score[order[n_keep]]
    if cut == dropped or not np.isfinite(cut):
        return np.sort(order[:n_keep]), np.inf
    return np.sort(order[:n_keep]), (cut - dropped) / max(abs(cut), abs(dropped))


def top(scores, n_keep):
    kept, gaps = zip(*(best(row, n_keep) for row in scores))
    return list(kept), min(gaps)


def pooled(x, kernel, mean):
    half = kernel // 2
    wide = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(half, half)], constant_values=0 if mean else -np.inf)
    parts = np.lib.stride_tricks.sliding_window_view(wide, kernel, axis=-1)
    return parts.sum(axis=-1) / kernel if mean else parts.max(axis=-1)


def with_last(scores, window):
    """Scores of all positions: the last ones are above all others."""
    return np.concatenate([scores, np.full((len(scores), window), np.inf)], axis=1)


# ---- kvpress: a score for every position of each KV head ----

def kvpress_snapkv(q, k, window=64, kernel=5):
    mass = attention(q[-window:], k).mean(axis=2)[..., :-window]
    return with_last(pooled(mass, kernel, True).mean(axis=1), window)


def kvpress_tova(q, k):
    mass = attention(q[-1:], k)[..., 0, :-1].mean(axis=(0, 1))
    return with_last(np.tile(mass, (len(k), 1)), 1)


def kvpress_knorm(k):
    return -np.linalg.norm(k.astype(np.float64), axis=-1)


def kvpress_observed(q, k):
    n = k.shape[1]
    return attention(q, k).sum(axis=2).mean(axis=1) / np.arange(n, 0, -1)


def kvpress_expected(plain, k, v, inv_freq, scale, n_future=512, n_sink=4, epsilon=0.0, covariance=True,
                     value_norm=True):
    n_kv_head, n, d = k.shape
    group = plain.shape[1] // n_kv_head
    angle = np.arange(n, n + n_future)[:, None] * np.concatenate([inv_freq, inv_freq])
    swap = np.zeros((d, d))
    swap[d // 2:, :d // 2] = np.eye(d // 2)
    swap[:d // 2, d // 2:] = -np.eye(d // 2)
    turn = np.diag(np.cos(angle).mean(axis=0)) + np.sin(angle).mean(axis=0)[:, None] * swap
    scores = np.zeros((n_kv_head, n - n_sink))
    for head in range(plain.shape[1]):
        x = plain[n_sink:, head].astype(np.float64)
        keys = k[head // group, n_sink:].astype(np.float64)
        logit = keys @ (turn @ x.mean(axis=0)) * scale
        if covariance:
            cov = turn @ np.cov(x.T, bias=True) @ turn.T
            logit += ((keys @ cov) * keys).sum(axis=1) * scale ** 2 / 2
        scores[head // group] += softmax(logit) / group
    if value_norm:
        scores = (scores + epsilon) * np.linalg.norm(v[:, n_sink:].astype(np.float64), axis=-1)
    return np.concatenate([np.full((n_kv_head, n_sink), np.inf), scores], axis=1)


def kvpress_streaming(n_kv_head, n, n_kept, n_sink=4):
    keep = np.concatenate([np.arange(n_sink), np.arange(n - n_kept + n_sink, n)])
    return [keep] * n_kv_head, np.inf


def kvpress_adakv(scores, n_kept, safeguard=0.2):
    """Kept positions when the heads compete, each with its best ones safe."""
    scores = scores.copy()
    sets, safe_gap = top(scores, int(n_kept * safeguard))
    for row, safe in zip(scores, sets):
        row[safe] = np.inf
    n = scores.shape[1]
    kept, gap = best(scores.ravel(), n_kept * len(scores))
    return [kept[kept // n == h] % n for h in range(len(scores))], min(gap, safe_gap)


def projected_norms(v, w_o):
    """Mean over the group of the L1 norm of W_o v: [n_kv_head][n]. w_o [d_model][n_head * d]."""
    n_kv_head, n, d = v.shape
    w = w_o.astype(np.float64).reshape(len(w_o), -1, d)
    group = w.shape[1] // n_kv_head
    norms = np.zeros((n_kv_head, n))
    for head in range(w.shape[1]):
        norms[head // group] += np.abs(v[head // group] @ w[:, head].T).sum(axis=1) / group
    return norms


def kvpress_critical(scores, v, w_o, budgets, first_stage=0.5, epsilon=1e-4):
    kept, gaps, norms = [], [], projected_norms(v, w_o)
    for row, norm, budget in zip(scores, norms, budgets):
        first, gap = best(row, int(budget * first_stage))
        row = np.where(np.isinf(row), row, (row + epsilon) * norm)
        row[first] = np.inf
        second, more = best(row, budget)
        kept.append(second)
        gaps += [gap, more]
    return kept, min(gaps)


# ---- KVCache-Factory: kept by capacity, the window inside it ----

def factory_snapkv(q, k, capacity, window=8, kernel=7):
    """Of KV heads: the group is reduced before the pooling."""
    mass = attention(q[-window:], k).sum(axis=2)[..., :-window].mean(axis=1)
    return top(with_last(pooled(mass, kernel, False), window), capacity)


def factory_h2o(q, k, capacity, window=8):
    """Every KV head has one query head, as there."""
    mass = attention(q, k).sum(axis=2)[:, 0, :-window]
    return top(with_last(mass, window), capacity)


def factory_streaming(n_kv_head, n, capacity):
    return kvpress_streaming(n_kv_head, n, capacity)


def factory_pyramid(n_layer, n, capacity, window=8, beta=20):
    """Tokens of each layer, the window included."""
    base = capacity - window
    if n < capacity:
        return [n] * n_layer
    if n < 2 * base:
        return [capacity] * n_layer
    least = base // beta
    most = 2 * base - least
    if most >= n - window:
        most = n - window
        least = 2 * base - most
    step = (most - least) // (n_layer - 1)
    return [window + most - l * step for l in range(n_layer)]


def factory_adakv_counts(q, k, capacity, window=8, kernel=7, safeguard=0.2):
    """Real-valued shares of the heads beside the window, their scores, and the gap at the cut."""
    base = capacity - window
    mass = attention(q[-window:], k).mean(axis=2)[:, 0, :-window]
    scores = pooled(mass, kernel, False)
    ordered = -np.sort(-scores, axis=1)
    weighted = scores * (ordered[:, :base].sum(axis=1) / ordered.sum(axis=1))[:, None]
    kept, gap = best(weighted.ravel(), base * len(k))
    count = np.bincount(kept // scores.shape[1], minlength=len(k))
    return count * (1 - safeguard) + safeguard * base, scores, gap
