"""What trtexec printed, from TensorRT 8.0 to 11: the facts of a run, and the error of a failed one.

Its output has one grammar in which only a few words changed. Every line reads `[month/day/year-h:m:s] [I] text`, with
I, W or E for the severity and `[TRT]` in front of the text where the library speaks. The first line is
`&&&& RUNNING TensorRT.trtexec [TensorRT v8201] # command`, the last one `&&&& PASSED ...` or `&&&& FAILED ...`. The
version is written 8201 for 8.2.1 and 100300 for 10.3.0, later followed by `[b26]`, the fourth part. The performance
summary has one line per quantity:

    8.0-8.2   Latency: min = 1 ms, max = 2 ms, mean = 1.5 ms, median = 1.4 ms, percentile(99%) = 1.9 ms
              End-to-End Host Latency: ... (until 8.4)
    8.5-11    ... percentile(90%) = 1.7 ms, percentile(95%) = 1.8 ms, percentile(99%) = 1.9 ms

Source: samples/common/sampleReporting.cpp and logger.cpp of github.com/NVIDIA/TensorRT, and logs quoted in its issues.
The patterns of errors are also those of its ONNX parser; a line that matches none is passed on as it is.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edgescope.errors import (
    DeviceError,
    EdgescopeError,
    ModelError,
    SafetyError,
    StoreError,
    UnavailableError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from edgescope.wings.tensorrt.trtexec.program import Ran, Tool

_LINE = re.compile(r"^(?:\[[\d/]+-[\d:]+\] )?\[([IWEVF])\] ?(.*)$")
_BANNER = re.compile(
    r"&&&& (RUNNING|PASSED|FAILED) TensorRT\.trtexec(?: \[TensorRT v([\d.]+)\])?(?: \[b(\d+)\])?"
)
_QUANTITY = re.compile(
    r"^(Latency|End-to-End Host Latency|Enqueue Time|H2D Latency|GPU Compute Time|D2H Latency): (min = .*)$"
)
_STATISTIC = re.compile(r"(min|max|mean|median|percentile\(([\d.]+)%\)) = ([-+\d.eE]+|nan|inf) ms")
_TOTAL = re.compile(r"^(Throughput|Total Host Walltime|Total GPU Compute Time): ([-+\d.eE]+) (qps|s)$")
_SECONDS = re.compile(r"^Engine (built|loaded|deserialized) in ([\d.eE+-]+) sec")
_FACT = re.compile(r"^(Selected Device|Compute Capability|TensorRT version): (.+)$")
_OUTPUT = re.compile(
    r"^(?:Created output binding for (.+) with dimensions|Output binding for (.+) with dimensions .* is created)"
)
_OPSET = re.compile(r"Opset version:\s+(\d+)")
NAMES = {
    "Latency": "latency",
    "End-to-End Host Latency": "end_to_end",
    "Enqueue Time": "enqueue",
    "H2D Latency": "h2d",
    "GPU Compute Time": "gpu_compute",
    "D2H Latency": "d2h",
    "Throughput": "throughput_qps",
    "Total Host Walltime": "host_walltime_s",
    "Total GPU Compute Time": "total_gpu_compute_s",
}
STARTS, ENDS = "Starting inference", "Timing trace has"
"""Beginnings of the lines just before the first query and just after the last one."""


@dataclass(frozen=True)
class Log:
    """The facts of one run of the program; a fact that it did not print is empty."""

    version: str = ""
    """`8.2.1` or, if the build number is printed, `10.3.0.26`."""
    verdict: str = ""
    """PASSED, FAILED, or '' if it ended without either."""
    device: str = ""
    compute_capability: str = ""
    opset: int | None = None
    """Opset of the ONNX file that was parsed."""
    built_s: float | None = None
    loaded_s: float | None = None
    """Seconds to read the engine's file and deserialise it; two lines from 8.4 on, one before."""
    summary_ms: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """latency, enqueue, h2d, gpu_compute, d2h (and end_to_end until 8.4) -> min, max, mean, median, p99 ..."""
    totals: Mapping[str, float] = field(default_factory=dict)
    """throughput_qps, host_walltime_s, total_gpu_compute_s."""
    outputs: tuple[str, ...] = ()
    """Names of the output tensors in the network's order."""
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    """Texts of the [E] and [F] lines, and untagged last lines of a crashing library (LLVM ERROR, terminate called)."""


def text_of(line: str) -> tuple[str, str]:
    """Return (severity, text) of a line; severity is '' if it has none."""
    found = _LINE.match(line.rstrip())
    return (found[1], found[2].strip()) if found else ("", line.strip())


