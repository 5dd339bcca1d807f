"""LiteRT (formerly TensorFlow Lite) on a CPU, with XNNPACK for the operators that it supports.

It reads a .tflite: the user's own, or one converted from a PyTorch network by litert-torch. fp32 and int8 are
properties of the file, so a file is refused under another label. fp16 is only a request: XNNPACK runs the float file
in half precision if it can. Nothing in LiteRT reports whether it did, so the outputs are compared with those of fp32
once: rounding to 11 bits changes them, so if they differ no more than by another order of summation, this CPU has no
fp16 here. By default LiteRT's Python interpreter uses a single thread; edgescope sets all cores of the affinity mask,
which other engines use by default.

LiteRT's interpreter describes a file: inputs, operators, and the delegate that runs them. The layout (NHWC, usually),
the precision and usually the batch were fixed when it was converted. The precision is that of the arithmetic, not of
the storage: weights stored as float16 that a DEQUANTIZE operator widens are multiplied in fp32.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import ai_edge_litert
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from numpy.typing import NDArray

from edgescope import cache
from edgescope.backends.base import (
    Artifact,
    Session,
    Spec,
    checked,
    counted,
    flag,
    precision_of,
    threads_of,
)
from edgescope.errors import ModelError, UnsupportedError
from edgescope.models.base import Batch, Model, TensorSpec
from edgescope.records import Effective, Json
from edgescope.registry import need
from edgescope.wings.litert import AboutLiteRt
from edgescope.wings.litert import tflite as tflite_export

#: The operators that do nearly all multiplications of a network.
HEAVY = {
    "CONV_2D",
    "DEPTHWISE_CONV_2D",
    "CONV_3D",
    "TRANSPOSE_CONV",
    "FULLY_CONNECTED",
    "BATCH_MATMUL",
    "UNIDIRECTIONAL_SEQUENCE_LSTM",
}
#: Operators that compute in no precision: they change it, or stand for others.
SILENT = {"CAST", "QUANTIZE", "DEQUANTIZE", "DELEGATE"}
#: Narrowest first: an operator computes in the precision of its narrowest tensor.
WIDTHS = {
    "int4": "int4",
    "int8": "int8",
    "uint8": "int8",
    "int16": "int16",
    "bfloat16": "bf16",
    "float16": "fp16",
    "float32": "fp32",
    "float64": "fp64",
}
#: Name of the metadata by which a float file itself requests fp16 arithmetic from XNNPACK.
REDUCED = "reduced_precision_support"
CONVERT_AGAIN = "convert it again; a .tflite begins with four bytes and then TFL3"


def opened(path: Path, threads: int = 1, *, xnnpack: bool = True) -> Any:
    """Return an interpreter for the file, without allocating its tensors; ModelError if the file is unsound."""
    kind = OpResolverType.BUILTIN if xnnpack else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    try:
        return Interpreter(str(path), num_threads=threads, experimental_op_resolver_type=kind)
    except (ValueError, RuntimeError) as error:
        raise unsound(path, error) from error


def allocated(path: Path, interpreter: Any, shapes: Mapping[int, Sequence[int]] | None = None) -> Any:
    """Return the interpreter, allocated with `shapes` for its inputs (by tensor index); ModelError if that fails."""
    try:
        for index, shape in (shapes or {}).items():
            interpreter.resize_tensor_input(index, list(shape), strict=True)
        interpreter.allocate_tensors()
    except (ValueError, RuntimeError) as error:
        raise unsound(path, error) from error
    return interpreter


def unsound(path: Path, error: Exception) -> ModelError:
    """Return the error for a file that LiteRT cannot load."""
    if re.search("Select TensorFlow op|custom op", str(error)):
        return ModelError(
            "E-TFL-5",
            f"{path.name} needs operators that LiteRT itself does not have",
            evidence=", ".join(_custom(path)) or " ".join(str(error).split())[:300],
            effect="They are compiled into a program of their own, and none of them is here: nothing was measured",
            fix="convert it again with the built-in operators alone (supported_ops = [TFLITE_BUILTINS])",
        )
    return ModelError(
        "E-TFL-1",
        f"LiteRT cannot load {path.name}",
        evidence=" ".join(str(error).split())[:300],
        effect="Nothing was measured",
        fix=CONVERT_AGAIN,
    )


def _custom(path: Path) -> list[str]:
    """Return the names of a file's custom operators; those of TensorFlow begin with Flex."""
    model = schema.Model.GetRootAs(path.read_bytes())
    codes = (model.OperatorCodes(i).CustomCode() for i in range(model.OperatorCodesLength()))
    return sorted({code.decode(errors="replace") for code in codes if code})


