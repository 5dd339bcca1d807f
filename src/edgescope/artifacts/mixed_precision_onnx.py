"""The half of int8.mixture that needs onnx and onnxruntime: compare layer by layer, rank, bisect.

To compare, the int8 graph is cut: every layer takes the fp32 network's own tensors, rounds them, and works with its
rounded weights. Each then shows only its own error. In the uncut graph a layer that destroys the signal would hide
all later layers, because only noise reaches them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from edgescope.artifacts import bias_correction, int8_onnxruntime, onnx_write
from edgescope.artifacts.int8 import Job
from edgescope.artifacts.onnx_export import size_of
from edgescope.models.base import Samples
from edgescope.process import scratch_folder
from edgescope.records import Json
from edgescope.verify import judge, measures

FED = "fp32:"
ACTIVATIONS = ("Relu", "Clip", "LeakyRelu", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh")
HEAVY = ("Conv", "Gemm", "MatMul", "ConvTranspose")


@dataclass
class Spread:
    """Centred L2 of one tensor between two networks, gathered input by input."""

    n: int = 0
    error: float = 0.0
    square: float = 0.0
    total: Any = 0.0

    def add(self, got: NDArray[Any], wanted: NDArray[Any]) -> None:
        """Add the tensors of one input."""
        exact = wanted.astype(np.float64)
        self.n += 1
        self.error += float(np.square(got.astype(np.float64) - exact).sum())
        self.square += float(np.square(exact).sum())
        self.total = self.total + exact

    @property
    def value(self) -> float:
        """Return |got - wanted| / |wanted - its mean over inputs|; 0 if equal, infinite without a spread."""
        left = self.square - float(np.square(self.total).sum()) / max(self.n, 1)
        if self.error == 0.0:
            return 0.0
        return float(np.sqrt(self.error / left)) if left > 1e-12 * self.square else float("inf")


@dataclass(frozen=True)
class Layer:
    """A layer, its output as (name in the fp32 file, name in the int8 file), and the distance between the two."""

    name: str
    output: tuple[str, str]
    spread: Spread = field(default_factory=Spread)

    @property
    def added(self) -> float:
        """Return the centred L2 of its output: the error added by rounding its inputs and its weights."""
        return self.spread.value


def choose(job: Job, path: Path) -> dict[str, Json]:
    """Write the mixture to `path` if one passes; return how it was chosen: layers, errors, counts, criterion.

    "passed" is whether one passes, "kept_float" the nodes in fp32, "would_need" and "allowed" count heavy nodes.
    """
    begin = time.perf_counter()
    with scratch_folder("int8") as folder:
        search = Search(job, Path(folder))
        layers = sorted(compared(search.prepared.path, search.file([]), job.held), key=lambda x: -x.added)
        count = bisected(search, layers)
        if not search.may_keep(layers, count) and job.qdq == "u8s8":
            search.with_makers = True
            again = bisected(search, layers, beyond=False)
            search.with_makers = search.may_keep(layers, again)
            count = again if search.with_makers else count
        passed = search.may_keep(layers, count)
        kept = search.names(layers[: count or 0])
        if passed:
            search.write(layers[: count or 0], path)
    return {
        "passed": passed,
        "build_s": round(time.perf_counter() - begin, 3),
        "kept_float": kept if passed else [],
        "would_need": None if count is None else search.count(layers[:count]),
        "heavy": len(search.heavy),
        "allowed": search.allowed,
        "criterion": search.criterion,
        "tried": search.tried,
        "layers": [{"layer": layer.name, "added": float(f"{layer.added:.4g}")} for layer in layers],
        **(size_of(path) if passed else {}),
    }


class Search:
    """One network, its ranges, and the mixtures of it that were tried.

    In u8s8 files a layer's output is rounded with it, so a layer in fp32 may still read rounded inputs;
    `with_makers` keeps the layers that make its inputs in fp32 too.
    """

    def __init__(self, job: Job, folder: Path) -> None:
        self.job, self.folder, self.with_makers = job, folder, False
        with int8_onnxruntime.refusing():
            self.prepared = int8_onnxruntime.prepare(job.source, job.ranges, folder)
        nodes = onnx_write.unweighted(self.prepared.path).graph.node
        self.nodes = {node.name: node for node in nodes}
        self.makers = {name: node for node in nodes for name in node.output}
        self.heavy = {node.name for node in nodes if node.op_type in HEAVY}
        self.allowed = int(len(self.heavy) * (1 - job.reduced_share))
        first = int8_onnxruntime.first_convolutions(self.prepared.path, job.keep_float)
        self.first = first if 2 * len(first) <= self.allowed else []  # a small network may keep fewer in fp32
        self.truth = self._outputs(self.prepared.path)
        self.tried: list[dict[str, Json]] = []
        limit = judge.L2_CEILING * job.margin
        agreement = 1 - (1 - judge.REDUCED_FLOOR) * job.margin
        ranks = 1 - (1 - judge.RANK_FLOOR) * job.margin
        self.floors = (
            {"top1_agreement": agreement} if job.trained else {"centred_l2": limit, "rank_agreement": ranks}
        )
        self.criterion = {"on": f"{len(job.held)} held-back inputs", **self.floors}

    def names(self, kept: Sequence[Layer]) -> list[str]:
        """Return the names of all nodes that a mixture leaves in fp32."""
        found = dict.fromkeys([*self.first, *(layer.name for layer in kept)])
        if self.with_makers:
            found |= dict.fromkeys(name for layer in kept for name in self._makers(layer.name))
        return list(found)

    def _makers(self, name: str) -> Iterator[str]:
        """Yield the nodes that make a node's inputs, including activations in between."""
        for given in self.nodes[name].input:
            maker = self.makers.get(given)
            while maker is not None:
                yield maker.name
                maker = self.makers.get(maker.input[0]) if maker.op_type in ACTIVATIONS else None

    def count(self, kept: Sequence[Layer]) -> int:
        """Return how many heavy nodes a mixture leaves in fp32."""
        return len(self.heavy & set(self.names(kept)))

    def may_keep(self, order: Sequence[Layer], count: int | None) -> bool:
        """Return whether the file may still be called int8 if the first `count` layers stay in fp32."""
        return count is not None and self.count(order[:count]) <= self.allowed

    def write(self, kept: Sequence[Layer], path: Path) -> None:
        """Write the mixture that leaves `kept`, and the first convolutions, in fp32."""
        with int8_onnxruntime.refusing():
            int8_onnxruntime.rounded(self.prepared, path, self.names(kept), qdq=self.job.qdq)

    def file(self, kept: Sequence[Layer]) -> Path:
        """Return the path of that mixture in this search's folder."""
        path = self.folder / "mixture.onnx"
        self.write(kept, path)
        return path

    def passes(self, kept: Sequence[Layer]) -> bool:
        """Return whether that mixture meets the criterion on the held-back inputs."""
        got = self._outputs(self.file(kept))
        found = {
            "centred_l2": measures.centred_l2(got, self.truth),
            "rank_agreement": measures.rank_agreement(got, self.truth),
        }
        if self.job.trained:
            found["top1_agreement"] = float((got[0].argmax(axis=1) == self.truth[0].argmax(axis=1)).mean())
        self.tried.append(
            {"kept": self.count(kept), **{name: round(value, 4) for name, value in found.items()}}
        )
        return all(
            found[name] <= bound if name == "centred_l2" else found[name] >= bound
            for name, bound in self.floors.items()
        )

    def _outputs(self, path: Path) -> measures.Outputs:
        session = onnx_write.session(path)
        return judge.outputs(lambda batch: session.run(None, dict(batch)), self.job.held, 1)


