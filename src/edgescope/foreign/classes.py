"""Names of classes and their numbers: one rule for folders, tables and arrays, in training and in judging.

Words that are all whole numbers are the classes themselves, however they are written (2, 02, 2.0). Other words are
names, and a class is numbered by the place of its name: in classes.txt, else in the order of the words as text, as
torchvision and Keras number folders.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgescope.errors import UsageError
from edgescope.foreign import text

CLASSES = "classes.txt"
"""The names of class 0, 1, 2 ..., one a line."""
SAID = 4
"""Names that a note gives."""


@dataclass(frozen=True)
class Classes:
    """What the words that stand for classes mean."""

    names: tuple[str, ...]
    """The names of class 0, 1, 2 ...; () where words are numbers."""
    numeric: bool
    """Whether the words are numbers."""
    notes: tuple[str, ...] = ()

    def label(self, word: str) -> int | str | None:
        """Return a word as a label: a number, a name, or None for ''."""
        return text.whole(word) if word and self.numeric else word or None

    def number(self, word: str) -> int | None:
        """Return the number of the class that a word stands for, or None if it stands for none."""
        if self.numeric:
            return text.whole(word)
        return self.names.index(word) if word in self.names else None


def of(words: Iterable[str], root: Path) -> Classes:
    """Return what words mean in a folder, which may hold a classes.txt; UsageError where that cannot be used."""
    found = sorted(set(words))
    numeric, listed = all(text.whole(word) is not None for word in found), listed_in(root)
    if numeric or listed:
        return Classes(listed, numeric)
    return Classes(tuple(found), False, _surprises(found))


def _surprises(words: Sequence[str]) -> tuple[str, ...]:
    """Return notes on names whose order as text is not the one that a reader expects."""
    notes = []
    if ordered(words) != list(words):
        first = next(i for i, (a, b) in enumerate(zip(words, ordered(words), strict=True)) if a != b)
        notes.append(
            f"classes are numbered in the order of their names as text ({words[first]} is class {first});"
            f" a {CLASSES} says another order"
        )
    numbers = [word for word in words if text.whole(word) is not None]
    if numbers:
        notes.append(f"{', '.join(numbers[:SAID])} are taken for names, as other classes are no numbers")
    return tuple(notes)


def ordered(words: Iterable[str]) -> list[str]:
    """Return words in the order in which people count: a2 before a10."""
    return sorted(words, key=text.counted)


def listed_in(root: Path) -> tuple[str, ...]:
    """Return the names in a folder's classes.txt, () without one; UsageError for an empty line or a name twice."""
    path = root / CLASSES
    if not path.is_file():
        return ()
    found = text.lines(path)
    twice = next((name for name, times in Counter(found).items() if times > 1 or not name), None)
    if twice is None:
        return tuple(found)
    what = f"{twice!r} stands there twice" if twice else f"line {found.index('') + 1} is empty"
    raise UsageError(
        "E-LABEL-4",
        f"{path} does not name the classes",
        evidence=what,
        effect="The numbers of the classes after it are not known",
        fix="write the names of class 0, 1, 2 ..., one a line, each once",
    )
