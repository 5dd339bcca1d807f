"""What a sweep would measure: its size by axis, what is finished, and the cells of a small grid one by one."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from edgescope.cli import cell_names
from edgescope.cli.sweep_view import duration
from edgescope.report import terminal

if TYPE_CHECKING:
    from edgescope.records import Trial

#: Grids up to this size are listed cell by cell.
LISTED = 40


def show(trials: Sequence[Trial], missing: Collection[str], *, as_json: bool) -> None:
    """Print the grid; `missing` holds the ids of the trials that have no result yet."""
    if as_json:
        _rows(trials, missing)
        return
    _sizes(trials, missing)
    if len(trials) <= LISTED:
        name = cell_names.namer(trials)
        print()
        for t in trials:
            print(f"{t.id}  {'to do   ' if t.id in missing else 'finished'}  {name(t)}")
    else:
        terminal.note("each cell: --dry-run --json")


def _rows(trials: Sequence[Trial], missing: Collection[str]) -> None:
    """Print a JSON list, each cell as soon as it is known."""
    before = "[\n "
    for t in trials:
        row = {"trial": t.id, "label": f"{t.model} {t.label}", "finished": t.id not in missing}
        print(before + json.dumps(row), end="")
        before = ",\n "
    print("\n]" if trials else "[]")


def _sizes(trials: Sequence[Trial], missing: Collection[str]) -> None:
    """Print how many cells there are, along which axes, and how long their windows alone will take."""
    cells = [t for t in trials if t.replicate == 0]
    more = len(trials) - len(cells)
    again = f" and {more} further replicate{'s' * (more != 1)}" if more else ""
    todo = [t for t in trials if t.id in missing]
    out = terminal.console()
    out.print(Text(f"{len(cells)} cell{'s' * (len(cells) != 1)}{again}", style="bold"), end="")
    still = (
        f"{len(todo)} missing" if todo and len(todo) < len(trials) else "none is missing" if not todo else ""
    )
    out.print(Text(f"{', ' if still else ''}{still}"))
    for key, values in cell_names.axes(cells).items():
        counted = [f"{_bare(key, v)} {sum(cell_names.value(t, key) == v for t in cells)}" for v in values]
        out.print(Text(f"  {key:<11}", style="dim") + Text("   ".join(counted)))
    out.print(Text(f"  {'all':<11}", style="dim") + Text(cell_names.shared(cells)))
    if todo:
        seconds = sum(t.min_s + 2 * t.idle_s + (t.warmup or 0.0) for t in todo)
        out.print(
            Text(f"  {'windows':<11}", style="dim") + Text(f"{duration(seconds)} of measuring at the least")
        )


def _bare(key: str, value: object) -> str:
    """Return a value beside its key's name: `4`, not `b4`."""
    if key in ("model", "colocated"):
        return cell_names.written(key, value)
    return str(value).lower() if isinstance(value, bool) else "none" if value is None else str(value)
