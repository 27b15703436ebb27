#!/usr/bin/env python3
"""rkv eval --html: a page that stands alone and holds the numbers of --json, whatever the data; from a finished store
too. Runs from the build folder, as check_command.py."""
import contextlib
import json
import pathlib
import random
import re

from command_bed import FAILED, INPUT, USAGE, check, good, good_json, make_model, refused, rkv, run_tests, skip, without_sqlite
from html_page import page

try:
    import sqlite3
except ImportError:
    sqlite3 = None

SETS = ["--policies", "full,snapkv,h2o", "--budgets", "60%,10%,30%"]    # 10%: only the long prompts, 1 of 4
RUN = ["eval", "-m", "m.gguf", "--data", "samples.jsonl", *SETS]
EVIL = "<script>a('x')</b>&\"b\""
UP, DOWN, MINUS, DASH = "\u25b2", "\u25bc", "\u2212", "\u2013"


def write_samples():
    rng = random.Random(7)
    tasks = ("lcc", "repobench-p", "samsum", "multifieldqa_zh")
    lines = [{"id": f"s{i}", "task": tasks[i // 4 % 4], "max_gen": 10, "answers": ["e t a o i n s h r d l u"],
              "prompt_ids": [rng.randrange(1, 500) for _ in range(150 if i % 4 else 400)]} for i in range(48)]
    pathlib.Path("samples.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    make_model("long.gguf", ctx=4096)
    good("needles", "eval", "-m", "long.gguf", "--needle", "600,900", "--samples", "2", "--depths", "3", "--write", "needles.jsonl")
    both = "".join(json.dumps(x) + "\n" for x in lines[:8]) + pathlib.Path("needles.jsonl").read_text()
    pathlib.Path("both.jsonl").write_text(both)


def run(name, *args):
    """JSON and page of one run."""
    path = re.sub(r"\W", "-", name) + ".html"
    return good_json(name, *args, "--json", "--html", path), page(name, path)


# ---- the page as tables of words ----

def words(cell):
    """What a cell says: its own text, then each span's."""
    return [(cell.text or "").strip()] + ["".join(s.itertext()) for s in cell.findall("span")]


def tables(p, kind):
    return [[[words(c) for c in row] for row in t.findall("tr")] for t in p.tree.iter("table") if t.get("class") == kind]


def fixed(v, decimals, sign=False):
    if v is None:
        return DASH
    text = f"{abs(v):.{decimals}f}"
    return (MINUS if v < 0 else "+" if sign else "") + text if float(text) else text


def same(got, want, decimals, sign=False):
    """A number as shown; ties may be rounded either way."""
    return got == fixed(want, decimals, sign) or (want is not None and got != DASH and
                                                  abs(float(got.replace(MINUS, "-")) - want) <= 0.5000001 * 10 ** -decimals)


def says(spans, d, name, decimals=2):
    """A difference with its interval, sign test and mark."""
    if not d or not d["n"]:
        return check(not spans, f"{name}: nothing to say: {spans}")
    if d["equal"] == d["n"]:
        return check(spans == [f"the same in all {d['n']}"], f"{name}: {spans}")
    m = re.fullmatch(rf"({UP} |{DOWN} |)(\S+) \((\S+) to (\S+)\)", spans[0])
    want = "" if not d["significant"] else f"{UP} " if d["mean"] > 0 else f"{DOWN} "
    ok = m and m[1] == want and all(same(m[i + 2], d[k], decimals, True) for i, k in enumerate(("mean", "low", "high")))
    tail = f", {d['more']} more, {d['less']} less"
    ok = ok and spans[1].startswith("p ") and spans[1].endswith(tail) and abs(float(spans[1][2:-len(tail)]) - d["p"]) <= 0.006 * d["p"]
    return check(bool(ok), f"{name}: {spans} for {d}")


def circles(p, title):
    svg = [s for s in p.tree.iter("svg") if s.findtext("title") == title]
    return [(x.get("class"), g.findtext("title")) for s in svg for g in s.iter("g") for x in g if x.tag in ("circle", "path")]


def compare_policies(name, got, p):
    (head, *rows), = tables(p, "policies")
    by = {(r[0][0], r[1][0]): {h[0]: c for h, c in zip(head, r)} for r in rows}
    check(set(by) == {(x["policy"], x["budget"]) for x in got["policies"]}, f"{name}: policies {set(by)}")
    for x in got["policies"]:
        key = x["policy"], x["budget"]
        r = by[key]
        ok = (r["Samples"][0] == str(x["n"]) and same(r["Score"][0], x["score"], 2) and same(r["KL"][0], x["kl"], 4) and
              same(r["Kept"][0], x["kept"], 0) and same(r["% of full"][0], x["share"] and 100 * x["share"], 1) and
              r["Refused"][0] == str(x["refused"]) and r["Untouched"][0] == str(x["untouched"]))
        check(ok, f"{name}: {key}: {r} for {x}")
        says(r["Score"][1:], x.get("to_full"), f"{name}: {key} to full")
        if "avg6" in r:
            check(same(r["avg6"][0], x["average6"], 2) and same(r["avg16"][0], x["average16"], 2), f"{name}: {key}: averages")
        if x["policy"] == "full" or x["n"] < 6:
            check(len(r["KL"]) == 1, f"{name}: {key}: no interval of KL: {r['KL']}")
        elif x["kl"] is not None:
            low, high = r["KL"][1].split(" to ")
            check(same(low, x["kl_low"], 4) and same(high, x["kl_high"], 4), f"{name}: {key}: interval of KL")


def compare_tasks(name, got, p):
    by = {(x["policy"], x["budget"]): x for x in got["policies"]}
    rival = {(c["policy"], c["budget"]): c for c in got["comparisons"] if c["what"] == "score"}
    budgets = [h.text[7:] for h in p.tree.iter("h3") if h.text and h.text.startswith("Budget ")]
    shown = tables(p, "tasks")
    for budget, (head, *rows) in zip(budgets, shown):
        for row in rows:
            task = row[0][0]
            for h, cell in list(zip(head, row))[2:]:
                key = ("full", "100%") if h[0] == "full cache" else (h[0], budget)
                whole = task == "all samples"
                x = by[key] if whole else by[key]["tasks"].get(task, {"score": None})
                check(same(cell[0], x["score"], 2), f"{name}: {task} {key}: {cell} for {x['score']}")
                d = rival.get(key)
                says([s for s in cell[1:] if "refused" not in s], d if whole or not d else d["tasks"].get(task), f"{name}: {task} {key}")
    (head, *rows), = tables(p, "kl") or [[[]]]
    for row in rows:
        for h, cell in list(zip(head, row))[2:]:
            x = by[row[0][0], row[1][0]]["tasks"].get(h[0])
            check(x is None or same(cell[0], x["kl"], 4), f"{name}: KL of {h[0]}: {cell}")
    (_, *rows), = tables(p, "layers") or [[[]]]
    for row in rows:
        x = by[row[0][0], row[1][0]]["layers"]
        check(len(x) == len(row) - 2 and all(same(c[0], v, 1) for c, v in zip(row[2:], x)), f"{name}: layers {row} for {x}")
    return shown


def compare_pictures(name, got, p):
    dots = circles(p, "Score (percent, mean of samples)") + circles(p, "KL to the full cache (nats)")
    scored = [x for x in got["policies"][1:] if x["score"] is not None]
    with_kl = [x for x in got["policies"][1:] if x["kl"] is not None]
    check(len(dots) == len(scored) + len(with_kl), f"{name}: {len(dots)} points")
    for x in scored:
        title = [t for c, t in dots if t.startswith(f"{x['policy']} at {x['budget']}: ") and t.endswith(f", {x['scored']} samples")]
        check(title and float(re.split(r"[ ,]", title[0].split(": ")[1])[0]) == float(f"{x['score']:.3g}"), f"{name}: {title} for {x['score']}")
    cells = [(r.get("class"), r.findtext("title")) for r in p.tree.iter("rect") if "cell" in (r.get("class") or "")]
    check(len(cells) == len(got["needles"]), f"{name}: {len(cells)} cells for {len(got['needles'])}")
    for x in got["needles"]:
        start = f"{x['length']} tokens, depth {100 * x['depth']:.0f} %: {x['found']:g} of {x['n']} found"
        check(any(t.startswith(start) for _, t in cells), f"{name}: {start}")


def compare(name, got, p):
    compare_policies(name, got, p)
    shown = compare_tasks(name, got, p)
    compare_pictures(name, got, p)
    n = sum(d["significant"] for d in [x["to_full"] for x in got["policies"][1:]]) + sum(
        d["significant"] for c in got["comparisons"] if c["what"] == "score" for d in [c, *c["tasks"].values()])
    check(sum(p.text.count(mark + " ") for mark in (UP, DOWN)) - bool(got["comparisons"]) == n, f"{name}: {n} marks")
    return shown


# ---- tests ----

def check_numbers():
    got, p = run("numbers", *RUN)
    shown = compare("numbers", got, p)
    check(got == good_json("without a page", *RUN, "--json"), "the page changes no number")
    check(len(shown) == 3 and len(shown[0]) == 2 + 4, f"a table a budget: {[len(x) for x in shown]}")
    by = {(x["policy"], x["budget"]): x for x in got["policies"]}
    check(by["h2o", "10%"]["n"] == 12 and by["h2o", "10%"]["refused"] == 36, "some are refused")
    dots = circles(p, "KL to the full cache (nats)")
    check([c for c, t in dots if " at 10%" in t] == ["hollow sa", "hollow sb"] and
          all("hollow" not in c for c, t in dots if " at 10%" not in t), f"hollow where samples were refused: {dots}")
    budgets = [h.text for h in p.tree.iter("h3")]
    check(budgets[:3] == ["Budget 10%", "Budget 30%", "Budget 60%"], f"by size: {budgets}")
    for word in ("Q: the question is in", "48 of 4 tasks, 36 with a score", "samples.jsonl", "Beside the full cache",
                 "Beside snapkv at the same budget", "Significant: the 95 %", "36 refused", "word segmentation",
                 "KL significantly lower, which is better: h2o at"):
        check(word in p.text, f"'{word}' in the page")
    rects = [r.get("class") for s in p.tree.iter("svg") if (s.findtext("title") or "").startswith("Kept tokens of") for r in s.iter("rect")]
    check(rects.count("a") == rects.count("b") == 3 * 2, f"bars of two layers: {rects}")
    page_a, page_b = pathlib.Path("numbers.html").read_bytes(), None
    good("threads", *RUN, "--html", "threads.html", "-t", "2", "-ub", "32")
    page_b = pathlib.Path("threads.html").read_bytes()
    check(page_a == page_b, "the same bytes for any threads")


def check_kinds():
    small = [*RUN, "--limit", "6"]
    got, p = run("needles", "eval", "-m", "long.gguf", "--data", "both.jsonl", *SETS)
    compare("needles", got, p)
    check(len(got["needles"]) == 7 * 6 and "tokens of the prompt" in p.text, f"{len(got['needles'])} cells")
    got, p = run("against another", *small, "--against", "h2o@60%")
    compare("against another", got, p)
    check("Beside h2o@60%" in p.text and len(got["comparisons"]) == 2 * 5, "another rival")
    got, p = run("against full", *small, "--against", "full")
    compare_policies("against full", got, p)
    compare_tasks("against full", got, p)
    check({(c["against"], c["against_budget"]) for c in got["comparisons"]} == {("full", "100%")} and
          p.text.count("Beside ") == 1 and "Score: difference to" not in p.text, "the full cache as rival, once")
    check("the difference to the full cache on the same samples (95 %" in p.text and "at the same budget" not in p.text,
          "the full cache has no budget")
    refused("against nothing", USAGE, ["'nope'"], *small, "--against", "nope")
    refused("against no budget", USAGE, ["'h2o@7%'"], *small, "--against", "h2o@7%")
    good("against oneself", *RUN[:5], "--policies", "h2o", "--budgets", "30%", "--against", "h2o", "--limit", "1")
    got, p = run("only full", *RUN[:5], "--limit", "6")
    compare_policies("only full", got, p)
    check("nothing to compare" in p.text and not list(p.tree.iter("svg")), "the full cache alone")
    got, p = run("few", *RUN, "--tasks", "lcc", "--limit", "5")
    compare("few", got, p)
    check("Too few samples with a score to tell: snapkv at" in p.text and UP + " " not in p.text.replace(f"{UP} {DOWN}", ""), "too few")
    got, p = run("all refused", *small, "--budgets", "20")
    compare("all refused", got, p)
    check(all(x["refused"] == 24 for x in got["policies"][1:]) and "refused" in p.text, "all refused")
    got, p = run("untouched", *small, "--budgets", "1000")
    compare("untouched", got, p)
    check(all(x["untouched"] == 24 for x in got["policies"][1:]), "nothing removed")
    got, p = run("no scores", *small, "--tasks", "multifieldqa_zh")
    compare("no scores", got, p)
    check("Score (percent" not in p.text and "Too few samples with a score" in p.text, "KL alone")
    part, p = run("a shard", *small, "--shard", "1/4")
    compare("a shard", part, p)
    check("18 are not measured yet" in p.text, "of a shard")


def check_escapes():
    """Names that are HTML: of the model, the data."""
    model = pathlib.Path("m.gguf").read_bytes()
    name = b"made llama f32, seed 1"
    check(model.count(name) == 1 and len(EVIL) == len(name), "the model has its name")
    pathlib.Path("evil.gguf").write_bytes(model.replace(name, EVIL.encode()))
    data = "d<script>x&\"'y\x01.jsonl"
    pathlib.Path(data).write_bytes(pathlib.Path("samples.jsonl").read_bytes())
    got, p = run("evil", "eval", "-m", "evil.gguf", "--data", data, *SETS, "--limit", "2")
    check(got["model"] == EVIL and "script" not in p.tags and p.text.count(EVIL) == 2, f"as text: {p.text.count(EVIL)}")
    check("d<script>x&\"'y\N{REPLACEMENT CHARACTER}.jsonl" in p.text, "name of the data")


def check_refused():
    for more, code, what in ((["absent/x.html"], FAILED, "absent/x.html: cannot be written"), (["folder"], FAILED, "folder: cannot"),
                             (["m.gguf"], USAGE, "--html"), (["samples.jsonl"], USAGE, "--html"), ([""], USAGE, "--html"),
                             (["x", "--db", "x"], USAGE, "--html")):
        refused(f"--html {more}", code, [what], *RUN, "--html", *more)
    refused("not with --score", USAGE, ["--score"], "eval", "--score", "samples.jsonl", "--html", "x.html")
    refused("not with --write", USAGE, ["--write"], "eval", "-m", "long.gguf", "--needle", "600", "--write", "x", "--html", "y")
    good("the environment's is for others", "eval", "-m", "long.gguf", "--needle", "600", "--samples", "1", "--write", "w.jsonl",
         env={"RIPPLEKV_HTML": "absent/x.html"})
    small = [*RUN, "--limit", "1"]
    r = rkv(*small, "--html", "/dev/full")
    check(r.rc == FAILED and r.one_line() and "/dev/full: " in r.err and b"policy" in r.out, f"full, numbers all the same: {r}")
    good("a first page", *small, "--html", "kept.html")
    before = pathlib.Path("kept.html").read_bytes()
    good("over it", *RUN, "--limit", "2", "--html", "kept.html")
    left = [x.name for x in pathlib.Path().iterdir() if ".tmp." in x.name]
    check(pathlib.Path("kept.html").read_bytes() != before and not left, f"replaced: {left}")


def check_rerun():
    """A page of a finished store: its numbers, nothing measured; a damaged one is refused."""
    stored = [*RUN, "--db", "done.sqlite"]
    whole = good_json("measured", *stored, "--json", "--html", "first.html")
    good("read", *stored, "--html", "second.html")
    check(pathlib.Path("first.html").read_bytes() == pathlib.Path("second.html").read_bytes(), "the same page again")
    with contextlib.closing(sqlite3.connect("done.sqlite")) as db, db:
        db.execute("UPDATE result SET score = 1 WHERE policy = 'h2o' AND budget = '60%' AND task = 'lcc'")
        db.execute("UPDATE result SET score = 0.9 WHERE policy = 'h2o' AND budget = '30%' AND score IS NOT NULL")
    got, p = run("changed by hand", *stored)
    compare("changed by hand", got, p)
    check(got != whole and any(c["significant"] and c["mean"] > 20 for c in got["comparisons"]), "what the store says counts")
    check("Score significantly higher: h2o at 30%" in p.text, "and the words say so")
    for layers, text in (("[1]", "'[1]'"), ("[1,2,3]", "'[1,2,3]'"), ("x", "'x'"), ('["a",2]', "'[\"a\",2]'"), (None, "''")):
        with contextlib.closing(sqlite3.connect("done.sqlite")) as db, db:
            db.execute("UPDATE result SET layers = ? WHERE policy = 'h2o' AND budget = '60%' AND id = 's5'", (layers,))
        r = rkv(*stored, "--html", "damaged.html")
        check(r.rc == INPUT and r.one_line() and "done.sqlite: " in r.err and text in r.err and not pathlib.Path("damaged.html").exists(),
              f"layers {layers}: {r}")


def tests():
    write_samples()
    always = [check_numbers, check_kinds, check_escapes, check_refused]
    if without_sqlite() or sqlite3 is None:
        skip(40, "no SQLite in this build or in Python")
        return always
    return always + [check_rerun]


if __name__ == "__main__":
    run_tests(tests)
