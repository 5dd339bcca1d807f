"""How each claim of the concurrent-inference paper is judged, under the claim's key in paper.toml.

A function returns the voice of one series, and a Claim gathers the voices. For a claim without such series, a
function returns the answer itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from statistics import median

from edgescope.analysis.cells.concurrency import (
    NEAR,
    WIDTH,
    Cell,
    Series,
    digits,
    over_batches,
    over_precisions,
    over_processes,
    times,
)
from edgescope.analysis.cells.replicates import NOTICED, above, of_fields, quotient
from edgescope.command import bench_command
from edgescope.records import Absent, Measured, Status
from edgescope.wings.studies.claim import Answer, Claim, Found, Voice, brief, heard, held, per_cent, unknown
from edgescope.wings.studies.sweep_table import (
    SweepTable,
    at,
    each,
    ends,
    file_name,
    line_words,
    megabytes,
    memory_words,
    missing,
    over_first,
    usable_cores,
)

Grown = tuple[str, Sequence[Cell], Sequence[tuple[int, Measured]]]
"""A series in words, its cells, and a figure over that of one process at each P."""
STABLE = 1.25
"""Latency or EC over that of one process up to which it counts as stable: the paper's own spread was 1 to 2 ms."""
AGREES = 0.10
"""Share by which a slope may differ from model + 2 x batch."""
TOP, SPAN, LEAST = 0.05, 1.2, 4
"""Power within TOP of the largest is saturated; throughput still changes if by SPAN; LEAST cells are needed."""
BUSY, IDLE_PARTS = 0.90, 0.30
"""A GPU is busy from the first share on; its parts are idle up to the second."""
EC = "A whole query's latency stands for the execution context"
ISSUE = (
    "sm_issue: NVML's counters know active SMs and not issued instructions, and no trace has samples of them. Try: "
    "nsys profile -t cuda --gpu-metrics-devices=all --export=sqlite -o traces/{file} {bench}; then --traces traces"
)
# -- throughput and latency ----------------------------------------------------------------------------------


def cores(table: SweepTable) -> Found:
    """EC is stable up to cores/2 processes and grows beyond; without traced cells, latency stands for EC."""
    if not table.untraced and any(_traced(table, "ec_s", "EC")):
        return _beyond_half(
            table, _traced(table, "ec_s", "EC"), "EC at the largest P, of that at the smallest"
        )
    found = _beyond_half(table, _latencies(table), "latency at the largest P, of that at P = 1")
    if found.answer is Answer.UNKNOWN:
        return found
    why = f"{found.found}. {EC}: {table.untraced or 'too few cells were traced'}"
    return replace(found, found=why)


def launch(table: SweepTable) -> Found:
    """Return whether launching, with the threads' time off the CPU, grows beyond cores/2 processes."""
    if table.untraced:
        return unknown(table.untraced)
    found = _beyond_half(table, _traced(table, "launching_s", "launching"), "launching at the largest P")
    calls = [(c, c.value("launch_s")) for c in table.measured]
    each_call = [v * 1e6 for _, v in calls if v is not None]
    if not each_call:
        return found
    return replace(
        found, found=f"{found.found}; a call takes {min(each_call):.3g} to {max(each_call):.3g} us"
    )


def _beyond_half(table: SweepTable, known: Iterable[Grown], ratio: str) -> Found:
    """Return the answer of series that must be stable up to cores/2 processes and grow beyond."""
    n = usable_cores(table.machine)
    if n is None:
        return unknown("the number of CPU cores of this machine is not known")
    voices = [_grown(n / 2, *one) for one in known]
    if not voices:
        return unknown("needs both P = 1 and P > 1 runs")
    found = heard(voices, "series", "", ratio)
    tested = any(1 < c.trial.processes <= n / 2 for v in voices for c in v.cells)
    alone = "" if tested else " (no P between 2 and that: only the growth beyond was tested)"
    return replace(found, found=f"with {n} cores, cores/2 = {n / 2:g}{alone}: {found.found}")


def _latencies(table: SweepTable) -> Iterator[Grown]:
    """Yield the latencies of each series over that of one process."""
    for series in over_processes(table.cells):
        known = over_first(series, "latency_p50_s")
        if series.cells[0].trial.processes == 1 and known:
            yield f"{series.words}: latency", series.cells, known


