"""Causes on a GPU: launching, copying, waiting, arithmetic without tensor cores, memory, other processes.

The phases of an inference (enqueue, h2d, gpu_compute, d2h) come from device events in queries of their own; activity
comes from the driver's counters within the window.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from edgescope import registry, units
from edgescope.analysis.finding import Bound, Confidence, Evidence, Finding, Remedy, between
from edgescope.analysis.roofline import BYTES, Limit
from edgescope.analysis.run.usage import of_gpu
from edgescope.records import Absent, Field, Json, Measured
from edgescope.wings.explain.case import FASTER, PHASES, ROOFLINE, SAMPLER, Case, Intervention, known

ENQUEUE = 0.8
"""Host time to enqueue over time on the device from which launching may be what limits (trtexec's rule)."""
COPIES, SMALL = 0.25, 0.2
FULL = 0.5
"""Share of the time in which memory or arithmetic units are busy from which they are the cause."""
TENSOR = frozenset({"tf32", "fp16", "bf16", "int8"})
"""Precisions that tensor cores compute in."""
ACTIVITY = "NVML's activity counters (GPM) within the window"


def found(case: Case) -> Iterator[Finding]:
    """Yield the causes on a GPU that the figures speak for."""
    if not case.trial.place.cuda or case.unit_s is None or case.open_loop:
        return
    looks = (_launches, _copies, _elements, _arithmetic, _memory, _shared)
    yield from (finding for finding in chain(look(case) for look in looks) if finding is not None)


def _phase(case: Case, name: str) -> float | None:
    return case.figure(f"{name}_s")


def _whole(case: Case) -> float | None:
    return case.figure("phased_latency_s") or case.unit_s


def _better(case: Case, setting: str, after: Json = None) -> Intervention | None:
    tried = [i for i in case.of(setting) if after is None or i.after == after]
    return tried[0] if tried else None


def _launches(case: Case) -> Finding | None:
    enqueue, device, whole = _phase(case, "enqueue"), _phase(case, "gpu_compute"), _whole(case)
    if enqueue is None or device is None or not whole or device <= 0 or _graph(case):
        return None
    if enqueue / device < ENQUEUE:
        return None
    evidence = [
        Evidence(
            f"the host takes {units.text(enqueue, 's')} to launch what the device does in {units.text(device, 's')}",
            PHASES,
        )
    ]
    active = known(of_gpu(case.result, "sm_active"))
    if active is not None:
        evidence.append(
            Evidence(f"the multiprocessors had work for {active:.0%} of the time", ACTIVITY, active > 0.8)
        )
    fit, graph = case.batches, _better(case, "options.graph", True)
    compute_s, basis = _least(case, device)
    sure = Confidence.LIKELY
    larger = next((i for i in case.of("batch") if i.after > case.trial.batch), None)
    if larger is not None:
        grown = larger.ratio.value / (larger.after / case.trial.batch)
        evidence.append(Evidence(larger.text, larger.source, grown < 0.5))
        sure = (
            Confidence.CONFIRMED
            if grown >= 0.7
            else Confidence.LIKELY
            if grown >= 0.5
            else Confidence.POSSIBLE
        )
    if fit is not None and compute_s is None:
        compute_s, basis = fit.each_s * case.trial.batch, "what each further sample of a batch costs"
    gain: Field = Absent("the time of the kernels alone is not known: edgescope trace tells it")
    share, guessed = 0.6 * enqueue / whole, True
    if compute_s is not None and compute_s < device:
        rest = whole - device + compute_s  # each kernel takes a microsecond or two, whatever it computes
        share, guessed = 1 - rest / whole, False
        gain = Absent(
            f"at most {whole / rest:.2g} times; edgescope trace tells the time of the kernels alone"
        )
    if graph is not None:
        evidence.append(Evidence(graph.text, graph.source, graph.ratio.value < FASTER))
        gain, basis = graph.ratio, f"measured: {graph.source}"
        if graph.ratio.value < FASTER:
            return None
        share, sure, guessed = 1 - 1 / graph.ratio.value, Confidence.CONFIRMED, False
    remedy = Remedy("--option graph=true: one launch for all kernels", _with(case, graph=True), gain, basis)
    return Finding("launch-bound", share, sure, tuple(evidence), (remedy,), "", 1, guessed)


def _graph(case: Case) -> bool:
    """Return whether all kernels are launched at once already."""
    return case.trial.options.get("graph") in (True, "true") or registry.facts(case.trial.backend).CAPTURES


def _least(case: Case, device: float) -> tuple[float | None, str]:
    """Return the seconds of the kernels alone: the device's time less its idle share, if the driver counts it."""
    busy = known(of_gpu(case.result, "sm_active"))
    if busy is None or busy <= 0 or case.unit_s is None:
        return None, ""
    return min(device, busy * case.unit_s), "time for which the multiprocessors had work"


def _with(case: Case, **options: Json) -> dict[str, Json]:
    return {"options": {**case.trial.options, **options}}


def _copies(case: Case) -> Finding | None:
    h2d, d2h, whole = _phase(case, "h2d"), _phase(case, "d2h"), _whole(case)
    if h2d is None or d2h is None or not whole or (h2d + d2h) / whole < COPIES:
        return None
    share = (h2d + d2h) / whole
    evidence = [
        Evidence(
            f"copies take {units.text(h2d + d2h, 's')} of {units.text(whole, 's')} a unit: "
            f"{units.text(h2d, 's')} to the device, {units.text(d2h, 's')} back",
            PHASES,
        )
    ]
    sure, remedies = Confidence.LIKELY, []
    for io in ("pinned", "device"):
        tried = _better(case, "io", io)
        if tried is not None:
            evidence.append(Evidence(tried.text, tried.source, tried.ratio.value < FASTER))
            sure = Confidence.CONFIRMED if tried.ratio.value >= FASTER else sure
    if case.trial.io == "host":
        remedies.append(_pinned(case, h2d, d2h, whole))
    most = whole / max(h2d, d2h, whole - h2d - d2h)  # both directions and the kernels at once
    if most >= FASTER:
        remedies.append(
            Remedy(
                "--in-flight 2: the copies of one query hide behind the kernels of another",
                {"in_flight": 2},
                Measured(most, "ratio"),
                "copies in both directions and kernels at once",
                Bound.MOST,
            )
        )
    return Finding("transfer-bound", share, sure, tuple(evidence), tuple(remedies), "", 1)


def _pinned(case: Case, h2d: float, d2h: float, whole: float) -> Remedy:
    tried, limit = _better(case, "io", "pinned"), case.limit
    gain: Field = Absent("the bytes of its inputs, or the bandwidth of pinned memory, are not known")
    basis = ""
    if tried is not None:
        gain, basis = tried.ratio, f"measured: {tried.source}"
    elif isinstance(limit, Limit) and case.trial.shapes and limit.transfer_s > 0:
        after = whole - (h2d + d2h) + min(h2d + d2h, limit.transfer_s)
        gain, basis = Measured(whole / after, "ratio"), "the same bytes at the measured rate of pinned memory"
    return Remedy("--io pinned: the device reads the host's memory directly", {"io": "pinned"}, gain, basis)


def _elements(case: Case) -> Finding | None:
    """Return the synchronisations of reading one element after another as the cause."""
    way, part = case.trial.workload_options.get("postprocess"), case.part("postprocess")
    if way != "elements" or case.trial.io != "device" or part is None or case.whole_s <= 0:
        return None
    share = part.seconds / case.whole_s
    if share < SMALL:
        return None
    evidence = (
        Evidence(
            f"postprocess takes {share:.0%} of a unit and reads the device's outputs one by one", PHASES
        ),
        Evidence("each value that is read from a CUDA tensor waits for the device", "postprocess=elements"),
    )
    tried = next((i for i in case.of("workload_options.postprocess") if i.after in ("device", "host")), None)
    gain = tried.ratio if tried else Measured(1 / max(0.02, 1 - share), "ratio")
    basis = f"measured: {tried.source}" if tried else "the time of a unit without the stage"
    bound = Bound.NONE if tried else Bound.MOST
    change = {"workload_options": {**case.trial.workload_options, "postprocess": "host"}}
    sure = Confidence.CONFIRMED if tried and tried.ratio.value >= FASTER else Confidence.LIKELY
    words = "--workload-option postprocess=host: one copy, then whole arrays"
    remedy = Remedy(words, change, gain, basis, bound)
    return Finding("sync-bound", share, sure, evidence, (remedy,), "", 1)


def _device_share(case: Case) -> float | None:
    """Return the share of a unit for which the device computes."""
    device, whole = _phase(case, "gpu_compute"), _whole(case)
    return min(1.0, device / whole) if device is not None and whole else None


def _arithmetic(case: Case) -> Finding | None:
    share, limit = _device_share(case), case.limit
    active, tensor = (known(of_gpu(case.result, name)) for name in ("sm_active", "tensor_active"))
    if share is None or share < FULL or (active is not None and active < FULL):
        return None
    evidence = [
        Evidence(f"the device computes for {share:.0%} of a unit", PHASES)
        if active is None
        else Evidence(f"the multiprocessors had work for {active:.0%} of the time", ACTIVITY)
    ]
    whole = _whole(case)
    if isinstance(limit, Limit) and whole:
        reach = limit.compute_s / whole
        evidence.append(
            Evidence(f"its multiplications take at least {reach:.0%} of the time", ROOFLINE, reach < 0.2)
        )
    if tensor is not None and tensor < 0.02 and case.trial.precision not in TENSOR:
        evidence.append(Evidence(f"the tensor cores had work for {tensor:.1%} of the time", ACTIVITY))
        remedies = tuple(_precisions(case, share))
        sure = (
            Confidence.CONFIRMED
            if any(i.ratio.value >= FASTER for i in case.of("precision"))
            else Confidence.LIKELY
        )
        return Finding("no tensor cores", 0.9 * share, sure, tuple(evidence), remedies, "", 2)
    if not isinstance(limit, Limit) or not whole or limit.compute_s / whole < FULL * 0.6:
        return None
    part = min(0.95, limit.compute_s / whole)
    return Finding(
        "compute-bound", part, Confidence.LIKELY, tuple(evidence), tuple(_precisions(case, share)), "", 1
    )


def _precisions(case: Case, share: float) -> Iterator[Remedy]:
    tried = {str(i.after): i for i in case.of("precision")}
    own = case.ceilings.flops.get(case.trial.precision) if case.ceilings else None
    for precision in ("tf32", "fp16", "bf16"):
        if precision == case.trial.precision or not case.runs(precision):
            continue
        gain: Field = Absent("this machine's ceilings were not measured: edgescope doctor --roofline cuda")
        basis, bound = "", Bound.NONE
        other = case.ceilings.flops.get(precision) if case.ceilings else None
        if precision in tried:
            gain, basis = tried[precision].ratio, f"measured: {tried[precision].source}"
        elif isinstance(own, Measured) and isinstance(other, Measured):
            if other.value <= 1.2 * own.value:
                continue
            least = 1 / (1 - share * (1 - max(own.value / other.value, BYTES[precision] / BYTES["fp32"])))
            most = 1 / (1 - share * (1 - own.value / other.value))
            gain, bound = between(least, most)
            basis = "bytes and peak rate of either precision"
        yield Remedy(f"--precision {precision}", {"precision": precision}, gain, basis, bound)


def _memory(case: Case) -> Finding | None:
    share, dram = _device_share(case), known(of_gpu(case.result, "dram_active"))
    limit, whole = case.limit, _whole(case)
    weights = limit.memory_s / whole if isinstance(limit, Limit) and whole else None
    if share is None or share < FULL or max(dram or 0.0, weights or 0.0) < FULL:
        return None
    evidence = []
    if dram is not None:
        evidence.append(
            Evidence(f"the device's memory was busy for {dram:.0%} of the time", ACTIVITY, dram < 0.3)
        )
    if weights is not None:
        evidence.append(Evidence(f"reading the weights once takes {weights:.0%} of the time", ROOFLINE))
    part = min(0.95, max(dram or 0.0, weights or 0.0)) * share
    remedies = []
    fit = case.batches
    if fit is not None and fit.each_s > 0:
        batch = max(fit.batches)
        now, then = fit.seconds(case.trial.batch) / case.trial.batch, fit.seconds(batch) / batch
        remedies.append(
            Remedy(
                f"--batch {batch}",
                {"batch": batch},
                Measured(now / then, "ratio"),
                "two batches of the store",
            )
        )
    if case.trial.precision in ("fp32", "tf32") and case.runs("fp16"):
        gain = Measured(1 / (1 - part * 0.5), "ratio")
        remedies.append(
            Remedy("--precision fp16", {"precision": "fp16"}, gain, "the bytes of the weights at either")
        )
    return Finding("memory-bound", part, Confidence.LIKELY, tuple(evidence), tuple(remedies), "", 1)


def _shared(case: Case) -> Finding | None:
    """Return other processes on the GPU as the cause: the trial's own, told by a cell of fewer processes."""
    if case.trial.processes < 2:
        return None
    alone = next((i for i in case.of("processes") if i.after == 1), None)
    if alone is None:
        return None
    each = alone.ratio.value * case.trial.processes
    if alone.ratio.value < 1 / FASTER:
        return None  # together they do more than one alone
    evidence = (
        Evidence(f"{alone.text}; one alone does {each:.1f} times what each of them does", alone.source),
        Evidence(f"{case.trial.processes} processes take turns on one GPU ({case.trial.sharing})", SAMPLER),
    )
    mps = _better(case, "sharing", "mps")
    gain, basis = (
        (mps.ratio, f"measured: {mps.source}") if mps else (alone.ratio, f"measured: {alone.source}")
    )
    change: dict[str, Json] = {"sharing": "mps"} if mps else {"processes": 1}
    words = "--sharing mps" if mps else "one process, with the same work in larger batches"
    return Finding(
        "contention",
        1 - 1 / max(each, 1.0),
        Confidence.CONFIRMED,
        evidence,
        (Remedy(words, change, gain, basis),),
        "",
        1,
    )
