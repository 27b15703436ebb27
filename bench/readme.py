#!/usr/bin/env python3
"""Writes the README's section of measured results from the files in bench/results.

    bench/readme.py
"""
import json
import pathlib
import re

from machine import cpus_of

HERE = pathlib.Path(__file__).resolve().parent


def load(name):
    path = HERE / "results" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def accuracy(r):
    out = ["**Accuracy**: beside float32 arithmetic on the dequantised weights (NumPy, tests/ref), on essays; "
           f"{r['cpu']}; `bench/accuracy.py`.", "",
           "| model | positions | mean KL, nats | top-1 equal | largest logit difference of portable C, f32 cache | "
           "greedy tokens wrong |", "|---|---|---|---|---|---|"]
    for name, m in r["models"].items():
        own = next(v for k, v in m["logits"].items() if k.endswith("f16 cache"))
        ref = m["logits"]["ref, f32 cache"]
        tokens, wrong = (sum(p[k] for p in m["greedy"]) for k in ("tokens", "wrong"))
        out.append(f"| {name} | {own['positions']} | {own['mean_kl']:.1e} | {own['top1']:.4f} | "
                   f"{ref['max_logit_difference']:.1e} | {wrong} of {tokens} |")
    types = ("f16", "bf16", "q8_0", "q4_0")
    by_type = {name: {k.split(", ")[1].split()[0]: v["mean_kl"] for k, v in m["logits"].items()
                      if not k.startswith("ref")} for name, m in r["models"].items()}
    whole = {name: kl for name, kl in by_type.items() if all(t in kl for t in types)}
    if whole:
        out += ["", "Mean KL by type of the cache (`-ctk`, `-ctv`), nats:", "",
                "| model | " + " | ".join(types) + " |", "|---|" + "---|" * len(types)]
    for name, kl in whole.items():
        out.append(f"| {name} | " + " | ".join(f"{kl[t]:.1e}" for t in types) + " |")
    kept = [s for m in r["models"].values() for s in m["select"] if s["cache"] == "f32"]
    out += ["", f"Kept sets of snapkv at 10, 20 and 30 % of 1,500 tokens, f32 cache: {sum(s['heads_equal'] for s in kept)} "
            f"of {sum(s['heads'] for s in kept)} heads equal to the reference's, "
            f"{sum(s['total_exact'] for s in kept)} of {len(kept)} totals exact."]
    return out


def quickstart(r):
    out = [f"**Quickstart**: {r['prompt_tokens']} prompt tokens, budget {r['budget']}, SmolLM2-135M; {r['cpu']}; "
           "`tools/quickstart`. Speeds are of one run on a shared machine; the policies with a budget hold as many bytes.", "",
           "| policy | KV MiB | decode tok/s | KL to the full cache |", "|---|---|---|---|"]
    for name, p in r["policies"].items():
        out.append(f"| {name} | {p['kv_bytes'] / 2**20:.1f} | {p['decode_tok_s']:.0f} | {p['mean_kl']:.4f} |")
    return out


def sweep(r):
    tokens = sorted({f"{m['tokens']:,}" for m in r["models"].values()})
    out = [f"**Cost of a profile**: one example of {', '.join(tokens)} tokens and its answer of 32 (10 for measured curves), "
           f"in prefills of the same prompt; {r['cpu']}; `bench/sweep_cost.py`.", "",
           "| model | measured | sweep | prefill, answer and sweep |", "|---|---|---|---|"]
    for name, m in r["models"].items():
        out += [f"| {name} | {kind} | {x['sweep_prefills']:.2f} | {x['all_prefills']:.2f} |"
                for kind, x in m["runs"].items()]
    return out


