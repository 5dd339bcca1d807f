"""The variant table of a model: one row per cell, and the pick with its reasons.

A variant that gave wrong outputs, or did not run, keeps its row with the reason and can never be picked: a
fast wrong answer is not fast. The speed-up over the baseline comes from paired replicates, and the pick says
which other variants are not significantly different, because then price, memory or habit may decide.

Short runs that only screened candidates (optimize) are not part of a variant's figures: a variant that was also
measured over a full window shows only that, and a variant that was not is listed in `screened`, outside the table.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from edgescope import registry, units
from edgescope.analysis.cells import alternation
from edgescope.analysis.cells.compare import by_cell
from edgescope.analysis.cells.objective import FASTEST, Wanted, goal
from edgescope.analysis.cells.replicates import (
    LONGER,
    MEASURED,
    NEIGHBOURS_S,
    NOT_RUN,
    Pairs,
    by_replicate,
    judged,
    neighbours,
    of_pairs,
    paired_values,
    pairs,
    percentiles,
)
from edgescope.analysis.cells.row import Row, figures, joined, told_apart
from edgescope.analysis.run import energy
from edgescope.analysis.run.slowdowns import apart_s
from edgescope.errors import Message, UsageError
from edgescope.metrics import METRICS, Metric
from edgescope.records import Absent, Field, Measured, Result, Role, Status, Trust, Verdict
from edgescope.stats import Interval, Judgement, judge, paired_log_ratio
from edgescope.stats.pairs import MIN_EFFECT

WORST_FIRST = (Trust.THROTTLED, Trust.DISTURBED, Trust.UNKNOWN, Trust.CLEAN)


#: Windows up to this long count as screening if the same results hold longer ones of the same variant.
SCREEN_S = 0.5


@dataclass(frozen=True)
class VariantTable:
    """The rows in the order in which their cells were first run, and the baseline's cell."""

    rows: tuple[Row, ...]
    baseline: str
    screened: tuple[Row, ...] = ()
    """Variants that did not get past the short runs; their speed-ups are over the baseline's short runs."""
    wanted: Wanted = FASTEST
    """The constraints on which rows were judged."""

    def row(self, cell: str) -> Row:
        """Return the row of a cell; KeyError if there is none."""
        return {r.cell: r for r in self.rows}[cell]

    def ordered(self) -> list[Row]:
        """Return the rows in reading order: the baseline, then by median latency, rejected rows last."""

        def key(row: Row) -> tuple[bool, bool, float]:
            p50 = row["p50_s"].value if isinstance(row["p50_s"], Measured) else math.inf
            return (row.cell != self.baseline, bool(row.rejected), p50)

        return sorted(self.rows, key=key)


@dataclass(frozen=True)
class Pick:
    """The variant to use, with a sentence and its figures; no row if none may be used."""

    row: Row | None
    reason: str
    ties: tuple[str, ...] = ()
    """Labels of eligible variants that an interval shows to be as good."""
    undecided: tuple[str, ...] = ()
    """Labels of those whose pairs with the pick decide nothing yet, or that have none."""
    more_pairs: int | None = None
    """Further pairs that would decide the hardest of them, if they are like these; None where that is not known."""
    unproven: str = ""
    """The label of the baseline where the pick is another variant that is not shown to be better: a guess."""
    nearest: Row | None = None
    """If no variant keeps the constraints: the one that breaks them the least."""

    @property
    def guess(self) -> str:
        """Return a label that the pick is not shown to be better than, the baseline's first; '' for none."""
        return self.unproven or next(iter(self.undecided), "")


