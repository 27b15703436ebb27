"""Damage of compressing one layer or KV head, measured by dropping its slots or estimated from the
error of its attention output; and budgets per unit from such curves.

Source: METHOD section 8 of this project, written from the text alone.
"""
from fractions import Fraction

import numpy as np

import policy
import sweep
from forward import attention_rows, linear

GRID = (0.03, 0.05, 0.1, 0.2, 0.3, 0.5)
N_STEP = 500            # steps of the prompt that budgets are built of
LEAST = 1e-12           # nats: what stands for less in a logarithm


class Example(sweep.Example):
    """An example whose prompt tokens a selector has scored: scores[l] [n_kv_head][n - window]."""

    def __init__(self, model, prompt, response=None, n_response=sweep.N_RESPONSE, half=False,
                 selector="blend", **options):
        self.scores, self.window = {}, options.get("window", policy.WINDOW)

        def watch(l, x, q, cache):
            if not model.config.sliding[l]:
                self.scores[l] = policy.scores(selector, q, np.stack(cache.k), model.config.attn_scale,
                                               **options)
        super().__init__(model, prompt, response, n_response, half, watch)

    def cap(self, share):
        """Tokens that a unit compressed to a share of the prompt keeps: never less than the floor."""
        wanted = int(Fraction(str(share)) * self.n + Fraction(1, 2))
        return min(max(wanted, self.window + policy.SINKS), self.n)

    def compressed(self, l, share, heads=None):
        """Layer l's cache of the prompt with these KV heads (None: all) compressed to a share."""
        cache = self.prefix.caches[l].copy()
        for h in range(self.model.config.n_kv_head) if heads is None else heads:
            cache.keep(h, policy.snapkv_keep(self.scores[l][h], self.n, self.cap(share))[0])
        return cache

    def damage(self, l, share, heads=None, n_position=None):
        """KL(full || layer l compressed), mean over the answer's first n_position positions."""
        return self.kl_of(l, self.compressed(l, share, heads), n_position)

    def head_errors(self, l, grid=GRID):
        """|(o - o') W_O|^2 / |o W_O|^2 [n_kv_head][n_grid], mean over the answer's positions: o is the
        layer's attention output, o' the same with one KV head compressed."""
        def output(cache):
            rows, _ = attention_rows(self.model, l, self.inputs[l], cache.copy(), self.positions)
            return rows.astype(np.float64)

        w = self.model.layer(l).o.astype(np.float64)
        usual = output(self.prefix.caches[l])
        whole = (linear(usual, w) ** 2).sum(axis=-1)
        return np.array([[((linear(usual - output(self.compressed(l, b, [h])), w) ** 2).sum(axis=-1) / whole).mean()
                          for b in grid] for h in range(self.model.config.n_kv_head)])


def measured(examples, layers, grid=GRID, per_head=False, n_position=None):
    """Damage [len(examples)][len(layers)][n_kv_head or 1][n_grid] of each unit alone."""
    def units(e):
        return [[h] for h in range(e.model.config.n_kv_head)] if per_head else [None]
    return np.array([[[[e.damage(l, b, unit, n_position) for b in grid] for unit in units(e)]
                      for l in layers] for e in examples])


def estimated(sensitivity, errors):
    """Estimated damage [n_layer][n_kv_head][n_grid]: sensitivities [n_layer] times errors
    [n_example][n_layer][n_kv_head][n_grid], averaged over the examples."""
    return np.asarray(sensitivity)[:, None, None] * np.asarray(errors).mean(axis=0)


def curve_at(grid, damage, share):
    """Damage at shares, from its values on a grid: linear in the logarithms, never rising, from the
    last grid point linear to 0 at the whole prompt. Before the first it goes on as between the first
    two: the text is silent there, and what was not measured must not look free."""
    grid, share = np.asarray(grid, np.float64), np.asarray(share, np.float64)
    d = np.minimum.accumulate(np.maximum(damage, LEAST))
    last = d[-1] * (1 - share) / (1 - grid[-1])
    if len(grid) == 1:
        return last
    x, y, at = np.log(grid), np.log(d), np.log(np.maximum(share, 1e-9))
    before = y[0] + (y[1] - y[0]) / (x[1] - x[0]) * (at - x[0])
    inside = np.where(at < x[0], before, np.interp(at, x, y))
    return np.where(share < grid[-1], np.exp(inside), last)


def lower_hull(x, y):
    """Indices of the lower convex hull of points whose x ascend, ends included."""
    hull = []
    for i in range(len(x)):
        while len(hull) > 1:
            a, b = hull[-2:]
            if (y[b] - y[a]) * (x[i] - x[a]) < (y[i] - y[a]) * (x[b] - x[a]):
                break
            hull.pop()
        hull.append(i)
    return hull


def knots(floor, n):
    """Where a unit's budget may stop, in tokens: the floor, then every step of the prompt above it."""
    return [Fraction(floor), *(Fraction(i * n, N_STEP) for i in range(N_STEP + 1) if i * n > N_STEP * floor)]


def gains_of(grid, damage, stops, n):
    """Damage that each step from stop to stop takes away, per token: on the lower hull, so that the
    gains never rise."""
    x = np.array([float(s) for s in stops])
    d = curve_at(grid, damage, x / n)
    gain, hull = np.zeros(len(x) - 1), lower_hull(x, d)
    for a, b in zip(hull, hull[1:]):
        gain[a:b] = (d[a] - d[b]) / (x[b] - x[a])
    return np.minimum.accumulate(gain)      # of points in one line, the last bits can rise


def curve_shares(grid, damage, cap, n, window=policy.WINDOW):
    """Real tokens of each unit that make the summed damage [n_unit][n_grid] least, as fractions."""
    floor = min(window + policy.SINKS, n)
    if cap < floor:
        raise ValueError(f"a budget of {cap} tokens is under the floor of {floor}")
    stops = knots(floor, n)
    left, share = Fraction(len(damage) * (cap - floor)), [Fraction(floor)] * len(damage)
    order = sorted((-gain, u, i) for u, d in enumerate(damage) for i, gain in enumerate(gains_of(grid, d, stops, n)))
    for _, u, i in order:
        given = min(stops[i + 1] - stops[i], left)
        share[u] += given
        left -= given
    return share


def curve_budgets(grid, damage, cap, n, window=policy.WINDOW):
    """The same as whole tokens, their sum exact; and the rounding gap."""
    return policy.largest_remainder(curve_shares(grid, damage, cap, n, window), len(damage) * cap)


def root_budgets(grid, damage, cap, n, window=policy.WINDOW, at=0.1):
    """Tokens of each unit in proportion to the root of its damage at a tenth, their sum exact."""
    weights = np.sqrt([curve_at(grid, np.maximum(d, LEAST), at) for d in damage])
    return policy.layer_budgets(weights, cap, n, window)


def total_damage(grid, damage, budget, n):
    """Summed damage of units [n_unit][n_grid] at budgets [n_unit] in tokens."""
    return float(sum(curve_at(grid, d, b / n) for d, b in zip(damage, budget)))


def spearman(x, y):
    """Rank correlation, ties share their ranks; NaN when one side is constant."""
    x, y = policy.ranks(x), policy.ranks(y)
    x, y = x - x.mean(), y - y.mean()
    size = np.sqrt((x @ x) * (y @ y))
    return float(x @ y / size) if size else float("nan")
