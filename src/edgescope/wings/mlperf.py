"""Load driven by MLPerf LoadGen: its four scenarios, its queue and its statistics, on any of our engines.

    mlperf_single_stream   one sample after another
    mlperf_multi_stream    queries of in_flight x batch samples, one after another
    mlperf_server          one sample a query, Poisson arrivals at --rate; target_latency_ms is the bound of its p99
    mlperf_offline         everything in one query, answered in batches

LoadGen (the package mlcommons-loadgen) owns the loop and its clock. Each call it requests is also a row of ours, so
its percentiles can be compared with ours of the same queries; its logs are stored with the result. --duration is its
minimum duration: an official run lasts 600 s. Afterwards it requests every input of the gate in accuracy mode, and the
outputs in its log are compared with the engine's outputs when it is called directly.
"""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from edgescope import registry
from edgescope.clock import Clock
from edgescope.errors import DeviceError, Message, UsageError
from edgescope.options import Option
from edgescope.process import scratch_folder
from edgescope.records import QUERY_END, Absent, Json, Marks, Queries, Trial
from edgescope.scenarios.base import CheckedScenario, rate_of
from edgescope.scenarios.closed import Split, typical_s
from edgescope.scenarios.query_log import Ints, Log, closed
from edgescope.scenarios.stop_rule import Plan
from edgescope.stats import early_stopping_estimate
from edgescope.verify.measures import centred_l2
from edgescope.verify.reference import QUICK_CEILING
from edgescope.workloads.base import Done, EndOfInput, ReferenceSet, Work

OFFICIAL_S = 600.0
LIBRARY = 1024
"""Samples in the library that LoadGen picks from; an engine's inputs are cycled through whatever it picks."""
MOST_QPS = 1e5
"""Largest rate in queries/s that LoadGen prepares for: no call into Python and back is faster."""
CLOSE = 0.05, 100_000.0
"""Share and nanoseconds by which its percentile may differ from ours of one run: the callback into Python and back."""


