"""Decide whether queries are better answered at the edge, in the cloud, or shared, from stored results of two machines
and a network that is given or measured.

  edgescope offload --probe 10.0.0.7 --output network.json   runs ping and iperf3 (on the far machine: iperf3 -s)
  edgescope offload CELL_A CELL_B --remote-store cloud --profile network.json --constraint "p99<=50ms" --rate 30
  edgescope offload CELL_A CELL_B --iperf3 up.json --iperf3 down.json --ping ping.txt --payload 40kB
  edgescope offload CELL_A CELL_B --rtt 20ms --bandwidth 20Mbit --payload 40kB --output offload.html

CELL_A was measured at the edge, CELL_B in the cloud (beginnings of ids, labels, or latest). Queries are split between
the two machines; the layers of a model are not. `edgescope docs offload` says what is computed and what is left out.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgescope.commandline import context, trial_flags
from edgescope.store import files

if TYPE_CHECKING:
    from edgescope.wings.offload.answer import Question

INTERRUPTED = "Nothing was written; the same command starts again."
SENT = ("payload", "response_size", "rate", "remote_servers", "radio_power", "radio_energy", "seed")
GIVEN = ("rtt", "jitter", "bandwidth", "uplink", "downlink", "loss")


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument(
        "local",
        nargs="?",
        metavar="EDGE",
        help="cell measured at the edge: an id's beginning, a label or latest",
    )
    sub.add_argument("remote", nargs="?", metavar="CLOUD", help="cell measured on the remote machine")
    trial_flags.add_store(sub)
    text = "store that holds the remote cell (--store)"
    sub.add_argument("--remote-store", default=None, metavar="DIR", help=text)
    trial_flags.add_machine(sub, "the edge machine, if the store holds several")
    text = "the remote machine, if its store holds several"
    sub.add_argument("--remote-machine", default="", metavar="ID", help=text)
    _network(sub.add_argument_group("the network"))
    _load(sub.add_argument_group("what is sent, and how often"))
    group = sub.add_argument_group("objective and constraints")
    text = "what to optimise: latency, throughput (or fps), energy, power (latency)"
    group.add_argument("--objective", default="latency", metavar="WORD", help=text)
    trial_flags.add_constraint(group, "p99<=50ms, throughput>=30, energy<=50mJ, accuracy>=0.7")
    trial_flags.add_output(
        sub,
        "file to write: the answer as well (.html, .md, .csv, .json), or the profile that --probe measured",
    )
    trial_flags.add_json(sub)
    context.add_verbose(sub)


def _network(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--profile",
        type=Path,
        default=None,
        metavar="FILE",
        help="network profile (TOML or JSON); flags override it",
    )
    group.add_argument("--rtt", metavar="20ms", help="median round trip")
    group.add_argument("--jitter", metavar="5ms", help="standard deviation of the round trip (0)")
    group.add_argument("--bandwidth", metavar="20Mbit", help="bandwidth in both directions")
    group.add_argument("--uplink", metavar="20Mbit", help="bandwidth to the cloud")
    group.add_argument("--downlink", metavar="50Mbit", help="bandwidth from the cloud")
    group.add_argument("--loss", metavar="0.5%", help="share of segments lost (none)")
    text = "bandwidth that `iperf3 --json` measured, in one direction or both; may be repeated"
    group.add_argument("--iperf3", type=Path, action="append", default=[], metavar="FILE", help=text)
    text = "round trips that ping printed"
    group.add_argument("--ping", type=Path, default=None, metavar="FILE", help=text)
    text = "run ping and iperf3 against HOST, where `iperf3 -s` runs; --output names the profile"
    group.add_argument("--probe", metavar="HOST", help=text)


def _load(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--payload", metavar="40kB", help="size sent for one sample (the raw input tensor)")
    group.add_argument(
        "--response-size", metavar="4kB", help="size sent back for one sample (a classifier's scores)"
    )
    text = "queries/s offered, in total (the rate of a throughput>= constraint, else one query at a time)"
    group.add_argument("--rate", type=trial_flags.number, default=None, metavar="30", help=text)
    text = "arrival pattern: poisson (random) or camera (periodic) (poisson)"
    group.add_argument("--arrivals", choices=("poisson", "camera"), default="poisson", help=text)
    group.add_argument(
        "--remote-servers",
        type=int,
        default=1,
        metavar="N",
        help="number of machines like the remote one (1)",
    )
    group.add_argument(
        "--radio-power", type=float, default=None, metavar="W", help="power of the radio while it sends"
    )
    group.add_argument(
        "--radio-energy",
        type=float,
        default=None,
        metavar="J/MB",
        help="energy of the radio for each MB sent or received",
    )
    trial_flags.add_seed(group)


def run(args: argparse.Namespace) -> int:
    """Measure the network (--probe) or print the decision; return 1 if nothing keeps the constraints."""
    if args.probe:
        return _probe(args)
    from edgescope.wings.offload import page as offload

    found = _question(args)
    page = offload.document(found, context.command(), written=str(args.output or ""))
    context.show(args, page)
    return 0 if found.answer.pick else 1


def _probe(args: argparse.Namespace) -> int:
    """Measure a network, write its profile and print a summary; return 0."""
    from edgescope.report import terminal
    from edgescope.wings.offload.network import probe, profile
    from edgescope.wings.offload.page import probed

    keys = probe(args.probe, tell=context.say)
    path = args.output or Path("network.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_text(path, json.dumps(keys) + "\n")
    if args.json:
        print(json.dumps(keys))
    else:
        terminal.printed(probed(profile(keys), keys))
        print(f"written to {path}")
    return 0


def _question(args: argparse.Namespace) -> Question:
    """Return the answer for the cells and the network that the flags name."""
    from edgescope.errors import UsageError
    from edgescope.wings.offload.verb import Sent, offload

    if not args.local or not args.remote:
        fix = "edgescope list, then: edgescope offload EDGE CLOUD --rtt 20ms --bandwidth 20Mbit"
        raise UsageError(
            "E-OFF-4", "two cells are needed, one measured at the edge and one in the cloud", fix=fix
        )
    context.ready(args)
    sent = {name: getattr(args, name) for name in SENT}
    found = offload(
        args.local,
        args.remote,
        _network_keys(args),
        objective=args.objective,
        constraints=args.constraint,
        sent=Sent(**sent, poisson=args.arrivals == "poisson"),
        store=context.store(args),
        remote_store=args.remote_store or None,
        machine=args.machine,
        remote_machine=args.remote_machine,
        tell=context.say,
    )
    return found.question


def _network_keys(args: argparse.Namespace) -> dict[str, Any]:
    from edgescope.errors import UsageError
    from edgescope.wings.offload.network import load, read_printed

    if args.profile and (args.iperf3 or args.ping):
        fix = "keep one of them and give what it lacks with --rtt, --uplink, --downlink or --loss"
        raise UsageError("E-NET-7", "--profile cannot be combined with --iperf3 or --ping", fix=fix)
    keys = load(args.profile) if args.profile else read_printed(args.iperf3, args.ping)
    flags = {name: getattr(args, name) for name in GIVEN if getattr(args, name) is not None}
    if "bandwidth" in flags:  # the flag for both directions overrides the file's values
        keys = {k: v for k, v in keys.items() if k not in ("uplink", "downlink")}
    return keys | flags
