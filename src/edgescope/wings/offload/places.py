"""The two places of an offload question: one cell of one machine each, found in a store and checked."""

from __future__ import annotations

from collections.abc import Sequence

from edgescope.analysis.cells.machines import name
from edgescope.analysis.cells.replicates import across
from edgescope.analysis.cells.variants import table
from edgescope.errors import Message, UsageError
from edgescope.records import Result
from edgescope.wings.offload.model import Place
from edgescope.wings.offload.service import service


def place(results: Sequence[Result], which: str, side: str) -> Place:
    """Return the Place of one cell, from its replicates on one machine (with raw rows).

    `which` is the name as typed, `side` is edge or cloud. UsageError if it names several cells, or one that cannot be
    used.
    """
    cells = {r.trial.cell: f"{r.trial.model} {r.trial.label}" for r in results}
    if len(cells) > 1:
        listing = ", ".join(f"{cell[:8]} ({label})" for cell, label in cells.items())
        raise UsageError("E-OFF-1", f"{which!r} names {len(cells)} cells", evidence=listing, fix="a cell id")
    row = table(results).rows[0]
    done = list(row.replicates.values())
    times = service(done) if done and not row.rejected else None
    if times is None:
        why = row.rejected or f"status {row.status.value}: no raw rows of a measured window"
        raise UsageError("E-OFF-2", f"the {side}'s cell {which!r} cannot be used", evidence=why)
    first = done[0].machine
    return Place(row, times, name(first), first.id, across(done, "idle_power_w"))


def remarks(local: Place, remote: Place) -> list[Message]:
    """Return the warnings about this pair; UsageError if the two answer different queries."""
    a, b = local.row.trial, remote.row.trial
    if a.batch != b.batch:
        raise UsageError(
            "E-OFF-3",
            "the two places answer queries of different size",
            evidence=f"batch {a.batch} at the edge, {b.batch} in the cloud",
            fix="cells of one batch size",
        )
    out = []
    if local.machine_id == remote.machine_id:
        effect = "The answer is about the network and the two variants, not about another machine"
        out.append(
            Message("W-OFF-1", "both places are the same machine", evidence=local.machine, effect=effect)
        )
    if a.model != b.model:
        out.append(
            Message("W-OFF-2", "the places run different models", evidence=f"{a.model} here, {b.model} there")
        )
    for side, where in (("edge", local), ("cloud", remote)):
        trust = where.row.verdict.trust.value
        if trust != "CLEAN":
            evidence = "; ".join(where.row.verdict.evidence)[:160]
            out.append(Message("W-OFF-3", f"the {side}'s measurement is {trust}", evidence=evidence))
    return out
