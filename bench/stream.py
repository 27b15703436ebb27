#!/usr/bin/env python3
"""A made model with its weights read layer by layer against the same model mapped: rates, the peak of the process
beside what was planned, and both under a bound of a third of the file, where the system lets us set one. And a
profile of it: within that bound the same bytes as without one.

    bench/stream.py --rkv build/rkv --make-model build/make_model -o bench/results/stream.json
"""
import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import tempfile
import time

from machine import cpu_name

SHAPE = {"family": "llama", "layers": 24, "heads": 16, "kv-heads": 4, "d-head": 128, "d-model": 2048, "d-ff": 5632,
         "vocab": 32000, "ctx": 4096, "type": "q8_0", "seed": 1}
GROUPS = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")]


@contextlib.contextmanager
def memory_group(limit):
    """A control group of our own with that limit in bytes; None where there is no making one."""
    for root, name in GROUPS:
        group = pathlib.Path(root) / f"rkv-stream-{os.getpid()}"
        if not (pathlib.Path(root) / "cgroup.procs").exists():
            continue
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / name).write_text(str(limit), encoding="ascii")
        except OSError:
            group.rmdir()
            continue
        try:
            yield group
        finally:
            group.rmdir()
        return
    yield None


def enter(group):
    """Puts this process into a group, if there is one."""
    if group:
        (group / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")


def run(command, group=None):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, text=True, check=True,
                          preexec_fn=lambda: enter(group))
    return json.loads(done.stdout) if done.stdout else None


def forget(path):
    """Empties the system's cache of a file, so that a run reads it from where it lies."""
    with open(path, "rb") as f:
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(a, model, mode, group, stream_bytes):
    """Rates, peak and plan of a prompt, and of decode behind none; the greedy answer."""
    out = {}
    for name, test in (("prefill", ["-p", a.prompt, "-n", "0"]), ("decode", ["-p", "0", "-n", a.answer])):
        forget(model)
        row = run([a.rkv, "bench", "-m", model, "-lm", mode, "-r", a.repeat, "-o", "json", *test], group)[0]
        weights = stream_bytes if mode == "stream" else model.stat().st_size
        out[name] = {"tok_s": row["avg_ts"], "sd": row["stddev_ts"], "peak_rss": row["peak_rss"],
                     "plan": row["plan_bytes"] + weights}
    forget(model)
    ids = model.with_suffix(".ids")
    ids.write_text(json.dumps([(i * 7919) % SHAPE["vocab"] for i in range(40)]), encoding="ascii")
    answer = run([a.rkv, "run", "-m", model, "-lm", mode, "--ids", ids, "-n", "8", "--ignore-eos", "--json"], group)
    out["tokens"] = answer["tokens"]
    return out


def profile(a, model, bound, group):
    """A profile within a bound of memory, or without one (None): its bytes, seconds, and the peak of the process."""
    data, out = model.with_suffix(".jsonl"), model.with_suffix(".profile.json")
    ids = lambda i, n: [(j * 7919 + i * 104729) % SHAPE["vocab"] for j in range(n)]
    data.write_text("".join(json.dumps({"prompt_ids": ids(i, 200), "response_ids": ids(i + 100, 10)}) + "\n"
                            for i in range(4)), encoding="ascii")
    limit = ["--memory", f"{bound >> 20}M"] if bound else ["-lm", "mmap"]
    forget(model)
    began = time.monotonic()
    with subprocess.Popen([a.rkv, "profile", "-m", model, "--data", data, "--response", "answers", "--noise-seeds", "1",
                           *limit, "-o", out], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          preexec_fn=lambda: enter(group)) as p:
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
    if p.returncode:
        raise SystemExit(f"stream: rkv profile ended with {p.returncode}")
    return out.read_bytes(), {"seconds": round(time.monotonic() - began, 1), "peak_rss": usage.ru_maxrss * 1024}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rkv", default="build/rkv")
    p.add_argument("--make-model", default="build/make_model")
    p.add_argument("--folder", help="where the model is put meanwhile (it takes the size of the file)")
    p.add_argument("--layers", type=int, default=SHAPE["layers"])
    p.add_argument("--prompt", default="128")
    p.add_argument("--answer", default="8")
    p.add_argument("--repeat", default="2")
    p.add_argument("-o", "--output", required=True)
    a = p.parse_args()
    SHAPE["layers"] = a.layers
    with tempfile.TemporaryDirectory(dir=a.folder) as work:
        model = pathlib.Path(work) / "model.gguf"
        run([a.make_model, "--out", model, *(str(x) for k, v in SHAPE.items() for x in ("--" + k, v))])
        info = run([a.rkv, "inspect", model, "--json"])["model"]
        out = {"command": "bench/stream.py -o bench/results/stream.json", "cpu": cpu_name(),
               "cpus": len(os.sched_getaffinity(0)), "model": SHAPE, "file_bytes": info["file_bytes"],
               "stream_bytes": info["stream_bytes"], "bound_bytes": info["file_bytes"] // 3, "runs": {}}
        tokens = set()
        with memory_group(out["bound_bytes"]) as group:
            for name, mode, where in (("mmap", "mmap", None), ("stream", "stream", None),
                                      ("mmap, bounded", "mmap", group), ("stream, bounded", "stream", group)):
                if "bounded" in name and not group:
                    continue
                r = measure(a, model, mode, where, info["stream_bytes"])
                tokens.add(tuple(r.pop("tokens")))
                out["runs"][name] = r
                print(f"{name:16}", "; ".join(f"{t} {v['tok_s']:.2f} tok/s, peak {v['peak_rss'] / 2**20:.0f} MiB of "
                                              f"{v['plan'] / 2**20:.0f} planned" for t, v in r.items()), flush=True)
            plain, out["profile"] = profile(a, model, None, None)
            within, out["profile, bounded"] = profile(a, model, out["bound_bytes"], group)
            out["same_profile"] = plain == within
            print(f"profile: {out['profile']}, within the bound {out['profile, bounded']}, same: {plain == within}")
        out["same_tokens"] = len(tokens) == 1
    with open(a.output, "w", encoding="utf-8") as f:
        json.dump(out, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
