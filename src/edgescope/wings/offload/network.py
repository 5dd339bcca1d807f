"""The network between a device and a remote machine, given or probed, and how long a request and its answer take on it.

A profile is a TOML or JSON file, or flags; flags win. In TOML, as a person writes it:

    rtt = "20ms"            # the median
    jitter = "5ms"          # its standard deviation
    bandwidth = "20Mbit"    # both ways; or up = ..., down = ...
    loss = "0.5%"

iperf3 and ping (`edgescope offload --probe`) give the raw samples instead: `rtt_samples_s`, `up_samples_bps`,
`down_samples_bps`. Samples are resampled as they are; a jitter alone is a model (see `Profile.jitter_s`).
iperf3 gives the bandwidth of each second (the far end runs `iperf3 -s`), ping the round trips. Bits go up where the
client sent, down if it ran with --reverse; --bidir holds both. TCP hides loss, so iperf3's count of retransmissions
and ping's lost packets are evidence, not a loss rate.

    one way = payload / bandwidth (a FIFO queue where a rate is offered) + recovery of lost segments
    there and back = up + down + one round trip

Lost segments (each lost on its own with probability p, n = ceil(payload / 1448 bytes), over one warm TCP connection):

* those with three or more behind them are seen by duplicate or selective acknowledgements and sent again after one
  round trip, all in the same one; a segment lost again waits another (fast retransmit: RFC 5681; SACK: RFC 6675);
* one of the last three lost is noticed by a tail loss probe after two round trips (RFC 8985, Linux's default); lost
  again, or where the message is one segment, by the time-out max(200 ms, RTT + 4 x deviation), doubled each time it is
  lost once more (RFC 6298 with Linux's least time-out).

With u uniform, the rounds of sending again until m segments are through are the smallest r with (1 - p^(r+1))^m >= u.

Every random number is drawn once and kept: two networks are compared on the same draws, so more bandwidth never
hurts and a longer round trip never helps, exactly, draw by draw. Not modelled: slow start of a cold connection, TLS
handshakes, losses that come in bursts, other traffic that reacts to ours.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.errors import DeviceError, UnavailableError, UsageError
from edgescope.records import Json

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FORM = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)(?:\s*)([A-Za-z%]*?)(?:/s|ps)?\s*")
TIME = {"ms": 1e-3, "s": 1.0, "us": 1e-6}
RATE = {
    **{"bit": 1.0, "kbit": 1e3, "Mbit": 1e6, "Gbit": 1e9, "b": 1.0, "kb": 1e3, "Mb": 1e6, "Gb": 1e9},
    **{"B": 8.0, "kB": 8e3, "MB": 8e6, "GB": 8e9},
}
SIZE = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20}
SHARE = {"%": 0.01, "": 1.0}
SLOWEST_BPS, FASTEST_BPS = 1e2, 1e13
LONGEST_S = 60.0
MOST_LOSS = 0.5
"""From this loss on, TCP makes no progress worth modelling."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One network, in SI: seconds, bits per second, a share of lost segments."""

    rtt_s: float
    """Median round trip of a small message."""
    jitter_s: float = 0.0
    """Standard deviation of the round trip. Without samples its excess over the floor is taken as exponential: a long
    right tail with median `rtt_s`, as queues on the way give it. This is an assumption, and every answer states it."""
    up_bps: float
    down_bps: float
    loss: float = 0.0
    rtt_samples_s: tuple[float, ...] = ()
    up_samples_bps: tuple[float, ...] = ()
    down_samples_bps: tuple[float, ...] = ()
    loss_absent: str = ""
    """Why the loss is not known; '' if it was given."""
    source: str = "given"
    """Where the numbers come from: `given`, or host, peer and time of a probe."""

    @property
    def measured(self) -> bool:
        """Whether the round trips are samples of a real network."""
        return bool(self.rtt_samples_s)


def read_time(text: str) -> float:
    """Read `20ms` as seconds."""
    return _read(text, TIME, "a time such as 20ms", 0.0, LONGEST_S)


def read_bandwidth(text: str) -> float:
    """Read `20Mbit` (or 20Mbps, 2.5MB/s) as bits per second."""
    return _read(text, RATE, "a bandwidth such as 20Mbit or 2.5MB", SLOWEST_BPS, FASTEST_BPS)


