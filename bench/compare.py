#!/usr/bin/env python3
"""rkv beside llama.cpp on the same GGUF files: prefill and decode, alternately in one run.

Every round runs each test once with either program (one process per measurement, order swapped from
round to round), so that what else the machine does meets both. Reports medians, the spread, and the
median of the rounds' ratios; writes JSON.

    bench/compare.py --llama-bench PATH -o bench/results/compare.json NAME=MODEL.gguf ...
"""
import argparse
import json
import os
import statistics
import subprocess

from machine import cpu_name

# name: (options of both, options of rkv alone, options of llama-bench alone)
TESTS = {
    "prefill 2048": (["-p", "2048", "-n", "0"], [], []),
    "prefill 8192": (["-p", "8192", "-n", "0"], [], []),
    "decode at 0": (["-p", "0", "-n", "48"], [], []),
    "decode at 8192": (["-p", "0", "-n", "32", "-d", "8192"], [], []),
    "decode at 8192, snapkv 10% against full": (["-p", "0", "-n", "32", "-d", "8192"],
                                                ["--kv-policy", "snapkv", "--kv-budget", "10%"], []),
}


def measure(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False,
                          env={**os.environ, "OMP_WAIT_POLICY": "passive"})
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr[-500:]}")
    return json.loads(done.stdout)[0]


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "values": values}


def compare(a, path, test):
    both, ours, theirs = TESTS[test]
    common = ["-m", path, "-r", "1", "-t", str(a.threads), "-o", "json", *both]
    programs = {"rkv": [a.rkv, "bench", *common, *ours],
                "llama.cpp": [a.llama_bench, *common, "-ngl", "0", "-fa", "on", *theirs]}
    rates, rows = {p: [] for p in programs}, {}
    for i in range(a.rounds):
        for p in sorted(programs, reverse=i % 2 == 1):
            rows[p] = measure(programs[p])
            rates[p].append(rows[p]["avg_ts"])
    ratios = [x / y for x, y in zip(rates["rkv"], rates["llama.cpp"])]
    row = {"test": test, "rkv": spread(rates["rkv"]), "llama.cpp": spread(rates["llama.cpp"]),
           "ratio": spread(ratios), "kv_bytes": rows["rkv"]["kv_bytes"], "peak_rss": rows["rkv"]["peak_rss"],
           "model_size": rows["rkv"]["model_size"]}
    print(f"  {test:42} rkv {row['rkv']['median']:8.1f}  llama.cpp {row['llama.cpp']['median']:8.1f}  ratio "
          f"{row['ratio']['median']:.2f} ({min(ratios):.2f} to {max(ratios):.2f})", flush=True)
    return row


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rkv", default="build/rkv")
    p.add_argument("--llama-bench", required=True)
    p.add_argument("-o", "--output")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--tests", nargs="+", choices=TESTS, default=list(TESTS), metavar="TEST",
                   help="; ".join(TESTS))
    p.add_argument("models", nargs="+", metavar="NAME=MODEL.gguf")
    a = p.parse_args()
    version = subprocess.run([a.llama_bench, "--version"], capture_output=True, text=True, check=False)
    out = {"command": "bench/compare.py --llama-bench LLAMA -o bench/results/compare.json NAME=MODEL...",
           "cpu": cpu_name(), "threads": a.threads, "rounds": a.rounds,
           "rkv": subprocess.run([a.rkv, "--version"], capture_output=True, text=True, check=True).stdout.strip(),
           "llama.cpp": (version.stdout + version.stderr).strip().splitlines()[0], "models": {}}
    for entry in a.models:
        name, path = entry.split("=", 1)
        print(name, flush=True)
        out["models"][name] = [compare(a, path, t) for t in a.tests]
        if a.output:
            with open(a.output, "w", encoding="utf-8") as f:
                json.dump(out, f, indent=1)
                f.write("\n")


if __name__ == "__main__":
    main()
