"""Checks the order of folders: a folder includes only itself and folders to its left.

usage: check_layering.py SOURCE_DIR      exit status 1 lists the offending #include lines.
"""

import pathlib
import re
import sys

ORDER = "base tensor kernels checkpoint quant graph models backends loader text engine server".split()
# Tighter than the order: what a folder may include of those to its left, where that is not all of them.
ALLOWED = {
    "checkpoint": {"base", "tensor"},
    "quant": {"base", "tensor", "kernels", "checkpoint"},
    "graph": {"base", "tensor"},
    "models": {"base", "tensor", "graph", "checkpoint"},
    "backends": {"base", "tensor", "kernels", "graph"},
    "text": {"base"},
}
INCLUDE = re.compile(r'^\s*#include\s+"([^"]+)"')


def offences(source: pathlib.Path) -> list[str]:
    found = []
    for path in sorted(source.glob("src/**/*")):
        if path.suffix not in {".h", ".cc"}:
            continue
        folder = path.relative_to(source / "src").parts[0]
        allowed = ALLOWED.get(folder, set(ORDER[: ORDER.index(folder)])) | {folder}
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if match and match[1] == "textkit.h" and folder == "text":
                continue
            if match and match[1].split("/")[0] not in allowed:
                found.append(f'{path.relative_to(source)}:{number}: {folder} may not include "{match[1]}"')
    for path in sorted((source / "include").glob("**/*.h")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if INCLUDE.match(line):
                found.append(f"{path.relative_to(source)}:{number}: a public header includes a private one")
    return found


if __name__ == "__main__":
    lines = offences(pathlib.Path(sys.argv[1]))
    print("\n".join(lines) or "every #include respects the order of folders")
    sys.exit(bool(lines))
