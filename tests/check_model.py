#!/usr/bin/env python3
"""The command on a real model against the exact reference: logits, greedy tokens, kept sets, sweep,
budgets. A short form of bench/accuracy.py with limits; needs numpy and gguf.

    tests/check_model.py --rkv RKV --model MODEL.gguf
"""
import argparse
import json
import os
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "ref"), str(HERE.parent / "bench")]

import numpy as np                                              # noqa: E402
import accuracy                                                 # noqa: E402
import policy                                                   # noqa: E402
import sweep                                                    # noqa: E402
from gguf_model import Model                                    # noqa: E402

passed = failed = 0
DATA = HERE.parent / "tools" / "quickstart-data"


def check(ok, text):
    global passed, failed
    passed, failed = passed + bool(ok), failed + (not ok)
    if not ok:
        print(f"check_model: failed: {text}", file=sys.stderr)


def check_logits(product, model, ids, own):
    plain = ["-ctk", "f32", "-ctv", "f32"]
    rows = accuracy.check_logits(product, model, ids, [("own", own, []), ("ref", "ref", plain)])
    check(rows["own"]["mean_kl"] <= 1e-4, f"mean KL {rows['own']['mean_kl']}")
    check(rows["own"]["top1"] >= 0.98, f"top-1 agreement {rows['own']['top1']}")
    check(rows["ref"]["max_logit_difference"] <= 1e-3, f"tier ref {rows['ref']}")


def check_greedy(product, model, prompts):
    for p in accuracy.check_greedy(product, model, prompts, 24):
        check(p["tokens"] > 0 and not p["wrong"], f"greedy {p}")


def check_select(product, model, ids):
    for row in accuracy.check_select(product, model, ids, ["10%", "30%"]):
        check(row["total_exact"], f"total of {row}")
        # what differs must tie with the cut within the rounding of a score: of float32 sums, or of
        # keys in half precision (2^-11 of a logit of about 10)
        check(row["largest_relative_gap"] < (1e-4 if row["cache"] == "f32" else 1e-2), f"kept sets {row}")
        check(row["heads_equal"] > 0.9 * row["heads"], f"kept sets {row}")


def mass_scores(model, ids, half):
    """Scores of h2o and observed, by selector and compressible layer."""
    c, out = model.config, {"h2o": {}, "observed": {}}

    def watch(l, x, q, cache):
        if not c.sliding[l]:
            for selector, layers in out.items():
                layers[l] = policy.scores(selector, q, np.stack(cache.k), c.attn_scale)

    accuracy.Session(model, half).rows(ids, watch=watch)
    return out


def check_mass(product, model, ids):
    """Kept sets of h2o and observed at three budgets, limits as for snapkv."""
    for cache in ("f32", "f16"):
        for selector, layers in mass_scores(model, ids, cache == "f16").items():
            for budget in ("10%", "20%", "30%"):
                got = product.call("select", "--ids", product.ids_file(ids), "--kv-policy", selector,
                                   "--kv-budget", budget, "-ctk", cache, "-ctv", cache)
                cap, heads, equal, gap = policy.cap_of(budget, len(ids)), 0, 0, 0.0
                for l, layer in layers.items():
                    for h, s in enumerate(layer):
                        want, cut, _ = policy.snapkv_keep(s, len(ids), cap)
                        differ = set(got["layers"][l]["heads"][h]["kept"]) ^ set(want.tolist())
                        heads, equal = heads + 1, equal + (not differ)
                        gap = max([gap, *(abs(float(s[t]) / cut - 1) for t in differ)])
                text = f"{selector} {budget} {cache}: {equal} of {heads} heads equal, within {gap:.2g} of the cut"
                print(f"  select {text}", flush=True)
                check(got["total"] == cap * len(layers), f"total of {text}")
                check(gap < (1e-4 if cache == "f32" else 1e-2), text)
                check(equal > 0.9 * heads or cache == "f16", text)


def check_sweep(product, model, ids):
    """Sensitivities of a short prompt, and the budgets that follow from them."""
    work = product.work
    answer = ids[400:416]
    (work / "one.jsonl").write_text(json.dumps({"prompt_ids": ids[:400], "response_ids": answer}) + "\n")
    got = product.call("profile", "--data", str(work / "one.jsonl"), "-o", str(work / "p.json"),
                       "--response", "answers", "--noise-seeds", "1", "--json")
    table, _ = sweep.sweep(model, [(0, ids[:400], answer)], 0.5, 1, 32, True, lambda i, e: None)
    want = table.mean(axis=(0, 1))
    mine = np.array([e["mean"] for e in got["sensitivity"]])
    check(len(mine) == len(want), "layers of the profile")
    # The half-precision caches above a perturbed layer round both runs apart: KL 5e-7, which shows
    # beside the least sensitive layers' 1e-4. (check_walk compares bit for bit what is comparable.)
    excess = np.abs(mine - want) / (0.01 * want + 5e-6)
    check(excess.max() < 1, f"sensitivities {mine} instead of {want}")
    print(f"  sweep: relative difference {np.median(np.abs(mine / want - 1)):.2g} (median), "
          f"{np.abs(mine / want - 1).max():.2g} (largest)")
    for budget in ("10%", "25%", "50%"):
        b = json.loads(product.run("budget", "--kv-profile", str(work / "p.json"), "--kv-budget", budget,
                                   "-c", "1500", "--json"))
        cap = policy.cap_of(budget, 1500)
        ref, gap = policy.layer_budgets(policy.ripple_weights(mine), cap, 1500)
        check([e["budget"] for e in b["layers"]] == ref or gap < 1e-9, f"budgets at {budget}")
        check(b["total"] == cap * len(ref), f"total at {budget}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rkv", required=True)
    p.add_argument("--model", required=True)
    a = p.parse_args()
    # The limits are those of products in f32; bf16 and integers, which AMX and VNNI use, have their own (check_pairs).
    os.environ.setdefault("RKV_GEMM", "own")
    model = Model(a.model, np.float32)
    text = (DATA / "handbook.txt").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as work:
        product = accuracy.Product(a.rkv, a.model, work)
        own = product.call("inspect", "--json")["machine"]["tier"]
        ids = product.tokens(text)
        check_logits(product, model, ids[:200], own)
        check_greedy(product, model, [ids[i:i + 40] for i in (0, 500, 1500)])
        check_select(product, model, ids[:1000])
        check_mass(product, model, ids[:1500])
        check_sweep(product, model, ids)
    print(f"model: {passed} passed, {failed} failed, 0 skipped")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
