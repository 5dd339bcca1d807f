"""One unit is one inference; between inferences the same process trains, a minibatch at a time.

A device that serves and trains at once can share itself in time without help of a driver: a step of training begins
only while no query is being answered, and only if it is expected to end before the next query falls due; its minibatch
is loaded before, while the device is free for queries. `guard` says how surely: the step must fit `guard` times over
into the gap that arrivals have left so far; with 0 it begins in any gap, and a query then waits for one step at most.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from edgescope import registry
from edgescope.errors import UnsupportedError
from edgescope.options import Option, read
from edgescope.records import Absent, Field, Measured, Trial, Window
from edgescope.registry import need
from edgescope.wings.training.workload import Training
from edgescope.workloads.base import Done, OpenWorkload, Parts, Program, Work
from edgescope.workloads.inference import Inference

if TYPE_CHECKING:
    from edgescope.wings.training.loop import Loop

NEWEST = 0.2
"""Weight of the newest step, and of the newest gap, in what is expected of the next."""
WARM_S = 2.0
"""Training warms up for an epoch, whose last minibatch may be of another size, or for so long after its first step."""
PAUSE_S = 0.0005
"""No step begins so soon after an answer: a query that is overdue already is issued within this time."""
GAP_S = 4 * PAUSE_S
"""Training begins with the first gap of this length: warming up, one query follows the other at once."""


class Interleaved(Inference):
    """Answers queries, and trains in the gaps between them."""

    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "train": Option("", "the classifier that is trained (the model itself)"),
        "train_batch": Option(16, "samples in one minibatch of training", least=1),
        "guard": Option(0.0, "times that a step must fit into the gap before the next query", least=0.0),
        "images": Training.OPTIONS["images"],
        "num_workers": Training.OPTIONS["num_workers"],
    }

    def program(self, trial: Trial, parts: Parts) -> Program | None:
        """Return None: a program that owns its loop leaves no gaps."""
        return None

    @contextmanager
    def open(self, trial: Trial, parts: Parts) -> Iterator[OpenWorkload]:
        """Hold the engine and the training open; it warms up, and goes on with the first gap between queries."""
        options = read("interleaved", trial.workload_options, self.OPTIONS)
        if not registry.scenario(trial.scenario).open_loop:
            raise UnsupportedError(
                "E-SLICE-4",
                f"the scenario {trial.scenario} leaves no gaps to train in: each query follows the last at once",
                effect="Nothing was measured",
                fix="--scenario fixed_rate --rate 20",
            )
        if trial.in_flight != 1:
            raise UnsupportedError(
                "E-SLICE-1",
                f"time slices between {trial.in_flight} queries at once do not exist",
                effect="Nothing was measured",
                fix="--in-flight 1",
            )
        make = need("edgescope.wings.training.loop:Loop", "training", "pip install 'edgescope[torch]'")
        trained = replace(
            trial,
            model=str(options["train"]) or trial.model,
            backend="torch_eager",
            batch=int(options["train_batch"]),
            precision="fp32",
            workload="training",
            workload_options={},
            options={},
            io="host",
        )
        given = {name: options[name] for name in ("images", "num_workers")}
        loop: Loop = make(parts.model(trained), trained, read("training", given, Training.OPTIONS))
        with super().open(replace(trial, workload_options={}), parts) as served:
            slices = Slices(served.work, loop, float(options["guard"]))
            try:
                slices.warm_up()
                yield replace(
                    served,
                    work=slices,
                    metrics=lambda rows, window: {**served.metrics(rows, window), **slices.metrics(window)},
                    artifact={**served.artifact, **options, "train": trained.model},
                )
            finally:
                slices.close()
                loop.close()


class Slices:
    """Hands the device to one side at a time; a query that arrives during a step waits for its end."""

    def __init__(self, work: Work, loop: Loop, guard: float) -> None:
        self.work, self.loop, self.guard = work, loop, guard
        self.device, self.stop = threading.Lock(), threading.Event()
        self.waiting = 0
        """Number of queries that wait for the device or have it."""
        self.step_s, self.gap_s = 0.0, 0.0
        self.ended = math.inf
        self.failure: Exception | None = None
        self.warm, self.begin = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._train, daemon=True)

    def warm_up(self) -> None:
        """Return once the training is warm; raise what ended it.

        The thread that trains does these steps, which are not counted: a GPU's libraries make their handles for each
        thread and choose their kernels for each size of a minibatch, and both take many times as long as a step.
        """
        self.thread.start()
        self.warm.wait()
        if self.failure is not None:
            raise self.failure

    def issue(self, query_id: int, samples: int, done: Done) -> None:
        """Answer one query as soon as the running step, if any, has ended; raise what ended the training."""
        if self.failure is not None:
            raise self.failure
        now = time.monotonic()
        gap = now - self.ended
        if self.begin.is_set():
            self.gap_s = gap if not self.gap_s else (1 - NEWEST) * self.gap_s + NEWEST * gap
        elif gap >= GAP_S:
            self.begin.set()
        self.waiting += 1
        with self.device:
            self.work.issue(query_id, samples, done)
        self.waiting -= 1
        self.ended = time.monotonic()

    def flush(self) -> None:
        """Return when everything issued has at least been started."""
        self.work.flush()

    def _train(self) -> None:
        try:
            self._warm()
            self.warm.set()
            self.begin.wait()
            while not self.stop.is_set():
                self.loop.load()  # queries are answered while an epoch begins
                with self.device:
                    if stepped := self._free(time.monotonic()):
                        self._step()
                if not stepped:
                    time.sleep(1e-4)  # a spinning thread would hold the interpreter's lock
        except Exception as error:  # a task may raise anything; without it, nothing is measured of turns
            self.failure = error
        finally:
            self.warm.set()

    def _warm(self) -> None:
        until = math.inf
        while len(self.loop.log) < 2 and time.monotonic() < until and not self.stop.is_set():
            start = time.monotonic()
            if self.loop.step() is None:
                break
            self.step_s = time.monotonic() - start
            until = min(until, start + self.step_s + WARM_S)
        self.loop.precision_check.stop()

    def _step(self) -> None:
        start = time.monotonic()
        self.loop.step()
        spent = time.monotonic() - start
        self.step_s = spent if not self.step_s else (1 - NEWEST) * self.step_s + NEWEST * spent

    def _free(self, now: float) -> bool:
        """Return whether a step may begin: no query waits, none is overdue, and the next is expected after the step."""
        since = now - self.ended
        if self.waiting or since < PAUSE_S:
            return False
        return not self.guard or not self.gap_s or since + self.guard * self.step_s <= self.gap_s

    def metrics(self, window: Window) -> dict[str, Field]:
        """Return the rate of training beside the queries of the window, and how long a step took."""
        if self.failure is not None or not self.begin.is_set():
            none = Absent(
                f"training: {self.failure}" if self.failure else "no gap between queries was long enough"
            )
            return {"trained_sps": none, "train_step_s": none}
        done = self.loop.between(window.start_ns, window.stop_ns)
        steps, seconds = len(done.sizes), (window.stop_ns - window.start_ns) * 1e-9
        rate = Measured(float(done.sizes.sum()) / seconds, "samples/s", n=steps)
        step = Measured(done.took_s / steps, "s", n=steps) if steps else Absent("no step fitted into a gap")
        return {"trained_sps": rate, "train_step_s": step}

    def close(self) -> None:
        """End the training after its present step."""
        self.stop.set()
        self.begin.set()
        if self.thread.ident is not None:
            self.thread.join()
