"""A user's own network in PyTorch: a callable, a file that PyTorch wrote, or a network that lived in another process.

Whatever it is, some half that needs torch describes it once (inputs, parameters, a digest of all that it is made of)
and makes it again in every process; this half imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgescope import cache
from edgescope.artifacts import onnx_export
from edgescope.errors import ModelError, UsageError
from edgescope.models import synthetic, zoo
from edgescope.models.base import Purpose, Samples, TensorSpec
from edgescope.models.user.files import Shapes, UserFile, facts_of
from edgescope.records import ModelInfo, digest
from edgescope.registry import need

if TYPE_CHECKING:
    import torch

    from edgescope.fit import Task

TORCH = "pip install 'edgescope[torch]'"
VERSION = 6  # raise this when the stored facts of a model change
LIVE = "live"
"""The kind of model, and the folder of the cache, of networks that lived in a Python process."""


class Custom:
    """`module:callable`, a zero-argument factory importable from the current folder, or `module:callable@weights`."""

    reference = "torch_eager"
    _source = "made by {name}(); what it was trained for is not known"

    def __init__(self, name: str, shapes: Shapes | None = None) -> None:
        self._name = name
        self._about = self._known(name) or self._describe()
        inputs = self._about["inputs"]
        self.inputs = tuple(TensorSpec(i["name"], tuple(i["shape"]), i["dtype"]) for i in inputs)
        zoo.check_shapes(name, self.inputs, shapes or {})
        self._ranges = {i["name"]: tuple(i["range"]) for i in inputs if i["range"]}
        self.info = ModelInfo(
            name=zoo.bare(name),
            task="unknown",
            trained=False,
            source=self._source.format(name=zoo.bare(name)),
            digest=self._about["digest"],
            params=self._about["params"],
            macs=self._about.get("macs"),
        )

    def task(self) -> Task | None:
        """Return the Task that the callable makes; None if it makes a network and its example inputs."""
        if not self._about.get("trains"):
            return None
        task: Task = need("edgescope.models.user.calling:task", self._name, TORCH)(self._name)
        return task

    def module(self) -> torch.nn.Module:
        """Return the network in eval mode; ModelError if it cannot be made, or its weights differ."""
        if (task := self.task()) is not None:
            return task.network
        make = need("edgescope.models.user.calling:make", self._name, TORCH)
        module: torch.nn.Module = make(self._name, self._about["state"]).module
        return module

    @property
    def config(self) -> Mapping[str, Any] | None:
        """Return what the network itself says of its pictures (timm's default_cfg), or None."""
        found: Mapping[str, Any] | None = self._about.get("config")
        return found

    @property
    def closed_batch(self) -> int | None:
        """Return None: the batch axis is open."""
        return None

    def onnx(self, folder: Path, opset: int | None = None) -> Path:
        """Return the network as ONNX, exported once per content of its files."""
        return onnx_export.onnx_file(
            self.info,
            self.inputs,
            self.module,
            folder,
            ranges=self._ranges,
            opset=opset,
            batch=self.closed_batch,
        )

    def samples(self, purpose: Purpose, n: int) -> Samples | None:
        """Return seeded random inputs; integers lie within the range of the example inputs."""
        return synthetic.samples(self.inputs, purpose, n, ranges=self._ranges)

    @classmethod
    def described(cls, name: str, shapes: Shapes) -> bool:
        """Return whether its facts are known, so that nothing of it has to run."""
        return cls._known(name) is not None

    @staticmethod
    def _path(name: str) -> Path:
        return cache.folder("models") / f"callable-{digest([VERSION, name, str(Path.cwd())])}.json"

    @classmethod
    def _known(cls, name: str) -> dict[str, Any] | None:
        """Return the stored facts of this network if nothing that it is made of has changed."""
        about: dict[str, Any] | None = cache.read_json(cls._path(name))
        if about is None:
            return None
        same = all(Path(p).exists() and cache.content(Path(p)) == sha for p, sha in about["files"].items())
        return about if same and about["made_with"] == cache.versions(["torch"]) else None

    def _describe(self) -> dict[str, Any]:
        describe = need("edgescope.models.user.calling:describe", self._name, TORCH)
        about: dict[str, Any] = describe(self._name) | {"made_with": cache.versions(["torch"])}
        cache.write_json(self._path(self._name), about)
        return about


def facts(name: str) -> Path:
    """Return where the facts of the live network `name` are kept; the network itself is the .pt2 file beside them."""
    return cache.folder(LIVE) / f"{cache.safe(name)}.json"


class Live(Custom):
    """`live:NAME#digest`, a network that lived in a Python process and is kept in the cache (`edgescope.live`)."""

    _source = "{name}, given in Python; what it was trained for is not known"

    @property
    def closed_batch(self) -> int | None:
        """Return the batch size that it was exported for, or None if its batch axis is open."""
        batch: int | None = self._about["batch"]
        return batch

    def check_batch(self, batch: int) -> None:
        """Raise UsageError if it could only be kept for another batch."""
        if self.closed_batch not in (None, batch):
            raise UsageError(
                "E-BATCH-4",
                f"{self.info.name} could only be exported for batch {self.closed_batch}",
                effect=f"It cannot run batch {batch}",
                fix=f"--batch {self.closed_batch}, or example inputs of that batch",
            )

    def module(self) -> torch.nn.Module:
        """Return the network in eval mode; ModelError if it is gone from the cache."""
        module: torch.nn.Module = need("edgescope.models.user.live:opened", self._name, TORCH)(self._name)
        return module

    @classmethod
    def _known(cls, name: str) -> dict[str, Any] | None:
        about: dict[str, Any] | None = cache.read_json(facts(name))
        return about

    def _describe(self) -> dict[str, Any]:
        raise ModelError(
            "E-LIVE-3",
            f"{self._name} is not in the cache",
            evidence=str(cache.folder(LIVE)),
            fix="edgescope.live(network, example_inputs) again, in Python",
        )


class TorchFile(UserFile):
    """A file of torch.export.save or torch.jit.save; PyTorch reads it, which runs what is in it."""

    reference = "torch_eager"

    def __init__(self, name: str, shapes: Shapes | None = None) -> None:
        asked = shapes or {}
        super().__init__(name, *_kept(name, asked), asked)
        kind = self.about["kind"]
        self.info = replace(self.info, source=f"{kind} file {self.info.source}")

    @classmethod
    def described(cls, name: str, shapes: Shapes) -> bool:
        """Return whether its facts are known, so that nothing of it has to run."""
        return facts_of(*_kept(name, shapes)).is_file()

    def _read(self, shapes: Shapes) -> dict[str, Any]:
        describe = need("edgescope.models.user.torch_file:describe", self._path.name, TORCH)
        found: dict[str, Any] = describe(self._path, shapes)
        return found

    def check_batch(self, batch: int) -> None:
        """Raise UsageError if the file was exported for another batch."""
        if self.closed_batch not in (None, batch):
            raise UsageError(
                "E-BATCH-3",
                f"{self.info.name} was exported for batch {self.closed_batch} and cannot run batch {batch}",
                evidence=f"axis 0 of its inputs: {self._batches}",
                fix=f"--batch {self.closed_batch}, or torch.export.export(..., dynamic_shapes=...) with an open batch",
            )

    def module(self) -> torch.nn.Module:
        """Return the network that the file holds, called with tensors one by one."""
        opened = need("edgescope.models.user.torch_file:opened", self.info.name, TORCH)
        module: torch.nn.Module = opened(self._path)
        return module

    def onnx(self, folder: Path, opset: int | None = None) -> Path:
        """Return the network as ONNX, exported once; its batch axis is open where the file's is."""
        return onnx_export.onnx_file(
            self.info,
            self.inputs,
            self.module,
            folder,
            ranges=self._ranges,
            opset=opset,
            batch=self.closed_batch,
        )


def _kept(name: str, shapes: Shapes) -> tuple[str, str]:
    """Return a file's content, and under which name its facts are kept: they depend on torch and on the shapes."""
    content, made_with = zoo.file_digest(Path(name)), cache.versions(["torch"])
    asked = sorted((key, list(shape)) for key, shape in shapes.items())
    return content, f"torch-{digest([VERSION, content, made_with, asked])}"
