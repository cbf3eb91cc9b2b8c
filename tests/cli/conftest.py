"""Fixtures of the command-line tests; program.py runs the program."""

import json
import os
import shutil

import pytest
from program import BINARY, FIXTURES, Octavo
from safetensors.numpy import load_file


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
