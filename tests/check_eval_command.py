#!/usr/bin/env python3
"""rkv eval from outside: tables, scores of predictions, made samples, interrupted and killed at any moment and gone on
with, in parts, and options that make no sense. Runs from the build folder, as check_command.py."""
import contextlib
import ctypes
import json
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import time

from command_bed import (FAILED, INPUT, INTERRUPTED, RKV, SANITIZED, SHARED, USAGE, check, environment, finish, good,
                         good_json, make_model, refused, rkv, run_tests, skip, start, wait_for_work, without_sqlite)

try:
    import sqlite3
except ImportError:
    sqlite3 = None

POLICIES = ["--policies", "full,snapkv,h2o", "--budgets", "30%,60%"]
RUN = ["eval", "-m", "m.gguf", "--data", "samples.jsonl", *POLICIES]
SLOW = ["eval", "-m", "slow.gguf", "--data", "samples.jsonl", *POLICIES]


def write_samples():
    rng = random.Random(7)
    tasks = ("qasper", "hotpotqa", "gov_report", "trec", "samsum", "passage_count", "lcc", "multifieldqa_zh")
    lines = [{"id": f"s{i}", "task": tasks[i % 8], "max_gen": 10, "answers": ["5" if i % 8 == 5 else "an answer"],
              "all_classes": ["an answer", "none"], "prompt_ids": [rng.randrange(1, 500) for _ in range(150)]}
             for i in range(16)]
    pathlib.Path("samples.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    many = [{**x, "id": f"{x['id']}-{i}", "prompt_ids": x["prompt_ids"][:140] + [1 + i]} for i in range(8) for x in lines]
    pathlib.Path("many.jsonl").write_text("".join(json.dumps(x) + "\n" for x in many))
    many[1]["max_gen"] = 500                    # rank 1 of two has it, and with -c 400 no room for it
    pathlib.Path("room.jsonl").write_text("".join(json.dumps(x) + "\n" for x in many))
    words = "".join(f"Line {i} of a text that is long. " for i in range(20))
    asked = [{"id": f"a{i}", "task": "qasper", "max_gen": 8, "answers": ["x"], "context": words + str(i // 2),
              "input": f"What is {i}?"} for i in range(6)]
    pathlib.Path("asked.jsonl").write_text("".join(json.dumps(x) + "\n" for x in asked))


def rows(name):
    """All results of a database, in order; [] while there is none."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{name}?mode=ro", uri=True)) as db:
            return db.execute("SELECT * FROM result ORDER BY run, sample, policy, budget").fetchall()
    except sqlite3.Error:
        return []


# ---- what comes out ----

def check_tables():
    text = good("a table", *RUN).out.decode()
    check(all(x in text for x in ("protocol Q", "16 samples", "h2o@60% - snapkv@60%", "segmentation", "avg16")), text)
    got = good_json("JSON", *RUN, "--json")
    by = {(p["policy"], p["budget"]): p for p in got["policies"]}
    check(set(by) == {("full", "100%"), ("snapkv", "30%"), ("snapkv", "60%"), ("h2o", "30%"), ("h2o", "60%")}, f"{set(by)}")
    full = by["full", "100%"]
    check(all(p["n"] == 16 and not p["refused"] and not p["missing"] for p in by.values()), "every sample")
    check(full["kl"] == 0 and all(p["kl"] > 0 and p["kl_low"] <= p["kl"] <= p["kl_high"] for k, p in by.items() if k[0] != "full"),
          "KL with intervals")
    for budget, share in (("30%", 0.3), ("60%", 0.6)):
        a, b = by["snapkv", budget], by["h2o", budget]
        check(a["bytes"] == b["bytes"] == round(share * full["bytes"]) and a["kept"] == 2 * 150 * share, f"equal totals: {a}")
    tasks = full["tasks"]
    check("multifieldqa_zh" not in tasks and len(tasks) == 7 and full["tasks_counted"] == 7, f"tasks: {tasks}")
    check(abs(full["average16"] - sum(t["score"] for t in tasks.values()) / 7) < 1e-9, "plain mean")
    check(full["categories_counted"] == 6 and abs(full["average6"] - sum(full["categories"].values()) / 6) < 1e-9,
          "mean of categories")
    pairs = {(c["what"], c["policy"], c["budget"]): c for c in got["comparisons"]}
    check(set(pairs) == {(w, "h2o", b) for w in ("score", "kl") for b in ("30%", "60%")}, f"{set(pairs)}")
    kl = pairs["kl", "h2o", "30%"]
    check(abs(kl["mean"] - (by["h2o", "30%"]["kl"] - by["snapkv", "30%"]["kl"])) < 1e-9 and
          kl["more"] + kl["less"] + kl["equal"] == kl["n"] >= 14 and kl["low"] <= kl["mean"] <= kl["high"], f"pairs: {kl}")
    other = good_json("against another", *RUN, "--json", "--against", "h2o@60%")["comparisons"]
    check({(c["policy"], c["budget"]) for c in other} == {("snapkv", "30%"), ("snapkv", "60%"), ("h2o", "30%")} and
          all(c["against_budget"] == "60%" for c in other), f"{other}")
    lines = good("CSV", *RUN, "--csv").out.decode().splitlines()
    check(len(lines) == 1 + 5 * 8 and all(x.count(",") == 10 for x in lines), "a row per policy and task")
    got = good_json("some tasks", *RUN, "--tasks", "trec,lcc", "--limit", "1", "--json")
    check(got["samples"] == 2, f"{got['samples']}")
    threads = good("threads", *RUN, "--json", "-t", "2", "-ub", "32").out
    check(threads == good("one thread", *RUN, "--json", "-t", "1").out, "the same table for any threads")


def check_refusals():
    got = good_json("a budget below the floor", *RUN[:-1], "10%,20", "--json")["policies"]
    check(all(p["refused"] == 16 and p["n"] == 0 and p["kl"] is None for p in got[1:]), f"refused, and said: {got[1:]}")
    got = good_json("a budget above the prompt", *RUN[:-1], "1000", "--json")["policies"]
    check(all(p["untouched"] == 16 and p["kl"] == 0 for p in got[1:]), f"untouched, and said: {got[1:]}")


def check_protocols():
    args = ["eval", "-m", "m.gguf", "--data", "asked.jsonl", *POLICIES, "--json"]
    q, a = good_json("Q", *args), good_json("A", *args, "--protocol", "A")
    check((q["protocol"], a["protocol"]) == ("Q", "A") and a["policies"][1]["kl"] > 0, "both")
    check(a["policies"][1]["kept"] < q["policies"][1]["kept"], "A compresses the context alone")
    check(a["policies"][0]["tasks"] and a["samples"] == 6, "all questions")
    refused("A of ids", INPUT, ["'s0'", "protocol Q"], *RUN, "--protocol", "A")


def check_scores():
    lines = [{"id": "x", "task": "triviaqa", "prediction": "\nfifty\nmore", "answers": ["no", "Fifty"]},
             {"id": "y", "task": "dureader", "prediction": "a", "answers": ["a"]},
             {"id": "z", "task": "trec", "prediction": "Food Date", "answers": ["Food"], "all_classes": ["Food", "Date"]}]
    pathlib.Path("p.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    got = good_json("scores", "eval", "--score", "p.jsonl")["rows"]
    check([(r["id"], r["score"]) for r in got] == [("x", 1), ("y", None), ("z", 0.5)] and "segmentation" in got[1]["unsupported"],
          f"{got}")
    for name, text, what in (("bad.jsonl", '{"id":1}\n', "line 1"), ("bad.jsonl", '{"task":"lcc"}\n', "'prediction'"),
                             ("bad.jsonl", '{"task":"passage_retrieval_en","prediction":"1","answers":["x"]}\n', "'x'")):
        pathlib.Path(name).write_text(text)
        refused(f"a bad prediction {text}", INPUT, ["bad.jsonl: line 1", what], "eval", "--score", name)
    refused("no predictions", INPUT, ["absent: "], "eval", "--score", "absent")
    parity = SHARED / "longbench" / "metric_parity.jsonl"
    if not parity.exists():
        return skip(1, "no ../shared/data/longbench")
    want = [json.loads(line) for line in parity.read_text().splitlines()]
    got = good_json("recorded predictions", "eval", "--score", str(parity))["rows"]
    good_rows = [abs(g["score"] - w["score"]) <= 1e-4 for g, w in zip(got, want) if g["score"] is not None]
    check(len(good_rows) == 110 and all(good_rows), f"{sum(good_rows)} of {len(good_rows)} recorded scores")


def check_made():
    made = ["eval", "-m", "long.gguf", "--ruler", "2K", "--needle", "1500", "--samples", "1", "--depths", "2"]
    make_model("long.gguf", ctx=4096)
    good("written", *made, "--write", "made.jsonl")
    good("written again", *made, "--write", "made2.jsonl")
    good("another seed", *made, "--write", "made3.jsonl", "--seed", "1")
    text = pathlib.Path("made.jsonl").read_bytes()
    check(text == pathlib.Path("made2.jsonl").read_bytes() != pathlib.Path("made3.jsonl").read_bytes(), "by the seed")
    lines = [json.loads(x) for x in text.splitlines()]
    check(len(lines) == 15 and len({x["id"] for x in lines}) == 15, f"{[x['id'] for x in lines]}")
    args = ["--policies", "snapkv", "--budgets", "30%", "--json", "--tasks", "vt,passkey,qa_1"]
    got, read = good_json("a made run", *made, *args), good_json("from its file", "eval", "-m", "long.gguf", "--data",
                                                                   "made.jsonl", *args)
    check(got == read and got["samples"] == 4 and len(got["needles"]) == 4, f"{got['samples']}: the same run from the file")
    check({(x["length"], x["depth"]) for x in got["needles"]} == {(1500, 0), (1500, 1)} and
          all(x["low"] <= x["found"] / x["n"] <= x["high"] for x in got["needles"]), f"{got['needles']}")
    refused("too short", USAGE, ["too short"], "eval", "-m", "long.gguf", "--ruler", "50", "--write", "x.jsonl")
    refused("not written", FAILED, ["absent/x: "], *made, "--write", "absent/x")


def check_settings():
    refused("no data", USAGE, ["--data"], "eval", "-m", "m.gguf")
    refused("data twice", USAGE, ["--data"], *RUN, "--ruler", "4K")
    refused("no budgets", USAGE, ["--budgets"], *RUN[:-2])
    refused("an unknown policy", USAGE, ["nope"], *RUN, "--policies", "full,nope")
    refused("a policy twice", USAGE, ["'h2o' is there twice"], *RUN, "--policies", "h2o,h2o")
    refused("an empty name", USAGE, ["--policies"], *RUN, "--policies", "h2o,")
    refused("a bad budget", USAGE, ["x%"], *RUN, "--budgets", "x%")
    refused("a profile is missing", USAGE, ["--kv-profile"], *RUN, "--policies", "ripple")
    refused("an unknown task", USAGE, ["'nope'"], *RUN, "--tasks", "nope")
    refused("a bad shard", USAGE, ["1/4"], *RUN, "--shard", "5/4")
    refused("a bad protocol", USAGE, ["Q|A"], *RUN, "--protocol", "B")
    for value in ("x", "0", "4K,", "4Q"):
        refused(f"--ruler {value}", USAGE, ["4K"], "eval", "-m", "m.gguf", "--ruler", value)
    data = ["eval", "-m", "m.gguf", "--data"]
    for name, what in {"absent": "No such file", "empty": "no example", "bad3": "line 3", "text": "line 1",
                       "folder": "no file of a task", "far_id": "line 1", "nul_text": "NUL"}.items():
        refused(f"--data {name}", INPUT, [name, what], *data, name)
    pathlib.Path("twice.jsonl").write_text(json.dumps({"id": "x", "prompt": "p"}) + "\n" + json.dumps({"id": "x", "prompt": "p"}))
    refused("a sample twice", INPUT, ["line 2", "line 1"], *data, "twice.jsonl")
    refused("the answer leaves no room", USAGE, ["'s0'", "room"], *RUN, "-c", "11")
    help_text = good("help", "eval", "--help").out.decode()
    check("--policies" in help_text and "-o, --db" in help_text, help_text)


def check_folder():
    """No output over a file of a folder of samples, by whatever name."""
    data = pathlib.Path("tasks")
    data.mkdir()
    line = json.dumps({"id": "x", "task": "lcc", "answers": ["x"], "max_gen": 4, "prompt_ids": list(range(1, 60))})
    (data / "lcc.jsonl").write_text(line + "\n")
    pathlib.Path("link.jsonl").symlink_to("tasks/lcc.jsonl")
    pathlib.Path("same").symlink_to("tasks")
    args = ["eval", "-m", "m.gguf", "--data", "tasks"]
    for option in ("--html", "--db"):
        for name in ("tasks/lcc.jsonl", "tasks/trec.jsonl", "link.jsonl", "same/lcc.jsonl", "./tasks/../tasks/lcc.jsonl"):
            refused(f"{option} {name}", USAGE, [option, f"'{name}'", "--data"], *args, option, name)
    check((data / "lcc.jsonl").read_text() == line + "\n", "the samples are as before")
    good("another file there", *args, "--html", "tasks/page.html")


# ---- the database ----

def check_resume():
    """Stopped at any moment; what is there stays, and the end is as if nothing had been."""
    began = time.monotonic()
    whole = good("undisturbed", *SLOW, "--db", "whole.sqlite").out
    took = time.monotonic() - began
    want = [r[1:] for r in rows("whole.sqlite")]
    check(len(want) == 16 * 5, f"{len(want)} rows")
    rng, kills = random.Random(3), 0
    seen = []
    for _ in range(60):
        p = start(*SLOW, "--db", "killed.sqlite")
        had, end = len(seen), time.monotonic() + rng.uniform(0.0, took / 4)
        while p.poll() is None and (time.monotonic() < end or len(rows("killed.sqlite")) == had):
            time.sleep(0.01)
        if p.poll() is None:
            p.kill()
            kills += 1
        r = finish(p)
        now = rows("killed.sqlite")
        check(set(seen) <= set(now) and len(now) % 5 == 0, f"kept {len(seen)}, then {len(now)}")
        seen = now
        if r.rc == 0:
            break
    check(r.rc == 0 and r.out == whole and [x[1:] for x in seen] == want and kills >= 2, f"killed {kills} times, the same: {r}")
    check(good("nothing left", *SLOW, "--db", "killed.sqlite").out == whole, "the same table again")
    check(rows("killed.sqlite") == seen, "nothing done twice")
    more = good_json("one more policy", *SLOW, "--db", "killed.sqlite", "--policies", "snapkv,observed", "--json")
    now = rows("killed.sqlite")
    check(set(seen) <= set(now) and len(now) == 16 * 7 and len(more["policies"]) == 5, f"{len(now)} rows with another policy")
    good("another setting", *SLOW, "--db", "killed.sqlite", "--max-length", "100", "--limit", "1")
    check(set(now) <= set(rows("killed.sqlite")) and len(rows("killed.sqlite")) == 16 * 7 + 8 * 5, "a run of its own")


def check_interrupted():
    for name, more, what in (("with", ["--db", "stop.sqlite"], "same command again"), ("without", [], "--db FILE")):
        p = start(*SLOW[:3], "--data", "many.jsonl", *POLICIES, *more)
        wait_for_work(p)
        time.sleep(0.3)
        began = time.monotonic()
        p.send_signal(signal.SIGINT)
        r = finish(p)
        took = time.monotonic() - began
        check(r.rc == INTERRUPTED and r.one_line() and what in r.err and not r.out, f"{name} a database: {r}")
        check(took < (20 if SANITIZED else 1), f"{name} a database: {took:.2f} s")


def no_override():
    """The program is bound by the modes of files, if root runs it too."""
    ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)     # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE


def check_parts():
    whole = good("whole", *RUN, "--json").out
    for i in (1, 2, 3):
        part = good_json(f"shard {i}", *RUN, "--db", "parts.sqlite", "--shard", f"{i}/3", "--json")
    check(part["policies"][0]["n"] == 16, "the last shard sees all")
    check(good("together", *RUN, "--db", "parts.sqlite", "--json").out == whole, "parts make the same table")
    alone = good_json("a shard alone", *RUN, "--shard", "1/4", "--json")["policies"][0]
    check((alone["n"], alone["missing"]) == (4, 12), f"{alone}")
    for name, code, what in (("text", INPUT, "not a database"), ("folder", FAILED, "Is a directory"),
                             ("absent/x.sqlite", FAILED, "No such file")):
        refused(f"--db {name}", code, [name, what], *RUN, "--db", name)
        if code == FAILED:
            refused(f"--write {name}", FAILED, [name, what], "eval", "-m", "m.gguf", "--needle", "100", "--write", name)
    good("a database", *RUN, "--limit", "1", "--db", "locked.sqlite")
    pathlib.Path("locked.sqlite").chmod(0o444)
    refused("a database without leave to write", FAILED, ["locked.sqlite: cannot be written: Permission denied"], *RUN,
            "--db", "locked.sqlite", preexec_fn=no_override)
    r = rkv(*RUN, "--db", "no-room.sqlite", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (30000, 30000)))
    check(r.rc == FAILED and r.one_line() and "no-room.sqlite: " in r.err and not r.out, f"no room for results: {r}")


def ranks(n, *args):
    """rkv by n ranks; None: it cannot be tried here."""
    env = environment({"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl": "self,vader"})
    p = subprocess.Popen(["mpirun", "--oversubscribe", "-n", str(n), RKV, *args], env=env, stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    r = finish(p, None)
    return None if "mpirun" in r.err and r.rc and not r.out and "rkv: " not in r.err else r


def check_ranks():
    """Ranks share the samples; one that fails stops the others, and its line is the only one."""
    if not shutil.which("mpirun") or SANITIZED:
        return skip(4, "no mpirun, or a sanitizer")
    r = ranks(3, *RUN, "--db", "ranks.sqlite", "--json", "--html", "ranks.html")
    if r is None:
        return skip(4, "mpirun cannot start processes")
    check(r.rc == 0 and r.out == good("alone", *RUN, "--json", "--html", "alone.html").out, f"three ranks: {r}")
    check(pathlib.Path("ranks.html").read_bytes() == pathlib.Path("alone.html").read_bytes(), "the same page")
    r = ranks(2, *SLOW[:3], "--data", "room.jsonl", *POLICIES, "-c", "400", "--db", "room.sqlite", "--html", "room.html")
    said = [x for x in r.err.splitlines() if x.startswith("rkv: ")]
    check(r.rc == USAGE and not r.out and len(said) == 1 and all(x in said[0] for x in ("rank 1: ", "'s1-0'", "room")),
          f"a sample that only rank 1 cannot measure: {r}")
    check(len(rows("room.sqlite")) < 5 * 32 and not pathlib.Path("room.html").exists(),
          f"the other rank stops: {len(rows('room.sqlite'))} rows of its {5 * 64}")
    r = ranks(2, *RUN, "--db", "ranks2.sqlite", "--against", "nope")
    said = [x for x in r.err.splitlines() if x.startswith("rkv: ")]
    check(r.rc == USAGE and len(said) == 1 and "'nope'" in said[0], f"all ranks fail alike: {r}")
    r = ranks(2, *RUN)
    said = [x for x in r.err.splitlines() if x.startswith("rkv: ")]
    check(r.rc == USAGE and not r.out and said and all("ranks share their samples by a database" in x for x in said),
          f"ranks without a database: {r}")


def tests():
    write_samples()
    always = [check_settings, check_tables, check_refusals, check_protocols, check_scores, check_made, check_folder]
    if without_sqlite() or sqlite3 is None:
        refused("no SQLite", INPUT, ["without SQLite"], *RUN, "--db", "x.sqlite")
        skip(90, "no SQLite in this build or in Python")
        return always
    return always + [check_interrupted, check_parts, check_ranks, check_resume]


if __name__ == "__main__":
    run_tests(tests)
