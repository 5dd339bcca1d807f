"""Causes within the network on a CPU: calling many small operations, moving weights, or multiplying.

Time as a + b x batch tells calls and weights (a) from arithmetic (b). Weights and arithmetic are told apart by the
machine's own ceilings (analysis/roofline.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from edgescope import registry, units
from edgescope.analysis.finding import Bound, Confidence, Evidence, Finding, Remedy
from edgescope.analysis.roofline import BYTES, Ceilings, Limit
from edgescope.records import Absent, Field, Json, Measured
from edgescope.wings.explain.case import FASTER, ROOFLINE, Case, Intervention, known
from edgescope.wings.explain.stages import NETWORK

SMALL = 0.2
MUCH = 0.45
"""Share of the time at a ceiling from which the ceiling is the cause: no engine reaches a whole one."""


def found(case: Case) -> Iterator[Finding]:
    """Yield the causes within the network that the figures speak for."""
    if not case.trial.place.is_host or case.unit_s is None or case.open_loop or case.trial.multi_process:
        return
    share = _network_share(case)
    if share < SMALL:
        return
    seconds = case.whole_s * share if case.parts and not case.overlapped else case.unit_s
    looked = (_calls(case, seconds, share), _weights(case, seconds, share), _arithmetic(case, seconds, share))
    yield from (finding for finding in looked if finding is not None)


def _network_share(case: Case) -> float:
    """Return the network's share of a unit: 1 for an inference alone."""
    if not case.parts or case.made_of == "phases":
        return 1.0
    if case.overlapped:
        slow = max(case.parts, key=lambda p: p.seconds / p.threads)
        return 1.0 if slow.name in NETWORK else 0.0
    return sum(p.seconds for p in case.parts if p.name in NETWORK) / case.whole_s


def memory_s(case: Case) -> Field:
    """Return the seconds that reading the network's weights once takes at the measured bandwidth."""
    limit = case.limit
    return Measured(limit.memory_s, "s") if isinstance(limit, Limit) else limit


def _calls(case: Case, seconds: float, share: float) -> Finding | None:
    """Return the calls as the cause, if a unit costs much that does not grow with its batch and is no weights."""
    fit = case.batches
    if fit is None:
        return None
    weights = known(memory_s(case))
    fixed = max(0.0, fit.fixed_s - (weights or 0.0)) / seconds
    if fixed < SMALL:
        return None
    larger = next((i for i in case.of("batch") if i.after > case.trial.batch), None)
    evidence = [
        Evidence(
            f"a unit costs {units.text(fit.fixed_s, 's')} + {units.text(fit.each_s, 's')} a sample",
            f"cells of batch {', '.join(map(str, fit.batches))}",
        )
    ]
    sure = Confidence.LIKELY
    if weights is None:
        sure = Confidence.POSSIBLE
        evidence.append(Evidence("reading its weights may be a part of that: no ceilings here", "", True))
    else:
        evidence.append(Evidence(f"reading its weights takes {units.text(weights, 's')} of that", ROOFLINE))
    if larger is not None and sure is Confidence.LIKELY:
        evidence.append(Evidence(larger.text, larger.source, larger.ratio.value < FASTER))
        sure = Confidence.CONFIRMED if larger.ratio.value >= FASTER else Confidence.POSSIBLE
    return Finding(
        "launch-bound",
        min(0.98, fixed) * share,
        sure,
        tuple(evidence),
        tuple(_fewer_calls(case, fixed)),
        "",
        1,
    )


def _fewer_calls(case: Case, fixed: float) -> Iterator[Remedy]:
    fit = case.batches
    assert fit is not None
    yield from _engines(case)
    batch = max(*fit.batches, 4 * case.trial.batch)
    now, then = fit.seconds(case.trial.batch) / case.trial.batch, fit.seconds(batch) / batch
    yield Remedy(
        f"--batch {batch}, which pays the calls once for {batch} samples",
        {"batch": batch},
        Measured(now / then, "ratio") if then > 0 else Absent("a unit costs nothing"),
        "fixed and growing part of a unit's time, from two batches",
    )
    if not registry.facts(case.trial.backend).COMPILES:
        yield Remedy(
            "an engine that compiles the network: --backend onnxruntime, openvino or torch_compile",
            {},
            Measured(1 / max(0.05, 1 - fixed), "ratio"),
            "calls would cost nothing",
            Bound.MOST,
        )


def _engines(case: Case) -> Iterator[Remedy]:
    """Yield the other engines that the store holds for the same work and that are faster, the best first."""
    for tried in case.of("backend"):
        if tried.ratio.value >= FASTER:
            change: dict[str, Json] = {"backend": tried.after}
            yield Remedy(f"--backend {tried.after}", change, tried.ratio, f"measured: {tried.source}")


