"""What is known of the LiteRT backend without LiteRT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from edgescope.backends.base import About, Tried, tried


class AboutLiteRt(About):
    """litert."""

    PRECISIONS: ClassVar[Mapping[str, Sequence[str]]] = {"cpu": ("fp32", "fp16", "int8")}
    CANDIDATES: ClassVar[Mapping[str, Sequence[Tried]]] = {"cpu": tried("fp32 int8")}
    READS: ClassVar[frozenset[str]] = frozenset({"network", "tflite"})
    PACKAGES: ClassVar[Sequence[str]] = ("ai-edge-litert",)
