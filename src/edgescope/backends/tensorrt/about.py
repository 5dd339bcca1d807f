"""What is known of TensorRT without TensorRT, in process or through trtexec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from edgescope.backends.base import About, Tried, tried


class AboutTensorRt(About):
    """tensorrt and trtexec; which precisions there are is the GPU's and the version's to say."""

    CANDIDATES: ClassVar[Mapping[str, Sequence[Tried]]] = {"cuda": tried("fp32 tf32 fp16 int8")}
    PACKAGES: ClassVar[Sequence[str]] = ("tensorrt",)
