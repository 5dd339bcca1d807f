"""How each claim of the concurrent-inference paper is judged, under the claim's key in paper.toml.

A function for each series says what that series says; a Claim gathers them. Where a claim has no such series a
function returns what was found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from edgescope.analysis.cells import concurrency as grid
from edgescope.analysis.cells.concurrency import Cell, MemoryLine, Series, over_precisions, over_processes
from edgescope.analysis.cells.replicates import NOTICED, above, of_fields, quotient
from edgescope.analysis.cells.sharing_gain import digits, times
from edgescope.papers.claim import Answer, Claim, Found, Voice, brief, heard, held, per_cent, unknown
from edgescope.records import Absent, Field, Json, Machine, Measured, Status

if TYPE_CHECKING:
    from edgescope.papers.concurrent_inference.table import Concurrent

Voices = Callable[["Concurrent"], Iterable[Voice | None]]
STABLE = 1.25
"""Latency over that of one process up to which it counts as stable: the paper's own spread was 1 to 2 ms."""
AGREES = 0.10
"""Share by which a slope may differ from model + 2 x batch."""
TOP, SPAN, LEAST = 0.05, 1.2, 4
"""Power within TOP of the largest is saturated, throughput that changes by SPAN still changes, of LEAST cells on."""
BUSY, IDLE_PARTS = 0.90, 0.30
"""A GPU busy at least this much; parts active at most that much."""
EC = (
    "A whole query's latency stands for the execution context, whose host span needs a profiler around the same cell, "
    "which this version does not drive"
)
#: Memory figure -> what it is, in words.
MEMORY = {
    "processes_pss_bytes": "proportional share of resident memory, summed",
    "processes_rss_bytes": "peak resident memory, summed",
    "gpu_processes_memory_bytes": "GPU memory of the processes, as the driver says",
    "gpu_board_memory_bytes": "memory in use on the GPU's board",
}


def missing(table: Concurrent, figure: str, otherwise: str) -> str:
    """Return why a figure was not measured: what the first finished cell says, in short."""
    fields = [c[figure] for c in table.measured]
    return next((f"{figure}: {brief(f.reason)}" for f in fields if isinstance(f, Absent)), otherwise)


def each(axis: Callable[[Iterable[Cell]], list[Series]], voice: Callable[[Series], Voice | None]) -> Voices:
    """Return the voices of a table's series along an axis."""
    return lambda table: map(voice, axis(table.cells))


def memory_words(table: Concurrent) -> str:
    """Return what the table's memory figure is."""
    return MEMORY.get(table.memory, table.memory)


# -- throughput and latency ----------------------------------------------------------------------------------


def usable_cores(machine: Machine | None) -> int | None:
    """Return the CPU cores of a machine, physical ones where known, no more than the process may use; or None."""
    facts: Json = machine.stable.get("cpu") if machine else None
    state: Json = machine.state.get("cpu") if machine else None
    if not isinstance(facts, Mapping):
        return None
    known = [facts.get(name) for name in ("physical_cores", "logical_cores", "cores")]
    found = next((n for n in known if isinstance(n, int)), None)
    allowed = state.get("affinity") if isinstance(state, Mapping) else None
    if found is None or not isinstance(allowed, list | tuple) or not allowed:
        return found
    return min(found, len(allowed))


def cores(table: Concurrent) -> Found:
    """Latency is stable up to cores/2 processes and grows beyond."""
    n = usable_cores(table.machine)
    if n is None:
        return unknown("the number of CPU cores of this machine is not known")
    voices = [v for s in over_processes(table.cells) if (v := _growth(n / 2, s))]
    if not voices:
        return unknown("needs both P = 1 and P > 1 runs")
    found = heard(voices, "series", "", "latency at the largest P, of that at P = 1")
    tested = any(1 < c.trial.processes <= n / 2 for v in voices for c in v.cells)
    alone = "" if tested else " (no P between 2 and that: only the growth beyond was tested)"
    text = f"with {n} cores, cores/2 = {n / 2:g}{alone}: {found.found}. {EC}"
    return Found(found.answer, text, found.cells, found.evidence, found.agree)


def _over_first(series: Series, figure: str, *, each: bool = False) -> list[tuple[int, Measured]]:
    """Return (P, figure over that of the series' first P) where it is measured; `each`: of one process's share."""
    first, *rest = series.cells
    least = first.trial.processes
    found = [(c.trial.processes, quotient(c.runs, first.runs, figure)) for c in rest]
    shares = [(p, grid.scaled(r, least / p) if each else r) for p, r in found]
    return [(p, r) for p, r in shares if isinstance(r, Measured)]


def _at(known: Sequence[tuple[int, Measured]]) -> str:
    return ", ".join(f"{times(r)} at P = {p}" for p, r in known)


