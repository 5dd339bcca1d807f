"""Propose what to try for a model on a device: engines x precisions x layouts x graph capture.

Each backend lists its candidates (About.CANDIDATES): the variants that people try by hand. The first
candidate is the baseline, PyTorch as it is. A candidate that cannot run here (its engine is not installed or
lacks an option) is listed with the reason and never measured.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from edgescope import registry
from edgescope.analysis.cells.alternation import same_load
from edgescope.artifacts.for_precision import DYNAMIC_OPTIONS
from edgescope.errors import UnavailableError, UsageError, closest_name
from edgescope.models import zoo
from edgescope.records import Scalar, Trial

Options = dict[str, Scalar]


@dataclass(frozen=True)
class Candidate:
    """One engine, precision and set of options."""

    backend: str
    precision: str
    options: Options = field(default_factory=dict)

    def is_any(self, backend: Collection[str], precision: Collection[str]) -> bool:
        """Return whether its engine and precision are in these lists; an empty list allows all."""
        return (not backend or self.backend in backend) and (not precision or self.precision in precision)

    def has(self, table: Mapping[str, Scalar]) -> bool:
        """Return whether it has every value of the table: `backend`, `precision`, and options by name."""
        mine = {**self.options, "backend": self.backend, "precision": self.precision}
        return all(name in mine and mine[name] == value for name, value in table.items())

    @property
    def label(self) -> str:
        """Return `torch_eager fp16 graph=true layout=channels_last`."""
        options = sorted(f"{k}={str(v).lower()}" for k, v in self.options.items())
        return " ".join((self.backend, self.precision, *options))


def of_device(device: str) -> tuple[Candidate, ...]:
    """Return the candidates of every backend on a device, in the registry's order."""
    return tuple(
        Candidate(name, precision, dict(options))
        for name in registry.BACKENDS
        for precision, options in registry.facts(name).CANDIDATES.get(device, ())
    )


def as_written(candidates: Sequence[Candidate], model: str) -> tuple[Candidate, ...]:
    """Return the candidates for a model: of a file that is quantised or 16-bit already one an engine and setting.

    It is run as it is; what makes int8 or fp16 of an fp32 network has nothing to work on.
    """
    if zoo.precision(model, Trial.precision) != "as_is":
        return tuple(candidates)
    found: list[Candidate] = []
    for c in candidates:
        plain = {name: value for name, value in c.options.items() if name not in DYNAMIC_OPTIONS}
        each = Candidate(c.backend, "as_is", plain)
        if "onnx" in registry.facts(c.backend).READS and each not in found:
            found.append(each)
    return tuple(found)


