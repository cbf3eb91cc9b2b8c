"""What surrounds the program: closed streams, odd files, damage in places that are easily overlooked."""

import os
import subprocess

import numpy as np
import pytest
from program import BINARY, DATA_LOSS, NOT_FOUND, UNAVAILABLE, USAGE
from safetensors.numpy import load_file, save_file


def shell(command, timeout=60):
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=timeout)


def test_an_answer_for_a_closed_output_is_an_error(text_model):
    result = shell(f"{BINARY} run {text_model} -p hi --max-tokens 4 --quiet <&- >&-")
    assert result.returncode == UNAVAILABLE
    assert "standard output" in result.stderr


def test_chat_without_standard_input_ends(text_model):
    result = shell(f"{BINARY} chat {text_model} --quiet <&-")
    assert result.returncode == UNAVAILABLE
    assert "standard input" in result.stderr


@pytest.mark.parametrize("text", ['{"hidden_size": ' + "[" * 100_000 + "]" * 100_000 + "}", "[" * 1_000_000])
def test_deep_nesting_in_a_configuration(octavo, text_model_copy, text):
    (text_model_copy / "config.json").write_text(text)
    result = octavo("inspect", text_model_copy)
    assert result.returncode == DATA_LOSS
    assert "config.json" in result.stderr and "nested" in result.stderr


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"])
def test_a_fifo_instead_of_a_file(octavo, text_model_copy, name):
    (text_model_copy / name).unlink()
    os.mkfifo(text_model_copy / name)
    result = octavo("run", text_model_copy, "-p", "hi", timeout=20)
    assert result.returncode == USAGE
    assert name in result.stderr and "regular file" in result.stderr


def test_a_dangling_tokenizer_config_does_not_drop_the_template(octavo, text_model_copy):
    (text_model_copy / "tokenizer_config.json").unlink()
    (text_model_copy / "tokenizer_config.json").symlink_to("../../blobs/abc")
    result = octavo("run", text_model_copy, "-p", "hi")
    assert result.returncode == NOT_FOUND
    assert "tokenizer_config.json" in result.stderr and "../../blobs/abc" in result.stderr


@pytest.mark.parametrize("tensor", ["model.norm.weight", "model.embed_tokens.weight"])
def test_nan_in_a_weight_that_stays_as_stored(octavo, storage, ids, tmp_path, tensor):
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text((storage / "dtype_f64" / "config.json").read_text())
    tensors = load_file(storage / "dtype_f64" / "model.safetensors")
    tensors[tensor].flat[3] = np.nan
    save_file(tensors, model / "model.safetensors")
    run = ["logits", model, "--input", ids, "--output", tmp_path / "out.safetensors"]
    result = octavo(*run, "--quantization", "int8")
    assert result.returncode == DATA_LOSS
    assert tensor in result.stderr and "row 0" in result.stderr
    assert octavo(*run, "--quantization", "none").returncode == 0


def test_a_file_size_limit_is_an_error_and_leaves_nothing(storage, ids, tmp_path):
    result = shell(f"ulimit -f 1; {BINARY} logits {storage / 'plain'} --input {ids} --output {tmp_path}/out.safetensors")
    assert result.returncode == UNAVAILABLE
    assert "out.safetensors" in result.stderr
    assert not list(tmp_path.iterdir())


def test_control_bytes_of_a_tensor_name_are_not_printed(octavo, storage, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text((storage / "dtype_f64" / "config.json").read_text())
    tensors = load_file(storage / "dtype_f64" / "model.safetensors")
    save_file({**tensors, "x\x1b[31m": np.zeros(2, np.float32)}, model / "model.safetensors")
    result = octavo("inspect", model, "--plan")
    assert "\x1b" not in result.stderr + result.stdout