class LoadGen(CheckedScenario):
    """Lets LoadGen offer the queries; make one instance for each trial."""

    NAME: ClassVar[str]
    """LoadGen's name of the scenario."""
    JOINED: ClassVar[bool] = False
    """Whether in_flight batches are one query, and one row."""
    QUEUED: ClassVar[bool] = False
    """Whether queries wait in a queue of ours, so that a busy engine never delays LoadGen's schedule."""

    def __init__(self, trial: Trial, plan: Plan) -> None:
        super().__init__(trial, plan)
        self.reported: dict[str, Json] = {}
        self.files: dict[str, str] = {}
        self.checked: dict[str, Json] = {}

    def drive(self, work: Work, clock: Clock) -> Queries:
        """Warm up in a closed loop, then let LoadGen offer queries until it stops; return all of them."""
        _loadgen()  # that it is missing is said before the warm-up
        samples, slots = self.trial.batch, self.trial.in_flight
        if self.JOINED:
            work, samples, slots = Split(work, slots), samples * slots, 1
        log = Log(slots, clock)
        closed(log, work, clock, self.plan.warming(), samples)
        plan, first, service_s = self.plan.measuring(), len(log), typical_s(log)
        sut = System(samples, log, work, clock, on_first_query=partial(plan.begin, first))
        if self.QUEUED:
            sut.open()
        with scratch_folder("loadgen") as name:
            run_test(sut.issue, self._settings(service_s, "PerformanceOnly"), LIBRARY, Path(name))
            sut.close()
            log.drain(work)
            plan.end(len(log), max(log.finished, default=clock.now()))
            self.reported = values(Path(name))
            self.files = files(Path(name))
        if sut.ended:
            raise _input_too_short(self.trial)
        log.schedule = (first, np.array(sut.arrived, dtype=np.int64))
        queries: Queries = sut.counted(log.queries(samples), first)
        ours = np.sort(queries.rows(plan.window).latency_ns())
        if registry.scenario(self.trial.scenario).timed and len(ours):
            self.checked |= {"percentiles": self._percentiles(ours), "early_stopping": self._estimates(ours)}
        return queries

    def accuracy(self, reference_set: ReferenceSet) -> None:
        """Have LoadGen request every input of the reference set; compare its log with the expected outputs."""
        rows, problems = self.trial.batch, list[Exception]()

        def issue(query: Sequence[tuple[int, int]]) -> None:
            for start in range(0, len(query), rows):
                some = query[start : start + rows]
                try:
                    outputs = [
                        _bytes(arrays) for arrays in reference_set.answers([index for _, index in some])
                    ]
                except Exception as error:  # must not pass through LoadGen's thread: it would end the process
                    problems.append(error)
                    outputs = [b""] * len(some)
                complete([sample for sample, _ in some], outputs)

        with scratch_folder("loadgen") as name:
            run_test(issue, self._settings(1e-3, "AccuracyOnly"), reference_set.size, Path(name))
            if problems:
                raise problems[0]
            self.files |= files(Path(name), "accuracy_")
            self.checked |= {"accuracy": compared(Path(name), reference_set.expected)}

    def notes(self) -> Mapping[str, Json]:
        """Return LoadGen's version, settings and results, the comparison with ours, and its logs."""
        return {"loadgen": {**self.reported, **self.checked}, "files": self.files}

    def warnings(self) -> tuple[Message, ...]:
        """Return the warnings of LoadGen itself and of the comparison with it."""
        return tuple(filter(None, (self._invalid(), self._apart(), self._other_answers())))

    def _settings(self, service_s: float, mode: str) -> Any:
        """Return LoadGen's settings for this trial; `service_s`, from the warm-up, is a query's expected time."""
        t, s = self.trial, settings(self.NAME, mode)
        s.min_duration_ms = round(t.max_s * 1e3)
        s.min_query_count = t.max_queries or 1
        s.max_query_count = t.max_queries or 0
        expected_ns = max(1e9 / MOST_QPS, service_s * 1e9 / 2)  # half: it must not run out of queries
        s.single_stream_expected_latency_ns = round(expected_ns)
        s.multi_stream_expected_latency_ns = round(expected_ns)
        s.multi_stream_samples_per_query = t.batch * t.in_flight
        s.offline_expected_qps = min(MOST_QPS, t.in_flight * t.batch / max(service_s, 1e-6))
        s.schedule_rng_seed = s.sample_index_rng_seed = s.qsl_rng_seed = abs(t.seed)
        return s

    def _percentiles(self, ours: Ints) -> dict[str, Json]:
        """Return each of LoadGen's percentiles next to ours; both follow its rule, sorted[n p].

        For queries of several samples LoadGen logs two: of single samples, and `per_query`, until the last sample is
        done. A row of ours is a query, and so is MLPerf's metric of MultiStream.
        """
        out: dict[str, Json] = {}
        of = "per_query_latency" if self.JOINED else "latency"
        for p in ("50.00", "90.00", "99.00"):
            theirs = self.reported.get(f"result_{p}_percentile_{of}_ns")
            if isinstance(theirs, int | float):
                mine = int(ours[min(len(ours) - 1, math.floor(len(ours) * float(p) / 100))])
                out[p] = {"loadgen_ns": int(theirs), "ours_ns": mine}
        return out

    def _estimates(self, ours: Ints) -> dict[str, Json]:
        """Return LoadGen's early-stopping estimates next to ours."""
        out: dict[str, Json] = {}
        for p in ("90.0", "99.0"):
            theirs = self.reported.get(ESTIMATED.format(p))
            mine = early_stopping_estimate(ours, float(p) / 100)
            if theirs is not None and not isinstance(mine, Absent):
                out[p] = {"loadgen_ns": theirs, "ours_ns": int(mine)}
        return out

    def _invalid(self) -> Message | None:
        if self.reported.get("result_validity") != "INVALID":
            return None
        unmet = [key for key, met in self.reported.items() if key.endswith("_met") and met is False]
        return Message(
            "W-MLPERF-1",
            "LoadGen calls this run INVALID",
            evidence=", ".join(unmet) or str(self.reported.get("result_invalid_reason")),
            effect="Its figures may not be quoted as MLPerf's; ours stand as they are",
            fix=f"--duration {OFFICIAL_S:.0f}s" + (", or a lower --rate" if self.trial.rate else ""),
        )

    def _apart(self) -> Message | None:
        """Return a warning for the first percentile on which LoadGen and our rows disagree, or None."""
        share, slack = CLOSE
        for p, pair in self.checked.get("percentiles", {}).items():
            theirs, mine = pair["loadgen_ns"], pair["ours_ns"]
            if p != "99.00" and abs(theirs - mine) > max(slack, share * theirs):
                return Message(
                    "W-MLPERF-2",
                    f"LoadGen's {p} percentile and ours of the same queries differ",
                    evidence=f"{theirs / 1e6:.3f} ms and {mine / 1e6:.3f} ms",
                    effect="Handing queries between LoadGen and Python took that long",
                    fix="the scenario of the same name without mlperf_ for the engine alone",
                )
        return None

    def _other_answers(self) -> Message | None:
        found = self.checked.get("accuracy")
        if not found or (found["in_log"] == found["samples"] and found["centred_l2"] <= QUICK_CEILING):
            return None
        return Message(
            "W-MLPERF-3",
            "LoadGen's accuracy log does not hold the outputs that the gate received",
            evidence=f"{found['in_log']} of {found['samples']} inputs, apart by {found['centred_l2']:.2g}",
            effect="The outputs depend on the caller or on earlier queries",
            fix="the same command again; if it stays so, the engine is not deterministic",
        )


