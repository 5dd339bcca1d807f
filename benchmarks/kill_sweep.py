"""A sweep killed with `kill -9` at fifty random moments: nothing finished is lost, nothing finished runs again.

The grid is 48 cells of the null model, half of them with two worker processes. A sweep is started, killed after a
random time after 0 to 3 further cells (while it imports, prepares, measures or stores), and started again, until the
grid is finished; every other grid reuses its workers. After each kill the store is read as it lies. Counted are

* lost: results that were in the store before and are not afterwards;
* repeated: cells that the store holds twice, or that were started again although finished;
* in flight: cells that were started and have no result, which is what a kill may cost (one at most);
* unreadable: results that cannot be read;
* orphans: processes that outlived the sweep by 10 s.

    python benchmarks/kill_sweep.py                        # 50 kills, about 8 minutes; writes published/kill_sweep.json
    python benchmarks/kill_sweep.py --kills 3 --no-publish
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from facts import publish

from edgescope.records import Trial
from edgescope.report.sweep import namer
from edgescope.store.results import Store
from edgescope.study import grid as study

STUDY = """
[store]
path = "{store}"
[trial]
model = "null"
backend = "null"
batch = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
precision = ["fp32", "int8"]
processes = [1, 2]
warmup = 0.0
min_s = 0.1
max_s = 0.1
[sweep]
reuse_workers = {reuse}
"""
MARK = "EDGESCOPE_KILL_SWEEP"
#: A sweep is killed up to so many seconds after up to so many new results; importing takes about 1 s, a cell 2 to 4.
MOMENT_S, MOMENT_CELLS = 4.0, 3
ORPHAN_S = 10.0


@dataclass
class Kill:
    """One kill: what the store held before the sweep was started and after it was killed."""

    reuse: bool
    before: int
    after: int
    started: int
    in_flight: int


@dataclass
class Tally:
    """Everything counted so far."""

    kills: list[Kill] = field(default_factory=list)
    lost: int = 0
    repeated: int = 0
    unreadable: int = 0
    orphans: int = 0
    grids: int = 0


def stored(root: Path) -> Counter[str]:
    """Return trial id -> results of it in the store."""
    paths = [p for p in root.glob("*/*/result.json") if p.parts[-3] != ".incoming"]
    return Counter(p.parent.name.partition("-")[0] for p in paths)


def marked(mark: str) -> Iterator[int]:
    """Yield the processes that carry this mark in their environment."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes():
                yield int(path.parts[2])
        except OSError:  # gone, or another user's
            continue


def outlived(mark: str) -> int:
    """Return how many processes of a killed sweep are still there when they should not be, and end them."""
    deadline = time.monotonic() + ORPHAN_S
    while list(marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = list(marked(mark))
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return len(left)


def attempt(path: Path, root: Path, results: int, delay_s: float, log: Path) -> tuple[bool, int]:
    """Run the sweep until so many results are there and the delay is over; return (whether it was killed, orphans)."""
    mark = uuid.uuid4().hex
    command = [sys.executable, "-m", "edgescope.cli.main", "sweep", str(path)]
    with log.open("wb") as err:
        run = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=err,
            env={**os.environ, MARK: mark},
            start_new_session=True,
        )
    while run.poll() is None and len(stored(root)) < results:
        time.sleep(0.01)
    try:
        run.wait(timeout=delay_s)
    except subprocess.TimeoutExpired:
        run.send_signal(signal.SIGKILL)
    killed = run.wait() == -signal.SIGKILL
    return killed, outlived(mark)


def grid(folder: Path, rng: random.Random, most: int, tally: Tally) -> None:
    """Sweep one grid to its end, killing it on the way until the tally has `most` kills."""
    reuse = tally.grids % 2 == 1
    root, path, log = folder / "store", folder / "study.toml", folder / "stderr"
    path.write_text(STUDY.format(store=root, reuse=str(reuse).lower()))
    trials = study.read(path).trials
    before: Counter[str] = Counter()
    while len(before) < len(trials):
        last = len(tally.kills) >= most
        wanted = len(before) + (len(trials) if last else rng.randint(0, MOMENT_CELLS))
        killed, orphans = attempt(path, root, wanted, rng.uniform(0.0, MOMENT_S), log)
        after, began = stored(root), starts(log, trials)
        tally.orphans += orphans
        tally.lost += len(set(before) - set(after))
        tally.repeated += sum(n - 1 for n in after.values()) + len(began & set(before))
        store = Store(root)
        list(store.results())
        tally.unreadable += len(store.problems)
        if killed:
            flying = len(began - set(after))
            tally.kills.append(Kill(reuse, len(before), len(after), len(began), flying))
            print(f"kill {len(tally.kills)}: {tally.kills[-1]}", file=sys.stderr, flush=True)
        before = after
    tally.grids += 1


def starts(log: Path, trials: tuple[Trial, ...]) -> set[str]:
    """Return the ids of the trials that a sweep began: it prints one line before each, or one after it."""
    ids = {namer(trials)(t): t.id for t in trials}
    lines = re.findall(r"^\[\d+/\d+\] (.*)$", log.read_text(), re.MULTILINE)
    names = sorted(ids, key=len, reverse=True)  # one name may begin another
    return {ids[next(name for name in names if line.startswith(name))] for line in lines}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-publish", action="store_true")
    asked = parser.parse_args()
    rng, tally = random.Random(asked.seed), Tally()
    while len(tally.kills) < asked.kills:
        with tempfile.TemporaryDirectory(prefix="edgescope-kill-") as name:
            grid(Path(name), rng, asked.kills, tally)
    figures = {
        "kills": len(tally.kills),
        "grids_finished": tally.grids,
        "lost": tally.lost,
        "repeated": tally.repeated,
        "most_in_flight": max(k.in_flight for k in tally.kills),
        "cells_in_flight": sum(k.in_flight for k in tally.kills),
        "unreadable": tally.unreadable,
        "orphans": tally.orphans,
        "each": [vars(k) for k in tally.kills],
    }
    met = (
        not (tally.lost or tally.repeated or tally.unreadable or tally.orphans)
        and figures["most_in_flight"] <= 1
    )
    if asked.no_publish:
        print(json.dumps({"met": met} | figures, indent=1))
    else:
        publish("kill_sweep", figures, met=met)


if __name__ == "__main__":
    main()
