"""The file to send: what was verified on one board, as JSON that names nobody.

    schema      1
    edgescope   its version; `commit` that of its sources, where they are a checkout
    made        the day, UTC
    reached     here, ssh, or recording (which verifies nothing)
    board       one line: board, release, power mode, GPU
    seconds     how long the kit ran
    restored    what a killed check had left changed and was put back; `left` what was not
    checks      name -> {path, limit_s, seconds, status, says, evidence}

`status` is `holds`, `does not hold`, `unsupported` or `not run`; of the last two `says` is the reason.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgescope.errors import SettingError, StoreError
from edgescope.records import Json
from edgescope.store import files
from edgescope.wings.record.lends import Names
from edgescope.wings.verify_board.check import Check, Outcome, Status

SCHEMA = 1
LONGEST = 4 << 20
"""Bytes of such a file at most."""


@dataclass(frozen=True)
class Verified:
    """One check with what came of it."""

    check: Check
    outcome: Outcome
    seconds: float = 0.0

    def to_json(self) -> dict[str, Json]:
        """Return it as plain JSON."""
        about = {"path": self.check.path, "limit_s": self.check.limit_s, "seconds": round(self.seconds, 2)}
        return {**about, **self.outcome.to_json()}


@dataclass(frozen=True)
class BoardFile:
    """What the kit found on one board; `names` are the words that its file may not have, and are not written."""

    edgescope: str
    commit: Json
    made: str
    reached: str
    board: str
    seconds: float
    checks: tuple[Verified, ...]
    restored: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    names: Names = field(default_factory=Names, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return the file's content, in which nothing names anybody."""
        plain = self.names.without
        return {
            "schema": SCHEMA,
            "edgescope": self.edgescope,
            "commit": self.commit,
            "made": self.made,
            "reached": self.reached,
            "board": plain(self.board),
            "seconds": round(self.seconds, 1),
            "restored": plain(self.restored),
            "left": plain(self.left),
            "checks": {one.check.name: plain(finite(one.to_json())) for one in self.checks},
        }

    def of(self, status: Status) -> list[Verified]:
        """Return the checks with this status."""
        return [one for one in self.checks if one.outcome.status is status]

    def write(self, path: Path) -> None:
        """Write the file whole or not at all; SettingError E-BOARD-2 if a word that names somebody is left in it."""
        text = json.dumps(self.to_json(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        if kinds := self.names.left(text):
            raise SettingError(
                "E-BOARD-2",
                "the file was not written: it would name this board, its owner or its network",
                evidence=f"still in it: a {' and a '.join(kinds)}",
                effect="What was verified is lost",
                fix="report it: it is a fault of this program",
            )
        with files.written(path) as file:
            file.write(text.encode())


def finite(value: Json) -> Any:
    """Return a JSON value with None in place of nan and infinity, which JSON does not have."""
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read(path: Path) -> BoardFile:
    """Return what `write` wrote; StoreError E-BOARD-3 for any other file."""
    try:
        data = json.loads(files.read(path, LONGEST))
        if data["schema"] != SCHEMA:
            raise ValueError(f"schema {data['schema']!r}")
        checks = tuple(_verified(str(name), row) for name, row in data["checks"].items())
        edgescope, made, reached, board = (
            str(data[key]) for key in ("edgescope", "made", "reached", "board")
        )
        restored, left = (tuple(map(str, data[key])) for key in ("restored", "left"))
        seconds = float(data["seconds"])
        return BoardFile(edgescope, data["commit"], made, reached, board, seconds, checks, restored, left)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StoreError(
            "E-BOARD-3",
            f"{path} is no file of verify-board",
            evidence=f"{type(error).__name__}: {error}"[:200],
            fix="edgescope verify-board -o FILE writes one",
        ) from error


def _verified(name: str, row: Mapping[str, Any]) -> Verified:
    check = Check(name, str(row["path"]), float(row["limit_s"]), "")
    return Verified(check, Outcome.of(row), float(row["seconds"]))
