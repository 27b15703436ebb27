#!/usr/bin/env python3
"""How far a profile can be trusted: rank agreement of the layers' sensitivities over domains, context
lengths, quantizations, and numbers of examples; and with the damage of compressing single layers, by
selector and budget.

Every part measures series of prompts by rkv profile, one example more in each call, and keeps the
numbers of every example. What is there is not measured again, so that parts can be run in pieces:

    bench/profile_study.py --rkv build/rkv --data LONGBENCH -o bench/results/profile_study.json \\
        --only domains --limit 600 NAME=MODEL.gguf ...

Parts: domains lengths selectors curves examples, and quantizations, which compares the models that are
given. curves: damage and the curves of all KV heads, estimated and measured, of --most examples.
--report makes the statistics again without measuring. Needs numpy.
"""
import argparse
import hashlib
import itertools
import json
import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests" / "ref"), str(HERE)]

import numpy as np                                              # noqa: E402
import library                                                  # noqa: E402
import prompts                                                  # noqa: E402
from curves import spearman                                     # noqa: E402
from machine import cpu_name                                    # noqa: E402
from policy import ripple_weights                               # noqa: E402

DOMAINS = ("qa", "code", "dialogue", "summaries", "few-shot")
POOL = 64               # samples of a series, of which the first usable ones count
SELECTORS = (("snapkv", "10%"), ("snapkv", "20%"), ("snapkv", "30%"), ("h2o", "10%"), ("observed", "10%"),
             ("blend", "5%"), ("blend", "10%"), ("blend", "20%"), ("blend", "30%"))
SIGNALS = ("sensitivity", "damage", "keys", "keys_values", "local")
ENOUGH = 0.95           # rank agreement with other examples at which more are not worth their time


class OutOfTime(Exception):
    pass


class Unknown(Exception):
    """Options that this build of the command does not take."""


def domain_samples(samples, domain):
    return prompts.in_turns({t: samples[t] for t in prompts.KINDS[domain]})


def mixed(samples):
    """One of each domain in turn."""
    return prompts.in_turns({d: domain_samples(samples, d) for d in DOMAINS})


def series_of(part, samples, a):
    """{name: (samples, tokens, tokens that a prompt must have before it is cut, examples, options)} that
    a part consists of, for one model."""
    if part == "domains":
        return {f"domain {d}": (domain_samples(samples, d), a.tokens, a.tokens, a.examples, []) for d in DOMAINS}
    if part == "lengths":       # the same samples, cut to every length
        return {f"length {n}": (mixed(samples), n, max(a.lengths), a.examples, []) for n in a.lengths}
    if part == "selectors":
        return {f"damage {s} {b}": (mixed(samples), a.tokens, a.tokens, a.examples,
                                    ["--signals", "values,damage", "--selector", s, "--damage-budget", b])
                for s, b in SELECTORS}
    if part == "curves":
        return {"damage blend 10% and curves": (mixed(samples), a.tokens, a.tokens, a.most,
                                                ["--signals", "values,damage,curves,head-curves"])}
    # the series of a mix of domains serves both parts that are left
    return {"mix": (mixed(samples), a.tokens, a.tokens, a.mix if part == "examples" else a.examples, [])}


