"""What check_command.py and check_profile.py stand on: runs of rkv, made inputs, counted checks."""
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

NAME = pathlib.Path(sys.argv[0]).stem
BUILD = pathlib.Path.cwd()
RKV = str(BUILD / "rkv")
SHARED = pathlib.Path(__file__).resolve().parents[2] / "shared" / "data"
SANITIZED = b"__asan_init" in pathlib.Path(RKV).read_bytes()
PATIENCE = 120
FAILED, USAGE, INPUT, MEMORY, INTERRUPTED = 1, 2, 3, 4, 130
COMMANDS = "run tokenize score select profile budget inspect template bench eval".split()
MESSAGES = b'{"messages":[{"role":"user","content":"hi"}],"add_generation_prompt":true}'
counts = {"passed": 0, "failed": 0, "skipped": 0}


def check(ok, text):
    counts["passed" if ok else "failed"] += 1
    if not ok:
        print(f"{NAME}: failed: {text}", file=sys.stderr)
    return ok


def skip(n, why):
    counts["skipped"] += n
    print(f"{NAME}: skipped {n}: {why}", file=sys.stderr)


def environment(more=None):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("RIPPLEKV_", "RKV_"))}
    return {**env, "OMP_WAIT_POLICY": "passive", "RIPPLEKV_THREADS": "1", **(more or {})}


class Result:
    def __init__(self, rc, out, err):
        self.rc, self.out, self.err = rc, out, err.decode(errors="replace")

    def __str__(self):
        return f"exit {self.rc}, stdout {self.out[:80]!r}, stderr {self.err[-600:]!r}"

    def one_line(self):
        return self.err.startswith("rkv: ") and self.err.count("\n") == 1 and self.err.endswith("\n")


def start(*args, env=None, **more):
    more = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    return subprocess.Popen([RKV, *args], env=environment(env), **more)


