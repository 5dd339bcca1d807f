"""Writes a folder that runs the picked variant without edgescope and holds the evidence for its figures.

    DIR/model.onnx | model.pt2 | ...   the file that the engine reads (for PyTorch: the module as torch.export sees it)
        run.py                         loads and runs it with that engine alone
        sample.npz                     one batch of inputs, and the fp32 answers to them
        card.md, card.json             how it was built, measured and checked, and for which machine that holds
        check.py, check_*, check.npz   `python run.py --check DATA`: the gate again, on the data it was judged on

Before the card is written, run.py has answered the accuracy gate's inputs in a fresh process and its outputs have
passed the same gate: the folder holds the very file that was judged, not a rebuilt one. Of what a board sent back
(returned.py) run.py cannot be tried here, and the card says so. Everything is written in a folder next to DIR, which
gets DIR's name once run.py has passed: an earlier DIR is replaced whole or stays unchanged.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import edgescope
from edgescope import cache
from edgescope.analysis.cells import variants
from edgescope.analysis.cells.objective import FASTEST, Wanted
from edgescope.analysis.cells.row import Row
from edgescope.analysis.cells.variants import VariantTable
from edgescope.bench.parts import HERE
from edgescope.errors import Message, StoreError, UsageError, WrongOutputError
from edgescope.isolate import fresh
from edgescope.metrics import METRICS
from edgescope.models.base import Model, Purpose
from edgescope.records import Json, Measured, Result, Trial, Verification
from edgescope.records.codec import field_to_json, to_plain
from edgescope.registry import need
from edgescope.verify import judge, reference
from edgescope.verify.judge import Reference, Run
from edgescope.wings.optimize import check, standalone

TIMEOUT_S = 1800.0
#: The driver of a result that a person brought from a board (returned.py): run.py cannot be tried here.
ELSEWHERE = "plan"
CARD = "card.json"
#: What such folders hold beside the files that their cards name.
OWN = frozenset({CARD, "card.md", "run.py", "sample.npz", "__pycache__"}) | standalone.FILES
UNTRIED = "and others, by trtexec on the board. **run.py has never run**: `python run.py` there compares it with fp32."
#: What run.py prints of its own speed.
TIMED = re.compile(r"^median of (\d+) calls: (\S+) s$", re.MULTILINE)


@dataclass(frozen=True)
class Proof:
    """The gate's judgement of run.py's outputs, and the speed of run.py in the same process."""

    checked: Verification
    calls: int
    median_s: float


def ready(folder: Path) -> Path:
    """Return `folder` if it may be filled: it is new, empty or written by an earlier save; UsageError otherwise.

    Nothing is left on the disk: what is refused later leaves no empty folder.
    """
    try:
        other = _others(folder)
        if not other:
            with tempfile.TemporaryDirectory(dir=_above(folder), prefix=".edgescope-"):
                pass  # the new folder will be made there
    except OSError as error:
        raise UsageError(
            "E-DEPLOY-7",
            f"--save {folder}: the folder cannot be made or replaced",
            evidence=str(error),
            effect="Nothing was measured or written",
            fix="--save a folder in one that you can write",
        ) from error
    if other:
        raise UsageError(
            "E-DEPLOY-1",
            f"{folder} holds something else",
            evidence=", ".join(other[:5]),
            effect="Nothing was measured or written",
            fix="--save a new folder",
        )
    return folder


def _above(folder: Path) -> Path:
    """Return the nearest folder above that exists."""
    return next(p for p in folder.resolve().parents if p.exists())


def _others(folder: Path) -> list[str]:
    """Return the names in `folder` that no earlier save has written, or its own name if it is a file."""
    if not folder.is_dir():
        return [folder.name] if folder.exists() else []
    card = cache.read_json(folder / CARD)
    made = card.get("artifact", {}) if isinstance(card, dict) else {}
    names = (made.get("file", ""), *made.get("weights", {}))
    own = OWN | {Path(name).parts[0] for name in names if name} if made else frozenset()
    return sorted(path.name for path in folder.iterdir() if path.name not in own)


def save(
    chosen: Sequence[Result], results: Sequence[Result], folder: Path, *, wanted: Wanted = FASTEST
) -> Path:
    """Write the variant of the results `chosen` to `folder`, check it with the gate, and return the folder.

    `results` are all results of the comparison, for the card. WrongOutputError if run.py does not pass the gate.
    """
    target = ready(folder).resolve()
    with tempfile.TemporaryDirectory(dir=_above(target), prefix=f".{target.name}-") as name:
        new = Path(name) / "new"
        new.mkdir()
        _fill(new, chosen[0], results, wanted)
        _swap(new, target, Path(name) / "old")
    return folder


def _fill(folder: Path, first: Result, results: Sequence[Result], wanted: Wanted) -> None:
    """Write all files into the new `folder`; the card comes last, once run.py has passed the gate."""
    model = HERE.model(first.trial)
    truth = _truth(model, first.trial)
    file, weights = _artifact(model, first, folder)
    inputs = {i.name: i.shape for i in model.inputs}
    prepared = standalone.preprocessing(folder, model)
    script = standalone.script(first.trial, file, inputs, pictures=prepared is not None)
    (folder / "run.py").write_text(script)
    shutil.copyfile(Path(check.__file__), folder / "check.py")
    _sample(model, truth, first.trial, folder)
    proof = None if first.driver == ELSEWHERE else prove(folder, model, truth, first.trial)
    table = variants.table(results, wanted=wanted)
    page = card_of(table, table.row(first.trial.cell), wanted, results)
    page["artifact"] = {
        "file": file,
        **_about(folder / file),
        "weights": {place: _about(folder / place) for place in weights},
        "measured_digest": first.artifact.get("digest"),
        "made": first.artifact.get("made"),
        "left_out_of_run_py": list(standalone.left_out(first.trial)),
    }
    page["measured"]["run_py"] = None
    if proof is not None:
        page["measured"]["run_py"] = {
            "median_s": proof.median_s,
            "calls": proof.calls,
            "of": "calls of run.py's own run(), one process after the comparison",
        }
    page["checked"]["run_py"] = None if proof is None else _verified(proof.checked)
    page["preprocess"] = prepared
    judged = first.verification if proof is None else proof.checked
    assert judged is not None  # what nothing judged is never picked
    page["check"] = standalone.fill(folder, model, first.trial, truth, judged)
    page["valid_for"] = standalone.valid_for(first)
    (folder / CARD).write_text(json.dumps(page, indent=1) + "\n")
    (folder / "card.md").write_text(card_text(page))


def _about(path: Path) -> dict[str, Any]:
    return {"sha256": cache.content(path), "bytes": path.stat().st_size}


def _swap(new: Path, target: Path, old: Path) -> None:
    """Rename `new` to `target`, with the folders above it; move an existing target to `old`, and back if that fails."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            target.rename(old)
        try:
            new.rename(target)
        except BaseException:
            if old.exists():
                old.rename(target)
            raise
    except OSError as error:
        raise StoreError(
            "E-DEPLOY-8",
            f"{target} cannot be replaced",
            evidence=str(error),
            effect="It is unchanged",
            fix="--save a new folder",
        ) from error


