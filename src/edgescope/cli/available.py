"""The verbs that list what there is here: models, engines, and settings of the machine."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from edgescope import registry
from edgescope.commandline import trial_flags
from edgescope.errors import UnavailableError

if TYPE_CHECKING:
    from edgescope.backends.base import Usable
    from edgescope.devices.base import Row
    from edgescope.models.base import Model


class Models:
    """List the models: task, parameters, MACs, FLOPs, and whether their weights are trained."""

    @staticmethod
    def configure(sub: argparse.ArgumentParser) -> None:
        """Add this verb's flags."""
        trial_flags.add_json(sub)

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        """Print the models; a MAC is one multiply-accumulate and counts as two FLOPs; return 0."""
        from edgescope.models import zoo

        infos = [(name, zoo.get(name)) for name in zoo.names()]
        if args.json:
            print(json.dumps([_facts(name, model) for name, model in infos], indent=1))
            return 0
        from edgescope.report import terminal

        cells = [
            (
                name,
                model.info.task,
                "x".join(map(str, model.inputs[0].shape)),
                f"{(model.info.params or 0) / 1e6:.2f}",
                f"{(model.info.macs or 0) / 1e9:.3f}",
                f"{2 * (model.info.macs or 0) / 1e9:.3f}",
            )
            for name, model in infos
        ]
        terminal.table(("model", "task", "input", "M params", "GMACs", "GFLOPs"), cells)
        for name, model in infos:
            if model.info.trained:
                terminal.note(f"trained: {name}, {model.info.source.removeprefix('trained on ')}")
        terminal.note("All others are untrained here: random weights from seed 0, for their speed alone.")
        terminal.note(
            "Also: NAME@weights.pth, any file.onnx, any module:callable. One MAC is two FLOPs; both count one sample."
        )
        return 0


def _facts(name: str, model: Model) -> dict[str, Any]:
    info = model.info
    return {
        "name": name,
        "task": info.task,
        "inputs": {i.name: list(i.shape) for i in model.inputs},
        "params": info.params,
        "macs": info.macs,
        "flops": None if info.macs is None else 2 * info.macs,
        "trained": info.trained,
        "source": info.source,
    }


class Backends:
    """List the engines, whether each can be used here, and the options it takes."""

    @staticmethod
    def configure(sub: argparse.ArgumentParser) -> None:
        """Add this verb's flags."""
        trial_flags.add_json(sub)

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        """Print every backend; a missing one with the command that installs it; return 0."""
        from edgescope.backends.base import Usable

        rows: list[dict[str, Any]] = []
        for name, entry in registry.BACKENDS.items():
            devices = registry.runs_on(name)
            row = _row(name, entry.summary, devices)
            try:
                backend = registry.load(registry.BACKENDS, name, "backend")
                row["options"] = dict(backend.OPTIONS)
                if isinstance(backend, Usable):
                    row["without"] = _without(backend, devices)
            except UnavailableError as error:
                row |= {"available": False, **_why(error)}
            if len(row["without"]) == len(devices):  # it works on none
                row |= {"available": False, **next(iter(row["without"].values()))}
            rows.append(row)
        rows += [_broken(found) for found in registry.BACKENDS.broken]
        if args.json:
            print(json.dumps(rows, indent=1))
            return 0
        from edgescope.report import terminal

        cells = [
            (
                row["name"],
                _here(row) if row["available"] else f"no: {row['reason']}; {row['fix']}",
                row["summary"],
                ", ".join(row["devices"]),
                "\n".join(f"{key}: {text}" for key, text in row["options"].items()),
            )
            for row in rows
        ]
        terminal.table(("backend", "here", "what", "on", "options"), cells, below=("options",))
        return 0


def _row(name: str, summary: str, devices: Sequence[str] = ()) -> dict[str, Any]:
    """Return the row of a backend that works on every device."""
    row = {"name": name, "summary": summary, "devices": list(devices), "available": True}
    return row | {"options": {}, "reason": "", "fix": "", "without": {}}


def _here(row: Mapping[str, Any]) -> str:
    return f"yes, not on {', '.join(row['without'])}" if row["without"] else "yes"


def _why(error: UnavailableError) -> dict[str, str]:
    return {"reason": error.evidence or error.what, "fix": error.fix}


def _without(backend: Usable, devices: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return device -> reason and fix, of the devices on which the engine does not work here."""
    found = {}
    for device in devices:
        try:
            backend.usable(device)
        except UnavailableError as error:
            found[device] = _why(error)
    return found


def _broken(found: registry.Broken) -> dict[str, Any]:
    """Return the row of a plug-in whose backend cannot be loaded."""
    problem = registry.unusable(found, "backend")
    why = {"reason": problem.evidence, "fix": problem.fix}
    return _row(found.name, problem.what) | {"available": False, **why}


class Modes:
    """List the settings that --mode takes: power modes with their cores and clocks, which of them need a reboot, and
    other settings.

    edgescope modes
    edgescope bench mobilenet_v2 --mode 15W              set, verified under load, restored
    edgescope bench mobilenet_v2 --mode MAXN+jetson_clocks
    edgescope modes --install-helper                     print the commands that let edgescope set modes without root
    """

    @staticmethod
    def configure(sub: argparse.ArgumentParser) -> None:
        """Add this verb's flags."""
        trial_flags.add_json(sub)
        text = "print the commands that install the helper as root, without running them"
        sub.add_argument("--install-helper", action="store_true", help=text)

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        """Print the table of settings, or the commands that install the helper; return 0."""
        from edgescope.modes.catalog import listing, problems, without

        if args.install_helper:
            return _install()
        from edgescope.bench import present

        devices = present()
        rows = listing(devices)
        if args.json:
            print(json.dumps([asdict(row) for row in rows], indent=1))
            return 0
        _show(rows, without(devices), problems(devices))
        return 0


def _show(rows: Sequence[Row], why_none: str, problems: Sequence[str]) -> None:
    """Print the board's power modes with the clocks they cap, then the other settings with what they change."""
    from edgescope.report import terminal

    power = [row for row in rows if row.id is not None]
    if power:
        heads = ("mode", "id", "CPUs", "CPU max", "GPU max", "mem max", "change", "")
        terminal.table(heads, [_cells(row) for row in power])
        for row in power:
            if row.change != "live":
                terminal.note(f"{row.name} {row.change}: {row.why}")
    else:
        terminal.note(why_none)
    for text in problems:
        terminal.note(text)
    print()
    terminal.table(("setting", ""), [(row.name, row.why) for row in rows if row.id is None])


def _cells(row: Row) -> tuple[str, ...]:
    from edgescope.units import ranges

    caps = (row.cpu_max_hz, row.gpu_max_hz, row.emc_max_hz)
    clocks = ["no cap" if hz is None else f"{hz / 1e6:.0f} MHz" for hz in caps]
    marks = [word for word, on in (("now", row.now), ("default", row.default)) if on]
    change = row.change.removeprefix("needs a ")
    return (row.name, str(row.id), ranges(row.cores), *clocks, change, ", ".join(marks))


def _install() -> int:
    import getpass

    from edgescope.modes import catalog, helper, privileged

    print(catalog.install(getpass.getuser(), str(helper.__file__), str(privileged.HELPER)))
    return 0
