#!/usr/bin/env python3
"""The command rkv from outside: options, bad inputs, lost outputs, signals, memory limits.

Runs from the build folder (programs rkv and make_model). Every refusal must be one line on stderr that
names what it is about, with the documented exit code, nothing on stdout and no file left behind."""
import contextlib
import json
import os
import pathlib
import resource
import signal
import struct
import subprocess
import time

from command_bed import (BUILD, COMMANDS, FAILED, INPUT, INTERRUPTED, MEMORY, SANITIZED, USAGE, Result, check, finish, good,
                         good_json, make_model, peak_address_space, refused, rkv, run_tests, skip, start, unsaved, valid, wait_for_work,
                         without_sqlite)
from command_decode import check_decode_budget
from command_inputs import (check_curves, check_ids_inputs, check_kept_model, check_load_modes, check_lost_model,
                            check_models,
                            check_profile_inputs, check_texts, check_vocabularies)

# What --help must name, for each command.
POLICY = ("kv-policy kv-budget kv-profile kv-curves kv-unit kv-window kv-kernel kv-recent kv-pool kv-pool-order r gamma "
          "kv-budgets kv-pyramid kv-beta kv-seed kv-sink kv-future kv-covariance kv-value-norm kv-epsilon kv-adakv "
          "kv-safeguard kv-first-stage kv-critical-epsilon cache-type-k cache-type-v")
WEIGHTS = "load-mode no-mmap mlock "
OPTIONS = {
    "run": WEIGHTS + "model file prompt system-prompt chat chat-template predict ctx-size threads ubatch-size temp "
           "top-k top-p min-p repeat-penalty repeat-last-n seed ignore-eos ids n-gpu-layers kv-decode-budget "
           "kv-decode-interval " + POLICY,
    "tokenize": "model decode bos special",
    "score": WEIGHTS + "model ids top logits prefix ctx-size threads ubatch-size " + POLICY,
    "select": WEIGHTS + "model ids ctx-size threads ubatch-size " + POLICY,
    "profile": WEIGHTS + "model data output examples response noise noise-seeds resume ctx-size threads "
               "signals selector damage-budget grid batch-rows until-stable shard merge check",
    "budget": "kv-policy kv-budget kv-profile kv-curves kv-unit kv-window kv-sink kv-budgets kv-pyramid kv-beta kv-seed r gamma "
              "ctx-size layers",
    "inspect": WEIGHTS + "model",
    "template": "model chat-template",
    "bench": WEIGHTS + "model n-prompt n-gen n-depth n-parallel repetitions no-warmup output threads ubatch-size kv-policy "
             "kv-budget kv-profile kv-curves kv-unit kv-window kv-kernel kv-recent kv-pool kv-pool-order gamma "
             "cache-type-k cache-type-v",
    "eval": WEIGHTS + "model data tasks limit against protocol max-length kl-tokens no-chat db ruler needle samples depths "
            "seed write score shard csv ctx-size threads ubatch-size " + POLICY,
}
FLAGS = "csv no-chat until-stable merge no-mmap mlock no-warmup chat ignore-eos decode bos special json verbose help".split()
# Values that each option must refuse.
BAD_VALUES = {
    "predict": ["-1", "x", "", "1.5", "2147483648", "1e99"], "ctx-size": ["-1", "200000000", "12k"],
    "threads": ["-1", "1025"], "ubatch-size": ["0", "65537"], "temp": ["-0.1", "101", "nan", "inf", "0,5"],
    "top-k": ["-1"], "top-p": ["1.1"], "min-p": ["-1"], "repeat-penalty": ["0"], "repeat-last-n": ["4097"],
    "seed": ["-1", "1e17"], "top": ["-1", "1000001"], "prefix": ["-1"], "kv-window": ["-1", "4097"],
    "kv-kernel": ["0", "1024"], "kv-recent": ["-1", "1.5"], "kv-curves": ["", "both"],
    "kv-unit": ["token"], "kv-pool": ["min", "", "max|avg"], "kv-pool-order": ["mean"], "r": ["0.9"],
    "gamma": ["0"], "examples": ["-1"], "noise": ["0", "101"], "noise-seeds": ["0", "1001"],
    "batch-rows": ["-1"], "kv-sink": ["-1", "4097"], "kv-pyramid": ["steps"], "kv-beta": ["0.9"], "kv-seed": ["-1"],
    "kv-future": ["0"], "kv-covariance": ["1"], "kv-value-norm": [""], "kv-epsilon": ["-1"], "kv-adakv": ["both"],
    "kv-safeguard": ["1.1"], "kv-first-stage": ["-0.1"], "kv-critical-epsilon": ["-1"],
    "kv-decode-interval": ["0", "-1", "1048577", "x"], "n-gpu-layers": ["-2"], "layers": ["-1", "1025"], "repetitions": ["0", "1001"],
    "limit": ["-1", "x"], "max-length": ["-1"], "kl-tokens": ["0", "4097"], "samples": ["0"], "depths": ["0", "1001"],
    "protocol": ["", "B", "Q|A"],
    "load-mode": ["", "memory", "mmap|mlock", "auto+mlock"],
}


