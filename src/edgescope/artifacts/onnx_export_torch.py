"""The half of onnx_export.py that needs torch and onnx: export, check, compare.

It also finds the line of the user's own code at which an exporter or a compiler stopped.

torch wraps an error several times. The chain is followed to its beginning, through tracebacks and through the
`File "...", line N, in f` that torch.export writes into its messages; the deepest line that belongs neither to torch
nor to Python is reported.
"""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import re
import shutil
import sysconfig
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray

from edgescope import cache
from edgescope.artifacts import onnx_write
from edgescope.artifacts.onnx_export import OPSET, TOLERANCE
from edgescope.errors import ModelError
from edgescope.models.base import Purpose, TensorSpec
from edgescope.models.synthetic import Range, samples
from edgescope.models.user.calling import takes_any
from edgescope.records import Json
from edgescope.registry import need

BATCHES = (1, 4)


@dataclass(frozen=True)
class Net:
    """A network in eval mode, its inputs, the ranges of its integer inputs, and its only batch size if it has one."""

    module: torch.nn.Module
    inputs: Sequence[TensorSpec]
    ranges: Mapping[str, Range] | None = None
    batch: int | None = None

    def tensors(self, n: int) -> tuple[torch.Tensor, ...]:
        """Return seeded random inputs of batch n, in the network's order."""
        drawn = samples(self.inputs, Purpose.BENCH, n, ranges=self.ranges)
        assert drawn is not None
        return tuple(torch.from_numpy(drawn.arrays[spec.name]) for spec in self.inputs)

    @property
    def batches(self) -> tuple[int, ...]:
        """Return the batch sizes with which the file is checked."""
        return (self.batch,) if self.batch else BATCHES

    @property
    def names(self) -> list[str]:
        """Return the names of the inputs, in the network's order."""
        return [spec.name for spec in self.inputs]


Write = Callable[[Net, Path, int], None]


def export(
    module: torch.nn.Module,
    inputs: Sequence[TensorSpec],
    path: Path,
    ranges: Mapping[str, Range] | None = None,
    *,
    opset: int = OPSET,
    batch: int | None = None,
) -> dict[str, Json]:
    """Write `module` to `path` as ONNX of this opset; return how it went: seconds, opset, nodes, parity.

    TorchScript is followed as it runs, whatever the opset. ModelError if it cannot be exported or checked, or does not
    agree; the file is then useless.
    """
    net = Net(module.eval(), inputs, ranges, batch)
    script = isinstance(module, torch.jit.ScriptModule)
    write = _write if opset >= OPSET and not script else _trace
    begin = time.perf_counter()
    _written(write, net, path, opset)
    seconds = time.perf_counter() - begin
    found = {"build_s": round(seconds, 3), "exporter": "torch.export" if write is _write else "torchscript"}
    onnx.checker.check_model(str(path), full_check=True)
    error = _parity(net, path)
    if write is _trace:
        found |= _simplified(net, path)
    graph = onnx_write.unweighted(path)
    return found | {
        "opset": _asserted(graph, opset),
        "nodes": len(graph.graph.node),
        "parity": {"max_rel_error": error, "batches": list(net.batches), "against": "torch_eager fp32"},
    }


def _written(write: Write, net: Net, path: Path, opset: int) -> None:
    try:
        with _quiet():
            write(net, path, opset)
    except Exception as error:  # a network may raise anything while it is traced
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        line = of(error)
        batches = f"batch {net.batch}" if net.batch else "an open batch axis"
        raise ModelError(
            "E-EXPORT-2",
            f"this network cannot be exported to ONNX with {batches}",
            evidence=f"{line}; {_cause(error)}" if line else _cause(error),
            effect="Only the torch backends can run it",
            fix="--backend torch_eager or torch_compile; or export it yourself and give the .onnx file",
        ) from error


def _write(net: Net, path: Path, opset: int) -> None:
    """Export through torch.export."""
    need("onnxscript:__version__", "the ONNX exporter", "pip install 'edgescope[onnx]'")  # late import
    axis = torch.export.Dim("N", min=1, max=4096)
    shapes: Any = None if net.batch else tuple({0: axis} for _ in net.inputs)
    with _out_of_place(net):
        program = torch.onnx.export(
            net.module,
            net.tensors(net.batch or 2),
            dynamo=True,
            opset_version=opset,
            input_names=net.names,
            dynamic_shapes=(shapes,) if shapes and takes_any(net.module) else shapes,
            verbose=False,
        )
    assert program is not None
    weights = sum(tensor.nbytes for tensor in net.module.state_dict().values())
    program.save(str(path), external_data=weights > onnx_write.LIMIT)


