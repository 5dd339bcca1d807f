"""Several workers on a result's card: the total, how evenly it was shared out, and a line for each worker."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from edgescope.analysis.run.workers import Share, shares
from edgescope.modes.affinity import ranges
from edgescope.records import Absent, Field, Measured, Result
from edgescope.report import terminal

WIDTH = 24
"""Characters of the bar of the worker that did most."""
EIGHTHS = " ▏▎▍▌▋▊▉"


def lines(result: Result) -> list[tuple[str, Text]]:
    """Return the lines that workers add to a card; none where the trial's own process did the work."""
    if not result.workers:
        return []
    each = shares(result)
    return [("together", Text(_together(result))), *_workers(result, each)]


def memory(result: Result) -> str:
    """Return what all workers hold: resident, with shared pages once, on the GPU, and what the rule foretells."""
    m = result.metrics.get
    parts = [f"peak RSS {terminal.why(m('processes_rss_bytes'))} in all"]
    parts += [f"PSS {_brief(m('processes_pss_bytes'))}"] if _known(m("processes_pss_bytes")) else []
    if result.trial.device == "cuda":
        parts.append(f"GPU {terminal.why(m('gpu_processes_memory_bytes'))}")
    if _known(m("memory_rule_bytes")):
        parts.append(f"P x (model + 2 x batch) is {_brief(m('memory_rule_bytes'))}")
    return "   ".join(parts)


def _together(result: Result) -> str:
    m, own = result.metrics.get, [w for w in result.workers if w.number < result.trial.processes]
    parts = []
    if len(own) > 1:
        parts += [f"T/P {_brief(m('throughput_per_process_sps'))}", f"fairness {_brief(m('fairness'))}"]
        worst = m("latency_p99_worst_worker_s")
        parts += [f"worst worker's p99 {_brief(worst)}"] if _known(worst) else []
    if len(result.workers) > 1:
        parts += [f"started within {_brief(m('start_skew_s'))}", f"stopped within {_brief(m('stop_skew_s'))}"]
    gap = m("counter_gap_queries")
    if isinstance(gap, Measured):
        parts.append("counter agrees" if gap.value <= 1 else f"counter differs by {gap.value:.0f} queries")
    return "   ".join(parts)


def _workers(result: Result, each: Sequence[Share]) -> list[tuple[str, Text]]:
    own = [s for s in each if s.worker.number < result.trial.processes]
    most = max((_value(s.throughput_sps) for s in own), default=0.0)
    tail = _tail(result, each)
    cells = [_cells(result, s, tail) for s in each]
    widths = [max(len(row[i]) for row in cells) for i in range(3)] if cells else []
    rows: list[tuple[str, Text]] = []
    for share, row in zip(each, cells, strict=True):
        beside = share.worker.number >= result.trial.processes
        text = Text(f"W{share.worker.number:<3}", style="bold")
        text += Text(row[0].rjust(widths[0]) + " ")
        text += Text(
            bar(_value(share.throughput_sps), most) if not beside else " " * (WIDTH + 1), style="cyan"
        )
        text += Text(
            "  ".join(cell.ljust(width) for cell, width in zip(row[1:], widths[1:], strict=True)).rstrip()
        )
        text += Text(f"  {share.worker.model}" if beside else "", style="magenta")
        rows.append(("workers" if not rows else "", text))
    return rows


def _tail(result: Result, each: Sequence[Share]) -> str:
    """Return the deepest percentile that every worker has, '' where there is none: no two lines show different ones."""
    if result.trial.scenario == "offline":
        return ""
    known = (
        n for n in ("p99", "p95", "p90", "p50") if all(_known(s.latency[f"latency_{n}_s"]) for s in each)
    )
    return next(known, "")


def _cells(result: Result, share: Share, tail: str) -> tuple[str, str, str]:
    """Return a worker's throughput, its latency, and what it holds."""
    w = share.worker
    timed = f"{tail} {_brief(share.latency[f'latency_{tail}_s'])}" if tail else ""
    held = [f"RSS {_brief(w.peak_rss_bytes)}"]
    held += [f"GPU {_brief(w.gpu_memory_bytes)}"] if _known(w.gpu_memory_bytes) else []
    held += [f"CPU {ranges(w.cpus)}"] if result.trial.sharing == "pinned" else []
    return _brief(share.throughput_sps), timed, "  ".join(held)


def bar(value: float, most: float) -> str:
    """Return a bar of up to WIDTH characters, to an eighth of one, and a space."""
    eighths = round(8 * WIDTH * value / most) if most > 0 else 0
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (EIGHTHS[rest] if rest else "")).ljust(WIDTH) + " "


def _brief(field: Field | None) -> str:
    return terminal.show(field, interval=False)


def _known(field: Field | None) -> bool:
    return isinstance(field, Measured)


def _value(field: Field) -> float:
    return 0.0 if isinstance(field, Absent) else field.value