def _traced(table: SweepTable, figure: str, words: str) -> Iterator[Grown]:
    """Yield a kernel-level figure of each series over that of one process, in the cells that have it."""
    for series in over_processes(table.cells):
        cells = [c for c in series.cells if c.value(figure)]
        if len(cells) > 1 and cells[0].trial.processes == 1:
            ratios = [(c.trial.processes, of_fields(c[figure], cells[0][figure])) for c in cells[1:]]
            yield f"{series.words}: {words}", cells, [(p, r) for p, r in ratios if isinstance(r, Measured)]


def _grown(half: float, words: str, cells: Sequence[Cell], known: Sequence[tuple[int, Measured]]) -> Voice:
    inside = [above(r, STABLE) for p, r in known if p <= half]
    beyond = [above(r, STABLE) for p, r in known if p > half]
    return Voice(_stable(inside, beyond), f"{words} {at(known)}", cells, known[-1][1].value)


def _stable(inside: Sequence[bool | None], beyond: Sequence[bool | None]) -> bool | None:
    """Return whether latency was stable up to cores/2 and grew beyond; a side that was not measured is left out."""
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
    each(over_batches, _gain),
    "only one batch size was measured",
    "throughput of the largest batch over the smallest",
)


def _fall(series: Series) -> Voice | None:
    known = over_first(series, "throughput_sps", share=True)
    if not known:
        return None
    side = above(known[-1][1])
    text = f"{series.words}: T/P is {at(known)} of that at P = {series.cells[0].trial.processes}"
    return Voice(None if side is None else not side, text, series.cells, known[-1][1].value)


per_process = Claim(
    each(over_processes, _fall),
    "only one number of processes was measured",
    "T/P at the largest P, of that at the smallest",
)


def best_precision(table: SweepTable) -> Found:
    """Return whether int8 is the fastest; the text names the fastest precision here in any case."""
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


def fallback(table: SweepTable) -> Found:
    """Return whether unsupported precisions fall back: edgescope refuses them instead."""
    failed = table.failed
    refused = [c for c in failed if c.status is Status.UNSUPPORTED or c.rejected.startswith("E-RAN-")]
    if not refused:
        return unknown("every requested precision was supported: no cell was refused")
    lines = [f"{c.trial.model} {c.trial.precision}: {c.status.value}, {c.rejected}" for c in refused]
    what = ", ".join(dict.fromkeys(c.trial.precision for c in refused))
    text = f"{len(refused)} cells of {what} are recorded as refused: nothing is computed in another precision unsaid"
    return Found(Answer.FAILS, text, len(refused), tuple(dict.fromkeys(lines)))


# -- memory --------------------------------------------------------------------------------------------------


def _off_line(table: SweepTable) -> str:
    absent = (m.slope.reason for m in table.lines if isinstance(m.slope, Absent))
    why = next(absent, "no series over processes was measured")
    two = "two numbers of processes were measured, and two points lie on any line"
    return f"{memory_words(table)}: {two if any(m.points == 2 for m in table.lines) else why}"


def _straight(table: SweepTable) -> Iterator[Voice]:
    yield from (Voice(m.linear, line_words(m), m.series.cells) for m in table.lines if m.linear is not None)


memory_linear = Claim(
    _straight, _off_line, of=f"series (no point over {per_cent(NEAR)} off its line)", read_off=True
)


def _slopes(table: SweepTable) -> Iterator[Voice]:
    for m in table.lines:
        if isinstance(m.against, Measured):
            text = f"{line_words(m)}; {times(m.against)} of {megabytes(m.rule)}"
            yield Voice(_agrees(m.against), text, m.series.cells, m.against.value)


def _agrees(against: Measured) -> bool | None:
    """Return whether a slope over the rule is within AGREES of 1; None if its interval does not decide."""
    if abs(against.value - 1) <= AGREES:
        return True
    outside = (above(against, 1 + AGREES, exact=True), above(against, 1 - AGREES, exact=True))
    return False if outside[0] is True or outside[1] is False else None


def _no_slope(table: SweepTable) -> str:
    absent = (m.against.reason for m in table.lines if isinstance(m.against, Absent))
    return next(absent, "no series over processes")


