"""The table of published figures: its columns, what each figure is, and which are asked for.

Figures and settings are facts of their sources, which each row names with the revision that was read. A row has a
licence that permits it. docs/how-to/public.md says how to add one.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from edgescope.errors import UsageError, closest_name, known_names

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
SCALE = {"ms": ("s", 1e-3), "s": ("s", 1.0), "FPS": ("samples/s", 1.0), "tokens/s": ("tokens/s", 1.0)}
"""Unit as published -> SI unit and factor; others stay as they are."""
BOARD, MODEL = "board", "name"
"""Columns that the command line calls system and model."""


@dataclass(frozen=True)
class Definition:
    """What a published figure is."""

    name: str
    meaning: str
    ours: str = ""
    """The metric of a Result that is the same quantity; '' where none is."""
    scenarios: tuple[str, ...] = ()
    """The scenarios under which it is; empty for any."""
    batch: int | None = None
    workload: str = "inference"
    higher: bool = False
    apart: str = ""
    """Why nothing here is the same quantity."""


@dataclass(frozen=True)
class Number:
    """One published figure with its settings; '' for what its source does not state."""

    id: str
    board: str
    power_mode: str
    processor: str
    """cpu where the board's GPU or accelerator was not used; else ''."""
    software: str
    model: str
    """As its source writes it."""
    name: str
    """The model's name across sources."""
    input: str
    precision: str
    batch: str
    streams: str
    decoding: str
    """Of a language model: vanilla, or how tokens were drafted; drafted ones count when they are accepted."""
    submitter: str
    definition: Definition
    metric: str
    value: float
    """In `unit`."""
    unit: str
    """SI, samples/s, tokens/s, or 1 where none is published."""
    power_w: float | None
    accuracy: str
    published: str
    """Month or year."""
    source: str
    commit: str
    """The revision that was read."""
    licence: str


@cache
def definitions() -> Mapping[str, Definition]:
    """Return what each figure is, by its name in the table."""
    rows: Mapping[str, Mapping[str, Any]] = tomllib.loads(
        (HERE / "definitions.toml").read_text(encoding="utf-8")
    )
    return {
        name: Definition(name, **{**row, "scenarios": tuple(row.get("scenarios", ()))})
        for name, row in rows.items()
    }


@cache
def every() -> tuple[Number, ...]:
    """Return the whole table."""
    with (HERE / "numbers.csv").open(newline="", encoding="utf-8") as file:
        return tuple(map(_number, csv.DictReader(file)))


def _number(row: Mapping[str, str]) -> Number:
    unit, factor = SCALE.get(row["unit"], (row["unit"], 1.0))
    power = float(row["power_w"]) if row["power_w"] else None
    own = {"definition": definitions()[row["definition"]], "value": float(row["value"]) * factor}
    return Number(**{**row, **own, "unit": unit, "power_w": power})  # type: ignore[arg-type]


def plain(name: str) -> str:
    """Return a name as it is compared: `mobilenet_v2_1.0_224_quantized` is MobileNet-V2; its row says int8."""
    short = re.sub(r"(non)?quantized$", "", re.sub(r"[^a-z0-9]", "", name.lower()))
    return re.sub(r"(v[123])10(224)?$", r"\1", short)


def chosen(numbers: Iterable[Number], **asked: str) -> list[Number]:
    """Return the rows whose columns are as asked, '' for any; UsageError for a value that no row has."""
    found = list(numbers)
    for column, wanted in asked.items():
        if not wanted:
            continue
        there = {_word(number, column) for number in found}
        if plain(wanted) not in map(plain, there):
            raise _unknown(column, wanted, there)
        found = [number for number in found if plain(_word(number, column)) == plain(wanted)]
    return found


def _word(number: Number, column: str) -> str:
    value = getattr(number, column)
    return value.name if isinstance(value, Definition) else str(value)


def _unknown(column: str, wanted: str, there: Iterable[str]) -> UsageError:
    flag = {MODEL: "model", BOARD: "system"}.get(column, column)
    names = sorted(filter(None, there))
    close = closest_name(wanted, names)
    return UsageError(
        "E-PUBLIC-1",
        f"no published figure has the {flag} {wanted!r}",
        evidence=known_names(names),
        effect="Nothing is listed",
        fix=f"--{flag} {close or names[0]}",
    )
