"""What the tests of an earlier revision cost today: CPU seconds of those that still exist, in turns with then.

    python benchmarks/suite_cost.py --before b1efc7b7 [--files 60] [--rounds 1]

Both revisions are checked out into folders of their own and run by this interpreter, which has one set of packages. A
test is the same if its function's name and its file's are: files have moved between folders. Each revision runs those
that both have of the fast set of `make test`, in one process, without xdist. Its CPU seconds are those of the whole
tree of processes, the collection included. `--files` draws as many files by a seed. Tests that a side fails are named.

Goal: the tests that both have cost at most 0.6 times their CPU seconds then.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import facts

GOAL, FAST = 0.6, "not alone and not gpu and not jetson and not page and not slow"
NODE = re.compile(r"^(tests/\S+?)([^/]+\.py)::(\S.*)$")
ENDED = re.compile(r"(\d+) (passed|failed|skipped|error)")


def checked_out(revision: str, folder: Path) -> Path:
    """Return a folder with the files of a revision."""
    git = ("git", "-C", str(facts.ROOT))
    packed = subprocess.run([*git, "archive", revision], capture_output=True, check=True)
    folder.mkdir()
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed.stdout, check=True)
    return folder


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a revision's tests: its sources, bytecode of its own."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return kept | {
        "PYTHONPATH": str(folder / "src"),
        "PYTHONPYCACHEPREFIX": str(folder.parent / f"{folder.name}.bytecode"),
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": "268435456",
        "OMP_WAIT_POLICY": "PASSIVE",
    }


def pytest(folder: Path, *words: str) -> str:
    """Run pytest in a revision's folder; return what it printed."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words]
    done = subprocess.run(
        command, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def nodes(folder: Path) -> dict[tuple[str, str], list[str]]:
    """Return (file's name, function's name) -> the nodes of the fast set; parameters may have other names by now."""
    found: dict[tuple[str, str], list[str]] = {}
    for line in pytest(folder, "--collect-only", "-m", FAST).splitlines():
        if match := NODE.match(line):
            found.setdefault((match[2], match[3].partition("[")[0]), []).append(line)
    return found


def cost(folder: Path, chosen: list[str]) -> dict[str, Any]:
    """Return the CPU seconds of these tests with all processes that they start, and how they ended."""
    listed = folder.parent / f"{folder.name}.tests"
    listed.write_text("\n".join(chosen))
    spent, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    said = pytest(folder, "-p", "no:xdist", "-p", "no:rerunfailures", f"@{listed}")
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", said, re.M)
    return {
        "cpu_s": ended.ru_utime + ended.ru_stime - spent.ru_utime - spent.ru_stime,
        "wall_s": time.perf_counter() - begun,
        "ended": {word: int(count) for count, word in ENDED.findall(said.splitlines()[-1])},
        "failed": failed,
    }


def main() -> int:
    """Run both revisions' tests in turns; publish the ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", default="b1efc7b7")
    parser.add_argument("--now", default="HEAD")
    parser.add_argument(
        "--files", type=int, default=0, help="as many files of tests, drawn by the seed; 0: all"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--smoke", action="store_true", help="show, publish nothing")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folders = {name: checked_out(getattr(args, name), Path(place) / name) for name in ("before", "now")}
        known = {name: nodes(folder) for name, folder in folders.items()}
        both = sorted(set(known["before"]) & set(known["now"]))
        files = sorted({file for file, _ in both})
        drawn = set(random.Random(args.seed).sample(files, args.files) if args.files else files)
        both = [one for one in both if one[0] in drawn]
        turns: dict[str, list[dict[str, Any]]] = {"before": [], "now": []}
        for turn in range(args.rounds):
            for name in list(folders)[:: 1 if turn % 2 else -1]:
                turns[name].append(cost(folders[name], [node for one in both for node in known[name][one]]))
                print(f"{name}: {json.dumps(turns[name][-1])}", file=sys.stderr, flush=True)
    ratios = sorted(n["cpu_s"] / b["cpu_s"] for n, b in zip(turns["now"], turns["before"], strict=True))
    figures = {
        "before": args.before,
        "files": {"of_both": len(files), "run": len(drawn), "seed": args.seed},
        "tests": {name: sum(map(len, found.values())) for name, found in known.items()},
        "functions_of_both": len(both),
        "turns": turns,
        "ratio": [ratios[0], ratios[len(ratios) // 2], ratios[-1]],
    }
    met = figures["ratio"][1] <= GOAL
    if args.smoke:
        print(json.dumps(figures, indent=1))
    else:
        facts.publish("suite_cost", figures, met=met)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
