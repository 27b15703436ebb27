#!/usr/bin/env python3
"""rkv profile from outside: interrupted and killed at any moment and gone on with, in parts, until it is sure,
checked against models, and with options that make no sense. Runs from the build folder, as check_command.py."""
import contextlib
import json
import os
import pathlib
import pty
import random
import re
import resource
import signal
import struct
import time

from command_bed import (FAILED, INPUT, INTERRUPTED, MEMORY, PATIENCE, SANITIZED, USAGE, check, finish, good, good_json,
                         make_model, peak_address_space, refused, rkv, run_tests, skip, start, unsaved, wait_for_work, without_sqlite)

try:
    import sqlite3
except ImportError:
    sqlite3 = None

EVERYTHING = "values,keys,keys+values,damage,curves,layer-curves,head-curves"
SMALL = ["profile", "-m", "m.gguf", "--data", "data", "--response", "8"]
SLOW = ["profile", "-m", "slow.gguf", "--data", "long", "--response", "8"]


def rows(folder, sql):
    """Of the database in a folder of --resume; [] while there is none."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{folder}/profile.sqlite?mode=ro", uri=True)) as db:
            return db.execute(sql).fetchall()
    except sqlite3.Error:
        return []


def outcomes(folder):
    return rows(folder, "SELECT * FROM outcome ORDER BY i, variant")


# ---- interrupted ----

def check_resume():
    """Stopped after some more is known, twice, then left alone."""
    work = SLOW + ["--signals", EVERYTHING, "--noise-seeds", "2", "--examples", "3"]
    args = work + ["--batch-rows", "80"]
    good("profile", *work, "-o", "whole.json")
    whole = pathlib.Path("whole.json").read_bytes()
    for sig in (signal.SIGKILL, signal.SIGINT):
        folder, out = f"parts.{sig.name}", f"{sig.name}.json"
        more = args + ["--resume", folder, "-o", out]
        for _ in range(2):
            had = len(outcomes(folder))
            p = start(*more)
            end = time.monotonic() + PATIENCE
            while len(outcomes(folder)) == had and p.poll() is None and time.monotonic() < end:
                time.sleep(0.005)
            p.send_signal(sig)
            r = finish(p)
            check(r.rc == (-9 if sig == signal.SIGKILL else INTERRUPTED), f"{sig.name}: {r}")
            check(sig == signal.SIGKILL or r.one_line() and "run the same command" in r.err, f"{sig.name}: {r}")
            check(not pathlib.Path(out).exists() and not r.out, f"{sig.name}: no profile yet")
        kept = outcomes(folder)
        good("resumed", *more)
        check(pathlib.Path(out).read_bytes() == whole, f"{sig.name}: the same profile")
        done = outcomes(folder)
        check(0 < len(kept) < len(done) and set(kept) <= set(done), f"{sig.name} kept {len(kept)} of {len(done)}")
        before = pathlib.Path(f"{folder}/profile.sqlite").stat().st_mtime_ns
        good("resumed without work", *more)
        check(pathlib.Path(out).read_bytes() == whole and outcomes(folder) == done, "nothing left to do")
        check(pathlib.Path(f"{folder}/profile.sqlite").stat().st_mtime_ns == before, "nothing written")
    for option, value, what in (("--noise", "0.4", "noise"), ("--signals", "values", "signals"), ("--grid", "10,20", "grid"),
                                ("--damage-budget", "15%", "damage")):
        refused(f"the folder of another run, {option}", INPUT, ["parts.SIGKILL", "another folder", f"({what} "], *args,
                option, value, "--resume", "parts.SIGKILL", "-o", "x.json")
    for folder, what in (("text", "not a folder"), ("absent/deep", "No such file"), ("/proc/1/x", "cannot make the folder")):
        refused(f"--resume {folder}", FAILED, [f"{folder}: ", what], *args, "--resume", folder, "-o", "x.json")
    pathlib.Path("taken/profile.sqlite").mkdir(parents=True)
    refused("no place for the database", FAILED, ["taken/profile.sqlite: cannot open"], *args, "--resume", "taken", "-o", "x.json")


def check_kill_loop():
    """Killed at random moments until it happens to finish: the bytes of a run that nobody disturbs."""
    args = SMALL + ["--signals", EVERYTHING]
    good("undisturbed", *args, "-o", "calm.json")
    rng, total = random.Random(5), 0
    began = time.monotonic()
    good("its time", *args, "--batch-rows", "16", "--resume", "timed", "-o", "timed.json")
    took = time.monotonic() - began
    for name, rows_at_once in (("a", "16"), ("b", "1"), ("c", "33")):
        kills, out = 0, pathlib.Path(f"killed.{name}.json")
        while not out.exists() and kills < 400:
            p = start(*args, "--batch-rows", rows_at_once, "--resume", f"killed.{name}", "-o", str(out))
            deadline = time.monotonic() + rng.uniform(0.0, took * (0.1 + kills / 60))
            while p.poll() is None and time.monotonic() < deadline:
                time.sleep(0.001)
            if p.poll() is None:
                p.kill()
                kills += 1
            r = finish(p)
            check(r.rc in (0, -9) and (r.rc == 0 or not r.err), f"killed {kills} times: {r}")
        check(out.exists() and out.read_bytes() == pathlib.Path("calm.json").read_bytes(),
              f"{name}: killed {kills} times, the same profile")
        total += kills
    check(total >= 6, f"killed {total} times in all")


def check_damaged():
    """Rows and files that no run could have written; and those of sliding layers, which are no numbers."""
    make_model("sliding.gguf", family="gemma3", layers=4, window=50, pattern=2)
    args = ["profile", "-m", "sliding.gguf", "--data", "data", "--response", "8", "--resume", "rows", "-o"]
    good("rows", *args, "first.json")
    check(good("rows again", *args, "again.json").rc == 0 and
          pathlib.Path("again.json").read_bytes() == pathlib.Path("first.json").read_bytes(), "the same profile")
    i = rows("rows", "SELECT i FROM example WHERE state = 1")[-1][0]

    def change(table, column, value):
        where = " AND variant = 2" if table == "outcome" else ""
        with contextlib.closing(sqlite3.connect("rows/profile.sqlite")) as db, db:
            old = db.execute(f"SELECT {column} FROM {table} WHERE i = {i}{where}").fetchone()[0]
            db.execute(f"UPDATE {table} SET {column} = ? WHERE i = {i}{where}", (value,))
        return old

    error = rows("rows", f"SELECT error FROM estimate WHERE i = {i}")[0][0]
    for table, column, value in (("outcome", "kl", -1.0), ("outcome", "kl", float("inf")), ("outcome", "kl", None),
                                 ("outcome", "kl", "x"), ("outcome", "local", -1.0), ("outcome", "local", None),
                                 ("example", "state", 7), ("example", "fed", b""), ("example", "fed", b"abc"),
                                 ("example", "fed", struct.pack("<8i", *[9] * 7, 512)),
                                 ("example", "fed", struct.pack("<9i", *[9] * 9)), ("estimate", "error", error[:-1]),
                                 ("estimate", "error", struct.pack("<d", 1.0) * (len(error) // 8)),
                                 ("estimate", "error", None), ("outcome", "kl", 1.0), ("outcome", "local", 0.5),
                                 ("example", "state", 2), ("example", "fed", struct.pack("<8i", *[9] * 8)),
                                 ("estimate", "error", bytes(len(error)))):
        old = change(table, column, value)
        refused(f"{table}.{column} = {value!r:.40}", INPUT, [f"rows/profile.sqlite: example {i} is damaged"], *args,
                "x.json")
        change(table, column, old)
    good("repaired", *args, "again.json")
    check(pathlib.Path("again.json").read_bytes() == pathlib.Path("first.json").read_bytes(), "repaired")
    pathlib.Path("noise").mkdir()
    pathlib.Path("noise/profile.sqlite").write_bytes(b"no database" * 1000)
    refused("no database", INPUT, ["noise/profile.sqlite: ", "not a database", "remove the folder"], *args[:-2], "noise", "-o", "x.json")


def check_together():
    """Several that begin with one new folder at the same time wait for each other."""
    for k in range(3):
        ps = [start(*SMALL, "--signals", "values", "--examples", "1", "--resume", f"together{k}", "-o", f"together{i}.json")
              for i in range(6)]
        for r in [finish(p) for p in ps]:
            check(r.rc == 0 and not r.err, f"together: {r}")
    check(len({pathlib.Path(f"together{i}.json").read_bytes() for i in range(6)}) == 1, "together: one profile")


def check_interrupted():
    """SIGINT ends it within a second, wherever it is, in one line that says how to go on."""
    pathlib.Path("huge").write_text(json.dumps({"prompt_ids": [1, 2, 3] * 20000}) + "\n")
    works = {"prefill": (["--data", "huge"], 0.3), "the walk": (SLOW[3:] + ["--signals", EVERYTHING, "--noise-seeds",
                                                                          "1000"], 1.0),
             "the answer": (["--data", "long", "--response", "4000", "-c", "8000"], 0.4), "its begin": (SLOW[3:], 0.0)}
    for name, (more, wait) in works.items():
        p = start("profile", "-m", "slow.gguf", *more, "-o", "x.json")
        wait_for_work(p)
        time.sleep(wait)
        check(p.poll() is None, f"in {name}: still at work")
        began = time.monotonic()
        p.send_signal(signal.SIGINT)
        r = finish(p)
        took = time.monotonic() - began
        check(r.rc == INTERRUPTED and r.one_line() and "--resume" in r.err, f"SIGINT in {name}: {r}")
        check(took < (20 if SANITIZED else 1), f"SIGINT in {name}: {took:.2f} s")
        check(not pathlib.Path("x.json").exists(), "no profile of an interrupted run")
    long = ["profile", "-m", "slow.gguf", "--data", "huge", "-o", "x.json"]
    p = start(*long, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))      # whatever the tests run under
    wait_for_work(p)
    p.send_signal(signal.SIGHUP)
    r = finish(p)
    check(r.rc == INTERRUPTED and r.one_line() and "--resume" in r.err, f"SIGHUP: {r}")
    p = start(*long)
    wait_for_work(p)
    for sig in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
        p.send_signal(sig)
    r = finish(p)
    check(r.rc in (128 + signal.SIGINT, 128 + signal.SIGTERM) and r.one_line() and "a second time" in r.err,
          f"two signals: {r}")
    p = start(*long, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    wait_for_work(p)
    p.send_signal(signal.SIGHUP)
    time.sleep(0.5)
    check(p.poll() is None, "SIGHUP that nohup ignores")
    p.kill()
    finish(p)


def check_progress():
    """A bar with the time that is left on a terminal."""
    if SANITIZED:
        return
    ours, theirs = pty.openpty()
    p = start(*SLOW, "--signals", EVERYTHING, "--noise-seeds", "60", "-o", "bar.json", stderr=theirs)
    os.close(theirs)
    text = b""
    with contextlib.suppress(OSError):          # the end of a terminal whose other side is closed
        while chunk := os.read(ours, 4096):
            text += chunk
    os.close(ours)
    p.communicate()
    bars = [x for x in text.split(b"\r") if x.startswith(b"profile [")]
    check(p.returncode == 0 and len(bars) > 2 and all(b" s left" in x for x in bars), f"bars {bars[:3]}")
    check(text.endswith(b"\r\x1b[K"), f"the bar goes away: {text[-80:]}")
    shares = [int(x.split(b"]")[1].split(b"%")[0]) for x in bars]
    check(shares == sorted(shares) and shares[-1] > 40, f"it only grows: {shares}")


# ---- parts ----

def check_shards():
    for data, signals in (("data", EVERYTHING), ("long", "values")):
        args = ["profile", "-m", "m.gguf", "--data", data, "--response", "8", "--signals", signals]
        good("undivided", *args, "-o", "undivided.json")
        for n in (1, 2, 3, 7):
            parts = [f"part{i}of{n}.json" for i in range(1, n + 1)]
            for i, part in enumerate(parts, 1):
                good(f"shard {i}/{n}", *args, "--shard", f"{i}/{n}", "-o", part)
            random.Random(n).shuffle(parts)
            good(f"merge {n}", "profile", "--merge", *parts, "-o", "merged.json")
            check(pathlib.Path("merged.json").read_bytes() == pathlib.Path("undivided.json").read_bytes(),
                  f"{n} shards of {data}: the same bytes")
            if n == 1:
                continue
            refused("a shard is missing", INPUT, [f"of {n} is missing"], "profile", "--merge", *parts[1:], "-o", "x.json")
            refused("a shard twice", INPUT, [f"of {n} is there twice", parts[0]], "profile", "--merge", *parts, parts[0],
                    "-o", "x.json")
    merge = ["profile", "--merge", "part1of2.json"]
    for name, what, more in (("noise", "'noise' (0.5 and 0.4)", ["--noise", "0.4"]), ("model", "'model' (\"made llama f32, seed 1\" and ", ["-m", "other.gguf"]),
                             ("data", "'data_hash'", ["--data", "data"]), ("length", "'examples'", ["--examples", "5"]),
                             ("seeds", "'noise_seeds'", ["--noise-seeds", "2"]), ("count", "'count'", ["--shard", "2/3"]),
                             ("signals", "'signals'", ["--signals", "values,keys"])):
        good(f"other {name}", *args, "--shard", "2/2", *more, "-o", "strange.json")
        refused(f"another {name}", INPUT, ["part1of2.json", "strange.json", what], *merge, "strange.json", "-o", "x.json")
    text = pathlib.Path("part2of2.json").read_text()
    for name, broken, what in (("cut", text[:-30], "not JSON"), ("a profile", text.replace("profile-shard", "profile"),
                                                                 "'format'"),
                               ("a number less", text.replace('"local": [', '"local": [[],', 1), "numbers"),
                               ("a negative one", text.replace('"kl": [', '"kl": [-', 1), "below 0"),
                               ("another shard's", text.replace('"example": 1', '"example": 2', 1), "another shard"),
                               ("one twice", text.replace('"example": 3', '"example": 1', 1), "twice"),
                               ("a digit", re.sub(r'"kl": \[(\d)', lambda m: f'"kl": [{(int(m[1]) + 1) % 10}', text,
                                                  count=1), "key 'sum'"),
                               ("another setting", text.replace('"noise": 0.5', '"noise": 0.4'), "key 'sum'"),
                               ("no sum", text.replace('"sum"', '"total"'), "'sum'"),
                               ("no state", text.replace('"used"', '"good"', 1), "state 'good'")):
        pathlib.Path("broken.json").write_text(broken)
        check(broken != text, f"{name}: something changed")
        refused(name, INPUT, ["broken.json: ", what], *merge, "broken.json", "-o", "x.json")
    refused("no part", INPUT, ["absent: "], *merge, "absent", "-o", "x.json")
    refused("nothing to merge", USAGE, ["--merge"], "profile", "--merge", "-o", "x.json")
    for value in ("0/2", "3/2", "1", "1/0", "a/b", "1/2x", "", "4294967297/4294967298", "1/1048577", "+1/2", "1/ 2"):
        refused(f"--shard {value}", USAGE, [f"--shard: '{value}'", "1/4"], *args, "--shard", value, "-o", "x.json")
    refused("a stable shard", USAGE, ["shard"], *args, "--shard", "1/2", "--until-stable", "-o", "x.json")


# ---- certainty ----

def check_until_stable():
    rng = random.Random(4)
    pathlib.Path("many").write_text("".join(
        json.dumps({"prompt_ids": [rng.randrange(1, 500) for _ in range(60)]}) + "\n" for _ in range(60)))
    args = ["profile", "-m", "m.gguf", "--data", "many", "--response", "8", "--signals", "values", "--noise-seeds", "1"]
    sure = good_json("until stable", *args, "--until-stable", "-o", "sure.json", "--json")
    used = sure["examples"]["used"]
    looked = used + sum(sure["examples"][k] for k in ("skipped_short_answer", "skipped_long_prompt"))
    check(4 <= used < 60 and sure["diagnostics"]["widest_budget"] <= 0.02 and sure["diagnostics"]["more_examples"] == 0,
          f"stopped when it was sure: {used} used, {sure['diagnostics']}")
    good("as many", *args, "--examples", str(looked), "-o", "fixed.json")
    check(pathlib.Path("fixed.json").read_bytes() == pathlib.Path("sure.json").read_bytes(), "the bytes of a fixed number")
    good("some at a time", *args, "--until-stable", "--memory", "1G", "-o", "fixed.json")
    check(pathlib.Path("fixed.json").read_bytes() == pathlib.Path("sure.json").read_bytes(), "and of a batch that knows more")
    if used > 4:
        short = good_json("one less", *args, "--examples", str(looked - 1), "-o", "fixed.json", "--json")
        check(short["diagnostics"]["widest_budget"] > 0.02 and short["diagnostics"]["more_examples"] > 0,
              f"one example less is not enough: {short['diagnostics']}")
    deep = ["profile", "-m", "deep.gguf", *args[3:]]
    make_model("deep.gguf", layers=10)
    for n, more in ((5, []), (6, []), (6, ["--until-stable"])):
        got = good_json("not sure", *deep, "--examples", str(n), *more, "-o", "fixed.json", "--json")
        half = [max(x["budget_high"] - x["budget"], x["budget"] - x["budget_low"]) for x in got["sensitivity"]]
        layer, widest, missing = half.index(max(half)), 100 * max(half), got["diagnostics"]["more_examples"]
        text = good("in words", "profile", "--show", "fixed.json").out.decode()
        words = (f"that of layer {layer}, +-{widest:.1f} % of the mean; for +-2 % about {missing} more examples are needed, and "
                 f"as many again as now give about +-{widest / 2 ** 0.5:.1f} %\n")
        check(missing > 0 and text.endswith(words), f"{n}: what is missing: {text}, expected {words}")
    text = good("sure in words", "profile", "--show", "sure.json").out.decode()
    check(re.search(r"every budget is known to \+-[01]\.\d % of the mean, the widest interval is that of layer [01]\n$", text), text)
    for name, words in (("sure", "every budget is known to +-"), ("fixed", "the widest interval of a budget, +-")):
        bare = json.loads(pathlib.Path(f"{name}.json").read_text())
        for x in bare["sensitivity"]:
            for key in [k for k in x if k.split("_")[0] in ("rank", "budget")]:
                del x[key]
        pathlib.Path("bare.json").write_text(json.dumps(bare))
        bare_text = good("without the layers' intervals", "profile", "--show", "bare.json").out.decode()
        check(words in bare_text and "layer -1" not in bare_text and "is that of layer" not in bare_text, bare_text)
    check("budget 95 %" in text and "Spearman of sensitivity with" in text, f"report: {text}")
    layers = sure["sensitivity"]
    check(all(x["rank_low"] <= x["rank"] <= x["rank_high"] and x["budget_low"] <= x["budget"] <= x["budget_high"]
              for x in layers), f"intervals around the numbers: {layers}")


def check_verdict():
    """--check: the same model, its other seeds, and a profile whose order is another."""
    make_model("deep.gguf", layers=10)
    make_model("deep9.gguf", layers=10, seed=9)
    args = ["--data", "data", "--response", "8", "--signals", "values"]
    good("deep", "profile", "-m", "deep.gguf", *args, "-o", "deep.json")
    against = lambda name, model, *more: rkv("profile", "--check", name, "-m", model, "--data", "long", *more)
    r = against("deep.json", "deep.gguf")
    check(r.rc == 0 and b"The profile holds" in r.out and b"1 example here" in r.out and b"fingerprint" not in r.out,
          f"the same model: {r}")
    profile = json.loads(pathlib.Path("deep.json").read_text())
    means = [x["mean"] for x in profile["sensitivity"]]
    for x, mean in zip(profile["sensitivity"], reversed(means)):
        x["mean"] = mean
    pathlib.Path("turned.json").write_text(json.dumps(profile))
    for name, model, holds, same in (("deep.json", "deep.gguf", True, True), ("turned.json", "deep.gguf", False, True),
                                     ("deep.json", "deep9.gguf", True, False), ("turned.json", "deep9.gguf", False, False)):
        r = against(name, model, "--examples", "2", "--json")
        got = json.loads(r.out or b"{}")
        check(r.rc == (0 if holds else FAILED) and not r.err and got.get("holds") == holds and got["examples"] == 2 and
              got["same_model"] == same and (got["spearman"] >= got["threshold"]) == holds and
              -1 <= got["low"] <= got["spearman"] <= got["high"] <= 1, f"{name} on {model}: {r}")
    text = against("turned.json", "deep9.gguf").out.decode()
    check("another fingerprint" in text and "does not hold" in text and "another fingerprint" in text.split("\n")[0], text)
    refused("other layers", INPUT, ["10 layers", "has 2"], "profile", "--check", "deep.json", "-m", "m.gguf", "--data",
            "data")
    refused("no profile", INPUT, ["absent: "], "profile", "--check", "absent", "-m", "m.gguf", "--data", "data")
    refused("no data", USAGE, ["--data"], "profile", "--check", "deep.json", "-m", "deep.gguf")
    refused("three things", USAGE, ["--merge", "--check"], "profile", "--check", "deep.json", "--merge", "deep.json")


def check_overwrites():
    """No output over an input or another output, by whatever name or link; nothing is touched."""
    for name in ("part1", "part2"):
        good(name, *SMALL, "--shard", f"{name[-1]}/2", "-o", f"{name}.json")
    for name, source in (("in.gguf", "m.gguf"), ("in.jsonl", "data"), ("shown.json", "profile.json"), ("in.ids", "five")):
        pathlib.Path(name).write_bytes(pathlib.Path(source).read_bytes())
    for i in (1, 2):
        pathlib.Path(f"in-0000{i}-of-00002.gguf").write_bytes(b"shard")
    pathlib.Path("link").symlink_to("in.jsonl")
    os.link("in.gguf", "hard")
    work = ["profile", "-m", "in.gguf", "--data", "in.jsonl"]
    inputs = [p for p in pathlib.Path().iterdir() if p.is_file()]
    before = {p: p.read_bytes() for p in inputs}
    for parts, args in (
            (["-o: './in.gguf'", "the -m"], [*work, "-o", "./in.gguf"]), (["the -m"], [*work, "-o", "hard"]),
            (["the -m"], [*work, "-m", "in-00001-of-00002.gguf", "-o", "in-00002-of-00002.gguf"]),
            (["the --data; name another file"], [*work, "-o", "in.jsonl"]), (["the --data"], [*work, "-o", "link"]),
            (["--html: 'in.jsonl'"], [*work, "-o", "x.json", "--html", "in.jsonl"]),
            (["'./new.json'", "the -o"], [*work, "-o", "new.json", "--html", "./new.json"]),
            (["the -o"], [*work, "-o", "folder/new.json", "--html", "folder/../folder/new.json"]),
            (["among the parts"], ["profile", "--merge", "part1.json", "part2.json", "-o", "part1.json"]),
            (["the --show"], ["profile", "--show", "shown.json", "--html", "./shown.json"]),
            (["--logits", "the --ids"], ["score", "-m", "in.gguf", "--ids", "in.ids", "--logits", "in.ids"]),
            (["--logits", "the -m"], ["score", "-m", "in.gguf", "--ids", "in.ids", "--logits", "hard"]),
            (["--write", "the -m"], ["eval", "-m", "in.gguf", "--needle", "100", "--write", "in.gguf"]),
            (["--db", "the --data"], ["eval", "-m", "in.gguf", "--data", "in.jsonl", "--db", "in.jsonl"]),
            (["-o: the name", "empty"], [*work, "-o", ""]),
            (["--html: the name", "empty"], [*work, "-o", "x.json", "--html", ""])):
        refused(" ".join(args), USAGE, parts, *args)
    check(all(p.read_bytes() == before[p] for p in inputs), "every input is as it was")
    good("devices are no files", *SMALL, "-o", "/dev/null", "--html", "/dev/null")
    good("a file through a link", *SMALL, "-o", "folder/made.json")
    for p in ("link", "out"):
        pathlib.Path(p).unlink(missing_ok=True)
    pathlib.Path("out").symlink_to("folder/made.json")
    pathlib.Path("folder/made.json").write_text("old")
    os.chmod("folder/made.json", 0o600)
    good("a file through a link", *SMALL, "-o", "out")
    made = pathlib.Path("folder/made.json")
    check(pathlib.Path("out").is_symlink() and made.stat().st_mode & 0o777 == 0o600 and
          made.read_bytes() == pathlib.Path("profile.json").read_bytes(), "link and mode stay")


def check_lost():
    """What cannot be written is no fault of an input, whichever output it is."""
    good("a part", *SMALL, "--shard", "1/1", "-o", "whole.part")
    for name, args in (("shard", [*SMALL, "--shard", "1/2"]), ("merge", ["profile", "--merge", "whole.part"])):
        refused(f"{name}, no folder", FAILED, ["absent/x.json: cannot be written: No such file"], *args, "-o", "absent/x.json")
    refused("shard, no room", FAILED, ["/dev/full: cannot write: No space"], *SMALL, "--shard", "1/2", "-o", "/dev/full")
    unsaved("merge, no room", ["/dev/full: cannot write: No space"], "profile", "--merge", "whole.part", "-o", "/dev/full")
    with open("/dev/full", "wb") as full:
        for name, args in (("work", [*SMALL, "-o", "x.json"]), ("shard", [*SMALL, "--shard", "1/1", "-o", "x.json"]),
                           ("merge", ["profile", "--merge", "whole.part", "-o", "x.json"]),
                           ("show", ["profile", "--show", "profile.json"]),
                           ("check", ["profile", "--check", "profile.json", *SMALL[1:]])):
            for more in ([], ["--json"]):
                r = rkv(*args, *more, stdout=full)
                check(r.rc == FAILED and r.one_line() and "cannot write the output: No space" in r.err, f"{name} {more}: {r}")
    pathlib.Path("x.json").unlink()
    measured = json.loads(pathlib.Path("profile.json").read_text())
    for name, args in (("work", SMALL), ("merge", ["profile", "--merge", "whole.part"])):
        r = rkv(*args, "-o", "/dev/full", "--json")
        got = json.loads(r.out or b"{}")
        check(r.rc == FAILED and r.one_line() and set(got) == {"error", "profile"} and got["profile"] == measured and
              r.err == f"rkv: {got['error']}\n" and "/dev/full: cannot write" in r.err, f"{name}, JSON of what is not saved: {r}")
        check(good_json(f"{name} to nowhere", *args, "-o", "/dev/null", "--json") == measured, f"{name}: JSON of memory")


def check_in_folder():
    """An output in the folder of --resume, and what must not be written there."""
    whole = pathlib.Path("profile.json").read_bytes()
    good("in the new folder", *SMALL, "--resume", "own", "-o", "own/x.json", "--html", "own/x.html")
    good("by another name", *SMALL, "--resume", "./own/", "-o", "folder/../own/y.json")
    check(pathlib.Path("own/x.json").read_bytes() == pathlib.Path("own/y.json").read_bytes() == whole and
          rows("own", "SELECT count(*) FROM example") == [(3,)], "profile and database beside each other")
    pathlib.Path("own/link").symlink_to("profile.sqlite")
    for folder in ("own", "fresh"):
        for name in ("profile.sqlite", "profile.sqlite-wal", "profile-1-of-2.sqlite") + (("link",) if folder == "own" else ()):
            for more in (["-o", f"{folder}/{name}"], ["-o", "x.json", "--html", f"{folder}/../{folder}/{name}"]):
                refused(f"{more[-1]}", USAGE, [f"{more[-2]}: '{more[-1]}' is also where --resume keeps"], *SMALL, "--resume",
                        folder, *more)
    for folder, output in (("same", "same"), ("same/", "same"), ("same", "./same")):
        refused(f"-o {output} for --resume {folder}", FAILED, [f"{output}: cannot be written: Is a directory"], *SMALL,
                "--resume", folder, "-o", output)
    refused("no model", INPUT, ["absent: "], *SMALL, "-m", "absent", "--resume", "fresh", "-o", "fresh/x.json")
    good("gone on", *SMALL, "--resume", "own", "-o", "own/y.json")
    check(pathlib.Path("own/y.json").read_bytes() == whole, "the database is as it was")


def check_memory():
    """What does not fit is refused before the work, with the option that does fit: not in the middle of it."""
    if SANITIZED:
        return skip(20, "sanitizers need their address space")
    rng = random.Random(1)
    pathlib.Path("last_long").write_text("".join(
        json.dumps({"prompt_ids": [rng.randrange(1, 500) for _ in range(n)]}) + "\n" for n in (100, 300, 3000)))
    args = ["profile", "-m", "slow.gguf", "--data", "last_long", "--response", "8", "--noise-seeds", "200", "-o", "x.json"]
    base, seen = peak_address_space(), set()
    for extra in (20, 28, 40, 64, 100, 130, 400):
        limits = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_AS, (base + (extra << 20),) * 2)}
        r = rkv(*args, **limits)
        if r.rc == 0:
            seen.add("fits")
            continue
        words = re.search(r"an example of 3000 tokens takes [\d.]+ MiB .*; [\d.]+ MiB are available: use (.*)\n$", r.err)
        if not check(r.rc == MEMORY and r.one_line() and words and not r.out, f"{extra} MiB: {r}"):
            continue
        options = re.findall(r"(--batch-rows|-c) (\d+)", words[1])
        if options:
            seen.add(options[-1][0])
            good(f"{extra} MiB with {words[1]}", *args, *[x for pair in options for x in pair], **limits)
    check(seen == {"fits", "--batch-rows", "-c"}, f"what helped: {seen}")
    good("all of it", *args)
    whole = pathlib.Path("x.json").read_bytes()
    bound = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_AS, (base + (250 << 20),) * 2)}
    r = good("a bound of more than there is", *args, "--memory", "64G", "-v", **bound)
    check(pathlib.Path("x.json").read_bytes() == whole and "256 examples at a time" in r.err, f"the same bytes: {r}")
    pathlib.Path("x.json").unlink()
    refused("a bound of too little", MEMORY, ["the bound is 60.0 MiB", "; --batch-rows 16 would fit"], *args, "--memory", "60M")
    good("a bound of too little", *args, "--memory", "60M", "--batch-rows", "16")
    check(pathlib.Path("x.json").read_bytes() == whole, "the same bytes")


def check_little():
    """One layer, layers that all slide, prompts that nothing is removed of."""
    make_model("one.gguf", layers=1)
    args = ["--data", "data", "--response", "8"]
    text = good("one layer", "profile", "-m", "one.gguf", *args, "-o", "one.json").out
    check(b"one layer in the budget" in text and b"nan" not in text, f"one layer: {text}")
    refused("one layer", INPUT, ["one layer in the budget: no order"], "profile", "--check", "one.json", "-m", "one.gguf",
            "--data", "data")
    make_model("slides.gguf", family="gemma3", layers=4, window=16, pattern=100)
    refused("all layers slide", INPUT, ["every layer has a sliding window"], "profile", "-m", "slides.gguf", *args, "-o",
            "x.json")
    pathlib.Path("pretty").write_text(json.dumps({"prompt_ids": [1, 2]}, indent=1))
    refused("an object over some lines", INPUT, ["pretty: line 1: not JSON", "expected one object per line"], *SMALL[:3],
            "--data", "pretty", "-o", "x.json")
    for n, told in ((36, True), (37, False)):
        pathlib.Path("brief").write_text(json.dumps({"prompt_ids": list(range(1, n + 1))}) + "\n")
        r = good(f"{n} tokens", *SMALL[:3], "--data", "brief", "--response", "8", "-o", "brief.json")
        check((f"the longest prompt has {n} tokens" in r.err) == told, f"{n} tokens: {r}")
        more = json.loads(pathlib.Path("brief.json").read_text())["diagnostics"]["more_examples"]
        check(more is None, f"one example: {more} more")
        check("nan" not in r.out.decode() and "1 example used; two or more" in r.out.decode(), f"one example: {r.out}")


def check_settings():
    for option, values, what in (("signals", ["x", "values,", ",", "Values", "keys,values+keys"], "head-curves"),
                                 ("grid", ["0", "100", "20,10", "5,5", "x", "", "5;10", ",".join(map(str, range(1, 34)))],
                                  "ascending"),
                                 ("damage-budget", ["0", "100%", "x", "10,20", "-5"], "percentage"),
                                 ("selector", ["full", "nope", "curve", "snapkv:uniform"],
                                  "expected one of full, streaming, snapkv, h2o, observed, tova, knorm, expected, blend (")):
        for value in values:
            refused(f"--{option} {value}", USAGE, [value.split(",")[-1 if option == "signals" else 0], what], *SMALL, f"--{option}", value, "-o", "x.json")
    refused("no signals", USAGE, ["--signals: ''"], *SMALL, "--signals", "", "-o", "x.json")
    verify = ["profile", "--check", "profile.json", *SMALL[1:]]
    refused("-o of --check", USAGE, ["--check writes no profile"], *verify, "-o", "zz.json")
    env = {"RIPPLEKV_OUTPUT": "profile.json", "RIPPLEKV_HTML": "zz.html"}
    good("-o of the environment", "profile", "--show", "profile.json", env={"RIPPLEKV_OUTPUT": "profile.json"})
    refused("no -o", USAGE, ["-o FILE"], *SMALL, env={})
    good_json("-o of the environment", *verify, "--json", env=env)
    got = good_json("settings", *SMALL, "--signals", "damage,head-curves,layer-curves", "--grid", "12.5%,40", "-o", "x.json",
                    "--json", "--damage-budget", "25")
    check([(c["kind"], c["unit"], c["grid"]) for c in got["curves"]] ==
          [("measured", "layer", [0.125, 0.4]), ("measured", "head", [0.125, 0.4])], f"curves: {got.get('curves')}")
    check(got["settings"]["signals"] == "values,damage,layer-curves,head-curves" and
          got["settings"]["damage_budget"] == 0.25 and len(got["damage"]) == 2 and "keys" not in got, "settings")
    check(got["settings"]["rope"]["scaling"] == "none" and got["settings"]["arithmetic"] in ("f32", "bf16", "int16"),
          "what it is valid for")
    usual = good_json("defaults", *SMALL, "-o", "x.json", "--json")
    check([(c["kind"], c["unit"], c["selector"], c["grid"]) for c in usual["curves"]] ==
          [("estimated", "head", "blend", [0.03, 0.05, 0.1, 0.2, 0.3, 0.5])], "defaults")
    alone = good_json("values alone", *SMALL, "--signals", "values", "-o", "x.json", "--json")
    check(alone["sensitivity"] == usual["sensitivity"] and "curves" not in alone, "the sensitivity alone is the same")
    pathlib.Path("x.json").unlink()
    check(rkv("select", "-m", "m.gguf", "--ids", "ids", "--kv-policy", "ripple", "--kv-budget", "30%", "--kv-profile",
              "profile.json", env={"RKV_GEMM": "int16"}).err.count("products in") == 1 or
          usual["settings"]["arithmetic"] == "int16", "a warning about another arithmetic")


def tests():
    always = [check_overwrites, check_lost, check_memory, check_settings, check_little, check_interrupted, check_progress, check_shards,
              check_until_stable, check_verdict]
    if without_sqlite() or sqlite3 is None:
        skip(60, "no SQLite in this build or in Python")
        return always
    return always + [check_in_folder, check_resume, check_kill_loop, check_damaged, check_together]


def main():
    run_tests(tests)


if __name__ == "__main__":
    main()
