"""Prompts of an exact length, made from a text that ships; no two in a row begin with the same token.

A server that keeps the beginnings of earlier prompts (a prefix cache) answers a prompt that it has seen in no time. So
each prompt starts at another word of the text, ends that sentence, and goes on with the sentences in an order of its
own. `shared` is the opposite: one prompt again and again, of which such a cache may hold all but the last tokens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from edgescope.records.lazy import np

Encode = Callable[[str], Sequence[int] | None]
T = TypeVar("T")
TOKENS_A_WORD = 1.5
"""Of English text in any current tokenizer at most: what is asked of an engine that shows no tokens."""


def text() -> str:
    """Return the text: a story of some 800 words, written for this purpose."""
    return Path(__file__).with_name("text.txt").read_text(encoding="utf-8")


def sentences() -> list[str]:
    """Return its sentences, each with the space before it."""
    return [f" {part}" for part in re.split(r"(?<=[.?!])\s+|\n\n", text().strip()) if part]


class Prompts:
    """Prompt number k of a run, as often as it is asked for; `seed` gives other runs other prompts."""

    def __init__(self, encode: Encode, seed: int = 0, *, shared: bool = False) -> None:
        self.encode, self.seed, self.shared = encode, seed, shared

    @cached_property
    def _tokens(self) -> list[list[int]] | None:
        """The sentences as tokens; None if the engine shows none."""
        found = [self.encode(sentence) for sentence in sentences()]
        return None if any(one is None for one in found) else [list(one or ()) for one in found]

    @cached_property
    def _words(self) -> list[list[str]]:
        return [sentence.split() for sentence in sentences()]

    def tokens(self, number: int, length: int) -> tuple[int, ...]:
        """Return prompt `number` as `length` tokens; () if the engine shows none."""
        return () if self._tokens is None else tuple(self._made(self._tokens, number, length))

    def words(self, number: int, length: int) -> str:
        """Return prompt `number` as so many words."""
        return " ".join(self._made(self._words, number, length))

    def _made(self, parts: list[list[T]], number: int, length: int) -> list[T]:
        number = 0 if self.shared else number
        starts = _starts(parts)
        sentence, at = starts[(number + self.seed) % len(starts)]
        made = parts[sentence][at:]
        rng = np.random.default_rng([abs(self.seed), number])
        while len(made) < length:
            for other in rng.permutation(len(parts)):
                made = made + parts[other]
        return made[:length]


def _starts(parts: list[list[T]]) -> list[tuple[int, int]]:
    """Return where each token, or word, of the text stands for the first time: (sentence, place in it)."""
    first: dict[T, tuple[int, int]] = {}
    for number, part in enumerate(parts):
        for at, piece in enumerate(part):
            first.setdefault(piece, (number, at))
    return list(first.values())
