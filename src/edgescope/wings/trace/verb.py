"""Return where the time of a trial, of a program or of a recorded trace goes: `edgescope.trace("report.sqlite")`.

Of several traces it says how EC, CS and launching grow, with processes or with batch, and where preemption sets in.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgescope.analysis.kernels.account import LEAST, Account, account, conclusive, perturbation
from edgescope.analysis.kernels.inferences import Budget
from edgescope.errors import Message
from edgescope.records import Absent, Answer, Field, Json, Measured, Result, Trace, Trial, Trust, Verdict
from edgescope.registry import REINSTALL, need
from edgescope.units import lasting
from edgescope.wings.trace.imported import read

if TYPE_CHECKING:  # what measures takes longer to load than a trace to read
    from edgescope.runner.setup import Setup, Stored
    from edgescope.wings.trace.trial import Chosen

#: From the best verdict to the worst.
WORSE = (Trust.CLEAN, Trust.UNKNOWN, Trust.DISTURBED, Trust.THROTTLED)
#: Share by which a GPU's mean clock may differ between the two phases, where kernels are carried from one to the other.
CLOCKS = 0.05
NO_TRACE = Verdict(Trust.UNKNOWN, ("there is no trace",))


@dataclass(frozen=True, repr=False)
class Traced(Answer):
    """The kernel-level account of one or several traces."""

    accounts: tuple[tuple[str, Account], ...]
    """Label, account."""
    clean: Result | None = None
    """Phase 1: the same trial without a profiler; its figures are those of the trial."""
    profiled: Result | None = None
    """Phase 2: the trial under the profiler; only its shares mean something."""
    chosen: Chosen | None = None

    @property
    def perturbation(self) -> Field:
        """Return phase 2's throughput over phase 1's, or Absent where there are not two phases."""
        if self.clean is None or self.profiled is None:
            return Absent("there is one phase only, so nothing to compare it with")
        return perturbation(*(one.metrics.get("throughput_sps") for one in (self.clean, self.profiled)))

    @property
    def conclusive(self) -> bool:
        """Return whether the profiler left the program's speed alone, as far as that is known."""
        return conclusive(self.perturbation)

    @property
    def clean_busy(self) -> Field:
        """Return the most that the GPU can have been busy in phase 1, where phase 2 is too slow to show it."""
        slowed = isinstance(self.perturbation, Measured) and self.perturbation.value < LEAST
        if not slowed or self.clean is None or self.profiled is None or len(self.accounts) != 1:
            return Absent("the profiler left the speed alone, or there are not two phases of one trial")
        return clean_busy(self.accounts[0][1], self.clean, self.profiled)

    @property
    def concludes(self) -> bool:
        """Return whether the account answers what limits the trial: by all of its times, or by those that hold."""
        return self.conclusive or isinstance(self.clean_busy, Measured)

    @property
    def verdict(self) -> Verdict:
        """Return whether the figures may be trusted: the worst of the runs behind them, or what the traces allow."""
        runs = [one.verdict for one in (self.clean, self.profiled) if one is not None]
        return max(
            runs or [a.verdict for _, a in self.accounts] or [NO_TRACE], key=lambda v: WORSE.index(v.trust)
        )

    @property
    def program_failed(self) -> bool:
        """Return whether the traced program ended with an error."""
        return any(a.trace.facts.get("program", {}).get("exit_code") for _, a in self.accounts)

    @property
    def whole(self) -> bool:
        """Return whether all that the traces hold could be read."""
        return not any(a.trace.facts.get("damaged") for _, a in self.accounts)

    @property
    def warnings(self) -> tuple[Message, ...]:
        """Return what the figures of all traces suffer from."""
        share, found = self.perturbation, list(self.chosen.notes if self.chosen else ())
        if isinstance(share, Measured) and share.value > 1 / LEAST:
            found.append(
                Message(
                    "W-PROF-14",
                    f"under the profiler the trial runs at {share.value:.0%} of its speed",
                    evidence="a profiler makes nothing faster",
                    effect="The two phases did not meet the same machine: no conclusion is drawn",
                    fix="edgescope doctor",
                )
            )
        if isinstance(share, Measured) and share.value < LEAST:
            found.append(self._slowed(share.value))
        failed = [one for one in (self.clean, self.profiled) if one is not None and one.reason is not None]
        found += [one.reason for one in failed if one.reason is not None]
        if self.profiled is not None:
            found += [w for w in self.profiled.warnings if w.code.startswith("W-SPAN")]
        return tuple(found)

    def _slowed(self, share: float) -> Message:
        """Return the warning of a slow second phase; on a disturbed machine the profiler need not be the cause."""
        phases = [one.verdict for one in (self.clean, self.profiled) if one is not None]
        other = next((v.evidence for v in phases if v.trust is Trust.DISTURBED), ())
        lighter = self.chosen.lighter if self.chosen else ""
        return Message(
            "W-PROF-7",
            f"under the profiler the trial runs at {share:.0%} of its speed",
            evidence=f"at least {LEAST:.0%} is needed"
            + (f"; other work may be the cause: {other[0]}" if other else ""),
            effect="Times of the host and shares of the time do not hold; order, counts and kernels' own times do",
            fix="edgescope doctor, then the same command on a quiet machine"
            if other
            else lighter or "a larger --batch, where the model takes one",
        )

    @property
    def growth(self) -> Growth | None:
        """Return how the series grows, or None for one trace."""
        return growth(self.accounts) if len(self.accounts) > 1 else None

    def lines(self) -> Iterator[str]:
        """Yield the source, then the budget and the use of the GPU, of each trace."""
        yield f"{self.verdict.trust.value}: {'; '.join(self.verdict.evidence)}"
        if isinstance(self.perturbation, Measured):
            yield f"phase 2 / phase 1 throughput: {self.perturbation.value:.2f}"
        for label, one in self.accounts:
            yield f"{label}: {one.trace.source}, {len(one.trace.spans):,} spans"
            if one.budget is not None:
                ec, cs = (one.budget.distribution(name).quantile_ns(0.5) * 1e-6 for name in ("ec", "cs"))
                yield f"  {len(one.inferences):,} inferences: EC {ec:.3g} ms, CS {cs:.3g} ms"
            for gpu in one.gpus:
                yield f"  GPU {gpu.device}: busy {gpu.busy:.1%} of {gpu.span_ns / 1e6:.3g} ms"

    def records(self) -> list[dict[str, Json]]:
        """Return one row per part of each trace's budget: its median and its total."""
        share = self.perturbation
        return [
            {
                "trace": label,
                "part": name,
                "median_s": d.quantile_ns(0.5) * 1e-9,
                "total_s": d.total_ns * 1e-9,
                "perturbation": share.value if isinstance(share, Measured) else None,
            }
            for label, one in self.accounts
            if one.budget is not None
            for name in ("ec", "cs", *one.budget.parts)
            if (d := one.budget.distribution(name)).count
        ]