def bisected(search: Search, order: Sequence[Layer], *, beyond: bool = True) -> int | None:
    """Return the least number of worst layers to keep in fp32, by bisection, or None if no number passes.

    Passing is taken to be monotone in the count. The allowed counts are searched first; if the largest of these
    fails, the count that would be needed is found only for the message (None unless `beyond`).
    """
    low, high = -1, max((n for n in range(len(order) + 1) if search.may_keep(order, n)), default=0)
    if not search.passes(order[:high]):
        low, high = high, len(order)
        if not beyond or high == low or not search.passes(order):
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if search.passes(order[:middle]) else (middle, high)
    return high


def compared(exact: Path, rounded: Path, held: Samples) -> list[Layer]:
    """Return every quantised layer with the error that it adds by itself on the held-back inputs."""
    layers, feeds, path = cut(exact, rounded)
    session = onnx_write.session(path)
    names = [layer.output[1] for layer in layers]
    given = {entry.name for entry in session.get_inputs()}
    for truth in bias_correction.tapped(exact, [*feeds, *(layer.output[0] for layer in layers)], held):
        named = truth | {FED + name: truth[name] for name in feeds}
        got = session.run(names, {name: array for name, array in named.items() if name in given})
        for layer, ours in zip(layers, got, strict=True):
            layer.spread.add(ours, truth[layer.output[0]])
    return layers


