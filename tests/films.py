"""Films made with PyAV for tests: every frame shows its number, and damage is done to them on purpose."""

from __future__ import annotations

from pathlib import Path

import numpy as np

BITS = 6
"""Six blocks of black and white in two rows say a frame's number, 0 to 63."""


def _blocks(width: int, height: int):
    """The slices of the blocks, in the lower right three quarters."""
    wide, high = width * 3 // 4 // 3, height * 3 // 4 // 2
    for k in range(BITS):
        x, y = width - (k % 3 + 1) * wide, height - (k // 3 + 1) * high
        yield slice(y, y + high), slice(x, x + wide)


def picture(number: int, width: int = 64, height: int = 48, noise: int = 0) -> np.ndarray:
    """Blocks that say `number`; a red left and a blue top edge say what is up; noise makes packets large."""
    image = np.full((height, width, 3), 128, dtype=np.uint8)
    for k, (rows, columns) in enumerate(_blocks(width, height)):
        image[rows, columns] = 230 if number >> k & 1 else 25
    if noise:
        rng = np.random.default_rng(number)
        image += (rng.integers(0, 2, (height, width, 1)) * 2 * noise).astype(np.uint8) - np.uint8(noise)
    image[:, : width // 8] = (255, 0, 0)
    image[: height // 8] = (0, 0, 255)
    return image


def number_of(image: np.ndarray) -> int:
    """The number that a frame shows."""
    height, width = image.shape[:2]
    found = [image[rows, columns].mean() > 128 for rows, columns in _blocks(width, height)]
    return sum(1 << k for k, bit in enumerate(found) if bit)


def film(
    path: Path,
    frames: int = 20,
    *,
    size=(64, 48),
    codec="libx264",
    pixels="yuv420p",
    gop=5,
    b_frames=2,
    fps=25,
    times=None,
    noise=0,
    options=None,
    rotation=0,
    form=None,
    first=0,
) -> Path:
    """Write a film; `times` are its frames' time stamps in units of 1/1000 s."""
    import av

    with av.open(str(path), "w", format=form, options=options or {}) as container:
        stream = container.add_stream(codec, rate=fps)
        stream.width, stream.height = size
        stream.pix_fmt = pixels
        stream.codec_context.gop_size = gop
        if codec == "libx264":
            stream.options = {"crf": "12", "bf": str(b_frames), "preset": "ultrafast", "threads": "1"}
        if codec == "mpeg4":
            stream.bit_rate = 4_000_000
        if times is not None:
            from fractions import Fraction

            stream.time_base = stream.codec_context.time_base = Fraction(1, 1000)
        if rotation:
            stream.set_display_rotation(-rotation)
        for k in range(frames):
            frame = av.VideoFrame.from_ndarray(picture(first + k, *size, noise), format="rgb24")
            frame = frame.reformat(format=pixels)
            if times is not None:
                frame.pts, frame.time_base = times[k], stream.time_base
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def cut(path: Path, share: float) -> Path:
    """The first `share` of a file, in a file beside it."""
    data = path.read_bytes()
    short = path.with_stem(f"{path.stem}_cut")
    short.write_bytes(data[: int(len(data) * share)])
    return short


def scratched(path: Path, at: float = 0.5, count: int = 2500) -> Path:
    """A file with bytes in its middle overwritten, beside it."""
    data = bytearray(path.read_bytes())
    start = int(len(data) * at)
    noise = np.random.default_rng(1).integers(0, 256, count, dtype=np.uint8).tobytes()
    data[start : start + count] = noise[: len(data) - start]
    other = path.with_stem(f"{path.stem}_scratched")
    other.write_bytes(bytes(data))
    return other


def all_of(source, limit: int = 10_000) -> list:
    """Every frame of a source, or the first `limit`."""
    found = []
    while len(found) < limit and (frame := source.read()) is not None:
        found.append(frame)
    return found
