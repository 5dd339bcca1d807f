"""From a name to a Model: the zoo, a weights file for it, an ONNX file, a Python callable, or nothing.

    efficientnet_lite0            the zoo (zoo.toml holds its figures, so that listing it needs no torch)
    resnet50@weights.pth          the zoo's definition with the user's weights
    har_cnn3d@weights.pth         a network for clips with the weights that `edgescope train` wrote
    model.onnx                    any ONNX file
    model.tflite                  any LiteRT file
    package.module:callable       a factory that returns (nn.Module, example inputs)
    kind, kind:name               a kind of model that an installed plug-in adds
    null                          nothing

A name that refers to a file is pinned, `model.onnx#0123456789ab`, before it goes into a Trial: when the file
changes, so does the trial, and a result is never credited to another file. The pin of an ONNX file covers
its external data too. The pin of a callable covers the one source file that defines it, because finding out
what else it reads means running it; all of that, including weights, is in ModelInfo.digest. That digest is stored
with every result, and is the key of cached reference outputs and gate verdicts.
"""

from __future__ import annotations

import difflib
import functools
import importlib.util
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgescope import cache
from edgescope.errors import ModelError, UsageError
from edgescope.models.base import FixedBatch, Model, TensorSpec
from edgescope.records import digest
from edgescope.registry import MODELS, load, need

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ONNX_FIX = "pip install 'edgescope[onnx]'"
EXTERNAL_VERSION = 1  # raise this when the stored facts of an ONNX file change
PIN = re.compile(r"#([0-9a-f]{12})$")
Shapes = Mapping[str, tuple[int, ...]]


@functools.cache
def table() -> dict[str, dict[str, Any]]:
    """Return the content of zoo.toml: name -> definition, input shape, params, macs, and the origin of its weights."""
    return tomllib.loads((Path(__file__).parent / "zoo.toml").read_text())


def names() -> tuple[str, ...]:
    """Return the names of the zoo, the pretrained network first."""
    return tuple(table())


def get(name: str, shapes: Shapes | None = None, batch: int | None = None) -> Model:
    """Return the model called `name`; `shapes` fixes open axes, `batch` is checked against a closed one.

    UsageError for an unknown name or a shape that does not fit, ModelError for a file that cannot be used or does not
    match its pin, UnavailableError for a missing package.
    """
    bare = PIN.sub("", name)
    pinned = PIN.search(name)
    if pinned and _content(bare) != pinned[1]:
        raise ModelError(
            "E-MODEL-2",
            f"{bare} is not the file this trial was planned with",
            evidence=f"content {_content(bare)}, planned {pinned[1]}",
            effect="Its numbers would be filed under another model",
            fix=f"plan again with {bare}",
        )
    model: Model = load(MODELS, _family(bare), "model")(bare, shapes=shapes or {})
    if batch is not None and isinstance(model, FixedBatch):
        model.check_batch(batch)
    return model


def pin(name: str) -> str:
    """Return `name` with the digest of its file appended, or unchanged if there is no file.

    It runs no code of the user: for a callable it covers only the source file (see above).
    """
    bare = PIN.sub("", name)
    content = _content(bare)
    return f"{bare}#{content}" if content else bare


def _family(name: str) -> str:
    """Return the registry's key for the kind of model that `name` refers to; UsageError if it refers to nothing."""
    base = name.partition("@")[0]
    if name == "null":
        return "null"
    if name.lower().endswith(".onnx"):
        return "onnx"
    if name.lower().endswith(".tflite"):
        return "tflite"
    if base in table():
        return "clips" if table()[base]["definition"].startswith("clips:") else "zoo"
    kind = base.partition(":")[0]
    if kind in MODELS.plugins:
        return kind
    if ":" in name:
        return "callable"
    close = difflib.get_close_matches(base, names(), n=1)
    raise UsageError(
        "E-MODEL-3",
        f"no model is called {name!r}",
        evidence=f"known: {', '.join(names())}; or a file.onnx, file.tflite, or module:callable",
        fix=f"edgescope bench {close[0]}" if close else "edgescope models",
    )


def _content(name: str) -> str:
    """Return 12 hex digits of the file behind `name`, or '' if there is none."""
    family = _family(name)
    if family == "onnx":
        return onnx_digest(Path(name))
    if family in ("zoo", "clips") and "@" in name:
        return file_digest(Path(name.partition("@")[2]))
    if family == "tflite":
        return file_digest(Path(name))
    if family == "callable":
        source = source_file(name.partition(":")[0])
        return file_digest(source) if source else ""
    return ""


def file_digest(path: Path) -> str:
    """Return 12 hex digits of a file's SHA-256; ModelError if it is missing or unreadable."""
    try:
        return cache.content(path)[:12]
    except OSError as error:
        raise ModelError(
            "E-MODEL-4",
            f"the file {path} cannot be read",
            evidence=error.strerror or "",
            fix="check the path",
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
            raise UsageError(
                "E-SHAPE-1",
                f"--shapes {given}={'x'.join(map(str, shape))} does not fit {name}",
                evidence="it takes " + ", ".join(f"{k}=Nx{'x'.join(map(str, v))}" for k, v in known.items()),
                fix="leave --shapes out, or give that shape",
            )