def table(
    results: Iterable[Result], baseline: str | None = None, *, wanted: Wanted = FASTEST
) -> VariantTable:
    """Return one row per cell; `baseline`: a cell or label, by default torch_eager fp32, else the first.

    A variant that breaks a constraint of `wanted` is rejected with the figures. Cells of screening runs stand apart.
    """
    groups = by_cell(results)
    machines = {r.machine.id for group in groups.values() for r in group}
    if len(machines) > 1:
        raise UsageError(
            "E-VAR-4",
            "variants of several machines cannot share a table",
            evidence=", ".join(sorted(machines)),
        )
    if not groups:
        raise UsageError("E-VAR-1", "there are no results to tabulate", fix="edgescope optimize MODEL")
    short = _short(groups)
    base = _baseline({c: g for c, g in groups.items() if c not in short}, baseline)
    # one scope for the whole table: the baseline's, else the usual one
    scope = energy.usual(groups[base]) or energy.usual([r for group in groups.values() for r in group])
    measured = {group[0].trial.variant for c, group in groups.items() if c not in short}
    shown = {c: g for c, g in groups.items() if c not in short or g[0].trial.variant not in measured}
    bare = {c: row_of(g, shown_runs(g), {}) for c, g in shown.items()}
    apart = told_apart({c: (row.label, row.trial) for c, row in bare.items()})
    named = {c: replace(row, apart=apart[c]) for c, row in bare.items()}
    rows = [broken(_row(groups, named, c, base, scope), wanted) for c in shown]
    out = tuple(r for r in rows if r.cell in short and not r.failed)
    return VariantTable(tuple(r for r in rows if r not in out), base, out, wanted)


def _short(groups: Mapping[str, Sequence[Result]]) -> set[str]:
    """Return the cells of screening runs: short windows, if some variant was measured over a longer one too."""
    trials = {cell: group[0].trial for cell, group in groups.items()}
    longest: dict[str, float] = {}
    for t in trials.values():
        longest[t.variant] = max(t.max_s, longest.get(t.variant, 0.0))
    effort = {cell: t.key(Role.EFFORT) for cell, t in trials.items()}
    in_turns = any(t.turn_s is not None for t in trials.values())
    screens = {
        effort[cell]
        for cell, t in trials.items()
        if t.max_s <= SCREEN_S and (t.max_s < longest[t.variant] or (in_turns and t.turn_s is None))
    }
    return {cell for cell in trials if effort[cell] in screens}


def _baseline(groups: Mapping[str, Sequence[Result]], wanted: str | None) -> str:
    trials = {cell: group[0].trial for cell, group in groups.items()}
    if wanted is None:
        fp32 = (c for c, t in trials.items() if t.precision == "fp32")
        plain = [c for c in fp32 if registry.facts(trials[c].backend).BASELINE]
        return min(plain or list(trials)[:1], key=lambda c: len(trials[c].options))
    found = [c for c, t in trials.items() if wanted in (c, t.label)]
    if not found:
        known = ", ".join(t.label for t in trials.values())
        raise UsageError("E-VAR-2", f"no variant is called {wanted!r}", evidence=f"known: {known}")
    return found[0]


def _against_cell(groups: Mapping[str, Sequence[Result]], cell: str, base: str) -> str:
    """Return the baseline's cell that pairs with this one: that of the same duration, if there is any.

    A variant is not its own baseline: the baseline's own other cells pair with the one that is called so.
    """
    trial, wanted = groups[cell][0].trial, groups[base][0].trial.variant
    if trial.variant == wanted:
        return base
    for other, group in groups.items():
        t = group[0].trial
        if other != base and t.variant == wanted and t.key(Role.EFFORT) == trial.key(Role.EFFORT):
            return other
    return base


def _row(
    groups: Mapping[str, Sequence[Result]], named: Mapping[str, Row], cell: str, base: str, scope: str
) -> Row:
    """Return the row of a cell with its figures; `named` holds every row that is shown, with its name."""
    group, row = groups[cell], named[cell]
    shown = figures(list(row.replicates.values()), group[0].trial.workload, scope)
    if (trial := group[0].trial).turn_s is not None:
        name = trial.variant
        shown |= of_starts(shown, (r for each in groups.values() for r in each if r.trial.variant == name))
    other = _against_cell(groups, cell, base)
    found = _compared(replace(row, metrics=shown), groups[other], group)
    if other in named and other not in (base, cell) and isinstance(found["speedup"], Measured):
        note = f"{found.label}: its speed-up is over {named[other].label}, which was measured as long"
        found = replace(found, notes=(note, *found.notes))
    return found


