#!/usr/bin/env python3
"""Reference results as JSON and .npy files, for scripts that compare the product with them."""
import argparse
import json
import sys

import numpy as np

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


def profile_sensitivities(path, layers):
    """Of a profile file, or of this tool's sweep."""
    by_layer = {e["layer"]: e["mean"] for e in read(path)["sensitivity"]}
    return [by_layer[l] for l in layers]


def budgets_of(a, layers, n):
    """Cap, tokens per KV head of each compressible layer, and the rounding gap."""
    cap = policy.cap_of(a.budget, n)
    weights = [1.0] * len(layers)
    if a.policy == "ripple":
        weights = policy.ripple_weights(profile_sensitivities(a.profile, layers), a.r, a.gamma)
    return cap, *policy.layer_budgets(weights, cap, n, a.window)


def select(a, model, session, ids):
    """Fills the session's cache with ids; cap, rounding gap, and (layer, budget, cache, scores
    [n_kv_head][n - window]) of each compressible layer."""
    c, scores = model.config, {}
    cap, budgets, gap = budgets_of(a, c.compressible, len(ids))

    def watch(l, x, q, cache):
        if not c.sliding[l]:
            selector = "snapkv" if a.policy == "ripple" else a.policy
            scores[l] = policy.scores(selector, q, np.stack(cache.k), c.attn_scale, a.window,
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
    for l, budget, _, score in layers:
        heads = []
        for row in score:
            kept, cut, dropped = policy.snapkv_keep(row, len(ids), budget)
            heads.append({"kept": kept.tolist()})
            if budget < len(ids):
                heads[-1].update(cut=cut, dropped=dropped, gap=cut - dropped)
        out.append({"layer": l, "budget": budget, "heads": heads})
    return {"n": len(ids), "cap": cap, "total": sum(e["budget"] for e in out), "rounding_gap": gap,
            "layers": out}


def cmd_score(a):
    """KL of the ids after the prefix, full cache against compressed."""
    model, ids = open_model(a), read(a.ids)
    session = Session(model, a.kv_f16)
    cap, _, layers = select(a, model, session, ids[:a.prefix])
    full = logits(model, session.fork().rows(ids[a.prefix:]))
    for _, budget, cache, score in layers:
        for h, row in enumerate(score):
            cache.keep(h, policy.snapkv_keep(row, a.prefix, budget)[0])
    edited = logits(model, session.rows(ids[a.prefix:]))
    kl = sensitivity.kl(full, edited)
    return {"cap": cap, "mean_kl": float(kl.mean()), "kl": kl.tolist(),
            "same_top": float((full.argmax(-1) == edited.argmax(-1)).mean())}


def cmd_sweep(a):
    model = open_model(a)
    with open(a.examples, encoding="utf-8") as f:
        lines = [json.loads(line) for line in f if line.strip()]
    examples = [(i, e["prompt_ids"], e.get("response_ids") if a.response == "answers" else None)
                for i, e in enumerate(lines[:a.limit])]
    table, used = sensitivity.sweep(
        model, examples, a.noise, a.noise_seeds, a.n_response, a.kv_f16,
        lambda i, e: print(f"example {i}: {e.n} tokens, answer {e.response}", file=sys.stderr))
    if not used:
        raise ValueError("no example has an answer that is long enough")
    means = zip(model.config.compressible, table.mean(axis=(0, 1)))
    return {"sensitivity": [{"layer": l, "mean": s} for l, s in means],
            "examples": used, "skipped": len(examples) - len(used), "table": table.tolist()}


def cmd_budget(a):
    layers = sorted(e["layer"] for e in read(a.profile)["sensitivity"])
    cap, budgets, gap = budgets_of(a, layers, a.n)
    return {"cap": cap, "total": sum(budgets), "rounding_gap": gap,
            "layers": [{"layer": l, "budget": b} for l, b in zip(layers, budgets)]}


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
    p.add_argument("--policy", choices=("snapkv", "h2o", "observed", "ripple"),
                   default="ripple" if profile else "snapkv")
    p.add_argument("--profile", required=profile, help="profile of ripple")
    p.add_argument("--r", type=float, default=1.5)
    p.add_argument("--gamma", type=float, default=2.0)
    p.add_argument("--window", type=int, default=policy.WINDOW)
    if not profile:
        p.add_argument("--kernel", type=int, default=policy.KERNEL)
        p.add_argument("--average", action="store_true", help="pool by mean")
        p.add_argument("--pool-first", action="store_true", help="pool, then mean over the group")


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
    c.add_argument("--noise", type=float, default=sensitivity.SIGMA)
    c.add_argument("--noise-seeds", type=int, default=sensitivity.SEEDS)
    c.add_argument("--n-response", type=int, default=sensitivity.N_RESPONSE)
    c.add_argument("--response", choices=("greedy", "answers"), default="greedy")
    c.add_argument("--limit", type=int, help="use the first lines only")
    c = command("budget", cmd_budget)
    c.add_argument("-n", type=int, required=True, help="prompt tokens")
    add_budget_options(c, profile=True)
    c = command("generator", cmd_generator)
    for name, default in (("example", 0), ("seed", 0), ("layer", 0), ("first", 0), ("n", 3)):
        c.add_argument(f"--{name}", type=int, default=default)
    command("compare", cmd_compare, "exact", "other")
    return p


def main():
    p = parser()
    a = p.parse_args()
    if getattr(a, "policy", None) == "ripple" and not a.profile:
        p.error("ripple needs --profile")
    try:
        json.dump(a.run(a), sys.stdout, allow_nan=False)
    except (OSError, ValueError, KeyError) as e:
        sys.exit(f"{a.command}: {type(e).__name__}: {e}")
    print()


if __name__ == "__main__":
    main()