@contextlib.contextmanager
def _out_of_place(net: Net) -> Iterator[None]:
    """Let no layer overwrite its input meanwhile, if the network computes exactly the same then.

    torch.export takes such layers apart in Python: one with ReLU6 takes half as long again
    (benchmarks/preparing.py export).
    """
    layers = [layer for layer in net.module.modules() if layer.__dict__.get("inplace") is True]
    was = _answers(net) if layers else []
    try:
        _overwrite(layers, False)
        if layers and not all(map(np.array_equal, was, _answers(net))):
            _overwrite(layers, True)
        yield
    finally:
        _overwrite(layers, True)


def _overwrite(layers: Sequence[torch.nn.Module], on: bool) -> None:
    for layer in layers:
        layer.inplace = on  # type: ignore[assignment]


def _answers(net: Net) -> list[NDArray[Any]]:
    with torch.inference_mode():
        return _flat(net.module(*net.tensors(net.batches[0])))


def _trace(net: Net, path: Path, opset: int) -> None:
    """Export through TorchScript, which follows one run of the network and writes any opset from 9 on."""
    given = net.tensors(net.batch or 2)
    with torch.inference_mode():
        outputs = [f"output_{i}" for i in range(len(_flat(net.module(*given))))]
    raw = path.parent / "traced" / path.name  # beyond 2 GB torch writes one file per tensor next to it
    raw.parent.mkdir()
    torch.onnx.export(
        net.module,
        given,
        str(raw),
        dynamo=False,
        opset_version=opset,
        input_names=net.names,
        output_names=outputs,
        dynamic_axes=None if net.batch else {name: {0: "N"} for name in (*net.names, *outputs)},
    )
    onnx_write.save(onnx.load(str(raw)), path)
    shutil.rmtree(raw.parent)


