"""One diagnosis of the doctor."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One diagnosis: code, what it is, the command that helps ('' where none does), what was read."""

    code: str
    text: str
    fix: str = ""
    evidence: str = ""
