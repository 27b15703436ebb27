"""Prompts from LongBench samples: kinds of task, disjoint choices, lengths made by cutting the middle."""
import json
import pathlib

KINDS = {           # English tasks
    "qa": ("narrativeqa", "hotpotqa", "qasper", "2wikimqa", "multifieldqa_en", "musique"),
    "summaries": ("gov_report", "multi_news", "qmsum"),
    "few-shot": ("trec", "triviaqa"),
    "dialogue": ("samsum",),
    "retrieval": ("passage_retrieval_en", "passage_count"),
    "code": ("lcc", "repobench-p"),
}
TASKS = tuple(task for tasks in KINDS.values() for task in tasks)
RAW = {"trec", "triviaqa", "samsum", "lcc", "repobench-p"}      # to be continued, without a chat template


def load(folder, tasks=TASKS):
    """{task: samples}, each with id, task, prompt, answers."""
    out = {}
    for task in tasks:
        with open(pathlib.Path(folder) / f"{task}.jsonl", encoding="utf-8") as f:
            out[task] = [json.loads(line) for line in f if line.strip()]
    return out


def in_turns(samples, last_first=False):
    """One of each task, then a second of each, and so on."""
    lists = [list(reversed(s)) if last_first else s for s in samples.values()]
    return [s[i] for i in range(max(map(len, lists))) for s in lists if i < len(s)]


def split(samples, n_calibration, by_task=False):
    """Calibration samples, n of them, and all that may be held out, in the order in which to use them.
    by_task: the two share no task (every second one of each kind); else no sample."""
    if by_task:
        held = {task for tasks in KINDS.values() for task in tasks[1::2]}
        first = in_turns({t: s for t, s in samples.items() if t not in held})
        return first[:n_calibration], in_turns({t: s for t, s in samples.items() if t in held}, True)
    first = in_turns(samples)[:n_calibration]
    used = {s["id"] for s in first}
    return first, [s for s in in_turns(samples, True) if s["id"] not in used]


def cut(ids, n):
    """n ids: the middle left out, as LongBench cuts what is too long."""
    return ids if len(ids) <= n else ids[:n // 2] + ids[len(ids) - (n - n // 2):]


def prompt_ids(model, sample, n, raw=None):
    """Exactly n ids of a sample's prompt, or None where it is too short: in the chat template, which
    stays whole, but for tasks that are texts to be continued. model: of library.py."""
    raw = raw if raw is not None else sample["task"] in RAW or not model.has_template
    if raw:
        ids = model.tokens(sample["prompt"])
        return cut(ids, n) if len(ids) >= n else None
    mark = "\u2042"         # stands for the text, so that the template's ids do not depend on it
    before, after = model.chat(mark).split(mark)
    before, after = model.tokens(before), model.tokens(after, 2)
    ids = model.tokens(sample["prompt"], 0)
    room = n - len(before) - len(after)
    return before + cut(ids, room) + after if len(ids) >= room > 0 else None