def _simplified(net: Net, path: Path) -> dict[str, Json]:
    """Simplify the file with onnxslim if it is installed; its result stays only if smaller and still correct.

    Files of the torch.export-based exporter are already simple: onnxslim changed none of the nine zoo networks.
    """
    if cache.versions(("onnxslim",))["onnxslim"] == "absent":
        return {"simplified": "no: onnxslim is not installed"}
    slim = need("onnxslim:slim", "the simplifier", "pip install --force-reinstall onnxslim")
    before = onnx.load(str(path))
    count, trial = len(before.graph.node), path.with_name(f"slim-{path.name}")
    with _quiet():
        after = slim(before)
    onnx_write.save(after, trial)
    try:
        onnx.checker.check_model(str(trial), full_check=True)
        _parity(net, trial)
    except (ModelError, onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return {"simplified": f"no: onnxslim's file was refused: {last_line(error)}"}
    if len(after.graph.node) >= count:
        return {"simplified": f"no: onnxslim found nothing to leave out of {count} nodes"}
    onnx_write.save(onnx.load(str(trial)), path)
    return {"simplified": f"onnxslim: {count} to {len(after.graph.node)} nodes"}


def _asserted(graph: Any, opset: int) -> int:
    """Return the actual opset of the file; ModelError if it is not the requested one."""
    found: int = max(entry.version for entry in graph.opset_import if entry.domain in ("", "ai.onnx"))
    if found != opset:
        raise ModelError(
            "E-EXPORT-4",
            f"the exporter wrote ONNX opset {found} where {opset} was asked for",
            effect="The engine it is for could not read the file, which was not kept",
            fix="another opset, or export it yourself and give the .onnx file",
        )
    return found


def _parity(net: Net, path: Path) -> float:
    """Return the largest |onnx - torch| over the largest |torch|, batch 1 and 4; ModelError if too large."""
    try:
        session = onnx_write.session(path)
        worst = _worst(_difference(session, net, n) for n in net.batches)
    except Exception as error:  # the runtime's exceptions share no base class
        raise _unequal(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}") from error
    if not worst <= TOLERANCE:
        raise _unequal(f"largest relative error {worst:.2g}, allowed {TOLERANCE:g}{_restless(net)}")
    return worst


def _restless(net: Net) -> str:
    """Return that the network itself answers otherwise in a second call, and by how much; '' if it does not."""
    first, again = _answers(net), _answers(net)
    apart = _worst(_error(a, b) for a, b in zip(first, again, strict=True))
    return f"; the network itself differs by {apart:.2g} from call to call" if apart > TOLERANCE else ""


def _unequal(evidence: str) -> ModelError:
    return ModelError(
        "E-EXPORT-3",
        "the exported ONNX file does not compute what the network computes",
        evidence=evidence,
        effect="The file was not kept",
        fix="--backend torch_eager; or look for data-dependent Python code in forward()",
    )


def _difference(session: Any, net: Net, n: int) -> float:
    tensors = net.tensors(n)
    with torch.inference_mode():
        wanted = _flat(net.module(*tensors))
    names = [given.name for given in session.get_inputs()]
    got = session.run(None, {name: t.numpy() for name, t in zip(names, tensors, strict=True)})
    return _worst(_error(a, b) for a, b in zip(got, wanted, strict=True))


def _worst(errors: Iterable[float]) -> float:
    """Return the largest error, NaN if one is: Python's own max passes over it."""
    return float(np.max([*errors]))


def _error(got: NDArray[Any], wanted: NDArray[Any]) -> float:
    if got.shape != wanted.shape:
        return float("inf")
    scale = float(np.abs(wanted).max(initial=0.0)) or 1.0
    return float(np.abs(got.astype(np.float64) - wanted).max(initial=0.0)) / scale


def _flat(outputs: Any) -> list[NDArray[Any]]:
    """Return every tensor in a network's output, in the order the exporter gives them."""
    leaves = torch.utils._pytree.tree_leaves(outputs)
    return [leaf.detach().cpu().numpy() for leaf in leaves if isinstance(leaf, torch.Tensor)]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's progress lines and deprecation warnings off the terminal."""
    level, sink = logging.root.manager.disable, io.StringIO()
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def last_line(error: BaseException) -> str:
    """Return the last line of an error's text with its type, short enough for one message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1][:300] if lines else ''}"


def _cause(error: BaseException) -> str:
    """Return the first line of an error's first cause, with its type."""
    first = chain(error)[-1]
    lines = [line.strip() for line in str(first).splitlines() if line.strip()]
    return f"{type(first).__name__}: {lines[0][:300] if lines else ''}"


WRITTEN = re.compile(r'File "([^"<>]+)", line (\d+), in (\S+)')
ENGINES = ("torch", "onnx", "onnxscript", "onnx_ir", "sympy")
OWN, PACKAGE, MACHINERY = range(3)
Line = tuple[str, int, str]


def of(error: BaseException) -> str:
    """Return `net.py:12 in forward: x = x.item()`, or '' if no line outside torch and Python is involved."""
    lines = [line for part in chain(error) for line in _lines(part)]
    kinds = [_kind(line[0]) for line in lines]
    nearest = min(kinds, default=MACHINERY)
    if nearest == MACHINERY:
        return ""
    file, number, name = next(
        line for line, kind in reversed(list(zip(lines, kinds, strict=True))) if kind == nearest
    )
    return f"{Path(file).name}:{number} in {name}{_text(file, number)}"


def chain(error: BaseException) -> list[BaseException]:
    """Return an error and all its causes, the first cause last."""
    found: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and following not in found:
        found.append(following)
        following = following.__cause__ or following.__context__
    return found


def _lines(error: BaseException) -> Iterator[Line]:
    for file, number, name in WRITTEN.findall(str(error)):
        yield file, int(number), name
    for frame in traceback.extract_tb(error.__traceback__):
        yield frame.filename, frame.lineno or 0, frame.name


def _kind(file: str) -> int:
    """Return whether a source file is the user's own, a package's (where a network may come from) or machinery."""
    full, paths = Path(file).absolute(), sysconfig.get_paths()
    if not full.is_file() or full.is_relative_to(Path(__file__).parent):
        return MACHINERY
    for place in (Path(paths["purelib"]), Path(paths["platlib"])):
        if full.is_relative_to(place):
            return MACHINERY if full.relative_to(place).parts[0] in ENGINES else PACKAGE
    return MACHINERY if full.is_relative_to(paths["stdlib"]) else OWN


def _text(file: str, number: int) -> str:
    lines = Path(file).read_text(errors="replace").splitlines()
    return f": {lines[number - 1].strip()[:120]}" if 0 < number <= len(lines) else ""
