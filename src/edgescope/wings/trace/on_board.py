"""A program on a board, profiled there: by nsys if the board has it, else by the sampler that is sent with it.

The program needs nothing in it, and edgescope need not be installed on the board. What the profiler leaves comes back
as one archive. The sampler's spans and the board's sensors have one clock, the board's.
"""

from __future__ import annotations

import shlex
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from edgescope.bench import SAMPLER_HZ
from edgescope.errors import DeviceError, Message, UsageError
from edgescope.process import scratch_folder
from edgescope.records import Json, Trace
from edgescope.wings.remote.lends import Board, Line, Lines, opened, parse
from edgescope.wings.trace import nsys_run
from edgescope.wings.trace.imported import read
from edgescope.wings.trace.program import FOLDER, INJECT, SECONDS, collected

#: Runs in the agent's folder; the program runs in the user's home, as it would over ssh.
SCRIPT = """\
D=$PWD; cd
N=$(command -v nsys)
if [ -n "$N" ]; then
{questions}
$P profile -t cuda,nvtx,osrt -s none $F {window} --export=sqlite --force-overwrite=true -o "$D/report" {program}
else
PYTHONPATH="$D${{PYTHONPATH:+:$PYTHONPATH}}" {folder}="$D" {name}={seconds} {program}
fi
echo $? > "$D/code"
cd "$D" && tar cf left.tar code $(ls | grep -E '^(report[.]sqlite|unsampled|(functions|kineto)-.*[.]json)$')
exit 0
"""
LEFT, LONGEST_S = "left.tar", 86_400.0
NOT_STARTED = (126, 127)
"""Exit codes of a shell that could not start a program."""


def traced(url: str, command: Sequence[str], seconds: float = 0.0) -> Trace:
    """Run a program of the board at `url` to its end and return its trace; its output goes to this process's."""
    with opened(parse(url)) as board:
        return on(board, command, seconds)


def on(board: Board, command: Sequence[str], seconds: float = 0.0) -> Trace:
    """Run a program on a connected board and return its trace; what it does after `seconds` is not recorded."""
    window = f"--duration={seconds:g} --kill=none" if seconds else ""
    script = SCRIPT.format(
        questions=nsys_run.SHELL,
        window=window,
        program=shlex.join(command),
        folder=FOLDER,
        name=SECONDS,
        seconds=seconds,
    )
    with scratch_folder("program") as made:
        folder = Path(made)
        sampler = {"sitecustomize.py": INJECT / "sitecustomize.py"}
        line = Line(["sh", "-c", script], sent=sampler, fetched={LEFT: folder / LEFT})
        with board.sampling(SAMPLER_HZ) as rows:
            ended = board.perform(line, _Printed(""), LONGEST_S, f"run {command[0]}")
        if ended["stopped"]:
            what = f"{command[0]} was stopped on {board.wire.address}"
            raise DeviceError(
                "E-PROF-11", what, evidence=f"{ended['stopped']} after {ended['seconds']:.0f} s"
            )
        _unpack(folder)
        code = int((folder / "code").read_text())
        if code in NOT_STARTED:
            what = f"{command[0]} cannot be started on {board.wire.address}"
            raise UsageError(
                "E-PROF-8", what, evidence=f"exit code {code}", fix="name it as in a login over ssh"
            )
        trace = _left(folder)
        if trace.samples is None and trace.clock == "monotonic":
            trace = replace(trace, samples=rows.readings(board.machine().state.get("jetson", {})))
    notes = (Message("W-PROF-13", f"the program ended with exit code {code}"),) if code else ()
    return replace(trace, source=f"{trace.source} on {board.wire.address}", notes=(*trace.notes, *notes))


class _Printed(Lines):
    """Prints a program's lines as they come."""

    def take(self, event: Mapping[str, Json]) -> None:
        """Take one event."""
        for text in event["lines"]:
            print(text, flush=True)


def _unpack(folder: Path) -> None:
    """Write the plain files of the archive into the folder."""
    with tarfile.open(folder / LEFT) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() and "/" not in member.name else None
            if content is not None:
                (folder / member.name).write_bytes(content.read())


def _left(folder: Path) -> Trace:
    """Return nsys's trace if there is one, else what the sampler left."""
    report = folder / "report.sqlite"
    if not report.is_file():
        return collected(folder)
    note = Message(
        "I-PROF-6",
        "nsys has a clock of its own",
        effect="Power and heat are not beside its spans",
        fix="edgescope bench --on ... for them",
    )
    found, unsampled = read(report), folder / "unsampled"
    why = (nsys_run.of_board(unsampled.read_text()),) if unsampled.is_file() else ()
    return replace(found, notes=(*found.notes, note, *why))
