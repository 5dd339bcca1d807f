"""What is worth trying for a model on a device: engines x precisions x layouts x graph capture.

Each backend says what of it is tried (About.CANDIDATES): what people who do this by hand try. The first is the
baseline, PyTorch as it is. What cannot run here (an engine that is not installed, an option it does not have) is named
with the reason and never measured.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from edgescope import registry
from edgescope.artifacts.for_precision import INT8_OPTIONS
from edgescope.errors import UsageError
from edgescope.records import Scalar, Trial

Options = dict[str, Scalar]


@dataclass(frozen=True)
class Candidate:
    """One engine, precision and set of options."""

    backend: str
    precision: str
    options: Options = field(default_factory=dict)

    @property
    def words(self) -> frozenset[str]:
        """What --try and --skip know it by: engine, precision, each `option=value`, and `all`."""
        options = (f"{k}={str(v).lower()}" for k, v in self.options.items())
        return frozenset((self.backend, self.precision, "all", *options))

    @property
    def label(self) -> str:
        """Return `torch_eager fp16 graph=true layout=channels_last`."""
        options = sorted(f"{k}={str(v).lower()}" for k, v in self.options.items())
        return " ".join((self.backend, self.precision, *options))


def of_device(device: str) -> tuple[Candidate, ...]:
    """Return what every backend has to try on a device, in the registry's order."""
    return tuple(
        Candidate(name, precision, dict(options))
        for name in registry.BACKENDS
        for precision, options in registry.about(name).CANDIDATES.get(device, ())
    )


@dataclass(frozen=True)
class Installed:
    """Whether a backend can be loaded here, the options it has, and why not and what to do where it cannot."""

    available: bool
    options: Collection[str] = ()
    reason: str = ""
    fix: str = ""


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


def device() -> str:
    """Return cuda where a GPU answers its driver library, cpu elsewhere; imports no engine."""
    for name in ("nvidia", "jetson"):
        if name in registry.DEVICES and not registry.load(registry.DEVICES, name, "device")().present():
            return "cuda"
    return "cpu"


def dear(trial: Trial) -> bool:
    """Return whether a start of this trial takes a compiler's time."""
    return registry.about(trial.backend).DEAR


def propose(
    base: Trial,
    installed: Mapping[str, Installed] | None = None,
    *,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
) -> Proposal:
    """Return what to try for `base` on its device; options of `base` go to every candidate.

    Those that say how an int8 file is made go to the int8 candidates alone.
    `only` and `skip` are words of candidates (an engine, a precision, `graph=true`), or several that must all fit
    (`torch_compile+fp16`), `all` for all of them; the baseline, the first whose engine is here, always stays. What
    takes minutes to compile is proposed where `only` names that option itself.
    UsageError for a word that no candidate has, where none of `only` chooses anything for this model, and for an
    option that the baseline has not. `installed` says what can run here (None: assume all).
    """
    whole = of_device(base.device)
    table = [c for c in whole if _fits(c, base)]
    idle = _checked(only, skip, table, whole)
    first = next((c for c in table if _here(c.backend, installed)), None)
    table = [c for c in table if c == first or (_asked(c, only) and not _named(c, skip, False))]
    trials, missing = [], []
    for candidate in table:
        trial = _trial(candidate, base)
        lacking = _lacking(trial, candidate.label, installed)
        if lacking and candidate == first:
            raise UsageError(
                "E-TRY-3",
                f"the baseline, {candidate.label}, cannot run with these options",
                evidence=lacking.reason,
                effect="There would be nothing to compare the candidates with; nothing was measured",
                fix="leave that --option out; edgescope backends lists what each engine has",
            )
        if lacking:
            missing.append(lacking)
        elif trial not in trials:  # an option of the user's may make two candidates one
            trials.append(trial)
    return Proposal(tuple(trials), (*_merged(missing), *idle))


def mixture(trial: Trial, installed: Mapping[str, Installed] | None = None) -> Trial | None:
    """Return an int8 trial with the layers that break it in fp32; None where its engine has no such option."""
    if trial.precision != "int8" or "fallback" in trial.options:
        return None
    mixed = replace(trial, options={**trial.options, "fallback": True})
    return None if _lacking(mixed, "", installed) else mixed


