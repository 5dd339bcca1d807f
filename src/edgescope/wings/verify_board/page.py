"""What the kit found, on one screen; and what was verified where, as a table of many boards' files.

The screen says first what does not hold, and of what is unsupported each reason once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from edgescope.report.document import DETAIL, Document, Items, Mark, Part, Text
from edgescope.units import counted
from edgescope.wings.verify_board.board_file import BoardFile, Verified
from edgescope.wings.verify_board.check import Check, Status, checks

NOWHERE = "nowhere yet"
HEADS = ("check", "holds on", "does not hold on", "unsupported on")
KINDS = {Status.FAILS: "bad", Status.NOT_RUN: "warn", Status.HOLDS: "good"}


def document(found: BoardFile, path: str) -> Document:
    """Return the screen: how many hold, what each check found, what was put back, where the file is."""
    counts = [f"{len(found.of(s))} {s.value}" for s in Status if found.of(s)]
    parts: list[Part | None] = [
        Text(found.board, "strong"),
        Text(f"{', '.join(counts)}, in {found.seconds:.0f} s"),
        *_judged(found),
        *_reasons(found.of(Status.UNSUPPORTED)),
        *(Text(f"put back: {what}") for what in found.restored),
        *(Text(f"NOT put back: {what}; edgescope doctor --restore", "warning") for what in found.left),
        Text(f"the file to send: {path} (it names no person, host or address)"),
    ]
    return Document("verify-board", tuple(parts), found.to_json())


def _judged(found: BoardFile) -> Iterator[Part]:
    for status, kind in KINDS.items():
        for one in found.of(status):
            yield Text((Mark(f"{status.value}: ", kind), f"{one.check.name}: {one.outcome.says}"))


def _reasons(unsupported: list[Verified]) -> Iterator[Part]:
    """Yield a line for each reason, with the checks that have it; with -v, a line for each check."""
    by: dict[str, list[str]] = {}
    for one in unsupported:
        by.setdefault(_brief(one.outcome.says), []).append(one.check.name)
    for reason, names in by.items():
        yield Text((Mark("unsupported: ", "dim"), f"{reason} ({', '.join(names)})"))
    if unsupported:
        whole = tuple(f"{one.check.name}: {one.outcome.says}" for one in unsupported)
        yield Items(whole, "why, in full", level=DETAIL)


def _brief(reason: str) -> str:
    """Return the first clause of a reason: what it has in brackets and after its first full stop is its evidence."""
    return reason.partition(" (")[0].partition(". ")[0].partition(": neither")[0]


def where(files: Mapping[str, BoardFile], known: Iterable[Check] | None = None) -> Iterator[Sequence[str]]:
    """Yield a row for each check: what it verifies, where it held, where it did not, where there is no such path.

    `files` are by their name. A recording verifies nothing, so its file counts nowhere.
    """
    real = {name: one for name, one in files.items() if one.reached != "recording"}
    for check in checks().values() if known is None else known:
        by: dict[Status, list[str]] = {}
        for name, one in sorted(real.items()):
            board = one.board.replace(" | ", ", ")  # a bar would end the cell of a table
            for verified in one.checks:
                if verified.check.name == check.name:
                    by.setdefault(verified.outcome.status, []).append(f"{board} ({one.made}, {name})")
        cells = ["; ".join(by.get(s, ())) for s in (Status.HOLDS, Status.FAILS, Status.UNSUPPORTED)]
        yield f"`{check.name}`: {check.path}", cells[0] or NOWHERE, *cells[1:]


def jetsons(files: Iterable[BoardFile]) -> str:
    """Return the sentence that says how many Jetson boards such files are from."""
    names = sorted({one.board for one in files if one.reached != "recording" and "Jetson" in one.board})
    if not names:
        return "No Jetson has been verified by such a file yet."
    return f"{counted(len(names), 'Jetson')} verified: {', '.join(names)}."
