"""A plan for a board that is not here: a folder with the files that can be made here and the commands to run there.

    DIR/forms/...     the ONNX files: fp32, and int8 as QDQ pairs with calibrated ranges, each judged on this CPU
        inputs/...    the measured batch and the accuracy gate's inputs, as trtexec reads them
        run.sh        builds the engines, measures them in turns, answers the gate's inputs, packs the results
        plan.json     what was planned: the trials, their commands, the content of every file

Candidates are those that the TensorRT of the board's JetPack has (wings/tensorrt/trtexec/versions.py). Engines are
built on the board: no Jetson's can be built elsewhere. Nothing here is a prediction; what the board says is read by
returned.py. fp16 is lowered by the board's TensorRT up to 10, so its answers are judged only when they come back.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import edgescope
from edgescope import cache, registry
from edgescope.bench.parts import HERE
from edgescope.data import opening
from edgescope.devices import manifest
from edgescope.errors import EdgescopeError, Message, UsageError, closest_name, known_names
from edgescope.models import zoo
from edgescope.models.base import Batch, Model, Samples
from edgescope.records import Answer, Json, Scalar, Trial, Verification, digest
from edgescope.registry import need
from edgescope.runner.setup import Setup
from edgescope.scenarios.base import checked as checked_load
from edgescope.search.candidates import NotHere
from edgescope.study import grid, rules
from edgescope.verify import judge, metric_names
from edgescope.verify.judge import Reference
from edgescope.wings.jetson.lends import Board, Software, boards, software
from edgescope.wings.optimize import board_script
from edgescope.wings.optimize.board_script import Step
from edgescope.wings.tensorrt.lends import Apart, offered, tool
from edgescope.workloads import gate

SCHEMA = 1
PLAN, SCRIPT, FORMS, INPUTS = "plan.json", "run.sh", "forms", "inputs"
ROUNDS = 6
"""Rounds in which every candidate runs once: pairs of neighbours, as a local optimize has them."""
WINDOW = {"min_s": 3.0, "max_s": 3.0}
GATE_ROWS = 16
"""Inputs that one process answers for the gate: its start takes seconds, and a larger batch a small board's memory."""
BUILD_S, START_S = 120.0, 6.0
"""Seconds of a build and of a start, for the guess of how long the script takes; both differ by ten and more."""


@dataclass(frozen=True)
class Candidate:
    """One variant of the plan, with what the CPU here says of its file."""

    name: str
    apart: Apart
    form: str
    """Its ONNX file, relative to the folder."""
    gated: str
    """The gate's sentence on the file, or why there is none."""

    @property
    def engine(self) -> str:
        """Where the board writes the engine, relative to the folder."""
        return engine_of(self.name)


def engine_of(name: str) -> str:
    """Return where the board writes the engine of a candidate, relative to the folder."""
    return f"engines/{name}.engine"


@dataclass(frozen=True, repr=False)
class Planned(Answer):
    """A folder to take to a board."""

    folder: Path
    board: Board
    key: str
    software: Software
    candidates: tuple[Candidate, ...]
    not_here: tuple[NotHere, ...]
    minutes: int
    steps: tuple[Step, ...] = field(default=())

    def lines(self) -> Iterator[str]:
        """Yield what the folder holds, then one line for each candidate."""
        held = self.software
        yield f"{self.folder}: {self.board.name}, JetPack {held.jetpack[-1]}, TensorRT {held.tensorrt}"
        yield from (f"  {c.apart.trial.label}: {c.gated}" for c in self.candidates)
        yield from (f"  {m.label}: not tried: {m.reason}" for m in self.not_here)

    def records(self) -> list[dict[str, Json]]:
        """Return one row for each candidate."""
        return [
            {"variant": c.apart.trial.label, "form": c.form, "gate": c.gated, "why_not": None}
            for c in self.candidates
        ] + [{"variant": m.label, "form": None, "gate": None, "why_not": m.reason} for m in self.not_here]


def target(board: str, jetpack: str = "") -> tuple[Board, Software]:
    """Return the board of this key and what its JetPack holds, by default the newest; UsageError for another name."""
    known = {key: b for key, b in boards().items() if software(key)}
    if board not in known:
        raise UsageError(
            "E-PLAN-1",
            f"no board is called {board!r}",
            evidence=known_names(known),
            effect="Nothing was made",
            fix=f"--for {closest_name(board, known) or next(iter(known))}",
        )
    held = software(board)
    chosen = next((replace(s, jetpack=(jetpack,)) for s in held if jetpack in s.jetpack), None)
    if jetpack and chosen is None:
        versions = [v for s in held for v in s.jetpack]
        raise UsageError(
            "E-PLAN-2",
            f"a {known[board].name} has no JetPack {jetpack} that is known here",
            evidence=f"known: {', '.join(versions)}",
            effect="Which flags its trtexec has is not known; nothing was made",
            fix=f"--jetpack {versions[-1]}",
        )
    newest = held[-1]
    return known[board], chosen or replace(newest, jetpack=newest.jetpack[-1:])


