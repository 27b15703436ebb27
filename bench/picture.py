#!/usr/bin/env python3
"""The picture of the README: tokens that each layer keeps, from the quickstart's result.

    bench/picture.py bench/results/quickstart.json -o bench/results/budgets.svg
"""
import argparse
import json

WIDTH, HEIGHT, LEFT, BASE, TOP = 860, 314, 64, 250, 56
GREY, BLUE, LINE = "#c9ced6", "#2563a8", "#c2410c"


def text(x, y, what, size=13, anchor="start", colour="#333", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}" '
            f'font-weight="{weight}">{what}</text>')


def draw(result):
    full, snap, ripple = (result["policies"][p] for p in ("full", "snapkv", "ripple"))
    kept, prompt = ripple["kv_tokens_per_layer"], result["prompt_tokens"]
    uniform = snap["kv_tokens_per_layer"][0]
    top = max(kept) * 1.12
    y = lambda n: BASE - (BASE - TOP) * n / top
    step = (WIDTH - LEFT - 20) / len(kept)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
           'font-family="sans-serif" role="img">',
           f'<title>Tokens kept per layer: {min(kept)} to {max(kept)}, uniform {uniform}, of {prompt}</title>',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           text(LEFT, 24, f"Tokens in each layer's cache after an answer: prompt of {prompt}, budget {result['budget']}", 15,
                weight="bold"),
           text(LEFT, 43, f"full cache {full['kv_bytes'] / 2**20:.0f} MiB, with a budget "
                          f"{ripple['kv_bytes'] / 2**20:.0f} MiB; both policies keep the same total", 12)]
    for n in range(0, int(top), 500):
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{y(n):.1f}" y2="{y(n):.1f}" stroke="#e5e7eb"/>')
        out.append(text(LEFT - 8, y(n) + 4, n, 11, "end", "#666"))
    for l, n in enumerate(kept):
        x = LEFT + l * step
        out.append(f'<rect x="{x + 2:.1f}" y="{y(n):.1f}" width="{step - 4:.1f}" height="{BASE - y(n):.1f}" '
                   f'fill="{BLUE}"><title>layer {l}: {n}</title></rect>')
        if l % 5 == 0 or l == len(kept) - 1:
            out.append(text(x + step / 2, BASE + 16, l, 11, "middle", "#666"))
    out.append(f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{y(uniform):.1f}" y2="{y(uniform):.1f}" stroke="{LINE}" '
               'stroke-width="2" stroke-dasharray="6 4"/>')
    out.append(text(LEFT + step * len(kept) / 2, BASE + 32, "layer", 11, "middle", "#666"))
    out.append(f'<rect x="{LEFT}" y="{HEIGHT - 15}" width="12" height="9" fill="{BLUE}"/>')
    out.append(text(LEFT + 18, HEIGHT - 6, f"ripple: KL to the full cache {ripple['mean_kl']:.4f} nats per token", 12))
    out.append(f'<line x1="{LEFT + 380}" x2="{LEFT + 400}" y1="{HEIGHT - 10}" y2="{HEIGHT - 10}" stroke="{LINE}" '
               'stroke-width="2" stroke-dasharray="6 4"/>')
    out.append(text(LEFT + 406, HEIGHT - 6, f"snapkv, every layer alike: {snap['mean_kl']:.4f}", 12))
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
