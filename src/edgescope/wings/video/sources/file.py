"""A video file, decoded by FFmpeg (PyAV): every frame exactly once, in presentation order, upright.

FFmpeg plays on after damage as well as it can. A measurement must know instead: whatever FFmpeg reports as an
error, as a corrupt packet or as a frame that it made up ends the film with E-VIDEO-1, or is left out and
counted (`damaged="skip"`), and so is what is missing at the end of a file that was cut off. What a header says of
frames, rates and durations is no promise: recorders count the frames that they dropped, FFmpeg counts one too many, a
browser writes 1000 frames per second. The stream decides; whether a file was cut off is told by the sizes that its
container writes of itself: the outermost boxes, chunks or elements end where the file ends, or it was cut. FFmpeg
reports nothing if whole packets were overwritten in a raw H.264 stream or in Matroska (their frames are missing) or a
part of a picture in Motion JPEG. Damage in the last frames may cost a few sound ones that the decoder holds.

Decoded frames, of a camera too, become RGB arrays, upright, in the size that is wanted.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import av
import numpy as np
from av.sidedata.sidedata import Type
from av.video.reformatter import VideoReformatter
from numpy.typing import NDArray

from edgescope.errors import ModelError
from edgescope.frames import Frame
from edgescope.records import Json

Image = NDArray[np.uint8]
Size = tuple[int, int]
Matrix = tuple[int, int, int, int]
IDENTITY: Matrix = (1, 0, 0, 1)


#: libswscale in one thread: with several a frame takes a fifth more of the cores that other stages need. Older PyAV
#: has no such argument and always uses one.
ALONE: dict[str, Any] = {"threads": 1} if "threads" in (VideoReformatter.reformat.__doc__ or "") else {}


class Rgb:
    """Turns decoded frames into arrays; libswscale scales and converts in one step, with tables kept between frames.

    `size` is the (width, height) of the upright array; None keeps the size of the frame. With `whole`, `whole()` gives
    the frame in its own size as well.
    """

    def __init__(self, size: Size | None = None, *, whole: bool = False) -> None:
        self.size = size
        self._full = Rgb() if size and whole else None
        self._scale: Callable[..., Any] = VideoReformatter().reformat
        self._part: Callable[..., Any] = VideoReformatter().reformat
        self._turn: int | None = None
        self._matrix = IDENTITY
        self.sides: Size = (0, 0)
        """Width and height, upright, of the last frame before it was scaled."""
        self.rotation = 0
        """Degrees clockwise by which the last frame was turned to be upright."""

    def __call__(self, frame: Any) -> Image:
        """Return (height, width, 3) uint8 of a decoded frame; the colours of a scaled one lie apart in memory."""
        if frame.rotation != self._turn:
            self._turn, self._matrix = frame.rotation, display_matrix(frame)
        matrix = self._matrix
        turned = _swaps(matrix)
        self.sides = (frame.height, frame.width) if turned else (frame.width, frame.height)
        self.rotation = degrees(matrix)
        width, height = self.size or self.sides
        wide, high = (height, width) if turned else (width, height)
        if self.size is None:
            if frame.format.components[0].bits > 8:  # straight to rgb24 is up to 2 levels too dark
                frame = self._scale(frame, wide, high, "gbrp", **ALONE)
                return upright(self._part(frame, wide, high, "rgb24", **ALONE).to_ndarray(), matrix)
            return upright(self._scale(frame, wide, high, "rgb24", **ALONE).to_ndarray(), matrix)
        return upright(_together(self._scale(frame, wide, high, "gbrp", **ALONE)), matrix)

    def whole(self, frame: Any) -> Image | None:
        """Return the upright frame in its own size beside the scaled one; None if nobody asked for it."""
        return None if self._full is None else self._full(frame)

    def close(self) -> None:
        """Free the tables, and libswscale's threads; the next frame makes them again."""
        self._scale, self._part = VideoReformatter().reformat, VideoReformatter().reformat
        if self._full is not None:
            self._full.close()


