"""The .tflite that LiteRT runs: a user's own file, or one made of a PyTorch network, once per batch size.

A user's file is used as it is: its names, its layout, its precision and, usually, its batch. A float file is its own
reference. A quantised file no longer holds an fp32 network, so its result has no verification and can never be the
pick; a float file of the same network, converted with and without quantisation from its source, can be judged.

litert-torch converts for fixed shapes and keeps the network's own layout (NCHW in, transposes inside); the outputs are
compared. int8 is made from that file by ai-edge-quantizer: weights int8 per channel, activations int8, ranges from the
same calibration inputs as every other int8 file here, never those of the accuracy gate. If the file exists already,
nothing heavy is imported.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgescope import cache
from edgescope.artifacts import int8 as quantize
from edgescope.errors import UnsupportedError, UsageError
from edgescope.models import synthetic, zoo
from edgescope.models.base import Model, Purpose, Samples
from edgescope.models.user.files import Shapes, UserFile
from edgescope.records import Json, digest
from edgescope.registry import need

if TYPE_CHECKING:
    import torch


VERSION = 2  # raise this when the conversion changes
MADE_WITH = ("torch", "litert-torch", "ai-edge-quantizer")
FIX = "pip install litert-torch (1.2 GB), or convert elsewhere and give the .tflite as the model"


FACTS = 2  # raise this when the stored facts of a file change
LITERT = "pip install 'edgescope[litert]'"


class TfliteFile(UserFile):
    """A .tflite file."""

    READER = "edgescope.wings.litert.backend:describe", LITERT

    def __init__(self, name: str, shapes: Shapes | None = None) -> None:
        super().__init__(name, zoo.file_digest(Path(name)), f"tflite-{FACTS}", shapes or {})
        filled = {i["name"]: i["quantised"] for i in self.about["inputs"]}
        self._ranges = {
            i.name: synthetic.usual_range(i.dtype, i.shape, i.name, full=filled[i.name]) for i in self.inputs
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


def tflite(model: Model, folder: Path, *, batch: int, int8: bool = False) -> Path:
    """Return the .tflite of `model` for this batch under `folder`, with a sidecar JSON that says how it was made.

    The sidecar's `names` maps each input of the file to the model's. ModelError if it cannot be converted or does not
    agree with PyTorch, UnsupportedError if there are no inputs for int8 ranges, UnavailableError if the converter
    is missing.
    """
    calibration = quantize.inputs(model, quantize.IMAGES) if int8 else None
    made_with = cache.versions(MADE_WITH)
    key = digest(
        [
            VERSION,
            model.info.digest,
            batch,
            calibration.digests if calibration else (),
            made_with,
        ]
    )
    kind = "int8" if int8 else "fp32"
    path = cache.named(folder, model.info.name, f"{kind}-b{batch}", key, ".tflite")
    origin = {"model": model.info.name, "model_digest": model.info.digest, "made_with": made_with}
    if calibration:
        return cache.made_once(path, lambda new: _quantised(model, folder, batch, calibration, new) | origin)
    return cache.made_once(path, lambda new: _made(model, batch, new) | origin)


def _made(model: Model, batch: int, path: Path) -> dict[str, Json]:
    convert = need("edgescope.wings.litert.litert_torch:convert", "the LiteRT converter", FIX)
    samples = model.samples(Purpose.BENCH, batch)
    if samples is None:
        raise UnsupportedError(
            "E-TFL-6", f"{model.info.name} has no inputs to be traced with", fix="--backend torch_eager"
        )
    found: dict[str, Json] = convert(model.module(), model.inputs, samples, path, batch=batch)
    return found


def _quantised(model: Model, folder: Path, batch: int, calibration: Samples, path: Path) -> dict[str, Json]:
    quantise = need("edgescope.wings.litert.litert_torch:quantise", "the LiteRT quantiser", FIX)
    source = tflite(model, folder, batch=batch)
    names = cache.notes(source)["names"]
    found: dict[str, Json] = quantise(source, names, calibration, path, batch=batch)
    origin = {"n": len(calibration), "origin": calibration.origin, "digests": list(calibration.digests)}
    return found | {"names": names, "source_made": cache.notes(source), "calibration": origin}
