"""octavo run: the text, its flags, and how it ends."""

import json
import os
import pty
import signal
import subprocess
import time

import pytest
from program import NOT_FOUND, UNAVAILABLE, USAGE, environment

PROMPT = "And the LORD said unto Moses,"


def run(octavo, model, *flags, **options):
    return octavo.succeeds("run", model, "--quiet", *flags, **options)


def test_greedy_text_is_the_same_on_both_backends_and_every_time(octavo, text_model):
    flags = ["--raw", "-p", PROMPT, "--max-tokens", "24", "--dtype", "float32"]
    texts = {run(octavo, text_model, *flags, *more).stdout
             for more in ([], [], ["--threads", "1"], ["--backend", "reference"])}
    assert len(texts) == 1
    [text] = texts
    assert len(text.split()) > 5 and text.endswith("\n")


def test_int8_prints_its_plan_and_timing(octavo, text_model):
    result = octavo.succeeds("run", text_model, "-q", "int8", "--raw", "-p", PROMPT, "--max-tokens", "8")
    plan, timing = result.stderr.splitlines()
    assert "LlamaForCausalLM" in plan and "21 of 29 weights become s8" in plan
    assert "8 tokens" in timing and "length" in timing
    assert result.stdout.strip()
    assert run(octavo, text_model, "-q", "int8", "--raw", "-p", PROMPT, "--max-tokens", "8").stderr == ""


def test_prompt_from_standard_input(octavo, text_model):
    flags = ["--raw", "--max-tokens", "8"]
    expected = run(octavo, text_model, *flags, "-p", PROMPT).stdout
    assert run(octavo, text_model, *flags, stdin=PROMPT + "\n").stdout == expected
    assert run(octavo, text_model, *flags, "-p", "-", stdin=PROMPT).stdout == expected
    octavo.fails(USAGE, "the prompt is empty (standard input)", args=["run", text_model, *flags])


def test_json(octavo, text_model):
    result = run(octavo, text_model, "--raw", "-p", PROMPT, "--max-tokens", "6", "--logprobs", "2", "--json")
    answer = json.loads(result.stdout)
    assert answer["finish_reason"] == "length" and answer["stop_reason"] is None
    assert len(answer["token_ids"]) == 6
    assert answer["prompt_token_ids"][0] >= 0
    assert len(answer["logprobs"]) == 6
    for token, step in zip(answer["token_ids"], answer["logprobs"]):
        assert step[0]["token_id"] == token
        assert len(step) >= 3 and step[1]["logprob"] >= step[2]["logprob"]
        assert step[0]["logprob"] <= 0
    assert answer["load_s"] > 0 and answer["decode_tokens_per_s"] > 0
    text = run(octavo, text_model, "--raw", "-p", PROMPT, "--max-tokens", "6").stdout
    assert answer["text"].rstrip("\n") == text.rstrip("\n")


def test_logprobs_as_text(octavo, text_model):
    lines = run(octavo, text_model, "--raw", "-p", PROMPT, "--max-tokens", "3",
                "--logprobs", "1").stdout.splitlines()
    assert all("  of  " in line for line in lines[-3:])


def test_the_chat_template_is_used_unless_raw(octavo, text_model):
    def ids(*flags):
        return json.loads(run(octavo, text_model, "-p", "Hi", "--max-tokens", "1", "--json", *flags).stdout)[
            "prompt_token_ids"]

    assert len(ids("--raw")) < len(ids()) < len(ids("--system", "Be brief."))
    octavo.fails(USAGE, "--raw", "--system", args=["run", text_model, "--raw", "--system", "x", "-p", "x"])


