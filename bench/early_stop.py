#!/usr/bin/env python3
"""What --until-stable saves: examples that a profile took before it was sure of the budgets, beside a fixed
number of them, and how far the budgets of the two lie apart.

    bench/early_stop.py --rkv build/rkv --data LONGBENCH -o bench/results/early_stop.json NAME=MODEL.gguf ...
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
import library                                                  # noqa: E402
import prompts                                                  # noqa: E402
from machine import cpu_name                                    # noqa: E402
from policy import ripple_weights                               # noqa: E402


def measure(a, lib, path):
    model = library.Model(lib, path)
    lines = [ids for s in prompts.in_turns(prompts.load(a.data)) if (ids := prompts.prompt_ids(model, s, a.tokens))]
    model.close()
    with tempfile.TemporaryDirectory() as work:
        data = pathlib.Path(work) / "data.jsonl"
        data.write_text("".join(json.dumps({"prompt_ids": ids}) + "\n" for ids in lines), encoding="utf-8")
        profiles = []
        for more in (["--until-stable"], []):       # the second goes on from what the first has kept
            out = pathlib.Path(work) / "profile.json"
            subprocess.run([a.rkv, "profile", "-m", path, "--data", data, "--examples", str(a.examples), "--signals",
                            "values", "--noise-seeds", str(a.noise_seeds), "--resume", f"{work}/parts", *more, "-o",
                            out], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            profiles.append(json.loads(out.read_text(encoding="utf-8")))
    means = [np.array([e["mean"] for e in p["sensitivity"]]) for p in profiles]
    tried = [sum(p["examples"][k] for k in ("used", "skipped_short_answer", "skipped_long_prompt")) for p in profiles]
    apart = np.abs(ripple_weights(means[0]) - ripple_weights(means[1]))
    return {"file": pathlib.Path(path).name, "prompt_tokens": a.tokens, "noise_seeds": a.noise_seeds,
            "examples": [p["examples"]["used"] for p in profiles], "tried": tried,
            "widest_budget": [p["diagnostics"]["widest_budget"] for p in profiles],
            "work": tried[0] / tried[1], "largest_budget_change": float(apart.max()),
            "mean_budget_change": float(apart.mean())}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rkv", default="build/rkv")
    p.add_argument("--data", required=True, help="folder of LongBench files")
    p.add_argument("-o", "--output", required=True)
    p.add_argument("--tokens", type=int, default=1000, help="of a prompt")
    p.add_argument("--examples", type=int, default=64, help="the fixed number")
    p.add_argument("--noise-seeds", type=int, default=4)
    p.add_argument("models", nargs="+", metavar="NAME=MODEL.gguf")
    a = p.parse_args()
    lib = library.find(a.rkv)
    out = {"command": "bench/early_stop.py --data LONGBENCH -o bench/results/early_stop.json NAME=MODEL...",
           "cpu": cpu_name(), "cpus": len(os.sched_getaffinity(0)), "version": lib.lib.rkv_version().decode(),
           "models": {}}
    for entry in a.models:
        name, path = entry.split("=", 1)
        r = out["models"][name] = measure(a, lib, path)
        print(f"{name}: {r['examples'][0]} examples, {r['work']:.2f} of the work of {r['examples'][1]}; budgets at most "
              f"{100 * r['largest_budget_change']:.1f} % of the mean apart", flush=True)
        pathlib.Path(a.output).write_text(json.dumps(out, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
