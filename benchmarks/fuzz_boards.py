"""What must never happen, tried often: another error than edgescope's own, a cell lost by a kill.

python benchmarks/fuzz_boards.py lines_and_trees
python benchmarks/fuzz_boards.py kills
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import facts
from facts import publish

from edgescope.devices import recording
from edgescope.devices.base import Failed, Unsupported
from edgescope.devices.cpu.device import CpuDevice
from edgescope.devices.replay import materialise
from edgescope.errors import EdgescopeError
from edgescope.records import Trial
from edgescope.report.sweep import namer
from edgescope.store.results import Store
from edgescope.study import grid as study
from edgescope.wings.doctor.report import examine
from edgescope.wings.jetson import nvpmodel
from edgescope.wings.jetson.device import JetsonDevice
from edgescope.wings.jetson.tegrastats_line import parse
from edgescope.wings.jetson.tegrastats_log import read as read_log

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LINES_FILE = Path(__file__).parent.parent / "tests/wings/jetson/tegrastats_lines.toml"
RUBBISH = (
    *(
        "nan",
        "inf",
        "-inf",
        "1e999",
        "-1",
        "0",
        "",
        " ",
        "off",
        "N/A",
        "%",
        "@",
        "[",
        "]",
        "(",
        "/",
        "mW",
        "C",
    ),
    *(
        "9" * 20,
        "9" * 400,
        "-256",
        "-256000",
        "18446744073709551616",
        "0x10",
        "1_000",
        "1 2 3",
        "\0",
        "\u0663",
    ),
    *(
        "\u2003",
        "\ufeff",
        "CPU [",
        "RAM 1/",
        "GR3D_FREQ ",
        "VDD_IN",
        "13-40-2025 99:99:99",
        "\x1b[31m",
        "\ud7ff",
    ),
)
PID = 4242
EXTRA = {
    f"proc/{PID}/stat": f"{PID} (a (b) c) S 1 1 1 0 -1 0 5 0 3 0 70 20 5 5 20 0 1 0 100 1000000 200 0\n",
    f"proc/{PID}/task/{PID}/children": "4243 \n",
    "proc/4243/stat": f"4243 (child) S {PID} 1 1 0 -1 0 5 0 3 0 7 2 0 0 20 0 1 0 100 1000000 20 0\n",
    "proc/self/cgroup": "0::/box\n",
    "sys/fs/cgroup/box/cpu.max": "150000 100000\n",
    "sys/fs/cgroup/box/memory.max": "1073741824\n",
    "sys/class/powercap/intel-rapl:0/name": "package-0\n",
    "sys/class/powercap/intel-rapl:0/energy_uj": "9000000\n",
    "sys/class/powercap/intel-rapl:0/max_energy_range_uj": "10000000\n",
    "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "2\n",
    "sys/class/power_supply/BAT0/status": "Discharging\n",
}
"""A watched process and what machines other than a Jetson have, laid out beside each recording."""
STRANGE = ("x", "_x", "99", "-1", "0x", "1 (copy)", "2.bad\n", "\u0663", "00")
LOG_EVERY, MOST_TOLD = 500, 20
CHUNK = {"line": 5000, "tree": 25}


def lines() -> list[str]:
    """The public lines."""
    return [line["text"] for line in tomllib.loads(LINES_FILE.read_text(encoding="utf-8"))["line"]]


def damaged_text(rng: random.Random, text: str, others: list[str]) -> str:
    """`text` after one to four accidents."""
    for _ in range(rng.randint(1, 4)):
        a, b = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
        word = rng.choice(RUBBISH)
        match rng.randrange(8):
            case 0:
                text = text[:a]
            case 1:
                text = text[a:]
            case 2:
                text = text[:a] + text[min(b, a + 20) :]
            case 3:
                text = text[:a] + text[a : a + 40] * rng.randint(2, 5) + text[a + 40 :]
            case 4:
                text = text[:a] + word + text[a:]
            case 5:
                text = text[:a] + word + text[a + len(word) :]
            case 6:
                words = text.split(" ")
                rng.shuffle(words)
                text = " ".join(words)
            case 7:
                text = text[:a] + rng.choice(others)[b:]
    return text


def check_line(rng: random.Random, known: list[str]) -> None:
    """Read one damaged line."""
    text = damaged_text(rng, rng.choice(known), known)
    got = parse(text)
    whole, kept = ("".join("".join(part).split()) for part in (text, [item.text for item in got.items]))
    if got.stamp is None:
        assert kept == whole, f"lost something of {text!r}"
    elif got.stamp.clock.startswith("the board"):
        assert len(kept) == len(whole) - len("MM-DD-YYYYHH:MM:SS"), f"lost more than the date of {text!r}"
    else:
        assert kept in whole, f"lost something of {text!r}"
        before = text[: text.index(got.items[0].text)] if got.items else ""
        assert not parse(before).fields, f"lost a value of {text!r}"
    for f in got.fields:
        assert isinstance(f.value, Unsupported) or math.isfinite(f.value), f"{f} in {text!r}"


def check_log(texts: list[str], rng: random.Random, folder: Path) -> None:
    """Read a file of damaged lines, sometimes cut; its times may not fall."""
    path = folder / "run.log"
    data = "\n".join(texts).encode(errors="surrogatepass")
    path.write_bytes(data[: rng.randrange(len(data) + 1)] if rng.random() < 0.5 else data)
    try:
        log = read_log(path, interval_s=rng.choice((None, 1.0)))
    except EdgescopeError:
        return
    times = [t for _, t, _ in log.rows]
    assert times == sorted(times), "time ran backwards"
    assert all(isinstance(v, Unsupported) or math.isfinite(v) for _, _, v in log.rows)


class Tree:
    """A board's files below a folder, and the means to damage and to mend them."""

    def __init__(self, what: recording.Recording, root: Path) -> None:
        self.root = root
        materialise(what, root)
        self.whole = {e.path: e.text.encode() for e in what.entries if e.text is not None}
        for path, text in EXTRA.items():
            if path not in self.whole and _makedirs((root / path).parent):
                (root / path).write_text(text)
                self.whole[path] = text.encode()
        self.paths = sorted(self.whole)
        self._touched: set[str] = set()
        self._strangers: list[Path] = []

    def damage(self, rng: random.Random) -> None:
        """Spoil one to eight files, in place or anew, or a whole folder; now and then put a stranger beside."""
        if rng.random() < 0.3:
            self._stranger(rng)
        for path in rng.choices(self.paths, k=rng.choice((1, 1, 2, 3, 8))):
            self._touched.add(path)
            file = self.root / path
            how = rng.randrange(14)
            if how == 0:
                folder = file.parent
                inside = str(folder.relative_to(self.root)) + "/"
                self._touched |= {p for p in self.paths if p.startswith(inside)}
                shutil.rmtree(folder, ignore_errors=True)
                continue
            if how > 8 and file.is_file():  # the same file with other content, as an open descriptor sees it
                file.write_bytes(self._spoilt(rng, path))
                continue
            _remove(file)
            if how == 1 or not _makedirs(file.parent):
                continue
            if how == 2:
                file.mkdir()
            elif how == 3:
                file.symlink_to(file)
            else:
                file.write_bytes(self._spoilt(rng, path))

    def _stranger(self, rng: random.Random) -> None:
        """Copy a file or a folder under a name that only looks like one of the kernel's."""
        file = self.root / rng.choice(self.paths)
        there = file if rng.random() < 0.5 else file.parent
        other = there.with_name(there.name.rstrip("0123456789") + rng.choice(STRANGE))
        if there == self.root or there.is_symlink() or not there.exists() or os.path.lexists(other):
            return
        self._strangers.append(other)
        if there.is_dir():
            shutil.copytree(there, other, symlinks=True)
        else:
            shutil.copy(there, other)

    def _spoilt(self, rng: random.Random, path: str) -> bytes:
        data = self.whole[path]
        match rng.randrange(7):
            case 0:
                return b""
            case 1:
                return data[: rng.randrange(len(data) + 1)]
            case 2:
                return rng.randbytes(rng.randrange(300))
            case 3:
                return rng.choice(RUBBISH).encode(errors="surrogatepass") + rng.choice((b"", b"\n"))
            case 4:
                return self.whole[rng.choice(self.paths)]
            case 5:
                return data * rng.choice((2, 500))
            case _:
                text = damaged_text(rng, data.decode(errors="replace"), [data.decode(errors="replace")])
                return text.encode(errors="surrogatepass")

    def mend(self) -> None:
        """Put back what was damaged."""
        while self._strangers:
            _remove(self._strangers.pop())
        for path in self._touched:
            _remove(self.root / path)
        for path in self._touched:
            _makedirs((self.root / path).parent)
            (self.root / path).write_bytes(self.whole[path])
        self._touched.clear()


