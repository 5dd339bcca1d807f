"""Ground truth for predictors of training: seconds and joules a minibatch in many resource modes of this machine.

    python benchmarks/training_modes.py --seconds 420 --json published/training_modes_cpu.json
    python benchmarks/training_modes.py --device cuda --seconds 480 --json published/training_modes_gpu.json

No setting of the machine changes. A mode is the number of CPUs that the run may use (affinity, the loader's workers
included), of loader workers, the batch and, on a GPU, the share of its multiprocessors (MPS, where its daemon can be
started). The file holds `figures`: `workloads` (what each is), `skipped` (what could not be measured, and why) and
`rows`, one for each workload and mode:

    workload    lenet5, resnet18_cifar or mobilenet_v3_large_203class
    cpus        CPUs that the process and its workers may run on
    workers     processes that load minibatches; 0: the training process itself loads
    batch       samples in a minibatch
    sm_share    per cent of the GPU's threads that MPS grants; 100 without MPS; null on a CPU
    step_s      mean seconds of a minibatch over the window, fetch included
    step_sem_s  standard error of that mean, from the means of ten stretches of the window
    steps       minibatches in the window
    fetch_s     of step_s, how long the device waited for the loader
    device_s    of step_s, copy, forward, backward and optimizer
    power_w     mean watts in the window by the device's energy counter; null without a sensor
    energy_j    joules a minibatch by the same counter; null without a sensor
    at_s        seconds since the script began, to see drift

The order of modes is random, so a drift of the machine is not mistaken for an effect. One process measures a workload
at one share of the GPU, since starting CUDA takes longer than measuring a mode; its affinity changes from mode to mode.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from facts import commit, machine_id

DATA = {
    "lenet5": {"count": 60_000, "width": 28, "height": 28, "packed": True, "grey": True},
    "resnet18_cifar": {"count": 50_000, "width": 32, "height": 32, "packed": True},
    "mobilenet_v3_large_203class": {"count": 2_000},
}
GRIDS: dict[str, dict[str, list[Any]]] = {
    "cpu": {"cpus": [1, 2], "workers": [0, 1, 2], "batch": [2, 4, 8, 16], "sm_share": [None]},
    "cuda": {"cpus": [1, 2, 4, 8], "workers": [0, 1, 2, 4], "batch": [16, 64], "sm_share": [25, 50, 100]},
}
WINDOW_S = {"cpu": 2.0, "cuda": 1.2}
FEWEST, LEAD, STRETCHES = 6, 3, 10
"""Steps in a window at least, steps before it, and stretches whose means give the standard error."""
Mode = dict[str, Any]


def modes(device: str, limit: int, seed: int) -> list[Mode]:
    """Return the modes of a device that this machine has, at most `limit`, in random order."""
    grid = dict(GRIDS[device])
    here = len(os.sched_getaffinity(0))
    grid["cpus"] = [n for n in grid["cpus"] if n <= here]
    found = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    random.Random(seed).shuffle(found)
    return found[:limit] if limit else found


# -- the process that measures -------------------------------------------------------------------------------


def measure(job: dict[str, Any]) -> None:
    """Measure the modes of a job one after another; print one row each as JSON."""
    from edgescope.bench.parts import HERE
    from edgescope.options import read
    from edgescope.records import Trial
    from edgescope.workloads.training import Training

    cpus = sorted(os.sched_getaffinity(0))
    meter = energy_meter() if job["device"] == "cuda" else None
    end = time.monotonic() + job["seconds"]
    for mode in job["modes"]:
        if time.monotonic() > end:
            return
        os.sched_setaffinity(0, cpus[: mode["cpus"]])
        options = {
            "images": job["images"],
            "num_workers": mode["workers"],
            "persistent_workers": mode["workers"] > 0,
        }
        trial = Trial(
            model=job["workload"],
            workload="training",
            device=job["device"],
            batch=mode["batch"],
            workload_options=options,
            options={"threads": mode["cpus"]} if job["device"] == "cpu" else {},
        )
        row: dict[str, Any] = {"workload": job["workload"], **mode}
        try:
            loop = _loop()(HERE.model(trial), trial, read("training", options, Training.OPTIONS))
            try:
                row |= _window(loop, WINDOW_S[job["device"]], meter)
            finally:
                loop.close()
        except Exception as error:  # one mode that fails must not lose the others
            row["failed"] = f"{type(error).__name__}: {error}"[:300]
        print(json.dumps(row), flush=True)


def _loop() -> Any:
    from edgescope.backends.pytorch.training import Loop

    return Loop


def _window(loop: Any, seconds: float, meter: Any) -> dict[str, Any]:
    """Return the figures of one window of steps."""
    for _ in range(LEAD):
        loop.step()
    loop.line.rows.clear()
    joules, start = meter() if meter else None, time.monotonic()
    edges = [start]
    while (wall := edges[-1] - start) < seconds or (len(edges) <= FEWEST and wall < 3 * seconds):
        if loop.step() is None:
            break
        edges.append(time.monotonic())
    spent = meter() - joules if meter else None
    wall, steps = edges[-1] - start, len(edges) - 1
    parts: dict[str, float] = {}
    for name, _, begin, stop in loop.line.rows:
        parts[name] = parts.get(name, 0.0) + (stop - begin) * 1e-9
    lengths = [b - a for a, b in itertools.pairwise(edges)]
    size = max(1, steps // STRETCHES)
    means = [statistics.fmean(lengths[i : i + size]) for i in range(0, steps // size * size, size)]
    device = sum(parts.get(name, 0.0) for name in ("h2d", "forward", "backward", "optimizer"))
    return {
        "step_s": wall / steps,
        "step_sem_s": statistics.stdev(means) / len(means) ** 0.5 if len(means) > 1 else None,
        "steps": steps,
        "fetch_s": parts.get("fetch", 0.0) / steps,
        "device_s": device / steps,
        "power_w": spent / wall if spent is not None else None,
        "energy_j": spent / steps if spent is not None else None,
    }


def energy_meter() -> Any:
    """Return a function that reads the joules that the GPU has used so far; None without such a counter."""
    try:
        import pynvml

        pynvml.nvmlInit()
        board = pynvml.nvmlDeviceGetHandleByIndex(0)
        pynvml.nvmlDeviceGetTotalEnergyConsumption(board)
    except Exception as error:  # no NVML, no counter: the rows say null
        print(f"no energy counter: {error}", file=sys.stderr)
        return None

    def read_settled() -> float:
        """Return the counter just after it moved: it is refreshed every few tens of milliseconds."""
        before, end = pynvml.nvmlDeviceGetTotalEnergyConsumption(board), time.monotonic() + 0.15
        while (now := pynvml.nvmlDeviceGetTotalEnergyConsumption(board)) == before and time.monotonic() < end:
            time.sleep(0.001)
        return float(now) / 1e3

    return read_settled


# -- the script ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def mps(folder: Path) -> Iterator[dict[str, str] | None]:
    """Start the MPS daemon; yield the environment of its clients, or None if it cannot be started."""
    pipe = {"CUDA_MPS_PIPE_DIRECTORY": str(folder / "pipe"), "CUDA_MPS_LOG_DIRECTORY": str(folder / "log")}
    for name in pipe.values():
        Path(name).mkdir(parents=True, exist_ok=True)
    words, given = "nvidia-cuda-mps-control", os.environ | pipe
    try:
        subprocess.run([words, "-d"], env=given, check=True, capture_output=True, timeout=20)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"no MPS: {error}", file=sys.stderr)
        yield None
        return
    try:
        yield pipe
    finally:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(
                [words], input="quit\n", text=True, env=given, timeout=20, capture_output=True, check=False
            )


def jobs(args: argparse.Namespace, folder: Path, shared: bool) -> Iterator[dict[str, Any]]:
    """Yield one job for each workload and share of the GPU; the whole time is divided among them."""
    chosen = modes(args.device, args.modes, args.seed)
    if args.device == "cuda" and not shared:
        chosen = [mode for mode in chosen if mode["sm_share"] == 100]
    shares = sorted({mode["sm_share"] for mode in chosen}, key=str)
    each = args.seconds / len(args.workloads) / len(shares)
    for workload, share in itertools.product(args.workloads, shares):
        yield {
            "workload": workload,
            "images": str(folder / workload),
            "device": args.device,
            "share": share,
            "seconds": each,
            "modes": [mode for mode in chosen if mode["sm_share"] == share],
        }


def run(job: dict[str, Any], client: dict[str, str] | None, begun: float) -> Iterator[dict[str, Any]]:
    """Yield the rows of a job, measured in a process of its own, until its time is over."""
    given = os.environ | (client or {})
    if client and job["share"] != 100:
        given["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(job["share"])
    words = [sys.executable, __file__, "--job", json.dumps(job)]
    with subprocess.Popen(words, env=given, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith("{"):
                yield json.loads(line) | {"at_s": round(time.monotonic() - begun, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seconds", type=float, default=420.0, help="for all modes of all workloads")
    parser.add_argument("--modes", type=int, default=0, help="at most so many modes, drawn at random (all)")
    parser.add_argument("--workloads", type=lambda text: text.split(","), default=list(DATA))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--job", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        measure(json.loads(args.job))
        return
    from edgescope.models.image import photo_set

    out = args.json or Path(f"published/training_modes_{'gpu' if args.device == 'cuda' else 'cpu'}.json")
    rows: list[dict[str, Any]] = []
    skipped: list[str] = []
    with tempfile.TemporaryDirectory(prefix="edgescope-modes-") as place, mps(Path(place)) as client:
        folder = Path(place)
        for workload in args.workloads:
            photo_set.write(folder / workload, photo_set.Recipe(**DATA[workload]))
        shared = args.device == "cuda" and client is not None
        if args.device == "cuda" and not shared:
            skipped.append("shares of the GPU below 100 %: the MPS daemon did not start")
        begun = time.monotonic()
        for job in jobs(args, folder, shared):
            for row in run(job, client if shared else None, begun):
                print(json.dumps(row), file=sys.stderr)
                if "failed" in row:
                    skipped.append(json.dumps(row))
                else:
                    rows.append(row)
            _write(out, args, rows, skipped)
    print(json.dumps({"rows": len(rows), "skipped": len(skipped), "seconds": time.monotonic() - begun}))


def _write(out: Path, args: argparse.Namespace, rows: list[dict[str, Any]], skipped: list[str]) -> None:
    """Write what has been measured so far."""
    figures = {
        "device": args.device,
        "workloads": {name: DATA[name] for name in args.workloads},
        "modes": len({tuple(sorted((k, str(r[k])) for k in GRIDS["cpu"])) for r in rows}),
        "rows": rows,
        "skipped": skipped,
    }
    whole = {"machine_id": machine_id(), "commit": commit(), "met": len(rows) > 0, "figures": figures}
    out.write_text(json.dumps(whole, indent=1) + "\n")


if __name__ == "__main__":
    main()