def finish(process, stdin=b""):
    try:
        out, err = process.communicate(stdin, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        err += b"\n(killed: it did not end)"
    return Result(process.returncode, out or b"", err or b"")


def wait_for_work(process):
    """Until it handles SIGINT, which it does from the end of its inputs on."""
    end = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < end:
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        if any(line.startswith("SigCgt") and int(line.split()[1], 16) & 1 << signal.SIGINT - 1
               for line in status.splitlines()):
            return
        time.sleep(0.005)


def rkv(*args, stdin=b"", env=None, **more):
    return finish(start(*args, env=env, **more), stdin)


def good(name, *args, **more):
    """Runs what must succeed; gives its result."""
    r = rkv(*args, **more)
    check(r.rc == 0, f"{name}: {r}")
    return r


def good_json(name, *args, **more):
    r = good(name, *args, **more)
    try:
        return json.loads(r.out)
    except ValueError:
        check(False, f"{name}: stdout is not JSON: {r}")
        return {}


def refused(name, code, parts, *args, **more):
    """One line that holds the parts, the exit code, no output, no new file."""
    before = {p: p.stat().st_size for p in pathlib.Path().iterdir()}
    r = rkv(*args, **more)
    left = {p for p in pathlib.Path().iterdir() if before.get(p) != p.stat().st_size}
    missing = [p for p in parts if p not in r.err]
    check(r.rc == code and not r.out and r.one_line() and not missing and not left,
          f"{name}: expected exit {code}, one line with {parts}, nothing else; {r}; files {left}")


def unsaved(name, parts, *args, **more):
    """One line that holds the parts, exit code 1, no new file: but the measured numbers on stdout."""
    before = set(pathlib.Path().iterdir())
    r = rkv(*args, **more)
    check(r.rc == FAILED and r.one_line() and all(p in r.err for p in parts) and b"sensitivity" in r.out and
          set(pathlib.Path().iterdir()) == before, f"{name}: expected exit 1, one line with {parts}, the report; {r}")


def peak_address_space():
    """What a start takes, in bytes; below it lies the loader's ground, which is not ours."""
    p = start("tokenize", "-m", "slow.gguf")
    p.stdin.write(b"x" * 200000)
    p.stdin.flush()
    status = pathlib.Path(f"/proc/{p.pid}/status").read_text()
    finish(p)
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmPeak"))


def without_sqlite():
    probe = rkv(*"profile -m m.gguf --data data --response 8 --resume probe -o probe.json".split())
    return probe.rc == INPUT and probe.one_line() and "without SQLite" in probe.err


def make_model(name, **options):
    args = [x for k, v in options.items() for x in ("--" + k.replace("_", "-"), str(v))]
    subprocess.run([str(BUILD / "make_model"), "--out", name, *args], check=True)


def write_inputs():
    make_model("m.gguf")
    make_model("other.gguf", seed=9, layers=3)
    make_model("nobos.gguf", family="qwen2")
    size = {} if SANITIZED else {"layers": 4, "d_model": 256, "heads": 8, "kv_heads": 4, "d_head": 32, "d_ff": 512}
    make_model("slow.gguf", ctx=1 << 20, **size)
    rng = random.Random(1)
    ids = [rng.randrange(1, 500) for _ in range(200)]
    texts = {
        "ids": json.dumps(ids), "five": "[1,2,3,4,5]", "none": "[]", "far": "[1,2,3,512]", "object": '{"a":[1]}',
        "negative": "[1,-2]", "half": "[1.5]", "words": '["a"]', "open": "[1,2", "tail": "[1] 2", "empty": "",
        "nul": "[1]\0[2]", "nul_last": "[1] \0",
        "text": "no model, no JSON\n", "messages": MESSAGES.decode(),
        "data": "".join(json.dumps({"prompt_ids": [rng.randrange(1, 500) for _ in range(60)]}) + "\n"
                        for _ in range(3)),
        "long": "".join(json.dumps({"prompt_ids": [rng.randrange(1, 500) for _ in range(150 if SANITIZED else 300)]})
                        + "\n" for _ in range(6)),
    }
    texts["bad3"] = "\n" + texts["data"].split("\n")[0] + "\n{oops\n"
    texts["nokey"] = '{"question":"?"}\n'
    first = texts["data"].split("\n")[0]
    texts["nul_line"] = f"{first}\n{first}\0 and more\n"
    texts["nul_text"] = '{"prompt":"a\\u0000b"}\n'
    texts["key_case"] = first.replace("prompt_ids", "Prompt_Ids") + "\n"
    texts["far_id"] = '{"prompt_ids":[1,512]}\n'
    for name, text in texts.items():
        pathlib.Path(name).write_text(text)
    whole = pathlib.Path("m.gguf").read_bytes()
    for name, n in (("cut5", 5), ("cut_keys", 3000), ("cut_data", len(whole) - 100)):
        pathlib.Path(name).write_bytes(whole[:n])
    pathlib.Path("binary").write_bytes(b"a\0b")
    pathlib.Path("folder").mkdir()
    os.mkfifo("pipe")
    good("a profile", "profile", "-m", "m.gguf", "--data", "data", "--response", "8", "-o", "profile.json")


def valid(command):
    """Arguments and input of a run that works."""
    small = ["-m", "m.gguf", "--ids", "ids", "--kv-policy", "snapkv", "--kv-budget", "30%"]
    return {
        "run": (["-m", "m.gguf", "-p", "hello", "-n", "4"], b""),
        "tokenize": (["-m", "m.gguf"], b"hello"),
        "score": (small + ["--prefix", "190", "--top", "2"], b""),
        "select": (small, b""),
        "profile": (["-m", "m.gguf", "--data", "data", "--response", "8", "-o", "made.json"], b""),
        "budget": (["--kv-profile", "profile.json", "--kv-budget", "20%", "-c", "1000"], b""),
        "inspect": (["m.gguf"], b""),
        "template": (["-m", "m.gguf"], MESSAGES),
        "eval": (["-m", "m.gguf", "--data", "data", "--kv-policy", "snapkv", "--kv-budget", "80%"], b""),
        "bench": (["-m", "m.gguf", "-p", "16", "-n", "4", "-d", "0,8", "-npl", "1,3", "-r", "2"], b""),
    }[command]


def run_tests(tests):
    """Runs the tests in a folder of their own with the made inputs in it, and ends the program. tests: a list, or a
    function that chooses it once the inputs are there."""
    signal.signal(signal.SIGINT, signal.default_int_handler)    # a shell's background jobs ignore it
    with tempfile.TemporaryDirectory(prefix="rkv-check-") as work:
        os.chdir(work)
        write_inputs()
        for test in tests() if callable(tests) else tests:
            began = time.monotonic()
            test()
            print(f"  {test.__name__}: {time.monotonic() - began:.1f} s")
        os.chdir(BUILD)
    print(f"{NAME}: " + "{passed} passed, {failed} failed, {skipped} skipped".format(**counts))
    sys.exit(counts["failed"] > 0)
