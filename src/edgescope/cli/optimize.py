"""Find the fastest way to run a model on this machine that still gives the right answers.

Candidates (engines x precisions x layouts x graph capture) are screened in short runs; what cannot be told from the
best is then measured in fresh processes, interleaved in random order with PyTorch as it is, and verified against the
fp32 reference. A candidate with wrong outputs, or that breaks a constraint, is shown struck out and is never picked.
A run that was interrupted goes on where it was when the same command is given again.

  edgescope optimize efficientnet_lite0
  edgescope optimize efficientnet_lite0 --objective throughput --constraint "p99<=33ms" --save deployed
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from edgescope.cli import opened, trial_flags
from edgescope.cli.waiting import waiting

if TYPE_CHECKING:
    from edgescope.analysis.cells.objective import Wanted
    from edgescope.analysis.cells.variants import VariantTable
    from edgescope.records import Result, Trial
    from edgescope.search.candidates import Installed, Proposal
    from edgescope.search.halving import Step

HELP = "try engines and precisions on a model, verify each, pick one"
INTERRUPTED = "What was finished is stored; the same command goes on where it was."


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument("model", help="zoo name, NAME@weights.pth, file.onnx or module:callable")
    add(sub)


def add(sub: argparse.ArgumentParser) -> None:
    """Add the flags that optimize and demo share."""
    sub.add_argument("--batch", type=int, default=1, help="samples in one query (1)")
    group = sub.add_argument_group("what is wanted")
    text = "what to be best at: latency, throughput, energy, watts (latency)"
    group.add_argument("--objective", default="latency", metavar="WORD", help=text)
    text = "p99<=33ms, accuracy>=0.98ref, memory<=2GB, power<=10W, energy<=50mJ ...; may be repeated"
    group.add_argument("--constraint", action="append", default=[], metavar="BOUND", help=text)
    group = sub.add_argument_group("which candidates, how often")
    text = (
        "only candidates with one of these words, e.g. openvino,torch_compile+fp16; the baseline always stays; "
        "all,tune=max-autotune adds to all what compiles for minutes"
    )
    group.add_argument("--try", dest="only", default="", metavar="WORD,..", help=text)
    group.add_argument("--skip", default="", metavar="WORD,..", help="no candidate with one of these words")
    group.add_argument(
        "--rounds", type=int, default=5, help="final rounds: fresh processes of each finalist (5)"
    )
    text = "no short rounds: every candidate in every final round"
    group.add_argument("--exhaustive", action="store_true", help=text)
    group.add_argument("--fresh", action="store_true", help="measure again what the store already holds")
    group = sub.add_argument_group("what is written")
    text = "put what the pick runs into DIR: its file, run.py that needs its engine alone, and a card"
    group.add_argument("--save", default=None, metavar="DIR", help=text)
    group.add_argument(
        "--report", default=None, metavar="FILE", help="also write the report (.html, .md, .csv)"
    )
    opened.add_verbose(sub)
    trial_flags.add_load(sub)
    trial_flags.add_timing(sub)
    trial_flags.add_safety(sub)


def run(args: argparse.Namespace) -> int:
    """Run the rounds, print the table and the pick; exit 1 when nothing may be recommended."""
    from edgescope.analysis.cells.objective import wanted

    asked = wanted(args.objective, args.constraint)
    opened.limits(args)  # before minutes are spent
    if args.report:
        from edgescope.report import writable

        writable(Path(args.report))
    if args.save:
        from edgescope.deploy.save import ready

        ready(Path(args.save))
    base, there = _base(args), installed()
    proposal = _proposal(args, base, there)
    results = _measure(args, proposal, asked, there)
    from edgescope.report import variants
    from edgescope.report.chapter import chapter
    from edgescope.report.render import json as as_json
    from edgescope.report.render import terminal

    found = chapter(results, asked)
    best = found.pick.row
    written = _written(args, results, asked, best.cell if best else "")
    missing, shown = proposal.not_here, {} if args.json else written
    page = variants.document([found], missing=missing, again=again(found.table), written=shown)
    if args.json:
        from edgescope.records.codec import to_json

        more = {"results": [to_json(r) for r in results]} | ({"saved": written["saved"]} if args.save else {})
        print(as_json.text(dataclasses.replace(page, data={**page.data, **more})))
    else:
        terminal.show(page, verbose=args.verbose)
    return 0 if best is not None else 1


#: Ends that another attempt may change; the store answers with them until --retry names them.
AGAIN = ("timeout", "crashed", "oom", "failed", "unsupported")


def again(found: VariantTable) -> list[str]:
    """Return the statuses by which rows are rejected and that another attempt may change."""
    reasons = [row.rejected for row in found.rows if row.rejected]
    ends = [text for text in reasons if not opened.asked_wrongly(text.partition(": ")[2])]
    said = {text.partition(":")[0].partition(" ")[0] for text in ends}
    return [status for status in AGAIN if status in said]


def _written(
    args: argparse.Namespace, results: list[Result], asked: Wanted, cell: str
) -> dict[str, str | None]:
    """Write what --save and --report ask for; return what lies where."""
    out: dict[str, str | None] = {}
    if args.save:
        from edgescope.deploy.save import save

        chosen = [r for r in results if r.trial.cell == cell]
        out["saved"] = str(save(chosen, results, Path(args.save), wanted=asked)) if chosen else None
    if args.report:
        from edgescope.report import write

        with waiting(f"writing {args.report}"):
            out["report"] = str(write(results, Path(args.report), wanted=asked))
    return out


def _base(args: argparse.Namespace) -> Trial:
    """Return what all candidates share."""
    from edgescope.models import zoo
    from edgescope.records import Trial
    from edgescope.scenarios import settings as asked
    from edgescope.search import candidates
    from edgescope.study import ranges

    keys = trial_flags.keys(args, single=True)
    keys = {"min_s": 1.0, "max_s": 2.5} | keys
    if args.fresh:
        import time

        keys["seed"] = time.time_ns() // 1_000_000  # another question, so nothing stored answers it
    usual = "cpu" if candidates.reads_tflite_only(args.model) else candidates.device()
    keys["device"] = keys["device"] or usual
    return ranges.checked(asked.checked(Trial(model=zoo.pin(args.model), batch=args.batch, **keys)))


def _proposal(args: argparse.Namespace, base: Trial, there: Mapping[str, Installed]) -> Proposal:
    from edgescope.errors import UnavailableError
    from edgescope.search import candidates

    words = {name: [w for w in getattr(args, name).split(",") if w] for name in ("only", "skip")}
    proposal = candidates.propose(base, there, **words)
    if not proposal.trials:
        missing = "; ".join(f"{m.label}: {m.reason}" for m in proposal.not_here)
        raise UnavailableError(
            "E-TRY-2",
            "no engine that could run this model is here",
            evidence=missing,
            fix="edgescope backends",
        )
    return proposal


def installed() -> dict[str, Installed]:
    """Return what `edgescope backends` says, asked in a process of its own: engines are large, and may crash."""
    from edgescope.search.candidates import Installed

    command = [sys.executable, "-m", "edgescope.cli.main", "backends", "--json"]
    with waiting("asking which engines are here"):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    rows = json.loads(done.stdout) if done.returncode == 0 else []
    return {
        row["name"]: Installed(row["available"], tuple(row["options"]), row["reason"], row["fix"])
        for row in rows
    }


def _measure(
    args: argparse.Namespace, proposal: Proposal, asked: Wanted, there: Mapping[str, Installed]
) -> list[Result]:
    from edgescope.search import candidates, halving

    def mixture(trial: Trial) -> Trial | None:
        return candidates.mixture(trial, there)

    cells = opened.cells(args, opened.store(args))
    known = cells.finished()
    rounds = halving.Rounds(args.rounds, proposal.trials[0].seed, short=0 if args.exhaustive else 2)
    results, stored = [], 0
    every = halving.optimize(proposal.trials, cells, wanted=asked, rounds=rounds, tell=_tell, instead=mixture)
    for result in every:
        results.append(result)
        stored += result.trial.id in known and known[result.trial.id].id == result.id
    if stored:
        print(
            f"{stored} of {len(results)} runs are from the store; --fresh measures them again",
            file=sys.stderr,
        )
    return results


def _tell(step: Step) -> None:
    """Print where the optimisation stands on stderr."""
    from edgescope.units import duration

    left = "" if step.eta_s is None else f", about {duration(step.eta_s)} left"
    print(
        f"[{step.stage} round {step.round}/{step.rounds}, {step.position}/{step.alive}]"
        f" {step.trial.label}{left}",
        file=sys.stderr,
        flush=True,
    )
