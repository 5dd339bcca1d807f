"""One diagnosis of the doctor."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One diagnosis: code, what is wrong, the command that helps ('' if none does), and the evidence."""

    code: str
    text: str
    fix: str = ""
    evidence: str = ""
