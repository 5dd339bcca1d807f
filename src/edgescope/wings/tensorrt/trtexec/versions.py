"""What the trtexec of a TensorRT version has, for a board that is not here: its flags, and what is worth trying there.

Where the program can be asked, its own help text decides (program.py); this table stands in for it. `LIVES` says from
which version on a flag exists and until which. Sources: samples/common/sampleOptions.cpp of github.com/NVIDIA/TensorRT
at the tags 8.0.1, 8.2.1, 8.4.1, 8.5.2, 8.6.2, 10.3 and 10.13, and the release notes of 11.0 for what it took away.

int8 comes from QDQ pairs in the ONNX file (explicit), which every version from 8.0 on takes. Calibration tables
(implicit) are gone in 11; edgescope makes none, so that one file is right for all versions. A DLA is driven until
10.7, and again from 11.4.1 on (docs.nvidia.com/deeplearning/tensorrt/11.4.1 inference-library/work-with-dla). Which
GPU has which precision: the support matrices of TensorRT 8.2 and 8.5, "Hardware and precision".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from edgescope.records import Scalar
from edgescope.wings.tensorrt.about import LEAST, WITHOUT_INT8
from edgescope.wings.tensorrt.trtexec.program import JETPACK, Tool

Release = tuple[int, ...]
OLDEST: Release = (8, 0)
ALWAYS = re.findall(
    r"\w+",
    """
    onnx saveEngine loadEngine minShapes optShapes maxShapes shapes noTF32 useDLACore allowGPUFallback device
    timingCacheFile iterations duration warmUp exposeDMA noDataTransfers useSpinWait useCudaGraph loadInputs
    separateProfileRun avgRuns percentile exportTimes exportOutput exportProfile
    """,
)
#: Flag -> the first version that has it, and the first one that has it no more; () for none.
LIVES: Mapping[str, tuple[Release, Release]] = {
    **dict.fromkeys(ALWAYS, (OLDEST, ())),
    "fp16": (OLDEST, (11, 0)),
    "int8": (OLDEST, (11, 0)),
    "bf16": ((9, 0), (11, 0)),
    "stronglyTyped": ((9, 0), (11, 0)),
    "workspace": (OLDEST, (8, 6)),
    "memPoolSize": ((8, 4), ()),
    "explicitBatch": (OLDEST, (8, 5)),
    "buildOnly": (OLDEST, (8, 6)),
    "skipInference": ((8, 6), ()),
    "streams": (OLDEST, (10, 0)),
    "infStreams": ((8, 6), ()),
    "exportLayerInfo": ((8, 2), ()),
    "nvtxMode": (OLDEST, (8, 2)),
    "profilingVerbosity": ((8, 2), ()),
    "versionCompatible": ((8, 6), ()),
    "includeDataTransfers": ((11, 0), ()),
    "noSpinWait": ((11, 0), ()),
    "noCudaGraph": ((11, 0), ()),
}
#: The DLA's last version of the first kind, and the first one that has it again.
DLA_UNTIL: Release = (10, 7)
DLA_AGAIN: Release = (11, 4, 1)


@dataclass(frozen=True)
class Offered:
    """One thing to try on a board, or why it is not tried."""

    precision: str
    options: Mapping[str, Scalar]
    why_not: str = ""


def release(version: str) -> Release:
    """Return `8.2.1` as numbers."""
    return tuple(int(part) for part in version.split("."))


def tool(version: str, capability: str, device: str) -> Tool:
    """Return the trtexec of a TensorRT version as a JetPack installs it, without asking it anything."""
    at = release(version)[:2]
    flags = frozenset(
        f"--{name}" for name, (since, until) in LIVES.items() if since <= at and not (until and at >= until)
    )
    words = "detailed" if at >= (8, 4) else "verbose"  # of --profilingVerbosity and, before it, --nvtxMode
    return Tool(str(JETPACK), version, flags, words, capability, device)


def drives_dla(version: str) -> bool:
    """Return whether this TensorRT drives a DLA."""
    at = release(version)
    return at[:2] <= DLA_UNTIL or (*at, 0, 0)[:3] >= DLA_AGAIN


def offered(version: str, capability: str, dla: int) -> tuple[Offered, ...]:
    """Return what to try, the baseline first and then the most promising; what cannot run there has its reason.

    `dla`: the number of the board's DLA cores. An int8 engine for a DLA needs a calibration table, or strong types of
    a file that is quantised throughout; neither is made, so a DLA is tried in fp16.
    """
    found = [Offered("fp32", {}), _int8(capability), Offered("fp16", {}), _tf32(capability)]
    if dla:
        gone = f"TensorRT {version} drives no DLA: {DLA_UNTIL[0]}.{DLA_UNTIL[1]} is the last 10 that does"
        found.append(Offered("fp16", {"dla": 0}, "" if drives_dla(version) else gone))
    return tuple(found)


def _int8(capability: str) -> Offered:
    lacks = capability in WITHOUT_INT8
    return Offered("int8", {}, f"a GPU of compute capability {capability} has no fast int8" if lacks else "")


def _tf32(capability: str) -> Offered:
    least = LEAST["tf32"]
    why = f"tf32 begins at compute capability {least[0]}.{least[1]}, this GPU has {capability}"
    return Offered("tf32", {}, "" if release(capability) >= least else why)
