"""The probe against a real echo server: through a proxy with a known delay and bandwidth, and against hostile peers."""

from __future__ import annotations

import queue
import socket
import threading
import time
from contextlib import closing, contextmanager, suppress

import numpy as np
import pytest

from edgescope.analysis.offload.network import profile
from edgescope.errors import DeviceError, EdgescopeError, SettingError, UnavailableError, UsageError
from edgescope.network import echo
from edgescope.network.echo import EchoServer
from edgescope.network.probe import Plan, address, probe
from edgescope.network.wire import HELLO

QUICK = Plan(messages=20, enough_s=0.1, repeats=2, connect_s=2, line_s=2, transfer_s=5)
HASTY = Plan(messages=5, enough_s=0.01, repeats=1, connect_s=2, line_s=0.3, transfer_s=0.6)


@contextmanager
def serving():
    server = EchoServer("127.0.0.1", 0)
    threading.Thread(target=server.forever, daemon=True).start()
    try:
        yield server.port
    finally:
        server.close()


@contextmanager
def behind(port: int, delay_s: float, bps: float):
    """A proxy to `port` that adds `delay_s` and lets `bps` through, each way."""

    def pump(source: socket.socket, sink: socket.socket) -> None:
        waiting: queue.Queue[tuple[float, bytes]] = queue.Queue(maxsize=64)

        def send() -> None:
            free = 0.0
            while (item := waiting.get())[1]:
                due, data = item
                free = max(free, due) + 8 * len(data) / bps
                time.sleep(max(0.0, free - time.monotonic()))
                try:
                    sink.sendall(data)
                except OSError:
                    return

        threading.Thread(target=send, daemon=True).start()
        try:
            while data := source.recv(8192):
                waiting.put((time.monotonic() + delay_s, data))
        except OSError:
            pass
        waiting.put((0.0, b""))

    def accept() -> None:
        near, _ = door.accept()
        far = socket.create_connection(("127.0.0.1", port))
        for end in (near, far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=pump, args=(far, near), daemon=True).start()
        pump(near, far)

    with closing(socket.create_server(("127.0.0.1", 0))) as door:
        threading.Thread(target=accept, daemon=True).start()
        yield door.getsockname()[1]


@contextmanager
def peer(act):
    """A server that does `act(socket)` to whoever connects."""

    def accept() -> None:
        sock, _ = door.accept()
        with sock, suppress(OSError):
            act(sock)

    with closing(socket.create_server(("127.0.0.1", 0))) as door:
        threading.Thread(target=accept, daemon=True).start()
        yield door.getsockname()[1]


def test_the_probe_measures_what_was_set():
    with serving() as port, behind(port, 0.010, 40e6) as slow:
        keys = probe("127.0.0.1", slow, QUICK)
    found = profile(keys)
    assert len(found.rtt_samples_s) == 20
    assert min(found.rtt_samples_s) >= 0.020 and found.rtt_s < 0.035
    assert found.up_bps == pytest.approx(40e6, rel=0.2) and found.down_bps == pytest.approx(40e6, rel=0.2)
    assert found.loss_absent.startswith("TCP hides loss") and found.loss == 0
    assert "127.0.0.1" in found.source and keys["kind"] == "edgescope network profile"


def test_what_the_kernel_sent_again_is_evidence():
    with serving() as port:
        said = probe("127.0.0.1", port, HASTY)["evidence"]
    assert said["segments_sent"] >= 8 and said["segments_sent_again"] <= said["segments_sent"]


def test_a_slow_network_gives_fewer_round_trips():
    with serving() as port, behind(port, 0.010, 1e9) as slow:
        plan = Plan(messages=500, rtt_budget_s=0.2, enough_s=0.02, repeats=1)
        assert 2 <= len(probe("127.0.0.1", slow, plan)["rtt_samples_s"]) < 30


def drip(sock: socket.socket) -> None:
    for byte in HELLO.encode():
        sock.sendall(bytes([byte]))
        time.sleep(0.1)


def lie(sock: socket.socket) -> None:
    sock.recv(100)
    sock.sendall(HELLO.encode() + b"\n")
    sock.recv(100)
    sock.sendall(bytes(32))
    sock.recv(100)


