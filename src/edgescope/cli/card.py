"""One result as a person reads it: a card after `bench`, a line in a sweep or a listing."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.text import Text

from edgescope.analysis.cells import ids
from edgescope.analysis.energy.scopes import ends
from edgescope.analysis.run.usage import first
from edgescope.cli import crowd_view, load_view
from edgescope.metrics import Metric, shown
from edgescope.records import UNIT, Absent, Field, Measured, Result, Status, Trial, Trust
from edgescope.report import terminal
from edgescope.stats import reach

CELL = 8
"""Characters of a cell's id that a listing shows; `compare` takes them for all its replicates."""
TRUST_STYLE = {Trust.CLEAN: "green", Trust.THROTTLED: "red", Trust.DISTURBED: "yellow", Trust.UNKNOWN: "dim"}


def show(result: Result) -> None:
    """Print the card of one result."""
    out = terminal.console()
    trained = "" if result.model is None or result.model.trained else "  (untrained: no task accuracy)"
    t = result.trial
    load = "  single_stream" if t.scenario == "single_stream" else ""  # other loads are in the label
    out.print(Text(f"{t.model}  {t.label}{load}{trained}", style="bold"))
    for name, text in _lines(result):
        out.print(Text(f"  {name:<11}", style="dim") + text)
    for warning in result.warnings:
        out.print(Text(f"  {warning}", style="yellow"))
    out.print(Text(f"  result      {result.id}", style="dim"))


def summary(results: Sequence[Result]) -> None:
    """Print what the fresh processes of one cell say together."""
    from edgescope.analysis.cells.percentiles import percentiles
    from edgescope.analysis.cells.replicates import MEASURED, across

    done = [r for r in results if r.status in MEASURED]
    text = f"{len(done)} of {len(results)} processes measured"
    if done:
        latency = percentiles(done)
        figures = {
            "p50": latency["p50_s"],
            "p99": latency["p99_s"],
            "throughput": across(done, "throughput_sps"),
        }
        text += "".join(f"   {name} {terminal.why(found)}" for name, found in figures.items())
    out = terminal.console()
    out.print(Text("together   ", style="bold") + Text(text))
    if len(done) < len(results):
        counts = {s: sum(r.status is s for r in results) for s in dict.fromkeys(r.status for r in results)}
        out.print(Text("           " + ", ".join(f"{n} {s.value}" for s, n in counts.items()), style="dim"))


def _lines(result: Result) -> list[tuple[str, Text]]:
    if result.status not in (Status.OK, Status.WRONG_OUTPUT, Status.UNSTABLE):
        return [("status", status(result)), ("reason", Text(str(result.reason)))]
    m = result.metrics.get
    lines = [
        ("status", status(result)),
        ("latency", Text(_latency(result))),
        ("throughput", Text(terminal.why(m("throughput_sps")))),
        *crowd_view.lines(result),
        *load_view.lines(result),
        *_long_run(result),
        *_parts(result),
        ("start", Text("   ".join(f"{k} {_brief(m(f'{k}_s'))}" for k in ("build", "load", "first")))),
        ("memory", Text(_memory(result))),
        *_consumed(result),
        *([("idle", Text(_idle(result)))] if result.trial.idle_s else []),
    ]
    if result.verification is not None:
        mark = "passed" if result.verification.passed else "FAILED"
        style = "" if result.verification.passed else "bold red"
        lines.append(("outputs", Text(f"{mark}: {result.verification.detail}", style=style)))
    else:
        text = "not verified: there is no fp32 reference to compare them with; this can never be a pick"
        lines.append(("outputs", Text(text, style="yellow")))
    if result.effective is not None:
        e = result.effective
        lines.append(("ran as", Text(f"{e.precision} on {e.device}, {_threads(e.threads)}; {e.evidence}")))
    lines.append(("sampler", Text(_sampler(result))))
    if result.reason:
        lines.append(("reason", Text(str(result.reason))))
    return lines


def _parts(result: Result) -> list[tuple[str, Text]]:
    """Return the line that says what a unit's time goes to; none where nothing told."""
    names = [name for name in result.spans.names if name != UNIT] if result.spans else []
    found = [
        f"{name} {_brief(result.metrics[f'{name}_s'])}" for name in names if f"{name}_s" in result.metrics
    ]
    return [("of which", Text("   ".join(found)))] if found else []


def _memory(result: Result) -> str:
    if result.workers:
        return crowd_view.memory(result)
    return f"peak RSS {terminal.why(result.metrics.get('peak_rss_bytes'))}"


def _latency(result: Result) -> str:
    m = result.metrics.get
    if isinstance(m("latency_p50_s"), Absent):
        return terminal.why(m("latency_p50_s"))
    parts = [
        f"p50 {terminal.show(m('latency_p50_s'))}",
        f"p90 {terminal.show(m('latency_p90_s'), interval=False)}",
    ]
    parts.append(f"p99 {terminal.why(m('latency_p99_s'))}")
    if isinstance(m("latency_p99_s"), Measured):
        parts.append(_bound(m("latency_p99_bound_s")))
    return "   ".join(part for part in parts if part)


