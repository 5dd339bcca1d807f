"""A board that an agent serves: its facts, its sensors, and the place where trtexec runs.

`Board.run` does for a program on the board what `program.Here.run` does here. The command line keeps its form; files it
reads are sent first (unless the board has their content), files it writes are fetched afterwards, and paths become
names in the folder that the agent runs it in.

The agent's rows become Readings, with each rail's scope and the board's total as boards.toml defines them. Their times
stay on the board's clock: it also stamped trtexec's lines, so nothing has to be shifted.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from edgescope import registry
from edgescope.devices import manifest
from edgescope.devices.base import Device
from edgescope.devices.kernel_files import absent
from edgescope.errors import DeviceError, UnsupportedError
from edgescope.modes import catalog
from edgescope.modes.catalog import AS_IS
from edgescope.process import said, scratch_folder
from edgescope.records import Channel, Json, Machine, Readings
from edgescope.registry import need
from edgescope.wings.remote import errors
from edgescope.wings.remote.address import Address
from edgescope.wings.remote.wire import Offset, Wire, agent_digest, clock_facts, get, put
from edgescope.wings.tensorrt.lends import BEAT_S, Ran, Tool, gpu, surveyed

#: Flags that name a file the program reads, a file it writes, and a file it reads or writes.
READS, WRITES, BOTH = (
    ("onnx", "loadEngine"),
    ("saveEngine", "exportTimes", "exportLayerInfo", "exportProfile", "exportOutput"),
    ("timingCacheFile",),
)
#: Flags whose files are worth keeping on the board: they are large and needed again.
KEPT = ("onnx", "loadEngine", "saveEngine")
#: What the agent says of a program that it ended because another one failed.
ANOTHER = "another failed"
#: Seconds beyond the program's own limit after which the host gives the agent up.
GRACE_S = 60.0
#: Seconds to set a power mode and read it back; a Nano takes several for each.
MODE_S = 180.0
#: Devices that are read from files under a root.
DEVICES = ("cpu", "jetson")
#: Facts of the CPU device that come from system calls, not files: the host's must not pass for the board's.
_STABLE_CALLS, _STATE_CALLS = ("architecture",), ("libc", "affinity")


@dataclass
class Line:
    """One translated command line, the files to send with their names there, and the files to fetch."""

    argv: list[str]
    sent: dict[str, Path] = field(default_factory=dict)
    fetched: dict[str, Path] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)


class Tree:
    """The /proc and /sys of one board as files under `root`: the same devices read a local machine and a board.

    A second read writes into the same files: the devices keep them open, as they do on the machine itself.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.reported: Mapping[str, Json] = {}

    def write(self, facts: Mapping[str, Json]) -> None:
        """Write the files in the agent's `facts`; remove files that it no longer reports."""
        files = {name: text for name, text in dict(facts.get("files", {})).items() if _inside(name)}
        for name in set(self.reported.get("files", {})) - set(files):
            (self.root / name).unlink(missing_ok=True)
        for name, text in files.items():
            path = self.root / name
            with contextlib.suppress(OSError):  # a name that is a folder in another: no kernel does that
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(str(text))
        self.reported = {**facts, "files": files}

    def devices(self) -> dict[str, Device]:
        """Return the devices that read this board."""
        known = [name for name in DEVICES if name in registry.DEVICES]
        return {name: registry.load(registry.DEVICES, name, "device")(self.root) for name in known}

    def machine(self, about: Mapping[str, Json]) -> Machine:
        """Return the board as its own edgescope would describe it; `about` says how it was reached.

        Packages, environment, command and git are the host's: they made the artifact and judged the outputs.
        """
        found = manifest.machine(self.devices())
        stable = _with(found.stable, {name: self.reported.get(name) for name in _STABLE_CALLS})
        state = _with(found.state, {name: self.reported.get(name) for name in _STATE_CALLS})
        state = {**state, "agent": dict(about)}
        return Machine(self._as_there(stable), self._as_there(state))

    def _as_there(self, facts: Any) -> Any:
        """Return the facts with the board's own paths in their reasons: the machine's id is a hash of the facts."""
        if isinstance(facts, Mapping):
            return {key: self._as_there(value) for key, value in facts.items()}
        if isinstance(facts, list | tuple):
            return [self._as_there(value) for value in facts]
        return facts.replace(str(self.root), "") if isinstance(facts, str) else facts


