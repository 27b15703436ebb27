#!/usr/bin/env python3
"""What policies cost in quality: mean KL to the full cache over the full cache's own greedy answer, at
several budgets, on prompts that the profile has not seen.

For each model: a profile from calibration prompts (rkv profile), then every held-out prompt is taken in
once and a copy is compressed for each policy and budget. All numbers of every prompt are kept, so that
statistics can be made again; a second start goes on where the first one ended. Needs numpy.

    bench/policy_gain.py --rkv build/rkv --data LONGBENCH -o bench/results/policy_gain.json NAME=MODEL.gguf ...
"""
import argparse
import hashlib
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests" / "ref"), str(HERE)]

import numpy as np                                              # noqa: E402
import library                                                  # noqa: E402
import prompts                                                  # noqa: E402
from machine import cpu_name                                    # noqa: E402
from sweep import kl                                            # noqa: E402

LEAST_ANSWER = 8
FULL = "full-check"
# name here: the command's options
POLICIES = {
    "snapkv": {"kv-policy": "snapkv"},
    "h2o": {"kv-policy": "h2o"},
    "observed": {"kv-policy": "observed"},
    "ripple": {"kv-policy": "ripple", "r": "1.5"},
    "blend": {"kv-policy": "blend:uniform"},
    "curve": {"kv-policy": "blend:curve", "kv-curves": "estimated", "kv-unit": "head"},
    "curve by layer": {"kv-policy": "blend:curve", "kv-curves": "measured", "kv-unit": "layer"},
    "curve measured": {"kv-policy": "blend:curve", "kv-curves": "measured", "kv-unit": "head"},
    "root": {"kv-policy": "blend:root", "kv-curves": "estimated", "kv-unit": "head"},
}
SIGNALS = "values,curves,layer-curves"


def member(option, value):
    """A command's option as a member of rkv_policy and its value."""
    return {"r": lambda v: ("ratio", float(v)),
            "kv-curves": lambda v: ("curves_measured", int(v == "measured")),
            "kv-unit": lambda v: ("unit_layers", int(v == "layer"))}[option](value)


def words(text):
    return [w.strip() for w in text.split(",")]