memory_rule = Claim(
    _slopes,
    _no_slope,
    "one more process costs, of model + 2 x batch",
    f"series (slope within {per_cent(AGREES)} of the rule)",
    read_off=True,
)


def memory_limit(table: SweepTable) -> Found:
    """Return whether cells ran out of memory while the machine stayed up."""
    out = [c for c in table.cells if c.status is Status.OOM]
    if not out:
        most = max(c.trial.processes for c in table.measured)
        return unknown(f"no cell ran out of memory, up to P = {most}")
    text = f"{len(out)} cell{'s' * (len(out) != 1)} ran out of memory; the machine stayed up"
    return Found(Answer.HOLDS, text, len(out), tuple(f"{c.place}: {c.rejected}" for c in out))


def _not_twice(table: SweepTable) -> str:
    return f"{memory_words(table)}: not at two precisions"


memory_precision = Claim(
    ends(over_precisions, "memory", ("takes", "the memory of"), rises=True, exact=True),
    _not_twice,
    "memory of the most bits over the fewest",
    read_off=True,
)


# -- power and energy ----------------------------------------------------------------------------------------


def _widths(cells: Iterable[Cell]) -> list[Series]:
    """Return the series over precisions whose first and last precision differ in bits."""
    return [
        s for s in over_precisions(cells) if len({WIDTH[s.cells[i].trial.precision] for i in (0, -1)}) > 1
    ]


energy_precision = Claim(
    ends(_widths, "energy_per_sample_j", ("takes", "the energy a sample of"), rises=True, first=True),
    partial(missing, figure="energy_per_sample_j", otherwise="only one precision ran"),
    "energy a sample of the fewest bits over the most",
)


def _powered(table: SweepTable, *names: str) -> list[list[Cell]]:
    """Return the cells with a measured power, grouped by the values of `names` in their trials."""
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for c in table.measured:
        if c.value("power_w") is not None:
            groups.setdefault(tuple(getattr(c.trial, name) for name in names), []).append(c)
    return list(groups.values())


def _plateaus(table: SweepTable) -> Iterator[Voice]:
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


def _no_power(otherwise: str, table: SweepTable) -> str:
    return otherwise if _powered(table) else missing(table, "power_w", "no cell ran")


FEW = f"power was measured in fewer than {LEAST} cells of any model and precision"
power_plateau = Claim(_plateaus, partial(_no_power, FEW), of="groups of a model and precision")


def _most(cells: Sequence[Cell]) -> Voice | None:
    """Return the voice of FCN's power over the next model's, at equal cells."""
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


def activity(table: SweepTable) -> Found:
    """Return whether SMs and tensor cores are mostly idle in a busy GPU."""
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


def _ends(series: Series, figure: str, words: str, digits: int = 0) -> tuple[float, str] | None:
    """Return what a share gains from the first to the last cell of a series, and both in words; None if one lacks."""
    first, last = series.cells[0].value(figure), series.cells[-1].value(figure)
    if first is None or last is None:
        return None
    at = [
        f"{per_cent(v, digits)} at P = {c.trial.processes}"
        for v, c in zip((first, last), (series.cells[0], series.cells[-1]), strict=True)
    ]
    return last - first, f"{series.words}: {words} {', '.join(at)}"


def _rise(series: Series) -> Voice | None:
    if (found := _ends(series, "sm_active", "SMs active")) is None:
        return None
    gained, text = found
    return Voice(gained > 0 if abs(gained) >= NOTICED else None, text, series.cells)


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


def _flat(series: Series) -> Voice | None:
    if (found := _ends(series, "sm_issue", "SMs issue", 1)) is None:
        return None
    gained, text = found
    return Voice(gained < NOTICED, text, series.cells)


def _no_issue(table: SweepTable) -> str:
    if any(c.value("sm_issue") is not None for c in table.measured):
        return "sm_issue: no series has samples of it at two numbers of processes"
    t = max((c.trial for c in table.measured), key=lambda t: t.processes)
    return ISSUE.format(file=file_name(t), bench=bench_command(replace(t, replicate=0)))


issue = Claim(each(over_processes, _flat), _no_issue)
tensor_int8 = Claim(
    each(over_precisions, _tensor),
    partial(missing, figure="tensor_active", otherwise="no int8 beside fp16 or tf32"),
)
