"""What is known of the backend without its engine."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from edgescope.backends.base import About, Tried, tried


class AboutReference(About):
    """onnx_reference: one candidate of `optimize`."""

    PRECISIONS: ClassVar[Mapping[str, Sequence[str]]] = {"cpu": ("fp32",), "simulated": ("fp32",)}
    CANDIDATES: ClassVar[Mapping[str, Sequence[Tried]]] = {
        "cpu": tried("fp32"),
        "simulated": tried("fp32"),
    }
    PACKAGES: ClassVar[Sequence[str]] = ("onnx",)
