"""Read an engine's layers from the JSON that its inspector (and `trtexec --exportLayerInfo`) writes.

The builder chooses a kernel for every layer, and with it a precision: fp16 is allowed, but may not be used. For each
layer the JSON holds its kind, the formats of its inputs and outputs and, for a convolution, the type of its weights and
the kernel's name. It is that detailed only in an engine built with detailed profiling verbosity.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgescope.backends.base import counted, precision_of
from edgescope.records import Json

HEAVY = re.compile(r"conv|gemm|matrix|matmul|fullyconnected|fc_|attention|mha", re.IGNORECASE)
#: Layers that move data or are empty, for any name.
LIGHT = re.compile(r"reformat|noop|shuffle|constant|shape|copy", re.IGNORECASE)
#: First match wins: in a name like `Half` or in a sentence like `Row major linear FP16 format`.
WORDS = (
    ("int8", re.compile(r"int8", re.IGNORECASE)),
    ("fp8", re.compile(r"fp8", re.IGNORECASE)),
    ("bf16", re.compile(r"bf16|bfloat16", re.IGNORECASE)),
    ("fp16", re.compile(r"fp16|half", re.IGNORECASE)),
    ("fp32", re.compile(r"fp32|float", re.IGNORECASE)),
)
NODE = re.compile(r"\[ONNX Layer: ")


@dataclass(frozen=True)
class Layers:
    """The heavy layers by precision, and the part of the network that runs on a DLA core."""

    kinds: Mapping[str, int]
    """Empty if the engine lists only names."""
    total: int
    dla: int
    """Subgraphs on a DLA core."""
    dla_nodes: int
    nodes: int
    """ONNX nodes in all layers that list theirs (TensorRT 8.6 and later), and how many of them are on the DLA."""

    def precision(self) -> str:
        """Return the precision of the heavy layers, as for an Effective, or `unknown` if none is listed."""
        return precision_of(self.kinds) if self.kinds else "unknown"

    def evidence(self) -> str:
        """Return the counts as a sentence."""
        if not self.kinds:
            return f"the engine's {self.total} layers tell no precision"
        text = f"engine inspector: {counted(self.kinds)} heavy layers of {self.total}"
        if self.dla:
            share = f", {self.dla_nodes} of {self.nodes} ONNX nodes" if self.nodes else ""
            text += f"; {self.dla} subgraphs on the DLA{share}"
        return text


def read(text: str) -> Layers:
    """Return the Layers in the inspector's JSON, empty if the text is not such JSON."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    layers = document.get("Layers") if isinstance(document, dict) else None
    return of(layers if isinstance(layers, list) else [])


def of(layers: Sequence[Json]) -> Layers:
    """Return the Layers of a list; a layer that is only a name counts towards the total."""
    known = [layer for layer in layers if isinstance(layer, dict)]
    dla = [layer for layer in known if _text(layer, "LayerType").upper().startswith("DLA")]
    kinds = Counter(precision(layer) for layer in known if is_heavy(layer))
    return Layers(kinds, len(layers), len(dla), sum(map(_nodes, dla)), sum(map(_nodes, known)))


def is_heavy(layer: Mapping[str, Json]) -> bool:
    """Return whether a layer is a convolution, a matrix product, or a DLA subgraph (which is made of them)."""
    kind = f"{_text(layer, 'LayerType')} {_text(layer, 'ParameterType')}"
    if kind.upper().startswith("DLA"):
        return True
    return bool(HEAVY.search(kind)) and not LIGHT.search(_text(layer, "LayerType"))


def precision(layer: Mapping[str, Json]) -> str:
    """Return the precision in which a heavy layer computes: its weights' precision, else its inputs'.

    tf32 reads and writes fp32, so only the kernel's name shows it.
    """
    weights, inputs = layer.get("Weights"), layer.get("Inputs")
    kinds = _text(weights, "Type") if isinstance(weights, dict) else ""
    if not kinds and isinstance(inputs, list) and inputs and isinstance(inputs[0], dict):
        kinds = " ".join(_text(inputs[0], key) for key in ("Format/Datatype", "DataType", "Format"))
    kind = next((name for name, word in WORDS if word.search(kinds)), "unknown")
    return "tf32" if kind == "fp32" and "tf32" in _text(layer, "TacticName").lower() else kind


def _nodes(layer: Mapping[str, Json]) -> int:
    return len(NODE.findall(_text(layer, "Metadata")))


def _text(mapping: Mapping[str, Json], key: str) -> str:
    value = mapping.get(key, "")
    return value if isinstance(value, str) else ""