def _remove(file: Path) -> None:
    if file.is_dir() and not file.is_symlink():
        shutil.rmtree(file)
    elif os.path.lexists(file):
        file.unlink()


def _makedirs(folder: Path) -> bool:
    """Make the folder; False where a damaged file is in its way."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return True


def check_tree(tree: Tree, rng: random.Random, *, report: bool) -> None:
    """Ask everything that edgescope asks of a board, before and after a second accident."""
    tree.damage(rng)
    devices = {"cpu": CpuDevice(tree.root), "jetson": JetsonDevice(tree.root)}
    for device in devices.values():
        assert isinstance(device.present(), str)
        json.dumps(device.machine(), allow_nan=False)
        opened = []
        for spec in device.sources(PID):
            json.dumps(spec.kwargs)
            module, name = spec.target.split(":")
            opened.append(getattr(importlib.import_module(module), name)(**spec.kwargs))
        with device.throttle_watch() as watch:
            _read(opened)
            if rng.random() < 0.5:
                tree.damage(rng)
            _read(opened)
        json.dumps([watch.evidence().events, watch.evidence().looked_at, watch.evidence().absent])
        _own(lambda device=device: [mode.launch() for mode in device.modes().values()])
    _own(lambda: nvpmodel.load(tree.root))
    _own(lambda: nvpmodel.current(tree.root))
    if report:
        examine(devices, watch_s=0.0, root=tree.root)


def _read(opened: list[Any]) -> None:
    for source in opened:
        declared = {c.name for c in source.channels()}
        for name, t_ns, value in source.read():
            assert name in declared, f"{type(source).__name__} did not announce {name}"
            assert t_ns > 0
            if isinstance(value, Unsupported | Failed):
                assert value.reason, f"{name} has no reason"
            else:
                assert isinstance(value, float | int) and math.isfinite(value), f"{name} is {value!r}"


def _own(call: Callable[[], object]) -> None:
    """Call what may refuse with an error of edgescope's own."""
    try:
        call()
    except EdgescopeError as error:
        assert str(error).startswith(f"{error.code}: ")


