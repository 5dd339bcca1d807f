"""Planted bottlenecks: trials whose cause is known, because it was put there, and what takes it away again.

Each `Plant` is a trial, what else is in the store beside it (a sweep that does not hold the remedy, unless it says so),
and the trial without the bottleneck. Stages and networks that a plant needs are functions of this file; trials find
them as `planted:name`, so they run in the folder of this file.

    python benchmarks/planted.py                 lists them
    python benchmarks/diagnosis.py               diagnoses all of them
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
WORK = Path(os.environ.get("PLANTED_FOLDER", Path(tempfile.gettempdir()) / "edgescope-planted"))
"""Where films, data files and pipelines are written; reading from disk needs a folder that lies on one."""
LOCK = threading.Lock()
DATA_BYTES = 16 << 20
RECORDS = 24
"""Lines that the log gets of each frame: small ones, so that the disk takes the time and not the kernel's copying."""


@dataclass(frozen=True)
class Plant:
    """One bottleneck."""

    name: str
    cause: str
    trial: Mapping[str, Any]
    remedy: Mapping[str, Any]
    """What the trial is changed to so that the bottleneck is gone."""
    sweep: Sequence[Mapping[str, Any]] = ()
    """Changes of the trial whose results the store holds, too."""
    part: str = ""
    """The stage that the finding should name."""
    also: tuple[str, ...] = ()
    """Other names that are right as well."""
    beside: str = ""
    """`burn`: programs that keep every core busy meanwhile; `server`: an HTTP server that answers slowly."""
    device: str = "cpu"
    about: str = ""


# -- stages of pipelines: each is called with an Item (docs/how-to/video.md) ----------------------------------------


