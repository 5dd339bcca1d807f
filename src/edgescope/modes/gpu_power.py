"""Sets the power limit of an NVIDIA board through nvidia-smi; only if the user gives --allow-power-limit.

`--mode gpu_power=200` asks the driver for 200 W on the GPU that CUDA calls 0, the first in CUDA_VISIBLE_DEVICES. With
several GPUs CUDA numbers them as the driver does only under CUDA_DEVICE_ORDER=PCI_BUS_ID, so no other order is
accepted. It needs root. A Jetson has no such limit: its power modes cap clocks.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from edgescope.devices.base import Journal, Mode, Undo
from edgescope.errors import SettingError, UnsupportedError, UsageError

ALLOWED = "EDGESCOPE_ALLOW_POWER_LIMIT"
_SMI = "nvidia-smi"
_LIMIT_S = 20
#: nvidia-smi prints the limit with two decimals; the driver rounds to whole milliwatts.
_SLACK_W = 0.51


class GpuPower(Mode):
    """A lower power limit on one GPU, in watts."""

    def __init__(self, watts: float) -> None:
        self.watts = watts

    @property
    def name(self) -> str:
        """Return the mode's name, as after --mode."""
        return f"gpu_power={self.watts:g}"

    def enter(self, journal: Journal) -> None:
        """Lower the limit; UsageError without the user's permission, UnsupportedError if there is no limit to set."""
        if os.environ.get(ALLOWED) != "1":
            raise UsageError(
                "E-MODE-7", "the power limit is left alone unless you say so", fix="--allow-power-limit"
            )
        index = board()
        now, lowest, highest = _limits(index)
        if not lowest <= self.watts <= highest:
            raise UsageError(
                "E-MODE-8",
                f"{self.watts:g} W is not a limit this GPU takes",
                evidence=f"{lowest:g} to {highest:g} W",
            )
        words = ("gpu_power", str(index), f"{now:g}")
        journal.note(self.name, Undo(f"GPU {index} power limit {now:g} W", words))
        put((str(index), f"{self.watts:g}"))
        problem = self.problem()
        if problem:
            raise SettingError(
                "E-MODE-2", "mode change not in effect", evidence=problem, effect="Nothing was measured"
            )

    def problem(self) -> str:
        """Return '' if the driver reports the limit, else the limit that it reports."""
        now = _limits(board())[0]
        return "" if abs(now - self.watts) < _SLACK_W else f"nvidia-smi says power.limit {now:g} W"

    def evidence(self) -> str:
        """Return the power limit that the driver reports."""
        index = board()
        return f"nvidia-smi -i {index}: power.limit {_limits(index)[0]:g} W"

    def features(self) -> Mapping[str, float]:
        """Return the power limit in watts."""
        return {"gpu_power_w": self.watts}


def board(environ: Mapping[str, str] = os.environ) -> int:
    """Return the driver's number for the GPU that CUDA calls 0; UsageError E-MODE-13 if it cannot be known."""
    visible = environ.get("CUDA_VISIBLE_DEVICES", "")
    first = visible.split(",")[0].strip() or "0"
    known = re.fullmatch("[0-9]{1,3}", first, re.ASCII) is not None
    why = "" if known else f"CUDA_VISIBLE_DEVICES={visible}"
    order = environ.get("CUDA_DEVICE_ORDER", "")
    if known and order != "PCI_BUS_ID":
        gpus = sum(line.startswith("GPU ") for line in _smi("-L").splitlines())
        why = f"{gpus} GPUs, CUDA_DEVICE_ORDER={order or 'not set'}" if gpus > 1 else ""
    if why:
        raise UsageError(
            "E-MODE-13",
            "it is not known which GPU's power limit to set",
            evidence=why,
            fix="CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0 edgescope ...",
        )
    return int(first)


def _limits(index: int) -> tuple[float, float, float]:
    """Return the present, the lowest and the highest allowed limit in watts."""
    query = "--query-gpu=power.limit,power.min_limit,power.max_limit"
    text = _smi("-i", str(index), query, "--format=csv,noheader,nounits")
    try:
        now, lowest, highest = (float(word) for word in text.split(","))
    except ValueError as error:  # [N/A] if a board has none
        raise UnsupportedError(
            "E-MODE-9", f"GPU {index} has no power limit", evidence=text.strip()[:100]
        ) from error
    return now, lowest, highest


def put(words: Sequence[str], root: Path = Path("/")) -> str:
    """Set the limit of GPU words[0] to words[1] watts, unless it is that already."""
    index, watts = words
    if abs(_limits(int(index))[0] - float(watts)) < _SLACK_W:
        return ""
    return _smi("-i", index, "-pl", watts)


def _smi(*words: str) -> str:
    try:
        done = subprocess.run(
            [_SMI, *words], capture_output=True, text=True, errors="replace", timeout=_LIMIT_S, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UnsupportedError(
            "E-MODE-9", "there is no power limit to set here", evidence=str(error)
        ) from error
    if done.returncode:
        text = " ".join((done.stdout + done.stderr).split())[-300:]
        raise SettingError(
            "E-MODE-4", f"nvidia-smi {' '.join(words)} failed", evidence=text, fix="run as root"
        )
    return done.stdout
