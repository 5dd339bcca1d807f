"""Parse trtexec's output, from TensorRT 8.0 to 11: one grammar in which only a few words changed.

Every line of trtexec reads `[month/day/year-h:m:s] [I] text`, with I, W or E for the severity and `[TRT]` in front of
the text where the library speaks. The first line is `&&&& RUNNING TensorRT.trtexec [TensorRT v8201] # command`, the
last one `&&&& PASSED ...` or `&&&& FAILED ...`. The version is written 8201 for 8.2.1 and 100300 for 10.3.0, later
followed by `[b26]`, the fourth part. The performance summary has one line per quantity:

    8.0-8.2   Latency: min = 1 ms, max = 2 ms, mean = 1.5 ms, median = 1.4 ms, percentile(99%) = 1.9 ms
              End-to-End Host Latency: ... (until 8.4)
    8.5-11    ... percentile(90%) = 1.7 ms, percentile(95%) = 1.8 ms, percentile(99%) = 1.9 ms

Source: samples/common/sampleReporting.cpp and logger.cpp of github.com/NVIDIA/TensorRT, and logs quoted in its issues.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

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
        return {
            {"Selected Device": "device", "Compute Capability": "compute_capability"}[fact[1]]: fact[
                2
            ].strip()
        }
    return {}