def trace(
    what: Trial | Path | str | Sequence[Path | str] = (),
    *,
    program: Sequence[str] = (),
    on: str = "",
    seconds: float = 0.0,
    range_name: str = "",
    kind: str = "",
    profiler: str = "",
    store: Stored = None,
    setup: Setup | None = None,
) -> Traced:
    """Return the kernel-level account of a trial, of a program, or of traces that a profiler exported.

    A trial runs twice, each time in a fresh process: clean, then under `profiler` (by default the best one here).
    A `program`, its words as a list, runs to its end with the profilers that need nothing in it, here or on the board
    `on` (ssh://user@board); what it does after `seconds` is not recorded (0: all of it). Several files show how the
    account grows from one to the next. `range_name` names the ranges that are the inferences; `kind` the files'
    format, if their content does not tell it.
    """
    tell = setup.tell if setup else lambda what: None
    if program:
        from edgescope.wings.trace.program import watched

        name = Path(program[0]).name
        tell(f"profiling {f'the first {lasting(seconds)} of {name}' if seconds else f'{name} until it ends'}")
        seen = _on_board(on, program, seconds) if on else watched(program, seconds)
        return Traced(((name, account(seen, range_name)),))
    if isinstance(what, Trial):
        from edgescope.runner.setup import Setup
        from edgescope.wings.trace.trial import traced

        return Traced(*traced(what, profiler, store, setup or Setup()))
    files = [Path(f) for f in ([what] if isinstance(what, (str, Path)) else what)]
    found = []
    for number, file in enumerate(files, start=1):
        if len(files) > 1:
            tell(f"[{number}/{len(files)}] {file.name}")
        found.append((file.name, account(read(file, kind), range_name)))
    return Traced(tuple(found))


def _on_board(url: str, program: Sequence[str], seconds: float) -> Trace:
    """Return the trace of a program of the board at `url`; UnavailableError without the wing that reaches boards."""
    traced = need("edgescope.wings.trace.on_board:traced", "a board over ssh", REINSTALL)
    found: Trace = traced(url, program, seconds)
    return found


