#!/usr/bin/env python3
"""Reference results: rkv eval on LongBench samples, RULER and needles, every policy at three budgets.

Each model gets a profile from a few samples of every second LongBench task. What is measured are all other
samples, and once more, apart, those of the tasks that the profile knows nothing of. A run that is stopped
(also by --limit seconds) goes on where it was; --samples N takes the first N of each task, so that an
unfinished evening gives a smaller, whole result.

    bench/reference.py --rkv build/rkv --data LONGBENCH -o bench/results/reference.json NAME=MODEL.gguf ...
"""
import argparse
import json
import pathlib
import signal
import subprocess
import sys
import time

import library
import prompts
from machine import cpu_name
from policy_gain import save, words

POLICIES = "streaming,h2o,snapkv,pyramid,ripple,local,blend,curve"
PARTS = ("longbench", "ruler", "needle")
CALIBRATION = {"tokens": 2000, "examples": 8, "answer": 32}


class Stopped(Exception):
    """Time is over; what is measured is kept."""


def all_tasks(folder):
    """Names of the tasks that have a file; others, such as stored predictions, have no prompts."""
    for path in sorted(pathlib.Path(folder).glob("*.jsonl")):
        with open(path, encoding="utf-8") as f:
            if "prompt" in json.loads(f.readline()):
                yield path.stem


def run(a, *options, seconds=0):
    """Standard output of the command; interrupted as a user would when the time is over."""
    began = time.monotonic()
    with subprocess.Popen([a.rkv, *map(str, options)], stdout=subprocess.PIPE, text=True) as p:
        try:
            text, _ = p.communicate(timeout=seconds or None)
        except subprocess.TimeoutExpired:
            p.send_signal(signal.SIGINT)
            p.communicate()
            raise Stopped from None
        except KeyboardInterrupt:
            p.wait()
            raise
    if p.returncode:
        raise SystemExit(f"rkv {options[0]}: exit code {p.returncode}")
    return text, time.monotonic() - began


def profile(a, model, path, name):
    """Profile file, and the ids and tasks of its samples."""
    chosen, _ = prompts.split(prompts.load(a.data), CALIBRATION["examples"], by_task=True)
    lines = [(s, prompts.prompt_ids(model, s, CALIBRATION["tokens"])) for s in chosen]
    lines = [(s, ids) for s, ids in lines if ids]
    data, out = a.work / f"{name}.calibration.jsonl", a.work / f"{name}.{model.fingerprint}.profile.json"
    data.write_text("".join(json.dumps({"prompt_ids": ids}) + "\n" for _, ids in lines), encoding="ascii")
    if not out.exists():
        run(a, "profile", "-m", path, "--data", data, "--response", CALIBRATION["answer"], "-o", out,
            "--signals", "values,curves", "--resume", a.work / f"{name}.{model.fingerprint}.parts")
    return out, [s["id"] for s, _ in lines], sorted({s["task"] for s, _ in lines})


def held_out(a, name, used):
    """Folder of all samples but those."""
    folder = a.work / f"{name}.longbench"
    folder.mkdir(exist_ok=True)
    for task in all_tasks(a.data):
        lines = (pathlib.Path(a.data) / f"{task}.jsonl").read_text(encoding="utf-8").splitlines()
        lines = [x for x in lines if x.strip() and json.loads(x)["id"] not in used]
        (folder / f"{task}.jsonl").write_text("".join(x + "\n" for x in lines), encoding="utf-8")
    return folder


def measure(a, out, name, path):
    model = library.Model(library.find(a.rkv), path)
    made, used, known = profile(a, model, path, name)
    m = out["models"].setdefault(name, {})
    if m.get("fingerprint") != model.fingerprint or m.get("calibration") != used:
        m.clear()
    m.update(file=pathlib.Path(path).name, fingerprint=model.fingerprint, tier=model.tier, calibration=used,
             parts=m.get("parts", {}))
    model.close()
    common = ["eval", "-m", path, "--policies", a.policies, "--budgets", a.budgets, "--kv-profile", made,
              "--against", "ripple", "--max-length", a.max_length, "--json"]
    folder = held_out(a, name, set(used))
    new = ",".join(t for t in all_tasks(a.data) if t not in known)
    limit = ["--limit", a.samples] if a.samples else []
    of = {"longbench": [("longbench", ["--data", folder, *limit]),
                        ("longbench, other tasks", ["--data", folder, "--tasks", new, *limit])],
          "ruler": [("ruler", ["--ruler", a.ruler, "--samples", a.made])],
          "needle": [("needle", ["--needle", a.needle, "--samples", a.made])]}
    for part in a.only:
        for what, options in of[part]:
            print(f"{name}: {what}", flush=True)
            text, seconds = run(a, *common, *options, "--db", a.work / f"{name}.{part}.sqlite",
                                seconds=max(a.end - time.monotonic(), 1) if a.limit else 0)
            m["parts"][what] = {"seconds_of_last_call": round(seconds), "max_length": a.max_length,
                                "samples_of_task": a.samples or "all", **json.loads(text)}
            save(a.output, out)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rkv", default="build/rkv")
    p.add_argument("--data", required=True, help="folder of LongBench files")
    p.add_argument("-o", "--output", required=True)
    p.add_argument("--work", type=pathlib.Path, default=pathlib.Path("build/reference"),
                   help="folder for profiles and databases")
    p.add_argument("--only", type=words, default=list(PARTS), metavar="PART,...", help=", ".join(PARTS))
    p.add_argument("--policies", default=POLICIES)
    p.add_argument("--budgets", default="10%,20%,30%")
    p.add_argument("--samples", type=int, default=0, help="of each LongBench task; 0: all")
    p.add_argument("--max-length", type=int, default=0, help="tokens of a prompt; 0: what fits the model's context")
    p.add_argument("--ruler", default="4K", help="lengths")
    p.add_argument("--needle", default="4K,8K,16K", help="lengths")
    p.add_argument("--made", type=int, default=5, help="made samples of each task, length and depth")
    p.add_argument("--limit", type=int, default=0, help="seconds after which the work is interrupted; 0: none")
    p.add_argument("models", nargs="+", metavar="NAME=MODEL.gguf")
    a = p.parse_args()
    if not set(a.only) <= set(PARTS):
        p.error(f"--only: parts are {', '.join(PARTS)}")
    a.end = time.monotonic() + a.limit
    a.work.mkdir(parents=True, exist_ok=True)
    path = pathlib.Path(a.output)
    out = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"models": {}}
    out = {"command": "bench/reference.py --data LONGBENCH -o bench/results/reference.json NAME=MODEL...",
           "cpu": cpu_name(), "models": out["models"]}
    try:
        for text in a.models:
            name, _, model = text.partition("=")
            if not model:
                p.error(f"{text}: expected NAME=MODEL.gguf")
            measure(a, out, name, model)
    except Stopped:
        print("the time is over; the same command goes on", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
