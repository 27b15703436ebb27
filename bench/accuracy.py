#!/usr/bin/env python3
"""Accuracy of rkv against exact float32 arithmetic on the dequantised weights (tests/ref).

For each model: mean KL(exact || rkv), largest KL, top-1 agreement and largest logit difference over
real text, at the CPU's own tier with the default f16 cache and at tier ref with an f32 cache; greedy
answers; kept sets of snapkv; totals. Prints a table and writes JSON. Needs numpy and gguf.

    bench/accuracy.py --rkv build/rkv --texts DIR -o bench/results/accuracy.json NAME=MODEL.gguf ...
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests" / "ref"), str(HERE)]

import numpy as np                                              # noqa: E402
from machine import cpu_name                                    # noqa: E402
import policy                                                   # noqa: E402
import sweep as reference_sweep                                 # noqa: E402
from forward import Session, greedy, logits                     # noqa: E402
from gguf_model import Model                                    # noqa: E402

ROWS = 256              # logits at a time
SMALL_GAP = 0.25        # top-2 gap under which a greedy token may differ


class Product:
    """The command under test, on one model."""

    def __init__(self, rkv, model, work):
        self.rkv, self.model, self.work = rkv, model, pathlib.Path(work)

    def run(self, command, *options, stdin=None, tier=None):
        env = {**os.environ, **({"RKV_CPU": tier} if tier else {})}
        done = subprocess.run([self.rkv, command, *options], input=stdin, env=env, capture_output=True,
                              check=False)
        if done.returncode:
            raise RuntimeError(f"rkv {command}: {done.stderr.decode()}")
        return done.stdout

    def call(self, command, *options, **more):
        """On the model; the output is JSON."""
        return json.loads(self.run(command, "-m", self.model, *options, **more))

    def tokens(self, text):
        return self.call("tokenize", "--bos", "--special", stdin=text.encode())

    def ids_file(self, ids):
        path = self.work / "ids.json"
        path.write_text(json.dumps(ids))
        return str(path)

    def logits(self, ids, *options, tier=None):
        path = self.work / "logits.npy"
        self.call("score", "--ids", self.ids_file(ids), "--logits", str(path), *options, tier=tier)
        return np.load(path, mmap_mode="r")


def compare(exact, other):
    """KL(exact || other) per row in float64, agreement of the largest, largest difference."""
    kl, same, apart = [], [], 0.0
    for i in range(0, len(exact), ROWS):
        p, q = exact[i:i + ROWS], np.asarray(other[i:i + ROWS])
        kl.extend(reference_sweep.kl(p, q))
        same.extend(p.argmax(-1) == q.argmax(-1))
        apart = max(apart, float(np.abs(p.astype(np.float64) - q).max()))
    return {"positions": len(kl), "mean_kl": float(np.mean(kl)), "max_kl": float(np.max(kl)),
            "top1": float(np.mean(same)), "max_logit_difference": apart}


def check_logits(product, model, ids, tiers, ref_positions=None):
    """Tier ref, which is slow, on the first ref_positions alone."""
    x = Session(model).rows(ids)
    exact = np.concatenate([logits(model, x[i:i + ROWS]) for i in range(0, len(x), ROWS)])
    out = {}
    for name, tier, options in tiers:
        n = min(len(ids), ref_positions or len(ids)) if tier == "ref" else len(ids)
        out[name] = compare(exact[:n], product.logits(ids[:n], *options, tier=tier))
        print(f"  {name}: mean KL {out[name]['mean_kl']:.3g}, top-1 {out[name]['top1']:.4f}, "
              f"|logit| {out[name]['max_logit_difference']:.3g}", flush=True)
    return out


def check_greedy(product, model, prompts, n):
    """Tokens compared until an allowed difference, after which rkv goes on from the exact answer."""
    out = []
    for ids in prompts:
        session = Session(model)
        want, gaps = greedy(session, session.next_logits(ids), n, model.config.ends)
        done, wrong, near = 0, 0, 0
        while done < len(want):
            got = product.call("run", "--ids", product.ids_file(ids + want[:done]), "--json", "-n",
                               str(len(want) - done))["tokens"]
            got += [None] * (len(want) - done - len(got))
            at = next((i for i, (a, b) in enumerate(zip(got, want[done:])) if a != b), None)
            if at is None:
                break
            wrong += gaps[done + at] > SMALL_GAP
            near += gaps[done + at] <= SMALL_GAP
            done += at + 1
        out.append({"prompt_tokens": len(ids), "tokens": len(want), "wrong": wrong, "differ_at_small_gap": near})
    print(f"  greedy: {sum(p['tokens'] for p in out)} tokens, {sum(p['wrong'] for p in out)} wrong, "
          f"{sum(p['differ_at_small_gap'] for p in out)} differ at a gap under {SMALL_GAP}", flush=True)
    return out


def scores_of(model, ids, half):
    """SnapKV scores of every compressible layer, and the layers."""
    c, scores = model.config, {}

    def watch(l, x, q, cache):
        if not c.sliding[l]:
            scores[l] = policy.snapkv_scores(q[-policy.WINDOW:], np.stack(cache.k), c.attn_scale,
                                             policy.KERNEL, False, False)

    Session(model, half).rows(ids, watch=watch)
    return scores


def check_select(product, model, ids, budgets):
    """Kept sets equal to the reference's; a position that differs must tie with the cut."""
    out = []
    for cache in ("f32", "f16"):
        scores = scores_of(model, ids, cache == "f16")
        for budget in budgets:
            got = product.call("select", "--ids", product.ids_file(ids), "--kv-policy", "snapkv",
                               "--kv-budget", budget, "-ctk", cache, "-ctv", cache)
            cap = policy.cap_of(budget, len(ids))
            row = {"budget": budget, "cache": cache, "cap": cap, "total": got["total"],
                   "total_exact": got["total"] == cap * len(scores), "heads": 0, "heads_equal": 0,
                   "positions_differing": 0, "largest_relative_gap": 0.0}
            for l, layer in scores.items():
                for h, s in enumerate(layer):
                    want, cut, _ = policy.snapkv_keep(s, len(ids), cap)
                    kept = got["layers"][l]["heads"][h]["kept"]
                    differ = set(kept) ^ set(want.tolist())
                    row["heads"] += 1
                    row["heads_equal"] += not differ
                    row["positions_differing"] += len(differ)
                    gap = max((abs(float(s[t]) - cut) / cut for t in differ), default=0.0)
                    row["largest_relative_gap"] = max(row["largest_relative_gap"], gap)
            print(f"  select {budget} {cache}: {row['heads_equal']} of {row['heads']} heads equal, "
                  f"{row['positions_differing']} positions differ, within "
                  f"{row['largest_relative_gap']:.2g} of the cut; total {row['total']}", flush=True)
            out.append(row)
    return out


