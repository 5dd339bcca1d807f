"""A video file decoded on an NVIDIA GPU (NVDEC, through PyNvVideoCodec): its frames are CUDA tensors.

No frame passes through host memory. The decoder uses its surfaces again, so each frame is copied once on the
device; the decoder runs ahead in a thread of its own. A phone's rotation is not applied (`rotation` is None),
and PyNvVideoCodec does not report damage.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgescope.errors import ModelError, UnavailableError
from edgescope.records import Json
from edgescope.video.frame import Frame

PACKAGE = (
    "pip install 'edgescope[nvdec]', on a machine whose NVIDIA driver has libnvcuvid and libnvidia-encode"
)
AHEAD = 32
"""How many frames the decoder may be ahead, and the most that `read_many` fetches in one call."""


class Nvdec:
    """A video file whose frames are CUDA tensors (height, width, 3), uint8, RGB, on GPU `gpu`."""

    live = False

    def __init__(self, name: str | Path, *, loop: bool = False, gpu: int = 0, ahead: int = AHEAD) -> None:
        self.path, self.loop, self._gpu, self._ahead = Path(name), loop, gpu, ahead
        self._codec, self._torch = _library()
        self._waiting: deque[Frame] = deque()
        self._frames = self._passes = 0
        self._decoder: Any = None
        self._open()

    def read(self) -> Frame | None:
        """Return the next frame, or None after the last one."""
        if not self._waiting:
            self._waiting.extend(self._fetched(self._ahead // 2 or 1))
        return self._waiting.popleft() if self._waiting else None

    def read_many(self, n: int) -> list[Frame]:
        """Return the next n frames, or those that are left; none after the last one."""
        found = [self._waiting.popleft() for _ in range(min(n, len(self._waiting)))]
        while len(found) < n and (more := self._fetched(min(n - len(found), self._ahead))):
            found += more
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
        """End the decoder and its thread."""
        self.loop = False
        self._waiting.clear()
        if self._decoder is not None:
            self._decoder.end()
        self._decoder = None

    def _open(self) -> None:
        """Begin at the file's first frame."""
        colour = self._codec.OutputColorType.RGB
        stream = self._torch.cuda.current_stream(self._gpu).cuda_stream
        try:
            self._decoder = self._codec.ThreadedDecoder(
                str(self.path),
                self._ahead,
                gpu_id=self._gpu,
                cuda_stream=stream,
                use_device_memory=True,
                output_color_type=colour,
            )
            about = self._decoder.get_stream_metadata()
        except Exception as error:  # PyNvVideoCodec raises kinds of its own, and RuntimeError
            raise self._broken(error) from error
        self._fps = float(about.average_fps)
        self._about: dict[str, Json] = {
            "codec": str(about.codec_name),
            "width": int(about.width),
            "height": int(about.height),
            "fps": self._fps or None,
        }

    def _fetched(self, n: int) -> list[Frame]:
        """Return up to n frames from the decoder; none if the file has ended and does not begin again."""
        if self._decoder is None:
            return []
        before = self._frames
        found = self._decoded(n)
        if not found:
            self._passes += 1
            self._decoder.end()
            self._decoder = None
            if before == 0:
                raise self._broken("it holds no frame")
            if self.loop:
                self._open()
                found = self._decoded(n)
        return found

    def _decoded(self, n: int) -> list[Frame]:
        """Return up to n frames, copied on the device out of the decoder's surfaces."""
        try:
            tensors = [self._torch.from_dlpack(got).clone() for got in self._decoder.get_batch_frames(n)]
        except Exception as error:
            raise self._broken(error) from error
        first = self._frames
        self._frames += len(tensors)
        return [
            Frame(tensor, index, time_s=index / self._fps if self._fps else math.nan)
            for index, tensor in enumerate(tensors, start=first)
        ]

    def _broken(self, why: object) -> ModelError:
        return ModelError(
            "E-VIDEO-1",
            f"{self.path.name} cannot be decoded by NVDEC after {self._frames} frames",
            evidence=f"{type(why).__name__}: {why}" if isinstance(why, Exception) else str(why),
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
