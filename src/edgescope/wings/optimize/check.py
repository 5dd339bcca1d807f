"""Judges run.py again on the data it was judged by, and says where its figures do not hold. numpy and Pillow suffice.

    python run.py --check DATA     the folder, .csv, .json, .npz or .npy files that edgescope was given

Every input that was judged is found again by its content, as the network takes it: what is prepared otherwise here is
not found, and is said. This file is copied beside run.py as it is.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

IMAGES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
ROUNDING = 5e-4
Row = dict[str, NDArray[Any]]
Run = Callable[[Mapping[str, NDArray[Any]]], Any]


def elsewhere(folder: Path) -> list[str]:
    """Return what differs here from where the card's figures were measured: engine, processor, driver."""
    card = folder / "card.json"
    valid = json.loads(card.read_text())["valid_for"] if card.exists() else {}
    found = []
    for name, version in valid.get("packages", {}).items():
        try:
            here = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            here = "absent"
        found += [f"{name} {here}, measured with {version}"] if here != version else []
    known = _read("/proc/cpuinfo")
    model = re.search(r"^(?:model name|Model|Processor)\s*:\s*(.*)$", known, re.MULTILINE)
    if model and valid.get("cpu") and model[1].strip() != valid["cpu"]:
        found.append(f"processor {model[1].strip()}, measured on {valid['cpu']}")
    flags = re.search(r"^(?:flags|Features|isa)\s*:\s*(.*)$", known, re.MULTILINE)
    missing = [f for f in valid.get("isa", ()) if flags and f not in flags[1].split()]
    found += [f"the processor lacks {', '.join(missing)}"] if missing else []
    driver = re.search(r"\b(\d+\.\d+(?:\.\d+)?)\b", _read("/proc/driver/nvidia/version"))
    if valid.get("driver") and (not driver or driver[1] != valid["driver"]):
        found.append(f"driver {driver[1] if driver else 'absent'}, measured with {valid['driver']}")
    return found


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def warn(folder: Path) -> None:
    """Say on stderr where the figures of the card do not hold."""
    if differs := elsewhere(folder):
        print(f"measured elsewhere; run edgescope optimize again: {'; '.join(differs)}", file=sys.stderr)


def picture(path: Path, folder: Path, batch: int) -> Row:
    """Return a batch of one picture, prepared as the network takes it."""
    with np.load(folder / "sample.npz") as file:
        name = next(n for n in file.files if not n.startswith("fp32_"))
        about = {"shape": file[name].shape[1:], "dtype": file[name].dtype}
    row = _fitted(_loaded(path, name)[name], about)
    if row is None:
        sys.exit(f"run.py: {path} is no picture that Pillow can read")
    return {name: np.repeat(row[None], batch, axis=0)}


def described(output: NDArray[Any], fp32: NDArray[Any] | None) -> str:
    """Return how far an output is from fp32's; without that, the highest scores of its first row, or its range."""
    if fp32 is not None:
        return f"differs from fp32 by at most {np.abs(output - fp32).max():.3g}"
    if output.ndim != 2:
        return f"from {output.min():.4g} to {output.max():.4g}"
    best = np.argsort(-output[0], kind="stable")[:5]
    return f"highest at {', '.join(f'{i} ({output[0, i]:.4g})' for i in best)}"


def main(run: Run, batch: int, folder: Path, data: Path) -> int:
    """Print what the measure says of run.py here and on the card; return 0 where both are the same and suffice."""
    card = json.loads((folder / "card.json").read_text())["check"]
    if "absent" in card:
        print(f"cannot be checked: {card['absent']}")
        return 2
    if not data.exists():
        print(f"cannot be checked: there is no {data}")
        return 2
    with np.load(folder / "check.npz") as file:
        kept = dict(file)
    rows = _found(data, card, {name: i for i, name in enumerate(kept["digests"].tolist())})
    if not rows:
        print(
            f"cannot be checked: none of the {card['n']} inputs that were judged lies in {data}, as prepared here"
        )
        return 2
    order = np.array(sorted(rows))
    outputs, every = _answers(run, batch, [rows[i] for i in order]), np.arange(len(order))
    good = True
    for about in (card, *card.get("beside", ())):
        measure = _measure(about, kept, order)
        theirs = tuple(kept[name][order] for name in sorted(kept) if name.startswith("fp32_"))
        value, fp32 = measure.value(_tally(measure, outputs, batch), every), measure.value(theirs, every)
        good &= _say(about, value, fp32, f"{len(order)} of {card['n']}", whole=len(order) == card["n"])
    return 0 if good else 1


def _say(about: Mapping[str, Any], value: float, fp32: float, of: str, *, whole: bool) -> bool:
    """Print what a measure says here and on the card; return whether both are the same and suffice."""
    same = whole and abs(value - about["value"]) <= ROUNDING * max(1.0, abs(about["value"]))
    kept = value - fp32 >= about["floor"] - 1e-12
    print(f"{about['title']} on {of} inputs: {value:.4f} here, {about['value']:.4f} on the card")
    print(f"  against fp32 ({fp32:.4f}): {value - fp32:+.4f}, allowed {about['floor']:+.4f}")
    found = [
        "" if kept else "worse than allowed",
        "" if whole else "some inputs of the card were not found",
        "" if same or not whole else "not the figure of the card",
    ]
    wrong = ", ".join(filter(None, found))
    print(f"  failed: {wrong}" if wrong else "  passed")
    return bool(same and kept)


