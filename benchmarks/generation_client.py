"""What the client of servers costs, and how right its times are: alone, beside the kernel's, and beside AIPerf's.

python benchmarks/generation_client.py stream [--tokens 100000] [--times 5]
python benchmarks/generation_client.py arrivals [--seconds 30]   (root: it reads the loopback's packets)
python benchmarks/generation_client.py aiperf --python VENV/bin/python [--turns 6]

The server is tests/llm_server.py, a process of its own, which streams words and computes nothing.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import facts
import numpy as np
from facts import ROOT, publish

from edgescope.backends.base import Spec
from edgescope.wings.generation.endpoint import Endpoint
from edgescope.wings.generation.engine import Request
from edgescope.wings.generation.openai import OpenAi, OpenAiSession

COST_US, MEDIAN_US, P99_US = 15.0, 50.0, 1000.0
"""Microseconds of CPU a token at most, and by how much arrivals may differ from the kernel's time stamps."""
TIMES_LESS, CLOSE = 3.0, 0.02
"""How much less CPU than AIPerf's client at least, and the share by which both may differ in TTFT and ITL."""
RATE, FIRST_S, TOKENS = 200.0, 0.05, 200
TIMESTAMPNS = getattr(socket, "SO_TIMESTAMPNS", 35)


@contextmanager
def server(*words: str) -> Iterator[str]:
    """Hold a server; give its URL."""
    program = [sys.executable, str(ROOT / "tests/llm_server.py"), *words]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().split()[-1]}/v1"
    finally:
        process.kill()
        process.wait()


@contextmanager
def session(url: str) -> Iterator[OpenAiSession]:
    """Hold a session with the server."""
    spec = Spec("as_is", device="server")
    made = OpenAi().load(OpenAi().prepare(Endpoint(url), spec, Path()))
    try:
        yield made
    finally:
        made.close()


def asked(number: int, tokens: int) -> Request:
    """Return a request like no other."""
    return Request((), f"number {number} is the first that I think of today", tokens)


def stream() -> None:
    """The CPU of a token in a long stream from a server that sends all at once."""
    parser = argparse.ArgumentParser(description=facts.text(stream))
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--times", type=int, default=5)
    args = parser.parse_args()
    cpu, wall = [], []
    with server() as url, session(url) as made:
        for number in range(args.times):
            begun, used = time.monotonic(), time.process_time()
            got = made.generate(asked(number, args.tokens))
            cpu.append((time.process_time() - used) / args.tokens * 1e6)
            wall.append((time.monotonic() - begun) / args.tokens * 1e6)
            assert got.output_tokens == args.tokens == len(got.times_ns)
    found = {"tokens": args.tokens, "cpu_us": spread(cpu), "wall_us": spread(wall)}
    publish("generation_client/stream", found, met=found["cpu_us"]["median"] <= COST_US)


def spread(values: list[float]) -> dict[str, Any]:
    """Return the median and all values."""
    return {"median": statistics.median(values), "each": values}


def sniff() -> None:
    """Write when each token of a server at a port had come, by the kernel's stamps of the packets; needs root."""
    port = int(sys.argv[1])
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
    sock.bind(("lo", 0))
    sock.setsockopt(socket.SOL_SOCKET, TIMESTAMPNS, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 26)
    print("ready", flush=True)
    stamps, known = list[int](), set[bytes]()
    while True:
        data, notes, _, address = sock.recvmsg(1 << 16, 128)
        now, today = time.monotonic_ns(), time.time_ns()
        at = 4 * (data[0] & 15)
        if address[2] != socket.PACKET_HOST or data[9] != socket.IPPROTO_TCP:
            continue
        if int.from_bytes(data[at : at + 2], "big") != port:
            continue
        if (
            b"data: " not in data or data[at + 4 : at + 8] in known
        ):  # sent once more, as TCP does of a late answer
            continue
        known.add(data[at + 4 : at + 8])
        seconds, ns = next(
            struct.unpack("@ll", stamp[:16]) for _, kind, stamp in notes if kind == TIMESTAMPNS
        )
        stamps += [now - (today - seconds * 10**9 - ns)] * data.count(b'"content":')
        if b"[DONE]" in data:
            print(json.dumps(stamps), flush=True)
            stamps = []


