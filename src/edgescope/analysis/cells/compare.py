"""Compare two cells: first the settings that differ, then the metrics, then a judgement.

A ratio means nothing until the settings are known to differ only in the subject of the comparison, so differences
lead. Replicates of one number that started within an hour of each other are a pair; the ratio of a pair cancels
the machine's influence on both. If the two took turns in pairs of processes, the ratio of their median latencies is
that of the turns. Runs that are not pairs give the ratio of two independent figures. Latencies with
other io, watts of another scope and numbers of another machine are NOT-COMPARABLE.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from edgescope.analysis.cells import alternation
from edgescope.analysis.cells.devices import NO_TERMS, DeviceRow, Terms, device_rows
from edgescope.analysis.cells.replicates import (
    ENOUGH,
    MIN_REPLICATES,
    across,
    by_replicate,
    judged,
    neighbours,
    of_fields,
    of_pairs,
    percentiles,
)
from edgescope.analysis.run.energy import scope, scopes
from edgescope.errors import Message, UsageError
from edgescope.metrics import scoped, shown
from edgescope.records import Absent, Answer, Field, Json, Measured, Result, Status, Trial
from edgescope.records.answers import figure_text, plain
from edgescope.stats import Interval, Judgement, judge
from edgescope.stats.pairs import MIN_EFFECT
from edgescope.units import counted

#: Facts that differ between any two runs: clocks, load, free memory, the command, what edgescope tells its processes.
MOMENTARY = re.compile(
    r"(^|\.)(EDGESCOPE_\w+|time|uptime_s|load_average|memory_available_bytes|psi_\w+|command)(\.|$)"
)


@dataclass(frozen=True)
class Difference:
    """One setting or machine fact that is not the same on both sides."""

    name: str
    """`trial.precision`, `machine.cpu.model`, `state.governor` ..."""
    baseline: Json
    candidate: Json


@dataclass(frozen=True)
class Compared:
    """One metric of both sides, the ratio candidate / baseline with its 95 % interval, and the judgement.

    The interval of a power or energy ratio reaches as far as the meter's bounds do.
    """

    metric: str
    baseline: Field
    candidate: Field
    ratio: Field
    judgement: Judgement | None = None
    """None if a metric is shown but not judged."""

    @property
    def contradicted(self) -> Measured | None:
        """Return the ratio of the two columns if it points the other way than the ratio of the pairs, else None."""
        figures = self.baseline, self.candidate, self.ratio
        if not all(isinstance(f, Measured) and f.value > 0 for f in figures):
            return None
        old, new, pairs = (f.value for f in figures if isinstance(f, Measured))
        shown = new / old
        opposite = (shown > 1) != (pairs > 1) and min(abs(shown - 1), abs(pairs - 1)) >= MIN_EFFECT
        return Measured(shown, "1") if opposite else None


@dataclass(frozen=True, repr=False)
class Comparison(Answer):
    """The differences between two cells, why they may not be comparable, and one row per metric."""

    baseline: str
    candidate: str
    """Labels of the two variants, with the models where these differ."""
    differences: tuple[Difference, ...]
    blockers: tuple[str, ...]
    """Reasons why the numbers are NOT-COMPARABLE; empty if they are comparable."""
    rows: tuple[Compared, ...]
    """Empty if there are blockers and the comparison was not forced."""
    pairs: int
    warnings: tuple[str, ...] = ()
    """Warnings about the numbers: too few updates of a meter, a single pair."""
    devices: tuple[DeviceRow, ...] = ()
    """What each machine does for its energy, watts and price; empty for one machine without a price or a budget."""
    runs: tuple[int, int] = (0, 0)
    """Runs of each side that the columns are over; a ratio is over the pairs among them."""
    wrong: tuple[str, ...] = ()
    """Of each side whose outputs were wrong, that its latency is not shown, and why."""

    @property
    def lead(self) -> Compared | None:
        """The first judged metric with a ratio."""
        return next((r for r in self.rows if r.judgement and isinstance(r.ratio, Measured)), None)

    @property
    def judgement(self) -> Judgement:
        """The judgement on the first judged metric (the median latency), which stands for the comparison."""
        if self.blockers:
            return Judgement.NOT_COMPARABLE
        return next((r.judgement for r in self.rows if r.judgement), Judgement.AMBIGUOUS)

    @property
    def decided(self) -> bool:
        """Whether the candidate is judged faster, slower or the same."""
        return self.judgement not in (Judgement.AMBIGUOUS, Judgement.NOT_COMPARABLE)

    def lines(self) -> Iterator[str]:
        """Yield the judgement, why numbers are not comparable, and one line per metric."""
        yield from self.wrong
        yield f"{self.candidate} is {self.judgement.value} against {self.baseline}"
        yield from (f"  not comparable: {blocker}" for blocker in self.blockers)
        yield from (f"  differs: {d.name} {d.baseline} -> {d.candidate}" for d in self.differences)
        yield from (f"  {figure_text(f'{r.metric} ratio', r.ratio)}" for r in self.rows)
        yield from (f"  {figure_text(f'{d.name} ratio of the machines', d.ratio)}" for d in self.devices)

    def records(self) -> list[dict[str, Json]]:
        """Return one row per metric."""
        return [
            {
                "metric": r.metric,
                "baseline": plain(r.baseline),
                "candidate": plain(r.candidate),
                "ratio": plain(r.ratio),
                "judgement": r.judgement.value if r.judgement else None,
            }
            for r in self.rows
        ]


def compare(
    baseline: Sequence[Result],
    candidate: Sequence[Result],
    *,
    force: bool = False,
    terms: Terms = NO_TERMS,
    cells: Mapping[str, Sequence[Result]] = MappingProxyType({}),
) -> Comparison:
    """Return the comparison of two groups, each the replicates of one cell; UsageError if a group is not.

    `force` shows numbers that are NOT-COMPARABLE side by side; they are still not judged. Two machines are compared for
    their energy, and for the price and the power budget of `terms`; `cells` holds, by side, what a budget chooses from.
    """
    for group, side in ((baseline, "baseline"), (candidate, "candidate")):
        _one_cell(group, side)
    old, new = by_replicate(baseline), by_replicate(candidate)
    paired = neighbours(old, new)
    blockers = _blockers(baseline, candidate)
    rows: list[Compared] = []
    turns: alternation.Paired = ()
    if force or not blockers:
        ratio_of = partial(_paired, paired) if paired[0] else partial(_apart, (old, new))
        turns = alternation.pairs(candidate, baseline)
        for metric in shown("compare", baseline[0].trial.workload):
            name, higher = metric.of[0], metric.higher
            sides = _side(list(old.values()), name), _side(list(new.values()), name)
            in_turns = bool(turns) and name in IN_TURNS
            ratio, judgement = _turned(turns) if in_turns else ratio_of(sides, name, higher)
            if not in_turns and Compared(name, *sides, ratio).contradicted:
                judgement = Judgement.AMBIGUOUS  # which of the two speaks for the machine is not known
            rows.append(Compared(name, *sides, ratio, Judgement.NOT_COMPARABLE if blockers else judgement))
        rows.append(_p99(old, new))
        rows += _judged(baseline, candidate)
    apart = baseline[0].machine.id != candidate[0].machine.id
    pairs = len(paired[0])
    if rows and turns:
        pairs = len(turns)
    return Comparison(
        *_labels(baseline[0].trial, candidate[0].trial),
        differences(baseline, candidate),
        blockers,
        tuple(r for r in rows if not (isinstance(r.baseline, Absent) and isinstance(r.candidate, Absent))),
        pairs,
        _warnings(old, new, rows, pairs),
        device_rows(baseline, candidate, terms, cells) if apart or terms != NO_TERMS else (),
        (len(old), len(new)),
        tuple(_wrong({"baseline": baseline, "candidate": candidate})),
    )


def _labels(a: Trial, b: Trial) -> tuple[str, str]:
    """Return the labels of both, after the names of their models where these differ."""
    models = [t.model.partition("#")[0] for t in (a, b)]
    if models[0] == models[1]:
        return a.label, b.label
    return f"{models[0]} {a.label}", f"{models[1]} {b.label}"


def _wrong(sides: Mapping[str, Sequence[Result]]) -> Iterator[str]:
    """Yield that the outputs of a side were wrong, and how."""
    for side, group in sides.items():
        found = next((r for r in group if r.status is Status.WRONG_OUTPUT), None)
        if found is not None:
            how = f": {found.verification.detail}" if found.verification else ""
            yield f"the outputs of the {side} were wrong, so its latency is not shown{how}"


def _warnings(
    old: Mapping[int, Result], new: Mapping[int, Result], rows: Sequence[Compared], pairs: int
) -> tuple[str, ...]:
    """Return the warnings that weaken the rows; those of the meter if power or energy is among them."""
    found: list[str] = []
    lead = next((r for r in rows if r.judgement), None)
    if lead is not None and lead.judgement is Judgement.AMBIGUOUS and pairs < ENOUGH:
        text = Message(
            "W-CMP-2",
            f"{counted(pairs, 'pair')} of runs judge nothing",
            effect="The ratio is what was measured once, and may be chance",
            fix=f"edgescope sweep --model {_model(old)} --replicates {ENOUGH} with both settings, then compare",
        )
        found.append(str(text))
    if not pairs and rows:
        found.append(
            "not measured together: the ratios of independent figures include changes of the machine between them"
        )
    if any(scoped(r.metric) and isinstance(r.ratio, Measured) for r in rows):
        for side, group in (("baseline", old), ("candidate", new)):
            meter = dict.fromkeys(w for r in group.values() for w in r.warnings if w.code == "W-PWR-3")
            found += [f"{w} (the {side})" for w in meter]
    return tuple(found)


def by_cell(results: Iterable[Result]) -> dict[str, list[Result]]:
    """Return results grouped by cell, in the order in which cells first appear."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.trial.cell, []).append(result)
    return groups


