"""A video file decoded on an NVIDIA GPU (NVDEC, through PyNvVideoCodec): its frames are CUDA tensors.

No frame passes through host memory. One thread owns a demuxer and a decoder from their opening to their end: it alone
calls them, and copies each frame out of the decoder's surface, which the next packet may overwrite, on the decoder's
own stream before that packet. (PyNvVideoCodec's ThreadedDecoder, which has a thread within, ended the process now and
then where decoders were opened and closed beside each other.) A phone's rotation is not applied (`rotation` is None),
and PyNvVideoCodec does not report damage.
"""

from __future__ import annotations

import math
import queue
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from edgescope.errors import ModelError, UnavailableError
from edgescope.frames import Frame
from edgescope.records import Json

PACKAGE = (
    "pip install 'edgescope[nvdec]', on a machine whose NVIDIA driver has libnvcuvid and libnvidia-encode"
)
AHEAD = 32
"""Frames that are handed over at once."""
BATCHES = 2
"""Copied batches that wait to be read."""
ALONE = threading.Lock()
"""Decoders are made and ended one at a time."""
ENDS_S = 10.0
"""The longest wait for the decoder's end."""


class Nvdec:
    """A video file whose frames are CUDA tensors (height, width, 3), uint8, RGB, on GPU `gpu`."""

    live = False

    def __init__(self, name: str | Path, *, loop: bool = False, gpu: int = 0, ahead: int = AHEAD) -> None:
        self.path, self.loop, self._gpu, self._ahead = Path(name), loop, gpu, ahead
        self._codec, self._torch = _library()
        self._waiting: deque[Frame] = deque()
        self._frames = self._passes = 0
        self._about: dict[str, Json] = {}
        self._fps = 0.0
        self._ready: queue.Queue[Any] = queue.Queue(BATCHES)
        self._opened, self._closing = threading.Event(), threading.Event()
        self._ended = False
        self._failure: Exception | None = None
        self._owner = threading.Thread(target=self._serve, name=f"nvdec {self.path.name}", daemon=True)
        self._owner.start()
        self._opened.wait()
        if self._failure is not None and not self._about:
            raise self._broken(self._failure) from self._failure

    def read(self) -> Frame | None:
        """Return the next frame, or None after the last one."""
        return next(iter(self.read_many(1)), None)

    def read_many(self, n: int) -> list[Frame]:
        """Return the next n frames, or those that are left; none after the last one."""
        while len(self._waiting) < n and not self._ended:
            self._take(self._ready.get())
        found = [self._waiting.popleft() for _ in range(min(n, len(self._waiting)))]
        if not found and self._failure is not None and not self._closing.is_set():
            raise self._broken(self._failure) from self._failure
        return found

    def facts(self) -> Mapping[str, Json]:
        """Return the size, the rate and the codec of the file, and how many frames were decoded."""
        return {
            **self._about,
            "path": str(self.path),
            "rotation": None,
            "frames": self._frames,
            "passes": self._passes,
        }

    def close(self) -> None:
        """End the decoder, in its thread."""
        self._closing.set()
        self._ended = True
        self._waiting.clear()
        while self._owner.is_alive() and not self._ready.empty():  # it may wait for room
            self._ready.get()
        self._owner.join(ENDS_S)

    def _take(self, batch: Any) -> None:
        """Number the frames of a batch; None stands for the end of the film, or for what broke it."""
        if batch is None:
            self._ended = True
            return
        for index, image in enumerate(batch, start=self._frames):
            self._waiting.append(Frame(image, index, time_s=index / self._fps if self._fps else math.nan))
        self._frames = index + 1

    # -- the thread that owns the decoder --------------------------------------------------------------------

    def _serve(self) -> None:
        """Decode pass after pass until the source is closed."""
        try:
            stream = self._torch.cuda.Stream(self._gpu)
            with self._torch.cuda.stream(stream):
                while self._pass(stream) and self.loop and not self._closing.is_set():
                    pass
        except Exception as error:  # PyNvVideoCodec raises kinds of its own, and RuntimeError
            self._failure = error
        self._opened.set()
        self._put(None)

    def _pass(self, stream: Any) -> bool:
        """Decode the film once; return True, or raise an error if it held no frame."""
        with ALONE:
            packets = self._codec.CreateDemuxer(filename=str(self.path))
            decoder = self._codec.CreateDecoder(
                gpuid=self._gpu,
                codec=packets.GetNvCodecId(),
                cudacontext=0,
                cudastream=stream.cuda_stream,
                usedevicememory=True,
                outputColorType=self._codec.OutputColorType.RGB,
            )
        self._describe(packets)
        count = 0
        try:
            for batch in self._batches(packets, decoder):
                stream.synchronize()
                count += len(batch)
                self._put(batch)
        finally:
            stream.synchronize()
            with ALONE:
                del decoder, packets
        if count == 0 and not self._closing.is_set():
            raise ValueError("it holds no frame")
        self._passes += 1
        return True

    def _describe(self, packets: Any) -> None:
        self._fps = float(packets.FrameRate())
        self._about = {
            "codec": str(packets.GetNvCodecId()).rpartition(".")[2].lower(),
            "width": int(packets.Width()),
            "height": int(packets.Height()),
            "fps": self._fps or None,
        }
        self._opened.set()

    def _batches(self, packets: Any, decoder: Any) -> Iterator[Any]:
        """Yield the frames as tensors of up to `ahead`, whose copies are under way."""
        batch: Any = None
        held = 0
        for packet in packets:  # the last one is empty, and empties the decoder
            if self._closing.is_set():
                return
            for surface in decoder.Decode(packet):
                view = self._torch.from_dlpack(surface)
                if batch is None:
                    batch = self._torch.empty(
                        (self._ahead, *view.shape), dtype=view.dtype, device=view.device
                    )
                batch[held].copy_(view)
                held += 1
                if held == self._ahead:
                    yield batch
                    batch, held = None, 0
        if held:
            yield batch[:held]

    def _put(self, batch: Any) -> None:
        while not self._closing.is_set():
            try:
                return self._ready.put(batch, timeout=0.1)
            except queue.Full:
                continue

    def _broken(self, why: Exception) -> ModelError:
        return ModelError(
            "E-VIDEO-1",
            f"{self.path.name} cannot be decoded by NVDEC after {self._frames} frames",
            evidence=f"{type(why).__name__}: {why}",
            effect="The pipeline has no more frames",
            fix=f"decode it on the CPU: source={self.path}",
        )


def _library() -> tuple[Any, Any]:
    """Return the modules PyNvVideoCodec and torch; UnavailableError E-VIDEO-6 if they cannot decode here."""
    try:
        import PyNvVideoCodec
        import torch
    except (
        Exception
    ) as error:  # without NVIDIA's libraries PyNvVideoCodec raises a RuntimeError of many lines
        raise _unavailable(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}") from error
    if not torch.cuda.is_available():
        raise _unavailable(f"torch {torch.__version__} has no CUDA device")
    return PyNvVideoCodec, torch


def _unavailable(why: str) -> UnavailableError:
    return UnavailableError(
        "E-VIDEO-6",
        "NVDEC cannot decode here",
        evidence=why,
        effect="A file without the prefix nvdec: is decoded on the CPU",
        fix=PACKAGE,
    )