def _bound(found: Field | None) -> str:
    """Return the upper bound of p99 with what it rests on, or why the p99 beside it stands without one."""
    if isinstance(found, Measured):
        longest = math.floor(reach(found.n, 0.99)) if found.n else 0
        stalls = f", if no stall is longer than {longest} queries" if longest > 1 else ""
        return f"p99 below {terminal.show(found, interval=False)} with 99 % confidence{stalls}"
    return f"no bound of p99 ({found.reason.removeprefix('n/a: ')})" if found else ""


def _threads(count: int | None) -> str:
    return "1 thread" if count == 1 else f"{count or 'default'} threads"


def _consumed(result: Result) -> list[tuple[str, Text]]:
    """Return power and energy; in one line where the same keeps both from being measured."""
    power, energy = (Text(_metered(result, name)) for name in ("power_w", "energy_per_sample_j"))
    if power.plain == energy.plain:
        return [("power", Text("and energy: ") + power)]
    return [("power", power), ("energy", energy)]


def _metered(result: Result, name: str) -> str:
    """Return watts or joules with what they were measured in front of, and how."""
    text, meter = terminal.why(result.metrics.get(name)), result.meter
    if meter is None or isinstance(result.metrics.get(name), Absent):
        return text
    said = ends(result.metrics.get(name), result.metrics.get("energy_j"))
    return f"{text}{said and f' {said}'}  ({meter.scope}: {meter.name}, {meter.method})"


def _idle(result: Result) -> str:
    """Return the idle power, how it moved, and what a sample costs beyond it."""
    m, meter = result.metrics.get, result.meter
    if meter is None or isinstance(m("idle_power_w"), Absent):
        return terminal.why(m("idle_power_w"))
    drift, beyond = m("idle_power_drift_w"), m("energy_dynamic_per_sample_j")
    moved = f"{terminal.show(drift, interval=False)} from before to after"
    return f"{terminal.show(m('idle_power_w'))} ({meter.scope}), {moved}; {terminal.why(beyond)} a sample beyond it"


def _long_run(result: Result) -> list[tuple[str, Text]]:
    """Return burst, sustained and throttling of a window long enough to have both, else nothing."""
    m = result.metrics.get
    burst = terminal.measured(m("burst_throughput_sps"))
    if burst is None:
        return []
    rest, settled, moment = (
        m("sustained_throughput_sps"),
        terminal.measured(m("settled_s")),
        m("time_to_throttle_s"),
    )
    parts = {"burst": [terminal.show(burst)], "sustained": [terminal.why(rest)]}
    for name, part in parts.items():
        latency = terminal.measured(m(f"{name}_latency_p50_s"))
        part.extend([f"p50 {terminal.show(latency)}"] if latency else [])
    if settled is not None:
        parts["sustained"].append(
            f"settled {f'after {settled.value:.0f} s' if settled.value else 'from the start'}"
        )
    throttled = terminal.measured(moment)
    words = terminal.why(moment) if throttled is None else f"from second {throttled.value:.0f} on"
    return [(name, Text("   ".join(p))) for name, p in parts.items()] + [("throttling", Text(words))]


def _brief(field: Field | None) -> str:
    if isinstance(field, Absent):
        return f"none ({field.reason})"
    return terminal.show(field, interval=False)


def _sampler(result: Result) -> str:
    cost, rate = result.metrics.get("sampler_cpu_share"), result.metrics.get("sampler_hz")
    measured = terminal.measured(cost)
    if measured is None:
        return terminal.why(cost)
    return f"{measured.value:.2%} of one core at {terminal.show(rate)}"


def status(result: Result) -> Text:
    """Return the status with the verdict and its evidence."""
    style = "green" if result.status is Status.OK else "bold red"
    trust = result.verdict.trust
    text = Text(result.status.value, style=style) + Text("  ") + Text(trust.value, style=TRUST_STYLE[trust])
    return text + Text(": " + "; ".join(result.verdict.evidence), style="dim")


def _asked(t: Trial) -> str:
    """Return the variant and which replicate it is."""
    return t.label + (f" #{t.replicate}" if t.replicate else "")


def _row(result: Result, columns: Sequence[Metric]) -> Sequence[str | Text]:
    good = result.status is Status.OK
    return (
        result.trial.model.partition("#")[0],
        _asked(result.trial),
        Text(result.status.value, style="green" if good else "red"),
        Text(result.verdict.trust.value, style=TRUST_STYLE[result.verdict.trust])
        if good
        else Text(str(result.reason or "")[:70]),
        *(terminal.show(first(result, m.of), interval=False) for m in columns),
    )


def lines(results: Sequence[Result]) -> None:
    """Print a listing as plain columns: a thousand rows must not take a table layout's seconds.

    Where they come from several machines, each row says from which. What only some workloads have is a column where
    some result has it.
    """
    several = len({r.machine.id for r in results}) > 1
    works = {r.trial.workload for r in results}
    columns = [m for m in shown("list") if not m.workloads or works & set(m.workloads)]
    header = (
        "result",
        "started (UTC)",
        "cell",
        "model",
        "variant",
        "status",
        "verdict",
        *(m.head for m in columns),
    )
    names = ids.short_ids(results)
    rows: list[tuple[str, ...]] = [header]
    rows += [
        (names[r.id], r.started_at[:16].replace("T", " "), r.trial.cell[:CELL], *map(str, _row(r, columns)))
        for r in results
    ]
    if several:
        where = ["machine", *(r.machine.id[:8] for r in results)]
        rows = [(*row, machine) for row, machine in zip(rows, where, strict=True)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    print("\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows))
