"""Write frames to a video file: the part of generate.py that needs PyAV."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from edgescope import cache


def write(path: Path, frames: NDArray[np.uint8], fps: int) -> None:
    """Write (n, height, width, 3) RGB frames as H.264, completely or not at all; both sides must be even."""
    with cache.writing(path) as temporary, av.open(str(temporary), "w") as container:
        stream = container.add_stream("libx264", rate=fps)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "yuv420p"
        stream.options = {"crf": "18", "preset": "veryfast", "threads": "1"}
        for frame in frames:
            container.mux(
                stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24"))
            )
        container.mux(stream.encode())
