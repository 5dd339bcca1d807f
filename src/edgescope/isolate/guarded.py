"""A process that runs under a warden (warden.py), which ends whatever the process has started."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from edgescope.isolate import warden
from edgescope.process import Launch, Process

#: Seconds that a warden has to end its processes; longer than it gives them.
PATIENCE_S = warden.PATIENCE_S + 2.0


class GuardedProcess(Process):
    """A process in its own session, under a warden that removes `folder` if this process ends first.

    Raises FileNotFoundError if there is no such program: starting the warden alone would always succeed.
    """

    def __init__(
        self, program: Sequence[str], folder: Path, launch: Launch = Launch(), *, talks: bool = False
    ) -> None:
        argv = [*launch.prefix, *program]
        if shutil.which(argv[0], path={**os.environ, **launch.env}.get("PATH")) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])
        guard = (sys.executable, "-I", "-S", warden.__file__, str(os.getpid()), str(folder))
        super().__init__(program, Launch(guard) + launch, talks=talks, session=True)
        self.launch = launch  # the warden exits as the program did

    def end(self, patience_s: float = PATIENCE_S) -> None:
        """Have the warden end everything it guards, and itself; harmless if it has ended."""
        self.terminate()
        if self.wait(patience_s) is None:  # stopped, or starved: then this does the warden's work
            for pid in (self.pid, *warden.below(self.pid)):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        super().end()
