"""Errors between host and board, made from ssh's messages and the agent's exit code and messages."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Mapping, Sequence

from edgescope.errors import (
    DeviceError,
    EdgescopeError,
    ModelError,
    SafetyError,
    SettingError,
    StoreError,
    UnavailableError,
    UnsupportedError,
    UsageError,
)
from edgescope.records import Json, Trial
from edgescope.wings.remote.address import DAMAGED, NOT_FOUND, TOO_OLD, Address

#: OpenSSH's messages for a board that cannot be reached, and for a login that is refused.
_UNREACHABLE = (
    "Could not resolve hostname",
    "Connection refused",
    "Connection timed out",
    "No route to host",
    "Network is unreachable",
    "Operation timed out",
    "Connection closed by",
    "Connection reset by",
)
_REFUSED = ("Permission denied", "Too many authentication failures", "Host key verification failed")


def no_ssh(program: str, error: OSError) -> UnavailableError:
    """Return the error for an ssh program that cannot be started."""
    return UnavailableError(
        "E-SSH-2",
        f"the ssh program {program!r} cannot be started",
        evidence=str(error),
        fix="apt install openssh-client, or EDGESCOPE_SSH=/path/to/ssh",
    )


def no_hello(address: Address, code: int | None, text: str) -> EdgescopeError:
    """Return the error for a connection that ended before the agent's hello; `text` is its stderr."""
    last = _last(text)
    by_code = {
        NOT_FOUND: ("E-AGENT-1", f"{address} has no {address.agent or address.python}", ""),
        TOO_OLD: (
            "E-AGENT-1",
            f"{address.python} on {address} is older than 3.6",
            "?python=/path/to/python3",
        ),
        DAMAGED: ("E-AGENT-2", f"the agent arrived damaged on {address}", "the same command again"),
    }
    if any(phrase in text for phrase in _REFUSED):
        return UnavailableError(
            "E-SSH-4",
            f"{address} refuses the login",
            evidence=last,
            effect="Nothing was measured; edgescope never asks for a password",
            fix=f"ssh-copy-id {_target(address)}; then ssh {_target(address)} true, which must not ask for anything",
        )
    if any(phrase in text for phrase in _UNREACHABLE):
        return UnavailableError(
            "E-SSH-3", f"{address} cannot be reached", evidence=last, fix=f"ssh {_target(address)} true"
        )
    if code in by_code:
        name, what, hint = by_code[code]
        fix = (
            f"--on {address}{hint}"
            if hint.startswith("?")
            else hint or "sudo apt install python3 (on the board)"
        )
        return UnavailableError(name, what, evidence=last, fix=fix)
    return UnavailableError(
        "E-AGENT-2",
        f"the agent did not start on {address}",
        evidence=f"exit code {code}; {last or 'it wrote nothing'}",
        fix=f"ssh {_target(address)} {shlex.quote(address.agent or address.python)} --version",
    )


def other_agent(address: Address, hello: Mapping[str, Json], ours: int) -> UnavailableError:
    """Return the error for an agent that speaks another version of the protocol."""
    return UnavailableError(
        "E-AGENT-3",
        f"the agent on {address} belongs to another version of edgescope",
        evidence=f"it speaks protocol {hello.get('protocol', 'unknown')}, this edgescope {ours}",
        effect="Its times and files could be misread",
        fix=f"--on {address} without ?agent=, which sends the right agent; or install this edgescope's agent there",
    )


def lost(address: Address, doing: str, code: int | None, text: str) -> DeviceError:
    """Return the error for a connection that ended during the conversation; `text` is ssh's stderr."""
    evidence = f"exit code {code}; {_last(text) or 'ssh wrote nothing'}"
    return DeviceError(
        "E-SSH-5",
        f"the connection to {address} was lost while it was to {doing}",
        evidence=evidence,
        effect="There is no number; the agent ends what it started there once it notices",
        fix="the same command again; over Wi-Fi a cable helps",
    )


def silent(address: Address, doing: str, seconds: float) -> DeviceError:
    """Return the error for an agent that no longer answers."""
    return DeviceError(
        "E-AGENT-5",
        f"{address} did not answer within {seconds:.0f} s while it was to {doing}",
        effect="There is no number; the connection was closed, which ends what runs there",
        fix=f"ssh {_target(address)} uptime shows whether the board is still up",
    )


