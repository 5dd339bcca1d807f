"""What is known of the OpenVINO backend without OpenVINO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from edgescope.backends.base import About, Tried, tried


class AboutOpenVino(About):
    """openvino."""

    PRECISIONS: ClassVar[Mapping[str, Sequence[str]]] = {"cpu": ("fp32", "bf16", "int8")}
    CANDIDATES: ClassVar[Mapping[str, Sequence[Tried]]] = {
        "cpu": (*tried("fp32 bf16 int8"), *tried("int8", {"qdq": "s8s8"}))
    }
    PACKAGES: ClassVar[Sequence[str]] = ("openvino",)
