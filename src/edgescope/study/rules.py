"""Cells that cannot be, found before an hour is spent on their neighbours; no engine is imported for it.

What only the machine can say (has this CPU bf16? has this GPU MPS?) is not here: such a cell is tried and its Result
says `unsupported` with the reason.

Errors of a study file, each with the line to change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgescope import registry
from edgescope.errors import EdgescopeError, UsageError
from edgescope.records import Json, Trial
from edgescope.scenarios import settings
from edgescope.study import toml_lines
from edgescope.study.schema import OPTIONS, Problem


@dataclass(frozen=True)
class Conflict:
    """Two or more keys of a cell that exclude each other."""

    keys: tuple[str, ...]
    what: str

    def exclude(self, trial: Trial) -> str:
        """Return the table that drops such cells, on one line."""
        pairs = ", ".join(f"{k} = {_written(getattr(trial, k))}" for k in self.keys)
        return f"[[exclude]] {pairs}"


def _written(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def conflicts(trial: Trial) -> Iterator[Conflict]:
    """Yield what makes this cell impossible."""
    if trial.sharing.startswith("mps") and trial.device != "cuda":
        yield Conflict(
            ("sharing", "device"), f"{trial.sharing} shares a GPU, and the device is {trial.device}"
        )
    if trial.io != "host" and trial.device != "cuda":
        what = f"io {trial.io} needs a device with memory of its own, and the device is {trial.device}"
        yield Conflict(("io", "device"), what)
    if trial.rate is not None and not registry.scenario(trial.scenario).rated:
        what = f"{trial.scenario} offers nothing at a rate: {', '.join(settings.rated())} do"
        yield Conflict(("rate", "scenario"), what)
    able = registry.about(trial.backend).PRECISIONS.get(trial.device)
    if able and trial.precision not in able:
        what = f"{trial.backend} has no {trial.precision} on {trial.device}: it has {', '.join(able)}"
        yield Conflict(("backend", "precision"), what)


#: So many further problems are told beside the first.
ALSO = 4


@dataclass(frozen=True)
class Place:
    """A study file: its tables, and the line on which each of its keys begins."""

    path: Path
    data: Mapping[str, Json]
    lines: Mapping[toml_lines.Path, int]

    def line(self, at: toml_lines.Path) -> int | None:
        """Return the line of a path, or of the nearest thing around it."""
        known = (self.lines[at[:depth]] for depth in range(len(at), 0, -1) if at[:depth] in self.lines)
        return next(known, None)

    def name(self, at: toml_lines.Path) -> str:
        """Return `study.toml line 7`."""
        line = self.line(at)
        return f"{self.path}" if line is None else f"{self.path} line {line}"

    def error(self, problems: Sequence[Problem]) -> UsageError:
        """Return the first problem as an error, the lines of the others with it."""
        ranked = sorted(problems, key=lambda p: self.line(p.at) or 0)
        first, others = ranked[0], ranked[1:]
        also = "; ".join(f"line {self.line(p.at) or 1}: {p.what}" for p in others[:ALSO])
        more = f"; and {len(others) - ALSO} more" if len(others) > ALSO else ""
        effect = f"Also {also}{more}" if others else "Nothing was measured"
        return UsageError(first.code, f"{self.name(first.at)}: {first.what}", effect=effect, fix=first.fix)

    def at_key_of(self, error: EdgescopeError, trial: Trial | None = None) -> EdgescopeError:
        """Return the error with the line of the key in [trial] that it speaks of, where it names one."""
        what = f"{self.name(self._spoken_of(error, trial))}: {error.what}"
        return type(error)(error.code, what, evidence=error.evidence, effect=error.effect, fix=error.fix)

    def _spoken_of(self, error: EdgescopeError, trial: Trial | None) -> toml_lines.Path:
        """Return the value or key that an error names in what it says, else the key that it names anywhere."""
        given: Mapping[str, Json] = self.data["trial"]
        inner = ((table, key) for table in OPTIONS for key in given.get(table, {}) if _says(error.what, key))
        if (found := next(inner, None)) is not None and not any(_says(error.what, key) for key in given):
            return ("trial", *found)
        values = {key: getattr(trial, key, None) for key in given}
        named = [key for key in given if _says(error.what, key)]
        said = [key for key, value in values.items() if isinstance(value, str) and _says(error.what, value)]
        both = [key for key in named if key in said]
        words = f"{error.what} {error.evidence} {error.fix}"
        for key in (*both, *named, *said, *(key for key in given if _says(words, key))):
            return self.value(key, values[key])
        return ("trial",)

    def value(self, key: str, value: object) -> toml_lines.Path:
        """Return the path of one value of a key of [trial]: of an axis its element."""
        listed = self.data["trial"].get(key)
        if isinstance(listed, list) and value in listed:
            return ("trial", key, listed.index(value))
        return ("trial", key)


def _says(text: str, word: str) -> bool:
    """Whether a text has this word."""
    return bool(word) and re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None
