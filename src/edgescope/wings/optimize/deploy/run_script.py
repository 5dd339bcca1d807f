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

HEAD = '''"""{model}, {label}: runs with numpy and {engine} alone.
How it was made, measured and checked: card.md.

python run.py                          answers sample.npz and compares with fp32
{picture}python run.py INPUTS.npz OUTPUTS.npz   arrays by name; rows a multiple of {batch}
python run.py --check DATA             repeats card.md's accuracy check on DATA

All but the last also print the median time of up to 30 more calls.
"""

import argparse
{system}import sys
import time
from pathlib import Path

import numpy as np
{imports}

HERE, BATCH, INPUTS = Path(__file__).parent, {batch}, {inputs}
PICTURES = {pictures}
'''

PICTURE = "python run.py PICTURE                  answers it, prepared as card.md says\n"

#: Read before the engine loads its file, so that --help and a mistake are answered at once.
ARGUMENTS = """

def arguments():
    how = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="run.py", description=__doc__, formatter_class=how)
    parser.add_argument("input", nargs="?", metavar="INPUT", help="a picture, or an .npz file; without one sample.npz")
    parser.add_argument("outputs", nargs="?", metavar="OUTPUTS.npz", help="file to write the outputs to")
    parser.add_argument("--check", nargs="?", const=".", metavar="DATA", help="repeat the accuracy check")
    args = parser.parse_args()
    if args.check is not None and args.input is not None:
        parser.error("--check takes no INPUT beside its DATA")
    for path in filter(None, (args.input, args.check)):
        if not Path(path).exists():
            parser.error(f"there is no {path}")
    if args.input and not args.input.endswith(".npz") and not PICTURES:
        parser.error(f"{args.input}: INPUT is an .npz file here; how pictures become inputs is not known")
    return args


ASKED = arguments() if __name__ == "__main__" else None
"""

TAIL = """

def seconds(batch, calls=30, most=3.0):
    taken = []
    while len(taken) < calls and sum(taken) < most:
        start = time.perf_counter()
        run(batch)
        taken.append(time.perf_counter() - start)
    return taken


def read(path):
    if not path.endswith(".npz"):
        return check.picture(Path(path), HERE, BATCH)
    given = dict(np.load(path))
    if missing := [n for n in INPUTS if n not in given]:
        sys.exit(f"run.py: {path} does not hold the input {', '.join(missing)}")
    return given


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    import check

    check.warn(HERE)
    if ASKED.check is not None:
        sys.exit(check.main(run, BATCH, HERE, Path(ASKED.check)))
    given = read(ASKED.input or str(HERE / "sample.npz"))
    batches = [{n: given[n][i : i + BATCH] for n in INPUTS} for i in range(0, len(given[next(iter(INPUTS))]), BATCH)]
    parts = [[np.array(a) for a in run(batch)] for batch in batches]
    outputs = [np.concatenate(column) for column in zip(*parts)]
    if ASKED.outputs:
        np.savez(ASKED.outputs, **{f"output_{i}": a for i, a in enumerate(outputs)})
    for i, a in enumerate(outputs if not ASKED.outputs else ()):
        beside = None if ASKED.input else given[f"fp32_{i}"]
        print(f"output {i} {a.shape}: {check.described(a, beside)}")
    taken = seconds(batches[0])
    print(f"median of {len(taken)} calls: {sorted(taken)[len(taken) // 2]:.6g} s")
"""


def script(trial: Trial, file: str, inputs: Mapping[str, tuple[int, ...]], *, pictures: bool = False) -> str:
    """Return the text of run.py for a trial; UnsupportedError if its backend has no lines for it.

    `inputs`: the shape that each input had when the trial was measured, without the batch axis; `pictures`: whether it
    is known how a picture becomes the input.
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
        picture=PICTURE if pictures else "",
        pictures=pictures,
    )
    return head + ARGUMENTS + lines.lines + TAIL


def left_out(trial: Trial) -> tuple[str, ...]:
    """Return the options of a trial that run.py leaves out: the answers are the same, the speed differs."""
    return _lines(trial, "").left_out


def _lines(trial: Trial, file: str) -> Script:
    about = registry.about(trial.backend)
    if not isinstance(about, Scripted):
        raise UnsupportedError("E-DEPLOY-2", f"there is no run.py for {trial.backend} yet")
    return about.run_script(trial, file)
