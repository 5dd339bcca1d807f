"""Features of a whole set of videos: threads decode, one engine computes, batches are filled across videos."""

from __future__ import annotations

import queue
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgescope import cache, foreign
from edgescope.errors import EdgescopeError, Message
from edgescope.records import Json, digest
from edgescope.wings.anomaly.features import (
    DEFAULT,
    Engine,
    Extractor,
    FeatureSet,
    Manifest,
    Row,
    entries,
    read_features,
)
from edgescope.wings.anomaly.layouts import Video
from edgescope.wings.anomaly.preparation import PICTURES, Preparation, Read, decoded, reason

VERSION = 1  # raise this when decoding or preparing changes
AHEAD = 4
"""Chunks of snippets that wait for the engine, per decoding thread."""


@dataclass(frozen=True)
class Progress:
    """How far an extraction is."""

    done: int
    of: int
    row: Row
    frames_per_s: float
    """Frames decoded and computed since the start, per second; videos that were left out do not count."""


@dataclass(frozen=True)
class Extracted:
    """What an extraction did."""

    features: FeatureSet
    new: int
    """Videos whose features were computed now; the others were there."""
    frames: int
    """Frames computed now; those of videos that were left out do not count."""
    seconds: float

    @property
    def warning(self) -> Message | None:
        """Return the warning about videos that were left out, or whose frame count is not as their labels say."""
        out = [f"{row.name}: {row.left_out}" for row in self.features.left_out]
        if not out:
            return None
        return Message(
            "W-ANOMALY-2",
            f"{len(out)} of {len(out) + len(self.features.rows)} videos were left out",
            evidence="; ".join(out[:3]) + ("; ..." if len(out) > 3 else ""),
            effect="They are neither trained on nor judged with",
            fix="copy them again; --damaged skip uses what can be decoded",
        )


@dataclass
class _Job:
    """One video on its way: what was decoded of it, and the features computed so far."""

    video: Video
    key: str
    read: Read = field(default_factory=Read)
    rows: list[NDArray[np.float32]] = field(default_factory=list)
    expected: int | None = None
    """Inputs decoded in all; None while more may come."""
    left_out: str = ""

    @property
    def complete(self) -> bool:
        return self.expected is not None and len(self.rows) >= self.expected


def extract(
    videos: Sequence[Video],
    output: Path,
    preparation: Preparation,
    *,
    engine: Engine = DEFAULT,
    decoders: int = 1,
    damaged: str = "stop",
    overwrite: bool = False,
    tell: Callable[[Progress], None] = lambda progress: None,
) -> Extracted:
    """Write the features of `videos` and their manifest to `output`; return what was done.

    Videos whose features are there already, of the same file with the same settings, are passed over unless
    `overwrite`. A video that cannot be decoded is left out and named. `decoders` videos are decoded at once.
    """
    extractor = Extractor(preparation, engine)
    try:
        about, known = entries(output)
        settings = {name: value for name, value in asdict(engine).items() if name != "batch"}
        base = digest([VERSION, asdict(preparation), extractor.model.digest, settings])
        jobs = [_Job(video, _key(base, video, damaged)) for video in videos]
        there = [] if overwrite or about is None else [r for job in jobs if (r := _there(job, known, output))]
        names = {row.name for row in there}
        jobs = [job for job in jobs if job.video.name not in names]
        manifest = Manifest(output, _about(preparation, engine, extractor), there)
        begin, frames = time.monotonic(), 0
        for done, job in enumerate(_computed(jobs, extractor, decoders, damaged), start=len(there) + 1):
            row = _row(job, preparation)
            if not row.left_out:
                _save(output / row.file, np.stack(job.rows).reshape(row.snippets, preparation.crops, -1))
            manifest.add(row)
            frames += 0 if row.left_out else row.frames
            tell(Progress(done, len(videos), row, frames / max(time.monotonic() - begin, 1e-9)))
        return Extracted(read_features(output), len(jobs), frames, time.monotonic() - begin)
    finally:
        extractor.close()


