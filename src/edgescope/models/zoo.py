"""From a name to a Model: the zoo, a weights file for it, an ONNX file, a Python callable, or nothing.

    efficientnet_lite0            the zoo (zoo.toml holds its figures, so that listing it needs no torch)
    resnet50@weights.pth          the zoo's definition with the user's weights; also .safetensors
    har_cnn3d@weights.pth         a network for clips with the weights that `edgescope train clips` wrote
    timm:name, torchvision:name   a network of that package, untrained; with @weights the user's
    model.onnx                    any ONNX file
    model.tflite                  any LiteRT file
    model.gguf, llm:name          a language model: any GGUF file, or one that edgescope has or makes
    http://127.0.0.1:8080/v1      a server with OpenAI's interface
    model.pt2, model.pt           an ExportedProgram or TorchScript, told apart by content
    package.module:callable       a factory that returns (nn.Module, example inputs); also with @weights
    live:name#0123456789ab        a network that was given in Python (edgescope.live)
    kind, kind:name               a kind of model that an installed plug-in adds
    null                          nothing

A name that refers to a file is pinned, `model.onnx#0123456789ab`, before it goes into a Trial: when the file
changes, so does the trial, and a result is never credited to another file. The pin of an ONNX file covers
its external data too. The pin of a callable covers the one source file that defines it, because finding out
what else it reads means running it; all of that, including weights, is in ModelInfo.digest. That digest is stored
with every result, and is the key of cached reference outputs and gate verdicts.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgescope import cache
from edgescope.errors import Message, ModelError, UsageError, closest_name, near_names
from edgescope.models.base import Described, FixedBatch, Model, TensorSpec
from edgescope.records import digest
from edgescope.registry import MODELS, installed, load, need

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ONNX_FIX = "pip install 'edgescope[onnx]'"
EXTERNAL_VERSION = 1  # raise this when the stored facts of an ONNX file change
PIN = re.compile(r"#([0-9a-f]{12})$")
OWN = ("onnx", "tflite", "torch", "callable", "live")
"""Kinds of models of which only the user knows what they were trained for."""
Shapes = Mapping[str, tuple[int, ...]]
FILES = {
    ".onnx": "onnx",
    ".tflite": "tflite",
    ".gguf": "gguf",
    ".pt2": "torch",
    ".pt": "torch",
    ".pth": "torch",
    ".ts": "torch",
    ".torchscript": "torch",
}
"""Ending of a file -> the kind of model in it."""
LIBRARIES = ("timm", "torchvision")
PREFIXES = {"live": "network", "llm": "gguf", "http": "endpoint", "https": "endpoint"}
"""What a name may begin with, before a colon, and so the kind of model -> what an engine must read to run it."""
KINDS = {"clips": "clips", "file": "faces", "anomaly": "anomaly"}
"""What a definition in zoo.toml starts with -> the kind of model, where it is no image network in PyTorch."""


@functools.cache
def table() -> dict[str, dict[str, Any]]:
    """Return the content of zoo.toml: name -> definition, input shape, params, macs, and the origin of its weights."""
    return tomllib.loads((Path(__file__).parent / "zoo.toml").read_text())


def names() -> tuple[str, ...]:
    """Return the names of the zoo whose kind is installed, the pretrained network first."""
    kinds = installed(MODELS)
    return tuple(name for name in table() if _family(name) in kinds)


def get(name: str, shapes: Shapes | None = None, batch: int | None = None) -> Model:
    """Return the model called `name`; `shapes` fixes open axes, `batch` is checked against a closed one.

    UsageError for an unknown name or a shape that does not fit, ModelError for a file that cannot be used or does not
    match its pin, UnavailableError for a missing package.
    """
    plain, pinned = bare(name), PIN.search(name)
    family = _family(plain)
    if family == "live":
        plain = name  # its pin says which of this name
    elif pinned and _content(plain) != pinned[1]:
        raise ModelError(
            "E-MODEL-2",
            f"{plain} is not the file this trial was planned with",
            evidence=f"content {_content(plain)}, planned {pinned[1]}",
            effect="Its numbers would be filed under another model",
            fix=f"plan again with {plain}",
        )
    model: Model = load(MODELS, family, "model")(plain, shapes=shapes or {})
    if batch is not None:
        _one_batch(shapes or {}, batch)
        if isinstance(model, FixedBatch):
            model.check_batch(batch)
    return model


def described(name: str, shapes: Shapes | None = None) -> bool:
    """Return whether get() runs nothing of a model of the user's own: a file that says it all, or one seen before."""
    family = _family(bare(name))
    if family not in OWN:
        return False
    kind = load(MODELS, family, "model")
    plain = name if family == "live" else bare(name)
    return not isinstance(kind, Described) or kind.described(plain, shapes or {})