def describe(path: Path) -> dict[str, Json]:
    """Return the facts about a file that are known without running it; ModelError if unsound.

    `inputs`: [{name, dims, dtype, quantised, step}], an open axis as the letter d and its position (N for the first);
    `params`: numbers stored as weights; `kinds`: {precision: operators that tell it}; `reduced`: whether the file lets
    XNNPACK compute in fp16; `subgraphs`: the number of graphs, of which only the first is read.
    """
    interpreter = opened(path, xnnpack=False)
    operators = interpreter._get_ops_details()
    details = {t["index"]: t for t in interpreter.get_tensor_details()}
    inputs = [_input(path, given) for given in interpreter.get_input_details()]
    return {
        "inputs": inputs,
        "params": _params(operators, details, {t["index"] for t in interpreter.get_input_details()}),
        "kinds": dict(kinds(telling(operators))),
        "reduced": _reduced(path),
        "subgraphs": int(interpreter.num_subgraphs()),
    }


def _input(path: Path, given: Mapping[str, Any]) -> dict[str, Json]:
    signature = given["shape_signature"] if len(given["shape_signature"]) else given["shape"]
    dtype = np.dtype(given["dtype"])
    if not len(signature) or dtype.kind not in "fiub":
        raise ModelError(
            "E-TFL-2",
            f"input {given['name']!r} of {path.name} cannot be fed",
            evidence=f"type {dtype.name}, {len(signature)} axes",
            effect="Nothing was measured",
            fix="convert it with numeric inputs whose first axis is the batch",
        )
    dims = [int(d) if d >= 0 else "N" if i == 0 else f"d{i}" for i, d in enumerate(signature)]
    steps = given["quantization_parameters"]
    one = len(steps["scales"]) == len(steps["zero_points"]) == 1 and dtype.kind in "iu"
    step = [float(steps["scales"][0]), int(steps["zero_points"][0])] if one else None
    about = {"name": given["name"], "dims": dims, "dtype": dtype.name}
    return {**about, "quantised": bool(len(steps["scales"])), "step": step}


def _params(operators: Sequence[Any], details: Mapping[int, Any], inputs: set[int]) -> int:
    """Return how many weights are stored; integers without a scale are shapes and axes, not weights."""
    made = {int(i) for op in operators for i in op["outputs"]} | inputs
    read = {int(i) for op in operators for i in op["inputs"] if i >= 0} - made
    weights = [details[i] for i in read if i in details]
    return sum(int(np.prod(t["shape"])) for t in weights if _is_weight(t))


def _is_weight(tensor: Mapping[str, Any]) -> bool:
    floating = np.dtype(tensor["dtype"]).name in ("float32", "float16", "bfloat16", "float64")
    return floating or len(tensor["quantization_parameters"]["scales"]) > 0


def _reduced(path: Path) -> bool:
    model = schema.Model.GetRootAs(path.read_bytes())
    names = [model.Metadata(i).Name() for i in range(model.MetadataLength())]
    return any((name or b"").decode(errors="replace") == REDUCED for name in names)


def heavy(operators: Sequence[Any]) -> list[Any]:
    """Return the heavy operators (those that multiply) among those that an interpreter lists."""
    return [op for op in operators if op["op_name"] in HEAVY]


def telling(operators: Sequence[Any]) -> list[Any]:
    """Return the operators that tell in which precision a network computes: the heavy ones, else all that have one."""
    plain = [op for op in operators if op["op_name"] not in SILENT and _arithmetic(op) != "unknown"]
    return heavy(operators) or plain


def kinds(operators: Sequence[Any]) -> Counter[str]:
    """Return precision -> number of these operators that compute in it."""
    return Counter(_arithmetic(op) for op in operators)


def _arithmetic(operator: Mapping[str, Any]) -> str:
    found = {np.dtype(t).name for t in (*operator["operand_types"], *operator["result_types"])}
    return next((word for name, word in WIDTHS.items() if name in found), "unknown")


def hybrid(operators: Sequence[Any]) -> int:
    """Return how many of these operators have narrow weights but float inputs: the engine narrows while it runs."""
    return sum(
        _arithmetic(op) in ("int8", "int4") and np.dtype(op["result_types"][0]).kind == "f"
        for op in operators
    )


