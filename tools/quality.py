#!/usr/bin/env python3
"""Measures what a scheme costs in quality: perplexity, KL divergence and top-1 agreement of Octavo.

    python3 tools/quality.py MODEL_DIR --text A.txt --text B.txt --quantization int8
        [--dtype auto] [--reference DIR] [--json]
        [--golden tests/golden/default_model/expected.json]

Runs `octavo logits` over windows of each text (quality_metrics.py has the protocol) and compares
with reference logits: those of DIR/<text>.safetensors (`logits.N` beside equal `input_ids.N`, as
golden/default_model.py --logits writes them with transformers), or, without --reference, those of
Octavo itself with `--quantization none --dtype float32`. --golden adds the numbers that are stored
there for the same tokens. The last row pools the texts. Further flags of `octavo logits` may follow
a `--`. Needs numpy, safetensors and tokenizers (requirements.txt).
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from quality_metrics import TOKENS, WINDOW, Quality, fingerprint, read_windows

ROOT = pathlib.Path(__file__).resolve().parent.parent
COLUMNS = {"perplexity": "{:.4f}", "kl_mean": "{:.6f}", "kl_p99": "{:.5f}", "kl_max": "{:.4f}",
           "top1_agreement": "{:.5f}"}


class QualityError(Exception):
    """What went wrong, as one sentence for the user."""


def run_octavo(arguments: argparse.Namespace, ids: pathlib.Path, output: pathlib.Path,
               quantization: str, dtype: str) -> pathlib.Path:
    command = [str(arguments.octavo), "logits", str(arguments.model), "--input", str(ids),
               "--output", str(output), "--quantization", quantization, "--dtype", dtype,
               *arguments.octavo_flags]
    result = subprocess.run(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    if result.returncode != 0:
        raise QualityError(f"`{' '.join(command)}` ended with {result.returncode}: "
                           f"{result.stderr.strip()[-2000:]}")
    return output


def read_tensor(file, path: pathlib.Path, name: str) -> np.ndarray:
    if name not in file.keys():
        raise QualityError(f"{path} has no tensor {name}")
    return file.get_tensor(name)


def compare(windows: list[np.ndarray], found: pathlib.Path, reference: pathlib.Path,
            qualities: list[tuple[Quality, Quality]]) -> None:
    """Adds every window to each (candidate, reference) pair of `qualities`."""
    with safe_open(found, "numpy") as found_file, safe_open(reference, "numpy") as reference_file:
        for index, ids in enumerate(windows):
            if f"input_ids.{index}" in reference_file.keys():
                stored = reference_file.get_tensor(f"input_ids.{index}")
                if not np.array_equal(stored, ids):
                    raise QualityError(f"{reference}: input_ids.{index} are not this text's tokens")
            logits = read_tensor(found_file, found, f"logits.{index}")
            wanted = read_tensor(reference_file, reference, f"logits.{index}")
            for candidate_quality, reference_quality in qualities:
                candidate_quality.add(ids, logits, wanted)
                reference_quality.add(ids, wanted, None)


def measure(arguments: argparse.Namespace) -> dict[str, dict]:
    """Rows by text: Octavo's numbers, the reference's perplexity, and the golden ones."""
    golden = {}
    if arguments.golden:
        golden = json.loads(arguments.golden.read_text(encoding="utf-8"))["quality"]
    rows, pooled = {}, (Quality(), Quality())
    for text in arguments.text:
        windows = read_windows(arguments.model, text, arguments.tokens, arguments.window)
        stored = golden.get(text.stem, {})
        if stored and stored["windows_sha256"] != fingerprint(windows):
            raise QualityError(f"{arguments.golden} has other tokens for {text.stem}: another "
                               "text, tokenizer, --tokens or --window")
        single = (Quality(), Quality())
        with tempfile.TemporaryDirectory(prefix="octavo-quality-") as scratch_name:
            scratch = pathlib.Path(scratch_name)
            ids = scratch / "ids.safetensors"
            save_file({f"input_ids.{index}": window for index, window in enumerate(windows)}, ids)
            if arguments.reference:
                reference = arguments.reference / f"{text.stem}.safetensors"
            else:
                reference = run_octavo(arguments, ids, scratch / "reference.safetensors",
                                       "none", "float32")
            found = run_octavo(arguments, ids, scratch / "found.safetensors",
                               arguments.quantization, arguments.dtype)
            compare(windows, found, reference, [single, pooled])
        rows[text.stem] = row(single) | {
            "golden": {name: value for name, value in stored.items() if isinstance(value, dict)}}
    if len(rows) > 1:
        rows["pooled"] = row(pooled)
    return rows


def row(qualities: tuple[Quality, Quality]) -> dict:
    found, reference = (quality.result() for quality in qualities)
    rise = found["perplexity"] / reference["perplexity"] - 1
    return {"octavo": found, "reference": reference, "perplexity_rise": rise}


def print_table(rows: dict[str, dict], label: str) -> None:
    print(f"{'text':<14}{'variant':<36}" + "".join(f"{name:>16}" for name in COLUMNS)
          + f"{'rise':>10}")

    def line(text: str, variant: str, numbers: dict, reference: float) -> None:
        cells = "".join(f"{form.format(numbers[name]) if name in numbers else '-':>16}"
                        for name, form in COLUMNS.items())
        print(f"{text:<14}{variant:<36}{cells}{numbers['perplexity'] / reference - 1:>10.3%}")

    for text, numbers in rows.items():
        base = numbers["reference"]["perplexity"]
        line(text, "reference", numbers["reference"], base)
        line(text, label, numbers["octavo"], base)
        for variant, stored in numbers.get("golden", {}).items():
            line(text, f"golden {variant}", stored, base)


def main() -> int:
    parser = argparse.ArgumentParser(description="Perplexity, KL divergence and top-1 agreement.")
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--text", type=pathlib.Path, action="append", required=True)
    parser.add_argument("--quantization", required=True)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--reference", type=pathlib.Path, help="folder of reference logits")
    parser.add_argument("--golden", type=pathlib.Path, help="expected.json with stored numbers")
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--window", type=int, default=WINDOW)
    parser.add_argument("--octavo", type=pathlib.Path, default=ROOT / "build" / "octavo")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    arguments = parser.parse_args(sys.argv[1:end])
    arguments.octavo_flags = sys.argv[end + 1:]
    if arguments.tokens < 2 or arguments.window < 2:
        parser.error("--tokens and --window must be at least 2")
    try:
        rows = measure(arguments)
    except (QualityError, ValueError, OSError, SafetensorError) as error:
        print(f"quality: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        print(json.dumps(rows, indent=2))
    else:
        print_table(rows, f"octavo {arguments.quantization}, {arguments.dtype}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
