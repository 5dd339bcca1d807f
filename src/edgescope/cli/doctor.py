"""Say what this machine is, what can be measured on it, what would disturb a measurement now, and what is missing.

Every metric is probed on its own: measured, unsupported or failed, each with its source, scope and cost.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgescope.devices.doctor import Metric, Report

HELP = "what this machine is and can measure, and what would disturb a measurement"


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument("--json", action="store_true")
    sub.add_argument("--all", action="store_true", help="also print the metrics that are unsupported here")


def run(args: argparse.Namespace) -> int:
    """Examine and print."""
    from edgescope.bench import present
    from edgescope.devices.doctor import examine

    report = examine(present())
    if args.json:
        from edgescope.codec import to_plain

        print(json.dumps(to_plain(report), indent=1))
        return 0
    _show(report, everything=args.all)
    return 0


def _show(report: Report, *, everything: bool) -> None:
    from edgescope.cli import terminal

    out = terminal.console()
    out.print(f"machine {report.machine.id}", style="bold")
    for family, facts in report.machine.stable.items():
        shown = ", ".join(
            f"{k} {v}" for k, v in facts.items() if isinstance(v, str | int | float) and v != ""
        )
        out.print(f"  {family}: {shown}", markup=False)
    for name, why in report.devices.items():
        if why:
            out.print(f"  {name}: not here: {why}", style="dim", markup=False)
    rows = [_row(m) for m in report.metrics if everything or m.status != "unsupported"]
    terminal.table(("metric", "now", "scope", "status", "source", "one read"), rows)
    hidden = len(report.metrics) - len(rows)
    if hidden:
        terminal.note(f"{hidden} metrics are unsupported here; --all lists them with the reason")
    for title, findings in (
        ("would disturb a measurement now", report.disturbances),
        ("missing here", report.missing),
    ):
        out.print(title if findings else f"{title}: nothing", style="bold" if findings else "dim")
        for finding in findings:
            out.print(f"  {finding.code}: {finding.text}", markup=False)
            if finding.fix:
                out.print(f"      Try: {finding.fix}", style="dim", markup=False)


def _row(m: Metric) -> tuple[str, ...]:
    from edgescope.cli import terminal
    from edgescope.records import Measured

    now = terminal.show(Measured(m.value, m.unit)) if m.value is not None else "n/a"
    status = m.status if m.status == "measured" else f"{m.status}: {m.reason}"
    return m.name, now, m.scope, status, m.source, f"{m.read_us:.0f} us"
