"""Checks of the paper's rules on power, energy and the activity of a GPU's parts."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from edgescope.analysis.cells.concurrency import WIDTH, Cell, Series, over_precisions, over_processes
from edgescope.analysis.cells.replicates import NOTICED, above, of_fields
from edgescope.analysis.cells.sharing_gain import digits, times
from edgescope.papers.concurrent_inference.rule import (
    Answer,
    Found,
    View,
    Voice,
    brief,
    heard,
    per_cent,
    unknown,
)
from edgescope.records import Absent, Measured

TOP, SPAN = 0.05, 1.2
"""Power within TOP of the largest is saturated; throughput that changes by SPAN or more still changes."""
LEAST = 4
"""Cells that a plateau is looked for in."""
BUSY, IDLE_PARTS = 0.90, 0.30
"""A GPU busy at least this much; parts active at most that much."""


def plateau(view: View) -> Found:
    """Power stays at its largest while throughput changes."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for c in view.cells:
        if c.ok and c.value("power_w") is not None and c.value("throughput_sps"):
            groups.setdefault((c.trial.model, c.trial.precision), []).append(c)
    voices = [_plateau(g) for g in groups.values() if len(g) >= LEAST]
    few = f"power was measured in fewer than {LEAST} cells of any model and precision"
    return heard(voices, "groups of a model and precision", few if groups else _no_power(view))


def _plateau(cells: Sequence[Cell]) -> Voice:
    watts = [c.value("power_w") or 0.0 for c in cells]
    top = [c for c, w in zip(cells, watts, strict=True) if w >= (1 - TOP) * max(watts)]
    rates = [c.value("throughput_sps") or 0.0 for c in top]
    span = max(rates) / min(rates)
    t = cells[0].trial
    text = (
        f"{t.model} {t.precision}: {digits(min(watts))} to {digits(max(watts))} W over {len(cells)} cells; within "
        f"{per_cent(TOP)} of the largest, {len(top)} cells whose throughput differs {digits(span)}x"
    )
    return Voice(len(top) > 1 and span >= SPAN, text, cells)


def _no_power(view: View) -> str:
    return _reason(view, "power_w", "no cell ran")


def _reason(view: View, figure: str, otherwise: str) -> str:
    """Return why a figure was not measured: what the first finished cell says, in short."""
    fields = [c[figure] for c in view.cells if c.ok]
    return next((f"{figure}: {brief(f.reason)}" for f in fields if isinstance(f, Absent)), otherwise)


def energy_precision(view: View) -> Found:
    """Fewer bits, fewer joules an image."""
    voices = [v for s in over_precisions(view.cells) if (v := _joules(s))]
    missing = _reason(view, "energy_per_sample_j", "only one precision ran")
    return heard(voices, "series", missing, "energy a sample of the fewest bits over the most")


def _joules(series: Series) -> Voice | None:
    first, last = series.cells[0], series.cells[-1]
    if WIDTH[first.trial.precision] == WIDTH[last.trial.precision]:
        return None
    ratio = of_fields(first["energy_per_sample_j"], last["energy_per_sample_j"])
    if not isinstance(ratio, Measured):
        return None
    names = f"{first.trial.precision} takes {times(ratio)} the energy a sample of {last.trial.precision}"
    side = above(ratio)
    return Voice(None if side is None else not side, f"{series.words}: {names}", (first, last), ratio.value)


def fcn(view: View) -> Found:
    """FCN draws more than each other model at an equal cell."""
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for c in view.cells:
        if c.ok and c.value("power_w") is not None:
            t = c.trial
            groups.setdefault((t.precision, t.batch, t.processes, t.sharing), []).append(c)
    voices = [v for g in groups.values() if (v := _most(g))]
    if any(c.value("power_w") is not None for c in view.cells):
        missing = "no FCN-ResNet50 and another model with power at equal cells"
        return heard(voices, "equal cells", missing, "its power over the next model's")
    return unknown(_no_power(view))


def _most(cells: Sequence[Cell]) -> Voice | None:
    ours = [c for c in cells if c.trial.model.startswith("fcn")]
    others = [c for c in cells if not c.trial.model.startswith("fcn")]
    if not ours or not others:
        return None
    rival = max(others, key=lambda c: c.value("power_w") or 0.0)
    ratio = of_fields(ours[0]["power_w"], rival["power_w"])
    if not isinstance(ratio, Measured):
        return None
    text = f"{ours[0].place}: {times(ratio)} the power of {rival.trial.model}"
    return Voice(above(ratio), text, cells, ratio.value)