def _together(picture: Any) -> Image:
    """Return (height, width, 3) of planes of green, blue and red, each of which stays in one piece.

    libswscale scales into planes in half the time that pixels of three colours take, and the inputs of networks have
    their colours apart, too.
    """
    planes = np.empty((3, picture.height, picture.width), np.uint8)
    for colour, plane in zip((1, 2, 0), picture.planes, strict=True):
        planes[colour] = np.frombuffer(plane, np.uint8).reshape(picture.height, -1)[:, : picture.width]
    return planes.transpose(1, 2, 0)


def display_matrix(frame: Any) -> Matrix:
    """Return a, b, c, d of a frame's display matrix: x' = a x + c y, y' = b x + d y, in units of 1/65536.

    A frame whose side data were read is freed by the garbage collector only, so few frames should be.
    """
    data = frame.side_data.get(Type.DISPLAYMATRIX)
    if data is None:
        return IDENTITY
    a, b, _, c, d = np.frombuffer(bytes(data)[:20], "<i4").tolist()
    return a, b, c, d


def degrees(matrix: Matrix) -> int:
    """Return the clockwise turn of a display matrix: 0, 90, 180 or 270."""
    a, b, _, _ = matrix
    return round(math.degrees(math.atan2(b, a)) / 90) * 90 % 360


def _swaps(matrix: Matrix) -> bool:
    """Return whether width and height change places."""
    a, b, _, _ = matrix
    return abs(b) > abs(a)


def upright(image: Image, matrix: Matrix) -> Image:
    """Return the image as its display matrix shows it: itself, or contiguous, turned by 90 degrees and mirrored."""
    a, b, c, d = matrix
    swaps = _swaps(matrix)
    across, down = (c, b) if swaps else (a, d)
    if not swaps and across >= 0 and down >= 0:
        return image
    if swaps:
        image = image.transpose(1, 0, 2)
    if across < 0:
        image = image[:, ::-1]
    if down < 0:
        image = image[::-1]
    return np.ascontiguousarray(image)


AGREES = 0.01
"""A header's frame rate that is no further from that of the time stamps is kept."""
ERRORS = (av.error.FFmpegError, OSError, ValueError, IndexError)


