"""One unit is one step of training: fetch a minibatch, copy it, forward, loss, backward, optimizer.

Any classifier of the zoo or module:callable can be trained, and a callable that returns a `Task` brings its own loader
and loss. The last minibatch of an epoch holds the samples that are left, and the next epoch has another order. The loss
shows whether the steps are right: the first steps are repeated from the same weights with the same minibatches, once as
the trial specifies and once in fp32 on the CPU, both without dropout, and the two curves must agree.

The parts of a step are those of the steps that were measured: marks on one time line, and no extra waits.

Interleaved, one unit is one inference, and between inferences the same process trains, a minibatch at a time. A device
that serves and trains at once can share itself in time without help of a driver: a step of training begins only while
no query is being answered, and only if it is expected to end before the next query falls due; its minibatch is loaded
before, while the device is free for queries. `guard` says how surely: the step must fit `guard` times over into the gap
that arrivals have left so far; with 0 it begins in any gap, and a query then waits for one step at most.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from edgescope import registry
from edgescope.backends.base import Trainer
from edgescope.errors import UnsupportedError
from edgescope.options import Option, read
from edgescope.records import QUERY_OK, Absent, Field, Measured, Queries, Trial, Verification, Window
from edgescope.registry import need
from edgescope.wings.training import epochs
from edgescope.workloads.base import Done, EndOfInput, OpenWorkload, Parts, Program, SampleOutput, Work
from edgescope.workloads.blocking import Failures, Unit, blocking
from edgescope.workloads.inference import Inference

if TYPE_CHECKING:
    from edgescope.wings.training.loop import Loop


EXTRA = "pip install 'edgescope[torch]'"
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
#: Steps whose losses are compared, and the largest relative distance from the fp32 curve on the CPU.
STEPS = 5
CLOSE = {"fp32": 1e-3, "tf32": 2e-2, "bf16": 5e-2, "fp16": 2e-2}
#: On a GPU, in fp32 too: batch norms of small minibatches magnify another order of summation from step to step.
CLOSE_CUDA = 1e-2
#: Steps are compared until this much time has passed, two of them in any case.
CHECK_S, FEWEST = 4.0, 2
NO_STEP = "no step ended in the window"
UNREAD = Absent("the kernel does not say what the loader's processes read: /proc/self/io")


class Training:
    """Trains a network in PyTorch; one unit is one minibatch."""

    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "optimizer": Option("sgd", "how weights are updated", ("sgd", "adam")),
        "learning_rate": Option(0.01, "step size of the optimizer", least=0.0),
        "images": Option(
            "", "folder that edgescope train data wrote; without it, 64 samples of the model's own"
        ),
        "epoch_samples": Option(0, "samples in one epoch; 0: the whole folder, or 1000 without one", least=0),
        "epochs": Option(0, "end after so many epochs; 0: when the window ends", least=0),
        "num_workers": Option(-1, "processes that load minibatches; -1: as the task says, else 0", least=-1),
        "prefetch_factor": Option(
            0, "minibatches that each worker loads ahead; 0: as the task says", least=0
        ),
        "persistent_workers": Option(False, "keep the workers from epoch to epoch"),
        "decode": Option(
            "full", "draft: the JPEG decoder scales by 2, 4 or 8 where it can", ("full", "draft")
        ),
        "preload": Option(False, "hold the files' bytes in memory"),
        "medium": Option("as_is", "emulate a class of storage", ("as_is", "sd", "emmc", "hdd", "nvme")),
        "medium_by": Option(
            "delay",
            "delay: reads wait; io_max: a control group limits the disk (needs rights)",
            ("delay", "io_max"),
        ),
        "page_cache": Option(
            "as_is",
            "drop the files from it before the first epoch (cold) or each, or read them first (warm)",
            ("as_is", "cold", "cold_epochs", "warm"),
        ),
        "held": Option(False, "train on the first minibatch again and again: the device's own speed"),
        "on_error": Option("stop", "skip: an item that cannot be loaded is counted", ("stop", "skip")),
    }

    def check(self, trial: Trial) -> None:
        """Raise UnsupportedError for an engine, a precision or a setting that nothing is trained with."""
        _supported(trial)

    def prepare(self, trial: Trial, parts: Parts) -> None:
        """Raise UnsupportedError for a trial that cannot be trained; nothing is built beforehand."""
        read("training", trial.workload_options, self.OPTIONS)
        _supported(trial)
        parts.model(trial).module()

    def program(self, trial: Trial, parts: Parts) -> Program | None:
        """Return the program that trains somewhere else, if the engine has one; otherwise None."""
        backend = parts.backend(trial.backend)
        if not isinstance(backend, Trainer):
            return None
        options = read("training", trial.workload_options, self.OPTIONS)
        _supported(trial)
        elsewhere = need("edgescope.wings.training.elsewhere:program", "training", EXTRA)
        found: Program = elsewhere(parts.model(trial), trial, options, backend)
        return found

    @contextmanager
    def open(self, trial: Trial, parts: Parts) -> Iterator[OpenWorkload]:
        """Hold the network, its optimizer and its loader open; do one step before anything is timed."""
        options = read("training", trial.workload_options, self.OPTIONS)
        _supported(trial)
        with _disk(options):
            yield from self._opened(trial, parts, options)

    def _opened(self, trial: Trial, parts: Parts, options: Mapping[str, Any]) -> Iterator[OpenWorkload]:
        model = parts.model(trial)
        make = need("edgescope.wings.training.loop:Loop", "training", "pip install 'edgescope[torch]'")
        start = time.monotonic_ns()
        loop: Loop = make(model, trial, options)
        loaded = time.monotonic_ns()
        batches = loop.peek(STEPS)
        ready = time.monotonic_ns()
        loss = loop.alone(batches[0])
        first, failures = time.monotonic_ns(), Failures()

        def again(of: Trial, steps: int = STEPS) -> list[float]:
            return losses(make(model, of, options, dropout=False), batches[:steps])

        try:
            yield OpenWorkload(
                work=blocking(lambda query_id: _stepped(loop), 1, failures),
                model=model.info,
                effective=loop.effective,
                verify=lambda machine: verified(again, trial),
                facts={
                    "build_s": Absent("nothing is built beforehand"),
                    "load_s": Measured((loaded - start) / 1e9, "s"),
                    "first_s": Measured((first - ready) / 1e9, "s"),
                },
                artifact={
                    "path": None,
                    "data": loop.origin,
                    **options,
                    "loader": loop.loader,
                    "log": loop.log,
                    "left_out": loop.lost,
                },
                failure=lambda: failures.first,
                breakdown=loop.spans,
                metrics=lambda rows, window: _metrics(loop, loss, rows, window),
                sample_output=lambda: _sample_output(
                    make(model, replace(trial, seed=0), options, dropout=False)
                ),
            )
        finally:
            loop.close()


def _disk(options: Mapping[str, Any]) -> AbstractContextManager[object]:
    """Return what limits the disk of the pictures while the run lasts, if a control group shall."""
    if options["medium_by"] == "delay" or options["medium"] == "as_is" or not options["images"]:
        return nullcontext()
    limited = need("edgescope.wings.training.medium:limited", "training", "pip install 'edgescope[torch]'")
    media = need("edgescope.wings.training.medium:MEDIA", "training", "pip install 'edgescope[torch]'")
    found: AbstractContextManager[object] = limited(Path(options["images"]), media[options["medium"]])
    return found


def _stepped(loop: Loop) -> Unit:
    size = loop.step()
    if size is None:
        raise EndOfInput
    return Unit(size, loop.line.marks())


def _sample_output(loop: Loop) -> SampleOutput:
    """Return the first losses of a loop with the seed that all workers share; as many, however busy the machine is."""
    batches = loop.peek(FEWEST)
    count = need("edgescope.wings.training.loop:bytes_in", "training", "pip install 'edgescope[torch]'")
    return SampleOutput([np.array(losses(loop, batches))], count(batches[0]))


def _supported(trial: Trial) -> None:
    able = [name for name in registry.BACKENDS if registry.facts(name).TRAINS]
    problems = (
        (trial.backend in able, f"backend {trial.backend}", f"--backend {' or '.join(able)}"),
        (
            trial.precision in PRECISIONS,
            f"precision {trial.precision}",
            f"--precision {' or '.join(PRECISIONS)}",
        ),
        (trial.in_flight == 1, f"{trial.in_flight} steps at once", "--in-flight 1"),
        (
            trial.io == "host" or (trial.io == "pinned" and trial.place.own_memory),
            f"io {trial.io} on {trial.device}",
            "--io host, or on a GPU --io pinned",
        ),
    )
    for ok, what, fix in problems:
        if not ok:
            raise UnsupportedError(
                "E-STEP-1", f"training has no {what}", effect="Nothing was measured", fix=fix
            )


def losses(loop: Loop, batches: list[Any]) -> list[float]:
    """Return the losses of the first steps, as many as there is time for."""
    end = time.monotonic() + CHECK_S
    found: list[float] = []
    for batch in batches:
        if len(found) >= FEWEST and time.monotonic() > end:
            break
        found.append(loop.alone(batch))
    return found


def _metrics(loop: Loop, first: float, rows: Queries, window: Window) -> dict[str, Field]:
    stretch = loop.between(window.start_ns, window.stop_ns)
    steps = len(stretch.losses)
    found: dict[str, Field] = {
        "loader_cpu_s": _each(stretch.loader_cpu_s, steps, epochs.NO_COSTS),
        "host_cpu_s": _each(stretch.host_cpu_s, steps, NO_STEP),
        "loss_first": Measured(first, "nats"),
        "loss_last": Measured(float(stretch.losses[-1]), "nats") if steps else Absent(NO_STEP),
        "epochs": _epochs(loop, rows),
        "skipped_items": Measured(
            float(stretch.skipped), "items", n=int(stretch.sizes.sum()) + stretch.skipped
        ),
        **epochs.metrics(loop.spans().between(window.start_ns, window.stop_ns)),
    }
    if loop.log and (held := loop.log[0].get("page_cache_before")) is not None:
        disk = stretch.disk_bytes
        found["page_cache_share"] = Measured(float(held), "1")
        found["disk_read_bytes"] = UNREAD if disk is None else Measured(float(disk), "bytes", n=steps)
    if loop.options["page_cache"].startswith("cold") and (speed := loop.speed()) is not None:
        found |= {
            "medium_read_bytes_s": Measured(speed.bytes_s, "bytes/s", n=speed.files),
            "medium_latency_s": Measured(speed.latency_s, "s", n=speed.files),
        }
    return found


def _epochs(loop: Loop, rows: Queries) -> Field:
    """Return the samples of the window over those of an epoch."""
    ended = [row["samples"] for row in loop.log if row["end_ns"]]
    done = int(rows.columns["samples"][rows.columns["status"] == QUERY_OK].sum())
    if not sum(ended):
        return Absent("no epoch ended in the run")
    return Measured(done * len(ended) / sum(ended), "epochs", n=done)


def _each(seconds: float | None, steps: int, why: str) -> Field:
    return Measured(seconds / steps, "s", n=steps) if steps and seconds is not None else Absent(why)


def verified(again: Callable[..., list[float]], trial: Trial) -> Verification:
    """Return whether the first losses agree with those of the same steps in fp32 on the CPU."""
    got = again(trial)
    plain = replace(trial, precision="fp32", device="cpu", backend="torch_eager", options={}, io="host")
    wanted = again(plain, len(got))
    gaps = [abs(a - b) / max(abs(b), 1e-6) for a, b in zip(got, wanted, strict=False)]
    apart = float(np.max(gaps))  # NaN if a loss is
    close = max(CLOSE[trial.precision], 0.0 if trial.place.is_host else CLOSE_CUDA)
    fields: dict[str, Any] = {"loss_error": Measured(apart, "1", n=len(gaps))}
    return Verification(
        passed=bool(apart <= close),
        method="loss_curve",
        fields=fields,
        threshold=close,
        detail=f"the losses of {len(gaps)} steps differ from fp32 on the CPU by {apart:.2g} at most (max {close:g})",
        reference="torch_eager fp32 cpu",
    )


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
