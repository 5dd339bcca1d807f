"""What `edgescope capacity` answers against confirming every number of clients, and at what share of the time.

For each case: the search in a store of its own, then every number from one client until one fails twice, each with the
full run that also confirms the search's answer, and all of that once more: how far two exhaustive answers lie apart is
the machine's doing, and no search can be nearer. What all share (exported files, references, the gate's answers) is
made before any is timed. Target: within one client of the exhaustive answers (0 between the two), at 25 % of the mean
of their times, in every case. Trying each of a few clients is no work worth saving: each sends SHARE of what the
machine answers one after another, so that about a dozen fit, however fast it is. The steady case sleeps for its service
time: real processes, clocks and queues, a server whose speed no neighbour changes.

    python benchmarks/capacity.py [CASE ...] [--confirm 12] [--longest 60] [--rate R] [--smoke]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean
from typing import Any

from facts import publish
from halving import cells

from edgescope.analysis.capacity.promises import promises
from edgescope.models import zoo
from edgescope.records import Measured, Trial
from edgescope.report.capacity import line, sentence_of
from edgescope.search.capacity import Search
from edgescope.search.capacity_question import Question
from edgescope.search.loop import Loop


@dataclass(frozen=True)
class Case:
    """A model, what its clients send and what they are promised."""

    model: str
    backend: str
    precision: str
    promise: str
    arrivals: str
    options: Mapping[str, int] = field(default_factory=dict)


CASES = {
    "steady": Case("null", "null", "fp32", "p99<40ms", "poisson", {"delay_us": 4000}),
    "classifier": Case("efficientnet_lite0", "openvino", "int8", "p95<40ms", "camera"),
    "small": Case("squeezenet1_1", "onnxruntime", "fp32", "p95<40ms", "poisson"),
}
SHARE = 0.06
"""What one client sends, of the throughput of a closed loop."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", default=list(CASES), help=", ".join(CASES))
    parser.add_argument("--confirm", type=float, default=12.0, help="seconds of a full run (12)")
    parser.add_argument("--longest", type=float, default=60.0, help="longest run, for a bound (60)")
    parser.add_argument("--smoke", action="store_true", help="show, publish nothing")
    parser.add_argument("--rate", type=float, default=None, help="what a client sends in a second (a share)")
    args = parser.parse_args()
    rows = [compared(name, args.confirm, args.longest, args.rate) for name in args.cases]
    found = figures(rows)
    if args.smoke:
        print(found)
    else:
        publish(named(args.cases), found, met=met(found))


def figures(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the rows, the worst of each target, and the share of time of all cases together."""
    times = [(r["search"]["seconds"], mean(e["seconds"] for e in r["exhaustive"])) for r in rows]
    return {
        "cases": rows,
        "worst_difference_clients": max(abs(r["difference_clients"]) for r in rows),
        "worst_difference_of_two_exhaustive": max(r["exhaustive_apart_clients"] for r in rows),
        "worst_share_of_time": max(r["share_of_time"] for r in rows),
        "share_of_time": round(sum(mine for mine, _ in times) / sum(full for _, full in times), 3),
    }


def met(found: dict[str, Any]) -> bool:
    """Return whether the targets are reached in every one of CASES."""
    complete = {r["case"] for r in found["cases"]} >= set(CASES)
    return complete and found["worst_difference_clients"] <= 1 and found["worst_share_of_time"] <= 0.25


def named(cases: Sequence[str]) -> str:
    """Return the name of what is published."""
    return "capacity" if set(cases) >= set(CASES) else "capacity_subset"


def compared(name: str, confirm_s: float, longest_s: float, given: float | None) -> dict[str, Any]:
    """Return what both ways answered for one case, and what each took."""
    case = CASES[name]
    base = Trial(
        model=zoo.pin(case.model), backend=case.backend, precision=case.precision, options=case.options
    )
    asked = Question(
        base,
        1.0,
        promises([case.promise]),
        arrivals=case.arrivals,
        confirm_s=confirm_s,
        max_duration_s=longest_s,
        max_clients=256,
    )
    with tempfile.TemporaryDirectory(prefix="edgescope-capacity-") as folder:
        share = rate(asked, Path(folder) / "warm")
        asked = replace(asked, rate=given or share)
        quick = timed(asked, Path(folder) / "search")
        every = [timed(asked, Path(folder) / f"every-{n}", exhaustive=True) for n in (1, 2)]
    answers = [e["clients"] for e in every]
    nearest = min(max(quick["clients"], min(answers)), max(answers))
    return {
        "case": name,
        "model": f"{case.model} {base.label}",
        "constraint": case.promise,
        "rate": asked.rate,
        "arrivals": case.arrivals,
        "confirm_s": confirm_s,
        "search": quick,
        "exhaustive": every,
        "difference_clients": quick["clients"] - nearest,
        "exhaustive_apart_clients": max(answers) - min(answers),
        "share_of_time": round(quick["seconds"] / mean(e["seconds"] for e in every), 3),
    }


def rate(asked: Question, folder: Path) -> float:
    """Return what one client sends in a second, from a closed loop; what all runs share is made on the way."""
    first = Search(asked, folder)
    next(Loop(cells(folder)).run(first.run()), None)
    if not isinstance(first.throughput, Measured):
        raise SystemExit(f"no closed loop: {first.closed.reason if first.closed else 'nothing ran'}")
    return float(f"{SHARE * first.throughput.value:.2g}")


def timed(asked: Question, folder: Path, *, exhaustive: bool = False) -> dict[str, Any]:
    one = Search(asked, folder, lambda p: print(f"{p.stage} {p.clients}: {line(p)}", flush=True))
    begun = time.monotonic()
    for _ in Loop(cells(folder)).run(one.run(exhaustive=exhaustive)):
        pass
    seconds = time.monotonic() - begun
    found = one.answer()
    verdicts = [p.result.verdict.trust.value for p in found.points]
    return {
        "clients": found.clients,
        "seconds": round(seconds, 1),
        "runs": len(found.points) + 1,
        "limit": found.limit.name,
        "sentence": sentence_of(found),
        "verdicts": {name: verdicts.count(name) for name in sorted(set(verdicts))},
    }


if __name__ == "__main__":
    main()
