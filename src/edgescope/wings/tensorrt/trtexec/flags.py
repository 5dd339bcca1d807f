"""trtexec's command lines: one table of each setting's spellings from TensorRT 8.0 to 11.

The spelling is the newest one in the program's own help text. Defaults changed as well: from 11 on a plain trtexec
captures a CUDA graph, spins while it waits, leaves the transfers out, and takes each tensor's precision from the ONNX
file. So every switch is set explicitly, in the direction that the version can state, and no default is relied on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgescope.errors import UnsupportedError
from edgescope.wings.tensorrt.trtexec.program import Tool

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
