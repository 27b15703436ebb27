#!/usr/bin/env python3
"""rkv beside its peers on the same GGUF files: prefill and decode, alternately in one run.

Every round runs each test once with every program (one process per measurement, order turned from
round to round), so that what else the machine does meets all. Reports medians, the spread, the
median of the rounds' ratios, and the share of the machine's ceilings (bench_ceilings): of the bytes
per second read in decode, of the multiply-adds in prefill. Writes JSON; models that the file holds
already, measured here by the same versions, stay.

    bench/compare.py --llama-bench PATH [--openvino PYTHON] -o bench/results/compare.json NAME=MODEL.gguf ...

--openvino: a Python with openvino_genai (it loads GGUF files of the types Q8_0, Q4_0, Q4_1, F16).
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess

from machine import cpu_name

HERE = pathlib.Path(__file__).resolve().parent
OURS = {"rkv": [], "rkv snapkv 10%": ["--kv-policy", "snapkv", "--kv-budget", "10%"]}
# name: (tokens of prompt, tokens of answer, depth, programs of ours)
TESTS = {
    "prefill 512": (512, 0, 0, ["rkv"]),
    "prefill 2048": (2048, 0, 0, ["rkv", "rkv snapkv 10%"]),
    "prefill 8192": (8192, 0, 0, ["rkv", "rkv snapkv 10%"]),
    "decode at 0": (0, 48, 0, ["rkv"]),
    "decode at 2048": (0, 32, 2048, list(OURS)),
    "decode at 4096": (0, 32, 4096, list(OURS)),
    "decode at 8192": (0, 32, 8192, list(OURS)),
}


def call(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False,
                          env={**os.environ, "OMP_WAIT_POLICY": "passive"})
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stderr[-500:]}")
    return json.loads(done.stdout)


def openvino(a, path, prompt, answer, depth):
    """Its own measure of one generation; decode after a prompt of the depth."""
    row = call([a.openvino, str(HERE / "openvino_bench.py"), path, str(prompt or depth or 1), str(max(answer, 2)),
                str(a.threads)])
    return {"avg_ts": row["prefill_ts" if prompt else "decode_ts"], "peak_rss": row["peak_rss"]}


def programs(a, path, test):
    """Name: a function that measures once."""
    prompt, answer, depth, ours = TESTS[test]
    common = ["-m", path, "-r", "1", "-t", str(a.threads), "-o", "json", "-p", str(prompt), "-n", str(answer),
              "-d", str(depth)]
    if max(prompt, depth) >= 2048:      # a long prompt is warm before its first chunk is done
        common.append("--no-warmup")
    out = {name: lambda more=OURS[name]: call([a.rkv, "bench", *common, *more])[0] for name in ours}
    if a.llama_bench:
        out["llama.cpp"] = lambda: call([a.llama_bench, *common, "-ngl", "0", "-fa", "on"])[0]
    if a.openvino:
        out["OpenVINO GenAI"] = lambda: openvino(a, path, prompt, answer, depth)
    return out


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "values": values}


def flops_per_token(m, prompt):
    """Of the layers' products and of causal attention; the head runs for one row only."""
    q, kv = m["n_head"] * m["d_head"], m["n_kv_head"] * m["d_head"]
    layer = 2 * m["d_model"] * (2 * q + 2 * kv + 3 * m["d_ff"])
    full, near = m["n_layer"] - m["n_layer_sliding"], m["n_layer_sliding"]
    seen = full * prompt / 2 + near * min(prompt / 2, m["sliding_window"])
    return m["n_layer"] * layer + 4 * q * seen


def share(a, m, test, rate, kv_bytes):
    """Of the ceiling that bounds this test."""
    prompt = TESTS[test][0]
    if prompt:
        return {"of": "multiply-adds", "share": rate * flops_per_token(m, prompt) / (1e9 * a.ceilings["fma_gflop_s"])}
    return {"of": "memory read", "share": rate * (m["step_bytes"] + kv_bytes) / (1e9 * a.ceilings["read_gb_s"])}


