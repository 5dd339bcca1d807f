"""Keeps a clip of each alarm: what was seen before it, during it, and shortly after it.

The frames before an alarm lie in memory as small JPEG pictures, as many seconds as the pre-roll has, and no more than a
fixed number. A thread of its own writes them into an mp4 when an alarm is raised, so a slow disk delays no frame: what
the thread cannot take in time is left out and counted. The file is written in fragments, so that what a killed process
leaves behind can be played; it ends in `.part` until it is complete. A disk that is full ends the clip, is counted and
reported, and the watching goes on.
"""

from __future__ import annotations

import io
import queue
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import av
import numpy as np
from PIL import Image

from edgescope.frames import Frame
from edgescope.records import Json
from edgescope.wings.video.sinks import Event

WIDE, QUALITY = 640, 80
"""Largest width of a frame of a clip, and the quality of its JPEG."""
MOST = 1200
"""Frames that the pre-roll holds at most, whatever the frame rate."""
QUEUED = 240
"""Frames that wait for the thread at most, beyond a pre-roll."""
LOOK_S = 0.5
FINISH_S = 30.0
"""How long `close` waits for a clip."""
TIME_BASE = Fraction(1, 1000)
PART = ".part"
ERRORS = (OSError, av.error.FFmpegError)


@dataclass(frozen=True)
class Length:
    """The seconds of a clip before, after and in all."""

    before_s: float = 5.0
    after_s: float = 2.0
    most_s: float = 60.0


class Small(NamedTuple):
    """One frame as the pre-roll keeps it."""

    time_s: float
    jpeg: bytes


class Clips:
    """Writes `FOLDER/ID.mp4` for each alarm of each camera."""

    def __init__(self, folder: Path, length: Length = Length()) -> None:
        self.folder, self.length = folder, length
        folder.mkdir(parents=True, exist_ok=True)
        self.cut_off = _kept(folder)
        """Clips that a killed process left; they can be played."""
        self.saved = self.failed = self.left_out = 0
        self.problem = ""
        self._before: dict[int, deque[Small]] = {}
        self._open: dict[int, _Writer] = {}
        self._writers: list[_Writer] = []
        self._lock = threading.Lock()

    def frames(self, frames: Sequence[Frame], times: Sequence[float]) -> None:
        """Keep the frames for a clip to come, and add them to the one under way."""
        for frame, time_s in zip(frames, times, strict=True):
            small = Small(time_s, _jpeg(frame))
            kept = self._before.setdefault(frame.camera, deque(maxlen=MOST))
            kept.append(small)
            while kept[0].time_s < time_s - self.length.before_s:
                kept.popleft()
            if (writer := self._open.get(frame.camera)) is not None:
                self.left_out += not writer.add(small)
                if time_s >= writer.until_s:
                    self._open.pop(frame.camera).end()

    def told(self, event: Event) -> None:
        """Begin a clip with the frames before the alarm, or let it end a little after the alarm."""
        camera, alarm = event.alarm.camera, event.alarm
        if alarm.over:
            if (writer := self._open.get(camera)) is not None:
                writer.until_s = min(writer.until_s, alarm.end_s + self.length.after_s)
            return
        if (before := self._open.pop(camera, None)) is not None:
            before.end()
        since = alarm.start_s - self.length.before_s
        first = [small for small in self._before.get(camera, ()) if small.time_s >= since]
        until_s = (first[0].time_s if first else alarm.start_s) + self.length.most_s
        made = self._open[camera] = _Writer(self.path(event), first, until_s, self._written)
        self._writers = [each for each in self._writers if each.thread.is_alive()] + [made]

    def path(self, event: Event) -> Path:
        """Return the file that an alarm's clip is in, once it is complete."""
        return self.folder / f"{event.id}.mp4"

    def file(self, event: Event) -> str:
        """Return the clip of an alarm; '' if it was not saved."""
        path = self.path(event)
        return str(path) if path.exists() else ""

    def facts(self) -> Mapping[str, Json]:
        """Return the folder, and how many clips were saved, failed, or left behind by a killed process."""
        return {
            "clips": str(self.folder),
            "saved": self.saved,
            "failed": self.failed,
            "frames_left_out": self.left_out,
            "cut_off": self.cut_off,
            "problem": self.problem,
        }

    def close(self) -> None:
        """Complete the clips under way."""
        for writer in self._open.values():
            writer.end()
        self._open.clear()
        for writer in self._writers:
            writer.thread.join(FINISH_S)

    def _written(self, problem: str) -> None:
        with self._lock:
            self.saved += not problem
            self.failed += bool(problem)
            self.problem = problem or self.problem


