#!/usr/bin/env python3
"""Speed, load time and peak memory of transformers on the CPU, as one JSON line.

    python3 bench/peers/transformers_bench.py MODEL_DIR [--threads N] [--dtype bfloat16]

The keys are those of `octavo bench --json`. One sequence of random token ids, greedy, end of
sequence ignored; every repetition has a prompt of its own; the median of the repetitions counts.
  prefill_tokens_per_s  prompt tokens / time to the first token
  decode_tokens_per_s   N / (time for N + 1 new tokens - time for 1), after the same prompt length
  load_s                from_pretrained alone; ready_s counts from the start of the process
  peak_rss_bytes        largest resident set, pages of the mapped checkpoint included;
                        anonymous_bytes is the part without them, at the end

Needs torch and transformers (measured with 2.15.0 and 5.24.0); no tokenizer and no network.
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import sys
import time
from importlib.metadata import version


def process_age_s() -> float:
    fields = pathlib.Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()
    started = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # since boot
    return float(pathlib.Path("/proc/uptime").read_text().split()[0]) - started


def anonymous_bytes() -> int:
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no RssAnon")


def generate_s(model, prompt, new_tokens: int) -> float:
    """Seconds to generate exactly `new_tokens` after `prompt` [1, tokens]."""
    import torch

    begin = time.perf_counter()
    with torch.inference_mode():
        output = model.generate(input_ids=prompt, attention_mask=torch.ones_like(prompt),
                                max_new_tokens=new_tokens, min_new_tokens=new_tokens,
                                do_sample=False, pad_token_id=0)
    seconds = time.perf_counter() - begin
    if output.shape[1] != prompt.shape[1] + new_tokens:
        raise RuntimeError(f"{output.shape[1] - prompt.shape[1]} new tokens, {new_tokens} asked")
    return seconds


def measure(arguments: argparse.Namespace) -> dict:
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(arguments.threads)
    begin = time.perf_counter()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        arguments.model, dtype=getattr(torch, arguments.dtype)).eval()
    load_s = time.perf_counter() - begin
    ready_s = process_age_s()
    generator = torch.Generator().manual_seed(arguments.seed)

    def prompt():
        return torch.randint(model.config.vocab_size, (1, arguments.prompt_tokens),
                             generator=generator)

    generate_s(model, prompt(), 4)  # warm-up: kernels are chosen, weights paged in
    prefill, decode = [], []
    for _ in range(arguments.repetitions):
        first = generate_s(model, prompt(), 1)
        whole = generate_s(model, prompt(), arguments.decode_tokens + 1)
        prefill.append(arguments.prompt_tokens / first)
        decode.append(arguments.decode_tokens / (whole - first))
    return {
        "prefill_tokens_per_s": statistics.median(prefill),
        "decode_tokens_per_s": statistics.median(decode),
        "load_s": load_s,
        "ready_s": ready_s,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "anonymous_bytes": anonymous_bytes(),
        "threads": arguments.threads,
        "dtype": arguments.dtype,
        "prompt_tokens": arguments.prompt_tokens,
        "decode_tokens": arguments.decode_tokens,
        "repetitions": arguments.repetitions,
        "versions": {name: version(name) for name in ("torch", "transformers")},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Benchmarks transformers on the CPU.")
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--decode-tokens", type=int, default=128)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if not (arguments.model / "config.json").is_file():
        parser.error(f"{arguments.model} is no model directory: it has no config.json")
    os.environ["HF_HUB_OFFLINE"] = "1"
    print(json.dumps(measure(arguments)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
