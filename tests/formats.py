#!/usr/bin/env python3
"""Blocks of every weight type with the weights that the Python package gguf makes of them.

formats.py [--seed N]     for check_formats: per type a line "NAME N_BLOCK", the blocks, the float32 weights;
                          "end" at the end, or "skip: REASON" when a package is missing
formats.py --golden       the lines of formats.txt: name, block, hash of the weights, the first four of them
"""
import argparse
import sys

# name: weights and bytes of a block, where its binary16 scales lie (the rest are codes of any value)
TYPES = {
    "f32": (1, 4, []), "f16": (1, 2, [0]), "bf16": (1, 2, []),
    "q4_0": (32, 18, [0]), "q4_1": (32, 20, [0, 2]), "q5_0": (32, 22, [0]), "q5_1": (32, 24, [0, 2]),
    "q8_0": (32, 34, [0]), "q2_k": (256, 84, [80, 82]), "q3_k": (256, 110, [108]),
    "q4_k": (256, 144, [0, 2]), "q5_k": (256, 176, [0, 2]), "q6_k": (256, 210, [208]),
    "iq4_nl": (32, 18, [0]), "iq4_xs": (256, 136, [0]),
}
# binary16: zeros, smallest and largest subnormal, smallest normal, one, largest, infinities, a NaN
EXTREMES = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x3C00, 0xFBFF, 0x7BFF, 0x7C00, 0xFC00, 0x7E01]


def blocks_of(np, rng, name, n):
    """n blocks of random bits; every other one has an extreme scale."""
    _, n_byte, scales = TYPES[name]
    b = rng.integers(0, 256, (n, n_byte), dtype=np.uint8)
    for at in scales:
        b[::2, at:at + 2] = rng.choice(np.array(EXTREMES, dtype="<u2"), (n + 1) // 2).view(np.uint8).reshape(-1, 2)
    return b


def weights_of(np, gguf, name, blocks):
    with np.errstate(all="ignore"):
        w = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[name.upper()])
    return np.ascontiguousarray(w, dtype="<f4").reshape(len(blocks), -1)


def fnv(np, w):
    """FNV-1a, 64 bits, over the bytes of the weights; every NaN counts as the same."""
    h = 0xCBF29CE484222325
    for byte in np.where(np.isnan(w), np.uint32(0x7FC00000), w.view(np.uint32)).astype("<u4").tobytes():
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def golden(np, gguf):
    print("# type, block, FNV-1a of the weights' bits, the first four weights. Made by formats.py --golden.")
    rng = np.random.default_rng(1)
    for name in TYPES:
        n = 32 if TYPES[name][0] == 1 else 6
        b = blocks_of(np, rng, name, n)
        for block, w in zip(b, weights_of(np, gguf, name, b)):
            first = " ".join(f"{float(v):.9g}" for v in w[:4])
            print(name, block.tobytes().hex(), f"{fnv(np, w):016x}", first)


def stream(np, gguf, seed):
    out = sys.stdout.buffer
    rng = np.random.default_rng(seed)
    for name, (n_weight, _, _) in TYPES.items():
        n = 4096 if n_weight == 1 else 400
        b = blocks_of(np, rng, name, n)
        out.write(f"{name} {n}\n".encode() + b.tobytes() + weights_of(np, gguf, name, b).tobytes())
    out.write(b"end\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--golden", action="store_true")
    a = p.parse_args()
    try:
        import numpy
        import gguf
        import gguf.quants
    except ImportError as e:
        print("skip:", e)
        return 0
    if a.golden:
        golden(numpy, gguf)
    else:
        stream(numpy, gguf, a.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
