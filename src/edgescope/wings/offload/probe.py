"""Turn the output of `iperf3 --json` and `ping`, from files or run here, into the keys of a network profile.

iperf3 gives the bandwidth of each second (the far end runs `iperf3 -s`), ping the round trips. Bits go up where the
client sent, down if it ran with --reverse; --bidir holds both. TCP hides loss, so iperf3's count of retransmissions
and ping's lost packets are evidence, not a loss rate.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from edgescope.errors import DeviceError, UnavailableError, UsageError
from edgescope.records import Json
from edgescope.wings.offload.network import KIND, SLOWEST_BPS

PORT = 5201
"""Default port of iperf3."""
PINGS, SECONDS, LIMIT_S = 100, 5, 60.0
REPLY = re.compile(r"\btime[=<](\d+(?:\.\d+)?) ?ms\b(?!.*\(DUP!\))")
LOST = re.compile(r"(\d+) packets transmitted, (\d+) (?:packets )?received")
ADDRESS = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|(?!-)([^:\[\]\s]+))(?::(\d{1,5}))?")
PEER = re.compile(r"^PING (\S+)", re.MULTILINE)
HIDDEN = "TCP hides loss: its cost is in the measured times"


def probe(where: str, tell: Callable[[str], None] = lambda text: None) -> dict[str, Json]:
    """Run ping and iperf3 (each way) against HOST or HOST:PORT; return the keys of a profile."""
    host, port = address(where)
    iperf3 = ["iperf3", "-c", host, "-p", str(port), "--json", "-O", "1", "-t", str(SECONDS)]
    tell(f"{PINGS} round trips ...")
    found = [from_ping(_output(["ping", "-c", str(PINGS), "-i", "0.2", host], where), "ping")]
    for way, more in (("up", []), ("down", ["--reverse"])):
        tell(f"{SECONDS} s of bandwidth {way} ...")
        found.append(from_iperf3(_output([*iperf3, *more], where), "iperf3"))
    return merged(found) | {"peer": where, "host": os.uname().nodename}


def address(text: str) -> tuple[str, int]:
    """Return (host, port) of HOST or HOST:PORT ([v6] too); UsageError if it is neither."""
    match = ADDRESS.fullmatch(text)
    host, port = (match[1] or match[2], match[3] or str(PORT)) if match else ("", "")
    if not host or not 0 < int(port) < 65536:
        fix = "edgescope offload --probe 10.0.0.7"
        raise UsageError("E-NET-4", f"{text!r} is neither HOST nor HOST:PORT", fix=fix)
    return host, int(port)


def read(iperf3: Sequence[Path], ping: Path | None) -> dict[str, Json]:
    """Return the keys of a profile from files of iperf3's and ping's output."""
    found = [from_iperf3(_text(path), str(path)) for path in iperf3]
    return merged(found + ([from_ping(_text(ping), str(ping))] if ping else []))


def merged(parts: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    """Return one profile from several runs: the samples and evidence of all, the facts of the last."""
    out: dict[str, Json] = {}
    for part in parts:
        for name, value in part.items():
            held = out.get(name)
            out[name] = [*held, *value] if isinstance(held, list) and isinstance(value, list) else value
    return out


def from_iperf3(text: str, source: str) -> dict[str, Json]:
    """Return bandwidth samples and retransmission counts from a client's `iperf3 --json`."""
    try:
        report = json.loads(text)
        if report.get("error"):
            raise ValueError(f"iperf3 reported: {report['error']}")
        return _bandwidths(report)
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        why = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
        fix = "iperf3 -c HOST --json > up.json; iperf3 -c HOST --json --reverse > down.json"
        raise _unreadable(source, "iperf3 --json", why, fix) from error