OF_STARTS = ("load_s", "peak_rss_bytes")
"""What a forked process does not show."""


def alone(own: Iterable[Result]) -> list[Result]:
    """Return the runs of a variant that took no turns with another: their processes were started."""
    return [r for r in own if r.trial.turn_s is None and r.status in MEASURED]


def of_starts(shown: Mapping[str, Field], own: Iterable[Result]) -> dict[str, Field]:
    """Return what a cell does not show because all its processes were forked, from the variant's `own` runs alone."""
    lacking = [name for name in OF_STARTS if isinstance(shown.get(name), Absent)]
    runs = alone(own) if lacking else []
    found = {name: joined(runs, METRICS[name], "") for name in lacking}
    return {name: field for name, field in found.items() if isinstance(field, Measured)}


def shown_runs(group: Sequence[Result]) -> dict[int, Result]:
    """Return the runs behind a cell's figures, by replicate; a rejected variant's are included and shown struck out."""
    return by_replicate(group) or by_replicate(group, (Status.WRONG_OUTPUT,))


def row_of(group: Sequence[Result], done: Mapping[int, Result], metrics: Mapping[str, Field]) -> Row:
    """Return the row of one cell from all its results and from `done`, those that are shown."""
    results, first = list(done.values()), next(iter(done.values()), group[0])
    return Row(
        trial=first.trial,
        status=first.status,
        verdict=worst_verdict(results),
        metrics=metrics,
        scope=energy.usual(results),
        gate=first.verification.detail if first.verification else "",
        rejected=rejected(group),
        replicates=done,
    )


def broken(row: Row, wanted: Wanted) -> Row:
    """Return the row, rejected with the figures if it breaks a constraint and has no other reason for rejection."""
    found = () if row.rejected else wanted.broken(row.metrics)
    return replace(row, rejected="; ".join(found), broken=found) if found else row


def rejected(every: Sequence[Result]) -> str:
    """Return why a cell may not be used, or '' if it may."""
    return rejection(every)[1]


def rejection(every: Sequence[Result]) -> tuple[Status, str]:
    """Return the status and the reason why a cell may not be used; one failed replicate rejects the cell.

    If a replicate was run again, only the newer run counts.
    """
    group = list({r.trial.replicate: r for r in sorted(every, key=lambda r: r.started_at)}.values())
    for r in group:
        if r.verification is not None and not r.verification.passed:
            return Status.WRONG_OUTPUT, f"wrong outputs: {r.verification.detail}"
    failed = [r for r in group if r.status not in (*MEASURED, *NOT_RUN)]
    if failed:
        count = f" ({len(failed)} of {len(group)} replicates)" if len(group) > 1 else ""
        return failed[0].status, f"{failed[0].status.value}{count}: {failed[0].reason or 'no reason given'}"
    done = [r for r in group if r.status in MEASURED]
    if not done:
        return group[0].status, f"{group[0].status.value}: {group[0].reason or 'did not run'}"
    return Status.OK, next((_unverified(r) for r in done if not r.verification), "")


def _unverified(result: Result) -> str:
    why = result.unverified
    return f"outputs not verified: {why}" if why else "not verified against the fp32 reference"


def worst_verdict(results: Sequence[Result]) -> Verdict:
    """Return the worst verdict of the replicates, with their count and the evidence of the first."""
    trusts = [r.verdict.trust for r in results]
    worst = next((t for t in WORST_FIRST if t in trusts), None)
    if worst is None:
        return Verdict(Trust.UNKNOWN, ("nothing was measured",))
    evidence = results[trusts.index(worst)].verdict.evidence
    if len(results) == 1:
        return Verdict(worst, evidence)
    return Verdict(worst, (f"{trusts.count(worst)} of {len(results)} processes", *evidence))


