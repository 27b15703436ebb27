#!/usr/bin/env python3
"""Damage curves, the budgets that follow from them and the sets that blend keeps: the command on a real
model against the reference (tests/ref), which measures every variant alone. Needs numpy and gguf.

    tests/check_model_curves.py --rkv RKV --model MODEL.gguf

What a command does not know, as an older one does not, is skipped, named and counted.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "ref"), str(HERE.parent / "bench")]

import numpy as np                                              # noqa: E402
import accuracy                                                 # noqa: E402
import curves                                                   # noqa: E402
import policy                                                   # noqa: E402
import sweep                                                    # noqa: E402
from forward import Session, logits                             # noqa: E402
from gguf_model import Model                                    # noqa: E402

DATA = HERE.parent / "tools" / "quickstart-data"
N_PROMPT, N_ANSWER = 1240, 12       # so that 3 % of the prompt is more than the floor
MEASURED = 10                       # answer tokens that count in measured curves
SIGNALS = ("values", "keys", "keys+values", "damage", "curves", "layer-curves", "head-curves")
F32 = ["-ctk", "f32", "-ctv", "f32"]
ROUNDING = 1e-5                     # relative, of a score by sums in f32
counts = {"passed": 0, "failed": 0, "skipped": 0}


class Unknown(Exception):
    """The command does not have an option, a policy or a signal."""


def check(ok, text):
    counts["passed" if ok else "failed"] += 1
    if not ok:
        print(f"check_model_curves: failed: {text}", file=sys.stderr)


def section(run, *args):
    """What it returns; None when the command does not know what it needs."""
    try:
        return run(*args)
    except Unknown as e:
        counts["skipped"] += 1
        print(f"  skipped: {run.__name__}: {e}", flush=True)
        return None


def call(rkv, *options):
    done = subprocess.run([rkv, *map(str, options)], capture_output=True, text=True, check=False)
    if done.returncode == 2 and any(w in done.stderr for w in ("unknown option", "expected one of", "--signals")):
        raise Unknown(done.stderr.strip().splitlines()[-1])
    if done.returncode:
        raise RuntimeError(f"rkv {options[0]}: {done.stderr.strip()}")
    return json.loads(done.stdout)


class Bed:
    """The command, the model, and a prompt with its answer."""

    def __init__(self, a, work):
        self.rkv, self.path, self.work, self.selector = a.rkv, a.model, pathlib.Path(work), a.selector
        self.model = Model(a.model, np.float32)
        if a.random is None:
            text = (DATA / "handbook.txt").read_text(encoding="utf-8")
            ids = accuracy.Product(a.rkv, a.model, work).tokens(text)
        else:
            rng = np.random.default_rng(a.random)
            ids = rng.integers(0, len(self.model.output()), N_PROMPT + N_ANSWER).tolist()
        self.ids, self.answer = ids[:N_PROMPT], ids[N_PROMPT:N_PROMPT + N_ANSWER]
        self.ids_file = self.file("ids.json", json.dumps(self.ids))
        self.layers, self.n_head = self.model.config.compressible, self.model.config.n_kv_head

    def file(self, name, text):
        (self.work / name).write_text(text, encoding="utf-8")
        return self.work / name

    def select(self, *options):
        return call(self.rkv, "select", "-m", self.path, "--ids", self.ids_file, *F32, *options)


# ---- blend ----

def slack(score, relative):
    """By how many ranks each position can move when every score is off by a relative error."""
    ordered = np.sort(score)
    near = np.abs(score) * 2 * relative
    return (np.searchsorted(ordered, score + near, "right") - np.searchsorted(ordered, score - near, "left")
            - (np.searchsorted(ordered, score, "right") - np.searchsorted(ordered, score, "left")))


class Scored:
    """The prompt with its cache in f32, and the blend's two scores [recent][layer]."""

    def __init__(self, bed):
        self.parts, c = {policy.RECENT: {}, 0: {}}, bed.model.config

        def watch(l, x, q, kept):
            if not c.sliding[l]:
                for recent, layers in self.parts.items():
                    layers[l] = policy.blend_parts(q, np.stack(kept.k), c.attn_scale, recent=recent)

        self.session = Session(bed.model)
        self.session.rows(bed.ids, watch=watch)