def rkv(a, *options):
    done = subprocess.run([a.rkv, *map(str, options)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise library.Failed(f"rkv {options[0]}: {done.stderr.strip()}")
    return done.stdout


def settings_of(a):
    return {"tokens": a.tokens, "calibration": a.calibration, "split": a.split, "answer_tokens": a.answer,
            "noise_seeds": a.noise_seeds, "signals": a.signals, "budgets": a.budgets, "tasks": a.tasks}


def profile_of(a, model, path, samples, name):
    """A profile file, the ids of its samples, and the signals it could not have."""
    chosen, held = prompts.split(samples, a.calibration, a.split == "tasks")
    lines = [(s, prompts.prompt_ids(model, s, a.tokens)) for s in chosen]
    lines = [(s["id"], json.dumps({"prompt_ids": ids})) for s, ids in lines if ids]
    key = hashlib.sha256(json.dumps([settings_of(a), model.fingerprint, lines]).encode()).hexdigest()[:12]
    out, plain, data = (a.work / f"{name}-{key}{end}" for end in (".json", "-values.json", ".jsonl"))
    data.write_text("\n".join(text for _, text in lines) + "\n", encoding="utf-8")
    base = ["profile", "-m", path, "--data", data, "--response", a.answer, "--noise-seeds", a.noise_seeds]
    missing, began = [], time.time()
    try:
        if not out.exists():
            rkv(a, *base, "-o", out, "--signals", a.signals, "--resume", a.work / f"{name}-{key}.parts")
    except library.Failed as e:
        if "unknown option" not in str(e):
            raise
        missing, out = [str(e)], plain          # a build that measures sensitivity alone
        if not out.exists():
            rkv(a, *base, "-o", out)
    print(f"  profile of {len(lines)} prompts: {time.time() - began:.0f} s", flush=True)
    return out, [i for i, _ in lines], held, missing


def policies_of(a, model, profile):
    """{(name, budget): policy}, and why the others cannot be."""
    out, refused = {}, {}
    for name in a.policies:
        options = POLICIES[name]
        try:
            fields = dict(member(o, v) for o, v in options.items() if o != "kv-policy")
            for budget in a.budgets:
                out[name, budget] = model.policy(options["kv-policy"], budget, profile, **fields)
        except library.Failed as e:
            refused[name] = str(e)
    out[FULL, "100%"] = model.policy("snapkv", "100%")
    return out, refused


def measure(a, model, sample, policies, refused):
    """One held-out prompt: its row of the results, or why there is none."""
    ids = prompts.prompt_ids(model, sample, a.tokens)
    if not ids:
        return None, "short prompt"
    with model.session(len(ids) + a.answer + 1, policies.values(), a.threads) as full:
        full.prefill(ids)
        with full.fork() as s:
            answer = s.greedy(a.answer)
        if len(answer) < LEAST_ANSWER:
            return None, "short answer"
        with full.fork() as s:
            reference = s.rows(answer)
        row = {"id": sample["id"], "task": sample["task"], "prompt_tokens": len(ids), "answer_tokens": len(answer),
               "kl": {}, "kept": {}}
        for (name, budget), policy in policies.items():
            with full.fork() as s:
                try:
                    kept = s.compress(policy)
                except library.Failed as e:     # such as a floor that does not fit
                    refused[f"{name} at {budget}"] = str(e)
                    continue
                row["kl"].setdefault(name, {})[budget] = float(kl(reference, s.rows(answer)).mean())
                if row["kept"].setdefault(budget, kept) != kept:
                    raise library.Failed(f"{name} keeps {kept} tokens at {budget}, others {row['kept'][budget]}")
    if row["kl"].pop(FULL)["100%"] != 0.0:
        raise library.Failed(f"{sample['id']}: a budget of 100 % does not give the bits of the full cache")
    del row["kept"]["100%"]
    if a.check:
        check_command(a, model, row, ids, answer)
        a.check -= 1
    return row, None


def check_command(a, model, row, ids, answer):
    """The same numbers from rkv score, which takes the prompt in for each."""
    with tempfile.TemporaryDirectory() as work:
        path = pathlib.Path(work) / "ids.json"
        path.write_text(json.dumps(ids + answer), encoding="utf-8")
        for name, by_budget in row["kl"].items():
            options = [w for option, value in POLICIES[name].items() for w in ("--" + option, value)]
            budget, mine = next(iter(by_budget.items()))
            got = json.loads(rkv(a, "score", "-m", a.model_path, "--ids", path, "--prefix", len(ids), *options,
                                 "--kv-budget", budget, "--kv-profile", a.profile_path))["mean_kl"]
            if not abs(got - mine) <= 1e-9 + 1e-6 * mine:
                raise library.Failed(f"{row['id']}: {name} at {budget}: {mine}, by rkv score {got}")
            print(f"  {row['id']}: {name} at {budget}: rkv score agrees ({got:.6f})", flush=True)


def interval(values, statistic=np.mean, n=2000):
    """95 % interval of a statistic over prompts drawn again with replacement, from a fixed seed."""
    values = np.asarray(values)
    pick = np.random.default_rng(0).integers(0, len(values), (n, len(values)))
    return np.percentile([statistic(values[p]) for p in pick], [2.5, 97.5]).tolist()


def paired(mine, other):
    """One policy beside another on the same prompts: wins, and the ratio of mean KLs."""
    both = np.array([mine, other]).T
    ratio = lambda v: float(v[:, 0].mean() / max(v[:, 1].mean(), 1e-300))
    return {"wins": int((both[:, 0] < both[:, 1]).sum()), "ties": int((both[:, 0] == both[:, 1]).sum()),
            "of": len(both), "mean_ratio": ratio(both), "mean_ratio_95": interval(both, ratio),
            "median_ratio": float(np.median(both[:, 0] / np.maximum(both[:, 1], 1e-300)))}


def summarise(m, beside=("snapkv", "ripple")):
    """Means, intervals and paired comparisons, from the prompts' numbers alone."""
    out = {}
    for name in {n: 0 for r in m["prompts"] for n in r["kl"]}:
        for budget in {b: 0 for r in m["prompts"] for b in r["kl"].get(name, {})}:
            rows = [r["kl"] for r in m["prompts"] if budget in r["kl"].get(name, {})]
            x = [r[name][budget] for r in rows]
            cell = {"n": len(x), "mean": float(np.mean(x)), "mean_95": interval(x), "median": float(np.median(x)),
                    "standard_error": float(np.std(x, ddof=1) / math.sqrt(len(x))) if len(x) > 1 else None}
            for other in beside:
                pairs = [(r[name][budget], r[other][budget]) for r in rows if budget in r.get(other, {})]
                if other != name and pairs:
                    cell[f"beside {other}"] = paired(*map(list, zip(*pairs)))
            out.setdefault(name, {})[budget] = cell
    return out


def table(name, m):
    budgets = list(dict.fromkeys(b for by in m["summary"].values() for b in by))
    print(f"{name}: mean KL to the full cache, {len(m['prompts'])} prompts of {m['settings']['tokens']} tokens")
    print(f"  {'policy':18}" + "".join(f"{b:>28}" for b in budgets))
    for policy, by in m["summary"].items():
        cells = (f"{by[b]['mean']:.4f} ({by[b]['mean_95'][0]:.4f} to {by[b]['mean_95'][1]:.4f})" if b in by else ""
                 for b in budgets)
        print(f"  {policy:18}" + "".join(f"{c:>28}" for c in cells))
    for policy, why in m["refused"].items():
        print(f"  {policy:18} not measured: {why}")


def save(path, out):
    part = pathlib.Path(f"{path}.part")
    part.write_text(json.dumps(out, indent=1) + "\n", encoding="utf-8")
    os.replace(part, path)


def run_model(a, out, lib, name, path):
    model = library.Model(lib, path)
    key, settings = f"{name}" if a.split == "samples" else f"{name}, other tasks", settings_of(a)
    samples = prompts.load(a.data, a.tasks)
    a.model_path = path
    profile_path, calibration, held, missing = profile_of(a, model, path, samples, name)
    a.profile_path = profile_path
    m = out["models"].get(key)
    same = {"settings": settings, "fingerprint": model.fingerprint, "calibration": calibration}
    if not m or any(m[k] != v for k, v in same.items()):
        m = {"file": pathlib.Path(path).name, **same, "skipped": {}, "prompts": []}
    out["models"][key] = m
    profile = lib.made("rkv_profile_load", str(profile_path).encode())
    policies, unknown = policies_of(a, model, profile)
    infeasible = {k: v for k, v in m.get("refused", {}).items() if tuple(k.split(" at ")) in policies}
    m.update(tier=model.tier, cpu=cpu_name(), refused={**unknown, **infeasible}, missing_signals=missing)
    # A prompt that lacks a policy, as an earlier build did not know it, is measured again.
    wanted = {pair for pair in policies if pair[0] != FULL and " at ".join(pair) not in infeasible}
    m["prompts"] = [r for r in m["prompts"] if wanted <= {(n, b) for n, by in r["kl"].items() for b in by}]
    done = {r["id"] for r in m["prompts"]}
    for sample in held:
        if len(m["prompts"]) >= a.held_out:
            break
        if sample["id"] in done:
            continue
        began = time.time()
        row, why = measure(a, model, sample, policies, m["refused"])
        if row:
            row["seconds"] = round(time.time() - began, 1)
            m["prompts"].append(row)
            print(f"  {name} {len(m['prompts'])}/{a.held_out} {sample['id']}: {row['seconds']} s", flush=True)
        else:
            m["skipped"][sample["id"]] = why
        m["summary"] = summarise(m)
        save(a.output, out)
    m["summary"] = summarise(m)
    save(a.output, out)
    table(key, m)
    lib.lib.rkv_profile_free(profile)
    model.close()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rkv", default="build/rkv")
    p.add_argument("--data", required=True, help="folder of LongBench files")
    p.add_argument("-o", "--output", required=True)
    p.add_argument("--work", default="build/policy_gain", type=pathlib.Path, help="folder for profiles")
    p.add_argument("--tokens", type=int, default=1500, help="of each prompt, its middle cut out")
    p.add_argument("--calibration", type=int, default=15, help="prompts of the profile")
    p.add_argument("--held-out", type=int, default=15, help="prompts to measure")
    p.add_argument("--split", choices=("samples", "tasks"), default="samples",
                   help="held-out prompts are other samples, or of other tasks too")
    p.add_argument("--tasks", type=words, default=list(prompts.TASKS), metavar="TASK,...")
    p.add_argument("--answer", type=int, default=32, help="most answer tokens")
    p.add_argument("--budgets", type=words, default=["5%", "10%", "20%", "30%"], metavar="B,...")
    p.add_argument("--policies", type=words, default=[n for n in POLICIES if n != "curve measured"],
                   metavar="NAME,...", help=", ".join(POLICIES))
    p.add_argument("--signals", default=SIGNALS, help="of rkv profile (add head-curves for 'curve measured')")
    p.add_argument("--noise-seeds", type=int, default=1)
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--check", type=int, default=1, help="prompts whose numbers are compared with rkv score's")
    p.add_argument("--table", action="store_true", help="only the statistics and tables of a finished file")
    p.add_argument("models", nargs="*", metavar="NAME=MODEL.gguf")
    a = p.parse_args()
    if not set(a.policies) <= set(POLICIES):
        p.error(f"--policies: {a.policies}, expected some of {', '.join(POLICIES)}")
    a.work.mkdir(parents=True, exist_ok=True)
    out = {}
    if os.path.exists(a.output):
        with open(a.output, encoding="utf-8") as f:
            out = json.load(f)
    if a.table:
        for name, m in out["models"].items():
            m["summary"] = summarise(m)
            table(name, m)
        save(a.output, out)
        return
    lib = library.find(a.rkv)
    here = {"command": "bench/policy_gain.py --data LONGBENCH -o bench/results/policy_gain.json NAME=MODEL...",
            "version": lib.lib.rkv_version().decode()}
    if any(out.get(k) != v for k, v in here.items()):
        out = {**here, "models": {}}
    for entry in a.models:
        name, path = entry.split("=", 1)
        print(name, flush=True)
        run_model(a, out, lib, name, path)


if __name__ == "__main__":
    try:
        main()
    except library.Failed as e:
        sys.exit(f"policy_gain: {e}")
