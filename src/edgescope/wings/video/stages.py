"""The stages that every pipeline is made of: decode, preprocess, infer, postprocess, and classify the crops.

A new built-in stage also needs its name in description.BUILT_IN and a line in pipeline's `_built_in`. flow.py counts
the frames that pass.

Each takes a unit (frame.Item) one step further. Where several ways are kept, they give the same answer: the slow ones
are what people write first, and a ladder (`edgescope docs video`) measures what each step away from them gains.

Frames become a network's input one image after another, vectorised on the host, or on the device. The three ways follow
the same Preprocess, so they give the same input but for the resampling: Pillow's where frames come in full size,
libswscale's where the source has scaled them already, torch's on a device.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.frames import Frame, Item, ReadsMany, Source
from edgescope.models.base import Batch, Decoder, Detections, Fit
from edgescope.models.boxes import on_host
from edgescope.models.image.preprocess import FILTERS, Placed, Preprocess
from edgescope.wings.video.flow import EndOfFilm

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


# -- from frames to a network's input -------------------------------------------------------------------------


def fit_of(preprocess: Preprocess, frame: Frame) -> Fit:
    """Return how a frame is fitted into the input."""
    width, height = frame.size
    at = preprocess.placed(width, height)
    return Fit(at.width / width, at.height / height, float(-at.left), float(-at.top))


def padded(array: NDArray[Any], batch: int) -> NDArray[Any]:
    """Return the array with its last row repeated up to the batch, contiguous."""
    return np.ascontiguousarray(array[np.minimum(np.arange(batch), len(array) - 1)])


def vectorisable(preprocess: Sequence[Any]) -> list[Preprocess]:
    """Return those that are known as data, not only as a function: only they can be applied to whole arrays."""
    return [step for step in preprocess if isinstance(step, Preprocess)]


class OneByOne:
    """Turns each frame into a picture and that into an input, as a loop around a network's own preprocessing does."""

    def __init__(self, preprocess: Sequence[Callable[[Any], NDArray[np.float32]]], batch: int) -> None:
        self.preprocess, self.batch = preprocess, batch

    def __call__(self, item: Item) -> None:
        """Set the unit's inputs and fits."""
        from PIL import Image

        pictures = [Image.fromarray(frame.pixels) for frame in item.frames]
        item.inputs = [padded(np.stack([step(p) for p in pictures]), self.batch) for step in self.preprocess]
        item.fits = _fits(self.preprocess[0], item.frames)


class OnHost:
    """Writes all frames of a unit straight into the network's float32 input, one multiply-add per channel."""

    def __init__(self, preprocess: Sequence[Preprocess], batch: int) -> None:
        self.preprocess, self.batch = preprocess, batch
        self.factors = [coefficients(step) for step in preprocess]
        self.arrays = [Arrays((batch, len(step.mean), *step.sides)) for step in preprocess]

    def __call__(self, item: Item) -> None:
        """Set the unit's inputs and fits."""
        item.inputs = [
            self._input(step, item.frames, *factors, arrays.free())
            for step, factors, arrays in zip(self.preprocess, self.factors, self.arrays, strict=True)
        ]
        item.fits = _fits(self.preprocess[0], item.frames)

    def _input(
        self,
        preprocess: Preprocess,
        frames: Sequence[Frame],
        scale: NDArray[np.float32],
        shift: NDArray[np.float32],
        out: NDArray[np.float32],
    ) -> NDArray[np.float32]:
        for row, frame in enumerate(frames):
            pixels = _cut(preprocess, frame).transpose(2, 0, 1)
            np.copyto(out[row], pixels[::-1] if preprocess.order == "bgr" else pixels)
        some = out[: len(frames)]
        if (scale != 1).any():
            some *= scale[:, None, None]
        if shift.any():
            some += shift[:, None, None]
        out[len(frames) :] = out[len(frames) - 1]
        return out


def _floats(shape: tuple[int, ...]) -> NDArray[np.float32]:
    return np.empty(shape, dtype=np.float32)


class Arrays:
    """Arrays of one shape that are used again once nobody holds them: new memory costs time, page by page."""

    def __init__(
        self, shape: tuple[int, ...], make: Callable[[tuple[int, ...]], NDArray[Any]] = _floats
    ) -> None:
        self.shape, self.make, self.made = shape, make, list[NDArray[Any]]()
        self.lock = threading.Lock()

    def free(self) -> NDArray[Any]:
        """Return an array that only this list refers to, or a new one."""
        with self.lock:
            for array in self.made:
                if sys.getrefcount(array) <= HELD_HERE:
                    return array
            self.made.append(self.make(self.shape))
            return self.made[-1]


HELD_HERE = 3
"""References to an array that is free: the list's, the loop's, and that of asking."""


def coefficients(preprocess: Preprocess) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return scale and shift per channel: a pixel from 0 to 255 times scale plus shift is the network's input."""
    std = np.array(preprocess.std, dtype=np.float64)
    scale = 1.0 / (preprocess.divide * std)
    return scale.astype(np.float32), (-np.array(preprocess.mean) / std).astype(np.float32)


def _fits(preprocess: Any, frames: Sequence[Frame]) -> list[Fit]:
    """Return how each frame was fitted; a network's own function does not say."""
    return [fit_of(preprocess, frame) if isinstance(preprocess, Preprocess) else Fit() for frame in frames]


def _cut(preprocess: Preprocess, frame: Frame) -> NDArray[np.uint8]:
    """Return the pixels of a frame, resized and cut to the input's size: (height, width, channels)."""
    at, pixels = preprocess.placed(*frame.size), frame.pixels
    if len(preprocess.mean) == 1:
        pixels = _grey(pixels)
    return _placed(resized(pixels, at, preprocess), at, preprocess)


def _grey(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return luma as Pillow computes it (ITU-R 601), with one channel."""
    luma = pixels.astype(np.uint32) @ np.array([19595, 38470, 7471], dtype=np.uint32) + 0x8000 >> 16
    return luma.astype(np.uint8)[..., None]


def resized(pixels: NDArray[np.uint8], at: Placed, preprocess: Preprocess) -> NDArray[np.uint8]:
    """Return the pixels of a frame in the size that comes before cutting, which may be their own."""
    if pixels.shape[:2] == (at.height, at.width):
        return pixels
    from PIL import Image

    image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    resized = image.resize((at.width, at.height), resample=FILTERS.index(preprocess.interpolation))
    return np.asarray(resized).reshape(at.height, at.width, -1)


def _placed(pixels: NDArray[np.uint8], at: Placed, preprocess: Preprocess) -> NDArray[np.uint8]:
    high, wide = preprocess.sides
    if at.left >= 0 and at.top >= 0:
        return pixels[at.top : at.top + high, at.left : at.left + wide]
    sheet = np.full((high, wide, pixels.shape[2]), 114, dtype=np.uint8)
    sheet[-at.top : -at.top + at.height, -at.left : -at.left + at.width] = pixels
    return sheet