def compare_sets(what, got, parts):
    """Kept sets beside the reference's with the same budget for each head: a position may differ when
    rounding of the scores can move its rank, or that at the cut, across the cut. Returns budgets."""
    heads, equal, differing, far = 0, 0, 0, 0
    budgets = {}
    for l, both in parts.items():
        score = policy.blend(both)
        for h, row in enumerate(score):
            kept = got["layers"][l]["heads"][h]["kept"]
            n, budgets[l, h] = N_PROMPT, len(kept)
            want, cut, _ = policy.snapkv_keep(row, n, len(kept))
            differ = sorted(set(kept) ^ set(want.tolist()))
            loose = slack(both[0][h], ROUNDING) + slack(both[1][h], ROUNDING)
            at_cut = loose[np.abs(row - cut) <= 1].max() if differ else 0
            heads, equal, differing = heads + 1, equal + (not differ), differing + len(differ)
            far += sum(t >= len(row) or abs(row[t] - cut) > loose[t] + at_cut + 1 for t in differ)
    text = f"{what}: {equal} of {heads} heads equal, {differing} positions differ"
    print(f"  select {text}", flush=True)
    check(far == 0, f"{text}, {far} of them away from the cut")
    check(differing <= 0.005 * sum(budgets.values()), text)
    return budgets


def check_blend(bed, scored):
    """Every head with the same budget; also by the mass of all queries."""
    for recent, budget in ((policy.RECENT, "5%"), (policy.RECENT, "10%"), (policy.RECENT, "30%"), (0, "10%")):
        more = [] if recent == policy.RECENT else ["--kv-recent", recent]
        got = bed.select("--kv-policy", "blend", "--kv-budget", budget, *more)
        kept = compare_sets(f"blend {budget} recent {recent}", got, scored.parts[recent])
        check(set(kept.values()) == {policy.cap_of(budget, N_PROMPT)}, f"blend {budget}: budgets")


# ---- the profile ----

def profile(bed):
    """The signals that the command knows, in one run if it knows all."""
    line = json.dumps({"prompt_ids": bed.ids, "response_ids": bed.answer})
    data, out = bed.file("one.jsonl", line + "\n"), bed.work / "p.json"
    base = ["profile", "-m", bed.path, "--data", data, "-o", out, "--response", "answers", "--noise-seeds", 1,
            "--json"]
    return call(bed.rkv, *base, "--selector", bed.selector, "--signals", ",".join(SIGNALS))


def compare_numbers(what, got, want, relative, absolute):
    """Arrays of nats or errors, each within its tolerance."""
    got, want = np.asarray(got, float), np.asarray(want, float)
    if got.shape != want.shape:
        check(False, f"{what}: {got.shape} numbers instead of {want.shape}")
        return
    excess = np.abs(got - want) / (relative * want + absolute)
    worst = np.unravel_index(excess.argmax(), excess.shape)
    known = want > 10 * absolute
    apart = np.abs(got / want - 1)[known]
    print(f"  {what}: {got.size} numbers, relative difference {np.median(apart) if apart.size else 0:.2g} (median), "
          f"{apart.max() if apart.size else 0:.2g} (largest, of those that rounding leaves)", flush=True)
    check(excess.max() < 1, f"{what} at {tuple(int(i) for i in worst)}: {got[worst]} instead of {want[worst]}")


def means(made, name):
    return [e["mean"] for e in made[name]]


def curves_in(made, kind, unit):
    """Grid, and damage [layer][head or 1][n_grid]."""
    found = [c for c in made["curves"] if (c["kind"], c["unit"]) == (kind, unit)]
    check(len(found) == 1, f"one list of {kind} curves per {unit}")
    units = sorted(found[0]["units"], key=lambda u: (u["layer"], u.get("kv_head", 0)))
    damage = np.array([u["damage"] for u in units])
    return found[0]["grid"], damage.reshape(len({u["layer"] for u in units}), -1, len(found[0]["grid"]))


