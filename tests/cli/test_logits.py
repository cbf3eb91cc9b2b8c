"""octavo logits: the numbers, and every way in which its input and output can be wrong."""

import numpy as np
import pytest
from program import DATA_LOSS, FIXTURES, NOT_FOUND, UNAVAILABLE, USAGE
from safetensors.numpy import load_file, save_file

GOOD = ["plain", "sharded", "prefer_safetensors", "tied_absent", "tied_present_same", "dtype_f64",
        "dtype_mixed", "no_metadata", "odd_order", "unaligned_header", "odd_shapes", "outlier_row",
        "zero_row", "extra_tensors"]


def largest_difference(found, expected, prefix="logits."):
    names = [name for name in expected if name.startswith(prefix)]
    assert names
    return max(float(np.abs(found[f"logits.{name.removeprefix(prefix)}"] - expected[name]).max())
               for name in names)


@pytest.mark.parametrize("name", GOOD)
def test_good_checkpoints_give_the_expected_logits(logits, storage, name):
    expected = storage / name / "expected.safetensors"
    found, result = logits(storage / name, expected, "--dtype", "float32")
    assert largest_difference(found, load_file(expected)) < 1e-4
    assert ("warning" in result.stderr) == (name == "extra_tensors"), result.stderr


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_backends_agree(logits, storage, backend):
    expected = storage / "plain" / "expected.safetensors"
    found, _ = logits(storage / "plain", expected, "--dtype", "float32", "--backend", backend)
    tensors = load_file(expected)
    assert largest_difference(found, tensors) < 1e-4
    for name, tensor in found.items():
        number = name.removeprefix("logits.")
        assert tensor.dtype == np.float32
        assert tensor.shape == (len(tensors[f"input_ids.{number}"]), 160)


