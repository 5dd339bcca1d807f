"""Report what this machine is, what can be measured on it, what would disturb a measurement now, and what is missing.

Each metric is probed separately: measured, unsupported or failed, with its source, scope, rate and cost.

  edgescope doctor                      # one screen
  edgescope doctor --all                # every metric, and why the others are not measured
  edgescope doctor --container          # the docker run flags that measuring needs here
  edgescope doctor --noise              # an A/A run: the smallest difference this machine can detect
  edgescope doctor --roofline cpu       # the largest FLOP/s and bytes/s of this machine, which a roofline needs
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from typing import TYPE_CHECKING

from edgescope import registry
from edgescope.commandline import trial_flags
from edgescope.errors import UsageError

if TYPE_CHECKING:
    from edgescope.wings.doctor.report import Report


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    trial_flags.add_json(sub)
    text = "restore the settings that a killed run left changed (power mode, clocks), and do nothing else"
    sub.add_argument("--restore", action="store_true", help=text)
    sub.add_argument(
        "--all",
        action="store_true",
        help="show everything: every metric, and why some are not measured",
    )
    sub.add_argument(
        "--container", action="store_true", help="print the docker run flags that measuring needs here"
    )
    sub.add_argument("--noise", action="store_true", help="measure the noise floor: identical runs in pairs")
    sub.add_argument("--minutes", type=float, default=2.0, help="how long --noise may take (2)")
    text = "measure what a device can do at most, and keep it with this machine's results"
    sub.add_argument("--roofline", choices=registry.PLACES, default="", metavar="DEVICE", help=text)
    sub.add_argument("--mode", default="as_is", help="reversible setting, for --roofline (as_is)")
    trial_flags.add_store(sub)


def run(args: argparse.Namespace) -> int:
    """Examine the machine and print the report; return the exit code."""
    if args.restore:
        return _restore()
    if args.noise:
        return _noise(args)
    if args.roofline:
        return _ceilings(args)
    from edgescope.bench import present
    from edgescope.devices import replay
    from edgescope.wings.doctor.report import examine

    devices = present()
    report = examine(devices, root=replay.root(devices))
    if args.json:
        _json(report, args)
    elif args.container:
        _container(report)
    else:
        _show(report, args)
    return 0


def _restore() -> int:
    """Restore the settings that a killed process left changed; return 0, also if there is nothing to restore."""
    from edgescope.modes.enter import journal

    if not journal().recover():
        print("nothing to restore: no journal was left behind")
    return 0


def _ceilings(args: argparse.Namespace) -> int:
    """Measure the ceilings of a device, store them and print them; return 0."""
    from edgescope.bench import here
    from edgescope.commandline import context
    from edgescope.devices import replay
    from edgescope.report import terminal
    from edgescope.wings.doctor import ceilings
    from edgescope.wings.doctor.ceilings import document

    if replay.played():
        raise UsageError("E-CEIL-3", "a recording can do no work", fix="leave --board away")
    store = context.store(args)
    store.check()
    context.say(f"measuring the ceilings of {args.roofline} ...")
    figures = ceilings.measure(args.roofline, mode=args.mode)
    path = ceilings.keep(figures, store.root, here(), args.mode)
    if args.json:
        print(json.dumps(figures, indent=1))
        return 0
    terminal.show(document(figures, str(path)), verbose=True)
    return 0


def _noise(args: argparse.Namespace) -> int:
    """Measure the noise floor, store it with the machine's results and print it; return 0."""
    from dataclasses import asdict

    from edgescope.analysis.run import noise
    from edgescope.commandline import context
    from edgescope.devices import replay
    from edgescope.wings.doctor.noise import measure

    if replay.played():
        raise UsageError("E-NOISE-4", "a recording has no noise of its own", fix="leave --board away")
    store = context.store(args)
    store.check()
    context.say(f"identical runs in pairs for about {args.minutes:g} minutes ...")
    found = measure(args.minutes * 60, tell=context.say)
    path = noise.save(found, store.root)
    if args.json:
        print(json.dumps(asdict(found), indent=1))
        return 0
    print(f"noise floor: {noise.words(found)}.")
    print(f"stored in {path}")
    return 0


def _json(report: Report, args: argparse.Namespace) -> None:
    from dataclasses import asdict

    from edgescope.analysis.run import noise
    from edgescope.commandline import context
    from edgescope.records.codec import to_plain

    found = noise.stored(context.store(args).root, report.machine.id)
    print(json.dumps(to_plain(report) | {"noise": asdict(found) if found else None}, indent=1))


def _show(report: Report, args: argparse.Namespace) -> None:
    from edgescope.analysis.run import noise
    from edgescope.commandline import context
    from edgescope.report import terminal
    from edgescope.wings.doctor.view import lines

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 120
    floor = noise.sentence(context.store(args).root, report.machine.id)
    for text, style in lines(report, width, everything=args.all, noise=floor):
        print(terminal.painted([(text, style)]))


def _container(report: Report) -> None:
    from edgescope.wings.doctor import unlock

    where = f"in this {report.container} container" if report.container else "in a container on this machine"
    if not report.container_flags:
        print(f"nothing that measuring needs is missing {where}")
        return
    print(f"flags that measuring needs {where}:")
    longest = max(len(flag.flag) for flag in report.container_flags)
    for flag in report.container_flags:
        print(f"  {flag.flag:<{longest}}  {flag.brings}")
    print(unlock.command(report.container_flags))
