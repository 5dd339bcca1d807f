"""The candidates for one model on this machine, and the rounds in which they are compared.

Every round runs each candidate once, in a fresh process, in random order; the speed-up over the baseline is then
taken within rounds, so a machine that gets slower half-way slows both sides of each ratio. A candidate whose
outputs are wrong, or that cannot run here, leaves after its first round.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from edgescope.records import Result, Scalar, Status, Trial
from edgescope.sweep import Cells, Progress, Tell

#: Backend, precision, options: what is worth trying on a CPU; the first is the baseline.
CPU_CANDIDATES: tuple[tuple[str, str, dict[str, Scalar]], ...] = (
    ("torch_eager", "fp32", {}),
    ("torch_eager", "bf16", {"layout": "channels_last"}),
    ("torch_compile", "fp32", {"layout": "channels_last"}),
    ("onnxruntime", "fp32", {}),
    ("onnxruntime", "int8", {}),
    ("openvino", "fp32", {}),
    ("openvino", "bf16", {}),
    ("openvino", "int8", {}),
)


@dataclass(frozen=True)
class Rounds:
    """How many fresh-process rounds, and in which random order."""

    count: int = 5
    seed: int = 0


def candidates(base: Trial) -> list[Trial]:
    """Return the trials to compare, baseline first; of an ONNX file, those of engines that read one."""
    reads_onnx = (
        base.model.partition("#")[0].lower().endswith(".onnx")
    )  # the name tells; no user code runs here
    table = [c for c in CPU_CANDIDATES if not (reads_onnx and c[0].startswith("torch"))]
    return [
        replace(base, backend=backend, precision=precision, options={**options, **base.options})
        for backend, precision, options in table
    ]


def optimize(
    trials: Sequence[Trial],
    cells: Cells,
    *,
    rounds: Rounds = Rounds(),
    tell: Tell = lambda progress: None,
) -> Iterator[Result]:
    """Run the candidates round by round; yield each Result, also of those the store already holds."""
    alive, rng = list(trials), random.Random(rounds.seed)
    known = cells.finished()
    for number in range(rounds.count):
        cell_trials = [replace(t, replicate=number) for t in alive]
        rng.shuffle(cell_trials)
        for position, trial in enumerate(cell_trials):
            done = number * len(alive) + position
            tell(Progress(done, rounds.count * len(alive), trial, None))
            found = known.get(trial.id) or cells.run(trial)
            yield found
            if found.status is Status.UNSTABLE:  # the machine was, most likely: once more
                found = cells.run(trial)
                yield found
            if found.status not in (Status.OK, Status.UNSTABLE):
                alive = [t for t in alive if t.cell != trial.cell]
