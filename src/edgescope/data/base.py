"""The interface of data: a kind is one function that returns what lies under a name, read only when it is asked for.

    def read(name: str) -> Found

Nothing is decoded and nothing is split there. Which records calibrate, which judge, and what a picture becomes is the
same for all kinds (split.py, samples.py), so that a kind of a plug-in gets all of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgescope.records import digest
from edgescope.records.lazy import NDArray, np

Label = int | str | None
Arrays = Mapping[str, NDArray[Any]]
MOST = 1024
"""Most records read of a data set, an even selection: the gate and the ranges need hundreds, not all of ImageNet."""


@dataclass(frozen=True)
class Record:
    """One input of the user's, and what is right for it."""

    name: str
    """For messages: a file's name below the folder, a row's number."""
    content: Callable[[], str]
    """Returns hex digits that change with the input; equal ones mean the same input."""
    load: Callable[[], Any]
    """Returns a PIL image, an array of the only input, or arrays by input name, without a batch axis."""
    label: Label = None
    boxes: NDArray[np.float32] | None = None
    """(k, 5): x1, y1, x2, y2 in pixels of the picture, class number; or (k, 6),
    with JUDGED, CROWD or IGNORED of verify.measures."""
    size: tuple[int, int] | None = None
    """Width and height of the picture that boxes are given for; None where nobody says it."""
    classes: Callable[[], Any] | None = None
    """Returns an array (height, width) of class numbers, as large as the picture."""
    mark: str = ""
    """Text that changes with `classes`."""

    @property
    def truth(self) -> str:
        """Return text that changes with what is right for it, '' where that is not known."""
        label = "" if self.label is None else str(self.label)
        return (
            f"{label}{self.mark}{'' if self.boxes is None else digest(self.boxes.tolist())}{self.size or ''}"
        )


@dataclass(frozen=True)
class Found:
    """What lies under a name."""

    records: Sequence[Record]
    classes: Sequence[str] = ()
    """The names of class 0, 1, 2 ...; () where labels are numbers or there are none."""
    notes: tuple[str, ...] = ()
    """What is odd about it."""
    rules: str = ""
    """The file beside it that says how pictures are prepared, or ''."""
    name: str = ""
    """The name it was read under."""
    copy: str = ""
    """The .npz in the cache that holds all of it, where reading it again would run the user's code."""


def some(records: Sequence[Record], most: int = MOST) -> list[Record]:
    """Return an even selection of at most `most` records, in their order."""
    step = max(1.0, len(records) / most)
    return [records[int(i * step)] for i in range(min(most, len(records)))]


def digest_of(found: Found) -> str:
    """Return 12 hex digits over all names and labels, and over the content of what is read."""
    names = [(record.name, record.truth) for record in found.records]
    return digest([names, list(found.classes), [record.content() for record in some(found.records)]])[:12]


def content_of(arrays: Sequence[NDArray[Any]]) -> str:
    """Return hex digits over the bytes, shapes and types of arrays."""
    state = hashlib.sha256()
    for array in arrays:
        state.update(f"{array.dtype}{array.shape}".encode())
        state.update(np.ascontiguousarray(array).tobytes())
    return state.hexdigest()