def _growth(half: float, series: Series) -> Voice | None:
    """Return what a series says: latency over that of one process, at each P."""
    known = _over_first(series, "latency_p50_s")
    if series.cells[0].trial.processes != 1 or not known:
        return None
    inside = [above(r, STABLE) for p, r in known if p <= half]
    beyond = [above(r, STABLE) for p, r in known if p > half]
    text = f"{series.words}: latency {_at(known)}"
    return Voice(_stable(inside, beyond), text, series.cells, known[-1][1].value)


def _stable(inside: Sequence[bool | None], beyond: Sequence[bool | None]) -> bool | None:
    """Return whether latency stayed inside cores/2 and grew beyond; the side that was not measured is not asked."""
    if True in inside or (beyond and all(grown is False for grown in beyond)):
        return False
    quiet = all(grown is False for grown in inside)
    return True if quiet and (True in beyond or not beyond) else None


def _gain(series: Series) -> Voice | None:
    first, last = series.cells[0], series.cells[-1]
    ratio, more = quotient(last.runs, first.runs, "throughput_sps"), last.trial.batch / first.trial.batch
    if not isinstance(ratio, Measured):
        return None
    rises, linear = above(ratio), above(ratio, more)
    holds = False if rises is False or linear is True else True if rises and linear is False else None
    text = f"{series.words}: {times(ratio)} from batch {first.trial.batch} to {last.trial.batch} ({more:g}x)"
    return Voice(holds, text, (first, last), ratio.value)


batch = Claim(
    each(grid.over_batches, _gain),
    "only one batch size was measured",
    "throughput of the largest batch over the smallest",
)


def _fall(series: Series) -> Voice | None:
    known = _over_first(series, "throughput_sps", each=True)
    if not known:
        return None
    side = above(known[-1][1])
    text = f"{series.words}: T/P is {_at(known)} of that at P = {series.cells[0].trial.processes}"
    return Voice(None if side is None else not side, text, series.cells, known[-1][1].value)


per_process = Claim(
    each(over_processes, _fall),
    "only one number of processes was measured",
    "T/P at the largest P, of that at the smallest",
)


def best_precision(table: Concurrent) -> Found:
    """int8 is the fastest; what is fastest here is said in any case."""
    groups = over_precisions(table.cells)
    why = _why_not(table.cells, "int8")
    if not groups:
        one = len({c.trial.precision for c in table.measured}) == 1
        return unknown(f"{'only one precision ran' if one else 'no equal cells'}; int8 {why}")
    best = Counter(max(s.cells, key=_rate).trial.precision for s in groups)
    shown = "fastest here: " + ", ".join(f"{p} in {n} of {len(groups)}" for p, n in best.most_common())
    with_int8 = [s for s in groups if s.cells[0].trial.precision == "int8"]
    if not with_int8:
        cells = len({c.trial.id for s in groups for c in s.cells})
        return Found(Answer.UNKNOWN, f"{shown}; int8 {why}", cells, tuple(map(_ladder, groups)))
    found = heard([_int8(s) for s in with_int8], "series", "", "int8 over the fastest other")
    return Found(found.answer, f"{shown}; int8: {found.found}", found.cells, found.evidence, found.agree)


def _rate(cell: Cell) -> float:
    return cell.value("throughput_sps") or 0.0


def _int8(series: Series) -> Voice:
    rest = max(series.cells[1:], key=_rate)
    ratio = quotient(series.cells[0].runs, rest.runs, "throughput_sps")
    words = (f"{_ladder(series)} (int8 ", f" of {rest.trial.precision})")
    return held(ratio, words, series.cells) or Voice(None, _ladder(series), series.cells)


def _ladder(series: Series) -> str:
    rates = [(c.trial.precision, c.value("throughput_sps")) for c in series.cells]
    shown = ", ".join(f"{p} {digits(v)}" for p, v in rates if v is not None)
    return f"{series.words}: {shown} samples/s"


def _why_not(cells: Sequence[Cell], precision: str) -> str:
    mine = [c for c in cells if c.trial.precision == precision]
    if not mine:
        return "was not measured"
    if any(c.ok for c in mine):
        return "ran, with no other precision at an equal cell"
    return f"gave no figure ({mine[0].status.value}: {brief(mine[0].rejected)})"


def fallback(table: Concurrent) -> Found:
    """A precision that cannot be had is refused here, never computed in another."""
    failed = table.failed
    refused = [c for c in failed if c.status is Status.UNSUPPORTED or c.rejected.startswith("E-RAN-")]
    if not refused:
        return unknown("every precision asked for was supported: no cell was refused")
    lines = [f"{c.trial.model} {c.trial.precision}: {c.status.value}, {c.rejected}" for c in refused]
    what = ", ".join(dict.fromkeys(c.trial.precision for c in refused))
    text = f"{len(refused)} cells of {what} are recorded as refused: nothing is computed in another precision unsaid"
    return Found(Answer.FAILS, text, len(refused), tuple(dict.fromkeys(lines)))


