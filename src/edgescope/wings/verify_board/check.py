"""One check: the path that it verifies, its time limit, the function that runs it, and what came of it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgescope.errors import UsageError, closest_name
from edgescope.records import Json

if TYPE_CHECKING:
    from edgescope.wings.verify_board.site import Site

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class Status(str, Enum):
    """What came of a check."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNSUPPORTED = "unsupported"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Outcome:
    """What one check found."""

    status: Status
    says: str
    """One sentence with its figures; of what is unsupported or not run, the reason."""
    evidence: Mapping[str, Json] = field(default_factory=dict)
    """Figures by name, with the unit as the end of the name."""

    def to_json(self) -> dict[str, Json]:
        """Return it as plain JSON."""
        return {"status": self.status.value, "says": self.says, "evidence": dict(self.evidence)}

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Outcome:
        """Return what `to_json` wrote; KeyError, TypeError or ValueError if it is none."""
        return cls(Status(data["status"]), str(data["says"]), dict(data["evidence"]))


def judged(wrong: Sequence[str], right: str, evidence: Mapping[str, Json]) -> Outcome:
    """Return that it does not hold, with all that is wrong, or that it holds, where nothing is."""
    if wrong:
        return Outcome(Status.FAILS, "; ".join(wrong), evidence)
    return Outcome(Status.HOLDS, right, evidence)


def unsupported(why: str, evidence: Mapping[str, Json] | None = None) -> Outcome:
    """Return that this board has no such path, and why."""
    return Outcome(Status.UNSUPPORTED, why, evidence or {})


@dataclass(frozen=True)
class Check:
    """One row of checks.toml."""

    name: str
    path: str
    """What is verified, in a reader's words."""
    limit_s: float
    """Seconds after which its process is ended."""
    target: str
    """module:function below `checks`."""
    given: Mapping[str, Json] = field(default_factory=dict)
    """What the function is given besides the site."""
    recorded: bool = False
    """Whether it can run on a recording."""
    gpu: bool = False
    """Whether it needs an NVIDIA GPU."""
    here: bool = False
    """Whether it runs in the Python that has edgescope, so not over ssh."""

    def run(self, site: Site) -> Outcome:
        """Run it in this process, where the site has what it needs."""
        if site.reached == "recording" and not self.recorded:
            return unsupported("a recording runs no program")
        if self.here and site.reached == "ssh":
            return unsupported("not over ssh: it runs in the Python of this kit")
        if self.gpu and not site.has_gpu():
            return unsupported("there is no NVIDIA GPU")
        module, name = self.target.split(":")
        function: Callable[..., Outcome] = getattr(
            importlib.import_module(f"{__package__}.checks.{module}"), name
        )
        return function(site, **self.given)


def checks() -> dict[str, Check]:
    """Return every check by name, in the order in which they run."""
    rows = tomllib.loads(Path(__file__).with_name("checks.toml").read_text("utf-8"))
    return {name: _check(name, dict(row)) for name, row in rows.items()}


def _check(name: str, row: dict[str, Any]) -> Check:
    path, limit_s, target = str(row.pop("path")), float(row.pop("limit_s")), str(row.pop("runs"))
    recorded, gpu, here = (bool(row.pop(key, False)) for key in ("recorded", "gpu", "here"))
    return Check(name, path, limit_s, target, row, recorded, gpu, here)


def chosen(only: Sequence[str]) -> list[Check]:
    """Return the checks of these names, all of them for none; UsageError E-BOARD-1 for a name that is none."""
    known = checks()
    for name in only:
        if name not in known:
            close = closest_name(name, known)
            raise UsageError(
                "E-BOARD-1",
                f"no check is called {name!r}",
                evidence=f"known: {', '.join(known)}",
                fix=f"--checks {close}" if close else "edgescope verify-board --list",
            )
    return [check for name, check in known.items() if not only or name in only]