def read(lines: Iterable[str]) -> Log:
    """Return the facts of a log; any text gives a Log."""
    facts: dict[str, Any] = {}
    summary: dict[str, dict[str, float]] = {}
    totals: dict[str, float] = {}
    outputs: list[str] = []
    messages: dict[str, list[str]] = {"W": [], "E": []}
    for line in lines:
        if banner := _BANNER.search(line):
            facts |= _banner(banner)
            continue
        severity, text = text_of(line)
        if severity in ("W", "E", "F") or _dying(severity, text):
            messages["W" if severity == "W" else "E"].append(text)
        elif quantity := _QUANTITY.match(text):
            summary[NAMES[quantity[1]]] = _statistics(quantity[2])
        elif (total := _TOTAL.match(text)) and (value := number(total[2])) is not None:
            totals[NAMES[total[1]]] = value
        elif output := _OUTPUT.match(text):
            outputs.append(output[1] or output[2])
        elif seconds := _SECONDS.match(text):
            name = "built_s" if seconds[1] == "built" else "loaded_s"
            facts[name] = facts.get(name, 0.0) + (number(seconds[2]) or 0.0)
        else:
            facts |= _fact(text)
    return Log(
        **facts,
        summary_ms=summary,
        totals=totals,
        outputs=tuple(dict.fromkeys(outputs)),
        warnings=tuple(messages["W"]),
        errors=tuple(messages["E"]),
    )


def version_of(digits: str, build: str = "") -> str:
    """Return `8.2.1` for `8201`, `10.3.0` for `100300`, a dotted version unchanged, and '' for anything else."""
    if "." in digits:
        parts = [p for p in digits.split(".") if p]
    elif len(digits) == 4:  # major, minor, then two digits of patch: 8.6.1 is 8601, 8.5.10 is 8510
        parts = [digits[0], digits[1], str(int(digits[2:]))]
    elif len(digits) in (5, 6):
        parts = [digits[:-4], str(int(digits[-4:-2])), str(int(digits[-2:]))]
    else:
        return ""
    return ".".join([*parts, build] if build and len(parts) == 3 else parts)


def number(text: str) -> float | None:
    """Return a number as C++ prints it, or None if the text is not a number."""
    try:
        return float(text)
    except ValueError:
        return None


def _banner(found: re.Match[str]) -> dict[str, object]:
    facts: dict[str, object] = {}
    if found[2] and (version := version_of(found[2], found[3] or "")):
        facts["version"] = version
    if found[1] != "RUNNING":
        facts["verdict"] = found[1]
    return facts


def _dying(severity: str, text: str) -> bool:
    return not severity and text.startswith(
        ("LLVM ERROR", "terminate called", "what():", "ERROR:", "Cuda failure")
    )


def _statistics(text: str) -> dict[str, float]:
    found = {}
    for name, share, value in _STATISTIC.findall(text):
        parsed = number(value)
        if parsed is not None:
            found[f"p{share}" if share else name] = parsed
    return found


def _fact(text: str) -> dict[str, object]:
    """Return the facts of an [I] line by field of Log, or {} for all other lines."""
    if opset := _OPSET.search(text):
        return {"opset": int(opset[1][:6])}
    if fact := _FACT.match(text):
        if fact[1] == "TensorRT version":  # this has at most three parts, the banner may have four
            return {}
        return {fact[1].lower().replace("selected ", "").replace(" ", "_"): fact[2].strip()}
    return {}


_MEMORY = re.compile(
    r"out of memory|OutOfMemory|cudaErrorMemoryAllocation|insufficient memory"
    r"|could not be allocated|std::bad_alloc",
    re.IGNORECASE,
)
_FOREIGN = re.compile(
    r"not compatible with this version of TensorRT|(?:version|magic) tag does not match|LLVM ERROR"
    r"|different compute capability|incompatible (?:device|with this)|expecting compute"
    r"|serialization (?:error|assertion)|engine deserialization failed|plan file.*(?:different|not compatible)",
    re.IGNORECASE,
)
_DISK = re.compile(
    r"no space left|saving engine to file failed|(?:cannot|could not|failed to) (?:open|write|save) .*engine"
    r"|error writing",
    re.IGNORECASE,
)
_NO_GPU = re.compile(
    r"no CUDA-capable device|driver version is insufficient|CUDA initialization failure|Cannot find any available GPU",
    re.IGNORECASE,
)
_NODE = re.compile(
    r"[Ii]n node (-?\d+) with name: (.*?) and operator: (\S+)"  # 10 on
    r"|While parsing node number (\d+) \[(\w+)(?: -> \"([^\"]*)\")?",  # 8
)
_INVALID = re.compile(r"Invalid Node - (\S+)")
_NO_IMPORTER = re.compile(r"[Nn]o importer registered for op: (\w+)")
_OPSET_SAID = re.compile(r"opset version[: ]+(\d+)", re.IGNORECASE)
_SLOW = re.compile(
    r"(half2|fp16|int8|bf16)\b.*(?:without native|not (?:natively )?support|n't support|no native)",
    re.IGNORECASE,
)
_UNKNOWN = re.compile(r"Unknown option: (\S+)")
_WORDS = {"half2": "fp16"}