def _with(facts: Mapping[str, Any], calls: Mapping[str, Json]) -> dict[str, Any]:
    reported = {name: absent("the agent did not say") if v is None else v for name, v in calls.items()}
    return {**facts, "cpu": {**facts["cpu"], **reported}} if "cpu" in facts else dict(facts)


def _inside(name: object) -> bool:
    """Return whether a path from a board stays under the root: data from the wire is not trusted."""
    if not isinstance(name, str) or not name or "\0" in name:
        return False
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts


@dataclass(frozen=True)
class Board:
    """One connected board; `opened` makes it."""

    wire: Wire
    tree: Tree
    first: Offset
    tools: dict[str, Tool] = field(default_factory=dict)
    """The description of each program, by its path."""

    def look(self) -> None:
        """Read the board's facts again."""
        self.tree.write(self.wire.call("facts", doing="say what it is"))

    def machine(self) -> Machine:
        """Return the board as a Result names it."""
        return self.tree.machine(self.about(None))

    def about(self, last: Offset | None) -> dict[str, Json]:
        """Return how the board was reached: address, agent, its Python, and the offset of the two clocks."""
        hello = self.wire.hello
        return {
            "address": str(self.wire.address),
            "protocol": hello.get("protocol"),
            "python": hello.get("python"),
            "source_sha256": "its own" if self.wire.address.agent else agent_digest(),
            "clock_resolution_s": hello.get("resolution_s"),
            **clock_facts(self.first, last),
        }

    @contextlib.contextmanager
    def sampling(self, hz: float) -> Iterator[Rows]:
        """Sample the board while the block runs."""
        started = self.wire.call("sample_start", hz=hz, doing="sample its sensors")
        rows = Rows(started["channels"], hz)
        self.wire.events["rows"] = rows.take
        try:
            yield rows
            rows.stopped = self.wire.call("sample_stop", doing="stop sampling")
        finally:
            del self.wire.events["rows"]

    @contextlib.contextmanager
    def in_mode(self, name: str) -> Iterator[Mapping[str, Json]]:
        """Hold a power mode of the board while the block runs; yield what shows that it is in effect.

        The agent puts the mode before back, also when its host or itself is killed. SettingError E-MODE-2 if the mode
        needs a reboot or is not in effect, E-MODE-5 if the mode before did not come back.
        """
        if name == AS_IS:
            yield {}
            return
        mode = self.power_mode(name)
        change, why = mode.change()
        if change == "needs a reboot":
            raise errors.not_in_effect(self.wire.address, name, f"{why} needs a reboot")
        told = self.wire.call("mode_enter", mode=mode.number, timeout_s=MODE_S, doing=f"set mode {name}")
        try:
            self.look()
            said = f"nvpmodel -q says {told['now']}; {told['said']}".strip("; \n")
            if told["now"] != mode.number or (problem := mode.problem()):
                raise errors.not_in_effect(
                    self.wire.address, name, said if told["now"] != mode.number else problem
                )
            yield {"asked": name, "evidence": said, "features": dict(mode.features())}
        finally:
            left = self.wire.call("mode_leave", timeout_s=MODE_S, doing="put the power mode back")
            if not left["restored"] or left["now"] != told["before"]:
                raise errors.not_restored(self.wire.address, told["before"], left)

    def power_mode(self, name: str) -> Any:
        """Return a power mode of this board; UsageError if it has none of this name, or it is no power mode."""
        mode = catalog.find(name, self.tree.devices())
        if getattr(mode, "number", None) is None:
            raise errors.no_mode(name)
        return mode

    def python(self) -> str:
        """Return the Python there that runs the agent, which also runs programs that need Python."""
        return str(self.wire.hello.get("executable") or self.wire.address.python)

    # What follows is a trtexec `Place`.

    def find(self, named: str | None) -> str:
        """Return the path of trtexec on the board; UnavailableError E-TRTX-1 if there is none."""
        answer = self.wire.ask("find", named=named, doing="find trtexec")
        if "error" in answer:
            raise errors.no_trtexec(self.wire.address, answer["error"])
        return str(answer["ok"]["path"])

    def survey(self, path: str) -> Tool:
        """Return the program's version and the GPU it sees, asked once for each connection."""
        if path not in self.tools:
            self.tools[path] = surveyed(path, self)
        return self.tools[path]

    def gpu(self, name: str) -> str:
        """Return the GPU's name with the board's name."""
        return gpu(name, self.tree.root)

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        timeout_s: float,
        what: str = "",
        quiet: bool = True,
    ) -> Ran:
        """Run the program on the board and return its outcome; times are on the board's clock."""
        return self._ran([(argv, cwd)], timeout_s, what, quiet=quiet)[0]

    def together(
        self, commands: Sequence[tuple[Sequence[str], Path]], *, timeout_s: float, what: str = ""
    ) -> list[Ran]:
        """Run several programs at once on the board; of those that one failure ended, only that one's outcome."""
        return self._ran(commands, timeout_s, what, quiet=True)

    def _ran(
        self,
        commands: Sequence[tuple[Sequence[str], Path | None]],
        timeout_s: float,
        what: str,
        *,
        quiet: bool,
    ) -> list[Ran]:
        started = [(translated(argv, cwd), Lines("" if quiet else what)) for argv, cwd in commands]
        doing = what or f"run {Path(commands[0][0][0]).name}"
        ended = self.perform_all(started, timeout_s, doing)
        alone = [(s, e) for s, e in zip(started, ended, strict=True) if e["stopped"] != ANOTHER]
        failed = [(s, e) for s, e in alone if e["stopped"] or e["code"]]
        for (_, lines), told in failed:
            if told["stopped"]:
                raise self._endless(lines, told)
        return [_outcome(line, lines, told) for (line, lines), told in failed or alone]

    def perform(self, line: Line, lines: Lines, timeout_s: float, doing: str) -> Mapping[str, Json]:
        """Send the files, run the command line, fetch what it made if it ended well; return how it ended."""
        return self.perform_all([(line, lines)], timeout_s, doing)[0]

    def perform_all(
        self, started: Sequence[tuple[Line, Lines]], timeout_s: float, doing: str
    ) -> list[Mapping[str, Json]]:
        """Send the files, run the command lines at once, fetch what they made; return how each ended.

        Files are fetched only if all ended well.
        """
        digests = [{name: put(self.wire, path) for name, path in line.sent.items()} for line, _ in started]
        takers = {number: lines for number, (_, lines) in enumerate(started)}

        def take(event: Mapping[str, Json]) -> None:
            number = event.get("program")
            if isinstance(number, int) and number in takers:
                takers[number].take(event)

        self.wire.events |= {"lines": take, "waiting": started[0][1].tell}
        programs = [
            {"argv": line.argv, "files": known, "outputs": list(line.fetched)}
            for (line, _), known in zip(started, digests, strict=True)
        ]
        limits = {"limit_s": timeout_s, "timeout_s": timeout_s + GRACE_S}
        try:
            answer = self.wire.call("run", programs=programs, doing=doing, **limits)
        finally:
            del self.wire.events["lines"], self.wire.events["waiting"]
        ended: list[Mapping[str, Json]] = list(answer["programs"])
        if len(ended) != len(started):
            raise errors.garbled(self.wire.address, repr(answer).encode())
        well = not any(told["stopped"] or told["code"] for told in ended)
        passing = set[str]()
        for (line, _), known, told in zip(started, digests, ended, strict=True):
            made = {n: str(about["sha256"]) for n, about in told["outputs"].items() if n in line.fetched}
            for name, digest in made.items() if well else ():
                get(self.wire, digest, line.fetched[name])
            passing |= {digest for name, digest in (*known.items(), *made.items()) if name not in line.kept}
        if not any(told["stopped"] for told in ended):
            self.wire.call("forget", sha256=sorted(passing))
        return ended

    def _endless(self, lines: Lines, ended: Mapping[str, Json]) -> DeviceError:
        last = [text for _, text in lines.found if text.strip()][-1:] or ["nothing"]
        return DeviceError(
            "E-TRTX-5",
            "trtexec did not end in time and was stopped",
            evidence=f"after {ended['seconds']:.0f} s on {self.wire.address}; it wrote last: {last[0][:200]}",
            effect="There is no engine and no number; nothing half-written was kept",
            fix="--option build_timeout=SECONDS (and --timeout SECONDS) if it only needs longer",
        )