def read_size(text: str) -> float:
    """Read `40kB` as bytes."""
    return _read(text, SIZE, "a size such as 40kB", 0.0, 1e12)


def read_share(text: str) -> float:
    """Read `0.5%` or `0.005` as a share."""
    return _read(text, SHARE, f"a loss such as 0.5%, at most {MOST_LOSS:.0%}", 0.0, MOST_LOSS)


def _read(text: str, units: Mapping[str, float], form: str, least: float, most: float) -> float:
    """Return the SI value; ValueError with the expected form if it cannot be read or lies outside [least, most]."""
    match = FORM.fullmatch(text)
    if match is None or match[2] not in units:
        raise ValueError(f"{text!r} is not {form}")
    value = float(match[1]) * units[match[2]]
    if not (math.isfinite(value) and least <= value <= most):
        raise ValueError(f"{text!r} is outside the sensible range of {form}")
    return value


WRITTEN: Mapping[str, Callable[[str], float]] = {
    "rtt": read_time,
    "jitter": read_time,
    "bandwidth": read_bandwidth,
    "uplink": read_bandwidth,
    "downlink": read_bandwidth,
    "loss": read_share,
}
SAMPLES = {
    "rtt_samples_s": (0.0, LONGEST_S),
    "up_samples_bps": (SLOWEST_BPS, FASTEST_BPS),
    "down_samples_bps": (SLOWEST_BPS, FASTEST_BPS),
}
ABOUT = ("kind", "version", "measured_at", "host", "peer", "evidence", "loss_absent")
KIND = "edgescope network profile"
MAX_FILE_BYTES = 50_000_000


def load(path: Path) -> dict[str, Json]:
    """Return the keys of a profile file, TOML or JSON; UsageError if it cannot be read."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ValueError(f"it is larger than {MAX_FILE_BYTES / 1e6:.0f} MB")
        text = path.read_text()
        data = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise _unreadable(f"the network profile {path} cannot be read", str(error)) from error
    unknown = sorted(set(data) - {*WRITTEN, *SAMPLES, *ABOUT})
    if unknown:
        known = ", ".join([*WRITTEN, *SAMPLES])
        raise _unreadable(
            f"the network profile {path} has unknown keys {', '.join(unknown)}", f"known: {known}"
        )
    return dict(data)


def profile(keys: Mapping[str, Json]) -> Profile:
    """Return the Profile made of a file's keys and flags; UsageError if something is wrong or missing."""
    given = {name: _value(name, keys[name]) for name in WRITTEN if keys.get(name) is not None}
    found = {name: _samples(name, keys[name], span) for name, span in SAMPLES.items() if keys.get(name)}
    rtts = found.get("rtt_samples_s", ())
    if "rtt" in given and rtts:  # a given round trip shifts the measured ones: their spread stays
        rtts = moved(rtts, given["rtt"])
    if "jitter" in given and rtts:
        raise UsageError(
            "E-NET-2",
            "a jitter is given in addition to measured round trips",
            evidence=f"{len(rtts)} samples, which have a spread of their own",
            effect="Only one of the two could count",
            fix="--rtt alone, which moves the samples; or --rtt, --jitter and --bandwidth without --profile",
        )
    return Profile(
        rtt_s=median(rtts) if rtts else _needed(given, "rtt", "--rtt 20ms"),
        jitter_s=given.get("jitter", 0.0),
        up_bps=_bandwidth("uplink", given, found),
        down_bps=_bandwidth("downlink", given, found),
        loss=given.get("loss", 0.0),
        rtt_samples_s=rtts,
        up_samples_bps=() if {"uplink", "bandwidth"} & set(given) else found.get("up_samples_bps", ()),
        down_samples_bps=() if {"downlink", "bandwidth"} & set(given) else found.get("down_samples_bps", ()),
        loss_absent="" if "loss" in given else str(keys.get("loss_absent") or "no loss was given"),
        source=_source(keys) if found else "given",
    )


def moved(samples: tuple[float, ...], to_s: float) -> tuple[float, ...]:
    """Return the round trips shifted so that their median is `to_s`; none becomes negative."""
    by = to_s - median(samples)
    return tuple(max(0.0, s + by) for s in samples)


