"""Every error edgescope raises on purpose, and every code the command ends with.

    EdgescopeError
    |- UsageError          the request itself is wrong
    |- UnavailableError    a package or a piece of hardware is not here
    |- UnsupportedError    this machine or engine cannot do the request
    |- SettingError        a requested setting is not in effect
    |- SafetyError         stopped before memory or heat did harm
    |- RanElsewhereError   it ran on another device or precision
    |- ModelError          a model file or module cannot be used
    |- WrongOutputError    the outputs are not those of the fp32 reference
    |- DeviceError         a sensor or a device interface misbehaved
    `- StoreError          results could not be written or read

A message has four parts: what happened, the evidence, what it does to the number, the command that fixes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum


class ExitCode(IntEnum):
    """How the command `edgescope` ends: a number for a script, a meaning for a reader."""

    meaning: str

    def __new__(cls, number: int, meaning: str) -> ExitCode:
        """Return the member with its meaning."""
        code = int.__new__(cls, number)
        code._value_, code.meaning = number, meaning
        return code

    OK = 0, "The command did what was asked."
    FAILED = 1, "A trial or a check failed, a figure is unstable, or nothing can be picked."
    USAGE = 2, "The request is wrong, or names a file that does not exist. Nothing was measured."
    UNAVAILABLE = 3, "A package or hardware is missing, or does not support the request."
    SETTING = 4, "A requested setting, such as a power mode, is not in effect."
    SAFETY = 5, "The run was stopped before memory or heat did harm."
    RAN_ELSEWHERE = 6, "The engine used another device or precision than requested."
    UNDECIDED = 7, "The measurement ran, but it decides nothing: no conclusion may be drawn."
    INTERRUPTED = 130, "Ctrl-C stopped the command. Results that were finished are kept."

    @property
    def label(self) -> str:
        """The name in print: `ran elsewhere`."""
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True)
class Message:
    """The text of an error, a warning or a status; `str()` is `CODE: what (evidence). Effect. Try: fix`."""

    code: str
    what: str
    evidence: str = ""
    effect: str = ""
    fix: str = ""

    @property
    def family(self) -> str:
        """Return its code without the number: `E-OPT-`."""
        return f"{self.code.rpartition('-')[0]}-"

    def __str__(self) -> str:
        """Return one line ready for a terminal."""
        evidence = f" ({self.evidence})" if self.evidence else ""
        effect = f" {self.effect}." if self.effect else ""
        fix = f" Try: {_fits[-1](self.fix)}" if self.fix else ""
        return f"{self.code}: {self.what}{evidence}.{effect}{fix}"


_fits: list[Callable[[str], str]] = [str]
"""What fits a remedy to who asked, the innermost last; no context variable, because threads print, too."""


@contextmanager
def fitting(fit: Callable[[str], str]) -> Iterator[None]:
    """Let messages be printed within the block with the remedies that `fit` makes of theirs.

    A message is made where many verbs meet, and does not know which one runs.
    """
    _fits.append(fit)
    try:
        yield
    finally:
        _fits.remove(fit)


#: Code prefixes of errors in the request itself: another try changes nothing.
USAGE = (
    "E-OPT-",
    "E-SHAPE-",
    "E-BATCH-",
    "E-NAME-1",
    "E-DATASET-",
    "E-LABEL-",
    "E-PREPROCESS-",
    "E-MODEL-3",
    "E-MODEL-4",
    "E-LEAK-",
    "E-SCEN-",
    "E-GATE-7",
    "E-TRIAL-1",
    "E-TRIAL-2",
    "E-ON-11",
    "E-ON-12",
    "E-SSH-1",
    "E-MODE-10",
    "E-MODE-1",
    "E-MODE-7",
    "E-MODE-8",
    "E-MODE-13",
)


class EdgescopeError(Exception):
    """Base of all errors raised on purpose; `str()` is one line ready for a terminal."""

    exit_code = ExitCode.FAILED

    def __init__(self, code: str, what: str, *, evidence: str = "", effect: str = "", fix: str = "") -> None:
        self.code, self.what, self.evidence, self.effect, self.fix = code, what, evidence, effect, fix
        super().__init__(str(self.message))

    @classmethod
    def of(cls, said: Message) -> EdgescopeError:
        """Return the error that says this."""
        return cls(said.code, said.what, evidence=said.evidence, effect=said.effect, fix=said.fix)

    @property
    def message(self) -> Message:
        """Return its text as a Message."""
        return Message(self.code, self.what, self.evidence, self.effect, self.fix)

    def __reduce__(self) -> tuple[object, ...]:
        """Return the parts for pickle, so that the error can cross a process boundary."""
        return _rebuild, (type(self), self.code, self.what, self.evidence, self.effect, self.fix)


def _rebuild(kind: type[EdgescopeError], code: str, what: str, *rest: str) -> EdgescopeError:
    evidence, effect, fix = rest
    return kind(code, what, evidence=evidence, effect=effect, fix=fix)


NEAR = 3
"""Names that a hint offers at most, and the fewest letters that are looked for within longer names."""


def near_names(word: str, known: Iterable[str]) -> list[str]:
    """Return the known names that `word` may stand for, the nearest first, at most NEAR.

    First those that differ in case and dashes alone, then those that have it as a part (`agx_orin` and `orin_nano` for
    `orin`), those spelt alike, of the same letters first, and those that begin with it.
    """
    import difflib  # only a mistake needs it

    bare = {name: name.lower().replace("-", "_") for name in known}
    asked = word.lower().replace("-", "_")
    same = [name for name, text in bare.items() if text == asked]
    long = len(asked) >= NEAR
    parts = [name for name, text in bare.items() if long and asked in re.split(r"[^a-z0-9]+", text)]
    begun = [name for name, text in bare.items() if long and text.startswith(asked)]
    close = difflib.get_close_matches(asked, list(dict.fromkeys(bare.values())), n=len(bare) or 1, cutoff=0.6)
    close.sort(key=lambda text: sorted(text) != sorted(asked))  # transposed letters are the commonest slip
    alike = [name for text in close for name in bare if bare[name] == text]
    return list(dict.fromkeys([*same, *parts, *alike, *begun]))[:NEAR]


def closest_name(word: str, known: Iterable[str]) -> str:
    """Return the known word that is closest to `word`, or '' if none is close."""
    return next(iter(near_names(word, known)), "")


def known_names(known: Iterable[str], near: Iterable[str] = ()) -> str:
    """Return `known: a, b ... and 30 more` for the evidence of a message, the near names first."""
    names = list(dict.fromkeys([*near, *known]))
    more = f" ... and {len(names) - KNOWN_SAID} more" if len(names) > KNOWN_SAID else ""
    return f"known: {', '.join(names[:KNOWN_SAID])}{more}"


KNOWN_SAID = 12
"""Names that a message lists at most: what helps must not stand behind forty others."""


def check_name(flag: str, word: str, words: Iterable[str]) -> None:
    """Raise UsageError, with the closest match, if `word` after `flag` is not one of `words`; '' is allowed."""
    words = list(words)
    if word and word not in words:
        near = near_names(word, words)
        raise UsageError(
            "E-NAME-1",
            f"{flag} does not know {word!r}",
            evidence=known_names(words, near),
            fix=flagged(flag, near),
        )


def flagged(flag: str, near: Sequence[str]) -> str:
    """Return what to type for near names: `--board agx_orin or orin_nano`; '' if there are none."""
    *most, last = near or ("",)
    return f"{flag} {', '.join(most)}{' or ' * bool(most)}{last}" if near else ""


class UsageError(EdgescopeError):
    """The request itself is wrong; nothing was measured."""

    exit_code = ExitCode.USAGE


class UnavailableError(EdgescopeError):
    """A package or a piece of hardware that the request needs is not here."""

    exit_code = ExitCode.UNAVAILABLE


class UnsupportedError(EdgescopeError):
    """The machine or the engine cannot do what was requested; becomes status `unsupported`."""

    exit_code = ExitCode.UNAVAILABLE


class SettingError(EdgescopeError):
    """A requested setting is not in effect, so a number would carry the wrong label."""

    exit_code = ExitCode.SETTING


class SafetyError(EdgescopeError):
    """Stopped before memory or heat did harm; becomes status `oom`."""

    exit_code = ExitCode.SAFETY


class RanElsewhereError(EdgescopeError):
    """The engine ran on another device or in another precision than requested."""

    exit_code = ExitCode.RAN_ELSEWHERE


class ModelError(EdgescopeError):
    """A model file or module cannot be used."""


class WrongOutputError(EdgescopeError):
    """The outputs are not those of the fp32 reference; becomes status `wrong_output`."""


class DeviceError(EdgescopeError):
    """A sensor or a device interface misbehaved."""


class StoreError(EdgescopeError):
    """Results could not be written or read; a measured result is kept elsewhere if possible."""


#: Code prefixes of errors of a board that was not reached, went away or has no engine yet: another try may find it.
AWAY = ("E-SSH-", "E-AGENT-2", "E-AGENT-5", "E-ON-3", "E-ON-4", "E-TRY-2")


def is_away(reason: Message | None) -> bool:
    """Return whether a trial has no number because its board or engine was away, which says nothing about the trial."""
    return reason is not None and (reason.code in AWAY or reason.family in AWAY)


def is_wrong_request(reason: Message | None) -> bool:
    """Return whether a trial failed because of its request, which another try does not change."""
    return reason is not None and (reason.code in USAGE or reason.family in USAGE)


def refused(reason: Message | None) -> bool:
    """Return whether a trial can never run as requested: a wrong flag, or a file that its engine cannot read."""
    return is_wrong_request(reason) or (reason is not None and reason.code in ("E-MODEL-5", "E-MODEL-6"))
