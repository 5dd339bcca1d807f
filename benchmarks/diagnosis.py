"""Whether `edgescope explain` finds what was planted, and the remedy gains what it predicted.

Each planted bottleneck (planted.py) is measured with the few other cells that its sweep holds, and explained from these
alone. Then the remedy runs in turns with the trial itself, in fresh processes: the one that explain names, or the
plant's own where no flag does it. A row is right if the first cause is the planted one; it is confidently wrong if
another cause comes first and is called confirmed. Targets: 90 % right, none confidently wrong, the predicted gain
within 20 % of the realised one for 70 % of those that were predicted, and 90 % of the bounds kept. A bound ("at least",
"at most") is never counted as a prediction.

    python benchmarks/diagnosis.py [--device cuda] [--only NAME] [--rounds 2] [--ahead] [--seconds 1200] [--json FILE]

`--ahead` prepares the networks of all plants first, in one process: for machines where a process takes many times as
long to start as to measure. Rows of plants that did not run stay in the file; each row says when, where and at which
commit it was measured.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import facts
import planted
from planted import PLANTS, PLANTS_CUDA, Beside, Plant

import edgescope
from edgescope.analysis import roofline
from edgescope.analysis.cells.replicates import MEASURED
from edgescope.analysis.finding import Bound, Confidence, Diagnosis, Finding, Remedy
from edgescope.bench import here
from edgescope.isolate.fresh import Limits
from edgescope.isolate.persistent import PersistentChild
from edgescope.models import zoo
from edgescope.records import Absent, Field, Measured, Result, Status, Trial
from edgescope.runner.builds import Builds
from edgescope.runner.isolated import Isolated
from edgescope.runner.run import ExperimentRunner, Runner
from edgescope.runner.setup import Setup
from edgescope.store.results import Store
from edgescope.study import grid
from edgescope.wings.doctor import ceilings
from edgescope.wings.explain.verb import Check, checked

RIGHT, GAINS, BOUNDS = 0.9, 0.7, 0.9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--only", default="", help="parts of plants' names: film,lock")
    parser.add_argument("--rounds", type=int, default=2, help="pairs that check each remedy")
    parser.add_argument("--ahead", action="store_true", help="prepare all networks first, in one process")
    parser.add_argument("--seconds", type=float, default=2400.0, help="no plant begins after these")
    parser.add_argument("--json", type=Path, default=None, help="a file of its own for the figures")
    args = parser.parse_args()
    out = args.json.resolve() if args.json else f"diagnosis/{args.device}"
    begun = time.monotonic()
    os.chdir(planted.HERE)
    planted.material()
    root = Path(tempfile.mkdtemp(prefix="edgescope-diagnosis-"))
    plants = [
        p
        for p in (PLANTS_CUDA if args.device == "cuda" else PLANTS)
        if any(part in p.name for part in args.only.split(","))
    ]
    limits = _ceilings(args.device, root)
    with contextlib.ExitStack() as held:
        if args.ahead:
            SETUP[:] = [Ahead(Limits(TRIAL_S), runner=OnePreparer(held.enter_context(PersistentChild())))]
        rows = _all(plants, root, limits, args, out, begun + args.seconds)
    print(json.dumps(summary(rows), indent=1))
    shutil.rmtree(root, ignore_errors=True)


SETUP: list[Setup] = []
"""How trials run, where each is not prepared in a process of its own."""
TRIAL_S = 60.0
"""Seconds that a trial may take then."""


class OnePreparer(Isolated):
    """A Runner that builds all artifacts in one process and measures each trial in a fresh one."""

    one_by_one = True

    def __init__(self, preparer: PersistentChild) -> None:
        self.preparer = preparer

    def prepare(self, trial: Trial, limits: Limits) -> Result | None:
        """Build artifact and reference; return the Result of a failure, else None."""
        result = self.preparer.answer("prepare", trial, limits)
        return None if result.status is Status.OK else result

    def run(self, trial: Trial, limits: Limits) -> Result:
        """Run the trial in a process of its own, after the one that prepares has ended."""
        self.preparer.close()
        return super().run(trial, limits)


@dataclasses.dataclass(frozen=True)
class Ahead(Setup):
    """A Setup whose artifacts are built once for all stores."""

    runner: Runner = dataclasses.field(default_factory=Isolated)
    builds: list[Builds] = dataclasses.field(default_factory=list)

    def cells(self, store: Store) -> ExperimentRunner:
        """Return a runner that knows what is built."""
        cells = ExperimentRunner(store, self.limits, self.runner, here())
        self.builds[:] = self.builds or [cells.builds]
        cells.builds = self.builds[0]
        return cells


def _prepared(plants: Sequence[Plant], root: Path, remedies: bool) -> None:
    """Build the artifacts of all plants in one process; one that fails is reported when its plant runs."""
    cells = SETUP[0].cells(Store(root / "prepared"))
    trials = [trial({**p.trial, **change}) for p in plants for change in ({}, *p.sweep)]
    trials += [trial(p.remedy) for p in plants] if remedies else []
    cells.ahead([grid.pinned(one, zoo.pin) for one in trials])


def _all(
    plants: Sequence[Plant], root: Path, limits: Path | None, args: argparse.Namespace, out: Path, stop: float
) -> list[dict[str, Any]]:
    """Examine plant after plant; write the page after each."""
    rows, older, stamp = [], kept(out), run_of(facts.page({}, met=False))
    if SETUP:
        try:
            _prepared(plants, root, args.rounds > 0)
        except Exception:  # each plant then prepares its own
            traceback.print_exc()
        print(f"prepared: {stop - time.monotonic():.0f} s left", flush=True)
    for plant in plants:
        if time.monotonic() > stop:
            if plant.name not in older:
                rows.append({"plant": plant.name, "planted": plant.cause, "failed": "no time was left"})
            continue
        try:
            rows.append(examined(plant, root / plant.name.replace(" ", "-"), limits, args.rounds))
        except Exception as error:  # the other plants go on
            traceback.print_exc()
            rows.append(
                {
                    "plant": plant.name,
                    "planted": plant.cause,
                    "failed": f"{type(error).__name__}: {error}".replace(f"{planted.WORK}/", "")[:300],
                }
            )
        rows[-1]["run"] = stamp
        print(line(rows[-1]), flush=True)
        _write(out, args.device, merged(older, rows))
    _write(out, args.device, merged(older, rows))  # with the plants that no time was left for
    return merged(older, rows)


def run_of(page: dict[str, Any]) -> dict[str, Any]:
    """Return when, where and at which commit a page's rows were measured."""
    machine = page["machine"]["cpu"]["cpu"]
    return {"measured_at": page["measured_at"], "cpu": machine, **page["commit"], "command": page["command"]}