def plan(
    model: str | Path,
    board: str,
    folder: Path | str | None = None,
    *,
    jetpack: str = "",
    objective: str = "latency",
    constraints: Sequence[str] = (),
    precision: Sequence[str] = (),
    exclude: Sequence[Mapping[str, Scalar]] = (),
    setup: Setup = Setup(),
    **trial: Any,
) -> Planned:
    """Write a plan for `board` (a key of boards.toml) into `folder`, by default MODEL-for-BOARD, and return it.

    `precision` and `exclude` choose among the candidates, as for optimize; other keys are those of Trial.
    """
    found, held = target(board, jetpack)
    of = _base(str(model), trial)
    opened = HERE.model(of)
    target_folder = ready(Path(folder or f"{opened.info.name}-for-{board}"))
    new = target_folder.with_name(f".{target_folder.name}-new")
    shutil.rmtree(new, ignore_errors=True)
    try:
        made, missing = _candidates(of, opened, (found, held), (precision, exclude), (new, setup))
        if not made:
            why = "; ".join(f"{m.label}: {m.reason}" for m in missing)
            raise EdgescopeError(
                "E-PLAN-3", "there is nothing to try on that board", evidence=why, effect="Nothing was made"
            )
        steps, gates = _steps(made, opened, of, new)
        minutes = _minutes(steps)
        title = f"{opened.info.name} on a {found.name}, JetPack {held.jetpack[-1]}, TensorRT {held.tensorrt}"
        (new / SCRIPT).write_text(board_script.text(title, board, minutes, steps))
        (new / SCRIPT).chmod(0o755)
        page = {
            "model": of.model,
            "board": board,
            "jetpack": held.jetpack[-1],
            "tensorrt": held.tensorrt,
            "mode": of.mode,
            "objective": objective,
            "constraints": list(constraints),
            "rounds": ROUNDS,
            "candidates": [_plain(c, gates) for c in made],
            "not_here": [m.__dict__ for m in missing],
            "steps": {s.name: list(s.flags) for s in steps},
            "files": contents(new),
        }
        about = {"schema": SCHEMA, "edgescope": edgescope.__version__, "id": digest(page)}
        (new / PLAN).write_text(json.dumps(about | page, indent=1) + "\n")
        _swap(new, target_folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return Planned(target_folder, found, board, held, tuple(made), tuple(missing), minutes, tuple(steps))


def ready(folder: Path) -> Path:
    """Return `folder` if it is new, empty or an earlier plan; UsageError otherwise."""
    if folder.exists() and not (folder / PLAN).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            "E-PLAN-4",
            f"{folder} holds something else",
            effect="Nothing was made",
            fix="--save a new folder",
        )
    return folder


def _swap(new: Path, folder: Path) -> None:
    """Put the new folder's content in place; results that came back to an earlier one stay."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in (FORMS, INPUTS):
        shutil.rmtree(folder / part, ignore_errors=True)
    for path in sorted(new.iterdir()):
        shutil.move(str(path), str(folder / path.name))


def pinned_model(model: str) -> str:
    """Return a model's name with the content of its file, as a plan names it."""
    return zoo.pin(model)


def _base(model: str, trial: Mapping[str, Any]) -> Trial:
    """Return what all candidates share; UsageError for work that trtexec does not do alone."""
    keys = {**WINDOW, **{k: v for k, v in trial.items() if v is not None}}
    keys |= {"backend": "trtexec", "device": "cuda"}
    keys["data"] = opening.name_of(trial.get("data") or "")
    keys["metric"] = metric_names.named(trial.get("metric") or "")
    of = grid.pinned(rules.in_range(checked_load(Trial(model=model, **keys))), zoo.pin)
    alone = registry.scenario(of.scenario).self_driven and of.workload == Trial.workload
    if not alone or of.multi_process:
        raise UsageError(
            "E-PLAN-5",
            f"a script of trtexec cannot run {of.label}",
            evidence="it runs one process of inference, in its own loop",
            effect="Nothing was made",
            fix="edgescope optimize MODEL --on ssh://USER@BOARD, or --scenario single_stream --processes 1",
        )
    return of


Choice = tuple[Sequence[str], Sequence[Mapping[str, Scalar]]]


