#!/usr/bin/env python3
"""rkv beside its peers on the same GGUF files: prefill and decode, alternately in one run.

Every round runs each test once with every program (one process per measurement, order turned from
round to round), so that what else the machine does meets all. Reports medians, the spread, the
median of the rounds' ratios, peak memory (for prefill beside what rkv planned before it began), and
the share of the machine's ceilings (bench_ceilings): of the bytes per second read in decode, of the
multiply-adds in prefill. Writes JSON; tests that the file holds already, measured on this machine by
the same versions, stay, so that a file can be made by several calls.

    bench/compare.py --llama-bench PATH [--openvino PYTHON] -o bench/results/compare.json NAME=MODEL.gguf ...

--openvino: a Python with openvino_genai (it loads GGUF files of the types Q8_0, Q4_0, Q4_1, F16; other
files go without it).
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from machine import cpu_name

HERE = pathlib.Path(__file__).resolve().parent
OURS = {"rkv": [], "rkv snapkv 10%": ["--kv-policy", "snapkv", "--kv-budget", "10%"]}
LLAMA, OPENVINO, EVICTION = "llama.cpp", "OpenVINO GenAI", "OpenVINO GenAI eviction 10%"
OPENVINO_TYPES = ("q8_0", "q4_0", "q4_1", "f16")
# name: (tokens of prompt, tokens of answer, depth, programs of ours)
TESTS = {
    "prefill 512": (512, 0, 0, ["rkv"]),
    "prefill 2048": (2048, 0, 0, list(OURS)),
    "prefill 8192": (8192, 0, 0, list(OURS)),
    "prefill 32768": (32768, 0, 0, list(OURS)),
    "decode at 0": (0, 48, 0, ["rkv"]),
    "decode at 2048": (0, 32, 2048, list(OURS)),
    "decode at 4096": (0, 32, 4096, list(OURS)),
    "decode at 8192": (0, 32, 8192, list(OURS)),
}
ON_REQUEST = ["prefill 32768"]          # a peer may take a quarter of an hour for it


class Failed(Exception):
    pass


def call(command):
    """The JSON that a command prints; its peak memory."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        p = subprocess.Popen(command, stdout=out, stderr=err, env={**os.environ, "OMP_WAIT_POLICY": "passive"})
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), err.seek(0)
        if p.returncode:
            lines = err.read().decode(errors="replace").strip().splitlines() or [f"exit {p.returncode}"]
            raise Failed(f"{' '.join(map(str, command))}: {lines[-1][-300:]}")
        return json.loads(out.read()), usage.ru_maxrss * 1024


def bench(command):
    """The one row of a program that prints llama-bench's fields."""
    rows, peak = call(command)
    return {**rows[0], "peak_rss": peak}


def openvino(a, path, test, keep=()):
    """Its own measure of one generation; decode after a prompt of the depth. keep: tokens that its eviction leaves."""
    prompt, answer, depth, _ = TESTS[test]
    row, peak = call([a.openvino, str(HERE / "openvino_bench.py"), path, str(prompt or depth or 1), str(answer or 1),
                      str(a.threads), *map(str, keep)])
    return {"avg_ts": row["prefill_ts" if prompt else "decode_ts"], "peak_rss": peak}


