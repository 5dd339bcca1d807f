"""Recommend one of the measured cells: the Pareto set, the pick, the cost of the constraints, the ties; and the page.

    --objective throughput --constraint "p99<=33ms" --constraint "memory<=2GB"

All cells are from one machine. A cell keeps a constraint if the worse end of its interval does (candidates.py);
the pick is the best mean of those that keep them all. If none does, the nearest one is named with the constraint
that binds. Nothing here measures: a pick that rests on one process says so. Of two cells that took turns their ratio
says which is the better one, and by how much: it is free of what the machine did between their other processes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from edgescope import units
from edgescope.analysis.cells import alternation, machines
from edgescope.analysis.cells.concurrency import Remark, remarks
from edgescope.analysis.cells.objective import Wanted, nondominated
from edgescope.analysis.cells.row import Row
from edgescope.analysis.cells.variants import show
from edgescope.errors import UsageError
from edgescope.metrics import METRICS, Metric, shown
from edgescope.records import Absent, Field, Json, Measured, Result, Trust
from edgescope.report import document as doc
from edgescope.stats import Judgement, judge
from edgescope.stats.intervals import Interval
from edgescope.units import counted
from edgescope.wings.recommend import candidates as rows_of
from edgescope.wings.recommend.candidates import Spreads, compared

#: How much cells of one process each must differ if the spread between processes is not known.
UNKNOWN_SPREAD = 0.05


@dataclass(frozen=True)
class Recommendation:
    """The answer to one question."""

    models: tuple[str, ...]
    wanted: Wanted
    choices: tuple[Row, ...]
    """Every cell, best first; a cell that may not be picked has the reason in `rejected`."""
    front: tuple[Row, ...]
    """The Pareto set of the cells that ran, with those that break a constraint; by the columns `axes`."""
    axes: tuple[str, ...]
    pick: Row | None
    reasons: tuple[str, ...]
    ties: tuple[Row, ...] = ()
    """Cells that keep every constraint and are shown to be as good."""
    undecided: tuple[Row, ...] = ()
    """Cells that keep every constraint, of which nothing shows whether they are worse or as good."""
    best: Row | None = None
    """The best cell if nothing were constrained."""
    nearest: Row | None = None
    """If no cell keeps every constraint: the one that breaks them the least."""
    remarks: tuple[Remark, ...] = ()


def recommend(results: Iterable[Result], wanted: Wanted, *, least: int = 1) -> Recommendation:
    """Return the recommendation from the results of one machine; UsageError for none, or for several machines.

    A cell with fewer than `least` processes is never the pick, only the nearest if nothing else is.
    """
    found = machines.one(results)
    if not found:
        raise UsageError(
            "E-PICK-2", "there are no results to choose among", fix="edgescope recommend MODEL --search"
        )
    every, spreads = rows_of.choices(found, wanted)
    ranked = sorted(every, key=lambda c: (not _figure(c, wanted), _cost(c, wanted)))
    able = [c for c in ranked if not c.rejected and _figure(c, wanted)]
    confirmed = [c for c in able if len(c.replicates) >= least]
    axes = _axes(ranked, wanted)
    ran = [c for c in ranked if not c.failed]
    models = tuple(sorted({r.trial.model.partition("#")[0] for r in found}))
    said = remarks(found)
    best = next((c for c in ranked if not c.failed and _figure(c, wanted)), None)
    front = tuple(nondominated(ran, lambda c: _costs(c, axes)))
    if not confirmed:
        nearest, reasons = _unconfirmed(able[0], wanted, least) if able else _infeasible(ranked, wanted)
        return Recommendation(
            models, wanted, tuple(ranked), front, axes, None, reasons, (), (), best, nearest, said
        )
    pick = _leader(confirmed, wanted)
    best = pick if any(c is best for c in confirmed) else best
    others = [(c, _standing(pick, c, wanted, spreads)) for c in confirmed if c is not pick]
    ties = tuple(c for c, judged in others if judged is Judgement.SAME)
    unsure = tuple(c for c, judged in others if judged is Judgement.AMBIGUOUS)
    turns = _turns(pick, [c for c in able if c is not pick], wanted)
    reasons = _reasons(pick, _beside(pick, ties, unsure), best, wanted, turns)
    return Recommendation(
        models, wanted, tuple(ranked), front, axes, pick, reasons, ties, unsure, best, None, said
    )


def _figure(choice: Row, wanted: Wanted) -> Measured | None:
    found = choice[wanted.goal.name]
    return found if isinstance(found, Measured) and found.value > 0 else None


def _cost(choice: Row, wanted: Wanted) -> float:
    """Return the log of the objective, negated if higher is better."""
    found = _figure(choice, wanted)
    if found is None:
        return math.inf
    return -math.log(found.value) if wanted.goal.higher else math.log(found.value)


def _axes(found: Sequence[Row], wanted: Wanted) -> tuple[str, ...]:
    """Return the columns of the Pareto set: the objective and the constrained metrics, else the usual measured ones."""
    names = [c.metric.name for c in wanted.constraints if not c.metric.artifact]
    if not names:
        names = [m.name for m in shown("pareto")]
    axes = dict.fromkeys((wanted.goal.name, *names))
    return tuple(n for n in axes if any(isinstance(c[n], Measured) for c in found))


def _costs(choice: Row, axes: Sequence[str]) -> tuple[float, ...] | None:
    found = [choice[name] for name in axes]
    known = [f.value for f in found if isinstance(f, Measured)]
    if len(known) < len(found):
        return None
    return tuple(-x if METRICS[name].higher else x for name, x in zip(axes, known, strict=True))


def _leader(ranked: Sequence[Row], wanted: Wanted) -> Row:
    """Return the best cell, or the one that was faster than it when the two took turns."""
    for other in ranked[1:]:
        found = _ratio(ranked[0], other, wanted)
        if found is not None and found.value < 1:
            return other
    return ranked[0]


def _ratio(mine: Row, other: Row, wanted: Wanted, level: float = 0.95) -> Interval | None:
    """Return how many times faster a cell was than another in turns; None if they took none, or not for its sake."""
    if wanted.goal.name not in alternation.OF_SPEED:
        return None
    found = alternation.pairs(mine.replicates.values(), other.replicates.values())
    return alternation.speedup(found, level) if found else None


def _turns(pick: Row, others: Sequence[Row], wanted: Wanted) -> tuple[str, ...]:
    """Return one sentence for each cell that the pick took turns with."""
    found = [(c.label, r) for c in others if (r := _ratio(pick, c, wanted)) is not None]
    return tuple(
        f"{show(r.measured('1')) if r.reliable else f'{r.value:.3g}'}x the speed of {label}"
        f" ({units.counted(r.n, 'pair')} in turns{'' if r.reliable else f'; {r.note}'})"
        for label, r in found
    )


def _standing(pick: Row, other: Row, wanted: Wanted, spreads: Spreads) -> Judgement:
    """Return FASTER if the pick is surely better than a cell, SAME if an interval shows it, else AMBIGUOUS."""
    turns = [_ratio(pick, other, wanted, level) for level in (0.95, 0.90)]
    if turns[0] is not None and turns[1] is not None and turns[0].reliable:
        found = judge(turns[0], turns[1], higher_is_better=True)
        return found if found in (Judgement.FASTER, Judgement.SAME) else Judgement.AMBIGUOUS
    column = wanted.goal.name
    mine, its = (rows_of.values(list(c.replicates.values()), column) for c in (pick, other))
    sure = compared(mine, its, spreads.of(column))
    if sure is None:  # one process each says nothing of the next one: only a large gap is one
        worse = _cost(other, wanted) - _cost(pick, wanted) > UNKNOWN_SPREAD
        return Judgement.FASTER if worse else Judgement.AMBIGUOUS
    return sure


# -- in words -----------------------------------------------------------------------------------------------


def _reasons(
    pick: Row, standing: Sequence[str], best: Row | None, wanted: Wanted, turns: Sequence[str]
) -> tuple[str, ...]:
    kept = (
        "of those that keep every constraint"
        if wanted.constraints
        else "of all that ran with the right outputs"
    )
    runs = len(pick.replicates)
    figure = pick.measured(wanted.goal.name)
    lead = f"{wanted.goal.best} {kept}: {show(replace(figure, lo=None, hi=None))} over {_processes(runs)}"
    if figure.lo is not None and figure.hi is not None and runs > 1:
        lead += f", 95 % prediction interval for a new process [{show(figure).partition('[')[2]}"
    out = [lead, *(c.kept(pick.metrics) for c in wanted.constraints), *turns]
    if best is not None and best.cell != pick.cell:
        out.append(_price(pick, best, wanted))
    out += standing
    out += list(pick.notes)
    if pick.verdict.trust.value in ("THROTTLED", "DISTURBED"):
        out.append(f"measured while {pick.verdict.trust.value}: {'; '.join(pick.verdict.evidence)}")
    if runs == 1:
        out.append("one process is no confirmation: --confirm-runs 3 measures it again in fresh ones")
    return tuple(out)


def _processes(count: int) -> str:
    return f"{count} process{'es' * (count != 1)}"


def _price(pick: Row, best: Row, wanted: Wanted) -> str:
    """Return the cost of the constraints: the unconstrained best, its lead, and the constraints that it breaks."""
    ratio = math.exp(_cost(pick, wanted) - _cost(best, wanted))
    share = 100 * ((1 - 1 / ratio) if wanted.goal.higher else (ratio - 1))
    word = "less" if wanted.goal.higher else "more"
    if not best.broken:
        return f"{best.label} measured better in {_processes(len(best.replicates))} and was not confirmed"
    size = f"{share:.0f}" if share >= 10 else f"{share:.2g}"
    name = best.label if best.trial.model == pick.trial.model else best.name
    text = f"{size} % {word} {wanted.goal.title.lower()} than {name}"
    return f"{text}, which breaks {'; '.join(b.replace(' broken:', ':') for b in best.broken)}"


def _beside(pick: Row, ties: Sequence[Row], unsure: Sequence[Row]) -> list[str]:
    """Return what is known of the cells that are not surely worse than the pick."""
    out = [f"statistically tied with {_named(pick, ties)}"] if ties else []
    return out + ([f"undecided against {_named(pick, unsure)}: --confirm-runs 5"] if unsure else [])


def _named(pick: Row, found: Sequence[Row]) -> str:
    """Return the first names, each once, and how many more there are."""
    every = [c.label if c.trial.model == pick.trial.model else c.name for c in found]
    count = Counter(every)
    names = [name if n == 1 else f"{name} ({n} cells)" for name, n in count.items()]
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _unconfirmed(best: Row, wanted: Wanted, least: int) -> tuple[Row, tuple[str, ...]]:
    """Return the best unconfirmed cell, if none was confirmed, and the sentences that say so."""
    figure = replace(best.measured(wanted.goal.name), lo=None, hi=None)
    what = f"{show(figure)} over {_processes(len(best.replicates))} instead of the requested {least}"
    return best, (
        f"not confirmed: no cell stood in {_processes(least)}. The best of the rest is {best.name} ({what}).",
        "others fell back, broke a constraint or came out unstable: the same command goes on from here",
    )


def _infeasible(ranked: Sequence[Row], wanted: Wanted) -> tuple[Row | None, tuple[str, ...]]:
    """Return the nearest cell and its sentence, or None and the reason why nothing can be chosen."""
    near = [c for c in ranked if c.broken]
    if near:
        row = min(near, key=lambda c: (wanted.binding(c.metrics)[0], _cost(c, wanted)))
        binding = wanted.binding(row.metrics)[1]
        what = "; ".join(b.replace(" broken:", ":") for b in row.broken)
        text = f"infeasible: no cell keeps every constraint. The nearest is {row.name} ({what})"
        out = [f"{text}; the binding constraint is {binding}."]
        if any("n/a: have" in b for b in row.broken):
            out.append(
                "its window holds too few queries to bound the tail: a longer --duration, or --confirm-runs 3"
            )
        return row, tuple(out)
    why = dict.fromkeys(c.rejected or _absent(c, wanted) for c in ranked)
    return None, (f"nothing can be recommended for the {wanted.goal.best}: {'; '.join(list(why)[:3])}.",)


def _absent(choice: Row, wanted: Wanted) -> str:
    found = choice[wanted.goal.name]
    return found.reason if isinstance(found, Absent) else "not measured"


MOST_ROWS = 14
"""Largest number of rows in the table; the others are only counted."""


def document(found: Recommendation, *, everything: bool = False) -> doc.Document:
    """Return the document of one recommendation; `everything` shows every cell, not only the Pareto set."""
    names = ", ".join(found.models)
    bounds = ", ".join(c.text for c in found.wanted.constraints)
    title = f"{names}: {found.wanted.goal.best}" + (f" with {bounds}" if bounds else "")
    remarks = tuple((doc.Mark("note  ", "name"), str(remark)) for remark in found.remarks)
    parts = (
        doc.Text(title, "strong"),
        _answer(found),
        *_table(found, everything),
        doc.Text(_counted(found), "lead", doc.DETAIL if found.pick else doc.MAIN),
        doc.Items(remarks, level=doc.DETAIL) if remarks else None,
    )
    return doc.Document(title, parts, facts(found))


def _answer(found: Recommendation) -> doc.Answer:
    reason, *rest = found.reasons
    more = (doc.Items(tuple(rest), level=doc.DETAIL),) if rest else ()
    if found.pick is None:
        return doc.Answer("No pick", "", (reason,), reason, more=more, kind="none")
    name = found.pick.name if len(found.models) > 1 else found.pick.label
    pick = (name, "  ", doc.badge(found.pick.verdict.trust))
    return doc.Answer("Use", pick, tuple(_short(found)), reason, more=more)


def _short(found: Recommendation) -> list[str]:
    """Return the objective's figure, the kept constraints and up to two other reasons, one line each."""
    assert found.pick is not None
    first, *rest = found.reasons
    figure = first.partition(": ")[2].partition(", 95 %")[0]
    kept = [r for r in rest if r.startswith(tuple(c.text for c in found.wanted.constraints or ()))]
    other = [r for r in rest if r not in kept and not r.startswith("measured while")]
    lines = [f"{found.wanted.goal.title.lower()} {figure}", *kept, *other[:2]]
    return [text if len(text) <= 156 else f"{text[:155]}…" for text in lines]


