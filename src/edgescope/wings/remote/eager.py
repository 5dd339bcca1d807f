"""torch_eager on a board: its own PyTorch runs the network, driven by a program that is sent (torch_program.py).

The host follows the network once (network.py), sends operators and numbers, which the board keeps, and gets back when
each query began and ended on the board's clock. The program decides when it is warm and when the mean is known, by
the rules that a trial sets: warm-up, shortest and longest duration, width of the interval, number of queries.

A query is what it is in torch_eager on the host: a batch in the host's memory becomes outputs there. The operators are
called one by one from Python; what is left out is the Python of the modules around them, so a network of many small
modules can be some per cent faster than its own code on a slow CPU (W-ON-1 says so).

Answers for the gate come from a second start of the program, for all inputs at once, each in a batch of the trial's.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from edgescope import cache
from edgescope.backends.base import (
    About,
    Artifact,
    Lessons,
    ProgramRun,
    Session,
    Spec,
    checked,
    choice,
    counted,
    precision_of,
    spec_of,
    threads_of,
)
from edgescope.bench.workers import seconds as together_s
from edgescope.errors import DeviceError, Message, UnsupportedError, UsageError
from edgescope.models.base import Batch, Model, Purpose
from edgescope.process import scratch_folder
from edgescope.records import (
    QUERY_DTYPES,
    Absent,
    Effective,
    Field,
    Json,
    Measured,
    Queries,
    Trial,
    Window,
    digest,
)
from edgescope.registry import need
from edgescope.verify import judge
from edgescope.wings.remote import errors
from edgescope.wings.remote.board import ANOTHER, Board, Line, Lines

PROGRAM = "torch_program.py"
NETWORK, JOB, GIVEN = "network.bin", "job.json", "given.bin"
REPORT, TIMES, ANSWERS = "report.json", "times.bin", "answers.bin"
#: Most seconds of one run, and of one start that answers the gate's inputs; a trial's own limit is usually shorter.
RUN_S, ANSWER_S, SURVEY_S = 6 * 3600.0, 3600.0, 300.0
#: Precision -> PyTorch's name of its numbers, and the compute capability from which a GPU computes in it.
DTYPES = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}
CAPABILITY = {"fp32": (0, 0), "tf32": (8, 0), "fp16": (5, 3), "bf16": (8, 0)}
NAMES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float64": "fp64"}
#: Different inputs that queries take in turn, as in process.
POOL = 8
EXTRA = "pip install 'edgescope[torch]'"


class BoardEager(About):
    """The torch_eager backend of a board."""

    PRECISIONS: ClassVar[Mapping[str, Sequence[str]]] = {"cpu": ("fp32", "bf16"), "cuda": tuple(DTYPES)}
    READS: ClassVar[frozenset[str]] = frozenset({"network"})
    OPTIONS: ClassVar[Mapping[str, str]] = {
        "threads": "intra-op threads (PyTorch's default)",
        "layout": "contiguous or channels_last (contiguous)",
    }

    def __init__(self, board: Board) -> None:
        self._board = board

    def prepare(self, model: Model, spec: Spec, folder: Path) -> Artifact:
        """Return the network as operators and numbers, written once; UnsupportedError if it cannot be."""
        checked("torch_eager on a board", spec, self.OPTIONS)
        threads_of(spec)
        choice(spec, "layout", ("contiguous", "channels_last"))
        if spec.precision not in self.PRECISIONS.get(spec.device, ()) or spec.io != "host":
            raise _unable(spec)
        network = need("edgescope.wings.remote.network:write", "a network for a board", EXTRA)
        samples = model.samples(Purpose.BENCH, spec.batch)
        assert samples is not None
        batch = _rows(samples.arrays, spec.batch)
        shapes = {name: array.shape for name, array in batch.items()}
        dtype, version = DTYPES[spec.precision], need("edgescope.wings.remote.network:VERSION", "it", EXTRA)
        key = digest([version, model.info.digest, dtype, repr(shapes), cache.versions(("torch",))])
        torch = need("torch", "a network for a board", EXTRA)
        names = [i.name for i in model.inputs]
        path = cache.made_once(
            cache.named(folder, model.info.name, f"operators-{dtype}", key, ".bin"),
            lambda made: network(model.module(), batch, names, getattr(torch, dtype), made),
        )
        return Artifact(model, spec, path, cache.content(path), None, {"made": cache.notes(path)})

    def load(self, artifact: Artifact) -> Session:
        """Raise an error: the program on the board owns its loop."""
        raise UsageError(
            "E-TRTX-13",
            "a board's PyTorch answers through drive(), not through a session",
            fix="edgescope bench MODEL --backend torch_eager --on ssh://user@board",
        )

    def drive(self, artifact: Artifact, trial: Trial) -> Sequence[ProgramRun]:
        """Run the program's loop in all of the trial's processes; an EdgescopeError says why there is no run."""
        if trial.in_flight > 1:
            raise errors.one_at_a_time(trial.in_flight)
        return _Run(self._board, artifact, trial).measure()

    def train(self, model: Model, trial: Trial, lessons: Lessons) -> Sequence[ProgramRun]:
        """Take steps of training in all of the trial's processes; an EdgescopeError says why there is no run."""
        made = need("edgescope.wings.remote.training:train", "training on a board", EXTRA)
        runs: Sequence[ProgramRun] = made(self._board, model, trial, lessons)
        return runs

    def survey(self, spec: Spec) -> Mapping[str, Json]:
        """Return what PyTorch the board has; UnavailableError if it has none, an old one, or not the device."""
        with scratch_folder("board-torch") as name:
            return Start("look for PyTorch", job(spec, "survey"), SURVEY_S).on(self._board, Path(name), {})[0]


