#!/usr/bin/env python3
"""Reference results as JSON and .npy files, for scripts that compare the product with them."""
import argparse
import json
import sys

import numpy as np

import curves
import policy
import sweep as sensitivity
from forward import Session, greedy, logits
from gguf_model import Model

ROWS = 256


def read(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def open_model(a):
    return Model(a.model, np.float64 if a.f64 else np.float32)


def cmd_logits(a):
    model, ids = open_model(a), read(a.ids)
    x = Session(model, a.kv_f16).rows(ids)[a.first:]
    out = np.lib.format.open_memmap(a.output, "w+", model.dtype, (len(x), len(model.output())))
    for i in range(0, len(x), ROWS):
        out[i:i + ROWS] = logits(model, x[i:i + ROWS])
    return {"rows": len(x), "first": a.first, "n_vocab": out.shape[1]}


def cmd_greedy(a):
    model = open_model(a)
    session = Session(model, a.kv_f16)
    ids, gaps = greedy(session, session.next_logits(read(a.ids)), a.n, a.end or model.config.ends)
    return {"ids": ids, "gaps": gaps}


def profile_signal(path, name, layers=None):
    """Means per layer of a signal of a profile file, or of what this tool prints."""
    by_layer = {e["layer"]: e["mean"] for e in read(path)[name]}
    return [by_layer[l] for l in layers or sorted(by_layer)]


def profile_curves(path, kind, unit, layers, n_kv_head):
    """Grid, and damage [units][n_grid], of a profile's curves: units by layer and head, or by layer."""
    found = next((c for c in read(path).get("curves", []) if (c["kind"], c["unit"]) == (kind, unit)), None)
    if not found:
        raise ValueError(f"{path}: no {kind} curves per {unit}")
    by_unit = {(u["layer"], u.get("kv_head", 0)): u["damage"] for u in found["units"]}
    heads = range(n_kv_head if unit == "head" else 1)
    return found["grid"], [by_unit[l, h] for l in layers for h in heads]


def budgets_of(a, layers, n, n_kv_head):
    """Cap, tokens [layer][n_kv_head] of the compressible layers, and the rounding gap."""
    cap, unit = policy.cap_of(a.budget, n), "layer"
    if a.policy in ("curve", "root"):
        unit = a.unit
        grid, damage = profile_curves(a.profile, a.curves, unit, layers, n_kv_head)
        divide = curves.curve_budgets if a.policy == "curve" else curves.root_budgets
        budgets, gap = divide(grid, damage, cap, n, a.window)
    else:
        weights = [1.0] * len(layers)
        if a.policy == "ripple":
            weights = policy.ripple_weights(profile_signal(a.profile, "sensitivity", layers), a.r, a.gamma)
        budgets, gap = policy.layer_budgets(weights, cap, n, a.window)
    return cap, np.repeat(budgets, 1 if unit == "head" else n_kv_head).reshape(-1, n_kv_head).tolist(), gap


def select(a, model, session, ids):
    """Fills the session's cache with ids; cap, rounding gap, and (layer, budgets [n_kv_head], cache,
    scores [n_kv_head][n - window]) of each compressible layer."""
    c, scores = model.config, {}
    selector = {"ripple": "snapkv", "curve": "blend", "root": "blend"}.get(a.policy, a.policy)
    cap, budgets, gap = budgets_of(a, c.compressible, len(ids), c.n_kv_head)

    def watch(l, x, q, cache):
        if not c.sliding[l]:
            scores[l] = policy.scores(selector, q, np.stack(cache.k), c.attn_scale, a.window, a.recent,
                                      kernel=a.kernel, average=a.average, pool_first=a.pool_first)

    session.rows(ids, watch=watch)
    layers = [(l, b, session.caches[l], scores[l]) for l, b in zip(c.compressible, budgets)]
    return cap, gap, layers


def cmd_select(a):
    model, ids = open_model(a), read(a.ids)
    cap, gap, layers = select(a, model, Session(model, a.kv_f16), ids)
    if a.scores:
        np.savez(a.scores, **{f"layer_{l}": score for l, _, _, score in layers})
    out = []
    for l, budgets, _, score in layers:
        heads = []
        for budget, row in zip(budgets, score):
            kept, cut, dropped = policy.snapkv_keep(row, len(ids), budget)
            heads.append({"budget": budget, "kept": kept.tolist()})
            if budget < len(ids):
                heads[-1].update(cut=cut, dropped=dropped, gap=cut - dropped)
        out.append({"layer": l, "heads": heads})
    return {"n": len(ids), "cap": cap, "total": sum(h["budget"] for e in out for h in e["heads"]),
            "rounding_gap": gap, "layers": out}


def cmd_score(a):
    """KL of the ids after the prefix, full cache against compressed."""
    model, ids = open_model(a), read(a.ids)
    session = Session(model, a.kv_f16)
    cap, _, layers = select(a, model, session, ids[:a.prefix])
    full = logits(model, session.fork().rows(ids[a.prefix:]))
    for _, budgets, cache, score in layers:
        for h, row in enumerate(score):
            cache.keep(h, policy.snapkv_keep(row, a.prefix, budgets[h])[0])
    edited = logits(model, session.rows(ids[a.prefix:]))
    kl = sensitivity.kl(full, edited)
    return {"cap": cap, "mean_kl": float(kl.mean()), "kl": kl.tolist(),
            "same_top": float((full.argmax(-1) == edited.argmax(-1)).mean())}


def read_examples(a):
    """(index, prompt ids, response ids or None) of the lines of a file of examples."""
    with open(a.examples, encoding="utf-8") as f:
        lines = [json.loads(line) for line in f if line.strip()]
    return [(i, e["prompt_ids"], e.get("response_ids") if a.response == "answers" else None)
            for i, e in enumerate(lines[:a.limit])]


def say(index, e):
    print(f"example {index}: {e.n} tokens, answer {e.response}", file=sys.stderr)


def cmd_sweep(a):
    """Sensitivity of each layer to noise on its Values."""
    model, examples = open_model(a), read_examples(a)
    table, used = sensitivity.sweep(model, examples, a.noise, a.noise_seeds, a.n_response, a.kv_f16, say)
    if not used:
        raise ValueError("no example has an answer that is long enough")
    return {"sensitivity": by_layer(model, table.mean(axis=(0, 1))),
            "examples": used, "skipped": len(examples) - len(used), "table": table.tolist()}


def by_layer(model, means):
    return [{"layer": l, "mean": float(s)} for l, s in zip(model.config.compressible, means)]


def by_unit(model, kind, damage, grid):
    """Curves [layer][head or 1][n_grid] in a profile file's form, without standard errors."""
    units = [{"layer": l, **({"kv_head": h} if kind[1] == "head" else {}), "damage": row.tolist()}
             for l, heads in zip(model.config.compressible, damage) for h, row in enumerate(heads)]
    return {"kind": kind[0], "unit": kind[1], "selector": "blend", "grid": list(grid), "units": units}


def cmd_curves(a):
    """All signals and curves of a profile, the slow way: each variant alone."""
    model = open_model(a)
    layers = model.config.compressible
    examples = [(i, curves.Example(model, prompt, response, a.n_response, a.kv_f16))
                for i, prompt, response in read_examples(a)]
    examples = [(i, e) for i, e in examples if len(e.response) >= sensitivity.N_RESPONSE_MIN]
    for i, e in examples:
        say(i, e)
    signals = {}
    for name, parts in (("sensitivity", {}), ("keys", {"values": False, "keys": True}), ("keys_values", {"keys": True})):
        table = [[[e.sensitivity(l, a.noise, sensitivity.noise_key(i, seed, l), **parts) for l in layers]
                  for seed in range(a.noise_seeds)] for i, e in examples]
        signals[name] = np.mean(table, axis=(0, 1))
    plain = [e for _, e in examples]
    errors = np.array([[e.head_errors(l, a.grid) for l in layers] for e in plain])
    kinds = {("estimated", "head"): curves.estimated(signals["sensitivity"], errors)}
    for unit in a.measure:
        kinds["measured", unit] = curves.measured(plain, layers, a.grid, unit == "head", a.positions).mean(axis=0)
    return {**{name: by_layer(model, s) for name, s in signals.items()}, "errors": errors.tolist(),
            "curves": [by_unit(model, kind, damage, a.grid) for kind, damage in kinds.items()]}


def cmd_budget(a):
    """Tokens of each layer and KV head from a profile."""
    layers = sorted(e["layer"] for e in read(a.profile)["sensitivity"])
    cap, budgets, gap = budgets_of(a, layers, a.n, a.kv_heads)
    return {"cap": cap, "total": int(np.sum(budgets)), "rounding_gap": gap,
            "layers": [{"layer": l, "budgets": b} for l, b in zip(layers, budgets)]}


def cmd_spearman(a):
    """Rank correlation of two signals of a profile; "layer" is the layer's index."""
    layers = sorted(e["layer"] for e in read(a.profile)["sensitivity"])
    x, y = (layers if name == "layer" else profile_signal(a.profile, name, layers) for name in (a.x, a.y))
    return {"spearman": curves.spearman(x, y), "layers": len(layers)}


def cmd_generator(a):
    key = sensitivity.noise_key(a.example, a.seed, a.layer)
    return {"key": key, "elements": sensitivity.normal(key, a.n, a.first).tolist()}


def cmd_compare(a):
    """Two files of logits: KL(exact || other), and how often the largest agrees."""
    exact, other = np.load(a.exact, mmap_mode="r"), np.load(a.other, mmap_mode="r")
    if exact.shape != other.shape:
        raise ValueError(f"shapes {exact.shape} and {other.shape} differ")
    kl, top, apart = [], [], []
    for i in range(0, len(exact), ROWS):
        p, q = exact[i:i + ROWS], other[i:i + ROWS]
        kl.extend(sensitivity.kl(p, q))
        top.extend(p.argmax(-1) == q.argmax(-1))
        apart.append(np.abs(p.astype(np.float64) - q).max())
    return {"rows": len(kl), "mean_kl": float(np.mean(kl)), "max_kl": float(np.max(kl)),
            "same_top": float(np.mean(top)), "max_difference": float(np.max(apart))}


def add_budget_options(p, profile):
    p.add_argument("--budget", required=True, help='share ("10%%") or tokens per layer and head')
    p.add_argument("--policy", choices=("snapkv", "h2o", "observed", "blend", "ripple", "curve", "root"),
                   default="ripple" if profile else "snapkv", help="curve and root select by blend")
    p.add_argument("--profile", required=profile, help="profile of ripple, curve, root")
    p.add_argument("--curves", choices=("estimated", "measured"), default="estimated")
    p.add_argument("--unit", choices=("head", "layer"), default="head", help="of the curves")
    p.add_argument("--r", type=float, default=1.5)
    p.add_argument("--gamma", type=float, default=2.0)
    p.add_argument("--window", type=int, default=policy.WINDOW)
    if profile:
        p.add_argument("--kv-heads", type=int, default=1)
    else:
        p.add_argument("--recent", type=int, default=policy.RECENT, help="queries of blend's mass; 0: all")
        p.add_argument("--kernel", type=int, default=policy.KERNEL)
        p.add_argument("--average", action="store_true", help="pool by mean")
        p.add_argument("--pool-first", action="store_true", help="pool, then mean over the group")


def add_example_options(p):
    p.add_argument("--noise", type=float, default=sensitivity.SIGMA)
    p.add_argument("--noise-seeds", type=int, default=sensitivity.SEEDS)
    p.add_argument("--n-response", type=int, default=sensitivity.N_RESPONSE)
    p.add_argument("--response", choices=("greedy", "answers"), default="greedy")
    p.add_argument("--limit", type=int, help="use the first lines only")


def parser():
    p = argparse.ArgumentParser(description=__doc__)
    commands = p.add_subparsers(required=True, dest="command")

    def command(name, run, *positional):
        c = commands.add_parser(name, help=run.__doc__)
        c.set_defaults(run=run)
        for argument in positional:
            c.add_argument(argument)
        if "model" in positional:
            c.add_argument("--f64", action="store_true", help="everything in float64")
            c.add_argument("--kv-f16", action="store_true", help="round the cache to float16")
        return c

    c = command("logits", cmd_logits, "model", "ids")
    c.add_argument("-o", "--output", required=True)
    c.add_argument("--first", type=int, default=0, help="leave out the rows before this one")
    c = command("greedy", cmd_greedy, "model", "ids")
    c.add_argument("-n", type=int, default=40)
    c.add_argument("--end", type=int, action="append",
                   help="ids that end the answer; default: the model's")
    c = command("select", cmd_select, "model", "ids")
    c.add_argument("--scores", help=".npz file for the pooled scores")
    add_budget_options(c, profile=False)
    c = command("score", cmd_score, "model", "ids")
    c.add_argument("--prefix", type=int, required=True, help="ids that are the prompt")
    add_budget_options(c, profile=False)
    c = command("sweep", cmd_sweep, "model", "examples")
    add_example_options(c)
    c = command("curves", cmd_curves, "model", "examples")
    add_example_options(c)
    c.add_argument("--grid", type=lambda text: [float(b) for b in text.split(",")], default=list(curves.GRID))
    c.add_argument("--measure", choices=("layer", "head"), nargs="*", default=[], help="units to measure too")
    c.add_argument("--positions", type=int, help="answer positions of measured damage; default: all")
    c = command("budget", cmd_budget)
    c.add_argument("-n", type=int, required=True, help="prompt tokens")
    add_budget_options(c, profile=True)
    c = command("generator", cmd_generator)
    for name, default in (("example", 0), ("seed", 0), ("layer", 0), ("first", 0), ("n", 3)):
        c.add_argument(f"--{name}", type=int, default=default)
    command("compare", cmd_compare, "exact", "other")
    command("spearman", cmd_spearman, "profile", "x", "y")
    return p


def main():
    p = parser()
    a = p.parse_args()
    if getattr(a, "policy", None) in ("ripple", "curve", "root") and not a.profile:
        p.error(f"{a.policy} needs --profile")
    try:
        json.dump(a.run(a), sys.stdout, allow_nan=False)
    except (OSError, ValueError, KeyError) as e:
        sys.exit(f"{a.command}: {type(e).__name__}: {e}")
    print()


if __name__ == "__main__":
    main()
