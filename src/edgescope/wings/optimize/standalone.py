"""What of a deployed model runs without edgescope: run.py, and what `python run.py --check DATA` needs beside it.

run.py                runs the variant with its engine alone: the backend gives the lines that load the file and run it
                      (backends.base.Scripted); the rest is the same for every engine
check.py              finds the judged inputs in DATA and judges run.py by them: check.py as it is
check_measure.py      the measures (verify/measures.py), check_metric.py the user's own function
check_preprocess.py   how pictures become inputs, cut out of edgescope's own code
check.npz             the judged inputs' digests, what is right for them, what the measure keeps of fp32's answers
"""

from __future__ import annotations

import ast
import inspect
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope import registry
from edgescope.backends.base import Script, Scripted
from edgescope.errors import UnsupportedError
from edgescope.models import zoo
from edgescope.models.base import Model, Samples
from edgescope.models.image import preprocess
from edgescope.models.image.preprocess import Preprocess
from edgescope.records import Field, Json, Measured, Result, Trial, Verification
from edgescope.records.codec import to_plain
from edgescope.verify import judge, measures, metric_names
from edgescope.verify.judge import Basis, Reference
from edgescope.verify.measures import MeanAp, TopK

ALONE = ("FILTERS", "Placed", "Preprocess", "_several", "upright")
"""What makes an input of a picture, in models/image/preprocess.py."""
LAZY, PLAIN = (
    "from edgescope.records.lazy import NDArray, np\n",
    "import numpy as np\nfrom numpy.typing import NDArray\n",
)
"""How a module here imports NumPy, and how a file does that stands alone."""
FILES = frozenset(
    {"check.py", "check.npz", "metric.pkl"}
    | {f"check_{name}.py" for name in ("measure", "metric", "preprocess")}
)


def fill(folder: Path, model: Model, trial: Trial, truth: Reference, answer: Verification) -> Json:
    """Put what a check needs into `folder`; return what the card says of it, {"absent": reason} where there is none."""
    of = judge.basis(model, trial.metric)
    if not trial.data:
        return {
            "absent": "edgescope optimize ran without --data; python run.py alone compares sample.npz with fp32"
        }
    if answer.method == "top1_agreement":
        return _agreement(folder, model, of, truth, answer)
    if answer.method == "centred_l2":
        return _closeness(folder, model, of, truth, answer) | {"beside": [_ranks(trial, answer)]}
    boxes = answer.method == "box_agreement"
    if boxes or of.measure is None or of.labelled is None or truth.tally is None:
        by_boxes = "it was judged by its boxes and fp32's, which run.py does not read"
        return {"absent": by_boxes if boxes else f"nothing judged it: {answer.detail}"}
    value, fp32 = (answer.fields[name] for name in ("accuracy", "reference_accuracy"))
    assert isinstance(value, Measured) and isinstance(fp32, Measured)
    about = {
        "measure": type(of.measure).__name__,
        "title": of.measure.title,
        "k": getattr(of.measure, "k", 0),
    }
    about |= {"value": value.value, "fp32": fp32.value, "floor": -(1 - answer.threshold) * abs(fp32.value)}
    if isinstance(of.measure, MeanAp) and not trial.metric.startswith(metric_names.READ_BY):
        why = f"its boxes are read by edgescope's code for {model.info.name}: --metric map@module:callable names yours"
        return {"absent": why}
    if about["measure"] in ("Own", "MeanAp"):
        about["function"] = _own(folder, trial.metric)
    return about | _kept(folder, model, of.labelled, _right(of.labelled), truth.tally)


def preprocessing(folder: Path, model: Model) -> Json:
    """Write how a picture becomes the input to `folder`; return it for the card, None where it is not known."""
    prepare = getattr(model, "preprocess", None)
    if not isinstance(prepare, Preprocess) or len(model.inputs) != 1:
        return None
    text = alone(preprocess, ALONE)
    keys = ", ".join(f"{name}={value!r}" for name, value in asdict(prepare).items())
    (folder / "check_preprocess.py").write_text(f"{text}\n\nPREPROCESS = Preprocess({keys})\n")
    return to_plain(asdict(prepare) | {"said": prepare.said})


def _right(labelled: Samples) -> dict[str, Any]:
    """Return what is right for each input, as check.npz holds it."""
    if labelled.boxes is not None:
        counts = [len(boxes) for boxes in labelled.boxes]
        return {"boxes": np.concatenate(labelled.boxes), "counts": counts}
    return {} if labelled.labels is None else {"labels": np.array(labelled.labels)}


