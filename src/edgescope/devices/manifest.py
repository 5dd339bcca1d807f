"""The manifest: this machine's devices and settings, and every fact that could explain a difference of two results.

Package versions come from their metadata, so nothing heavy is imported. Environment variables are selected by
prefix, and never if the name looks like a credential; command-line values that look like one are masked.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgescope import registry
from edgescope.devices.base import Device, Mode
from edgescope.devices.kernel_files import is_absent
from edgescope.errors import DeviceError, EdgescopeError
from edgescope.process import SCRATCH
from edgescope.records import Machine
from edgescope.registry import REPLAYED

PACKAGES = ("duckdb", "edgescope", "numpy", "onnx", "timm", "torchvision")
"""Packages in addition to those that the backends name."""
_PREFIXES = tuple(
    """
    OMP_ GOMP_ MKL_ KMP_ OPENBLAS_ BLIS_ TORCH PYTORCH_ TRITON_ ATEN_ ORT OV OPENVINO_ TBB CUDA_ CUBLAS_ CUDNN_
    NVIDIA_ TRT_ MALLOC_ PYTHON DNNL_ ONEDNN_ EDGESCOPE_
    """.split()  # noqa: SIM905
)
_EXACT = ("LD_PRELOAD", "LD_LIBRARY_PATH", "GLIBC_TUNABLES")
_SECRET = re.compile(r"key|token|secret|passw|credential|auth", re.IGNORECASE)
_GIT_S = 2.0
COMMAND = "EDGESCOPE_COMMAND"
"""Set by the parent of a trial's process: the command line that the user typed."""
_LEFT_OUT = (COMMAND, SCRATCH)


def present() -> Mapping[str, Device]:
    """Return every device but null, by registry name; those of the recorded board if a recording is played."""
    if board_file := os.environ.get(registry.BOARD):
        from edgescope.devices import replay  # few runs play a recording

        return replay.devices(board_file)
    names = [n for n in registry.installed(registry.DEVICES) if n not in ("null", "replay")]
    return {n: registry.load(registry.DEVICES, n, "device")() for n in names}


def here() -> Machine:
    """Return this machine, or the board that it drives, as every result of it would describe it."""
    if _DRIVEN and os.environ.get(registry.ON):
        return _DRIVEN[-1]
    return machine(present())


_DRIVEN: list[Machine] = []
"""The board that `--on` names, as it described itself when it was connected first."""


def drive(board: Machine, url: str) -> None:
    """Let every trial of this process and its children run on the board at `url`."""
    os.environ[registry.ON] = url
    _DRIVEN[:] = [board]


def machine(devices: Mapping[str, Device], folder: Path | None = None) -> Machine:
    """Return the machine: the facts of `devices` (by registry name), software, environment and git.

    A device that is absent adds nothing to the machine's id: while a GPU's driver fails to load, the machine has
    the id of one without that GPU, and the state says why. The git commit is that of `folder`, by default the
    current folder.
    """
    stable: dict[str, Any] = {}
    state: dict[str, Any] = {}
    for name, device in devices.items():
        reason = device.present()
        if reason:
            state[name] = {"absent": reason}
            continue
        mine, now = device.machine()
        if mine:
            stable[name] = dict(mine)
        if now:
            state[name] = dict(now)
    return Machine(stable, state | software() | {"git": git(folder or Path.cwd())})