class Meter:
    """Measures series of one model, one example at a time, into the results."""

    def __init__(self, a, out, name, path):
        self.a, self.out, self.name, self.path = a, out, name, path
        self.model = library.Model(library.find(a.rkv), path)
        help_text = subprocess.run([a.rkv, "profile", "--help"], capture_output=True, text=True, check=True).stdout
        # what is not looked at is not measured, by builds that could
        self.plain = ["--signals", "values"] if "--signals" in help_text else []
        entry = out["models"].get(name)
        if not entry or entry["fingerprint"] != self.model.fingerprint:
            entry = out["models"][name] = {"file": pathlib.Path(path).name, "fingerprint": self.model.fingerprint,
                                           "n_layer": self.model.n_layer, "series": {},
                                           "unknown": {}}
        self.series, self.unknown = entry["series"], entry["unknown"]

    def prompts_of(self, samples, tokens, least):
        """More than are wanted, for some may have answers that are too short; always the same."""
        found = [(s["id"], prompts.prompt_ids(self.model, s, tokens)) for s in samples[:POOL]
                 if prompts.prompt_ids(self.model, s, least)]
        if not found:
            raise library.Failed(f"no prompt has {least} tokens")
        return found

    def measure(self, name, samples, tokens, least, n, options):
        lines = self.prompts_of(samples, tokens, least)
        text = "\n".join(json.dumps({"prompt_ids": ids}) for _, ids in lines) + "\n"
        options = options or self.plain
        settings = {"tokens": tokens, "noise_seeds": self.a.noise_seeds, "options": options,
                    "prompts": hashlib.sha256(text.encode()).hexdigest()[:16]}
        old = self.series.get(name)
        if not old or old["settings"] != settings:
            old = self.series[name] = {"settings": settings, "tried": [], "examples": [], "prompt_s": [],
                                        "tier": self.model.tier, "cpu": cpu_name()}
        key = hashlib.sha256(f"{self.model.fingerprint} {settings}".encode()).hexdigest()[:12]
        data, profile = self.a.work / f"{key}.jsonl", self.a.work / f"{key}.json"
        data.write_text(text, encoding="utf-8")
        base = ["profile", "-m", self.path, "--data", data, "-o", profile, "--resume", self.a.work / f"{key}.parts",
                "--noise-seeds", self.a.noise_seeds, *options]
        before = self.total(old["examples"])
        while len(old["examples"]) < n and len(old["tried"]) < len(lines):
            self.one_more(name, old, lines, base, profile, before)
        print(f"  {self.name}: {name}: {len(old['examples'])} examples", flush=True)

    @staticmethod
    def total(examples):
        """Sums over examples, by signal."""
        return {s: np.sum([e[s] for e in examples], axis=0) for s in (examples[0] if examples else ()) if s != "id"}

    def one_more(self, name, old, lines, base, profile, before):
        """A call with one example more; its own numbers are what the sum over all grew by. It finds
        those before it in --resume."""
        if self.a.until and time.time() > self.a.until:
            raise OutOfTime
        at, began = len(old["tried"]), time.time()
        done = subprocess.run([self.a.rkv, *map(str, base), "--examples", str(at + 1)], capture_output=True, text=True,
                              check=False)
        short = "is usable" in done.stderr      # no example at all so far
        if done.returncode == 2 and not short:
            raise Unknown(done.stderr.strip())
        if done.returncode and not short:
            raise library.Failed(done.stderr.strip())
        old["tried"].append(lines[at][0])
        made = {} if short else json.loads(profile.read_text(encoding="utf-8"))
        used = made["examples"]["used"] if made else 0
        if used > len(old["examples"]):
            row = {"id": lines[at][0]}
            for signal in (s for s in SIGNALS if s in made):
                sums = used * np.array([e["mean"] for e in made[signal]])
                row[signal] = (sums - before.get(signal, 0)).tolist()
                before[signal] = sums
            old["examples"].append(row)
            old["layers"] = [e["layer"] for e in made["sensitivity"]]
            old["curves"] = {c["kind"]: {"grid": c["grid"], "damage": [u["damage"] for u in c["units"]]}
                             for c in made.get("curves", ()) if c["unit"] == "head"}
            old["prompt_s"].append(round(time.time() - began, 2))
        save(self.a.output, self.out)


def mean_of(series, signal="sensitivity"):
    rows = [e[signal] for e in series["examples"] if signal in e]
    return np.mean(rows, axis=0) if rows else None


def drawn(series, signal, rng):
    """The mean over as many examples, drawn again with replacement."""
    rows = np.array([e[signal] for e in series["examples"]])
    return rows[rng.integers(0, len(rows), len(rows))].mean(axis=0)


def agreement(x, y, x_signal="sensitivity", y_signal="sensitivity", n=500):
    """Spearman of two series' means, its 95 % interval over examples, and by how much the budgets of
    ripple differ at most, in units of the mean budget."""
    rng = np.random.default_rng(0)
    values = [spearman(drawn(x, x_signal, rng), drawn(y, y_signal, rng)) for _ in range(n)]
    mine, other = mean_of(x, x_signal), mean_of(y, y_signal)
    return {"spearman": spearman(mine, other), "spearman_95": np.nanpercentile(values, [2.5, 97.5]).tolist(),
            "largest_budget_change": float(np.abs(ripple_weights(mine) - ripple_weights(other)).max())}


def matrix(series, names):
    """Agreement of every pair; and of a series with itself: of its halves."""
    out = {}
    for x, y in itertools.combinations_with_replacement(names, 2):
        out[f"{x} / {y}"] = agreement(series[x], series[y]) if x != y else {"halves": halves(series[x])}
    return out


