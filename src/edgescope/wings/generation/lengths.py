"""How long prompts and answers are: one length for all, or those of a trace of real requests.

A trace is a file of rows: CSV with the columns prompt_tokens and output_tokens, or a line of JSON each with these keys.
Names that other traces have for the two are known as well. Requests take the rows in their order, again and again.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from edgescope.errors import UsageError
from edgescope.options import PIN

PROMPT = ("prompt_tokens", "input_length", "ContextTokens", "prompt_len", "num_prefill_tokens")
OUTPUT = ("output_tokens", "output_length", "GeneratedTokens", "output_len", "num_decode_tokens")
"""Columns of a trace: ours, Mooncake's, Azure's, vLLM's, Vidur's."""
MOST_ROWS, MOST_TOKENS = 1_000_000, 10_000_000
WARMED = 4
"""Lengths of prompts of a trace that are warmed up, spread over its rows by size."""


@dataclass(frozen=True)
class Lengths:
    """Tokens of (prompt, answer), in the order of the requests."""

    rows: Sequence[tuple[int, int]]

    def of(self, number: int) -> tuple[int, int]:
        """Return the lengths of request `number`."""
        return self.rows[number % len(self.rows)]

    @cached_property
    def longest(self) -> tuple[int, int]:
        """Return the lengths that take most room together."""
        return max(self.rows, key=sum)

    @cached_property
    def warmed(self) -> Sequence[int]:
        """Return the lengths of prompts to warm up, the longest last."""
        known = sorted({prompt for prompt, _ in self.rows})
        steps = min(WARMED, len(known))
        return [known[(len(known) - 1) * (n + 1) // steps] for n in range(steps)]


def of(options: Mapping[str, Any]) -> Lengths:
    """Return the lengths that options ask for; UsageError if their file holds none."""
    if name := str(options["lengths"]):
        return Lengths(read(Path(PIN.sub("", name))))
    return Lengths([(int(options["prompt_tokens"]), int(options["output_tokens"]))])


def read(path: Path) -> list[tuple[int, int]]:
    """Return the (prompt, answer) tokens of each row of a file; UsageError for one that is no such trace."""
    try:
        found = [_row(row) for row, _ in zip(_rows(path), range(MOST_ROWS), strict=False)]
    except (OSError, ValueError, csv.Error, RecursionError) as error:
        raise _no_trace(path, f"{error}") from error
    if not found:
        raise _no_trace(path, "it has no row")
    return found


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    text = path.read_text(encoding="utf-8-sig")
    if text.lstrip().startswith("{"):
        for line in filter(None, map(str.strip, text.splitlines())):
            yield json.loads(line)
    else:
        yield from csv.DictReader(text.splitlines())


def _row(row: Mapping[str, Any]) -> tuple[int, int]:
    return _tokens(row, PROMPT), _tokens(row, OUTPUT)


def _tokens(row: Mapping[str, Any], names: Sequence[str]) -> int:
    found = next(
        (row[name] for name in names if isinstance(row, Mapping) and row.get(name) is not None), None
    )
    if isinstance(found, bool) or not isinstance(found, int | str) or not str(found).strip().isdecimal():
        raise ValueError(f"a row has no whole number called {' or '.join(names[:2])}: {str(row)[:80]}")
    if not 1 <= int(found) <= MOST_TOKENS:
        raise ValueError(f"{int(found)} tokens in a row")
    return int(found)


def _no_trace(path: Path, why: str) -> UsageError:
    return UsageError(
        "E-GEN-8",
        f"{path.name} is no trace of lengths",
        evidence=why,
        effect="Nothing was measured",
        fix="a CSV file with the columns prompt_tokens,output_tokens",
    )
