"""The Pareto set and the pick of `edgescope recommend`, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from edgescope.analysis.cells.recommend import Recommendation
from edgescope.analysis.cells.row import Row
from edgescope.cli.card import TRUST_STYLE
from edgescope.metrics import METRICS, Metric
from edgescope.records import Field, Measured, Trust
from edgescope.report import terminal

#: Rows of the table before the rest is counted only.
MOST = 14


def show(found: Recommendation, *, everything: bool = False) -> None:
    """Print the table of the Pareto set (or of every cell), the pick with its reasons, and what nobody asked."""
    out = terminal.console()
    names = ", ".join(found.models)
    bounds = ", ".join(c.text for c in found.wanted.constraints)
    out.print(
        Text(f"{names}: {found.wanted.goal.best}" + (f" with {bounds}" if bounds else ""), style="bold")
    )
    out.print(Text(_counted(found), style="dim"))
    _table(found, everything)
    if found.pick is None:
        out.print(Text("no pick  ", style="bold red") + Text(found.reasons[0], style="bold"))
        for reason in found.reasons[1:]:
            out.print(Text(f"  - {reason}"))
    else:
        name = found.pick.name if len(found.models) > 1 else found.pick.label
        out.print(Text("pick  ", style="bold green") + Text(name, style="bold"))
        for reason in found.reasons:
            out.print(Text(f"  - {reason}"))
    for remark in found.remarks:
        out.print(Text("note  ", style="bold cyan") + Text(str(remark)))


def _counted(found: Recommendation) -> str:
    """Return how many cells there are, on which machine, and what became of them."""
    runs = [r for c in found.choices for r in c.replicates.values()]
    machine = next((r.machine.id for r in runs), "")
    where = f" on machine {machine}" if machine else ""
    failed = sum(c.failed for c in found.choices)
    broken = sum(bool(c.broken) for c in found.choices)
    parts = [f"{_of(len(found.choices), 'cell')}, {_of(len(runs), 'process')}{where}"]
    parts += [f"{broken} break a constraint"] if broken else []
    parts += [f"{failed} did not run or gave wrong outputs"] if failed else []
    return "; ".join(parts)


def _of(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}{'es' if word.endswith('s') else 's'}"


def _table(found: Recommendation, everything: bool) -> None:
    rows = list(found.choices if everything else found.front)
    for extra in (found.pick, found.nearest, found.best):
        if extra is not None and extra.cell not in {r.cell for r in rows}:
            rows.append(extra)
    if not rows:
        return  # every cell failed: the reasons say so
    order = {c.cell: i for i, c in enumerate(found.choices)}
    rows.sort(key=lambda c: order[c.cell])
    shown = rows if everything else _fewest(rows, found)
    columns = sorted((m for m in METRICS.values() if _wanted(m, found, shown)), key=lambda m: not m.higher)
    several = len(found.models) > 1
    body = [_row(c, columns, found, several) for c in shown]
    *most, last = [_word(METRICS[a]) for a in found.axes] or ["anything"]
    on = f"{', '.join(most)} and {last}" if most else last
    title = "every cell" if everything else f"Pareto set: nothing measured beats these on {on} at once"
    terminal.console().print(Text(title, style="italic"))
    terminal.table(("variant", *(m.head for m in columns), ""), body)
    if len(shown) < len(rows):
        terminal.note(f"and {len(rows) - len(shown)} more: --all")


def _fewest(rows: Sequence[Row], found: Recommendation) -> list[Row]:
    """Return at most MOST rows: the best, and those that the answer speaks of."""
    named = {c.cell for c in (found.pick, found.nearest, found.best) if c is not None}
    spare = MOST - len(named)
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
    """Whether a column is worth printing: asked for or usual, not of the artifact, and measured somewhere."""
    usual = {"table", "pareto"} & set(metric.shown) and not metric.artifact
    asked = metric.name in _asked(found) | {found.wanted.goal.name}
    return bool(asked or usual) and any(isinstance(r[metric.name], Measured) for r in rows)


def _row(choice: Row, columns: Sequence[Metric], found: Recommendation, several: bool) -> list[str | Text]:
    picked = found.pick is not None and choice.cell == found.pick.cell
    style = "bold green" if picked else "dim" if choice.rejected else ""
    name = choice.name if several else choice.label
    cells = [_cell(choice[m.name], m.better == "lower" and m.name in _asked(found)) for m in columns]
    return [*(Text(text, style=style) for text in (name, *cells)), _mark(choice, found, picked)]


def _cell(found: Field, judged: bool) -> str:
    """Return a figure, with the upper end where a constraint judges it."""
    text = terminal.show(found, interval=False).removesuffix(" samples/s")
    if not judged or not isinstance(found, Measured) or found.hi is None:
        return text
    return f"{text} (<= {terminal.show(Measured(found.hi, found.unit), interval=False)})"


def _mark(choice: Row, found: Recommendation, picked: bool) -> Text:
    words = ["pick"] if picked else []
    words += ["nearest"] if found.nearest is not None and choice.cell == found.nearest.cell else []
    words += ["as good"] if choice.cell in {c.cell for c in found.ties} else []
    words += [f"breaks {', '.join(b.partition(' ')[0] for b in choice.broken)}"] if choice.broken else []
    words += [choice.rejected.partition(":")[0]] if choice.failed else []
    mark = Text(", ".join(words))
    if choice.verdict.trust is not Trust.CLEAN and choice.replicates:
        mark.append(" " * bool(words)).append(choice.verdict.trust.value, TRUST_STYLE[choice.verdict.trust])
    return mark