def delegated(operators: Sequence[Any]) -> set[int]:
    """Return the indices of the operators that a delegate has taken over.

    The interpreter still lists them; a delegate covers everything between its inputs and outputs.
    """
    makers = {int(i): op for op in operators if op["op_name"] != "DELEGATE" for i in op["outputs"]}
    taken: set[int] = set()
    for delegate in (op for op in operators if op["op_name"] == "DELEGATE"):
        edge, todo = {int(i) for i in delegate["inputs"]}, [int(i) for i in delegate["outputs"]]
        while todo:
            maker = makers.get(todo.pop())
            if maker is not None and maker["index"] not in taken:
                taken.add(maker["index"])
                todo += [int(i) for i in maker["inputs"] if int(i) not in edge]
    return taken


FIX_FP16 = "pip install -U 'ai-edge-litert>=2'"
#: Least difference from fp32, relative to the largest output, that proves fp16: rounding to 11 bits leaves about
#: 1e-3, another order of summation in fp32 less than 1e-5.
LEAST_FP16 = 2**-16
Shapes = Mapping[str, tuple[int, ...]]


@runtime_checkable
class HoldsTflite(Protocol):
    """A model that already is a .tflite file."""

    kinds: Mapping[str, int]
    """Operators by the precision in which they compute: the heavy ones, of a file without them all."""
    reduced: bool
    """Whether the file lets XNNPACK compute in fp16 without a request."""

    def tflite(self) -> Path:
        """Return the file."""


