"""Find impossible cells before the sweep starts, without importing an engine.

The numbers of a Trial and its limits have ranges, each with its reason. New trials are checked, stored ones are not:
results of any range stay readable. Keys may exclude each other. Facts that only the machine knows (does this CPU have
bf16? does this GPU have MPS?) are not checked here: such a cell is tried, and its Result says `unsupported` with the
reason.

Place makes the errors of a study file, each with the line to change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgescope import registry
from edgescope.errors import EdgescopeError, UsageError
from edgescope.records import Json, Trial
from edgescope.scenarios.base import rated
from edgescope.study import schema
from edgescope.study.schema import OPTIONS, Problem


@dataclass(frozen=True)
class Conflict:
    """Keys of a cell whose values exclude each other."""

    keys: tuple[str, ...]
    what: str

    def exclude(self, trial: Trial) -> str:
        """Return the [[exclude]] table that drops such cells, on one line."""
        pairs = ", ".join(f"{k} = {_written(getattr(trial, k))}" for k in self.keys)
        return f"[[exclude]] {pairs}"


def _written(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def conflicts(trial: Trial) -> Iterator[Conflict]:
    """Yield the conflicts that make this cell impossible."""
    if trial.sharing.partition("=")[0] not in trial.place.sharing:
        yield Conflict(
            ("sharing", "device"), f"{trial.sharing} shares a GPU, and the device is {trial.device}"
        )
    if trial.io != "host" and not trial.place.own_memory:
        what = f"io {trial.io} needs a device with its own memory, and the device is {trial.device}"
        yield Conflict(("io", "device"), what)
    if trial.rate is not None and not registry.scenario(trial.scenario).rated:
        what = f"{trial.scenario} takes no rate; {', '.join(rated())} do"
        yield Conflict(("rate", "scenario"), what)
    able = registry.about(trial.backend).PRECISIONS.get(trial.device)
    as_it_is = trial.precision == "as_is" and "onnx" in registry.about(trial.backend).READS
    if able and trial.precision not in able and not as_it_is:
        what = f"{trial.backend} has no {trial.precision} on {trial.device}: it has {', '.join(able)}"
        yield Conflict(("backend", "precision"), what)


#: Number of further problems that are reported with the first.
ALSO = 4


@dataclass(frozen=True)
class Place:
    """A study file: its tables, and the line on which each of its keys begins."""

    path: Path
    data: Mapping[str, Json]
    lines: Mapping[schema.Path, int]

    def line(self, at: schema.Path) -> int | None:
        """Return the line of a path, or of the innermost known path around it; None if there is none."""
        known = (self.lines[at[:depth]] for depth in range(len(at), 0, -1) if at[:depth] in self.lines)
        return next(known, None)

    def name(self, at: schema.Path) -> str:
        """Return `study.toml line 7`."""
        line = self.line(at)
        return f"{self.path}" if line is None else f"{self.path} line {line}"

    def error(self, problems: Sequence[Problem]) -> UsageError:
        """Return the error for the first problem, with the lines of the others."""
        ranked = sorted(problems, key=lambda p: self.line(p.at) or 0)
        first, others = ranked[0], ranked[1:]
        also = "; ".join(f"line {self.line(p.at) or 1}: {p.what}" for p in others[:ALSO])
        more = f"; and {len(others) - ALSO} more" if len(others) > ALSO else ""
        effect = f"Also {also}{more}" if others else "Nothing was measured"
        return UsageError(first.code, f"{self.name(first.at)}: {first.what}", effect=effect, fix=first.fix)

    def at_key_of(self, error: EdgescopeError, trial: Trial | None = None) -> EdgescopeError:
        """Return the error with the line of the key in [trial] that it names, if it names one."""
        what = f"{self.name(self._path_in(error, trial))}: {error.what}"
        return type(error)(error.code, what, evidence=error.evidence, effect=error.effect, fix=error.fix)

    def _path_in(self, error: EdgescopeError, trial: Trial | None) -> schema.Path:
        """Return the path of the value or key that the error's text names, else of a key in its evidence or fix."""
        given: Mapping[str, Json] = self.data["trial"]
        inner = (
            (table, key) for table in OPTIONS for key in given.get(table, {}) if _contains(error.what, key)
        )
        if (found := next(inner, None)) is not None and not any(_contains(error.what, key) for key in given):
            return ("trial", *found)
        values = {key: getattr(trial, key, None) for key in given}
        by_key = [key for key in given if _contains(error.what, key)]
        by_value = [
            key for key, value in values.items() if isinstance(value, str) and _contains(error.what, value)
        ]
        both = [key for key in by_key if key in by_value]
        text = f"{error.what} {error.evidence} {error.fix}"
        for key in (*both, *by_key, *by_value, *(key for key in given if _contains(text, key))):
            return self.value(key, values[key])
        return ("trial",)

    def value(self, key: str, value: object) -> schema.Path:
        """Return the path of a value of a key of [trial]; for an axis, of the element with that value."""
        listed = self.data["trial"].get(key)
        if isinstance(listed, list) and value in listed:
            return ("trial", key, listed.index(value))
        return ("trial", key)


