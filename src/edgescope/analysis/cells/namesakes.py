"""What tells cells of one label apart: `4 s` against `1 s`, for a table that holds both.

A label leaves out how long a trial measured, and more that most tables have in common. Rows that would have the same
name get what differs between them in brackets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from edgescope.records import Json, Trial
from edgescope.units import fact, lasting

WORDS: Mapping[str, Callable[[Json], str]] = {
    "turn_s": lambda s: "alone" if s is None else "in turns",
    "max_s": lambda s: f"{s:g} s" if s < 99.5 else lasting(s),
    "warmup": lambda s: "warm-up as it needs" if s is None else f"warm-up {s:g} s",
}
"""Field -> its words, in the order in which they are said; other fields say their name and value."""
IMPLIED = {"turn_s": ("max_s", "min_s", "warmup", "max_queries", "rel_width"), "max_s": ("min_s",)}
"""Field -> those that mostly differ with it, and that tell nothing more if it tells the rows apart."""


def told_apart(labels: Mapping[str, tuple[str, Trial]]) -> dict[str, str]:
    """Return cell -> what differs from the cells of the same label, '' for a label that stands once."""
    groups: dict[str, dict[str, Trial]] = {}
    for cell, (label, trial) in labels.items():
        groups.setdefault(label, {})[cell] = trial
    found: dict[str, str] = {}
    for trials in groups.values():
        found |= _apart(trials) if len(trials) > 1 else dict.fromkeys(trials, "")
    return found


def _apart(trials: Mapping[str, Trial]) -> dict[str, str]:
    """Return cell -> the fields that differ within this group, without those that others imply."""
    plain = {cell: trial.to_json() for cell, trial in trials.items()}
    first = next(iter(plain.values()))
    differ = [n for n in first if n != "replicate" and any(p[n] != first[n] for p in plain.values())]
    named = [n for n in WORDS if n in differ] + [n for n in differ if n not in WORDS]
    for lead, others in IMPLIED.items():
        fewer = [n for n in named if n not in others]
        if lead in named and _all_differ(plain.values(), fewer):
            named = fewer
    return {cell: ", ".join(_words(n, p[n]) for n in named) for cell, p in plain.items()}


def _all_differ(plain: Iterable[Mapping[str, Json]], names: list[str]) -> bool:
    """Return whether no two have the same values of these fields."""
    values = [repr([p[n] for n in names]) for p in plain]
    return len(set(values)) == len(values)


def _words(name: str, value: Json) -> str:
    if name in WORDS:
        return WORDS[name](value)
    return f"{name} {'none' if value is None else fact(value)}"
