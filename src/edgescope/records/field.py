"""A value with its unit and interval, or the reason why there is none: never 0, never a guess."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

Scalar = str | int | float | bool
Json = Any  # what json.loads returns


@dataclass(frozen=True)
class Measured:
    """A measured value in `unit`, with a 95 % interval if there is one, and the count behind it."""

    value: float
    unit: str
    lo: float | None = None
    hi: float | None = None
    n: int = 1


@dataclass(frozen=True)
class Absent:
    """A value that was not measured, and why."""

    reason: str


Field = Measured | Absent


def digest(value: Json) -> str:
    """Return sixteen hex digits of the SHA-256 of `value` as canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
