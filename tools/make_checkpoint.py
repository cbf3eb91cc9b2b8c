#!/usr/bin/env python3
"""Makes random bf16 Llama checkpoints for tests and benchmarks of memory and speed.

    python3 tools/make_checkpoint.py --shape llama-3.2-1b --output DIR [--shards N] [--seed N]

Shapes (SHAPES below):
  llama-3.2-1b    that model's sizes, rope scaling and tied head; 2.47 GB
  one-big-linear  one layer whose gate, up and down projections have 512 MiB each; 1.62 GB
  tiny            two layers, untied head; under 1 MB, for quick tests

Weights are about normal with standard deviation 0.02, norms lie in [1, 1.25). The values come from
one block of random numbers, read from a new place with other low bits and signs for each piece of
a tensor: random enough that no two rows are alike, and written about as fast as the disk takes it.
The same arguments give the same bytes. Nothing larger than a piece is held in memory. A directory
that was made by the same arguments is reused; there is no tokenizer. Needs numpy.
"""

import argparse
import json
import math
import pathlib
import signal
import struct
import sys
from collections.abc import Iterator

import numpy as np

from hf_directory import (Bf16Tensor, Progress, bf16_bits, publish, temporary_sibling, write_json,
                          write_safetensors)

SHAPES = {
    "llama-3.2-1b": {
        "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256,
        "max_position_embeddings": 131072, "rope_theta": 500000.0, "tie_word_embeddings": True,
        "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                         "original_max_position_embeddings": 8192, "rope_type": "llama3"},
        "bos_token_id": 128000, "eos_token_id": 128001,
    },
    "one-big-linear": {  # 4096 * 65536 * 2 bytes = 512 MiB
        "hidden_size": 4096, "intermediate_size": 65536, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 64, "vocab_size": 512,
        "max_position_embeddings": 2048, "rope_theta": 10000.0, "tie_word_embeddings": True,
        "rope_scaling": None, "bos_token_id": 1, "eos_token_id": 2,
    },
    "tiny": {
        "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 512,
        "max_position_embeddings": 2048, "rope_theta": 10000.0, "tie_word_embeddings": False,
        "rope_scaling": None, "bos_token_id": 1, "eos_token_id": 2,
    },
}

PIECE = 1 << 21  # values written at once (4 MiB)
BLOCK = 1 << 23  # random values made once (16 MiB), of which every piece is a stretch
STANDARD_DEVIATION = 0.02


class RandomBits:
    """bf16 bits of random weights and norms, from one block of normal numbers."""

    def __init__(self, seed: int):
        self.generator = np.random.default_rng(seed)
        normal = self.generator.standard_normal(BLOCK, np.float32) * np.float32(STANDARD_DEVIATION)
        self.block = bf16_bits(np.concatenate([normal, normal[:PIECE]]))  # a piece never wraps

    def weights(self, count: int) -> Iterator[np.ndarray]:
        for start in range(0, count, PIECE):
            size = min(PIECE, count - start)
            place = int(self.generator.integers(BLOCK))
            # The sign and the three lowest of the seven mantissa bits: the distribution stays.
            mask = int(self.generator.integers(8)) | int(self.generator.integers(2)) << 15
            yield self.block[place:place + size] ^ np.uint16(mask)

    def norm(self, count: int) -> Iterator[np.ndarray]:
        one = 0x3F80  # five random low bits give 1 + n/128, n < 32
        yield (one | self.generator.integers(32, size=count)).astype(np.uint16)


def model_config(shape: dict) -> dict:
    return {"architectures": ["LlamaForCausalLM"], "attention_bias": False,
            "attention_dropout": 0.0, "hidden_act": "silu", "initializer_range": 0.02,
            "mlp_bias": False, "model_type": "llama", "rms_norm_eps": 1e-05,
            "torch_dtype": "bfloat16", "use_cache": True, **shape}