# ---- options ----

def check_help():
    r = good("--help", "--help")
    check(all(f"  {c} " in r.out.decode() for c in COMMANDS), "--help names every command")
    check(b"ripplekv" in r.out or b"KV" in r.out, "--help says what rkv is")
    check(good("--version", "--version").out.startswith(b"rkv "), "--version")
    for c in COMMANDS:
        for word in ("--help", "-h"):
            r = good(f"{c} {word}", c, word)
            text = r.out.decode()
            named = text.replace("\n", " ")
            missing = [o for o in (OPTIONS[c] + " json verbose help").split() if f"--{o} " not in named]
            check(not missing and text.startswith(f"usage: rkv {c}") and not r.err, f"{c} {word}: lacks {missing}")
    r = rkv()
    check(r.rc == USAGE and not r.out and "rkv COMMAND" in r.err, f"rkv alone: {r}")


def first_command(option):
    return next(c for c in COMMANDS if option in OPTIONS[c].split())


def check_options():
    refused("unknown command", USAGE, ["bogus", "rkv --help"], "bogus")
    for c in COMMANDS:
        for word in ("--bogus", "--bogus=1", "-", "--", "-=", "stray"):
            if (c, word) == ("inspect", "stray"):
                continue
            refused(f"{c} {word}", USAGE, [f"'{word}'", f"rkv {c} --help"], c, word)
    refused("two models", USAGE, ["'other.gguf'"], "inspect", "m.gguf", "other.gguf")
    for option in sorted({o for c in COMMANDS for o in OPTIONS[c].split()} - set(FLAGS)):
        refused(f"--{option} without a value", USAGE, [f"'--{option}' needs a value"],
                first_command(option), "--" + option)
    for option, values in BAD_VALUES.items():
        for v in values:
            refused(f"--{option} {v}", USAGE, [f"--{option}: '{v}', expected"], first_command(option),
                    "--" + option, v)
    for flag in ("json", "no-mmap"):
        refused("flag with a value", USAGE, ["'2'", "0 or 1"], "run", f"--{flag}=2")
    refused("unknown load mode", USAGE, ["'dio'", "auto|none|mmap|mlock"], "run", "-m", "m.gguf", "--load-mode", "dio")
    select = ["select", "-m", "m.gguf", "--ids", "ids", "--kv-policy"]
    refused("unknown policy", USAGE, ["nope", "snapkv"], *select, "nope")
    refused("system message without a chat", USAGE, ["--chat"], "run", "-m", "m.gguf", "-p", "x", "-sys", "y")
    refused("unknown budget", USAGE, ["'lots'", "20%"], *select, "snapkv", "--kv-budget", "lots")
    refused("policy alone", USAGE, ["--kv-budget"], "run", "-m", "m.gguf", "-p", "x", "--kv-policy", "snapkv")
    refused("budget alone", USAGE, ["--kv-policy"], "run", "-m", "m.gguf", "-p", "x", "--kv-budget", "20%")
    refused("ripple without a profile", USAGE, ["rkv profile", "--kv-profile"], *select, "ripple",
            "--kv-budget", "30%")
    refused("curve without a profile", USAGE, ["rkv profile --signals curves", "--kv-profile"], *select, "curve",
            "--kv-budget", "30%")
    refused("type of the cache", USAGE, ["f64", "f16"], "run", "-m", "m.gguf", "-p", "x", "-ctk", "f64")
    for option, value in (("-p", "x"), ("-n", "1,"), ("-d", "-1"), ("-p", "1,,2"), ("-n", "99999999999999999999"),
                          ("-p", ",".join("1" * 33)), ("-npl", "1025"), ("-npl", "2,")):
        refused(f"bench {option} {value}", USAGE, [f"bench: {option}: "], "bench", "-m", "m.gguf", option, value)
    refused("bench -o x", USAGE, ["-o: 'x'", "md|csv"], "bench", "-m", "m.gguf", "-o", "x")
    needed = {"run": "-m", "tokenize": "-m", "score": "--ids", "select": "--ids", "profile": "--data",
              "budget": "--kv-profile", "template": "--chat-template", "bench": "-m"}
    for c, what in needed.items():
        refused(f"{c} alone", USAGE, [what], c)


