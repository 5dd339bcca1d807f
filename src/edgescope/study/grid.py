"""Make Trials from flags or study.toml: each key is a field of a Trial, and a list makes an axis.

`edgescope docs sweeps` has every key. [[exclude]] drops cells that match all of its keys, [[replicate]] repeats cells,
and impossible cells are an error. Each mistake in a file is reported with its line.
"""

from __future__ import annotations

import itertools
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from edgescope import options, registry
from edgescope.errors import EdgescopeError, Message, UsageError
from edgescope.isolate import placement
from edgescope.models import zoo
from edgescope.records import Json, Trial, colocated_with
from edgescope.records.trial import usual_backend
from edgescope.scenarios.stop_rule import Plan
from edgescope.study import rules, schema
from edgescope.study.rules import Conflict, Place, conflicts
from edgescope.study.schema import OPTIONS, Problem
from edgescope.verify import metric_names

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


#: Largest size of a study file in bytes, and deepest nesting; usual files have a few kilobytes and five levels.
MOST_BYTES, DEEPEST = 1_000_000, 20
_LONG_KEY = re.compile(rf"(?<![\w-])(?:[A-Za-z0-9_-]+[ \t]*\.[ \t]*){{{DEEPEST},}}")


@dataclass(frozen=True)
class Study:
    """The Trials of a sweep in grid order, the store of their results, the objective and the constraints."""

    trials: tuple[Trial, ...]
    store: Path | None = None
    sweep: Mapping[str, Json] | None = None
    """cooldown, timeout, order_seed ... as on the command line."""
    objective: str = ""
    """One of analysis.cells.objective.OBJECTIVES; '' if the file names none."""
    constraints: tuple[str, ...] = ()
    """Bounds that a pick must keep, as in the file: `p99<=33ms`."""
    notes: tuple[str, ...] = ()
    """Warnings about the file."""
    boards: Mapping[str, float | None] = field(default_factory=dict)
    """Address of each board that it runs on -> its price, if it has one; {}: this machine."""


Say = Callable[[str], None]


def grid(keys: Mapping[str, Json], say: Say = lambda text: None) -> tuple[Trial, ...]:
    """Return one Trial for every combination of the listed values; `replicates` is the number of fresh processes.

    The size of a large grid is passed to `say` first; UsageError if it is too large to be measured.
    """
    distinct = {checked(trial).id: trial for trial in _product(keys, say)}
    return tuple(distinct.values())


def _product(keys: Mapping[str, Json], say: Say) -> Iterator[Trial]:
    """Yield the Trials of a grid, unchecked and with duplicates."""
    inside = [keys.get(name, {}) for name in OPTIONS] if isinstance(keys, Mapping) else [None]
    if not all(isinstance(table, Mapping) for table in inside):
        raise UsageError(
            "E-STUDY-8", "[trial] and [trial.options] must be tables of keys", evidence=str(keys)[:80]
        )
    keys = dict(keys)
    replicates = keys.pop("replicates", 1)
    if not isinstance(replicates, int) or replicates < 1:
        raise UsageError("E-STUDY-1", f"replicates must be a whole number of at least 1, not {replicates!r}")
    tables = {name: keys.pop(name, {}) for name in OPTIONS}
    axes = [_axis(name, value) for name, value in keys.items()]
    inner = {name: [_axis(k, v) for k, v in table.items()] for name, table in tables.items()}
    every = itertools.chain(axes, *inner.values())
    lengths = {values[0][0]: len(values) for values in every} | {"replicates": replicates}
    bounded(math.prod(lengths.values()), lengths, say)
    for cell in itertools.product(*axes):
        for chosen in itertools.product(*(itertools.product(*table) for table in inner.values())):
            extra = {name: dict(pairs) for name, pairs in zip(inner, chosen, strict=True)}
            for replicate in range(replicates):
                yield _trial({**dict(cell), **extra, "replicate": replicate})


def _trial(keys: dict[str, Any]) -> Trial:
    """Return the Trial; without a device it gets the default device of its backend."""
    backend = keys.get("backend") or usual_backend(str(keys.get("model")))
    if keys.get("device") is None and isinstance(backend, str) and backend in registry.BACKENDS:
        keys["device"] = registry.home(backend)
    keys = settled(keys)
    return Trial.from_json({k: v for k, v in keys.items() if (k, v) != ("device", None)})


#: Table of options -> (the family whose member declares the options, the key that names the member).
DECLARED = {
    "workload_options": (registry.WORKLOADS, "workload"),
    "scenario_options": (registry.SCENARIOS, "scenario"),
}