def software() -> dict[str, Any]:
    """Return versions, environment, command line, Python and the time (UTC, ISO 8601)."""
    packages = {*PACKAGES, *(name for b in registry.BACKENDS for name in registry.facts(b).PACKAGES)}
    return {
        "packages": {
            name: registry.version(name) or {"absent": "not installed"} for name in sorted(packages)
        },
        "environment": environment(os.environ),
        "command": masked(shlex.split(os.environ.get(COMMAND, "")) or sys.orig_argv),
        "python": f"{sys.implementation.name} {sys.version.split()[0]}",
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that can change a measurement, without any that may be a credential.

    The command line that a trial's process inherits is left out, because `software` records it masked. So is the folder
    for its temporary files, which differs in every run.
    """
    return {
        name: value
        for name, value in sorted(variables.items())
        if (name.startswith(_PREFIXES) or name in _EXACT)
        and name not in _LEFT_OUT
        and not _SECRET.search(name)
    }


def masked(argv: Sequence[str]) -> list[str]:
    """Return the command line with the values of options that look like credentials replaced by `***`."""
    out: list[str] = []
    hide = False
    for word in argv:
        name, equals, _ = word.partition("=")
        secret = name.startswith("-") and bool(_SECRET.search(name))
        out.append("***" if hide else f"{name}=***" if secret and equals else word)
        hide = secret and not equals
    return out


def git(folder: Path) -> Any:
    """Return {"commit", "dirty"} of the repository around `folder`, or {"absent": reason}."""
    command = ["git", "-C", str(folder), "status", "--porcelain=v2", "--branch", "--untracked-files=no"]
    env = os.environ | {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_S, env=env, check=False)
    except FileNotFoundError:
        return {"absent": "git is not installed"}
    except subprocess.TimeoutExpired:
        return {"absent": f"git status took longer than {_GIT_S:.0f} s"}
    if done.returncode:
        return {
            "absent": done.stderr.strip().partition("\n")[0] or f"git status: exit code {done.returncode}"
        }
    lines = done.stdout.splitlines()
    commit = next((line.split()[-1] for line in lines if line.startswith("# branch.oid ")), "")
    return {"commit": commit, "dirty": any(not line.startswith("#") for line in lines)}


Facts = tuple[Mapping[str, Any], Mapping[str, Any]]
"""(stable, state) of one device, as Device.machine() returns them."""


def title(machines: Mapping[str, Facts]) -> str:
    """Return one line: board or processor, release, power mode, GPUs; it marks a recording as such."""
    cpu = machines.get("cpu", ({}, {}))[0]
    jetson, now = machines.get("jetson", ({}, {}))
    played = machines.get(REPLAYED, ({}, {}))[1]
    board = _text(jetson, "product") or _text(cpu, "board") or _text(cpu, "cpu") or "this machine"
    parts = [board]
    if _text(cpu, "cpu") and not jetson and _text(cpu, "cpu") not in parts:
        parts.append(_text(cpu, "cpu"))
    parts += [f"L4T {word}" for word in [_text(now, "l4t")] if word]
    parts += [f"mode {word}" for word in power_mode({"jetson": now})[:1] if word]
    gpus = machines.get("nvidia", ({}, {}))[0].get("gpus", [])
    names = [g["name"] for g in gpus if isinstance(g.get("name"), str)]
    parts += [f"{len(names)} x {names[0]}" if len(names) > 1 else names[0]] if names else []
    if played:
        parts.append(f"RECORDING, {_text(played, 'made')}")
    return " | ".join(parts)


def folded(line: str, width: int) -> list[str]:
    """Return a title as lines of at most `width` columns, unless one of its parts is longer."""
    lines: list[str] = []
    for part in line.split(" | "):
        if lines and len(lines[-1]) + 3 + len(part) <= width:
            lines[-1] += f" | {part}"
        else:
            lines.append(part)
    return lines


def totals(machines: Mapping[str, Facts]) -> dict[str, float]:
    """Return memory_total_bytes, swap_total_bytes, cores and online, as far as they are known."""
    stable, state = machines.get("cpu", ({}, {}))
    online = state.get("online_cpus")
    found = {
        "memory_total_bytes": state.get("memory_total_bytes"),
        "swap_total_bytes": state.get("swap_total_bytes"),
        "cores": stable.get("logical_cores"),
        "online": len(online) if isinstance(online, list) else None,
    }
    return {name: float(value) for name, value in found.items() if isinstance(value, int | float)}


def power_mode(state: Mapping[str, Any]) -> tuple[str, str]:
    """Return (name, id) of the power mode in a machine's state; both are '' if none is known."""
    jetson = state.get("jetson", {})
    found = jetson.get("power_mode") if isinstance(jetson, Mapping) else None
    if not isinstance(found, Mapping) or is_absent(found):
        return "", ""
    return str(found.get("name", "")), str(found.get("id", ""))


def _text(facts: Mapping[str, Any], name: str) -> str:
    value = facts.get(name)
    return value if isinstance(value, str) else ""


def settings(devices: Mapping[str, Device]) -> tuple[dict[str, Mode], tuple[EdgescopeError, ...]]:
    """Return the settings of the present devices by name, and an error for each device that could not list its own."""
    modes: dict[str, Mode] = {}
    problems: list[EdgescopeError] = []
    for name, device in devices.items():
        try:
            modes |= {} if device.present() else device.modes()
        except EdgescopeError as error:
            problems.append(error)
        except Exception as error:  # an exception of a driver library concerns this device alone
            problems.append(
                DeviceError(
                    "E-MODE-14",
                    f"the settings of {name} cannot be listed",
                    evidence=repr(error)[:200],
                    effect="The settings of other devices are not affected",
                )
            )
    return modes, tuple(problems)