def _computed(jobs: Sequence[_Job], extractor: Extractor, decoders: int, damaged: str) -> Iterator[_Job]:
    """Yield jobs as their features are complete."""
    prepared, stop = extractor.preparation, threading.Event()
    chunks: queue.Queue[tuple[_Job, NDArray[np.float32] | None]] = queue.Queue(AHEAD * decoders)
    waiting = iter(jobs)
    lock = threading.Lock()

    def put(job: _Job, inputs: NDArray[np.float32] | None) -> None:
        while not stop.is_set():
            with suppress(queue.Full):
                chunks.put((job, inputs), timeout=0.1)
                return

    def work() -> None:
        while not stop.is_set():
            with lock:
                job = next(waiting, None)
            if job is None:
                return
            count, most = 0, max(1, extractor.engine.batch // prepared.crops)
            try:
                for part in decoded(job.video.path, prepared, job.read, most=most, damaged=damaged):
                    inputs = prepared.inputs(part)
                    count += len(inputs)
                    put(job, inputs)
            except EdgescopeError as error:
                job.left_out = reason(error)
            except Exception as error:
                job.left_out = f"{type(error).__name__}: {error}"
            job.expected = count
            put(job, None)

    workers = [threading.Thread(target=work, name="decode", daemon=True) for _ in range(decoders)]
    for worker in workers:
        worker.start()
    try:
        yield from _batched(chunks, len(jobs), extractor)
    finally:
        stop.set()
        for worker in workers:
            worker.join()


def _batched(
    chunks: queue.Queue[tuple[_Job, NDArray[np.float32] | None]], count: int, extractor: Extractor
) -> Iterator[_Job]:
    """Take prepared inputs, run them in full batches across videos, yield the jobs that this completes."""
    size, ended = extractor.engine.batch, 0
    held: list[tuple[_Job, NDArray[np.float32]]] = []
    open_jobs: list[_Job] = []
    while ended < count or held:
        if ended < count:
            job, inputs = chunks.get()
            if inputs is None:
                ended += 1
                open_jobs.append(job)
            else:
                held += [(job, row) for row in inputs]
        while len(held) >= size or (held and ended == count):
            now, held = held[:size], held[size:]
            for (job, _), output in zip(now, extractor.run(np.stack([row for _, row in now])), strict=True):
                job.rows.append(output)
        yield from [job for job in open_jobs if job.complete]
        open_jobs = [job for job in open_jobs if not job.complete]


def _row(job: _Job, preparation: Preparation) -> Row:
    video, met = job.video, job.read
    left_out = job.left_out
    if not left_out and video.frames is not None and abs(video.frames - met.frames) > preparation.snippet:
        left_out = f"its labels state {video.frames} frames and {met.frames} were decoded"
    if not left_out and not all(np.isfinite(row).all() for row in job.rows):
        left_out = "its features hold values that are no numbers"
    return Row(
        name=video.name,
        split=video.split,
        category=video.category,
        intervals=video.intervals,
        frames=met.frames,
        fps=met.fps,
        snippets=len(job.rows) // preparation.crops,
        repeated=met.repeated,
        damaged=met.damaged,
        key=job.key,
        left_out=left_out,
    )


def _there(job: _Job, known: dict[str, Row], output: Path) -> Row | None:
    """Return the row of a video whose features are there, with the name and labels of now; None if they are not.

    They are found by the file's own facts, whatever the layout calls the video.
    """
    video = job.video
    alike = [row for row in known.values() if row.key == job.key]
    row = known.get(video.name) or (alike[0] if len(alike) == 1 else None)
    if row is None or row.key != job.key or row.left_out or not (output / row.file).exists():
        return None
    labels = {"split": video.split, "category": video.category, "intervals": video.intervals}
    now = Row(**{**asdict(row), **labels, "name": video.name})
    if now.file != row.file:  # another layout gives the same file another name
        (output / now.file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(output / row.file, output / now.file)
    return now


def _key(base: str, video: Video, damaged: str) -> str:
    files = foreign.inside(video.path, PICTURES) if video.path.is_dir() else [video.path]
    stamps = [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in files]
    return digest([base, damaged, stamps])


def _about(preparation: Preparation, engine: Engine, extractor: Extractor) -> dict[str, Json]:
    return {
        "preparation": asdict(preparation),
        "engine": asdict(engine),
        "network": {
            "name": extractor.model.name,
            "source": extractor.model.source,
            "digest": extractor.model.digest,
        },
        "made_with": cache.versions(("edgescope", "torch", "av")),
    }


def _save(path: Path, features: NDArray[np.float32]) -> None:
    with cache.writing(path) as temporary:
        np.save(temporary, features)