class Request:
    """One interpreter with its own tensors; threads must not share it."""

    def __init__(self, path: Path, shapes: Shapes, threads: int, *, xnnpack: bool) -> None:
        self.interpreter = opened(path, threads, xnnpack=xnnpack)
        given = {i["name"]: i for i in self.interpreter.get_input_details()}
        closed = {n for n, i in given.items() if tuple(i["shape"]) == shapes[n]}
        wanted = {i["index"]: shapes[n] for n, i in given.items() if n not in closed}
        allocated(path, self.interpreter, wanted)
        self.inputs = [(given[name]["index"], name) for name in shapes]
        self.outputs = [o["index"] for o in self.interpreter.get_output_details()]

    def __call__(self, arrays: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Return the outputs for inputs by the file's names."""
        for index, name in self.inputs:
            self.interpreter.set_tensor(index, arrays[name])
        self.interpreter.invoke()
        return [self.interpreter.get_tensor(index) for index in self.outputs]


class LiteRtSession:
    """A session with one callable from `make` per query in flight; `names` maps the file's inputs to the model's."""

    def __init__(self, names: Mapping[str, str], threads: int, make: Callable[[], Any]) -> None:
        self.names, self.requested, self.make = dict(names), threads, make
        before = tasks()
        self.idle = [make()]
        self.started = tasks() - before

    def __call__(self, batch: Batch) -> Sequence[NDArray[Any]]:
        """Return the outputs in the file's order and types."""
        try:
            request = self.idle.pop()
        except IndexError:
            request = self.make()
        outputs: list[NDArray[Any]] = request({mine: batch[theirs] for mine, theirs in self.names.items()})
        self.idle.append(request)
        return outputs

    def effective(self) -> Effective:
        """Return the precision of the heavy operators, and how many of them XNNPACK runs."""
        operators = self.idle[0].interpreter._get_ops_details()
        multiplying = heavy(operators)
        shown = telling(operators)
        found = kinds(shown) or Counter({"fp32": 0})
        taken = sum(op["index"] in delegated(operators) for op in shown)
        what = "heavy operators" if multiplying else "operators, no heavy ones"
        evidence = f"interpreter: {counted(found)} {what}; {taken} of {len(shown)} run by XNNPACK"
        if narrowed := hybrid(multiplying):
            evidence += f"; {narrowed} with int8 weights between floats (dynamic range)"
        return Effective("cpu", precision_of(found), self.threads, evidence)

    @property
    def threads(self) -> int | None:
        """Return 1 + the threads that loading started, or None if the kernels start theirs in the first call."""
        return self.started + 1 if self.started or self.requested == 1 else None

    def close(self) -> None:
        """Drop the interpreters; their threads end with them."""
        self.idle.clear()


class LiteRt(AboutLiteRt):
    """litert: fp32, fp16 if XNNPACK has it, and int8 files."""

    OPTIONS: ClassVar[dict[str, str]] = {
        "threads": "interpreter threads (all cores of the affinity mask; LiteRT's own default is 1)",
        "xnnpack": "true: XNNPACK runs the operators that it supports (true); false: LiteRT's built-in kernels",
    }

    def prepare(self, model: Model, spec: Spec, folder: Path) -> Artifact:
        """Return the .tflite: the user's, or one converted from PyTorch for this batch; its facts are cached."""
        checked("litert", spec, self.OPTIONS)
        _threads(spec)
        if spec.precision not in ("fp32", "fp16", "int8"):
            raise _refused(spec.precision, "a .tflite for CPUs holds fp32 or int8, and XNNPACK adds fp16")
        if spec.precision == "fp16" and not xnnpack_of(spec):
            raise _refused("fp16", "LiteRT's built-in kernels have none", "leave xnnpack on")
        if isinstance(model, HoldsTflite):
            path, names = _own(model, spec), {i.name: i.name for i in model.inputs}
        else:
            path, names = _converted(model, spec, folder)
        made = cache.notes(path)
        notes = {"made": made, "names": names}
        if spec.precision == "fp16":
            notes["fp16"] = _fp16(path, model, spec, names)
        return Artifact(model, spec, path, cache.content(path), made.get("build_s"), notes)

    def load(self, artifact: Artifact) -> Session:
        """Return a session whose tensors have the trial's batch."""
        assert artifact.path is not None
        names = artifact.notes["names"]
        shapes = _shapes(artifact.model, artifact.spec, names)
        path, threads, xnnpack = artifact.path, _threads(artifact.spec), xnnpack_of(artifact.spec)
        if artifact.spec.precision == "fp16":
            return Fp16Session(path, shapes, artifact.notes, threads)
        return LiteRtSession(names, threads, lambda: Request(path, shapes, threads, xnnpack=xnnpack))


def tasks() -> int:
    """Return how many threads this process has, or 0 if the kernel does not report it."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 0


def xnnpack_of(spec: Spec) -> bool:
    """Return whether XNNPACK may run operators; UsageError for anything but true or false."""
    return flag(spec, "xnnpack", default=True)


def _threads(spec: Spec) -> int:
    return threads_of(spec) or len(os.sched_getaffinity(0))


def _shapes(model: Model, spec: Spec, names: Mapping[str, str]) -> dict[str, tuple[int, ...]]:
    """Return the shape of every input of the file, by the file's name for it."""
    mine = {i.name: i.shape for i in model.inputs}
    return {file: (spec.batch, *mine[name]) for file, name in names.items()}


def _own(model: HoldsTflite, spec: Spec) -> Path:
    """Return the user's file; UnsupportedError if it does not compute in the requested precision."""
    path, holds = model.tflite(), precision_of(model.kinds) if model.kinds else "fp32"
    if holds != ("int8" if spec.precision == "int8" else "fp32"):
        raise UnsupportedError(
            "E-TFL-3",
            f"{path.name} does not compute in {spec.precision}",
            evidence=f"its operators are {counted(model.kinds) or 'none'}",
            effect="The precision of a .tflite is fixed when it is converted",
            fix=f"--precision {holds}" if holds in ("fp32", "int8") else "convert it again in one precision",
        )
    if model.reduced and spec.precision == "fp32" and xnnpack_of(spec):
        raise UnsupportedError(
            "E-TFL-4",
            f"{path.name} lets XNNPACK compute in fp16",
            evidence=f"metadata {REDUCED}",
            effect="LiteRT does not tell whether it did, so the label fp32 could lie",
            fix="--precision fp16, or --option xnnpack=false",
        )
    return path


def _converted(model: Model, spec: Spec, folder: Path) -> tuple[Path, dict[str, str]]:
    path = tflite_export.tflite(model, folder, batch=spec.batch, int8=spec.precision == "int8")
    return path, dict(cache.notes(path)["names"])


def _fp16(path: Path, model: Model, spec: Spec, names: Mapping[str, str]) -> dict[str, float]:
    found = probe(path, _shapes(model, spec, names), model.inputs)
    if not found["difference"] >= LEAST_FP16:
        why = f"with fp16 requested, XNNPACK's outputs differ from fp32 by {found['difference']:.2g} of the largest"
        raise _refused("fp16", f"{why}; rounding to fp16 leaves about 1e-3")
    return found


def _refused(precision: str, why: str, fix: str = "--precision fp32 or int8") -> UnsupportedError:
    return UnsupportedError(
        "E-PREC-1",
        f"litert has no {precision} on this CPU",
        evidence=why,
        effect="It would run in another precision under this label",
        fix=fix,
    )


# -- fp16: a float file compiled through the API that can request it of XNNPACK --------------------------------

#: TFLITE_XNNPACK_DELEGATE_FLAG_FORCE_FP16, xnnpack_delegate.h of LiteRT.
FORCE_FP16 = 4
PROBE = 1  # raise this when the probe changes


class _Compiled:
    """One compiled model with its own buffers; threads must not share it."""

    def __init__(self, path: Path, shapes: Shapes, threads: int) -> None:
        cpu = _newer("cpu_options:CpuOptions")(num_threads=threads, xnnpack_flags=FORCE_FP16)
        options = _newer("options:Options")(cpu_options=cpu)
        try:
            self.model = _newer("compiled_model:CompiledModel").from_file(str(path), options=options)
            signature = self.model.get_signature_by_index(0)
            details = self.model.get_input_tensor_details(signature["key"])
            names = [str(details[i]["name"]) for i in signature["inputs"]]
            for index, (key, name) in enumerate(zip(signature["inputs"], names, strict=True)):
                if tuple(details[key]["shape"]) != shapes[name]:
                    self.model.resize_input_tensor(index, list(shapes[name]), 0)
            self.names, self.inputs = names, self.model.create_input_buffers(0)
            self.outputs = self.model.create_output_buffers(0)
        except (RuntimeError, ValueError) as error:
            raise unsound(path, error) from error
        made = self.model.get_output_tensor_details(signature["key"])
        self.shapes = [(tuple(made[o]["shape"]), np.dtype(made[o]["dtype"])) for o in signature["outputs"]]

    def __call__(self, arrays: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        for buffer, name in zip(self.inputs, self.names, strict=True):
            buffer.write(arrays[name])
        self.model.run_by_index(0, self.inputs, self.outputs)
        return [
            buffer.read(int(np.prod(shape)), dtype.type).reshape(shape)
            for buffer, (shape, dtype) in zip(self.outputs, self.shapes, strict=True)
        ]


def _newer(target: str) -> Any:
    """Return a part of the API that can request fp16; UnavailableError if this LiteRT is too old to have it."""
    return need(f"ai_edge_litert.{target}", "LiteRT in fp16", FIX_FP16)


class Fp16Session(LiteRtSession):
    """One compiled model for each query in flight."""

    def __init__(self, path: Path, shapes: Shapes, notes: Mapping[str, Json], threads: int) -> None:
        super().__init__(notes["names"], threads, lambda: _Compiled(path, shapes, threads))
        self.found = notes["fp16"]
        if not self.idle[0].model.is_fully_accelerated():
            raise UnsupportedError(
                "E-TFL-5",
                f"XNNPACK does not take all of {path.name}",
                effect="Operators it leaves out run in fp32, and LiteRT does not tell which",
                fix="--precision fp32",
            )

    def effective(self) -> Effective:
        """Return fp16, with the comparison of outputs by `probe` as evidence."""
        evidence = (
            "XNNPACK took the whole graph with FORCE_FP16; its outputs differ from fp32 by"
            f" {self.found['difference']:.2g} of the largest, so they were not computed in fp32"
        )
        return Effective("cpu", "fp16", self.threads, evidence)


def probe(path: Path, shapes: Shapes, inputs: Sequence[TensorSpec]) -> dict[str, float]:
    """Return {"difference": largest of fp16 from fp32 over the largest output}, computed once per file and CPU."""
    key = hashlib.sha256(_cpu().encode() + repr(sorted(shapes.items())).encode()).hexdigest()[:12]
    note = (
        cache.folder("litert") / f"{cache.content(path)[:24]}-{ai_edge_litert.__version__}-{PROBE}-{key}.json"
    )
    found: dict[str, float] | None = cache.read_json(note)
    if found is None:
        found = {"difference": _difference(path, shapes, [i.dtype for i in inputs])}
        cache.write_json(note, found)
    return found


def _difference(path: Path, shapes: Shapes, dtypes: Sequence[str]) -> float:
    rng = np.random.default_rng(0)
    arrays = {
        name: rng.standard_normal(shape).astype(dtype)
        for (name, shape), dtype in zip(shapes.items(), dtypes, strict=True)
    }
    half = _Compiled(path, shapes, 1)(arrays)
    single = Request(path, shapes, 1, xnnpack=True)(arrays)
    pairs = list(zip(half, single, strict=True))
    largest = max(float(np.abs(b.astype(np.float64)).max()) for _, b in pairs)
    apart = max(float(np.abs(a.astype(np.float64) - b.astype(np.float64)).max()) for a, b in pairs)
    return apart / largest if largest else apart


def _cpu() -> str:
    """Return the line of /proc/cpuinfo that lists this CPU's features, or '' if there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
