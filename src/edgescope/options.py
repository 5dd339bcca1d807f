"""Options that a workload or a scenario declares: name, default, and what each may be. They are checked here."""

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


def settled(given: Mapping[str, Scalar], known: Mapping[str, Option]) -> dict[str, Scalar]:
    """Return the options as a Trial carries them, so that one question has one spelling.

    Defaults are left out, 15 of a number is 15.0 and of a text "15", and a file's name is pinned by its content.
    UsageError where a file cannot be read. What is wrong otherwise is left for `read` to say.
    """
    found = {name: _settled(value, known.get(name)) for name, value in given.items()}
    return {name: value for name, value in found.items() if name not in known or value != known[name].default}


def _settled(value: Scalar, option: Option | None) -> Scalar:
    if option is None:
        return value
    if option.file and value:
        return _pin(str(value))
    if type(value) in (int, float) and type(option.default) is str:
        return f"{value:g}"
    return float(value) if type(option.default) is float and type(value) is int else value


def _pin(name: str) -> str:
    bare = PIN.sub("", name)
    try:
        if not Path(bare).is_file():  # a device would be read for ever
            raise OSError("not a regular file" if Path(bare).exists() else "no such file")
        return f"{bare}#{cache.content(Path(bare))[:12]}"
    except (OSError, ValueError) as error:
        raise UsageError("E-OPTION-3", f"the file {bare!r} cannot be read", evidence=str(error)) from error


def unpinned(name: str) -> Path:
    """Return the file that an option names; UsageError where its content is not what it was pinned with."""
    bare, found = PIN.sub("", name), PIN.search(name)
    if found and _pin(bare) != name:
        raise UsageError(
            "E-OPTION-4",
            f"{bare} is not the file this trial was planned with",
            evidence=f"content {_pin(bare)[-12:]}, planned {name[-12:]}",
            effect="Its numbers would be filed under another input",
            fix=f"plan again with {bare}",
        )
    return Path(bare)


def read(
    name: str, given: Mapping[str, Scalar], known: Mapping[str, Option], of: str = "workload"
) -> dict[str, Any]:
    """Return every option of `known`, those not `given` with their defaults.

    `name` is that of the workload or scenario, `of` which of the two it is. UsageError for an option that it does
    not have, or a value that the option cannot have.
    """
    unknown = sorted(set(given) - set(known))
    if unknown:
        listing = "; ".join(f"{key}: {option.text} ({option.default})" for key, option in known.items())
        close = [f"--{of}-option {c}={given[u]}" for u in unknown if (c := meant(u, known))]
        raise UsageError(
            "E-OPTION-1",
            f"{name} has no option {', '.join(unknown)}",
            evidence=f"it has {listing}" if known else "it has none",
            fix=" ".join(close),
        )
    problems = (known[key].problem(key, value) for key, value in given.items())
    if problem := next(filter(None, problems), ""):
        raise UsageError("E-OPTION-2", problem, evidence=f"an option of the {of} {name}")
    return {key: given.get(key, option.default) for key, option in known.items()}
