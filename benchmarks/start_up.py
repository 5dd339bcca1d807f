"""How long before edgescope answers: --help, import, and listing 1,000 stored results.

Targets: `edgescope --help` <= 0.2 s; `import edgescope` <= 0.1 s over a bare interpreter; 1,000 results listed and
filtered in <= 1 s. Interleaved, 15 rounds, medians; every run is a process of its own.

    python benchmarks/start_up.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from facts import publish

from edgescope.bench import begin, here
from edgescope.records import Measured, Status, Trial
from edgescope.store.results import Store

ROUNDS = 15


def timed(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def fill(root: Path, n: int) -> None:
    """Store n results with this machine's real manifest."""
    store, begun = Store(root), begin(Trial(model="null", backend="null"), here())
    metrics = {f"latency_p{q}_s": Measured(1e-3, "s", 0.9e-3, 1.1e-3, 1000) for q in range(50, 100)}
    for i in range(n):
        trial = Trial(model="null", backend="null", batch=i + 1)
        store.save(replace(begun, id=f"{trial.id}-{i}", trial=trial, status=Status.OK, metrics=metrics))


def main() -> None:
    cli = str(Path(sys.executable).parent / "edgescope")
    with tempfile.TemporaryDirectory() as name:
        fill(Path(name), 1_000)
        commands = {
            "bare": [sys.executable, "-c", "pass"],
            "import": [sys.executable, "-c", "import edgescope"],
            "help": [cli, "--help"],
            "list_1000_filtered": [cli, "list", "--store", name, "--model", "null", "--status", "ok"],
        }
        times: dict[str, list[float]] = {key: [] for key in commands}
        for _ in range(ROUNDS):
            for key, command in commands.items():
                times[key].append(timed(command))
    over = [a - b for a, b in zip(times["import"], times["bare"], strict=True)]
    figures = {f"{k}_s": {"median": statistics.median(v), "max": max(v)} for k, v in times.items()}
    figures["import_over_bare_s"] = {"median": statistics.median(over), "max": max(over)}
    met = (
        figures["help_s"]["median"] <= 0.2
        and figures["import_over_bare_s"]["median"] <= 0.1
        and figures["list_1000_filtered_s"]["median"] <= 1.0
    )
    publish("start_up", figures, met=met)


if __name__ == "__main__":
    main()
