"""One conversation with an agent: requests and answers as JSON lines over a program's stdin and stdout.

The program is ssh (in tests, the agent itself), and the agent is one file that is sent to the board. Lines before its
hello are the login shell's own and are skipped. Between two answers the agent sends events (rows of the sampler, lines
of a program) to the caller that requested them. While the host waits it sends keep-alives, because an agent ends
everything it started when its host has been silent for a minute.

Files are named by their content: one that the board already has is not sent again.

The offset of the clocks: the host notes its own before and after the board reports its. The middle is taken, half the
round trip is the uncertainty, the shortest round trip is the most exact (Cristian 1989; NTP, RFC 5905), and two such
estimates some time apart give the drift.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import TracebackType
from typing import Any

from edgescope import cache
from edgescope.errors import DeviceError, EdgescopeError
from edgescope.process import Process
from edgescope.records import Json
from edgescope.wings.remote import errors
from edgescope.wings.remote.address import Address

#: What the agent and its host must agree on; raised with every change of the protocol (`edgescope docs remote`).
PROTOCOL = 2
#: Seconds for ssh to connect and the agent to start (python3 from a cold SD card), and for a plain answer.
HELLO_S, ANSWER_S = 60.0, 60.0
#: Seconds between two keep-alives.
BEAT_S = 5.0
STRAY = 200
"""At most so many lines of a login shell are skipped before the hello."""

Event = Callable[[Mapping[str, Json]], None]


class Wire:
    """An open conversation; leaving the context ends it, and everything the agent started."""

    def __init__(self, address: Address, argv: Sequence[str] | None = None) -> None:
        self.address = address
        self.argv = list(argv or address.argv())
        self.events: dict[str, Event] = {}
        self.hello: Mapping[str, Json] = {}
        self._next, self._writing, self._over = 1, threading.Lock(), threading.Event()

    def __enter__(self) -> Wire:
        try:
            self._process = Process(self.argv)
        except OSError as error:
            raise errors.no_ssh(self.argv[0], error) from error
        try:
            self._begin()
        except BaseException:
            self.close()
            raise
        threading.Thread(target=self._beat, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            with contextlib.suppress(EdgescopeError):
                self.call("bye", timeout_s=5.0)
        self.close()

    def close(self) -> None:
        """Close the agent's stdin, which ends it; wait a little for ssh, then kill it."""
        self._over.set()
        held = self._writing.acquire(timeout=BEAT_S)  # a pipe is closed under a write only if nobody reads it
        self._process.end(5.0)
        if held:
            self._writing.release()

    def _beat(self) -> None:
        """Send keep-alives until the conversation is over; whoever talks notices that it has broken."""
        with contextlib.suppress(OSError, ValueError):
            while not self._over.wait(BEAT_S):
                self._write(b'{"id":0,"verb":"ping"}\n')

    def _write(self, data: bytes) -> None:
        with self._writing:
            self._process.pipe.write(data)

    def _begin(self) -> None:
        if not self.address.agent:
            source = agent_source()
            self._send(f"{len(source)} {agent_digest()}\n".encode() + source, "start", greeted=False)
        self._send(b'{"id":0,"verb":"hello"}\n', "start", greeted=False)
        deadline = time.monotonic() + HELLO_S
        for _ in range(STRAY):
            line = self._line(deadline, "say hello", greeted=False)
            with contextlib.suppress(ValueError):
                message = json.loads(line)
                hello = message.get("ok") if isinstance(message, dict) else None
                if isinstance(hello, dict) and hello.get("agent") == "edgescope":
                    self.hello = hello
                    break
        else:
            raise errors.garbled(self.address, line)
        if self.hello.get("protocol") != PROTOCOL:
            raise errors.other_agent(self.address, self.hello, PROTOCOL)

    def call(
        self, verb: str, *, timeout_s: float = ANSWER_S, doing: str = "", **fields: Json
    ) -> dict[str, Any]:
        """Return the agent's answer; EdgescopeError if it refuses, is silent, or has gone.

        `doing` names the request in error messages: `run resnet18 fp16`.
        """
        message = self.ask(verb, timeout_s=timeout_s, doing=doing, **fields)
        if "error" in message:
            raise errors.refused(self.address, doing or verb, message["error"])
        return dict(message["ok"])

    def ask(
        self, verb: str, *, timeout_s: float = ANSWER_S, doing: str = "", **fields: Json
    ) -> dict[str, Any]:
        """Return the whole answer, even if it is an error of the agent's."""
        identity, doing = self._next, doing or verb
        self._next += 1
        request = {"id": identity, "verb": verb, **fields}
        self._send(json.dumps(request).encode() + b"\n", doing)
        deadline = time.monotonic() + timeout_s
        while True:
            message = self._message(deadline, doing)
            if (kind := message.get("event")) is not None:
                handler = self.events.get(str(kind))
                if handler is not None:
                    handler(message)
            elif message.get("id") == identity:
                if not isinstance(message.get("ok"), dict) and not isinstance(message.get("error"), dict):
                    raise errors.garbled(self.address, repr(message).encode())
                return message

    def offset(self) -> Offset:
        """Return the offset of the board's clock from ours now."""
        pings = []
        for _ in range(PINGS):
            before = time.monotonic()
            board = float(self.call("ping")["t_s"])
            pings.append((before, board, time.monotonic()))
        return offset(pings)

    def _message(self, deadline: float, doing: str) -> dict[str, Any]:
        line = self._line(deadline, doing)
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise errors.garbled(self.address, line) from error
        if not isinstance(message, dict):
            raise errors.garbled(self.address, line)
        return message

    def _send(self, data: bytes, doing: str, *, greeted: bool = True) -> None:
        try:
            self._write(data)
        except (BrokenPipeError, ValueError) as error:
            raise self._ended(doing, greeted=greeted) from error

    def _line(self, deadline: float, doing: str, *, greeted: bool = True) -> bytes:
        """Return the next line without its newline; tell whoever wants to know that it is waiting."""
        started = time.monotonic()
        while True:
            self.events.get("waiting", _nothing)({})
            try:
                return self._process.pipe.line(min(BEAT_S, deadline - time.monotonic()))
            except EOFError:
                raise self._ended(doing, greeted=greeted) from None
            except OverflowError as error:
                raise errors.garbled(self.address, str(error).encode()) from None
            except TimeoutError:
                if (now := time.monotonic()) >= deadline:
                    raise errors.silent(self.address, doing, now - started) from None

    def _ended(self, doing: str, *, greeted: bool) -> EdgescopeError:
        """Return the error for a conversation that the other side ended, from ssh's exit code and stderr."""
        code, text = self._process.wait(5.0), "\n".join(self._process.tail())
        if greeted:
            return errors.lost(self.address, doing, code, text)
        return errors.no_hello(self.address, code, text)