def check_noise(bed, made, example):
    """Noise on Values, Keys and both, and the change of the layer's own output."""
    keys = {l: sweep.noise_key(0, 0, l) for l in bed.layers}
    for name, parts in (("sensitivity", {}), ("keys", {"values": False, "keys": True}), ("keys_values", {"keys": True})):
        want = [example.sensitivity(l, sweep.SIGMA, keys[l], **parts) for l in bed.layers]
        # caches in half precision above a layer round both runs apart: KL of some 1e-6
        compare_numbers(name, means(made, name), want, 0.02, 5e-6)
    want = [example.local_of(l, sweep.noisy(example.prefix.caches[l], sweep.SIGMA, keys[l])) for l in bed.layers]
    compare_numbers("local", means(made, "local"), want, 0.01, 1e-5)


def check_diagnostics(bed, made, _):
    """Rank correlations of the signals that the profile prints."""
    index = [float(l) for l in bed.layers]
    for row in ("sensitivity", "damage"):
        for name, got in made["diagnostics"]["spearman"].get(row, {}).items():
            if name in made or name == "layer_index":
                want = curves.spearman(means(made, row), index if name == "layer_index" else means(made, name))
                check(abs(got - want) < 1e-9, f"Spearman of {row} and {name}: {got} instead of {want}")


def check_curves(bed, made, example):
    """Estimates of every head; measured damage of every other layer, and of every third head."""
    compare_numbers("damage", means(made, "damage"), [example.damage(l, 0.1) for l in bed.layers], 0.05, 1e-5)
    check({c["selector"] for c in made["curves"]} == {bed.selector}, "selector of the curves")
    grid, got = curves_in(made, "estimated", "head")
    check(grid == list(curves.GRID), f"grid {grid}")
    errors = np.array([example.head_errors(l, grid) for l in bed.layers])
    want = np.array(means(made, "sensitivity"))[:, None, None] * errors
    compare_numbers("estimated curves", got, want, 0.05, 1e-4 * float(np.max(means(made, "sensitivity"))))
    grid, got = curves_in(made, "measured", "layer")
    want = curves.measured([example], bed.layers[::2], grid, False, MEASURED)[0]
    compare_numbers("measured curves of layers", got[::2], want, 0.05, 1e-5)
    grid, got = curves_in(made, "measured", "head")
    units = [(i, l, h) for i, l in enumerate(bed.layers) for h in range(bed.n_head)][::3]
    want = [[example.damage(l, b, [h], MEASURED) for b in grid] for _, l, h in units]
    compare_numbers("measured curves of heads", [got[i, h] for i, _, h in units], want, 0.05, 1e-5)


# ---- budgets ----

def head_budgets(made, n_head):
    """Tokens of every KV head of what rkv budget prints, which lists heads where they differ."""
    return [b for e in made["layers"] for b in e.get("budgets", n_head * [e["budget"]])]


def compare_budgets(what, got, grid, damage, cap, n, allocator):
    """Exact total; root and curve to the token, but where rounding decides between equals."""
    want, gap = (curves.curve_budgets if allocator == "curve" else curves.root_budgets)(grid, damage, cap, n)
    check(sum(got) == cap * len(damage) and min(got) >= min(36, n) and max(got) <= n, f"{what}: total and bounds")
    apart = int(np.abs(np.array(got) - want).sum())
    if apart and allocator == "curve":      # other divisions may be as good: of equal gains, or of two tokens
        mine, least = (curves.total_damage(grid, damage, b, n) for b in (got, want))
        check(mine <= least * (1 + 1e-3) + 1e-9, f"{what}: damage {mine}, {least} is possible")
    check(apart == 0 or gap < 1e-9 or allocator == "curve" and apart <= 0.02 * sum(got),
          f"{what}: {apart} tokens elsewhere")
    return apart