class SingleStream(LoadGen):
    """One sample after another."""

    NAME = "SingleStream"


class MultiStream(LoadGen):
    """Queries of in_flight x batch samples, one after another."""

    NAME, JOINED = "MultiStream", True


class Offline(LoadGen):
    """One query of all samples."""

    NAME, QUEUED = "Offline", True


class Server(LoadGen):
    """Random arrivals at --rate, with a bound on the latency."""

    NAME, QUEUED = "Server", True
    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "target_latency_ms": Option(100.0, "what LoadGen holds the 99th percentile to", least=1e-3)
    }

    def _settings(self, service_s: float, mode: str) -> Any:
        s = super()._settings(service_s, mode)
        s.server_target_qps = rate_of(self.trial)
        s.server_target_latency_ns = round(self.options["target_latency_ms"] * 1e6)
        return s


@cache
def _loadgen() -> Any:
    """Return LoadGen's module; UnavailableError if the package is missing."""
    return registry.need("mlperf_loadgen", "MLPerf LoadGen", registry.LOADGEN)


def _input_too_short(trial: Trial) -> UsageError:
    return UsageError(
        "E-MLPERF-2",
        f"the input of {trial.workload} ended before LoadGen had sent all its queries",
        evidence=f"{trial.scenario}, {trial.max_s:g} s",
        effect="LoadGen would count queries in which nothing was done",
        fix=f"--scenario {trial.scenario.removeprefix('mlperf_')}, or an input without end",
    )


def _bytes(arrays: Iterable[Any]) -> bytes:
    return b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)


# -- our side of LoadGen, which calls from its own threads and identifies samples by an id and an index into a library;
#    an error must not pass through its frames: it would end the process

Samples = Sequence[tuple[int, int]]
"""LoadGen's id of each sample and the sample's index in the library."""


