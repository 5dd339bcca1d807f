"""Every error edgescope raises on purpose, and what each one means to the caller.

    EdgescopeError
    |- UsageError          the request itself is wrong                      exit 2
    |- UnavailableError    a package or a piece of hardware is not here     exit 3
    |- UnsupportedError    this machine or engine cannot do the request     exit 3
    |- SettingError        a requested setting is not in effect             exit 4
    |- SafetyError         stopped before memory or heat did harm           exit 5
    |- RanElsewhereError   it ran on another device or precision            exit 6
    |- ModelError          a model file or module cannot be used            exit 1
    |- WrongOutputError    the outputs are not those of the fp32 reference  exit 1
    |- DeviceError         a sensor or a device interface misbehaved        exit 1
    `- StoreError          results could not be written or read             exit 1

A message has four parts: what happened, the evidence, what it does to the number, the command that fixes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass


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
    "E-ON-",
    "E-SSH-1",
    "E-MODE-10",
    "E-MODE-1",
    "E-MODE-7",
    "E-MODE-8",
    "E-MODE-13",
)


class EdgescopeError(Exception):
    """Base of all errors raised on purpose; `str()` is one line ready for a terminal."""

    exit_code = 1

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
    `orin`), those spelt alike, and those that begin with it.
    """
    import difflib  # only a mistake needs it

    bare = {name: name.lower().replace("-", "_") for name in known}
    asked = word.lower().replace("-", "_")
    same = [name for name, text in bare.items() if text == asked]
    long = len(asked) >= NEAR
    parts = [name for name, text in bare.items() if long and asked in re.split(r"[^a-z0-9]+", text)]
    begun = [name for name, text in bare.items() if long and text.startswith(asked)]
    close = difflib.get_close_matches(asked, list(dict.fromkeys(bare.values())), n=NEAR, cutoff=0.6)
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

    exit_code = 2


class UnavailableError(EdgescopeError):
    """A package or a piece of hardware that the request needs is not here."""

    exit_code = 3


class UnsupportedError(EdgescopeError):
    """The machine or the engine cannot do what was requested; becomes status `unsupported`."""

    exit_code = 3


class SettingError(EdgescopeError):
    """A requested setting is not in effect, so a number would carry the wrong label."""

    exit_code = 4


class SafetyError(EdgescopeError):
    """Stopped before memory or heat did harm; becomes status `oom`."""

    exit_code = 5


class RanElsewhereError(EdgescopeError):
    """The engine ran on another device or in another precision than requested."""

    exit_code = 6


class ModelError(EdgescopeError):
    """A model file or module cannot be used."""


class WrongOutputError(EdgescopeError):
    """The outputs are not those of the fp32 reference; becomes status `wrong_output`."""


class DeviceError(EdgescopeError):
    """A sensor or a device interface misbehaved."""


class StoreError(EdgescopeError):
    """Results could not be written or read; a measured result is kept elsewhere if possible."""


def is_wrong_request(reason: Message | None) -> bool:
    """Return whether a trial failed because of its request, which another try does not change."""
    return reason is not None and (reason.code in USAGE or reason.family in USAGE)


def refused(reason: Message | None) -> bool:
    """Return whether a trial can never run as requested: a wrong flag, or a file that its engine cannot read."""
    return is_wrong_request(reason) or (reason is not None and reason.code in ("E-MODEL-5", "E-MODEL-6"))
