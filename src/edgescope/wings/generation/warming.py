"""Warming up by prompt length: an engine plans for the shapes of a length when it first meets it.

The first prompt of a length took OpenVINO GenAI 2 to 3.4 times as long. A request takes seconds, so thirty of them, as
other work is warmed up with, are not to be had. What settles is the prompt and the token, and a short answer shows
both: each length is asked for until the last two prompts, and the tokens of the last two answers, took about as long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgescope.records.lazy import np
from edgescope.wings.generation.figures import Answer

TOKENS = 8
"""Tokens of a warm-up's answer at most."""
FEWEST, MOST = 2, 5
"""Answers of each length."""
SECONDS = 20.0
"""Seconds after which a length gets no more than its fewest answers."""
AGREE = 0.10
"""Share by which the last two may differ."""

Ask = Callable[[int, int], Answer]
"""Asks a prompt of so many tokens for an answer of so many."""


@dataclass(frozen=True)
class Warmed:
    """What a warm-up showed."""

    first_s: float
    """Seconds of the first answer of all, with whatever the engine left to do lazily."""
    settled: bool
    """Whether every length had settled."""


def warm(ask: Ask, prompts: Sequence[int], output: int) -> Warmed:
    """Ask prompts of each length until it has settled; the answers are as short as allowed."""
    begun, first, settled = time.monotonic_ns(), 0.0, True
    for length in prompts:
        answers: list[Answer] = []
        while len(answers) < FEWEST or (not alike(answers) and _goes_on(answers, begun)):
            answers.append(ask(length, min(TOKENS, output)))
            first = first or (time.monotonic_ns() - begun) * 1e-9
        settled = settled and alike(answers)
    return Warmed(first, settled)


def _goes_on(answers: Sequence[Answer], begun_ns: int) -> bool:
    return len(answers) < MOST and time.monotonic_ns() - begun_ns < SECONDS * 1e9


def alike(answers: Sequence[Answer]) -> bool:
    """Return whether the last two answers took about as long to their first token, and from token to token."""
    if len(answers) < FEWEST:
        return False
    prompts = [a.first_ns - a.issued_ns for a in answers[-2:]]
    tokens = [float(np.median(np.diff(a.got.times_ns))) for a in answers[-2:] if len(a.got.times_ns) > 1]
    return all(max(pair) <= (1 + AGREE) * min(pair) + 1e5 for pair in (prompts, tokens) if len(pair) == 2)
