"""Which cells of a study's grid remain: [[exclude]] drops some, [[replicate]] repeats some, the impossible are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from edgescope.errors import UsageError, message
from edgescope.records import Json, Trial
from edgescope.study.rules import Conflict, Place, conflicts
from edgescope.study.schema import Problem

Tables = Sequence[Mapping[str, Json]]

#: Cells and replicates that a grid may have: at a second each they would take more than a day. From LARGE on the
#: size is said before the cells are made.
MOST, LARGE = 100_000, 5_000


def bounded(size: int, lengths: Mapping[str, int], say: Callable[[str], None] = lambda text: None) -> None:
    """Say how large a large grid is; UsageError with the length of each axis for one that nobody could measure."""
    axes = " x ".join(f"{n} {name}" for name, n in lengths.items() if n > 1)
    if size > MOST:
        raise UsageError(
            "E-STUDY-14",
            f"the grid has {size:,} trials, and {MOST:,} are the most",
            evidence=axes,
            effect=f"At one second each they would take {size / 86400:,.1f} days; nothing was measured",
            fix="fewer values an axis, or edgescope recommend --search, which measures a few of them",
        )
    if size >= LARGE:
        text = f"the grid has {size:,} trials before [[exclude]]"
        effect = f"At one second each they take {size / 3600:,.1f} h"
        say(message("I-STUDY-1", text, evidence=axes, effect=effect))


def matches(trial: Trial, table: Mapping[str, Json]) -> bool:
    """Whether the trial has every value of the table; of a list any one; options and shapes key by key."""
    for key, wanted in table.items():
        have = getattr(trial, key)
        if isinstance(wanted, Mapping):
            if not all(name in have and _is_one_of(have[name], value) for name, value in wanted.items()):
                return False
        elif not _is_one_of(have, wanted):
            return False
    return True


def _is_one_of(have: object, wanted: Json) -> bool:
    if isinstance(have, tuple):  # a shape
        return bool(list(have) == wanted)
    return bool(have in wanted if isinstance(wanted, list) else have == wanted)


def kept(trials: Sequence[Trial], tables: Tables, place: Place, notes: list[str]) -> list[Trial]:
    """Return the trials that no [[exclude]] drops; UsageError where that is none."""
    left = list(trials)
    dropped = []
    for number, table in enumerate(tables):
        after = [t for t in left if not matches(t, table)]
        line = place.line(("exclude", number))
        if len(after) == len(left):
            notes.append(_idle("exclude", line, place))
        else:
            dropped.append(f"{len(left) - len(after)} by line {line}")
        left = after
    if not left:
        raise UsageError(
            "E-STUDY-13",
            f"{place.name(('exclude',))}: every cell is excluded",
            evidence=f"of {len(trials)} cells {', '.join(dropped)}",
            effect="The grid is empty",
            fix="a further key in one of these [[exclude]] tables",
        )
    return left


def repeated(trials: Sequence[Trial], tables: Tables, place: Place, notes: list[str]) -> list[Trial]:
    """Return the trials and the further replicates that [[replicate]] asks for, those last."""
    extra: list[Trial] = []
    for number, table in enumerate(tables):
        cells = [t for t in trials if t.replicate == 0 and matches(t, _cells(table))]
        if not cells:
            notes.append(_idle("replicate", place.line(("replicate", number)), place))
        bounded(
            len(trials) + len(extra) + len(cells) * (table["replicates"] - 1),
            {"replicates": table["replicates"]},
        )
        extra += [replace(t, replicate=n) for t in cells for n in range(1, table["replicates"])]
    return [*trials, *extra]


def _cells(table: Mapping[str, Json]) -> dict[str, Json]:
    return {key: value for key, value in table.items() if key != "replicates"}


def _idle(section: str, line: int | None, place: Place) -> str:
    text = f"{place.path} line {line}: this [[{section}]] matches no cell"
    return message("W-STUDY-1", text, effect="It does nothing", fix="edgescope sweep STUDY --dry-run")


def pinned(trial: Trial, pin: Callable[[str], str]) -> Trial:
    """Return the trial with each file that its models refer to pinned by content."""
    beside = "+".join(pin(name) for name in trial.beside.split("+")) if trial.beside else ""
    return replace(trial, model=pin(trial.model), beside=beside)


def possible(trials: Sequence[Trial], place: Place) -> None:
    """Raise UsageError, with the lines, where cells ask for what cannot be; say what would drop them."""
    found: dict[Conflict, Trial] = {}
    for trial in trials:
        for conflict in conflicts(trial):
            found.setdefault(conflict, trial)
    if not found:
        return
    problems = [
        Problem(
            _line_of(conflict, trial, place),
            "E-STUDY-12",
            f"a cell cannot be: {conflict.what}",
            conflict.exclude(trial),
        )
        for conflict, trial in found.items()
    ]
    raise place.error(problems)


def _line_of(conflict: Conflict, trial: Trial, place: Place) -> tuple[str | int, ...]:
    """Return the value to change: that of the first key of the conflict which the file sets."""
    given = [key for key in conflict.keys if key in place.data["trial"]]
    return place.value(given[0], getattr(trial, given[0])) if given else ("trial",)