def halves(series, n=200):
    """Mean Spearman of the means over two disjoint halves of the examples."""
    rows, rng = np.array([e["sensitivity"] for e in series["examples"]]), np.random.default_rng(0)
    if len(rows) < 2:
        return None
    picks = [rng.permutation(len(rows)) for _ in range(n)]
    half = len(rows) // 2
    return float(np.mean([spearman(rows[p[:half]].mean(0), rows[p[half:2 * half]].mean(0)) for p in picks]))


def by_count(series, n=200):
    """Of k examples: mean Spearman of their mean with that of examples that are not among them, at
    least as many; the least of 95 % of the draws; and the change of a budget of ripple at most."""
    rows, rng, out = np.array([e["sensitivity"] for e in series["examples"]]), np.random.default_rng(0), {}
    for k in (k for k in (1, 2, 3, 4, 6, 8, 10, 12, 16, 24, 32) if 2 * k <= len(rows)):
        values, change = [], []
        for _ in range(n):
            p = rng.permutation(len(rows))
            mine, others = rows[p[:k]].mean(0), rows[p[k:]].mean(0)
            values.append(spearman(mine, others))
            change.append(np.abs(ripple_weights(mine) - ripple_weights(others)).max())
        out[str(k)] = {"spearman": float(np.mean(values)), "spearman_least_95": float(np.percentile(values, 5)),
                       "budget_change": float(np.mean(change))}
    enough = [int(k) for k, v in out.items() if v["spearman"] >= ENOUGH]
    return {"by_examples": out, "recommended": min(enough) if enough else None, "agreement_wanted": ENOUGH,
            "examples": len(rows)}


def by_chance(damage, n=1000):
    """Mean absolute Spearman of random orders of the layers with damage."""
    rng = np.random.default_rng(0)
    return float(np.mean([abs(spearman(rng.permutation(len(damage)).astype(float), damage)) for _ in range(n)]))


def damage_report(series, names):
    """How well sensitivity, local signal and layer index order the layers by measured damage."""
    out = {}
    for name in names:
        s = series[name]
        damage, index = mean_of(s, "damage"), np.array(s["layers"], float)
        if damage is None:
            continue
        out[name] = {"damage": damage.tolist(), "examples": len(s["examples"]),
                     "layer_index": spearman(index, damage), "random": by_chance(damage),
                     **{signal: agreement(s, s, signal, "damage") for signal in ("sensitivity", "local")
                        if mean_of(s, signal) is not None}}
    pairs = itertools.combinations(out, 2)
    between = {f"{x} / {y}": spearman(np.array(out[x]["damage"]), np.array(out[y]["damage"])) for x, y in pairs}
    return {"with_damage": out, "damage_between": between}


def curves_report(series):
    """Rank agreement of estimated with measured damage over all KV heads, by share of the prompt."""
    out = {}
    for name, s in series.items():
        estimated, measured = (s.get("curves", {}).get(kind) for kind in ("estimated", "measured"))
        if estimated and measured:
            out[name] = {str(share): spearman(*(np.array(c["damage"])[:, c["grid"].index(share)]
                                                for c in (estimated, measured)))
                         for share in measured["grid"] if share in estimated["grid"]}
    return out


def report(out):
    """All statistics, from the examples' numbers alone."""
    result = {}
    for name, m in out["models"].items():
        have = {n: s for n, s in m["series"].items() if s["examples"]}
        groups = {kind: [n for n in have if n.startswith(kind + " ")] for kind in ("domain", "length", "damage")}
        result[name] = {"domains": matrix(have, groups["domain"]), "lengths": matrix(have, groups["length"]),
                        "selectors": damage_report(have, groups["damage"]), "curves": curves_report(have)}
        if "mix" in have:
            result[name]["examples"] = by_count(have["mix"])
    mixes = {n: m["series"]["mix"] for n, m in out["models"].items()
             if m["series"].get("mix", {}).get("examples")}
    result["quantizations"] = {
        f"{x} / {y}": agreement(mixes[x], mixes[y]) for x, y in itertools.combinations(mixes, 2)
        if mixes[x]["layers"] == mixes[y]["layers"] and mixes[x]["tried"][:1] == mixes[y]["tried"][:1]}
    return result