def check_allocators(bed, made):
    """rkv budget on the profile, and on the same file with made curves of all kinds of shapes."""
    rng, total = np.random.default_rng(3), 0
    shapes = [None, *(np.exp(rng.normal(-7, 2.5, (len(bed.layers), bed.n_head, 1)) - np.cumsum(
        rng.exponential(scale, (len(bed.layers), bed.n_head, len(curves.GRID))), axis=2)) for scale in (0.2, 1.0, 3.0))]
    for i, shape in enumerate(shapes):
        grid, damage = curves_in(made, "estimated", "head")
        if shape is not None:
            damage = shape
            for c in (c for c in made["curves"] if (c["kind"], c["unit"]) == ("estimated", "head")):
                for u in c["units"]:
                    u["damage"] = shape[bed.layers.index(u["layer"]), u["kv_head"]].tolist()
        path = bed.file(f"shape{i}.json", json.dumps(made))
        for n, budget, allocator in ((1500, "5%", "curve"), (1500, "10%", "curve"), (1501, "30%", "curve"),
                                     (977, "20%", "curve"), (8000, "10%", "curve"), (1500, "10%", "root"),
                                     (1501, "50%", "root")):
            got = call(bed.rkv, "budget", "--kv-profile", path, "--kv-policy", f"{bed.selector}:{allocator}", "--kv-budget",
                       budget, "-c", n, "--json")
            total += compare_budgets(f"{allocator} {budget} of {n}, curves {i}", head_budgets(got, bed.n_head), grid,
                                     damage.reshape(-1, len(grid)), policy.cap_of(budget, n), n, allocator)
    print(f"  budgets: {len(shapes) * 7} divisions, {total} tokens elsewhere than the reference's", flush=True)


def check_select(bed, made, scored):
    """Policy curve as a whole: budgets by head from the profile, and the sets that they keep."""
    path = bed.file("curves.json", json.dumps(made))
    for budget, more, kind in (("10%", [], ("estimated", "head")), ("20%", [], ("estimated", "head")),
                               ("10%", ["--kv-curves", "measured"], ("measured", "head")),
                               ("10%", ["--kv-curves", "measured", "--kv-unit", "layer"], ("measured", "layer"))):
        got = bed.select("--kv-policy", "curve", "--kv-budget", budget, "--kv-profile", path, *more)
        name = f"curve {budget} {' '.join(kind)}"
        kept = compare_sets(name, got, scored.parts[policy.RECENT])
        grid, damage = curves_in(made, *kind)
        each = [kept[l, h] for l in bed.layers for h in range(bed.n_head if kind[1] == "head" else 1)]
        cap = policy.cap_of(budget, N_PROMPT)
        compare_budgets(name, each, grid, damage.reshape(-1, len(grid)), cap, N_PROMPT, "curve")
        check(sum(kept.values()) == cap * len(kept), f"{name}: total")


def check_score(bed, made, scored):
    """KL of the answer against the cache that policy curve leaves."""
    ids = bed.file("whole.json", json.dumps(bed.ids + bed.answer))
    path = bed.file("curves.json", json.dumps(made))
    options = ["--kv-policy", "curve", "--kv-budget", "20%", "--kv-profile", path]
    got = call(bed.rkv, "score", "-m", bed.path, "--ids", ids, "--prefix", N_PROMPT, *F32, *options)
    kept = bed.select(*options)
    session = scored.session
    full, small = session.fork(), session.fork()
    for l in bed.layers:
        for h in range(bed.n_head):
            small.caches[l].keep(h, kept["layers"][l]["heads"][h]["kept"])
    want = sweep.kl(*(logits(bed.model, s.rows(bed.answer)) for s in (full, small)))
    compare_numbers("score curve 20%", [p["kl"] for p in got["positions"][N_PROMPT:]], want, 0.01, 1e-5)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rkv", required=True)
    p.add_argument("--model", required=True)
    p.add_argument("--selector", default="blend", help="of damage and curves")
    p.add_argument("--random", type=int, metavar="SEED", help="random ids, for a made model, instead of a text")
    a = p.parse_args()
    # The limits are those of products in f32 (check_model.py).
    os.environ.setdefault("RKV_GEMM", "own")
    with tempfile.TemporaryDirectory() as work:
        bed = Bed(a, work)
        scored = Scored(bed)
        section(check_blend, bed, scored)
        made = section(profile, bed)
        if made:
            example = curves.Example(bed.model, bed.ids, bed.answer, half=True, selector=bed.selector)
            section(check_noise, bed, made, example)
            section(check_diagnostics, bed, made, example)
            section(check_curves, bed, made, example)
            section(check_select, bed, made, scored)
            section(check_score, bed, made, scored)
            section(check_allocators, bed, made)
        else:
            counts["skipped"] += 6      # the sections that need it
    print(f"model curves: {counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    sys.exit(counts["failed"] > 0)


if __name__ == "__main__":
    main()
