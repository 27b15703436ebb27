#!/usr/bin/env python3
"""The GGUF reader and the made models against another implementation, PyPI's gguf package.

Runs from the build folder (programs make_model and gguf_dump). Made files: GGUFReader agrees with our
reader on keys, shapes and places of the data, and the dequantized values have the deviation they were
drawn with. Real files, from the folder $RKV_MODELS or ~/.cache/rkv-peers/models: both readers list the
same. Skipped (exit 77) without the package."""
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import zlib

try:
    import numpy as np
    from gguf import GGUFReader, GGUFValueType
    from gguf.quants import dequantize
except ImportError:
    print("gguf_peer: 0 passed, 0 failed, 1 skipped (python package gguf is not here)")
    sys.exit(77)

# GGUFReader slices its memory map once per string; those of a plain array on it cost a third.
_memmap = np.memmap
np.memmap = lambda *args, **more: np.asarray(_memmap(*args, **more))

TYPE_NAME = {GGUFValueType.UINT8: "uint8", GGUFValueType.INT8: "int8", GGUFValueType.UINT16: "uint16",
             GGUFValueType.INT16: "int16", GGUFValueType.UINT32: "uint32", GGUFValueType.INT32: "int32",
             GGUFValueType.FLOAT32: "float32", GGUFValueType.BOOL: "bool", GGUFValueType.STRING: "string",
             GGUFValueType.UINT64: "uint64", GGUFValueType.INT64: "int64",
             GGUFValueType.FLOAT64: "float64"}
FAMILIES = ("llama", "qwen2", "qwen3", "gemma3")
TYPES = ("f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k",
         "iq4_nl", "iq4_xs", "mixed", "all")
passed = failed = skipped = 0


def check(good, text):
    global passed, failed
    if good:
        passed += 1
    else:
        failed += 1
        print("check_gguf_peer:", text, file=sys.stderr)


def describe(reader):
    """The lines of gguf_dump, from GGUFReader."""
    lines = []
    for name, field in reader.fields.items():
        if name.startswith("GGUF."):        # the reader's names for the header
            continue
        is_array = field.types[0] == GGUFValueType.ARRAY
        count = len(field.data) if is_array else 1
        # parts: name's length, name, type, then of an array element type and count, then the value
        value = b"".join(part.tobytes() for part in field.parts[5 if is_array else 3:])
        element = field.types[-1] if is_array and count else field.types[0]
        if is_array and not count:          # GGUFReader does not keep the type of an empty array
            element = GGUFValueType(int(field.parts[3][0]))
        lines.append(f"key {name} {'array:' if is_array else ''}{TYPE_NAME[element]} {count} "
                     f"{zlib.crc32(value):08x}")
    for t in reader.tensors:
        dims = " ".join(str(int(d)) for d in t.shape)
        lines.append(f"tensor {t.name} {int(t.tensor_type)} {int(t.data_offset)} {int(t.n_bytes)} {dims}")
    return lines


def compare(path):
    ours = subprocess.run(["./gguf_dump", str(path)], capture_output=True, text=True)
    check(ours.returncode == 0, f"{path}: {ours.stderr.strip()}")
    reader = GGUFReader(path)
    theirs = describe(reader)
    mine = ours.stdout.splitlines()
    for a, b in zip(mine, theirs):
        check(a == b, f"{path}: '{a}' is '{b}' there")
    check(len(mine) == len(theirs), f"{path}: {len(mine)} lines, {len(theirs)} there")
    return reader


def expected(family, name, fan_in, tied):
    """Mean and deviation that tests/tiny/model.c draws a tensor with."""
    plain = 1 / math.sqrt(fan_in)
    if name.endswith(("attn_q_norm.weight", "attn_k_norm.weight")):
        return 1.6, 0.1
    if name == "output_norm.weight" and tied:
        return 0.0, 1.0
    if name.endswith("norm.weight"):
        return 1.0, 0.1
    if name.endswith(".bias"):
        return 0.0, 0.2
    if name.endswith(("attn_q.weight", "attn_k.weight")):
        return 0.0, plain * (1.6 if family in ("llama", "qwen2") else 1.0)
    if name == "token_embd.weight":
        return 0.0, 2 * plain if tied else 1.0
    return 0.0, 2 * plain if name == "output.weight" else plain


def check_values(path, reader, family):
    tied = "output.weight" not in [t.name for t in reader.tensors]
    for t in reader.tensors:
        if t.name == "rope_freqs.weight":
            continue
        x = dequantize(t.data, t.tensor_type).astype(np.float64)
        check(list(x.shape) == [int(d) for d in reversed(t.shape)], f"{path}: {t.name} is {x.shape}")
        mean, std = expected(family, t.name, int(t.shape[0]), tied)
        # blocks of a quantized tensor share a scale, so fewer values are independent
        n = x.size if t.tensor_type <= 1 or int(t.tensor_type) == 30 else x.size / 32
        slack = 5 / math.sqrt(n)
        check(abs(x.mean() - mean) < slack * std and abs(x.std() / std - 1) < max(slack, 0.02),
              f"{path}: {t.name} ({t.tensor_type.name}): mean {x.mean():.4g} and deviation {x.std():.4g}, "
              f"expected {mean:.4g} and {std:.4g}")


def made(folder, family, type_name, *more):
    path = os.path.join(folder, "made.gguf")
    wide = ["--d-model", "256", "--d-ff", "512", "--d-head", "64"] if type_name != "f32" else []
    run = subprocess.run(["./make_model", "--out", path, "--family", family, "--type", type_name, *wide,
                          *more], capture_output=True, text=True)
    check(run.returncode == 0, f"make_model {family} {type_name}: {run.stderr.strip()}")
    if run.returncode == 0:
        check_values(f"{family} {type_name}", compare(path), family)


def main():
    global skipped
    with tempfile.TemporaryDirectory() as folder:
        for family in FAMILIES:
            made(folder, family, "f32", "--rope", "yarn", "--tokenizer", "spm", "--pattern", "-1")
            made(folder, family, "mixed", "--rope", "llama3" if family == "llama" else "linear")
        for type_name in TYPES:
            made(folder, "llama", type_name, "--tied", "1")
    models = pathlib.Path(os.environ.get("RKV_MODELS", pathlib.Path.home() / ".cache/rkv-peers/models"))
    real = sorted(models.glob("*.gguf"))
    if not real:
        skipped += 1
        print(f"skipped 1: no models in {models}", file=sys.stderr)
    for path in real:
        compare(path)
    print(f"gguf_peer: {passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


sys.exit(main())
