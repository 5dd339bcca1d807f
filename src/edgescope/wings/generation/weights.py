"""The weights of a GGUF file: as arrays of float32, read when they are asked for, or written again as Q8_0."""

from __future__ import annotations

from collections.abc import Mapping
from mmap import ACCESS_READ, mmap
from pathlib import Path

from edgescope.errors import UnsupportedError
from edgescope.records.lazy import NDArray, np
from edgescope.registry import need
from edgescope.wings.generation.gguf_file import Tensor

PLAIN = {"F32": "<f4", "F16": "<f2"}


class Weights:
    """The tensors of one file."""

    def __init__(self, path: Path, tensors: Mapping[str, Tensor]) -> None:
        self.tensors, self.name = tensors, path.name
        with path.open("rb") as file:
            self._data = mmap(file.fileno(), 0, access=ACCESS_READ)

    def find(self, name: str) -> NDArray[np.float32] | None:
        """Return a tensor, dequantised, or None; UnsupportedError for a kind that the package gguf does not read."""
        held = self.tensors.get(name)
        if held is None:
            return None
        raw = np.frombuffer(self._data, np.uint8, held.bytes, held.start)
        if held.type in PLAIN:
            return raw.view(PLAIN[held.type]).reshape(held.shape).astype(np.float32)
        gguf = need(
            "gguf", "the package gguf, which reads quantised weights", "pip install 'edgescope[generate]'"
        )
        try:
            kind = gguf.GGMLQuantizationType[held.type]
            found: NDArray[np.float32] = gguf.dequantize(raw.reshape(*held.shape[:-1], -1), kind)
        except (KeyError, NotImplementedError) as error:
            raise UnsupportedError(
                "E-LM-22",
                f"the weights of {self.name} are stored in a way that cannot be read here",
                evidence=f"{name} is {held.type}",
                effect="Nothing was measured",
                fix="a file of Q8_0, Q4_0, Q4_1, Q4_K, Q6_K or F16, or another engine",
            ) from error
        return found


def rewritten(source: Path, target: Path) -> None:
    """Write a GGUF file with the same facts and its matrices as Q8_0, which adds a rounding to 8 bits.

    UnavailableError without the package `gguf`.
    """
    gguf = need("gguf", "the package gguf, which writes models", "pip install 'edgescope[generate]'")
    held = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, held.fields["general.architecture"].contents())
    for name, fact in held.fields.items():
        if not name.startswith("GGUF.") and name not in ("general.architecture", "general.file_type"):
            kind, *of = fact.types
            writer.add_key_value(name, fact.contents(), kind, of[-1] if of else None)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    for tensor in held.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        if values.ndim == 1:
            writer.add_tensor(tensor.name, values.astype(np.float32))
        else:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(tensor.name, gguf.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
