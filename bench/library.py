"""libripplekv from Python, for measurements that take a prompt in once and go on from it in many ways.

The layouts of the structs are read from rkv.h, so that they cannot fall behind it."""
import ctypes
import json
import pathlib
import re

import numpy as np

SCALARS = {"int": ctypes.c_int, "unsigned": ctypes.c_uint, "double": ctypes.c_double, "float": ctypes.c_float,
           "size_t": ctypes.c_size_t, "char": ctypes.c_char, "int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64,
           "uint64_t": ctypes.c_uint64, "uint8_t": ctypes.c_uint8}
LOGITS_FN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int,
                             ctypes.POINTER(ctypes.c_float))


def structs_of(header):
    """{name: ctypes structure} of the complete structs of a header without preprocessor conditions in
    them."""
    text = re.sub(r"/\*.*?\*/", " ", header, flags=re.S)
    enums = set(re.findall(r"typedef enum (\w+)", text))
    out = {}
    for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\} \1;", text, flags=re.S):
        fields = []
        for line in filter(None, (part.strip() for part in body.split(";"))):
            kind, first, more = re.match(r"((?:const )?\w+)\s+(.*?)((?:,.*)?)$", line, flags=re.S).groups()
            kind = kind.replace("const ", "")
            for declared in [first, *filter(None, (d.strip() for d in more.split(",")))]:
                star, field, size = re.match(r"(\**)\s*(?:const )?(\w+)(?:\[(\d+)\])?$", declared).groups()
                if star:
                    t = ctypes.c_char_p if kind == "char" and star == "*" else ctypes.c_void_p
                else:
                    t = ctypes.c_int if kind in enums else SCALARS.get(kind) or out[kind]
                fields.append((field, t * int(size) if size else t))
        out[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return out


class Failed(Exception):
    """What the library says."""


class Library:
    """The functions that the benches call; a status other than RKV_OK becomes Failed."""

    def __init__(self, path, header):
        self.lib = ctypes.CDLL(path)
        self.structs = structs_of(pathlib.Path(header).read_text(encoding="utf-8"))
        for name, result in (("rkv_policy_default", self.structs["rkv_policy"]),
                             ("rkv_session_options_default", self.structs["rkv_session_options"]),
                             ("rkv_session_kv_info", self.structs["rkv_kv_info"]),
                             ("rkv_model_get_info", ctypes.POINTER(self.structs["rkv_model_info"])),
                             ("rkv_session_logits", ctypes.POINTER(ctypes.c_float)),
                             ("rkv_version", ctypes.c_char_p)):
            getattr(self.lib, name).restype = result
        policy = self.lib.rkv_policy_default()
        if (policy.selector, policy.window, policy.ratio, policy.gamma) != (b"full", 32, 1.5, 2.0):
            raise Failed(f"{path} and {header} do not belong together")

    def call(self, name, *args):
        e = self.structs["rkv_error"]()
        if getattr(self.lib, name)(*args, ctypes.byref(e)):
            raise Failed(e.text.decode("utf-8", "replace"))

    def made(self, name, *args):
        """Of a function that fills a pointer, its first argument."""
        out = ctypes.c_void_p()
        self.call(name, ctypes.byref(out), *args)
        return out


def find(rkv):
    """The library and header beside a command built in its build folder."""
    folder = pathlib.Path(rkv).resolve().parent
    folder = folder.parent if folder.name == ".libs" else folder
    shared = folder / ".libs" / "libripplekv.so"
    source = next((p for p in folder.parents if (p / "src" / "rkv.h").exists()), None)
    if not shared.exists() or not source:
        raise Failed(f"{rkv}: no .libs/libripplekv.so beside it, or no src/rkv.h above it")
    return Library(str(shared), source / "src" / "rkv.h")


class Model:
    def __init__(self, library, path):
        self.library = library
        self.handle = library.made("rkv_model_load", str(path).encode())
        info = library.lib.rkv_model_get_info(self.handle).contents
        self.n_vocab, self.n_layer, self.n_kv_head = info.n_vocab, info.n_layer, info.n_kv_head
        self.fingerprint, self.tier = info.fingerprint.decode(), info.tier.decode()
        self.has_template = info.chat_template is not None
        self.n_compressible = info.n_layer - info.n_layer_sliding

    def tokens(self, text, flags=3):
        """Ids of a text; by default with the first token that the model wants, and special ones by name."""
        data, out, n = text.encode(), ctypes.POINTER(ctypes.c_int32)(), ctypes.c_size_t()
        self.library.call("rkv_tokenize", self.handle, data, ctypes.c_size_t(len(data)), ctypes.c_uint(flags),
                          ctypes.byref(out), ctypes.byref(n))
        ids = out[:n.value]
        self.library.lib.rkv_free(out)
        return ids

    def text(self, ids):
        out = ctypes.c_void_p()
        self.library.call("rkv_detokenize", self.handle, (ctypes.c_int32 * len(ids))(*ids), ctypes.c_size_t(len(ids)),
                          0, ctypes.byref(out), None)
        text = ctypes.string_at(out).decode("utf-8", "replace")
        self.library.lib.rkv_free(out)
        return text

    def chat(self, text):
        """A user's message as the model's own template writes it, ready for the answer."""
        messages = {"messages": [{"role": "user", "content": text}], "add_generation_prompt": True}
        out = ctypes.c_void_p()
        self.library.call("rkv_template_render", self.handle, None, json.dumps(messages).encode(),
                          ctypes.byref(out), None)
        text = ctypes.string_at(out).decode("utf-8", "replace")
        self.library.lib.rkv_free(out)
        return text

    def is_end(self, token):
        return bool(self.library.lib.rkv_token_is_end(self.handle, token))

    def policy(self, name, budget=None, profile=None, **fields):
        """A policy by its name; fields are members of rkv_policy."""
        p = self.library.lib.rkv_policy_default()
        self.library.call("rkv_policy_set_name", ctypes.byref(p), name.encode())
        if budget:
            self.library.call("rkv_policy_set_budget", ctypes.byref(p), budget.encode())
        p.profile = profile
        for field, value in fields.items():
            if not hasattr(p, field):
                raise Failed(f"rkv_policy has no member {field}")
            setattr(p, field, value)
        return p

    def session(self, n_ctx, policies=(), n_thread=0):
        """Uncompressed, but keeping of its prompt what any of the policies will ask for."""
        o = self.library.lib.rkv_session_options_default()
        o.n_ctx, o.n_thread = n_ctx, n_thread
        for p in policies:
            o.observe |= self.library.lib.rkv_policy_observes(ctypes.byref(p))
        return Session(self, self.library.made("rkv_session_create", self.handle, ctypes.byref(o)))

    def close(self):
        self.library.lib.rkv_model_free(self.handle)


class Session:
    """One timeline; a context manager, because the cache is large."""

    def __init__(self, model, handle):
        self.model, self.library, self.handle = model, model.library, handle

    def __enter__(self):
        return self

    def __exit__(self, *what):
        self.library.lib.rkv_session_free(self.handle)

    def prefill(self, ids):
        self.library.call("rkv_session_prefill", self.handle, (ctypes.c_int32 * len(ids))(*ids),
                          ctypes.c_size_t(len(ids)))

    def fork(self):
        return Session(self.model, self.library.made("rkv_session_fork", self.handle))

    def compress(self, policy):
        """Tokens that stay, summed over compressible layers and KV heads."""
        self.library.call("rkv_session_compress", self.handle, ctypes.byref(policy))
        return self.library.lib.rkv_session_kv_info(self.handle).n_kept

    def logits(self):
        return np.ctypeslib.as_array(self.library.lib.rkv_session_logits(self.handle), (self.model.n_vocab,))

    def greedy(self, n):
        """Up to n ids, ending before an end token."""
        ids = []
        while len(ids) < n:
            best = int(self.logits().argmax())
            if self.model.is_end(best):
                break
            ids.append(best)
            if len(ids) < n:
                self.library.call("rkv_session_decode", self.handle, best)
        return ids

    def rows(self, ids):
        """Takes ids; the logits [n][n_vocab] after each."""
        out = np.empty((len(ids), self.model.n_vocab), np.float32)

        def keep(_, first, n, logits):
            out[first:first + n] = np.ctypeslib.as_array(logits, (n, self.model.n_vocab))
            return 0

        self.library.call("rkv_session_score", self.handle, (ctypes.c_int32 * len(ids))(*ids),
                          ctypes.c_size_t(len(ids)), ctypes.c_size_t(0), LOGITS_FN(keep), None)
        return out