def table(r):
    for name, m in r.items():
        pairs = m if name == "quantizations" else {**m["domains"], **m["lengths"]}
        print(name)
        for pair, v in pairs.items():
            if "spearman" in v:
                print(f"  {pair:44} {v['spearman']:.3f} ({v['spearman_95'][0]:.3f} to {v['spearman_95'][1]:.3f}), "
                      f"budgets within {v['largest_budget_change']:.3f}")
            elif v["halves"] is not None:
                print(f"  {pair:44} {v['halves']:.3f} of halves")
        for damage, v in m.get("selectors", {}).get("with_damage", {}).items():
            print(f"  {damage:44} " + ", ".join(f"{s} {v[s]['spearman']:.3f} ({v[s]['spearman_95'][0]:.3f} to {v[s]['spearman_95'][1]:.3f})" for s in ("sensitivity", "local") if s in v)
                  + f", layer index {v['layer_index']:.3f}, random {v['random']:.3f}, {v['examples']} examples")
        for series, v in m.get("curves", {}).items():
            print(f"  {series:44} estimated with measured curves: " +
                  ", ".join(f"{r:.3f} at {float(share):.0%}" for share, r in v.items()))
        for k, v in m.get("examples", {}).get("by_examples", {}).items():
            print(f"  {k + ' examples':44} {v['spearman']:.3f} with others, budgets within {v['budget_change']:.3f}")
        if "examples" in m:
            print(f"  examples recommended: {m['examples']['recommended'] or 'more than half of those measured'}")


def save(path, out):
    part = pathlib.Path(f"{path}.part")
    part.write_text(json.dumps(out, indent=1) + "\n", encoding="utf-8")
    os.replace(part, path)


def run(a, out, models):
    """Part by part, each for all models, so that an early end leaves whole comparisons."""
    samples = prompts.load(a.data)
    meters = [Meter(a, out, *entry.split("=", 1)) for entry in models]
    for part, meter in itertools.product(a.only, meters):
        for name, what in series_of(part, samples, a).items():
            try:
                meter.measure(name, *what)
            except Unknown as e:
                meter.unknown[name] = str(e)
                print(f"  {meter.name}: {name}: skipped: {e}", flush=True)
            else:
                meter.unknown.pop(name, None)


def main():
    parts = ("domains", "lengths", "selectors", "curves", "examples", "quantizations")
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rkv", default="build/rkv")
    p.add_argument("--data", help="folder of LongBench files")
    p.add_argument("-o", "--output", required=True)
    p.add_argument("--work", default="build/profile_study", type=pathlib.Path, help="folder for what is under way")
    p.add_argument("--only", type=lambda text: text.split(","), default=list(parts), metavar="PART,...",
                   help=", ".join(parts))
    p.add_argument("--limit", type=float, default=0, help="seconds after which no example is begun; 0: none")
    p.add_argument("--tokens", type=int, default=1500)
    p.add_argument("--lengths", type=lambda text: [int(n) for n in text.split(",")], default=[500, 1000, 2000, 4000],
                   metavar="N,...")
    p.add_argument("--examples", type=int, default=6, help="of each series")
    p.add_argument("--most", type=int, default=16, help="of the series with curves")
    p.add_argument("--mix", type=int, default=24, help="of the series that numbers of examples are drawn from")
    p.add_argument("--noise-seeds", type=int, default=4)
    p.add_argument("--report", action="store_true", help="only the statistics of a file")
    p.add_argument("models", nargs="*", metavar="NAME=MODEL.gguf")
    a = p.parse_args()
    if not set(a.only) <= set(parts):
        p.error(f"--only: {','.join(a.only)}, expected some of {', '.join(parts)}")
    if not a.report and not (a.data and a.models):
        p.error("name --data and models, or --report")
    a.until = time.time() + a.limit if a.limit else 0
    a.work.mkdir(parents=True, exist_ok=True)
    out = {}
    if os.path.exists(a.output):
        with open(a.output, encoding="utf-8") as f:
            out = json.load(f)
    if not a.report:
        version = subprocess.run([a.rkv, "--version"], capture_output=True, check=True).stdout.decode().split(",")[0]
        here = {"command": "bench/profile_study.py --data LONGBENCH -o bench/results/profile_study.json NAME=MODEL...",
                "version": version}
        if any(out.get(k) != v for k, v in here.items()):
            out = {**here, "models": {}}
        try:
            run(a, out, a.models)
        except OutOfTime:
            print("the time is over; the same command goes on", flush=True)
    out["report"] = report(out)
    save(a.output, out)
    table(out["report"])


if __name__ == "__main__":
    try:
        main()
    except library.Failed as e:
        sys.exit(f"profile_study: {e}")
