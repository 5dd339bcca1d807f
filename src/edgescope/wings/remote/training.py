"""Training on a board: its own PyTorch takes the steps, driven by a program that is sent (torch_training.py).

The host follows the network as it trains, once for each size of a minibatch, and sends operators, numbers and samples.
Back come when each step began and ended, when each of its parts ended, its loss, and where the epochs lay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope import cache
from edgescope.backends.base import Lessons, ProgramRun, spec_of
from edgescope.bench.workers import seconds as together_s
from edgescope.errors import UnsupportedError
from edgescope.models.base import Batch, Model
from edgescope.process import scratch_folder
from edgescope.records import SPAN_KINDS, UNIT, Absent, Field, Json, Measured, Spans, Trial, Window, digest
from edgescope.registry import need
from edgescope.wings.remote import eager
from edgescope.wings.remote.board import Board
from edgescope.wings.training.lends import epochs

TRAINING, PARTS, STEPS = "torch_training.py", "parts.bin", "times.bin"
#: Columns of a step's row: its begin, the end of each part, its own end; its loss and its samples.
COLUMNS = len(epochs.PARTS) + 4


def train(board: Board, model: Model, trial: Trial, lessons: Lessons) -> list[ProgramRun]:
    """Train the model in the board's PyTorch, in all of the trial's processes; return what each did."""
    if trial.precision not in eager.BoardEager.PRECISIONS.get(trial.device, ()) or trial.io != "host":
        raise UnsupportedError(
            "E-PREC-1",
            f"training on a board has no {trial.precision} on {trial.device} with io {trial.io}",
            effect="Nothing was measured",
            fix="--precision fp32, --io host",
        )
    return _Course(board, model, trial, lessons).run()


@dataclass(frozen=True)
class _Course:
    board: Board
    model: Model
    trial: Trial
    lessons: Lessons

    def run(self) -> list[ProgramRun]:
        trial = self.trial
        told: dict[str, Json] = {
            "verb": "train",
            "times": STEPS,
            "parts": PARTS,
            "warmup": trial.warmup,
            "min_s": trial.min_s,
            "max_s": trial.max_s,
            "rel_width": trial.rel_width,
            "max_queries": trial.max_queries,
            "together_s": together_s(trial),
        }
        arrays = {"inputs": self.lessons.inputs, "labels": self.lessons.labels}
        with scratch_folder("board-torch") as name:
            reports = self._ran(Path(name), told, arrays, eager.RUN_S, trial.processes)
            places = [Path(name) / str(number) for number in range(len(reports))]
            rows = [np.fromfile(place / PARTS, "<f8").reshape(-1, COLUMNS) for place in places]
            times = [np.fromfile(place / STEPS, "<f8") for place in places]
        every = zip(reports, rows, times, strict=True)
        return [self._told(report, mine, stamps) for report, mine, stamps in every]

    def _network(self) -> Path:
        """Return the network as it trains, written once."""
        trial, batch, rest = self.trial, self.trial.batch, self.lessons.size % self.trial.batch
        write = need("edgescope.wings.remote.network:write_training", "a network for a board", eager.EXTRA)
        version = need("edgescope.wings.remote.network:VERSION", "it", eager.EXTRA)
        torch = need("torch", "a network for a board", eager.EXTRA)
        sizes = [size for size in (batch, rest) if size]
        inputs = self.lessons.inputs
        examples = {n: torch.from_numpy(np.resize(inputs, (n, *inputs.shape[1:]))) for n in sizes}
        parts = [version, "training", self.model.info.digest, trial.seed, sizes, cache.versions(("torch",))]
        folder = cache.folder("artifacts")
        named = cache.named(folder, self.model.info.name, "training", digest(parts), ".bin")

        def made(path: Path) -> dict[str, Json]:
            torch.manual_seed(trial.seed)
            found: dict[str, Json] = write(self.model.module(), examples, path)
            return found

        return cache.made_once(named, made)

    def _ran(
        self, folder: Path, told: Mapping[str, Json], arrays: Batch, limit_s: float, count: int = 1
    ) -> list[dict[str, Any]]:
        """Start the program on the network and some samples, with what it is told; return the reports."""
        options = self.lessons.options
        named = (
            "optimizer",
            "learning_rate",
            "epochs",
            "num_workers",
            "prefetch_factor",
            "persistent_workers",
        )
        job: dict[str, Json] = {
            **eager.job(spec_of(self.trial), ""),
            "network": eager.NETWORK,
            "given": eager.GIVEN,
            "seed": self.trial.seed,
            "epoch_samples": self.lessons.size,
            **{name: options[name] for name in named},
            **told,
        }
        job["inputs"] = eager.written(arrays, folder / eager.GIVEN)
        files = {eager.NETWORK: self._network(), eager.GIVEN: folder / eager.GIVEN}
        doing = f"{told['verb']} {self.model.info.name} {self.trial.precision} in PyTorch"
        fetched = tuple(str(told[name]) for name in ("times", "parts") if name in told)
        start = eager.Start(doing, job, limit_s, fetched, TRAINING)
        return start.on(self.board, folder, files, count)

    def _told(
        self, report: Mapping[str, Any], rows: NDArray[np.float64], times: NDArray[np.float64]
    ) -> ProgramRun:
        """Return what one process did."""
        first = report["first_row"]
        window = Window(first, report["queries"], eager.ns(report["start_s"]), eager.ns(report["stop_s"]))
        spans, sizes, lost = _spans(report, rows), rows[:, -1], rows[:, -2]
        queries = eager.queries(times, 1)
        queries.columns["samples"][:] = sizes
        inside = spans.between(window.start_ns, window.stop_ns)
        facts: dict[str, Field] = {
            **eager.facts(report),
            "loss_first": Measured(report["loss_first"], "nats"),
            "loss_last": Measured(float(lost[-1]), "nats"),
            "epochs": _epochs(int(sizes[first:].sum()), report["log"]),
            **epochs.metrics(inside),
        }
        notes = eager.notes(report) | {"program": TRAINING, "log": report["log"]}
        return ProgramRun(
            queries,
            window,
            eager.effective(self.trial, report),
            answer=partial(_losses, self),
            facts=facts,
            notes=notes,
            warnings=(eager.OPERATORS,),
            settled=bool(report["settled"]),
            spans=spans,
        )


def _epochs(samples: int, log: Sequence[Mapping[str, Any]]) -> Field:
    """Return the samples of the window over those of an epoch."""
    ended = [row["samples"] for row in log if row["end_s"]]
    if not sum(ended):
        return Absent("no epoch ended in the run")
    return Measured(samples * len(ended) / sum(ended), "epochs", n=samples)


def _losses(course: _Course, batch: Batch) -> Sequence[NDArray[Any]]:
    """Return the losses of the first steps on given minibatches, from a start of the program."""
    told: dict[str, Json] = {"verb": "losses", "sizes": [int(size) for size in batch["sizes"]]}
    with scratch_folder("board-torch") as name:
        arrays = {name: batch[name] for name in ("inputs", "labels")}
        (report,) = course._ran(Path(name), told, arrays, eager.ANSWER_S)
    return [np.array(report["losses"])]


def _spans(report: Mapping[str, Any], rows: NDArray[np.float64]) -> Spans:
    """Return every step as a unit, its parts as phases, and the epochs that ended."""
    ends, number = np.rint(rows[:, :-2] * 1e9).astype(np.int64), np.arange(len(rows))
    log = [(n, row) for n, row in enumerate(report["log"]) if row["end_s"]]
    found = [_of("unit", UNIT, ends[:, 0], ends[:, -1], number)]
    found += [_of("phase", part, ends[:, i], ends[:, i + 1], number) for i, part in enumerate(epochs.PARTS)]
    starts, stops = (np.array([eager.ns(row[at]) for _, row in log], np.int64) for at in ("start_s", "end_s"))
    found.append(_of("range", "epoch", starts, stops, np.array([n for n, _ in log], np.int64)))
    return Spans.joined(found)


def _of(
    kind: str, name: str, starts: NDArray[np.int64], ends: NDArray[np.int64], steps: NDArray[np.int64]
) -> Spans:
    columns: dict[str, NDArray[np.int64] | int] = {"start_ns": starts, "end_ns": ends}
    columns |= {"query_id": steps, "stream": -1}
    return Spans.from_columns((name,), {"name": 0, "kind": SPAN_KINDS.index(kind), **columns})
