#!/usr/bin/env python3
"""The benches: that bench_kernels has a figure for every op and every kernel that this machine can run, and what the
scripts make of results. Runs from the build folder."""
import contextlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import types
import xml.etree.ElementTree

TOP = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP / "bench"))

import compare                                                  # noqa: E402
import readme                                                   # noqa: E402
import speed_picture                                            # noqa: E402

counts = {"passed": 0, "failed": 0, "skipped": 0}


def check(ok, text):
    counts["passed" if ok else "failed"] += 1
    if not ok:
        print(f"check_bench: failed: {text}", file=sys.stderr)


def kernels():
    """Names of the kernels of this build, by the preprocessor."""
    text = '#include "config.h"\n#define RKV_KERNEL(op, dt, isa) rkv_##op##_##dt##_##isa\n#include "kernels.def"\n'
    command = [*os.environ.get("CC", "cc").split(), "-E", "-P", "-I.", f"-I{TOP / 'simd'}", "-"]
    return re.findall(r"rkv_\w+", subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout)


def check_kernels():
    done = subprocess.run(["./bench_kernels", "--quick", "--json"], capture_output=True, text=True, check=False)
    check(done.returncode == 0, f"bench_kernels: exit {done.returncode}, {done.stderr[-500:]}")
    result = json.loads(done.stdout)
    rows, have = result["rows"], {r["kernel"] for r in result["rows"]}
    ops = re.findall(r"^ +RKV_OP\((\w+)\)", (TOP / "simd" / "kernels.h").read_text(encoding="utf-8"), re.M)
    check(len(ops) > 10, f"ops of kernels.h: {ops}")
    for op in ops:
        check(any(r["op"] == op for r in rows), f"no figure for {op}")
    tiers = ["ref", "avx2", "avx512", "vnni", "amx"]
    for tier in tiers[:tiers.index(result["tier"]) + 1]:
        missing = [k for k in kernels() if k.endswith("_" + tier) and k not in have]
        check(not missing, f"no figure for {missing}")
    check(all(r["ns"] > 0 and r["share"] > 0 and r["ratio_to_ref"] > 0 for r in rows), "a figure is not positive")
    check(all(v > 0 for v in result["ceilings"].values()), f"ceilings {result['ceilings']}")


def spread(v):
    return {"median": v, "min": 0.9 * v, "max": 1.1 * v, "values": [v]}


def made_result(tests):
    """A result of compare.py in which every program has a rate in every test, of one model."""
    peers = [compare.LLAMA, compare.OPENVINO, compare.EVICTION]
    rows = [{"test": t, "tokens_s": {p: spread(10.0 + i) for i, p in enumerate([*compare.OURS, *peers])},
             "ratios": {f"{p} / {q}": spread(2.0) for p in compare.OURS for q in peers},
             "peak_rss": {"rkv": 7 << 20}, "plan": {"rkv": 5 << 20},
             "ceiling": {"rkv": {"of": "memory read", "share": 0.5}}} for t in tests]
    return {"cpu": "CPU", "threads": 2, "versions": {"rkv": "1", compare.LLAMA: "2"}, "models": {"m": {"tests": rows}}}


def check_results():
    """Pictures and tables of made results, also of the least that there can be."""
    for tests in (list(compare.TESTS), ["decode at 0"], ["prefill 512"]):
        result = made_result(tests)
        drawing = xml.etree.ElementTree.fromstring(speed_picture.draw(result, ["m"]))
        dots = len(drawing.findall("{*}circle"))
        check(dots == 5 * len(tests), f"{tests}: {dots} points drawn")
        table = [line.split("|") for line in readme.compare(result) if line.startswith("|")]
        check(len(table) == 2 + 5 * len(tests) and len({len(line) for line in table}) == 1, f"{tests}: table {table}")
    check("7 | 5 | 2.00 (1.80 to 2.20)" in "\n".join(readme.compare(made_result(["prefill 512"]))), "memory in the table")


def check_merging():
    old = made_result(["prefill 512"])
    for name, versions, more, kept in (
            ("the same", {"rkv": "1", compare.LLAMA: "2"}, {}, True), ("a peer less", {"rkv": "1"}, {}, True),
            ("a peer more", {"rkv": "1", compare.OPENVINO: "3"}, {}, True), ("another rkv", {"rkv": "9"}, {}, False),
            ("another peer", {"rkv": "1", compare.LLAMA: "9"}, {}, False), ("another CPU", {"rkv": "1"}, {"cpu": "X"}, False)):
        out = {**old, "versions": dict(versions), "models": {}, **more}
        compare.resume(out, old)
        check(bool(out["models"]) == kept, f"{name}: kept {out['models']}")
        check(not kept or out["versions"] == {**old["versions"], **versions}, f"{name}: {out['versions']}")


def check_rounds():
    """A peer that fails is left out and named; we may not fail."""
    turns = []

    def program(name, good=True):
        def run():
            turns.append(name)
            if not good:
                raise compare.Failed("broken")
            return {"avg_ts": 1.0}
        return run
    with contextlib.redirect_stderr(io.StringIO()) as told:
        rates, _, without = compare.measure(types.SimpleNamespace(rounds=3), {
            "rkv": program("rkv"), "peer": program("peer"), "broken": program("broken", False)})
    check("without broken: broken" in told.getvalue(), f"told {told.getvalue()!r}")
    check(rates == {"rkv": [1.0] * 3, "peer": [1.0] * 3} and list(without) == ["broken"], f"{rates}, {without}")
    check(turns == ["rkv", "peer", "broken", "peer", "rkv", "rkv", "peer"], f"order {turns}")
    try:
        compare.measure(types.SimpleNamespace(rounds=1), {"rkv": program("rkv", False)})
        check(False, "our own failure passed")
    except SystemExit as e:
        check("broken" in str(e), str(e))
    row, peak = compare.call([sys.executable, "-c", "print('[1]', end='')"])
    check(row == [1] and peak > 1 << 20, f"{row}, {peak}")
    try:
        compare.call(["sh", "-c", "echo first >&2; echo why >&2; exit 3"])
        check(False, "exit 3 passed")
    except compare.Failed as e:
        check(str(e).endswith(": why"), str(e))


def main():
    check_kernels()
    check_results()
    check_merging()
    check_rounds()
    print(f"bench: {counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return counts["failed"] > 0


if __name__ == "__main__":
    sys.exit(main())
