"""The ladder as trials: what each level changes, which changes are kept, what is still to be measured.

A level is measured to decide whether its change is kept: a change that loses is shown as losing, and the next level
builds on the last one that did not. Where the first look decides nothing, the level takes turns with the one below,
because a level that is wrongly left out is missing from all that follow. Then all levels are measured in rounds of
fresh processes, whose ratios are paired within a round. Everything follows from the results, so a ladder that was
interrupted goes on from a store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from edgescope.records import Machine, Measured, Result, Status, Trial
from edgescope.wings.studies.paper import Paper

ROUNDS = 3
"""Rounds of all levels after the first look."""
DOUBT = 1.3
"""A first look that differs by less than this factor from that of the level below decides nothing."""
PAIRS = 2
"""Runs of such a level in turns with the level below."""
IN_TURNS = 101
"""The replicate of the first of all pairs; those of the rounds begin at 1. Each level has its own: a run of the level
below that is minutes old is no turn."""
ON_HOST, ELSEWHERE = (1, 2, 4, 8), (1, 4, 8, 16, 32, 64, 128)
"""The batches that are tried."""
ENOUGH = 0.95
"""Inference no longer gains from a batch that brings less than 1 / ENOUGH."""
GOOD = (Status.OK, Status.UNSTABLE)
TIMES: Mapping[str, Any] = {"warmup": 0.5, "min_s": 1.0, "max_s": 2.0}


@dataclass(frozen=True)
class Level:
    """One level of the ladder, as paper.toml says it."""

    number: int
    title: str
    says: str
    changes: Mapping[str, Any]
    stays: str = ""
    """Why it changes nothing on this device; '' if it does."""
    batch: bool = False
    """Whether its batch is the one at which inference stops gaining."""
    printed: Mapping[str, float] = field(default_factory=dict)
    """Board -> frames per second, as published."""


@dataclass
class Rung:
    """What was measured of one level."""

    level: Level
    trial: Trial | None = None
    """None if the level changes nothing here."""
    look: Result | None = None
    """Its first run, which also says what each stage costs."""
    rounds: list[Result] = field(default_factory=list)
    kept: bool = False
    """Whether the next levels build on it."""
    over: int | None = None
    """The number of the level that it is compared with."""

    @property
    def good(self) -> bool:
        """Return whether it ran and found what a plain loop finds."""
        return self.look is not None and self.look.status in GOOD

    @property
    def fps(self) -> list[float]:
        """Return the frames per second of each round."""
        return [rate for result in self.rounds if (rate := rate_of(result)) is not None]


@dataclass
class Climbed:
    """The ladder as far as it was measured."""

    rungs: list[Rung] = field(default_factory=list)
    batches: dict[int, float] = field(default_factory=dict)
    """Batch -> samples per second of inference alone."""
    knee: int | None = None
    """The batch at which inference stops gaining."""
    wants: Trial | None = None
    """What is to be measured next; None if the ladder is complete."""

    @property
    def kept(self) -> list[Rung]:
        """Return the levels that the top is made of."""
        return [rung for rung in self.rungs if rung.kept]


def is_jetson(machine: Machine | None) -> bool:
    """Return whether a machine is a Jetson, whose GPU's decoder is reached through GStreamer."""
    return machine is not None and "jetson" in machine.stable


def levels(paper: Paper, device: str, *, jetson: bool = False) -> list[Level]:
    """Return the levels for a device, cpu or cuda, as they are on a Jetson or elsewhere."""
    named = f"{device}_jetson" if jetson else device
    return [
        Level(
            number,
            row["title"],
            row["says"],
            row.get(named, row.get(device, {})),
            row.get(f"stays_{device}", ""),
            row.get("batch", False),
            {board: row[key] for board, key in BOARDS.items() if key in row},
        )
        for number, row in enumerate(paper.page["level"])
    ]


BOARDS = {"Nano": "nano_fps", "desktop": "desktop_fps"}
Known = Callable[[Trial], Result | None]


