#!/usr/bin/env python3
"""Tests of the reference itself: known values, identities, small hand-made cases.

Skipped (exit 77) without the packages numpy and gguf."""
import os
import sys
import tempfile
from dataclasses import replace
from fractions import Fraction

try:
    import gguf                                 # noqa: F401, of the modules below
    import numpy as np
except ImportError as e:
    print(f"ref: 0 passed, 0 failed, 1 skipped ({e})")
    sys.exit(77)

import curves
import policy
import sweep
import tiny
from forward import Cache, Session, attend, attention_rows, greedy, logits, rope_frequencies, rotate, softmax
from gguf_model import NEOX, NORMAL, Model, Rope

counts = {"passed": 0, "failed": 0}


def check(ok, text):
    counts["passed" if ok else "failed"] += 1
    if not ok:
        print(f"check_ref: failed: {text}", file=sys.stderr)


def refused(call, text):
    try:
        call()
        check(False, f"{text} was accepted")
    except ValueError:
        check(True, text)


def check_generator():
    check(sweep.noise_key(0, 0, 0) == 6238072747940578789, "key(0,0,0)")
    check(sweep.noise_key(3, 2, 17) == 4780042144263421312, "key(3,2,17)")
    first = sweep.normal(sweep.noise_key(0, 0, 0), 3)
    want = [-0.527811906779536, 1.2314283841015077, -1.4742856270537026]
    check(np.abs(first - want).max() < 1e-14, f"elements {first}")
    first = sweep.normal(sweep.noise_key(3, 2, 17), 1)[0]
    check(abs(first + 0.9472830275295018) < 1e-14, f"key(3,2,17) starts with {first}")
    many = sweep.normal(sweep.noise_key(1, 2, 3), 100000)
    middle = sweep.normal(sweep.noise_key(1, 2, 3), 3, first=700)
    check((many[700:703] == middle).all(), "entered in the middle")
    check(abs(many.mean()) < 0.02 and abs(many.var() - 1) < 0.03, "moments")
    v = np.random.default_rng(0).standard_normal((2, 500, 16)).astype(np.float32) * 7
    apart = np.linalg.norm(sweep.perturbed(v, 0.5, 1) - v, axis=-1) / np.linalg.norm(v, axis=-1)
    check(abs(np.sqrt((apart ** 2).mean()) - 0.5) < 0.02, "noise is half of each vector's norm")


def check_cap():
    for text, n, want in (("10%", 1500, 150), ("10%", 1505, 151), ("10%", 1504, 150),
                          ("100%", 7, 7), ("12.5%", 100, 13), ("15%", 10, 2),
                          ("4096", 1000, 1000), ("64", 1000, 64)):
        check(policy.cap_of(text, n) == want, f"{text} of {n}")
    for text in ("0%", "101%", "-5%"):
        refused(lambda text=text: policy.cap_of(text, 100), text)


def check_budgets():
    rounded, gap = policy.largest_remainder([Fraction(5, 2), Fraction(5, 2), Fraction(1)], 6)
    check(rounded == [3, 2, 1] and gap == 0, "a tie goes to the lower layer")
    check(policy.fill([1, 1, 4], 12, 1, 6) == [3, 3, 6], "what is over the bound is shared out")
    check(policy.fill([1, 4, 4], 27, 5, 20) == [5, 11, 11], "what the floor costs, others pay")
    check(policy.fill([1, 2, 3], 6, 2, 9) == [2, 2, 2], "all on the floor")
    w = policy.ripple_weights([0.5, 0.5, 1.5])
    check(np.allclose(w * (3.5 / 3), [1, 1, 1.5]), f"weights {w}")
    check((policy.ripple_weights([3.0, 3.0]) == 1).all(), "equal sensitivities")
    check(policy.ripple_weights([0, 1], r=10, gamma=2)[1] == 4 / 3, "gamma clips")
    refused(lambda: policy.layer_budgets([1, 1], 35, 100), "a budget under the floor")
    rng = np.random.default_rng(1)
    for case in range(150):
        n_layer, n = int(rng.integers(1, 33)), int(rng.integers(20, 3000))
        w = policy.ripple_weights(rng.random(n_layer) ** 4, rng.choice([1.25, 1.5, 1.75]))
        floor = min(36, n)
        cap = int(rng.integers(floor, n + 1))
        b, _ = policy.layer_budgets(w, cap, n)
        check(sum(b) == cap * n_layer and min(b) >= floor and max(b) <= n, f"case {case}: {b}")
        check(b[w.argmin()] <= b[w.argmax()], f"case {case}: order")
        more, _ = policy.layer_budgets(w, min(cap + 1, n), n)
        check(all(x <= y for x, y in zip(b, more)), f"case {case}: shrinks from {cap} to {cap + 1}")
    check(policy.layer_budgets([1.0] * 30, 150, 1500)[0] == [150] * 30, "uniform")


