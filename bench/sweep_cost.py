#!/usr/bin/env python3
"""What a calibration example costs beyond its prompt, in prefills of the same prompt: the sweep with
one noise seed and with four, estimated curves of all KV heads, and measured ones.

    bench/sweep_cost.py --rkv build/rkv --data LONGBENCH -o bench/results/sweep_cost.json NAME=MODEL.gguf ...

Every row is a run of rkv profile of one example whose greedy answer has as many tokens as asked for.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import tempfile

import library
import prompts
from machine import cpu_name

TASKS = ("gov_report", "narrativeqa", "qmsum", "musique")       # long ones, to be continued
RUNS = {        # name: options
    "1 seed": ["--noise-seeds", "1", "--signals", "values"],
    "1 seed, estimated curves": ["--noise-seeds", "1", "--signals", "values,curves"],
    "4 seeds": ["--noise-seeds", "4", "--signals", "values"],
    "4 seeds, estimated curves": ["--noise-seeds", "4", "--signals", "values,curves"],
    "1 seed, measured head curves of 10 tokens": ["--noise-seeds", "1", "--signals", "values,head-curves",
                                                  "--response", "10"],
}
LINE = re.compile(r"prompt (\d+) tokens, prefill ([\d.]+) s, answer of (\d+) tokens ([\d.]+) s, sweep ([\d.]+) s")


def run(a, path, data, options):
    """Seconds of one example."""
    done = subprocess.run([a.rkv, "profile", "-v", "-m", path, "--data", data, "--examples", "1", *options,
                           "-o", data + ".json"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
                          check=True)
    n, prefill, answer, decode, sweep = map(float, LINE.search(done.stderr).groups())
    return {"prompt_tokens": int(n), "answer_tokens": int(answer), "prefill_s": prefill, "answer_s": decode,
            "sweep_s": sweep, "sweep_prefills": sweep / prefill, "all_prefills": (prefill + decode + sweep) / prefill}


def usable(a, path, data, lines):
    """Writes the first prompt whose answer is long enough; its text."""
    for text in lines:
        pathlib.Path(data).write_text(text + "\n", encoding="utf-8")
        if run(a, path, data, RUNS["1 seed"])["answer_tokens"] == a.answer:
            return
    raise SystemExit(f"sweep_cost: {path}: no prompt has an answer of {a.answer} tokens")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rkv", default="build/rkv")
    p.add_argument("--data", required=True, help="folder of LongBench files")
    p.add_argument("-o", "--output", required=True)
    p.add_argument("--tokens", type=int, default=8192 - 32, help="of the prompt")
    p.add_argument("--answer", type=int, default=32)
    p.add_argument("--times", type=int, default=1, help="runs of each kind; medians count")
    p.add_argument("models", nargs="+", metavar="NAME=MODEL.gguf")
    a = p.parse_args()
    lib = library.find(a.rkv)
    out = {"command": "bench/sweep_cost.py --data LONGBENCH -o bench/results/sweep_cost.json NAME=MODEL...",
           "cpu": cpu_name(), "cpus": len(os.sched_getaffinity(0)), "version": lib.lib.rkv_version().decode(),
           "models": {}}
    for entry in a.models:
        name, path = entry.split("=", 1)
        model = library.Model(lib, path)
        samples = prompts.in_turns(prompts.load(a.data, TASKS))
        lines = [json.dumps({"prompt_ids": i}) for s in samples if (i := prompts.prompt_ids(model, s, a.tokens, True))]
        model.close()
        rows = {kind: [] for kind in RUNS}
        with tempfile.TemporaryDirectory() as work:
            data = f"{work}/example.jsonl"
            usable(a, path, data, lines)
            for _ in range(a.times):
                for kind, options in RUNS.items():
                    rows[kind].append(run(a, path, data, options))
        out["models"][name] = {"file": pathlib.Path(path).name, "tokens": a.tokens, "runs": {
            kind: {"runs": r, "sweep_prefills": statistics.median(x["sweep_prefills"] for x in r),
                   "all_prefills": statistics.median(x["all_prefills"] for x in r)} for kind, r in rows.items()}}
        for kind, r in out["models"][name]["runs"].items():
            print(f"{name}: {kind}: sweep {r['sweep_prefills']:.2f}, all {r['all_prefills']:.2f} prefills", flush=True)
        with open(a.output, "w", encoding="utf-8") as f:
            json.dump(out, f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
