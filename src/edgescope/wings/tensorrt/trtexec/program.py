"""The trtexec program: its path, its version, the flags of that version, and one run of it with time-stamped output.

Its path comes from, in this order: the option `program`, EDGESCOPE_TRTEXEC, PATH, and JetPack's folder. Its features
are read from its own help text, so nothing is guessed about an untested version. Version, GPU and compute capability
come from a run with an engine that does not exist: every version prints its banner and the device before it fails.
While it runs, each line is stamped with this process's monotonic clock on arrival (the program flushes every line),
and the kernel's high-water mark of its memory is read. All of that happens at a `Place`: this machine, unless the
program is on a board behind an agent (wings/remote).

One table has each setting's spellings from TensorRT 8.0 to 11; the newest one in the program's own help text is used.
Defaults changed as well: from 11 on a plain trtexec captures a CUDA graph, spins while it waits, leaves the transfers
out, and takes each tensor's precision from the ONNX file. So every switch is set explicitly, in the direction that the
version can state, and no default is relied on.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import IO, Protocol

from edgescope.errors import DeviceError, EdgescopeError, UnavailableError, UnsupportedError
from edgescope.wings.tensorrt import engine_file
from edgescope.wings.tensorrt.trtexec import log as _trtexec_log
from edgescope.wings.tensorrt.trtexec.log import Log

VARIABLE = "EDGESCOPE_TRTEXEC"
JETPACK = Path("/usr/src/tensorrt/bin/trtexec")
#: Seconds between two lines of progress while an engine is built.
BEAT_S = 10.0
#: Seconds that the help text and the device information may take; loading CUDA on a Nano takes several.
SURVEY_S = 120.0
#: Bytes of output after which a program that prints without end is stopped.
MOST_OUTPUT = 64 << 20
_FLAG = re.compile(r"(?<![\w-])--\w+")


class Place(Protocol):
    """The place of the program: it is found, queried and run there."""

    def find(self, named: str | None) -> str:
        """Return its path there; UnavailableError E-TRTX-1 if there is none."""

    def survey(self, path: str) -> Tool:
        """Return its version, flags and GPU; UnavailableError E-TRTX-2 if it does not report them."""

    def gpu(self, name: str) -> str:
        """Return the name of its GPU and of the board."""

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        timeout_s: float,
        what: str = "",
        quiet: bool = True,
    ) -> Ran:
        """Run it to its end; the files that it reads and writes are on this machine, even if it runs on another."""

    def together(
        self, commands: Sequence[tuple[Sequence[str], Path]], *, timeout_s: float, what: str = ""
    ) -> list[Ran]:
        """Run it several times at once, each with arguments and a folder of its own.

        If one fails the others are ended, and its outcome alone is returned.
        """


class Here:
    """The machine that edgescope runs on."""

    def find(self, named: str | None) -> str:
        """Return the path of the program; UnavailableError E-TRTX-1 if there is none."""
        wanted = named or os.environ.get(VARIABLE)
        found = shutil.which(wanted) if wanted else shutil.which("trtexec") or shutil.which(str(JETPACK))
        if found is None:
            raise UnavailableError(
                "E-TRTX-1",
                f"there is no trtexec at {wanted}" if wanted else "trtexec was not found",
                evidence=f"looked at {wanted}" if wanted else f"looked at {VARIABLE}, PATH and {JETPACK}",
                fix=f"apt install libnvinfer-bin (JetPack has it), or {VARIABLE}=/path/to/trtexec",
            )
        return str(Path(found).resolve())

    def survey(self, path: str) -> Tool:
        """Return version, flags and GPU of the program at `path`; queried once per file and process.

        UnavailableError E-TRTX-2 if it does not report them: it is not trtexec, or sees no GPU.
        """
        about = os.stat(path)
        return _surveyed(path, about.st_mtime_ns, about.st_size)

    def gpu(self, name: str) -> str:
        """Return the name of the GPU with this board's."""
        return engine_file.gpu(name)

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        timeout_s: float,
        what: str = "",
        quiet: bool = True,
        over: threading.Event | None = None,
    ) -> Ran:
        """Run the program to its end, or until `over` is set, and return the run, passed or failed.

        Without `quiet` a line on stderr every ten seconds says that `what` is still running. DeviceError E-TRTX-5 if it
        takes longer than `timeout_s`; it is killed then, and also when this process is interrupted.
        """
        start = time.monotonic()
        try:
            process = subprocess.Popen(
                argv, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
        except OSError as error:
            raise UnavailableError(
                "E-TRTX-1",
                f"{argv[0]} cannot be started",
                evidence=str(error),
                fix=f"file {shlex.quote(argv[0])}; uname -m",
            ) from error
        try:
            assert process.stdout is not None
            watched = _Watched(process, process.stdout, start, timeout_s, over)
            watched.read("" if quiet else what)
            code = process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        lasted = time.monotonic() - start
        return Ran(tuple(argv), code, tuple(watched.lines), watched.peak_bytes, lasted, process.pid)

    def together(
        self, commands: Sequence[tuple[Sequence[str], Path]], *, timeout_s: float, what: str = ""
    ) -> list[Ran]:
        """Run the programs at once, each read by a thread of its own; one that fails ends the others."""
        over, failed = threading.Event(), list[Ran | EdgescopeError]()

        def one(command: tuple[Sequence[str], Path]) -> Ran | None:
            try:
                ran = self.run(command[0], cwd=command[1], timeout_s=timeout_s, what=what, over=over)
            except EdgescopeError as error:
                failed.append(error)
                over.set()
                return None
            if ran.code and not over.is_set():
                failed.append(ran)
                over.set()
            return ran

        with ThreadPoolExecutor(len(commands)) as threads:
            try:
                rans = list(threads.map(one, commands))
            finally:
                over.set()  # this process was interrupted
        for first in failed:
            if isinstance(first, EdgescopeError):
                raise first
            return [first]
        return [ran for ran in rans if ran is not None]


HERE: Place = Here()


@dataclass(frozen=True)
class Tool:
    """One trtexec and the GPU it sees."""

    path: str
    version: str
    """`8.2.1`, or with the build number if it prints one."""
    flags: frozenset[str]
    """Every flag its help text names."""
    words: str
    """The help text itself."""
    compute_capability: str
    device: str
    place: Place = field(default=HERE, compare=False, repr=False)

    @property
    def gpu(self) -> str:
        """Return the GPU's name with its board's."""
        return self.place.gpu(self.device)

    @property
    def release(self) -> tuple[int, int]:
        """Return (major, minor)."""
        major, minor = self.version.split(".")[:2]
        return int(major), int(minor)


@dataclass(frozen=True)
class Ran:
    """One finished run: what it printed and when each line arrived, in nanoseconds of the monotonic clock."""

    argv: tuple[str, ...]
    code: int
    """Exit status; negative: minus the signal that ended it."""
    lines: tuple[tuple[int, str], ...]
    peak_bytes: int | None
    """Largest resident set seen (VmHWM); None if it ended before it could be read."""
    seconds: float
    pid: int = 0
    """Its number on the machine where it ran."""

    @property
    def log(self) -> Log:
        """Return the parsed output."""
        return _trtexec_log.read(text for _, text in self.lines)

    @property
    def passed(self) -> bool:
        """Return whether both its banner and its exit status say that it passed."""
        return self.code == 0 and self.log.verdict == "PASSED"

    def arrival(self, start: str) -> int | None:
        """Return when the first line whose text begins with `start` arrived, or None if there was none."""
        for t, line in self.lines:
            if _trtexec_log.text_of(line)[1].startswith(start):
                return t
        return None


@lru_cache(maxsize=16)
def _surveyed(path: str, mtime_ns: int, size: int) -> Tool:
    return surveyed(path, HERE)


def surveyed(path: str, place: Place) -> Tool:
    """Return version, flags and GPU of the program at `path` of a place, from two runs; errors as Here.survey()."""
    helped = place.run([path, "--help"], timeout_s=SURVEY_S)
    words = "\n".join(text for _, text in helped.lines)
    nowhere = "/nonexistent/edgescope.engine"
    probed = place.run([path, f"--loadEngine={nowhere}", "--device=0"], timeout_s=SURVEY_S)
    told = probed.log
    flags = frozenset(_FLAG.findall(words))
    version = told.version or helped.log.version
    if "--loadEngine" not in flags or not version or not told.compute_capability:
        printed = [text for _, text in probed.lines if text.strip()][-3:] or ["it printed nothing"]
        missing = "its version" if not version else "a GPU" if "--loadEngine" in flags else "its flags"
        raise UnavailableError(
            "E-TRTX-2",
            f"{path} does not tell {missing}",
            evidence=" | ".join(printed)[:300],
            fix=f"{shlex.quote(str(path))} --help; nvidia-smi or tegrastats to see whether there is a GPU",
        )
    return Tool(path, version, flags, words, told.compute_capability, told.device, place)


class _Watched:
    """Reads a process's output line by line as it comes."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        pipe: IO[bytes],
        start: float,
        timeout_s: float,
        over: threading.Event | None,
    ) -> None:
        self.process, self.pipe, self.start, self.timeout_s = process, pipe, start, timeout_s
        self.over = over or threading.Event()
        self.lines: list[tuple[int, str]] = []
        self.peak_bytes: int | None = None
        self.rest = b""

    def read(self, what: str) -> None:
        """Read until the program closes its output; print that `what` is still running every BEAT_S seconds."""
        beat, size = BEAT_S, 0
        with selectors.DefaultSelector() as selector:
            selector.register(self.pipe, selectors.EVENT_READ)
            while True:
                if selector.select(0.2):
                    chunk = os.read(self.pipe.fileno(), 1 << 16)
                    self._take(chunk, time.monotonic_ns())
                    size += len(chunk)
                    if not chunk:
                        return
                if self.over.is_set():
                    self.process.kill()
                passed = time.monotonic() - self.start
                if passed > self.timeout_s or size > MOST_OUTPUT:
                    raise self._endless(passed)
                if what and passed > beat:
                    print(f"{what}: {passed:.0f} s", file=sys.stderr, flush=True)
                    beat += BEAT_S

    def _take(self, chunk: bytes, now_ns: int) -> None:
        *whole, self.rest = (self.rest + chunk).split(b"\n")
        if not chunk and self.rest:
            whole, self.rest = [*whole, self.rest], b""
        self.lines += [(now_ns, line.decode(errors="replace").rstrip("\r")) for line in whole]
        if (peak := _high_water(self.process.pid)) is not None:
            self.peak_bytes = peak

    def _endless(self, passed: float) -> DeviceError:
        last = [text for _, text in self.lines if text.strip()][-1:] or ["nothing"]
        return DeviceError(
            "E-TRTX-5",
            "trtexec did not come to an end and was stopped",
            evidence=f"after {passed:.0f} s; it wrote last: {last[0][:200]}",
            effect="There is no engine and no number; nothing half-written was kept",
            fix="--option build_timeout=SECONDS (and --timeout SECONDS) if it only needs longer",
        )


def _high_water(pid: int) -> int | None:
    """Return the largest resident set of a process so far, in bytes, or None if it has ended."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            return next((int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:")), None)
    except (OSError, ValueError, IndexError):
        return None


