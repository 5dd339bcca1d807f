"""What limits a run: the findings of every look at its figures, and the one of them that is the cause."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from edgescope.analysis.cells.replicates import MEASURED
from edgescope.analysis.finding import Diagnosis, Finding
from edgescope.analysis.judgement import judged
from edgescope.analysis.roofline import Ceilings
from edgescope.records import Absent, Measured, Result
from edgescope.wings.explain import gpu, machine, network, stages, threads
from edgescope.wings.explain.case import Case

FEW = 10
"""Queries of a window from which a gain is predicted: fewer do not tell how they spread."""
LOOKS = (machine.found, threads.found, stages.found, network.found, gpu.found)


def diagnose(
    result: Result,
    others: Iterable[Result] = (),
    ceilings: Ceilings | None = None,
    traced: Iterable[Finding] = (),
) -> Diagnosis:
    """Return what limits a run, by its own figures, what else the store holds, and what a trace of it shows.

    The cause is `unknown`, with the reason, where they contradict each other or say too little.
    """
    every = list(others)
    case = Case(result, every, ceilings)
    missing = tuple(_missing(case))
    if result.status not in MEASURED:
        return Diagnosis(
            result, (), f"it did not finish: {result.reason or result.status.value}", (), missing
        )
    if case.unit_s is None:
        return Diagnosis(result, (), "no throughput was measured", (), missing)
    own = [_sure(f, result) for look in LOOKS for f in look(case)]
    return judged(result, [*own, *traced], missing)


def _sure(finding: Finding, result: Result) -> Finding:
    """Return the finding, without predicted gains if the window holds too few queries to say how much they vary."""
    window = result.window
    seen = window.stop - window.first if window is not None else FEW
    if seen >= FEW:
        return finding
    few = Absent(
        f"not predicted: {seen} quer{'y' if seen == 1 else 'ies'} in the window, {FEW} needed (--duration)"
    )
    changed = (replace(r, gain=few) if isinstance(r.gain, Measured) else r for r in finding.remedies)
    return replace(finding, remedies=tuple(changed))


def _missing(case: Case) -> Iterator[str]:
    """Yield what would tell more, each with the command that measures it."""
    device = case.trial.device
    if case.ceilings is None and case.made_of == "phases":
        yield f"what this machine can do at most: edgescope doctor --roofline {device}"
    if not case.of("batch") and case.made_of == "phases" and not case.open_loop:
        yield f"another batch, which tells calls from arithmetic: --batch {case.trial.batch * 4}"
    if case.made_of == "stages" and case.figure("pipeline_fps") is None:
        yield "what each stage costs the pipeline: --workload-option what_if=true"
