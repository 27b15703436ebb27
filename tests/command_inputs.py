"""The part of check_command.py about input files: models, ids, data, profiles, texts."""
import json
import os
import pathlib

from command_bed import (COMMANDS, FAILED, INPUT, MEMORY, MESSAGES, SANITIZED, SHARED, USAGE, check, finish, good,
                         good_json, make_model, refused, rkv, skip, start, unsaved, valid, wait_for_work)


def check_models():
    bad = {"absent": "No such file", "empty": "0 bytes", "text": "GGUF", "cut5": "5 bytes", "cut_keys": "cut short",
           "cut_data": "cut short", "folder": "not a regular file", "pipe": "not a regular file"}
    data = pathlib.Path("m.gguf").read_bytes()
    name = (19).to_bytes(8, "little") + b"blk.1.ffn_up.weight"
    pathlib.Path("strange").write_bytes(data.replace(name, name.replace(b"ffn_up.weight", b"ffn_xp.weight")))
    refused("model strange", INPUT, ["blk.1.ffn_xp.weight"], "run", "-m", "strange", "-p", "x")
    name = b"\x13\0\0\0\0\0\0\0blk.0.attn_q.weight"      # 8 bytes more here, 8 less of the model's name
    before, after = data.split(name + b"\2\0\0\0")
    title = b"\x0c\0\0\0\0\0\0\0general.name\x08\0\0\0"
    at = before.index(title) + len(title)
    n = int.from_bytes(before[at:at + 8], "little")
    before = before[:at] + (n - 8).to_bytes(8, "little") + before[at + 8:at + n] + before[at + 8 + n:]
    pathlib.Path("shape").write_bytes(before + name + b"\3\0\0\0" + after[:16] + b"\1\0\0\0\0\0\0\0" + after[16:])
    refused("a third dimension", INPUT, ["blk.0.attn_q.weight", "64 x 64 x 1, expected 64 x 64\n"], "run", "-m",
            "shape", "-p", "x")
    pathlib.Path("nan.gguf").write_bytes(data[:-256] + b"\xff" * 256)      # f32 weights that are none
    for args in (["-p", "x"], ["-p", "x", "--temp", "1", "--json"]):
        refused("logits that are no numbers", INPUT, ["nan.gguf: the model's logits are not finite"], "run", "-m",
                "nan.gguf", *args)
    refused("logits that are no numbers", INPUT, ["logits are not finite"], "profile", "-m", "nan.gguf", "--data",
            "data", "-o", "out.json")
    make_model("short.gguf", extra="attention.sliding_window u32 64")
    r = rkv("run", "-m", "short.gguf", "--ids", "ids", "-c", "500", "-n", "2")
    check(r.rc == INPUT and "window of 64" in r.err and not r.out, f"past a window that is not followed: {r}")
    for c in COMMANDS:
        if c == "budget":
            continue
        args, stdin = valid(c)
        for name, what in bad.items():
            if c in ("tokenize", "template") and name == "cut_data":    # the vocabulary is there
                continue
            refused(f"{c}: model {name}", INPUT, [name + ":", what], c, *[name if a == "m.gguf" else a for a in args],
                    stdin=stdin)


def check_lost_model():
    """The model file becomes shorter while it is mapped and in use."""
    whole = pathlib.Path("slow.gguf").read_bytes()
    for name, args, first in (("run", ["run", "-p", "x", "-n", "1000000", "--ignore-eos", "-t", "2"], 10),
                              ("bench", ["bench", "-p", "0", "-n", "100000", "-r", "1", "-t", "2"], 0)) * 5:
        pathlib.Path("lost.gguf").write_bytes(whole)
        p = start(*args, "-m", "lost.gguf", "--load-mode", "mmap")
        wait_for_work(p)
        p.stdout.read(first)
        os.truncate("lost.gguf", 8192)
        r = finish(p)
        check(r.rc == INPUT and r.one_line() and "lost.gguf: " in r.err and "shorter" in r.err, f"{name}: {r}")
    pathlib.Path("lost.gguf").unlink()