def study(r):
    cpus = cpus_of(s for m in r["models"].values() for s in m["series"].values())
    out = [f"**What a profile says**: Spearman correlation over layers with the measured damage of keeping 10 % of one "
           f"layer (blend), with 95 % intervals over examples; of the estimated with the measured damage of single KV "
           f"heads that keep 3, 10 and 30 %; and of two halves of the examples; {cpus}; `bench/profile_study.py`. "
           "RippleKV's authors report 0.799 for sensitivity and 0.359 for the layer index, on larger models.", "",
           "| model | layers | examples | sensitivity | local signal | layer index | random order | estimated curves | "
           "examples recommended |", "|---|---|---|---|---|---|---|---|---|"]
    between = lambda x: f"{x['spearman']:.2f} ({x['spearman_95'][0]:.2f} to {x['spearman_95'][1]:.2f})" if x else ""
    for name, m in r["report"].items():
        for series, c in m.get("curves", {}).items():
            d = m["selectors"]["with_damage"][series]
            layers = len(r["models"][name]["series"][series]["layers"])
            out.append(f"| {name} | {layers} | {d['examples']} | {between(d.get('sensitivity'))} | {between(d.get('local'))} | "
                       f"{d['layer_index']:.2f} | {d['random']:.2f} | {', '.join(f'{x:.2f}' for x in c.values())} | "
                       f"{(m.get('examples') or {}).get('recommended') or ''} |")
    groups = [(name, kind, [v for v in m[kind].values() if "spearman" in v]) for name, m in r["report"].items()
              if name != "quantizations" for kind in ("domains", "lengths")]
    groups += [("", pair, [v]) for pair, v in r["report"].get("quantizations", {}).items()]
    rows = [f"| {' '.join(filter(None, (name, kind)))} | {len(pairs)} | {min(v['spearman'] for v in pairs):.3f} | "
            f"{max(v['largest_budget_change'] for v in pairs):.3f} |" for name, kind, pairs in groups if pairs]
    if rows:
        out += ["", "Two profiles of one model, from examples of other domains (QA, code, dialogue, summaries, few-shot), "
                "other lengths (the same texts cut), or of another quantization: the least agreeing pair, and the largest "
                "change of a layer's budget by ripple, in units of the mean.", "",
                "| profiles | pairs | least Spearman | largest change |", "|---|---|---|---|", *rows]
    return out


def early_stop(r):
    out = [f"**Stopping early**: examples that `--until-stable` took, beside {max(m['examples'][1] for m in r['models'].values())} "
           f"fixed ones; {r['cpu']}; `bench/early_stop.py`.", "",
           "| model | examples | share of the work | largest budget change, of the mean | widest interval, of the cap | "
          "examples that ±2 % would take |", "|---|---|---|---|---|---|"]
    for name, m in r["models"].items():
        widest, used = m["widest_budget"][0], m["examples"][0]
        more = f"some {used * (widest / 0.02) ** 2:.0f}" if widest > 0.02 else f"{used}"
        out.append(f"| {name} | {used} of {m['examples'][1]} | {m['work']:.2f} | {100 * m['largest_budget_change']:.1f} % | "
                   f"±{100 * widest:.1f} % | {more} |")
    return out


def kills(r):
    return [f"**Killed and resumed**: {r['identical']} of {r['kills']} profiles equal to the byte after a SIGKILL at a random "
            f"moment; {r['cpu']}; `bench/kills.py`."]


def compare(r, picture="speed"):
    tests = [(name, t) for name, m in r["models"].items() for t in m["tests"]]
    pairs = [pair.split(" / ") for _, t in tests for pair in t["ratios"]]
    peers = list(dict.fromkeys(peer for _, peer in pairs))
    out = [f"**Speed** beside {' and '.join(f'{p} ({v})' for p, v in r['versions'].items() if p != 'rkv')}, alternately in "
           f"one run, {r['threads']} threads, medians; {r['cpu']}; `bench/compare.py`. The share is of what "
           "`bench_ceilings` reached just before: f32 multiply-adds per second in prefill, bytes read per second in "
           "decode. Memory is the process's peak, beside what rkv planned for a prefill before it began (its own code comes "
           "on top). The last columns are speeds over the peers'.", "",
           f"![Tokens per second against context length](bench/results/{picture}.svg)", "",
           "| model | test | program | tokens/s | share | MiB | planned | " + " | ".join(f"over {p}" for p in peers) + " |",
           "|---" * (7 + len(peers)) + "|"]
    mib = lambda t, key, program: f"{t[key][program] / 2**20:.0f}" if program in t.get(key, {}) else ""
    for name, t in tests:
        for program, rate in t["tokens_s"].items():
            ratios = [t["ratios"].get(f"{program} / {p}") for p in peers]
            share = f"{100 * t['ceiling'][program]['share']:.0f} %" if program in t["ceiling"] else ""
            cells = [name, t["test"], program, f"{rate['median']:.1f}", share, mib(t, "peak_rss", program),
                     mib(t, "plan", program),
                     *(f"{q['median']:.2f} ({q['min']:.2f} to {q['max']:.2f})" if q else "" for q in ratios)]
            out.append(f"| {' | '.join(cells)} |")
    return out


