"""Measure a network against an echo server: round trips of small messages, bandwidth each way, what was sent again.

Bandwidth is timed on transfers that grow until one takes long enough; three of that size are the samples. A
transfer's time has one round trip in it that is not transfer (the request, or the acknowledgement); the median round
trip is taken out. TCP hides loss: what the kernel had to send again (TCP_INFO, Linux) is evidence, not a loss rate.
"""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import statistics
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from edgescope.errors import DeviceError, UnavailableError, UsageError
from edgescope.network.wire import HELLO, MOST_BYTES, Ended, Garbled, Slow, Talk

Json = object
KIND, VERSION = "edgescope network profile", 1
MESSAGE_BYTES, FIRST_BYTES = 32, 1 << 16
TOTAL_RETRANS, SEGS_OUT = 100, 136
"""Offsets of tcpi_total_retrans and tcpi_segs_out in struct tcp_info (include/uapi/linux/tcp.h; only ever extended)."""


@dataclass(frozen=True)
class Plan:
    """How much is measured, and how long anything may take."""

    messages: int = 500
    rtt_budget_s: float = 10.0
    """Round trips are no longer counted after this time: a slow network gives fewer."""
    enough_s: float = 0.5
    """A transfer this long is not a matter of slow start or of buffers any more."""
    repeats: int = 3
    connect_s: float = 5.0
    line_s: float = 10.0
    transfer_s: float = 60.0


def address(text: str) -> tuple[str, int]:
    """Read HOST:PORT ([v6]:PORT too); UsageError where it is none."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(
            "E-NET-4", f"{text!r} is not HOST:PORT", fix="edgescope offload --probe 10.0.0.7:7077"
        )
    return host.strip("[]"), int(port)


def probe(
    host: str, port: int, plan: Plan | None = None, tell: Callable[[str], None] = lambda text: None
) -> dict[str, Json]:
    """Return a profile's keys with raw samples, ready to be written as JSON; an EdgescopeError says what failed."""
    plan, where = plan or Plan(), f"{host}:{port}"
    with _connected(host, port, plan) as sock, _failures(where, plan):
        talk = Talk(sock, plan.line_s)
        _hello(talk)
        tell(f"{plan.messages} round trips ...")
        rtts = _round_trips(talk, plan)
        rtt = statistics.median(rtts)
        tell(f"median {rtt * 1e3:.3g} ms; bandwidth up ...")
        up = _bandwidth(lambda size: _up(talk, size, plan), rtt, plan)
        tell(f"{up[-1] / 1e6:.3g} Mbit/s; bandwidth down ...")
        down = _bandwidth(lambda size: _down(talk, size, plan), rtt, plan)
        evidence = sent_again(sock)
        talk.say("bye")
    return {
        "kind": KIND,
        "version": VERSION,
        "measured_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "host": platform.node(),
        "peer": where,
        "rtt_samples_s": rtts,
        "up_samples_bps": up,
        "down_samples_bps": down,
        "loss_absent": "TCP hides loss: what it cost is in the measured times",
        "evidence": evidence,
    }


@contextlib.contextmanager
def _connected(host: str, port: int, plan: Plan) -> Iterator[socket.socket]:
    try:
        sock = socket.create_connection((host, port), timeout=plan.connect_s)
    except OSError as error:
        raise UnavailableError(
            "E-NET-5",
            f"no echo server answers at {host}:{port}",
            evidence=str(error) or type(error).__name__,
            fix="there: edgescope offload --serve PORT --bind ADDRESS",
        ) from error
    with sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # a round trip, not Nagle's patience
        yield sock


@contextlib.contextmanager
def _failures(where: str, plan: Plan) -> Iterator[None]:
    """Turn what a peer can do wrong into our errors; nothing is written then."""
    again = "Nothing was written"
    try:
        yield
    except Ended as error:
        raise DeviceError("E-NET-6", f"{where} closed the connection in mid-probe", effect=again) from error
    except Garbled as error:
        fix = "is it an edgescope echo server, of this version?"
        raise DeviceError(
            "E-NET-7", f"{where} does not speak our protocol", evidence=str(error), effect=again, fix=fix
        ) from error
    except Slow as error:
        evidence = f"limits: {plan.line_s:g} s a message, {plan.transfer_s:g} s a transfer"
        raise DeviceError(
            "E-NET-8", f"{where} is too slow or silent", evidence=evidence, effect=again
        ) from error


def _hello(talk: Talk) -> None:
    talk.say(HELLO)
    answer = talk.line()
    if answer != HELLO:
        raise Garbled(repr(answer))


def _round_trips(talk: Talk, plan: Plan) -> list[float]:
    """Return the seconds of each small message there and back, first ones included in none: three warm the path."""
    out: list[float] = []
    begun = time.monotonic()
    for i in range(plan.messages + 3):
        data = os.urandom(MESSAGE_BYTES)
        end = time.monotonic() + plan.line_s
        start = time.perf_counter()
        talk.send(f"echo {MESSAGE_BYTES}\n".encode() + data, end)
        back = talk.take(MESSAGE_BYTES, end)
        took = time.perf_counter() - start
        if back != data:
            raise Garbled(f"an echo came back changed: {back[:16]!r}")
        if i >= 3:
            out.append(took)
        if out and time.monotonic() - begun > plan.rtt_budget_s:
            break
    return out


def _bandwidth(transfer: Callable[[int], float], rtt_s: float, plan: Plan) -> list[float]:
    """Return bits per second of `repeats` transfers of the first size that takes long enough."""
    size = FIRST_BYTES
    while transfer(size) - rtt_s < plan.enough_s and size < MOST_BYTES:
        size *= 2
    times = [transfer(size) for _ in range(plan.repeats)]
    return [8 * size / max(t - rtt_s, 1e-9) for t in times]


def _up(talk: Talk, size: int, plan: Plan) -> float:
    """Return the seconds until the server has said that it took all."""
    end = time.monotonic() + plan.transfer_s
    start = time.perf_counter()
    talk.say(f"sink {size}")
    talk.pour(size, end)
    answer = talk.line()
    took = time.perf_counter() - start
    if answer != f"took {size}":
        raise Garbled(repr(answer))
    return took


def _down(talk: Talk, size: int, plan: Plan) -> float:
    """Return the seconds from the request to the last byte."""
    end = time.monotonic() + plan.transfer_s
    start = time.perf_counter()
    talk.say(f"source {size}")
    talk.drain(size, end)
    return time.perf_counter() - start


def sent_again(sock: socket.socket) -> Mapping[str, Json]:
    """Return what the kernel says of this connection's retransmissions, or why it does not."""
    option = getattr(socket, "TCP_INFO", None)
    if option is None or platform.system() != "Linux":
        return {"absent": "TCP_INFO is read on Linux only"}
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, option, 256)
    except OSError as error:
        return {"absent": f"TCP_INFO: {error}"}
    if len(info) < SEGS_OUT + 4:
        return {"absent": f"this kernel's TCP_INFO has {len(info)} bytes, without the counts"}
    again, out = (struct.unpack_from("=I", info, at)[0] for at in (TOTAL_RETRANS, SEGS_OUT))
    return {"segments_sent_again": again, "segments_sent": out, "source": "TCP_INFO of the probing side"}
