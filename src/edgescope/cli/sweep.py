"""Measure a grid: every combination of the values given, shuffled, each cell in a fresh process, resumable.

  edgescope sweep --model mobilenet_v2,resnet50 --backend onnxruntime,openvino --precision fp32,int8 --batch 1,4
  edgescope sweep study.toml

The same command again runs only what is missing.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgescope.cli import opened, trial_flags

#: Flags that a study may set in its section [sweep].
SWEEP_DEFAULTS = {"cooldown": 0.0, "order_seed": 0, "timeout": 900.0, "memory_floor": None}

HELP = "measure a grid of models, engines, precisions and batches; resumable"


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument(
        "study", nargs="?", default=None, help="study.toml: all of the grid; or use the flags below"
    )
    sub.add_argument("--model", default=None, help="comma-separated")
    sub.add_argument("--backend", default="torch_eager", help="comma-separated")
    sub.add_argument("--precision", default="fp32", help="comma-separated")
    sub.add_argument("--batch", default="1", help="comma-separated")
    sub.add_argument("--replicates", type=int, default=1, help="fresh processes a cell")
    sub.add_argument(
        "--cooldown", type=trial_flags.seconds, default=0.0, metavar="2s", help="pause between cells"
    )
    sub.add_argument("--order-seed", type=int, default=0, help="seed of the shuffled order")
    sub.add_argument(
        "--dry-run", action="store_true", help="print the cells and which are finished; run nothing"
    )
    trial_flags.add_load(sub)
    trial_flags.add_timing(sub)
    trial_flags.add_safety(sub)


def run(args: argparse.Namespace) -> int:
    """Run what the store lacks; print one line a cell, or JSON lines."""
    from edgescope import codec, sweep
    from edgescope.bench import here
    from edgescope.records import Status

    trials, where = _plan(args)
    opened.check_modes(trials)
    if where is not None and args.store is None:
        args.store = str(where)
    store = opened.store(args)
    if args.dry_run:
        missing = sweep.pending(trials, store, here(), opened.retried(args))
        return _dry(trials, {t.id for t in missing}, as_json=args.json)
    cells = opened.cells(args, store)
    worst = 0
    for result in sweep.run(
        trials, cells, seed=int(args.order_seed), cooldown_s=args.cooldown, tell=opened.tell
    ):
        if args.json:
            print(json.dumps(codec.to_json(result)), flush=True)
        else:
            from edgescope.cli import card

            card.line(result)
        worst = max(worst, 0 if result.status in (Status.UNSUPPORTED, Status.OK) else 1)
    return worst


def _plan(args: argparse.Namespace) -> tuple[tuple[Any, ...], Path | None]:
    from edgescope import study
    from edgescope.errors import UsageError
    from edgescope.models import zoo

    if args.study:
        if args.model:
            raise UsageError("E-SWEEP-5", "give a study.toml or --model, not both")
        plan = study.read(Path(args.study))
        for key, value in (plan.sweep or {}).items():
            if key not in SWEEP_DEFAULTS:
                text = f"{args.study}: [sweep] has no key {key}"
                raise UsageError("E-SWEEP-3", text, evidence=f"known: {', '.join(SWEEP_DEFAULTS)}")
            if getattr(args, key) == SWEEP_DEFAULTS[key]:  # what is typed wins over what is written
                setattr(args, key, _setting(key, value))
        return tuple(replace(t, model=zoo.pin(t.model)) for t in plan.trials), plan.store
    if not args.model:
        raise UsageError("E-SWEEP-1", "a sweep needs a study.toml or --model", fix="edgescope sweep --help")
    keys = trial_flags.keys(args)
    keys |= {name: getattr(args, name).split(",") for name in ("model", "backend", "precision")}
    keys["model"] = [zoo.pin(name) for name in keys["model"]]
    try:
        keys["batch"] = [int(n) for n in args.batch.split(",")]
    except ValueError as error:
        raise UsageError("E-SWEEP-2", f"--batch takes whole numbers, not {args.batch!r}") from error
    return study.grid(keys | {"replicates": args.replicates}), None


def _setting(key: str, value: Any) -> Any:
    """Read a value of [sweep] as its flag would be read: 15min and 900 alike."""
    try:
        return trial_flags.seconds(str(value)) if key in ("cooldown", "timeout") else float(value)
    except (argparse.ArgumentTypeError, TypeError, ValueError) as error:
        from edgescope.errors import UsageError

        raise UsageError("E-SWEEP-4", f"[sweep] {key} = {value!r}: {error}") from error


def _dry(trials: tuple[Any, ...], missing: set[str], *, as_json: bool) -> int:
    rows = [{"trial": t.id, "label": f"{t.model} {t.label}", "finished": t.id not in missing} for t in trials]
    if as_json:
        print(json.dumps(rows, indent=1))
    else:
        for row in rows:
            print(f"{row['trial']}  {'finished' if row['finished'] else 'to do   '}  {row['label']}")
    return 0