def check_environment():
    args = ["run", "-m", "m.gguf", "-p", "hello", "--json", "--ignore-eos"]
    tokens = lambda *more, **env: len(good_json("environment", *args, *more, env=env).get("tokens", ()))
    check(tokens(RIPPLEKV_PREDICT="3") == 3, "RIPPLEKV_PREDICT")
    check(tokens("-n", "2", RIPPLEKV_PREDICT="3") == 2, "an option beats its variable")
    check(tokens("-n", "2", RIPPLEKV_PREDICT="") == 2, "an empty variable is none")
    check(good_json("RIPPLEKV_JSON", "inspect", "other.gguf", env={"RIPPLEKV_JSON": "1", "RIPPLEKV_MODEL": "m.gguf"})
          .get("model", {}).get("path") == "other.gguf", "inspect's model beats RIPPLEKV_MODEL")
    check(good_json("RIPPLEKV_MODEL", "inspect", "--json", env={"RIPPLEKV_MODEL": "m.gguf"})
          .get("model", {}).get("n_layer") == 2, "RIPPLEKV_MODEL")
    for name, value in (("PREDICT", "x"), ("CTX_SIZE", "-5"), ("TEMP", "hot"), ("KV_POOL", "min"), ("JSON", "yes")):
        refused(f"RIPPLEKV_{name}", USAGE, [f"RIPPLEKV_{name}: '{value}'"], *args, env={"RIPPLEKV_" + name: value})
    for c in COMMANDS:
        if c not in ("tokenize", "template", "budget"):
            a, stdin = valid(c)
            refused(f"RKV_CPU, {c}", USAGE, ["RKV_CPU=bad", "ref"], c, *a, stdin=stdin, env={"RKV_CPU": "bad"})
    check(good_json("RKV_CPU", *args, "-n", "1", env={"RKV_CPU": "ref"}).get("tier") == "ref", "RKV_CPU=ref")


# ---- outputs ----

def check_json():
    keys = {
        "run": "text tokens prompt_tokens generated_tokens prefill_tok_s decode_tok_s kv_bytes kv_bytes_full "
               "kv_bytes_peak kv_tokens_per_layer kv_tokens_per_head peak_rss_bytes stop",
        "score": "positions prefix mean_kl kv_bytes kv_bytes_full", "select": "layers total cap prompt_tokens",
        "profile": "format version model settings examples sensitivity", "budget": "layers total cap prompt_tokens",
        "inspect": "version model machine kernels", "template": "text",
    }
    row = ("build_commit cpu_info backends model_filename model_type n_threads type_k type_v n_prompt n_gen n_depth pl "
           "test_time avg_ns stddev_ns avg_ts stddev_ts samples_ns samples_ts kv_bytes kv_bytes_full peak_rss").split()
    got = {}
    for c in COMMANDS:
        args, stdin = valid(c)
        got[c] = good_json(f"{c} --json", c, *args, "--json", stdin=stdin)
        missing = [k for k in keys.get(c, "").split() if k not in got[c]]
        check(not missing, f"{c} --json lacks {missing}")
    tests = [(16, 0, 0, 1), (0, 4, 0, 1), (0, 4, 0, 3), (16, 0, 8, 1), (0, 4, 8, 1), (0, 4, 8, 3)]
    check([(b["n_prompt"], b["n_gen"], b["n_depth"], b["pl"]) for b in got["bench"]] == tests, "bench's tests")
    check(all(k in b for b in got["bench"] for k in row), "bench's fields")
    tokens = [b["pl"] * (b["n_prompt"] + b["n_gen"]) for b in got["bench"]]
    check(all(abs(1e9 * n / ns - ts) <= 1e-3 * ts for n, b in zip(tokens, got["bench"])
              for ns, ts in zip(b["samples_ns"], b["samples_ts"])), "rates count the tokens of all sessions")
    check(got["bench"][2]["kv_bytes"] == 3 * got["bench"][1]["kv_bytes"], "the memory of three sessions")
    check(got["tokenize"] and all(isinstance(i, int) for i in got["tokenize"]), "tokenize gives ids")
    check(good_json("decode", "tokenize", "-m", "m.gguf", "--decode", "--json",
                    stdin=json.dumps(got["tokenize"]).encode()) == {"text": "hello"}, "tokenize and back")
    rows = got["score"].get("positions", [])
    check(len(rows) == 200 and rows[-1]["id"] is None and all(len(p["top"]) == 2 for p in rows), "positions")
    check([i for i, p in enumerate(rows) if "kl" in p] == list(range(190, 200)), "kl from the prefix on")
    layers = got["select"].get("layers", [])
    check([x["budget"] for x in layers] == [60, 60] and got["select"]["total"] == 120, "select's budgets")
    check(all(h["budget"] == 60 for x in layers for h in x["heads"]), "budgets of heads")
    kept = [h["kept"] for x in layers for h in x["heads"]]
    check(all(k == sorted(set(k)) and len(k) == 60 for k in kept), "kept positions")
    total = sum(x["budget"] for x in got["budget"].get("layers", []))
    check(total == got["budget"].get("total") == 400, "budget's total")
    check([x["layer"] for x in got["profile"].get("sensitivity", [])] == [0, 1], "sensitivity")
    pathlib.Path("made.json").unlink(missing_ok=True)