def texts_of(folder, names):
    return [(pathlib.Path(folder) / n).read_text(encoding="utf-8") for n in names]


def run_model(product, path, a):
    model = Model(path, np.float32)
    long = "\n\n".join(texts_of(a.texts, ["avg.txt", "wisdom.txt"]))
    ids = product.tokens(long)
    prompts = [product.tokens(t)[:60] for t in texts_of(a.texts, ["apple.txt", "boss.txt", "gap.txt",
                                                                  "love.txt", "useful.txt"])]
    own = product.call("inspect", "--json")["machine"]["tier"]
    cache = lambda t: ["-ctk", t, "-ctv", t]
    tiers = [(f"{own}, {t} cache", own, cache(t)) for t in ("f16", "f32", "bf16", "q8_0", "q4_0")]
    tiers.append(("ref, f32 cache", "ref", cache("f32")))
    return {"file": pathlib.Path(path).name, "sha256": sha256(path),
            "logits": check_logits(product, model, ids[:a.positions], tiers, a.ref_positions),
            "greedy": check_greedy(product, model, prompts, a.greedy),
            "select": check_select(product, model, ids[:1500], ["10%", "20%", "30%"])}


def sha256(path):
    return subprocess.run(["sha256sum", path], capture_output=True, check=True).stdout.decode().split()[0]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rkv", default="build/rkv")
    p.add_argument("--texts", required=True, help="folder of essays")
    p.add_argument("-o", "--output", required=True)
    p.add_argument("--positions", type=int, default=1200)
    p.add_argument("--ref-positions", type=int, default=200)
    p.add_argument("--greedy", type=int, default=40)
    p.add_argument("models", nargs="+", metavar="NAME=MODEL.gguf")
    a = p.parse_args()
    out = {"command": "bench/accuracy.py --texts ESSAYS -o bench/results/accuracy.json NAME=MODEL...",
           "cpu": cpu_name(), "version": subprocess.run([a.rkv, "--version"], capture_output=True,
                                                        check=True).stdout.decode().strip(), "models": {}}
    if os.path.exists(a.output):        # models that an earlier run of this version measured here
        with open(a.output, encoding="utf-8") as f:
            old = json.load(f)
        if (old["cpu"], old["version"]) == (out["cpu"], out["version"]):
            out["models"] = old["models"]
    with tempfile.TemporaryDirectory() as work:
        for entry in a.models:
            name, path = entry.split("=", 1)
            print(name, flush=True)
            out["models"][name] = run_model(Product(a.rkv, path, work), path, a)
            with open(a.output, "w", encoding="utf-8") as f:
                json.dump(out, f, indent=1)
                f.write("\n")


if __name__ == "__main__":
    main()