def _weights(case: Case, seconds: float, share: float) -> Finding | None:
    weights = known(memory_s(case))
    if weights is None or weights / seconds < MUCH:
        return None
    assert case.ceilings is not None
    part = min(0.98, weights / seconds)
    evidence = [
        Evidence(
            f"reading the weights once takes at least {units.text(weights, 's')} of {units.text(seconds, 's')}",
            ROOFLINE,
        )
    ]
    sure, fit = Confidence.LIKELY, case.batches
    if fit is not None:
        flat = fit.fixed_s / fit.seconds(case.trial.batch)
        text = f"{flat:.0%} of a unit's time does not grow with the batch"
        evidence.append(Evidence(text, f"cells of batch {', '.join(map(str, fit.batches))}", flat < 0.3))
        sure = Confidence.CONFIRMED if flat >= 0.5 else Confidence.POSSIBLE if flat < 0.3 else sure
    return Finding(
        "memory-bound", part * share, sure, tuple(evidence), tuple(_fewer_bytes(case, part)), "", 1
    )


def _fewer_bytes(case: Case, part: float) -> Iterator[Remedy]:
    fit = case.batches
    if fit is not None and fit.seconds(case.trial.batch) > 0:
        batch = max(*fit.batches, 4 * case.trial.batch)
        now, then = fit.seconds(case.trial.batch) / case.trial.batch, fit.seconds(batch) / batch
        yield Remedy(
            f"--batch {batch}, which reads the weights once for {batch} samples",
            {"batch": batch},
            Measured(now / then, "ratio"),
            "fixed and growing part of a unit's time, from two batches",
        )
    yield from _narrower(case, part)


def _narrower(case: Case, part: float) -> Iterator[Remedy]:
    """Yield the precisions whose weights are smaller: measured where the store holds one, else by their bytes."""
    tried = {str(i.after): i for i in case.of("precision")}
    now = BYTES.get(case.trial.precision, 4)
    for precision in ("bf16", "fp16", "int8"):
        if BYTES[precision] >= now or not case.runs(precision):
            continue
        if precision in tried:
            gain: Field = tried[precision].ratio
            basis = f"measured: {tried[precision].source}"
        else:
            gain = Measured(1 / (1 - part * (1 - BYTES[precision] / now)), "ratio")
            basis = "the bytes of the weights at either precision"
        yield Remedy(f"--precision {precision}", {"precision": precision}, gain, basis)


def _arithmetic(case: Case, seconds: float, share: float) -> Finding | None:
    limit = case.limit
    if not isinstance(limit, Limit) or not limit.compute_s:
        return None
    assert case.ceilings is not None
    cores = case.cores_used or case.cores
    reach = min(1.0, max(cores, 1.0) / max(case.cores, 1.0))  # the ceiling is that of all cores
    part = limit.compute_s / reach / seconds
    if part < MUCH or limit.compute_s < limit.memory_s:
        return None
    part = min(0.98, part)
    evidence = [
        Evidence(
            f"its multiplications take at least {units.text(limit.compute_s / reach, 's')} of "
            f"{units.text(seconds, 's')} at the highest rate of {case.trial.precision}",
            ROOFLINE,
        )
    ]
    sure, fit = Confidence.LIKELY, case.batches
    if fit is not None:
        grows = 1 - fit.fixed_s / fit.seconds(case.trial.batch)
        text = f"{grows:.0%} of a unit's time grows with the batch"
        evidence.append(Evidence(text, f"cells of batch {', '.join(map(str, fit.batches))}", grows < 0.5))
        sure = Confidence.CONFIRMED if grows >= 0.7 else Confidence.POSSIBLE if grows < 0.5 else sure
    remedies = (*_engines(case), *_quicker(case, part, case.ceilings))
    return Finding("compute-bound", part * share, sure, tuple(evidence), remedies, "", 1)


def _quicker(case: Case, part: float, ceilings: Ceilings) -> Iterator[Remedy]:
    """Yield the precisions in which this machine multiplies faster."""
    own = ceilings.flops.get(case.trial.precision)
    tried: dict[str, Intervention] = {str(i.after): i for i in case.of("precision")}
    for precision in ("bf16", "fp16", "int8"):
        other = ceilings.flops.get(precision)
        if not case.runs(precision) or not isinstance(own, Measured) or not isinstance(other, Measured):
            continue
        if other.value < 1.2 * own.value:
            continue
        gain: Field = Measured(1 / (1 - part * (1 - own.value / other.value)), "ratio")
        basis = (
            f"peak {other.value / 1e9:,.0f} instead of {own.value / 1e9:,.0f} GFLOP/s for its multiplications"
        )
        if precision in tried:
            gain, basis = tried[precision].ratio, f"measured: {tried[precision].source}"
        yield Remedy(f"--precision {precision}", {"precision": precision}, gain, basis)
