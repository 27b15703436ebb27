#!/usr/bin/env python3
"""One generation by OpenVINO GenAI on a GGUF file, greedy; one JSON line with its own rates. Used by compare.py.

    openvino_bench.py MODEL.gguf N_PROMPT N_ANSWER THREADS [KEEP]

KEEP: tokens that its cache eviction leaves of the prompt (SnapKV's first scores; 32 first and 128 last tokens stay,
its defaults), rounded up to its blocks of 32. All else is as the pipeline comes: a KV cache of 8 bits among it.
Refuses its own figures when the prompt or the answer had another length than asked for.
"""
import json
import sys
import time

import numpy as np
import openvino
import openvino_genai as genai

BLOCK, START, RECENT = 32, 32, 128
WARM = 64       # tokens of an answer and of a prompt, for what is built at first use


def eviction(keep):
    """Its scheduler for one sequence, with eviction; the pipeline's own default else differs in nothing."""
    s = genai.SchedulerConfig()
    s.max_num_batched_tokens = 2**31            # the prompt in one pass, as its pipeline of one sequence does
    s.enable_prefix_caching = False
    s.use_cache_eviction = True
    size = max(-(-keep // BLOCK) * BLOCK, START + RECENT + BLOCK)
    s.cache_eviction_config = genai.CacheEvictionConfig(START, RECENT, size, genai.AggregationMode.NORM_SUM)
    return {"scheduler_config": s}


def generate(pipe, n_prompt, n_answer, seed):
    """Prompts of two seeds share no beginning: the pipeline keeps what it computed for one that comes again."""
    ids = np.random.default_rng(seed).integers(100, 30000, (1, n_prompt), dtype=np.int64)
    config = genai.GenerationConfig()
    config.max_new_tokens, config.ignore_eos, config.do_sample = n_answer, True, False
    return pipe.generate(genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids))), config)


def main():
    model, n_prompt, n_answer, threads, *keep = sys.argv[1], *map(int, sys.argv[2:])
    pipe = genai.LLMPipeline(model, "CPU", INFERENCE_NUM_THREADS=threads, **(eviction(keep[0]) if keep else {}))
    generate(pipe, WARM, WARM, 1)
    wall, cpu = time.perf_counter(), time.process_time()
    m = generate(pipe, n_prompt, n_answer, 2).perf_metrics
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    if (m.get_num_input_tokens(), m.get_num_generated_tokens()) != (n_prompt, n_answer):
        raise SystemExit(f"asked for {n_prompt} and {n_answer} tokens, had {m.get_num_input_tokens()} and "
                         f"{m.get_num_generated_tokens()}")
    row = {"prefill_ts": n_prompt / (m.get_ttft().mean / 1000), "n_prompt": n_prompt, "n_gen": n_answer,
           "cpus_busy": cpu / wall, "load_s": m.get_load_time() / 1000}
    if n_answer > 1:
        row["decode_ts"] = 1000 / m.get_tpot().mean
    print(json.dumps(row))


if __name__ == "__main__":
    main()
