"""One worker: opens a trial's workload when told to, drives its scenario between an agreed start and stop.

python -m edgescope.bench.worker LEADER_PID

It answers one trial after another. Between two it holds no session, and gives back what memory it can. Whatever goes
wrong is told to the leader as a status and a reason; it ends with its leader.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from edgescope import cache, registry
from edgescope.backends.base import SelfDriven, spec_of
from edgescope.bench import gate
from edgescope.bench.child import die_with_parent
from edgescope.bench.collect import drive
from edgescope.bench.outcome import told
from edgescope.bench.watch import peak_rss
from edgescope.clock import MonotonicClock
from edgescope.errors import UnsupportedError
from edgescope.isolate.barrier import Agreed, Span
from edgescope.isolate.counter import Counter
from edgescope.isolate.pipe import Talk
from edgescope.models import zoo
from edgescope.models.base import Batch, Model, Purpose
from edgescope.records import Json, Machine, Measured, Queries, Trial, codec
from edgescope.scenarios import Foreign
from edgescope.workloads.base import Opened

#: Scenarios that end when they are through, whatever others do.
ALONE = ("idle_gap",)


class Abandoned(Exception):
    """The leader gave this trial up."""


class Shift:
    """One trial in this worker."""

    def __init__(self, talk: Talk, order: dict[str, Json]) -> None:
        self.talk, self.number = talk, int(order["number"])
        self.trial = Trial.from_json(order["trial"])
        self.folder, self.workers = Path(order["folder"]), int(order["workers"])
        self.plan = Agreed(self.trial, self._meet)
        if self.workers > 1:  # cameras know nothing of each other
            self.plan.phase = float(np.random.default_rng(abs(self.trial.seed)).random())

    def work(self) -> None:
        """Open, drive and verify as the leader says; the session is closed when this returns."""
        trial = self.trial
        scenario = registry.load(registry.SCENARIOS, trial.scenario, "scenario")(trial, self.plan)
        model = zoo.get(trial.model, trial.shapes, trial.batch)
        backend = registry.load(registry.BACKENDS, trial.backend, "backend")()
        _drivable(trial, backend, scenario)
        workload = registry.load(registry.WORKLOADS, trial.workload, "workload")()
        with workload.open(trial, model, backend, cache.folder("artifacts")) as opened:
            self._say_opened(opened, model)
            self._hear("drive")
            with Counter(self.folder / "counter", self.workers) as counter:
                work = counter.counted(opened.work, self.number)
                queries = drive(scenario, work, MonotonicClock())
                self._say_driven(queries, opened)
                self._after(opened, model)

    def _hear(self, what: str) -> dict[str, Json]:
        order = self.talk.hear()
        if order["do"] != what:
            raise Abandoned
        return order

    def _meet(self) -> Span:
        self.talk.say("ready", settled=self.plan.settled)
        order = self._hear("start")
        return Span(int(order["start_ns"]), int(order["stop_ns"]))

    def _say_opened(self, opened: Opened, model: Model) -> None:
        self.talk.say(
            "opened",
            effective=asdict(opened.effective()),
            facts={name: codec.field_to_json(value) for name, value in opened.facts.items()},
            artifact=dict(opened.artifact),
            model=asdict(model.info),
        )

    def _say_driven(self, queries: Queries, opened: Opened) -> None:
        path, window = self.folder / f"rows-{self.number}.npz", self.plan.window
        np.savez(path, **dict[str, Any](queries.columns))
        self.talk.say(
            "driven",
            rows=str(path),
            first=window.first,
            stop=window.stop,
            stopped_by=self.plan.stopped_by,
            failure=opened.failure(),
        )

    def _after(self, opened: Opened, model: Model) -> None:
        """Answer what the leader asks of the open session, until it says close."""
        while (order := self.talk.hear())["do"] != "close":
            if order["do"] == "verify":
                machine = Machine(**order["machine"])
                check = gate.check(self.trial, model, opened.answer, opened.artifact, machine)
                self.talk.say("verified", verification=codec.verification_to_json(check) if check else None)
            elif order["do"] == "answer":
                self._say_answer(opened, model)
            else:
                raise Abandoned

    def _say_answer(self, opened: Opened, model: Model) -> None:
        """Answer one bench input, for comparison with the other workers; say how large a batch is."""
        batch = _one_batch(model, self.trial.batch)
        outputs: Sequence[Any] = () if opened.answer is None or batch is None else opened.answer(batch)
        path = self.folder / f"answer-{self.number}.npz"
        np.savez(path, *outputs)
        given = 0 if batch is None else sum(array.nbytes for array in batch.values())
        made = sum(np.asarray(array).nbytes for array in outputs)
        self.talk.say("answer", outputs=str(path), input_bytes=given, output_bytes=made)


def _drivable(trial: Trial, backend: object, scenario: object) -> None:
    """Raise UnsupportedError for what would not begin and end when the others do."""
    own = trial.backend if isinstance(backend, SelfDriven) else ""
    own = own or (trial.scenario if isinstance(scenario, Foreign) or trial.scenario in ALONE else "")
    if own:
        raise UnsupportedError(
            "E-CREW-1",
            f"{own} owns its loop, so its processes cannot agree on a start and a stop",
            fix="--processes 1 --sharing shared, or a backend and a scenario that edgescope drives",
        )


def _one_batch(model: Model, size: int) -> Batch | None:
    samples = model.samples(Purpose.BENCH, 1)
    if samples is None or not len(samples):
        return None
    rows = np.zeros(size, dtype=np.int64)
    return {name: np.ascontiguousarray(array[rows]) for name, array in samples.arrays.items()}


def serve(talk: Talk) -> None:
    """Answer trials until the leader has gone."""
    talk.say("here", pid=os.getpid())
    for order in talk.heard():
        if order["do"] == "load":
            load(Trial.from_json(order["trial"]))
            peak = peak_rss()
            talk.say("loaded", peak_bytes=peak.value if isinstance(peak, Measured) else 0.0)
        if order["do"] != "open":
            continue  # of a trial that failed here while the leader was still writing
        if order.get("again"):
            forget_peak()
        try:
            Shift(talk, order).work()
        except Abandoned:
            pass
        except EOFError:
            return
        except Exception as error:  # models and engines raise anything
            status, reason = told(error)
            talk.say("failed", status=status.value, reason=reason)
        give_back()
        talk.say("closed")


def load(trial: Trial) -> None:
    """Load the trial's model once and close it; what is wrong with it is told by the first trial that opens it.

    What a process does only once is then done: importing the engine, opening the GPU, finding its libraries.
    """
    with suppress(Exception):
        model = zoo.get(trial.model, trial.shapes, trial.batch)
        backend = registry.load(registry.BACKENDS, trial.backend, "backend")()
        if not isinstance(backend, SelfDriven):
            backend.load(backend.prepare(model, spec_of(trial), cache.folder("artifacts"))).close()
    give_back()


def forget_peak() -> None:
    """Have the kernel count the largest resident set anew (proc_pid_clear_refs(5)); some kernels cannot."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def give_back() -> None:
    """Free what the last session left: unreachable objects, the engine's cache on the device, the heap's free pages."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    with suppress(AttributeError, OSError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)


def main(argv: list[str]) -> None:
    """Serve the leader whose process id is given until it has gone."""
    die_with_parent(int(argv[0]))
    serve(Talk.own())


if __name__ == "__main__":
    main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(0)  # engines may crash while their threads are torn down