def check_devices():
    """What inspect says of GPUs: why there are none, or what a module in the plug-in's place plays."""
    def machine(name, plugin, play="13000 2 9 0 0"):
        env = {"RKV_CUDA_PLUGIN": str(plugin), "RKV_RECORDER": play}
        got = good_json(name, "inspect", "--json", env=env).get("machine", {})
        text = good(name, "inspect", env=env).out.decode()
        why = got.get("no_device")
        check((why is None) == bool(got.get("devices")), f"{name}: devices, or why there are none: {got}")
        check(why is None or f"  {'no_device':22} {why}\n" in text, f"{name}: text and JSON agree: {text}")
        return got.get("devices"), why or "", text

    for plugin, part in (("none.so", "none.so"), ("./text", "./text"), ("libc.so.6", "is no plug-in")):
        devices, why, _ = machine(f"plug-in {plugin}", plugin)
        check(devices == [] and why.startswith("CUDA: ") and part in why, f"plug-in {plugin}: {why}")
    module = BUILD / ".libs" / "rkv_recorder.so"
    if not module.exists():
        skip(6, "devices: this build has no shared objects")
        return
    for play, part in (("0 2 9 0 0", "no driver"), ("12020 2 9 0 0", "serves CUDA 12.2"), ("13000 0 9 0 0", "no device"),
                       ("13000 2 9 2 999", "error 999")):
        check(part in machine(part, module, play)[1], f"devices {play}: {part}")
    devices, _, text = machine("two devices", module)
    check([(d["name"][:9], d["memory_bytes"], d["free_bytes"], d["compute_capability"], "trouble" in d) for d in devices]
          == [(f"Recorder{i}", 80 << 30, (40 << 30) + i, "9.0", False) for i in (0, 1)], f"two devices: {devices}")
    check(f"  devices[1]\n    {'name':20} Recorder1" in text, f"two devices: {text}")
    devices, _, text = machine("a device in trouble", module, "13000 2 9 4 46")
    check("error 46" in devices[0]["trouble"] and "trouble" not in devices[1], f"a device in trouble: {devices}")


def check_bench_formats():
    args = ["bench", *valid("bench")[0]]
    md, csv, lines = (good(f, *args, "-o", f).out.decode().splitlines() for f in ("md", "csv", "jsonl"))
    check(len(md) == 8 and all(x.count("|") == 12 for x in md) and "pp16 @ d8" in md[5], f"Markdown {md}")
    check(len(csv) == 7 and len({x.count(",") for x in csv}) == 1 and "n_prompt" in csv[0], f"CSV {csv}")
    check([json.loads(x)["n_gen"] for x in lines] == [0, 4, 4, 0, 4, 4], f"lines of JSON {lines}")


