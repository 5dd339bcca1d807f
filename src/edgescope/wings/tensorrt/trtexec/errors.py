"""Turn a failed trtexec run into one of our errors, from its log, naming the node, board or file.

The patterns are those of TensorRT 8.0 to 11 and of its ONNX parser; a line that matches none is passed on as it is.
"""

from __future__ import annotations

import re
import signal

from edgescope.errors import (
    DeviceError,
    EdgescopeError,
    ModelError,
    SafetyError,
    StoreError,
    UnavailableError,
    UnsupportedError,
)
from edgescope.wings.tensorrt.trtexec.log import Log
from edgescope.wings.tensorrt.trtexec.program import Ran, Tool

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
_OPSET = re.compile(r"opset version[: ]+(\d+)", re.IGNORECASE)
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
    opset = log.opset if log.opset is not None else (int(o[1]) if (o := _OPSET.search(text)) else None)
    if node is None and importer is None and invalid is None:
        return None
    operator = (node[3] or node[5] if node else None) or (importer[1] if importer else None)
    name = (node[2] or node[6] or f"number {node[1] or node[4]}" if node else None) or (
        invalid[1] if invalid else None
    )
    if node is not None and operator and operator.startswith("("):  # (parseFromFile): it is not a node
        return None
    why = next((e for e in log.errors if "ssert" in e or "importer" in e or "UNSUPPORTED" in e), _first(log))
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


def _first(log: Log) -> str:
    return log.errors[0] if log.errors else ""


def _last(ran: Ran) -> str:
    return " | ".join(text for _, text in ran.lines if text.strip())[-300:] or "it wrote nothing"


def _again(ran: Ran) -> str:
    return f"{' '.join(ran.argv)[:300]} (the same command prints all of it)"
