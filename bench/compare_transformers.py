#!/usr/bin/env python3
"""Octavo in int8 against transformers in bf16: the same model, machine and minute.

    python3 bench/compare_transformers.py MODEL_DIR --peer-python VENV/bin/python [--runs 5]

Runs `octavo bench MODEL_DIR --quantization int8 --json` and peers/transformers_bench.py in turn
(A B A B ...), each in a process of its own with the same threads, and prints the median and the
range of every number and the ratio of the medians. Whatever else the machine does meanwhile is
printed too: a row taken on a busy machine means little. Standard library only.
"""

import argparse
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import time

BENCH = pathlib.Path(__file__).resolve().parent
# key -> (what is printed, factor, whether more is better)
ROWS = {
    "prefill_tokens_per_s": ("prefill tokens/s", 1, True),
    "decode_tokens_per_s": ("decode tokens/s", 1, True),
    "load_s": ("load s", 1, False),
    "peak_rss_bytes": ("peak RSS MiB", 2**-20, False),
}


class BenchError(Exception):
    """What went wrong, as one sentence for the user."""


def busy_s() -> float:
    """CPU seconds that the whole machine has spent since boot, stolen ones included."""
    user, nice, system, _, _, irq, softirq, steal = map(
        int, pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def run(command: list[str], environment: dict[str, str]) -> tuple[dict, float]:
    """The JSON object that `command` prints last, and the cores that others used meanwhile."""
    own, busy, begin = os.times(), busy_s(), time.monotonic()
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    wall, now = time.monotonic() - begin, os.times()
    own_s = sum(now[:4]) - sum(own[:4])
    if result.returncode != 0:
        raise BenchError(f"`{' '.join(command)}` ended with {result.returncode}: "
                         f"{result.stderr.strip()[-2000:]}")
    text = result.stdout.strip()
    try:
        numbers = json.loads(text if text.startswith("{") else text.splitlines()[-1])
    except (json.JSONDecodeError, IndexError) as error:
        raise BenchError(f"`{' '.join(command)}` printed no JSON object") from error
    missing = [key for key in ROWS if key not in numbers]
    if missing:
        raise BenchError(f"`{' '.join(command)}` printed no {missing[0]}")
    return numbers, max(0.0, (busy_s() - busy - own_s) / wall)


def print_table(runs: dict[str, list[dict]], others: dict[str, list[float]]) -> None:
    ours, peer = runs
    print(f"{'':<18}{ours:>34}{peer:>34}{'ratio':>9}")
    for key, (label, factor, more_is_better) in ROWS.items():
        cells, medians = [], []
        for results in runs.values():
            values = [result[key] * factor for result in results]
            medians.append(statistics.median(values))
            cells.append(f"{medians[-1]:.2f} ({min(values):.2f} to {max(values):.2f})")
        ratio = medians[0] / medians[1] if more_is_better else medians[1] / medians[0]
        print(f"{label:<18}{cells[0]:>34}{cells[1]:>34}{ratio:>8.2f}x")
    worst = [f"{statistics.median(values):.2f} (at most {max(values):.2f})"
             for values in others.values()]
    print(f"{'cores of others':<18}{worst[0]:>34}{worst[1]:>34}")
    print("Ratios above 1 are in Octavo's favour.")


def main() -> int:
    parser = argparse.ArgumentParser(description="Octavo int8 against transformers bf16.")
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--peer-python", default=sys.executable,
                        help="a Python that has torch and transformers")
    parser.add_argument("--octavo", default=str(BENCH.parent / "build" / "octavo"))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--quantization", default="int8")
    parser.add_argument("--octavo-flags", type=shlex.split, default=[],
                        help='more flags in one word: --octavo-flags="--a 1 --b"')
    parser.add_argument("--peer-flags", type=shlex.split, default=[], help="the same for the peer")
    parser.add_argument("--json", type=pathlib.Path, help="file for the single runs")
    arguments = parser.parse_args()
    if arguments.runs < 1 or arguments.threads < 1:
        parser.error("--runs and --threads must be at least 1")
    model, threads = str(arguments.model), str(arguments.threads)
    commands = {
        f"octavo {arguments.quantization}": [
            arguments.octavo, "bench", model, "--quantization", arguments.quantization,
            "--threads", threads, "--json", *arguments.octavo_flags],
        "transformers bfloat16": [
            arguments.peer_python, str(BENCH / "peers" / "transformers_bench.py"), model,
            "--threads", threads, *arguments.peer_flags],
    }
    environment = dict(os.environ, OMP_NUM_THREADS=threads)
    runs: dict[str, list[dict]] = {name: [] for name in commands}
    others: dict[str, list[float]] = {name: [] for name in commands}
    try:
        for number in range(arguments.runs):
            for name, command in commands.items():
                print(f"run {number + 1} of {arguments.runs}: {name}", file=sys.stderr)
                numbers, cores = run(command, environment)
                runs[name].append(numbers)
                others[name].append(cores)
        if arguments.json:
            arguments.json.write_text(json.dumps({"runs": runs, "cores_of_others": others}) + "\n")
    except (BenchError, OSError) as error:
        print(f"compare_transformers: {error}", file=sys.stderr)
        return 1
    print_table(runs, others)
    return 0


if __name__ == "__main__":
    sys.exit(main())