def _compared(row: Row, baseline: Sequence[Result], group: Sequence[Result]) -> Row:
    """Return the row with its speed-up over the baseline, the number of pairs, and the warnings about them."""
    alike = alternation.same_load(row.trial, baseline[0].trial)
    piled = not registry.scenario(row.trial.scenario).timed or not alike
    name = "throughput_sps" if piled else "latency_p50_s"
    wrong = [replace(r, status=Status.OK) for r in row.replicates.values() if r.status not in MEASURED]
    found = pairs(wrong or group, baseline, name, NEIGHBOURS_S)
    unstable = sum(r.status is Status.UNSTABLE for r in row.replicates.values())
    notes = (
        [f"{row.label}: {unstable} of {len(row.replicates)} replicates unstable; they count"]
        if unstable
        else []
    )
    every = alternation.pairs(wrong or group, baseline)
    if turns := alternation.decisive(every):
        ratio = of_pairs(alternation.speedup(turns, among=every), LONGER)
        notes += _slowed(row, baseline[0].trial.label, turns, every) + _apart(row, turns)
        words = alternation.words(turns, every)
        return replace(row.having(speedup=ratio), pairs=words, turns=tuple(turns), notes=tuple(notes))
    speedup = _speedup(found, name, higher_is_better=piled)
    notes = [*(f"{row.label}: left out of its pairs: {text}" for text in found.left_out), *notes]
    if isinstance(speedup, Measured) and not piled and row.cell != baseline[0].trial.cell:
        notes += _borne_out(row, speedup, found.under)
    return replace(row.having(speedup=speedup), pairs=found.words, notes=tuple(notes))


SELDOM = "The machine was seldom at full speed, so the speed-up is that of a slowed machine"
"""What W-PAIR-3 says where all turns count."""


def _slowed(row: Row, base: str, turns: alternation.Paired, every: alternation.Paired) -> list[str]:
    """Return what is said of the turns in which something slowed the machine."""
    found = alternation.slowed(turns, every)
    if found is None:
        return []
    text = Message(
        "W-PAIR-3",
        f"something slowed the machine in {found.share:.0%} of the turns of {row.label}",
        evidence=f"{base} took {found.longer:.3g} times as long, and {row.label} was {found.speedup:.3g}x as fast",
        effect=SELDOM if found.whole else "The speed-up is that of the other turns, at full speed",
        fix=f"{LONGER}, while nothing else uses the machine" if found.whole else "",
    )
    return [str(text)]


def _apart(row: Row, turns: alternation.Paired) -> list[str]:
    """Return what is said if a hypervisor had the CPUs apart in most pairs: the others cannot tell full speed then."""
    ways = [way for mine, _ in turns if (way := apart_s(mine)) is not None]
    if 2 * len(ways) <= len(turns):
        return []
    text = Message(
        "W-PAIR-4",
        f"the hypervisor had the CPUs apart in {len(ways)} of {len(turns)} pairs of {row.label}",
        evidence=f"{1e9 * statistics.median(ways):.0f} ns from one to the other; within a socket up to 170",
        effect="Threads wait longer for each other, so the speed-up is that of a machine whose CPUs are apart",
        fix="the same command later, or a machine of your own",
    )
    return [str(text)]


def _speedup(found: Pairs, name: str, *, higher_is_better: bool) -> Field:
    if not found.over:
        return Absent(_pairless(found))
    ours, theirs = paired_values(found.over, found.under, name)
    if found.over == found.under:
        return Measured(1.0, "1", 1.0, 1.0, len(ours))
    return of_pairs(paired_log_ratio(*((ours, theirs) if higher_is_better else (theirs, ours))), LONGER)


def _pairless(found: Pairs) -> str:
    if found.left_out:
        return f"no pair of {len(found.left_out)}: {found.left_out[0]}; measure both again"
    return "no replicate number was run here and at the baseline"


