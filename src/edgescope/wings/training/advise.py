"""Name the bottleneck of a training run, the setting to change and what it gains: `edgescope.train_advise(model)`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgescope import registry, units
from edgescope.analysis.run import epochs
from edgescope.errors import UnavailableError
from edgescope.models import zoo
from edgescope.records import Absent, Answer, Field, Json, Measured, Result, Trial
from edgescope.records.answers import plain
from edgescope.runner.setup import Setup, Stored, store_of
from edgescope.search.loop import InOrder
from edgescope.stats import paired_log_ratio
from edgescope.study import grid
from edgescope.wings.training import prediction as model_of
from edgescope.wings.training import search as advice
from edgescope.wings.training.prediction import Facts
from edgescope.wings.training.search import GOOD, WORTH, Change

WINDOW: Mapping[str, float] = {"warmup": 0.0, "min_s": 4.0, "max_s": 4.0}
"""Seconds of each run; epochs that end within them count as a whole."""
PAIRS = 3
"""Pairs of runs, one with the setting and one without, in turns."""
MEMORY = 0.25
"""Share of the free memory that preloaded files may take."""
BOTTLENECK = {
    "read": "reading the files",
    "decode": "decoding the pictures",
    "augment": "augmenting the samples",
    "item": "making the samples",
    "collate": "joining samples to minibatches",
    "handover": "waiting for workers that start, end or hand over",
    "h2d": "copying minibatches to the device",
    "forward": "the forward pass",
    "backward": "the backward pass",
    "optimizer": "the optimizer",
    "other": "what lies between the steps",
}


@dataclass(frozen=True, repr=False)
class TrainingAdvice(Answer):
    """What slows a training run down, and what to change."""

    trial: Trial
    facts: Facts
    bottleneck: str
    """The stage of the loader or the part of the step that takes most of the device's time."""
    share: float
    """Its share of a step."""
    changes: tuple[Change, ...]
    """Every change that was considered, in the order in which to make them."""
    realised: Field
    """What the first change gained when it was measured, with its interval over pairs of runs."""
    results: tuple[Result, ...]

    @property
    def pick(self) -> Change | None:
        """Return the setting to change; None if none is worth it."""
        return self.changes[0] if self.changes and self.changes[0].gain >= WORTH else None

    def lines(self) -> Iterator[str]:
        """Yield the bottleneck, the setting to change with its gain, then the other settings."""
        words = BOTTLENECK[self.bottleneck]
        yield f"bottleneck: {words}, {self.share:.0%} of a step of {self.facts.step * 1e3:.3g} ms"
        if self.pick is None:
            yield f"no setting promises more than {WORTH - 1:.0%}"
        else:
            realised = self.realised
            measured = f"; measured {units.ratio(realised)}" if isinstance(realised, Measured) else ""
            yield f"change: {self.pick.setting}: predicted {self.pick.gain:.2f}x{measured}"
            yield f"  {self.pick.why}{f' ({self.pick.caution})' if self.pick.caution else ''}"
            if isinstance(realised, Absent):
                yield f"  not verified: {realised.reason}"
        for change in self.changes[bool(self.pick) :]:
            yield f"  {change.setting}: predicted {change.gain:.2f}x"

    def records(self) -> list[dict[str, Json]]:
        """Return one row for each change that was considered."""
        return [
            {
                "knob": change.knob,
                "value": change.value,
                "predicted_gain": change.gain,
                "realised_gain": plain(self.realised) if change is self.pick else None,
                "why": change.why,
                "caution": change.caution,
            }
            for change in self.changes
        ]