#: The onset needs a quarter of the inferences beyond three quarters of those before it, and a median this much higher.
CLEAR = 1.5


@dataclass(frozen=True)
class Level:
    """One trace of a series: medians over its inferences in nanoseconds."""

    label: str
    processes: int
    ec_ns: float
    cs_ns: float
    total_ns: float
    launch_ns: float | None
    """Median length of a launching call; None if the trace has none."""
    off_cpu: float | None
    """Share of EC in which the thread was off the CPU; None without scheduling events."""
    busy: float | None
    """Share of the time in which a GPU was busy, the mean over GPUs; None if nothing ran on a GPU."""


@dataclass(frozen=True)
class Growth:
    """A series of traces in order of their number of processes."""

    levels: tuple[Level, ...]
    onset: int | None
    """The smallest number of processes at which EC is clearly longer than with fewer; None if it never is."""
    cores: int | None
    """CPU cores of the machine, if the traces say."""


def clean_busy(one: Account, clean: Result, profiled: Result) -> Field:
    """Return the largest share of the clean run's time in which the GPU can have worked, or Absent with why not.

    Kernels last as long under a profiler as without one, and as many run, whatever becomes of the host: on an H200
    their sum differs by 0.02 % between two profilers that left ResNet50 0.7 and 0.5 of its speed, and by 0.2 % for
    ViT-B/16 (published/tracing.json). So the work of an inference in the trace is laid against the clean run's rate.
    It is a bound, since kernels of several streams may overlap more there.
    """
    rate = clean.metrics.get("throughput_sps")
    if not isinstance(rate, Measured) or not len(one.inferences) or not one.gpus:
        return Absent("no inference with a kernel is known")
    clocks = [mean for mean in (_clock(clean), _clock(profiled)) if isinstance(mean, Measured)]
    if len(clocks) == 2 and abs(clocks[1].value / clocks[0].value - 1) > CLOCKS:
        before, after = (f"{mean.value / 1e6:.0f} MHz" for mean in clocks)
        return Absent(f"the GPU's clock was {before} without the profiler and {after} under it")
    work_s = max(gpu.busy_ns for gpu in one.gpus) * 1e-9 / len(one.inferences)
    share = work_s * rate.value / clean.trial.batch
    if share > 1 + CLOCKS:
        return Absent("the kernels of an inference last longer than the clean run's inferences")
    return Measured(min(share, 1.0), "share", n=len(one.inferences))


def _clock(result: Result) -> Field:
    from edgescope.analysis.run.usage import of_gpu  # takes longer to load than a trace to read

    found = (of_gpu(result, name) for name in ("sm_clock_hz", "clock_hz"))
    return next((one for one in found if isinstance(one, Measured)), Absent("no clock was read"))


def growth(accounts: Sequence[tuple[str, Account]]) -> Growth:
    """Return how a series of traces grows; traces without a budget are left out."""
    known = [(label, a, a.budget) for label, a in accounts if a.budget is not None]
    known.sort(key=lambda item: len(np.unique(item[2].inferences.process)))
    cores = next((int(a.trace.facts["cpu_cores"]) for _, a, _ in known if "cpu_cores" in a.trace.facts), None)
    levels = tuple(_level(label, a, b) for label, a, b in known)
    return Growth(
        levels,
        _onset([(level.processes, b.ec) for level, (_, _, b) in zip(levels, known, strict=True)]),
        cores,
    )


def _level(label: str, a: Account, found: Budget) -> Level:
    ec = float(found.ec.sum())
    return Level(
        label,
        len(np.unique(found.inferences.process)),
        float(np.median(found.ec)),
        float(np.median(found.cs)),
        float(np.median(found.total)),
        a.launches.api.quantile_ns(0.5) if a.launches and a.launches.api.count else None,
        float(found.parts["rescheduled"].sum()) / ec if found.scheduled and ec else None,
        float(np.mean([g.busy for g in a.gpus])) if a.gpus else None,
    )


def _onset(series: Sequence[tuple[int, NDArray[np.int64]]]) -> int | None:
    """Return the first number of processes whose EC is clearly longer than that of the one before."""
    for (_, fewer), (count, more) in itertools.pairwise(series):
        longer = np.quantile(more, 0.75) > np.quantile(fewer, 0.75)
        if longer and np.median(more) > CLEAR * np.median(fewer):
            return count
    return None
