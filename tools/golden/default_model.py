#!/usr/bin/env python3
"""Makes tests/golden/default_model: what transformers and torchao compute with the default model.

    python3 tools/golden/default_model.py --model DIR --texts DIR [--output DIR] [--logits DIR]

--model is the directory that fetch_default_model.py prints; --texts holds eval_python.txt and
eval_kjv.txt (the fixtures' folder trained/lm_llama); --logits keeps the float32 logits of both
texts (0.4 GB each) for quality.py --reference.

Needs torch, transformers, torchao, accelerate, safetensors and numpy in the versions that the
stored expected.json names. Everything runs on the CPU; "float32" is the stored bf16 weights
computed in float32 with eager attention.
"""

import argparse
import json
import pathlib
import sys
from collections.abc import Callable
from importlib.metadata import version

import numpy as np
import torch
from safetensors.numpy import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, TorchAoConfig

TOOLS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOOLS))
from fetch_default_model import FILES, wrong_file  # noqa: E402
from quality_metrics import TOKENS, WINDOW, Quality, fingerprint, read_windows  # noqa: E402

PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n",
    "In the beginning there were 12 days and 1234 nights; the café was",
]
CHAT = [{"role": "user", "content": "Why is the sky blue?"}]
NEW_TOKENS = 48
COLUMN_STEP = 128  # every 128th logit is stored: 384 of 49152 a token
TEXTS = ["eval_python", "eval_kjv"]

Forward = Callable[[np.ndarray], np.ndarray]  # ids [tokens] -> logits [tokens, vocab]


def load(model: pathlib.Path, dtype: torch.dtype, int8_weights: bool = False):
    options = {}
    if int8_weights:
        from torchao.quantization import Int8WeightOnlyConfig
        options = {"quantization_config": TorchAoConfig(Int8WeightOnlyConfig()),
                   "device_map": "cpu"}
    return AutoModelForCausalLM.from_pretrained(
        model, dtype=dtype, attn_implementation="eager", **options).eval()