def _borne_out(row: Row, speedup: Measured, under: Mapping[int, Result]) -> list[str]:
    """Return a warning if the ratio of the shown medians lies outside the interval of the pairs, else []."""
    theirs, ours = percentiles(list(under.values()))["p50_s"], row["p50_s"]
    if not isinstance(theirs, Measured) or not isinstance(ours, Measured) or ours.value <= 0:
        return []
    shown, lo, hi = theirs.value / ours.value, speedup.lo or speedup.value, speedup.hi or speedup.value
    if lo / (1 + MIN_EFFECT) <= shown <= hi * (1 + MIN_EFFECT):
        return []
    text = Message(
        "W-PAIR-1",
        f"the medians shown are {shown:.3g}x apart, the pairs {show(speedup)}x ({row.label})",
        effect="Replicates differ by more than the two variants, so neither figure speaks for the machine",
        fix=f"{LONGER} on a quiet machine",
    )
    return [str(text)]


def pick(found: VariantTable, objective: str = "latency") -> Pick:
    """Return the eligible row that is best on latency, throughput or energy, and why.

    If every usable variant breaks a constraint, the pick names the nearest one and the binding constraint.
    """
    wished = goal(objective)
    able = (r for r in found.rows if not r.rejected and isinstance(r[wished.name], Measured))
    # a reversed sort keeps equals in their order, too
    ranked = sorted(able, key=lambda r: r.measured(wished.name).value, reverse=wished.higher)
    if not ranked:
        return _infeasible(found) or Pick(None, _none(found, wished))
    best = _chosen(ranked, found, wished)
    ranked.remove(best)
    ranked.insert(0, best)
    ties = [(other, *_against(best, other, wished)) for other in ranked[1:]]
    ties = [t for t in ties if t[2] is not Judgement.FASTER]
    sentences = [_figures(best, found, wished), *_undecided(ties)]
    same = [t for t in ties if t[2] is Judgement.SAME]
    unsure = [t for t in ties if t[2] is not Judgement.SAME]
    unproven = next((t[0].label for t in ties if t[0].cell == found.baseline), "")
    return Pick(best, " ".join(sentences), _labels(same), _labels(unsure), _more_pairs(unsure), unproven)


def _labels(found: Sequence[Tie]) -> tuple[str, ...]:
    """Return the labels, each once."""
    return tuple(dict.fromkeys(t[0].label for t in found))


def _more_pairs(undecided: Sequence[Tie]) -> int | None:
    """Return the pairs that would decide the hardest of the comparisons; None if one is not known, or of none."""
    needed = [alternation.deciding(ratio) if ratio is not None else None for _, ratio, _ in undecided]
    known = [n for n in needed if n is not None]
    return max(known) if known and len(known) == len(needed) else None


def _chosen(ranked: Sequence[Row], found: VariantTable, wished: Metric) -> Row:
    """Return the row to pick: the one that was chosen and then confirmed in turns, unless the baseline is faster."""
    if wished.name not in alternation.OF_SPEED:
        return ranked[0]
    sure = [r for r in ranked if any(alternation.confirms(mine) for mine, _ in r.turns)]
    rivals = [r for r in sure if isinstance(r["speedup"], Measured)]
    if not rivals:
        return ranked[0]
    best = max(rivals, key=lambda r: r.measured("speedup").value)
    base = next((r for r in ranked if r.cell == found.baseline), best)
    return best if best.measured("speedup").value >= 1 else base


def described(row: Row, wanted: Wanted = FASTEST) -> str:
    """Return one variant's figures as a sentence without a comparison."""
    shown = show(row[wanted.goal.name])
    text = f"{row.label}: {wanted.goal.title.lower()} {shown}"
    text += f"; {row.gate.rstrip('.')}." if row.gate else "."
    if row.verdict.trust in (Trust.THROTTLED, Trust.DISTURBED):
        text += f" Measured while {row.verdict.trust.value}: {'; '.join(row.verdict.evidence)}."
    return text