def _bandwidths(report: Mapping[str, Any]) -> dict[str, Json]:
    start, end = report["start"], report["end"]
    if start["test_start"]["protocol"] != "TCP":
        raise ValueError("a UDP run carries the requested rate, not the most that the network can carry")
    if "connecting_to" not in start:
        raise ValueError("it is the server's; the client knows which way was up")
    ways = {"sum": "down" if start["test_start"]["reverse"] else "up", "sum_bidir_reverse": "down"}
    out: dict[str, Json] = {}
    evidence: list[Json] = []
    for name, way in ways.items():
        kind = name.removeprefix("sum")
        seconds = [i[name] for i in report["intervals"] if name in i]
        if seconds:
            out[f"{way}_samples_bps"] = [*_steady(seconds, end[f"sum_received{kind}"]["bits_per_second"])]
            again = end[f"sum_sent{kind}"].get("retransmits", "an unknown number")
            evidence.append(f"iperf3: {again} segments sent again {way}")
    if not out:
        raise ValueError("it has no intervals")
    when = datetime.fromtimestamp(start["timestamp"]["timesecs"], timezone.utc)
    facts = {"measured_at": when.isoformat(timespec="seconds"), "peer": str(start["connecting_to"]["host"])}
    _, host, *_ = [*str(start["system_info"]).split(), "", ""]
    return out | _about(evidence) | facts | ({"host": host} if host else {})


def _steady(seconds: Sequence[Mapping[str, Any]], mean_bps: float) -> list[float]:
    """Return the bit rate of each whole interval after the omitted ones; only the mean if an interval stalled."""
    kept = [s for s in seconds if not s.get("omitted")]
    longest = max((s["seconds"] for s in kept), default=0.0)
    rates = [float(s["bits_per_second"]) for s in kept if s["seconds"] >= longest / 2]
    return rates if rates and min(rates) >= SLOWEST_BPS else [float(mean_bps)]


def from_ping(text: str, source: str) -> dict[str, Json]:
    """Return the round trips in ping's output (iputils, BusyBox, BSD), and how many had no answer."""
    rtts: list[Json] = [float(ms) / 1e3 for ms in REPLY.findall(text)]
    if not rtts:
        lines = text.strip().splitlines()
        why = f"no answer in it: {lines[-1][:120]}" if lines else "it is empty"
        raise _unreadable(source, "ping", why, "ping -c 100 -i 0.2 HOST > ping.txt (without -q)")
    count, peer = LOST.search(text), PEER.search(text)
    lost = (
        f"ping: {int(count[1]) - int(count[2])} of {count[1]} lost" if count else "ping: no count of losses"
    )
    return {"rtt_samples_s": rtts} | _about([lost]) | ({"peer": peer[1]} if peer else {})


def _about(evidence: list[Json]) -> dict[str, Json]:
    return {"kind": KIND, "loss_absent": HIDDEN, "evidence": evidence}


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError) as error:
        raise UsageError("E-NET-5", f"{path} cannot be read", evidence=str(error)) from error


def _unreadable(source: str, program: str, why: str, fix: str) -> UsageError:
    return UsageError("E-NET-5", f"{source} is not what {program} prints", evidence=why, fix=fix)


def _output(argv: Sequence[str], where: str) -> str:
    """Return a program's output; the error says if it is not installed, hung or could not reach the far end."""
    try:
        done = subprocess.run(
            argv,
            check=False,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            env=os.environ | {"LC_ALL": "C"},
        )
    except FileNotFoundError as error:
        install = "sudo apt-get install iperf3 iputils-ping"
        files = f"or run elsewhere `{' '.join(argv)}` and give its output to --{argv[0]}"
        raise UnavailableError("E-NET-3", f"{argv[0]} is not installed", fix=f"{install}; {files}") from error
    except subprocess.TimeoutExpired as error:
        what = f"{argv[0]} to {where} took more than {LIMIT_S:g} s"
        raise DeviceError("E-NET-6", what, effect="Nothing was written") from error
    if done.returncode or '"error"' in done.stdout:
        error_line = re.search(r'"error":\s*"(.*)"', done.stdout)
        why = error_line[1] if error_line else (done.stderr or done.stdout).strip()[-200:]
        fix = "there: iperf3 -s" if argv[0] == "iperf3" else "is the host up, and does it answer pings?"
        raise DeviceError(
            "E-NET-6",
            f"{argv[0]} could not measure {where}",
            evidence=why,
            effect="Nothing was written",
            fix=fix,
        )
    return done.stdout