def _truth(model: Model, trial: Trial) -> Reference:
    """Return the fp32 answers the gate judges by; made again, in its own process, where the cache lost them."""
    if not reference.known(model, trial.metric):
        fresh.prepare(trial)

    def missing() -> Run:
        raise StoreError(
            "E-DEPLOY-3",
            "the fp32 answers that the gate compares with are gone and could not be computed again",
            fix="edgescope optimize MODEL --no-cache",
        )

    found = reference.reference(model, missing, metric=trial.metric)
    if isinstance(found, Message):
        found = reference.reference(model, missing, metric=trial.metric, alone=True)
    if isinstance(found, Message):
        raise WrongOutputError(
            found.code, found.what, evidence=found.evidence, effect=found.effect, fix=found.fix
        )
    return found


def _artifact(model: Model, result: Result, folder: Path) -> tuple[str, list[str]]:
    """Copy the file that the engine reads to `folder`; return its name and the names of its files of weights."""
    path = result.artifact.get("path")
    if path is None:
        export(model, result.trial, folder / "model.pt2")
        return "model.pt2", []
    source = _source(result, Path(path))
    name = f"model{source.suffix}"
    shutil.copyfile(source, folder / name)
    if source.suffix != ".onnx":
        return name, []
    external = need("edgescope.models.user.onnx_reader:external", name, "pip install 'edgescope[onnx]'")
    places: list[str] = external(source)
    for place in places:
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source.parent / place, folder / place)
    return name, places