#: Setting -> spellings, newest first; {} takes the value. The first one that the help text names is used.
SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "workspace": ("--memPoolSize=workspace:{}", "--workspace={}"),  # 8.4; MiB in every version
    "build_only": ("--skipInference", "--buildOnly"),  # 8.6
    "streams": ("--infStreams={}", "--streams={}"),  # 8.6
    "layer_info": ("--exportLayerInfo={}",),  # 8.2
    "times": ("--exportTimes={}",),
    "profile": ("--exportProfile={}",),
    "separate": ("--separateProfileRun",),  # 7.2; the rule from 11 on
    "outputs": ("--exportOutput={}",),
    "inputs": ("--loadInputs={}",),
    "explicit_batch": ("--explicitBatch",),  # 8.0 to 8.4; the rule since
    "timing_cache": ("--timingCacheFile={}",),  # 8.0
    "dla": ("--useDLACore={}",),
    "fallback": ("--allowGPUFallback",),
    "serial": ("--exposeDMA",),  # one query at a time: the next is enqueued when the last has ended
    "no_tf32": ("--noTF32",),
    "fp16": ("--fp16",),  # until 10
    "bf16": ("--bf16",),  # 9 and 10
    "int8": ("--int8",),  # until 10
    "strongly_typed": ("--stronglyTyped",),  # 9 and 10; the rule from 11 on
}
#: Switch -> (how it is turned on, how it is turned off); a version names only the direction its default is not.
SWITCHES: Mapping[str, tuple[str, str]] = {
    "graph": ("--useCudaGraph", "--noCudaGraph"),
    "spin": ("--useSpinWait", "--noSpinWait"),
    "transfers": ("--includeDataTransfers", "--noDataTransfers"),
}
#: Word in the help text -> flag that makes layer information and profiles name formats and kernels.
DETAIL = (
    ("detailed", "--profilingVerbosity=detailed"),  # 8.4
    ("verbose", "--profilingVerbosity=verbose"),  # 8.2
    ("verbose", "--nvtxMode=verbose"),  # 8.0
)