def _counted(found: Recommendation) -> str:
    """Return a sentence with the number of cells and processes, the machine, and how many failed."""
    runs = [r for c in found.choices for r in c.replicates.values()]
    machine = next((r.machine.id for r in runs), "")
    where = f" on machine {machine}" if machine else ""
    failed = sum(c.failed for c in found.choices)
    broken = sum(bool(c.broken) for c in found.choices)
    parts = [f"{counted(len(found.choices), 'cell')}, {counted(len(runs), 'process')}{where}"]
    parts += [f"{broken} break a constraint"] if broken else []
    parts += [f"{failed} did not run or gave wrong outputs"] if failed else []
    return "; ".join(parts)


def _table(found: Recommendation, everything: bool) -> list[doc.Table | doc.Text]:
    rows = list(found.choices if everything else found.front)
    for extra in (found.pick, found.nearest, found.best):
        if extra is not None and extra.cell not in {r.cell for r in rows}:
            rows.append(extra)
    if not rows:
        return []  # every cell failed: the reasons say so
    order = {c.cell: i for i, c in enumerate(found.choices)}
    rows.sort(key=lambda c: order[c.cell])
    shown = rows if everything else _fewest(rows, found)
    columns = sorted((m for m in METRICS.values() if _wanted(m, found, shown)), key=lambda m: not m.higher)
    told = {found.wanted.goal.name} | _asked(found)
    heads = [doc.Column.of(m, 0 if m.name in told else i) for i, m in enumerate(columns, start=1)]
    *most, last = [_word(METRICS[a]) for a in found.axes] or ["anything"]
    on = f"{', '.join(most)} and {last}" if most else last
    title = "every cell" if everything else f"Pareto set: nothing measured beats these on {on} at once"
    several = len(found.models) > 1
    body = tuple(_row(c, columns, found, several) for c in shown)
    parts: list[doc.Table | doc.Text] = [
        doc.Table((doc.Column("Variant", head="variant"), *heads), body, title)
    ]
    if len(shown) < len(rows):
        parts.append(doc.Text(f"and {len(rows) - len(shown)} more: --all", "lead", doc.DETAIL))
    return parts


