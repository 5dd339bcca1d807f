"""A user's own .tflite file, taken as it is: its names, its layout, its precision and, as a rule, its batch.

A float file is its own truth: LiteRT runs it in fp32 and every other way of running it is compared with that. A
quantised file holds no fp32 network any more. There is nothing to compare its answers with, so its result carries no
verification and can never be the pick; a float file of the same network, converted with and without quantisation
from its source, can be judged.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgescope import cache
from edgescope.errors import UnsupportedError, UsageError
from edgescope.models import synthetic, zoo
from edgescope.models.base import Purpose, Samples
from edgescope.models.user.files import Shapes, fixed
from edgescope.records import ModelInfo, digest
from edgescope.registry import need

if TYPE_CHECKING:
    import torch

VERSION = 1  # raise when what is kept of a file changes
FIX = "pip install 'edgescope[litert]'"


class TfliteFile:
    """A .tflite file. Open axes other than the batch are fixed by `shapes`."""

    def __init__(self, name: str, shapes: Shapes | None = None) -> None:
        self._path = Path(name)
        content = zoo.file_digest(self._path)
        known = cache.folder("models") / f"tflite-{VERSION}-{content}.json"
        about = cache.read_json(known)
        if about is None:
            about = need("edgescope.artifacts.tflite_reader:describe", name, FIX)(self._path)
            cache.write_json(known, about)
        self.inputs = fixed(name, about["inputs"], shapes or {})
        self._batches = {given["name"]: given["dims"][0] for given in about["inputs"]}
        self._ranges = {i["name"]: _range(i["dtype"], i["quantised"]) for i in about["inputs"]}
        self.kinds: dict[str, int] = about["kinds"]
        self.reduced: bool = about["reduced"]
        self.quantised = any(kind not in ("fp32", "fp64") for kind in self.kinds)
        self.reference = "none" if self.quantised else "litert"
        self.info = ModelInfo(
            name=self._path.name,
            task="unknown",
            trained=False,
            source=_source(self._path.name, self.quantised),
            digest=digest([content, [spec.shape for spec in self.inputs]]),
            params=about["params"],
        )

    @property
    def closed_batch(self) -> int | None:
        """Return the batch size that the file was converted for; None where its batch axis is open."""
        return next((size for size in self._batches.values() if isinstance(size, int)), None)

    def check_batch(self, batch: int) -> None:
        """Raise UsageError where the file was converted for another batch."""
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
        """Refuse: a file holds no PyTorch network."""
        raise self._only_litert("PyTorch cannot run it")

    def onnx(self, folder: Path, opset: int | None = None) -> Path:
        """Refuse: a .tflite cannot be turned back."""
        raise self._only_litert("there is no way from it to ONNX")

    def _only_litert(self, why: str) -> UnsupportedError:
        return UnsupportedError(
            "E-MODEL-6", f"{self.info.name} is a .tflite file, {why}", fix="--backend litert"
        )

    def samples(self, purpose: Purpose, n: int) -> Samples | None:
        """Return seeded random inputs in the file's own layout: what the network expects is not known."""
        return synthetic.samples(self.inputs, purpose, n, ranges=self._ranges)


def _range(dtype: str, quantised: bool) -> tuple[int, int]:
    """Return the values a whole-number input may take: all of its type where they stand for a real number."""
    if not quantised or np.dtype(dtype).kind not in "iu":
        return 0, 1
    about = np.iinfo(dtype)
    return int(about.min), int(about.max)


def _source(name: str, quantised: bool) -> str:
    text = f"TFLite file {name}; what it was trained for is not known"
    if quantised:
        text += "; it is quantised and holds no fp32 network, so its outputs are not verified"
    return text
