"""How each claim of the study is judged that this machine alone can answer."""

from __future__ import annotations

from edgescope.analysis.cells.replicates import above
from edgescope.records import Measured
from edgescope.units import show
from edgescope.wings.studies.anomaly_detection.cells import MEMORY, Cells, gain
from edgescope.wings.studies.claim import Found, Voice, heard, held, unknown

CAMERA_FPS, MEMORY_BYTES = 30.0, 3.11e9
NOTHING = "no engine ran the chain"


def real_time(cells: Cells) -> Found:
    """The fastest engine does 30 frames/s or more."""
    best = cells.fastest
    if best is None:
        return unknown(NOTHING)
    rate = best.fps
    text = f"{best.engine}: {show(rate)}, a camera gives {CAMERA_FPS:g} frames/s"
    holds = above(rate, CAMERA_FPS, exact=True)
    if holds is None and isinstance(rate, Measured) and rate.value < CAMERA_FPS / 2:
        holds = False
    return heard([Voice(holds, text, [best.row])], "chain", NOTHING)


def optimised(cells: Cells) -> Found:
    """Every optimising engine beats PyTorch as it is, in the same precision."""
    engines = cells.of("engines")
    voices = [
        held(gain(cell, eager), (f"{cell.engine}: ", f" of {eager.engine}"), [cell.row, eager.row])
        for eager in engines
        if eager.trial.backend == "torch_eager" and eager.runs
        for cell in engines
        if cell.runs and cell.trial.backend != "torch_eager" and cell.trial.precision == eager.trial.precision
    ]
    found = [voice for voice in voices if voice is not None]
    return heard(found, "engines", "PyTorch and another engine are needed", "frames/s over PyTorch's")


def memory(cells: Cells) -> Found:
    """No engine's chain takes more than 3.11 GB, the GPU's share included where it is the same memory."""
    voices = []
    for cell in cells.of("engines"):
        if isinstance(peak := cell[MEMORY], Measured):
            ratio = Measured(peak.value / MEMORY_BYTES, "1")
            voice = held(ratio, (f"{cell.engine}: ", " of 3.11 GB"), [cell.row], rises=False, exact=True)
            fits = peak.value <= MEMORY_BYTES
            voices.append(
                Voice(fits, f"{cell.engine}: {show(peak)}", [cell.row], ratio.value)
                if voice is None
                else voice
            )
    return heard(voices, "engines", NOTHING, "memory over 3.11 GB", read_off=True)
