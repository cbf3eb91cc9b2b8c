"""The program as its users meet it: command lines, what they print, how they end.

    OCTAVO_BIN=build/octavo OCTAVO_SHARED=../shared python3 -m pytest tests/cli

OCTAVO_BIN is the binary (build/octavo), OCTAVO_SHARED the folder of the fixtures (shared, beside the source).
"""

import os
import pathlib
import subprocess

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