def compare(a, path, m, test):
    run = programs(a, path, test)
    rates, last = {p: [] for p in run}, {}
    for i in range(a.rounds):
        names = list(run)
        for p in names[i % len(names):] + names[:i % len(names)]:
            last[p] = run[p]()
            rates[p].append(last[p]["avg_ts"])
    ours = [p for p in run if p in OURS]
    row = {"test": test, "tokens_s": {p: spread(r) for p, r in rates.items()},
           "ratios": {f"{p} / {q}": spread([x / y for x, y in zip(rates[p], rates[q])])
                      for p in ours for q in run if q not in OURS},
           "kv_bytes": {p: last[p]["kv_bytes"] for p in ours},
           "peak_rss": {p: last[p]["peak_rss"] for p in run if "peak_rss" in last[p]},
           "ceiling": {p: share(a, m, test, statistics.median(rates[p]), last[p]["kv_bytes"]) for p in ours}}
    print(f"  {test:16}" + "".join(f"  {p} {statistics.median(r):.1f}" for p, r in rates.items()))
    for name, r in row["ratios"].items():
        print(f"    {name}: {r['median']:.2f} ({r['min']:.2f} to {r['max']:.2f})")
    for p, c in row["ceiling"].items():
        print(f"    {p}: {100 * c['share']:.0f} % of {c['of']}", flush=True)
    return row


def versions(a):
    out = {"rkv": subprocess.run([a.rkv, "--version"], capture_output=True, text=True, check=True).stdout.strip()}
    if a.llama_bench:
        done = subprocess.run([a.llama_bench, "--version"], capture_output=True, text=True, check=False)
        out["llama.cpp"] = (done.stdout + done.stderr).strip().splitlines()[0]
    if a.openvino:
        code = "import openvino_genai as g; print(g.__version__)"
        out["OpenVINO GenAI"] = subprocess.run([a.openvino, "-c", code], capture_output=True, text=True,
                                               check=True).stdout.strip()
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rkv", default="build/rkv")
    p.add_argument("--ceilings", default="build/bench_ceilings", help="the built program")
    p.add_argument("--llama-bench")
    p.add_argument("--openvino", metavar="PYTHON")
    p.add_argument("-o", "--output")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--tests", nargs="+", choices=TESTS, default=list(TESTS), metavar="TEST",
                   help="; ".join(TESTS))
    p.add_argument("models", nargs="+", metavar="NAME=MODEL.gguf")
    a = p.parse_args()
    out = {"command": "bench/compare.py --llama-bench LLAMA -o bench/results/compare.json NAME=MODEL...",
           "cpu": cpu_name(), "threads": a.threads, "versions": versions(a), "models": {}}
    if a.output and os.path.exists(a.output):
        with open(a.output, encoding="utf-8") as f:
            old = json.load(f)
        if all(old[k] == out[k] for k in ("cpu", "threads", "versions")):
            out["models"] = old["models"]
    a.ceilings = call([a.ceilings, str(a.threads)])
    for entry in a.models:
        name, path = entry.split("=", 1)
        print(name, flush=True)
        m = call([a.rkv, "inspect", "-m", path, "--json"])["model"]
        old = out["models"].get(name, {"tests": []})["tests"]
        rows = [compare(a, path, m, t) for t in a.tests]
        kept = [r for r in old if r["test"] not in a.tests]
        out["models"][name] = {"quantization": m["quantization"], "file_bytes": m["file_bytes"],
                               "rounds": a.rounds, "ceilings": a.ceilings,
                               "tests": sorted(kept + rows, key=lambda r: list(TESTS).index(r["test"]))}
        if a.output:
            with open(a.output, "w", encoding="utf-8") as f:
                json.dump(out, f, indent=1)
                f.write("\n")


if __name__ == "__main__":
    main()
