"""HTTP/1.1 over a plain socket: a request, and its answer in pieces, each with the moment at which it arrived.

A library's client costs more for each token than a small model's token takes, and what it costs stands in every time
it tells. Here a piece is one read of the socket, and its moment is the one at which the kernel had its bytes: a thread
that sleeps is woken some 90 us later, and one that waits for another's turn in the interpreter later still. Where the
kernel does not tell it (another system than Linux, or an encrypted line), it is the clock right behind the read.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from edgescope.errors import UsageError
from edgescope.wings.generation.engine import BrokenAnswer

PIECE = 1 << 18
"""Most bytes that one read of the socket takes."""
LARGE, GROUP, GROUP_NS = 1 << 14, 32, 200_000_000
"""A group of reads ends with one of so many bytes, at so many reads, or this long after its first."""
DONE = b"[DONE]"
"""The last event of a stream of OpenAI's."""
MOST_HEAD = 1 << 16
"""Bytes within which an answer's head must end."""
MOST_BODY = 1 << 26
"""Bytes of an answer that is read as a whole."""
MOST_EVENT = 1 << 22
"""Bytes within which an event's line must end."""
PORTS = {"http": 80, "https": 443}
TIMESTAMPNS = 35 if sys.platform == "linux" else 0
"""SO_TIMESTAMPNS of <asm-generic/socket.h>, which Python does not name: the kernel's receive time with each read."""
STAMP = struct.Struct("@ll")
NOTE = socket.CMSG_SPACE(STAMP.size)
CLOSE_NS = 5_000
"""Within so many nanoseconds two clocks are read."""
MOST_LATE_NS = 10 * 10**9
"""A read that seems later than this behind the kernel, or before it, saw the clock of the day being set."""


