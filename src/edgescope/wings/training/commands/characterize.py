"""Measure the grid of a published study of training on this machine: workers, batch, storage, CPUs, for its three
networks on real pictures. `edgescope study training` then judges the study's takeaways and draws its figures.

  edgescope train characterize --budget 20min
  edgescope study training --output training.html
"""

from __future__ import annotations

import argparse

from edgescope.commandline import context, trial_flags
from edgescope.commandline.progress import waiting

HELP = "measure the grid of a published study of training (edgescope study training)"
INTERRUPTED = "Finished cells are stored; the same command goes on with the others."


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    trial_flags.add_device(sub, "cpu", "cpu")
    text = "only these models (all)"
    sub.add_argument("--models", type=trial_flags.words, default=(), metavar="NAME,..", help=text)
    text = "time until the answer (20min); what it leaves no time for is measured by the same command"
    sub.add_argument("--budget", type=trial_flags.seconds, default=1200.0, metavar="TIME", help=text)
    trial_flags.add_output(sub, "file to write: the study's page as well (.html, .md, .csv, .json)")
    context.add_verbose(sub)
    trial_flags.add_safety(sub)


def run(args: argparse.Namespace) -> int:
    """Measure what the store lacks, print the study's answer, write the page; return 1 if nothing was measured."""
    from edgescope.wings.studies.verb import train_characterize

    context.ready(args)
    found = train_characterize(
        device=args.device,
        models=args.models,
        budget=args.budget,
        store=context.store(args),
        setup=context.setup(args),
        waiting=waiting,
    )
    context.show(args, found.document, whole=True)
    if not args.json:
        print(f"{found.measured} of {found.planned} runs are measured")
    return int(not found.measured)