def programs(a, path, m, test):
    """Name: a function that measures once."""
    prompt, answer, depth, ours = TESTS[test]
    common = ["-m", path, "-r", "1", "-t", str(a.threads), "-o", "json", "-p", str(prompt), "-n", str(answer),
              "-d", str(depth)]
    if max(prompt, depth) >= 2048:      # a long prompt is warm before its first chunk is done
        common.append("--no-warmup")
    out = {name: lambda more=OURS[name]: bench([a.rkv, "bench", *common, *more]) for name in ours}
    if a.llama_bench:
        out[LLAMA] = lambda: bench([a.llama_bench, *common, "-ngl", "0", "-fa", "on"])
    if a.openvino and m["quantization"] in OPENVINO_TYPES:
        out[OPENVINO] = lambda: openvino(a, path, test)
        if depth:                       # it evicts once the prompt is read
            out[EVICTION] = lambda: openvino(a, path, test, [depth // 10])
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


def measure(a, run):
    """Rates of each program by round, its last row, and the peers that failed."""
    rates, last, without = {p: [] for p in run}, {}, {}
    for i in range(a.rounds):
        order = list(rates)
        for p in order[i % len(order):] + order[:i % len(order)]:
            try:
                last[p] = run[p]()
            except Failed as e:
                if p in OURS:
                    raise SystemExit(str(e)) from None
                print(f"    without {p}: {e}", file=sys.stderr)
                without[p] = str(e)
                del rates[p]
                continue
            rates[p].append(last[p]["avg_ts"])
    return rates, last, without


def best_ceilings(a):
    """The most the machine has shown in this run: what else it does can only lower a ceiling."""
    for k, v in call([a.ceilings_program, str(a.threads)])[0].items():
        a.ceilings[k] = max(a.ceilings.get(k, v), v) if isinstance(v, (int, float)) else v


def compare(a, path, m, test):
    best_ceilings(a)
    rates, last, without = measure(a, programs(a, path, m, test))
    ours = [p for p in rates if p in OURS]
    row = {"test": test, "rounds": a.rounds, "ceilings": dict(a.ceilings), "tokens_s": {p: spread(r) for p, r in rates.items()},
           "ratios": {f"{p} / {q}": spread([x / y for x, y in zip(rates[p], rates[q])])
                      for p in ours for q in rates if q not in OURS},
           "kv_bytes": {p: last[p]["kv_bytes"] for p in ours},
           "peak_rss": {p: last[p]["peak_rss"] for p in rates},
           "ceiling": {p: share(a, m, test, statistics.median(rates[p]), last[p]["kv_bytes"]) for p in ours}}
    if TESTS[test][0]:                  # all allocations, and the file's mapping where the weights stay in it
        row["plan"] = {p: last[p]["plan_bytes"] + (0 if last[p]["load"] == "memory" else m["file_bytes"]) for p in ours}
    if without:
        row["without"] = sorted(without)
    report(row)
    return row


def report(row):
    print(f"  {row['test']:16}" + "".join(f"  {p} {r['median']:.1f}" for p, r in row["tokens_s"].items()))
    for name, r in row["ratios"].items():
        print(f"    {name}: {r['median']:.2f} ({r['min']:.2f} to {r['max']:.2f})")
    for p, c in row["ceiling"].items():
        print(f"    {p}: {100 * c['share']:.0f} % of {c['of']}")
    for p, peak in row["peak_rss"].items():
        plan = f", planned {row['plan'][p] / 2**20:.0f}" if p in row.get("plan", {}) else ""
        print(f"    {p}: peak {peak / 2**20:.0f} MiB{plan}", flush=True)


def versions(a):
    out = {"rkv": subprocess.run([a.rkv, "--version"], capture_output=True, text=True, check=True).stdout.strip()}
    if a.llama_bench:
        done = subprocess.run([a.llama_bench, "--version"], capture_output=True, text=True, check=False)
        out[LLAMA] = (done.stdout + done.stderr).strip().splitlines()[0]
    if a.openvino:
        code = "import openvino_genai as g; print(g.__version__)"
        out[OPENVINO] = subprocess.run([a.openvino, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    return out


def resume(out, old):
    """Takes over the models of an older result if it is of this machine and these programs; peers may be absent in one
    of the two."""
    mine, theirs = out["versions"], old["versions"]
    if any(old[k] != out[k] for k in ("cpu", "threads")) or any(theirs[p] != v for p, v in mine.items() if p in theirs):
        return
    out["versions"] = {**theirs, **mine}
    out["models"] = old["models"]


def names(text):
    out = text.split(",")
    for name in out:
        if name not in TESTS:
            raise argparse.ArgumentTypeError(f"no test '{name}', there are: {', '.join(TESTS)}")
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
    p.add_argument("--tests", type=names, default=[t for t in TESTS if t not in ON_REQUEST], metavar="TEST,...",
                   help=f"of: {', '.join(TESTS)} (default: all but {', '.join(ON_REQUEST)})")
    p.add_argument("models", nargs="+", metavar="NAME=MODEL.gguf")
    a = p.parse_args()
    out = {"command": "bench/compare.py --llama-bench LLAMA --openvino PYTHON -o bench/results/compare.json NAME=MODEL...",
           "cpu": cpu_name(), "threads": a.threads, "versions": versions(a), "models": {}}
    if a.output and os.path.exists(a.output):
        with open(a.output, encoding="utf-8") as f:
            resume(out, json.load(f))
    a.ceilings_program, a.ceilings = a.ceilings, {}
    best_ceilings(a)
    for entry in a.models:
        name, path = entry.split("=", 1)
        print(name, flush=True)
        m = call([a.rkv, "inspect", "-m", path, "--json"])[0]["model"]
        for test in a.tests:
            rows = [r for r in out["models"].get(name, {"tests": []})["tests"] if r["test"] != test]
            rows.append(compare(a, path, m, test))
            out["models"][name] = {"quantization": m["quantization"], "file_bytes": m["file_bytes"],
                                   "tests": sorted(rows, key=lambda r: list(TESTS).index(r["test"]))}
            if a.output:
                with open(a.output, "w", encoding="utf-8") as f:
                    json.dump(out, f, indent=1)
                    f.write("\n")


if __name__ == "__main__":
    main()