def garbled(address: Address, line: bytes) -> DeviceError:
    """Return the error for a line that is no message of the agent."""
    return DeviceError(
        "E-AGENT-4",
        f"{address} sent a line that the agent did not write",
        evidence=line[:120].decode(errors="replace"),
        effect="There is no number",
        fix="something else writes to that session: look for echo in ~/.bashrc on the board",
    )


#: Why a power mode was not set -> the code, and what mends it.
_MODES = {
    "no_rights": (
        "E-MODE-4",
        'on the board: echo "$USER ALL=(root) NOPASSWD: /usr/sbin/nvpmodel" | sudo tee /etc/sudoers.d/nvpmodel',
    ),
    "no_mode": ("E-MODE-9", "leave --mode out: this board's power modes are not known"),
    "held": ("E-MODE-3", "wait for it to end"),
}


def refused(address: Address, doing: str, error: Mapping[str, Json]) -> EdgescopeError:
    """Return the error for a request that the agent refused."""
    code, what = str(error.get("code", "")), str(error.get("what", ""))
    if code == "disk_full":
        return StoreError(
            "E-AGENT-6",
            f"the disk of {address} is full",
            evidence=what,
            effect="There is no number; nothing half-written was kept",
            fix="free some space there (df -h; rm -r ~/.cache/edgescope-agent)",
        )
    if code in _MODES:
        name, fix = _MODES[code]
        wanted = f"{address} could not {doing}"
        return SettingError(name, wanted, evidence=what, effect="Stopped before measuring", fix=fix)
    if code == "unknown_verb":
        return other_agent(address, {"protocol": what}, 0)
    if code == "cannot_start":
        return UnavailableError(
            "E-TRTX-1",
            f"a program cannot be started on {address}",
            evidence=what,
            fix=f"ssh {_target(address)}",
        )
    return DeviceError("E-AGENT-4", f"{address} could not {doing}", evidence=f"{code}: {what}"[:300])


def no_trtexec(address: Address, error: Mapping[str, Json]) -> UnavailableError:
    """Return the error for a board without trtexec."""
    return UnavailableError(
        "E-TRTX-1",
        f"trtexec was not found on {address}",
        evidence=str(error.get("what", "")),
        fix="sudo apt install libnvinfer-bin there (JetPack has it), or --option program=/path/on/the/board",
    )


#: Line with which a program that was sent says why it did nothing.
SAID = "edgescope: "
#: Its codes -> the class of the error, what follows from it, and what mends it.
_TORCH: Mapping[str, tuple[type[EdgescopeError], str, str]] = {
    "E-ON-3": (
        UnavailableError,
        "The board needs a PyTorch of its own: nothing is installed there",
        "NVIDIA's wheel of PyTorch for its JetPack, or ?python=/path of a Python that has it behind the address",
    ),
    "E-ON-4": (
        UnavailableError,
        "It lacks what the program that drives it needs",
        "NVIDIA's wheel of PyTorch 1.10 or newer for its JetPack; ?python=/path names another Python",
    ),
    "E-ON-5": (
        UnsupportedError,
        "This network cannot run in it",
        "a newer PyTorch there, or --backend trtexec",
    ),
    "E-ON-9": (SafetyError, "There is no number", "--batch 1, --precision fp16, or a smaller network"),
    "E-WORK-3": (
        UsageError,
        "There is no number",
        "--warmup 0, and --workload-option epochs=0 or more of them",
    ),
    "E-STEP-3": (
        ModelError,
        "The weights are lost, and what follows would train nothing",
        "--workload-option learning_rate=0.001, or --precision fp32",
    ),
    "E-CUDA-1": (
        UnavailableError,
        "It would run on the CPU under this label",
        "the PyTorch wheel of its JetPack, or --device cpu",
    ),
    "E-PREC-3": (
        UnsupportedError,
        "It would be emulated, and the number would describe the emulation",
        "--precision fp32",
    ),
}