class _Writer:
    """The thread that writes one clip."""

    def __init__(self, path: Path, first: Sequence[Small], until_s: float, written: Any) -> None:
        self.path, self.until_s, self.written, self.ended = path, until_s, written, False
        self.queue: queue.Queue[Small | None] = queue.Queue(len(first) + QUEUED)
        for small in first:
            self.queue.put(small)
        self.thread = threading.Thread(target=self._write, name=f"clip {path.name}", daemon=True)
        self.thread.start()

    def add(self, small: Small) -> bool:
        """Add a frame; return whether there was room for it."""
        try:
            self.queue.put_nowait(small)
        except queue.Full:
            return False
        return True

    def end(self) -> None:
        """Let the thread complete the file once it has written what waits."""
        self.ended = True
        with suppress(queue.Full):  # then the thread sees it after what waits
            self.queue.put_nowait(None)

    def _frames(self) -> Iterator[Small]:
        while not (self.ended and self.queue.empty()):
            with suppress(queue.Empty):
                if (small := self.queue.get(timeout=LOOK_S)) is None:
                    return
                yield small

    def _write(self) -> None:
        part = self.path.with_name(self.path.name + PART)
        problem, frames = "", self._frames()
        try:
            with encoder(part) as encode:
                for small in frames:
                    encode(small)
            part.rename(self.path)
        except ERRORS as error:
            problem = f"{self.path.name}: {error}"
            part.unlink(missing_ok=True)
            for _ in frames:  # take what is still put, so that nobody waits for room
                pass
        self.written(problem)


@contextmanager
def encoder(path: Path) -> Iterator[Any]:
    """Yield a function that adds one Small to an mp4 file; OSError if the disk is full."""
    with path.open("wb", buffering=0) as raw:
        file = _Whole(raw)
        options = {"movflags": "frag_keyframe+empty_moov+default_base_moof"}
        container = av.open(file, "w", format="mp4", options=options)
        stream: Any = None
        first_s = 0.0

        def encode(small: Small) -> None:
            nonlocal stream, first_s
            image = np.asarray(Image.open(io.BytesIO(small.jpeg)))
            if stream is None:
                stream, first_s = _stream(container, image.shape[1], image.shape[0]), small.time_s
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = round((small.time_s - first_s) / TIME_BASE), TIME_BASE
            container.mux(stream.encode(frame))
            file.check()

        try:
            yield encode
            if stream is not None:
                container.mux(stream.encode())
        finally:
            try:
                container.close()
            except ERRORS:
                file.check()
                raise
        file.check()


class _Whole:
    """A file whose every write is whole or an error that is kept: FFmpeg may pass over one."""

    def __init__(self, raw: io.FileIO) -> None:
        self.raw, self.error = raw, None
        self.seek, self.tell = raw.seek, raw.tell

    error: OSError | None

    def write(self, data: bytes) -> int:
        """Write all of `data`; once that failed, pretend, so that FFmpeg comes to its end."""
        view = memoryview(data)
        while view and self.error is None:
            try:
                view = view[self.raw.write(view) or 0 :]
            except OSError as error:
                self.error = error
        return len(data)

    def check(self) -> None:
        """Raise what a write raised."""
        if self.error is not None:
            raise self.error


def _stream(container: Any, width: int, height: int) -> Any:
    """Add H.264 if FFmpeg can write it, else MPEG-4."""
    name = "libx264" if "libx264" in av.codecs_available else "mpeg4"
    stream = container.add_stream(name, rate=30)
    stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
    stream.time_base = stream.codec_context.time_base = TIME_BASE
    stream.codec_context.gop_size = 15
    stream.codec_context.max_b_frames = 0
    if name == "libx264":
        stream.options = {"preset": "ultrafast", "crf": "26", "threads": "1"}
    else:
        stream.bit_rate = 2_000_000
    return stream


def _jpeg(frame: Frame) -> bytes:
    """Return a frame as JPEG, at most WIDE across, with even sides as video needs them."""
    image = Image.fromarray(frame.shown)
    scale = min(1.0, WIDE / image.width)
    sides = tuple(max(2, round(side * scale) // 2 * 2) for side in image.size)
    if sides != image.size:
        image = image.resize(sides, Image.Resampling.BILINEAR, reducing_gap=2.0)
    out = io.BytesIO()
    image.save(out, "JPEG", quality=QUALITY)
    return out.getvalue()


def _kept(folder: Path) -> int:
    """Give the clips that a killed process left their place: ID.cut.mp4; return how many there were."""
    parts = list(folder.glob(f"*.mp4{PART}"))
    for part in parts:
        part.rename(part.with_name(part.name.removesuffix(f".mp4{PART}") + ".cut.mp4"))
    return len(parts)
