"""Writes docs/studies.md from tests/studies/rows.toml: what five studies do, and what shows that edgescope does it.

python tests/study_rows.py docs/studies.md
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "src"))
from edgescope.wings.studies.paper import papers  # noqa: E402

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TABLE = ROOT / "tests/studies/rows.toml"
STATES = {
    "works": "an x86 machine or an NVIDIA GPU has done it, with real parts",
    "partly": "some of it cannot be done",
    "fakes only": "it is whole, but only recordings, fake programs or fake libraries have run it",
    "missing": "it cannot be done",
    "wrong": "it is done, and the answer is wrong",
}
"""State of a row -> what that means."""
HEAD = """# The five studies, row by row

What each of the five studies does or measures that edgescope repeats, and what shows that it does so: a test, a
published run or a command. `edgescope study` has the studies themselves.
This page is written by `python tests/study_rows.py docs/studies.md` from `tests/studies/rows.toml`. The tests hold it
to that table, and the table to the tests and files that it names.

"""
COLUMNS = "| row | what the study does | today | shown by | what lacks |\n|---|---|---|---|---|\n"


class Row(NamedTuple):
    """A row of the table; `lacks` is '' where nothing does."""

    number: int
    study: str
    does: str
    state: str
    shows: tuple[str, ...]
    lacks: str = ""


@cache
def rows() -> tuple[Row, ...]:
    """Return the rows in the order of the table."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return tuple(Row(**{**row, "shows": tuple(row["shows"])}) for row in table["row"])


def exists(shown: str) -> bool:
    """Whether what shows a row is a test or a file of the repository; a command is not looked at."""
    path, _, test = shown.partition("::")
    if not test:
        return path.startswith("edgescope ") or (ROOT / path).is_file()
    return (ROOT / path).is_file() and test in functions(path)


@cache
def functions(path: str) -> frozenset[str]:
    """Return the names of the tests of a file."""
    found = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
    return frozenset(node.name for node in found if isinstance(node, ast.FunctionDef))


def page() -> str:
    """Return the whole page."""
    studies = list(dict.fromkeys(row.study for row in rows()))
    parts = [HEAD, *(f"- **{state}**: {means}\n" for state, means in STATES.items()), "\n", _counts(studies)]
    return "".join(parts) + "".join(map(_section, studies))


def _counts(studies: list[str]) -> str:
    cells = Counter((row.study, row.state) for row in rows())
    lines = [(f"[{name}](#{name})", *(cells[name, state] for state in STATES)) for name in studies]
    lines.append(("all", *(sum(cells[name, state] for name in studies) for state in STATES)))
    titles = f"| study | {' | '.join(STATES)} | rows |\n|---|{'---|' * (len(STATES) + 1)}\n"
    return titles + "".join(f"| {' | '.join(map(str, (*line, sum(line[1:]))))} |\n" for line in lines)


def _section(study: str) -> str:
    paper = papers()[study]
    lines = [_line(row) for row in rows() if row.study == study]
    return f"\n## {study}\n\n{paper.title} ({paper.source}), on: {paper.boards}.\n\n{COLUMNS}" + "".join(
        lines
    )


def _line(row: Row) -> str:
    shows = "<br>".join(map(_shown, row.shows))
    return f"| {row.number} | {row.does} | {row.state} | {shows} | {row.lacks} |\n"


def _shown(what: str) -> str:
    """Return a test or a command as code, a file as a link."""
    if "::" in what or what.startswith("edgescope "):
        return f"`{what}`"
    return f"[{what}](../{what})"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