def forward(loaded) -> Forward:
    def run(ids: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return loaded(torch.from_numpy(ids)[None]).logits[0].to(torch.float64).numpy()
    return run


def greedy(loaded, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Greedy continuation (end of sequence ignored) and the lead of each token over the second."""
    tokens, margins = [], []
    step, cache = torch.from_numpy(ids)[None], None
    with torch.inference_mode():
        for _ in range(NEW_TOKENS):
            output = loaded(step, cache=cache, use_cache=True)
            best = output.logits[0, -1].topk(2)
            tokens.append(int(best.indices[0]))
            margins.append(float(best.values[0] - best.values[1]))
            step, cache = best.indices[:1][None], output.cache
    return np.array(tokens, np.int64), np.array(margins, np.float32)


def difference(found: np.ndarray, expected: np.ndarray) -> dict[str, float]:
    error = found - expected
    return {"max": float(np.abs(error).max()), "rms": float(np.sqrt((error ** 2).mean()))}


def prompt_numbers(model: pathlib.Path) -> tuple[dict, dict[str, np.ndarray]]:
    tokenizer = AutoTokenizer.from_pretrained(model)
    rendered = tokenizer.apply_chat_template(CHAT, add_generation_prompt=True, tokenize=False)
    texts = [*PROMPTS, rendered]
    loaded = load(model, torch.float32)
    exact, rounded = forward(load(model, torch.float64)), forward(load(model, torch.bfloat16))
    columns = np.arange(0, loaded.config.vocab_size, COLUMN_STEP, dtype=np.int64)
    tensors, prompts = {"columns": columns}, []
    for index, text in enumerate(texts):
        ids = np.array(tokenizer(text, add_special_tokens=False).input_ids, np.int64)
        logits = forward(loaded)(ids)
        tokens, margins = greedy(loaded, ids)
        tensors |= {f"input_ids.{index}": ids,
                    f"sliced_logits.{index}": np.ascontiguousarray(logits[:, columns], np.float32),
                    f"greedy.{index}": tokens, f"greedy_margin.{index}": margins}
        prompts.append({
            "text": text,
            "continuation": tokenizer.decode(tokens),
            "smallest_greedy_margin": float(margins.min()),
            "float64_difference": difference(exact(ids), logits),
            "bfloat16_difference": difference(rounded(ids), logits),
        })
    chat = {"messages": CHAT, "prompt": len(texts) - 1,
            "input_ids": tensors[f"input_ids.{len(texts) - 1}"].tolist(),
            "chat_template": tokenizer.chat_template}
    return {"prompts": prompts, "chat": chat}, tensors


def score(windows: list[np.ndarray], run: Forward, reference: list[np.ndarray] | None) -> dict:
    quality = Quality()
    for index, ids in enumerate(windows):
        quality.add(ids, run(ids), None if reference is None else reference[index])
    return quality.result()


def quality_numbers(model: pathlib.Path, texts: pathlib.Path, logits: pathlib.Path | None) -> dict:
    windows = {name: read_windows(model, texts / f"{name}.txt") for name in TEXTS}
    result = {name: {"windows_sha256": fingerprint(windows[name])} for name in TEXTS}
    run = forward(load(model, torch.float32))
    reference = {name: [run(ids).astype(np.float32) for ids in windows[name]] for name in TEXTS}
    for name in TEXTS:
        stored = iter(reference[name])
        result[name]["float32"] = score(windows[name], lambda _, stored=stored: next(stored), None)
        if logits is not None:
            logits.mkdir(parents=True, exist_ok=True)
            kinds = {"input_ids": windows[name], "logits": reference[name]}
            save_file({f"{kind}.{index}": value for kind, values in kinds.items()
                       for index, value in enumerate(values)}, logits / f"{name}.safetensors")
    for variant, dtype, int8_weights in [
            ("bfloat16", torch.bfloat16, False),
            ("torchao_int8_weight_only", torch.bfloat16, True),
            ("torchao_int8_weight_only_float32", torch.float32, True)]:
        run = forward(load(model, dtype, int8_weights))
        for name in TEXTS:
            result[name][variant] = score(windows[name], run, reference[name])
            print(name, variant, result[name][variant], file=sys.stderr, flush=True)
    return result


ABOUT = {
    "prompts": "input_ids.N and sliced_logits.N (float32 compute, all positions, the vocabulary's "
               "`columns`) of expected.safetensors; greedy.N continues prompt N with float32 "
               "compute, end of sequence ignored, greedy_margin.N is each token's lead over the "
               "second; the differences are those of all logits from the float32 ones",
    "quality": f"first {TOKENS} tokens of each text in windows of {WINDOW}; perplexity scores all "
               "but the first token of a window, KL(float32 || variant) all positions. float32 and "
               "bfloat16: transformers. torchao_int8_weight_only: Int8WeightOnlyConfig through "
               "TorchAoConfig, linears int8 per output row, head and embedding bf16, bf16 "
               "compute; ..._float32: the same with float32 compute",
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Makes tests/golden/default_model.")
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--texts", type=pathlib.Path, required=True)
    parser.add_argument("--output", type=pathlib.Path,
                        default=TOOLS.parent / "tests" / "golden" / "default_model")
    parser.add_argument("--logits", type=pathlib.Path, help="where to keep the reference logits")
    arguments = parser.parse_args()
    wrong = wrong_file(arguments.model)
    if wrong:
        parser.error(f"{arguments.model}: {wrong} is not the default model's")
    prompts, tensors = prompt_numbers(arguments.model)
    expected = {
        "about": ABOUT,
        "versions": {name: version(name) for name in (
            "torch", "transformers", "torchao", "tokenizers", "safetensors", "numpy")},
        "model_files_sha256": FILES,
        **prompts,
        "quality": quality_numbers(arguments.model, arguments.texts, arguments.logits),
    }
    arguments.output.mkdir(parents=True, exist_ok=True)
    save_file(tensors, arguments.output / "expected.safetensors")
    text = json.dumps(expected, indent=2, ensure_ascii=False) + "\n"
    (arguments.output / "expected.json").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