def _model(runs: Mapping[int, Result]) -> str:
    return next(iter(runs.values())).trial.model.partition("#")[0]


def _one_cell(group: Sequence[Result], side: str) -> None:
    cells = sorted({r.trial.label for r in group}) if len({r.trial.cell for r in group}) > 1 else []
    if not group or cells:
        what = f"the {side} holds {'several cells' if cells else 'no result'}"
        fix = "name one cell on each side (edgescope list)"
        raise UsageError("E-CMP-1", what, evidence=", ".join(cells), effect="Nothing was compared", fix=fix)


Runs = Mapping[int, Result]
IN_TURNS = ("latency_p50_s",)
"""Metrics whose ratio is that of the turns, where two groups took turns with each other."""


def _paired(
    runs: tuple[Runs, Runs], sides: tuple[Field, Field], name: str, higher: bool
) -> tuple[Field, Judgement]:
    """Return the ratio over the pairs with a positive value on both sides, and its judgement."""
    found = judged(runs[1], runs[0], name, higher)
    if found is None:
        return Absent("no replicate number has a value on both sides"), Judgement.AMBIGUOUS
    return _with_point(found[0]), found[1]


def _with_point(ratio: Interval) -> Field:
    """Return a paired ratio; what too few pairs cannot bound is shown without an interval, and judged by nothing."""
    if ratio.reliable or not (ratio.value > 0 and math.isfinite(ratio.value)):
        return of_pairs(ratio, "--replicates")
    return Measured(ratio.value, "1", n=ratio.n)


