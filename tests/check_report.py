#!/usr/bin/env python3
"""What rkv profile writes for people and for other programs: the HTML report, and files that their JSON Schema describes.
Runs from the build folder, as check_command.py."""
import copy
import json
import pathlib

from command_bed import FAILED, INPUT, USAGE, check, good, make_model, refused, run_tests, skip, unsaved
from html_page import page

try:
    import jsonschema
except ImportError:
    jsonschema = None

SCHEMA = pathlib.Path(__file__).resolve().parents[1] / "src/profile/profile.schema.json"
EVERYTHING = "values,keys,keys+values,damage,curves,layer-curves,head-curves"
WORK = ["profile", "-m", "m.gguf", "--data", "data", "--response", "8"]
NAME = "a <script>alert('x')</script> & \"b\" \x01"


def circles(p, title):
    """Of the picture with a title: classes of its dots and bars."""
    svg = [s for s in p.tree.iter("svg") if s.findtext("title") == title]
    check(len(svg) == 1, f"one picture '{title}'")
    return [x.get("class") for s in svg for x in s if x.tag in ("circle", "rect") and x.get("class") != "band"]


def check_html():
    good("everything", *WORK, "--signals", EVERYTHING, "-o", "all.json", "--html", "all.html")
    good("without", *WORK, "--signals", EVERYTHING, "-o", "again.json")
    check(pathlib.Path("all.json").read_bytes() == pathlib.Path("again.json").read_bytes(), "the report changes no byte")
    p = page("everything", "all.html")
    n_layer, n_head = 2, json.loads(pathlib.Path("all.json").read_text())["model"]["n_kv_head"]
    for word in ("Fingerprint", "Isolated damage", "Estimated damage of each KV head, 10 %", "20 %: mean 819 tokens",
                 "30 %: mean 1229 tokens", "Spearman over layers", "Order of layers after", "Prefills", "3 used"):
        check(word in p.text, f"'{word}' in the report")
    check(sorted(circles(p, "Sensitivity and damage of each layer")) == sorted("abc" * n_layer), "three values a layer")
    check(circles(p, "Budgets of each layer").count("b") == 4 * n_layer, "curve's budgets, four times")
    check(circles(p, "Estimated damage of each KV head").count("a") == n_layer * n_head + 5, "a cell each, and a legend")
    seconds = [float(row[1].text) for table in p.tree.iter("table") if "Seconds" in "".join(table.itertext())
               for row in table.findall("tr")[1:]]
    check(len(seconds) == 4 and min(seconds) > 0 and abs(sum(seconds[:3]) - seconds[3]) < 0.02 * seconds[3],
          f"cost: {seconds}")
    text = good("shown", "profile", "--show", "all.json", "--html", "shown.html").out
    shown = page("shown", "shown.html")
    check("Prefills" not in shown.text and text == good("words alone", "profile", "--show", "all.json").out and
          b"sensitivity (nats)" in text, "shown again, without a run's times")
    check(good("as JSON", "profile", "--show", "all.json", "--json").out == pathlib.Path("all.json").read_bytes(), "JSON")
    good("once more", "profile", "--show", "all.json", "--html", "twice.html")
    check(pathlib.Path("twice.html").read_bytes() == pathlib.Path("shown.html").read_bytes(), "the same bytes")
    good("values alone", *WORK, "--signals", "values", "--examples", "1", "-o", "one.json", "--html", "one.html")
    p = page("one example", "one.html")
    check("two or more examples" in p.text and "Isolated" not in p.text and
          circles(p, "Budgets of each layer") == ["a"] * 4 * n_layer, "one example without curves")
    parts = [f"part{i}.json" for i in (1, 2)]
    for i, part in enumerate(parts, 1):
        good(part, *WORK, "--signals", EVERYTHING, "--shard", f"{i}/2", "-o", part)
    good("merged", "profile", "--merge", *parts, "-o", "merged.json", "--html", "merged.html")
    check(pathlib.Path("merged.html").read_bytes() == pathlib.Path("shown.html").read_bytes(), "of parts put together")


def check_sliding():
    make_model("sliding.gguf", family="gemma3", layers=4, window=50, pattern=2)
    good("sliding", "profile", "-m", "sliding.gguf", *WORK[3:], "--signals", EVERYTHING, "-o", "sliding.json", "--html",
         "sliding.html")
    p = page("sliding", "sliding.html")
    check(len(circles(p, "Sensitivity and damage of each layer")) == 3 * 2 and p.text.count("sliding window: outside") >= 4,
          "two of four layers")


