"""Cells in a row: those that differ in one thing only, over processes, batch sizes or precisions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from edgescope.analysis.cells.concurrency import Cell, sharing_words

#: From the fewest bits to the most; equals are in no order.
PRECISIONS = ("int8", "fp16", "bf16", "tf32", "fp32")
WIDTH = {"int8": 8, "fp16": 16, "bf16": 16, "tf32": 19, "fp32": 32}


@dataclass(frozen=True)
class Series:
    """Finished cells that differ in one axis, in its order."""

    cells: tuple[Cell, ...]
    axis: str
    """processes, batch or precision."""

    @property
    def words(self) -> str:
        """What the cells have in common: `resnet50 fp16 batch 1, time slicing`."""
        t = self.cells[-1].trial
        parts = [t.model]
        parts += [t.precision] if self.axis != "precision" else []
        parts += [f"batch {t.batch}"] if self.axis != "batch" else []
        head = " ".join(parts)
        how = [f"P = {t.processes}"] if self.axis != "processes" else []
        crowd = t.sharing != "shared" or (self.axis == "processes" or t.processes > 1)
        return ", ".join([head, *how, *([sharing_words(t)] if crowd else [])])


def over_processes(cells: Iterable[Cell]) -> list[Series]:
    """Return one series a model, precision, batch and sharing; one process shares with nobody, so it begins each."""
    done = [c for c in cells if c.ok]
    alone = {_but(c, "processes"): c for c in done if c.trial.processes == 1 and c.trial.sharing == "shared"}
    found = _grouped(done, lambda c: (*_but(c, "processes"), c.trial.sharing))
    out = []
    for group in found:
        first = alone.get(_but(group[0], "processes"))
        begins = first is not None and all(c.trial.processes > 1 for c in group)
        whole = [first, *group] if first is not None and begins else group
        out.append(Series(tuple(sorted(whole, key=lambda c: c.trial.processes)), "processes"))
    return [s for s in out if len(s.cells) > 1]


def over_batches(cells: Iterable[Cell]) -> list[Series]:
    """Return one series a model, precision, number of processes and sharing."""
    found = _grouped([c for c in cells if c.ok], lambda c: (*_but(c, "batch"), c.trial.sharing))
    return [
        Series(tuple(sorted(g, key=lambda c: c.trial.batch)), "batch")
        for g in found
        if len({c.trial.batch for c in g}) > 1
    ]


def over_precisions(cells: Iterable[Cell]) -> list[Series]:
    """Return one series a model, batch, number of processes and sharing, from the fewest bits to the most."""
    found = _grouped([c for c in cells if c.ok], lambda c: (*_but(c, "precision"), c.trial.sharing))
    return [
        Series(tuple(sorted(g, key=lambda c: PRECISIONS.index(c.trial.precision))), "precision")
        for g in found
        if len({c.trial.precision for c in g}) > 1
    ]


def _but(cell: Cell, axis: str) -> tuple[object, ...]:
    """Return what names a cell among those of one setup, without one axis and the sharing."""
    t = cell.trial
    parts = {"model": t.model, "precision": t.precision, "batch": t.batch, "processes": t.processes}
    return tuple(v for k, v in parts.items() if k != axis)


def _grouped(cells: Sequence[Cell], key: Callable[[Cell], tuple[object, ...]]) -> list[list[Cell]]:
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        groups.setdefault(key(cell), []).append(cell)
    return list(groups.values())
