"""Kernel-level figures of cells: EC, CS, launching, blocking and the use of the SMs, from runs under a profiler.

A profiler slows what it watches, so the usual figures of a cell come from clean runs, and a traced run of the same cell
adds what only a profiler sees. Its throughput over the clean one's is the perturbation. Where that supports no
conclusion, the cell has no kernel-level figure, and says so. Of several traced runs of a cell the newest counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edgescope.analysis.cells.concurrency import Cell, key
from edgescope.analysis.kernels.account import Account, account, conclusive, perturbation, trace_of
from edgescope.analysis.kernels.inferences import Budget
from edgescope.analysis.run.usage import of_gpu
from edgescope.records import Absent, Field, Measured, Result, Trial
from edgescope.stats.intervals import quantile_interval

#: Figure -> the parts of an inference that it is the sum of; `ec` and `cs` are sums of the budget's own.
TIMES: Mapping[str, tuple[str, ...]] = {
    "ec_s": ("ec",),
    "cs_s": ("cs",),
    "launching_s": ("launch", "rescheduled"),
    "blocked_s": ("blocked", "wait_blocked"),
}
#: Shares of the time in which the parts of a GPU were at work, by its counters.
USE = ("sm_active", "sm_issue", "tensor_active")
FIGURES = (*TIMES, "launch_s", *USE)
NO_CALLS = Absent("nothing in the trace calls a GPU")
NOT_TRACED = Absent("this cell was not traced")


@dataclass(frozen=True)
class TracedCell:
    """One cell's run under a profiler."""

    trial: Trial
    source: str
    """The profiler, or the name of the file."""
    perturbation: Field
    budget: Budget | None
    """EC, CS and their parts of each inference; None if nothing in the trace calls a GPU."""
    launch: Field
    """Median length of a call that puts work on the GPU."""
    busy: Field
    """Share of the time in which something ran on the GPU."""
    use: Mapping[str, Field]
    """The figures of USE that were sampled in this run."""

    @property
    def figures(self) -> Mapping[str, Field]:
        """Return FIGURES as this run has them, whatever the profiler cost."""
        times = {name: self._median(parts) for name, parts in TIMES.items()}
        return {**times, "launch_s": self.launch, **self.use}

    def _median(self, parts: Sequence[str]) -> Field:
        """Return the median over inferences of the sum of some parts, with its interval within the run."""
        if self.budget is None:
            return NO_CALLS
        own: Budget = self.budget
        values = np.sum([_part(own, name) for name in parts], axis=0) * 1e-9
        found = quantile_interval(values, 0.5)
        if isinstance(found, Absent):
            return Measured(float(np.median(values)), "s", n=len(values))
        return found.measured("s")

    @property
    def judged(self) -> Mapping[str, Field]:
        """Return FIGURES, each Absent if the profiler slowed the run too much."""
        if conclusive(self.perturbation) or not isinstance(self.perturbation, Measured):
            return self.figures
        slow = (
            f"under the profiler this cell ran at {self.perturbation.value:.0%} of its speed: no conclusion"
        )
        return dict.fromkeys(FIGURES, Absent(slow))


def _part(own: Budget, name: str) -> NDArray[np.int64]:
    return own.parts[name] if name in own.parts else np.asarray(getattr(own, name), "int64")


def of_results(results: Iterable[Result], cells: Iterable[Cell]) -> list[TracedCell]:
    """Return the traced cells of these results, those with spans; `cells` are the clean ones."""
    clean = {key(c.trial): c for c in cells if c.ok}
    newest = {key(r.trial): r for r in sorted(results, key=lambda r: r.started_at)}
    found = []
    for where, result in newest.items():
        trace = trace_of(result)
        if trace is not None:
            first = clean[where].total if where in clean else None
            share = perturbation(first, result.metrics.get("throughput_sps"))
            use = {name: of_gpu(result, name) for name in USE}
            found.append(_cell(result.trial, account(trace), result.trial.tracer, share, use))
    return found


def of_file(trial: Trial, found: Account, name: str) -> TracedCell:
    """Return the traced cell of a file that a profiler exported."""
    gpu = found.gpus[0].device if found.gpus else 0
    none = Absent(f"{name} has no samples of it")
    use = {what: found.samples.get(f"gpu{gpu}_{what}", none) for what in USE}
    return _cell(trial, found, name, Absent("a file has no clean run beside it"), use)


def _cell(trial: Trial, found: Account, source: str, share: Field, use: Mapping[str, Field]) -> TracedCell:
    busy = float(np.mean([g.busy for g in found.gpus])) if found.gpus else None
    return TracedCell(
        trial=replace(trial, tracer=Trial.tracer, replicate=0),
        source=source,
        perturbation=share,
        budget=found.budget,
        launch=found.launches.api.median_s if found.launches else NO_CALLS,
        busy=Absent("nothing ran on a GPU") if busy is None else Measured(busy, "share"),
        use=use,
    )


def with_traces(cells: Iterable[Cell], traced: Iterable[TracedCell]) -> list[Cell]:
    """Return the cells with FIGURES among their metrics; what the sensors of a clean run know stays as it is."""
    by = {key(t.trial): t.judged for t in traced}
    none = dict.fromkeys(FIGURES, NOT_TRACED)
    return [replace(c, metrics=_joined(c, by.get(key(c.trial), none))) if c.ok else c for c in cells]


def _joined(cell: Cell, own: Mapping[str, Field]) -> dict[str, Field]:
    clean = cell.metrics
    known = {name for name in USE if isinstance(clean.get(name), Measured)}
    kept = {name for name in USE if name in clean and not isinstance(own[name], Measured)}
    return {**clean, **{name: f for name, f in own.items() if name not in known | kept}}
