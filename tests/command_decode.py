"""What check_command.py asks of a decode budget: rkv run --kv-decode-budget, --kv-decode-interval."""
import json

from command_bed import USAGE, check, good, good_json, refused

SLOT = 2 * 2 * 16      # bytes of a token in one KV head of m.gguf: f16 keys and values of 16 numbers
HEADS = 2 * 2          # of all layers


def check_refused_budgets(run):
    bound = ["--kv-decode-budget", "90"]
    refused("a decode budget with policy full", USAGE, ["--kv-decode-budget 90", "policy full", "--kv-policy"], *run, *bound)
    refused("the same, by name", USAGE, ["--kv-decode-budget 90", "policy full"], *run, *bound, "--kv-policy", "full")
    for policy, part in (("expected", "'expected' goes by statistics of all queries"), ("adakv", "adakv acts on prompts"),
                         ("snapkv+criticalkv", "criticalkv acts on prompts")):
        refused(f"{policy} while decoding", USAGE, [part], *run, *bound, "--kv-policy", policy)
    refused("published steps", USAGE, ["published steps"], *run, *bound, "--kv-policy", "pyramid", "--kv-pyramid", "published")
    snapkv = [*run, "--kv-policy", "snapkv", "--kv-decode-budget"]
    for text in ("0", "lots", "-5", "0%", "101%", "", "5T"):
        refused(f"a decode budget of '{text}'", USAGE, ["--kv-decode-budget: "], *snapkv, text)
    refused("below the floor", USAGE, ["decode budget 99 tokens", "floor of 36", "at least 100 tokens"], *snapkv, "99")
    refused("below it, as a share", USAGE, ["decode budget 20 %", "is 40 per layer"], *snapkv, "20%")
    refused("no bound and no budget", USAGE, ["--kv-decode-budget full", "--kv-budget"], *snapkv, "full")


def check_bound(got, name, cap, uniform=True):
    """The numbers of a run whose bound was reached."""
    kept = [n for layer in got["kv_tokens_per_head"] for n in layer]
    most = cap * HEADS * SLOT
    check(got["kv_decode_budget"] == cap and got["kv_evictions"] > 2, f"{name}: {got}")
    check(got["kv_bytes_peak"] == most if uniform else most * 0.9 < got["kv_bytes_peak"] <= most,
          f"{name}: {got['kv_bytes_peak']} bytes, at most {most}")
    check(sum(kept) * SLOT == got["kv_bytes"] <= got["kv_bytes_peak"] < got["kv_bytes_full"], f"{name}: {kept}")
    check(got["generated_tokens"] == 120 and got["kv_bytes_full"] == (200 + 119) * HEADS * SLOT, f"{name}: all tokens")


def check_decode_budget():
    run = ["run", "-m", "m.gguf", "--ids", "ids", "-n", "120", "--ignore-eos"]
    check_refused_budgets(run)
    text = good("the summary", *run, "--kv-policy", "snapkv", "--kv-decode-budget", "100").err
    check("at most" in text and "evictions" in text, f"the summary: {text}")
    run.append("--json")
    whole = good_json("no policy", *run)
    check("kv_decode_budget" not in whole and whole["kv_bytes_peak"] == whole["kv_bytes"] == whole["kv_bytes_full"],
          f"without a bound: {whole}")
    for policy in ("streaming", "snapkv", "h2o", "observed", "tova", "knorm", "pyramid", "snapkv:random"):
        bound = ["--kv-policy", policy, "--kv-decode-budget", "90", "--kv-decode-interval", "16"]
        got = good_json(policy, *run, *bound, "-t", "1")
        check_bound(got, policy, 90, ":" not in policy and policy != "pyramid")
        check(got["kv_decode_interval"] == 16 and good_json(policy, *run, *bound, "-t", "2")["tokens"] == got["tokens"],
              f"{policy}: -t 1 and -t 2")
    snapkv = [*run, "--kv-policy", "snapkv", "--kv-decode-interval", "16", "--kv-decode-budget"]
    check_bound(good_json("a share", *snapkv, "45%"), "a share", 90)
    check_bound(good_json("bytes", *snapkv, "23K"), "bytes", 23 * 1024 // (HEADS * SLOT))
    check_bound(good_json("both budgets", *snapkv, "90", "--kv-budget", "40%"), "both budgets", 90)
    for bound in ("319", "1G"):
        got = good_json(f"a bound of {bound}", *snapkv, bound)
        check(got["tokens"] == whole["tokens"] and got["kv_bytes"] == whole["kv_bytes"], f"a bound of {bound}: {got}")
    same = json.dumps(good_json("prompt alone", *run, "--kv-policy", "snapkv", "--kv-budget", "40%")["tokens"])
    got = good_json("a bound never reached", *snapkv, "full", "--kv-budget", "40%")
    check(json.dumps(got["tokens"]) == same and "kv_evictions" not in got, f"no bound beside a budget: {got}")
