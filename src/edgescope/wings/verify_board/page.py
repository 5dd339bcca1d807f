"""One screen of what the kit found: what does not hold first, and of what is unsupported each reason once."""

from __future__ import annotations

from collections.abc import Iterator

from edgescope.report.document import DETAIL, Document, Items, Mark, Part, Text
from edgescope.wings.verify_board.board_file import BoardFile, Verified
from edgescope.wings.verify_board.check import Status

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