def check_recording(what: recording.Recording, rng: random.Random) -> None:
    """Read a damaged recording."""
    text = "".join(itertools.islice(recording.lines(what), 40))
    damaged = damaged_text(rng, text, [text]).encode(errors="surrogatepass")
    _own(lambda: recording.parse(iter(damaged.splitlines(keepends=True)), Path("damaged.board.jsonl")))


def cases(kind: str, seed: int, which: range, boards: list[str]) -> Iterator[tuple[str, str]]:
    """Try the cases; yield (name, traceback) of each that fails."""
    shm = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shm if shm.is_dir() else None) as name:
        folder, known = Path(name), lines()
        trees: dict[str, tuple[recording.Recording, Tree]] = {}
        for i in which:
            rng = random.Random(f"{seed}/{kind}/{i}")
            try:
                if kind == "line":
                    check_line(rng, known)
                    if i % LOG_EVERY == 0:
                        check_log(
                            [damaged_text(rng, rng.choice(known), known) for _ in range(30)], rng, folder
                        )
                    continue
                board = rng.choice(boards)
                if board not in trees:
                    what = recording.read(recording.find(board))
                    trees[board] = what, Tree(what, folder / board)
                what, tree = trees[board]
                try:
                    check_tree(tree, rng, report=i % 20 == 0)
                finally:
                    tree.mend()
                check_recording(what, rng)
            except Exception:  # whatever comes out is what this looks for
                yield f"{kind}:{seed}:{i}", traceback.format_exc(limit=-6)


def _chunk(kind: str, seed: int, start: int, stop: int, boards: list[str]) -> list[tuple[str, str]]:
    return list(cases(kind, seed, range(start, stop), boards))


