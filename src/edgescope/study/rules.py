"""Find impossible cells before the sweep starts, without importing an engine.

Facts that only the machine knows (does this CPU have bf16? does this GPU have MPS?) are not checked here: such a cell
is tried, and its Result says `unsupported` with the reason.

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
from edgescope.study import toml_lines
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
    lines: Mapping[toml_lines.Path, int]

    def line(self, at: toml_lines.Path) -> int | None:
        """Return the line of a path, or of the innermost known path around it; None if there is none."""
        known = (self.lines[at[:depth]] for depth in range(len(at), 0, -1) if at[:depth] in self.lines)
        return next(known, None)

    def name(self, at: toml_lines.Path) -> str:
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

    def _path_in(self, error: EdgescopeError, trial: Trial | None) -> toml_lines.Path:
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

    def value(self, key: str, value: object) -> toml_lines.Path:
        """Return the path of a value of a key of [trial]; for an axis, of the element with that value."""
        listed = self.data["trial"].get(key)
        if isinstance(listed, list) and value in listed:
            return ("trial", key, listed.index(value))
        return ("trial", key)


def _contains(text: str, word: str) -> bool:
    """Return whether a text contains this word."""
    return bool(word) and re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None
