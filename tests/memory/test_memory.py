"""Peak memory of loading and running, held to the promises of docs/memory.md.

The kernel measures and the kernel enforces: peaks are ru_maxrss of the process, and every run has an
RLIMIT_DATA of just what was promised, so that a buffer too many is an error rather than a number.
What the weights must take is computed here from the checkpoint's header, not taken from the program.

OCTAVO_BIN names the program (default build/octavo); load_only is looked for beside it. The random
checkpoints (4.1 GB) are made once, in build/checkpoints; the third is the default model.
"""

import json
import os
import pathlib
import resource
import struct
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BIN", ROOT / "build" / "octavo")).resolve()
LOAD_ONLY = OCTAVO.parent / "load_only"
MIB = 1 << 20
LOADER_MARGIN = 64 * MIB
PROGRAM_MARGIN = 256 * MIB
THREADS = 2  # a thread has a stack of 8 MiB of address space, which RLIMIT_DATA counts
DECODE_TOKENS = 4
KV_BLOCK_TOKENS = 32


class Checkpoint:
    """A checkpoint's sizes, read from its header."""

    def __init__(self, directory: pathlib.Path):
        self.directory = directory
        self.config = json.loads((directory / "config.json").read_text())
        self.tensors = {}
        for path in sorted(directory.glob("*.safetensors")):
            with path.open("rb") as file:
                (length,) = struct.unpack("<Q", file.read(8))
                header = json.loads(file.read(length))
            self.tensors |= {k: v for k, v in header.items() if k != "__metadata__"}

    def stored_bytes(self) -> int:
        return sum(self._stored(tensor) for tensor in self.tensors.values())

    def int8_bytes(self) -> int:
        """One byte a weight and a float32 a row for linears; embedding, head and norms as stored."""
        total = 0
        for name, tensor in self.tensors.items():
            if name.endswith("_proj.weight"):
                rows, columns = tensor["shape"]
                total += rows * columns + 4 * rows
            else:
                total += self._stored(tensor)
        return total

    def kv_bytes(self, tokens: int) -> int:
        blocks = -(-tokens // KV_BLOCK_TOKENS)
        heads = self.config["num_key_value_heads"]
        head_dim = self.config.get("head_dim") or (
            self.config["hidden_size"] // self.config["num_attention_heads"])
        per_token = self.config["num_hidden_layers"] * 2 * heads * head_dim * 2
        return blocks * KV_BLOCK_TOKENS * per_token

    @staticmethod
    def _stored(tensor: dict) -> int:
        begin, end = tensor["data_offsets"]
        return end - begin


class Run:
    """A finished process: its output and its peak resident set."""

    def __init__(self, command: list[str], data_limit: int):
        def limit_data() -> None:
            resource.setrlimit(resource.RLIMIT_DATA, (data_limit, data_limit))

        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, preexec_fn=limit_data)
        # Both outputs are a few lines: they fit into the pipes.
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.status = process.returncode
        self.stdout, self.stderr = process.stdout.read(), process.stderr.read()
        process.stdout.close()
        process.stderr.close()
        self.peak_bytes = usage.ru_maxrss * 1024


def tool(name: str, *arguments: str) -> None:
    subprocess.run([sys.executable, ROOT / "tools" / name, *arguments], check=True,
                   stdout=subprocess.DEVNULL)


def default_model() -> pathlib.Path:
    printed = subprocess.run([sys.executable, ROOT / "tools" / "fetch_default_model.py"],
                             check=True, stdout=subprocess.PIPE, text=True).stdout
    return pathlib.Path(printed.splitlines()[-1])


@pytest.fixture(scope="session", params=["llama-3.2-1b", "one-big-linear", "default model"])
def checkpoint(request) -> Checkpoint:
    if request.param == "default model":
        return Checkpoint(default_model())
    directory = ROOT / "build" / "checkpoints" / request.param
    tool("make_checkpoint.py", "--shape", request.param, "--output", str(directory))
    return Checkpoint(directory)


def report(name: str, checkpoint: Checkpoint, run: Run, base: int, margin: int) -> None:
    """Shown by pytest -rP, and where a test fails."""
    print(f"{name}, {checkpoint.directory.name}: stored {checkpoint.stored_bytes() / MIB:.0f} MiB, "
          f"final {base / MIB:.0f} MiB, peak {run.peak_bytes / MIB:.0f} MiB: "
          f"{(run.peak_bytes - base) / MIB:+.1f} MiB of {margin / MIB:.0f}")


def test_loader_alone(checkpoint: Checkpoint) -> None:
    base = checkpoint.int8_bytes()
    limit = base + LOADER_MARGIN
    assert limit < 0.9 * checkpoint.stored_bytes()
    run = Run([str(LOAD_ONLY), str(checkpoint.directory), "int8", str(THREADS)], limit)
    assert run.status == 0, run.stderr
    report("loader", checkpoint, run, base, LOADER_MARGIN)
    result = json.loads(run.stdout)
    assert result["plan_bytes_read"] == checkpoint.stored_bytes()
    assert result["plan_bytes_kept"] == base
    assert base <= result["weight_bytes"] <= base + 4 * MIB  # sums of rows, norms as float32, padding
    assert base < run.peak_bytes <= limit


@pytest.mark.parametrize("prompt_tokens", [48, 512])
def test_program(checkpoint: Checkpoint, prompt_tokens: int) -> None:
    base = checkpoint.int8_bytes() + checkpoint.kv_bytes(prompt_tokens + DECODE_TOKENS)
    limit = base + PROGRAM_MARGIN
    run = Run([str(OCTAVO), "bench", str(checkpoint.directory), "--quantization", "int8", "--json",
               "--threads", str(THREADS), "--prompt-tokens", str(prompt_tokens), "--decode-tokens",
               str(DECODE_TOKENS), "--repeat", "1"], limit)
    assert run.status == 0, run.stderr
    report(f"program, {prompt_tokens} tokens", checkpoint, run, base, PROGRAM_MARGIN)
    # What it says of itself is what the kernel says. (The memory over which it then measures the
    # machine's bandwidth does not fit under the limit, and it does without.)
    said = json.loads(run.stdout)["peak_rss_bytes"]
    assert base < said <= run.peak_bytes + MIB
    assert said <= limit
    assert run.peak_bytes <= limit


def test_the_limit_bites(checkpoint: Checkpoint) -> None:
    """16-bit weights do not fit under the same limit, and that is a plain error."""
    run = Run([str(LOAD_ONLY), str(checkpoint.directory), "none", str(THREADS)],
              checkpoint.int8_bytes() + LOADER_MARGIN)
    assert run.status == 1
    assert "out of memory" in run.stderr