def _nothing(event: Mapping[str, Json]) -> None:
    """Ignore an event that no caller waits for."""


def agent_source() -> bytes:
    """Return the agent's source, as it is sent to a board; edgescope itself never imports it."""
    return resources.files("edgescope.wings.remote").joinpath("edgescope_agent.py").read_bytes()


def agent_digest() -> str:
    """Return the SHA-256 of the agent's source as 64 hex digits."""
    return hashlib.sha256(agent_source()).hexdigest()


#: Bytes of a file in one message.
CHUNK = 1 << 18


def put(wire: Wire, path: Path) -> str:
    """Send a file unless the board has its content; return its SHA-256; StoreError E-AGENT-6 if the disk is full."""
    digest, doing = cache.content(path), f"receive {path.name}"
    if wire.call("put_begin", sha256=digest, size=path.stat().st_size, doing=doing)["have"]:
        return digest
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            wire.call("put", sha256=digest, data=base64.b64encode(chunk).decode(), doing=doing)
    return digest


def get(wire: Wire, digest: str, path: Path) -> None:
    """Write the board's file with this SHA-256 to `path`; DeviceError if the content that came has another."""
    state, offset, doing = hashlib.sha256(), 0, f"send {path.name}"
    with open(path, "wb") as file:
        while True:
            part = wire.call("get", sha256=digest, offset=offset, doing=doing)
            data = base64.b64decode(str(part["data"]))
            file.write(data)
            state.update(data)
            offset += len(data)
            if not data or offset >= int(part["size"]):
                break
    if state.hexdigest() != digest:
        path.unlink()
        raise DeviceError(
            "E-AGENT-7",
            f"{path.name} arrived damaged from {wire.address}",
            evidence=f"{offset} bytes whose SHA-256 is {state.hexdigest()[:12]}, announced {digest[:12]}",
            effect="There is no number",
            fix="the same command again",
        )


Ping = tuple[float, float, float]
"""(host before, board, host after), each in seconds on that machine's monotonic clock."""
PINGS = 8


@dataclass(frozen=True)
class Offset:
    """The board's clock minus the host's, at one time on the host's clock."""

    at_s: float
    offset_s: float
    uncertainty_s: float
    """The true offset lies within this many seconds of `offset_s`, however the round trip was split."""
    pings: int


def offset(pings: Sequence[Ping]) -> Offset:
    """Return the offset from the shortest round trip; ValueError if there are no pings."""
    before, board, after = min(pings, key=lambda ping: ping[2] - ping[0])
    middle = (before + after) / 2
    return Offset(middle, board - middle, (after - before) / 2, len(pings))


def clock_facts(first: Offset, last: Offset | None) -> dict[str, Json]:
    """Return a Result's facts about the two clocks; drift is a bound if it is within its own uncertainty."""
    out: dict[str, Json] = {
        "clock": "CLOCK_MONOTONIC of the board",
        "offset_to_host_s": first.offset_s,
        "offset_uncertainty_s": first.uncertainty_s,
        "pings": first.pings,
    }
    if last is None or last.at_s <= first.at_s:
        return out | {"drift_ppm": {"absent": "the clocks were compared once only"}}
    change, unsure = last.offset_s - first.offset_s, first.uncertainty_s + last.uncertainty_s
    lasted = last.at_s - first.at_s
    out |= {"offset_to_host_after_s": last.offset_s, "offset_uncertainty_after_s": last.uncertainty_s}
    if abs(change) <= unsure:
        bound = f"below {unsure / lasted * 1e6:.0f} ppm: the change is within the uncertainty"
        return out | {"drift_ppm": {"absent": bound}}
    return out | {"drift_ppm": change / lasted * 1e6}