def test_a_model_without_template_completes(octavo, text_model_copy):
    config = text_model_copy / "tokenizer_config.json"
    fields = json.loads(config.read_text())
    del fields["chat_template"]
    config.write_text(json.dumps(fields))
    result = octavo.succeeds("run", text_model_copy, "-p", PROMPT, "--max-tokens", "4")
    assert "no chat template" in result.stderr
    assert result.stdout == run(octavo, text_model_copy, "--raw", "-p", PROMPT, "--max-tokens", "4").stdout
    octavo.fails(USAGE, "no chat template",
                 args=["run", text_model_copy, "--quiet", "-p", PROMPT, "--system", "x"])
    octavo.fails(USAGE, "no chat template", "octavo run --raw", args=["chat", "--quiet", text_model_copy])


def test_seed_temperature_and_stop(octavo, text_model):
    def text(*flags):
        return run(octavo, text_model, "--raw", "-p", PROMPT, "--max-tokens", "16", *flags).stdout

    assert text("--temperature", "1", "--seed", "1") == text("--temperature", "1", "--seed", "1")
    assert len({text("--temperature", "1.5", "--seed", str(seed)) for seed in range(4)}) > 1
    greedy = text()
    word = greedy.split()[3]
    stopped = json.loads(text("--stop", "zzzz", "--stop", word, "--json"))
    assert stopped["stop_reason"] == word and stopped["finish_reason"] == "stop"
    assert word not in stopped["text"] and greedy.startswith(stopped["text"])
    assert text("--top-k", "1", "--temperature", "2") == greedy
    assert text("--presence-penalty", "-1.5", "--frequency-penalty", "1", "--top-p", "0.9",
                "--min-p", "0.1", "--repetition-penalty", "1.3", "--temperature", "0.5", "--seed", "3")


def test_generation_config_is_the_default_and_flags_win(octavo, text_model_copy):
    def text(*flags):
        return run(octavo, text_model_copy, "--raw", "-p", PROMPT, "--max-tokens", "16", *flags).stdout

    greedy = text()
    config = text_model_copy / "generation_config.json"
    config.write_text(json.dumps({"do_sample": True, "temperature": 1.5}))
    assert len({text("--seed", str(seed)) for seed in range(4)}) > 1
    assert text("--temperature", "0") == greedy
    config.write_text(json.dumps({"temperature": "hot"}))
    octavo.fails(USAGE, config, "temperature: expected a number, found \"hot\"",
                 args=["run", "--quiet", text_model_copy, "-p", "x"])


BAD_FLAGS = [
    (["-p", ""], ["the prompt is empty (--prompt)"]),
    (["-p", "x", "--max-tokens", "0"], ["max_tokens is 0"]),
    (["-p", "x", "--max-tokens", "-1"], ["max_tokens is -1"]),
    (["-p", "x", "--max-tokens", "many"], ["--max-tokens"]),
    (["-p", "x", "--temperature", "-1"], ["temperature is -1"]),
    (["-p", "x", "--temperature", "nan"], ["temperature is nan"]),
    (["-p", "x", "--top-p", "0"], ["top_p is 0"]),
    (["-p", "x", "--top-k", "-2"], ["top_k is -2"]),
    (["-p", "x", "--min-p", "2"], ["min_p is 2"]),
    (["-p", "x", "--repetition-penalty", "0"], ["repetition_penalty is 0"]),
    (["-p", "x", "--presence-penalty", "3"], ["presence_penalty is 3"]),
    (["-p", "x", "--frequency-penalty", "-3"], ["frequency_penalty is -3"]),
    (["-p", "x", "--logprobs", "21"], ["logprobs is 21"]),
    (["-p", "x", "--quantization", "int7"], ["int7", "int8"]),
    (["-p", "x", "--backend", "abacus"], ["abacus", "cpu", "reference"]),
    (["-p", "x", "--dtype", "int4"], ["int4", "auto", "float32", "bfloat16", "float16"]),
    (["-p", "x", "--threads", "-1"], ["--threads"]),
    (["-p", "x", "--skip-modules", "nothing", "-q", "int8"], ["nothing", "matches none"]),
    (["-p", "x", "--skip-modules", "re:(", "-q", "int8"], ["re:("]),
    (["-p", "x", "--max-model-len", "1"], ["max_model_len is 1"]),
    (["-p", "x", "--max-model-len", "513"], ["max_model_len is 513", "512"]),
    (["-p", "x", "--quantize-lm-head"], ["--quantize-lm-head needs a quantization"]),
    (["-p", "x", "--no-such-flag"], ["--no-such-flag"]),
    (["-p", "x " * 600, "--raw"], ["the prompt has", "context of 512"]),
    (["-p", "x " * 40, "--raw", "--max-model-len", "16"], ["the prompt has", "context of 16"]),
]


