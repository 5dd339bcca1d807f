"""Either side of a sweep over ssh is killed at random: what is lost, doubled or left behind, and in which power mode.

    python benchmarks/board_kills.py           # publishes published/board_kills.json: 200 trials, 20 kills

A sweep of small trials runs on a board behind a real ssh server on this machine, each in a power mode that is not the
board's usual one. SIGKILL takes, at random moments, the sweep, one of the processes that it started here, or the agent.
The same command goes on until nothing is left to measure. What is real: the command, ssh, the agent, what keeps the
way back from a mode, the store, and PyTorch; the board's folder, its nvpmodel and its trtexec are stand-ins.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import facts
import psutil

from edgescope.records import Result, Status
from edgescope.store.results import Store
from edgescope.wings.remote import address

sys.path.insert(0, str(facts.ROOT / "tests"))
import fake_jetson
import small_board
from ssh_server import Server

USUAL = 1
"""The board's own power mode; each trial is measured in another."""
PATIENCE_S = 30.0
GOOD = (Status.OK, Status.UNSTABLE)
MODEL = "lenet5"
RETRY = "crashed,failed,oom,timeout"
CELLS = """
[trial]
model = "{model}"
backend = "{engine}"
device = "{device}"
batch = {batch}
mode = ["15W", "MAXN_SUPER"]
warmup = 0.02
min_s = 0.2
idle_s = 0.0
max_s = 0.2
replicates = {replicates}
"""


@dataclass
class Site:
    """The board, the command that measures on it, and its store."""

    folder: Path
    studies: Sequence[Path]
    url: str
    here: str
    """The mark of the processes on this side, and of those on the board's."""
    there: str

    @property
    def root(self) -> Path:
        """Return the board's root."""
        return self.folder / "root"

    def start(self, study: Path, *more: str) -> subprocess.Popen[bytes]:
        """Start the sweep."""
        code = "import sys; from edgescope.cli.main import main; sys.exit(main())"
        words = [sys.executable, "-c", code, "sweep", str(study), "--on", self.url, *more]
        store = ["--store", str(self.folder / "store"), "--timeout", "120s"]
        environment = {
            **os.environ,
            small_board.MARK: self.here,
            "EDGESCOPE_CACHE": str(self.folder / "cache"),
        }
        with (self.folder / "said").open("ab") as said:
            return subprocess.Popen(
                [*words, *store], env=environment, stdout=said, stderr=said, cwd=self.folder
            )

    def stored(self) -> int:
        """Return how many results there are."""
        return sum(1 for _ in (self.folder / "store").glob("*/*/result.json"))

    def mode(self) -> int:
        """Return the board's power mode; -1 while it is being written."""
        return int((self.root / "live").read_text().strip() or -1)

    def left(self) -> list[str]:
        """Return what a kill has left behind: a mode, a way back that was not gone, processes on either side."""
        journal = self.folder / "home/cache/edgescope-agent/modes/mode"
        found = [f"mode {self.mode()}"] if self.mode() != USUAL else []
        found += ["a way back"] if journal.exists() else []
        return found + small_board.alive(self.there) + small_board.alive(self.here)

    def changes(self) -> list[int]:
        """Return the power modes that nvpmodel was told to set, in their order."""
        calls = (self.root / "calls").read_text().splitlines() if (self.root / "calls").exists() else []
        return [int(line.split()[-1]) for line in calls if line.startswith("nvpmodel -m ")]


@contextmanager
def site(folder: Path, studies: Sequence[str]) -> Iterator[Site]:
    """Serve a board in a power mode over ssh, with files that say what is measured on it."""
    root, home, keys = (folder / name for name in ("root", "home", "keys"))
    home.mkdir()
    keys.mkdir()
    small_board.orin(root)
    fake_jetson.board(root, now=USUAL)
    (root / "etc/nvpmodel.conf").unlink()
    (root / "etc/nvpmodel.conf").write_text((root / "etc/nvpmodel/board.conf").read_text())
    paths = [folder / f"study{number}.toml" for number in range(len(studies))]
    for path, text in zip(paths, studies, strict=True):
        path.write_text(text)
    here, there = uuid.uuid4().hex, uuid.uuid4().hex
    environment = small_board.environment(root, home, there, small_board.trtexec(folder / "bin"))
    with Server(keys, environment) as server:
        os.environ[address.SSH] = server.client()
        url = f"ssh://user@127.0.0.1:{server.port}?python={sys.executable}"
        yield Site(folder, paths, url, here, there)


@dataclass
class Killer:
    """Kills one side whenever so many results are stored and a random time has passed."""

    site: Site
    chance: random.Random
    at: list[int]
    span_s: float
    done: list[dict[str, Any]] = field(default_factory=list)
    due_s: float | None = None

    def look(self, sweep: psutil.Process) -> None:
        """Kill if it is time to."""
        if not self.at or self.site.stored() < self.at[0]:
            return
        if self.due_s is None:
            self.due_s = time.monotonic() + self.chance.random() * self.span_s
        if time.monotonic() >= self.due_s and self._kill(sweep):
            self.at.pop(0)
            self.due_s = None

    def _kill(self, sweep: psutil.Process) -> bool:
        """Kill a random one of the sweep, its processes and the agent, if the chosen kind is there."""
        victim = self.chance.choice(("sweep", "its process", "agent"))
        found = {
            "sweep": lambda: [sweep.pid],
            "its process": lambda: _children(sweep),
            "agent": lambda: _agents(self.site),
        }[victim]()
        if not found:
            return False
        pid = self.chance.choice(found)
        told = {"victim": victim, "after_results": self.site.stored()}
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        self.done.append(told)
        return True