def check_made():
    """Files as no run makes them: names that are HTML, numbers that spread, no numbers but the sensitivity."""
    profile = json.loads(pathlib.Path("all.json").read_text())
    wild = copy.deepcopy(profile)
    for key in ("name", "arch", "quantization", "fingerprint"):
        wild["model"][key] = NAME
    for key in ("tier", "arithmetic", "selector"):
        wild["settings"][key] = NAME
    wild["settings"]["rope"]["scaling"] = NAME
    for i, x in enumerate(wild["sensitivity"]):
        x.update(mean=[0, 1e9][i % 2], se_examples=1e9, se_seeds=None)
    for c in wild["curves"]:
        for i, u in enumerate(c["units"]):
            u["damage"] = [10.0 ** (-9 * (i % 3))] * len(c["grid"])
    pathlib.Path("wild.json").write_text(json.dumps(wild))
    good("wild", "profile", "--show", "wild.json", "--html", "wild.html")
    p = page("wild", "wild.html")
    check("script" not in p.tags and p.text.count("a <script>alert('x')</script> & \"b\" \N{REPLACEMENT CHARACTER}") == 9 and
          "logarithmic" in p.text, f"names as text: {p.text.count('alert')}")
    bare = {k: profile[k] for k in ("format", "version", "model", "settings", "examples", "sensitivity")}
    bare["model"] = {k: v for k, v in bare["model"].items() if k != "n_kv_head"}
    bare["settings"] = {k: bare["settings"][k] for k in ("response", "noise", "noise_seeds", "response_tokens", "tier")}
    for x in bare["sensitivity"]:
        x["mean"] = 0
    pathlib.Path("bare.json").write_text(json.dumps(bare))
    good("bare", "profile", "--show", "bare.json", "--html", "bare.html")
    check("no diagnostics" in page("bare", "bare.html").text, "a file of the first kind")


def check_refused():
    show = ["profile", "--show", "all.json", "--html"]
    refused("no folder", FAILED, ["absent/x.html: cannot be written"], *show, "absent/x.html")
    refused("a folder", FAILED, ["folder: cannot be written"], *show, "folder")
    refused("before the work", FAILED, ["absent/x.html: cannot be written"], *WORK, "-o", "x.json", "--html", "absent/x.html")
    unsaved("full", ["/dev/full: "], *show, "/dev/full")
    for name, code in (("absent", INPUT), ("text", INPUT), ("part1.json", INPUT), ("folder", INPUT)):
        refused(f"--show {name}", code, [name], "profile", "--show", name, "--html", "x.html")
    for more in (["--check", "all.json", "--html", "x.html"], ["--shard", "1/2", "-o", "x.json", "--html", "x.html"],
                 ["-o", "x.json", "--html", "x.json"]):
        refused(str(more), USAGE, ["--html"], *WORK, *more)
    refused("over itself", USAGE, ["--html"], *show, "all.json")
    refused("both", USAGE, ["--show"], "profile", "--show", "all.json", "--merge", "all.json", "-o", "x.json")
    refused("-o", USAGE, ["--show"], "profile", "--show", "all.json", "-o", "x.json")


# ---- schema ----

def put(value, *where):
    """A change: the member at a path of keys gets a value, or goes away with None."""
    def change(x):
        for key in where[:-1]:
            x = x[key]
        if value is None:
            del x[where[-1]]
        else:
            x[where[-1]] = value
    return change


WRONG = {
    "all.json": [put(None, "model"), put(2, "version"), put("other", "format"), put(0, "model", "n_layer"),
                 put(None, "settings", "selector"), put("values,", "settings", "signals"), put([1.5], "settings", "grid"),
                 put("xyz", "settings", "data_hash"), put("other", "settings", "response"), put(0, "examples", "used"),
                 put([], "sensitivity"), put(-1, "sensitivity", 0, "mean"), put("1", "sensitivity", 0, "mean"),
                 put(None, "sensitivity", 0, "se_seeds"), put("x", "sensitivity", 0, "rank"),
                 put(1.5, "damage", 0, "layer"), put("both", "curves", 0, "kind"), put([], "curves", 0, "grid"),
                 put(None, "curves", 0, "units", 0, "kv_head"), put([-1], "curves", 0, "units", 0, "damage"),
                 put(2, "diagnostics", "spearman", "sensitivity", "damage"), put(-1, "diagnostics", "more_examples")],
    "part1.json": [put(None, "shard"), put(None, "sum"), put(0, "shard", "index"), put("new", "rows", 0, "state"),
                   put(None, "rows", 0, "kl"), put(7, "rows", 0, "fed"), put([-1], "rows", 0, "error"),
                   put(None, "settings", "grid"), put("ripplekv-profile", "format")],
}


def check_schema():
    files = ["all.json", "one.json", "sliding.json", "wild.json", "bare.json", "merged.json", "part1.json", "part2.json"]
    if jsonschema is None:
        skip(1 + len(files) + sum(map(len, WRONG.values())), "Python has no jsonschema")
        return
    schema = json.loads(SCHEMA.read_text())
    kind = jsonschema.Draft202012Validator
    kind.check_schema(schema)
    valid = kind(schema)
    check(schema["$schema"] == kind.META_SCHEMA["$id"], "its dialect")
    for name in files:
        wrong = [f"{list(e.absolute_path)}: {e.message:.100}" for e in valid.iter_errors(json.loads(pathlib.Path(name).read_text()))]
        check(not wrong, f"{name}: {wrong[:3]}")
    for name, changes in WRONG.items():
        for i, change in enumerate(changes):
            x = json.loads(pathlib.Path(name).read_text())
            change(x)
            check(not valid.is_valid(x), f"{name}: change {i} is refused")


def main():
    run_tests([check_html, check_sliding, check_made, check_refused, check_schema])


if __name__ == "__main__":
    main()