def _one_batch(shapes: Shapes, batch: int) -> None:
    """Raise UsageError if a shape says another batch than the trial; 1 stands for any."""
    for name, shape in shapes.items():
        if shape and shape[0] not in (1, batch):
            raise UsageError(
                "E-SHAPE-4",
                f"--shapes {name}={'x'.join(map(str, shape))} says batch {shape[0]}, --batch says {batch}",
                effect="Nothing was measured",
                fix=f"--shapes {name}={'x'.join(('N', *map(str, shape[1:])))} --batch {shape[0]}",
            )


def bare(name: str) -> str:
    """Return a model's name without its pin."""
    return PIN.sub("", name)


def kind(name: str) -> str:
    """Return what an engine must read to run a model: onnx, tflite, gguf, endpoint, or network."""
    plain = name.partition("#")[0]
    if (prefix := plain.partition(":")[0]) in PREFIXES:
        return PREFIXES[prefix]
    weights = table().get(plain.partition("@")[0], {}).get("pretrained", {})
    suffix = str(weights.get("file", "") if _of_file_alone(plain) else plain).lower().rpartition(".")[2]
    return suffix if suffix in ("onnx", "tflite", "gguf") else "network"


def _of_file_alone(name: str) -> bool:
    return str(table().get(name, {}).get("definition", "")).startswith("file:")


def pin(name: str) -> str:
    """Return `name` with the digest of its file appended, or unchanged if there is no file.

    It runs no code of the user: for a callable it covers only the source file (see above).
    """
    plain = bare(name)
    if _family(plain) == "live":
        return name
    content = _content(plain)
    return f"{plain}#{content}" if content else plain


def precision(model: str, asked: str) -> str:
    """Return the precision under which a model is asked for: `as_is` in place of the default for a file of another.

    A quantised or 16-bit file is run as it is: what its kernels compute in is read back from the engine. So is a
    language model, and what a server has loaded.
    """
    plain = bare(model)
    if asked == "fp32" and kind(plain) in ("gguf", "endpoint"):
        return "as_is"
    if asked != "fp32" or not plain.lower().endswith(".onnx") or not Path(plain).is_file():
        return asked
    found = need("edgescope.models.user.files:written", plain, ONNX_FIX)(Path(plain))
    return "as_is" if found else asked


def shapes(model: str, asked: Shapes) -> Shapes:
    """Return the shapes that a model does not have by itself; only an ONNX file says them without being opened."""
    plain = bare(model)
    if not asked or not plain.lower().endswith(".onnx") or not Path(plain).is_file():
        return asked
    found: Shapes = need("edgescope.models.user.files:leaves_open", plain, ONNX_FIX)(Path(plain), asked)
    return found


def is_file(name: str) -> bool:
    """Return whether a name is that of a file which holds a model."""
    return bool(_of_file(bare(name)))


def _of_file(name: str) -> str:
    """Return the kind of model that a file's name says, '' if it names none; after an @ stand weights."""
    if "@" in name and not Path(name).exists():
        return ""
    return FILES.get(Path(name).suffix.lower(), "")


def asks_for_data(name: str, data: str) -> Message | None:
    """Return what cannot be judged of a network of the user's own that comes without data; None otherwise."""
    plain = bare(name)
    if data or _family(plain) not in OWN:
        return None
    return Message(
        "W-DATASET-1",
        f"there are no inputs to judge {plain} with",
        evidence="random numbers stand for them",
        effect="Its accuracy is not known, and int8 cannot be judged: it is left out",
        fix=f"edgescope optimize {plain} --data FOLDER (edgescope docs your-data)",
    )