# -- memory --------------------------------------------------------------------------------------------------


def _off_line(table: Concurrent) -> str:
    absent = (m.slope.reason for m in table.lines if isinstance(m.slope, Absent))
    why = next(absent, "no series over processes was measured")
    two = "two numbers of processes were measured, and two points lie on any line"
    return f"{memory_words(table)}: {two if any(m.points == 2 for m in table.lines) else why}"


def _line(line: MemoryLine) -> str:
    off = line.residual
    said = f", at most {per_cent(off.value, 1)} off the line" if isinstance(off, Measured) else ""
    return f"{line.series.words}: {megabytes(line.slope)} a process from {megabytes(line.start)}{said}"


def _straight(table: Concurrent) -> Iterator[Voice]:
    yield from (Voice(m.linear, _line(m), m.series.cells) for m in table.lines if m.linear is not None)


memory_linear = Claim(
    _straight, _off_line, of=f"series (no point over {per_cent(grid.NEAR)} off its line)", read_off=True
)


def _slopes(table: Concurrent) -> Iterator[Voice]:
    for m in table.lines:
        if isinstance(m.against, Measured):
            text = f"{_line(m)}; {times(m.against)} of {megabytes(m.rule)}"
            yield Voice(_agrees(m.against), text, m.series.cells, m.against.value)


def _agrees(against: Measured) -> bool | None:
    """Return whether a slope over the rule is within AGREES of 1; None where its interval does not say."""
    if abs(against.value - 1) <= AGREES:
        return True
    outside = (above(against, 1 + AGREES, exact=True), above(against, 1 - AGREES, exact=True))
    return False if outside[0] is True or outside[1] is False else None


def _no_slope(table: Concurrent) -> str:
    absent = (m.against.reason for m in table.lines if isinstance(m.against, Absent))
    return next(absent, "no series over processes")


memory_rule = Claim(
    _slopes,
    _no_slope,
    "one more process costs, of model + 2 x batch",
    f"series (slope within {per_cent(AGREES)} of the rule)",
    read_off=True,
)


def memory_limit(table: Concurrent) -> Found:
    """Cells that ran out of memory."""
    out = [c for c in table.cells if c.status is Status.OOM]
    if not out:
        most = max(c.trial.processes for c in table.measured)
        return unknown(f"no cell ran out of memory, up to P = {most}")
    text = f"{len(out)} cell{'s' * (len(out) != 1)} ran out of memory; the machine stayed up"
    return Found(Answer.HOLDS, text, len(out), tuple(f"{c.place}: {c.rejected}" for c in out))


def _more(table: Concurrent) -> Iterator[Voice | None]:
    for series in over_precisions(table.cells):
        first, last = series.cells[0], series.cells[-1]
        words = (f"{series.words}: {last.trial.precision} takes ", f" the memory of {first.trial.precision}")
        yield held(of_fields(last[table.memory], first[table.memory]), words, (first, last), exact=True)


def _not_twice(table: Concurrent) -> str:
    return f"{memory_words(table)}: not at two precisions"


memory_precision = Claim(_more, _not_twice, "memory of the most bits over the fewest", read_off=True)


def megabytes(field: Field) -> str:
    """Return `412 MB [405, 419]`, or `n/a`."""
    if isinstance(field, Absent):
        return "n/a"
    places = 0 if abs(field.value) >= 1e7 else 1

    def shown(value: float) -> str:
        return f"{round(value * 1e-6, places) + 0.0:,.{places}f}"  # what is rounded to nothing has no sign

    text = f"{shown(field.value)} MB"
    if field.lo is None or field.hi is None:
        return text
    return f"{text} [{shown(field.lo)}, {shown(field.hi)}]"


# -- power and energy ----------------------------------------------------------------------------------------


def _joules(series: Series) -> Voice | None:
    first, last = series.cells[0], series.cells[-1]
    few, many = first.trial.precision, last.trial.precision
    if grid.WIDTH[few] == grid.WIDTH[many]:
        return None
    ratio = of_fields(first["energy_per_sample_j"], last["energy_per_sample_j"])
    words = (f"{series.words}: {few} takes ", f" the energy a sample of {many}")
    return held(ratio, words, (first, last), rises=False)


energy_precision = Claim(
    each(over_precisions, _joules),
    partial(missing, figure="energy_per_sample_j", otherwise="only one precision ran"),
    "energy a sample of the fewest bits over the most",
)


def _powered(table: Concurrent, *names: str) -> list[list[Cell]]:
    """Return the cells with a power, those together whose trials have the same `names`."""
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for c in table.measured:
        if c.value("power_w") is not None:
            groups.setdefault(tuple(getattr(c.trial, name) for name in names), []).append(c)
    return list(groups.values())