def arrivals() -> None:
    """How far the times of tokens lie from those at which a sniffer of packets saw them, at 200 tokens a second."""
    parser = argparse.ArgumentParser(description=facts.text(arrivals))
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--times", type=int, default=3)
    args = parser.parse_args()
    each = []
    with server("--rate", str(RATE)) as url, session(url) as made:
        program = [sys.executable, __file__, "sniff", url.rpartition(":")[2].partition("/")[0]]
        with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as sniffer:
            assert sniffer.stdout is not None
            sniffer.stdout.readline()
            try:
                for number in range(args.times):
                    got = made.generate(asked(number, int(args.seconds * RATE)))
                    seen = np.array(json.loads(sniffer.stdout.readline()))
                    assert len(seen) == len(got.times_ns) == got.output_tokens, (len(seen), len(got.times_ns))
                    each.append(np.abs(np.array(got.times_ns) - seen) / 1e3)
            finally:
                sniffer.kill()
    figures = {
        "tokens": len(each[0]),
        "median_us": spread([float(np.median(us)) for us in each]),
        "p99_us": spread([float(np.quantile(us, 0.99)) for us in each]),
        "most_us": spread([float(us.max()) for us in each]),
    }
    right = figures["median_us"]["median"] <= MEDIAN_US and figures["p99_us"]["median"] <= P99_US
    publish("generation_client/arrivals", figures, met=right)


def ours(made: OpenAiSession, numbers: range, tokens: int) -> list[dict[str, float]]:
    """Return TTFT, ITL and CPU of some requests by edgescope's client."""
    found = []
    for number in numbers:
        begun, used = time.monotonic_ns(), time.process_time()
        got = made.generate(asked(number, tokens))
        cpu_s = time.process_time() - used
        first, last = got.times_ns[0], got.times_ns[-1]
        itl_s = (last - first) * 1e-9 / (got.output_tokens - 1)
        found.append({"ttft_s": (first - begun) * 1e-9, "itl_s": itl_s, "cpu_s": cpu_s})
    return found


def aiperf() -> None:
    """CPU, time to first token and time between tokens beside AIPerf's client, in turns on one server."""
    parser = argparse.ArgumentParser(description=facts.text(aiperf))
    parser.add_argument("--python", required=True, help="of an environment with aiperf")
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--requests", type=int, default=10, help="in a turn")
    args = parser.parse_args()
    rows: dict[str, list[dict[str, float]]] = {"edgescope": [], "aiperf": []}
    with server("--rate", str(RATE), "--first", str(FIRST_S)) as url, session(url) as made:
        program = [args.python, str(Path(__file__).with_name("generation_client_aiperf.py")), url]
        theirs = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert theirs.stdin is not None and theirs.stdout is not None
        about = json.loads(theirs.stdout.readline())
        for turn in range(args.turns):
            numbers = range(turn * args.requests, (turn + 1) * args.requests)
            for who in ("edgescope", "aiperf") if turn % 2 else ("aiperf", "edgescope"):
                if who == "edgescope":
                    rows[who] += ours(made, numbers, TOKENS)
                else:
                    theirs.stdin.write(json.dumps({"requests": args.requests, "tokens": TOKENS}) + "\n")
                    theirs.stdin.flush()
                    rows[who] += json.loads(theirs.stdout.readline())
        theirs.stdin.close()
        theirs.wait()
    median = {who: {k: statistics.median(row[k] for row in of) for k in of[0]} for who, of in rows.items()}
    both = {k: median["aiperf"][k] / median["edgescope"][k] for k in ("ttft_s", "itl_s", "cpu_s")}
    found = {
        **about,
        "rate": RATE,
        "tokens": TOKENS,
        "requests": args.turns * args.requests,
        "median": median,
        "cpu_us_a_token": {who: of["cpu_s"] / TOKENS * 1e6 for who, of in median.items()},
        "ratio": both,
    }
    same = all(abs(both[k] - 1) <= CLOSE for k in ("ttft_s", "itl_s"))
    publish("generation_client/aiperf", found, met=same and both["cpu_s"] >= TIMES_LESS)


if __name__ == "__main__":
    facts.chosen(stream, arrivals, aiperf, sniff)