def _children(sweep: psutil.Process) -> list[int]:
    try:
        return [child.pid for child in sweep.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _agents(where: Site) -> list[int]:
    return [int(line.split()[0]) for line in small_board.alive(where.there) if "hashlib" in line]


def run(
    where: Site, kills: int, trials: int, span_s: float, seed: int, *, tell: Callable[[str], None]
) -> Killer:
    """Let the sweep run, killed now and then and started again, until it finds nothing left to measure."""
    chance = random.Random(seed)
    killer = Killer(where, chance, sorted(chance.choices(range(trials), k=kills)), span_s)
    quiet = False
    while not quiet or killer.at:
        before = where.stored()
        quiet = all([_one(where, study, killer, *more) for study, more in _commands(where, killer)])
        quiet = quiet and where.stored() == before
        tell(f"{where.stored()} results, {len(killer.done)} kills")
    return killer


def _commands(where: Site, killer: Killer) -> Iterator[tuple[Path, list[str]]]:
    for study in where.studies:
        yield study, []
    if not killer.at:
        for study in where.studies:
            yield study, ["--retry", RETRY]


def _one(where: Site, study: Path, killer: Killer, *more: str) -> bool:
    """Run the command once; return whether it ended by itself, and fail if what it left is not gone in time."""
    sweep = where.start(study, *more)
    process = psutil.Process(sweep.pid)
    while sweep.poll() is None:
        killer.look(process)
        time.sleep(0.01)
    start, until = time.monotonic(), time.monotonic() + PATIENCE_S
    while (left := where.left()) and time.monotonic() < until:
        time.sleep(0.01)
    if sweep.returncode < 0 and killer.done:
        killer.done[-1]["all_put_back_s"] = round(time.monotonic() - start, 3)
    if left:
        raise SystemExit(f"left behind: {left}")
    return sweep.returncode >= 0


def figures(where: Site, killer: Killer, trials: int) -> dict[str, Any]:
    """Return what is in the store, and what happened to the power mode."""
    store = Store(where.folder / "store")
    every = list(store.results())
    good = Counter(result.trial.id for result in every if result.status in GOOD)
    known, changes = {result.trial.id for result in every}, where.changes()
    held = [mode for mode in changes if mode != USUAL]
    pairs = zip(changes, [*changes[1:], None], strict=True)
    unread = len(store.problems) + _unread(store, every)
    return {
        "trials": trials,
        "kills": killer.done,
        "victims": dict(Counter(one["victim"] for one in killer.done)),
        "results": len(every),
        "good_results": sum(good.values()),
        "lost": trials - len(good),
        "doubled": sum(1 for n in good.values() if n > 1) + max(0, len(known) - trials),
        "unreadable": unread,
        "told_of_a_kill": dict(Counter(_why(result) for result in every if result.status not in GOOD)),
        "modes_entered": len(held),
        "modes_left_behind": sum(mode != USUAL and after != USUAL for mode, after in pairs),
        "mode_at_the_end": where.mode(),
        "left_behind": where.left(),
        "put_back_s": sorted(one["all_put_back_s"] for one in killer.done if "all_put_back_s" in one),
    }


def _why(result: Result) -> str:
    return f"{result.status.value} {result.reason.code if result.reason else ''}".strip()


def _unread(store: Store, every: Sequence[Result]) -> int:
    store.fulls(every)
    return len(store.problems)


def kept(found: dict[str, Any], kills: int) -> bool:
    """Return whether nothing was lost, doubled or left behind."""
    none = ("lost", "doubled", "unreadable", "modes_left_behind", "left_behind")
    return (
        len(found["kills"]) == kills
        and not any(found[name] for name in none)
        and found["mode_at_the_end"] == USUAL
        and found["modes_entered"] >= found["trials"]
    )


def main(argv: list[str]) -> int:
    """Measure, publish, and return 0 if nothing was lost, doubled or left behind."""
    parser = argparse.ArgumentParser(description="kill either side of a sweep over ssh")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--replicates", type=int, default=48, help="of each of the four trtexec cells")
    parser.add_argument("--torch", type=int, default=4, help="of each of the two PyTorch cells")
    parser.add_argument("--span", type=float, default=12.0, help="seconds within which a kill falls")
    parser.add_argument("--seed", type=int, default=29)
    parser.add_argument("--no-publish", action="store_true")
    args = parser.parse_args(argv)
    studies = [
        CELLS.format(model=MODEL, engine="trtexec", device="cuda", batch=[1, 2], replicates=args.replicates),
        CELLS.format(model=MODEL, engine="torch_eager", device="cpu", batch=1, replicates=args.torch),
    ]
    trials, start = 4 * args.replicates + 2 * args.torch, time.monotonic()
    with tempfile.TemporaryDirectory() as name, site(Path(name), studies) as where:
        killer = run(
            where, args.kills, trials, args.span, args.seed, tell=lambda text: print(text, flush=True)
        )
        found = figures(where, killer, trials) | {"seconds": round(time.monotonic() - start)}
    met = kept(found, args.kills)
    print(
        f"{trials} trials, {len(killer.done)} kills: {'nothing' if met else 'something'} lost, doubled or left"
    )
    if not args.no_publish:
        facts.publish(Path(__file__).stem, found, met=met)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
