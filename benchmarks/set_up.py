"""What `make demo` and `make test` need before they begin: the environment's seconds, beside an earlier Makefile's.

The committed files of both commits make their environment in turns, each in a new folder with empty caches of pip and
uv, and with no uv on PATH. The packages that each has installed are compared. pip compiles every module that it
installs, uv leaves that to the first import: the first import of the engines is timed, too.

    python benchmarks/set_up.py --earlier b1efc7b7 --rounds 3
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from facts import publish

ROOT = Path(__file__).parent.parent
GOAL = 0.35
INSTALLERS = {"pip", "setuptools", "wheel"}  # what an environment begins with, not what edgescope asks for
FIRST_IMPORT = "import edgescope, torch, onnx, onnxruntime, openvino"
LIST = """
import json
from importlib.metadata import distributions
print(json.dumps({d.metadata["Name"].lower().replace("_", "-"): d.version for d in distributions()}))
"""


@dataclass(frozen=True)
class Made:
    """An environment: how long it and the first import took, its size, and its packages with their versions."""

    seconds: float
    first_import_s: float
    bytes: int
    packages: dict[str, str]


def made(commit: str, python: str) -> Made:
    """Return what `make venv` of a commit gives, from nothing but Python, pip and make."""
    with tempfile.TemporaryDirectory(prefix="set-up-") as name:
        here = Path(name) / "edgescope"
        here.mkdir()
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", str(here)], input=archive, check=True)
        start = time.perf_counter()
        subprocess.run(
            ["make", "venv", f"PYTHON={python}"],
            cwd=here,
            env=bare(Path(name)),
            stdout=sys.stderr,
            check=True,
        )
        seconds = time.perf_counter() - start
        start = time.perf_counter()
        subprocess.run([here / ".venv/bin/python", "-c", FIRST_IMPORT], check=True)
        first = time.perf_counter() - start
        found = subprocess.run(
            [here / ".venv/bin/python", "-c", LIST], check=True, capture_output=True
        ).stdout
        packages = {name: version for name, version in json.loads(found).items() if name not in INSTALLERS}
        size = sum(path.lstat().st_size for path in (here / ".venv/lib").rglob("*") if path.is_file())
        return Made(round(seconds, 1), round(first, 1), size, packages)


def named(commit: str) -> str:
    """Return a commit's hash: HEAD may move while this runs."""
    command = ["git", "rev-parse", "--short=12", commit]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def bare(folder: Path) -> dict[str, str]:
    """Return an environment with empty caches, without uv on PATH and without another virtual environment."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("PYTHON", "VIRTUAL_ENV", "UV_"))
    }
    path = [part for part in kept["PATH"].split(":") if not shutil.which("uv", path=part)]
    caches = {"PIP_CACHE_DIR": "pip", "UV_CACHE_DIR": "uv", "XDG_CACHE_HOME": "cache"}
    return kept | {"PATH": ":".join(path)} | {key: str(folder / name) for key, name in caches.items()}


def figures(earlier: list[Made], now: list[Made]) -> dict[str, Any]:
    """Return both sides, their ratio, and the packages that are not the same."""
    before, after = earlier[-1].packages, now[-1].packages
    differ = {name: [before.get(name), after.get(name)] for name in sorted(before.keys() | after.keys())}
    return {
        "ratio": round(median(m.seconds for m in now) / median(m.seconds for m in earlier), 3),
        "goal": GOAL,
        "seconds": {"earlier": [m.seconds for m in earlier], "now": [m.seconds for m in now]},
        "median_s": {"earlier": median(m.seconds for m in earlier), "now": median(m.seconds for m in now)},
        "first_import_s": {
            "earlier": [m.first_import_s for m in earlier],
            "now": [m.first_import_s for m in now],
        },
        "bytes": {"earlier": earlier[-1].bytes, "now": now[-1].bytes},
        "packages": len(after),
        "differ": {name: both for name, both in differ.items() if both[0] != both[1]},
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--earlier", default="b1efc7b7")
    parser.add_argument("--now", default="HEAD")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    python = str(Path(sys.base_prefix) / "bin" / "python3")
    sides: dict[str, list[Made]] = {named(args.earlier): [], named(args.now): []}
    for turn in range(args.rounds):
        for commit in [*sides] if turn % 2 == 0 else [*reversed(sides)]:
            sides[commit].append(made(commit, python))
            print(f"{commit}: {sides[commit][-1].seconds} s", file=sys.stderr, flush=True)
        found = figures(*sides.values())  # after each round: a run that is stopped keeps what it has
        publish("set_up", {"commits": [*sides], "rounds": turn + 1, **found}, met=found["ratio"] <= GOAL)


if __name__ == "__main__":
    main()
