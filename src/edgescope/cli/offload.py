"""Whether a query is better answered at the edge, in the cloud, or shared: from stored results of two machines and a
network, given or measured.

  edgescope offload --serve 7077 --bind 0.0.0.0                        on the far machine: what a probe talks to
  edgescope offload --probe 10.0.0.7:7077 --out network.json           here: round trips, bandwidth up and down
  edgescope offload CELL_A CELL_B --remote-store cloud --profile network.json --constraint "p99<=50ms" --rate 30
  edgescope offload CELL_A CELL_B --rtt 20ms --bandwidth 20Mbit --payload 40kB --out offload.html

CELL_A was measured at the edge, CELL_B in the cloud (beginnings of ids, or labels). What it computes and what it leaves
out: edgescope docs offload. Splitting a model between its layers is not done: what is split is the queries.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from edgescope.cli import opened
from edgescope.store import whole_file

if TYPE_CHECKING:
    from edgescope.analysis.offload.model import Place
    from edgescope.analysis.offload.network import Profile
    from edgescope.analysis.offload.question import Question
    from edgescope.store.results import Store

HELP = "edge, cloud or both: from two machines' results and a network; --probe measures one"
INTERRUPTED = "Nothing was written; the same command starts anew."
GIVEN = ("rtt", "jitter", "bandwidth", "up", "down", "loss")


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument(
        "local", nargs="?", metavar="EDGE", help="cell measured at the edge: an id's beginning, a label"
    )
    sub.add_argument("remote", nargs="?", metavar="CLOUD", help="cell measured on the remote machine")
    sub.add_argument("--store", default=None, metavar="DIR")
    sub.add_argument("--remote-store", default=None, metavar="DIR", help="where the remote cell is (--store)")
    sub.add_argument(
        "--machine",
        default="",
        metavar="ID",
        help="the edge's machine, or `here`, where a store holds several",
    )
    sub.add_argument("--remote-machine", default="", metavar="ID", help="the remote machine, likewise")
    _network(sub.add_argument_group("the network"))
    _load(sub.add_argument_group("what is sent, and how often"))
    group = sub.add_argument_group("what is wanted")
    text = "what to be best at: latency, throughput, energy, watts (latency)"
    group.add_argument("--objective", default="latency", metavar="WORD", help=text)
    text = "p99<=50ms, throughput>=30, energy<=50mJ, accuracy>=0.7 ...; may be repeated"
    group.add_argument("--constraint", action="append", default=[], metavar="BOUND", help=text)
    sub.add_argument(
        "--out", type=Path, default=None, metavar="FILE", help="also write .html, .md, .csv or .json"
    )
    sub.add_argument("--json", action="store_true")
    opened.add_verbose(sub)


def _network(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--profile", type=Path, default=None, metavar="FILE", help="TOML or JSON; flags win")
    group.add_argument("--rtt", metavar="20ms", help="median round trip")
    group.add_argument("--jitter", metavar="5ms", help="its standard deviation (0)")
    group.add_argument("--bandwidth", metavar="20Mbit", help="both ways")
    group.add_argument("--up", metavar="20Mbit", help="to the cloud")
    group.add_argument("--down", metavar="50Mbit", help="back")
    group.add_argument("--loss", metavar="0.5%", help="share of segments lost (none)")
    group.add_argument("--probe", metavar="HOST:PORT", help="measure a network; --out names the profile")
    group.add_argument("--serve", type=int, metavar="PORT", help="be the far end of a probe")
    group.add_argument(
        "--bind", default="127.0.0.1", metavar="ADDRESS", help="with --serve: where to listen (127.0.0.1)"
    )


def _load(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--payload", metavar="40kB", help="sent for one sample (the raw input tensor)")
    group.add_argument("--answer", metavar="4kB", help="sent back for one sample (a classifier's scores)")
    text = "queries/s that arrive in total (one at a time; what throughput>= asks for)"
    group.add_argument("--rate", type=float, default=None, metavar="30", help=text)
    text = "arrivals of --rate: at random, or a camera's steady beat (poisson)"
    group.add_argument("--arrivals", choices=("poisson", "fixed"), default="poisson", help=text)
    group.add_argument(
        "--remote-servers", type=int, default=1, metavar="N", help="machines like the remote one (1)"
    )
    group.add_argument(
        "--radio-power", type=float, default=None, metavar="W", help="of the radio while it sends"
    )
    group.add_argument(
        "--radio-energy", type=float, default=None, metavar="J/MB", help="of the radio per MB moved"
    )
    group.add_argument("--seed", type=int, default=0, help="of the draws (0)")


def run(args: argparse.Namespace) -> int:
    """Serve, probe, or decide; exit 1 where nothing keeps the constraints."""
    if args.serve is not None:
        return _serve(args)
    if args.probe:
        return _probe(args)
    from edgescope.report import offload, save
    from edgescope.report.render import json as as_json
    from edgescope.report.render import terminal

    found = _question(args)
    page = offload.document(found, opened.command(), written=str(args.out or ""))
    if args.out:
        save(page, args.out)  # first: what prints may be a pipe that is closed
    if args.json:
        print(as_json.text(page))
    else:
        terminal.show(page, verbose=args.verbose)
    return 0 if found.answer.pick else 1


def _serve(args: argparse.Namespace) -> int:
    """Answer probes until interrupted."""
    from edgescope.network.echo import EchoServer

    server = EchoServer(args.bind, args.serve, lambda text: print(text, file=sys.stderr, flush=True))
    print(f"listening on {args.bind} port {server.port}; Ctrl-C ends it", file=sys.stderr, flush=True)
    try:
        server.forever()
    except KeyboardInterrupt:  # how it is ended
        return 0
    finally:
        server.close()
    return 0


def _probe(args: argparse.Namespace) -> int:
    """Measure a network, write its profile, print what it comes to."""
    from edgescope.analysis.offload.network import profile
    from edgescope.network.probe import address, probe
    from edgescope.report.offload import probed
    from edgescope.report.render import terminal

    host, port = address(args.probe)
    keys = probe(host, port, tell=lambda text: print(text, file=sys.stderr, flush=True))
    path = args.out or Path("network.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    whole_file.write_text(path, json.dumps(keys) + "\n")
    if args.json:
        print(json.dumps(keys))
    else:
        terminal.printed(probed(profile(keys), keys))
        print(f"written to {path}")
    return 0


def _question(args: argparse.Namespace) -> Question:
    """Return the whole answer."""
    from edgescope.analysis.cells.objective import wanted
    from edgescope.analysis.offload.model import Model
    from edgescope.analysis.offload.places import remarks
    from edgescope.analysis.offload.question import question
    from edgescope.cli.offload_request import request
    from edgescope.errors import UsageError

    if not args.local or not args.remote:
        fix = "edgescope list, then: edgescope offload EDGE CLOUD --rtt 20ms --bandwidth 20Mbit"
        raise UsageError("E-OFF-4", "two cells are needed, one of the edge and one of the cloud", fix=fix)
    if args.out:
        from edgescope.report import RENDERERS, writable

        writable(args.out, RENDERERS)
    asked, network = wanted(args.objective, args.constraint), _profile(args)
    store = opened.store(args)
    near = _place(store, args.local, args.machine, "edge")
    far = _place(_other(args, store), args.remote, args.remote_machine, "cloud")
    warnings, (asking, notes) = remarks(near, far), request(args, near)
    return question(Model(near, far, asking, asked), network, [*warnings, *notes])


def _profile(args: argparse.Namespace) -> Profile:
    from edgescope.analysis.offload.network import load, profile

    keys = load(args.profile) if args.profile else {}
    flags = {name: getattr(args, name) for name in GIVEN if getattr(args, name) is not None}
    if "bandwidth" in flags:  # one given for both ways wins over a file's
        keys = {k: v for k, v in keys.items() if k not in ("up", "down")}
    return profile(keys | flags)


def _other(args: argparse.Namespace, store: Store) -> Store:
    from edgescope.store.results import Store

    return Store(Path(args.remote_store)) if args.remote_store else store


def _place(store: Store, which: str, machine: str, side: str) -> Place:
    """Return the place that an id's beginning or a label names: all replicates of its cell on its machine."""
    from edgescope.analysis.cells import machines
    from edgescope.analysis.offload.places import place

    labelled = [r for r in store.results() if which in (r.trial.label, f"{r.trial.model} {r.trial.label}")]
    found = machines.one(labelled or store.find(which), opened.machine(machine))
    cells, where = {r.trial.cell for r in found}, {r.machine.id for r in found}
    every = [r for r in store.results() if r.trial.cell in cells and r.machine.id in where]
    return place(store.fulls(every), which, side)
