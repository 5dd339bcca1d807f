"""Cells that cannot be, found before an hour is spent on their neighbours; no engine is imported for it.

What only the machine can say (has this CPU bf16? has this GPU MPS?) is not here: such a cell is tried and its Result
says `unsupported` with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from edgescope.records import Trial
from edgescope.scenarios import settings

_TORCH = {"cpu": ("fp32", "bf16"), "cuda": ("fp32", "tf32", "fp16", "bf16")}
#: Backend -> device -> precisions that it has a path for on some machine; a backend that is not here has no limits.
PRECISIONS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "torch_eager": _TORCH,
    "torch_compile": _TORCH,
    "onnxruntime": {"cpu": ("fp32", "int8"), "cuda": ("fp32", "tf32", "fp16")},
    "openvino": {"cpu": ("fp32", "bf16", "int8")},
    "litert": {"cpu": ("fp32", "fp16", "int8")},
}


@dataclass(frozen=True)
class Conflict:
    """Two or more keys of a cell that exclude each other."""

    keys: tuple[str, ...]
    what: str

    def exclude(self, trial: Trial) -> str:
        """Return the table that drops such cells, on one line."""
        pairs = ", ".join(f"{k} = {_written(getattr(trial, k))}" for k in self.keys)
        return f"[[exclude]] {pairs}"


def _written(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def conflicts(trial: Trial) -> Iterator[Conflict]:
    """Yield what makes this cell impossible."""
    if trial.sharing.startswith("mps") and trial.device != "cuda":
        yield Conflict(
            ("sharing", "device"), f"{trial.sharing} shares a GPU, and the device is {trial.device}"
        )
    if trial.io != "host" and trial.device != "cuda":
        what = f"io {trial.io} needs a device with memory of its own, and the device is {trial.device}"
        yield Conflict(("io", "device"), what)
    if trial.rate is not None and trial.scenario not in settings.RATED:
        what = f"{trial.scenario} offers nothing at a rate: {', '.join(settings.RATED)} do"
        yield Conflict(("rate", "scenario"), what)
    able = PRECISIONS.get(trial.backend, {}).get(trial.device)
    if able and trial.precision not in able:
        what = f"{trial.backend} has no {trial.precision} on {trial.device}: it has {', '.join(able)}"
        yield Conflict(("backend", "precision"), what)