def kept(page: Path | str) -> dict[str, dict[str, Any]]:
    """Return plant -> row of a page that was written before, each with its run; none if there is no page."""
    found = facts.loaded(page)
    if not found:
        return {}
    return {row["plant"]: {"run": run_of(found), **row} for row in found["figures"]["rows"]}


def merged(older: dict[str, dict[str, Any]], rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the newest row of each plant, in the order of the plants."""
    newest = {**older, **{row["plant"]: row for row in rows}}
    return [newest[p.name] for p in (*PLANTS, *PLANTS_CUDA) if p.name in newest]


def _ceilings(device: str, root: Path) -> Path | None:
    """Measure the machine's ceilings, once for all plants; None if they cannot be."""
    try:
        return ceilings.keep(ceilings.measure(device, seconds=0.1), root, here())
    except Exception as error:
        print(f"no ceilings: {error}", file=sys.stderr)
        return None


def trial(keys: Any, replicate: int = 0) -> Trial:
    """Return the Trial of a plant's keys."""
    return Trial(**{k: v for k, v in keys.items() if not k.startswith("_")}, replicate=replicate)


def examined(plant: Plant, store: Path, limits: Path | None, rounds: int) -> dict[str, Any]:
    """Measure, explain and check one plant."""
    place, begun = Store(store), time.monotonic()
    if limits is not None:
        (store / here().id).mkdir(parents=True, exist_ok=True)
        shutil.copy(limits, roofline.kept(store, here().id, plant.device))
    with Beside(plant.beside):
        result = ran(trial(plant.trial), place)
        for change in plant.sweep:
            ran(trial({**plant.trial, **change}), place)
    diagnosis = edgescope.explain(result, store=place).diagnoses[0]
    chosen = predicted(diagnosis)
    realised, by = _realised(plant, chosen, place, rounds) if rounds else (Absent("not run"), "")
    return row(plant, diagnosis, chosen, realised, by, time.monotonic() - begun)


def _realised(plant: Plant, chosen: Remedy | None, place: Store, rounds: int) -> tuple[Field, str]:
    """Return what `realise` does; a remedy that gives wrong outputs here, or fails, has no gain."""
    try:
        return realise(plant, chosen, place, rounds)
    except RuntimeError as error:
        return Absent(str(error)), ""


def ran(wanted: Trial, place: Store) -> Result:
    """Run a trial into a store and return its Result with its rows; an error if it did not end well."""
    result = edgescope.run(wanted, store=place, setup=SETUP[0] if SETUP else Setup())
    if result.status not in MEASURED:
        raise RuntimeError(f"{wanted.label}: {result.status.value}: {result.reason}")
    return place.full(result)


def predicted(diagnosis: Diagnosis) -> Remedy | None:
    """Return the first remedy of the first cause whose gain was predicted, else the first one."""
    remedies: Sequence[Remedy] = diagnosis.findings[0].remedies if diagnosis.findings else ()
    return next((r for r in remedies if isinstance(r.gain, Measured)), next(iter(remedies), None))


def realise(plant: Plant, chosen: Remedy | None, place: Store, rounds: int) -> tuple[Field, str]:
    """Return the gain of the remedy over pairs of fresh runs, and whose remedy it was."""
    before = trial(plant.trial)
    flags = chosen is not None and bool(chosen.change)
    after = (
        Trial.from_json({**before.to_json(), **chosen.change}) if flags and chosen else trial(plant.remedy)
    )
    pairs = []
    for number in range(max(rounds, 1)):
        sides = {}
        for name in ("before", "after") if number % 2 == 0 else ("after", "before"):
            wanted = dataclasses.replace(before if name == "before" else after, replicate=50 + number)
            still = plant.beside if name == "before" or plant.beside == "server" else ""
            with Beside(still):
                sides[name] = ran(wanted, place)
        pairs.append((sides["before"], sides["after"]))
    check = checked(chosen or Remedy("the plant's own"), pairs)
    return check.realised, "explain" if flags else "plant"


def row(
    plant: Plant, diagnosis: Diagnosis, chosen: Remedy | None, realised: Field, by: str, seconds: float
) -> dict[str, Any]:
    """Return what came out of one plant."""
    first: Finding | None = diagnosis.findings[0] if diagnosis.findings else None
    right = first is not None and first.cause in (plant.cause, *plant.also)
    right = right and (not plant.part or not first or first.part in (plant.part, ""))
    others = [
        f for f in diagnosis.findings if f.cause != "contention"
    ]  # where neighbours of the benchmark ran
    aside = bool(others) and others[0].cause in (plant.cause, *plant.also)
    gain = chosen.gain.value if chosen is not None and isinstance(chosen.gain, Measured) else None
    got = realised.value if isinstance(realised, Measured) else None
    bound = chosen.bound if chosen is not None else Bound.NONE
    holds = Check(chosen, chosen.gain, realised).holds if chosen is not None and right else None
    return {
        "plant": plant.name,
        "planted": plant.cause,
        "found": first.name if first else "unknown",
        "reason": diagnosis.reason,
        "share": first.share if first else None,
        "confidence": first.confidence.value if first else None,
        "right": right,
        "right_but_for_contention": right or aside,
        "confidently_wrong": first is not None and not right and first.confidence is Confidence.CONFIRMED,
        "evidence": [e.text for e in first.evidence] if first else [],
        "next": [f.name for f in diagnosis.findings[1:]],
        "remedy": chosen.words if chosen else None,
        "basis": chosen.basis if chosen else None,
        "predicted": gain,
        "bound": bound.value,
        "realised": got,
        "realised_by": by,
        "within_20_percent": holds if bound is Bound.NONE else None,
        "bound_kept": holds if bound is not Bound.NONE else None,
        "verdict": diagnosis.result.verdict.trust.value,
        "seconds": round(seconds, 1),
    }


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the shares that the targets are about, over the plants that ran."""
    done = [r for r in rows if "failed" not in r]
    gains = [r["within_20_percent"] for r in done if r["within_20_percent"] is not None]
    bounds = [r["bound_kept"] for r in done if r.get("bound_kept") is not None]
    right = sum(r["right"] for r in done)
    return {
        "plants": len(done),
        "failed": len(rows) - len(done),
        "right": right,
        "right_but_for_contention": sum(r["right_but_for_contention"] for r in done),
        "right_share": right / len(done) if done else None,
        "confidently_wrong": sum(r["confidently_wrong"] for r in done),
        "gains_checked": len(gains),
        "gains_within_20_percent": sum(gains),
        "gains_share": sum(gains) / len(gains) if gains else None,
        "bounds": len(bounds),
        "bounds_kept": sum(bounds),
    }


def met(found: dict[str, Any]) -> bool:
    """Return whether the targets were reached."""
    enough = found["plants"] > 0 and not found["failed"] and found["confidently_wrong"] == 0
    bounds = found["bounds_kept"] >= BOUNDS * found["bounds"]
    return enough and bounds and found["right_share"] >= RIGHT and (found["gains_share"] or 0.0) >= GAINS


def line(found: dict[str, Any]) -> str:
    """Return one plant in one line."""
    if "failed" in found:
        return f"{found['plant']:36} {found['planted']:20} FAILED {found['failed']}"
    gain, got = found["predicted"], found["realised"]
    said = "-" if gain is None else f"{found.get('bound', '')} {gain:.2f}".strip()
    text = f"{said:>14} {'-' if got is None else f'{got:.2f}':>6}"
    mark = (
        "ok"
        if found["right"]
        else "(c"
        if found["right_but_for_contention"]
        else "XX"
        if found["confidently_wrong"]
        else "no"
    )
    sure = found["confidence"] or ""
    names = f"{mark} {found['plant']:33} {found['planted']:20} {found['found']:28} {sure:10}"
    return f"{names} {text} {found['seconds']:5.0f} s"


def _write(out: Path | str, device: str, rows: list[dict[str, Any]]) -> None:
    figures = {"device": device, **summary(rows), "rows": rows}
    if isinstance(out, Path):
        out.write_text(json.dumps(facts.page(figures, met=met(figures)), indent=1))
    else:
        facts.write(out, figures, met=met(figures))


if __name__ == "__main__":
    main()
