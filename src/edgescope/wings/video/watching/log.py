"""Alarms as lines of JSON at the end of a file; each line is on the disk before the next frame is looked at."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from edgescope.frames.frame import Frame
from edgescope.records import Json
from edgescope.wings.video.watching.event import Event


class Log:
    """Writes each event to `path`; a disk that is full is counted, and the next event is tried again."""

    def __init__(self, path: Path) -> None:
        self.path, self.lines, self.failed, self.problem = path, 0, 0, ""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()  # a path that cannot be written is found before anything is watched
        self._mended()

    def frames(self, frames: Sequence[Frame], times: Sequence[float]) -> None:
        """Do nothing: frames are not logged."""

    def told(self, event: Event) -> None:
        """Write one line."""
        line = (json.dumps(event.plain()) + "\n").encode()
        try:
            with self.path.open("ab", buffering=0) as file:
                begun = file.tell()
                if file.write(line) != len(line):
                    file.truncate(begun)
                    raise OSError("the disk took a part of a line only")
                os.fsync(file.fileno())
        except OSError as error:
            self.failed, self.problem = self.failed + 1, str(error)
        else:
            self.lines += 1

    def file(self, event: Event) -> str:
        """Return '': it saves no file of one alarm."""
        return ""

    def facts(self) -> Mapping[str, Json]:
        """Return the file, the lines written, and those that could not be."""
        return {"log": str(self.path), "lines": self.lines, "failed": self.failed, "problem": self.problem}

    def close(self) -> None:
        """Do nothing: every line is written already."""

    def _mended(self) -> None:
        """End a line that a killed process left unfinished, so that the next one stands alone."""
        if not self.path.exists() or not self.path.stat().st_size:
            return
        with self.path.open("rb+") as file:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