def _outcome(line: Line, lines: Lines, told: Mapping[str, Any]) -> Ran:
    """Return the outcome of a program that ended by itself."""
    peak = told.get("peak_bytes")
    known = None if peak is None else int(peak)
    return Ran(tuple(line.argv), int(told["code"]), tuple(lines.found), known, told["seconds"], told["pid"])


class Lines:
    """Collects a program's lines with the board's time of each, and reports progress now and then."""

    def __init__(self, what: str) -> None:
        self.what, self.begun_s, self.beats = what, time.monotonic(), 1
        self.found: list[tuple[int, str]] = []

    def take(self, event: Mapping[str, Json]) -> None:
        """Take one event."""
        now_ns = round(float(event["t_s"]) * 1e9)
        self.found += [(now_ns, str(text)) for text in event["lines"]]

    def tell(self, event: Mapping[str, Json]) -> None:
        """Report that the program is still running, if it has a name to report."""
        passed = time.monotonic() - self.begun_s
        if self.what and passed > self.beats * BEAT_S:
            self.beats += 1
            said.say(f"{self.what}: {passed:.0f} s")


def translated(argv: Sequence[str], cwd: Path | None) -> Line:
    """Return the command line for the board: each path to a file becomes a name in the agent's folder."""
    line = Line([argv[0]])
    for word in argv[1:]:
        flag, _, value = word.partition("=")
        name, path = flag.lstrip("-"), Path(value)
        reads = name in (*READS, *BOTH) and path.is_file()
        writes = name in (*WRITES, *BOTH)
        if not reads and not writes:
            line.argv.append(word)
            continue
        line.argv.append(f"{flag}={path.name}")
        line.sent |= {path.name: path} if reads else {}
        line.fetched |= {path.name: path} if writes else {}
        line.kept |= {path.name} if name in KEPT else set()
        if reads and name == "onnx":
            weights = _external(path)
            line.sent |= weights
            line.kept |= set(weights)
    here = sorted(cwd.iterdir()) if cwd is not None else []
    line.sent |= {path.name: path for path in here if path.is_file() and path.name not in line.fetched}
    return line


