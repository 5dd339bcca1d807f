"""What a node of a compiled OpenVINO graph computes in, which the name of its kernel tells.

`runtimePrecision` is the type of a node's first tensor: an int8 tensor may go into a kernel of fp32, and 16-bit
quantisation is dropped when the graph is compiled. The last part of `primitiveType` (`brgconv_avx512_f32`) is what the
kernel multiplies.
"""

from __future__ import annotations

from typing import Any

KERNELS = {"f32": "fp32", "bf16": "bf16", "f16": "fp16", "i8": "int8", "u8": "int8"}
WEIGHTS = {"i4": "int4", "u4": "int4", "nf4": "int4", "f4e2m1": "fp4", "u2": "int2"}
"""Types that weights have in memory alone: the kernel, named after the type of its products, unpacks them."""


def of(info: Any) -> str:
    """Return the precision of a node, by the information that the runtime model holds about it."""
    if (packed := WEIGHTS.get(text(info, "runtimePrecision"))) and text(
        info, "layerType"
    ) == "FullyConnected":
        return packed
    kernel = text(info, "primitiveType").rpartition("_")[2].lower()
    return KERNELS.get(kernel, kernel or "unknown")


def text(info: Any, key: str) -> str:
    """Return one entry of a node's information as text, '' if it has none."""
    value = info[key] if key in info else ""  # noqa: SIM401  (an RTMap has no get)
    return str(getattr(value, "value", value))
