"""TensorRT through the `trtexec` program that every JetPack ships; needs no TensorRT for Python.

trtexec owns its loop: it gets a duration, and exports when each query began and ended. single_stream makes it query
one at a time (`--exposeDMA`): by default it enqueues the next query before the last one has ended, so that its latency
would contain a wait or, in its own report, leave out the time between the phases. offline lets it run ahead
(option `ahead` overrides both). `in_flight` becomes its number of streams.

Its buffers are pinned, always. io `host` and `pinned` therefore both mean copies from and to pinned memory, inside the
latency; `device` leaves the copies out. One real input is repeated in every query. It has no warm-up that ends when
the data are steady: without --warmup it is one second.

Its latency covers device events, without the host's work around them: it is shorter than, and must not be compared
with, the latency of an engine in our process. `query_period_s` includes the host's work (trace.py).

Answers for the gate go through files: each batch needs a process, a deserialised engine and a context, 0.5 to 10 s
depending on the board. An untrained model at batch 1 needs 32 of them, a trained one 370 and more the first time.
Option `gate_batch` builds the engine for batches up to that size and verifies with them; the engine is still tuned for
the measured batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from edgescope import cache, registry
from edgescope.analysis.roofline import Layer
from edgescope.analysis.run.workers import common_s
from edgescope.artifacts.for_precision import TENSORRT_INT8_OPTIONS
from edgescope.artifacts.onnx_names import ModulePaths
from edgescope.backends.base import Artifact, ProgramRun, Session, Spec, checked, spec_of
from edgescope.bench.workers import seconds as together_s
from edgescope.errors import Message, ModelError, SettingError, UsageError
from edgescope.models.base import Batch, Model, Purpose
from edgescope.process import scratch_folder
from edgescope.records import Absent, Effective, Field, Json, Measured, Trial
from edgescope.wings.tensorrt import about, engine_file, layers
from edgescope.wings.tensorrt.trtexec import exports, log, program
from edgescope.wings.tensorrt.trtexec import trace as tracing
from edgescope.wings.tensorrt.trtexec.build import build, given_engine, job_of, switched, whole_number
from edgescope.wings.tensorrt.trtexec.log import Log
from edgescope.wings.tensorrt.trtexec.program import HERE, Place, Ran, Tool

#: Default seconds of warm-up; the program cannot detect when it is warm.
WARMUP_S = 1.0
#: Most seconds of one run; the trial's own time-out is usually shorter.
RUN_S = 6 * 3600.0
ANSWER_S = 600.0
#: Runs of several processes until they measure together for long enough; how much longer each is than it need be.
TRIES, MARGIN = 3, 1.5
#: The names of the files that it exports.
TIMES, LAYERS, PROFILE, OUTPUTS = "times.json", "layers.json", "profile.json", "outputs.json"


class TrtExec(about.AboutTensorRt):
    """The trtexec backend: builds with the program, lets it query, and reads its exports."""

    OPTIONS: ClassVar[Mapping[str, str]] = {
        "program": "path of trtexec (EDGESCOPE_TRTEXEC, PATH, /usr/src/tensorrt/bin)",
        "engine": "use the engine PATH#digest, with its sidecar, instead of building one",
        "graph": "launch through a CUDA graph (false)",
        "spin": "wait for the GPU by spinning (false)",
        "ahead": "hand over the next query before the last has ended (offline: true, single_stream: false)",
        "workspace": "MiB of scratch memory the builder may use (its own default)",
        "dla": "DLA core; layers it lacks run on the GPU (none)",
        "typed": "keep the ONNX file's types; always so from TensorRT 11 on (false)",
        "profile": "a second run that times every layer (false)",
        "timing_cache": "reuse the kernel times of earlier builds (true)",
        "gate_batch": "largest batch of the engine, used to verify it with fewer processes (the batch)",
        "build_timeout": "seconds until a build is stopped (3600)",
        **TENSORRT_INT8_OPTIONS,
    }

    def __init__(self, place: Place = HERE) -> None:
        self._place = place
        """The place where the program is and runs."""

    @staticmethod
    def usable(device: str) -> None:
        """Raise UnavailableError if there is no trtexec, or it sees no GPU."""
        HERE.survey(HERE.find(None))

    def prepare(self, model: Model, spec: Spec, folder: Path) -> Artifact:
        """Return the engine, built once per board, TensorRT and settings; cached under `folder`."""
        checked("trtexec", spec, self.OPTIONS)
        _check_options(spec)
        tool = self._tool(spec)
        about.require_unasked("trtexec", spec.precision, tool.compute_capability, tool.device)
        notes: dict[str, Json]
        if (given := spec.options.get("engine")) is not None:
            path, facts = given_engine(str(given), model, spec, tool)
            notes = {"made": _told(facts), "given": True}
            return Artifact(
                model, spec, path, facts.sha256, None, notes
            )  # its build was not part of this trial
        job = job_of(model, spec, folder, tool)
        path, facts = build(job, folder)
        notes = {"made": _told(facts), "onnx": str(job.onnx), "onnx_made": cache.notes(job.onnx)}
        return Artifact(model, spec, path, facts.sha256, facts.build_s, notes)

    def load(self, artifact: Artifact) -> Session:
        """Raise an error: the program owns its loop, and starting a process must not be timed as an inference."""
        raise UsageError(
            "E-TRTX-13",
            "trtexec answers through drive(), not through a session",
            fix="edgescope bench ... --backend trtexec; --backend tensorrt runs engines in process",
        )

    def drive(self, artifact: Artifact, trial: Trial) -> Sequence[ProgramRun]:
        """Run trtexec's loop in all of the trial's processes; an EdgescopeError says why it failed."""
        run = Run(artifact, trial, self._tool(spec_of(trial)))
        with scratch_folder("trtexec") as name:
            return run.measure(Path(name))

    def layers(self, artifact: Artifact, batch: Batch) -> Sequence[Layer]:
        """Return every layer of the engine: times of a profiled run, work as the engine and its ONNX file tell it."""
        trial = Trial(model=artifact.model.info.name, backend="trtexec", device="cuda")
        run = Run(artifact, trial, self._tool(artifact.spec))
        onnx = artifact.notes.get("onnx")
        with scratch_folder("trtexec") as name:
            files = run.profiled(Path(name), batch)
            paths = ModulePaths(Path(str(onnx)), artifact.spec.batch) if onnx else None
            return exports.read(files, paths).layers

    def _tool(self, spec: Spec) -> Tool:
        named = spec.options.get("program")
        return self._place.survey(self._place.find(None if named is None else str(named)))


def _check_options(spec: Spec) -> None:
    for name in ("graph", "spin", "ahead", "typed", "profile", "timing_cache"):
        switched(spec, name, False)
    for name, least in (("workspace", 1), ("dla", 0), ("gate_batch", 1), ("build_timeout", 1)):
        whole_number(spec, name, 1, least=least)


def _told(facts: engine_file.EngineFacts) -> Json:
    """Return a sidecar's content as JSON."""
    return json.loads(json.dumps(facts.__dict__, default=dict))


