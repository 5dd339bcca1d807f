"""One unit is one step of training: fetch a minibatch, copy it, forward, loss, backward, optimizer.

Any classifier of the zoo or module:callable can be trained, and a callable that returns a `Task` brings its own loader
and loss. The last minibatch of an epoch holds the samples that are left, and the next epoch has another order. The loss
shows whether the steps are right: the first steps are repeated from the same weights with the same minibatches, once as
the trial specifies and once in fp32 on the CPU, both without dropout, and the two curves must agree.

The parts of a step are those of the steps that were measured: marks on one time line, and no extra waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from edgescope import registry
from edgescope.analysis.run import epochs
from edgescope.errors import UnsupportedError
from edgescope.options import Option, read
from edgescope.records import QUERY_OK, Absent, Field, Measured, Queries, Trial, Verification, Window
from edgescope.registry import need
from edgescope.workloads.base import EndOfInput, OpenWorkload, Parts, SampleOutput
from edgescope.workloads.blocking import Failures, Unit, blocking

if TYPE_CHECKING:
    from edgescope.wings.training.loop import Loop

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
            return _losses(make(model, of, options, dropout=False), batches[:steps])

        try:
            yield OpenWorkload(
                work=blocking(lambda query_id: _stepped(loop), 1, failures),
                model=model.info,
                effective=loop.effective,
                verify=lambda machine: _verified(again, trial),
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
    return SampleOutput([np.array(_losses(loop, batches))], count(batches[0]))


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


def _losses(loop: Loop, batches: list[Any]) -> list[float]:
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


def _verified(again: Callable[..., list[float]], trial: Trial) -> Verification:
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