def check_top():
    """--top against --logits, which hold the same rows."""
    args = ["score", "-m", "m.gguf", "--ids", "five"]
    good("--logits", *args, "--logits", "l.npy")
    raw = pathlib.Path("l.npy").read_bytes()
    check(raw[:8] == b"\x93NUMPY\x01\x00" and len(raw) == 128 + 4 * 5 * 512, "a .npy file")
    rows = [struct.unpack_from("<512f", raw, 128 + 2048 * i) for i in range(5)]
    order = [sorted(range(512), key=lambda i, r=r: (-r[i], i)) for r in rows]
    for k in (1, 2, 3, 7, 64, 511, 512, 5000):
        got = good_json(f"--top {k}", *args, "--top", str(k)).get("positions", [])
        check([[t["id"] for t in p["top"]] for p in got] == [o[:k] for o in order], f"--top {k}")
    for path, what in {"absent/x": "No such file", "folder": "Is a directory", "/dev/full": "No space"}.items():
        refused(f"--logits {path}", FAILED, [path + ":", what], *args, "--logits", path)
    pathlib.Path("l.npy").unlink()
    refused("a failed score leaves no logits", USAGE, ["fit"], *args, "-c", "3", "--logits", "l.npy")


def check_lost_output():
    def close_stdout():
        os.close(1)

    for c in COMMANDS + ["--help", "--version", "run --help"]:
        args, stdin = valid(c) if c in COMMANDS else ([], b"")
        words = c.split() + args
        read, write = os.pipe()
        os.close(read)
        with open("/dev/full", "wb") as full, open(write, "wb") as gone:
            for what, more in (("closed", {"stdout": None, "preexec_fn": close_stdout}), ("full", {"stdout": full}),
                               ("gone", {"stdout": gone})):
                r = rkv(*words, stdin=stdin, **more)
                check(r.rc == FAILED and r.one_line(), f"{c}, stdout {what}: {r}")
    r = rkv(*("score -m m.gguf --ids five --logits l.npy").split(), stdout=None, preexec_fn=close_stdout)
    raw = pathlib.Path("l.npy").read_bytes()
    check(r.rc == FAILED and len(raw) == 128 + 4 * 5 * 512, f"no text in the logits: {r}, {len(raw)} bytes")
    p = start("run", "-m", "slow.gguf", "-p", "x", "-n", "1000000", "--ignore-eos")
    p.stdin.close()
    p.stdout.read(10)
    p.stdout.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        p.wait(30)
    p.kill()
    r = Result(p.returncode, b"", p.stderr.read())
    check(r.rc == FAILED and r.one_line(), f"the reader goes away in mid answer: {r}")
    p.stderr.close()
    for name in ("l.npy", "made.json"):
        pathlib.Path(name).unlink(missing_ok=True)


def check_full_disk():
    """A limit of the file size, in mid write."""
    def limited(n):
        return {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (n, n))}

    logits = ["score", "-m", "m.gguf", "--ids", "five", "--logits", "l.npy"]
    refused("no room for logits", FAILED, ["l.npy:", "too large"], *logits, **limited(5000))
    profile = ["profile", "-m", "m.gguf", "--data", "data", "--response", "8", "-o", "x.json"]
    make_model("tall.gguf", layers=24)          # more bytes of profile than a small limit
    unsaved("no room for a profile", ["x.json:", "too large"], *profile, "-m", "tall.gguf", **limited(2000))
    if not without_sqlite():
        r = rkv(*profile, "--resume", "full", **limited(8192))
        check(r.rc == FAILED and r.one_line() and "full/profile.sqlite" in r.err and not r.out, f"no room: {r}")
        good("with room again", *profile, "--resume", "full")
        check(pathlib.Path("x.json").read_bytes() == pathlib.Path("profile.json").read_bytes(), "the same profile")
    for name in ("out.json", "x.json"):
        pathlib.Path(name).unlink(missing_ok=True)


# ---- behaviour ----

def check_determinism():
    run = ["run", "-m", "slow.gguf", "--ids", "ids", "-n", "40", "--json", "--ignore-eos"]
    tokens = lambda *more: good_json("determinism", *run, *more).get("tokens")
    base = tokens("-t", "1")
    check(base and tokens("-t", "2") == base, "-t 1 and -t 2")
    check(tokens("-ub", "7") == base, "-ub 7")
    check(tokens("-t", "2", "--kv-policy", "snapkv", "--kv-budget", "100%") == base, "a full budget is no policy")
    warm = ["--temp", "1", "-s"]
    check(tokens(*warm, "5") == tokens(*warm, "5", "-t", "2") != tokens(*warm, "6"), "seeds")
    score = ["score", "-m", "slow.gguf", "--ids", "ids", "--top", "5"]
    check(good("score", *score, "-t", "1").out == good("score", *score, "-t", "2").out, "score -t 1 and -t 2")
    text = lambda *more: good("text", *run[:-2], "--ignore-eos", *more).out
    check(text() == text("-t", "2"), "the streamed text")


