"""The engines of generation: the facts that need none of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from edgescope.backends.base import About
from edgescope.records import Place


class AboutGenAi(About):
    """openvino_genai."""

    PRECISIONS: ClassVar[Mapping[str, Sequence[str]]] = dict.fromkeys(
        ("cpu", "intel_gpu", "intel_npu"), ("as_is", "fp32")
    )
    """fp32 stands for `as_is`: what nobody asked otherwise."""
    READS: ClassVar[frozenset[str]] = frozenset({"gguf"})
    BUILDS: ClassVar[bool] = False
    PACKAGES: ClassVar[Sequence[str]] = ("openvino-genai", "openvino", "openvino-tokenizers")


class AboutDecoder(About):
    """torch_decoder."""

    PRECISIONS: ClassVar[Mapping[str, Sequence[str]]] = {
        "cpu": ("as_is", "fp32", "bf16"),
        "cuda": ("as_is", "fp32", "tf32", "bf16", "fp16"),
    }
    READS: ClassVar[frozenset[str]] = frozenset({"gguf"})
    BUILDS: ClassVar[bool] = False
    COMPILES: ClassVar[bool] = False
    PACKAGES: ClassVar[Sequence[str]] = ("torch", "gguf")


class AboutLlamaBench(About):
    """llama_bench: a program, which computes with the file as it is."""

    PRECISIONS: ClassVar[Mapping[str, Sequence[str]]] = dict.fromkeys(("cpu", "cuda"), ("as_is",))
    READS: ClassVar[frozenset[str]] = frozenset({"gguf"})
    BUILDS: ClassVar[bool] = False


EVERY_SCOPE = ("wall", "carrier", "module", "sum_of_rails", "gpu_board", "cpu_package", "rail")
"""analysis.run.energy_window.SCOPES, which needs NumPy."""
SERVER = Place("server", "server", unseen_by=EVERY_SCOPE)
"""Where a server computes: which machine that is, and what on it, is not known from its interface.

No meter of this machine can be said to see it; `--device cpu` or `cuda` says so of a server that runs here.
"""


class AboutOpenAi(About):
    """openai: a server, which alone knows its precision and its device."""

    PRECISIONS: ClassVar[Mapping[str, Sequence[str]]] = dict.fromkeys(("server", "cpu", "cuda"), ("as_is",))
    READS: ClassVar[frozenset[str]] = frozenset({"endpoint"})
    BUILDS: ClassVar[bool] = False