def _trial(candidate: Candidate, base: Trial) -> Trial:
    """Return `base` as this candidate runs it."""
    whole = candidate.precision == "int8"
    given = {name: value for name, value in base.options.items() if whole or name not in INT8_OPTIONS}
    return replace(
        base,
        backend=candidate.backend,
        precision=candidate.precision,
        options={**candidate.options, **given},
    )


def reads_tflite_only(model: str) -> bool:
    """Return whether a model's name is that of a .tflite file, which LiteRT alone runs."""
    return model.partition("#")[0].lower().endswith(".tflite")


def _fits(candidate: Candidate, base: Trial) -> bool:
    """Whether the engine runs on the device and can read the model."""
    kind = base.model.partition("#")[0].lower().rpartition(".")[2]
    reads = registry.about(candidate.backend).READS
    return (
        base.device in registry.BACKENDS[candidate.backend].devices
        and (kind if kind in ("onnx", "tflite") else "network") in reads
    )


def _asked(candidate: Candidate, only: Sequence[str]) -> bool:
    """Whether these words choose a candidate; none choose all but those that need patience."""
    patient = {f"{k}={v}" for k, v in registry.about(candidate.backend).PATIENT.items()} & candidate.words
    if not patient:
        return _named(candidate, only, True)
    return _named(candidate, [word for word in only if patient & set(word.split("+"))], False)


def _named(candidate: Candidate, words: Sequence[str], default: bool) -> bool:
    return any(set(word.split("+")) <= candidate.words for word in words) if words else default


def _checked(
    only: Sequence[str], skip: Sequence[str], table: Sequence[Candidate], whole: Sequence[Candidate]
) -> list[NotHere]:
    """Return the words of `only` that choose nothing of `table`, the model's part of the device's `whole` table."""
    parts = {part for word in (*only, *skip) for part in word.split("+")}
    if unknown := sorted(parts - _words(whole)):
        raise _no_candidate(", ".join(unknown), _words(whole))
    idle = [word for word in dict.fromkeys(only) if not _chooses(word, table)]
    if idle and len(idle) == len(set(only)):
        read = any(_chooses(word, whole) for word in idle)
        raise _no_candidate(f"{', '.join(idle)}{' and reads this model' if read else ''}", _words(table))
    return [
        NotHere(word, f"no candidate {'that reads this model ' if _chooses(word, whole) else ''}has it")
        for word in idle
    ]


def _chooses(word: str, table: Sequence[Candidate]) -> bool:
    return any(_named(c, [word], False) for c in table)


def _words(table: Sequence[Candidate]) -> frozenset[str]:
    return frozenset[str]().union(*(c.words for c in table))


def _no_candidate(what: str, known: Collection[str]) -> UsageError:
    return UsageError("E-TRY-1", f"no candidate has {what}", evidence=f"known: {', '.join(sorted(known))}")


def _here(backend: str, installed: Mapping[str, Installed] | None) -> bool:
    found = None if installed is None else installed.get(backend)
    return found is None or found.available


def _lacking(trial: Trial, label: str, installed: Mapping[str, Installed] | None) -> NotHere | None:
    found = None if installed is None else installed.get(trial.backend)
    if found is None:
        return None
    if not found.available:
        return NotHere(label, found.reason, found.fix)
    unknown = sorted(set(trial.options) - set(found.options))
    if unknown:
        return NotHere(label, f"{trial.backend} has no option {', '.join(unknown)}")
    return None


def _merged(missing: Sequence[NotHere]) -> tuple[NotHere, ...]:
    """Return one entry for each backend and reason, its label naming all the precisions."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for m in missing:
        backend, _, rest = m.label.partition(" ")
        groups.setdefault((backend, m.reason, m.fix), []).append(rest)
    return tuple(NotHere(f"{b} {', '.join(rest)}", why, fix) for (b, why, fix), rest in groups.items())