def fuzz(kind: str, seed: int, count: int, jobs: int) -> dict[str, Any]:
    """Try `count` cases in `jobs` processes; return figures and what failed."""
    start, boards, failed = time.monotonic(), recording.shipped(), []
    size = CHUNK[kind]
    with ProcessPoolExecutor(jobs) as pool:
        parts = [(a, min(a + size, count)) for a in range(0, count, size)]
        for found in pool.map(_chunk, *zip(*((kind, seed, a, b, boards) for a, b in parts), strict=True)):
            failed += found
            for name, trace in found[: max(0, MOST_TOLD - len(failed) + len(found))]:
                print(f"{name}\n{trace}", file=sys.stderr)
    seconds = time.monotonic() - start
    told = [{"case": name, "error": trace.strip().splitlines()[-1]} for name, trace in failed[:MOST_TOLD]]
    return {
        "cases": count,
        "seed": seed,
        "seconds": round(seconds, 1),
        "failures": len(failed),
        "first": told,
    }


def lines_and_trees() -> int:
    """Damaged tegrastats lines and damaged boards: nothing but edgescope's own errors may come out, and no nan.

    Lines: the public ones of tests/wings/jetson/tegrastats_lines.toml, cut, doubled, shuffled or strewn with rubbish.
    No parse may raise, lose a character, or yield a value that is not finite. Every 500th case also reads a log file
    of 30 of them.

    Trees: the shipped recordings laid out as files, a few of them emptied, cut, binary, huge, missing, turned into
    folders or into links to themselves, once before anything is opened and once more while it is being read. Every
    device, source, throttling watch, power mode and nvpmodel.conf is asked; the recording's own file is damaged too.

        python benchmarks/fuzz_boards.py lines_and_trees                        # 10^6 lines, 10^4 trees
        python benchmarks/fuzz_boards.py lines_and_trees --lines 2000 --trees 20 --no-publish
        python benchmarks/fuzz_boards.py lines_and_trees --only tree:0:4711     # one case again, with its traceback
    """
    parser = argparse.ArgumentParser(
        description=facts.text(lines_and_trees), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--trees", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", metavar="KIND:SEED:NUMBER", help="try one case again")
    parser.add_argument("--no-publish", action="store_true")
    args = parser.parse_args()
    if args.only:
        kind, seed, number = args.only.split(":")
        found = _chunk(kind, int(seed), int(number), int(number) + 1, recording.shipped())
        print(found[0][1] if found else f"{args.only}: nothing is wrong")
        return len(found)
    figures: dict[str, Any] = {"boards": recording.shipped()}
    for kind, count in (("line", args.lines), ("tree", args.trees)):
        if count:
            figures[f"{kind}s"] = got = fuzz(kind, args.seed, count, args.jobs)
            print(
                f"{kind}s: {got['cases']} cases, {got['failures']} failures, {got['seconds']} s, seed {args.seed}"
            )
    met = not any(part["failures"] for part in figures.values() if isinstance(part, dict))
    if not args.no_publish:
        publish("fuzz_boards/lines_and_trees", figures, met=met)
    return 0 if met else 1


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


def kills() -> None:
    """A sweep killed with `kill -9` at fifty random moments: nothing finished is lost, nothing finished runs again.

    The grid is 48 cells of the null model, half of them with two worker processes. A sweep is started, killed after a
    random time after 0 to 3 further cells (while it imports, prepares, measures or stores), and started again, until
    the grid is finished; every other grid reuses its workers. After each kill the store is read as it lies. Counted
    are

    * lost: results that were in the store before and are not afterwards;
    * repeated: cells that the store holds twice, or that were started again although finished;
    * in flight: cells that were started and have no result, which is what a kill may cost (one at most);
    * unreadable: results that cannot be read;
    * orphans: processes that outlived the sweep by 10 s.

        python benchmarks/fuzz_boards.py kills                        # 50 kills, about 8 minutes
        python benchmarks/fuzz_boards.py kills --kills 3 --no-publish
    """
    parser = argparse.ArgumentParser(description=facts.text(kills))
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
        publish("fuzz_boards/kills", figures, met=met)


if __name__ == "__main__":
    facts.chosen(lines_and_trees, kills)