class System:
    """Takes LoadGen's samples in its thread, gives them to the Work in batches, and reports when each is done.

    A closed loop's query is issued in LoadGen's own thread. Arrivals (server, offline) go through a queue after `open`
    has been called, so that a busy engine never delays LoadGen's schedule.
    """

    def __init__(
        self, batch: int, log: Log, work: Work, clock: Clock, *, on_first_query: Callable[[int], None]
    ) -> None:
        self.batch, self.log, self.work, self.clock = batch, log, work, clock
        self.on_first_query: Callable[[int], None] | None = on_first_query
        """Called at the first query: what LoadGen does before that is not part of the window."""
        self.arrived: list[int] = []
        self.sizes: list[int] = []
        self.waiting: SimpleQueue[tuple[int, Samples] | None] = SimpleQueue()
        self.thread: threading.Thread | None = None
        self.ended = False
        """Whether the input ended before LoadGen had sent all its queries."""

    def open(self) -> None:
        """Let queries wait in a queue from now on."""
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def issue(self, samples: Samples) -> None:
        """Take one query from LoadGen; each of its batches becomes a row."""
        now = self.clock.now()
        if self.on_first_query:
            self.on_first_query(now)
            self.on_first_query = None
        for start in range(0, len(samples), self.batch):
            part = samples[start : start + self.batch]
            if self.thread is None:
                self._row(now, part)
            else:
                self.waiting.put((now, part))

    def _serve(self) -> None:
        while (item := self.waiting.get()) is not None:
            self._row(*item)

    def _row(self, arrived_ns: int, samples: Samples) -> None:
        self.log.free.get()
        self.arrived.append(arrived_ns)
        self.sizes.append(len(samples))
        with suppress(EndOfInput):  # the work has called done, too
            self.work.issue(self.log.add(self.clock.now()), self.batch, self._done(samples))

    def _done(self, samples: Samples) -> Done:
        def done(
            query_id: int, status: int, held: int = 0, source_ns: int = -1, marks: Marks | None = None
        ) -> None:
            self.log.done(query_id, status, held, source_ns, marks)
            self.ended = self.ended or status == QUERY_END
            complete([sample for sample, _ in samples])

        return done

    def close(self) -> None:
        """End the thread that issues queued queries."""
        if self.thread is not None:
            self.waiting.put(None)
            self.thread.join()

    def counted(self, queries: Queries, first: int) -> Queries:
        """Return the rows with the number of samples that LoadGen requested in each: its last batch may be smaller."""
        samples = np.array(queries.columns["samples"])
        samples[first:] = self.sizes
        return Queries({**queries.columns, "samples": samples})


def complete(samples: Sequence[int], outputs: Sequence[bytes] = ()) -> None:
    """Report samples as done to LoadGen; it copies `outputs` before this returns."""
    lg, held = _loadgen(), [np.frombuffer(data, np.uint8) for data in outputs]
    data = [(array.ctypes.data, array.nbytes) for array in held] or [(0, 0)] * len(samples)
    lg.QuerySamplesComplete(
        [lg.QuerySampleResponse(sample, *where) for sample, where in zip(samples, data, strict=True)]
    )


def settings(scenario: str, mode: str) -> Any:
    """Return LoadGen's settings for a scenario (`SingleStream`) in a mode (`PerformanceOnly`)."""
    lg = _loadgen()
    made = lg.TestSettings()
    made.scenario, made.mode = getattr(lg.TestScenario, scenario), getattr(lg.TestMode, mode)
    return made


def run_test(issue: Callable[[Samples], None], settings: Any, n: int, folder: Path) -> None:
    """Run one LoadGen test over a library of `n` samples; its logs go into `folder`."""
    lg = _loadgen()
    log = lg.LogSettings()
    log.log_output.outdir = str(folder)
    log.log_output.copy_summary_to_stdout = log.log_output.copy_detail_to_stdout = False
    log.enable_trace = False
    qsl = lg.ConstructQSL(n, n, lambda indices: None, lambda indices: None)
    sut = lg.ConstructSUT(lambda query: issue([(s.id, s.index) for s in query]), lambda: None)
    try:
        lg.StartTestWithLogSettings(sut, qsl, settings, log, str(folder / "no audit.config"))
    finally:
        lg.DestroySUT(sut)
        lg.DestroyQSL(qsl)


