"""What `edgescope recommend` is asked: models and loads, which stored cells answer, the grid that a search may measure.

A flag that was typed holds for stored cells as for those to be measured; one that was not leaves stored cells free.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgescope.cli import opened, trial_flags

if TYPE_CHECKING:
    from edgescope.analysis.cells.choices import Load
    from edgescope.records import Result, Trial
    from edgescope.search.candidates import Installed
    from edgescope.study.grid import Study

#: Flags that say which cells are meant -> what a search takes where they are not typed.
AXES: Mapping[str, Any] = {
    "backend": "",
    "precision": "",
    "batch": "1,4,16",
    "device": None,
    "processes": "1,2,4",
    "sharing": "time_slicing",
    "colocated": "",
    "mode": "as_is",
    "io": "host",
    "scenario": "single_stream",
    "rate": None,
    "in_flight": 1,
}


@dataclass(frozen=True)
class Question:
    """Models that compete under one load, and the stored results of their cells."""

    models: tuple[str, ...]
    load: Load | None
    """None where the flags alone say what a search offers."""
    stored: tuple[Result, ...]


def questions(args: argparse.Namespace, study: Study | None) -> list[Question]:
    """Return one question a model and load, or a load where models are named; one without models for nothing stored."""
    from edgescope.analysis.cells.choices import belongs, load
    from edgescope.analysis.cells.question import of_harness
    from edgescope.models import zoo

    fits = _fits(args, study)
    found = [r for r in _of_machine(args) if fits(r.trial)]
    named = tuple(zoo.pin(name) for name in args.models)
    if args.search and study is None:  # the flags say the load
        every = () if named else dict.fromkeys(r.trial.model for r in found)
        return [Question((name,), None, ()) for name in every] or [Question(named, None, ())]
    meant = [r.trial for r in found] if study is None else [t for t in study.trials if fits(t)]
    meant = [t for t in meant if t.model in named or not named]
    if not named and study is None:  # the harness is asked about by name, or where there is nothing else
        meant = [t for t in meant if not of_harness(t)] or meant
    known = dict.fromkeys((named or (t.model,), load(t)) for t in meant)
    return [
        Question(m, to, tuple(r for r in found if r.trial.model in m and belongs(r.trial, to)))
        for m, to in known
    ] or [Question(named, None, ())]


def _of_machine(args: argparse.Namespace) -> list[Result]:
    """Return the stored results, of one machine where one is named; UsageError where it is not known."""
    from edgescope.analysis.cells import machines
    from edgescope.bench import here

    found, chosen = list(opened.store(args).results()), args.machine
    if not chosen:
        return found
    mine = here().id
    chosen = mine if chosen == machines.HERE else chosen
    known = any(r.machine.id.startswith(chosen) for r in found)
    if not known and (not found or mine.startswith(chosen)):
        return []  # nothing is stored of this machine yet; a search refuses another
    return machines.one(found, chosen)


def _fits(args: argparse.Namespace, study: Study | None) -> Callable[[Trial], bool]:
    """Return whether a trial is of the study and has what was typed; the load is one query at a time unless said."""
    from edgescope.analysis.cells.variants import variant
    from edgescope.records import TABLES

    given = _keys(args)
    typed = {name for name in AXES if getattr(args, name) is not None}
    typed |= {"workload", "scenario", "colocated"} if study is None else set()
    allowed = {name: given[name] if isinstance(given[name], list) else [given[name]] for name in typed}
    inside = None if study is None else {variant(t) for t in study.trials}

    def fits(trial: Trial) -> bool:
        return (
            all(getattr(trial, name) in values for name, values in allowed.items())
            and all(given[table].items() <= getattr(trial, table).items() for table in (*TABLES, "shapes"))
            and (inside is None or variant(trial) in inside)
        )

    return fits


def _keys(args: argparse.Namespace) -> dict[str, Any]:
    """Return the Trial keys of the flags, what was not typed as a search takes it."""
    from edgescope.errors import UsageError
    from edgescope.study.grid import settled

    whole = vars(args) | {k: v for k, v in AXES.items() if getattr(args, k) is None}
    keys = trial_flags.keys(argparse.Namespace(**whole))
    try:
        keys["batch"] = [int(n) for n in whole["batch"].split(",")]
    except ValueError as error:
        raise UsageError("E-SWEEP-2", f"--batch takes whole numbers, not {whole['batch']!r}") from error
    keys |= {name: [w for w in whole[name].split(",") if w] for name in ("backend", "precision")}
    return settled(keys)


def grid(args: argparse.Namespace, question: Question, study: Study | None) -> tuple[Trial, ...]:
    """Return the cells to search: of the study, else of the flags."""
    from edgescope.analysis.cells.choices import load
    from edgescope.errors import UsageError

    if study is not None:
        fits = _fits(args, study)
        found = (t for t in study.trials if t.model in question.models and fits(t))
        trials = tuple(t for t in found if question.load in (None, load(t)))
        if not trials:
            raise UsageError("E-PICK-5", "the study has no cell that the flags and models name")
        return trials
    if not question.models:
        raise UsageError(
            "E-PICK-2",
            "the store holds no result to choose among, and no model is named to search for",
            fix="edgescope recommend MODEL, or edgescope sweep first",
        )
    return _of_flags(args, question.models)


def _of_flags(args: argparse.Namespace, models: tuple[str, ...]) -> tuple[Trial, ...]:
    """Return the product of the flags; without --backend what is proposed for each model on the device."""
    from edgescope.study import grid as study

    keys = _keys(args)
    keys = {"min_s": 1.0, "max_s": 2.5} | keys
    if keys["backend"]:
        keys["precision"] = keys["precision"] or ["fp32"]
        return study.grid(keys | {"model": list(models), "device": args.device})
    found: list[Trial] = []
    for model in models:
        for t in _proposed(model, args.device, keys["precision"]):
            one = {"model": model, "backend": t.backend, "precision": t.precision, "device": t.device}
            found += study.grid(keys | one | {"options": {**t.options, **keys["options"]}})
    return tuple({t.id: t for t in found}.values())


def _proposed(model: str, device: str | None, precisions: list[str]) -> list[Trial]:
    """Return what is worth trying for one model, without what takes a compiler's time."""
    from edgescope.records import Trial
    from edgescope.search import candidates

    usual = "cpu" if candidates.reads_tflite_only(model) else candidates.device()
    tried = candidates.propose(Trial(model=model, device=device or usual), _installed()).trials
    return [t for t in tried if (not precisions or t.precision in precisions) and not candidates.dear(t)]


@functools.cache
def _installed() -> dict[str, Installed]:
    """Return what the backends say of themselves: a process of its own, asked once."""
    from edgescope.cli.optimize import installed

    return installed()