def check_kept_model():
    """A copied model answers to the end, whatever becomes of its file."""
    size = {} if SANITIZED else {"layers": 4, "d_model": 256, "heads": 8, "kv_heads": 4, "d_head": 32, "d_ff": 512}
    args = ["run", "-m", "kept.gguf", "-p", "x", "-n", "1000", "--ignore-eos", "-c", "1100", "--no-mmap"]
    make_model("kept.gguf", tied=1, **size)
    whole = good("the whole file", *args).out
    p = start(*args)
    first = os.read(p.stdout.fileno(), 10)      # no more than that: what a buffer took would be lost to finish()
    os.truncate("kept.gguf", 0)
    r = finish(p)
    check(r.rc == 0 and "rkv:" not in r.err and first + r.out == whole, f"a file cut while its copy is in use: {r}")
    pathlib.Path("kept.gguf").unlink()


def check_load_modes():
    """Every spelling, and the last one that is given."""
    run = ["run", "-m", "m.gguf", "--ids", "five", "-n", "8", "--json", "--ignore-eos"]
    tokens = good_json("tokens", *run).get("tokens")
    cases = [("", "mmap"), ("--load-mode auto", "mmap"), ("--load-mode stream", "stream"), ("--load-mode none", "memory"), ("-lm mmap", "mmap"), ("--no-mmap", "memory"), ("--mlock", "mlock"),
             ("--load-mode mlock", "mlock"), ("--load-mode mmap+mlock", "mlock"), ("--no-mmap -lm mmap", "mmap"),
             ("-lm mmap --no-mmap", "memory"), ("-lm mmap --no-mmap=0", "mmap")]
    for words, load in cases:
        what = f"load mode '{words}'"
        r = rkv("inspect", "m.gguf", *words.split())
        if load == "mlock" and r.rc == MEMORY:
            check(r.one_line() and "RLIMIT_MEMLOCK" in r.err, f"{what}: {r}")
            skip(3, f"{what}: not allowed here")
            continue
        got = good_json(what, "inspect", "m.gguf", "--json", *words.split()).get("model", {}).get("load")
        check(got == load, f"{what}: {got}, expected {load}")
        check(good_json(what, *run, *words.split()).get("tokens") == tokens, f"{what}: other tokens")
    check(f"  {'load':22} mmap\n" in good("inspect", "inspect", "m.gguf", "-lm", "mmap").out.decode(), "in text")
    of = lambda *words, **env: good_json("variable", "inspect", "m.gguf", "--json", *words, env=env)["model"]["load"]
    check(of(RIPPLEKV_NO_MMAP="1") == "memory" and of(RIPPLEKV_LOAD_MODE="mmap") == "mmap", "variables")
    check(of("-lm", "mmap", RIPPLEKV_NO_MMAP="1") == "mmap", "an option beats its variable")


def check_ids_inputs():
    bad = {"absent": "No such file", "folder": "Is a directory", "empty": "JSON array", "text": "JSON array",
           "object": "JSON array", "negative": "#1", "half": "#0", "words": "#0", "open": "JSON array",
           "tail": "after the array", "nul": "after the array", "nul_last": "after the array",
           "none": "at least one", "far": "512, expected 0 to 511"}
    for name, what in bad.items():
        for args in (["score"], ["select", "--kv-policy", "snapkv", "--kv-budget", "50%"], ["run", "-n", "1"]):
            refused(f"{args[0]} --ids {name}", INPUT, [name + ":", what], *args, "-m", "m.gguf", "--ids", name)
    for name, what in bad.items():
        if name in ("absent", "folder", "none"):
            continue
        text = pathlib.Path(name).read_bytes()
        refused(f"tokenize --decode {name}", INPUT, [what if name != "far" else "0 to 511"], "tokenize", "--decode",
                "-m", "m.gguf", stdin=text)
    refused("stdin by its name", INPUT, ["stdin: "], "score", "-m", "m.gguf", "--ids", "-", stdin=b"[1,")
    text = good_json("decode a NUL", "tokenize", "-m", "m.gguf", "--decode", "--json", stdin=b"[39,188,39,40]")["text"]
    check(text.startswith("H\ufffd") and len(text) > 2, f"text behind a NUL: {text!r}")
    check(good("decode nothing", "tokenize", "-m", "m.gguf", "--decode", stdin=b"[]").out == b"", "[] is no text")
    check(good("encode nothing", "tokenize", "-m", "m.gguf").out == b"[]\n", "no text is []")
    score = ["score", "-m", "m.gguf", "--ids"]
    refused("policy without a prefix", USAGE, ["--prefix"], *score, "ids", "--kv-policy", "snapkv", "--kv-budget",
            "50%")
    refused("prefix", USAGE, ["--prefix 6", "5 ids"], *score, "five", "--prefix", "6")
    refused("score -c", USAGE, ["5 tokens", "--ctx-size"], *score, "five", "-c", "3")
    refused("below the floor", USAGE, ["floor of 36"], *score, "ids", "--prefix", "100", "--kv-policy", "snapkv",
            "--kv-budget", "10")
    refused("below the floor", USAGE, ["floor of 36"], "select", "-m", "m.gguf", "--ids", "ids",
            "--kv-policy", "snapkv", "--kv-budget", "5%")