@dataclass(frozen=True)
class Measure:
    """How long the program measures, and how queries follow each other."""

    warmup_s: float
    min_s: float
    iterations: int | None
    """Number of queries to make; None: the seconds count."""
    streams: int
    ahead: bool
    """Whether the next query is enqueued before the last one has ended."""


def strongly_typed(tool: Tool) -> bool:
    """Return whether every tensor has its precision from the ONNX file (from 11 on)."""
    return tool.release >= (11, 0)


def spell(tool: Tool, setting: str, value: object = "", *, need: str = "") -> list[str]:
    """Return the flag for a setting, or [] if this version has none; UnsupportedError if `need` says what for."""
    for spelling in SPELLINGS[setting]:
        if spelling.split("=")[0] in tool.flags:
            return [spelling.format(value)]
    if need:
        names = " or ".join(s.split("=")[0] for s in SPELLINGS[setting])
        raise UnsupportedError(
            "E-TRTX-8",
            f"trtexec {tool.version} has no {names}",
            effect=f"It cannot {need}",
            fix="a newer TensorRT",
        )
    return []


def state(tool: Tool, switch: str, on: bool) -> list[str]:
    """Return the flag that sets a switch, or [] if that is the version's default or only direction."""
    yes, no = SWITCHES[switch]
    wanted, other = (yes, no) if on else (no, yes)
    if wanted in tool.flags:
        return [wanted]
    if other in tool.flags or on == (switch == "transfers"):
        return []  # the default, or the only thing it can do
    raise UnsupportedError(
        "E-TRTX-8",
        f"trtexec {tool.version} has no {wanted}",
        effect=f"It cannot turn {switch} {'on' if on else 'off'}",
        fix="a newer TensorRT",
    )


