"""Writes the examples of docs/how-to/doctor.md: the doctor's own output for three shipped recordings.

    python tests/doctor_page.py docs/how-to/doctor.md      # rewrites the part between the two marks

Facts of the machine that plays a recording are left out: the cores that this process may use, the machine's id. All
frames up to the first that advances the CPU's time are applied at once, so that shares of time have a time.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from boards_page import between
from edgescope.devices import recording, replay
from edgescope.registry import REPLAYED
from edgescope.wings.doctor.report import Report, examine
from edgescope.wings.doctor.view import lines

BOARDS = ("nano", "orin_nano", "agx_orin")
BEGIN = "<!-- written by: python tests/doctor_page.py docs/how-to/doctor.md -->"
END = "<!-- end of what is written from the recordings -->"
WIDTH = 118
_FRAME_S, _WATCH_S = 0.4, 0.6


def examined(board: str) -> Report:
    """Return the doctor's report on a shipped recording, the same wherever it is played."""
    what = recording.read(recording.find(board))
    still = replace(what, frames=(_first_look(what),))
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, f"{board}{recording.SUFFIX}")
        path.write_text("".join(recording.lines(still)), encoding="utf-8")
        devices = replay.devices(str(path))
        return examine(devices, watch_s=_WATCH_S, root=replay.root(devices))


def _first_look(what: recording.Recording) -> recording.Frame:
    """Return the frames up to the first that advances the CPU's time, merged into one."""
    files: dict[str, str | None] = {}
    for frame in what.frames:
        files |= frame.files
        if "proc/stat" in frame.files:
            break
    return recording.Frame(_FRAME_S, files)


def render() -> str:
    """Return the reports as Markdown."""
    return "\n\n".join(_section(board) for board in BOARDS)


def _section(board: str) -> str:
    report = examined(board)
    facts: Mapping[str, str] = report.machine.state[REPLAYED]
    text = "\n".join(text.rstrip() for text, _ in lines(report, WIDTH))
    text = re.sub(r",? id [0-9a-f]{6,}", "", text)
    head = f"## {facts['board']}\n\nRecording `{board}` ({facts['made']}): {facts['about']}."
    return f"{head}\n\n```text\n$ edgescope --board {board} doctor\n{text}\n```"


def updated(page: str) -> str:
    """Return the page with today's reports between the marks; ValueError if a mark is missing."""
    return between(page, BEGIN, END, render())


if __name__ == "__main__":
    PAGE = Path(sys.argv[1])
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
