"""The stages that every pipeline is made of: decode, infer, postprocess, and classify the crops.

Each takes a unit (frame.Item) one step further. Where several ways are kept, they give the same answer: the slow ones
are what people write first, and a ladder (`edgescope docs video`) measures what each step away from them gains.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.frames.frame import Frame, Item, ReadsMany, Source
from edgescope.models.base import Batch, Decoder, Detections
from edgescope.models.boxes.decoder import on_host
from edgescope.models.image.preprocess import Preprocess
from edgescope.wings.video.flow import EndOfFilm
from edgescope.wings.video.preparing import padded

WAYS = ("host", "elements", "copied", "device")
"""How outputs are read: vectorised on the host; element by element where they lie, or after one copy; on the device."""


class Decode:
    """Reads the next frames of one of the sources; the sources take turns."""

    def __init__(self, sources: Sequence[Source], batch: int) -> None:
        self.sources, self.batch = sources, batch
        self.locks = [threading.Lock() for _ in sources]
        self.frames = 0
        """The number of frames read."""

    def __call__(self, item: Item) -> None:
        """Set the unit's frames; EndOfFilm if its source has none left."""
        camera = item.query_id % len(self.sources)
        source = self.sources[camera]
        with self.locks[camera]:
            item.frames = self._next(source, self.count(camera))
        if not item.frames:
            raise EndOfFilm
        for frame in item.frames:
            frame.camera = camera
        self.frames += len(item.frames)

    def count(self, camera: int) -> int:
        """Return the number of frames of the source's next unit."""
        return self.batch

    def _next(self, source: Source, count: int) -> list[Frame]:
        if isinstance(source, ReadsMany):
            return source.read_many(count)
        found: list[Frame] = []
        while len(found) < count and (frame := source.read()) is not None:
            found.append(frame)
        return found


Answer = Callable[[Batch], Sequence[Any]]


class Infer:
    """Runs each network on its input."""

    def __init__(
        self,
        networks: Sequence[tuple[str, Answer]],
        stage: Callable[[Batch], Batch] | None,
        owned: Callable[[Sequence[Any]], list[Any]] | None,
        reads: int | None = None,
        batch: int = 0,
    ) -> None:
        """`networks`: the name of each one's input, and its session, which takes at least `batch` rows.

        `stage` brings host arrays to where the sessions take them; `owned` copies outputs that the next call
        overwrites, the first `reads` of them.
        """
        self.networks, self.batch = networks, batch
        self.stage, self.owned, self.reads = stage, owned, reads

    def __call__(self, item: Item) -> None:
        """Set the unit's outputs."""
        item.outputs = []
        for (name, answer), given in zip(self.networks, item.inputs, strict=True):
            batch: Batch = {name: self._filled(given)}
            if self.stage is not None and isinstance(given, np.ndarray):
                batch = self.stage(batch)
            outputs = answer(batch)
            item.outputs.append(self.owned(outputs[: self.reads]) if self.owned else outputs)

    def _filled(self, given: Any) -> Any:
        """Return the rows, the last one repeated up to the network's batch."""
        missing = self.batch - len(given)
        if missing <= 0:
            return given
        if isinstance(given, np.ndarray):
            return padded(given, self.batch)
        return given[[*range(len(given)), *[-1] * missing]]


class ReadBoxes:
    """Finds the boxes in a detector's outputs, in one of WAYS."""

    def __init__(self, decoder: Decoder, way: str) -> None:
        self.decoder, self.way = decoder, way

    def __call__(self, item: Item) -> None:
        """Set what was found in each frame of the unit."""
        (outputs, *_) = item.outputs
        if self.way == "copied":
            item.found = self.decoder.elements(on_host(outputs), item.fits)
        else:
            item.found = getattr(self.decoder, self.way)(outputs, item.fits)