def train_advise(
    model: str, *, verify: bool = True, store: Stored = None, setup: Setup = Setup(), **trial: Any
) -> TrainingAdvice:
    """Measure a training run, name its bottleneck and the setting to change, and measure what the change gains.

    Every key but the named ones is a key of Trial. UnavailableError if the run as it is fails.
    """
    runs = InOrder(setup.cells(store_of(store)), setup.tell)
    asked = grid.pinned(Trial(model=model, workload="training", **{**WINDOW, **trial}), zoo.pin)
    base = runs.run("as it is", asked)
    if base.status not in GOOD:
        raise UnavailableError(
            "E-ADVISE-1",
            "the run that advice is wanted for did not finish",
            evidence=str(base.reason),
            effect="There is nothing to improve",
            fix=f"edgescope bench {model} --workload training",
        )
    facts = model_of.facts(base, len(os.sched_getaffinity(0)))
    draft, fits = files_of(asked)
    changes = list(advice.of_loader(asked, facts, draft=draft, fits=fits))
    results = [base]
    best = max((change.gain for change in changes), default=1.0)
    tried = list(advice.probes(asked, facts, best))
    if tried:
        follow = [*(probe.trial for probe in tried), *(_pairs(asked, asked) if verify else ())]
        held = runs.run("on a held minibatch", advice.held_of(asked), follow)
        for number, probe in enumerate(tried, start=1):
            found = runs.run("on a held minibatch", probe.trial, follow[number:])
            results += [held, found]
            change = advice.of_device(asked, facts, probe, held, found)
            changes += [change] if change is not None else []
    part, share = _bottleneck(base)
    answer = TrainingAdvice(
        asked, facts, part, share, advice.ranked(changes), Absent("not asked for"), tuple(results)
    )
    return replace(answer, realised=_verified(runs, answer)) if verify and answer.pick else answer


def _verified(runs: InOrder, answer: TrainingAdvice) -> Field:
    """Return the gain of the pick over pairs of fresh processes, in turns."""
    assert answer.pick is not None
    trials = _pairs(answer.trial, answer.pick.trial)
    rates: tuple[list[float], list[float]] = ([], [])
    for number, trial in enumerate(trials, start=1):
        result = runs.run("verifying", trial, trials[number:])
        if result.status not in GOOD:
            return Absent(f"a run failed: {result.reason}")
        changed = trial == replace(answer.pick.trial, replicate=trial.replicate)
        rates[changed].append(rate_of(result))
    return paired_log_ratio(rates[True], rates[False]).measured("ratio")


def _pairs(before: Trial, after: Trial) -> list[Trial]:
    """Return both trials PAIRS times, as neighbours; which of them is first alternates."""
    orders = ((after, before), (before, after))
    return [replace(trial, replicate=n) for n in range(1, PAIRS + 1) for trial in orders[n % 2]]


def rate_of(result: Result) -> float:
    """Return samples a second over the epochs that ended in a run, or over all of it."""
    found = model_of.facts(result, 1)
    return found.samples / found.step


def _bottleneck(base: Result) -> tuple[str, float]:
    """Return what takes most of the device's time, and its share of a step."""
    assert base.spans is not None
    spent = dict.fromkeys(BOTTLENECK, 0.0)
    wall = 0.0
    for begin, end in model_of.steady(base):
        found = epochs.anatomy(base.spans, begin, end)
        wall += found.wall
        for name, seconds in {**found.parts, **found.stall}.items():
            if name in spent:
                spent[name] += seconds
    worst = max(spent, key=spent.__getitem__)
    return worst, spent[worst] / wall


def files_of(trial: Trial) -> tuple[float | None, bool]:
    """Return what share of the decoding time is left at a smaller scale, and whether the files fit into memory."""
    folder = str(trial.workload_options.get("images", ""))
    if not folder or (Path(folder) / "images.npy").exists():
        return None, False
    shape = zoo.get(trial.model).inputs[0].shape
    share = registry.need(
        "edgescope.wings.training.data_sets:draft_share", "training", "pip install 'edgescope[torch]'"
    )
    found: tuple[float, int] = share(Path(folder), shape)
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return found[0], found[1] < MEMORY * free