def median(values: tuple[float, ...]) -> float:
    """Return the median."""
    ordered, n = sorted(values), len(values)
    return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2


def _bandwidth(way: str, given: Mapping[str, float], found: Mapping[str, tuple[float, ...]]) -> float:
    value = given.get(way, given.get("bandwidth"))
    if value is not None:
        return value
    samples = found.get(f"{way.removesuffix('link')}_samples_bps", ())
    return median(samples) if samples else _needed(given, way, "--bandwidth 20Mbit")


def _needed(given: Mapping[str, float], name: str, fix: str) -> float:
    if name not in given:
        raise UsageError(
            "E-NET-1",
            f"the network's {name} is not known",
            effect="The cost of sending cannot be computed",
            fix=f"{fix}, or measure: edgescope offload --probe HOST",
        )
    return given[name]


def _value(name: str, value: Json) -> float:
    try:
        return WRITTEN[name](value if isinstance(value, str) else f"{value:g}")
    except (ValueError, TypeError) as error:
        raise _unreadable(f"the network's {name} cannot be read", str(error)) from error


def _samples(name: str, values: Json, span: tuple[float, float]) -> tuple[float, ...]:
    least, most = span
    good = isinstance(values, list) and all(
        isinstance(v, int | float) and not isinstance(v, bool) and least <= v <= most for v in values
    )
    if not good:
        raise _unreadable(
            f"the network's {name} cannot be read", f"wanted: numbers from {least:g} to {most:g}"
        )
    return tuple(float(v) for v in values)


def _unreadable(what: str, why: str) -> UsageError:
    return UsageError("E-NET-2", what, evidence=why, fix='rtt = "20ms", bandwidth = "20Mbit", loss = "0.5%"')


def _source(keys: Mapping[str, Json]) -> str:
    host, peer = keys.get("host", "an unnamed host"), keys.get("peer", "an unnamed peer")
    return f"measured from {host} to {peer} at {keys.get('measured_at', 'an unknown time')}"


Floats = NDArray[np.float64]

# -- how long a request and its answer are on the way ---------------------------------------------------------


SEGMENT_BYTES = 1448
"""Payload of a segment on Ethernet with time stamps: 1500 - 20 (IP) - 20 (TCP) - 12."""
TAIL_SEGMENTS = 3
LEAST_TIMEOUT_S = 0.2
MOST_ROUNDS = 12
"""Time-outs double up to here: 0.2 s x 2^12 is beyond any use."""


@dataclass(frozen=True)
class Transit:
    """Random numbers for N queries, (rows, N): a profile turns them into times by arithmetic alone."""

    rtt_pick: NDArray[np.int64]
    """Which measured round trip each query takes, as a number below 2^31."""
    excess: Floats
    """Exponential, mean 1: the round trip's excess if only a jitter is known."""
    band_pick: NDArray[np.int64]
    body: Floats
    tail: Floats
    """Uniform in (0, 1), (rows, N, 2): up and down."""
    known: dict[tuple[float, int, int], tuple[Floats, Floats]] = field(default_factory=dict)
    """Rounds of sending again by (loss, segments, way): neither bandwidth nor round trip changes them."""


def draw(rng: np.random.Generator, rows: int, n: int) -> Transit:
    """Return the draws of `rows` x `n` queries."""
    shape = (rows, n)
    return Transit(
        rng.integers(0, 2**31, shape),
        rng.exponential(1.0, shape),
        rng.integers(0, 2**31, shape),
        rng.uniform(size=(*shape, 2)),
        rng.uniform(size=(*shape, 2)),
    )


def round_trips(profile: Profile, draws: Transit) -> Floats:
    """Return the round trip of every draw in seconds."""
    if profile.rtt_samples_s:
        samples = np.array(profile.rtt_samples_s)
        return np.asarray(samples[draws.rtt_pick % len(samples)], dtype=np.float64)
    return np.maximum(0.0, profile.rtt_s + profile.jitter_s * (draws.excess - math.log(2.0)))


def deviation_s(profile: Profile) -> float:
    """Return the mean deviation of the round trip, which TCP's time-out uses."""
    if profile.rtt_samples_s:
        spread = np.array(profile.rtt_samples_s)
        return float(np.abs(spread - spread.mean()).mean())
    return profile.jitter_s


