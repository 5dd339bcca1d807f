"""Options that a workload declares: name, default and what it may be; read from a Trial, checked in one place."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgescope import cache
from edgescope.errors import UsageError, meant
from edgescope.records import Scalar


@dataclass(frozen=True)
class Option:
    """One option: its default decides its kind (bool, int, float or text)."""

    default: Scalar
    text: str
    choices: Sequence[str] = ()
    least: float | None = None
    file: bool = False
    """Whether it names a file, whose content belongs to the trial (`clip.mp4#0123456789ab` once pinned)."""

    def problem(self, name: str, value: Scalar) -> str:
        """Return what is wrong with a value, '' where nothing is."""
        kind = type(self.default)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if type(value) is not kind:
            return f"{name} must be {_KINDS[kind]}, not {value!r}"
        if self.choices and value not in self.choices:
            return f"{name} must be one of {', '.join(self.choices)}, not {value!r}"
        if self.least is not None and not value >= self.least:  # type: ignore[operator]
            return f"{name} must be at least {self.least:g}, not {value!r}"
        return ""


PIN = re.compile(r"#[0-9a-f]{12}$")
_KINDS: Mapping[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
}


def pinned(given: Mapping[str, Scalar], known: Mapping[str, Option]) -> dict[str, Scalar]:
    """Return the options with each file that one of them names pinned by its content.

    UsageError where a file cannot be read. What is wrong otherwise is left for `read` to say.
    """
    return {
        name: _pin(str(value)) if value and name in known and known[name].file else value
        for name, value in given.items()
    }


def _pin(name: str) -> str:
    bare = PIN.sub("", name)
    try:
        return f"{bare}#{cache.content(Path(bare))[:12]}"
    except OSError as error:
        raise UsageError("E-WORK-4", f"the file {bare} cannot be read", evidence=str(error)) from error


def unpinned(name: str) -> Path:
    """Return the file that an option names; UsageError where its content is not what it was pinned with."""
    bare, found = PIN.sub("", name), PIN.search(name)
    if found and _pin(bare) != name:
        raise UsageError(
            "E-WORK-5",
            f"{bare} is not the file this trial was planned with",
            evidence=f"content {_pin(bare)[-12:]}, planned {name[-12:]}",
            effect="Its numbers would be filed under another input",
            fix=f"plan again with {bare}",
        )
    return Path(bare)


def read(workload: str, given: Mapping[str, Scalar], known: Mapping[str, Option]) -> dict[str, Any]:
    """Return every option of `known`, those not `given` with their defaults.

    UsageError for an option that the workload has not, or a value that it cannot have.
    """
    unknown = sorted(set(given) - set(known))
    if unknown:
        listing = "; ".join(f"{name}: {option.text} ({option.default})" for name, option in known.items())
        close = [f"--workload-option {c}={given[u]}" for u in unknown if (c := meant(u, known))]
        raise UsageError(
            "E-WORK-1",
            f"{workload} has no option {', '.join(unknown)}",
            evidence=f"it has {listing}" if known else "it has none",
            fix=" ".join(close),
        )
    problems = (known[name].problem(name, value) for name, value in given.items())
    if problem := next(filter(None, problems), ""):
        raise UsageError("E-WORK-2", problem, evidence=f"an option of the workload {workload}")
    return {name: given.get(name, option.default) for name, option in known.items()}