def tensor_shapes(config: dict) -> dict[str, tuple[int, ...]]:
    """Hugging Face names and [out, in] shapes of a Llama, in the order in which they are stored."""
    hidden, intermediate = config["hidden_size"], config["intermediate_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden)}
    for layer in range(config["num_hidden_layers"]):
        shapes |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in {
            "input_layernorm": (hidden,),
            "self_attn.q_proj": (queries, hidden),
            "self_attn.k_proj": (keys, hidden),
            "self_attn.v_proj": (keys, hidden),
            "self_attn.o_proj": (hidden, queries),
            "post_attention_layernorm": (hidden,),
            "mlp.gate_proj": (intermediate, hidden),
            "mlp.up_proj": (intermediate, hidden),
            "mlp.down_proj": (hidden, intermediate),
        }.items()}
    shapes["model.norm.weight"] = (hidden,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    return shapes


def make_tensors(config: dict, seed: int) -> list[Bf16Tensor]:
    random = RandomBits(seed)

    def make(name: str, shape: tuple[int, ...]) -> Bf16Tensor:
        source = random.norm if len(shape) == 1 else random.weights
        return Bf16Tensor(name, shape, lambda: source(math.prod(shape)))

    return [make(name, shape) for name, shape in tensor_shapes(config).items()]


def split_in_shards(tensors: list[Bf16Tensor], shards: int) -> list[list[Bf16Tensor]]:
    """Consecutive tensors in `shards` groups of about equal bytes, none of them empty."""
    total = sum(tensor.nbytes for tensor in tensors)
    groups: list[list[Bf16Tensor]] = [[]]
    done = 0
    for index, tensor in enumerate(tensors):
        groups_to_open = shards - len(groups)
        due = done >= total * len(groups) / shards or len(tensors) - index == groups_to_open
        if groups[-1] and groups_to_open and due:
            groups.append([])
        groups[-1].append(tensor)
        done += tensor.nbytes
    return groups


def write_checkpoint(directory: pathlib.Path, config: dict, shards: int, seed: int,
                     metadata: dict[str, str]) -> None:
    write_json(directory / "config.json", config)
    write_json(directory / "generation_config.json",
               {key: config[key] for key in ("bos_token_id", "eos_token_id")})
    tensors = make_tensors(config, seed)
    total = sum(tensor.nbytes for tensor in tensors)
    progress = Progress("Writing random weights", total)
    weight_map = {}
    names = shard_names(shards)
    for name, group in zip(names, split_in_shards(tensors, shards), strict=True):
        write_safetensors(directory / name, group, metadata, progress)
        weight_map |= {tensor.name: name for tensor in group}
    if shards > 1:
        write_json(directory / "model.safetensors.index.json",
                   {"metadata": {"total_size": total}, "weight_map": weight_map})


def shard_names(shards: int) -> list[str]:
    if shards == 1:
        return ["model.safetensors"]
    return [f"model-{n:05}-of-{shards:05}.safetensors" for n in range(1, shards + 1)]


def is_made(directory: pathlib.Path, shards: int, metadata: dict[str, str]) -> bool:
    """Whether `directory` was made by the same arguments; what stands there is complete."""
    path = directory / shard_names(shards)[-1]
    if not path.is_file():
        return False
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(length)).get("__metadata__") == metadata


def main() -> int:
    parser = argparse.ArgumentParser(description="Makes random bf16 Llama checkpoints.")
    parser.add_argument("--shape", choices=SHAPES, required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True, help="directory to make")
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    config = model_config(SHAPES[arguments.shape])
    if not 1 <= arguments.shards <= len(tensor_shapes(config)):
        parser.error(f"--shards must be from 1 to {len(tensor_shapes(config))} for this shape")
    if arguments.seed < 0:
        parser.error("--seed must not be negative")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # unwinds, so that scratch files go
    target = arguments.output.expanduser().absolute()
    metadata = {"format": "pt", "made_by": f"make_checkpoint 1: {arguments.shape}, "
                f"{arguments.shards} shards, seed {arguments.seed}"}
    try:
        if not is_made(target, arguments.shards, metadata):
            with temporary_sibling(target) as scratch:
                finished = scratch / "finished"
                finished.mkdir()
                write_checkpoint(finished, config, arguments.shards, arguments.seed, metadata)
                publish(finished, target, scratch)
    except OSError as error:
        print(f"make_checkpoint: {error}", file=sys.stderr)
        return 1
    print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
