"""What was verified where: a table from the files of many boards, for docs/reference/boards.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from edgescope.units import counted
from edgescope.wings.verify_board.board_file import BoardFile
from edgescope.wings.verify_board.check import Check, Status, checks

NOWHERE = "nowhere yet"
HEADS = ("check", "holds on", "does not hold on", "unsupported on")


def where(files: Mapping[str, BoardFile], known: Iterable[Check] | None = None) -> Iterator[Sequence[str]]:
    """Yield a row for each check: what it verifies, where it held, where it did not, where there is no such path.

    `files` are by their name. A recording verifies nothing, so its file counts nowhere.
    """
    real = {name: one for name, one in files.items() if one.reached != "recording"}
    for check in checks().values() if known is None else known:
        by: dict[Status, list[str]] = {}
        for name, one in sorted(real.items()):
            for verified in one.checks:
                if verified.check.name == check.name:
                    by.setdefault(verified.outcome.status, []).append(f"{one.board} ({one.made}, {name})")
        cells = ["; ".join(by.get(s, ())) for s in (Status.HOLDS, Status.FAILS, Status.UNSUPPORTED)]
        yield f"`{check.name}`: {check.path}", cells[0] or NOWHERE, *cells[1:]


def jetsons(files: Iterable[BoardFile]) -> str:
    """Return the sentence that says how many Jetson boards such files are from."""
    names = sorted({one.board for one in files if one.reached != "recording" and "Jetson" in one.board})
    if not names:
        return "No Jetson has been verified by such a file yet."
    return f"{counted(len(names), 'Jetson')} verified: {', '.join(names)}."
