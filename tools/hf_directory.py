"""Writing Hugging Face model directories: bf16 values, safetensors files, all-or-nothing folders.

Shared by fetch_default_model.py and make_checkpoint.py. Nothing here holds more than one tensor (or
the piece of one that its producer yields), so a checkpoint larger than the memory can be written.
"""

import contextlib
import json
import os
import pathlib
import shutil
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np


class Bf16Tensor(NamedTuple):
    """One tensor to be written: `pieces()` yields its bf16 bits (uint16) in row-major order."""

    name: str
    shape: tuple[int, ...]
    pieces: Callable[[], Iterable[np.ndarray]]

    @property
    def nbytes(self) -> int:
        return 2 * int(np.prod(self.shape))


def bf16_bits(values: np.ndarray) -> np.ndarray:
    """Rounds finite float32 values to bf16, half to even, as torch does; returns the bits."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


class Progress:
    """A line of progress on stderr, redrawn ten times a second; silent without a terminal."""

    def __init__(self, label: str, total_bytes: int):
        self.label, self.total, self.done = label, total_bytes, 0
        self.shown = sys.stderr.isatty()
        self.next_draw = 0.0

    def add(self, nbytes: int) -> None:
        self.done += nbytes
        finished = self.done == self.total
        now = time.monotonic()
        if not self.shown or (now < self.next_draw and not finished):
            return
        self.next_draw = now + 0.1
        text = f"\r{self.label}: {self.done / 1e6:.0f} of {self.total / 1e6:.0f} MB"
        print(text, end="\n" if finished else "", file=sys.stderr, flush=True)


def write_safetensors(path: pathlib.Path, tensors: list[Bf16Tensor], metadata: dict[str, str],
                      progress: Progress) -> None:
    """Writes `tensors` in the given order, with a header padded to 8 bytes."""
    header: dict[str, Any] = {"__metadata__": metadata}
    offset = 0
    for tensor in tensors:
        header[tensor.name] = {"dtype": "BF16", "shape": list(tensor.shape),
                               "data_offsets": [offset, offset + tensor.nbytes]}
        offset += tensor.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        for tensor in tensors:
            written = 0
            for piece in tensor.pieces():
                written += file.write(np.ascontiguousarray(piece, np.dtype("<u2")).data)
                progress.add(piece.nbytes)
            if written != tensor.nbytes:
                raise ValueError(f"{tensor.name}: {written} bytes made, {tensor.nbytes} expected")


def write_json(path: pathlib.Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


@contextlib.contextmanager
def temporary_sibling(target: pathlib.Path) -> Iterator[pathlib.Path]:
    """A scratch folder beside `target`, so that renaming is atomic; always removed at the end."""
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = pathlib.Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def publish(finished: pathlib.Path, target: pathlib.Path, scratch: pathlib.Path) -> None:
    """Renames `finished` to `target`; what stood there of the same kind goes into `scratch`.

    A folder that holds anything but the files of `finished` is somebody else's: FileExistsError.
    """
    if target.exists():
        ours = {entry.name for entry in finished.iterdir()}
        foreign = sorted(entry.name for entry in target.iterdir() if entry.name not in ours)
        if foreign:
            raise FileExistsError(f"{target} holds other files ({foreign[0]}); remove it or choose "
                                  "another --output")
        os.rename(target, scratch / "replaced")
    finished.chmod(0o755)
    os.rename(finished, target)
