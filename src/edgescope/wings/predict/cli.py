"""Predict time, power and energy of every mode (cores, clocks, share of a GPU, batch, workers ...) from a few
profiled ones.

Intervals are 90 % prediction intervals of a fresh run. The answer comes from stored results, from a table that
any tool measured, or with --run from modes that the predictor chooses, enters and measures here; the pick is
then confirmed in fresh processes. A constraint is judged on the worse end of the interval until the mode was
measured.

  edgescope predict mobilenet_v2 --run --mode "cpus=0 cpus=0-1" --batch 1,4,16 --profiles 4
  edgescope predict mobilenet_v2 --objective energy --constraint "power<=20W"
  edgescope predict --table modes.csv --constraint "epoch<=60s" --epoch-samples 60000
"""

from __future__ import annotations

import argparse
from pathlib import Path

from edgescope.commandline import context, trial_flags

INTERRUPTED = "Finished trials are stored; the same command goes on with the others."


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument(
        "models", nargs="*", metavar="MODEL", help="models to answer for, each by itself (those stored)"
    )
    group = sub.add_argument_group("objective and constraints")
    text = "what to optimise: throughput (or fps), energy, power (throughput)"
    group.add_argument("--objective", default=None, metavar="WORD", help=text)
    trial_flags.add_constraint(group, "power<=20W, epoch<=60s, energy<=50mJ, throughput>=30")
    text = "samples of one epoch, for its time and energy"
    group.add_argument("--epoch-samples", type=trial_flags.whole, default=None, metavar="N", help=text)
    group = sub.add_argument_group("modes")
    text = "study file: take the modes, [objective] and [[constraint]] from it"
    group.add_argument("--study", type=Path, default=None, metavar="FILE", help=text)
    text = "modes that any tool measured: CSV or JSON with knobs, seconds, power_w (edgescope docs predict)"
    group.add_argument("--table", type=Path, default=None, metavar="FILE", help=text)
    text = "model whose stored results show how modes differ, as a start for this one"
    group.add_argument("--prior-model", default="", metavar="MODEL", help=text)
    trial_flags.add_other_store(group, "the results of --prior-model")
    trial_flags.add_machine(group, "only its results")
    usual = ("the usual one of the model", "fp32", "1,4,16")
    trial_flags.add_what(group, lists=True, usual=(None, None, None), shown=usual)
    group = sub.add_argument_group("profiling")
    trial_flags.add_run(group, ": the modes that the predictor chooses, then the pick in fresh processes")
    text = "modes to profile, those in the store included (15)"
    group.add_argument("--profiles", type=trial_flags.whole, default=15, metavar="N", help=text)
    text = "runs that confirm the pick, each in a fresh process, its first one included (3)"
    group.add_argument("--confirm-runs", type=trial_flags.whole, default=3, metavar="N", help=text)
    sub.add_argument(
        "--all", action="store_true", help="show everything: every mode, not only the Pareto front"
    )
    trial_flags.add_output(sub, "file to write: the answer as well (.html, .md, .csv, .json)")
    context.add_verbose(sub)
    trial_flags.add_load(sub, lists=True)
    trial_flags.add_timing(sub)
    trial_flags.add_safety(sub)
    trial_flags.untyped(sub)


def run(args: argparse.Namespace) -> int:
    """Predict, and print the answers; return 1 if a question has no pick."""
    from edgescope.report import save
    from edgescope.wings.predict.prediction import document
    from edgescope.wings.predict.verb import predict

    modes = {} if args.mode is None else {"mode": args.mode.split()}
    answers = predict(
        *args.models,
        objective=args.objective or "",
        constraints=args.constraint,
        study=args.study,
        table=args.table,
        run=args.run,
        profiles=args.profiles,
        confirm_runs=args.confirm_runs,
        epoch_samples=args.epoch_samples,
        prior_model=args.prior_model,
        other_store=trial_flags.other_store(args),
        machine=args.machine,
        store=args.store,
        setup=context.setup(args),
        **(trial_flags.selected(args) | modes),
    )
    pages = [document(a.name, a.prediction, a.confirmed, a.pick, everything=args.all) for a in answers]
    if args.output and pages:
        save(pages[0], args.output)
    context.show_each(args, pages)
    return 0 if all(a.pick for a in answers) else 1
