"""What edgescope itself weighs beside a bare script of the same work: memory, start, and the time of a whole call.

    python benchmarks/weight.py memory|start|call [--source OTHER_CHECKOUT] [--json FILE]
    python benchmarks/weight.py workloads [--json FILE]
    python benchmarks/weight.py cells|budget|room
    python benchmarks/weight.py against --source OTHER_CHECKOUT [--json FILE]

Both sides of a comparison take turns, in processes of their own, with their bytecode compiled beforehand. Memory is the
proportional set (PSS) of all processes of a command, read from /proc at 100 Hz; a phase is what its processes show: the
one that prepares; the one that measures while it loads, while it is probed, in its window, and after it. `--source`
measures the sources of another checkout with the same interpreter: the table's "before".
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import facts
import numpy as np

from edgescope.models.image import photos
from edgescope.stats import paired_log_ratio
from edgescope.wings.video.pipeline import FILM

ROUNDS, HZ = 5, 100.0
MEMORY, IMPORT, HELP, PARENT_BYTES, CALL_S = 1.6, 1.3, 2.5, 40e6, 2.5
BARE = """
import sys, time
import numpy as np, onnxruntime as ort
options = ort.SessionOptions()
session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
given = session.get_inputs()[0]
batch = {given.name: np.random.rand(*(d if isinstance(d, int) else 1 for d in given.shape)).astype(np.float32)}
for _ in range(30):
    session.run(None, batch)
took, until = [], time.monotonic() + float(sys.argv[2])
while time.monotonic() < until:
    start = time.monotonic()
    session.run(None, batch)
    took.append(time.monotonic() - start)
print(np.median(took))
"""
#: The same network over the frames of a film, one after another.
BARE_VIDEO = """
import sys, time
import av, numpy as np, onnxruntime as ort
session = ort.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
name, until = session.get_inputs()[0].name, time.monotonic() + float(sys.argv[2])
mean, scale = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
while time.monotonic() < until:
    with av.open(sys.argv[3]) as film:
        for frame in film.decode(video=0):
            picture = frame.reformat(224, 224, "rgb24").to_ndarray().astype(np.float32) / 255
            session.run(None, {name: np.ascontiguousarray(((picture - mean) / scale).transpose(2, 0, 1)[None])})
            if time.monotonic() > until:
                break
