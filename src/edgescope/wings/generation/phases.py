"""Joules of prefill and of decode apart, from two stretches that a power sensor can resolve.

A prompt takes a part of a second, and a sensor lags by as much: no reading belongs to one phase of one request. So
after the window prompts are read back to back, each answered by one token, for ten seconds or more: their energy is
that of prefill. The window itself holds prompts and answers of the trial's own lengths; what is left of its energy
without that of its prompts is decode's. Both stretches are long against any sensor's lag.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from edgescope.analysis.run.energy_window import energy
from edgescope.bench.watch import board
from edgescope.records import Absent, Field, Measured, Readings, Result, Window

RESOLVED_S = 10.0
"""Shortest stretch whose energy is given."""
NAMES = ("prefill_energy_j", "decode_energy_token_j", "tokens_per_j")
UNASKED = Absent(f"not asked for: --workload-option phase_s={RESOLVED_S:g}")
TOGETHER = Absent("requests in flight share their steps, so no joule is one phase's")


@dataclass(frozen=True)
class Stretch:
    """Prompts that were read back to back."""

    start_ns: int
    stop_ns: int
    prompts: int

    @property
    def seconds(self) -> float:
        """Return how long it took."""
        return (self.stop_ns - self.start_ns) * 1e-9


def back_to_back(read: Callable[[int], object], seconds: float) -> Stretch:
    """Call `read(number)`, which reads one prompt, for at least so many seconds."""
    start, number = time.monotonic_ns(), 0
    while (now := time.monotonic_ns()) < start + seconds * 1e9:
        read(number)
        number += 1
    return Stretch(start, max(now, time.monotonic_ns()), number)


def figures(result: Result, prompts: Stretch | None) -> Mapping[str, Field]:
    """Return J a prompt, J a token after the first, and tokens a J of a result, by name; absent with the reason."""
    whole = result.metrics.get("energy_j", Absent("no meter was read"))
    tokens = _count(result, "output_tokens")
    return {**apart(result, whole, tokens, prompts), NAMES[2]: _inverse(whole, tokens)}


def apart(result: Result, whole: Field, tokens: float, prompts: Stretch | None) -> Mapping[str, Field]:
    """Return prefill's and decode's joules of a result whose window took `whole` joules for so many tokens."""
    readings, window = result.readings, result.window
    if prompts is None or result.trial.in_flight > 1:
        return dict.fromkeys(NAMES[:2], UNASKED if prompts is None else TOGETHER)
    if readings is None or window is None:
        return dict.fromkeys(NAMES[:2], Absent("no sensor was read"))
    each = prefill(readings, prompts, result.trial.device)
    return {NAMES[0]: each, NAMES[1]: decode(whole, each, window, _answers(result), tokens)}


def prefill(readings: Readings, stretch: Stretch, device: str) -> Field:
    """Return the joules of one prompt."""
    if stretch.seconds < RESOLVED_S:
        return Absent(f"{stretch.seconds:.1f} s of prompts: a sensor resolves {RESOLVED_S:g} s")
    span = stretch.start_ns, stretch.stop_ns
    return energy(readings, *span, stretch.prompts, device=device, board=board()).energy_per_sample_j


def decode(whole: Field, prompt: Field, window: Window, answers: int, tokens: float) -> Field:
    """Return the joules of a token after the first: what `answers` of so many tokens took beside their prompts."""
    seconds = (window.stop_ns - window.start_ns) * 1e-9
    if seconds < RESOLVED_S:
        return Absent(f"a window of {seconds:.1f} s: a sensor resolves {RESOLVED_S:g} s (--duration)")
    if isinstance(whole, Absent) or isinstance(prompt, Absent):
        return whole if isinstance(whole, Absent) else prompt
    if (later := tokens - answers) <= 0:
        return Absent("answers of one token have no decode")
    lo, hi = _less(whole.lo, prompt.hi, answers), _less(whole.hi, prompt.lo, answers)
    value = whole.value - answers * prompt.value
    if value <= 0:
        return Absent("prompts back to back took more energy than the whole window did")
    return Measured(
        value / later, "J", None if lo is None else lo / later, None if hi is None else hi / later, whole.n
    )


def _less(whole: float | None, each: float | None, count: int) -> float | None:
    return None if whole is None or each is None else whole - count * each


def _answers(result: Result) -> int:
    found = result.metrics.get("output_tokens")
    return (found.n or 0) if isinstance(found, Measured) else 0


def _count(result: Result, name: str) -> float:
    """Return the tokens of all answers of the window."""
    found = result.metrics.get(name)
    return found.value * (found.n or 0) if isinstance(found, Measured) else 0.0


def _inverse(whole: Field, tokens: float) -> Field:
    if isinstance(whole, Absent) or not tokens or whole.value <= 0:
        return whole if isinstance(whole, Absent) else Absent("no token, or no joule, in the window")
    lo = tokens / whole.hi if whole.hi else None
    hi = tokens / whole.lo if whole.lo else None
    return Measured(tokens / whole.value, "tokens/J", lo, hi, whole.n)