def check_selection():
    row = np.array([0, 3, 1, 1, 9, 0, 0, 2.0])
    check(policy.pool(row, 3).tolist() == [3, 3, 3, 9, 9, 9, 2, 2], "max pooling")
    check(np.allclose(policy.pool(row, 3, True) * 3, [3, 4, 5, 11, 10, 9, 2, 2]), "mean pooling")
    check(policy.pool(-row, 3)[0] == 0 and policy.pool(row - 5, 3)[7] == -3, "padding never wins")
    kept, cut, dropped = policy.top_positions(policy.pool(row, 3), 5)
    check(kept.tolist() == [0, 1, 3, 4, 5] and (cut, dropped) == (3, 3), f"plateau: {kept}")
    kept, cut, dropped = policy.snapkv_keep(row, 12, 6)
    check(kept.tolist() == [1, 4, 8, 9, 10, 11], f"window stays: {kept}")
    check((cut, dropped) == (3, 2), "scores around the cut")
    check(policy.snapkv_keep(row, 12, 12)[0].tolist() == list(range(12)), "short prompts stay")

    rng = np.random.default_rng(2)
    w, group, n_kv, n, d, scale = 4, 3, 2, 15, 8, 0.3
    q, k = rng.standard_normal((w, n_kv * group, d)), rng.standard_normal((n_kv, n, d))
    mass = np.zeros((n_kv, group, n))
    for h in range(n_kv):
        for g in range(group):
            for i in range(w):
                seen = n - w + i + 1
                e = np.exp([scale * (q[i, h * group + g] @ k[h, t]) for t in range(seen)])
                mass[h, g, :seen] += e / e.sum()
    mass = mass[..., :n - w]

    def near(x, t):
        return x[..., max(0, t - 1):t + 2]
    at = range(n - w)
    mean = mass.mean(axis=1)
    want = {(False, False): [near(mean, t).max(-1) for t in at],
            (True, False): [near(mean, t).sum(-1) / 3 for t in at],
            (False, True): [near(mass, t).max(-1).mean(-1) for t in at]}
    for (average, first), rows in want.items():
        got = policy.snapkv_scores(q, k, scale, 3, average, first)
        check(np.allclose(got, np.transpose(rows), rtol=1e-12), f"scores {average} {first}")
    check(policy.snapkv_scores(q, k[:, -w:], scale).shape == (n_kv, 0), "nothing before the window")

    q, mass = rng.standard_normal((n, n_kv * group, d)), np.zeros((n_kv, n))
    for head in range(n_kv * group):
        for i in range(n):
            e = np.exp([scale * (q[i, head] @ k[head // group, t]) for t in range(i + 1)])
            mass[head // group, :i + 1] += e / e.sum() / group
    got = policy.attention_mass(q, k, scale, rows=4)
    check(np.allclose(got, mass, rtol=1e-12), "attention mass")
    check(np.allclose(got.sum(axis=1), n), "each query gives 1")
    check((policy.scores("h2o", q, k, scale, w) == policy.attention_mass(q, k, scale)[:, :n - w]).all(), "h2o")
    seen = [[mass[h, t] / (n - t) for t in range(n - w)] for h in range(n_kv)]
    check(np.allclose(policy.scores("observed", q, k, scale, w), seen, rtol=1e-12), "observed")
    check(policy.scores("snapkv", q, k, scale, w, kernel=3).shape == (n_kv, n - w), "snapkv by name")


def check_blend():
    check(policy.ranks([3, 1, 3, 2]).tolist() == [2.5, 0, 2.5, 1], "ties share their ranks")
    parts = [np.array([[9.0, 5, 5, 1]]), np.array([[0.1, 0.3, 0.2, 0.4]])]
    got = policy.blend(parts)[0]        # ranks 0 1.5 1.5 3, and 3 1 2 0
    check(got.tolist() == [-3, -2.5, -3.5, -3], f"blend {got}")
    kept = policy.snapkv_keep(got, 6, 4)[0]
    check(kept.tolist() == [0, 1, 4, 5], f"smallest sums, a tie to the lower position: {kept}")

    rng = np.random.default_rng(9)
    q, k = rng.standard_normal((40, 4, 8)), rng.standard_normal((2, 40, 8))
    mass = np.zeros((2, 40))
    for head in range(4):
        for i in range(27, 40):
            e = np.exp([0.3 * (q[i, head] @ k[head // 2, t]) for t in range(i + 1)])
            mass[head // 2, :i + 1] += e / e.sum() / 2
    got = policy.attention_mass(q, k, 0.3, rows=5, recent=13)
    check(np.allclose(got, mass, rtol=1e-12), "mass of the last queries")
    check((policy.attention_mass(q, k, 0.3, recent=99) == policy.attention_mass(q, k, 0.3)).all(), "of all")
    snap = policy.snapkv_scores(q[-6:], k, 0.3, 3)
    want = [[-sum((row > row[t]).sum() + ((row == row[t]).sum() - 1) / 2 for row in (snap[h], mass[h, :34]))
             for t in range(34)] for h in range(2)]
    got = policy.scores("blend", q, k, 0.3, 6, recent=13, kernel=3)
    check((got == want).all(), "blend by counting")


def check_curve_arithmetic():
    grid, d = (0.1, 0.2, 0.5), [1.0, 0.1, 0.2]
    got = curves.curve_at(grid, d, [0.05, 0.1, np.sqrt(0.02), 0.2, 0.3, 0.5, 0.75, 1])
    want = [10, 1, np.sqrt(0.1), 0.1, 0.1, 0.1, 0.05, 0]
    check(np.allclose(got, want, rtol=1e-12), f"curve {got}")
    check(curves.lower_hull([0, 1, 2, 3, 4], [8, 5, 3, 2.5, 0]) == [0, 1, 2, 4], "hull")
    stops = curves.knots(36, 1000)
    check(stops == list(range(36, 1001, 2)), "steps of a five-hundredth")
    gain = curves.gains_of(grid, [1, 0.1, 0.01], stops, 1000)
    whole = float(curves.curve_at(grid, [1, 0.1, 0.01], 0.036))
    check((np.diff(gain) <= 0).all() and abs(gain.sum() * 2 / whole - 1) < 1e-9, "gains never rise, and end the damage")
    check(curves.knots(36, 701)[:2] == [36, Fraction(26 * 701, 500)], "the first step reaches the grid of steps")

    flat, steep = [1e-3] * 3, [1.0, 1e-2, 1e-3]
    b, _ = curves.curve_budgets(grid, [steep, steep, flat, flat], 150, 1000)
    check(b == [264, 264, 36, 36], f"the steep units get it: {b}")
    b, _ = curves.curve_budgets(grid, [flat] * 3, 100, 999)
    check(sum(b) == 300 and b[0] > b[2] == 36, f"equal units: the lower ones first: {b}")
    b, _ = curves.curve_budgets(grid, [[0.0] * 3] * 3, 999, 999)
    check(b == [999] * 3, "everything fits")
    b, _ = curves.root_budgets(grid, [[0.04, 0, 0], [0.01, 0, 0], [0.01, 0, 0]], 200, 1000)
    check(b == [300, 150, 150], f"roots {b}")
    refused(lambda: curves.curve_budgets(grid, [flat], 35, 100), "a budget under the floor")
    rng = np.random.default_rng(6)
    for case in range(40):
        n_unit, n = int(rng.integers(1, 60)), int(rng.integers(40, 2000))
        damage = np.exp(rng.normal(-6, 3, (n_unit, 6)) - np.linspace(0, 4, 6))
        cap = int(rng.integers(36, n + 1))
        b, _ = curves.curve_budgets(curves.GRID, damage, cap, n)
        check(sum(b) == cap * n_unit and min(b) >= 36 and max(b) <= n, f"case {case}: {b}")
        if case < 10 and n_unit > 1:
            got = hull_damage(damage[:2], n)(curves.curve_shares(curves.GRID, damage[:2], cap, n))
            least = best_by_brute_force(damage[:2], cap, n)
            check(got <= least * (1 + 1e-9) + 1e-9 * hull_damage(damage[:2], n)((36, 36)), f"case {case}: {got}, {least} is possible")
    x = [1, 2, 3, 4, 5]
    check(curves.spearman(x, [10, 20, 30, 40, 50]) == 1 and curves.spearman(x, [5, 4, 3, 2, 1]) == -1, "Spearman")
    check(abs(curves.spearman(x, [1, 2, 2, 3, 0]) - -0.05129891760425771) < 1e-12, "Spearman of ties")
    check(np.isnan(curves.spearman(x, [2] * 5)), "Spearman of a constant")


def hull_damage(damage, n):
    """Summed damage on the hulls, as a function of the budgets: what the greedy steps make least."""
    stops = curves.knots(36, n)
    x, hulls = np.array([float(s) for s in stops]), []
    for d in damage:
        gain = curves.gains_of(curves.GRID, d, stops, n)
        hulls.append(curves.curve_at(curves.GRID, d, 36 / n) - np.concatenate([[0], np.cumsum(gain * np.diff(x))]))
    return lambda budget: sum(float(np.interp(float(b), x, hull)) for b, hull in zip(budget, hulls))


def best_by_brute_force(damage, cap, n):
    """Of two units, over every division in whole tokens and in whole steps."""
    of, steps = hull_damage(damage, n), [float(s) for s in curves.knots(36, n)]
    return min(of((b, 2 * cap - b)) for b in {*range(36, n + 1), *steps, *(2 * cap - s for s in steps)}
               if 36 <= b <= n and 36 <= 2 * cap - b <= n)


def check_kl():
    p, q = np.log([[0.5, 0.25, 0.25]]), np.log([[0.25, 0.25, 0.5]])
    check(abs(sweep.kl(p, q)[0] - 0.25 * np.log(2)) < 1e-15, "known value")
    moved = sweep.kl(p + 300, q - 80)[0]
    check(abs(moved - 0.25 * np.log(2)) < 1e-12, "a constant changes nothing")
    check(sweep.kl(p, p)[0] == 0, "equal rows")
    far = sweep.kl(np.array([[0.0, -1e4]]), np.array([[-1e4, 0.0]]))
    check(np.isfinite(far).all() and abs(far[0] - 1e4) < 1e-8, "far apart")
    check((softmax(np.array([-np.inf, 0.0, 0.0])) == [0, 0.5, 0.5]).all(), "softmax of a mask")


def check_rope():
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((2, 1, 1, 16))
    for pairs in (NORMAL, NEOX):
        rope = Rope(base=10000.0, n_rot=16, pairs=pairs)

        def dot(i, j, rope=rope):
            return (rotate(x, [i], rope) * rotate(y, [j], rope)).sum()
        check(abs(dot(1007, 1000) - dot(7, 0)) < 1e-9, f"{pairs}: only the distance counts")
        check((rotate(x, [0], rope) == x).all(), f"{pairs}: position 0")
        turned = rotate(x, [77], rope)
        check(abs(np.linalg.norm(turned) - np.linalg.norm(x)) < 1e-12, f"{pairs}: length")
        part = rotate(x, [5], replace(rope, n_rot=8))
        same = part == x
        check(same[..., 8:].all() and not same[..., :8].any(), f"{pairs}: part")
        stretched = replace(rope, kind="linear", factor=4.0)
        check(np.allclose(rotate(x, [8], stretched), rotate(x, [2], rope)), f"{pairs}: linear")
    by_pair = np.arange(16).reshape(8, 2).T.ravel()
    near, apart = (Rope(base=10000.0, n_rot=16, pairs=p) for p in (NORMAL, NEOX))
    same = rotate(x, [9], near)[..., by_pair] == rotate(x[..., by_pair], [9], apart)
    check(same.all(), "order of pairs")
    yarn = replace(apart, kind="yarn", factor=8.0, n_ctx_train=4096, n_rot=64)
    freq, size = rope_frequencies(yarn)
    plain, _ = rope_frequencies(replace(apart, n_rot=64))
    ratio = plain / freq        # pairs 10.47 and 22.5 turn 32 and 1 times in 4096 positions
    check(ratio[10] == 1 < ratio[11] < ratio[22] < 7.9 and np.isclose(ratio[23], 8), "yarn: ramp")
    check(abs(size - 1 - 0.1 * np.log(8)) < 1e-12, "yarn: size")
    thirds = replace(apart, divisors=(3.0,) * 8)
    check(np.allclose(rotate(x, [9], thirds), rotate(x, [3], apart)), "frequencies divided")


def check_attend():
    rng = np.random.default_rng(4)
    n_kv, group, d, n = 2, 3, 8, 20
    k, v = rng.standard_normal((2, n, n_kv, d))
    cache = Cache(n_kv, d, np.float64)
    cache.append(k, v, np.arange(n))
    cache.keep(1, np.array([0, 3, 4, 9, 15, 16, 17, 18, 19]))
    pos = np.arange(15, 20)
    q = rng.standard_normal((5, n_kv * group, d))
    for window in (0, 1, 4, 30):
        want = np.zeros((5, n_kv * group, d))
        for i, p in enumerate(pos):
            for head in range(n_kv * group):
                h = head // group
                at = [t for t in cache.pos[h] if t <= p and (not window or p - t < window)]
                e = np.exp([0.5 * q[i, head] @ k[t, h] for t in at])
                want[i, head] = e @ v[at, h] / e.sum()
        got = attend(q, cache, pos, 0.5, window)
        check(np.allclose(got, want.reshape(5, -1)), f"window {window}")


def check_model(folder, family, scaling):
    path = os.path.join(folder, f"{family}-{scaling}.gguf")
    tiny.write(path, *tiny.make(family, scaling, seed=7))
    name, ids = f"{family} {scaling}", np.random.default_rng(5).integers(0, 160, 70).tolist()
    model, exact = Model(path), Model(path, np.float64)
    whole = logits(model, Session(model).rows(ids))
    parts = Session(model)
    rows = np.concatenate([parts.rows(ids[:40], chunk=7), *(parts.rows([i]) for i in ids[40:])])
    check(np.abs(logits(model, rows) - whole).max() < 2e-5, f"{name}: chunks and single tokens")
    apart = np.abs(logits(exact, Session(exact).rows(ids)) - whole).max()
    check(0 < apart < 2e-5, f"{name}: float64 differs by {apart}")
    half = np.abs(logits(model, Session(model, half=True).rows(ids)) - whole).max()
    check(5e-5 < half < 0.05, f"{name}: a float16 cache changes logits by {half}")

    session = Session(exact)
    row = session.next_logits(ids)
    answer, gaps = greedy(session.fork(), row, 12)
    e = sweep.Example(exact, ids, n_response=12)
    check(e.response == answer and len(answer) == 12 and min(gaps) > 0, f"{name}: greedy answer")
    check(greedy(session.fork(), row, 12, (answer[4],))[0] == answer[:answer.index(answer[4])],
          f"{name}: end token")
    want = np.concatenate([[row], logits(exact, session.fork().rows(answer))])
    check(want.argmax(-1)[:12].tolist() == answer, f"{name}: teacher-forced")
    compressible = exact.config.compressible
    check(compressible == ([5] if family == "gemma3" else [0, 1, 2]), f"{name}: compressible")
    for l in compressible:
        same = e.edited(l, e.prefix.caches[l].copy()) == e.reference
        check(same.all(), f"{name}: nothing edited")
        noisy = session.fork()
        values = sweep.perturbed(np.stack(noisy.caches[l].v), 0.5, 99)
        noisy.caches[l] = noisy.caches[l].with_values(values)
        want = sweep.kl(e.reference, logits(exact, noisy.rows(answer))).mean()
        got = e.sensitivity(l, 0.5, 99)
        check(abs(got / want - 1) < 1e-9 and got > 1e-6, f"{name}: {l}: {got}, from scratch {want}")
        small, smaller = e.sensitivity(l, 0.02, 99), e.sensitivity(l, 0.01, 99)
        check(3.5 < small / smaller < 4.5, f"{name}: quadratic in sigma: {small / smaller}")


def check_drops(folder, family):
    """Dropping slots, beside a cache from which they are taken before the answer is fed from the start."""
    path = os.path.join(folder, f"{family}-none.gguf")
    exact, ids = Model(path, np.float64), np.random.default_rng(8).integers(0, 160, 120).tolist()
    e = curves.Example(exact, ids, n_response=9, recent=50)
    c, grid = exact.config, (0.35, 0.5, 0.8)
    check(e.cap(0.35) == 42 and e.cap(0.03) == 36 and e.cap(1) == 120, "a unit's cap")
    check(sorted(e.scores) == c.compressible, f"{family}: scores of compressible layers")
    for l in c.compressible:
        check(e.damage(l, 1.0) == 0, f"{family}: all kept")
        errors = e.head_errors(l, grid)
        check(errors.shape == (c.n_kv_head, 3) and (errors > 0).all(), f"{family}: errors {errors}")
        for heads in ([0], [1], None):
            kept = e.prefix.fork()
            for h in heads or range(c.n_kv_head):
                kept.caches[l].keep(h, policy.snapkv_keep(e.scores[l][h], 120, 42)[0])
            rows = {}
            want = kept.rows(e.response, watch=lambda j, x, q, cache, rows=rows: rows.update({j: x}))
            want = sweep.kl(e.reference, logits(exact, want))
            check(abs(e.damage(l, 0.35, heads) / want.mean() - 1) < 1e-9, f"{family}: damage of {l} {heads}")
            check(abs(e.damage(l, 0.35, heads, 4) / want[:4].mean() - 1) < 1e-9, f"{family}: 4 positions")
            if l + 1 < c.n_layer:
                apart = np.linalg.norm(rows[l + 1] - e.inputs[l + 1], axis=-1)
                apart = (apart / np.linalg.norm(e.inputs[l + 1], axis=-1)).mean()
                check(abs(e.local_of(l, e.compressed(l, 0.35, heads)) / apart - 1) < 1e-9, f"{family}: local {l}")
            if heads:       # the error by the weights of one token of the answer, alone
                check(abs(error_by_hand(e, l, heads[0], 42) / errors[heads[0], 0] - 1) < 1e-9,
                      f"{family}: error of {l} {heads}")
        cache = e.prefix.caches[l]
        v, k = (np.stack(part) for part in (cache.v, cache.k))
        both = sweep.noisy(cache, 0.5, 7, keys=True)
        check((np.stack(both.v) == sweep.perturbed(v, 0.5, 7)).all(), f"{family}: noise on values")
        eps = sweep.normal(7, 2 * v.size)[v.size:].reshape(k.shape)
        size = np.sqrt((k ** 2).mean(axis=-1, keepdims=True))
        check(np.allclose(np.stack(both.k), k + 0.5 * size * eps, rtol=1e-12), f"{family}: noise on keys")
        only = sweep.noisy(cache, 0.5, 7, values=False, keys=True)
        check((np.stack(only.k) == np.stack(both.k)).all() and (np.stack(only.v) == v).all(), "keys alone")
    d = curves.measured([e], c.compressible, grid, per_head=True, n_position=4)
    check(d.shape == (1, len(c.compressible), c.n_kv_head, 3), "measured curves")
    check(d[0, -1, 1, 2] == e.damage(c.compressible[-1], 0.8, [1], 4), "their places")
    s, errors = np.arange(1.0, len(c.compressible) + 1), np.array([[e.head_errors(l, grid) for l in c.compressible]] * 2)
    check(np.allclose(curves.estimated(s, errors)[-1], s[-1] * errors[0, -1]), "estimated curves")


def error_by_hand(e, l, h, cap):
    """The head's error of attention output, from softmax weights over the cache and nothing else."""
    c, w = e.model.config, e.model.layer(l)
    cache = e.prefix.caches[l].copy()
    rows, q = attention_rows(e.model, l, e.inputs[l], cache, e.positions)
    kept = set(policy.snapkv_keep(e.scores[l][h], e.n, cap)[0].tolist())
    group, out = c.n_head // c.n_kv_head, []
    for i in range(len(q)):
        other = rows[i].reshape(c.n_head, c.d_head).copy()
        at = [t for t in range(e.n + i + 1) if t in kept or t >= e.n]
        for head in range(h * group, (h + 1) * group):
            weights = np.exp([c.attn_scale * (q[i, head] @ cache.k[h][t]) for t in at])
            other[head] = weights @ cache.v[h][at] / weights.sum()
        apart = w.o @ (rows[i] - other.ravel())
        out.append((apart @ apart) / np.square(w.o @ rows[i]).sum())
    return np.mean(out)


def main():
    check_generator()
    check_cap()
    check_budgets()
    check_selection()
    check_blend()
    check_curve_arithmetic()
    check_kl()
    check_rope()
    check_attend()
    with tempfile.TemporaryDirectory() as folder:
        for family, scaling in (("llama", "none"), ("llama", "llama3"), ("qwen2", "linear"),
                                ("qwen3", "yarn"), ("gemma3", "none")):
            check_model(folder, family, scaling)
        for family in ("llama", "gemma3"):
            check_drops(folder, family)
    print(f"ref: {counts['passed']} passed, {counts['failed']} failed, 0 skipped")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
