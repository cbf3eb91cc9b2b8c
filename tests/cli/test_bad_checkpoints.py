"""Every broken checkpoint of the fixtures' storage/, with its message; `inspect` and `logits` must agree."""

import shutil

import pytest
from program import DATA_LOSS, NOT_FOUND, UNIMPLEMENTED, USAGE

Q_PROJ = "model.layers.0.self_attn.q_proj.weight"

# folder -> exit status, what the message says. These are seen in the headers alone.
DAMAGED = {
    "bad_json": (DATA_LOSS, ["model.safetensors", "header is not valid JSON at byte 2281"]),
    "bin_only": (NOT_FOUND, ["only pytorch_model.bin", "safetensors"]),
    "dtype_unknown": (DATA_LOSS, [Q_PROJ, "unknown dtype \"X9\""]),
    "duplicate_key": (DATA_LOSS, [Q_PROJ, "named twice"]),
    "empty_file": (DATA_LOSS, ["0 bytes, expected at least 8"]),
    "gap": (DATA_LOSS, ["model.layers.1.input_layernorm.weight", "hole of 64 bytes"]),
    "header_huge": (DATA_LOSS, ["header length 4611686018427387904, expected at most 100000000"]),
    "header_too_long": (DATA_LOSS, ["header length 10000000", "the file has 166624 bytes"]),
    "index_missing_shard": (NOT_FOUND, ["model-00002-of-00004.safetensors", "missing"]),
    "index_path_traversal": (DATA_LOSS, [Q_PROJ, "plain name", "../plain/model.safetensors"]),
    "index_wrong_map": (DATA_LOSS, [Q_PROJ, "expected in model-00002-of-00004.safetensors",
                                    "found in model-00001-of-00004.safetensors"]),
    "negative_dim": (DATA_LOSS, [Q_PROJ, "negative dimension -64"]),
    "no_config": (NOT_FOUND, ["config.json not found"]),
    "not_an_object": (DATA_LOSS, ["header is not a JSON object"]),
    "offset_past_end": (DATA_LOSS, [Q_PROJ, "lies past the end", "the file has 166640 bytes"]),
    "overlap": (DATA_LOSS, ["model.layers.0.self_attn.v_proj.weight", "overlaps"]),
    "reversed_offsets": (DATA_LOSS, [Q_PROJ, "ends before it starts"]),
    "shape_overflow": (DATA_LOSS, [Q_PROJ, "overflows 64 bits"]),
    "size_mismatch": (DATA_LOSS, [Q_PROJ, "takes 8064 bytes", "has 8192"]),
    "trailing_bytes": (DATA_LOSS, ["100 bytes after the last tensor"]),
    "truncated": (DATA_LOSS, ["the file has 165513 bytes, its header asks for 166624"]),
    "truncated_in_header": (DATA_LOSS, ["the file has 300 bytes, expected at least 2144"]),
}
# These need the model's description.
UNSUITABLE = {
    "missing_tensor": (NOT_FOUND, ["model.layers.1.mlp.down_proj.weight"]),
    "untied_absent": (NOT_FOUND, ["lm_head.weight", "tie_word_embeddings"]),
    "unknown_arch": (UNIMPLEMENTED, ["FrobnicateForCausalLM", "LlamaForCausalLM"]),
    "wrong_shape": (DATA_LOSS, [Q_PROJ, "expected [64, 64]"]),
}


@pytest.mark.parametrize("name", sorted(DAMAGED))
def test_damaged(octavo, storage, ids, tmp_path, name):
    status, says = DAMAGED[name]
    octavo.fails(status, storage / name, *says, args=["inspect", storage / name])
    octavo.fails(status, storage / name, *says,
                 args=["logits", storage / name, "--input", ids, "--output", tmp_path / "out"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", sorted(UNSUITABLE))
def test_unsuitable(octavo, storage, ids, tmp_path, name):
    status, says = UNSUITABLE[name]
    octavo.fails(status, *says, args=["inspect", "--plan", storage / name])
    octavo.fails(status, *says,
                 args=["logits", storage / name, "--input", ids, "--output", tmp_path / "out"])
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_model_directory(octavo, storage, tmp_path):
    octavo.fails(NOT_FOUND, "/no/such/model", "no such directory", "expected a model directory",
                 args=["inspect", "/no/such/model"])
    octavo.fails(NOT_FOUND, "acme/absent", "Hugging Face cache", tmp_path / "models--acme--absent",
                 "HF_HUB_CACHE", args=["inspect", "acme/absent"], env={"HF_HUB_CACHE": str(tmp_path)})
    octavo.fails(USAGE, "expected a model directory", "found a file",
                 args=["inspect", storage / "plain" / "model.safetensors"])
    octavo.fails(USAGE, "expected a directory or org/name", args=["inspect", ""])
    octavo.fails(NOT_FOUND, tmp_path, "config.json not found", args=["inspect", tmp_path])


def test_a_config_that_cannot_be_read(octavo, storage, tmp_path):
    shutil.copyfile(storage / "plain" / "model.safetensors", tmp_path / "model.safetensors")
    for text, status, says in [
        ("{", DATA_LOSS, "not valid JSON: parse error at line 1, column 2"),
        ("[]", DATA_LOSS, "expected a JSON object, found []"),
        ("{\"a\": 1, \"a\": 2}", DATA_LOSS, "key \"a\" given twice"),
        ("{\"architectures\": \"Llama\"}", USAGE,
         "architectures: expected a list of strings, found \"Llama\""),
    ]:
        (tmp_path / "config.json").write_text(text)
        octavo.fails(status, tmp_path / "config.json", says, args=["inspect", "--plan", tmp_path])
