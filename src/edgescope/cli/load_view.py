"""How the load went, as lines of a result's card: did an open loop keep up, what LoadGen says, the idle-gap curve."""

from __future__ import annotations

import re

from rich.text import Text

from edgescope.records import Field, Json, Measured, Result
from edgescope.report import terminal

PENALTY = re.compile(r"idle_gap_(.+)_penalty")


def lines(result: Result) -> list[tuple[str, Text]]:
    """Return the lines that a result's scenario adds; none for a closed loop of our own."""
    return [*_kept_up(result), *_loadgen(result), *_gaps(result)]


def _kept_up(result: Result) -> list[tuple[str, Text]]:
    m = result.metrics
    offered, achieved, waiting = (
        terminal.measured(m.get(name))
        for name in ("offered_rate_qps", "achieved_rate_qps", "backlog_queries")
    )
    if offered is None or achieved is None or waiting is None:
        return []
    text = f"{terminal.show(offered)} offered, {terminal.show(achieved)} done"
    return [("load", Text(f"{text}; {waiting.value:.0f} in the queue when the last fell due"))]


def _loadgen(result: Result) -> list[tuple[str, Text]]:
    said: dict[str, Json] = result.artifact.get("loadgen") or {}
    if not said:
        return []
    verdict = str(said.get("result_validity", "without a result"))
    parts = [f"{str(said.get('loadgen_version', '?')).split(' ')[0]} drove"]
    parts += [
        f"p{float(p):g} {pair['loadgen_ns'] / 1e6:.4g} ms by its clock, {pair['ours_ns'] / 1e6:.4g} by ours"
        for p, pair in (said.get("percentiles") or {}).items()
        if p != "50.00"
    ]
    if rate := said.get("result_samples_per_second"):
        parts.append(f"{rate:.4g} samples/s by its clock")
    if checked := said.get("accuracy"):
        parts.append(
            f"accuracy mode: {checked['identical']} of {checked['samples']} answers identical to the gate's"
        )
    style = "green" if verdict == "VALID" else "yellow"
    return [("loadgen", Text(verdict, style=style) + Text("  " + "; ".join(parts)))]


def _gaps(result: Result) -> list[tuple[str, Text]]:
    """Return one line a gap: idleness, median of the first query after it, penalty over back to back."""
    found = [
        (match[1], field) for name, field in result.metrics.items() if (match := PENALTY.fullmatch(name))
    ]
    rows: list[tuple[str, Text]] = []
    for label, penalty in found:
        latency = result.metrics[f"idle_gap_{label}_latency_p50_s"]
        count = f"  n {latency.n}" if isinstance(latency, Measured) else ""
        times = "" if label == "0ms" else f"  {_times(penalty)}"
        rows.append(
            (
                "idle gaps" if not rows else "",
                Text(
                    f"after {label.removesuffix('ms'):>6} ms  {terminal.why(latency):<26}{times:<24}{count}"
                ),
            )
        )
    return rows


def _times(penalty: Field) -> str:
    """Return `1.05x [1.02, 1.08]`: two digits behind the point, because what matters is near 1."""
    if not isinstance(penalty, Measured):
        return "n/a"
    ends = "" if penalty.lo is None or penalty.hi is None else f" [{penalty.lo:.2f}, {penalty.hi:.2f}]"
    return f"{penalty.value:.2f}x{ends}"
