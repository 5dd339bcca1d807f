"""How long the agent takes over ssh from its start to the first sample, and what of a core it uses while it samples.

    python benchmarks/agent.py                 # publishes published/agent.json

A real ssh server on this machine, with a key made for it, runs the agent. Its start is that of ssh; a first sample is a
row that has come back. Its own use is what the kernel says of the agent, without the ssh on either side, while it reads
the sensors that this machine has. The goals: 1,600 lines, 2 s, and 1 % of a core at 10 Hz.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import facts

from edgescope.wings.remote import address
from edgescope.wings.remote.board import opened
from edgescope.wings.remote.wire import agent_source

sys.path.insert(0, str(facts.ROOT / "tests"))
from ssh_server import Server

STARTS, SECONDS, HZ = 10, 60.0, 10.0
GOALS = {"lines": 1600, "first_sample_s": 2.0, "cpu_share": 0.01}


def first_sample(url: str) -> float:
    """Return the seconds from the start of ssh to a row of the sensors."""
    start = time.monotonic()
    with opened(address.parse(url)) as board, board.sampling(HZ) as rows:
        while not rows.rows:
            board.wire.call("ping")
            time.sleep(0.005)
        return time.monotonic() - start


def own_use(url: str, seconds: float) -> dict[str, Any]:
    """Return the cost of sampling for some seconds, as the agent's kernel tells it, and the number of channels."""
    with opened(address.parse(url)) as board:
        with board.sampling(HZ) as rows:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                time.sleep(1.0)
                board.wire.call("ping")
        return {"channels": len(rows.channels), "python": board.wire.hello["python"], **rows.cost()}


def figures(python: str, seconds: float, starts: int) -> dict[str, Any]:
    """Return the agent's figures under one Python."""
    with tempfile.TemporaryDirectory() as name:
        environment = {"HOME": name, "PATH": os.environ["PATH"]}
        with Server(Path(name), environment) as server:
            os.environ[address.SSH] = server.client()
            url = f"ssh://user@127.0.0.1:{server.port}?python={python}"
            waits = sorted(first_sample(url) for _ in range(starts))
            cost = own_use(url, seconds)
    return {
        "python": cost["python"],
        "first_sample_s": {"median": waits[len(waits) // 2], "longest": waits[-1], "starts": starts},
        "channels": cost["channels"],
        "hz": cost["achieved_hz"],
        "seconds": cost["wall_s"],
        "cpu_share": cost["cpu_share"],
        "missed_ticks": cost["missed_ticks"],
    }


def main(argv: list[str]) -> int:
    """Measure, publish, and return 0 if the goals are kept."""
    parser = argparse.ArgumentParser(description="what the agent costs")
    parser.add_argument("pythons", nargs="*", default=[sys.executable], help="Pythons that run the agent")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--starts", type=int, default=STARTS)
    parser.add_argument("--no-publish", action="store_true")
    args = parser.parse_args(argv)
    rows = [figures(python, args.seconds, args.starts) for python in args.pythons]
    lines = len(agent_source().splitlines())
    kept = lines <= GOALS["lines"] and all(
        row["first_sample_s"]["median"] <= GOALS["first_sample_s"] and row["cpu_share"] <= GOALS["cpu_share"]
        for row in rows
    )
    found = {"goals": GOALS, "kept": kept, "lines": lines, "pythons": rows}
    for row in rows:
        wait, share = row["first_sample_s"], row["cpu_share"]
        print(
            f"Python {row['python']}: first sample after {wait['median']:.2f} s, at most {wait['longest']:.2f} s"
        )
        print(f"  {share:.2%} of a core at {row['hz']:.1f} Hz, {row['channels']} channels")
    print(f"{lines} lines; the goals are {'kept' if kept else 'missed'}")
    if not args.no_publish:
        facts.publish(Path(__file__).stem, found, met=kept)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