def failure(ran: Ran, tool: Tool, doing: str) -> EdgescopeError:
    """Return the error of a run that did not pass; `doing` names its task, e.g. `build resnet18 fp16`."""
    log, errors = ran.log, ran.log.errors
    text = "\n".join(errors)
    # A foreign header makes the library die of "LLVM ERROR: out of memory", so memory is checked after it.
    for pattern, make in ((_NO_GPU, _no_gpu), (_FOREIGN, _foreign), (_DISK, _disk), (_MEMORY, _memory)):
        if found := pattern.search(text):
            return make(_line(errors, found), tool, doing)
    if ran.code == -signal.SIGKILL:
        return _memory("the kernel killed it (SIGKILL), most often because memory had run out", tool, doing)
    if (error := _operator(ran, log, tool)) is not None:
        return error
    if unknown := _UNKNOWN.search(text):
        return DeviceError(
            "E-TRTX-6",
            f"trtexec {tool.version} refused {unknown[1]}",
            evidence=f"could not {doing}",
            fix=_again(ran),
        )
    if ran.code < 0:
        return DeviceError(
            "E-TRTX-6",
            f"trtexec died of signal {-ran.code} and could not {doing}",
            evidence=_last(ran),
            fix=_again(ran),
        )
    return ModelError(
        "E-TRTX-7",
        f"trtexec {tool.version} could not {doing}",
        evidence=" | ".join(errors[:3])[:400] or _last(ran),
        effect="There is no number for this cell",
        fix=_again(ran),
    )


def unsupported_precision(log: Log, precision: str) -> UnsupportedError | None:
    """Return the error if the GPU has no fast arithmetic of the requested precision; TensorRT only warns about it."""
    for line in (*log.warnings, *log.errors):
        found = _SLOW.search(line)
        if found and _WORDS.get(found[1].lower(), found[1].lower()) == precision:
            return UnsupportedError(
                "E-PREC-1",
                f"{log.device or 'this GPU'} has no fast {precision}",
                evidence=line[:200],
                effect="It would run in another precision, or slower than fp32, under this label",
                fix="--precision fp32" if precision == "fp16" else "--precision fp32 or fp16",
            )
    return None


def _operator(ran: Ran, log: Log, tool: Tool) -> UnsupportedError | None:
    """Return the error that names the ONNX node refused by the parser, or None if the failure was another."""
    text = "\n".join(line for _, line in ran.lines)
    node, importer = _NODE.search(text), _NO_IMPORTER.search("\n".join(log.errors))
    invalid = _INVALID.search(text)
    opset = log.opset if log.opset is not None else (int(o[1]) if (o := _OPSET_SAID.search(text)) else None)
    if node is None and importer is None and invalid is None:
        return None
    operator = (node[3] or node[5] if node else None) or (importer[1] if importer else None)
    name = (node[2] or node[6] or f"number {node[1] or node[4]}" if node else None) or (
        invalid[1] if invalid else None
    )
    if node is not None and operator and operator.startswith("("):  # (parseFromFile): it is not a node
        return None
    why = next(
        (e for e in log.errors if "ssert" in e or "importer" in e or "UNSUPPORTED" in e),
        next(iter(log.errors), ""),
    )
    return UnsupportedError(
        "E-TRTX-3",
        f"TensorRT {tool.version} cannot take {operator or 'a'} node{f' {name}' if name else ''}"
        f"{f' (opset {opset})' if opset is not None else ''}",
        evidence=why[:300],
        effect="There is no engine and no number for this cell",
        fix="another opset or a rewritten node; --backend onnxruntime --device cuda runs it as it is",
    )


def _memory(line: str, tool: Tool, doing: str) -> SafetyError:
    return SafetyError(
        "E-TRTX-10",
        f"memory ran out while trtexec was to {doing}",
        evidence=line,
        effect="There is no number for this cell",
        fix="a smaller --batch, --option workspace=MIB, or close what else uses the memory (free -m)",
    )


def _foreign(line: str, tool: Tool, doing: str) -> UnsupportedError:
    return UnsupportedError(
        "E-ENG-1",
        f"this engine was not built for compute capability {tool.compute_capability} and TensorRT {tool.version}",
        evidence=line,
        effect="It cannot be loaded here",
        fix="leave --option engine out: one is built here from the ONNX file",
    )


def _disk(line: str, tool: Tool, doing: str) -> StoreError:
    return StoreError(
        "E-TRTX-11",
        "trtexec could not write the engine",
        evidence=line,
        effect="Nothing half-written was kept",
        fix="free some space (df -h), or EDGESCOPE_CACHE=/another/folder",
    )


def _no_gpu(line: str, tool: Tool, doing: str) -> UnavailableError:
    return UnavailableError(
        "E-TRTX-2", "trtexec sees no GPU", evidence=line, fix="nvidia-smi, or tegrastats on a Jetson"
    )


def _line(lines: tuple[str, ...], found: re.Match[str]) -> str:
    return next((line for line in lines if found[0] in line), found[0])[:300]


def _last(ran: Ran) -> str:
    return " | ".join(text for _, text in ran.lines if text.strip())[-300:] or "it wrote nothing"


def _again(ran: Ran) -> str:
    return f"{' '.join(ran.argv)[:300]} (the same command prints all of it)"