def check_interrupted():
    run = ["run", "-m", "slow.gguf", "--ignore-eos", "-n", "1000000", "--ids"]
    p = start(*run, "ids")
    first = p.stdout.read(20)
    p.send_signal(signal.SIGINT)
    r = finish(p)
    check(r.rc == INTERRUPTED and len(first) == 20 and "answer" in r.err and "rkv:" not in r.err,
          f"SIGINT in an answer: {r}")
    pathlib.Path("many").write_text("[1" + ",2,3" * 50000 + "]")
    for name, ids, wait in (("in the prompt", "many", 0.1), ("in a JSON answer", "ids", 0.5)):
        for sig in (signal.SIGINT, signal.SIGTERM):
            p = start(*run, ids, "--json")
            wait_for_work(p)
            time.sleep(wait)
            began = time.monotonic()
            p.send_signal(sig)
            r = finish(p)
            took = time.monotonic() - began
            check(r.rc == INTERRUPTED and took < (20 if SANITIZED else 5), f"{sig.name} {name}: {took} s, {r}")
            if r.out:
                check(json.loads(r.out).get("stop") == "interrupted" and not r.err, f"a JSON answer cut short: {r}")
            else:
                check(r.one_line(), f"{sig.name} {name}: {r}")
    p = start("bench", "-m", "slow.gguf", "-p", "0", "-n", "1000000", "-r", "1", "--json")
    wait_for_work(p)
    p.send_signal(signal.SIGINT)
    r = finish(p)
    check(r.rc == INTERRUPTED and not r.out and r.one_line(), f"SIGINT in a benchmark: {r}")
    p = start("tokenize", "-m", "m.gguf")
    p.stdin.write(b"x" * 200000)
    p.stdin.flush()
    p.send_signal(signal.SIGINT)
    time.sleep(0.2)
    r = finish(p)
    check(r.rc == -signal.SIGINT and not r.out and not r.err, f"SIGINT while reading stdin: {r}")
    pathlib.Path("many").unlink()


def check_memory():
    if SANITIZED:
        return skip(16, "sanitizers need their address space")
    pathlib.Path("book").write_text("some words of a text that goes on " * 6000)
    base = peak_address_space()
    works = {"run": ["-m", "slow.gguf", "-f", "book", "-n", "2", "--json", "--chat", "-c", "500000"],
             "score": ["-m", "slow.gguf", "--ids", "ids", "--top", "512"],
             "select": valid("select")[0], "bench": valid("bench")[0],
             "tokenize": ["-m", "slow.gguf", "--json"], "profile": valid("profile")[0]}
    seen = set()
    for c, args in works.items():
        for extra in (0, 1, 2, 3, 4, 6, 8, 12, 20, 40, 80):
            limit = base + (extra << 20)
            r = rkv(c, *args, stdin=b"text " * (1 << 18) if c == "tokenize" else b"",
                    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
            seen.add((c, r.rc))
            if r.rc == 0:
                check(r.out and "rkv:" not in r.err, f"{c} within {limit} bytes: {r}")
            else:
                check(r.rc == MEMORY and r.one_line() and not r.out, f"{c} within {limit} bytes: {r}")
    pathlib.Path("many").write_text("[1" + ",2,3" * 100000 + "]")
    for what in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        limit = (base if what == resource.RLIMIT_AS else 0) + (100 << 20)
        for mode in ("mmap", "none"):
            began = time.monotonic()
            refused(f"a prompt that cannot fit, {mode}", MEMORY,
                    ["200001 tokens needs", "are available", "--kv-budget"], "run", "-m", "slow.gguf", "--ids", "many",
                    "-n", "2", "-lm", mode, preexec_fn=lambda: resource.setrlimit(what, (limit, limit)))
            check(time.monotonic() - began < 5, "refused before the work")
    pathlib.Path("many").unlink()
    check({("run", MEMORY), ("score", MEMORY), ("tokenize", MEMORY)} <= seen, f"limits that bite: {sorted(seen)}")
    for name in ("book", "made.json"):
        pathlib.Path(name).unlink(missing_ok=True)


def main():
    tests = (check_help, check_options, check_environment, check_models, check_lost_model, check_kept_model,
             check_load_modes, check_ids_inputs, check_profile_inputs, check_curves, check_texts, check_vocabularies, check_json,
             check_devices, check_bench_formats, check_top, check_lost_output, check_full_disk, check_determinism,
             check_decode_budget, check_interrupted, check_memory)
    run_tests(tests)


if __name__ == "__main__":
    main()
