#!/usr/bin/env python3
"""The README's plot of tokens per second against context length, from compare.py's result: a row for each model.

    bench/speed_picture.py bench/results/compare.json --model NAME... -o bench/results/speed.svg
"""
import argparse
import json
import math

from compare import EVICTION, LLAMA, OPENVINO

WIDTH, ROW, TOP, BASE, LEGEND = 860, 300, 78, 270, 40
# program: colour, dashes, label
CURVES = {
    "rkv snapkv 10%": ("#c2410c", "", "rkv, snapkv 10 %"),
    "rkv": ("#2563a8", "", "rkv, full cache"),
    LLAMA: ("#6b7280", "", "llama.cpp"),
    OPENVINO: ("#15803d", "", "OpenVINO GenAI"),
    EVICTION: ("#15803d", "5 4", "its eviction, 10 %"),
}


def text(x, y, what, size=13, anchor="start", colour="#333", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}" '
            f'font-weight="{weight}">{what}</text>')


def points(tests, kind):
    """{program: [(length, spread)]} of the tests whose name begins so."""
    out = {}
    for row in tests:
        if row["test"].startswith(kind):
            n = int(row["test"].split()[-1])
            for program, rate in row["tokens_s"].items():
                out.setdefault(program, []).append((n, rate))
    return out


def ticks(low, high):
    """The coarsest round steps of which three or more fit."""
    for digits in ((1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7)):
        out = [t for t in (m * 10.0 ** e for e in range(-3, 6) for m in digits) if low <= t <= high]
        if len(out) > 2:
            break
    return out


def panel(out, left, right, top, title, curves):
    """Both axes logarithmic, length 0 drawn at the left end; the whiskers are the rounds' extremes."""
    lengths = sorted({n for c in curves.values() for n, _ in c})
    if not lengths:
        return
    rates = [r[k] for c in curves.values() for _, r in c for k in ("min", "max")]
    low, high = min(rates) * 0.8, max(rates) * 1.25
    small = lengths[0] or lengths[min(1, len(lengths) - 1)] / 2 or 1
    span = math.log(max(lengths[-1], small) / small) or 1
    base, height = top + BASE, BASE - TOP
    x = lambda n: left + (right - left - 24) * math.log(max(n, small) / small) / span + 12
    y = lambda v: base - height * math.log(v / low) / math.log(high / low)
    out.append(text(left, top + TOP - 14, title, 13, weight="bold"))
    for t in ticks(low, high):
        out.append(f'<line x1="{left}" x2="{right}" y1="{y(t):.1f}" y2="{y(t):.1f}" stroke="#e5e7eb"/>')
        out.append(text(left - 8, y(t) + 4, f"{t:g}", 11, "end", "#666"))
    for n in lengths:
        out.append(text(x(n), base + 16, n, 11, "middle", "#666"))
    for program, (colour, dashes, label) in CURVES.items():
        curve = sorted(curves.get(program, []), key=lambda p: p[0])
        line = " ".join(f"{x(n):.1f},{y(r['median']):.1f}" for n, r in curve)
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2" '
                   f'stroke-dasharray="{dashes}"/>')
        for n, r in curve:
            out.append(f'<line x1="{x(n):.1f}" x2="{x(n):.1f}" y1="{y(r["min"]):.1f}" y2="{y(r["max"]):.1f}" '
                       f'stroke="{colour}"/><circle cx="{x(n):.1f}" cy="{y(r["median"]):.1f}" r="4" '
                       f'fill="{"white" if dashes else colour}" stroke="{colour}"><title>{label}, {n}: '
                       f'{r["median"]:.1f} tokens/s ({r["min"]:.1f} to {r["max"]:.1f})</title></circle>')


def draw(result, names):
    height = ROW * len(names) + LEGEND
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" role="img">',
           f'<title>Tokens per second against context length, {", ".join(names)}</title>',
           f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
           text(24, 26, f"Tokens per second, {result['threads']} threads of {result['cpu']}", 15, weight="bold")]
    shown = set()
    for i, name in enumerate(names):
        tests = result["models"][name]["tests"]
        prefill, decode = points(tests, "prefill"), points(tests, "decode")
        shown |= {*prefill, *decode}
        panel(out, 60, 420, ROW * i, f"{name}, prefill: length of the prompt", prefill)
        panel(out, 500, 850, ROW * i, f"{name}, decode: tokens in front", decode)
    left = 40
    for colour, dashes, label in (c for p, c in CURVES.items() if p in shown):
        out.append(f'<line x1="{left}" x2="{left + 22}" y1="{height - 20}" y2="{height - 20}" '
                   f'stroke="{colour}" stroke-width="3" stroke-dasharray="{dashes}"/>')
        out.append(text(left + 28, height - 16, label, 12))
        left += 162
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("result")
    p.add_argument("--model", required=True, nargs="+")
    p.add_argument("-o", "--output", required=True)
    a = p.parse_args()
    with open(a.result, encoding="utf-8") as f:
        drawing = draw(json.load(f), a.model)
    with open(a.output, "w", encoding="utf-8") as f:
        f.write(drawing)


if __name__ == "__main__":
    main()
