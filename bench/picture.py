#!/usr/bin/env python3
"""The picture of the README: tokens that each KV head keeps, from the quickstart's result.

    bench/picture.py bench/results/quickstart.json -o bench/results/budgets.svg
"""
import argparse
import json

WIDTH, HEIGHT, LEFT, BASE, TOP = 860, 314, 64, 250, 56
BLUE, LINE, GREEN = "#2563a8", "#c2410c", "#15803d"


def text(x, y, what, size=13, anchor="start", colour="#333", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}" '
            f'font-weight="{weight}">{what}</text>')


def key(x, colour, what, dash=""):
    """A line of the legend."""
    y = HEIGHT - 10
    return (f'<line x1="{x}" x2="{x + 20}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="3"{dash}/>'
            + text(x + 26, y + 4, what, 12))


def draw(result):
    full, snap, ripple, curve = (result["policies"][p] for p in ("full", "snapkv", "ripple", "curve"))
    heads, layers, prompt = curve["kv_tokens_per_head"], ripple["kv_tokens_per_layer"], result["prompt_tokens"]
    uniform = snap["kv_tokens_per_layer"][0]
    most = max(max(h) for h in heads)
    y = lambda n: BASE - (BASE - TOP) * n / (most * 1.04)
    step, dashes = (WIDTH - LEFT - 20) / len(heads), ' stroke-dasharray="6 4"'
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" role="img">',
           f'<title>Tokens kept per KV head: {min(map(min, heads))} to {most}, uniform {uniform}, of {prompt}</title>',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           text(LEFT, 24, f"Tokens in each KV head's cache after an answer: prompt of {prompt}, budget {result['budget']}", 15,
                weight="bold"),
           text(LEFT, 43, f"full cache {full['kv_bytes'] / 2**20:.0f} MiB, with a budget {curve['kv_bytes'] / 2**20:.0f} "
                          f"MiB; every policy keeps the same total", 12)]
    for n in range(0, int(most) + 1, 1000):
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{y(n):.1f}" y2="{y(n):.1f}" stroke="#e5e7eb"/>')
        out.append(text(LEFT - 8, y(n) + 4, n, 11, "end", "#666"))
    for l, kept in enumerate(heads):
        x, width = LEFT + l * step + 2, (step - 4) / len(kept)
        for h, n in enumerate(kept):
            out.append(f'<rect x="{x + h * width:.1f}" y="{y(n):.1f}" width="{max(width - 0.8, 0.5):.1f}" '
                       f'height="{BASE - y(n):.1f}" fill="{BLUE}"><title>layer {l}, KV head {h}: {n}</title></rect>')
        if l % 5 == 0 or l == len(heads) - 1:
            out.append(text(x + step / 2 - 2, BASE + 16, l, 11, "middle", "#666"))
    steps = " ".join(f"{LEFT + (l + i) * step:.1f},{y(n):.1f}" for l, n in enumerate(layers) for i in (0, 1))
    out.append(f'<polyline points="{steps}" fill="none" stroke="{GREEN}" stroke-width="2"/>')
    out.append(f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{y(uniform):.1f}" y2="{y(uniform):.1f}" stroke="{LINE}" '
               f'stroke-width="2"{dashes}/>')
    out.append(text(LEFT + step * len(heads) / 2, BASE + 32, "layer", 11, "middle", "#666"))
    cost = lambda p: f"KL to the full cache {p['mean_kl']:.4f}"
    out.append(key(LEFT, BLUE, f"curve, each head: {cost(curve)}"))
    out.append(key(LEFT + 290, GREEN, f"ripple, each layer: {ripple['mean_kl']:.4f}"))
    out.append(key(LEFT + 490, LINE, f"snapkv, all alike: {snap['mean_kl']:.4f} nats per token", dashes))
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("result")
    p.add_argument("-o", "--output", required=True)
    a = p.parse_args()
    with open(a.result, encoding="utf-8") as f:
        drawing = draw(json.load(f))
    with open(a.output, "w", encoding="utf-8") as f:
        f.write(drawing)


if __name__ == "__main__":
    main()
