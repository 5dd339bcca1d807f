"""The process a trial runs in: reads trial.json from a folder, leaves a result there, ends with its parent.

python -m edgescope.child run|prepare FOLDER PARENT_PID
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Ask the kernel for SIGKILL when the parent ends (Linux prctl); an orphan already (pid 1 took it) ends now."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() == 1 != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def main(argv: list[str]) -> int:
    """Run or prepare the trial in the folder; write FOLDER/result; return 0."""
    die_with_parent(int(argv[2]))
    verb, folder = argv[0], Path(argv[1])
    from edgescope import bench, store
    from edgescope.records import Trial

    trial = Trial.from_json(json.loads((folder / "trial.json").read_text()))
    if on := os.environ.get("EDGESCOPE_ON"):  # the program runs on a board, this process drives it
        from edgescope.remote import house

        house.serve(verb, trial, on, folder)
        return 0
    devices = bench.present()
    begun = bench.begin(trial, devices)
    for name in ("begun", "result"):
        (folder / name).mkdir()
    store.write(begun, folder / "begun")  # what the parent records if this process does not live to tell more
    result = bench.answer(begun, devices=devices) if verb == "run" else bench.prepare(begun)
    store.write(result, folder / "result")
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    # Some engines crash while their threads are torn down at exit; the result is on disk, so leave at once.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
