#!/usr/bin/env python3
"""Checks the object files that are compiled for one instruction set.

The linker keeps one copy of a function that several files define inline (nm: W, V or u). If it
keeps the copy that was compiled for AVX-512, a CPU without it dies of an illegal instruction in
code that seems to have nothing to do with kernels. So such a file may define one global symbol, its
table, and nothing that can be merged.

Usage: check_isa_objects.py NM OBJECT...   (objects not of kernels/x86 or kernels/arm are skipped)
"""

import re
import subprocess
import sys


def problems_of(nm: str, path: str) -> list[str]:
    command = [nm, "-C", "--defined-only", path]
    listing = subprocess.run(command, check=True, capture_output=True, text=True)
    global_symbols = []
    problems = []
    for line in listing.stdout.splitlines():
        kind, name = line.split(maxsplit=2)[1:]
        if kind in "WwVvu":
            problems.append(f"{path}: {name} ({kind}) may be merged with another file's copy")
        elif kind.isupper():
            global_symbols.append(name)
    if len(global_symbols) != 1:
        found = ", ".join(global_symbols) or "none"
        problems.append(f"{path}: expected one global symbol, the kernel table; found {found}")
    return problems


def main() -> int:
    nm, *paths = sys.argv[1:]
    objects = [path for path in paths if re.search(r"/kernels/(x86|arm)/[^/]+\.o(bj)?$", path)]
    if not objects:
        print("no object of src/kernels/x86 or src/kernels/arm among the arguments")
        return 1
    problems = [problem for path in objects for problem in problems_of(nm, path)]
    for problem in problems:
        print(problem)
    print(f"{len(objects)} objects, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