@dataclass(frozen=True)
class Address:
    """Where a server is, and the path under which its interface lies."""

    scheme: str
    host: str
    port: int
    path: str

    @classmethod
    def of(cls, url: str) -> Address:
        """Read a URL; UsageError E-URL-1 if no server can be meant by it."""
        try:
            parts = urlsplit(url)
            port = parts.port or PORTS[parts.scheme]
        except (ValueError, KeyError):
            raise _no_address("it is no URL as http://127.0.0.1:8080/v1") from None
        if "@" in parts.netloc:
            raise _no_address("it holds a user or a password, which every result would store")
        if not parts.hostname or parts.query or parts.fragment:
            raise _no_address("it needs a host, and takes neither ? nor #")
        if not (url.isascii() and url.isprintable()) or " " in url:
            raise _no_address("it holds characters that no URL has")
        return cls(parts.scheme, parts.hostname, port, parts.path.rstrip("/"))

    @property
    def authority(self) -> str:
        """Return host:port, as the Host header has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"


def _no_address(why: str) -> UsageError:
    return UsageError(
        "E-URL-1",
        "this URL names no server",
        evidence=why,
        effect="Nothing was measured",
        fix="edgescope bench http://127.0.0.1:8080/v1 --workload generate",
    )


@dataclass
class Head:
    """The head of an answer."""

    status: int
    reason: str
    fields: Mapping[str, str]
    """Names in lower case."""
    rest: bytes = b""
    """What had come of the body with it."""
    arrived_ns: int = 0

    @property
    def keeps(self) -> bool:
        """Return whether the connection stays open for another request."""
        return self.fields.get("connection", "").lower() != "close"


@dataclass
class Connection:
    """One connection: requests and answers in turn, from one thread at a time.

    Any method may raise BrokenAnswer: `unreachable`, `stalled`, `closed_early` or `malformed`. It is of no use then.
    """

    at: Address
    quiet_s: float
    """Seconds without a byte until it is given up."""
    sock: socket.socket = field(init=False)
    clean: bool = field(default=False, init=False)
    """Whether it has answered, and all of it was read. A server may close such a connection at any time."""
    _stamped: bool = field(default=False, init=False, repr=False)
    """Whether the kernel tells when it had what is read."""
    _latest_ns: int = field(default=0, init=False, repr=False)
    _room: memoryview = field(default_factory=lambda: memoryview(bytearray(PIECE)), init=False, repr=False)
    """Where each read goes: room for a large one, made for each, would cost more than the read."""

    def __post_init__(self) -> None:
        self._connect()

    def _connect(self) -> None:
        try:
            self.sock = socket.create_connection((self.at.host, self.at.port), timeout=self.quiet_s)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.at.scheme == "https":
                context = ssl.create_default_context()
                self.sock = context.wrap_socket(self.sock, server_hostname=self.at.host)
            elif TIMESTAMPNS:
                self.sock.setsockopt(socket.SOL_SOCKET, TIMESTAMPNS, 1)
                self._stamped = True
            self.sock.settimeout(None)
        except OSError as error:
            raise BrokenAnswer("unreachable", f"{self.at.authority}: {_said(error)}") from None

    @property
    def same_machine(self) -> bool:
        """Return whether the other end has an address of this machine."""
        there, here = self.sock.getpeername()[0], self.sock.getsockname()[0]
        return bool(there == here) or ip_address(there).is_loopback

    def patience(self, seconds: float) -> None:
        """Let the kernel end a read or a write after so long: Python would wait with a call of its own before each."""
        length = struct.pack("@ll", int(seconds), int(seconds % 1 * 1e6))
        for direction in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self.sock.setsockopt(socket.SOL_SOCKET, direction, length)

    def close(self) -> None:
        """Close it."""
        self.sock.close()

    def ask(self, request: bytes) -> Head:
        """Send a request and return the head of its answer, whose body must be read to its end.

        It is sent once more over a new connection if the server had closed this one since its last answer.
        """
        try:
            return self._asked(request)
        except BrokenAnswer as broken:
            if not self.clean or broken.kind != "closed_early":
                raise
        self.close()
        self._connect()
        return self._asked(request)

    def _asked(self, request: bytes) -> Head:
        self.patience(self.quiet_s)
        try:
            self.sock.sendall(request)
        except OSError as error:
            raise BrokenAnswer("closed_early", f"while the request was sent: {_said(error)}") from None
        head = self._head(b"")
        while head.status == 100:
            head = self._head(head.rest)
        self.clean = False
        return head

    def _head(self, data: bytes) -> Head:
        now = time.monotonic_ns()
        while (end := data.find(b"\r\n\r\n")) < 0:
            if len(data) > MOST_HEAD:
                raise BrokenAnswer("malformed", f"no end of the head within {MOST_HEAD} bytes")
            piece, now = self._piece()
            if not piece:
                raise BrokenAnswer("closed_early", "before the head of the answer")
            data += piece
        return _head(data[:end], data[end + 4 :], now)

    def pieces(self, head: Head) -> Iterator[tuple[bytes, int]]:
        """Yield the body as it comes, without the coding of its transfer, each part with the time it came."""
        if head.status in (204, 304):
            pass
        elif "chunked" in head.fields.get("transfer-encoding", "").lower():
            yield from self._chunks(head)
        elif "content-length" in head.fields:
            yield from self._counted(head, _number(head.fields["content-length"], 10))
        else:
            yield from self._to_the_end(head)
        self.clean = True

    def whole(self, head: Head) -> bytes:
        """Return the whole body."""
        parts, size = list[bytes](), 0
        for data, _ in self.pieces(head):
            parts.append(data)
            if (size := size + len(data)) > MOST_BODY:
                raise BrokenAnswer("malformed", f"more than {MOST_BODY} bytes")
        return b"".join(parts)

    def _piece(self) -> tuple[bytes, int]:
        try:
            if self._stamped:
                size, notes, _, _ = self.sock.recvmsg_into([self._room], NOTE)
                self._latest_ns = max(self._latest_ns, _came(notes))
                return bytes(self._room[:size]), self._latest_ns
            size = self.sock.recv_into(self._room)
            now = time.monotonic_ns()
            return bytes(self._room[:size]), now
        except (BlockingIOError, ssl.SSLWantReadError, TimeoutError):
            raise BrokenAnswer("stalled", f"nothing came for {self.quiet_s:g} s") from None
        except OSError as error:
            raise BrokenAnswer("closed_early", _said(error)) from None

    def _received(self, head: Head) -> Iterator[tuple[bytes, int]]:
        if head.rest:
            yield head.rest, head.arrived_ns
        while True:
            yield self._piece()

    def _gathered(self, head: Head) -> Iterator[tuple[bytes, int]]:
        """Yield what comes in groups of reads, each with its own time; a group ends where chunks may end.

        What is done between two reads is done by a core that was asleep, and costs several times as much there.
        """
        if head.rest:
            yield head.rest, head.arrived_ns
        tail, held = head.rest[-4:], list[tuple[bytes, int]]()
        while True:
            try:
                data, now = self._piece()
            except BrokenAnswer:
                yield from held
                raise
            held.append((data, now))
            tail = (tail + data)[-4:]
            full = len(held) == GROUP or len(data) > LARGE or now - held[0][1] > GROUP_NS
            if full or not data or tail == b"\r\n\r\n" or DONE in data:
                yield from held
                held = []

    def _counted(self, head: Head, left: int) -> Iterator[tuple[bytes, int]]:
        received = self._received(head)
        while left > 0:
            data, now = next(received)
            if not data:
                raise BrokenAnswer("closed_early", f"{left} bytes of the answer are missing")
            left -= len(data)
            yield data, now

    def _to_the_end(self, head: Head) -> Iterator[tuple[bytes, int]]:
        head.fields = {**head.fields, "connection": "close"}
        for data, now in self._received(head):
            if not data:
                return
            yield data, now

    def _chunks(self, head: Head) -> Iterator[tuple[bytes, int]]:
        """Take the chunks apart: SIZE CRLF DATA CRLF, and behind one of size 0 the fields until an empty line."""
        data, left = b"", 0  # bytes left of the present chunk, with the two of its line's end
        for more, now in self._gathered(head):
            if not more:
                raise BrokenAnswer("closed_early", "within the chunks of the answer")
            data, at, parts, size = data + more, 0, list[bytes](), -1
            while size:
                if left:
                    have = min(left, len(data) - at)
                    parts.append(data[at : at + min(have, max(left - 2, 0))])
                    at, left = at + have, left - have
                if left or (end := data.find(b"\r\n", at)) < 0:
                    break
                if size := _number(data[at:end].partition(b";")[0], 16):
                    at, left = end + 2, size + 2
            data = data[at:]
            if parts:
                yield b"".join(parts), now
            if not size and b"\r\n\r\n" in data:
                return


def _came(notes: Sequence[tuple[int, int, bytes]]) -> int:
    """Return when the kernel had the bytes of a read, on the monotonic clock; now if it did not say."""
    now, today = _now()
    for level, kind, stamp in notes:
        if kind == TIMESTAMPNS and level == socket.SOL_SOCKET and len(stamp) == STAMP.size:
            seconds, ns = STAMP.unpack(stamp)
            late = today - seconds * 10**9 - ns
            return now - late if 0 <= late < MOST_LATE_NS else now
    return now


def _now() -> tuple[int, int]:
    """Return one moment on the monotonic clock and on that of the day; both are read anew if something came between."""
    for _ in range(4):
        now, today = time.monotonic_ns(), time.time_ns()
        if time.monotonic_ns() - now < CLOSE_NS:
            break
    return now, today


def _head(head: bytes, rest: bytes, now: int) -> Head:
    first, *lines = head.decode("latin-1").split("\r\n")
    version, _, said = first.partition(" ")
    status, _, reason = said.partition(" ")
    if not version.startswith("HTTP/1.") or not status.isdigit():
        raise BrokenAnswer("malformed", f"no answer of HTTP/1.1: {first[:60]!r}")
    pairs = (line.partition(":") for line in lines)
    fields = {name.strip().lower(): value.strip() for name, _, value in pairs}
    if version == "HTTP/1.0":
        fields.setdefault("connection", "close")
    return Head(int(status), reason, fields, rest, now)


def _number(text: bytes | str, base: int) -> int:
    try:
        number = int(text, base)
    except ValueError:
        number = -1
    if number < 0:
        raise BrokenAnswer("malformed", f"a length that is no number: {text[:20]!r}")
    return number


def _said(error: OSError) -> str:
    return error.strerror or type(error).__name__


def request(
    at: Address, method: str, path: str, body: Any = None, *, key: str = "", stream: bool = False
) -> bytes:
    """Return a request as bytes; `body` goes as JSON, `key` as a bearer token."""
    data = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {at.authority}",
        f"Accept: {'text/event-stream' if stream else 'application/json'}",
        "User-Agent: edgescope",
        *([f"Authorization: Bearer {key}"] if key else []),
        *([] if body is None else ["Content-Type: application/json", f"Content-Length: {len(data)}"]),
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + data


def events(pieces: Iterator[tuple[bytes, int]]) -> Iterator[tuple[bytes, int]]:
    """Yield the data of each server-sent event with the time it came; comments and other fields are passed over."""
    rest, held = b"", list[bytes]()
    for data, now in pieces:
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > MOST_EVENT:
            raise BrokenAnswer("malformed", f"an event without an end within {MOST_EVENT} bytes")
        for line in lines:
            if line[:5] == b"data:":
                held.append(line[5:].strip())
            elif held and line in (b"", b"\r"):
                yield (held[0] if len(held) == 1 else b"\n".join(held)), now
                held = []
    if held or rest[:5] == b"data:":  # the last event of a server that ends without an empty line
        yield b"\n".join([*held, *([rest[5:].strip()] if rest[:5] == b"data:" else [])]), time.monotonic_ns()
