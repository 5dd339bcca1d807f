"""Options that a workload or a scenario declares: name, default and allowed values. They are checked here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgescope import cache
from edgescope.errors import UsageError, known_names, near_names
from edgescope.records import Scalar


@dataclass(frozen=True)
class Option:
    """One option; the type of its default is the type of its values (bool, int, float or text)."""

    default: Scalar
    text: str
    choices: Sequence[str] = ()
    least: float | None = None
    file: bool = False
    """Whether it names a file, whose content belongs to the trial (`clip.mp4#0123456789ab` once pinned)."""
    scheme: bool = False
    """For a file: `scheme:NAME` is allowed too, where NAME may be a file or a stream, which has no content to pin."""
    weights: bool = False
    """Whether it names a network; a file of weights after an @ belongs to the trial (`rtfm@head.pth#0123456789ab`)."""

    def problem(self, name: str, value: Scalar) -> str:
        """Return what is wrong with a value, or '' if nothing is."""
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
    """Return the options in the form that a Trial stores, so that equal trials have equal options.

    Defaults are left out; 15 becomes 15.0 for a number option and "15" for a text option; a file's name is pinned by
    its content. Raises UsageError if a file cannot be read; `read` reports all other errors.
    """
    found = {name: _settled(value, known.get(name)) for name, value in given.items()}
    return {name: value for name, value in found.items() if name not in known or value != known[name].default}


def _settled(value: Scalar, option: Option | None) -> Scalar:
    if option is None:
        return value
    if option.weights and "@" in str(value):
        network, _, file = str(value).partition("@")
        return f"{network}@{pinned(file)}"
    if option.file and value:
        scheme, rest = parted(str(value)) if option.scheme else ("", str(value))
        return str(value) if scheme and not Path(PIN.sub("", rest)).is_file() else scheme + pinned(rest)
    if type(value) in (int, float) and type(option.default) is str:
        return f"{value:g}"
    return float(value) if type(option.default) is float and type(value) is int else value


SCHEME = re.compile(r"([a-z][a-z0-9_]+:(?!//)|[a-z]+://|/dev/video)")


def parted(name: str) -> tuple[str, str]:
    """Return (`nvdec:`, `clip.mp4`) for `nvdec:clip.mp4`; the first is '' for a plain file."""
    found = SCHEME.match(name)
    return (found[0], name[found.end() :]) if found else ("", name)


def pinned(name: str) -> str:
    """Return a file's name with the digest of its content; UsageError if it cannot be read."""
    bare = PIN.sub("", name)
    try:
        if not Path(bare).is_file():  # reading a device would never end
            raise OSError("not a regular file" if Path(bare).exists() else "no such file")
        return f"{bare}#{cache.content(Path(bare))[:12]}"
    except (OSError, ValueError) as error:
        raise UsageError("E-OPTION-3", f"the file {bare!r} cannot be read", evidence=str(error)) from error


def unpinned(name: str) -> Path:
    """Return the file that an option names; UsageError if its content differs from the pinned content."""
    bare, found = PIN.sub("", name), PIN.search(name)
    if found and pinned(bare) != name:
        raise UsageError(
            "E-OPTION-4",
            f"{bare} is not the file this trial was planned with",
            evidence=f"content {pinned(bare)[-12:]}, planned {name[-12:]}",
            effect="Its numbers would be filed under another input",
            fix=f"plan again with {bare}",
        )
    return Path(bare)


def read(
    name: str, given: Mapping[str, Scalar], known: Mapping[str, Option], of: str = "workload"
) -> dict[str, Any]:
    """Return every option of `known`: the `given` value, or the default.

    `name` names the workload or scenario, `of` says which of the two it is. Raises UsageError for an unknown option
    and for a value that the option does not allow.
    """
    unknown = sorted(set(given) - set(known))
    if unknown:
        near = {u: names[0] for u in unknown if (names := meant(u, given[u], known))}
        raise UsageError(
            "E-OPTION-1",
            f"{name} has no option {', '.join(unknown)}",
            evidence=known_names(known, near.values()) if known else "it has none",
            fix=" ".join(f"--{of}-option {option}={given[u]}" for u, option in near.items()),
        )
    problems = (known[key].problem(key, value) for key, value in given.items())
    if problem := next(filter(None, problems), ""):
        raise UsageError("E-OPTION-2", problem, evidence=f"an option of the {of} {name}")
    return {key: given.get(key, option.default) for key, option in known.items()}


FILE = re.compile(r"(.*/)?[^/=]+\.[A-Za-z]\w{1,5}|/dev/\w+|[a-z]+:.+|.+/.+")
"""A value that names a file, a folder, a device or a stream."""


def meant(unknown: str, value: Scalar, known: Mapping[str, Option]) -> list[str]:
    """Return the options that an unknown one may stand for, the likeliest first: they must take its value.

    A file's name is meant for an option that names a file, however that is spelt: `video=clip.mp4` is `source`.
    """
    able = {name: option for name, option in known.items() if not _settled_problem(option, name, value)}
    files = [name for name, option in able.items() if option.file]
    if isinstance(value, str) and FILE.fullmatch(value):
        return [*near_names(unknown, files), *files]
    return near_names(unknown, able) or near_names(unknown, known)


def _settled_problem(option: Option, name: str, value: Scalar) -> str:
    """Return what is wrong with a value as a command line gives it, where 15 may be a text."""
    text = type(value) in (int, float) and type(option.default) is str
    return option.problem(name, str(value) if text else value)
