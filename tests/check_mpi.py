#!/usr/bin/env python3
"""rkv profile by the ranks of an mpirun: the same bytes for any number of them, failures told once, a killed rank's
work kept but for its example. Runs from the build folder, as check_profile.py; skipped without Open MPI's mpirun."""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

from command_bed import (PATIENCE, RKV, SANITIZED, Result, check, counts, environment, good, run_tests, skip,
                         without_sqlite)

SMALL = ["profile", "-m", "m.gguf", "--data", "data", "--response", "8"]
SLOW = ["profile", "-m", "slow.gguf", "--data", "long", "--response", "8", "--signals", "values,keys,damage,curves"]
ALONE = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl": "self,vader",
         # Open MPI leaks on purpose, and unloads the modules that a list of its leaks would name.
         "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}


def no_mpi():
    """Why nothing can be tested here; None: it can."""
    if not shutil.which("mpirun"):
        return "no mpirun"
    r = subprocess.run(["mpirun", "--version"], capture_output=True, text=True)
    if "Open MPI" not in r.stdout:
        return "the mpirun is not Open MPI's"
    r = subprocess.run(["mpirun", "--oversubscribe", "-n", "2", "true"], capture_output=True, text=True,
                       env=environment(ALONE))
    return None if r.returncode == 0 else f"mpirun cannot start processes: {r.stderr.strip()[-300:]}"


def start(n, *args, command=(RKV,)):
    return subprocess.Popen(["mpirun", "--oversubscribe", "-n", str(n), *command, *args], env=environment(ALONE),
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)


def finish(p):
    try:
        out, err = p.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGKILL)
        out, err = p.communicate()
        err += b"\n(killed: it did not end)"
    return Result(p.returncode, out, err)


def lines_of_rkv(r):
    return [line for line in r.err.splitlines() if line.startswith("rkv: ")]


def check_bytes():
    for name, args in (("small", SMALL), ("slow", SLOW)):
        whole = good("alone", *args, "-o", "alone.json")
        for n in (1, 2, 4, 7):
            r = finish(start(n, *args, "-o", "ranks.json"))
            check(r.rc == 0 and r.out == whole.out, f"{name}, {n} ranks: {r}")
            check(pathlib.Path("ranks.json").read_bytes() == pathlib.Path("alone.json").read_bytes(),
                  f"{name}, {n} ranks: the same bytes")
            pathlib.Path("ranks.json").unlink()


def check_economy():
    """Each line is read by one rank, once, and the ranks wait for each other no more than twice."""
    for n in (1, 3):
        r = finish(start(n, *SMALL, "-v", "-o", "ranks.json"))
        read = [line for line in lines_of_rkv(r) if re.search(r"data: line \d: a prompt of 60 tokens", line)]
        met = [line for line in lines_of_rkv(r) if "waits for the others" in line]
        check(r.rc == 0 and len(read) == len(set(read)) == 3, f"{n} ranks read each line once: {read}")
        check(len(met) == (0 if n == 1 else 2 * n), f"{n} ranks meet twice: {len(met)}")
    r = good("alone", *SMALL, "-v", "-o", "ranks.json")
    check(r.err.count("a prompt of 60 tokens") == 3, f"alone: {r.err}")
    pathlib.Path("ranks.json").unlink()


def check_failures():
    """What one rank cannot do ends all, with one line, and no output."""
    for name, args, what in (("a bad line", [*SMALL[:4], "bad3"], "line 3"), ("no model", ["profile", "-m", "absent", *SMALL[3:]], "absent"),
                             ("no example fits", [*SMALL, "-c", "20"], "longer than the context"),
                             ("until stable", [*SMALL, "--until-stable"], "stable")):
        r = finish(start(3, *args, "-o", "x.json"))
        check(r.rc not in (0, -9) and lines_of_rkv(r) and all(what in line for line in lines_of_rkv(r)), f"{name}: {r}")
        check(not pathlib.Path("x.json").exists(), f"{name}: no profile")


def check_killed():
    """A rank killed in the middle: the others end, and the next run takes what was finished."""
    whole = pathlib.Path("alone.json").read_bytes()
    args = [*SLOW, "--batch-rows", "60", "--resume", "ranks", "-o", "killed.json"]
    # Rank 1 leaves its process number, and is killed once its database holds something.
    script = ["sh", "-c", f'[ "$OMPI_COMM_WORLD_RANK" = 1 ] && echo $$ > rank1; exec {RKV} "$@"', "rkv"]
    p = start(2, *args, command=script)
    end = time.monotonic() + PATIENCE
    wal = pathlib.Path("ranks/profile-2-of-2.sqlite-wal")
    while p.poll() is None and time.monotonic() < end and not (wal.exists() and wal.stat().st_size > 30000):
        time.sleep(0.005)
    alive = p.poll() is None
    if alive:
        os.kill(int(pathlib.Path("rank1").read_text()), signal.SIGKILL)
    r = finish(p)
    if not alive:
        skip(4, "it ended before it could be killed")
        return
    check(r.rc != 0, f"killed: {r}")
    check(not pathlib.Path("killed.json").exists(), "killed: no profile")
    r = finish(start(2, *args))
    check(r.rc == 0, f"gone on: {r}")
    check(pathlib.Path("killed.json").read_bytes() == whole, "gone on: the same bytes")


def tests():
    if SANITIZED or without_sqlite():
        skip(4, "no SQLite, or a sanitizer, which would tell of the killed rank")
        return [check_bytes, check_economy, check_failures]
    return [check_bytes, check_economy, check_failures, check_killed]


def main():
    why = no_mpi()
    if why:
        skip(37, why)
        print("check_mpi: {passed} passed, {failed} failed, {skipped} skipped".format(**counts))
        sys.exit(77)
    run_tests(tests)


if __name__ == "__main__":
    main()