def _turned(turns: alternation.Paired) -> tuple[Field, Judgement]:
    """Return the ratio candidate / baseline of the times of pairs that took turns, and its judgement."""
    sure, likely = (_inverse(alternation.speedup(turns, level)) for level in (0.95, 0.90))
    return _with_point(sure), judge(sure, likely)


def _inverse(ratio: Interval) -> Interval:
    lo, hi = (1 / end if end > 0 else math.inf for end in (ratio.hi, ratio.lo))
    return replace(ratio, lo=lo, hi=hi, value=1 / ratio.value)


def _apart(
    runs: tuple[Runs, Runs], sides: tuple[Field, Field], name: str, higher: bool
) -> tuple[Field, Judgement]:
    """Return the ratio of two independent figures, and its judgement if both spreads are known."""
    ratio = of_fields(sides[1], sides[0])
    if min(map(len, runs)) < MIN_REPLICATES or not isinstance(ratio, Measured):
        return ratio, Judgement.AMBIGUOUS
    if ratio.lo is None or ratio.hi is None:
        return ratio, Judgement.AMBIGUOUS
    interval = Interval(ratio.lo, ratio.hi, ratio.value, ratio.n, ratio.n)
    return ratio, judge(interval, interval, higher)


def _side(results: Sequence[Result], name: str) -> Field:
    return percentiles(results)["p50_s"] if name == "latency_p50_s" else across(results, name)


