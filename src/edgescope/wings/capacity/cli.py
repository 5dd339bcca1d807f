"""Find how many clients or cameras this machine can serve while every constraint is kept. Each client sends
--client-rate queries a second.

A closed loop measures how long one query takes; short runs find the largest number of clients; a sustained run confirms
it on the upper bound of the promised quantile. The answer names what limits it: CPU, GPU, memory, power, heat, decoder,
or queries that wait for each other. The same command again resumes, or answers from the store.

  edgescope capacity resnet50 --backend openvino --constraint "p99<40ms" --client-rate 15
  edgescope capacity resnet50 --constraint "p99<=100ms, memory<=2GB" --client-rate 5 --server-processes per-client \
    --arrivals camera
  edgescope capacity resnet50 --deadline 100ms --constraint "misses<1%" --client-rate 15 --arrivals camera
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from edgescope.commandline import context, trial_flags

if TYPE_CHECKING:
    from edgescope.wings.capacity.verb import Fitting

INTERRUPTED = "Finished trials are stored; the same command goes on with the others."


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument("model", help=trial_flags.MODEL)
    trial_flags.add_what(sub)
    _add_promise(sub)
    _add_serving(sub)
    _add_search(sub)
    context.add_verbose(sub)
    trial_flags.add_engine(sub.add_argument_group("engine"))
    trial_flags.add_safety(sub)


def _add_promise(sub: argparse.ArgumentParser) -> None:
    group = sub.add_argument_group("what each client sends, and the constraints to keep")
    trial_flags.add_constraint(
        group,
        "p99<40ms, frame_age_p99<200ms, misses<1%%, dropped<1%%, memory<=2GB, power<=10W",
        required=True,
    )
    text = "queries/s that each client sends; the frame rate of a camera"
    group.add_argument("--client-rate", type=float, required=True, metavar="QPS", help=text)
    text = (
        "arrival pattern: poisson (random and independent, the cautious case); camera (each client periodic, with a"
        " random phase); even (perfectly interleaved, the best case, only with --server-processes one) (poisson)"
    )
    group.add_argument("--arrivals", default="poisson", choices=("poisson", "camera", "even"), help=text)


def _add_serving(sub: argparse.ArgumentParser) -> None:
    group = sub.add_argument_group("how they are served")
    text = "one: a single process answers all clients; per-client: each client has its own process (one)"
    group.add_argument("--server-processes", default="one", choices=("one", "per-client"), help=text)
    trial_flags.add_serving(group)
    trial_flags.add_work(group)


def _add_search(sub: argparse.ArgumentParser) -> None:
    group = sub.add_argument_group("search")
    text = "length of the sustained run that confirms the answer; longer if the bound needs it (30s)"
    group.add_argument("--confirm-duration", type=trial_flags.seconds, default=30.0, metavar="60s", help=text)
    text = trial_flags.LONGEST % "10min"
    group.add_argument("--max-duration", type=trial_flags.seconds, default=600.0, metavar="10min", help=text)
    text = "largest number of clients to try (1024)"
    group.add_argument("--max-clients", type=int, default=1024, metavar="N", help=text)
    trial_flags.add_warmup(group)
    text = "try everything: confirm every number of clients from 1 up, until one number fails twice"
    group.add_argument("--exhaustive", action="store_true", help=text)
    trial_flags.add_no_cache(group)
    trial_flags.add_output(
        group, "file to write: the answer as well (.html with its curves, .md, .csv, .json)"
    )


def run(args: argparse.Namespace) -> int:
    """Search, print the table and the sentence; return 1 if not even one client fits."""
    from edgescope.wings.capacity.page import document
    from edgescope.wings.capacity.verb import capacity

    context.ready(args)
    found = capacity(
        args.model,
        client_rate=args.client_rate,
        constraints=args.constraint,
        server_processes=args.server_processes,
        arrivals=args.arrivals,
        confirm_duration_s=args.confirm_duration,
        max_duration_s=args.max_duration,
        max_clients=args.max_clients,
        exhaustive=args.exhaustive,
        cached=not args.no_cache,
        store=context.store(args),
        setup=context.setup(args),
        **{name: trial_flags.axis(name, getattr(args, name), single=True) for name in trial_flags.WHAT},
        in_flight=args.in_flight,
        sharing=args.sharing,
        warmup=args.warmup,
        **trial_flags.work_keys(args),
        **trial_flags.engine_keys(args),
    )
    if found.found is None:
        return _nothing(found, args.json)
    written = str(args.output or "")
    page = document(found.found, command=context.command(), written=written)
    context.show(args, page)
    return 0 if found.clients else 1


def _nothing(found: Fitting, as_json: bool) -> int:
    """Print why no number of clients could be tried; return the exit code of the failed run."""
    from edgescope.report import result as card
    from edgescope.report import terminal
    from edgescope.wings.capacity import page as capacity

    assert found.failed is not None
    if as_json:
        print(json.dumps(capacity.nothing(found.failed, found.question), indent=1))
    else:
        terminal.show(card.document(found.failed), limit=None)
    return context.exit_code(found.failed)