@pytest.mark.parametrize("flags, says", BAD_FLAGS, ids=[" ".join(flags)[:40] for flags, _ in BAD_FLAGS])
def test_bad_flags_are_plain_errors(octavo, text_model, flags, says):
    octavo.fails(USAGE, *says, args=["run", text_model, *flags])


def test_a_misspelt_name_is_said_before_a_file_is_looked_at(octavo):
    octavo.fails(USAGE, "int7", "none, int8", args=["run", "/no/such/model", "-p", "x", "-q", "int7"])
    octavo.fails(USAGE, "int4", args=["run", "/no/such/model", "-p", "x", "--dtype", "int4"])


def test_unsupported_instruction_set(octavo, text_model):
    args = ["run", text_model, "-p", "x"]
    octavo.fails(USAGE, "OCTAVO_ISA", "\"mmx\"", "scalar", args=args, env={"OCTAVO_ISA": "mmx"})
    assert run(octavo, text_model, "--raw", "-p", PROMPT, "--max-tokens", "4", "--dtype", "float32",
               env={"OCTAVO_ISA": "scalar"}).stdout.strip()


def test_a_directory_without_tokenizer(octavo, storage):
    octavo.fails(NOT_FOUND, "tokenizer.json", args=["run", storage / "plain", "-p", "x"])


def test_a_reader_that_closes_early_is_no_error(octavo, long_model):
    process = subprocess.Popen(
        [octavo.binary, "run", long_model, "--quiet", "--raw", "-p", PROMPT, "--ignore-eos",
         "--max-tokens", "8000"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    process.stdout.read(1)
    process.stdout.close()
    assert process.wait(timeout=60) == 0
    assert process.stderr.read() == b""


def test_output_that_cannot_be_written(octavo, text_model):
    with open("/dev/full", "wb") as full:
        result = subprocess.run(
            [octavo.binary, "run", text_model, "--quiet", "--raw", "-p", PROMPT, "--max-tokens", "4"],
            stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, env=environment(), check=False)
    assert result.returncode == UNAVAILABLE
    assert b"standard output cannot be written: No space left on device" in result.stderr


def test_ctrl_c_ends_the_text(octavo, long_model):
    process = subprocess.Popen(
        [octavo.binary, "run", long_model, "--raw", "-p", PROMPT, "--ignore-eos", "--max-tokens", "8000"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    first = process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    rest, messages = process.communicate(timeout=60)
    assert process.returncode == 130
    assert (first + rest).endswith(b"\n")
    assert messages.decode().splitlines()[-1].endswith("interrupted]")


def test_text_comes_piece_by_piece(octavo, text_model):
    process = subprocess.Popen(
        [octavo.binary, "run", text_model, "--quiet", "--raw", "-p", PROMPT, "--ignore-eos", "--max-tokens", "200",
         "--backend", "reference"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    pieces = 0
    while os.read(process.stdout.fileno(), 65536):
        pieces += 1
    assert process.wait(timeout=60) == 0
    assert pieces > 20


def test_progress_only_on_a_terminal(octavo, text_model):
    command = [octavo.binary, "run", text_model, "--raw", "-p", PROMPT, "--max-tokens", "2"]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=environment(), check=True)
    assert b"loading" not in result.stderr and b"\r" not in result.stderr
    main, side = pty.openpty()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=side,
                               env=environment())
    os.close(side)
    seen = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            part = os.read(main, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        seen += part
    assert process.wait(timeout=60) == 0
    assert b"\rloading: " in seen and b"iB/s" in seen
