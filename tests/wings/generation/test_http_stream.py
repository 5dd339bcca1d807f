"""The client of servers: any cutting of an answer into reads gives the same body and events, or says what is wrong."""

import json
import socket
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.errors import UsageError
from edgescope.wings.generation import http_stream
from edgescope.wings.generation.engine import BrokenAnswer
from edgescope.wings.generation.http_stream import Address, Connection, events, request

BODY = b'data: {"a": 1}\n\n: a comment\r\n\r\nevent: ping\ndata: two\ndata: lines\r\n\r\ndata: [DONE]\n\n'
EVENTS = [b'{"a": 1}', b"two\nlines", b"[DONE]"]


class Reads:
    """A socket that gives one part a read, then the end, or what it raises."""

    def __init__(self, parts, end=b""):
        self.parts, self.end = [*parts], end

    def recv_into(self, room):
        if not self.parts and isinstance(self.end, Exception):
            raise self.end
        part = self.parts.pop(0) if self.parts else self.end
        room[: len(part)] = part
        return len(part)

    def sendall(self, data): ...
    def setsockopt(self, *how): ...
    def close(self): ...


class Played(Connection):
    """A connection whose answers are given."""

    socks: list

    def _connect(self):
        self.sock = self.socks.pop(0)


def played(*socks, clean=False):
    made = type("Made", (Played,), {"socks": [*socks]})(Address.of("http://x/v1"), 1.0)
    made.clean = clean
    return made


def cut(data, places):
    ends = sorted({p % (len(data) + 1) for p in places} | {len(data)})
    return [part for a, b in zip([0, *ends], ends, strict=False) if (part := data[a:b])]


def chunked(data, places, ending=b"0\r\n\r\n"):
    return b"".join(b"%X;x=y\r\n%s\r\n" % (len(part), part) for part in cut(data, places)) + ending


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's receive times are Linux's")
@pytest.mark.process
def test_a_piece_came_when_the_kernel_had_it_however_late_it_is_read():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        line = Connection(Address.of(f"http://127.0.0.1:{listening.getsockname()[1]}/v1"), 5.0)
        there, _ = listening.accept()
        line.sock.send(b"?")
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"
        sent = list[int]()
        for part in (head, b"ab", b"cd"):
            sent.append(time.monotonic_ns())
            there.send(part)
            time.sleep(0.03)
            came = line._piece()[1]
            assert 0 <= came - sent[-1] < 15e6  # it was read 30 ms later
        line.close()
        there.close()


@pytest.mark.parametrize("off_s", [-100, 100], ids=["set back", "set ahead"])
def test_a_clock_that_is_set_moves_no_piece(off_s):
    now = time.time_ns() + off_s * 10**9
    note = (socket.SOL_SOCKET, http_stream.TIMESTAMPNS, http_stream.STAMP.pack(*divmod(now, 10**9)))
    assert abs(http_stream._came([note]) - time.monotonic_ns()) < 10e6


places = st.lists(st.integers(0, 400), max_size=12)


@settings(max_examples=60)
@given(places, places, st.sampled_from([b"0\r\n\r\n", b"0\r\nX-Sum: 1\r\n\r\n"]))
def test_chunks(reads, chunks, ending):
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(BODY, chunks, ending)
    line = played(Reads(cut(answer, reads)))
    head = line.ask(b"")
    assert [data for data, _ in events(line.pieces(head))] == EVENTS
    assert line.clean and head.keeps


@settings(max_examples=60)
@given(places, st.booleans())
def test_counted_or_to_the_end(reads, counted):
    length = f"Content-Length: {len(BODY)}\r\n" if counted else ""
    answer = f"HTTP/1.1 200 OK\r\n{length}\r\n".encode() + BODY
    line = played(Reads(cut(answer, reads)))
    head = line.ask(b"")
    assert line.whole(head) == BODY
    assert head.keeps == counted


@pytest.mark.parametrize(
    ("answer", "end", "kind"),
    [
        (b"", b"", "closed_early"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Enc", b"", "closed_early"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc", b"", "closed_early"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc", b"", "malformed"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nabc", b"", "malformed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", b"", "closed_early"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nabc", b"", "malformed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", TimeoutError(), "stalled"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", ConnectionResetError(), "closed_early"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", b"", "malformed"),
        (b"x" * 70_000, b"", "malformed"),
    ],
)
def test_what_is_wrong(answer, end, kind):
    line = played(Reads([answer] if answer else [], end))
    with pytest.raises(BrokenAnswer) as broken:
        line.whole(line.ask(b""))
    assert broken.value.kind == kind and not line.clean


GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def test_a_kept_connection_that_was_closed_is_opened_again():
    line = played(Reads([]), Reads([GOOD]), clean=True)
    assert line.whole(line.ask(b"")) == b"ok"


def test_a_new_connection_that_is_closed_is_not_asked_twice():
    with pytest.raises(BrokenAnswer):
        played(Reads([]), Reads([GOOD])).ask(b"")


def test_what_comes_before_the_answer_is_passed_over():
    line = played(Reads([b"HTTP/1.1 100 Continue\r\n\r\n" + GOOD]))
    assert line.whole(line.ask(b"")) == b"ok"


def test_an_event_without_end_is_given_up():
    with pytest.raises(BrokenAnswer) as broken:
        list(events(iter([(b"data: " + b"x" * (1 << 20), 0)] * 5)))
    assert broken.value.kind == "malformed"


@pytest.mark.parametrize(
    ("url", "authority", "path"),
    [
        ("http://127.0.0.1:8080/v1", "127.0.0.1:8080", "/v1"),
        ("http://[::1]:80/v1/", "[::1]", "/v1"),
        ("https://host", "host", ""),
    ],
)
def test_addresses(url, authority, path):
    at = Address.of(url)
    assert (at.authority, at.path) == (authority, path)


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "ftp://x/v1",
        "http://u:secret@x/v1",
        "http://x:99999/v1",
        "http://x/v1?a=1",
        "http://x/a b",
        "http:v1",
    ],
)
def test_what_is_no_address(url):
    with pytest.raises(UsageError) as refused:
        Address.of(url)
    assert refused.value.code == "E-URL-1" and "secret" not in str(refused.value)


def test_a_request():
    sent = request(Address.of("http://x:81/v1"), "POST", "/v1/y", {"a": "ä"}, key="k", stream=True)
    head, _, body = sent.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /v1/y HTTP/1.1" and json.loads(body) == {"a": "ä"}
    assert {b"Host: x:81", b"Authorization: Bearer k", b"Accept: text/event-stream"} <= set(lines)
    assert b"Content-Length: %d" % len(body) in lines