def gain(r):
    out = [f"**Quality at equal bytes**: mean KL to the full cache in nats over its own greedy answers, on prompts that the "
           f"profile has not seen (LongBench), with 95 % intervals over prompts; {cpus_of(r['models'].values())}; `bench/policy_gain.py`.", "",
           "![KL to the full cache against budget](bench/results/policy_gain.svg)"]
    for name, m in r["models"].items():
        budgets = list(dict.fromkeys(b for by in m["summary"].values() for b in by))
        out += ["", f"{name}, {len(m['prompts'])} prompts of {m['settings']['tokens']} tokens, profile of "
                f"{len(m['calibration'])} others:", "", "| policy | " + " | ".join(budgets) + " |",
                "|---" * (1 + len(budgets)) + "|"]
        for policy, by in m["summary"].items():
            cells = (f"{by[b]['mean']:.3f} ({by[b]['mean_95'][0]:.3f} to {by[b]['mean_95'][1]:.3f})" if b in by else ""
                     for b in budgets)
            out.append(f"| {policy} | " + " | ".join(cells) + " |")
        beside = {b: c["beside ripple"] for b, c in m["summary"].get("curve", {}).items() if "beside ripple" in c}
        if beside:
            out += ["", "curve's KL over ripple's: " + ", ".join(
                f"{c['mean_ratio']:.2f} ({c['mean_ratio_95'][0]:.2f} to {c['mean_ratio_95'][1]:.2f}) at {b}, less on "
                f"{c['wins']} of {c['of']} prompts" for b, c in beside.items()) + "."]
    return out


def significant(c):
    """Both tests agree: the interval of the mean difference leaves 0 out, and so does the sign test."""
    return c["low"] * c["high"] > 0 and c["p"] < 0.05


def reference(r):
    """LongBench by rkv eval: divergence and score of every policy, and what of it counts beside ripple."""
    out = ["**LongBench by `rkv eval`**: KL to the full cache in nats, with 95 % intervals over samples, and LongBench's "
           f"score (plain mean over 16 tasks), protocol Q; {r['cpu']}; `bench/reference.py`. An asterisk: another divergence "
           "than ripple's at the same budget, by the paired interval of the mean and by the sign test."]
    for name, m in r["models"].items():
        for part, v in m["parts"].items():
            if not part.startswith("longbench"):
                continue
            cells, full = {}, None
            for p in v["policies"]:
                if p["policy"] == "full":
                    full = p
                    continue
                star = any(significant(c) for c in v["comparisons"] if c["what"] == "kl" and
                           (c["policy"], c["budget"]) == (p["policy"], p["budget"]))
                cells.setdefault(p["policy"], {})[p["budget"]] = (
                    f"{p['kl']:.3f}{'*' if star else ''} ({p['kl_low']:.3f} to {p['kl_high']:.3f}); {p['average16']:.1f}")
            budgets = list(dict.fromkeys(p["budget"] for p in v["policies"] if p["policy"] != "full"))
            out += ["", f"{name}, {part}: {v['samples']} samples of up to {v['max_length']:,} tokens, profile of "
                    f"{len(m['calibration'])} others; full cache: score {full['average16']:.1f}.", "",
                    "| policy | " + " | ".join(budgets) + " |", "|---" * (1 + len(budgets)) + "|"]
            out += [f"| {policy} | " + " | ".join(by.get(b, "") for b in budgets) + " |" for policy, by in cells.items()]
            scores = [f"{c['policy']} at {c['budget']} ({c['mean']:+.1f})" for c in v["comparisons"]
                      if c["what"] == "score" and significant(c)]
            out += ["", "Scores that differ from ripple's by both tests: " + (", ".join(scores) or "none; so few samples of so "
                    "small a model say little about scores") + "."]
    return out


def lead(r):
    """How much closer curve is to the full cache than ripple, at 10 % and equal bytes."""
    said = []
    for name, m in r["models"].items():
        c = m["summary"].get("curve", {}).get("10%", {}).get("beside ripple")
        if c:
            low, high = (1 / x for x in reversed(c["mean_ratio_95"]))
            said.append(f"{name} {1 / c['mean_ratio']:.1f} ({low:.1f} to {high:.1f})")
    return ("At 10 % of the cache, on prompts that the profile has not seen, `curve` lies so many times closer to the full "
            "cache than RippleKV's rule (mean KL, with 95 % intervals; prompts of 1,500 tokens where nothing is said): "
            + ", ".join(said) + ".")


def main():
    parts = [f(r) for f, r in ((quickstart, load("quickstart")), (gain, load("policy_gain")),
                               (reference, load("reference")), (accuracy, load("accuracy")),
                               (study, load("profile_study")), (sweep, load("sweep_cost")),
                               (early_stop, load("early_stop")), (kills, load("kills")), (compare, load("compare")),
                               (lambda r: compare(r, "speed_avx512"), load("compare_avx512"))) if r]
    text = "\n\n".join("\n".join(p) for p in parts)
    readme = HERE.parent / "README.md"
    old = readme.read_text(encoding="utf-8")
    if load("policy_gain"):
        old = re.sub(r"(<!-- lead -->\n).*(<!-- end of lead -->)",
                     lambda m: m[1] + lead(load("policy_gain")) + "\n" + m[2], old, flags=re.S)
    new = re.sub(r"(<!-- results -->\n).*(<!-- end of results -->)", lambda m: m[1] + text + "\n" + m[2], old,
                 flags=re.S)
    readme.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