def _infeasible(found: VariantTable) -> Pick | None:
    """Return the answer if only constraints exclude all variants: the nearest one and the binding constraint."""
    near = [r for r in found.rows if r.broken]
    if not near:
        return None
    row = min(near, key=lambda r: found.wanted.binding(r.metrics)[0])
    binding = found.wanted.binding(row.metrics)[1]
    reason = (
        f"infeasible: no variant keeps every constraint. The nearest is {row.label}"
        f" ({'; '.join(row.broken)}); the binding constraint is {binding}."
    )
    return Pick(None, reason, nearest=row)


def _against(best: Row, other: Row, goal: Metric) -> tuple[Interval | None, Judgement]:
    """Return how many times better the best is than the other (above 1 it is), and the judgement on it."""
    if best.turns and other.turns and goal.name in alternation.OF_SPEED:
        sure, likely = (alternation.against(best.turns, other.turns, level) for level in (0.95, 0.90))
        if sure is not None and likely is not None:
            return sure, judge(sure, likely, higher_is_better=True)
    mine, theirs = neighbours(best.replicates, other.replicates)
    over, under = (mine, theirs) if goal.higher else (theirs, mine)
    return judged(over, under, goal.of[0], higher_is_better=True) or (None, Judgement.AMBIGUOUS)


def _figures(best: Row, found: VariantTable, goal: Metric) -> str:
    text = f"{best.label}: {goal.best}, {show(best[goal.name])}"
    if best.cell != found.baseline:
        base = found.row(found.baseline).label
        sure = isinstance(best["speedup"], Measured)
        text += f", {show(best['speedup'])}x the speed of {base} ({best.pairs})" if sure else ""
        text += "" if sure else f"; its speed-up over {base} is unknown: {show(best['speedup'])}"
    text += f"; {best.gate.rstrip('.')}." if best.gate else "."
    if best.verdict.trust in (Trust.THROTTLED, Trust.DISTURBED):
        text += f" Measured while {best.verdict.trust.value}: {'; '.join(best.verdict.evidence)}."
    return text


Tie = tuple[Row, Interval | None, Judgement]


def _undecided(ties: Sequence[Tie]) -> list[str]:
    """Return the sentences on the variants that are not significantly worse, one per kind."""
    same = [t for t in ties if t[2] is Judgement.SAME]
    paired = [t for t in ties if t[2] is not Judgement.SAME and t[1] is not None]
    behind = [t for t in paired if t[1] is not None and t[1].hi < 1]
    unsure = [t for t in paired if t not in behind]
    apart = [t for t in ties if t[1] is None]
    out = [f"Tied with {_listed(same)}: either will do."] if same else []
    out += [f"Not shown to be better than {_listed(unsure)}: use {LONGER}."] if unsure else []
    out += [f"{_listed(behind)} did better in earlier pairs: use {LONGER}."] if behind else []
    return out + ([f"Not measured together with {_listed(apart)}, so not compared."] if apart else [])


def _listed(ties: Sequence[Tie]) -> str:
    """Return the first names; of one, how many times better the pick is, too. Pick.ties holds all of them."""
    names = [t[0].label for t in ties]
    ratio = ties[0][1]
    if len(ties) == 1 and ratio is not None:
        count = f"{ratio.n} pair{'s' * (ratio.n != 1)}"
        known = f"{units.ratio(of_pairs(ratio, LONGER))} as good, {count}" if ratio.reliable else ratio.note
        return f"{names[0]} ({known})"
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _none(found: VariantTable, goal: Metric) -> str:
    reasons = "; ".join(f"{r.label}: {r.rejected or _why(r[goal.name])}" for r in found.rows)
    return f"No variant can be recommended for the {goal.best}. {reasons}."


def _why(value: Field) -> str:
    return value.reason if isinstance(value, Absent) else ""


def show(value: Field) -> str:
    """Return `2.41 ms [2.40, 2.42]` for a sentence: four digits, with the interval if there is one."""
    return units.why(value, digits=4)
