"""Starts a program on some CPUs or in a control group by exec: the process keeps its id.

python -m edgescope.modes.launcher [--cpus 0-1] [--group edgescope-123] [--root /] -- PROGRAM ...
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from edgescope.devices.kernel_files import cpu_list
from edgescope.errors import EdgescopeError
from edgescope.process import Launch


def launch(**what: str) -> Launch:
    """Return how a program starts on some CPUs or in a group: cpus="0-1", group="edgescope-123"."""
    flags = [word for key, value in what.items() for word in (f"--{key}", value)]
    return Launch((sys.executable, "-m", "edgescope.modes.launcher", *flags, "--"))


def main(words: Sequence[str]) -> int:
    """Apply the flags, then exec the program; return 4 if a setting cannot be applied."""
    cut = list(words).index("--")
    flags = dict(zip(words[:cut:2], words[1:cut:2], strict=True))
    try:
        if "--group" in flags:
            from edgescope.modes.privileged import act  # it knows every setting of every board

            act(("quota", "join", flags["--group"], str(os.getpid())), Path(flags.get("--root", "/")))
        if "--cpus" in flags:
            os.sched_setaffinity(0, cpu_list(flags["--cpus"]))
    except (EdgescopeError, OSError) as error:
        print(error, file=sys.stderr)
        return 4
    program = list(words[cut + 1 :])
    os.execvp(program[0], program)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