def activity(view: View) -> Found:
    """SMs and tensor cores are mostly idle in a GPU that is busy."""
    known = [c for c in view.cells if c.ok and _parts(c) is not None]
    if not known:
        return unknown(_missing(view))
    busy = [c for c in known if (c.value("gpu_busy") or 0.0) >= BUSY]
    if not busy:
        most = max(c.value("gpu_busy") or 0.0 for c in known)
        return unknown(f"the GPU was never {per_cent(BUSY)} busy (at most {per_cent(most)})")
    low = [c for c in busy if max(_parts(c) or (1.0,)) <= IDLE_PARTS]
    sm, tensor = (median(c.value(name) or 0.0 for c in busy) for name in ("sm_active", "tensor_active"))
    text = (
        f"SMs and tensor cores were both at most {per_cent(IDLE_PARTS)} active in {len(low)} of {len(busy)} cells "
        f"with the GPU at least {per_cent(BUSY)} busy (medians: SMs {per_cent(sm)}, tensor cores {per_cent(tensor)})"
    )
    lines = tuple(_share(c) for c in sorted(busy, key=lambda c: -(c.value("sm_active") or 0.0)))
    return Found(Answer.HOLDS if 2 * len(low) >= len(busy) else Answer.FAILS, text, len(busy), lines)


def _parts(cell: Cell) -> tuple[float, float] | None:
    busy, sm, tensor = (cell.value(name) for name in ("gpu_busy", "sm_active", "tensor_active"))
    return None if busy is None or sm is None or tensor is None else (sm, tensor)


def _share(cell: Cell) -> str:
    busy, sm, tensor = (cell.value(name) or 0.0 for name in ("gpu_busy", "sm_active", "tensor_active"))
    return (
        f"{cell.place}: GPU busy {per_cent(busy)}, SMs active {per_cent(sm)}, tensor cores {per_cent(tensor)}"
    )


def _missing(view: View) -> str:
    """Return which counter is missing."""
    for name in ("gpu_busy", "sm_active", "tensor_active"):
        if all(c.value(name) is None for c in view.cells):
            return _reason(view, name, f"no {name} was recorded")
    return "no cell has all of GPU busy, SM active and tensor active"


def sm_processes(view: View) -> Found:
    """SMs are active more with more processes."""
    voices = [v for s in over_processes(view.cells) if (v := _rise(s))]
    return heard(voices, "series", _reason(view, "sm_active", "only one number of processes was measured"))


def _rise(series: Series) -> Voice | None:
    first, last = series.cells[0].value("sm_active"), series.cells[-1].value("sm_active")
    if first is None or last is None:
        return None
    p = [c.trial.processes for c in series.cells]
    text = f"{series.words}: SMs active {per_cent(first)} at P = {p[0]}, {per_cent(last)} at P = {p[-1]}"
    far = abs(last - first) >= NOTICED
    return Voice(last > first if far else None, text, series.cells)


def issue(view: View) -> Found:
    """No light counter knows issue slots."""
    return unknown(
        "NVML's GPM counters know active SMs, not issued instructions: needs a profiler around the same cell, which "
        "this version does not drive"
    )


def tensor_int8(view: View) -> Found:
    """Tensor cores are used less in int8 than in fp16 or tf32."""
    voices = [v for s in over_precisions(view.cells) if (v := _tensor(s))]
    missing = _reason(view, "tensor_active", "no int8 beside fp16 or tf32")
    return heard(voices, "series", missing)


def _tensor(series: Series) -> Voice | None:
    shares = {c.trial.precision: c.value("tensor_active") for c in series.cells}
    mine = shares.get("int8")
    others = {p: s for p in ("fp16", "tf32") if (s := shares.get(p)) is not None}
    if mine is None or not others:
        return None
    least = min(others.values())
    shown = ", ".join(f"{p} {per_cent(s)}" for p, s in {"int8": mine, **others}.items())
    far = abs(least - mine) >= NOTICED / 5
    return Voice(mine < least if far else None, f"{series.words}: tensor cores active {shown}", series.cells)