@dataclass(frozen=True)
class Run:
    """One engine, one trial, one program."""

    artifact: Artifact
    trial: Trial
    tool: Tool

    @property
    def transfers(self) -> bool:
        """Whether inputs and outputs are copied."""
        return self.trial.io != "device"

    @property
    def ahead(self) -> bool:
        """Whether the next query is handed over before the last has ended."""
        return switched(self.artifact.spec, "ahead", not registry.scenario(self.trial.scenario).timed)

    @property
    def serial(self) -> bool:
        """Whether a query begins only when the query before it has ended."""
        return not self.ahead and self.trial.in_flight == 1

    def measure(self, folder: Path) -> list[ProgramRun]:
        """Run the queries of every process, read their exports, and convert them to our clock.

        Processes that start at one moment load the engine for different times, and trtexec waits for nobody. So they
        run again, longer by what was missing, until all of them measure together for the trial's seconds.
        """
        folders = [folder / str(number) for number in range(self.trial.processes)]
        for each in folders:
            each.mkdir()
        seconds, least = self.trial.min_s, together_s(self.trial)
        if len(folders) > 1:
            seconds = MARGIN * least
        for _ in range(TRIES):
            runs = self._measured(folders, seconds)
            lacking = least - common_s([run.window for run in runs])
            if len(runs) == 1 or self.trial.max_queries is not None or lacking <= 0:
                break
            seconds += MARGIN * lacking
        return runs

    def _measured(self, folders: Sequence[Path], seconds: float) -> list[ProgramRun]:
        """Run one process in each folder, at once, each for so many seconds; return what they did."""
        doing = f"run {self.artifact.model.info.name} {self.trial.precision}"
        commands = [(self.command(each, each, seconds), each) for each in folders]
        rans = self.tool.place.together(commands, timeout_s=RUN_S, what=doing)
        for ran in rans:
            self._check(ran, doing)
        answer = partial(_answer, self)
        return [self.read(ran, each, answer) for ran, each in zip(rans, folders, strict=True)]

    def command(self, inputs: Path, folder: Path, seconds: float) -> list[str]:
        """Return the command that measures for so many seconds, started in `inputs`, to which the batch is written.

        Its exports go to `folder`.
        """
        trial = self.trial
        asked = program.Measure(self.warmup_s, seconds, trial.max_queries, trial.in_flight, self.ahead)
        bench = self.artifact.model.samples(Purpose.BENCH, trial.batch)
        batch = None if bench is None else _cut(bench.arrays, trial.batch)
        return [
            *self._loaded(inputs, batch, transfers=self.transfers),
            *program.measuring(self.tool, asked),
            *program.spell(self.tool, "times", folder / TIMES, need="export its times"),
            *program.spell(self.tool, "layer_info", folder / LAYERS),
            *self._profiled(folder),
        ]

    def read(self, ran: Ran, folder: Path, answer: Callable[[Batch], Sequence[NDArray[Any]]]) -> ProgramRun:
        """Return the measured run from its log and its exports in `folder`; `answer` answers a batch of the gate."""
        self._check(ran, f"run {self.artifact.model.info.name} {self.trial.precision}")
        times = exports.times(folder / TIMES)
        trace = tracing.aligned(
            ran, times, warmup_ms=self.warmup_s * 1e3, batch=self.trial.batch, transfers=self.transfers
        )
        found, doubts = self._effective(folder)
        graph = switched(self.artifact.spec, "graph", False)
        return ProgramRun(
            trace.queries,
            trace.window,
            found,
            answer=answer,
            facts={**tracing.phases(trace, serial=self.serial), **self._facts(ran)},
            notes=self._notes(ran, trace, folder),
            warnings=(
                *self._warnings(doubts),
                *tracing.warnings(trace, ran.log, transfers=self.transfers, graph=graph),
            ),
            answer_rows=self.answer_rows,
        )

    @property
    def warmup_s(self) -> float:
        """Seconds of its warm-up."""
        return WARMUP_S if self.trial.warmup is None else self.trial.warmup

    @property
    def answer_rows(self) -> int | None:
        """Rows that one process answers for the gate; None: the trial's batch, as in an engine of a fixed size."""
        most = whole_number(self.artifact.spec, "gate_batch", 1)
        return max(self.trial.batch, most) if self._open() else None

    def asking(self, inputs: Path, folder: Path, batch: Batch) -> list[str]:
        """Return the command that answers one batch, started in `inputs`, to which the batch is written."""
        return [
            *self._loaded(inputs, batch, transfers=True),
            *program.spell(self.tool, "outputs", folder / OUTPUTS, need="export its outputs"),
            *program.measuring(self.tool, program.Measure(0.0, 0.0, 1, 1, False)),
        ]

    def answered(self, ran: Ran, folder: Path) -> Sequence[NDArray[Any]]:
        """Return the outputs of such a run, in the network's order."""
        self._check(ran, "answer a batch")
        return _ordered(exports.outputs(folder / OUTPUTS), ran.log)

    def profiled(self, folder: Path, batch: Batch) -> list[Path]:
        """Run the engine for a second with a profile; return the files with its layers."""
        argv = [
            *self._loaded(folder, batch, transfers=True),
            *program.measuring(self.tool, program.Measure(0.2, 1.0, None, 1, False)),
            *program.spell(self.tool, "layer_info", folder / LAYERS),
            *program.spell(self.tool, "profile", folder / PROFILE, need="time layers"),
        ]
        doing = f"time the layers of {self.artifact.model.info.name}"
        self._check(self.tool.place.run(argv, cwd=folder, timeout_s=ANSWER_S, what=doing), doing)
        return [path for name in (PROFILE, LAYERS) if (path := folder / name).is_file()]

    def _loaded(self, folder: Path, batch: Batch | None, *, transfers: bool) -> list[str]:
        """Return the command that loads the engine and one batch, with every switch explicit."""
        spec = self.artifact.spec
        given: list[str] = []
        if batch is not None:
            given = program.spell(self.tool, "inputs", _written(batch, folder, self.tool), need="read inputs")
            if self._open():
                given.append(f"--shapes={program.shapes({n: a.shape for n, a in batch.items()})}")
        return [
            self.tool.path,
            f"--loadEngine={self.artifact.path}",
            *given,
            *program.state(self.tool, "transfers", transfers),
            *program.state(self.tool, "graph", switched(spec, "graph", False)),
            *program.state(self.tool, "spin", switched(spec, "spin", False)),
            *(
                []
                if spec.options.get("dla") is None
                else program.spell(self.tool, "dla", spec.options["dla"])
            ),
        ]

    def _open(self) -> bool:
        """Return whether the engine has a profile, so that shapes must be given."""
        made = self.artifact.notes.get("made")
        return isinstance(made, dict) and bool(made.get("profile"))

    def _profiled(self, folder: Path) -> list[str]:
        if not switched(self.artifact.spec, "profile", False):
            return []
        separate = program.spell(self.tool, "separate", need="time layers apart from the measured run")
        return [*program.spell(self.tool, "profile", folder / PROFILE, need="time layers"), *separate]

    def _check(self, ran: Ran, doing: str) -> None:
        if not ran.passed:
            raise log.failure(ran, self.tool, doing)
        ignored = next((w for w in ran.log.warnings if "under CUDA graph capture" in w), None)
        if ignored and switched(self.artifact.spec, "graph", False):
            raise SettingError(
                "E-TRTX-14",
                "trtexec ran without the requested CUDA graph",
                evidence=ignored,
                effect="The number would carry the label of a captured graph",
                fix="leave --option graph out for this network",
            )

    def _effective(self, folder: Path) -> tuple[Effective, list[Message]]:
        """Return the precision that the engine's layers show, and what they leave open."""
        asked = self.trial.precision
        core = self.artifact.spec.options.get("dla")
        where = "" if core is None else f"; DLA core {core}, the rest on the GPU"
        evidence = f"TensorRT {self.tool.version} exports no layer information"
        if (folder / LAYERS).is_file():
            told = layers.read((folder / LAYERS).read_text(encoding="utf-8", errors="replace"))
            if told.kinds:
                return Effective("cuda", told.precision(), None, f"{told.evidence()}{where}"), []
            evidence = told.evidence()
        certain = "fp32 is certain: nothing else was allowed"
        doubt = Message(
            "W-TRTX-6",
            f"which precision each layer ran in is not known; the builder was allowed {asked}",
            evidence=evidence,
            effect=certain if asked == "fp32" else "Some layers may have run in fp32",
            fix="TensorRT 8.4 or later tells",
        )
        return Effective("cuda", asked, None, f"builder flags only: {evidence}{where}"), [doubt]

    def _facts(self, ran: Ran) -> dict[str, Field]:
        """Return the times outside the measured window, and the program's memory."""
        log, built = ran.log, self.artifact.build_s
        return {
            "build_s": Absent("the engine was given") if built is None else Measured(built, "s"),
            "load_s": Absent("trtexec did not say") if log.loaded_s is None else Measured(log.loaded_s, "s"),
            "first_s": Absent("trtexec does not time its first query apart from the warm-up"),
            "peak_rss_bytes": Absent("the program ended before it could be read")
            if ran.peak_bytes is None
            else Measured(float(ran.peak_bytes), "bytes"),
        }

    def _notes(self, ran: Ran, trace: tracing.Trace, folder: Path) -> dict[str, Json]:
        log = ran.log
        notes: dict[str, Json] = {
            "program": self.tool.path,
            "version": self.tool.version,
            "gpu": self.tool.device,
            "compute_capability": self.tool.compute_capability,
            "command": list(ran.argv),
            "pid": ran.pid,
            "seconds": ran.seconds,
            "summary_ms": {name: dict(values) for name, values in log.summary_ms.items()},
            "totals": dict(log.totals),
            "said": list(log.warnings[:20]),
            "clock_offset_ns": trace.offset_ns,
            "clock_uncertainty_ns": trace.uncertainty_ns,
            "resolution_ms": trace.resolution_ms,
            "enqueue_ahead": self.ahead,
            "io": "copies from and to pinned memory" if self.transfers else "copies left out",
        }
        if switched(self.artifact.spec, "profile", False):
            count, timed = exports.profile(folder / PROFILE)
            notes["layer_profile"] = {"iterations": count, "layers": [layer.__dict__ for layer in timed]}
        return notes

    def _warnings(self, doubts: Sequence[Message]) -> list[Message]:
        """Return the warnings about how it queried."""
        warnings = list(doubts)
        if registry.scenario(self.trial.scenario).timed:
            what = "trtexec's latency covers device events, without the host's work around them"
            effect = "It is not comparable with the latency of an engine that runs in our process"
            fix = "compare query_period_s" if self.serial else "compare throughput"
            warnings.append(Message("W-TRTX-10", what, effect=effect, fix=fix))
        if self.ahead and registry.scenario(self.trial.scenario).timed:
            what = "trtexec enqueued each query before the last one had ended"
            effect = (
                "A latency contains the wait for the query before it; it is not the latency of a single query"
            )
            warnings.append(Message("W-TRTX-7", what, effect=effect, fix="leave --option ahead out"))
        if self.trial.in_flight > 1 and registry.scenario(self.trial.scenario).timed:
            what = f"{self.trial.in_flight} streams shared the GPU"
            effect = "Their phases overlap; throughput is the number to compare"
            warnings.append(Message("W-TRTX-8", what, effect=effect, fix="--in-flight 1"))
        if self.trial.io == "host":
            what = "inputs and outputs are in pinned memory, the only kind that trtexec uses"
            effect = "A program with ordinary arrays pays for one more copy each way"
            warnings.append(
                Message("W-TRTX-9", what, effect=effect, fix="--io pinned says so in the trial's name")
            )
        return warnings