def _candidates(
    of: Trial, model: Model, where: tuple[Board, Software], choice: Choice, made_in: tuple[Path, Setup]
) -> tuple[list[Candidate], list[NotHere]]:
    """Return the candidates with their files in `folder`, and what is not tried."""
    (board, held), (folder, setup) = where, made_in
    there = tool(held.tensorrt, board.compute, board.name)
    truth = gate.prepare(model, HERE, of.metric, of.batch)
    forms = _Forms(model, truth, folder)
    made, missing = list[Candidate](), list[NotHere]()
    for one in _offered(of, board, held):
        trial = _named(of, one.precision, one.options, model, truth)
        if made and not _chosen(trial, *choice):
            continue
        if one.why_not:
            missing.append(NotHere(trial.label, one.why_not))
            continue
        for each in _attempts(trial):
            setup.tell(f"  making {each.label}")
            name = _name(each)
            try:
                apart = Apart.of(each, model, there, HERE.folder, folder / engine_of(name))
                found = forms.candidate(apart, name)
            except EdgescopeError as error:
                missing.append(NotHere(each.label, str(error.message), error.fix))
                continue
            if isinstance(found, Candidate):
                made.append(found)
                break
            missing.append(found)
    return made, missing


def _offered(of: Trial, board: Board, held: Software) -> Sequence[Any]:
    """Return what the board's TensorRT offers; of a file that is quantised or 16-bit already, that file as it is."""
    found = offered(held.tensorrt, board.compute, board.dla)
    return [replace(found[0], precision="as_is")] if of.precision == "as_is" else found


def _named(of: Trial, precision: str, options: Mapping[str, Scalar], model: Model, truth: object) -> Trial:
    """Return the trial of one offer; the gate's inputs go in batches unless the network is closed or it is said."""
    own = dict(of.options) if precision == "int8" else _without_int8(of.options)
    closed = getattr(model, "closed_batch", None) is not None or "gate_batch" in of.options
    wide = isinstance(truth, Reference) and of.batch < GATE_ROWS and not closed
    rows: dict[str, Scalar] = {"gate_batch": GATE_ROWS} if wide else {}
    return replace(of, precision=precision, options={**rows, **options, **own})


def _without_int8(options: Mapping[str, Scalar]) -> dict[str, Scalar]:
    from edgescope.artifacts.for_precision import INT8_OPTIONS

    return {name: value for name, value in options.items() if name not in INT8_OPTIONS}


def _attempts(trial: Trial) -> list[Trial]:
    """Return the trial, and for int8 what is made if its answers are wrong: the layers that break it stay in fp32."""
    more = trial.precision == "int8" and "fallback" not in trial.options
    return [trial, replace(trial, options={**trial.options, "fallback": True})] if more else [trial]


def _chosen(trial: Trial, precision: Sequence[str], exclude: Sequence[Mapping[str, Scalar]]) -> bool:
    mine = {**trial.options, "backend": trial.backend, "precision": trial.precision}
    out = any(all(name in mine and mine[name] == v for name, v in table.items()) for table in exclude)
    return not out and (not precision or trial.precision in precision)


def _name(trial: Trial) -> str:
    """Return a name for folders: `fp16`, `int8-fallback`, `fp16-dla0`."""
    said = [
        name if value is True else f"{name}{value}"
        for name, value in sorted(trial.options.items())
        if name != "gate_batch" and not isinstance(value, str)
    ]
    return cache.safe("-".join([trial.precision, *said]))


@dataclass(frozen=True)
class _Forms:
    """The ONNX files of a plan: each is copied and judged once."""

    model: Model
    truth: Reference | Message | None
    folder: Path
    known: dict[Path, tuple[str, Verification | Message | None]] = field(default_factory=dict)

    def candidate(self, apart: Apart, name: str) -> Candidate | NotHere:
        """Return the candidate with its file in the folder, or why its answers rule it out."""
        form, said = self.known.get(apart.onnx) or self._added(apart)
        if isinstance(said, Verification) and not said.passed:
            return NotHere(apart.trial.label, f"its ONNX file gives wrong outputs on this CPU: {said.detail}")
        text = said.detail if isinstance(said, Verification) else str(said or "nothing to judge")
        lowered = apart.trial.precision in ("fp16", "tf32") and not apart.job.typed
        text = (
            f"{apart.trial.precision} is made on the board and judged when its answers come back"
            if lowered
            else text
        )
        return Candidate(name, apart, form, text)

    def _added(self, apart: Apart) -> tuple[str, Verification | Message | None]:
        form = f"{FORMS}/{len(self.known)}-{cache.safe(apart.onnx.stem)[:40]}/model.onnx"
        _copied(apart.onnx, self.folder / form)
        self.known[apart.onnx] = form, self._judged(apart)
        return self.known[apart.onnx]

    def _judged(self, apart: Apart) -> Verification | Message | None:
        """Return what the gate says of ONNX Runtime's answers from the file, on this CPU."""
        if not isinstance(self.truth, Reference):
            return self.truth
        opened = need("onnxruntime:InferenceSession", "ONNX Runtime", "pip install 'edgescope[onnx]'")
        session = opened(str(apart.onnx), providers=["CPUExecutionProvider"])

        def run(batch: Batch) -> Sequence[Any]:
            outputs: Sequence[Any] = session.run(None, dict(batch))
            return outputs

        about = {"digest": cache.content(apart.onnx)}
        here, parts = manifest.here(), HERE
        found = gate.check(apart.trial, self.model, run, about, machine=here, parts=parts)
        return found if isinstance(found, Verification | Message) else None