def leave(sock: socket.socket) -> None:
    sock.recv(100)
    sock.sendall(HELLO.encode() + b"\n")


HOSTILE = {
    "closes": (lambda s: None, "E-NET-6"),
    "closes after hello": (leave, "E-NET-6"),
    "another protocol": (lambda s: s.sendall(b"SSH-2.0-OpenSSH_9.6\r\n"), "E-NET-7"),
    "no text": (lambda s: s.sendall(b"\xff\xfe\x00\n"), "E-NET-7"),
    "an endless line": (lambda s: s.sendall(b"a" * 10_000), "E-NET-7"),
    "a changed echo": (lie, "E-NET-7"),
    "silence": (lambda s: time.sleep(1), "E-NET-8"),
    "a drip": (drip, "E-NET-8"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_peer_ends_in_words_and_in_time(kind):
    act, code = HOSTILE[kind]
    start = time.monotonic()
    with peer(act) as port, pytest.raises(DeviceError) as caught:
        probe("127.0.0.1", port, HASTY)
    assert caught.value.code == code and "Nothing was written" in str(caught.value)
    assert time.monotonic() - start < 3


def test_a_transfer_that_stalls_is_left():
    def stall(sock: socket.socket) -> None:
        sock.sendall(HELLO.encode() + b"\n")
        sock.recv(100)
        while data := sock.recv(100):  # echoes, but takes nothing in bulk
            if not data.startswith(b"echo"):
                break
            sock.sendall(data.split(b"\n", 1)[1])
        time.sleep(2)

    with peer(stall) as port, pytest.raises(EdgescopeError) as caught:
        probe("127.0.0.1", port, HASTY)
    assert caught.value.code == "E-NET-8"


def test_nobody_there():
    with closing(socket.create_server(("127.0.0.1", 0))) as door:
        port = door.getsockname()[1]
    with pytest.raises(UnavailableError, match="E-NET-5"):
        probe("127.0.0.1", port, HASTY)


@pytest.mark.parametrize("text", ["", "host", "host:", ":80", "host:0", "host:70000", "host:http"])
def test_no_address(text):
    with pytest.raises(UsageError, match="E-NET-4"):
        address(text)


def test_addresses():
    assert address("nano:7077") == ("nano", 7077) and address("[::1]:80") == ("::1", 80)


REQUESTS = [
    (b"GET / HTTP/1.1\r\n", b"error"),
    (HELLO.encode() + b"\nsink 999999999999999999\n", b"error sink takes"),
    (HELLO.encode() + b"\nsource 268435457\n", b"error source takes"),
    (HELLO.encode() + b"\necho -5\n", b"error echo takes"),
    (HELLO.encode() + b"\nfetch 5\n", b"error unknown"),
    (HELLO.encode() + b"\n" + b"x" * 500, b""),
    (b"\x00\xff" * 100, b""),
]


def test_the_server_outlives_whoever_talks_to_it(monkeypatch):
    monkeypatch.setattr(echo, "LINE_S", 0.3)
    with serving() as port:
        for request, answer in REQUESTS:
            with closing(socket.create_connection(("127.0.0.1", port), timeout=3)) as sock:
                sock.sendall(request)
                said = b""
                try:
                    while data := sock.recv(1000):
                        said += data
                except ConnectionResetError:
                    pass
                assert answer in said, request
        with closing(socket.create_connection(("127.0.0.1", port), timeout=3)) as sock:
            assert sock.recv(10) == b"", "silence is left after its limit"
        assert len(probe("127.0.0.1", port, HASTY)["rtt_samples_s"]) == 5


def test_it_listens_where_it_was_told_and_says_where_it_cannot():
    with serving() as port, pytest.raises(SettingError, match="E-NET-3"):
        EchoServer("127.0.0.1", port)
    with pytest.raises(SettingError, match="E-NET-3"):
        EchoServer("203.0.113.7", 0)
    with pytest.raises(SettingError, match="E-NET-3"):
        EchoServer("127.0.0.1", 700_000)


def test_a_probe_feeds_a_question():
    with serving() as port:
        found = profile(probe("127.0.0.1", port, HASTY))
    assert found.measured and np.isfinite(found.up_bps)
