"""Which setting of a training run to change: what each could gain by the parts of one measured run.

Settings of the loader are predicted from the run alone. Settings of the device (threads, precision, layout, batch) are
tried on a minibatch that is held in memory, and only those whose best case could beat what is known already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from edgescope.records import Measured, Result, Scalar, Status, Trial
from edgescope.wings.training import prediction as model
from edgescope.wings.training.prediction import Facts

GOOD = (Status.OK, Status.UNSTABLE)
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
            after = model.with_workers(facts, workers)
            yield Change(
                "num_workers",
                workers,
                changed(trial, num_workers=workers, persistent_workers=after.persistent),
                model.gain(facts, after),
                f"loading a minibatch takes {_ms(facts.load)} and would run beside the step's {_ms(facts.device)}",
            )
    if facts.workers and not facts.persistent and facts.steps:
        yield Change(
            "persistent_workers",
            True,
            changed(trial, persistent_workers=True),
            model.gain(facts, replace(facts, persistent=True)),
            f"workers start and end in every epoch of {facts.steps} steps: {_ms(facts.start)}",
        )
    smooth = replace(facts, notes={"smooth": True}, prefetch=4 * facts.prefetch)
    if facts.workers and facts.step > BURSTS * facts.seconds():
        yield Change(
            "prefetch_factor",
            smooth.prefetch,
            changed(trial, prefetch_factor=smooth.prefetch),
            model.gain(facts, smooth),
            "loading keeps up on average, and yet the device waits: some minibatches take much longer than others",
        )
    if draft is not None and trial.workload_options.get("decode", "full") == "full":
        yield Change(
            "decode",
            "draft",
            changed(trial, decode="draft"),
            model.gain(facts, model.without(facts, "decode", draft)),
            f"decoding takes {_ms(facts.work.get('decode', 0.0))} of a minibatch, {draft:.0%} of it at a smaller scale",
            "pictures are scaled by the decoder where they would be scaled anyhow",
        )
    if fits and facts.work.get("read") and not trial.workload_options.get("preload"):
        yield Change(
            "preload",
            True,
            changed(trial, preload=True),
            model.gain(facts, model.without(facts, "read")),
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
    if model.gain(facts, replace(facts, device=1e-9, device_cpu=0.0)) <= max(best, WORTH):
        return
    held = held_of(trial)
    more = 4 * round(facts.samples)
    yield Probe("batch", more, replace(held, batch=more), "other updates of the weights: tune the rate")
    now = int(trial.options.get("threads", 0) or 0)
    crowded = now > facts.cores  # threads that take turns on a core wait for each other
    if trial.device == "cpu" and not crowded and facts.device_cpu < COMPUTES * facts.device:
        return  # the step waits, and waits no less with other arithmetic
    if trial.device == "cpu":
        for threads in sorted({1, facts.cores} - {now}):
            yield Probe("threads", threads, replace(held, options={**trial.options, "threads": threads}))
    if trial.device == "cuda" and trial.io == "host":
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
    after = model.on_device(facts, before, now, samples)
    options = {**trial.options, knob: value} if knob in ("threads", "layout") else trial.options
    fields: dict[str, Any] = {knob: value} if knob in ("batch", "precision", "io") else {}
    return Change(
        knob,
        value,
        replace(trial, options=options, **fields),
        model.gain(facts, after),
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