def _measure(about: Mapping[str, Any], kept: Mapping[str, NDArray[Any]], order: NDArray[np.intp]) -> Any:
    """Return the measure of these inputs, as the gate made it."""
    made = importlib.import_module("check_measure")
    truth = kept["labels"][order] if "labels" in kept else None
    if about["measure"] == "MeanAp":
        each = np.split(kept["boxes"], np.cumsum(kept["counts"])[:-1])
        return made.MeanAp([each[i] for i in order], _boxes(_function(about["function"])))
    if about["measure"] == "Closeness":
        names = sorted(name for name in kept if name.startswith("fp32_"))
        return made.Closeness(tuple(kept[name][order] for name in names), ranks=about["ranks"])
    if about["measure"] == "Own":
        return made.Own(_function(about["function"]), truth, about["title"])
    return made.MeanIou(truth) if about["measure"] == "MeanIou" else made.TopK(truth, about["k"])


def _boxes(reader: Any) -> Any:
    """Return the user's function from outputs to boxes as the measure calls it."""
    return lambda outputs: [
        tuple(map(np.asarray, image)) for image in reader(outputs[0] if len(outputs) == 1 else tuple(outputs))
    ]


def _function(name: str) -> Any:
    """Return the user's function, from the file that was copied beside this one."""
    if name == "metric.pkl":
        pickle = importlib.import_module("cloudpickle")
        return pickle.loads((Path(__file__).parent / name).read_bytes())
    return getattr(importlib.import_module("check_metric"), name)


def _answers(run: Run, batch: int, rows: list[Row]) -> list[list[NDArray[Any]]]:
    """Return run.py's outputs, one list for each batch; the last batch is filled up and cut again."""
    parts = []
    for start in range(0, len(rows), batch):
        some = [rows[min(start + i, len(rows) - 1)] for i in range(batch)]
        given = {name: np.ascontiguousarray(np.stack([row[name] for row in some])) for name in some[0]}
        parts.append([np.array(output)[: len(rows) - start] for output in run(given)])
    return parts


def _tally(measure: Any, outputs: list[list[NDArray[Any]]], batch: int) -> tuple[NDArray[Any], ...]:
    """Return what the measure keeps of the outputs."""
    parts = [measure.tally(got, slice(i * batch, i * batch + len(got[0]))) for i, got in enumerate(outputs)]
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))


def _found(data: Path, card: Mapping[str, Any], wanted: Mapping[str, int]) -> dict[int, Row]:
    """Return the inputs that were judged, by their numbers."""
    found: dict[int, Row] = {}
    for row in _rows(data, card["inputs"]):
        digest = hashlib.sha256(b"".join(row[name].tobytes() for name in card["inputs"])).hexdigest()[:16]
        if digest in wanted:
            found[wanted[digest]] = row
        if len(found) == len(wanted):
            break
    return found


def _rows(data: Path, inputs: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the inputs of a data set as the network takes them; what does not fit is passed over."""
    if data.suffix == ".npz":
        with np.load(data) as file:
            arrays = dict(file)
        if len(inputs) == 1 and not set(inputs) <= set(arrays):
            arrays = {next(iter(inputs)): next(iter(arrays.values()))}
        given: Iterator[Any] = (
            {n: arrays[n][i] for n in inputs} for i in range(len(arrays[next(iter(inputs))]))
        )
    else:
        root = data if data.is_dir() else data.parent
        files = sorted(p for p in root.rglob("*") if p.suffix.lower() in (*IMAGES, ".npy"))
        given = (_loaded(path, next(iter(inputs))) for path in files)
    for values in given:
        row = {name: _fitted(values[name], about) for name, about in inputs.items()}
        if all(row[name] is not None for name in inputs):
            yield row  # type: ignore[misc]


def _loaded(path: Path, name: str) -> dict[str, Any]:
    if path.suffix.lower() == ".npy":
        return {name: np.load(path)}
    from PIL import Image

    try:
        picture = Image.open(path)
        picture.load()
    except (OSError, ValueError, SyntaxError):
        return {name: None}
    return {name: picture}


def _fitted(value: Any, about: Mapping[str, Any]) -> NDArray[Any] | None:
    """Return one input in the network's shape and type; None for what is none."""
    shape, dtype = tuple(about["shape"]), np.dtype(about["dtype"])
    if (
        isinstance(value, np.ndarray)
        and value.dtype == np.uint8
        and value.shape != shape
        and value.ndim in (2, 3)
    ):
        from PIL import Image

        value = Image.fromarray(value[..., 0] if value.shape[2:] == (1,) else value)
    if hasattr(value, "convert"):
        array = importlib.import_module("check_preprocess").PREPROCESS(value)
        array = array if array.shape == shape else array.transpose(1, 2, 0)
        if dtype.kind in "iu":
            array = array.round().clip(np.iinfo(dtype).min, np.iinfo(dtype).max)
        value = array
    return None if value is None or value.shape != shape else np.ascontiguousarray(value, dtype=dtype)
