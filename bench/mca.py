#!/usr/bin/env python3
"""Cycles of the inner loops of the f32 and the int16 product, by llvm-mca's models of CPUs: no run, data in
the first-level cache, so a bound for CPUs that are not at hand.

    bench/mca.py [--cc gcc] [--mca llvm-mca-14] -o bench/results/mca.json
"""
import argparse
import json
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
AVX512 = "-mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl"
# name, file in simd/, its tier's flags, function, instruction, products of one
LOOPS = [
    ("f32, avx512", "avx512/gemm_f32.c", AVX512, "gemm_full_14", "vfmadd", 16),
    ("int16, vnni", "vnni/gemm_int16.c", AVX512 + " -mavx512vnni", "int16_full_14", "vpdpwssd", 32),
]
CPUS = ["cascadelake", "icelake-server", "sapphirerapids"]


def assembly(cc, source, flags):
    with tempfile.TemporaryDirectory() as work:
        (pathlib.Path(work) / "config.h").write_text('#define PACKAGE_VERSION ""\n#define HAVE_AVX2 1\n'
                                                     "#define HAVE_AVX512 1\n#define HAVE_VNNI 1\n")
        return subprocess.run([cc, "-std=c11", "-O2", "-ffp-contract=off", *flags.split(), f"-I{work}",
                               f"-I{ROOT / 'simd'}", "-S", "-o", "-", str(ROOT / "simd" / source)],
                              check=True, capture_output=True, text=True).stdout


def inner_loop(text, function, instruction):
    """The shortest way from a label back to it that holds products."""
    body = re.search(rf"^{function}:[^\n]*\n(.*?)^\t\.size\t{function}", text, re.M | re.S)[1]
    lines = [line.split("#")[0].rstrip() for line in body.split("\n")]
    at = {line[:-1]: i for i, line in enumerate(lines) if line.endswith(":")}
    loops = []
    for i, line in enumerate(lines):
        jump = re.match(r"\tj\w+\t(\S+)", line)
        if jump and at.get(jump[1], i) < i:
            loops.append([x for x in lines[at[jump[1]]:i + 1] if x.startswith("\t") and x[1] != "."])
    loop = min((x for x in loops if any(instruction in y for y in x)), key=len)
    return [re.sub(r"^\t(j\w+)\t.*", r"\t\1\t0", x) for x in loop]


def cycles(mca, cpu, loop):
    done = subprocess.run([mca, f"-mcpu={cpu}", "-iterations=1000", "-instruction-info=0",
                           "-resource-pressure=0"], input="\n".join(loop) + "\n", check=True,
                          capture_output=True, text=True).stdout
    return float(re.search(r"^Total Cycles:\s+(\d+)", done, re.M)[1]) / 1000


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--cc", default="gcc")
    p.add_argument("--mca", default="llvm-mca-14")
    p.add_argument("-o", "--output", required=True)
    a = p.parse_args()
    version = lambda tool: next(x.strip() for x in subprocess.run([tool, "--version"], check=True, text=True,
                                capture_output=True).stdout.split("\n") if re.search(r"\d\.\d", x))
    out = {"command": "bench/mca.py -o bench/results/mca.json", "compiler": version(a.cc),
           "mca": version(a.mca), "loops": []}
    for name, source, flags, function, instruction, products in LOOPS:
        loop = inner_loop(assembly(a.cc, source, flags), function, instruction)
        n = products * sum(instruction in x for x in loop)
        row = {"loop": name, "function": function, "instructions": len(loop), "products": n,
               "sums_stored": sum(bool(re.search(r"\tvmov\w+\t%\w+, .*\(", x)) for x in loop), "cpus": {}}
        for cpu in CPUS:
            c = cycles(a.mca, cpu, loop)
            row["cpus"][cpu] = {"cycles": round(c, 2), "products_per_cycle": round(n / c, 1)}
        out["loops"].append(row)
        print(name, row["cpus"])
    pathlib.Path(a.output).write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
