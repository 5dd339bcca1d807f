"""TensorRT's requirements of the GPU, in process, through trtexec or through ONNX Runtime."""

from __future__ import annotations

from edgescope.artifacts.for_precision import refuse

#: First compute capability whose tensor cores take them (Ampere, Orin).
LEAST = {"tf32": (8, 0), "bf16": (8, 0)}


def require(engine: str, precision: str, capability: str, board: str) -> None:
    """Raise UnsupportedError E-PREC-1 if a GPU of this compute capability does not compute in the precision.

    TensorRT accepts the flag anyway and runs fp32, and its layers look the same.
    """
    least = LEAST.get(precision)
    if least is None or not capability or _numbers(capability) >= least:
        return
    why = f"{precision} begins at compute capability {least[0]}.{least[1]}, this GPU has {capability}"
    raise refuse(engine, precision, why, where=board or "this GPU")


def _numbers(capability: str) -> tuple[int, ...]:
    return tuple(int(part) for part in capability.split("."))