def _unable(spec: Spec) -> UnsupportedError:
    return UnsupportedError(
        "E-PREC-1" if spec.io == "host" else "E-IO-1",
        f"torch_eager on a board has no {spec.precision} on {spec.device} with io {spec.io}",
        effect="Nothing was measured",
        fix="--precision fp32 or fp16, --io host; or --backend trtexec",
    )


def _rows(arrays: Mapping[str, NDArray[Any]], count: int) -> dict[str, NDArray[Any]]:
    """Return `count` samples, repeated if there are fewer."""
    return {n: np.ascontiguousarray(a[np.arange(count) % len(a)]) for n, a in arrays.items()}


def job(spec: Spec, verb: str) -> dict[str, Json]:
    """Return what the program must know of a spec, whatever it does."""
    return {
        "verb": verb,
        "device": spec.device,
        "precision": spec.precision,
        "dtype": DTYPES[spec.precision],
        "capability": list(CAPABILITY[spec.precision]),
        "threads": threads_of(spec),
        "layout": choice(spec, "layout", ("contiguous", "channels_last")),
        "batch": spec.batch,
        "report": REPORT,
    }


@dataclass(frozen=True)
class Start:
    """One start of the program."""

    doing: str
    job: Mapping[str, Json]
    limit_s: float
    fetched: tuple[str, ...] = ()
    """What it writes besides its report."""
    program: str = PROGRAM

    def on(
        self, board: Board, folder: Path, files: Mapping[str, Path], count: int = 1
    ) -> list[dict[str, Any]]:
        """Start it with some files in `count` processes; return the report of each and what it cost.

        What number 0 wrote is then in FOLDER/0, and so on.
        """
        (folder / JOB).write_text(json.dumps(self.job))
        source = resources.files("edgescope.wings.remote")
        programs = {self.program, PROGRAM}
        for name in programs:
            (folder / name).write_bytes(source.joinpath(name).read_bytes())
        sent = {**files, **{name: folder / name for name in (*programs, JOB)}}
        started = []
        for place in (folder / str(number) for number in range(count)):
            place.mkdir()
            made = {name: place / name for name in (REPORT, *self.fetched)}
            words = [board.python(), self.program, JOB]
            started.append((Line(words, sent, made, {*programs, NETWORK}), Lines(self.doing)))
        ended = board.perform_all(started, self.limit_s, self.doing)
        bad = [n for n, told in enumerate(ended) if told["stopped"] != ANOTHER and _bad(told)]
        if bad:
            texts = _texts(started[bad[0]][1])
            raise errors.torch_failed(board.wire.address, self.doing, ended[bad[0]], texts)
        return [
            {
                **json.loads((folder / str(number) / REPORT).read_text()),
                **{name: told.get(name) for name in ("peak_bytes", "seconds", "pid")},
                "said": _texts(started[number][1])[:20],
            }
            for number, told in enumerate(ended)
        ]