def _agreement(folder: Path, model: Model, of: Basis, truth: Reference, answer: Verification) -> Json:
    """Agreement with fp32 is the top-1 accuracy by labels that fp32 gives."""
    labels = truth.gate[0].argmax(axis=1).astype(np.int64)
    about = _by("TopK", "top-1 agreement with fp32", answer.fields["top1_agreement"], 1.0)
    about |= {"k": 1, "floor": answer.threshold - 1}
    rank = TopK(labels).tally(truth.gate, slice(None))
    return about | _kept(folder, model, of.gate.first(len(labels)), {"labels": labels}, rank)


def _closeness(
    folder: Path, model: Model, of: Basis, truth: Reference, answer: Verification
) -> dict[str, Any]:
    """The centred distance, negative because more is better; fp32's outputs are what it is measured from."""
    about = _by("Closeness", "minus the centred distance from fp32", answer.fields["centred_l2"], 0.0)
    about |= {"value": -about["value"], "ranks": False, "floor": -answer.threshold}
    return about | _kept(folder, model, of.gate.first(len(truth.gate[0])), {}, truth.gate)


def _ranks(trial: Trial, answer: Verification) -> dict[str, Any]:
    floor = max(judge.RANK_FLOOR, trial.min_agreement or 0.0) - 1
    about = _by("Closeness", "rank agreement with fp32", answer.fields["rank_agreement"], 1.0)
    return about | {"ranks": True, "floor": floor}


def _by(measure: str, title: str, found: Field, fp32: float) -> dict[str, Any]:
    assert isinstance(found, Measured)
    return {"measure": measure, "title": title, "value": found.value, "fp32": fp32}


def _kept(
    folder: Path, model: Model, samples: Samples, right: dict[str, Any], tally: tuple[NDArray[Any], ...]
) -> dict[str, Any]:
    """Write check.npz and check_measure.py; return the inputs as the card says them."""
    (folder / "check_measure.py").write_text(inspect.getsource(measures))
    fp32: dict[str, Any] = {f"fp32_{i:02d}": part for i, part in enumerate(tally)}
    np.savez_compressed(folder / "check.npz", digests=np.array(samples.digests), **right, **fp32)
    inputs = {spec.name: {"shape": list(spec.shape), "dtype": spec.dtype} for spec in model.inputs}
    return {"n": len(samples), "inputs": inputs}


def _own(folder: Path, metric: str) -> str:
    """Copy the user's function; return its name, or that of the file that holds it."""
    bare = metric_names.PIN.sub("", metric)
    if bare.startswith(metric_names.LIVE):
        shutil.copyfile(metric_names.kept(metric), folder / "metric.pkl")
        return "metric.pkl"
    module, _, name = bare.removeprefix(metric_names.READ_BY).partition(":")
    source = zoo.source_file(module)
    assert source is not None
    shutil.copyfile(source, folder / "check_metric.py")
    return name


def alone(module: ModuleType, names: tuple[str, ...]) -> str:
    """Return the source of some of a module's definitions, with the imports that are not edgescope's."""
    text = inspect.getsource(module).replace(LAZY, PLAIN)
    lines = text.splitlines()
    kept = ["\n".join(lines[_first(n) - 1 : n.end_lineno]) for n in ast.parse(text).body if _needed(n, names)]
    return '"""How pictures become inputs: cut out of edgescope."""\n\n' + "\n".join(kept) + "\n"


def _first(node: ast.stmt) -> int:
    """Return the line that a definition begins on, with its decorators."""
    first: int = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
    return first


def _needed(node: ast.stmt, names: tuple[str, ...]) -> bool:
    if isinstance(node, ast.ImportFrom):
        return not str(node.module).startswith("edgescope")
    if isinstance(node, ast.Import):
        return True
    if isinstance(node, ast.Assign):
        return any(isinstance(t, ast.Name) and t.id in names for t in node.targets)
    return isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name in names


def valid_for(result: Result) -> dict[str, Json]:
    """Return what the figures hold for: the engine's versions, the processor, the driver."""
    cpu, nvidia = (result.machine.stable.get(name, {}) for name in ("cpu", "nvidia"))
    packages = result.machine.state.get("packages", {})
    names = ("numpy", *registry.about(result.trial.backend).PACKAGES)
    told = {name: packages[name] for name in names if isinstance(packages.get(name), str)}
    told = (
        {} if "plan" in result.machine.state.get("agent", {}) else told
    )  # those of the machine that planned
    isa, model = cpu.get("isa"), cpu.get("cpu")
    driver = {**nvidia, **result.machine.state.get("nvidia", {})}.get("driver")
    found: dict[str, Json] = {"packages": told, "cpu": model, "isa": isa}
    if result.trial.place.cuda:
        found["driver"] = driver
    return {
        name: value for name, value in found.items() if isinstance(value, str | list) or name == "packages"
    }


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
