"""The far end of a network probe: `edgescope offload --serve PORT`. It answers, keeps nothing, and trusts nobody.

It listens on 127.0.0.1 unless an address is given on purpose (`--bind`): whoever can connect can make it send zeros.
At most a few peers are served at once; each has a deadline for every line and transfer.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable

from edgescope.errors import SettingError
from edgescope.network.wire import HELLO, MOST_BYTES, MOST_ECHO, Ended, Garbled, Slow, Talk

PEERS = 8
LINE_S, TRANSFER_S = 30.0, 120.0


class EchoServer:
    """Serves probes on `address` in threads until closed; `port` is the one it got."""

    def __init__(self, bind: str, port: int, tell: Callable[[str], None] = lambda text: None) -> None:
        self.tell, self.free = tell, threading.BoundedSemaphore(PEERS)
        try:
            family = socket.AF_INET6 if ":" in bind else socket.AF_INET
            self.sock = socket.create_server((bind, port), family=family)
        except (OSError, OverflowError) as error:
            raise SettingError(
                "E-NET-3",
                f"nothing can listen on {bind} port {port}",
                evidence=str(error),
                fix="another port, or an address of this machine",
            ) from error
        self.port: int = self.sock.getsockname()[1]

    def forever(self) -> None:
        """Accept peers until the server is closed."""
        with contextlib.suppress(OSError):  # closed by close()
            while True:
                peer, address = self.sock.accept()
                if not self.free.acquire(blocking=False):
                    peer.close()
                    continue
                threading.Thread(target=self._serve, args=(peer, str(address[0])), daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()

    def _serve(self, peer: socket.socket, address: str) -> None:
        try:
            with peer:
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.tell(f"{address}: {_converse(Talk(peer, LINE_S))}")
        finally:
            self.free.release()


def _converse(talk: Talk) -> str:
    """Answer one peer until it is done; return how it ended."""
    try:
        return _answers(talk)
    except Ended:
        return "closed the connection"
    except Garbled as error:
        return f"sent what is no line of ours: {error}"
    except Slow:
        return "too slow, left"
    except OSError as error:
        return str(error)


def _answers(talk: Talk) -> str:
    if talk.line() != HELLO:
        talk.say("error this is an edgescope echo server")
        return "spoke another protocol"
    talk.say(HELLO)
    while True:
        word, _, size = talk.line().partition(" ")
        if word == "bye":
            return "done"
        problem = _problem(word, size)
        if problem:
            talk.say(f"error {problem}")
            return problem
        _answer(talk, word, int(size))


def _problem(word: str, size: str) -> str:
    """Say what is wrong with a request, or ''."""
    most = {"echo": MOST_ECHO, "sink": MOST_BYTES, "source": MOST_BYTES}.get(word)
    if most is None:
        return "unknown request"
    if not (size.isdecimal() and len(size) < 12 and 0 < int(size) <= most):
        return f"{word} takes 1 to {most} bytes"
    return ""


def _answer(talk: Talk, word: str, size: int) -> None:
    end = time.monotonic() + (talk.limit_s if word == "echo" else TRANSFER_S)
    if word == "echo":
        talk.send(talk.take(size, end), end)
    elif word == "sink":
        talk.drain(size, end)
        talk.say(f"took {size}")
    else:
        talk.pour(size, end)