def _bad(told: Mapping[str, Any]) -> bool:
    return bool(told["stopped"] or told["code"])


def _texts(lines: Lines) -> list[str]:
    return [text for _, text in lines.found if text.strip()]


@dataclass(frozen=True)
class _Run:
    """One network, one trial, one board."""

    board: Board
    artifact: Artifact
    trial: Trial

    def measure(self) -> list[ProgramRun]:
        """Let the program query in every process; return the queries of each on the board's clock."""
        trial, model = self.trial, self.artifact.model
        samples = model.samples(Purpose.BENCH, POOL * trial.batch)
        assert samples is not None
        count = trial.batch * max(1, min(POOL, len(samples) // trial.batch))
        told: dict[str, Json] = {
            "verb": "measure",
            "times": TIMES,
            "warmup": trial.warmup,
            "min_s": trial.min_s,
            "max_s": trial.max_s,
            "rel_width": trial.rel_width,
            "max_queries": trial.max_queries,
            "together_s": together_s(trial),
        }
        with scratch_folder("board-torch") as name:
            reports = self._ran(Path(name), told, _rows(samples.arrays, count), RUN_S, trial.processes)
            times = [np.fromfile(Path(name) / str(n) / TIMES, "<f8") for n in range(len(reports))]
        return [self._told(report, mine) for report, mine in zip(reports, times, strict=True)]

    def _told(self, report: Mapping[str, Any], times: NDArray[np.float64]) -> ProgramRun:
        """Return what one process did."""
        return ProgramRun(
            queries(times, self.trial.batch),
            Window(report["first_row"], report["queries"], ns(report["start_s"]), ns(report["stop_s"])),
            effective(self.trial, report),
            answer=partial(_answer, self),
            facts=facts(report),
            notes=notes(report),
            warnings=(OPERATORS,),
            settled=bool(report["settled"]),
            answer_rows=self._answer_rows(),
        )

    def _ran(
        self, folder: Path, told: Mapping[str, Json], arrays: Batch, limit_s: float, count: int = 1
    ) -> list[dict[str, Any]]:
        """Start the program on the network and some inputs, with what it is told; return the reports."""
        model, path = self.artifact.model, self.artifact.path
        assert path is not None
        ordered = {i.name: arrays[i.name] for i in model.inputs}
        named = {"network": NETWORK, "given": GIVEN}
        whole = {**job(spec_of(self.trial), ""), **named, **told}
        whole["inputs"] = written(ordered, folder / GIVEN)
        files = {NETWORK: path, GIVEN: folder / GIVEN}
        doing = f"{told['verb']} {model.info.name} {self.trial.precision} in PyTorch"
        fetched = str(told.get("times") or told["answers"])
        return Start(doing, whole, limit_s, (fetched,)).on(self.board, folder, files, count)

    def _answer_rows(self) -> int:
        """Return how many rows one start answers: all inputs of the gate, in whole batches."""
        size = self.trial.batch
        return -(-len(judge.gate_samples(self.artifact.model)) // size) * size


def effective(trial: Trial, report: Mapping[str, Any]) -> Effective:
    """Return the precision of the heavy operators in the first query, on the device that answered."""
    kinds = Counter({NAMES.get(k, k): n for k, n in report["kinds"].items()})
    precision = precision_of(kinds) if kinds else NAMES[DTYPES[trial.precision]]
    evidence = f"torch {report['torch']}: outputs of heavy operators {counted(kinds) or 'none'}"
    if trial.device == "cpu":
        return Effective("cpu", precision, report["threads"], evidence)
    if precision == "fp32" and any(report["tf32"]):
        precision = "tf32" if all(report["tf32"]) else "mixed (tf32, fp32)"
    matmul, cudnn = report["tf32"]
    return Effective(
        trial.device,
        precision,
        None,
        f"{evidence}; allow_tf32 matmul {matmul}, cuDNN {cudnn}; {report['gpu']}",
    )


def written(arrays: Batch, path: Path) -> list[Json]:
    """Write arrays one after another; return dtype, shape and offset of each."""
    found, offset = list[Json](), 0
    with open(path, "wb") as file:
        for array in arrays.values():
            offset += file.write(b"\0" * (-offset % 64))
            found.append({"dtype": str(array.dtype), "shape": list(array.shape), "offset": offset})
            offset += file.write(np.ascontiguousarray(array).tobytes())
    return found


def ns(seconds: float) -> int:
    """Return seconds as nanoseconds."""
    return round(seconds * 1e9)


def queries(times: NDArray[np.float64], batch: int) -> Queries:
    """Return the queries whose begins, then ends, are `times`, in seconds of the board's clock."""
    n = len(times) // 2
    begun, done = (np.rint(part * 1e9).astype(np.int64) for part in (times[:n], times[n:]))
    known: dict[str, NDArray[Any]] = {"query_id": np.arange(n), "issued_ns": begun, "done_ns": done}
    usual = {"source_ns": -1, "scheduled_ns": -1, "samples": batch}
    return Queries(
        {k: np.asarray(known.get(k, np.full(n, usual.get(k, 0))), dtype) for k, dtype in QUERY_DTYPES.items()}
    )


def facts(report: Mapping[str, Any]) -> dict[str, Field]:
    """Return the times outside the window and the memory of a process."""
    peak = report["peak_bytes"]
    return {
        "build_s": Absent("nothing is built beforehand"),
        "load_s": Measured(report["load_s"], "s"),
        "first_s": Measured(report["first_s"], "s"),
        "peak_rss_bytes": Absent("the program ended before it could be read")
        if peak is None
        else Measured(float(peak), "bytes"),
    }


def notes(report: Mapping[str, Any]) -> dict[str, Json]:
    """Return what ran in a process: versions, device, threads, what ended it."""
    named = (
        "torch",
        "python",
        "executable",
        "cuda",
        "cudnn",
        "gpu",
        "capability",
        "threads",
        "cuda_peak_bytes",
    )
    notes: dict[str, Json] = {name: report[name] for name in named if name in report}
    notes |= {name: report[name] for name in ("import_s", "settled", "stopped_by", "seconds", "said", "pid")}
    return notes | {"program": PROGRAM, "io": "host"}


#: What a reader must know of every such number.
OPERATORS = Message(
    "W-ON-1",
    "the board's PyTorch ran the network's operators, not the Python of its modules",
    effect="On a slow CPU a network of many small modules takes some per cent longer in its own code",
    fix="compare with other results over ssh",
)


def _answer(run: _Run, batch: Batch) -> Sequence[NDArray[Any]]:
    """Return the outputs of one or many batches, from a start of the program."""
    with scratch_folder("board-torch") as name:
        folder = Path(name)
        (report,) = run._ran(folder, {"verb": "answer", "answers": ANSWERS}, batch, ANSWER_S)
        data = (folder / "0" / ANSWERS).read_bytes()
    parts = [[_array(data, one) for one in outputs] for outputs in report["answers"]]
    if len({len(outputs) for outputs in parts}) != 1:
        raise DeviceError("E-ON-7", "the board's batches have different numbers of outputs")
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def _array(data: bytes, about: Mapping[str, Any]) -> NDArray[Any]:
    """Return one array of the file of answers; ValueError if the file is too short for it."""
    dtype, shape = np.dtype(about["dtype"]).newbyteorder("<"), tuple(about["shape"])
    count = int(np.prod(shape, dtype=np.int64))
    return np.frombuffer(data, dtype, count=count, offset=about["offset"]).reshape(shape)
