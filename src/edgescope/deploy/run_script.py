"""Makes run.py of a deployed model, which runs the variant with its engine alone.

The backend gives the lines that load the file and run it (backends.base.Scripted); the rest is the same for every
engine.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgescope import registry
from edgescope.backends.base import Script, Scripted
from edgescope.errors import UnsupportedError
from edgescope.records import Trial

HEAD = '''"""{model}, {label}: runs with numpy and {engine} alone. How it was made, measured and checked: card.md.

python run.py                          answers sample.npz and compares with fp32
python run.py INPUTS.npz OUTPUTS.npz   arrays by input name; rows a multiple of the batch {batch}
python run.py --check DATA             judges it again on the data it was judged on (needs Pillow for pictures)

The first two end with the median time of up to 30 more calls on the first batch.
"""

{system}import sys
import time
from pathlib import Path

import numpy as np
{imports}

HERE, BATCH, INPUTS = Path(__file__).parent, {batch}, {inputs}
'''

TAIL = """

def seconds(batch, calls=30, most=3.0):
    taken = []
    while len(taken) < calls and sum(taken) < most:
        start = time.perf_counter()
        run(batch)
        taken.append(time.perf_counter() - start)
    return taken


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    import check

    check.warn(HERE)
    if sys.argv[1:2] == ["--check"]:
        sys.exit(check.main(run, BATCH, HERE, Path((sys.argv + ["."])[2])))
    given = dict(np.load(sys.argv[1] if len(sys.argv) > 2 else HERE / "sample.npz"))
    batches = [{n: given[n][i : i + BATCH] for n in INPUTS} for i in range(0, len(given[next(iter(INPUTS))]), BATCH)]
    parts = [[np.array(a) for a in run(batch)] for batch in batches]
    outputs = [np.concatenate(column) for column in zip(*parts)]
    if len(sys.argv) > 2:
        np.savez(sys.argv[2], **{f"output_{i}": a for i, a in enumerate(outputs)})
    else:
        for i, a in enumerate(outputs):
            print(f"output {i} {a.shape}: differs from fp32 by at most {np.abs(a - given[f'fp32_{i}']).max():.3g}")
    taken = seconds(batches[0])
    print(f"median of {len(taken)} calls: {sorted(taken)[len(taken) // 2]:.6g} s")
"""


def script(trial: Trial, file: str, inputs: Mapping[str, tuple[int, ...]]) -> str:
    """Return the text of run.py for a trial; UnsupportedError if its backend has no lines for it.

    `inputs`: the shape that each input had when the trial was measured, without the batch axis.
    """
    lines = _lines(trial, file)
    head = HEAD.format(
        model=trial.model.partition("#")[0],
        label=trial.label,
        engine=lines.engine,
        system="import os\n" if "os.sched_getaffinity" in lines.lines else "",
        imports=lines.imports,
        batch=trial.batch,
        inputs=dict(inputs),
    )
    return head + lines.lines + TAIL


def left_out(trial: Trial) -> tuple[str, ...]:
    """Return the options of a trial that run.py leaves out: the answers are the same, the speed differs."""
    return _lines(trial, "").left_out


def _lines(trial: Trial, file: str) -> Script:
    about = registry.about(trial.backend)
    if not isinstance(about, Scripted):
        raise UnsupportedError("E-DEPLOY-2", f"there is no run.py for {trial.backend} yet")
    return about.run_script(trial, file)
