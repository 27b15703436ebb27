#!/usr/bin/env python3
"""The README's plot of quality against budget, from policy_gain.py's result: a panel for each model.

    bench/policy_picture.py bench/results/policy_gain.json -o bench/results/policy_gain.svg
"""
import argparse
import json
import math

from picture import text

PANEL, LEFT, RIGHT, TOP, BASE, HEIGHT = 470, 62, 18, 74, 356, 470
# policy: colour, dashes, label
CURVES = {
    "snapkv": ("#c2410c", "", "snapkv"),
    "h2o": ("#a16207", "2 4", "h2o"),
    "observed": ("#a21caf", "2 4", "observed"),
    "ripple": ("#15803d", "", "ripple, r 1.5"),
    "blend": ("#6b7280", "7 4", "blend, uniform"),
    "root": ("#0e7490", "7 4", "root, per head"),
    "curve by layer": ("#7aa5d2", "7 4", "curve, per layer"),
    "curve measured": ("#1e1b4b", "2 4", "curve, per head, measured"),
    "curve": ("#2563a8", "", "curve, per head"),
}


def percent(budget):
    return float(budget.rstrip("%"))


def bounds(models):
    """Least and most of what is drawn, whiskers included, with room."""
    ends = [v for m in models.values() for by in m["summary"].values() for c in by.values()
            for v in (c["mean"], *c["mean_95"]) if v > 0]
    return min(ends) / 1.25, max(ends) * 1.25


def panel(out, left, name, m, low, high):
    """Logarithmic in KL; the policies stand a little apart, so that their intervals can be seen."""
    budgets = sorted({b for by in m["summary"].values() for b in by}, key=percent)
    first, last = percent(budgets[0]), percent(budgets[-1])
    x0, x1 = left + LEFT, left + PANEL - RIGHT
    x = lambda b, shift=0.0: x0 + 22 + (x1 - x0 - 44) * (percent(b) - first) / ((last - first) or 1) + shift
    y = lambda v: BASE - (BASE - TOP) * math.log(max(v, low) / low) / math.log(high / low)
    out.append(text(x0, TOP - 12, f"{name}: {len(m['prompts'])} prompts of {m['settings']['tokens']} tokens", 13,
                    weight="bold"))
    for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        for digit in (1, 2, 5):
            v = digit * 10.0 ** e
            if low <= v <= high:
                out.append(f'<line x1="{x0}" x2="{x1}" y1="{y(v):.1f}" y2="{y(v):.1f}" '
                           f'stroke="{"#d1d5db" if digit == 1 else "#eef0f3"}"/>')
                out.append(text(x0 - 8, y(v) + 4, f"{v:g}", 11, "end", "#666"))
    for b in budgets:
        out.append(text(x(b), BASE + 17, b.replace("%", " %"), 11, "middle", "#666"))
    out.append(text((x0 + x1) / 2, BASE + 35, "share of the prompt's cache that stays", 11, "middle", "#666"))
    shown = [p for p in CURVES if p in m["summary"]]
    for i, policy in enumerate(shown):
        colour, dashes, label = CURVES[policy]
        shift = 2.6 * (i - (len(shown) - 1) / 2)
        cells = sorted(m["summary"][policy].items(), key=lambda c: percent(c[0]))
        line = " ".join(f"{x(b, shift):.1f},{y(c['mean']):.1f}" for b, c in cells)
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2" '
                   f'stroke-dasharray="{dashes}"/>')
        for b, c in cells:
            lower, upper = c["mean_95"]
            out.append(f'<line x1="{x(b, shift):.1f}" x2="{x(b, shift):.1f}" y1="{y(lower):.1f}" y2="{y(upper):.1f}" '
                       f'stroke="{colour}" stroke-opacity="0.55"/><circle cx="{x(b, shift):.1f}" cy="{y(c["mean"]):.1f}" '
                       f'r="3.4" fill="{"white" if dashes else colour}" stroke="{colour}"><title>{label}, {b}: '
                       f'{c["mean"]:.4f} ({lower:.4f} to {upper:.4f})</title></circle>')
    return shown


def legend(out, shown, width):
    """Rows of as many labels as fit."""
    x, y, step = 40, HEIGHT - 52, 195
    for colour, dashes, label in (CURVES[p] for p in CURVES if p in shown):
        if x + step > width:
            x, y = 40, y + 20
        out.append(f'<line x1="{x}" x2="{x + 26}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="3" '
                   f'stroke-dasharray="{dashes}"/>')
        out.append(text(x + 32, y + 4, label, 12))
        x += step


def draw(result, names):
    models = {n: result["models"][n] for n in names or result["models"]}
    width = max(PANEL * len(models), 640)
    low, high = bounds(models)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" font-family="sans-serif" role="img">',
           f'<title>KL to the full cache against KV budget, {", ".join(models)}</title>',
           f'<rect width="{width}" height="{HEIGHT}" fill="white"/>',
           text(24, 26, "What a KV budget costs: KL to the full cache, nats per answer token", 15, weight="bold"),
           text(24, 44, "mean over held-out prompts with its 95 % interval; every policy keeps the same total", 12)]
    shown = set()
    for i, (name, m) in enumerate(models.items()):
        shown |= set(panel(out, PANEL * i, name, m, low, high))
    legend(out, shown, width)
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("result")
    p.add_argument("--model", nargs="+", help="names in the result; default: all")
    p.add_argument("-o", "--output", required=True)
    a = p.parse_args()
    with open(a.result, encoding="utf-8") as f:
        drawing = draw(json.load(f), a.model)
    with open(a.output, "w", encoding="utf-8") as f:
        f.write(drawing)


if __name__ == "__main__":
    main()