def check_profile_inputs():
    pathlib.Path("pretty").write_text(json.dumps({"prompt_ids": [1, 2]}, indent=1))
    pathlib.Path("latin1").write_bytes(b'{"prompt":"x\xe9 y"}\n')
    args = ["profile", "-m", "m.gguf", "--response", "8", "-o", "out.json", "--data"]
    for name, what in {"absent": "No such file", "folder": "not a regular file", "pipe": "but a pipe: write it to a file",
                       "empty": "no example", "bad3": "line 3: not JSON", "pretty": "expected one object per line",
                       "latin1": "line 1: not UTF-8 at byte 12", "text": "line 1", "nokey": "line 1", "far_id": "line 1",
                       "five": "line 1", "nul_line": "line 2: holds a NUL", "nul_text": "line 1: a NUL",
                       "key_case": "neither 'prompt' nor 'prompt_ids'"}.items():
        refused(f"profile --data {name}", INPUT, [name + ":", what], *args, name)
    refused("answers that are not there", INPUT, ["line 1", "answers"], *args, "data", "--response", "answers")
    for value in ("7", "4097", "x", "8x"):
        refused(f"--response {value}", USAGE, [f"'{value}'", "8 to 4096"], *args, "data", "--response", value)
    make_model("sliding.gguf", family="gemma3", layers=4, window=50, pattern=2)
    sliding = ["profile", "-m", "sliding.gguf", "-o", "out.json", "--data", "data", "--response"]
    refused("a greedy answer longer than sliding layers hold", USAGE, ["257 response tokens", "at most 256"],
            *sliding, "257")
    refused("all prompts too long", INPUT, ["longer than the context of 10 tokens (-c)"], *args, "data", "-c", "10")
    for path, what in {"absent/x": "No such file", "folder": "Is a directory", "text/x": "Not a directory"}.items():
        refused(f"profile -o {path}", FAILED, [path + ":", what], *args, "data", "-o", path)
    unsaved("disk full", ["/dev/full:", "No space"], *args, "data", "-o", "/dev/full")
    unsaved("disk full, JSON", ["/dev/full:", "No space"], *args, "data", "-o", "/dev/full", "--json")
    refused("disk full, a part", FAILED, ["/dev/full:", "No space"], *args, "data", "-o", "/dev/full", "--shard", "1/2")
    pathlib.Path("out.json").write_text("before")
    refused("a failure keeps the old file", INPUT, ["line 3"], *args, "bad3")
    check(pathlib.Path("out.json").read_text() == "before", "the old output is as it was")
    good("an old file is replaced", *args, "data")
    check(pathlib.Path("out.json").read_bytes() == pathlib.Path("profile.json").read_bytes(), "the new output")
    policy = ["--kv-policy", "ripple", "--kv-budget", "30%", "--kv-profile"]
    refused("profile of another model", INPUT, ["made llama f32, seed 1", "made llama f32, seed 9"], "run", "-m",
            "other.gguf", "-p", "x", *policy, "profile.json")
    whole = pathlib.Path("profile.json").read_text()
    pathlib.Path("future.json").write_text(whole.replace('"version": 1', '"version": 99'))
    pathlib.Path("short.json").write_text(whole[:-20])
    pathlib.Path("nul.json").write_text(whole + "\0")
    pathlib.Path("escape.json").write_text(whole.replace("ripplekv-profile", "ripplekv-profile\\u0000x"))
    for name, what in {"absent": "No such file", "folder": "not a regular file", "pipe": "not a regular file",
                       "empty": "not JSON",
                       "text": "not JSON", "object": "'format'", "future.json": "99",
                       "short.json": "not JSON", "nul.json": "a NUL", "escape.json": "a NUL"}.items():
        for args in (["select", "-m", "m.gguf", "--ids", "ids"], ["budget", "-c", "1000"]):
            refused(f"{args[0]} --kv-profile {name}", INPUT, [name + ":", what], *args, *policy, name)
    budget = ["budget", "--kv-profile", "profile.json", "-c", "1000", "--kv-budget"]
    refused("budget in bytes", USAGE, ["share"], *budget, "5M")
    uniform = ["budget", "--kv-policy", "snapkv", "--kv-budget", "20%", "-c", "1000"]
    got = good_json("a uniform budget without a profile", *uniform, "--layers", "3", "--json")
    check([x.get("budget") for x in got.get("layers", [])] == [200] * 3 and got.get("total") == 600, f"uniform: {got}")
    refused("layers of nothing", USAGE, ["--layers"], *uniform)
    refused("layers of another profile", USAGE, ["--layers 3", "has 2"], *uniform, "--layers", "3", "--kv-profile",
            "profile.json")
    refused("ripple without a profile", USAGE, ["--kv-profile"], "budget", "--kv-policy", "ripple", "--layers", "3",
            "--kv-budget", "20%", "-c", "1000")
    settings = json.loads(whole)["settings"]
    check(settings["context"] == 1024 and len(settings["data_hash"]) == 16, f"origin: {settings}")
    older = json.loads(whole)
    del older["settings"]["context"], older["settings"]["data_hash"]
    pathlib.Path("older.json").write_text(json.dumps(older))
    good("a profile without its origin", "budget", "-c", "1000", *policy, "older.json")
    good("another context", "profile", "-m", "m.gguf", "--response", "8", "-o", "out.json", "--data", "data", "-c",
         "77")
    other = json.loads(pathlib.Path("out.json").read_text())["settings"]
    check(other["context"] == 77 and other["data_hash"] == settings["data_hash"], f"origin: {other}")
    good("other data", "profile", "-m", "m.gguf", "--response", "8", "-o", "out.json", "--data", "long")
    other = json.loads(pathlib.Path("out.json").read_text())["settings"]
    check(other["context"] == 1024 and other["data_hash"] != settings["data_hash"], f"origin: {other}")
    refused("budget below the floor", USAGE, ["floor"], *budget, "1%")


