#!/usr/bin/env python3
"""One generation by OpenVINO GenAI on a GGUF file; one JSON line with its own rates. Used by compare.py.

    openvino_bench.py MODEL.gguf N_PROMPT N_ANSWER THREADS
"""
import json
import resource
import sys

import numpy as np
import openvino
import openvino_genai


def main():
    model, n_prompt, n_answer, threads = sys.argv[1], *map(int, sys.argv[2:])
    pipe = openvino_genai.LLMPipeline(model, "CPU", INFERENCE_NUM_THREADS=threads)
    ids = (np.arange(n_prompt, dtype=np.int64) * 7919 % 1000 + 100)[None]
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens, config.ignore_eos = n_answer, True
    inputs = openvino_genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids)))
    pipe.generate(inputs, config)               # warm up, as the other programs do
    m = pipe.generate(inputs, config).perf_metrics
    print(json.dumps({"prefill_ts": n_prompt / (m.get_ttft().mean / 1000), "decode_ts": 1000 / m.get_tpot().mean,
                      "peak_rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


if __name__ == "__main__":
    main()