def export(model: Model, trial: Trial, path: Path) -> None:
    """Write the module to `path` as torch.export sees it, in the precision and batch of the trial, on its device.

    The file needs no code that defined the module. It does not hold the memory layout; run.py sets it.
    """
    import torch

    from edgescope.backends.pytorch.module import exportable, folded

    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(trial.precision, torch.float32)
    samples = model.samples(Purpose.BENCH, trial.batch)
    assert samples is not None
    module = model.module().eval()
    if trial.options.get("fold"):
        module = folded(module)
    module = module.to(device=trial.device, dtype=dtype)
    example = []
    for spec in model.inputs:
        rows = [i % len(samples) for i in range(trial.batch)]
        tensor = torch.from_numpy(samples.arrays[spec.name][rows]).to(trial.device)
        example.append(tensor.to(dtype) if tensor.is_floating_point() else tensor)
    with torch.no_grad(), exportable():
        torch.export.save(torch.export.export(module, tuple(example)), path)


def _source(result: Result, path: Path) -> Path:
    """Return the measured file, built again if the cache has lost it; StoreError if its content has changed."""
    if not path.is_file():
        fresh.prepare(result.trial)
    found = cache.content(path) if path.is_file() else "no file"
    if found != result.artifact.get("digest"):
        raise StoreError(
            "E-DEPLOY-4",
            f"the measured file is not there: {path.name}",
            evidence=f"SHA-256 {str(result.artifact.get('digest'))[:12]} was measured, {found[:12]} is there",
            effect="The folder would hold a file to which these figures do not belong",
            fix="the same command with --no-cache",
        )
    return path


def _sample(model: Model, truth: Reference, trial: Trial, folder: Path) -> None:
    given, n = judge.gate_samples(model).arrays, trial.batch
    rows = np.arange(n) % len(truth.gate[0])
    arrays: dict[str, Any] = {name: array[rows] for name, array in given.items()}
    arrays |= {f"fp32_{i}": array[rows] for i, array in enumerate(truth.gate)}
    np.savez(folder / "sample.npz", **arrays)


