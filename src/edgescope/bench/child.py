"""The process a trial runs in: it reads trial.json from a folder, writes the result there, ends with its parent.

python -m edgescope.bench.child run|look|prepare FOLDER PARENT_PID
python -m edgescope.bench.child serve FOLDER PARENT_PID

`serve` runs one trial or pair after another, each named by a line of JSON on stdin; it keeps the workers of trials, and
the servers that fork those of pairs.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgescope import registry
from edgescope.isolate import warden
from edgescope.process import Pipe, die_with_parent
from edgescope.tracing import FOLDER

if TYPE_CHECKING:
    from edgescope.isolate.forks import Forks
    from edgescope.isolate.pool import WorkerPools
    from edgescope.records import Machine, Result, Trial

SELDOM, USUAL = (50_000, 50, 100), gc.get_threshold()
"""How seldom a process collects garbage (gc.set_threshold) while it imports, or builds: what an importer or an exporter
makes stays to its end. A network is loaded and measured with the interpreter's own."""


def main(argv: list[str]) -> int:
    """Run or prepare the trial in the folder; write FOLDER/result; return 0."""
    die_with_parent(int(argv[2]))
    verb, folder = argv[0], Path(argv[1])
    if verb == "serve":
        return serve()
    gc.set_threshold(*SELDOM)
    if on := os.environ.get(registry.ON):  # the program runs on a board, this process drives it
        from edgescope.records import Trial

        trial = Trial.from_json(json.loads((folder / "trial.json").read_text()))
        registry.need(registry.ON_BOARD, "a board over ssh", registry.REINSTALL)(verb, trial, on, folder)
    else:
        _answer(verb, folder)
    return 0


def serve() -> int:
    """Run the trials that stdin names until stdin ends; report on stdout when each is on disk; return 0."""
    from edgescope.isolate.forks import Forks
    from edgescope.isolate.fresh import TIMEOUT
    from edgescope.isolate.pool import Prestart, WorkerPools

    pipe = Pipe.own()
    warden.adopt()
    with WorkerPools() as pools, Forks() as forks:
        for order in pipe:
            os.environ[TIMEOUT] = str(order["timeout_s"])
            forks.floor_bytes = order["floor_bytes"]
            if order["verb"] == "expect":
                forks.expect(_told(order["workers"], forks))
                forks.ready()
            elif order["verb"] == "pair":
                _told(order["workers"], forks)
                _answer_pair(Path(order["folder"]), forks)
            else:
                pools.begin(order["env"], Prestart(order["prestart"], order["floor_bytes"]))
                _answer(order["verb"], Path(order["folder"]), pools)
            warden.end_strangers(pools.pids | forks.pids)  # the remains of a trial would disturb the next
            pipe.send(event="done")
    return 0


def _answer(verb: str, folder: Path, pools: WorkerPools | None = None) -> None:
    """Run the trial in the folder and write its Result there."""
    from edgescope import bench
    from edgescope.devices import manifest
    from edgescope.isolate import notes
    from edgescope.store import handed_rows, results

    devices = bench.present()
    started = _begun(folder, manifest.machine(devices))
    if verb != "prepare":
        gc.set_threshold(*USUAL)
    if verb == "prepare":
        from edgescope.records import Status

        opened = notes.files_opened()
        result = bench.prepare(started)
        if result.status is Status.OK:
            notes.note_prepared(started.trial, opened)
    elif verb == "look":
        from edgescope.isolate import fresh

        result = bench.look(started, devices=devices, wait=partial(fresh.wait_for_parent, folder))
    else:
        result = bench.answer(started, devices=devices, pools=pools)
    results.write(result, folder / "result", handed_rows)
    if pools is None and verb in ("run", "look"):
        notes.tell(folder, result)


def _begun(folder: Path, machine: Machine) -> Result:
    """Return the started Result of the trial in the folder; it is written there, in case this process is killed."""
    from edgescope.records import Result, Trial
    from edgescope.store import handed_rows, results

    started = Result.begun(Trial.from_json(json.loads((folder / "trial.json").read_text())), machine)
    for name in ("begun", "result"):
        (folder / name).mkdir()
    results.write(started, folder / "begun", handed_rows)
    return started


def _told(workers: Sequence[Mapping[str, Any]], forks: Forks) -> list[Trial]:
    """Return the trials of coming workers, once `forks` knows what such processes import."""
    from edgescope.isolate.notes import Imports
    from edgescope.records import Trial

    trials = [Trial.from_json(one["trial"]) for one in workers]
    for trial, one in zip(trials, workers, strict=True):
        forks.learn(trial, Imports.from_json(one["imports"]))
    return trials


def _answer_pair(folder: Path, forks: Forks) -> None:
    """Run the two trials whose folders lie in `folder` in turns; write the result of each into its own."""
    from edgescope import bench
    from edgescope.bench import SAMPLER_HZ, alternation
    from edgescope.devices import manifest
    from edgescope.isolate.fresh import PAIR
    from edgescope.store import handed_rows, results

    devices, places = bench.present(), [folder / side for side in PAIR]
    machine = manifest.machine(devices)
    begun = _begun(places[0], machine), _begun(places[1], machine)
    purpose = (folder / "purpose").read_text()
    found = alternation.measure(begun, devices, SAMPLER_HZ, purpose=purpose, forks=forks)
    for place, result in zip(places, found, strict=True):
        results.write(result, place / "result", handed_rows)


def leave(code: int = 0) -> None:
    """End this process at once: some engines crash while their threads are torn down, and all is on disk by now.

    Under a tracer it exits normally, because profilers write down what they saw at exit.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    if FOLDER in os.environ:
        sys.exit(code)
    os._exit(code)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
