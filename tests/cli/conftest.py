"""The program as its users meet it: command lines, what they print, how they end.

    OCTAVO_BIN=build/octavo OCTAVO_SHARED=../shared python3 -m pytest tests/cli

OCTAVO_BIN is the binary (build/octavo), OCTAVO_SHARED the folder of the fixtures (shared, beside the source).
"""

import json
import os
import pathlib
import shutil
import subprocess

import pytest
from safetensors.numpy import load_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("OCTAVO_BIN", ROOT / "build" / "octavo")).resolve()
FIXTURES = pathlib.Path(os.environ.get("OCTAVO_SHARED", ROOT.parent / "shared")).resolve() / "fixtures"

# Exit statuses by kind of error (apps/exit_status.cc).
USAGE, NOT_FOUND, DATA_LOSS, UNIMPLEMENTED, UNAVAILABLE = 2, 3, 4, 5, 7


def environment(**changes):
    kept = {key: value for key, value in os.environ.items()
            if not key.startswith(("OCTAVO_", "HF_", "HUGGINGFACE_"))}
    return {**kept, **changes}


class Octavo:
    """Runs the program; `fails` also checks how it reports an error."""

    binary = BINARY

    def __call__(self, *arguments, stdin="", env=None, timeout=120):
        return subprocess.run([BINARY, *map(str, arguments)], input=stdin, capture_output=True,
                              encoding="utf-8", env=environment(**(env or {})), timeout=timeout)

    def succeeds(self, *arguments, **options):
        result = self(*arguments, **options)
        assert result.returncode == 0, result.stderr
        return result

    def fails(self, status, *says, args, **options):
        result = self(*args, **options)
        errors = [line for line in result.stderr.splitlines() if line.startswith("octavo: error: ")]
        assert result.returncode == status, (result.returncode, result.stdout, result.stderr)
        assert len(errors) == 1, result.stderr
        for text in says:
            assert str(text) in result.stderr, f"{text!r} is not in {result.stderr!r}"
        assert result.stdout == ""
        return result


@pytest.fixture(scope="session")
def octavo():
    assert BINARY.is_file(), f"{BINARY} is not built; OCTAVO_BIN may name another"
    return Octavo()


@pytest.fixture(scope="session")
def storage():
    return FIXTURES / "storage"


@pytest.fixture(scope="session")
def text_model():
    """A small language model with a tokenizer and a chat template."""
    return FIXTURES / "trained" / "lm_llama"


@pytest.fixture(scope="session")
def ids(storage):
    """Valid input of `octavo logits` for the models under storage/."""
    return storage / "plain" / "expected.safetensors"


@pytest.fixture
def text_model_copy(text_model, tmp_path):
    """One whose small files may be changed."""
    folder = tmp_path / "model"
    folder.mkdir()
    for file in text_model.iterdir():
        if file.name == "model.safetensors":
            (folder / file.name).symlink_to(file)
        else:
            shutil.copyfile(file, folder / file.name)
    return folder


@pytest.fixture
def long_model(text_model_copy):
    """One that generates long enough to be interrupted."""
    config = text_model_copy / "config.json"
    fields = json.loads(config.read_text())
    fields["max_position_embeddings"] = 100_000
    config.write_text(json.dumps(fields))
    return text_model_copy


@pytest.fixture
def hf_cache(storage, tmp_path):
    """storage/hf_cache with its links as links: where the fixtures were stored without, a file that holds
    the target's name stands in for each."""
    root = tmp_path / "hub"
    for source in (storage / "hf_cache").rglob("*"):
        if source.is_dir():
            continue
        target = root / source.relative_to(storage / "hf_cache")
        target.parent.mkdir(parents=True, exist_ok=True)
        content = source.read_bytes()
        if source.is_symlink():
            target.symlink_to(os.readlink(source))
        elif content.startswith(b"../../blobs/"):
            target.symlink_to(content.decode())
        else:
            target.write_bytes(content)
    return root


@pytest.fixture
def logits(octavo, tmp_path):
    """Runs `octavo logits` and returns (tensors by name, the completed process)."""

    def run(model, input_file, *flags, **options):
        output = tmp_path / "logits.safetensors"
        result = octavo.succeeds("logits", model, "--input", input_file, "--output", output, *flags,
                                 **options)
        return load_file(output), result

    return run
