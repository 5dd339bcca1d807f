"""From frames to the input of a network that sees clips: snippets that slide over the stream, each some frames long.

A snippet spans `frames` x `step` frames, and the next one begins `stride` frames later. Each camera has a window of its
own, an array that is written in a circle, so a pipeline that runs for days needs no more memory than one of a minute.
Where a stream has a gap longer than a snippet, the window begins anew: motion across a gap is no motion of the scene. A
window with fewer frames than a snippet (a short film, the first frames after a gap) is spread evenly over it.

A head such as RTFM's looks at many snippets of a video at once. Online the later ones do not exist yet, so each snippet
is scored as the last of a window that ends with it. The window holds as many snippets as the head takes, and no more
memory is needed however long the stream is. At the start, and after a gap in the stream, the first features fill the
places of those that are missing.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.frames import Frame, Item, Source
from edgescope.models.base import Detections, Fit, TensorSpec
from edgescope.models.boxes import on_host
from edgescope.models.image.preprocess import Placed, Preprocess
from edgescope.wings.video.stages import (
    Answer,
    Arrays,
    Decode,
    ReadClasses,
    coefficients,
    padded,
    resized,
    whole,
)

VIEWS = (1, 10)
"""Crops of a frame that a network sees: the middle; or the four corners and the middle, and each mirrored."""


@dataclass(frozen=True, slots=True)
class Snippet:
    """Where a snippet lies in its stream."""

    camera: int
    first: int
    """The number of its first frame, and of its last."""
    last: int
    start_s: float
    """Seconds from the first frame of the source to its first frame, and to its last."""
    end_s: float
    created_ns: int
    """When its last frame was created, on the monotonic clock; -1 for a file."""


@dataclass(frozen=True)
class Cutting:
    """How a stream is cut into snippets."""

    frames: int
    """Frames that the network sees of a snippet."""
    step: int = 1
    """Of so many frames of the stream it sees one."""
    stride: int = 0
    """Frames from the beginning of a snippet to that of the next; 0: as many as a snippet spans."""
    views: int = 1

    @property
    def span(self) -> int:
        """Return the frames of the stream that a snippet spans."""
        return self.frames * self.step

    @property
    def every(self) -> int:
        """Return the frames between the ends of two snippets."""
        return self.stride or self.span

    def new(self, batch: int) -> int:
        """Return the new frames that a unit reads, when a batch of the network's inputs is one unit."""
        return self.every * (batch // self.views)


class DecodeSnippets(Decode):
    """Reads the frames of the next snippets; the first unit of each source fills its first snippet as well."""

    def __init__(self, sources: Sequence[Source], batch: int, cutting: Cutting) -> None:
        super().__init__(sources, cutting.new(batch))
        self.more = dict.fromkeys(range(len(sources)), max(0, cutting.span - cutting.every))

    def count(self, camera: int) -> int:
        """Return the number of frames of the source's next unit."""
        return self.batch + self.more.pop(camera, 0)


class Since:
    """The seconds from a camera's first frame to another: by when they were created, or a film's own time stamps.

    The time stamps of a stream begin again with each new connection; the machine's clock does not.
    """

    def __init__(self) -> None:
        self.first: dict[int, int] = {}

    def __call__(self, frame: Frame) -> float:
        """Return the seconds; nan for a frame of a film without time stamps."""
        if frame.created_ns < 0:
            return frame.time_s
        return (frame.created_ns - self.first.setdefault(frame.camera, frame.created_ns)) * 1e-9


class Window:
    """The last frames of one camera, resized, in an array that is written in a circle."""

    def __init__(self, span: int, height: int, width: int) -> None:
        self.pixels = np.empty((span, height, width, 3), dtype=np.uint8)
        self.frames: deque[tuple[int, float, int]] = deque(maxlen=span)
        self.written = 0

    def add(self, frame: Frame, time_s: float, pixels: NDArray[np.uint8]) -> None:
        """Put a frame in the place of the oldest; begin anew after a gap."""
        if self.frames and frame.index - self.frames[-1][0] > len(self.pixels):
            self.frames.clear()
        self.pixels[self.written % len(self.pixels)] = pixels
        self.written += 1
        self.frames.append((frame.index, time_s, frame.created_ns))

    def rows(self, frames: int, step: int) -> NDArray[np.int64]:
        """Return the rows of `pixels` that a snippet of the newest frames is made of."""
        held = len(self.frames)
        chosen = picked(held, frames, step) + (self.written - held)
        return chosen % len(self.pixels)

    def snippet(self, camera: int) -> Snippet:
        """Return where the newest snippet lies."""
        (first, start_s, _), (last, end_s, created_ns) = self.frames[0], self.frames[-1]
        return Snippet(camera, first, last, start_s, end_s, created_ns)


def picked(held: int, frames: int, step: int) -> NDArray[np.int64]:
    """Return which of the `held` newest frames a snippet shows: every `step`-th, or all of them spread evenly."""
    if held >= frames * step:
        return held - frames * step + np.arange(frames, dtype=np.int64) * step
    return np.linspace(0, held - 1, frames).round().astype(np.int64)


def corners(at: Placed, height: int, width: int, views: int) -> list[tuple[int, int, bool]]:
    """Return top, left and whether it is mirrored, of each view of a resized frame."""
    middle = (max(0, at.top), max(0, at.left))
    if views == 1:
        return [(*middle, False)]
    low, right = max(0, at.height - height), max(0, at.width - width)
    places = [(0, 0), (0, right), (low, 0), (low, right), middle]
    return [(top, left, mirrored) for mirrored in (False, True) for top, left in places]


class Ends:
    """Says after how many frames of each unit a snippet ends; the last frames of a film end one, too."""

    def __init__(self, cutting: Cutting) -> None:
        self.cutting, self.begun = cutting, set[int]()

    def __call__(self, item: Item) -> set[int]:
        """Return the numbers of the frames, from 1, of the camera's next unit."""
        camera, every = item.frames[0].camera, self.cutting.every
        first = every if camera in self.begun else max(every, self.cutting.span)
        self.begun.add(camera)
        return {*range(first, len(item.frames) + 1, every), len(item.frames)}


class Snippets:
    """Slides the window over each camera's frames and writes the snippets into the network's input."""

    def __init__(self, preprocess: Preprocess, cutting: Cutting, batch: int) -> None:
        self.preprocess, self.cutting, self.batch = preprocess, cutting, batch
        self.scale, self.shift = coefficients(preprocess)
        high, wide = preprocess.sides
        self.arrays = Arrays((batch, len(preprocess.mean), cutting.frames, high, wide))
        self.windows: dict[int, Window] = {}
        self.ends, self.since = Ends(cutting), Since()
        self.lock = threading.Lock()

    def __call__(self, item: Item) -> None:
        """Set the unit's input, and `item.notes["snippets"]`: one for each row of the input and its views."""
        out = self.arrays.free()
        found: list[Snippet] = []
        with self.lock:
            ends = self.ends(item)
            for number, frame in enumerate(item.frames, 1):
                self._window(frame).add(frame, self.since(frame), self._resized(frame))
                if number in ends:
                    self._write(frame, out, len(found) * self.cutting.views)
                    found.append(self.windows[frame.camera].snippet(frame.camera))
        out[len(found) * self.cutting.views :] = out[len(found) * self.cutting.views - 1]
        item.inputs, item.fits = [out], [Fit()] * len(item.frames)
        item.notes["snippets"] = found

    def _at(self, frame: Frame) -> Placed:
        return self.preprocess.placed(*frame.size)

    def _resized(self, frame: Frame) -> NDArray[np.uint8]:
        return resized(frame.pixels, self._at(frame), self.preprocess)

    def _window(self, frame: Frame) -> Window:
        at, known = self._at(frame), self.windows.get(frame.camera)
        if known is None or known.pixels.shape[1:3] != (at.height, at.width):
            known = self.windows[frame.camera] = Window(self.cutting.span, at.height, at.width)
        return known

    def _write(self, frame: Frame, out: NDArray[np.float32], row: int) -> None:
        window, (high, wide) = self.windows[frame.camera], self.preprocess.sides
        rows = window.rows(self.cutting.frames, self.cutting.step)
        for view, (top, left, mirrored) in enumerate(
            corners(self._at(frame), high, wide, self.cutting.views)
        ):
            pixels = window.pixels[rows, top : top + high, left : left + wide].transpose(3, 0, 1, 2)
            pixels = pixels[::-1] if self.preprocess.order == "bgr" else pixels
            np.multiply(
                pixels[..., ::-1] if mirrored else pixels,
                self.scale[:, None, None, None],
                out=out[row + view],
            )
            out[row + view] += self.shift[:, None, None, None]


class PlainSnippets:
    """Makes the same snippets the simple way: it keeps pictures in a list and prepares each of them every time."""

    def __init__(self, preprocess: Preprocess, cutting: Cutting, batch: int) -> None:
        self.preprocess, self.cutting, self.batch = preprocess, cutting, batch
        self.kept: dict[int, list[tuple[Frame, float]]] = {}
        self.ends, self.since = Ends(cutting), Since()

    def __call__(self, item: Item) -> None:
        """Set the unit's input, and `item.notes["snippets"]`."""
        clips, found = [], []
        ends = self.ends(item)
        for number, frame in enumerate(item.frames, 1):
            kept = self.kept.setdefault(frame.camera, [])
            if kept and frame.index - kept[-1][0].index > self.cutting.span:
                kept.clear()
            kept.append((frame, self.since(frame)))
            del kept[: -self.cutting.span]
            if number in ends:
                clips += self._clips([each for each, _ in kept])
                (first, start_s), (last, end_s) = kept[0], kept[-1]
                found.append(Snippet(frame.camera, first.index, last.index, start_s, end_s, last.created_ns))
        item.inputs, item.fits = [padded(np.stack(clips), self.batch)], [Fit()] * len(item.frames)
        item.notes["snippets"] = found

    def _clips(self, kept: Sequence[Frame]) -> list[NDArray[np.float32]]:
        chosen = [kept[k] for k in picked(len(kept), self.cutting.frames, self.cutting.step)]
        at, (high, wide) = self.preprocess.placed(*chosen[0].size), self.preprocess.sides
        mean, std = (
            np.array(v, dtype=np.float32)[:, None, None] for v in (self.preprocess.mean, self.preprocess.std)
        )
        clips = []
        for top, left, mirrored in corners(at, high, wide, self.cutting.views):
            slices = []
            for frame in chosen:
                cut = resized(frame.pixels, at, self.preprocess)[top : top + high, left : left + wide]
                cut = cut[:, ::-1] if mirrored else cut
                cut = cut[..., ::-1] if self.preprocess.order == "bgr" else cut
                slices.append((cut.transpose(2, 0, 1) / np.float32(self.preprocess.divide) - mean) / std)
            clips.append(np.stack(slices, axis=1).astype(np.float32))
        return clips


class SnippetClasses(ReadClasses):
    """Finds the class of each snippet; each frame gets that of the snippet that ends with it or next after it."""

    def __call__(self, item: Item) -> None:
        """Set the unit's classes, and what was found in each frame: the class, on the whole frame."""
        snippets = item.notes["snippets"]
        kinds = self._classes(item.outputs[0][0], len(snippets))
        item.classes = [(int(kind),) for kind in kinds]
        item.found = found_in(item.frames, snippets, kinds)


def found_in(frames: Sequence[Frame], snippets: Sequence[Snippet], kinds: Sequence[int]) -> list[Detections]:
    """Return for each frame the class of the snippet that ends with it or next after it, on the whole frame."""
    ends = np.array([snippet.last for snippet in snippets])
    return [whole(frame, kinds[int(np.searchsorted(ends, frame.index))]) for frame in frames]


# -- scores while the stream goes on -------------------------------------------------------------------------


Features = NDArray[np.float32]


class Online:
    """Runs the head of an anomaly detector on each camera's last features.

    The head's input is (snippets, features), with the views as its batch, or (views, snippets, features). Its first
    output is one score for each snippet, and one a view where views are a batch: their mean counts.
    """

    def __init__(self, spec: TensorSpec, answer: Answer, cutting: Cutting) -> None:
        self.spec, self.answer, self.cutting = spec, answer, cutting
        self.snippets = spec.shape[-2]
        self.windows: dict[int, Features] = {}
        self.last: dict[int, Snippet] = {}

    def __call__(self, item: Item) -> None:
        """Set `item.notes["scores"]`: one for each snippet of the unit, nan if its features are not finite."""
        snippets: Sequence[Snippet] = item.notes["snippets"]
        features = on_host(item.outputs[0][:1])[0]
        rows = features.reshape(-1, self.cutting.views, features[0].size)[: len(snippets)].astype(np.float32)
        scores: list[float] = []
        for snippet, row in zip(snippets, rows, strict=True):
            scores.append(self._score(snippet, row) if np.isfinite(row).all() else float("nan"))
            self.last[snippet.camera] = snippet
        item.notes["scores"] = scores

    def _score(self, snippet: Snippet, row: Features) -> float:
        """Return the score of one snippet, whose features are (views, features)."""
        window = self.windows.get(snippet.camera)
        if window is None or self._after_gap(snippet):
            window = self.windows[snippet.camera] = np.repeat(row[:, None], self.snippets, axis=1)
        else:
            window[:, :-1] = window[:, 1:].copy()
            window[:, -1] = row
        given = window[None] if len(self.spec.shape) == 3 else window
        output: Any = on_host(self.answer({self.spec.name: given})[:1])[0]
        return float(output.reshape(-1, self.snippets)[:, -1].mean())

    def _after_gap(self, snippet: Snippet) -> bool:
        """Return whether more than a snippet is missing between a snippet and the one before it."""
        return snippet.last - self.last[snippet.camera].last > self.cutting.every + self.cutting.span
