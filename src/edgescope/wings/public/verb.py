"""Published figures, and a result beside them: `edgescope.public("latest")`, `edgescope.public(system="orin_nano")`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edgescope.analysis.cells.machines import flat
from edgescope.analysis.cells.replicates import across
from edgescope.records import Absent, Field, Json, Measured, Result
from edgescope.records.answers import Answer, figure_text, plain
from edgescope.runner.setup import Stored
from edgescope.units import counted
from edgescope.verbs.compare import Named, named_results
from edgescope.wings.public import numbers
from edgescope.wings.public.numbers import Number


@dataclass(frozen=True)
class Beside:
    """One published figure beside the same quantity of a result."""

    number: Number
    ours: Field
    """Absent, with the reason, where the result has no such quantity."""
    ratio: Field
    """Ours / published, with the interval of ours."""
    differs: tuple[str, ...] = ()
    """Settings that are not the same: `precision fp32 -> int8`, ours first."""
    tries: tuple[str, ...] = ()
    """Flags that would take one of them away here."""

    @property
    def comparable(self) -> bool:
        """Whether both are the same quantity."""
        return isinstance(self.ratio, Measured)


@dataclass(frozen=True, repr=False)
class Public(Answer):
    """Published figures, beside a result where one was named: the nearest settings first."""

    rows: tuple[Beside, ...]
    result: str = ""
    """The result's label; '' for a list alone."""

    def lines(self) -> Iterator[str]:
        """Yield one line for each figure."""
        for row in self.rows:
            n = row.number
            said = figure_text("ratio", row.ratio) if self.result else ""
            yield f"{n.model} on {n.board or 'not named'}, {n.definition.name}: {n.value:.4g} {n.unit} {said}"

    def records(self) -> list[dict[str, Json]]:
        """Return one row for each figure: its columns, and where a result is named ours, ratio, differs, tries."""
        return [record(row, beside=bool(self.result)) for row in self.rows]


def record(row: Beside, *, beside: bool) -> dict[str, Json]:
    """Return one figure as plain values."""
    plain_row = {k: v for k, v in vars(row.number).items() if k != "definition"}
    plain_row["definition"] = row.number.definition.name
    if not beside:
        return plain_row
    both = {"ours": plain(row.ours), "ratio": plain(row.ratio)}
    return plain_row | both | {"differs": list(row.differs), "tries": list(row.tries)}


def public(
    result: Named | None = None,
    *,
    system: str = "",
    model: str = "",
    precision: str = "",
    definition: str = "",
    store: Stored = None,
    machine: str = "",
) -> Public:
    """Return published figures of edge boards; with a result, those of its model beside it.

    `system` (a board), `model`, `precision` and `definition` choose rows as the table names them; UsageError, with the
    nearest name, for one that it does not have. A ratio is given only where both are the same quantity.
    """
    runs = named_results(result, store, machine) if result is not None else []
    if runs and not model:
        model = _same(runs[0].trial.model)
    asked = {"board": system, "name": model, "precision": precision, "definition": definition}
    found = numbers.chosen(numbers.every(), **asked)
    nothing = Absent("no result was named")
    if not runs:
        return Public(tuple(Beside(number, nothing, nothing) for number in found))
    rows = sorted(
        (beside(number, runs) for number in found), key=lambda r: (not r.comparable, len(r.differs))
    )
    return Public(tuple(rows), f"{runs[0].trial.model.partition('#')[0]} {runs[0].trial.label}")


def _same(model: str) -> str:
    """Return a zoo's or a file's name as the table may know it."""
    name = re.sub(r"\.[a-z]+$", "", model.partition("#")[0].partition("@")[0].rpartition("/")[2])
    return name.removeprefix("llm:").removesuffix("_2class")


def beside(number: Number, runs: Sequence[Result]) -> Beside:
    """Return one published figure beside the runs of one cell."""
    trial, what = runs[0].trial, number.definition
    reason, tries = _apart(number, runs[0])
    if reason:
        return Beside(number, Absent(reason), Absent(reason), (), tries)
    ours = across(list(runs), what.ours)
    ratio: Field = ours if isinstance(ours, Absent) else _over(ours, number.value)
    pairs = (
        ("board", board_of(runs[0]), number.board),
        ("mode", trial.mode if trial.mode != type(trial).mode else "", number.power_mode),
        ("precision", trial.precision, number.precision),
        ("batch", str(trial.batch), number.batch),
        ("device", trial.device, number.processor),
    )
    differs = [f"{name} {a or 'not stated'} -> {b}" for name, a, b in pairs if b and a != b]
    differs += [f"software: {number.software}"] if number.software else []
    tried = [
        f"--{name} {there}"
        for name, here, there in pairs
        if name in ("precision", "batch")
        and re.fullmatch(r"fp32|fp16|bf16|int8|\d+", there)
        and there != here
    ]
    return Beside(number, ours, ratio, tuple(differs), tuple(tried))


def _apart(number: Number, result: Result) -> tuple[str, tuple[str, ...]]:
    """Return why a result has no such quantity, and the flags with which it would; '' if it has."""
    trial, what = result.trial, number.definition
    if not what.ours:
        return what.apart, ()
    if trial.workload != what.workload:
        return f"it is a figure of --workload {what.workload}", (f"--workload {what.workload}",)
    flags = []
    if what.scenarios and trial.scenario not in what.scenarios:
        flags.append(f"--scenario {what.scenarios[0]}")
    if what.batch is not None and trial.batch != what.batch:
        flags.append(f"--batch {what.batch}")
    return (f"it is another load: {what.meaning}" if flags else ""), tuple(flags)


def _over(ours: Measured, published: float) -> Measured:
    lo, hi = (None if end is None else end / published for end in (ours.lo, ours.hi))
    return Measured(ours.value / published, "1", lo, hi, ours.n)


def board_of(result: Result) -> str:
    """Return the board's name as the table has it (`orin_nano`); '' for a machine that is no board."""
    facts = flat(result.machine.stable)
    names = (str(value) for key, value in facts.items() if key.split(".")[-1] == "board")
    return next((re.sub(r"[^a-z0-9]+", "_", n.lower().removeprefix("jetson ")).strip("_") for n in names), "")


def counted_of(found: Public) -> str:
    """Return `3 of 40 figures are the same quantity`."""
    same = sum(row.comparable for row in found.rows)
    return f"{same} of {counted(len(found.rows), 'figure')} {'is' if same == 1 else 'are'} the same quantity"