def _family(name: str) -> str:
    """Return the registry's key for the kind of model that `name` refers to; UsageError if it refers to nothing."""
    base = name.partition("@")[0]
    if name == "null":
        return "null"
    if kind := _of_file(name):
        return kind
    if base in table():
        return KINDS.get(table()[base]["definition"].partition(":")[0]) or (
            "detectors" if table()[base].get("task") == "detect" else "zoo"
        )
    kind = base.partition(":")[0]
    if kind in LIBRARIES and ":" in base:
        return "zoo"
    if kind in PREFIXES or kind in MODELS.plugins:
        return kind
    if ":" in name:
        return "callable"
    near = near_names(base, names()) or [file for file in [_file_like(name)] if file]
    raise UsageError(
        "E-MODEL-3",
        f"no model is called {name!r}",
        evidence=f"near: {', '.join(near)}"
        if near
        else f"it is no name, no file ({', '.join(FILES)}), no module:callable",
        fix=f"edgescope bench {near[0]}; edgescope models lists all" if near else "edgescope models",
    )


def _file_like(name: str) -> str:
    """Return the model file whose name is closest to `name` in its folder, or ''."""
    path = Path(name)
    try:
        there = [p.name for p in path.parent.iterdir() if p.suffix.lower() in FILES]
    except OSError:
        return ""
    close = closest_name(path.name, there)
    return str(path.with_name(close)) if close else ""


def _content(name: str) -> str:
    """Return 12 hex digits for the content of the files that `name` refers to, or '' if there are none."""
    family, (base, _, weights) = _family(name), name.partition("@")
    if family == "onnx":
        return onnx_digest(Path(name))
    if family in ("tflite", "torch", "gguf"):
        return file_digest(Path(name))
    if family not in ("zoo", "detectors", "clips", "anomaly", "callable"):
        return ""
    source = source_file(base.partition(":")[0]) if family == "callable" else None
    parts = [file_digest(path) for path in (source, Path(weights) if weights else None) if path]
    return parts[0] if len(parts) == 1 else digest(parts)[:12] if parts else ""


def file_digest(path: Path) -> str:
    """Return 12 hex digits of a file's SHA-256; UsageError if it is missing or unreadable."""
    try:
        return cache.content(path)[:12]
    except OSError as error:
        raise UsageError(
            "E-MODEL-4",
            f"the file {path} cannot be read",
            evidence=error.strerror or "",
            fix=_file_like(str(path)) or "check the path",
        ) from error


def onnx_digest(path: Path) -> str:
    """Return 12 hex digits that change with an ONNX file and with any external file that holds its weights.

    The list of these files is read once per content of the .onnx, so onnx is imported only for a new file.
    ModelError if one is missing or the file is not ONNX.
    """
    content = file_digest(path)
    known = cache.folder("models") / f"external-{EXTERNAL_VERSION}-{content}.json"
    places = cache.read_json(known)
    if places is None:
        places = need("edgescope.models.user.onnx_reader:external", str(path), ONNX_FIX)(path)
        cache.write_json(known, places)
    parts = {place: _external(path, place) for place in places}
    return digest([content, parts])[:12] if parts else content


def _external(path: Path, place: str) -> str:
    try:
        return cache.content(path.parent / place)
    except OSError as error:
        raise ModelError(
            "E-ONNX-9",
            f"{path.name} refers to weights that cannot be read",
            evidence=f"{path.parent / place}: {error.strerror}",
            effect="Nothing was measured",
            fix="put the external data file back next to it",
        ) from error


def source_file(module: str) -> Path | None:
    """Return the source file of a module on the import path (with the current folder), without importing it."""
    here = Path(*module.split("."))
    for path in (here.with_suffix(".py"), here / "__init__.py"):
        if path.exists():
            return path
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec and spec.origin and spec.has_location else None


def check_shapes(name: str, specs: Sequence[TensorSpec], shapes: Shapes) -> None:
    """Raise UsageError if `shapes` names an input that does not exist or gives it another closed shape."""
    known = {spec.name: spec.shape for spec in specs}
    for given, shape in shapes.items():
        if given not in known or tuple(shape[1:]) != known[given]:
            near = closest_name(given, known)
            raise UsageError(
                "E-SHAPE-1",
                f"--shapes {given}={'x'.join(map(str, shape))} does not fit {name}",
                evidence="it takes " + ", ".join(f"{k}=Nx{'x'.join(map(str, v))}" for k, v in known.items()),
                fix=f"--shapes {near}=Nx{'x'.join(map(str, known[near]))}" if near else "leave --shapes out",
            )
