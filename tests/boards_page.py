"""The tables of docs/reference/boards.md, written from boards.toml: board, metric, source, scope, how verified.

And what was verified where, from the files that `edgescope verify-board` wrote (published/boards).

python tests/boards_page.py docs/reference/boards.md docs/reference/engines.md   # rewrites what is between the marks
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from edgescope.wings.jetson import boards
from edgescope.wings.jetson.boards import SUM, Board, Rail
from edgescope.wings.jetson.rails import CHIPS
from edgescope.wings.tensorrt.trtexec import versions
from edgescope.wings.verify_board import board_file
from edgescope.wings.verify_board import page as kit
from edgescope.wings.verify_board.check import Check, checks

BEGIN = "<!-- written by: python tests/boards_page.py docs/reference/boards.md -->"
END = "<!-- end of what is written from boards.toml -->"
BEGIN_WHERE = "<!-- written from published/boards by: python tests/boards_page.py docs/reference/{name} -->"
END_WHERE = "<!-- end of what is written from published/boards -->"
FILES = Path(__file__).parents[1] / "published/boards"
ENGINES = ("engines:", "profilers:")
"""Where the checks of engines.md are."""


def render() -> str:
    """Return the tables as Markdown."""
    known = tuple(boards.boards().values())
    parts = (
        "### Modules",
        _table(
            ("board", "P-numbers", "SoC", "compute", "total power", "scope", "how verified"), _modules(known)
        ),
        "### Rails",
        f"Read from {', '.join(c.upper() for c in CHIPS)}. Each rail gives `<rail>_power_w`, `_voltage_v` and "
        "`_current_a`, the rail's name in lower case.",
        _table(("board", "rail", "feeds", "part of", "scope", "how verified"), _rails(known)),
        "### What a JetPack holds",
        "A TensorRT of 8 to 10 takes int8 as QDQ pairs in the ONNX file, and until 10 by a calibration table, too; its "
        "trtexec has `--versionCompatible` from 8.6 on. From 11 on precision comes from the file alone.",
        _table(
            ("JetPack", "boards", "Python", "CUDA", "TensorRT", "DLA", "how verified", "source"), _software()
        ),
        "### Everything else",
        _table(("metric", "boards", "source", "scope", "how verified"), _metrics()),
        "### What is not known",
        "\n".join(f"* {board.name}: {doubt}" for board in known for doubt in board.doubts),
        "### Where the facts are from",
        "\n".join(f"* {board.name}: {'; '.join(board.sources)}" for board in known),
    )
    return "\n\n".join(parts)


def updated(page: str, name: str = "boards.md", folder: Path = FILES) -> str:
    """Return the page with the current tables between its marks; ValueError if a mark is missing.

    boards.md has the tables of boards.toml and every check, engines.md the checks of engines and profilers.
    """
    if name == "boards.md":
        page = between(page, BEGIN, END, render())
    shown = [c for c in checks().values() if name == "boards.md" or c.target.startswith(ENGINES)]
    return between(page, BEGIN_WHERE.format(name=name), END_WHERE, verified(shown, folder))


def verified(shown: Iterable[Check], folder: Path = FILES) -> str:
    """Return, as Markdown, on which board each of these checks held, from the files of that folder."""
    files = {path.name: board_file.read(path) for path in sorted(folder.glob("*.json"))}
    return "\n\n".join([kit.jetsons(files.values()), _table(kit.HEADS, kit.where(files, shown))])


def between(page: str, begin: str, end: str, text: str) -> str:
    """Return the page with the text between two marks replaced by `text`; ValueError if a mark is missing."""
    before, _, rest = page.partition(begin)
    _, mark, after = rest.partition(end)
    if not mark:
        raise ValueError(f"the page has not both marks, {begin} and {end}")
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"


def _modules(known: Iterable[Board]) -> Iterator[Sequence[str]]:
    for board in known:
        numbers = ", ".join([*board.modules, *(f"any on the carrier {number}" for number in board.carriers)])
        total, scope = _total(board)
        yield board.name, numbers, board.soc, board.compute, total, scope, board.verified


def _total(board: Board) -> tuple[str, str]:
    """Return (how a total is formed, its scope), best first."""
    ways = [" + ".join(board.terms()) if way == SUM else way for way in board.total]
    scopes = [SUM if way == SUM else board.rails[way].scope for way in board.total]
    return ", else ".join(ways), ", else ".join(scopes)


def _rails(known: Iterable[Board]) -> Iterator[Sequence[str]]:
    for board in known:
        for rail in board.rails.values():
            yield _rail(board, rail)


def _rail(board: Board, rail: Rail) -> Sequence[str]:
    return board.name, rail.label, rail.feeds, rail.below, rail.scope, rail.verified


def _software() -> Iterator[Sequence[str]]:
    for held in boards.software():
        on = [boards.boards()[key] for key in held.boards]
        cores = any(b.dla for b in on)
        dla = ("yes" if versions.drives_dla(held.tensorrt) else "no") if cores else "the boards have none"
        versions_ = f"{held.jetpack[0]} to {held.jetpack[-1]}" if len(held.jetpack) > 1 else held.jetpack[0]
        names = ", ".join(b.name.removeprefix("Jetson ") for b in on)
        yield (
            versions_,
            names,
            held.python,
            held.cuda,
            held.tensorrt,
            dla,
            held.verified,
            "; ".join(held.sources),
        )


def _metrics() -> Iterator[Sequence[str]]:
    for metric in boards.metrics():
        names = ", ".join(f"`{name}`" for name in metric.name.split(", "))
        yield names, metric.on, metric.source, metric.scope, metric.verified


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(argv: Sequence[str]) -> int:
    """Rewrite the pages named."""
    for name in argv:
        page = Path(name)
        page.write_text(updated(page.read_text(encoding="utf-8"), page.name), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
