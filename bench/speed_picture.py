#!/usr/bin/env python3
"""The README's plot of tokens per second against context length, from compare.py's result.

    bench/speed_picture.py bench/results/compare.json --model NAME -o bench/results/speed.svg
"""
import argparse
import json
import math

WIDTH, HEIGHT, TOP, BASE = 860, 360, 70, 300
COLOURS = {"rkv snapkv 10%": "#c2410c", "rkv": "#2563a8", "llama.cpp": "#6b7280", "OpenVINO GenAI": "#15803d"}


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
    steps = [m * 10 ** e for e in range(6) for m in (1, 2, 5)]
    return [t for t in steps if low <= t <= high]


def panel(out, left, right, title, curves):
    """Both axes logarithmic, length 0 drawn at the left end; the whiskers are the rounds' extremes."""
    lengths = sorted({n for c in curves.values() for n, _ in c})
    rates = [r[k] for c in curves.values() for _, r in c for k in ("min", "max")]
    low, high = min(rates) * 0.8, max(rates) * 1.25
    small = lengths[0] or lengths[min(1, len(lengths) - 1)] / 2 or 1
    span = math.log(lengths[-1] / small) or 1
    at = lambda n: math.log(max(n, small) / small) / span
    x = lambda n: left + (right - left - 24) * at(n) + 12
    y = lambda v: BASE - (BASE - TOP) * math.log(v / low) / math.log(high / low)
    out.append(text(left, TOP - 14, title, 13, weight="bold"))
    for t in ticks(low, high):
        out.append(f'<line x1="{left}" x2="{right}" y1="{y(t):.1f}" y2="{y(t):.1f}" stroke="#e5e7eb"/>')
        out.append(text(left - 8, y(t) + 4, t, 11, "end", "#666"))
    for n in lengths:
        out.append(text(x(n), BASE + 16, n, 11, "middle", "#666"))
    for program, colour in COLOURS.items():
        curve = sorted(curves.get(program, []), key=lambda p: p[0])
        line = " ".join(f"{x(n):.1f},{y(r['median']):.1f}" for n, r in curve)
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for n, r in curve:
            out.append(f'<line x1="{x(n):.1f}" x2="{x(n):.1f}" y1="{y(r["min"]):.1f}" y2="{y(r["max"]):.1f}" '
                       f'stroke="{colour}"/><circle cx="{x(n):.1f}" cy="{y(r["median"]):.1f}" r="4" fill="{colour}">'
                       f'<title>{program}, {n}: {r["median"]:.1f} tokens/s ({r["min"]:.1f} to {r["max"]:.1f})</title>'
                       '</circle>')


def draw(result, name):
    tests = result["models"][name]["tests"]
    prefill, decode = points(tests, "prefill"), points(tests, "decode")
    shown = [p for p in COLOURS if p in prefill or p in decode]
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" role="img">',
           f'<title>Tokens per second against context length, {name}</title>',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           text(24, 26, f"Tokens per second, {name}, {result['threads']} threads of {result['cpu']}", 15, weight="bold")]
    panel(out, 60, 420, "prefill: length of the prompt", prefill)
    panel(out, 500, 850, "decode: tokens in front", decode)
    left = 60
    for program in shown:
        out.append(f'<line x1="{left}" x2="{left + 22}" y1="{HEIGHT - 14}" y2="{HEIGHT - 14}" '
                   f'stroke="{COLOURS[program]}" stroke-width="3"/>')
        out.append(text(left + 28, HEIGHT - 10, program + (", full cache" if program != "rkv snapkv 10%" else ""), 12))
        left += 200
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("result")
    p.add_argument("--model", required=True)
    p.add_argument("-o", "--output", required=True)
    a = p.parse_args()
    with open(a.result, encoding="utf-8") as f:
        drawing = draw(json.load(f), a.model)
    with open(a.output, "w", encoding="utf-8") as f:
        f.write(drawing)


if __name__ == "__main__":
    main()