def _plateaus(table: Concurrent) -> Iterator[Voice]:
    for cells in _powered(table, "model", "precision"):
        usable = [c for c in cells if _rate(c)]
        if len(usable) >= LEAST:
            yield _plateau(usable)


def _plateau(cells: Sequence[Cell]) -> Voice:
    watts = [c.value("power_w") or 0.0 for c in cells]
    rates = [_rate(c) for c, w in zip(cells, watts, strict=True) if w >= (1 - TOP) * max(watts)]
    span = max(rates) / min(rates)
    t = cells[0].trial
    text = (
        f"{t.model} {t.precision}: {digits(min(watts))} to {digits(max(watts))} W over {len(cells)} cells; within "
        f"{per_cent(TOP)} of the largest, {len(rates)} cells whose throughput differs {digits(span)}x"
    )
    return Voice(len(rates) > 1 and span >= SPAN, text, cells)


def _no_power(otherwise: str, table: Concurrent) -> str:
    return otherwise if _powered(table) else missing(table, "power_w", "no cell ran")


FEW = f"power was measured in fewer than {LEAST} cells of any model and precision"
power_plateau = Claim(_plateaus, partial(_no_power, FEW), of="groups of a model and precision")


def _most(cells: Sequence[Cell]) -> Voice | None:
    """Return what FCN's power is over the next model's, at equal cells."""
    ours = [c for c in cells if c.trial.model.startswith("fcn")]
    others = [c for c in cells if not c.trial.model.startswith("fcn")]
    if not ours or not others:
        return None
    rival = max(others, key=lambda c: c.value("power_w") or 0.0)
    words = (f"{ours[0].place}: ", f" the power of {rival.trial.model}")
    return held(of_fields(ours[0]["power_w"], rival["power_w"]), words, cells)


NO_FCN = "no FCN-ResNet50 and another model with power at equal cells"
fcn_power = Claim(
    lambda table: map(_most, _powered(table, "precision", "batch", "processes", "sharing")),
    partial(_no_power, NO_FCN),
    "its power over the next model's",
    "equal cells",
)


# -- the parts of a GPU --------------------------------------------------------------------------------------

PARTS = ("gpu_busy", "sm_active", "tensor_active")


def activity(table: Concurrent) -> Found:
    """SMs and tensor cores are mostly idle in a GPU that is busy."""
    every = [(c, [c.value(name) for name in PARTS]) for c in table.measured]
    known = [(c, [v for v in parts if v is not None]) for c, parts in every if None not in parts]
    if not known:
        lost = (p for i, p in enumerate(PARTS) if all(parts[i] is None for _, parts in every))
        why = [missing(table, name, f"no {name} was recorded") for name in lost]
        return unknown((*why, "no cell has all of GPU busy, SM active and tensor active")[0])
    busy = [(c, parts) for c, parts in known if parts[0] >= BUSY]
    if not busy:
        most = max(parts[0] for _, parts in known)
        return unknown(f"the GPU was never {per_cent(BUSY)} busy (at most {per_cent(most)})")
    low = sum(max(sm, tensor) <= IDLE_PARTS for _, (_, sm, tensor) in busy)
    middle = [median(parts[i] for _, parts in busy) for i in (1, 2)]
    text = (
        f"SMs and tensor cores were both at most {per_cent(IDLE_PARTS)} active in {low} of {len(busy)} cells "
        f"with the GPU at least {per_cent(BUSY)} busy (medians: SMs {per_cent(middle[0])}, tensor cores "
        f"{per_cent(middle[1])})"
    )
    lines = (
        f"{c.place}: GPU busy {per_cent(gpu)}, SMs active {per_cent(sm)}, tensor cores {per_cent(tensor)}"
        for c, (gpu, sm, tensor) in sorted(busy, key=lambda pair: -pair[1][1])
    )
    answer = Answer.HOLDS if 2 * low >= len(busy) else Answer.FAILS
    return Found(answer, text, len(busy), tuple(lines), f"{low} of {len(busy)}")


def _rise(series: Series) -> Voice | None:
    first, last = series.cells[0].value("sm_active"), series.cells[-1].value("sm_active")
    if first is None or last is None:
        return None
    p = [c.trial.processes for c in series.cells]
    text = f"{series.words}: SMs active {per_cent(first)} at P = {p[0]}, {per_cent(last)} at P = {p[-1]}"
    return Voice(last > first if abs(last - first) >= NOTICED else None, text, series.cells)


sm_processes = Claim(
    each(over_processes, _rise),
    partial(missing, figure="sm_active", otherwise="only one number of processes was measured"),
)


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


tensor_int8 = Claim(
    each(over_precisions, _tensor),
    partial(missing, figure="tensor_active", otherwise="no int8 beside fp16 or tf32"),
)
