"""The conversation of probe and echo server (version 1): a line each way, then raw bytes.

    client                        server
    EDGESCOPE-NET 1               EDGESCOPE-NET 1
    echo 32     + 32 bytes        the same 32 bytes
    sink 65536  + 65536 bytes     took 65536
    source 65536                  65536 zero bytes
    bye                           (closes)

Anything else is answered by `error WORDS` and the end of the connection. A line has at most 128 bytes, an echo at most
64 KiB, a transfer at most 256 MiB. Every wait has an end: a peer that falls silent, or drips a byte a second, is left.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass

HELLO = "EDGESCOPE-NET 1"
MOST_LINE, MOST_ECHO, MOST_BYTES = 128, 1 << 16, 1 << 28
CHUNK = 1 << 16
ZEROS = bytes(CHUNK)


class Ended(Exception):
    """The peer closed the connection in the middle."""


class Garbled(Exception):
    """The peer said something that is not this protocol."""


class Slow(Exception):
    """The peer took longer than it was given."""


@dataclass
class Talk:
    """One connected socket, read and written against deadlines of CLOCK_MONOTONIC."""

    sock: socket.socket
    limit_s: float
    """What one line or one small message may take."""

    def line(self) -> str:
        """Return the next line without its end; Garbled where it is too long or no ASCII."""
        end, text = time.monotonic() + self.limit_s, b""
        while not text.endswith(b"\n"):
            if len(text) >= MOST_LINE:
                raise Garbled(repr(text[:40]))
            text += self._some(1, end)
        try:
            return text[:-1].decode("ascii")
        except UnicodeDecodeError as error:
            raise Garbled(repr(text[:40])) from error

    def say(self, text: str) -> None:
        """Send a line."""
        self.send(text.encode("ascii") + b"\n", time.monotonic() + self.limit_s)

    def send(self, data: bytes, end: float) -> None:
        """Send all of `data` before `end`."""
        self._until(end)
        try:
            self.sock.sendall(data)  # its time-out is for the whole
        except TimeoutError as error:
            raise Slow from error
        except ConnectionError as error:
            raise Ended from error

    def pour(self, size: int, end: float) -> None:
        """Send `size` zero bytes before `end`."""
        while size > 0:
            part = ZEROS[: min(size, CHUNK)]
            self.send(part, end)
            size -= len(part)

    def take(self, size: int, end: float) -> bytes:
        """Return exactly `size` bytes that arrive before `end`."""
        out = bytearray()
        while len(out) < size:
            out += self._some(size - len(out), end)
        return bytes(out)

    def drain(self, size: int, end: float) -> None:
        """Read `size` bytes before `end` and forget them."""
        while size > 0:
            size -= len(self._some(min(size, 4 * CHUNK), end))

    def _some(self, most: int, end: float) -> bytes:
        self._until(end)
        try:
            data = self.sock.recv(most)
        except TimeoutError as error:
            raise Slow from error
        except ConnectionError as error:
            raise Ended from error
        if not data:
            raise Ended
        return data

    def _until(self, end: float) -> None:
        """Have the next call give up at `end`."""
        left = end - time.monotonic()
        if left <= 0:
            raise Slow
        self.sock.settimeout(left)