def _p99(old: Mapping[int, Result], new: Mapping[int, Result]) -> Compared:
    first, second = (percentiles(list(side.values()))["p99_s"] for side in (old, new))
    ratio: Field = Absent("no p99 on both sides")
    if isinstance(first, Measured) and isinstance(second, Measured) and first.value > 0:
        ratio = Measured(second.value / first.value, "1")
    return Compared("latency_p99_s", first, second, ratio)


def _judged(*groups: Sequence[Result]) -> Iterator[Compared]:
    """Yield one row for each measure by which a side's outputs were judged: its value on both sides, and no ratio."""
    checks = [next((r.verification for r in group if r.verification), None) for group in groups]
    for method in dict.fromkeys(check.method for check in checks if check):
        old, new = (check.figure(method) if check else Absent("not verified") for check in checks)
        yield Compared(method.partition("#")[0], old, new, Absent("each side was judged against fp32"))


def _blockers(a: Sequence[Result], b: Sequence[Result]) -> tuple[str, ...]:
    """Return the reasons why these numbers do not measure the same thing."""
    found = []
    for side, group in (("baseline", a), ("candidate", b)):
        if len({r.machine.id for r in group}) > 1:
            found.append(f"the {side} was measured on several machines")
        mixed = {s for s in map(scope, group) if s}
        if len(mixed) > 1:
            found.append(f"the {side} mixes scopes of power: {', '.join(sorted(mixed))}")
    for word, old, new in (
        ("io", {r.trial.io for r in a}, {r.trial.io for r in b}),
        ("machine", {r.machine.id for r in a}, {r.machine.id for r in b}),
        ("scope of power", scopes(a), scopes(b)),
    ):
        if old and new and old != new:
            found.append(f"{word} differs: {', '.join(sorted(old))} against {', '.join(sorted(new))}")
    return tuple(found)


def differences(a: Sequence[Result], b: Sequence[Result]) -> tuple[Difference, ...]:
    """Return the differences: trial fields first, then stable machine facts, then current facts.

    A fact that also varies within a side (a temperature, the load) is noise there, and is left out.
    """
    found = []
    for prefix, read in (("trial", _trial), ("machine", _stable), ("state", _state)):
        old, new = [_flat(read(r)) for r in a], [_flat(read(r)) for r in b]
        for name in sorted({k for facts in old + new for k in facts}):
            before, after = ({repr(facts.get(name)) for facts in side} for side in (old, new))
            if len(before) == len(after) == 1 and before != after and not MOMENTARY.search(name):
                found.append(Difference(f"{prefix}.{name}", old[0].get(name), new[0].get(name)))
    return tuple(found)


def _trial(result: Result) -> Mapping[str, Json]:
    return {k: v for k, v in result.trial.to_json().items() if k != "replicate"}


def _stable(result: Result) -> Mapping[str, Json]:
    return result.machine.stable


def _state(result: Result) -> Mapping[str, Json]:
    return result.machine.state


def _flat(facts: Mapping[str, Json], prefix: str = "") -> dict[str, Json]:
    """Return nested mappings as one, keys joined by dots."""
    out: dict[str, Json] = {}
    for key, value in facts.items():
        nested = isinstance(value, Mapping) and value and set(value) != {"absent"}
        out.update(_flat(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value})
    return out
