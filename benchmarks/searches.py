"""Whether searches find what measuring everything finds, in less time, and whether their picks hold.

    python benchmarks/searches.py COMMAND --help

The commands: `optimize` (halving), `capacity` (clients) and `recommend` (promises).
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean
from typing import Any

import facts
from facts import machine_id, publish

from edgescope.analysis.cells import alternation, variants
from edgescope.analysis.cells.objective import Constraint, Wanted, judged_end, wanted
from edgescope.analysis.cells.row import Row
from edgescope.bench import here
from edgescope.isolate.fresh import Limits
from edgescope.metrics import bounded
from edgescope.models import zoo
from edgescope.records import Measured, Result, Status, Trial
from edgescope.records.codec import to_plain
from edgescope.runner import run
from edgescope.runner.isolated import Isolated
from edgescope.runner.run import ExperimentRunner
from edgescope.search.candidates import installed, propose
from edgescope.search.loop import Loop
from edgescope.stats import Interval
from edgescope.store.results import Store
from edgescope.study import grid
from edgescope.wings.capacity.page import line, sentence_of
from edgescope.wings.capacity.question import Question, client_constraints
from edgescope.wings.capacity.search import Search
from edgescope.wings.optimize import racing as optimize
from edgescope.wings.optimize.racing import Budget
from edgescope.wings.optimize.verb import TURNS
from edgescope.wings.recommend.candidates import choices
from edgescope.wings.recommend.recommendation import Recommendation, recommend

HALVING_MODELS = ("efficientnet_lite0", "mobilenet_v2", "squeezenet1_1", "resnet50")
#: Replicates that score the picks are numbered from here, out of reach of either schedule.
HALVING_FRESH = 1000


def halving() -> None:
    """What the budget of `optimize` lets it find, against measuring everything, and at what share of the time.

    For each model: the budgeted schedule in a store of its own, then the exhaustive one (every candidate in pairs
    with the baseline until it is clearly behind, those with wrong outputs leaving at once in both), then both picks
    in turns with each other, in fresh pairs that neither schedule has seen. What both share (exported files,
    references, the gate's answers) is made before either is timed. --again runs the exhaustive schedule a second
    time, under another seed, and scores that pick, too: what two exhaustive runs differ by, no schedule can be held
    to on this machine. Target: in those fresh pairs the pick is within 3 % of the exhaustive one, at 40 % of its
    time, on every model. The page is written after each model; a run of other models adds to it, unless --anew.

        python benchmarks/searches.py halving [MODEL ...] [--budget 60] [--scoring 5] [--again] [--anew]
    """
    parser = argparse.ArgumentParser(
        description=facts.text(halving), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=HALVING_MODELS)
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--scoring", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--again", action="store_true", help="the exhaustive schedule a second time")
    parser.add_argument("--anew", action="store_true", help="forget the models that were measured before")
    parser.add_argument("--smoke", action="store_true", help="show, publish nothing")
    args = parser.parse_args()
    page = "searches/halving" + ("" if args.device == "cpu" else f"_{args.device}")
    rows = {} if args.anew or args.smoke else kept(page)
    for name in args.models:
        rows[name] = halving_compared(name, args)
        found = halving_figures(list(rows.values()))
        if args.smoke:
            print(found)
        else:
            publish(page, found, met=halving_met(found))


def kept(page: Path | str) -> dict[str, dict[str, Any]]:
    """Return the rows that were published from this machine, by model."""
    found = facts.loaded(page)
    here = found.get("machine_id") == machine_id()
    return {row["model"]: row for row in found["figures"]["models"]} if here else {}


def halving_figures(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the rows, and the worst model of each target beside the share of time of all models together."""
    times = [(r["halving"]["seconds"], r["exhaustive"]["seconds"]) for r in rows]
    return {
        "models": rows,
        "worst_pick_over_best": max(r["pick_over_best"] for r in rows),
        "share_of_time": sum(t for t, _ in times) / sum(t for _, t in times),
        "worst_share_of_time": max(mine / full for mine, full in times),
    }


def halving_met(found: dict[str, Any]) -> bool:
    """Return whether the targets are reached on every one of MODELS."""
    complete = {r["model"] for r in found["models"]} >= set(HALVING_MODELS)
    return complete and found["worst_pick_over_best"] <= 1.03 and found["worst_share_of_time"] <= 0.40


def halving_compared(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Return what both schedules found for one model, what it took, and how the picks do on fresh runs."""
    base = Trial(model=zoo.pin(name), device=args.device, **TURNS)
    trials = propose(base, installed()).trials
    with tempfile.TemporaryDirectory(prefix="edgescope-halving-") as folder:
        warm(trials)
        halving = scheduled(trials, cells(Path(folder) / "halving"), Budget(args.budget))
        everything = scheduled(trials, cells(Path(folder) / "all"), Budget(exhaustive=True))
        found = {"halving": halving, "exhaustive": everything}
        if args.again:
            other = Budget(seed=1, exhaustive=True)
            found["exhaustive_again"] = scheduled(trials, cells(Path(folder) / "again"), other)
        picks = [run.pop("trial") for run in found.values()]
        scored = score(picks, cells(Path(folder) / "fresh"), args.scoring)
    return {"model": name, "candidates": len(trials)} | found | scored


def cells(folder: Path) -> ExperimentRunner:
    return ExperimentRunner(Store(folder), Limits(), Isolated(), here())


def warm(trials: tuple[Trial, ...]) -> None:
    """Make what the cache keeps, so that neither schedule pays for it; nothing is measured, so two at once."""
    runner = Isolated()

    def made(trial: Trial) -> None:
        if runner.prepare(trial, Limits()) is None:
            runner.run(optimize.short(trial, 0), Limits())

    made(trials[0])  # the reference that all need
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(made, trials[1:]))


def scheduled(trials: tuple[Trial, ...], where: ExperimentRunner, budget: Budget) -> dict[str, Any]:
    begun = time.monotonic()
    results = list(Loop(where, print).run(optimize.Race(budget=budget).run(trials)))
    best = variants.pick(variants.table(results))
    if best.row is None:
        raise SystemExit(best.reason)
    return {
        "seconds": round(time.monotonic() - begun, 1),
        "runs": len(results),
        "pick": best.row.label,
        "p50_s": to_plain(best.row["p50_s"]),
        "speedup": to_plain(best.row["speedup"]),
        "trial": best.row.trial,
    }


def score(picks: list[Trial], where: ExperimentRunner, count: int) -> dict[str, Any]:
    """Return how many times longer the first pick takes than the second, and the third, in turns with each."""
    mine, best, *other = picks
    found = against(mine, best, where, count)
    out: dict[str, Any] = {"pick_over_best": found.value, "paired_ratio": to_plain(found.measured("1"))}
    if other:
        again = against(other[0], best, where, count)
        out |= {"again_over_first": again.value, "again_ratio": to_plain(again.measured("1"))}
    return out


def against(mine: Trial, best: Trial, where: ExperimentRunner, count: int) -> Interval:
    """Return the ratio of the times of two picks, mine / best, over `count` fresh pairs that take turns."""
    if mine.variant == best.variant:
        return Interval(1.0, 1.0, 1.0, 0, 0)
    pairs = [
        where.run_pair(replace(mine, replicate=n), replace(best, replicate=n), alternation.CONFIRMING)
        for n in range(HALVING_FRESH, HALVING_FRESH + count)
    ]
    return alternation.speedup([(second, first) for first, second in pairs])


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


def clients() -> None:
    """What `edgescope capacity` answers against confirming every number of clients, and at what share of the time.

    For each case: the search in a store of its own, then every number from one client until one fails twice, each
    with the full run that also confirms the search's answer, and all of that once more: how far two exhaustive
    answers lie apart is the machine's doing, and no search can be nearer. What all share (exported files, references,
    the gate's answers) is made before any is timed. Target: within one client of the exhaustive answers (0 between
    the two), at 25 % of the mean of their times, in every case. Trying each of a few clients is no work worth saving:
    each sends SHARE of what the machine answers one after another, so that about a dozen fit, however fast it is. The
    steady case sleeps for its service time: real processes, clocks and queues, a server whose speed no neighbour
    changes.

        python benchmarks/searches.py clients [CASE ...] [--confirm 12] [--longest 60] [--rate R] [--smoke]
    """
    parser = argparse.ArgumentParser(
        description=facts.text(clients), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", default=list(CASES), help=", ".join(CASES))
    parser.add_argument("--confirm", type=float, default=12.0, help="seconds of a full run (12)")
    parser.add_argument("--longest", type=float, default=60.0, help="longest run, for a bound (60)")
    parser.add_argument("--smoke", action="store_true", help="show, publish nothing")
    parser.add_argument("--rate", type=float, default=None, help="what a client sends in a second (a share)")
    args = parser.parse_args()
    rows = [capacity_compared(name, args.confirm, args.longest, args.rate) for name in args.cases]
    found = capacity_figures(rows)
    if args.smoke:
        print(found)
    else:
        publish(named(args.cases), found, met=capacity_met(found))


def capacity_figures(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the rows, the worst of each target, and the share of time of all cases together."""
    times = [(r["search"]["seconds"], mean(e["seconds"] for e in r["exhaustive"])) for r in rows]
    return {
        "cases": rows,
        "worst_difference_clients": max(abs(r["difference_clients"]) for r in rows),
        "worst_difference_of_two_exhaustive": max(r["exhaustive_apart_clients"] for r in rows),
        "worst_share_of_time": max(r["share_of_time"] for r in rows),
        "share_of_time": round(sum(mine for mine, _ in times) / sum(full for _, full in times), 3),
    }


def capacity_met(found: dict[str, Any]) -> bool:
    """Return whether the targets are reached in every one of CASES."""
    complete = {r["case"] for r in found["cases"]} >= set(CASES)
    return complete and found["worst_difference_clients"] <= 1 and found["worst_share_of_time"] <= 0.25


def named(cases: Sequence[str]) -> str:
    """Return the name of what is published."""
    return "searches/clients" if set(cases) >= set(CASES) else "searches/clients_small"


def capacity_compared(name: str, confirm_s: float, longest_s: float, given: float | None) -> dict[str, Any]:
    """Return what both ways answered for one case, and what each took."""
    case = CASES[name]
    base = Trial(
        model=zoo.pin(case.model), backend=case.backend, precision=case.precision, options=case.options
    )
    asked = Question(
        base,
        1.0,
        client_constraints([case.promise]),
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


RECOMMEND_MODELS = ("squeezenet1_1", "mobilenet_v2", "efficientnet_lite0")
OBJECTIVES = ("throughput", "latency")
#: How far above the measured upper bound a constraint lies.
ABOVE = 1.05
#: What is constrained, with the unit and its factor to SI; all that is measured of it binds.
BOUND = {"p99": ("ms", 1e-3), "memory": ("MB", 1e6), "power": ("W", 1.0)}
#: Confirmations are numbered from here, out of reach of the replicates.
RECOMMEND_FRESH = 1000


def promises() -> None:
    """Whether what a recommendation promises holds: fresh runs of picks against constraints just above their bounds.

    A small grid of each model is measured in a few fresh processes a cell. Each question's pick then gets constraints
    5 % above its own measured upper bounds (p99, memory, and power where a meter answers), is asked for again with
    them, and is run in fresh processes that the recommendation has not seen, all picks interleaved in random order. A
    run holds when its p99, memory and power are within the constraints; one that the machine disturbed so that it
    ended `unstable` is run once more. Target: 36 of 40.

    Beside it, where the windows are long enough for one: how many would hold by the largest order-statistic bound of
    the tail within one process, which knows nothing of what lies between processes.

        python benchmarks/searches.py promises [MODEL ...] [--runs 40] [--replicates 3] [--duration 2.5] [--smoke]
    """
    parser = argparse.ArgumentParser(
        description=facts.text(promises), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=RECOMMEND_MODELS)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--replicates", type=int, default=3)
    parser.add_argument("--duration", type=float, default=2.5)
    parser.add_argument("--smoke", action="store_true", help="show, publish nothing")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="edgescope-holds-") as folder:
        fresh = cells(Path(folder))
        results = measured(args, fresh)
        promised = picks(results, args.replicates)
        rows = confirmed(promised, fresh, args.runs)
    found = recommend_figures(rows, promised)
    if args.smoke:
        print(found)
    else:
        publish("searches/promises", found, met=found["held"] >= 0.9 * found["runs"] and found["runs"] >= 40)


def measured(args: argparse.Namespace, cells: ExperimentRunner) -> list[Result]:
    """Measure the grid of every model, round by round in random order."""
    keys = {
        "model": [zoo.pin(name) for name in args.models],
        "backend": ["onnxruntime", "openvino"],
        "batch": [1, 2],
        "processes": [1, 2],
        "warmup": 0.5,
        "min_s": args.duration,
        "max_s": args.duration,
        "replicates": args.replicates,
    }
    told = lambda p: print(f"[{p.done + 1}/{p.total}] {p.trial.model} {p.trial.label}", flush=True)  # noqa: E731
    done = list(run.run(grid.grid(keys), cells, tell=told))
    return cells.store.fulls(done)


def picks(results: Sequence[Result], least: int) -> list[tuple[Row, Wanted, Recommendation]]:
    """Return each question's pick with the constraints it is held to; a pick of two questions stands once."""
    out: dict[str, tuple[Row, Wanted, Recommendation]] = {}
    for model in dict.fromkeys(r.trial.model for r in results):
        mine = [r for r in results if r.trial.model == model]
        for objective in OBJECTIVES:
            pick = recommend(mine, wanted(objective), least=least).pick
            if pick is None:
                continue
            asked = Wanted(objective, tuple(binding(pick)))
            again = recommend(mine, asked, least=least)
            if again.pick is not None:
                out.setdefault(again.pick.cell, (again.pick, asked, again))
    return list(out.values())


def binding(pick: Row) -> list[Constraint]:
    """Return constraints a little above a pick's measured upper bounds."""
    found = []
    for name, (unit, factor) in BOUND.items():
        figure = pick[bounded()[name].name]
        if isinstance(figure, Measured):
            limit = judged_end(figure, True) * ABOVE
            text = f"{name}<={limit / factor:.6g}{unit}"
            found.append(Constraint(bounded()[name], limit, text=text))
    return found


def confirmed(
    promised: Sequence[tuple[Row, Wanted, Recommendation]], cells: ExperimentRunner, runs: int
) -> list[dict[str, Any]]:
    """Run the picks again, interleaved; return each run's figures and whether it holds."""
    rng, rows = random.Random(0), []
    order = [i % len(promised) for i in range(runs)]
    rng.shuffle(order)
    for number, which in enumerate(order):
        pick, asked, _ = promised[which]
        trial: Trial = replace(pick.trial, replicate=RECOMMEND_FRESH + number)
        result = cells.run(trial)
        again = result.status is Status.UNSTABLE  # the machine was not steady: once more
        if again:
            result = cells.run(replace(trial, replicate=RECOMMEND_FRESH + runs + number))
        print(f"[confirm {number + 1}/{runs}] {pick.name} {result.status.value}", flush=True)
        rows.append({"pick": pick.name, "run_again": again} | held(result, pick, asked))
    return rows


def held(result: Result, pick: Row, asked: Wanted) -> dict[str, Any]:
    """Return one run's values beside the limits, and whether all are within them."""
    if result.status is not Status.OK:
        return {
            "held": False,
            "within_alone": None,
            "status": result.status.value,
            "reason": str(result.reason),
        }
    (row,), _ = choices([result], wanted(asked.objective))
    values = {c.name: row[c.metric.name] for c in asked.constraints}
    shares = {
        c.name: values[c.name].value / c.limit if isinstance(values[c.name], Measured) else None
        for c in asked.constraints
    }
    tail, bound = values.get("p99"), largest_bound(pick)
    within = tail.value <= ABOVE * bound if isinstance(tail, Measured) and bound else None
    kept = all(s is not None and s <= 1 for s in shares.values())
    return {"held": kept, "within_alone": within, "share_of_limit": shares, "status": "ok"}


def largest_bound(pick: Row) -> float | None:
    """Return the largest order-statistic bound of p99 (s) of the processes, None where no run was long enough."""
    found = [r.metrics.get("latency_p99_bound_s") for r in pick.replicates.values()]
    known = [f.value for f in found if isinstance(f, Measured)]
    return max(known, default=None)


def alone(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how many runs held by the bound within one process, of those for which there was one."""
    known = [r["within_alone"] for r in rows if r["within_alone"] is not None]
    return (
        {"held": sum(known), "of": len(known)}
        if known
        else {"absent": "the windows are too short for that bound"}
    )


def recommend_figures(
    rows: list[dict[str, Any]], promised: Sequence[tuple[Row, Wanted, Recommendation]]
) -> dict[str, Any]:
    return {
        "runs": len(rows),
        "held": sum(r["held"] for r in rows),
        "run_again_because_unstable": sum(r["run_again"] for r in rows),
        "p99_held_by_the_bound_within_one_process": alone(rows),
        "questions": [
            {
                "model": pick.trial.model.partition("#")[0],
                "objective": asked.objective,
                "pick": pick.label,
                "processes": len(pick.replicates),
                "constraints": [c.text for c in asked.constraints],
                "reasons": list(answer.reasons),
                "held": sum(r["held"] for r in rows if r["pick"] == pick.name),
                "runs": sum(r["pick"] == pick.name for r in rows),
            }
            for pick, asked, answer in promised
        ],
        "confirmations": rows,
    }


if __name__ == "__main__":
    facts.chosen(halving, clients, promises)