def _external(onnx: Path) -> dict[str, Path]:
    """Return the external weight files next to an ONNX file; UnsupportedError if one is in a subfolder."""
    fix = "pip install 'edgescope[onnx]'"
    places: list[str] = need("edgescope.models.user.onnx_reader:external", str(onnx), fix)(onnx)
    if deep := [place for place in places if Path(place).name != place]:
        raise UnsupportedError(
            "E-AGENT-8",
            f"{onnx.name} keeps weights in {deep[0]}, in a subfolder",
            effect="They cannot be sent to the board",
            fix="save the model with its weights in one file in the same folder",
        )
    return {place: onnx.parent / place for place in places}


@contextlib.contextmanager
def opened(address: Address, argv: Sequence[str] | None = None) -> Iterator[Board]:
    """Yield a connected board; on leaving the context, everything the agent started there has ended."""
    with scratch_folder("board") as name, Wire(address, argv) as wire:
        board = Board(wire, Tree(Path(name)), wire.offset())
        board.look()
        yield board


#: The channel of the agent's CPU time; telemetry.watcher uses the same name for its own.
COST_CHANNEL = "sampler_cpu_s"


class Rows:
    """Collects the rows of one sampling; afterwards it gives the readings and the cost of sampling."""

    def __init__(self, channels: Sequence[Mapping[str, Json]], hz: float) -> None:
        self.channels, self.hz = [_channel(c) for c in channels], hz
        self.rows: list[tuple[int, float, list[float | None]]] = []
        self.stopped: Mapping[str, Json] | None = None
        """The agent's answer when it stopped sampling; None if it never stopped."""

    def take(self, event: Mapping[str, Json]) -> None:
        """Take one event; leave incomplete rows out."""
        for row in event.get("rows", ()):
            if isinstance(row, list) and len(row) == 3 and len(row[2]) == len(self.channels):
                self.rows.append((round(float(row[0]) * 1e9), float(row[1]), row[2]))

    def readings(self, facts: Mapping[str, Any]) -> Readings:
        """Return every value that was read; `rails` and `power_total` of the Jetson's `facts` give the scopes."""
        channels = [_scoped(c, facts) for c in self.channels]
        columns = [[row[2][i] for row in self.rows] for i in range(len(channels))]
        if (total := _total(channels, columns, facts)) is not None:
            channels.append(total[0])
            columns.append(total[1])
        channels.append(Channel(COST_CHANNEL, "s", "process", "counter", "the agent's process_time"))
        columns.append([row[1] for row in self.rows])
        reasons = dict((self.stopped or {}).get("reasons", {}))
        judged = [_judged(c, column, reasons) for c, column in zip(channels, columns, strict=True)]
        times = [row[0] for row in self.rows]
        flat = [
            (t, i, v)
            for i, column in enumerate(columns)
            for t, v in zip(times, column, strict=True)
            if v is not None
        ]
        flat.sort(key=lambda row: row[0])
        return Readings(
            tuple(judged),
            np.array([row[0] for row in flat], np.int64),
            np.array([row[1] for row in flat], np.int16),
            np.array([row[2] for row in flat], np.float64),
        )

    def cost(self) -> dict[str, Json]:
        """Return the cost of sampling, in the same form as a local sampler's."""
        ticks = len(self.rows)
        wall_s = (self.rows[-1][0] - self.rows[0][0]) / 1e9 if ticks > 1 else 0.0
        cpu_s = self.rows[-1][1] - self.rows[0][1] if ticks > 1 else 0.0
        alive = self.stopped is not None
        return {
            "hz": self.hz,
            "ticks": ticks,
            "missed_ticks": max(0, int(wall_s * self.hz) - ticks + 1),
            "achieved_hz": (ticks - 1) / wall_s if wall_s else None,
            "cpu_s": cpu_s,
            "wall_s": wall_s,
            "cpu_share": cpu_s / wall_s if wall_s else None,
            "alive": alive,
            "end": "stopped" if alive else "died: the agent did not report that it had stopped",
            "slowed": {},
            "lost_rows": 0,
            "write_error": "",
        }