def with_curves(change=lambda curves: None):
    """profile.json with estimated curves of its heads: one that wants everything, the others little."""
    p = json.loads(pathlib.Path("profile.json").read_text())
    heads = [(l, h) for l in range(p["model"]["n_layer"]) for h in range(p["model"]["n_kv_head"])]
    damage = lambda i: [3.0, 2.0, 1.0] if i == 1 else [1e-3 / (i + 1), 1e-4, 0.0]
    p["curves"] = [{"kind": "estimated", "unit": "head", "selector": "blend", "grid": [0.05, 0.2, 0.5],
                    "units": [{"layer": l, "kv_head": h, "damage": damage(i), "se": [None, 0, 0.1]}
                              for i, (l, h) in enumerate(heads)]}]
    change(p["curves"][0])
    pathlib.Path("curves.json").write_text(json.dumps(p))
    return len(heads), p["model"]["n_kv_head"]


def check_curves():
    n, n_head = with_curves()
    profile = ["--kv-profile", "curves.json"]
    budget = ["budget", *profile, "-c", "200", "--kv-budget", "40%", "--kv-policy"]
    spread = lambda got: [b for x in got["layers"] for b in x.get("budgets", [x["budget"]] * n_head)]
    for name in ("curve", "snapkv:root", "blend:curve"):
        got = good_json(f"budget {name}", *budget, name, "--json")
        b = spread(got)
        check(len(b) == n and sum(b) == n * 80 and min(b) >= 36 and b[1] == max(b) > 80, f"{name}: {got}")
        check(got["total"] == 80 * n // n_head and "budgets" in got["layers"][0], f"{name}: {got}")
    text = good("budget curve", *budget, "curve").out.decode().splitlines()
    heads = spread(good_json("budget curve", *budget, "curve", "--json"))
    check(text[1].split() == ["0", *map(str, heads[:n_head])] and text[-1].startswith("total  160 (mean 80)"),
          f"budgets of heads as text: {text}")
    got = good_json("budget per layer", *budget, "curve", "--kv-unit", "layer", "--json")
    check(all("budgets" not in x for x in got["layers"]) and sum(x["budget"] for x in got["layers"]) == 160 and
          got["layers"][0]["budget"] > 80, f"per layer: {got}")
    ids = ["-m", "m.gguf", "--ids", "ids", *profile, "--kv-budget", "40%", "--kv-policy"]
    got = good_json("select curve", "select", *ids, "curve", "--kv-recent", "50")
    check([h["budget"] for x in got["layers"] for h in x["heads"]] == heads and got["total"] == 160, "select: budgets")
    check(all(len(h["kept"]) == h["budget"] for x in got["layers"] for h in x["heads"]), "select: kept as allowed")
    all_queries = good_json("select blend", "select", *ids, "blend", "--kv-recent", "0")
    check(all_queries == good_json("more than the prompt", "select", *ids, "blend", "--kv-recent", "4000"),
          "all queries, however they are named")
    kl = good_json("score curve", "score", *ids, "curve", "--prefix", "190").get("mean_kl", -1)
    check(kl > 0, f"score: mean KL {kl}")
    made = good_json("run curve", "run", *ids, "curve", "-n", "4", "--json", "--ignore-eos")
    check(len(made["tokens"]) == 4 and sum(made["kv_tokens_per_layer"]) == 160 + 2 * 3 and
          [sum(h) / len(h) for h in made["kv_tokens_per_head"]] == made["kv_tokens_per_layer"], f"run: {made}")
    check_policies(budget, ids, heads, made)
    measured = [*budget, "curve", "--kv-curves", "measured"]
    refused("no measured curves", INPUT, ["no measured", "each KV head", "rkv profile --signals head-curves"], *measured)
    refused("no measured curves of layers", INPUT, ["each layer", "--signals layer-curves"], *measured, "--kv-unit",
            "layer")
    good("a profile without curves", "profile", "-m", "m.gguf", "--data", "data", "--response", "8", "--signals", "values",
         "-o", "plain.json")
    refused("no curves", INPUT, ["no estimated", "rkv profile --signals curves"], "budget", "--kv-profile",
            "plain.json", "-c", "200", "--kv-budget", "40%", "--kv-policy", "curve")
    for what, change in {"'damage' holds -1": lambda c: c["units"][0].update(damage=[1, -1, 0]),
                         "share #1 of 'grid'": lambda c: c.update(grid=[0.5, 0.2, 0.6]),
                         "is missing in 'units'": lambda c: c["units"].pop(),
                         "there twice": lambda c: c["units"].append(c["units"][0]),
                         "'kind' is 'true'": lambda c: c.update(kind="true")}.items():
        with_curves(change)
        refused(f"curves: {what}", INPUT, ["curves.json: curves: ", what], *budget, "curve")
    pathlib.Path("curves.json").unlink()


def check_policies(budget, ids, heads, made):
    """Policies by name, a file of budgets, and the one that goes without a name."""
    run = ["run", *ids[:-1], "-n", "4", "--json", "--ignore-eos"]
    quiet = rkv(*run)
    check(quiet.rc == 0 and "--kv-policy curve, since" in quiet.err, f"told which policy: {quiet}")
    unnamed = json.loads(quiet.out)
    check(unnamed["selector"] == "blend" and unnamed["allocator"] == "curve" and
          unnamed["kv_tokens_per_layer"] == made["kv_tokens_per_layer"], f"curve without a name: {unnamed}")
    refused("a budget alone, profile without curves of that kind", USAGE, ["choose a --kv-policy"], *run,
            "--kv-curves", "measured")
    pathlib.Path("own.json").write_bytes(good("budgets to keep", *budget, "curve", "--json").out)
    own = ["budget", "--kv-policy", "snapkv:file", "--kv-budgets", "own.json", "-c", "200", "--json", "--kv-budget"]
    got = good_json("own budgets", *own, "80")
    check([b for x in got["layers"] for b in x["budgets"]] == heads, f"own budgets, as they were: {got}")
    check(good_json("own budgets, scaled", *own, "100")["total"] == 200, "own budgets, scaled")
    refused("no such budgets", INPUT, ["none.json"], *own, "80", "--kv-budgets", "none.json")
    refused("no file of budgets", USAGE, ["--kv-budgets"], "budget", "--layers", "2", "--kv-policy", "snapkv:file", "-c",
            "200", "--kv-budget", "40%")
    for name in ("streaming", "tova", "knorm", "expected", "adakv", "criticalkv", "expected:curve+adakv+criticalkv",
                 "pyramid", "snapkv:random", "knorm:reversed", "observed:pyramid+adakv"):
        got = good_json(f"select {name}", "select", *ids, name)
        check(got["total"] == 160 and all(len(h["kept"]) == h["budget"] for x in got["layers"] for h in x["heads"]),
              f"{name}: {got['total']}")
    got = good_json("select local", "select", *ids, "local")
    check(got["total"] == 160, f"local: {got['total']}")
    plain = json.loads(pathlib.Path("curves.json").read_text())
    del plain["local"]
    pathlib.Path("own.json").write_text(json.dumps(plain))
    refused("the profile has no local signal", INPUT, ["no layer-local signal"], "select", *ids, "local",
            "--kv-profile", "own.json")
    refused("scores that cannot be compared", USAGE, ["'blend' does not score by"], "select", *ids,
            "blend:uniform+adakv")
    pathlib.Path("own.json").unlink()


def check_texts():
    model = ["run", "-m", "m.gguf"]
    for name, code, what in (("absent", INPUT, "No such file"), ("folder", INPUT, "Is a directory"),
                             ("binary", INPUT, "NUL")):
        refused(f"run -f {name}", code, [name + ":", what], *model, "-f", name)
    refused("no prompt", USAGE, ["-p"], *model)
    refused("prompt and ids", USAGE, ["--ids"], *model, "-p", "x", "--ids", "ids")
    refused("prompt over the context", USAGE, ["context 3", "-c"], *model, "-p", "one two three four", "-c", "3")
    refused("empty prompt, no BOS", USAGE, ["empty"], "run", "-m", "nobos.gguf", "-p", "")
    answer = lambda *a, **more: good_json(str(a), *model, "--json", *a, **more)
    check(answer("-p", "", "-n", "2").get("prompt_tokens") == 1, "an empty prompt is the BOS token")
    check(answer("-p", "hello", "-n", "0").get("tokens") == [], "-n 0")
    check(good("-n 0", *model, "-p", "hello", "-n", "0").out == b"\n", "-n 0 prints no text")
    check(answer("--ids", "-", "-n", "2", stdin=b"[7]").get("prompt_tokens") == 1, "a prompt of one token")
    hello = answer("-p", "hello", "-n", "3").get("tokens")
    check(hello and answer("-f", "-", "-n", "3", stdin=b"hello").get("tokens") == hello, "a prompt from stdin")
    for more in ([], ["--chat"]):
        check(len(answer("-p", b"a\xff\xc3", "-n", "3", "--ignore-eos", *more).get("tokens", ())) == 3, "stray bytes")
    fills = answer("-p", "hello", "-c", "10", "--ignore-eos")
    check(fills.get("prompt_tokens", 0) + fills.get("generated_tokens", 0) == 11, "an answer stops at the context")
    for args, stdin, code, what in ((["--chat-template", "nope"], MESSAGES, USAGE, "chatml"),
                                    (["--chat-template", "./nope"], MESSAGES, INPUT, "No such file"),
                                    (["--chat-template", "folder/"], MESSAGES, INPUT, "Is a directory"),
                                    (["--chat-template", "chatml"], b"", INPUT, "JSON"),
                                    (["--chat-template", "chatml"], b"[1]", INPUT, "messages"),
                                    (["--chat-template", "chatml"], MESSAGES + b"\0x", INPUT, "stdin: holds a NUL"),
                                    (["--chat-template", "chatml"], MESSAGES.replace(b"hi", b"h\\u0000i"), INPUT,
                                     "a NUL"),
                                    (["--chat-template", "./binary"], MESSAGES, INPUT, "binary: holds a NUL"),
                                    (["--chat-template", "chatml"], b"{oops", INPUT, "JSON")):
        refused(f"template {args[1]} {stdin}", code, [what], "template", *args, stdin=stdin)
    pathlib.Path("bad.jinja").write_text("{{ x }}\n{% if %}")
    refused("a broken template", INPUT, ["line 2"], "template", "--chat-template", "bad.jinja", stdin=MESSAGES)
    pathlib.Path("bad.jinja").unlink()


def check_vocabularies():
    files = sorted((SHARED / "vocab").glob("*.gguf"))
    if not files:
        return skip(4, "no vocabularies in ../shared/data/vocab")
    for path in files:
        text = "Hello, wörld! 123  \n\ttabs"
        r = good(path.name, "tokenize", "-m", str(path), stdin=text.encode())
        check(len(json.loads(r.out or "[]")) > 5, f"{path.name}: ids {r}")
        r = good(path.name, "tokenize", "-m", str(path), "--decode", stdin=r.out)
        check(r.out.decode().strip() == text, f"{path.name}: text {r}")
        refused(f"run with {path.name}", INPUT, [path.name], "run", "-m", str(path), "-p", "x")
