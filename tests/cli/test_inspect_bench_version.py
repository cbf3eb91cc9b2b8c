"""octavo inspect, bench, version and the help."""

import json
import re

import pytest
from program import USAGE


def test_inspect_shows_what_there_is(octavo, storage):
    text = octavo.succeeds("inspect", storage / "sharded").stdout
    for line in [r"architecture +LlamaForCausalLM", r"num_hidden_layers +2", r"vocab_size +160",
                 r"max_position_embeddings +128", r"parameters +82240 in 21 tensors, 160.62 KiB",
                 r"stored as BF16 +21 tensors", r"file +model-00004-of-00004.safetensors"]:
        assert re.search(line, text), text
    mixed = octavo.succeeds("inspect", storage / "dtype_mixed").stdout
    assert all(f"stored as {dtype}" in mixed for dtype in ("BF16", "F16", "F32"))


def test_inspect_of_an_unknown_architecture_says_so(octavo, storage):
    text = octavo.succeeds("inspect", storage / "unknown_arch").stdout
    assert "FrobnicateForCausalLM" in text and "cannot be run" in text
    assert json.loads(octavo.succeeds("inspect", "--json", storage / "unknown_arch").stdout)["supported"] is False


def test_plan(octavo, storage):
    text = octavo.succeeds("inspect", storage / "plain", "--plan", "--quantization", "int8",
                           "--skip-modules", "re:.*down_proj.*").stdout
    rows = {line.split()[0]: line for line in text.splitlines() if line.startswith(("model.", "lm_head"))}
    assert len(rows) == 21
    assert "s8 per channel" in rows["model.layers.0.self_attn.q_proj.weight"]
    assert "--skip-modules re:.*down_proj.*" in rows["model.layers.1.mlp.down_proj.weight"]
    assert "head" in rows["lm_head.weight"] and "bf16" in rows["lm_head.weight"]
    assert "12 quantized (int8)" in text
    assert "KV cache for 1024 tokens" in text and "workspace" in text


def test_plan_as_json_adds_up(octavo, storage):
    found = json.loads(octavo.succeeds("inspect", storage / "plain", "--plan", "-q", "int8", "--json").stdout)
    plan = found["plan"]
    assert found["parameters"] == 82240 and found["tensor_bytes"] == 164480
    assert plan["bytes_read"] == sum(weight["bytes_read"] for weight in plan["weights"]) == 164480
    assert plan["bytes_kept"] == sum(weight["bytes_kept"] for weight in plan["weights"])
    q_proj = next(w for w in plan["weights"] if w["tensor"] == "model.layers.0.self_attn.q_proj.weight")
    assert q_proj["bytes_kept"] == 64 * 64 + 64 * 4 and q_proj["stored"] == "bf16"
    # 2 layers, keys and values, 2 heads of 16, 2 bytes each.
    assert plan["memory"]["kv_bytes_per_1024_tokens"] == 2 * 2 * 2 * 16 * 2 * 1024
    assert plan["memory"]["workspace_bytes"] > 0


def test_plan_reads_headers_only(octavo, storage):
    """A weight that is not finite is seen when it is read, so not here."""
    octavo.succeeds("inspect", storage / "nan_weight", "--plan", "-q", "int8")


SMALL = ["--prompt-tokens", "16", "--decode-tokens", "4", "--repeat", "2"]


def test_bench_as_json(octavo, storage):
    found = json.loads(octavo.succeeds("bench", storage / "plain", "-q", "int8", *SMALL, "--json",
                                       "--threads", "1").stdout)
    for key in ("load_s", "peak_rss_bytes", "prefill_tokens_per_s", "decode_tokens_per_s", "weight_bytes",
                "weights_gb_per_s", "read_gb_per_s", "read_share"):
        assert found[key] > 0, key
    assert found["threads"] == 1 and found["isa"] and found["cpu"]
    assert any("s8" in kernel for kernel in found["kernels"])
    assert found["read_share"] == pytest.approx(found["weights_gb_per_s"] / found["read_gb_per_s"])
    assert len(found["prefill_s"]) == 2
    scalar = json.loads(octavo.succeeds("bench", storage / "plain", "-q", "int8", *SMALL, "--json",
                                        env={"OCTAVO_ISA": "scalar"}).stdout)
    assert scalar["isa"] == "scalar" and all("scalar" in kernel for kernel in scalar["kernels"])


def test_bench_as_text(octavo, storage):
    text = octavo.succeeds("bench", storage / "plain", *SMALL).stdout
    for name in ("cpu", "kernels", "load", "peak RSS", "prefill", "decode", "weights read"):
        assert re.search(rf"^{name} ", text, re.MULTILINE), text
    assert "GB/s" in text and "tokens/s" in text


def test_bench_beyond_the_context(octavo, storage):
    octavo.fails(USAGE, "512 prompt and 128 decode tokens", "context of 128", args=["bench", storage / "plain"])
    octavo.fails(USAGE, "--repeat", args=["bench", storage / "plain", "--repeat", "0"])


def test_version_and_help(octavo):
    version = octavo.succeeds("version").stdout
    assert re.match(r"octavo \d+\.\d+\.\d+\n", version)
    assert "LlamaForCausalLM" in version and "int8" in version and "scalar" in version
    assert octavo.succeeds("--version").stdout == version.splitlines()[0] + "\n"
    help_text = octavo.succeeds("--help").stdout
    for command in ("run", "chat", "inspect", "bench", "logits", "version"):
        assert re.search(rf"^ +{command} ", help_text, re.MULTILINE)
        assert "--help" in octavo.succeeds(command, "--help").stdout
    run_help = octavo.succeeds("run", "--help").stdout
    assert "int8" in run_help and "generation_config.json" in run_help and "default 0" in run_help


def test_a_command_is_needed(octavo):
    octavo.fails(USAGE, "subcommand is required", args=[])
    octavo.fails(USAGE, "frobnicate", args=["frobnicate"])
    octavo.fails(USAGE, "model is required", args=["run"])