def _contains(text: str, word: str) -> bool:
    """Return whether a text contains this word."""
    return bool(word) and re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None


#: A load generator's clock resolves a microsecond; each arrival is stored as a row of 50 bytes.
MOST_RATE, MOST_ROWS = 1e6, 1e8
MOST_PROCESSES, MOST_IN_FLIGHT, MOST_THREADS = 256, 1024, 1024
SHORTEST_S, LONGEST_S = 0.001, 7 * 86400.0
#: A shorter soak cannot distinguish burst from sustained performance (analysis.run.slowdowns).
SHORTEST_SOAK_S = 60.0


def in_range(trial: Trial) -> Trial:
    """Return the trial if its numbers are in range; UsageError with the flag, the range and the reason otherwise."""
    for ok, what, why in _range_rules(trial):
        if not ok:
            raise _outside(what, why)
    return trial


def _range_rules(t: Trial) -> Iterator[tuple[bool, str, str]]:
    """Yield (whether the rule holds, the rule, its reason)."""
    yield (
        SHORTEST_S <= t.max_s <= LONGEST_S,
        f"the window (--duration, max_s) must last 1ms to 7 days, not {t.max_s:g} s",
        "a shorter window holds no query",
    )
    rows = 0.0 if t.rate is None else t.rate * t.max_s
    yield (
        t.rate is None or t.rate <= MOST_RATE,
        f"rate must be at most {MOST_RATE:g} queries/s, not {t.rate or 0:g}",
        "the clock resolves no shorter time between two queries",
    )
    yield (
        rows <= MOST_ROWS,
        f"rate {t.rate or 0:g}/s over {t.max_s:g} s is {rows:.0e} queries, more than {MOST_ROWS:.0e}",
        "each query is stored as a row",
    )
    yield (
        t.processes <= MOST_PROCESSES,
        f"processes must be at most {MOST_PROCESSES}, not {t.processes}",
        "each process holds an engine and a copy of the model",
    )
    yield (
        t.in_flight <= MOST_IN_FLIGHT,
        f"in_flight must be at most {MOST_IN_FLIGHT}, not {t.in_flight}",
        "each query in flight is a thread",
    )
    threads = t.options.get("threads", 1)
    yield (
        not isinstance(threads, int | float) or 0 <= threads <= MOST_THREADS,
        f"threads must lie between 0 and {MOST_THREADS}, not {threads}",
        "more threads than cores only wait for each other",
    )


def limits(timeout_s: float, floor_mb: float | None, soak_s: float | None) -> None:
    """Raise UsageError for limits under which no trial can succeed."""
    rules = (
        (timeout_s > 0, f"--timeout must be above 0, not {timeout_s:g}s", "every trial would be stopped"),
        (
            floor_mb is None or 0 <= floor_mb < float("inf"),
            f"--memory-floor must be 0 MB or more, not {floor_mb or 0:g}",
            "free memory is never negative; leave the flag out for the default floor",
        ),
        (
            soak_s is None or soak_s >= SHORTEST_SOAK_S,
            f"--soak must be at least {SHORTEST_SOAK_S:g}s, not {soak_s or 0:g}s",
            "a shorter window cannot settle; --duration sets a shorter window",
        ),
    )
    for ok, what, why in rules:
        if not ok:
            raise _outside(what, why)


def _outside(what: str, why: str) -> UsageError:
    return UsageError("E-RANGE-1", what, evidence=why, effect="Nothing was measured")