def detail(tool: Tool) -> list[str]:
    """Return the flag that puts formats and kernel names into an engine's layer information, or [] if there is none."""
    for word, flag in DETAIL:
        if flag.split("=")[0] in tool.flags and word in tool.words:
            return [flag]
    return []


def precision(tool: Tool, name: str, *, typed: bool) -> list[str]:
    """Return the builder flags of a precision; UnsupportedError E-PREC-1 if this version does not have it.

    All but tf32 forbid TF32, which is allowed by default since 7.1 and which layers left in fp32 would otherwise use.
    For strongly typed networks that is the only flag.
    """
    if name == "tf32":
        return []
    plain = spell(tool, "no_tf32", need="keep fp32 from running as TF32")
    if name == "fp32" or (typed and strongly_typed(tool)):
        return plain
    if typed:
        return [*spell(tool, "strongly_typed", need="keep the ONNX file's types"), *plain]
    if found := spell(tool, name):
        return [*found, *plain]
    raise UnsupportedError(
        "E-PREC-1",
        f"trtexec {tool.version} has no {name}",
        effect="It would run in another precision under this label",
        fix="--precision fp32 or fp16",
    )


def shapes(batch: Mapping[str, Sequence[int]]) -> str:
    """Return `input:1x3x224x224,...`; names with a colon are quoted. UnsupportedError for names it cannot take."""
    return ",".join(f"{quoted(name)}:{'x'.join(map(str, shape))}" for name, shape in batch.items())


def quoted(name: str) -> str:
    """Return a tensor name quoted for trtexec's lists."""
    if any(c in name for c in ",'*"):
        raise UnsupportedError(
            "E-TRTX-9",
            f"trtexec cannot be given an input called {name!r}",
            evidence="it splits its lists at commas and quotes",
            fix="rename the input in the ONNX file, or --backend tensorrt",
        )
    return f"'{name}'" if ":" in name else name


def profile(sizes: Sequence[Mapping[str, Sequence[int]]]) -> list[str]:
    """Return the flags of an optimisation profile from its smallest, usual and largest shapes; [] if all is fixed."""
    names = ("--minShapes", "--optShapes", "--maxShapes")
    return [f"{flag}={shapes(size)}" for flag, size in zip(names, sizes, strict=True) if size]


def measuring(tool: Tool, asked: Measure) -> list[str]:
    """Return the flags for how long and how densely to query.

    `--iterations` is a minimum in addition to `--duration`; with a duration of 0 it is the number of queries.
    """
    seconds = ["--duration=0", f"--iterations={asked.iterations}"]
    if asked.iterations is None:
        seconds = [f"--duration={asked.min_s:g}", "--iterations=10"]
    return [
        *spell(tool, "streams", asked.streams, need="say how many streams it uses"),
        *([] if asked.ahead else spell(tool, "serial", need="query one at a time")),
        f"--warmUp={asked.warmup_s * 1e3:.0f}",
        *seconds,
        "--avgRuns=10",
        "--percentile=99",
    ]