@dataclass(frozen=True)
class Installed:
    """Whether a backend can be loaded here and its options; if it cannot, the reason and the fix."""

    available: bool
    options: Collection[str] = ()
    reason: str = ""
    fix: str = ""
    without: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Device -> reason and fix, of the devices on which it does not work here."""


WINDOW = {"min_s": 1.0, "max_s": 2.5}
"""Seconds measured in a search for a variant, at least and at most, unless the trial says them."""
KEYS = ("available", "options", "reason", "fix", "without")
"""The keys of a row of `edgescope backends --json` that make an Installed, in its order."""


def installed() -> Mapping[str, Installed]:
    """Return the rows of `edgescope backends`, run in its own process: engines are large and may crash.

    While a board is driven, those that it can run.
    """
    return _installed(os.environ.get(registry.ON, ""))


@functools.cache
def _installed(on: str) -> Mapping[str, Installed]:
    if on:
        rows = registry.need(registry.BOARD_ENGINES, "a board over ssh", registry.REINSTALL)(on)
    else:
        command = [sys.executable, "-medgescope", "backends", "--json"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
        rows = json.loads(done.stdout) if done.returncode == 0 else []
    return {row["name"]: Installed(*(row[k] for k in KEYS)) for row in rows}


@dataclass(frozen=True)
class NotHere:
    """A candidate that is not measured, and why."""

    label: str
    reason: str
    fix: str = ""


@dataclass(frozen=True)
class Proposal:
    """The trials to compare, baseline first, and the candidates that cannot run here."""

    trials: tuple[Trial, ...]
    not_here: tuple[NotHere, ...] = ()

    def possible(self) -> Proposal:
        """Return itself; UnavailableError if no candidate can run here."""
        if self.trials:
            return self
        labels: dict[str, list[str]] = {}
        for one in self.not_here:
            labels.setdefault(one.reason, []).append(one.label)
        missing = "; ".join(f"{', '.join(those)}: {why}" for why, those in labels.items())
        what = (
            "no engine there can run this model"
            if os.environ.get(registry.ON)
            else "no engine on this machine can run this model"
        )
        raise UnavailableError("E-TRY-2", what, evidence=missing, fix="edgescope backends")


def usual_device(model: str) -> str:
    """Return the default device for a model: cpu for a model that only LiteRT runs."""
    return "cpu" if reads_tflite_only(model) else device()


def device() -> str:
    """Return the first place that a device here senses and that has candidates, else cpu; imports no engine."""
    return next((name for name in registry.PLACES if _sensed(name) and of_device(name)), Trial.device)


def _sensed(place: str) -> bool:
    """Return whether one of the devices that sense a place is here."""
    known = (name for name in registry.place(place).sensors if name in registry.installed(registry.DEVICES))
    return any(not registry.load(registry.DEVICES, name, "device")().present() for name in known)


def starts_slowly(trial: Trial) -> bool:
    """Return whether every start of this trial compiles the model."""
    return registry.facts(trial.backend).SLOW_START


def propose(
    base: Trial,
    installed: Mapping[str, Installed] | None = None,
    *,
    backend: Sequence[str] = (),
    precision: Sequence[str] = (),
    exclude: Sequence[Mapping[str, Scalar]] = (),
    piled: bool = False,
) -> Proposal:
    """Return the trials to compare for `base` on its device; options of `base` go to every candidate.

    Options that say how an int8 file is made go to int8 candidates only. An option that takes minutes to
    compile (tune=max-autotune) adds the candidates that have it. `backend` and `precision` choose among the
    candidates (empty: all). Each table of `exclude` drops the candidates that have all its values. The
    baseline (the first candidate whose engine is installed) always stays. `installed` says what can run here
    (None: assume all). `piled` adds what has several queries in flight or a larger batch, which costs latency.

    UsageError if no candidate has a name, if no candidate is left to compare, or if the baseline lacks an
    option.
    """
    whole = as_written(of_device(base.device), base.model)
    slow = {name: value for name, value in base.options.items() if _is_slow(name, value)}
    base = replace(base, options={k: v for k, v in base.options.items() if k not in slow})
    table = [c for c in whole if _fits(c, base)]
    unmatched = _checked(backend, precision, exclude, table, whole)
    first = next((c for c in table if _here(c.backend, base.device, installed)), None)
    chosen = [
        c
        for c in table
        if c.is_any(backend, precision)
        and not any(c.has(t) for t in exclude)
        and all(slow.get(name) == value for name, value in _slow_options(c).items())
    ]
    trials, missing = [], []
    for candidate in [c for c in table if c == first or c in chosen]:
        trial = _trial(candidate, base)
        lacking = _lacking(trial, candidate.label, installed)
        if lacking and candidate == first:
            raise UsageError(
                "E-TRY-3",
                f"the baseline, {candidate.label}, cannot run with these options",
                evidence=lacking.reason,
                effect="The candidates would have no baseline; nothing was measured",
                fix="leave out that --option; edgescope backends lists the options of each engine",
            )
        if lacking:
            missing.append(lacking)
        else:
            tuned = [] if candidate == first else _tuned(trial, piled=piled)
            # a user's option may make two candidates equal
            trials += [each for each in dict.fromkeys((trial, *tuned)) if each not in trials]
    return Proposal(tuple(trials), (*_merged(missing), *unmatched))


def by_hand(trial: Trial, installed: Mapping[str, Installed] | None = None) -> list[Trial]:
    """Return the trial with the numbers of threads that an expert would try: one, and half of the cores from four on.

    A small network loses more to waking the other threads than it gains from them. None where a number is given.
    """
    cores = len(os.sched_getaffinity(0))
    if (
        not trial.place.is_host
        or registry.made_of(trial.workload) != "phases"
        or "threads" in trial.options
        or cores < 2
    ):
        return []
    counts = (1, cores // 2) if cores >= 4 else (1,)
    found = [replace(trial, options={**trial.options, "threads": count}) for count in counts]
    return [each for each in found if not _lacking(each, "", installed)]


def instead(trial: Trial, installed: Mapping[str, Installed] | None = None) -> Trial | None:
    """Return what to try for an int8 trial that gave no right outputs; None where its engine has nothing more.

    First the layers that break it stay in fp32; then, for what matrix products dominate, ranges are found at run time.
    """
    if trial.precision != "int8" or "dynamic" in trial.options:
        return None
    static = {name: value for name, value in trial.options.items() if name not in DYNAMIC_OPTIONS}
    steps = [{**trial.options, "fallback": True}, {**static, "dynamic": True}]
    for options in steps[1:] if "fallback" in trial.options else steps:
        other = replace(trial, options=options)
        if not _lacking(other, "", installed):
            return other
    return None


def _trial(candidate: Candidate, base: Trial) -> Trial:
    """Return `base` with the engine, precision and options of this candidate."""
    int8 = candidate.precision == "int8"
    given = {name: value for name, value in base.options.items() if int8 or name not in DYNAMIC_OPTIONS}
    return replace(
        base,
        backend=candidate.backend,
        precision=candidate.precision,
        options={**candidate.options, **given},
    )


def _tuned(trial: Trial, *, piled: bool) -> list[Trial]:
    """Return what the workload itself has to try with an engine; what the trial already sets stays."""
    workload = registry.load(registry.WORKLOADS, trial.workload, "workload")
    plain, found = Trial(model=""), []
    for changes in getattr(workload, "CANDIDATES", {}).get(trial.device, ()):
        fields: dict[str, Any] = {
            name: {**value, **getattr(trial, name)} if isinstance(value, Mapping) else value
            for name, value in changes.items()
            if isinstance(value, Mapping) or getattr(trial, name) == getattr(plain, name)
        }
        found.append(replace(trial, **fields))
    return [each for each in found if piled or same_load(each, trial)]


def reads_tflite_only(model: str) -> bool:
    """Return whether a model's name is a .tflite file, which only LiteRT runs."""
    return model.partition("#")[0].lower().endswith(".tflite")