"""
#: LeNet-5 as in its paper's sizes, 32 pictures a step.
BARE_TRAINING = """
import sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
net = nn.Sequential(
    nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2),
    nn.Flatten(), nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10),
)
data = TensorDataset(torch.randn(1000, 1, 28, 28), torch.randint(0, 10, (1000,)))
optimizer, until = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9), time.monotonic() + float(sys.argv[1])
while time.monotonic() < until:
    for images, labels in DataLoader(data, 32, shuffle=True):
        loss = nn.functional.cross_entropy(net(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
NULL = """
import time
start = time.perf_counter()
import edgescope
edgescope.run
imported = time.perf_counter()
trial = edgescope.Trial(model="null", backend="null", warmup=0, max_queries=10)
edgescope.run(trial, isolated=False)
first = time.perf_counter()
edgescope.run(trial, isolated=False)
print(imported - start, first - imported, time.perf_counter() - first)
"""
#: A checkout of before made its results by a function, and today's by a method of them.
STORED = """
import os
from dataclasses import replace
from edgescope import bench
from edgescope.records import Measured, Result, Status, Trial
from edgescope.store.results import Store
make = bench.begin if hasattr(bench, "begin") else Result.begun
begun = make(Trial(model="null", backend="null"), bench.here())
metrics = {f"latency_p{q}_s": Measured(1e-3, "s", 0.9e-3, 1.1e-3, 1000) for q in range(50, 100)}
for batch in range(1, 1001):
    trial = Trial(model="null", backend="null", batch=batch)
    found = replace(begun, id=f"{trial.id}-{batch}", trial=trial, status=Status.OK, metrics=metrics)
    Store(os.environ["EDGESCOPE_STORE"]).save(found)
"""
QUERIES = """
import edgescope
found = edgescope.run(
    edgescope.Trial(model="null", backend="null", warmup=0, max_queries=300_000, max_s=600), isolated=False
).window
print((found.stop_ns - found.start_ns) / (found.stop - found.first) / 1e3)
"""
LOOP = """
import sys
import edgescope
trial = edgescope.Trial(model=sys.argv[1], backend="onnxruntime", warmup=1, max_s=3, max_queries=10**6)
print(edgescope.run(trial, isolated=False).metrics["latency_p50_s"].value * 1e6)
"""
#: The least that a page of flags takes in Python: a parser of the standard library, records and paths.
PLAIN = """
import argparse, enum, typing
from dataclasses import dataclass
from pathlib import Path
@dataclass(frozen=True)
class Verb:
    name: str
top = argparse.ArgumentParser()
verbs = top.add_subparsers()
for name in ("bench", "sweep"):
    verbs.add_parser(Verb(name).name, help=name)
top.parse_args(["--help"])
"""
SLOWER = 1.05
ROLES = {
    "probes": ("probes.py",),
    "sampler": ("telemetry.watcher",),
    "warden": ("warden.py",),
    "prepare": ("bench.child prepare",),
    "measure": ("bench.child run", "bench.worker"),
}
READINGS, BUFFER = "readings.bin", 16e6
"""The file of a sampler that samples; bytes that the probes hold while they probe, at least."""
AFTER = ("window", "second probes", "gate")
JUDGED = b"accuracy gate"
"""What the card of a run holds that went through all of its phases."""
AROUND = ("parent", "sampler", "probes")
"""What is there beside the process that measures and the warden that guards it."""


def network(folder: Path) -> Path:
    """Return a MobileNetV2 of random weights as an .onnx file: inverted residuals as in arXiv 1801.04381."""
    import torch
    from torch import nn

    def conv(i: int, o: int, k: int = 1, s: int = 1, g: int = 1) -> list[nn.Module]:
        return [nn.Conv2d(i, o, k, s, k // 2, groups=g, bias=False), nn.BatchNorm2d(o)]

    class Residual(nn.Module):
        def __init__(self, i: int, o: int, s: int, t: int) -> None:
            super().__init__()
            wide = [*conv(i, i * t), nn.ReLU6()] if t > 1 else []
            self.body = nn.Sequential(*wide, *conv(i * t, i * t, 3, s, i * t), nn.ReLU6(), *conv(i * t, o))
            self.same = s == 1 and i == o

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = self.body(x)
            return x + made if self.same else made

    layers: list[nn.Module] = [*conv(3, 32, 3, 2), nn.ReLU6()]
    wide = 32
    for t, c, n, s in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for number in range(n):
            layers.append(Residual(wide, c, 1 if number else s, t))
            wide = c
    torch.manual_seed(0)
    last = [*conv(wide, 1280), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000)]
    path = folder / "mobilenet_v2.onnx"
    made = nn.Sequential(*layers, *last).eval()
    names = {
        "input_names": ["input"],
        "output_names": ["output"],
        "dynamic_axes": {"input": {0: "n"}, "output": {0: "n"}},
    }
    torch.onnx.export(made, (torch.zeros(1, 3, 224, 224),), str(path), dynamo=False, **names)
    return path


def below(root: int) -> list[int]:
    """Return a process and all its descendants."""
    children = defaultdict[int, list[int]](list)
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            children[int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])].append(
                int(entry)
            )
        except OSError:
            continue
    found = [root]
    for pid in found:
        found += children[pid]
    return found


def role(pid: int, root: int) -> str:
    """Return what a process is there for, by its command line."""
    words = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    named = (name for name, signs in ROLES.items() if any(sign in words for sign in signs))
    return "warden" if "warden.py" in words else next(named, "parent" if pid == root else "other")


def look(root: int) -> tuple[dict[str, float], bool]:
    """Return the PSS in bytes of all processes of a tree, by role, and whether the sampler takes readings."""
    found, sampled = Counter[str](), False
    for pid in below(root):
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            is_for = role(pid, root)
            found[is_for] += int(re.findall(r"^Pss: +(\d+)", text, re.M)[0]) * 1024
            if is_for == "sampler":
                sampled = any(os.readlink(f).endswith(READINGS) for f in Path(f"/proc/{pid}/fd").iterdir())
        except (OSError, IndexError):
            continue
    return dict(found), sampled


def phase(seen: dict[str, float], sampled: bool, before: str) -> str:
    """Return the phase that a look falls into."""
    if "measure" not in seen:
        return "prepare" if "prepare" in seen else "parent alone"
    if sampled:
        return "window"
    if seen.get("probes", 0.0) > BUFFER:
        return f"{'second' if before in AFTER else 'first'} probes"
    return "gate" if before in AFTER else "load"


def watched(command: list[str], env: dict[str, str], folder: Path, looks: bool = True) -> dict[str, Any]:
    """Run a command; return its peak, the peak of each phase and role, its wall and its CPU seconds.

    Without `looks` nothing is read while it runs, and only its seconds count.
    """
    spent, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    process = subprocess.Popen(
        command, env=env, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    peaks, roles, around, now = Counter[str](), Counter[str](), 0.0, ""
    while looks and process.poll() is None:
        seen, sampled = look(process.pid)
        now = phase(seen, sampled, now)
        peaks[now] = max(peaks[now], sum(seen.values()))
        for name, held in seen.items():
            roles[name] = max(roles[name], held)
        if now == "window":
            around = max(around, sum(seen.get(name, 0.0) for name in AROUND))
        time.sleep(1 / HZ)
    out, _ = process.communicate()
    if process.returncode and JUDGED not in out:  # a run that other programs disturbed ends with 1, too
        raise SystemExit(f"{command}: exit code {process.returncode}")
    wall, ended = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = ended.ru_utime + ended.ru_stime - spent.ru_utime - spent.ru_stime
    found = {
        "peak": max(peaks.values(), default=0.0),
        "phases": dict(peaks),
        "roles": dict(roles),
        "around": around,
    }
    return found | {"wall_s": wall, "cpu_s": cpu, "said": out.decode()}


def timed(command: list[str], env: dict[str, str], folder: Path) -> dict[str, Any]:
    """Run a command; return its wall and its CPU seconds, and what it said."""
    spent, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=True)
    wall, ended = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = ended.ru_utime + ended.ru_stime - spent.ru_utime - spent.ru_stime
    return {"wall_s": wall, "cpu_s": cpu, "said": done.stdout}


OWN = ("numpy*", "onnxruntime", "duckdb", "*_duckdb*")
"""What both sides load from a copy: a page that programs of others on this machine map too would count in part."""


def environment(source: Path, folder: Path) -> dict[str, str]:
    """Return the environment of both sides: the sources, compiled; a cache, a store and libraries of their own."""
    packages, copies = Path(np.__file__).parent.parent, folder / "packages"
    for found in (one for name in OWN for one in packages.glob(name) if "-info" not in one.name):
        if found.is_dir():
            shutil.copytree(found, copies / found.name, dirs_exist_ok=True)
        else:
            shutil.copy(found, copies)
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return kept | {
        "PYTHONPATH": f"{source / 'src'}{os.pathsep}{copies}",
        "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
        "EDGESCOPE_CACHE": str(folder / "cache"),
        "EDGESCOPE_STORE": str(folder / "store"),
    }


def in_turns(arms: dict[str, Callable[[], dict[str, Any]]], rounds: int) -> dict[str, list[dict[str, Any]]]:
    """Return what each arm found, round by round, after one of each that warms what a first call leaves behind."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in arms}
    for turn in range(rounds + 1):
        for name, arm in list(arms.items())[:: 1 if turn % 2 else -1]:
            got = arm()
            if turn:
                found[name].append(got)
                print(
                    f"{turn} {name}: "
                    + " ".join(f"{k} {v:.4g}" for k, v in got.items() if isinstance(v, float)),
                    file=sys.stderr,
                )
    return found


def median(found: list[dict[str, Any]], *names: str) -> float:
    """Return the median of a figure over the rounds."""
    return statistics.median(_at(one, names) for one in found)


def _at(one: Any, names: tuple[str, ...]) -> float:
    for name in names:
        one = one.get(name, 0.0) if isinstance(one, dict) else one
    return float(one)


def ratio(mine: list[dict[str, Any]], theirs: list[dict[str, Any]], name: str) -> list[float]:
    """Return the ratio of a figure of two arms, with its interval over the pairs of turns."""
    found = paired_log_ratio([one[name] for one in mine], [one[name] for one in theirs])
    return [found.value, found.lo, found.hi]


def python(*words: str) -> list[str]:
    """Return the command that runs this interpreter."""
    return [sys.executable, *words]


def memory() -> int:
    """Peak memory of `bench OWN.onnx`, all processes, beside a bare ONNX Runtime script of the same file.

    The window lasts a second. Target: the whole at most 1.6 times the bare script's peak; parent, sampler and probes
    together at most 40 MB in the window.
    """
    return _measured(memory, _memory, "weight/memory")


def _memory(source: Path, folder: Path, rounds: int) -> tuple[dict[str, Any], bool]:
    env, path = environment(source, folder), network(folder)
    bench = python("-m", "edgescope", "bench", str(path), "--duration", "1s")
    arms = {
        "bare": lambda: watched(python("-c", BARE, str(path), "1"), env, folder),
        "bench": lambda: watched(bench, env, folder),
    }
    found = in_turns(arms, rounds)
    mine, bare = found["bench"], found["bare"]
    phases = sorted({name for one in mine for name in one["phases"]})
    rows = {name: median(mine, "phases", name) for name in phases}
    whole, window = ratio(mine, bare, "peak"), rows.get("window", 0.0) / median(bare, "peak")
    figures = {
        "bare_peak_bytes": median(bare, "peak"),
        "peak_bytes": median(mine, "peak"),
        "peak_ratio": whole,
        "window_ratio": window,
        "phases_bytes": rows,
        "ratio_without_walks": max(held for name, held in rows.items() if "probes" not in name)
        / median(bare, "peak"),
        "roles_bytes": {
            name: median(mine, "roles", name) for name in sorted({r for one in mine for r in one["roles"]})
        },
        "around_bytes": median(mine, "around"),
        "wall_s": median(mine, "wall_s"),
        "cpu_s": median(mine, "cpu_s"),
        "bare_wall_s": median(bare, "wall_s"),
        "bare_cpu_s": median(bare, "cpu_s"),
        "wall_least_s": min(one["wall_s"] for one in mine),
        "rounds": rounds,
    }
    return figures, whole[0] <= MEMORY and figures["around_bytes"] <= PARENT_BYTES


def workloads() -> int:
    """Peak memory of a network of the zoo on a prepared cache, of video and of training, beside bare loops of the same.

    The window lasts a second. Target: each at most 1.6 times its bare loop's peak; `window_ratio` leaves out the probes
    of memory, whose walk is fixed by the size of this machine's last cache.
    """
    return _measured(workloads, _workloads, "weight/workloads")


def _workloads(source: Path, folder: Path, rounds: int) -> tuple[dict[str, Any], bool]:
    env, path, film = environment(source, folder), network(folder), photos.located(*FILM)
    bench = python("-m", "edgescope", "bench")
    second = ("--duration", "1s")
    sides = {
        "zoo": (
            python("-c", BARE, str(path), "1"),
            [*bench, "mobilenet_v2", "--backend", "onnxruntime", *second],
        ),
        "video": (
            python("-c", BARE_VIDEO, str(path), "1", str(film)),
            [*bench, str(path), "--workload", "video", "--preprocess", "imagenet", *second],
        ),
        "training": (
            python("-c", BARE_TRAINING, "1"),
            [*bench, "lenet5", "--workload", "training", "--batch", "32", *second],
        ),
    }
    figures: dict[str, Any] = {}
    for name, (bare, ours) in sides.items():
        arms = {
            "bare": partial(watched, bare, env, folder),
            "bench": partial(watched, ours, env, folder),
        }
        found = in_turns(arms, rounds)
        held = median(found["bare"], "peak")
        figures[name] = {
            "bare_peak_bytes": held,
            "peak_ratio": ratio(found["bench"], found["bare"], "peak"),
            "window_ratio": median(found["bench"], "phases", "window") / held,
            "phases_bytes": {
                phase: median(found["bench"], "phases", phase) for phase in found["bench"][0]["phases"]
            },
        }
    return figures, all(one["peak_ratio"][0] <= MEMORY for one in figures.values())


def start() -> int:
    """Seconds of `import edgescope; edgescope.run` beside `import numpy`, of a first null trial, of --help.

    Each in a process of its own. CPU seconds are compared: other programs change them less than wall time. Targets:
    the import at most 1.3 times NumPy's; a null trial in the same process at most 0.25 s later; --help at most 2.5
    times a bare interpreter; the process that measures 0.1 s beyond NumPy and its engine.
    """
    return _measured(start, _start, "weight/start")


def _start(source: Path, folder: Path, rounds: int) -> tuple[dict[str, Any], bool]:
    env = environment(source, folder)
    engine = "import numpy, onnxruntime"
    child = "import gc; from edgescope.bench import child"
    child += "; gc.set_threshold(*(child.SELDOM if hasattr(child, 'USUAL') else gc.get_threshold()))"
    child += "; from edgescope import bench; import edgescope.store.results"
    child += "; import edgescope.workloads.inference, edgescope.backends.ort.backend"
    codes = {
        "bare": python("-c", "pass"),
        "numpy": python("-c", "import numpy"),
        "edgescope": python("-c", "import edgescope; edgescope.run"),
        "help": python("-m", "edgescope", "--help"),
        "plain_help": python("-c", PLAIN),
        "engine": python("-c", engine),
        "child": python("-c", f"{engine}; {child}"),
        "null": python("-c", NULL),
    }
    arms = {name: (lambda words=words: timed(words, env, folder)) for name, words in codes.items()}
    found = in_turns(arms, rounds)
    cpu = {name: median(each, "cpu_s") for name, each in found.items()}
    over = [a["cpu_s"] - b["cpu_s"] for a, b in zip(found["child"], found["engine"], strict=True)]
    figures = {
        "cpu_s": cpu,
        "wall_s": {name: median(each, "wall_s") for name, each in found.items()},
        "import_ratio": ratio(found["edgescope"], found["numpy"], "cpu_s"),
        "help_ratio": ratio(found["help"], found["bare"], "cpu_s"),
        "plain_help_ratio": ratio(found["plain_help"], found["bare"], "cpu_s"),
        "child_beyond_engine_s": statistics.median(over),
        "null_trial_s": statistics.median(float(one["said"].split()[1]) for one in found["null"]),
        "null_trial_again_s": statistics.median(float(one["said"].split()[2]) for one in found["null"]),
        "rounds": rounds,
    }
    met = figures["import_ratio"][0] <= IMPORT and figures["help_ratio"][0] <= HELP
    return figures, bool(met and figures["child_beyond_engine_s"] <= 0.1 and figures["null_trial_s"] <= 0.25)


def call() -> int:
    """Wall and CPU seconds of a whole `bench OWN.onnx --duration 1s` whose artifact and reference outputs are there.

    Every check is made. Target: 2.5 s of wall time; other programs on this machine lengthen it.
    """
    return _measured(call, _call, "weight/call")


def _call(source: Path, folder: Path, rounds: int) -> tuple[dict[str, Any], bool]:
    env = environment(source, folder)
    command = python("-m", "edgescope", "bench", str(network(folder)), "--duration", "1s")
    found = in_turns({"bench": partial(watched, command, env, folder, False)}, rounds)["bench"]
    wall = [one["wall_s"] for one in found]
    figures = {
        "wall_s": statistics.median(wall),
        "wall_least_s": min(wall),
        "wall_most_s": max(wall),
        "cpu_s": median(found, "cpu_s"),
        "rounds": rounds,
    }
    return figures, figures["wall_s"] <= CALL_S


def against() -> int:
    """Is anything slower than in another checkout? A query of nothing, a network's median, --help, `list` of 1,000.

    Each in a process of its own, the two checkouts in turns, each with a store and bytecode of its own. CPU seconds are
    compared, and of the loops the microseconds a query took. Target: no interval lies above a ratio of 1.05.
    """
    parser = argparse.ArgumentParser(description=facts.text(against))
    parser.add_argument("--source", type=Path, required=True, help="the checkout of before")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path, help="write the page there and not among the published ones")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        figures = _against({"now": facts.ROOT, "before": args.source.resolve()}, Path(place), args.rounds)
    figures |= {"rounds": args.rounds, "load_average": os.getloadavg()}
    met = all(one["ratio"][1] <= SLOWER for one in figures.values() if isinstance(one, dict))
    if args.json:
        args.json.write_text(json.dumps(facts.page(figures, met=met), indent=1) + "\n")
    else:
        facts.publish("weight/against", figures, met=met)
    return 0 if met else 1


def _against(sources: dict[str, Path], folder: Path, rounds: int) -> dict[str, Any]:
    path = network(folder)
    ways = {
        "null_query_us": python("-c", QUERIES),
        "network_query_us": python("-c", LOOP, str(path)),
        "import_cpu_s": python("-c", "import edgescope; edgescope.run"),
        "help_cpu_s": python("-m", "edgescope", "--help"),
        "list_1000_cpu_s": python("-m", "edgescope", "list", "--model", "null", "--status", "ok"),
    }
    places = {when: environment(source, folder / when) for when, source in sources.items()}
    for env in places.values():
        timed(python("-c", STORED), env, folder)
    figures = {}
    for name, words in ways.items():
        arms = {w: (lambda env=env, words=words: timed(words, env, folder)) for w, env in places.items()}
        found = in_turns(arms, rounds)
        key = "took_us" if name.endswith("_us") else "cpu_s"
        for each in found.values() if key == "took_us" else ():
            each[:] = [one | {"took_us": float(one["said"])} for one in each]
        figures[name] = {w: median(each, key) for w, each in found.items()} | {
            "ratio": ratio(found["now"], found["before"], key)
        }
    return figures


CELLS = """
import sys, tempfile
from dataclasses import replace
import psutil
import edgescope
from edgescope.bench import here
from edgescope.records import Measured, Result, Status, Trial
from edgescope.runner.run import ExperimentRunner
from edgescope.runner.setup import Setup
many, machine = int(sys.argv[1]), here()
class AtOnce:
    def prepare(self, trial, limits):
        return None
    def run(self, trial, limits):
        metrics = {f"latency_p{q}_s": Measured(q * 1e-5, "s", 1e-5, 1e-3, 1000) for q in range(50, 100)}
        return replace(Result.begun(trial, machine, Status.OK), metrics=metrics)
Setup.cells = lambda self, store: ExperimentRunner(store, self.limits, AtOnce(), machine, say=self.tell)
held = []
def show(result):
    held.append(psutil.Process().memory_info().rss)
trials = [Trial(model="null", backend="null", batch=n + 1) for n in range(many)]
with tempfile.TemporaryDirectory() as folder:
    edgescope.sweep(trials, store=folder, show=show)
print((held[-1] - held[many // 10]) / (many - 1 - many // 10))
"""
GROWTH_BYTES = 500


def cells() -> int:
    """By how many bytes a sweep's parent grows with each cell that it measured and stored.

    The cells answer at once, so that a thousand of them take minutes; everything else is the sweep's own: order, locks,
    the store on disk, estimates, memory forecasts. Target: 5 MB for 10,000 cells.
    """
    parser = argparse.ArgumentParser(description=facts.text(cells))
    parser.add_argument("--cells", type=int, default=2000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        found = timed(python("-c", CELLS, str(args.cells)), environment(facts.ROOT, Path(place)), Path(place))
    grown = float(found["said"])
    figures = {"cells": args.cells, "bytes_a_cell": grown, "cpu_s": found["cpu_s"], "wall_s": found["wall_s"]}
    facts.publish("weight/cells", figures, met=grown <= GROWTH_BYTES)
    return 0 if grown <= GROWTH_BYTES else 1


OPTIMIZED = """
import json, sys, time
import numpy as np
import edgescope
from edgescope.store.results import Store
model, folder, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
start = time.monotonic_ns()
edgescope.optimize(model, budget=seconds, store=folder)
wall, store, spans = time.monotonic_ns() - start, Store(folder), []
for listed in store.results():
    one = store.full(listed)
    if one.queries is not None and len(one.queries):
        spans.append((int(one.queries.due_ns()[0]), int(one.queries.columns["done_ns"].max())))
busy, until = 0, start
for begin, end in sorted(spans):
    busy, until = busy + max(0, end - max(begin, until)), max(until, end)
print(json.dumps({"wall_s": wall / 1e9, "measuring_s": busy / 1e9, "runs": len(spans)}))
"""
IN_WINDOWS = 0.85


def budget() -> int:
    """What share of its time `optimize` measures, in windows and their warm-up, on a cache that is prepared.

    The same question twice, each with a store of its own; the second finds every file and every fp32 answer. Where two
    variants take turns, the time counts once. The rest, the cold share, is loading, probing, judging and choosing.
    Target: 85 % in windows and warm-up.
    """
    parser = argparse.ArgumentParser(description=facts.text(budget))
    parser.add_argument("--budget", type=float, default=60.0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        env, path = environment(facts.ROOT, place), network(place)
        found = []
        for turn in ("first", "second"):
            words = python("-c", OPTIMIZED, str(path), str(place / turn), str(args.budget))
            found.append(json.loads(timed(words, env, place)["said"].splitlines()[-1]))
    for one in found:
        one["measuring_share"] = one["measuring_s"] / one["wall_s"]
        one["cold_share"] = 1 - one["measuring_share"]
    met = found[1]["measuring_share"] >= IN_WINDOWS
    figures = {
        "budget_s": args.budget,
        "first": found[0],
        "prepared": found[1],
        "load_average": os.getloadavg(),
    }
    facts.publish("weight/budget", figures, met=met)
    return 0 if met else 1


GROUPS, ROOM_BYTES = Path("/sys/fs/cgroup"), 300_000_000
ENTER = 'echo $$ > "$0/cgroup.procs" && exec "$@"'


def told(command: list[str], env: dict[str, str], folder: Path) -> str:
    """Return what a command says, whatever its exit code."""
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout


def room() -> int:
    """What `bench` does with 300 MB of memory, in a control group that allows no more: a board that is nearly full.

    It is asked twice: as it is, and with the `--memory-floor` that its answer names. Needs the right to make a control
    group of memory. Target: the first starts nothing and says E-MEM-2; the second measures within the limit.
    """
    argparse.ArgumentParser(description=facts.text(room)).parse_args()
    first = (GROUPS / "memory").is_dir()
    group = (GROUPS / "memory" if first else GROUPS) / f"weight-{os.getpid()}"
    limit, most = ("limit_in_bytes", "max_usage_in_bytes") if first else ("max", "peak")
    group.mkdir()
    try:
        (group / f"memory.{limit}").write_text(str(ROOM_BYTES))
        with tempfile.TemporaryDirectory() as name:
            place = Path(name)
            env, path = environment(facts.ROOT, place), network(place)
            bench = python("-m", "edgescope", "bench", str(path), "--duration", "1s")
            inside = ["sh", "-c", ENTER, str(group), *bench]
            refused = told(inside, env, place)
            floor = re.findall(r"--memory-floor\s+(\d+)", refused)
            done = told([*inside, "--memory-floor", *floor], env, place)
        used = int((group / f"memory.{most}").read_text())
    finally:
        group.rmdir()
    figures = {
        "limit_bytes": ROOM_BYTES,
        "refused": "E-MEM-2" in refused,
        "floor_named_mb": floor,
        "measured": JUDGED.decode() in done and re.search(r"status +ok", done) is not None,
        "most_bytes": used,
    }
    met = bool(figures["refused"] and figures["measured"])
    facts.publish("weight/room", figures, met=met)
    return 0 if met else 1


def _measured(command: Callable[[], int], run: Callable[..., tuple[dict[str, Any], bool]], name: str) -> int:
    parser = argparse.ArgumentParser(description=facts.text(command))
    parser.add_argument("--source", type=Path, help="a checkout measured besides, as `before`")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path, help="write the page there and not among the published ones")
    args = parser.parse_args()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        sources = {"now": facts.ROOT, **({"before": args.source.resolve()} if args.source else {})}
        for when, source in sources.items():
            folder = Path(place) / when
            folder.mkdir()
            figures[when], met = run(source, folder, args.rounds)
            figures[when]["met"] = met
    figures["load_average"] = os.getloadavg()
    met = bool(figures["now"]["met"])
    if args.json:
        args.json.write_text(json.dumps(facts.page(figures, met=met), indent=1) + "\n")
        print(json.dumps(figures, indent=1))
    else:
        facts.publish(name, figures, met=met)
    return 0 if met else 1


if __name__ == "__main__":
    facts.chosen(memory, workloads, start, call, cells, budget, room, against)
