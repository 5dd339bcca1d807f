"""Find how many clients or cameras fit on this machine: each sends --rate queries a second, and every promise is kept.

A closed loop tells how long a query takes; short runs find the edge; a sustained run confirms the answer, on the
upper bound of the promised quantile. What keeps one client more from fitting is named: CPU, GPU, memory, power, heat,
decoder, or the wait of queries for each other. The same command again resumes, or answers from the store.

  edgescope capacity resnet50 --backend openvino --constraint "p99<40ms" --rate 15
  edgescope capacity resnet50 --constraint "p99<=100ms, memory<=2GB" --rate 5 --serve processes --arrivals camera
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from edgescope.cli import opened, trial_flags

if TYPE_CHECKING:
    from edgescope.analysis.capacity.promises import Point
    from edgescope.search.capacity import Search, Step
    from edgescope.search.capacity_question import Question

HELP = "find how many clients or cameras fit, and what limits them"
INTERRUPTED = "What was finished is stored; the same command goes on where it was."


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument("model", help="zoo name, NAME@weights.pth, file.onnx or module:callable")
    sub.add_argument("--backend", default="torch_eager", help="see edgescope backends (torch_eager)")
    sub.add_argument("--precision", default="fp32", help="fp32, bf16, int8 ... (fp32)")
    sub.add_argument("--batch", type=int, default=1, help="samples in one query (1)")
    _add_promise(sub)
    _add_serving(sub)
    _add_search(sub)
    opened.add_verbose(sub)
    trial_flags.add_engine(sub.add_argument_group("engine"))
    trial_flags.add_safety(sub)
    sub.set_defaults(scenario="single_stream", processes="1", colocated="")  # the search sets them
    sub.set_defaults(workload="inference", workload_option=[], scenario_option=[])
    sub.set_defaults(rel_width=0.01, max_queries=None, idle=0.0)
    sub.set_defaults(duration=None, soak=None, min_duration=None, max_duration=None)


def _add_promise(sub: argparse.ArgumentParser) -> None:
    group = sub.add_argument_group("what each client sends, and what it is promised")
    text = "p99<40ms, p50<=10ms, p99.9<0.1s, memory<=2GB, gpu_memory<=4GB, power<=10W, energy<50mJ; may be repeated"
    group.add_argument("--constraint", action="append", required=True, metavar="BOUND", help=text)
    text = "queries/s that each client sends; the frame rate of a camera"
    group.add_argument("--rate", type=float, required=True, help=text)
    text = (
        "poisson: at random, independently (the usual, cautious case); camera: each periodic, with a phase of"
        " its own; even: perfectly interleaved, the best case, with --serve one"
    )
    group.add_argument("--arrivals", default="poisson", choices=("poisson", "camera", "even"), help=text)


def _add_serving(sub: argparse.ArgumentParser) -> None:
    group = sub.add_argument_group("how they are served")
    text = "one: a single process answers all clients; processes: each client has one of its own (one)"
    group.add_argument("--serve", default="one", choices=("one", "processes"), help=text)
    text = "queries that one process works on at once (1)"
    group.add_argument("--in-flight", type=int, default=1, help=text)
    text = "of processes: time_slicing, pinned, mps, mps=50"
    group.add_argument("--sharing", default="time_slicing", help=text)


def _add_search(sub: argparse.ArgumentParser) -> None:
    group = sub.add_argument_group("search")
    text = "length of the sustained run at the answer; longer where the bound needs it (30s)"
    group.add_argument("--confirm", type=trial_flags.seconds, default=30.0, metavar="60s", help=text)
    text = "no run is made longer than this for a bound (10min)"
    group.add_argument("--longest", type=trial_flags.seconds, default=600.0, metavar="10min", help=text)
    group.add_argument("--most", type=int, default=1024, help="clients that are tried at most (1024)")
    text = "seconds thrown away at the start of each run, or auto"
    group.add_argument(
        "--warmup", type=trial_flags.seconds_or_auto, default=None, metavar="1s|auto", help=text
    )
    text = "no search: confirm every number from 1 up until one fails twice"
    group.add_argument("--exhaustive", action="store_true", help=text)
    text = "measure again what the store already holds, with the same arrivals; goes on with such a search that was cut"
    group.add_argument("--fresh", action="store_true", help=text)
    text = "also write the answer (.html, with the curve of each promise; .md, .csv, .json)"
    group.add_argument("--out", type=Path, default=None, metavar="FILE", help=text)


def run(args: argparse.Namespace) -> int:
    """Search, print the table and the sentence; exit 1 when not one client fits."""
    from edgescope.report import RENDERERS, capacity, save, writable
    from edgescope.report.render import json as as_json
    from edgescope.report.render import terminal
    from edgescope.search.capacity import Search, going_on

    if args.out:
        writable(args.out, RENDERERS)  # before minutes are spent
    opened.limits(args)
    asked = question(args)
    opened.check_modes([asked.base])
    cells = opened.cells(args, opened.store(args))
    asked = going_on(asked, cells, fresh=args.fresh, exhaustive=args.exhaustive)
    search = Search(asked, cells, tell, heard)
    search.every() if args.exhaustive else search.run()
    if not search.points or search.hopeless:
        return _nothing(search, args.json)
    found = search.answer()
    if search.stored:
        text = f"{search.stored} of {len(search.points) + 1} runs are from the store; --fresh measures them again"
        print(text, file=sys.stderr)
    page = capacity.document(found, asked, command=opened.command(), written=str(args.out or ""))
    if args.out:
        save(page, args.out)  # first: what prints may be a pipe that is closed
    if args.json:
        print(as_json.text(page))
    else:
        terminal.show(page, verbose=args.verbose)
    return 0 if found.clients else 1


def question(args: argparse.Namespace) -> Question:
    """Return what is asked; UsageError for what cannot be."""
    from edgescope import registry
    from edgescope.analysis.capacity.promises import promises
    from edgescope.errors import UsageError
    from edgescope.models import zoo
    from edgescope.records import Trial
    from edgescope.search.capacity_question import Question
    from edgescope.study import ranges

    promised = promises(args.constraint)
    problem = _problem(args)
    if problem:
        raise UsageError(
            "E-CAP-2",
            f"this cannot be asked: {problem}",
            effect="Nothing was measured",
            fix="edgescope capacity --help",
        )
    keys = trial_flags.keys(args, single=True) | {
        "rate": None,
        "scenario_options": {},
        "sharing": args.sharing,
        "processes": 1,
    }
    keys["device"] = keys["device"] or registry.home(args.backend)
    base = Trial(
        model=zoo.pin(args.model),
        backend=args.backend,
        precision=args.precision,
        batch=args.batch,
        **keys,
    )
    return Question(
        ranges.checked(base),
        args.rate,
        promised,
        args.serve,
        args.arrivals,
        args.confirm,
        args.longest,
        args.most,
    )


def _problem(args: argparse.Namespace) -> str:
    """Say which flag cannot be meant, or ''."""
    rules = (
        (0 < args.rate < float("inf"), f"--rate must be a positive number of queries/s, not {args.rate:g}"),
        (args.most >= 1, f"--most must be at least 1, not {args.most}"),
        (args.confirm >= 1, f"--confirm must be at least 1s, not {args.confirm:g}s"),
        (args.longest >= args.confirm, f"--longest {args.longest:g}s is shorter than --confirm"),
        (args.serve == "processes" or args.sharing == "time_slicing", "--sharing is for --serve processes"),
        (
            args.serve == "one" or args.arrivals != "even",
            "--arrivals even: each process keeps time for itself, nothing makes them take turns; camera says so",
        ),
    )
    return next((text for ok, text in rules if not ok), "")


def tell(step: Step) -> None:
    """Print what runs next on stderr."""
    who = "one query after the other" if step.stage == "closed" else f"{step.clients} clients"
    who = who.replace("1 clients", "1 client") if step.clients == 1 else who
    name = {"closed": "closed loop"}.get(step.stage, step.stage)
    note = f", {step.note}" if step.note else ""
    print(f"[{name}] {who}, {step.seconds:g} s{note}", file=sys.stderr, flush=True)


def heard(point: Point) -> None:
    """Print how a run came out on stderr."""
    from edgescope.report.capacity import line

    print(f"  {line(point)}", file=sys.stderr, flush=True)


def _nothing(search: Search, as_json: bool) -> int:
    """Say why nothing could be asked; return the exit code of the run that showed it."""
    from edgescope.report import capacity
    from edgescope.report import result as card
    from edgescope.report.render import terminal

    result = search.points[-1].result if search.points else search.closed
    assert result is not None
    if as_json:
        print(json.dumps(capacity.nothing(result, search.asked), indent=1))
    else:
        terminal.show(card.document(result), limit=None)
    return opened.exit_code(result)