def _fewest(rows: Sequence[Row], found: Recommendation) -> list[Row]:
    """Return at most MOST_ROWS rows: the best ones and those that the answer mentions."""
    named = {c.cell for c in (found.pick, found.nearest, found.best) if c is not None}
    spare = MOST_ROWS - len(named)
    kept: list[Row] = []
    for row in rows:
        if row.cell in named or spare > 0:
            spare -= row.cell not in named
            kept.append(row)
    return kept


def _word(metric: Metric) -> str:
    """Return a metric's name within a sentence: `throughput`, `p99`."""
    return metric.title.lower() if metric.objective else metric.head


def _asked(found: Recommendation) -> set[str]:
    return {c.metric.name for c in found.wanted.constraints}


def _wanted(metric: Metric, found: Recommendation, rows: Sequence[Row]) -> bool:
    """Return whether to print a column: it is requested or usual, and measured in some row."""
    usual = {"table", "pareto"} & set(metric.shown) and not metric.artifact
    asked = metric.name in _asked(found) | {found.wanted.goal.name}
    return bool(asked or usual) and any(isinstance(r[metric.name], Measured) for r in rows)


def _row(choice: Row, columns: Sequence[Metric], found: Recommendation, several: bool) -> doc.Row:
    picked = found.pick is not None and choice.cell == found.pick.cell
    name = choice.name if several else choice.label
    marks: list[doc.Value] = [name, *_marks(choice, found, picked)]
    asked = _asked(found)
    cells = (_cell(choice[m.name], m.better == "lower" and m.name in asked) for m in columns)
    kind = "picked" if picked else "dim" if choice.rejected else ""
    return doc.Row((tuple(marks), *cells), kind, choice.cell)