# -- LoadGen's logs: what a submission quotes, `:::MLLOG {"key": "result_validity", "value": "VALID", ...}` a line, and
#    in accuracy mode the output bytes that LoadGen received for every sample

SUMMARY, DETAIL, ACCURACY = "mlperf_log_summary.txt", "mlperf_log_detail.txt", "mlperf_log_accuracy.json"
MARK = ":::MLLOG "
WANTED = re.compile(r"(result_|early_stopping_|effective_|loadgen_version$|num_(errors|warnings)$)")
ESTIMATED = "early_stopping_{}_percentile_estimate_ns"
ESTIMATE = re.compile(r"Early stopping (\S+)th percentile estimate: (\d+)")


def values(folder: Path) -> dict[str, Json]:
    """Return LoadGen's version, effective settings and results from its log; {} without a log."""
    out: dict[str, Json] = {}
    for line in text(folder / DETAIL).splitlines():
        if not line.startswith(MARK):
            continue
        try:
            entry = json.loads(line.removeprefix(MARK))
        except ValueError:  # cut off by a kill
            continue
        if isinstance(entry, dict) and WANTED.match(str(entry.get("key"))):
            out[entry["key"]] = entry.get("value")
    for percent, estimate in ESTIMATE.findall(text(folder / SUMMARY)):
        out[ESTIMATED.format(percent)] = int(estimate)
    return out


def files(folder: Path, prefix: str = "") -> dict[str, str]:
    """Return the text of a run's log files by name, without the empty ones."""
    found = {name: text(folder / name) for name in (SUMMARY, DETAIL, ACCURACY)}
    return {f"{prefix}{name}": content for name, content in found.items() if content.strip("[] \n")}


def compared(folder: Path, direct: Sequence[NDArray[Any]]) -> dict[str, Json]:
    """Compare the outputs in the accuracy log with the outputs `direct`, each (samples, ...).

    Return the number of `samples`, how many are `in_log`, how many are `identical` to the last bit, and the centred L2
    distance of those in the log. Raises DeviceError if the log is damaged or its outputs have another length.
    """
    logged = answers(folder, direct)
    index = sorted(set(logged) & set(range(len(direct[0]))))
    wanted = tuple(array[index] for array in direct)
    got = tuple(np.stack([logged[i][k] for i in index]) for k in range(len(direct))) if index else wanted
    same = [
        all(a.tobytes() == b.tobytes() for a, b in zip(logged[i], _row(direct, i), strict=True))
        for i in index
    ]
    return {
        "samples": len(direct[0]),
        "in_log": len(index),
        "identical": sum(same),
        "centred_l2": centred_l2(got, wanted) if index else 0.0,
    }


def answers(folder: Path, like: Sequence[NDArray[Any]]) -> dict[int, list[NDArray[Any]]]:
    """Return sample index -> its outputs in the accuracy log, with the types and shapes of `like`."""
    out: dict[int, list[NDArray[Any]]] = {}
    try:
        for entry in json.loads(text(folder / ACCURACY) or "[]"):
            data = bytes.fromhex(entry["data"])
            ends = np.cumsum([0, *(array[0].nbytes for array in like)])
            if ends[-1] != len(data):
                raise ValueError(
                    f"{len(data)} bytes for sample {entry['qsl_idx']}, the outputs have {ends[-1]}"
                )
            out[int(entry["qsl_idx"])] = [
                np.frombuffer(data[a:b], array.dtype).reshape(array.shape[1:])
                for a, b, array in zip(ends, ends[1:], like, strict=False)
            ]
    except (ValueError, KeyError, TypeError) as error:
        raise DeviceError(
            "E-MLPERF-1",
            "LoadGen's accuracy log cannot be read",
            evidence=f"{type(error).__name__}: {error}",
            effect="The outputs that it received are not checked",
        ) from error
    return out


def _row(arrays: Sequence[NDArray[Any]], i: int) -> list[NDArray[Any]]:
    return [array[i] for array in arrays]


def text(path: Path) -> str:
    """Return the file's text, or '' if there is no file."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