class ReadClasses:
    """Finds the class that each network gives each frame."""

    def __init__(self, way: str) -> None:
        self.way = way

    def __call__(self, item: Item) -> None:
        """Set the unit's classes; what was found in a frame is the first network's class, on the whole frame."""
        columns = [self._classes(outputs[0], len(item.frames)) for outputs in item.outputs]
        item.classes = [tuple(int(kind) for kind in row) for row in zip(*columns, strict=True)]
        item.found = [whole(frame, row[0]) for frame, row in zip(item.frames, item.classes, strict=True)]

    def _classes(self, scores: Any, n: int) -> Sequence[int]:
        if self.way in ("elements", "copied"):
            rows = on_host([scores])[0] if self.way == "copied" else scores
            return [max(range(rows[k].size), key=lambda i: float(rows[k].reshape(-1)[i])) for k in range(n)]
        if self.way == "device" and not isinstance(scores, np.ndarray):
            return [int(k) for k in scores[:n].reshape(n, -1).argmax(1).tolist()]
        host: NDArray[Any] = on_host([scores])[0]
        return [int(k) for k in host[:n].reshape(n, -1).argmax(axis=1)]


def whole(frame: Frame, kind: int) -> Detections:
    """Return a class as a detection whose box is the whole frame."""
    width, height = frame.size
    box = np.array([[0, 0, width, height]], dtype=np.float32)
    return Detections(box, np.ones(1, dtype=np.float32), np.array([kind], dtype=np.int64))


class ClassifyCrops:
    """Runs a classifier on what each box of a frame shows, in batches; it needs frames in full size."""

    def __init__(
        self, name: str, answer: Answer, preprocess: Callable[[Any], NDArray[Any]], batch: int
    ) -> None:
        self.name, self.answer, self.preprocess, self.batch = name, answer, preprocess, batch

    def __call__(self, item: Item) -> None:
        """Note the class of each box: item.notes["crops"] has, for each frame, one class per box."""
        crops = [
            (row, self._crop(frame, box))
            for row, (frame, found) in enumerate(zip(item.frames, item.found, strict=True))
            for box in found.boxes
        ]
        classes: list[list[int]] = [[] for _ in item.frames]
        for some in _chunks(crops, self.batch):
            given = padded(np.stack([crop for _, crop in some]), self.batch)
            scores = on_host(self.answer({self.name: given}))[0]
            kinds = scores[: len(some)].reshape(len(some), -1).argmax(axis=1)
            for (row, _), kind in zip(some, kinds, strict=True):
                classes[row].append(int(kind))
        item.notes["crops"] = classes

    def _crop(self, frame: Frame, box: NDArray[np.float32]) -> NDArray[Any]:
        from PIL import Image

        width, height = frame.size
        left, top = int(np.clip(box[0], 0, width - 1)), int(np.clip(box[1], 0, height - 1))
        right, bottom = (
            int(np.clip(np.ceil(box[2]), left + 1, width)),
            int(np.clip(np.ceil(box[3]), top + 1, height)),
        )
        return self.preprocess(Image.fromarray(frame.pixels[top:bottom, left:right]))


def _chunks(some: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [some[start : start + size] for start in range(0, len(some), size)]


class Stub:
    """A stage that costs nothing: it gives back what the real stage made of the first units, in turn.

    With it, a pipeline shows what it would do if the stage were free.
    """

    KEPT = ("frames", "inputs", "fits", "outputs", "found", "classes", "notes")

    def __init__(self, kept: Sequence[Item]) -> None:
        """`kept`: units that have passed the stage."""
        self.kept = itertools.cycle(kept)
        self.lock = threading.Lock()

    def __call__(self, item: Item) -> None:
        """Give the unit everything that a unit has after the stage."""
        with self.lock:
            made = next(self.kept)
        for name in self.KEPT:
            setattr(item, name, getattr(made, name))


def owned(outputs: Sequence[Any]) -> list[Any]:
    """Return copies of outputs that the engine would overwrite in its next call."""
    return [out.copy() if isinstance(out, np.ndarray) else out.clone() for out in outputs]


def scaled_size(preprocess: Sequence[Any], sides: tuple[int, int]) -> tuple[int, int] | None:
    """Return the width and height that a source may scale frames of this size to; None if networks differ in it."""
    wanted = {
        (at.width, at.height)
        for step in preprocess
        if isinstance(step, Preprocess)
        for at in (step.placed(*sides),)
    }
    whole = len(wanted) == 1 and all(isinstance(step, Preprocess) for step in preprocess)
    return wanted.pop() if whole else None
