"""A trial of trtexec on a board that edgescope does not reach: its commands are written here, its answers read here.

Commands and reading are those of a trial on this machine (build.py, backend.py). Only what stands between them is
another: a person runs the commands and brings back what the program printed and exported. The lines of a log have the
board's wall clock to a second, so queries are placed on that clock with an uncertainty of seconds; their lengths and
order are exact.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from edgescope import cache
from edgescope.backends.base import Artifact, ProgramRun, spec_of
from edgescope.errors import EdgescopeError
from edgescope.models.base import Batch, Model
from edgescope.records import Absent, Json, Trial
from edgescope.wings.tensorrt import about
from edgescope.wings.tensorrt.trtexec import build, log
from edgescope.wings.tensorrt.trtexec.backend import Run
from edgescope.wings.tensorrt.trtexec.build import Job
from edgescope.wings.tensorrt.trtexec.program import Ran, Tool
from edgescope.workloads.base import Answer

_STAMP = re.compile(r"^\[(\d\d)/(\d\d)/(\d{4})-(\d\d):(\d\d):(\d\d)\]")
_COMMAND = re.compile(r"^&&&& RUNNING TensorRT\.trtexec .*?# (.*)$")


@dataclass(frozen=True)
class Apart:
    """One trial, with its ONNX file made here."""

    trial: Trial
    job: Job
    run: Run

    @classmethod
    def of(cls, trial: Trial, model: Model, tool: Tool, folder: Path, engine: Path) -> Apart:
        """Return the trial for this trtexec; `engine`: where it will be; UnsupportedError if that cannot build it."""
        spec = spec_of(trial)
        about.require_unasked("trtexec", spec.precision, tool.compute_capability, tool.device)
        job = build.job_of(model, spec, folder, tool)
        artifact = Artifact(model, job.spec, engine, notes={"made": {"profile": build.profile(job)}})
        return cls(trial, job, Run(artifact, trial, tool))

    @property
    def onnx(self) -> Path:
        """The ONNX file that the engine is built from."""
        return self.job.onnx

    def building(self, onnx: Path, timing: Path) -> list[str]:
        """Return the command that builds the engine from a copy of the ONNX file."""
        assert self.run.artifact.path is not None
        return build.command(replace(self.job, onnx=onnx), self.run.artifact.path, timing)

    def built(self, said: str, code: int) -> Apart:
        """Return itself with the facts of the build that printed this; an EdgescopeError says why it failed."""
        ran = played(said, code)
        slow = log.unsupported_precision(ran.log, self.job.spec.precision)
        if slow is not None or not ran.passed:
            raise slow or log.failure(ran, self.run.tool, f"build {self.job.name} {self.trial.precision}")
        made = {**_made(self.run.artifact), "command": " ".join(ran.argv), "tensorrt": ran.log.version}
        artifact = replace(self.run.artifact, build_s=ran.log.built_s, notes={"made": made})
        return replace(self, run=replace(self.run, artifact=artifact))

    def read(self, said: str, code: int, exports: Path, answer: Answer | None) -> ProgramRun:
        """Return the measured run whose log is `said`; an EdgescopeError says why there is none."""
        ran = played(said, code)
        told = ran.log
        tool = replace(
            self.run.tool,
            version=told.version or self.run.tool.version,
            device=told.device,
            compute_capability=told.compute_capability,
        )

        def unanswered(batch: Batch) -> Sequence[NDArray[Any]]:
            raise EdgescopeError("E-PLAN-9", "no answers for the gate came back")

        found = replace(self.run, tool=tool).read(ran, exports, answer or unanswered)
        absent = Absent("nothing on the board read the program's memory")
        return replace(found, facts={**found.facts, "peak_rss_bytes": absent})

    def answers(self, said: str, code: int, exports: Path) -> Sequence[NDArray[Any]]:
        """Return the outputs of one batch of the gate; an EdgescopeError if they cannot be read."""
        return self.run.answered(played(said, code), exports)

    def artifact(self) -> Artifact:
        """Return what a result says of it: the ONNX file, which is here, and how the board built its engine."""
        mine = self.run.artifact
        notes = {**mine.notes, "onnx_made": cache.notes(self.onnx)}
        return Artifact(mine.model, mine.spec, self.onnx, cache.content(self.onnx), mine.build_s, notes)


def _made(artifact: Artifact) -> dict[str, Json]:
    made = artifact.notes["made"]
    assert isinstance(made, dict)
    return made


def command_in(said: str) -> str:
    """Return the command line that a log begins with, without the program's path, or '' if it names none."""
    found = next((m for line in said.splitlines() if (m := _COMMAND.match(line.strip()))), None)
    return found[1].partition(" ")[2].strip() if found else ""


def version_in(said: str) -> str:
    """Return the version of TensorRT that a log names, or ''."""
    return log.read(said.splitlines()).version


def played(said: str, code: int) -> Ran:
    """Return the run that printed this; a line without a time has that of the line before it."""
    lines, now = list[tuple[int, str]](), 0
    for line in said.splitlines():
        now = _moment(line) or now
        lines.append((now, line))
    first = next((t for t, _ in lines if t), 0)
    argv = ("trtexec", *command_in(said).split())
    return Ran(argv, code, tuple(lines), None, max(0.0, (now - first) * 1e-9))


def _moment(line: str) -> int:
    """Return the nanoseconds of a line's stamp, read as UTC, or 0 if it has none that is a time."""
    found = _STAMP.match(line)
    if not found:
        return 0
    month, day, year, hour, minute, second = map(int, found.groups())
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)
        return round(moment.timestamp() * 1e9)
    except (ValueError, OverflowError):
        return 0