def _fits(candidate: Candidate, base: Trial) -> bool:
    """Return whether the engine runs on the device and can read the model."""
    reads = registry.facts(candidate.backend).READS
    return base.device in registry.runs_on(candidate.backend) and zoo.kind(base.model) in reads


def _slow_options(candidate: Candidate) -> Options:
    """Return the options of a candidate that make it compile for minutes."""
    slow = registry.facts(candidate.backend).SLOW_OPTIONS
    return {name: value for name, value in candidate.options.items() if slow.get(name) == value}


def _is_slow(name: str, value: Scalar) -> bool:
    """Return whether an option makes some engine compile for minutes."""
    return any(registry.facts(backend).SLOW_OPTIONS.get(name) == value for backend in registry.BACKENDS)


def _checked(
    backend: Sequence[str],
    precision: Sequence[str],
    exclude: Sequence[Mapping[str, Scalar]],
    table: Sequence[Candidate],
    whole: Sequence[Candidate],
) -> list[NotHere]:
    """Return the names that no candidate of `table` (this model's) has.

    UsageError for a name that no candidate of `whole` (the device's) has.
    """
    for flag, names, known in (
        ("--backend", backend, dict.fromkeys(c.backend for c in whole)),
        ("--precision", precision, dict.fromkeys(c.precision for c in whole)),
    ):
        for name in names:
            if name not in known:
                raise _no_candidate(f"{flag} {name}", known, f"{flag} {closest_name(name, known)}".strip())
    for values in exclude:
        if not any(c.has(values) for c in whole):
            text = ",".join(f"{k}={str(v).lower() if isinstance(v, bool) else v}" for k, v in values.items())
            raise _no_candidate(f"--exclude {text}", dict.fromkeys(c.label for c in whole), "")
    if not any(c.is_any(backend, precision) for c in table):
        requested = " ".join((*backend, *precision)) or "any engine"
        raise _no_candidate(f"{requested} and reads this model", dict.fromkeys(c.label for c in table), "")
    unmatched = [b for b in dict.fromkeys(backend) if not any(c.is_any((b,), precision) for c in table)]
    unmatched += [p for p in dict.fromkeys(precision) if not any(c.is_any(backend, (p,)) for c in table)]
    return [NotHere(name, "no candidate that reads this model has it") for name in unmatched]


def _no_candidate(what: str, known: Collection[str], fix: str) -> UsageError:
    fix = fix if "--" in fix and " " in fix else "edgescope backends"
    return UsageError("E-TRY-1", f"no candidate has {what}", evidence=f"known: {', '.join(known)}", fix=fix)


def _here(backend: str, device: str, installed: Mapping[str, Installed] | None) -> bool:
    found = None if installed is None else installed.get(backend)
    return found is None or (found.available and device not in found.without)


def _lacking(trial: Trial, label: str, installed: Mapping[str, Installed] | None) -> NotHere | None:
    found = None if installed is None else installed.get(trial.backend)
    if found is None:
        return None
    if not found.available:
        return NotHere(label, found.reason, found.fix)
    if trial.device in found.without:
        return NotHere(label, **found.without[trial.device])
    unknown = sorted(set(trial.options) - set(found.options))
    if unknown:
        return NotHere(label, f"{trial.backend} has no option {', '.join(unknown)}")
    return None


def _merged(missing: Sequence[NotHere]) -> tuple[NotHere, ...]:
    """Return one entry per backend and reason; its label names all the precisions."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for m in missing:
        backend, _, rest = m.label.partition(" ")
        groups.setdefault((backend, m.reason, m.fix), []).append(rest)
    return tuple(NotHere(f"{b} {', '.join(rest)}", why, fix) for (b, why, fix), rest in groups.items())
