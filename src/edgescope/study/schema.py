"""The sections and keys of a study.toml, and the kind of value of each key.

    [store]       path
    [trial]       the keys of a Trial, `replicates`, and tables `options` and `shapes`; a list makes an axis
    [sweep]       how it is run: the keys of SWEEP
    [[exclude]]   keys of a Trial: cells that match all of them are dropped; a list matches any of its values
    [[replicate]] likewise, and `replicates`: fresh processes of the cells that match
    [objective]   name
    [[constraint]] bound

A file is checked before anything is built from it, so that a mistake is reported with its line and the closest known
word, not by an error that it causes later. tomllib does not report lines, so `toml_lines` finds those of every key and
value; it follows the grammar (toml.io/en/v1.0.0) for comments, the four kinds of strings, multi-line arrays and inline
tables, so text inside them is never taken for a key.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from edgescope import registry
from edgescope.analysis.cells import objective
from edgescope.errors import UsageError, closest_name
from edgescope.records import TABLES, Json, Trial

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: Names of tables and keys, and numbers of array elements, from the top of the file down.
Path = tuple[str | int, ...]


TEXT, WHOLE, NUMBER, TIME, SWITCH, TABLE = (
    "text",
    "a whole number",
    "a number",
    "a time",
    "true or false",
    "a table",
)
_OF = {"str": TEXT, "int": WHOLE, "int | None": WHOLE, "float": NUMBER, "float | None": NUMBER}
#: Keys of a Trial that no study has: a sweep numbers `replicate` itself, and measures every cell alone, not in turns.
_OURS = ("replicate", "turn_s")
#: Key of a Trial -> kind of its value.
TRIAL: Mapping[str, str] = {
    f.name: _OF.get(str(f.type), TABLE) for f in dataclasses.fields(Trial) if f.name not in _OURS
}
#: Keys of [trial] that are tables of options; their lists are axes, too.
OPTIONS = TABLES
SWEEP: Mapping[str, str] = {
    "cooldown": TIME,
    "cooldown_c": NUMBER,
    "order_seed": WHOLE,
    "timeout": TIME,
    "memory_floor": NUMBER,
    "reuse_workers": SWITCH,
    "prune": SWITCH,
}
SECTIONS: Mapping[str, Mapping[str, str]] = {
    "store": {"path": TEXT},
    "trial": {**TRIAL, "replicates": WHOLE},
    "sweep": SWEEP,
    "exclude": TRIAL,
    "replicate": {**TRIAL, "replicates": WHOLE},
    "objective": {"name": TEXT},
    "constraint": {"bound": TEXT},
    "board": {"on": TEXT, "price": NUMBER},
}
#: Sections that are arrays of tables, written [[so]].
MANY = ("exclude", "replicate", "constraint", "board")
#: Sections whose values may be lists.
LISTED = ("trial", "exclude", "replicate")
EXAMPLES = {"replicates": "replicates = 3", "bound": 'bound = "p99<=33ms"', "on": 'on = "ssh://user@nano"'}
_TIME = re.compile(r"\d+(\.\d+)?(ms|s|m|min)?")
_FAMILIES = {
    "backend": registry.BACKENDS,
    "workload": registry.WORKLOADS,
    "scenario": registry.SCENARIOS,
}


@dataclass(frozen=True)
class Problem:
    """One mistake in a study: its path, what is wrong, and the fix."""

    at: Path
    code: str
    what: str
    fix: str = ""


def problems(data: Mapping[str, Json]) -> list[Problem]:
    """Return the mistakes in the tables of a study, in the order of its sections."""
    found = [p for name, section in data.items() for p in _section(name, section)]
    if "trial" not in data:
        found.insert(0, Problem((), "E-STUDY-5", "there is no section [trial]", '[trial] with model = "..."'))
    elif isinstance(data["trial"], Mapping) and "model" not in data["trial"]:
        found.append(Problem(("trial",), "E-STUDY-5", "[trial] names no model", 'model = "resnet50"'))
    return found


def _section(name: str, section: Json) -> Iterator[Problem]:
    if name not in SECTIONS:
        where = _owner(name)
        what = (
            f"there is no section [{name}]"
            if isinstance(section, Mapping | list)
            else f"{name} is outside of any section"
        )
        yield Problem((name,), "E-STUDY-5", what, where or _nearest(name, SECTIONS))
    elif name in MANY:
        if not isinstance(section, list) or not all(isinstance(t, Mapping) for t in section):
            yield Problem((name,), "E-STUDY-11", f"{name} is a table that may be repeated", f"[[{name}]]")
            return
        for number, table in enumerate(section):
            yield from _keys(name, (name, number), table)
            yield from _whole_table(name, (name, number), table)
    elif not isinstance(section, Mapping):
        yield Problem((name,), "E-STUDY-11", f"{name} must be a table, not {_shown(section)}", f"[{name}]")
    else:
        yield from _keys(name, (name,), section)


def _whole_table(name: str, at: Path, table: Mapping[str, Json]) -> Iterator[Problem]:
    """Yield the missing keys of a repeated table."""
    needed = {"replicate": "replicates", "constraint": "bound", "board": "on"}.get(name)
    if needed and needed not in table:
        example = EXAMPLES[needed]
        yield Problem(at, "E-STUDY-11", f"[[{name}]] needs {needed}", example)
    elif not set(table) - {needed} and name in LISTED:
        yield Problem(at, "E-STUDY-11", f"[[{name}]] names no cells", 'precision = "int8"')


def _owner(name: str) -> str:
    """Return the fix for a key outside of any section, or '' if its section is not known."""
    return next((f"move it below [{s}]" for s in ("trial", "sweep") if name in SECTIONS[s]), "")


def _keys(section: str, at: Path, table: Mapping[str, Json]) -> Iterator[Problem]:
    known = SECTIONS[section]
    title = f"[[{section}]]" if section in MANY else f"[{section}]"
    for key, value in table.items():
        if key not in known:
            fix = _nearest(key, known, fallback=_elsewhere(section, key))
            yield Problem((*at, key), "E-STUDY-10", f"{title} has no key {key!r}", fix)
        elif known[key] == TABLE:
            yield from _inner(key, (*at, key), value)
        else:
            yield from _values(section, key, (*at, key), value)


def _elsewhere(section: str, key: str) -> str:
    """Return the fix for a key that this section does not have, or '' if its section is not known."""
    owner = next((f"move it below [{s}]" for s, keys in SECTIONS.items() if key in keys), "")
    text = f"[trial.options] {key} = ..., if it is the backend's; [trial.workload_options], if the workload's"
    return owner or (text if section == "trial" else "")


def _values(section: str, key: str, at: Path, value: Json) -> Iterator[Problem]:
    """Yield the mistakes in a value, or in each element of an axis."""
    kind = SECTIONS[section][key]
    if not isinstance(value, list):
        yield from _value(section, key, at, value)
    elif section not in LISTED or key == "replicates":
        yield Problem(at, "E-STUDY-11", f"{key} takes one value, not a list", f"{key} = {kind}")
    elif not value:
        what = f"the axis {key} is empty" if section == "trial" else f"{key} = [] matches nothing"
        yield Problem(at, "E-STUDY-2", what, "a value, or leave the key out")
    else:
        for number, element in enumerate(value):
            yield from _value(section, key, (*at, number), element)


def _value(section: str, key: str, at: Path, value: Json) -> Iterator[Problem]:
    kind = SECTIONS[section][key]
    if not _fits(kind, value):
        yield Problem(
            at, "E-STUDY-11", f"{key} must be {kind}, not {_shown(value)}", _reading(kind, value, key)
        )
    elif key == "replicates" and value < 1:
        yield Problem(at, "E-STUDY-1", f"replicates must be at least 1, not {value}")
    elif section == "sweep":
        if key == "timeout" and str(value).strip("0.smin") == "":
            yield Problem(at, "E-STUDY-11", f"{key} must be above 0, not {_shown(value)}", '"15min"')
        if kind == NUMBER and value < 0:
            yield Problem(at, "E-STUDY-11", f"{key} must not be negative, not {value}")
    elif section in ("objective", "constraint"):
        yield from _unreadable(section, at, str(value))
    elif key in _FAMILIES:
        if value not in _FAMILIES[key]:
            what = f"no {key} is called {value!r}"
            yield Problem(at, "E-NAME-1", what, _nearest(value, _FAMILIES[key]))
    elif key in TRIAL:
        yield from _alone(key, at, value)


def _alone(key: str, at: Path, value: Json) -> Iterator[Problem]:
    """Yield the error that a Trial raises for this value, with all other keys at their defaults."""
    if key in ("min_s", "max_s"):  # checked together later, with the cell
        if value < 0:
            yield Problem(at, "E-STUDY-11", f"{key} must not be negative, not {value}")
        return
    try:
        Trial.from_json({"model": "null"} | {key: value})
    except UsageError as error:
        yield Problem(at, "E-STUDY-11", error.what)


def _unreadable(section: str, at: Path, value: str) -> Iterator[Problem]:
    """Yield why an objective or a bound cannot be read."""
    try:
        if section == "objective":
            objective.goal(value)
        else:
            objective.parse(value)
    except UsageError as error:
        fix = _nearest(value, objective.OBJECTIVES) if section == "objective" else 'bound = "p99<=33ms"'
        yield Problem(at, error.code, f"{value!r} is no {section}: {error.evidence}", fix)


def _inner(key: str, at: Path, value: Json) -> Iterator[Problem]:
    """Yield the mistakes in the tables options and shapes."""
    if not isinstance(value, Mapping):
        yield Problem(
            at, "E-STUDY-8", f"{key} must be a table of keys, not {_shown(value)}", f"[trial.{key}]"
        )
        return
    for name, inner in value.items():
        if inner == []:
            yield Problem(
                (*at, name), "E-STUDY-2", f"the axis {name} is empty", "a value, or leave the key out"
            )
        elif key == "shapes" and not (
            isinstance(inner, list) and all(_fits(WHOLE, n) and n > 0 for n in inner)
        ):
            what = f"the shape of {name} must be a list of whole numbers, not {_shown(inner)}"
            yield Problem((*at, name), "E-STUDY-11", what, f"{name} = [1, 3, 224, 224]")
        elif any(isinstance(v, Mapping | list) for v in (inner if isinstance(inner, list) else [inner])):
            what = f"{name} must be a text, a number, true or false, or a list of them, not {_shown(inner)}"
            yield Problem((*at, name), "E-STUDY-11", what)


def _fits(kind: str, value: Json) -> bool:
    if isinstance(value, bool):
        return kind == SWITCH
    if kind == TIME:
        return (isinstance(value, int | float) and value >= 0) or (
            isinstance(value, str) and _TIME.fullmatch(value.strip()) is not None
        )
    types: Mapping[str, tuple[type, ...]] = {
        TEXT: (str,),
        WHOLE: (int,),
        NUMBER: (int, float),
    }
    return isinstance(value, types.get(kind, ()))


def _reading(kind: str, value: Json, key: str) -> str:
    """Return the probable correction of a value of the wrong kind, or '' if there is none."""
    if kind == TEXT and isinstance(value, int | float) and not isinstance(value, bool):
        return f'{key} = "{value}"'
    if kind in (WHOLE, NUMBER) and isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?", value):
        return f"{key} = {value}, without quotes"
    if kind == SWITCH and str(value).lower() in ("true", "false", "0", "1"):
        return f"{key} = {'true' if str(value).lower() in ('true', '1') else 'false'}, without quotes"
    return {TIME: f'{key} = 2.0 or "15min"', SWITCH: f"{key} = true"}.get(kind, "")


def _shown(value: Json) -> str:
    text = {True: "true", False: "false"}.get(value, "") if isinstance(value, bool) else repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _nearest(name: str, known: Mapping[str, object], *, fallback: str = "") -> str:
    """Return the known word closest to `name`; where none is close the fallback, or all of them."""
    return closest_name(str(name), known) or fallback or f"one of {', '.join(sorted(known))}"


_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"""(?:""?(?!"))?'  # up to two quotes may stand right before the closing three
    r"|'''.*?'''(?:''?(?!'))?"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BARE_VALUE = re.compile(r"[^,\]}#\n]+")


def toml_lines(text: str) -> Mapping[Path, int]:
    """Return path -> line (from 1) of every table, key and array element of a text that tomllib has read before."""
    return _Walk(text).found


class _Walk:
    """One walk through a text; `at` is the position, `found` the lines so far."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.counted, self.line = 0, 1
        self.found: dict[Path, int] = {}
        self.tables: dict[Path, int] = {}
        """Array of tables -> number of its [[headers]] so far."""
        inside: Path = ()
        while self._skip():
            inside = self._header() if self._sees("[") else self._pair(inside)

    def _skip(self) -> bool:
        """Pass spaces, line ends and comments; return False at the end of the text."""
        match = _SPACE.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.at < len(self.text)

    def _sees(self, mark: str) -> bool:
        """Pass `mark` if it is next; return whether it was."""
        there = self.text.startswith(mark, self.at)
        self.at += len(mark) * there
        return there

    def _note(self, path: Path) -> None:
        """Record the current line for a path, unless it has one."""
        self.line += self.text.count("\n", self.counted, self.at)
        self.counted = self.at
        self.found.setdefault(path, self.line)

    def _header(self) -> Path:
        """Pass the rest of `[a.b]` or `[[a.b]]` after its first bracket; return the path of the table it opens."""
        several = self._sees("[")
        path: Path = ()
        names = self._key()
        for name in names[:-1]:
            path = self._latest((*path, name))
            self._note(path)
        path = (*path, names[-1])
        self._note(path)
        if several:
            self.tables[path] = self.tables.get(path, 0) + 1
            path = self._latest(path)
            self._note(path)
        else:
            path = self._latest(path)
        self._skip()
        self._sees("]]" if several else "]")
        return path

    def _latest(self, path: Path) -> Path:
        """Return the path; for an array of tables, the path of its newest element."""
        return (*path, self.tables[path] - 1) if path in self.tables else path

    def _key(self) -> list[str]:
        """Pass a dotted key; return its parts."""
        parts = []
        while True:
            self._skip()
            quoted = _STRING.match(self.text, self.at)
            match = quoted or _BARE_KEY.match(self.text, self.at)
            if match is None:
                raise ValueError(f"no key at {self.text[self.at : self.at + 20]!r}: the text is not TOML")
            self.at = match.end()
            parts.append(tomllib.loads(f"k={match[0]}")["k"] if quoted else match[0])
            self._skip()
            if not self._sees("."):
                return parts

    def _pair(self, inside: Path) -> Path:
        """Pass `key = value` in the table at `inside`; return `inside`."""
        self._skip()
        before = self.at
        names, after = self._key(), self.at
        self.at = before  # the line is where the key begins
        for depth in range(1, len(names) + 1):
            self._note((*inside, *names[:depth]))
        self.at = after
        self._sees("=")
        self._value((*inside, *names))
        return inside

    def _value(self, path: Path) -> None:
        """Pass one value; record the paths inside it."""
        self._skip()
        self._note(path)
        if self._sees("["):
            index = 0
            while self._skip() and not self._sees("]"):
                self._value((*path, index))
                index += 1
                self._skip()
                self._sees(",")
        elif self._sees("{"):
            while self._skip() and not self._sees("}"):
                self._pair(path)
                self._skip()
                self._sees(",")
        else:
            match = _STRING.match(self.text, self.at) or _BARE_VALUE.match(self.text, self.at)
            self.at = match.end() if match else self.at + 1
