"""One screen of what the kit found."""

from __future__ import annotations

from edgescope.report.document import Column, Document, Mark, Part, Row, Table, Text
from edgescope.wings.verify_board.board_file import BoardFile
from edgescope.wings.verify_board.check import Status

KINDS = {Status.HOLDS: "good", Status.FAILS: "bad", Status.UNSUPPORTED: "dim", Status.NOT_RUN: "warn"}


def document(found: BoardFile, path: str) -> Document:
    """Return the screen: how many hold, a line for each check, where the file is."""
    counts = [f"{len(found.of(s))} {s.value}" for s in Status if found.of(s)]
    rows = tuple(
        Row((one.check.name, Mark(one.outcome.status.value, KINDS[one.outcome.status]), one.outcome.says))
        for one in found.checks
    )
    parts: list[Part | None] = [
        Text(found.board, "strong"),
        Text(f"{', '.join(counts)}, in {found.seconds:.0f} s"),
        Table((Column("check"), Column("status"), Column("found", least=20)), rows),
        *(Text(f"put back: {what}") for what in found.restored),
        *(Text(f"NOT put back: {what}; edgescope doctor --restore", "warning") for what in found.left),
        Text(f"the file to send: {path} (it names no person, host or address)"),
    ]
    return Document("verify-board", tuple(parts), found.to_json())
