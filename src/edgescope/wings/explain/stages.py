"""Causes in the parts around a network: which part takes the time, and whether it computes, waits or allocates.

A part is a stage of a pipeline or a phase of a training step. Where units go through the parts one after another, a
part's share of the unit is what would go with it. Where parts overlap, the slowest one is what everything waits for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from edgescope import units
from edgescope.analysis.finding import Bound, Confidence, Evidence, Finding, Remedy, between
from edgescope.analysis.roofline import Limit
from edgescope.records import Absent, Field, Json, Measured
from edgescope.wings.explain.case import FLOW, PHASES, STAGES, WINDOW, Case, Part
from edgescope.wings.explain.threads import slowest

#: Part -> the cause if it takes the time; the network's own parts are for network.py.
CAUSE_OF: Mapping[str, str] = {
    "decode": "decode-bound",
    "preprocess": "preprocessing-bound",
    "postprocess": "postprocessing-bound",
    "crops": "postprocessing-bound",
    "fetch": "fetch-stalled",
    "optimizer": "optimizer-bound",
    "h2d": "transfer-bound",
    "d2h": "transfer-bound",
}
NETWORK = frozenset({"infer", "forward", "backward", "enqueue", "gpu_compute"})
SMALL = 0.25
"""A part that takes less of a unit than this is not what limits it."""
WAITING, DISK_BPS, KERNEL = 0.35, 1e6, 0.3
"""Share of a unit off the CPU, bytes/s from disk, and share of CPU time in the kernel, from which each is the cause."""
ASLEEP = 0.6
"""A stage that sleeps for this share of its time waits for something, however small its share of a unit is."""
LIMITS = 0.8
"""A stage that is busy for this share of the time between units is what the others wait for."""


@dataclass(frozen=True)
class Way:
    """Another way of doing a stage, as a workload option."""

    option: str
    slow: tuple[str, ...]
    fast: str


WAYS: Mapping[str, Way] = {
    "decode": Way("decode", ("full",), "scaled"),
    "preprocess": Way("preprocess", ("image",), "host"),
    "postprocess": Way("postprocess", ("elements", "copied"), "host"),
}


#: Built-in stage -> what makes it cheaper and is no option.
CHEAPER: Mapping[str, str] = {
    "decode": "a smaller film, or a hardware decoder (source=nvdec:FILE)",
    "preprocess": "frames in the network's size",
    "postprocess": "fewer boxes",
}


def found(case: Case) -> Iterator[Finding]:
    """Yield a finding for each part outside of the network that takes a share of the time."""
    if not case.parts or case.unit_s is None or case.open_loop:
        return
    for part in case.parts:
        if part.name in NETWORK:
            continue
        share, evidence, sure = _share(case, part)
        if share < SMALL:
            continue
        why = _why(case, part, share)
        if why is not None:
            yield why
        cause = CAUSE_OF.get(part.name, "stage-bound")
        named = part.name if cause in ("stage-bound", "transfer-bound") else ""
        yield Finding(cause, share, sure, tuple(evidence), tuple(_remedies(case, part, share)), named)


def _share(case: Case, part: Part) -> tuple[float, list[Evidence], Confidence]:
    """Return the share of the time that would go with a part, the evidence, and how sure it is."""
    free = case.result.metrics.get(f"{part.name}_free_gain")
    if isinstance(free, Measured) and free.value > 0:
        text = f"with {part.name} free, the pipeline is {units.ratio(free)} as fast"
        return 1 - 1 / max(free.value, 1.0), [Evidence(text, "measured by stubbing it")], Confidence.CONFIRMED
    if not case.overlapped:
        source = FLOW if case.while_it_ran else STAGES if case.made_of == "stages" else PHASES
        share = part.seconds / case.whole_s
        each, whole = units.text(part.seconds, "s"), units.text(case.whole_s, "s")
        text = f"{part.name} takes {each} of {whole} a unit, {share:.0%}"
        return share, [Evidence(text, source)], Confidence.LIKELY
    assert case.unit_s is not None
    busy = part.seconds / part.threads / case.unit_s
    threads = f" in each of {part.threads} threads" if part.threads > 1 else ""
    text = (
        f"{part.name} is at work {busy:.0%} of the time{threads}: {units.text(part.seconds, 's')} a unit, "
        f"one finished every {units.text(case.unit_s, 's')}"
    )
    evidence = [Evidence(text, FLOW)]
    if part is slowest(case) and busy >= LIMITS:
        return 1 - _without(case, part) / case.unit_s, evidence, Confidence.LIKELY
    return 0.0, evidence, Confidence.POSSIBLE


def _without(case: Case, part: Part) -> float:
    """Return the seconds between units that an overlapped pipeline would take without a part."""
    rest = [p for p in case.parts if p is not part]
    slow = max((case.alone_s(p) / p.threads for p in rest), default=0.0)
    return max(slow, sum(map(case.alone_s, rest)) / max(case.cores, 1.0))


def _why(case: Case, part: Part, share: float) -> Finding | None:
    """Return the finding of what a part does with its time, if it is not computing; None if it computes."""
    used = case.cores_used
    if used is None:
        return None
    if not case.overlapped and case.trial.place.is_host:
        waits = min(0.99, case.figure("run_wait_share") or 0.0)
        off = max(0.0, 1 - used / (1 - waits))  # neither on a CPU nor ready to be
        if off >= WAITING and off >= 0.6 * share:
            return _stalled(case, part, min(share, off), off)
        asleep = case.asleep(part)
        if asleep is not None and asleep >= ASLEEP:
            return _stalled(case, part, share * asleep, asleep, of=f"{part.name}'s")
    kernel = case.figure("kernel_time_share")
    faults = case.figure("page_faults_per_s")
    if kernel is not None and faults is not None and kernel >= KERNEL and faults >= 1000:
        evidence = (
            Evidence(f"{kernel:.0%} of its CPU time is the kernel's", WINDOW),
            Evidence(f"{faults:,.0f} page faults a second: fresh memory is mapped for each unit", WINDOW),
        )
        remedy = Remedy(
            f"keep the buffers of {part.name} and fill them again",
            {},
            Measured(1 / (1 - min(share, kernel)), "ratio"),
            "1 / (1 - the kernel's share of the time); memory that the kernel has just cleared is in the caches",
            Bound.MOST,
        )
        return Finding("allocation-bound", share, Confidence.LIKELY, evidence, (remedy,), part.name, 1)
    return None


def _stalled(case: Case, part: Part, share: float, off: float, *, of: str = "the") -> Finding:
    read = case.figure("disk_read_bps") or 0.0
    evidence = [Evidence(f"for {off:.0%} of {of} time nothing of it was on a CPU or ready to be", WINDOW)]
    if read >= DISK_BPS:
        evidence.append(Evidence(f"{read / 1e6:,.1f} MB/s came from disk", WINDOW))
    evidence.append(Evidence(f"{part.name} is the part that takes {share:.0%} of a unit", STAGES))
    remedies = list(_overlap(case, part))
    words = f"keep what {part.name} reads in memory, or read it ahead"
    gone = Measured(1 / (1 - share), "ratio")
    remedies.append(Remedy(words, {}, gone, "1 / (1 - share of the part)", Bound.MOST))
    return Finding("fetch-stalled", share, Confidence.LIKELY, tuple(evidence), tuple(remedies), part.name, 1)


def _remedies(case: Case, part: Part, share: float) -> Iterator[Remedy]:
    """Yield the ways out, those first whose gain is best known."""
    most = 1 / max(0.02, 1 - share)
    options = case.trial.workload_options
    way = WAYS.get(part.name)
    if way is not None and case.made_of == "stages" and options.get(way.option, way.slow[0]) in way.slow:
        change: dict[str, Json] = {"workload_options": {**options, way.option: way.fast}}
        yield Remedy(f"--workload-option {way.option}={way.fast}", change, *_of_way(case, part, way, most))
    if part.name in ("fetch", "optimizer") and case.made_of == "parts":
        yield _larger_step(case, part)
    if case.made_of == "stages":
        words = CHEAPER.get(part.name, "whole arrays instead of loops, or less of it")
        yield Remedy(
            f"make {part.name} cheaper: {words}",
            {},
            Measured(most, "ratio"),
            "the time of a unit / that time without the stage",
            Bound.MOST,
        )
    yield from _overlap(case, part)


def _of_way(case: Case, part: Part, way: Way, most: float) -> tuple[Field, str]:
    """Return the gain of another way of doing a stage: from the store where some cell does it so."""
    setting = f"workload_options.{way.option}"
    for tried in case.of(setting):
        if tried.after == way.fast:
            return tried.ratio, f"measured: {tried.source}"
    for other in case.others:
        same = other.trial.model == case.trial.model and other.trial.batch == case.trial.batch
        if same and other.trial.workload_options.get(way.option) == way.fast and not case.overlapped:
            fast = other.metrics.get(f"{part.name}_s")
            if isinstance(fast, Measured):
                after = case.whole_s - part.seconds + fast.value
                return Measured(
                    case.whole_s / after, "ratio"
                ), "the stage's time in another cell of the store"
    return Absent(f"at most {most:.2g} times: how much cheaper the stage is that way is not known"), ""


def _larger_step(case: Case, part: Part) -> Remedy:
    """Return the remedy of a larger minibatch, whose fixed parts are paid less often."""
    batch, fit = case.trial.batch * 4, case.batches
    if fit is not None:
        now, then = fit.seconds(case.trial.batch) / case.trial.batch, fit.seconds(batch) / batch
        return Remedy(
            f"--batch {batch}",
            {"batch": batch},
            Measured(now / then, "ratio"),
            "fixed and growing part of a step's time, from two batches",
        )
    if part.name != "optimizer":
        return Remedy(f"--batch {batch}", {"batch": batch})
    rest = case.whole_s - part.seconds
    weights, arithmetic = _both_ways(case)
    most = part.seconds + max(rest, 4 * arithmetic)
    least = part.seconds + 4 * rest - 3 * min(rest, weights)
    gain, bound = between(4 * case.whole_s / least, 4 * case.whole_s / most)
    basis = (
        "the optimizer's time is the same for any batch; all else grows with it, but for reading the weights"
    )
    return Remedy(f"--batch {batch}", {"batch": batch}, gain, basis, bound)


def _both_ways(case: Case) -> tuple[float, float]:
    """Return the least seconds of a step for its weights and for its arithmetic, 0 where no ceiling tells.

    Each is twice that of an inference: backward writes a gradient for each weight, and computes it.
    """
    limit = case.limit
    return (2 * limit.memory_s, 2 * limit.compute_s) if isinstance(limit, Limit) else (0.0, 0.0)


def _overlap(case: Case, part: Part) -> Iterator[Remedy]:
    """Yield the remedy of letting the stages overlap, or of more threads for the slowest one."""
    if case.made_of != "stages":
        return
    cores = max(1.0, case.cores)
    if not case.overlapped:
        slow = max(p.seconds for p in case.parts)
        used = min(1.0, case.cores_used) if case.cores_used is not None else 1.0
        after = max(slow, used * case.whole_s / cores)
        if case.whole_s / after >= 1.1:
            tried = next((i for i in case.of("in_flight") if i.after > 1), None)
            gain: Field = tried.ratio if tried else Measured(case.whole_s / after, "ratio")
            basis = (
                f"measured: {tried.source}" if tried else "the slowest stage, or all CPU time over the cores"
            )
            yield Remedy("--in-flight 6, so that the stages overlap", {"in_flight": 6}, gain, basis)
        return
    name = f"{part.name}_threads"
    shared = (
        part.name == "decode" and case.trial.workload_options.get("cameras", 1) == 1
    )  # one source, one lock
    if part.name in ("decode", "preprocess", "postprocess") and part.threads < int(cores) and not shared:
        threads = part.threads + 1
        after = max(part.seconds / threads, _without(case, part), sum(p.seconds for p in case.parts) / cores)
        change = {"workload_options": {**case.trial.workload_options, name: threads}}
        gain = Measured(case.unit_s / after, "ratio") if case.unit_s else Absent("no throughput")
        yield Remedy(
            f"--workload-option {name}={threads}",
            change,
            gain,
            "the slowest stage, or all CPU time over the cores",
        )