def _copied(onnx: Path, target: Path) -> None:
    """Copy an ONNX file with its files of weights."""
    target.parent.mkdir(parents=True)
    shutil.copyfile(onnx, target)
    external = need("edgescope.models.user.onnx_reader:external", onnx.name, "pip install 'edgescope[onnx]'")
    for place in external(onnx):
        (target.parent / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(onnx.parent / place, target.parent / place)


def _steps(
    made: Sequence[Candidate], model: Model, of: Trial, root: Path
) -> tuple[list[Step], dict[str, list[str]]]:
    """Return all runs in order, and for each candidate the folders of the gate's inputs."""
    timing = root / "engines" / "timing.cache"
    steps = [_step(root, f"build-{c.name}", ".", c.apart.building(root / c.form, timing)) for c in made]
    bench = cache.made(root / INPUTS / "bench")
    for number in range(ROUNDS):
        turn = made if number % 2 == 0 else made[::-1]
        for c in turn:
            name = f"run{number}-{c.name}"
            command = c.apart.run.command(bench, root / "results" / name, of.min_s)
            steps.append(_step(root, name, f"{INPUTS}/bench", command, c.engine))
    gates = dict[str, list[str]]()
    for c in made:
        gates[c.name] = []
        rows = c.apart.run.answer_rows or of.batch
        for batch in gate_batches(model, c.apart.trial, rows):
            folder = f"{INPUTS}/gate-{batch_digest(batch)}"
            name = f"gate{len(gates[c.name])}-{c.name}"
            gates[c.name].append(name)
            command = c.apart.run.asking(cache.made(root / folder), root / "results" / name, batch)
            steps.append(_step(root, name, folder, command, c.engine))
    return steps, gates


def _step(root: Path, name: str, folder: str, command: Sequence[str], needs: str = "") -> Step:
    """Return a run whose paths are relative to the folder that it starts in."""
    start, prefix = root / folder, f"{root}{os.sep}"

    def there(word: str) -> str:
        flag, mark, value = word.partition("=")
        return f"{flag}={os.path.relpath(value, start)}" if mark and value.startswith(prefix) else word

    return Step(name, folder, tuple(map(there, command[1:])), needs)


def gate_batches(model: Model, trial: Trial, rows: int) -> Iterator[Batch]:
    """Yield the batches that the gate will ask of a variant; none where nothing can be judged."""
    truth = gate.prepare(model, HERE, trial.metric, rows)
    if not isinstance(truth, Reference):
        return
    of = judge.basis(model, trial.metric)
    yield from _cut(of.gate.first(len(truth.gate[0])), rows)
    if of.labelled is not None and of.labelled.digests != of.gate.digests:
        yield from _cut(of.labelled, rows)


def _cut(samples: Samples, rows: int) -> Iterator[Batch]:
    for start in range(0, len(samples), rows):
        which = np.minimum(np.arange(start, start + rows), len(samples) - 1)
        yield {name: np.ascontiguousarray(array[which]) for name, array in samples.arrays.items()}


def batch_digest(batch: Batch) -> str:
    """Return a short name of a batch's content."""
    sha = hashlib.sha256()
    for name in sorted(batch):
        sha.update(name.encode() + b"\0" + np.ascontiguousarray(batch[name]).tobytes())
    return sha.hexdigest()[:16]


def contents(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file that the board will use."""
    paths = sorted(p for part in (FORMS, INPUTS) for p in (folder / part).rglob("*") if p.is_file())
    return {str(p.relative_to(folder)): cache.content(p) for p in paths}


def _plain(c: Candidate, gates: Mapping[str, list[str]]) -> dict[str, Json]:
    """Return a candidate as the plan holds it."""
    return {
        "name": c.name,
        "trial": c.apart.trial.to_json(),
        "form": c.form,
        "form_sha256": cache.content(c.apart.onnx),
        "gated": c.gated,
        "gate": gates[c.name],
    }


def _minutes(steps: Sequence[Step]) -> int:
    seconds = sum(BUILD_S if s.name.startswith("build") else START_S for s in steps)
    return max(1, round(seconds / 60))
