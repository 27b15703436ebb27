#!/usr/bin/env python3
"""rkv profile killed with SIGKILL at a random moment and started again, many times: is the profile, to the
byte, that of a run that nobody disturbs?

    bench/kills.py --rkv build/rkv --make-model build/make_model -o bench/results/kills.json
"""
import argparse
import json
import os
import pathlib
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

from machine import cpu_name

SHAPE = {"family": "llama", "layers": 4, "heads": 4, "kv-heads": 2, "d-head": 32, "d-model": 128, "d-ff": 256,
         "vocab": 2000, "ctx": 1024, "type": "q8_0", "seed": 1}
SIGNALS = "values,keys,damage,curves,layer-curves,head-curves"


def kept(folder):
    """Examples, variants and whatever else the killed run has left, by table."""
    path = folder / "profile.sqlite"
    if not path.exists():
        return {}
    with sqlite3.connect(path) as db:
        tables = [t for t, in db.execute("select name from sqlite_master where type = 'table'")]
        return {t: db.execute(f'select count(*) from "{t}"').fetchone()[0] for t in tables}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rkv", default="build/rkv")
    p.add_argument("--make-model", default="build/make_model")
    p.add_argument("--times", type=int, default=100)
    p.add_argument("-o", "--output", required=True)
    a = p.parse_args()
    rng = random.Random(1)
    rkv = str(pathlib.Path(a.rkv).resolve())
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        subprocess.run([a.make_model, "--out", work / "m.gguf",
                        *(str(x) for k, v in SHAPE.items() for x in ("--" + k, v))], check=True)
        ids = lambda n: [rng.randrange(300, SHAPE["vocab"]) for _ in range(n)]
        (work / "data.jsonl").write_text("".join(json.dumps({"prompt_ids": ids(120), "response_ids": ids(16)}) + "\n"
                                                 for _ in range(5)), encoding="ascii")
        command = [rkv, "profile", "-m", work / "m.gguf", "--data", work / "data.jsonl", "--response", "answers",
                   "--signals", SIGNALS, "--batch-rows", "256"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        began = time.monotonic()
        subprocess.run([*command, "--resume", work / "calm", "-o", work / "calm.json"], check=True, **quiet)
        took, calm, runs = time.monotonic() - began, (work / "calm.json").read_bytes(), []
        all_kept = kept(work / "calm")
        while len(runs) < a.times:
            folder, out = work / f"killed.{len(runs)}", work / "killed.json"
            out.unlink(missing_ok=True)
            moment, run = rng.uniform(0.0, took), [*command, "--resume", folder, "-o", out]
            with subprocess.Popen(run, **quiet) as one:
                time.sleep(moment)
                one.send_signal(signal.SIGKILL)
                if one.wait() == 0:
                    continue            # it was done before
            there = kept(folder)
            subprocess.run(run, check=True, **quiet)
            runs.append({"killed_after_s": round(moment, 3), "kept": sum(there.values()),
                         "identical": out.read_bytes() == calm})
            if len(runs) % 10 == 0:
                print(f"{sum(r['identical'] for r in runs)} of {len(runs)} identical", flush=True)
    same = sum(r["identical"] for r in runs)
    result = {"command": "bench/kills.py -o bench/results/kills.json", "cpu": cpu_name(),
              "cpus": len(os.sched_getaffinity(0)), "model": SHAPE, "signals": SIGNALS, "undisturbed_s": round(took, 3),
              "rows_of_a_whole_run": sum(all_kept.values()), "kills": len(runs), "identical": same, "runs": runs}
    pathlib.Path(a.output).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    sys.exit(0 if same == len(runs) else 1)


if __name__ == "__main__":
    main()
