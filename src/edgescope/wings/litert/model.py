"""A user's own .tflite file, used as it is: its names, its layout, its precision and, usually, its batch.

A float file is its own reference: LiteRT runs it in fp32 and every other way of running it is compared with that.
A quantised file no longer holds an fp32 network. There is nothing to compare its answers with, so its result has no
verification and can never be the pick; a float file of the same network, converted with and without quantisation
from its source, can be judged.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgescope.errors import UnsupportedError, UsageError
from edgescope.models import zoo
from edgescope.models.user import ranges
from edgescope.models.user.files import Shapes, UserFile

if TYPE_CHECKING:
    import torch

VERSION = 2  # raise this when the stored facts of a file change
FIX = "pip install 'edgescope[litert]'"


class TfliteFile(UserFile):
    """A .tflite file."""

    READER = "edgescope.wings.litert.tflite_reader:describe", FIX

    def __init__(self, name: str, shapes: Shapes | None = None) -> None:
        super().__init__(name, zoo.file_digest(Path(name)), f"tflite-{VERSION}", shapes or {})
        filled = {i["name"]: i["quantised"] for i in self.about["inputs"]}
        self._ranges = {
            i.name: ranges.usual(i.dtype, i.shape, i.name, full=filled[i.name]) for i in self.inputs
        }
        steps = {i["name"]: i["step"] and tuple(i["step"]) for i in self.about["inputs"]}
        self.inputs = tuple(replace(i, step=steps[i.name]) for i in self.inputs)
        self.kinds: dict[str, int] = self.about["kinds"]
        self.reduced: bool = self.about["reduced"]
        self.quantised = any(kind not in ("fp32", "fp64") for kind in self.kinds)
        self.reference = "none" if self.quantised else "litert"
        lost = "; it is quantised and holds no fp32 network, so its outputs are not verified"
        source = f"TFLite file {self.info.source}{lost if self.quantised else ''}"
        self.info = replace(self.info, source=source)

    def check_batch(self, batch: int) -> None:
        """Raise UsageError if the file was converted for another batch."""
        if self.closed_batch not in (None, batch):
            raise UsageError(
                "E-BATCH-2",
                f"{self.info.name} was converted for batch {self.closed_batch} and cannot run batch {batch}",
                evidence=f"axis 0 of its inputs: {self._batches}",
                fix=f"--batch {self.closed_batch}, or convert it again with an open batch axis",
            )

    def tflite(self) -> Path:
        """Return the file itself."""
        return self._path.resolve()

    def module(self) -> torch.nn.Module:
        """Raise UnsupportedError: a file holds no PyTorch network."""
        raise self._only_litert("PyTorch cannot run it")

    def onnx(self, folder: Path, opset: int | None = None) -> Path:
        """Raise UnsupportedError: a .tflite cannot be converted to ONNX."""
        raise self._only_litert("there is no way from it to ONNX")

    def _only_litert(self, why: str) -> UnsupportedError:
        return UnsupportedError(
            "E-MODEL-6", f"{self.info.name} is a .tflite file, {why}", fix="--backend litert"
        )
