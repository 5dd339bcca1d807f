"""What a session computes in, read from its answers: for an engine that shows no graph.

Two things must agree. A small convolution with the identity as weights returns each input unchanged if the arithmetic
keeps all of its bits: the first number that comes back changed tells how many are kept (bf16 7, fp16 and tf32 10,
fp32 23), and a number beyond fp16's range tells tf32 from fp16. And the network's own answers lie as far from those of
fp32 as that precision makes them: an engine that reduces large layers only is caught there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
BITS = {23: "fp32", 10: "fp16", 7: "bf16"}
"""Bits of the fraction that survive -> the precision; tf32 keeps as many as fp16, in the range of fp32."""
PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
"""What can be told apart."""
CHANNELS, SIDE = 32, 16
BEYOND = 131072.0
"""Twice what fp16 can hold."""
CLOSE = 1e-4
"""Relative L2 distance from fp32's answers: below it nothing was rounded to 16 bits, above it something was."""
FAR = 0.25
"""Distance from which answers are wrong, whatever they were computed in."""


def network(path: Path) -> Path:
    """Write the convolution as an ONNX file."""
    from onnx import TensorProto, helper, numpy_helper, save

    weights = np.eye(CHANNELS, dtype=np.float32)[:, :, None, None]
    shape = [1, CHANNELS, SIDE, SIDE]
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"])],
        "identity",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(weights, "w")],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


def given() -> NDArray[np.float32]:
    """Return the inputs: channel k holds 1 + 2^-k, and the first pixel one number that fp16 cannot hold."""
    rows = (1 + 2.0 ** -np.arange(CHANNELS)).astype(np.float32)
    x = np.array(np.broadcast_to(rows[None, :, None, None], (1, CHANNELS, SIDE, SIDE)))
    x[0, :, 0, 0] = 0  # there infinity times 0 spoils every channel
    x[0, 0, 0, 0] = BEYOND
    return x


def of(run: Callable[[NDArray[np.float32]], Floats]) -> str:
    """Return the precision of a session of `network`: fp32, tf32, fp16, bf16, or how many bits it kept."""
    x = given()
    y = np.asarray(run(x))
    same = (y[0, :, 1:] == x[0, :, 1:]).all(axis=(1, 2))
    kept = next((k - 1 for k in range(1, 24) if not same[k]), 23)
    name = BITS.get(kept, f"{kept} bits")
    return "tf32" if name == "fp16" and y[0, 0, 0, 0] == BEYOND else name


def apart(answers: Sequence[Floats], reference: Sequence[Floats]) -> float:
    """Return the relative L2 distance of a network's answers from fp32's, over all outputs."""
    gap = sum(
        float(np.square(np.asarray(a, np.float64) - b).sum()) for a, b in zip(answers, reference, strict=True)
    )
    size = sum(float(np.square(np.asarray(b, np.float64)).sum()) for b in reference)
    return float(np.sqrt(gap / size)) if size else float(gap > 0)


def agreed(small: str, distance: float) -> str:
    """Return the precision that the small network and the distance of the large one's answers both speak for."""
    if not distance < FAR:
        return f"unknown (answers {distance:.2g} from fp32's)"
    if (small == "fp32") != (distance <= CLOSE):
        return f"mixed ({small}, answers {distance:.2g} from fp32's)"
    return small
