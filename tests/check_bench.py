#!/usr/bin/env python3
"""The benches: that bench_kernels has a figure for every op and every kernel that this machine can run, and what the
scripts make of results. Runs from the build folder."""
import json
import os
import pathlib
import re
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[1]
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
    tiers = ["ref", "avx2", "avx512", "amx"]
    for tier in tiers[:tiers.index(result["tier"]) + 1]:
        missing = [k for k in kernels() if k.endswith("_" + tier) and k not in have]
        check(not missing, f"no figure for {missing}")
    check(all(r["ns"] > 0 and r["share"] > 0 and r["ratio_to_ref"] > 0 for r in rows), "a figure is not positive")
    check(all(v > 0 for v in result["ceilings"].values()), f"ceilings {result['ceilings']}")


def main():
    check_kernels()
    print(f"bench: {counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return counts["failed"] > 0


if __name__ == "__main__":
    sys.exit(main())