def test_unexpected_tensors_are_named(logits, storage):
    _, result = logits(storage / "extra_tensors", storage / "extra_tensors" / "expected.safetensors")
    warnings = [line for line in result.stderr.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 1
    assert "inv_freq" not in warnings[0]


def test_a_tied_head_with_other_values_is_warned_of(logits, storage):
    expected = storage / "tied_present_different" / "expected.safetensors"
    found, result = logits(storage / "tied_present_different", expected, "--dtype", "float32")
    assert "warning: " in result.stderr
    assert "lm_head.weight" in result.stderr and "model.embed_tokens.weight" in result.stderr
    assert largest_difference(found, load_file(expected), "logits_tied.") < 1e-4


def test_hugging_face_cache_by_name_and_by_folder(logits, octavo, hf_cache, ids):
    found, _ = logits("acme/tiny-llama", ids, "--dtype", "float32", env={"HF_HUB_CACHE": str(hf_cache)})
    assert largest_difference(found, load_file(ids)) < 1e-4
    [snapshot] = (hf_cache / "models--acme--tiny-llama" / "snapshots").iterdir()
    found, _ = logits(snapshot, ids, "--dtype", "float32")
    assert largest_difference(found, load_file(ids)) < 1e-4
    octavo.fails(NOT_FOUND, "acme/tiny-llama", "revision \"v9\"", "main", env={"HF_HUB_CACHE": str(hf_cache)},
                 args=["logits", "acme/tiny-llama", "--revision", "v9", "--input", ids, "--output", "x"])


def test_hidden_states_of_the_first_prompt(logits):
    model = FIXTURES / "arch" / "llama_gqa"
    expected = load_file(model / "expected.safetensors")
    found, _ = logits(model, model / "expected.safetensors", "--dtype", "float32", "--hidden-states")
    layers = [name for name in expected if name.startswith("hidden.")]
    assert sorted(layers) == sorted(name for name in found if name.startswith("hidden."))
    for name in layers:
        assert found[name].shape == expected[name].reshape(-1, expected[name].shape[-1]).shape
        assert np.abs(found[name] - expected[name].reshape(found[name].shape)).max() < 1e-4, name


def test_int8_is_close_and_zero_rows_stay_zero(logits, storage):
    expected = storage / "zero_row" / "expected.safetensors"
    found, _ = logits(storage / "zero_row", expected, "--quantization", "int8", "--quantize-lm-head")
    for name, tensor in found.items():
        assert np.isfinite(tensor).all()
        assert (tensor[:, 9] == 0).all()
        assert np.abs(tensor - load_file(expected)[name]).mean() < 0.1


def test_skip_modules_keeps_what_it_names(octavo, logits, storage, ids):
    plain = storage / "plain"
    quantized, _ = logits(plain, ids, "-q", "int8", "--dtype", "float32")
    kept, _ = logits(plain, ids, "-q", "int8", "--dtype", "float32", "--skip-modules", "re:.*")
    assert largest_difference(kept, load_file(ids)) < 1e-4
    assert largest_difference(quantized, load_file(ids)) > 1e-4
    octavo.fails(USAGE, "--skip-modules \"re:.*nothing.*\"", "matches none",
                 args=["logits", plain, "--input", ids, "--output", "x", "-q", "int8",
                       "--skip-modules", "re:.*mlp.*", "--skip-modules", "re:.*nothing.*"])


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_weight_that_is_not_finite(octavo, logits, storage, ids, tmp_path, value):
    model = storage / f"{value}_weight"
    found, _ = logits(model, ids, "--dtype", "float32")
    assert all(np.isnan(tensor).all(axis=-1).any() for tensor in found.values())
    output = tmp_path / "none.safetensors"
    octavo.fails(DATA_LOSS, "model.layers.0.self_attn.q_proj.weight", "row 3",
                 args=["logits", model, "--input", ids, "--output", output, "-q", "int8"])
    assert not output.exists()


INPUTS = [
    ({"other": np.zeros(3, np.int64)}, ["no tensor named input_ids.N"]),
    ({"input_ids": np.zeros(3, np.int64)}, ["no tensor named input_ids.N"]),
    ({"input_ids.0": np.zeros(3, np.int32)}, ["input_ids.0", "expected I64 [tokens]", "found I32 [3]"]),
    ({"input_ids.0": np.zeros(3, np.float32)}, ["input_ids.0", "found F32 [3]"]),
    ({"input_ids.7": np.zeros((2, 3), np.int64)}, ["input_ids.7", "found I64 [2, 3]"]),
    ({"input_ids.0": np.zeros((), np.int64)}, ["input_ids.0", "found I64 []"]),
    ({"input_ids.0": np.zeros(0, np.int64)}, ["input_ids.0", "at least one token, found I64 [0]"]),
    ({"input_ids.0": np.array([1, 2]), "input_ids.1": np.array([1, 160])},
     ["input_ids.1", "id 160 at position 1", "vocabulary of 160"]),
    ({"input_ids.0": np.array([-1])}, ["input_ids.0", "id -1 at position 0"]),
    ({"input_ids.0": np.array([2**32])}, ["input_ids.0", "id 4294967296 at position 0"]),
    ({"input_ids.0": np.ones(129, np.int64)}, ["input_ids.0", "129 tokens", "context of 128"]),
]


@pytest.mark.parametrize("tensors, says", INPUTS, ids=[" ".join(says)[:40] for _, says in INPUTS])
def test_bad_input_is_named(octavo, storage, tmp_path, tensors, says):
    save_file(tensors, tmp_path / "ids.safetensors")
    octavo.fails(USAGE, tmp_path / "ids.safetensors", *says,
                 args=["logits", storage / "plain", "--input", tmp_path / "ids.safetensors",
                       "--output", tmp_path / "out.safetensors"])
    assert not (tmp_path / "out.safetensors").exists()


def test_dynamic_rope_goes_past_its_context(logits):
    model = FIXTURES / "arch" / "llama_dynamic"
    expected = load_file(model / "expected.safetensors")
    found, _ = logits(model, model / "expected.safetensors", "--dtype", "float32")
    assert len(expected["input_ids.2"]) == 40  # max_position_embeddings is 24
    assert largest_difference(found, expected) < 1e-4


def test_a_full_context_is_taken(logits, storage, tmp_path):
    save_file({"input_ids.0": np.ones(128, np.int64)}, tmp_path / "ids.safetensors")
    found, _ = logits(storage / "plain", tmp_path / "ids.safetensors")
    assert found["logits.0"].shape == (128, 160)


def test_missing_or_broken_input_file(octavo, storage, tmp_path):
    args = ["logits", storage / "plain", "--output", tmp_path / "out", "--input"]
    octavo.fails(NOT_FOUND, tmp_path / "none", "not found", args=[*args, tmp_path / "none"])
    (tmp_path / "text").write_text("no tensors here, only words")
    octavo.fails(DATA_LOSS, tmp_path / "text", "header length", args=[*args, tmp_path / "text"])
    octavo.fails(USAGE, "--output is required", args=["logits", storage / "plain", "--input", "x"])


def test_unwritable_output(octavo, storage, ids, tmp_path):
    args = ["logits", storage / "plain", "--input", ids, "--output"]
    octavo.fails(UNAVAILABLE, "cannot be written", "No such file or directory",
                 args=[*args, tmp_path / "no" / "such" / "folder"])
    octavo.fails(UNAVAILABLE, tmp_path, "it is a directory", args=[*args, tmp_path])
    octavo.fails(UNAVAILABLE, "/dev/full", "not a regular file", args=[*args, "/dev/full"])
    assert list(tmp_path.iterdir()) == []