def climb(
    steps: list[Level],
    model: str,
    device: str,
    source: str,
    known: Known,
    *,
    rounds: int = ROUNDS,
    ends: bool = False,
) -> Climbed:
    """Return the ladder of a model over a film, as far as `known` has results.

    `ends`: the rounds are those of the first level and the top alone.
    """
    found = Climbed()
    film = {"source": source} if source else {}
    below: Rung | None = None
    for level in steps:
        rung = Rung(level)
        found.rungs.append(rung)
        if level.stays:
            continue
        start = (
            Trial(model=model, device=device, workload="video", workload_options=film, **TIMES)
            if below is None
            else below.trial
        )
        assert start is not None
        rung.trial = changed(start, level.changes, source)
        rung.over = None if below is None else below.level.number
        if level.batch:
            rung.trial = _batched(found, rung.trial, known)
            if rung.trial is None or rung.trial == start:
                rung.level = replace(
                    level, stays="" if found.wants else "inference gains nothing from a batch"
                )
                if found.wants:
                    return found
                rung.trial = None
                continue
        rung.look = known(looked(rung.trial))
        if rung.look is None:
            found.wants = looked(rung.trial)
            return found
        rung.kept = rung.good and (below is None or _faster(found, rung, below, known))
        if found.wants:
            return found
        if below is None and not rung.good:
            return found
        below = rung if rung.kept else below
    _rounds(found, known, rounds, [found.rungs[0], found.kept[-1]] if ends else found.rungs)
    return found


def looked(trial: Trial) -> Trial:
    """Return the trial of a first look, which also measures what each stage costs."""
    return replace(trial, workload_options={**trial.workload_options, "what_if": True})


def changed(trial: Trial, changes: Mapping[str, Any], source: str) -> Trial:
    """Return a trial with the fields that a level changes; its tables are merged."""
    fields: dict[str, Any] = {
        name: {k: v for k, v in {**getattr(trial, name), **_filled(value, source)}.items() if v != ""}
        if isinstance(value, Mapping)
        else value
        for name, value in changes.items()
    }
    return replace(trial, **fields)


def _filled(table: Mapping[str, Any], source: str) -> dict[str, Any]:
    return {k: v.replace("{source}", source) if isinstance(v, str) else v for k, v in table.items()}


def _batched(found: Climbed, trial: Trial, known: Known) -> Trial | None:
    """Return the trial with the batch at which inference stops gaining; None if that is still to be measured."""
    plain = replace(trial, workload="inference", workload_options={}, min_s=0.5, max_s=1.0)
    for batch in ON_HOST if trial.place.is_host else ELSEWHERE:
        if (rate := _best(found, replace(plain, batch=batch), known)) is None:
            break
        found.batches[batch] = rate
        if len(found.batches) > 2 and rate <= min(list(found.batches.values())[-3:-1]):
            break  # it only loses from here
    if found.wants:
        return None
    most = max(found.batches.values(), default=0.0)
    found.knee = next((b for b, rate in found.batches.items() if rate >= ENOUGH * most), 1)
    return replace(trial, batch=found.knee)


def _best(found: Climbed, trial: Trial, known: Known) -> float | None:
    """Return the better rate of two runs, because a neighbour only slows; None if it has none or is still wanted."""
    rates = []
    for number in range(2):
        asked = replace(trial, replicate=number)
        result = known(asked)
        if result is None:
            found.wants = asked
            return None
        rates.append(rate_of(result) if result.status in GOOD else None)
    return max((rate for rate in rates if rate is not None), default=None)


def _rounds(found: Climbed, known: Known, rounds: int, of: list[Rung]) -> None:
    for number in range(1, rounds + 1):
        for rung in of:
            if rung.trial is None or not rung.good:
                continue
            asked = replace(rung.trial, replicate=number)
            result = known(asked)
            if result is None:
                found.wants = found.wants or asked
            elif result.status in GOOD:
                rung.rounds.append(result)


def rate_of(result: Result) -> float | None:
    """Return samples per second, or None if it has none."""
    rate = result.metrics.get("throughput_sps")
    return rate.value if isinstance(rate, Measured) else None


def _faster(found: Climbed, rung: Rung, below: Rung, known: Known) -> bool:
    """Return whether a level is no slower than the one below; False, too, while a run is wanted to tell."""
    assert (
        rung.look is not None
        and below.look is not None
        and rung.trial is not None
        and below.trial is not None
    )
    ratio = _ratio(below.look, rung.look)
    steady = all(each.look is not None and each.look.status is Status.OK for each in (rung, below))
    if ratio is None or (steady and not 1 / DOUBT < ratio < DOUBT):
        return ratio is not None and ratio >= 1
    ratios = [ratio]
    first = IN_TURNS + PAIRS * rung.level.number
    for number in range(first, first + PAIRS):
        pair = []
        for trial in (below.trial, rung.trial):
            asked = replace(trial, replicate=number)
            if (result := known(asked)) is None:
                found.wants = asked
                return False
            pair.append(result)
        ratios += [again for again in [_ratio(*pair)] if again is not None]
    return median(ratios) >= 1


def _ratio(below: Result, above: Result) -> float | None:
    """Return the rate of one result over that of another; None if either has none."""
    old, new = rate_of(below), rate_of(above)
    return new / old if new is not None and old else None