class File:
    """A video file that is read frame by frame, again from the start if `loop` is set.

    `size` (width, height) has libswscale scale each frame, so that no array of the full size is made, or with `whole`
    one beside it: what a network sees does not depend on whether somebody wants to see the frame as well.
    `threads` is PyAV's thread_type: AUTO or FRAME decodes several frames at once, SLICE parts of one frame,
    NONE uses one thread. `damaged` is "stop" or "skip".
    """

    live = False

    def __init__(
        self,
        name: str | Path,
        *,
        loop: bool = False,
        size: Size | None = None,
        whole: bool = False,
        threads: str = "AUTO",
        damaged: str = "stop",
    ) -> None:
        self.path, self.loop, self.threads = Path(name), loop, threads
        self._skips = damaged == "skip"
        self._rgb = Rgb(size, whole=whole)
        self._frames = self._passes = self._damaged = self._size_changes = 0
        self._promised = self._packets_read = 0
        self._lost: int | None = None
        self._times = Times()
        self._about: dict[str, Json] = {}
        self._container: Any = None
        self._open()
        self._reader: Iterator[Frame] = self._all()

    def read(self) -> Frame | None:
        """Return the next frame, or None after the last one; ModelError E-VIDEO-1 at damage."""
        return next(self._reader, None)

    def facts(self) -> Mapping[str, Json]:
        """Return what the file is and what was met: `frames`, `passes`, `damaged`, `size_changes`, `rotation`.

        `fps` is the header's until a pass has ended, then that of the time stamps; `lost` are the frames that the
        header counts and a file that was cut off does not hold, None if the file is whole or nothing counts them.
        """
        width, height = self._rgb.sides if self._frames else (self._about["width"], self._about["height"])
        return {
            **self._about,
            "width": width,
            "height": height,
            "rotation": self._rgb.rotation,
            "frames": self._frames,
            "passes": self._passes,
            "damaged": self._damaged,
            "lost": self._lost,
            "size_changes": self._size_changes,
        }

    def close(self) -> None:
        """Free the decoder and its threads."""
        self._reader = iter(())
        self._rgb.close()
        self._shut()

    # -- one pass ----------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Open the file and read its header."""
        try:
            self._container = av.open(f"file:{self.path}")
            stream = self._container.streams.video[0]
            stream.thread_type = self.threads
        except ERRORS as error:
            raise self._broken(_text(error)) from error
        rate = stream.average_rate or stream.guessed_rate
        self._about = {
            "path": str(self.path),
            "codec": stream.codec_context.name,
            "pixels": stream.codec_context.pix_fmt,
            "fps": float(rate) if rate else None,
            "width": stream.codec_context.width,
            "height": stream.codec_context.height,
        }
        self._times.begin(self._about["fps"])

    def _shut(self) -> None:
        if self._container is not None:
            self._container.close()
        self._container = None

    def _all(self) -> Iterator[Frame]:
        """Yield the frames of every pass."""
        while True:
            before = self._frames
            yield from self._pass()
            self._shut()
            if self._frames == before:
                raise self._broken("it holds no frame")
            self._passes += 1
            self._about["fps"] = self._times.rate(self._frames - before, self._about["fps"])
            if not self.loop:
                return
            self._open()

    def _pass(self) -> Iterator[Frame]:
        for picture in self._pictures():
            try:
                frame = self._made(picture)
            except ERRORS as error:
                self._met(_text(error))
                continue
            del picture  # its memory, and then the array's, serve the next frame
            yield frame
            del frame

    def _made(self, picture: Any) -> Frame:
        """Return the frame of a decoded picture."""
        before = self._rgb.sides
        frame = Frame(self._rgb(picture), self._frames, time_s=self._times.next(picture.time))
        sides = self._rgb.sides
        self._size_changes += self._frames > 0 and sides != before
        frame.sides = sides if self._rgb.size else None
        frame.whole = self._rgb.whole(picture)
        self._frames += 1
        return frame

    def _pictures(self) -> Iterator[Any]:
        """Yield the frames that FFmpeg decodes without a complaint."""
        stream = self._container.streams.video[0]
        self._promised, self._packets_read = stream.frames, 0
        for packet, broken in self._packets(stream):
            self._packets_read += packet is not None and packet.size > 0
            if broken and self._skips:
                self._met("a packet is incomplete")
                continue
            try:  # what stands before the break is still in the decoder
                pictures = packet.decode() if packet is not None and not broken else stream.decode(None)
            except ERRORS as error:
                self._met(_text(error))
                continue
            while pictures:
                if pictures[0].is_corrupt:
                    self._met("a frame could be decoded in part only")
                    del pictures[0]
                else:
                    yield pictures.pop(0)
            if broken:
                self._met("a packet is incomplete")
        if not self._damaged and (missing := missing_bytes(self.path)):
            self._met(f"it was cut off: its last {missing} bytes are missing")

    def _packets(self, stream: Any) -> Iterator[tuple[Any, bool]]:
        """Yield the packets of the film, and whether each is broken; the last is empty, or None after an error.

        FFmpeg marks the last packet before two MPEG-TS streams join as broken, too: a key frame follows there.
        """
        held = None
        try:
            for packet in self._container.demux(stream):
                if held is not None:
                    yield held, held.is_corrupt and not packet.is_keyframe
                held = packet
            yield held, False
        except ERRORS as error:
            if held is not None:
                yield held, held.is_corrupt
            self._met(_text(error))
            yield None, False

    def _count_lost(self) -> None:
        """Note the frames that the header counts and a file that was cut off does not hold."""
        if missing_bytes(self.path):
            self._lost = max(0, self._promised - self._packets_read) or None

    def _met(self, what: str) -> None:
        """Count damage that is skipped; else raise E-VIDEO-1."""
        self._damaged += 1
        self._count_lost()
        what += f"; {self._lost} of {self._promised} frames are missing" if self._lost else ""
        if not self._skips:
            raise self._broken(what)

    def _broken(self, what: str) -> ModelError:
        self._shut()
        return ModelError(
            "E-VIDEO-1",
            f"{self.path.name} cannot be decoded after {self._frames} frames",
            evidence=what,
            effect="The pipeline has no more frames",
            fix="a whole video",
        )