def _cell(found: Field, judged: bool) -> doc.Value | doc.Cell:
    """Return a figure, with its upper end if a constraint judges it."""
    if not isinstance(found, Measured):
        return found
    if not judged or found.hi is None:
        return replace(found, lo=None, hi=None)
    text, end = units.show(found, interval=False), units.text(found.hi, found.unit)
    return doc.Cell(found, brief=text if end == text else f"{text} (<= {end})")


def _marks(choice: Row, found: Recommendation, picked: bool) -> list[doc.Mark]:
    words = [doc.Mark("pick", "pick")] if picked else []
    words += (
        [doc.Mark("nearest", "chip")]
        if found.nearest is not None and choice.cell == found.nearest.cell
        else []
    )
    for word, cells in (("tied", found.ties), ("undecided", found.undecided)):
        words += [doc.Mark(word, "chip")] if choice.cell in {c.cell for c in cells} else []
    broken = ", ".join(b.partition(" ")[0] for b in choice.broken)
    words += [doc.Mark(f"breaks {broken}", "chip")] if choice.broken else []
    words += [doc.Mark(choice.rejected.partition(":")[0], "chip")] if choice.failed else []
    trust = choice.verdict.trust
    words += [doc.Mark(trust.value, "chip")] if trust is not Trust.CLEAN and choice.replicates else []
    return words


def facts(found: Recommendation) -> Mapping[str, Any]:
    """Return {models, objective, constraints, pick, nearest, best, ties, reasons, front, axes, cells, remarks}."""
    named = {"pick": found.pick, "nearest": found.nearest, "best": found.best}
    return {
        "models": list(found.models),
        "objective": found.wanted.objective,
        "constraints": [c.text for c in found.wanted.constraints],
        **{name: row.cell if row else None for name, row in named.items()},
        "ties": [c.cell for c in found.ties],
        "undecided": [c.cell for c in found.undecided],
        "reasons": list(found.reasons),
        "front": [c.cell for c in found.front],
        "axes": list(found.axes),
        "cells": [_plain(c) for c in found.choices],
        "remarks": [str(r) for r in found.remarks],
    }


def _plain(choice: Row) -> dict[str, Json]:
    """Return one cell as data; constraints are judged on the ends of its figures."""
    plain = choice.to_json()
    del plain["speedup"]
    return plain | {"results": sorted(r.id for r in choice.replicates.values())}