def cut(exact: Path, rounded: Path) -> tuple[list[Layer], list[str], Path]:
    """Return the layers with rounded inputs, the fp32 tensors to feed them, and the cut int8 file.

    Nodes are matched by name. A node's output may have another name in the int8 file: an activation that rounding
    replaces is left out there, and the node's output takes the activation's name.
    """
    twins = {node.name: node for node in onnx_write.unweighted(exact).graph.node}
    model = onnx_write.unweighted(rounded)
    makers = {name: node for node in model.graph.node for name in node.output}
    weights = {tensor.name for tensor in model.graph.initializer}
    feeds: dict[str, None] = {}
    layers = []
    for node in model.graph.node:
        before = [_rounding(makers, name, weights) for name in node.input]
        twin = twins.get(node.name)
        if twin is None or not any(before):
            continue
        for reader in [*filter(None, before), node]:
            for index, name in enumerate(reader.input):
                maker = makers.get(name)
                if maker is not None and maker.name in twins:
                    feed = _exact_name(maker, twins[maker.name], name)
                    feeds[feed] = None
                    reader.input[index] = FED + feed
        layers.append(Layer(node.name, (twin.output[0], node.output[0])))
    types = {v.name: v.type.tensor_type.elem_type for v in _inferred(exact).graph.value_info}
    usual = onnx.TensorProto.FLOAT
    fed = [onnx.helper.make_tensor_value_info(FED + name, types.get(name, usual), None) for name in feeds]
    model.graph.input.extend(fed)
    del model.graph.output[:]
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(layer.output[1]) for layer in layers)
    path = rounded.with_name(f"cut-{rounded.name}")
    onnx.save(model, str(path))
    return layers, list(feeds), path


def _inferred(path: Path) -> Any:
    """Return a model with the types of its tensors; those of shapes, which are integers, matter."""
    return onnx.shape_inference.infer_shapes(onnx_write.unweighted(path))


def _rounding(makers: Mapping[str, Any], name: str, weights: set[str]) -> Any:
    """Return the QuantizeLinear that rounds an activation on its way to `name`, or None for weights and others."""
    dequantise = makers.get(name)
    if dequantise is None or dequantise.op_type != "DequantizeLinear":
        return None
    quantise = makers.get(dequantise.input[0])
    return quantise if quantise is not None and quantise.input[0] not in weights else None


def _exact_name(node: Any, twin: Any, name: str) -> str:
    """Return the fp32 file's name of the node output that the int8 file calls `name`."""
    return str(twin.output[list(node.output).index(name)])