def convert_by_pixel(item: Any) -> None:
    """Convert each frame value by value in Python, as people do before they know numpy."""
    for frame in item.frames:
        rows = frame.pixels.tolist()
        item.notes["grey"] = [[(3 * r + 6 * g + b) // 10 for r, g, b in row] for row in rows]


def convert_at_once(item: Any) -> None:
    """Do the same with whole arrays."""
    for frame in item.frames:
        item.notes["grey"] = frame.pixels @ np.array([3, 6, 1], dtype=np.uint16) // 10


def under_a_lock(item: Any) -> None:
    """Compute outside of Python, but only while holding one lock for all threads."""
    with LOCK:
        _hashed(item)


def without_a_lock(item: Any) -> None:
    """Compute the same without a lock."""
    _hashed(item)


def _hashed(item: Any) -> None:
    data = item.frames[0].pixels.tobytes()
    item.notes["hash"] = [hashlib.sha256(data).digest() for _ in range(60)]


def read_cold(item: Any) -> None:
    """Read a file that the page cache has just lost, as with a data set larger than memory."""
    _read(item, cold=True)


def read_warm(item: Any) -> None:
    """Read the same file from the page cache."""
    _read(item, cold=False)


def _read(item: Any, *, cold: bool) -> None:
    file = os.open(WORK / "data.bin", os.O_RDONLY)
    try:
        if cold:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        size = 0
        while chunk := os.read(file, 1 << 20):
            size += len(chunk)
        item.notes["bytes"] = size
    finally:
        os.close(file)


def ask_a_server(item: Any) -> None:
    """Wait for a web service before each frame goes on."""
    port = int((WORK / "port").read_text())
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
        item.notes["answer"] = answer.read()


def ask_nobody(item: Any) -> None:
    """Have the answer already."""
    item.notes["answer"] = b"yes"


def poll(item: Any) -> None:
    """Sleep until something may be there, as loops around cameras do."""
    time.sleep(0.02)


def write_through(item: Any) -> None:
    """Write records of each frame and wait each time until the disk has it."""
    with (WORK / "log.bin").open("ab") as log:
        for row in item.frames[0].pixels[:RECORDS]:
            log.write(row.tobytes())
            log.flush()
            os.fsync(log.fileno())
        if log.tell() > 1 << 28:
            log.truncate(0)


def write_behind(item: Any) -> None:
    """Write the same and let the kernel decide when."""
    with (WORK / "log.bin").open("ab") as log:
        for row in item.frames[0].pixels[:RECORDS]:
            log.write(row.tobytes())
        if log.tell() > 1 << 28:
            log.truncate(0)


def fresh_buffers(item: Any) -> None:
    """Make large arrays anew for each frame."""
    kept = [np.zeros((8, 1 << 20), dtype=np.float32) for _ in range(2)]
    for array in kept:
        array.fill(1.0)
    item.notes["sum"] = float(kept[0][0, 0])


KEPT = [np.zeros((8, 1 << 20), dtype=np.float32) for _ in range(2)]


def kept_buffers(item: Any) -> None:
    """Fill the same arrays again."""
    for array in KEPT:
        array.fill(1.0)
    item.notes["sum"] = float(KEPT[0][0, 0])


def copy_often(item: Any) -> None:
    """Copy large arrays to and fro."""
    for _ in range(6):
        np.copyto(KEPT[0], KEPT[1])


def copy_never(item: Any) -> None:
    """Hand the arrays on."""
    item.notes["array"] = KEPT[0]


def compress(item: Any) -> None:
    """Compress each frame before it goes on."""
    item.notes["packed"] = zlib.compress(item.frames[0].pixels.tobytes(), 6)


def compress_little(item: Any) -> None:
    """Keep the frame as it is."""
    item.notes["packed"] = item.frames[0].pixels


def check_out(item: Any) -> None:
    """Hash each frame: outside of Python's lock, so threads can share it."""
    _hashed(item)


# -- networks: zero-argument factories (docs/how-to/your-model.md) --------------------------------------------------


def tiny_operations() -> Any:
    """Return three hundred operations on a handful of numbers."""
    import torch

    class Tiny(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(100))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = torch.tanh(layer(x)) * 0.2 + x
            return x

    return Tiny().eval(), (torch.randn(2, 8),)


def wide_layers() -> Any:
    """Return layers of so many weights that reading them takes the time at batch 1."""
    import torch

    layers = [torch.nn.Linear(6144, 6144) for _ in range(3)]
    return torch.nn.Sequential(*layers).eval(), (torch.randn(2, 6144),)


def dense_convolutions() -> Any:
    """Return convolutions with a lot of arithmetic for each byte.

    Features are averaged over 4 x 4 pixels and not over all: a mean over the whole of a noise picture is the same for
    every picture, and what is left of their differences is smaller than what bf16 rounds away.
    """
    import torch

    def block(a: int, b: int) -> list[Any]:
        return [torch.nn.Conv2d(a, b, 3, padding=1), torch.nn.ReLU()]

    layers = [*block(3, 128), *block(128, 128), *block(128, 128), *block(128, 128)]
    layers += [torch.nn.AvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(128 * 576, 10)]
    return torch.nn.Sequential(*layers).eval(), (torch.randn(2, 3, 96, 96),)


def many_logits() -> Any:
    """Return a classifier whose last layer is large: its optimizer has much to update."""
    import torch

    layers = [
        torch.nn.Flatten(),
        torch.nn.Linear(3 * 32 * 32, 2048),
        torch.nn.ReLU(),
        torch.nn.Linear(2048, 4000),
    ]
    return torch.nn.Sequential(*layers), (torch.randn(2, 3, 32, 32),)


def large_pictures() -> Any:
    """Return next to no arithmetic on large inputs, which have to be copied to a GPU."""
    import torch

    class Glance(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[:, :, ::64, ::64].mean(dim=(2, 3))

    return Glance().eval(), (torch.randn(2, 3, 2048, 2048),)


# -- the list ------------------------------------------------------------------------------------------------

SHORT = {"min_s": 1.0, "max_s": 1.5, "warmup": 0.3}
NET = {"model": "squeezenet1_1", "backend": "onnxruntime", **SHORT}
OWN = {"backend": "torch_eager", **SHORT}


def pipeline(name: str, call: str, *, threads: int = 1, **options: Any) -> dict[str, Any]:
    """Return the trial of a pipeline with a stage of this file before the network."""
    return {
        **NET,
        "options": {"threads": 1},
        "workload": "video",
        "workload_options": {
            "pipeline": str(WORK / f"{name}-{call}-{threads}.toml"),
            "source": str(WORK / "small.mp4"),
            **options,
        },
        "_stage": (name, call, threads),
    }


def film(source: str, **options: Any) -> dict[str, Any]:
    """Return the trial of a pipeline without stages of its own."""
    return {
        **NET,
        "options": {"threads": 1},
        "workload": "video",
        "workload_options": {"source": str(WORK / source), **options},
    }


def staged(name: str, cause: str, slow: str, quick: str, stage: str = "convert", **more: Any) -> Plant:
    """Return a plant whose bottleneck is one stage of a pipeline."""
    keys = {k: more.pop(k) for k in ("part", "also", "beside", "sweep") if k in more}
    also = keys.pop("also", ())
    part = keys.pop("part", stage)
    return Plant(
        name,
        cause,
        pipeline(stage, slow, **more),
        pipeline(stage, quick, **more),
        part=part,
        also=also,
        **keys,
    )


TRAIN = {"model": "planted:many_logits", "workload": "training", **OWN}

PLANTS: tuple[Plant, ...] = (
    Plant(
        "sixteen threads",
        "oversubscription",
        {**NET, "options": {"threads": 16}},
        {**NET, "options": {"threads": 2}},
        [{"options": {"threads": 1}}],
    ),
    Plant(
        "processes with four threads each",
        "oversubscription",
        {**NET, "processes": 4, "options": {"threads": 4}},
        {**NET, "processes": 4, "options": {"threads": 1}},
        [{"options": {"threads": 2}}],
    ),
    Plant(
        "one thread",
        "too few threads",
        {"model": "planted:dense_convolutions", **OWN, "options": {"threads": 1}},
        {"model": "planted:dense_convolutions", **OWN, "options": {"threads": 2}},
    ),
    Plant(
        "busy neighbours",
        "contention",
        {**NET, "options": {"threads": 2}},
        {**NET, "options": {"threads": 2}},
        beside="burn",
    ),
    Plant(
        "another model beside it",
        "contention",
        {**NET, "options": {"threads": 2}, "colocated": "squeezenet1_1"},
        {**NET, "options": {"threads": 2}},
    ),
    Plant(
        "half a core allowed",
        "quota",
        {**NET, "options": {"threads": 1}, "mode": "quota=0.5"},
        {**NET, "options": {"threads": 1}},
    ),
    Plant(
        "large film", "decode-bound", film("huge.mp4", decode="scaled"), film("small.mp4", decode="scaled")
    ),
    Plant(
        "large film, overlapped",
        "decode-bound",
        {**film("huge.mp4", decode="scaled"), "in_flight": 6},
        {**film("small.mp4", decode="scaled"), "in_flight": 6},
    ),
    Plant(
        "whole pictures prepared",
        "preprocessing-bound",
        film("middle.mp4", preprocess="image"),
        film("middle.mp4", preprocess="image", decode="scaled"),
    ),
    staged("loop over pixels", "stage-bound", "convert_by_pixel", "convert_at_once"),
    Plant(
        "Python in three threads",
        "GIL-bound",
        {**pipeline("convert", "convert_by_pixel", threads=3), "in_flight": 6},
        {**pipeline("convert", "convert_by_pixel", threads=3), "in_flight": 6, "processes": 2},
        part="convert",
    ),
    Plant(
        "one lock for two threads",
        "lock-bound",
        {**pipeline("hash", "under_a_lock", threads=2), "in_flight": 6},
        {**pipeline("hash", "without_a_lock", threads=2), "in_flight": 6},
        part="hash",
    ),
    Plant(
        "one thread hashes",
        "stage-bound",
        {**pipeline("hash", "check_out", threads=1), "in_flight": 6},
        {**pipeline("hash", "copy_never", threads=1), "in_flight": 6},
        part="hash",
    ),
    staged("reads that miss the page cache", "fetch-stalled", "read_cold", "read_warm", "load"),
    staged("a slow server", "fetch-stalled", "ask_a_server", "ask_nobody", "ask", beside="server"),
    staged("sleeping between frames", "fetch-stalled", "poll", "copy_never", "wait"),
    staged("a log that is synced", "fetch-stalled", "write_through", "write_behind", "log"),
    staged("fresh buffers", "allocation-bound", "fresh_buffers", "kept_buffers", "buffer"),
    staged("copies", "stage-bound", "copy_often", "copy_never", "copy"),
    staged("compression", "stage-bound", "compress", "compress_little", "pack"),
    Plant(
        "tiny operations",
        "launch-bound",
        {"model": "planted:tiny_operations", **OWN, "options": {"threads": 1}},
        {"model": "planted:tiny_operations", **OWN, "options": {"threads": 1}, "batch": 32},
        [{"batch": 8}],
    ),
    Plant(
        "wide layers",
        "memory-bound",
        {"model": "planted:wide_layers", **OWN},
        {"model": "planted:wide_layers", **OWN, "batch": 16},
        [{"batch": 4}],
    ),
    Plant(
        "dense convolutions",
        "compute-bound",
        {"model": "planted:dense_convolutions", **OWN, "batch": 4},
        {"model": "planted:dense_convolutions", **OWN, "batch": 4, "precision": "bf16"},
        [{"batch": 1}],
    ),
    Plant(
        "a rate that it easily serves",
        "offered load",
        {**NET, "scenario": "fixed_rate", "rate": 20.0, "options": {"threads": 1}},
        {**NET, "options": {"threads": 1}},
    ),
    Plant(
        "large update, small minibatch",
        "optimizer-bound",
        {**TRAIN, "batch": 2, "workload_options": {"optimizer": "adam"}},
        {**TRAIN, "batch": 8, "workload_options": {"optimizer": "adam"}},
    ),
)

SIZES = (("small", (320, 240), 60), ("middle", (1280, 720), 30), ("huge", (3840, 2160), 16))
"""Films: name, size, frames."""
GPU = {"device": "cuda", "backend": "torch_eager", **SHORT}
ON_GPU = {"model": "ssd300", "io": "device", "options": {}, "min_s": 4.0, "max_s": 4.0}
"""A detector whose outputs stay on the GPU; where each value is read by itself, a frame takes half a second."""
PLANTS_CUDA: tuple[Plant, ...] = (
    Plant(
        "tiny kernels",
        "launch-bound",
        {"model": "planted:tiny_operations", **GPU},
        {"model": "planted:tiny_operations", **GPU, "options": {"graph": True}},
        [{"batch": 8}],
        device="cuda",
    ),
    Plant(
        "resnet50 from Python",
        "launch-bound",
        {"model": "resnet50", **GPU, "precision": "fp16"},
        {"model": "resnet50", **GPU, "precision": "fp16", "options": {"graph": True}},
        [{"batch": 4}],
        device="cuda",
    ),
    Plant(
        "pageable copies",
        "transfer-bound",
        {"model": "planted:large_pictures", **GPU, "batch": 4},
        {"model": "planted:large_pictures", **GPU, "batch": 4, "io": "pinned"},
        device="cuda",
    ),
    Plant(
        "fp32 without tensor cores",
        "no tensor cores",
        {
            "model": "planted:dense_convolutions",
            **GPU,
            "batch": 64,
            "options": {"graph": True},
            "io": "device",
        },
        {
            "model": "planted:dense_convolutions",
            **GPU,
            "batch": 64,
            "options": {"graph": True},
            "io": "device",
            "precision": "tf32",
        },
        also=("compute-bound",),
        device="cuda",
    ),
    Plant(
        "weights read for one sample",
        "memory-bound",
        {"model": "planted:wide_layers", **GPU, "options": {"graph": True}},
        {"model": "planted:wide_layers", **GPU, "options": {"graph": True}, "batch": 16},
        [{"batch": 4}],
        device="cuda",
    ),
    Plant(
        "a value at a time from the device",
        "sync-bound",
        {**film("small.mp4", postprocess="elements"), **GPU, **ON_GPU},
        {**film("small.mp4", postprocess="host"), **GPU, **ON_GPU},
        device="cuda",
    ),
    Plant(
        "pictures prepared on the host",
        "preprocessing-bound",
        {**film("middle.mp4", preprocess="image"), **GPU, "options": {"graph": True}, "precision": "fp16"},
        {
            **film("middle.mp4", preprocess="image", decode="scaled"),
            **GPU,
            "options": {"graph": True},
            "precision": "fp16",
        },
        also=("decode-bound",),
        device="cuda",
    ),
    Plant(
        "four processes, one GPU",
        "contention",
        {
            "model": "planted:dense_convolutions",
            **GPU,
            "batch": 64,
            "processes": 4,
            "options": {"graph": True},
        },
        {"model": "planted:dense_convolutions", **GPU, "batch": 64, "options": {"graph": True}},
        [{"processes": 1}],
        device="cuda",
    ),
    Plant(
        "loop over pixels before a GPU",
        "stage-bound",
        {**pipeline("convert", "convert_by_pixel"), **GPU, "options": {}},
        {**pipeline("convert", "convert_at_once"), **GPU, "options": {}},
        part="convert",
        device="cuda",
    ),
    Plant(
        "a rate that a GPU easily serves",
        "offered load",
        {"model": "resnet50", **GPU, "scenario": "fixed_rate", "rate": 20.0},
        {"model": "resnet50", **GPU},
        device="cuda",
    ),
)


def material() -> None:
    """Write the films, the data and the pipelines that plants read."""
    WORK.mkdir(parents=True, exist_ok=True)
    for name, size, frames in SIZES:
        if not (WORK / f"{name}.mp4").is_file():
            _film(WORK / f"{name}.mp4", size, frames)
    if not (WORK / "data.bin").is_file():
        (WORK / "data.bin").write_bytes(np.random.default_rng(0).bytes(DATA_BYTES))
        os.sync()
    for plant in (*PLANTS, *PLANTS_CUDA):
        for trial in (plant.trial, plant.remedy):
            if "_stage" in trial:
                _described(Path(trial["workload_options"]["pipeline"]), *trial["_stage"])


def _described(path: Path, name: str, call: str, threads: int) -> None:
    rows = [("decode", "", 1), (name, f"planted:{call}", threads)]
    rows += [(stage, "", 1) for stage in ("preprocess", "infer", "postprocess")]
    text = "".join(
        f'[[stage]]\nname = "{stage}"\n' + (f'call = "{calls}"\nthreads = {n}\n' if calls else "")
        for stage, calls, n in rows
    )
    if not path.is_file() or path.read_text() != text:
        path.write_text(text)


def _film(path: Path, size: tuple[int, int], frames: int) -> None:
    import av
    from PIL import Image

    rng = np.random.default_rng(0)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        stream.options = {"crf": "18", "preset": "ultrafast"}
        rough = rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)
        base = np.asarray(Image.fromarray(rough).resize(size, Image.Resampling.BICUBIC))
        for k in range(frames):
            image = np.roll(base, 8 * k, axis=1)
            container.mux(
                stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24"))
            )
        container.mux(stream.encode())


class Beside:
    """What runs beside a plant: programs that keep the cores busy, or a server that takes its time."""

    def __init__(self, what: str) -> None:
        self.what, self.programs = what, list[subprocess.Popen[bytes]]()

    def __enter__(self) -> None:
        if self.what == "burn":
            self.programs = [_started("while True: pass") for _ in range(os.cpu_count() or 1)]
        elif self.what == "server":
            (WORK / "port").unlink(missing_ok=True)
            self.programs = [_started(SERVER, str(WORK / "port"))]
            while not (WORK / "port").is_file():
                time.sleep(0.05)

    def __exit__(self, *error: object) -> None:
        for program in self.programs:
            program.terminate()
            program.wait()


def _started(code: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code, *arguments])


SERVER = """
import http.server, os, sys, time
class Slow(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        time.sleep(0.025)
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"yes")
    def log_message(self, *a):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow)
open(sys.argv[1] + ".new", "w").write(str(server.server_address[1]))
os.rename(sys.argv[1] + ".new", sys.argv[1])
server.serve_forever()
"""


def main() -> None:
    for plant in (*PLANTS, *PLANTS_CUDA):
        print(f"{plant.device:5} {plant.cause:20} {plant.name}")


if __name__ == "__main__":
    main()