def _channel(about: Mapping[str, Json]) -> Channel:
    return Channel(*(str(about.get(key, "")) for key in ("name", "unit", "scope", "kind", "source")))


def _scoped(channel: Channel, facts: Mapping[str, Any]) -> Channel:
    """Return a rail's channel with the scope that boards.toml gives its label on this board."""
    for suffix in ("_power_w", "_voltage_v", "_current_a"):
        known = _mapping(facts.get("rails")).get(channel.name.removesuffix(suffix))
        if channel.name.endswith(suffix) and isinstance(known, Mapping) and known.get("scope"):
            return replace(channel, scope=str(known["scope"]))
    return channel


def _total(
    channels: Sequence[Channel], columns: Sequence[list[float | None]], facts: Mapping[str, Any]
) -> tuple[Channel, list[float | None]] | None:
    """Return the board's total as a sum of rails, if boards.toml defines it so; an unread term leaves a gap."""
    total = _mapping(facts.get("power_total"))
    known = _mapping(facts.get("rails"))
    terms = [n for n, rail in known.items() if _mapping(rail).get("label") in total.get("of", ())]
    index = {c.name: i for i, c in enumerate(channels)}
    mine = [index.get(f"{name}_power_w", -1) for name in terms]
    if not terms or len(terms) != len(total.get("of", ())) or -1 in mine:
        return None
    rows = zip(*(columns[i] for i in mine), strict=True)
    sums = [None if None in row else float(sum(v for v in row if v is not None)) for row in rows]
    kind = "average" if any(channels[i].kind == "average" for i in mine) else "gauge"
    source = f"sum of {' + '.join(total['of'])}"
    return Channel(str(total["channel"]), "W", str(total["scope"]), kind, source), sums


def _judged(channel: Channel, column: Sequence[float | None], reasons: Mapping[str, str]) -> Channel:
    if any(value is not None for value in column):
        return channel
    why = reasons.get(channel.name, "the agent sent no value") if column else "the agent sent no row"
    return replace(channel, status="unsupported", reason=str(why))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
