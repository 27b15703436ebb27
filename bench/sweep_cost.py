#!/usr/bin/env python3
"""Cost of the one-pass sweep in prefills of the same prompt, per calibration example.

    bench/sweep_cost.py --rkv build/rkv --model MODEL.gguf -o bench/results/sweep_cost.json
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import tempfile

from machine import cpu_name

DATA = pathlib.Path(__file__).resolve().parent.parent / "tools" / "quickstart-data" / "calibration.jsonl"
LINE = re.compile(r"example (\d+): prompt (\d+) tokens, prefill ([\d.]+) s, answer of (\d+) tokens ([\d.]+) s, "
                  r"sweep ([\d.]+) s")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rkv", default="build/rkv")
    p.add_argument("--model", required=True)
    p.add_argument("-o", "--output", required=True)
    p.add_argument("--examples", default="6")
    p.add_argument("--noise-seeds", default=["1", "4"], nargs="+")
    a = p.parse_args()
    out = {"command": "bench/sweep_cost.py --model MODEL -o bench/results/sweep_cost.json", "cpu": cpu_name(),
           "cpus": len(os.sched_getaffinity(0)), "model": pathlib.Path(a.model).name, "noise_seeds": {}}
    with tempfile.TemporaryDirectory() as work:
        for seeds in a.noise_seeds:
            done = subprocess.run([a.rkv, "profile", "-v", "-m", a.model, "--data", DATA, "--examples", a.examples,
                                   "--noise-seeds", seeds, "-o", f"{work}/{seeds}.json"],
                                  stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, check=True)
            rows = [dict(zip(("example", "prompt_tokens", "prefill_s", "answer_tokens", "answer_s", "sweep_s"),
                             map(float, m.groups()))) for m in LINE.finditer(done.stderr)]
            costs = [r["sweep_s"] / r["prefill_s"] for r in rows]
            out["noise_seeds"][seeds] = {"examples": rows, "median_prefills": statistics.median(costs),
                                         "least": min(costs), "most": max(costs)}
            print(f"{seeds} noise seeds: {statistics.median(costs):.2f} prefills per example "
                  f"({min(costs):.2f} to {max(costs):.2f}), {len(rows)} examples")
    with open(a.output, "w", encoding="utf-8") as f:
        json.dump(out, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