def prove(folder: Path, model: Model, truth: Reference, trial: Trial) -> Proof:
    """Return the gate's answer to what run.py in `folder` computes in a fresh process; WrongOutputError if it fails."""
    of = judge.basis(model, trial.metric)
    gate = of.gate.first(len(truth.gate[0]))
    # a measure that could not read fp32's outputs cannot read these
    measure = of.measure if truth.tally is not None else None
    labelled = of.labelled if measure is not None else None
    parts = [s.arrays for s in (gate, labelled) if s is not None]
    total = sum(len(next(iter(p.values()))) for p in parts)
    rows = np.minimum(np.arange(-(-total // trial.batch) * trial.batch), total - 1)
    given = {name: np.concatenate([p[name] for p in parts])[rows] for name in gate.arrays}
    outputs, said = _ran(folder, given)
    kept = (
        measure.tally([a[len(gate) : total] for a in outputs], slice(None)) if measure and labelled else None
    )
    answer = judge.judge(
        tuple(a[: len(gate)] for a in outputs),
        truth,
        precision=trial.precision,
        min_agreement=trial.min_agreement,
        min_accuracy=trial.min_accuracy,
        told=judge.told(of, kept, truth),
        groups=gate.groups,
        classifier=of.classifier,
    )
    if not answer.passed:
        raise WrongOutputError(
            "E-DEPLOY-5",
            f"run.py for {trial.label} does not give the answers that passed the gate",
            evidence=answer.detail,
            effect="It must not be used; nothing was saved",
        )
    calls, median_s = _timed(said)
    return Proof(answer, calls, median_s)


def _timed(said: str) -> tuple[int, float]:
    """Return how many calls run.py timed and their median in seconds."""
    found = TIMED.search(said)
    if found is None:
        raise WrongOutputError(
            "E-DEPLOY-6",
            "run.py did not print its speed",
            evidence=said[-300:],
            effect="Nothing was saved",
        )
    return int(found[1]), float(found[2])


def _ran(folder: Path, given: dict[str, Any]) -> tuple[list[NDArray[Any]], str]:
    """Return the outputs of run.py in a separate process, and its text on stdout."""
    with tempfile.TemporaryDirectory(prefix="edgescope-deploy-") as name:
        asked, answered = Path(name) / "inputs.npz", Path(name) / "outputs.npz"
        np.savez(asked, **given)
        command = [sys.executable, "-B", str(folder.resolve() / "run.py"), str(asked), str(answered)]
        try:
            done = subprocess.run(
                command, cwd=name, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
            )
            said = (done.stderr.strip().splitlines() or ["it wrote nothing"])[-1] if done.returncode else ""
        except subprocess.TimeoutExpired:
            said = f"still running after {TIMEOUT_S:g} s"
        if said:
            raise WrongOutputError(
                "E-DEPLOY-6",
                "the written run.py does not run",
                evidence=said[:300],
                effect="Nothing was saved",
            )
        with np.load(answered) as file:
            return [file[f"output_{i}"] for i in range(len(file.files))], done.stdout


def _figures_shown() -> list[str]:
    """Return the names of a card's metrics: those that compare variants, except the gate's; the speed-up last."""
    known = [m for m in METRICS.values() if {"table", "pareto"} & set(m.shown) and not m.artifact]
    return [m.name for m in sorted(known, key=lambda m: m.name == "speedup")]


def card_of(table: VariantTable, row: Row, wanted: Wanted, results: Sequence[Result]) -> dict[str, Json]:
    """Return the card as data: trial, figures with intervals, gate, machine, versions, command."""
    newest = max(row.replicates.values(), key=lambda r: r.started_at)
    state = newest.machine.state
    check = newest.verification
    chosen = variants.pick(table, wanted.objective)
    picked = chosen.row is not None and chosen.row.cell == row.cell
    return {
        "model": row.trial.model,
        "label": row.label,
        "trial": row.trial.to_json(),
        "objective": wanted.objective,
        "constraints": [c.text for c in wanted.constraints],
        "reason": chosen.reason if picked else "not the pick",
        "guess": chosen.guess if picked else "",
        "measured": {
            "baseline": table.row(table.baseline).label,
            "processes": len(row.replicates),
            "figures": {name: field_to_json(row[name]) for name in _figures_shown()},
            "power_scope": _power_scope(newest),
            "verdict": {"trust": row.verdict.trust.value, "evidence": list(row.verdict.evidence)},
            "results": [r.id for r in row.replicates.values()],
            "compared_with": sorted(r.label for r in (*table.rows, *table.screened) if r.cell != row.cell),
            "runs_in_all": len(results),
        },
        "ran_as": to_plain(newest.effective),
        "checked": {"when_measured": _verified(check) if check is not None else None},
        "machine": {"id": newest.machine.id, **to_plain(newest.machine.stable)},
        "versions": to_plain(state.get("packages", {})) | {"edgescope": edgescope.__version__},
        "command": to_plain(state.get("command")),
        "written_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def _verified(check: Verification) -> dict[str, Json]:
    """Return a Verification as plain JSON."""
    return {
        "passed": check.passed,
        "method": check.method,
        "threshold": check.threshold,
        "detail": check.detail,
        "reference": check.reference,
        "fields": {name: field_to_json(f) for name, f in check.fields.items()},
    }


def _power_scope(result: Result) -> Json:
    """Return which parts of the machine the power readings cover, or None if there were none."""
    channels = result.readings.channels if result.readings is not None else ()
    return sorted({c.scope for c in channels if c.unit in ("W", "J") and c.status == "measured"}) or None


def card_text(card: dict[str, Json]) -> str:
    """Return the card as Markdown."""
    measured, artifact = card["measured"], card["artifact"]
    lines = [f"# {card['model'].partition('#')[0]}: {card['label']}", "", card["reason"], ""]
    if card["guess"]:
        lines += [f"**A guess**: it is not shown to be better than {card['guess']}.", ""]
    lines += ["## Run it", ""]
    lines += ["    python run.py", "", f"`{artifact['file']}`, {artifact['bytes'] / 1e6:.1f} MB, SHA-256"]
    lines += [f"`{artifact['sha256']}`."]
    lines += [
        f"Its weights: `{place}`, {about['bytes'] / 1e6:.1f} MB, SHA-256 `{about['sha256']}`."
        for place, about in artifact["weights"].items()
    ]
    if artifact["left_out_of_run_py"]:
        lines += [f"run.py leaves out: {', '.join(artifact['left_out_of_run_py'])} (same answers, slower)."]
    if artifact["file"].endswith(".pt2"):
        lines += ["The figures were measured with the module itself; torch.export made this file from it."]
    lines += ["", "## Input", "", *_input_lines(card["preprocess"])]
    lines += ["", "## Measured", "", "| | value | 95 % interval | n |", "|---|---|---|---|"]
    figures = [_figure_row(METRICS[name].title.lower(), f) for name, f in measured["figures"].items()]
    alone = [_loop_row(measured["run_py"])] if measured["run_py"] else []
    lines += [figures[0], *alone, *figures[1:]]
    lines += [
        "",
        f"In {measured['processes']} fresh processes, interleaved with {measured['baseline']} (the baseline)",
    ]
    lines += ["and others; run.py in one process after all of them."] if alone else [UNTRIED]
    lines += [f"Verdict: {measured['verdict']['trust']}: {'; '.join(measured['verdict']['evidence'])}."]
    if card["constraints"]:
        lines += [f"Constraints kept: {', '.join(card['constraints'])}."]
    lines += ["", "## Checked", ""]
    words = {"when_measured": "When it was measured", "run_py": "run.py, in a separate process"}
    lines += [
        f"* {words[k]}: {c['detail']} (against {c['reference']})" for k, c in card["checked"].items() if c
    ]
    if "absent" not in card["check"]:
        lines += [
            f"* `python run.py --check DATA` repeats this check on the {card['check']['n']} inputs of your data."
        ]
    lines += ["", "## Holds for", "", f"* {_facts(card['valid_for'])}"]
    lines += [
        "* on another machine run.py says so: run edgescope optimize again there",
        "",
        "## Where",
        "",
        f"* machine `{card['machine']['id']}`: {_facts(card['machine'])}",
    ]
    lines += [f"* {_facts(card['versions'])}", f"* command: `{_command(card['command'])}`", ""]
    return "\n".join(lines)


def _input_lines(prepared: Json) -> list[str]:
    """Return how a picture becomes the input: its size, its channels, its normalisation."""
    if prepared is None:
        return ["Arrays by name, as in `sample.npz`; how a picture becomes one is not known."]
    several = {name: ", ".join(f"{v:g}" for v in prepared[name]) for name in ("mean", "std")}
    return [
        "`python run.py PICTURE` (needs Pillow) prepares a picture like this:",
        "",
        f"* size (width x height), resize, filter: {', '.join(prepared['said'].split(', ')[:3])}",
        f"* channel order: {'grey' if len(prepared['mean']) == 1 else prepared['order'].upper()}",
        f"* normalisation: (pixel / {prepared['divide']:g} - mean) / std, mean {several['mean']}, std {several['std']}",
    ]


def _figure_row(words: str, field: Json) -> str:
    if "absent" in field:
        return f"| {words} | not measured: {field['absent']} | | |"
    read = Measured(**field)
    shown = variants.show(read).partition(" [")
    return f"| {words} | {shown[0]} | {'[' + shown[2] if shown[2] else ''} | {read.n} |"


def _loop_row(timed: Json) -> str:
    """Return the table row with run.py's own median time, to print below the median latency of the comparison."""
    return (
        f"| run.py alone, median of its calls | {timed['median_s'] * 1e3:.4g} ms | | {timed['calls']} calls |"
    )


def _facts(facts: Json) -> str:
    """Return facts in one line; absent facts and lists of words are only in the JSON."""
    said = ((k, _fact(v)) for k, v in facts.items() if k != "id")
    return "; ".join(f"{k}: {text}" for k, text in said if text)


def _fact(value: Json) -> str:
    if isinstance(value, dict):
        said = ((k, _fact(v)) for k, v in value.items() if k != "absent")
        return ", ".join(f"{k} {text}" for k, text in said if text)
    if isinstance(value, list):  # the names of a machine's GPUs; their other facts are in the JSON
        return " and ".join(text for v in value if isinstance(v, dict) and (text := _fact(v.get("name", ""))))
    return str(value)


def _command(command: Json) -> str:
    """Return the command as it was typed, without the folder of the program."""
    text = " ".join(command) if isinstance(command, list) else str(command or "not recorded")
    return re.sub(r"^.*?/(edgescope) ", r"\1 ", text)