def _cut(arrays: Mapping[str, NDArray[Any]], batch: int) -> dict[str, NDArray[Any]]:
    """Return one batch of the first samples, repeated if there are fewer."""
    return {n: np.ascontiguousarray(a[np.arange(batch) % len(a)]) for n, a in arrays.items()}


def _written(batch: Batch, folder: Path, tool: Tool) -> str:
    """Write one raw file per input and return the list that names them, relative to the folder in which it runs."""
    entries = []
    for index, (name, array) in enumerate(batch.items()):
        # Before 10 TensorRT has no 64-bit integers and casts such inputs to 32 bits.
        narrow = array.dtype == np.int64 and tool.release < (10, 0)
        np.ascontiguousarray(array.astype(np.int32) if narrow else array).tofile(folder / f"input{index}.bin")
        entries.append(f"{program.quoted(name)}:input{index}.bin")
    return ",".join(entries)


def _answer(run: Run, batch: Batch) -> Sequence[NDArray[Any]]:
    """Return the outputs of one batch, from a separate process, in the network's order."""
    with scratch_folder("trtexec") as name:
        folder = Path(name)
        ran = run.tool.place.run(run.asking(folder, folder, batch), cwd=folder, timeout_s=ANSWER_S)
        return run.answered(ran, folder)


def _ordered(found: Mapping[str, NDArray[Any]], log: Log) -> list[NDArray[Any]]:
    """Return the outputs in the order of the network; the file has them in the order of a hash table."""
    if len(found) == 1:
        return list(found.values())
    if set(log.outputs) != set(found):
        raise ModelError(
            "E-TRTX-15",
            "the order of the network's outputs is not known",
            evidence=f"the file has {sorted(found)}, the log names {list(log.outputs)}",
            effect="Its outputs cannot be distinguished, so they cannot be verified",
            fix="--backend tensorrt or onnxruntime",
        )
    return [found[name] for name in log.outputs]
