"""Which line of the user's own code an exporter or a compiler stopped at.

torch wraps an error several times on its way out. The chain is followed to its beginning, through tracebacks and
through the `File "...", line N, in f` that torch.export writes into its messages; the deepest line that belongs
neither to torch nor to Python is the one to look at.
"""

from __future__ import annotations

import re
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path

WRITTEN = re.compile(r'File "([^"<>]+)", line (\d+), in (\S+)')
ENGINES = ("torch", "onnx", "onnxscript", "onnx_ir", "sympy")
OWN, PACKAGE, MACHINERY = range(3)
Line = tuple[str, int, str]


def of(error: BaseException) -> str:
    """Return `net.py:12 in forward: x = x.item()`; '' where no line outside torch and Python is involved."""
    lines = [line for part in chain(error) for line in _lines(part)]
    kinds = [_kind(line[0]) for line in lines]
    nearest = min(kinds, default=MACHINERY)
    if nearest == MACHINERY:
        return ""
    file, number, name = next(
        line for line, kind in reversed(list(zip(lines, kinds, strict=True))) if kind == nearest
    )
    return f"{Path(file).name}:{number} in {name}{_text(file, number)}"


def chain(error: BaseException) -> list[BaseException]:
    """Return an error and all it was raised from, the first cause last."""
    found: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and following not in found:
        found.append(following)
        following = following.__cause__ or following.__context__
    return found


def _lines(error: BaseException) -> Iterator[Line]:
    for file, number, name in WRITTEN.findall(str(error)):
        yield file, int(number), name
    for frame in traceback.extract_tb(error.__traceback__):
        yield frame.filename, frame.lineno or 0, frame.name


def _kind(file: str) -> int:
    """Return whether a source file is the user's own, a package's (where a network may come from) or machinery."""
    full, paths = Path(file).absolute(), sysconfig.get_paths()
    if not full.is_file() or full.is_relative_to(Path(__file__).parent):
        return MACHINERY
    for place in (Path(paths["purelib"]), Path(paths["platlib"])):
        if full.is_relative_to(place):
            return MACHINERY if full.relative_to(place).parts[0] in ENGINES else PACKAGE
    return MACHINERY if full.is_relative_to(paths["stdlib"]) else OWN


def _text(file: str, number: int) -> str:
    lines = Path(file).read_text(errors="replace").splitlines()
    return f": {lines[number - 1].strip()[:120]}" if 0 < number <= len(lines) else ""