def bandwidth(profile: Profile, way: str) -> float:
    """Return the bits per second that one connection gets: the given bandwidth, unless loss holds TCP below it.

    Mathis et al. (CCR 27(3), 1997): segment / RTT x sqrt(3/2) / sqrt(p), for Reno; CUBIC and BBR do better on long fat
    links. A measured bandwidth has its losses in it already.
    """
    value = profile.up_bps if way == "up" else profile.down_bps
    samples = profile.up_samples_bps if way == "up" else profile.down_samples_bps
    if samples or profile.loss <= 0 or profile.rtt_s <= 0:
        return value
    return min(value, 8 * SEGMENT_BYTES / profile.rtt_s * math.sqrt(1.5 / profile.loss))


def serialisation(profile: Profile, draws: Transit, way: str, payload_bytes: float) -> Floats:
    """Return the seconds that each query's payload occupies the link, (rows, N)."""
    samples = profile.up_samples_bps if way == "up" else profile.down_samples_bps
    each = 8 * payload_bytes / bandwidth(profile, way)
    if not samples:
        return np.full(draws.band_pick.shape, each)
    relative = np.array(samples) / median(samples)
    return np.asarray(each / relative[draws.band_pick % len(relative)], dtype=np.float64)


def recovery(profile: Profile, draws: Transit, rtt: Floats, payload_bytes: float, way: int) -> Floats:
    """Return the seconds that lost segments add one way (0 up, 1 down), (rows, N)."""
    if profile.loss <= 0 or payload_bytes <= 0:
        return np.zeros(rtt.shape)
    n = math.ceil(payload_bytes / SEGMENT_BYTES)
    key = (profile.loss, n, way)
    if key not in draws.known:
        body = _rounds(profile.loss, n - TAIL_SEGMENTS, draws.body[..., way])
        draws.known[key] = body, _rounds(profile.loss, min(n, TAIL_SEGMENTS), draws.tail[..., way])
    body, tail = draws.known[key]
    timeout = max(LEAST_TIMEOUT_S, profile.rtt_s + 4 * deviation_s(profile))
    if n == 1:
        return np.asarray(timeout * (2.0**tail - 1.0), dtype=np.float64)
    probed = np.minimum(timeout, 2 * rtt) + timeout * (2.0 ** np.maximum(tail - 1, 0) - 1.0)
    return np.asarray(body * rtt + np.where(tail > 0, probed, 0.0), dtype=np.float64)


def _rounds(p: float, m: int, u: Floats) -> Floats:
    """Return how many rounds of sending again it takes until all m segments are through."""
    if m <= 0:
        return np.zeros(u.shape)
    # (1 - p^k)^m >= u  <=>  k >= log(1 - u^(1/m)) / log(p), k = r + 1 sendings; expm1 keeps the tail's digits
    sendings = np.ceil(np.log(-np.expm1(np.log(u) / m)) / math.log(p))
    return np.asarray(np.clip(sendings - 1, 0, MOST_ROUNDS), dtype=np.float64)


def with_rtt(profile: Profile, rtt_s: float) -> Profile:
    """Return the network with another median round trip; its spread stays."""
    samples = moved(profile.rtt_samples_s, rtt_s) if profile.rtt_samples_s else ()
    return replace(profile, rtt_s=rtt_s, rtt_samples_s=samples)


def with_bandwidth(profile: Profile, up_bps: float) -> Profile:
    """Return the network with another bandwidth up, and down in the same proportion."""
    ratio = up_bps / profile.up_bps
    return replace(
        profile,
        up_bps=up_bps,
        down_bps=profile.down_bps * ratio,
        up_samples_bps=tuple(s * ratio for s in profile.up_samples_bps),
        down_samples_bps=tuple(s * ratio for s in profile.down_samples_bps),
    )


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


def read_printed(iperf3: Sequence[Path], ping: Path | None) -> dict[str, Json]:
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
        raise _not_printed(source, "iperf3 --json", why, fix) from error


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
        raise _not_printed(source, "ping", why, "ping -c 100 -i 0.2 HOST > ping.txt (without -q)")
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


def _not_printed(source: str, program: str, why: str, fix: str) -> UsageError:
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
