"""What each number on the page means; every metric name links here. The full text is docs/metrics.md."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class Term:
    """One definition."""

    words: str
    meaning: str


def _read() -> dict[str, Term]:
    text = (files("edgescope.report") / "glossary.toml").read_text(encoding="utf-8")
    return {key: Term(**entry) for key, entry in tomllib.loads(text).items()}


TERMS: Mapping[str, Term] = _read()