def torch_failed(
    address: Address, doing: str, ended: Mapping[str, Json], lines: Sequence[str]
) -> EdgescopeError:
    """Return the error for a program in the board's PyTorch that did not end well; `lines` is what it printed."""
    said = next((line[len(SAID) :] for line in reversed(lines) if line.startswith(SAID)), "")
    with contextlib.suppress(ValueError, TypeError, AttributeError, KeyError):
        found = json.loads(said)
        kind, effect, fix = _TORCH[str(found["code"])]
        what = f"{found['what']} on {address}"
        return kind(str(found["code"]), what, evidence=str(found["evidence"])[:300], effect=effect, fix=fix)
    last = " | ".join(lines[-3:])[-300:] or "it printed nothing"
    stopped = ended["stopped"]
    how = f"stopped: {stopped}, after {ended['seconds']:.0f} s" if stopped else f"exit code {ended['code']}"
    if ended["code"] == -9 and not stopped:
        return SafetyError(
            "E-ON-9",
            f"the program in the board's PyTorch was killed while it was to {doing}",
            evidence=f"SIGKILL on {address}, which the kernel sends where memory runs out; {last}",
            effect="There is no number",
            fix="--batch 1, --precision fp16, or a smaller network",
        )
    return DeviceError(
        "E-ON-7",
        f"the program in the board's PyTorch failed while it was to {doing}",
        evidence=f"{how}; {last}",
        effect="There is no number",
        fix=f"ssh {_target(address)} {shlex.quote(address.python)} -c 'import torch'",
    )


def wrong_backend(backend: str) -> UsageError:
    """Return the error for a backend that needs more than the agent on the board."""
    return UsageError(
        "E-ON-1",
        f"--on drives trtexec and the board's PyTorch, not {backend}",
        effect="Nothing was measured",
        fix="--backend trtexec or torch_eager",
    )


def wrong_workload(trial: Trial, able: Sequence[str]) -> UsageError:
    """Return the error for a kind of work that the trial's engine does not do on a board; `able` are those that do."""
    return UsageError(
        "E-ON-10",
        f"{trial.backend if able else 'the agent'} does no {trial.workload} on a board",
        effect="Nothing was measured",
        fix=f"--backend {' or '.join(able)}"
        if able
        else "install edgescope on the board, measure there, and read its results here: --other-store FOLDER",
    )


def one_at_a_time(in_flight: int) -> UnsupportedError:
    """Return the error for several queries at once in the board's PyTorch."""
    return UnsupportedError(
        "E-ON-8",
        "the program in the board's PyTorch answers one query at a time",
        evidence=f"the trial asks for {in_flight} in flight",
        effect="Nothing was measured",
        fix="--in-flight 1, or --backend trtexec",
    )


def alike_only(label: str) -> UnsupportedError:
    """Return the error for processes that are not alike, or that share the board in a way that nothing sets there."""
    return UnsupportedError(
        "E-ON-8",
        "the processes on a board are all alike and share it by time",
        evidence=f"the trial asks for {label}",
        effect="Nothing was measured",
        fix="--sharing time_slicing and nothing colocated; or edgescope on the board itself",
    )


def no_mode(mode: str) -> UsageError:
    """Return the error for a setting that no agent makes."""
    return UsageError(
        "E-ON-2",
        f"--on sets power modes of a board, not {mode}",
        effect="Nothing was measured",
        fix="one mode of its nvpmodel.conf: --mode 15W; set the rest on the board, and the Result records it",
    )


def not_in_effect(address: Address, mode: str, evidence: str) -> SettingError:
    """Return the error for a power mode that the board did not take."""
    return SettingError(
        "E-MODE-2",
        f"mode {mode} is not in effect on {address}",
        evidence=evidence,
        effect="Stopped before measuring",
        fix="sudo nvpmodel -m ID there and reboot, then the same command again"
        if "reboot" in evidence
        else "",
    )


def not_restored(address: Address, before: int, left: Mapping[str, Json]) -> SettingError:
    """Return the error for a board that is still in the mode of a trial."""
    return SettingError(
        "E-MODE-5",
        f"the power mode of {address} could not be put back",
        evidence=f"it was {before}, nvpmodel -q says {left.get('now')}",
        effect="Measurements from now on describe a changed machine",
        fix=f"ssh {_target(address)} sudo nvpmodel -m {before}",
    )


def _target(address: Address) -> str:
    port = f"-p {address.port} " if address.port else ""
    return port + shlex.quote(f"{address.user}@{address.host}" if address.user else address.host)


def _last(text: str) -> str:
    return " | ".join(line.strip() for line in text.splitlines() if line.strip())[-300:]
