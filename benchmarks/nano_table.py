"""The Jetson Nano study's table, measured here: `edgescope study nano_table` with every gain, bound and gate.

Runs the eleven networks (fresh processes, interleaved, gated; what the store holds is not measured again), publishes
the rows and the means, and, where Plotly is installed, the page and the Markdown beside them. Targets: on a GPU the
geometric mean is above the study's arithmetic 7.07 and ResNet50 at 7 or more, each by the value with its interval
published, or else every network below 7.07 at 0.8 to 1.05 of what the machine's measured ceilings allow it; on a CPU
the geometric mean is above 3. They are reached by all eleven networks, each speed-up with its interval, on a machine
that nothing disturbed, or not at all; a part of the networks is published under another name.

    python benchmarks/nano_table.py --store DIR [--device cpu|cuda] [--budget 90] [--models A,B] [--ceilings FILE]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from facts import PUBLISHED, publish

from edgescope.papers.jetson_nano.printed import study
from edgescope.store.results import Store

STUDY_MEAN, CPU_MEAN, RESNET = 7.07, 3.0, 7.0
SHARE = (0.8, 1.05)
"""Of the limit: near it, and not so far above that the ceilings cannot be right."""
BASELINE = "torch_eager "
DISTURBED = {"THROTTLED", "DISTURBED"}


def command(args: argparse.Namespace, *more: str) -> list[str]:
    """The study's command line."""
    cli = str(Path(sys.executable).parent.absolute() / "edgescope")
    line = [cli, "study", "nano_table", "--device", args.device, "--store", str(args.store)]
    line += ["--models", args.models] if args.models else []
    ceilings = args.ceilings or PUBLISHED / f"ceilings_{args.device}.json"
    return [*line, *(["--ceilings", os.path.relpath(ceilings)] if ceilings.exists() else []), *more]


def met(found: dict[str, Any], device: str) -> bool:
    """Whether the targets are reached, by all the study's networks and by figures that can be trusted."""
    rows = {row["model"]: row for row in found["rows"]}
    if not whole(list(rows)) or not all(sound(row) for row in rows.values()):
        return False
    mean = found["geometric"].get("value", 0.0)
    if device == "cpu":
        return bool(mean > CPU_MEAN)
    slow = [r for r in rows.values() if r["speedup"]["value"] < STUDY_MEAN]
    near = all(SHARE[0] <= r["of_limit"].get("value", 0.0) <= SHARE[1] for r in slow)
    fast = mean > STUDY_MEAN and rows["resnet50"]["speedup"]["value"] >= RESNET
    return bool(fast or (slow and near))


def whole(models: list[str]) -> bool:
    """Whether these are all the study's networks."""
    return set(models) >= {r.ours for r in study().rows}


def sound(row: dict[str, Any]) -> bool:
    """Whether a row has a speed-up with its interval (the baseline itself needs none) from an undisturbed machine."""
    speedup = row["speedup"]
    if "absent" in speedup or DISTURBED & set(row["verdicts"]):
        return False
    itself = speedup["value"] == 1.0 and row["variant"].startswith(BASELINE)
    return itself or None not in (speedup.get("lo"), speedup.get("hi"))


def named(device: str, models: list[str]) -> str:
    """Name of what is published."""
    return f"nano_table_{device}" + ("" if whole(models) else "_subset")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--budget", default="90")
    parser.add_argument("--models", default="")
    parser.add_argument("--ceilings", type=Path, default=None)
    parser.add_argument("--no-run", action="store_true", help="publish what the store holds")
    args = parser.parse_args()
    measure = [] if args.no_run else ["--run", "--budget", args.budget]
    done = subprocess.run(command(args, *measure, "--json"), stdout=subprocess.PIPE, text=True, check=False)
    if not done.stdout:
        raise SystemExit(done.returncode)
    found = json.loads(done.stdout)
    name = named(args.device, [row["model"] for row in found["rows"]])
    newest = max(
        (r for r in Store(args.store).results() if r.machine.id == found["machine"]),
        key=lambda r: r.started_at,
    )
    publish(name, found, met=met(found, args.device), source=newest)
    if importlib.util.find_spec("plotly"):
        page = os.path.relpath(PUBLISHED / f"{name}.md")
        subprocess.run(command(args, "--output", page), check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