class Times:
    """Seconds from the first frame on: they go on where a film begins again or its time stamps jump back."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._offset: float | None = None
        self._begun: float | None = None
        self._stamped = 0
        self._step = math.nan

    def begin(self, fps: float | None) -> None:
        """Begin a pass over a film whose header names `fps`."""
        self._step, self._offset = 1 / fps if fps else math.nan, None
        self._begun, self._stamped = None, 0

    def rate(self, frames: int, header: float | None) -> float | None:
        """Return the frames per second of a pass of so many frames by their time stamps.

        The header's is kept where the stamps agree, which are rounded, or where not each frame had one.
        """
        if frames < 2 or self._stamped < frames or self._begun is None or self._last is None:
            return header
        found = (frames - 1) / (self._last - self._begun)
        return header if header and abs(found / header - 1) < AGREES else found

    def next(self, stamp: float | None) -> float:
        """Return the time of the next frame, whose own time stamp is `stamp` seconds or missing; nan if unknown."""
        due = 0.0 if self._last is None else self._last + self._step
        if stamp is None:
            self._last = self._last if math.isnan(due) else due
            return due
        if self._offset is None or (self._last is not None and stamp + self._offset <= self._last):
            self._offset = ((self._last or 0.0) if math.isnan(due) else due) - stamp
        self._last = stamp + self._offset
        self._begun = self._last if self._begun is None else self._begun
        self._stamped += 1
        return self._last


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


# -- whether the file was cut off -----------------------------------------------------------------------------


EBML, SEGMENT = b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67"


def missing_bytes(path: Path) -> int:
    """Return how many bytes the container says the file should have beyond its end; 0 if it does not say so."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(12)
        if head[:4] == b"RIFF":
            return _beyond(file, size, _chunk)
        if head[4:8] == b"ftyp":
            return _beyond(file, size, _box)
        return max(0, _matroska(file) - size) if head[:4] == EBML else 0


def _beyond(file: BinaryIO, size: int, length: object) -> int:
    """Walk what stands one after another; return how far the last of it reaches beyond the end."""
    at = 0
    while at + 8 <= size:
        file.seek(at)
        step = length(file.read(16))  # type: ignore[operator]
        if step < 8:
            return 0  # a size that was never filled in, or one that means `to the end`
        at += step
    return max(0, at - size)


def _chunk(head: bytes) -> int:
    """Return the bytes of a RIFF chunk with its head; 0 for what is none, such as padding behind the last."""
    length: int = struct.unpack("<I", head[4:8])[0]
    return 8 + length + length % 2 if head[:4] == b"RIFF" and length else 0


def _box(head: bytes) -> int:
    """Return the bytes of a box of MP4 with its head."""
    length: int = struct.unpack(">I", head[:4])[0]
    if length == 1 and len(head) == 16:
        return int(struct.unpack(">Q", head[8:16])[0])
    return length if head[4:8].isalnum() else 0


def _matroska(file: BinaryIO) -> int:
    """Return where the segment ends by its own size; 0 if that was never filled in."""
    file.seek(4)
    file.seek(_vint(file), 1)
    if file.read(4) != SEGMENT:
        return 0
    length = _vint(file)
    return file.tell() + length if length else 0


def _vint(file: BinaryIO) -> int:
    """Return a number of EBML; 0 for one that is unknown."""
    first = file.read(1)
    if not first or not first[0]:
        return 0
    wide = 9 - first[0].bit_length()
    value = int.from_bytes(bytes([first[0] & (1 << 8 - wide) - 1]) + file.read(wide - 1), "big")
    return 0 if value == (1 << 7 * wide) - 1 else value
