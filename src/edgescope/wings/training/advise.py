"""Name the bottleneck of a training run, the setting to change and what it gains: `edgescope.train_advise(model)`.

Settings of the loader are predicted from the run alone. Settings of the device (threads, precision, layout, batch) are
tried on a minibatch that is held in memory, and only those whose best case could beat what is known already.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgescope import registry, units
from edgescope.analysis.cells.variants import worst_verdict
from edgescope.errors import UnavailableError
from edgescope.models import zoo
from edgescope.records import Absent, Answer, Field, Json, Measured, Result, Scalar, Status, Trial, Verdict
from edgescope.records.answers import plain
from edgescope.runner.setup import Setup, Stored, store_of
from edgescope.search.loop import InOrder
from edgescope.stats import paired_log_ratio
from edgescope.study import grid
from edgescope.wings.training import epochs
from edgescope.wings.training import prediction as model_of
from edgescope.wings.training.prediction import Facts

GOOD = (Status.OK, Status.UNSTABLE)
SAID = 1.005
"""Least gain that is said at all: what rounds to 1.00x is no suggestion."""
OFF = 0.3
"""Share of the predicted gain by which a measured one without an interval may differ without a remark."""
WORTH = 1.03
"""Least gain that is worth a change."""
ALIKE = 1.2
"""Predicted gains within this factor of each other may be in another order when they are measured."""
BURSTS = 1.15
"""A stall of more than this over what the parts explain comes from minibatches that take unequally long."""
COMPUTES = 0.5
"""Least share of a step on a CPU that it computes if its arithmetic matters."""
HELD: dict[str, Any] = {"warmup": 0.3, "min_s": 0.8, "max_s": 1.2}


@dataclass(frozen=True)
class Change:
    """One setting to change."""

    knob: str
    """The name of the option or field."""
    value: Scalar
    trial: Trial
    gain: float
    """Predicted ratio of samples a second."""
    why: str
    caution: str = ""
    """What else it changes; '' if nothing."""

    @property
    def setting(self) -> str:
        """Return the change as it is typed on a command line."""
        value = str(self.value).lower() if isinstance(self.value, bool) else str(self.value)
        flag = FLAGS.get(self.knob, "--workload-option")
        return (
            f"{flag} {value}" if flag in ("--batch", "--precision", "--io") else f"{flag} {self.knob}={value}"
        )


FLAGS = {
    "batch": "--batch",
    "precision": "--precision",
    "threads": "--option",
    "layout": "--option",
    "io": "--io",
}


def changed(trial: Trial, **options: Scalar) -> Trial:
    """Return the trial with other options of its workload."""
    return replace(trial, workload_options={**trial.workload_options, **options})


def of_loader(trial: Trial, facts: Facts, *, draft: float | None, fits: bool) -> Iterator[Change]:
    """Yield the changes of the loader with what they would gain.

    `draft` is the share of the decoding time that is left if the decoder scales, None if there is no JPEG file; `fits`
    says whether the files' bytes fit into memory.
    """
    for workers in sorted({1, 2, 4, facts.cores} - {facts.workers}):
        if workers > facts.workers and facts.load > 0:
            after = model_of.with_workers(facts, workers)
            yield Change(
                "num_workers",
                workers,
                changed(trial, num_workers=workers, persistent_workers=after.persistent),
                model_of.gain(facts, after),
                f"loading a minibatch takes {_ms(facts.load)} and would run beside the step's {_ms(facts.device)}",
            )
    if facts.workers and not facts.persistent and facts.steps:
        yield Change(
            "persistent_workers",
            True,
            changed(trial, persistent_workers=True),
            model_of.gain(facts, replace(facts, persistent=True)),
            f"workers start and end in every epoch of {facts.steps} steps: {_ms(facts.start)}",
        )
    smooth = replace(facts, notes={"smooth": True}, prefetch=4 * facts.prefetch)
    if facts.workers and facts.step > BURSTS * facts.seconds():
        yield Change(
            "prefetch_factor",
            smooth.prefetch,
            changed(trial, prefetch_factor=smooth.prefetch),
            model_of.gain(facts, smooth),
            "loading keeps up on average, and yet the device waits: some minibatches take much longer than others",
        )
    if draft is not None and trial.workload_options.get("decode", "full") == "full":
        yield Change(
            "decode",
            "draft",
            changed(trial, decode="draft"),
            model_of.gain(facts, model_of.without(facts, "decode", draft)),
            f"decoding takes {_ms(facts.work.get('decode', 0.0))} of a minibatch, {draft:.0%} of it at a smaller scale",
            "pictures are scaled by the decoder where they would be scaled anyhow",
        )
    if fits and facts.work.get("read") and not trial.workload_options.get("preload"):
        yield Change(
            "preload",
            True,
            changed(trial, preload=True),
            model_of.gain(facts, model_of.without(facts, "read")),
            f"reading takes {_ms(facts.work['read'])} of a minibatch",
            "the files are held in memory",
        )


def ranked(changes: Iterable[Change]) -> tuple[Change, ...]:
    """Return changes in the order in which to make them: the largest gain first.

    Of gains that are alike, those come first that change nothing else: another minibatch or precision trains otherwise.
    """
    every = sorted(changes, key=lambda change: -change.gain)
    least = max(WORTH, every[0].gain / ALIKE) if every else WORTH
    return tuple(sorted(every, key=lambda change: bool(change.caution) or change.gain < least))


@dataclass(frozen=True)
class Probe:
    """A setting of the device, to be tried on a held minibatch."""

    knob: str
    value: Scalar
    trial: Trial
    caution: str = ""


def probes(trial: Trial, facts: Facts, best: float) -> Iterator[Probe]:
    """Yield what is worth trying on a held minibatch; nothing if no device could beat the gain `best`."""
    if model_of.gain(facts, replace(facts, device=1e-9, device_cpu=0.0)) <= max(best, WORTH):
        return
    held = held_of(trial)
    more = 4 * round(facts.samples)
    yield Probe("batch", more, replace(held, batch=more), "other updates of the weights: tune the rate")
    now = int(trial.options.get("threads", 0) or 0)
    crowded = now > facts.cores  # threads that take turns on a core wait for each other
    if trial.place.is_host and not crowded and facts.device_cpu < COMPUTES * facts.device:
        return  # the step waits, and waits no less with other arithmetic
    if trial.place.is_host:
        for threads in sorted({1, facts.cores} - {now}):
            yield Probe("threads", threads, replace(held, options={**trial.options, "threads": threads}))
    if trial.place.own_memory and trial.io == "host":
        yield Probe("io", "pinned", replace(held, io="pinned"))
    if trial.options.get("layout") != "channels_last":
        options = {**trial.options, "layout": "channels_last"}
        yield Probe("layout", "channels_last", replace(held, options=options))
    if trial.precision == "fp32":
        differs = "losses differ from fp32 in the third digit"
        yield Probe("precision", "bf16", replace(held, precision="bf16"), differs)


def held_of(trial: Trial) -> Trial:
    """Return the trial on a minibatch that is held in memory."""
    return replace(changed(trial, held=True), **HELD)


def of_device(trial: Trial, facts: Facts, probe: Probe, held: Result, found: Result) -> Change | None:
    """Return the change that a probe speaks for, against the held minibatch as it is; None if either run failed."""
    before, now = (step_of(result) for result in (held, found))
    if before is None or now is None:
        return None
    knob, value = probe.knob, probe.value
    samples = float(value) if knob == "batch" else facts.samples
    after = model_of.on_device(facts, before, now, samples)
    options = {**trial.options, knob: value} if knob in ("threads", "layout") else trial.options
    fields: dict[str, Any] = {knob: value} if knob in ("batch", "precision", "io") else {}
    return Change(
        knob,
        value,
        replace(trial, options=options, **fields),
        model_of.gain(facts, after),
        f"a step on a held minibatch takes {_ms(now)} instead of {_ms(before)}"
        + (f", for {samples / facts.samples:g} times the samples" if knob == "batch" else ""),
        probe.caution,
    )


def step_of(result: Result) -> float | None:
    """Return the median seconds of a step on a held minibatch; None if the run failed."""
    found = result.metrics.get("latency_p50_s")
    return found.value if result.status in GOOD and isinstance(found, Measured) else None


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


# -- measured ------------------------------------------------------------------------------------------------


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
            yield f"change: {self.pick.setting}: predicted {self.pick.gain:.2f}x"
            yield f"  {self.pick.why}{f' ({self.pick.caution})' if self.pick.caution else ''}"
            yield from (f"  {line}" for line in self._verification())
        for change in self.changes[bool(self.pick) :]:
            if change.gain >= SAID:
                yield f"  {change.setting}: predicted {change.gain:.2f}x"
        yield f"verdict: {self.verdict.trust.value}"

    def details(self) -> Iterator[str]:
        """Yield the evidence of the verdict, and the changes that gain nothing."""
        yield from (f"  {text}" for text in self.verdict.evidence)
        for change in self.changes[bool(self.pick) :]:
            if change.gain < SAID:
                yield f"  gains nothing: {change.setting}: predicted {change.gain:.2f}x"

    @property
    def verdict(self) -> Verdict:
        """Return the worst verdict of all runs that the advice is from."""
        return worst_verdict(self.results)

    def _verification(self) -> Iterator[str]:
        """Yield what the change gained when it was measured, how sure that is, and whether the prediction was off."""
        realised = self.realised
        if isinstance(realised, Absent):
            yield f"not verified: {realised.reason}"
            return
        bounds = "" if realised.lo is not None else "; no interval: too few pairs, or too far apart"
        yield f"measured {units.ratio(realised)}, {units.counted(realised.n, 'pair')}{bounds}"
        if self.mispredicted:
            yield "the prediction is off: trust the measured gain, and the other predictions less"

    @property
    def mispredicted(self) -> bool:
        """Return whether the predicted gain lies outside the measured interval, or without one more than OFF away."""
        realised, pick = self.realised, self.pick
        if pick is None or isinstance(realised, Absent):
            return False
        if realised.lo is None or realised.hi is None:
            return abs(realised.value / pick.gain - 1) > OFF
        return not realised.lo <= pick.gain <= realised.hi

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
            fix=f"edgescope bench {shlex.quote(model)} --workload training",
        )
    facts = model_of.facts(base, len(os.sched_getaffinity(0)))
    draft, fits = files_of(asked)
    changes = list(of_loader(asked, facts, draft=draft, fits=fits))
    results = [base]
    best = max((change.gain for change in changes), default=1.0)
    tried = list(probes(asked, facts, best))
    if tried:
        follow = [*(probe.trial for probe in tried), *(_pairs(asked, asked) if verify else ())]
        held = runs.run("on a held minibatch", held_of(asked), follow)
        for number, probe in enumerate(tried, start=1):
            found = runs.run("on a held minibatch", probe.trial, follow[number:])
            results += [held, found]
            change = of_device(asked, facts, probe, held, found)
            changes += [change] if change is not None else []
    part, share = _bottleneck(base)
    answer = TrainingAdvice(
        asked, facts, part, share, ranked(changes), Absent("not asked for"), tuple(results)
    )
    return _verified(runs, answer) if verify and answer.pick else answer


def _verified(runs: InOrder, answer: TrainingAdvice) -> TrainingAdvice:
    """Return the advice with the gain of its pick over pairs of fresh processes, in turns, and with their runs."""
    assert answer.pick is not None
    results: list[Result] = []
    trials = _pairs(answer.trial, answer.pick.trial)
    rates: tuple[list[float], list[float]] = ([], [])
    for number, trial in enumerate(trials, start=1):
        result = runs.run("verifying", trial, trials[number:])
        if result.status not in GOOD:
            failed = Absent(f"a run failed: {result.reason}")
            return replace(answer, realised=failed, results=(*answer.results, *results))
        results.append(result)
        changed = trial == replace(answer.pick.trial, replicate=trial.replicate)
        rates[changed].append(rate_of(result))
    realised = paired_log_ratio(rates[True], rates[False]).measured("ratio")
    return replace(answer, realised=realised, results=(*answer.results, *results))


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
