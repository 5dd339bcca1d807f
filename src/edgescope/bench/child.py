"""The process a trial runs in: reads trial.json from a folder, leaves a result there, ends with its parent.

python -m edgescope.bench.child run|prepare FOLDER PARENT_PID
python -m edgescope.bench.child serve FOLDER PARENT_PID

`serve` answers one trial after another, each named by a line of JSON on stdin, and keeps the workers of crews alive
between them.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from edgescope import registry
from edgescope.isolate import warden

if TYPE_CHECKING:
    from edgescope.isolate.pool import Crews

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
    if verb == "serve":
        return serve()
    from edgescope import bench
    from edgescope.devices import manifest
    from edgescope.records import Trial
    from edgescope.store import results

    trial = Trial.from_json(json.loads((folder / "trial.json").read_text()))
    if on := os.environ.get("EDGESCOPE_ON"):  # the program runs on a board, this process drives it
        registry.need(registry.ON_BOARD, "a board over ssh", "")(verb, trial, on, folder)
        return 0
    devices = bench.present()
    begun = bench.begin(trial, manifest.machine(devices))
    for name in ("begun", "result"):
        (folder / name).mkdir()
    results.write(
        begun, folder / "begun"
    )  # what the parent records if this process does not live to tell more
    result = bench.answer(begun, devices=devices) if verb == "run" else bench.prepare(begun)
    results.write(result, folder / "result")
    return 0


def serve() -> int:
    """Answer the trials that stdin names, until it ends; say on stdout when each is on disk; return 0."""
    from edgescope.isolate.pipe import Talk
    from edgescope.isolate.pool import LIMIT, Crews
    from edgescope.isolate.staff import Staff

    talk = Talk.own()
    warden.adopt()
    with Crews() as crews:
        for order in talk.heard():
            os.environ[LIMIT] = str(order["timeout_s"])
            crews.begin(order["env"], Staff(order["staff"], order["floor_bytes"]))
            _answer(order["verb"], Path(order["folder"]), crews)
            warden.end_strangers(crews.pids)  # what a trial has left would run beside the next
            talk.say("done")
    return 0


def _answer(verb: str, folder: Path, crews: Crews) -> None:
    from edgescope import bench
    from edgescope.devices import manifest
    from edgescope.records import Trial
    from edgescope.store import results

    trial = Trial.from_json(json.loads((folder / "trial.json").read_text()))
    devices = bench.present()
    begun = bench.begin(trial, manifest.machine(devices))
    for name in ("begun", "result"):
        (folder / name).mkdir()
    results.write(begun, folder / "begun")
    run = verb == "run"
    result = bench.answer(begun, devices=devices, crews=crews) if run else bench.prepare(begun)
    results.write(result, folder / "result")


if __name__ == "__main__":
    code = main(sys.argv[1:])
    # Some engines crash while their threads are torn down at exit; the result is on disk, so leave at once.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