def settled(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Trial's keys with the options of its workload and scenario in their canonical form."""
    given = {table: keys[table] for table in DECLARED if keys.get(table)}
    for table, values in given.items():
        family, word = DECLARED[table]
        given[table] = options.settled(values, _known(family, keys.get(word, getattr(Trial, word)), word))
    return {**keys, **given}


def _known(family: registry.Family, name: str, word: str) -> Mapping[str, options.Option]:
    """Return the options that a workload or scenario declares; UsageError if there is no such member."""
    known: Mapping[str, options.Option] = registry.load(family, name, word).OPTIONS
    return known


def checked(trial: Trial) -> Trial:
    """Return the trial if its names exist and its scenario has the settings it needs; otherwise raise UsageError."""
    for family, name, word in (
        (registry.BACKENDS, trial.backend, "backend"),
        (registry.WORKLOADS, trial.workload, "workload"),
        (registry.SCENARIOS, trial.scenario, "scenario"),
    ):
        registry.entry(family, name, word)
    able = registry.runs_on(trial.backend)
    if trial.device not in able:
        raise UsageError(
            "E-STUDY-9",
            f"{trial.backend} does not run on {trial.device}",
            evidence=f"it runs on {' and '.join(able)}",
            fix=f"--device {able[0]}, or another --backend (edgescope backends)",
        )
    for table, (family, word) in DECLARED.items():
        name = getattr(trial, word)
        if given := getattr(trial, table):
            options.read(name, given, _known(family, name, word), word)
    if trial.min_agreement is not None:
        from edgescope.verify import judge  # it knows every measure; this process asks for one number

        judge.required_agreement(trial.precision, trial.min_agreement)
    registry.load(registry.SCENARIOS, trial.scenario, "scenario")(trial, Plan(trial))
    rules.in_range(trial)
    placement.colocated(trial)
    for name, shape in trial.shapes.items():
        if not shape or shape[0] != trial.batch:
            raise UsageError(
                "E-STUDY-7",
                f"the first axis of --shapes {name}={'x'.join(map(str, shape))} is not the batch {trial.batch}",
                fix=f"--batch {shape[0] if shape else 1}, or {trial.batch} as the first axis",
            )
    return trial


def _axis(name: str, value: Json) -> Sequence[tuple[str, Any]]:
    values = value if isinstance(value, list) else [value]
    if not values:
        raise UsageError("E-STUDY-2", f"the axis {name} is empty", effect="The grid would have no cells")
    return [(name, v) for v in values]


def read(path: Path, pin: Callable[[str], str] = lambda name: name, say: Say = lambda text: None) -> Study:
    """Return the Study in a file; UsageError with the line of the mistake.

    `pin` adds the content's digest to a model's name (zoo.pin) and raises if there is no such model; `say` gets the
    size of a large grid.
    """
    data, place = _parsed(path)
    if found := schema.problems(data):
        raise place.error(found)
    notes: list[str] = []
    try:
        made = list(_product(data["trial"], say))
    except EdgescopeError as error:
        raise place.at_key_of(error) from error
    left = kept(made, data.get("exclude", []), place, notes)
    left = repeated(left, data.get("replicate", []), place, notes)
    possible(left, place)
    distinct = {t.id: t for t in (_whole(trial, pin, place) for trial in left)}
    where = data.get("store", {}).get("path")
    return Study(
        tuple(distinct.values()),
        Path(where) if where else None,
        data.get("sweep"),
        data.get("objective", {}).get("name", ""),
        tuple(c["bound"] for c in data.get("constraint", [])),
        tuple(notes),
        {board["on"]: board.get("price") for board in data.get("board", [])},
    )


def _whole(trial: Trial, pin: Callable[[str], str], place: Place) -> Trial:
    """Return the trial, checked, with its models pinned."""
    try:
        return pinned(checked(trial), pin)
    except EdgescopeError as error:
        raise place.at_key_of(error, trial) from error


def _parsed(path: Path) -> tuple[dict[str, Json], Place]:
    """Return a file's tables and the line of each key."""
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
        data = _tables(raw)
        return data, Place(path, data, schema.toml_lines(raw.decode()))
    except OSError as error:
        raise UsageError("E-STUDY-3", f"{path} cannot be read", evidence=error.strerror or "") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError("E-STUDY-4", f"{path} is not TOML", evidence=str(error)) from error
    except (RecursionError, _TooMuch) as error:
        why = str(error) if isinstance(error, _TooMuch) else f"it has more than {DEEPEST} nested levels"
        raise UsageError(
            "E-STUDY-4", f"{path} is not a study", evidence=why, fix="edgescope docs sweeps"
        ) from error


class _TooMuch(ValueError):
    """A text that is too large or too deeply nested for a study."""


def _tables(raw: bytes) -> dict[str, Json]:
    """Return the tables of a TOML text; _TooMuch, before the slow part, if it is too large or too deep."""
    if len(raw) > MOST_BYTES:
        raise _TooMuch(f"it holds more than {MOST_BYTES / 1e6:g} MB")
    text = raw.decode()
    if _LONG_KEY.search(text):
        raise _TooMuch(f"a key has more than {DEEPEST} parts")
    data = tomllib.loads(text)
    level: list[Json] = [data]
    for _ in range(DEEPEST):
        level = [inner for value in level for inner in _inside(value)]
    if level:
        raise _TooMuch(f"it has more than {DEEPEST} nested levels")
    return data


def _inside(value: Json) -> list[Json]:
    return [*value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []


Tables = Sequence[Mapping[str, Json]]

#: The most trials that a grid may have: at a second each they would take more than a day. From LARGE on, the size is
#: reported before the cells are made.
MOST, LARGE = 100_000, 5_000


def bounded(size: int, lengths: Mapping[str, int], say: Callable[[str], None] = lambda text: None) -> None:
    """Report the size of a large grid; UsageError with the length of each axis if it is above MOST."""
    axes = " x ".join(f"{n} {name}" for name, n in lengths.items() if n > 1)
    if size > MOST:
        raise UsageError(
            "E-STUDY-14",
            f"the grid has {size:,} trials, more than the maximum of {MOST:,}",
            evidence=axes,
            effect=f"At one second each they would take {size / 86400:,.1f} days; nothing was measured",
            fix="fewer values per axis, or edgescope recommend --search, which measures a few cells",
        )
    if size >= LARGE:
        text = f"the grid has {size:,} trials before [[exclude]]"
        effect = f"At one second each they take {size / 3600:,.1f} h"
        say(str(Message("I-STUDY-1", text, evidence=axes, effect=effect)))


def matches(trial: Trial, table: Mapping[str, Json]) -> bool:
    """Return whether the trial has every value of the table; a list matches any of its values."""
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
    """Return the trials that no [[exclude]] drops; UsageError if none is left."""
    left = list(trials)
    dropped = []
    for number, table in enumerate(tables):
        after = [t for t in left if not matches(t, table)]
        line = place.line(("exclude", number))
        if len(after) == len(left):
            notes.append(str(_idle("exclude", line, place)))
        else:
            dropped.append(f"{len(left) - len(after)} by line {line}")
        left = after
    if not left:
        raise UsageError(
            "E-STUDY-13",
            f"{place.name(('exclude',))}: every cell is excluded",
            evidence=f"{len(trials)} cells, dropped: {', '.join(dropped)}",
            effect="The grid is empty",
            fix="add a key to one of these [[exclude]] tables",
        )
    return left


def repeated(trials: Sequence[Trial], tables: Tables, place: Place, notes: list[str]) -> list[Trial]:
    """Return the trials, followed by the further replicates that [[replicate]] adds."""
    extra: list[Trial] = []
    for number, table in enumerate(tables):
        cells = [t for t in trials if t.replicate == 0 and matches(t, _cells(table))]
        if not cells:
            notes.append(str(_idle("replicate", place.line(("replicate", number)), place)))
        bounded(
            len(trials) + len(extra) + len(cells) * (table["replicates"] - 1),
            {"replicates": table["replicates"]},
        )
        extra += [replace(t, replicate=n) for t in cells for n in range(1, table["replicates"])]
    return [*trials, *extra]


def _cells(table: Mapping[str, Json]) -> dict[str, Json]:
    return {key: value for key, value in table.items() if key != "replicates"}


def _idle(section: str, line: int | None, place: Place) -> Message:
    text = f"{place.path} line {line}: this [[{section}]] matches no cell"
    return Message("W-STUDY-1", text, effect="It does nothing", fix="edgescope sweep STUDY --dry-run")


def pinned(trial: Trial, pin: Callable[[str], str]) -> Trial:
    """Return the trial with the digest of its content after each name of a model file, of data and of a measure."""
    trial = with_data(trial) if trial.data or trial.preprocess or "calibration" in trial.options else trial
    return replace(
        trial,
        model=pin(trial.model),
        precision=zoo.precision(trial.model, trial.precision),
        shapes=zoo.shapes(trial.model, trial.shapes),
        colocated=colocated_with(trial.colocated, pin),
        metric=metric_names.named(trial.metric),
    )


def with_data(trial: Trial) -> Trial:
    """Return the trial with the digest of its content after each name of data, and of what prepares them."""
    from edgescope.data import opening, preprocessing  # most trials have no data

    data, options = opening.pin(trial.data), dict(trial.options)
    if "calibration" in options:
        options["calibration"] = opening.pin(str(options["calibration"]))
    prepared = preprocessing.pinned(trial.preprocess, trial.model, data)
    return replace(trial, options=options, data=data, preprocess=prepared)


def possible(trials: Sequence[Trial], place: Place) -> None:
    """Raise UsageError, with the lines, for impossible cells; the fix is the [[exclude]] that drops them."""
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
            f"a cell is impossible: {conflict.what}",
            conflict.exclude(trial),
        )
        for conflict, trial in found.items()
    ]
    raise place.error(problems)


def _line_of(conflict: Conflict, trial: Trial, place: Place) -> tuple[str | int, ...]:
    """Return the path of the value to change: the first key of the conflict that the file sets."""
    given = [key for key in conflict.keys if key in place.data["trial"]]
    return place.value(given[0], getattr(trial, given[0])) if given else ("trial",)
