"""The agent under the Python that the board has: how fast it starts, what it costs, and that nothing of it stays."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

import numpy as np

from edgescope.process import scratch_folder
from edgescope.records import Json
from edgescope.telemetry.watcher import COST_CHANNEL
from edgescope.wings.remote.lends import Board, Line, Lines, opened, parse
from edgescope.wings.verify_board.check import Outcome, judged, unsupported
from edgescope.wings.verify_board.site import OnBoard, Site

HZ, SECONDS = 10.0, 6.0
FIRST_S = 2.0
"""Seconds from the connection's start to the first sample that a board on localhost may take."""
MOST_SHARE = 0.01
"""Share of one core that sampling at HZ may take."""
LOCAL = "ssh://localhost"
FILE_BYTES = 1 << 20
LATE_S = 1e6
"""Stands for a first sample that never came: JSON has no infinity."""


def agent(site: Site) -> Outcome:
    """Start the agent, sample, run a program, send and fetch a file, and leave."""
    if isinstance(site, OnBoard):
        address, argv, local = parse(site.url), None, False
    else:
        if not (python := site.find("python3")):
            return unsupported("no python3 on PATH")
        address, local = parse(f"{LOCAL}?python={python}"), True
        argv = ["sh", "-c", address.command()]  # all but ssh itself
    begun = time.monotonic()
    with opened(address, argv) as board:
        connected_s = time.monotonic() - begun
        evidence, wrong = _sampled(board, begun)
        wrong += _worked(board, evidence)
        wrong += _sent(board, evidence)
        hello, about = board.wire.hello, board.about(board.wire.offset())
    evidence |= {"connected_s": round(connected_s, 3), "python": str(hello.get("python"))}
    evidence["clock_offset_uncertainty_s"] = about["offset_uncertainty_s"]
    first, share = float(evidence["first_sample_s"]), float(evidence["cpu_share"])
    if local and first > FIRST_S:
        wrong.append(f"the first sample came after {first:.1f} s, more than {FIRST_S:g} s")
    if share > MOST_SHARE:
        wrong.append(f"sampling at {HZ:g} Hz takes {share:.1%} of a core, more than {MOST_SHARE:.0%}")
    right = (
        f"Python {hello.get('python')}, first sample after {first:.2f} s, {share:.2%} of a core at {HZ:g} Hz"
    )
    return judged(wrong, right, evidence)


def _sampled(board: Board, begun: float) -> tuple[dict[str, Json], list[str]]:
    """Sample for some seconds; return the figures and what is wrong with them."""
    with board.sampling(HZ) as rows:
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            board.wire.call("ping")
            time.sleep(0.2)
    readings, cost = rows.readings({}), rows.cost()
    t_ns, spent = readings.series(COST_CHANNEL)
    first_s = float(t_ns[0]) / 1e9 - board.first.offset_s - begun if len(t_ns) else LATE_S
    missed = int(cost["missed_ticks"]) if isinstance(cost["missed_ticks"], int) else 0
    evidence: dict[str, Json] = {
        "first_sample_s": round(first_s, 3),
        "cpu_share": float(np.ptp(spent)) / SECONDS if len(spent) else 1.0,
        "channels": sum(c.status == "measured" for c in readings.channels),
        "ticks": cost["ticks"],
        "missed_ticks": missed,
    }
    return evidence, [] if len(t_ns) else ["no sample came"]


def _worked(board: Board, evidence: dict[str, Json]) -> list[str]:
    """Run a program there, and one that must be stopped at its limit."""
    lines = Lines("")
    ended = board.perform(Line(["sh", "-c", "echo one; exit 3"]), lines, 20.0, "run sh")
    wrong = (
        []
        if ended["code"] == 3 and [text for _, text in lines.found] == ["one"]
        else ["a program's lines or code are lost"]
    )
    ended = board.perform(Line(["sleep", "60"]), Lines(""), 1.0, "run sleep")
    evidence["stopped_after_s"] = round(float(ended["seconds"]), 2)
    return (
        wrong
        if ended["stopped"] and float(ended["seconds"]) < 5
        else [*wrong, "a program over its limit ran on"]
    )


def _sent(board: Board, evidence: dict[str, Json]) -> list[str]:
    """Send a file, have it copied there, fetch the copy; the three must be one."""
    with scratch_folder("agent") as name:
        one, two = Path(name) / "one.bin", Path(name) / "two.bin"
        one.write_bytes(np.random.default_rng(0).bytes(FILE_BYTES))
        begun = time.monotonic()
        line = Line(["cp", "one.bin", "two.bin"], sent={"one.bin": one}, fetched={"two.bin": two})
        board.perform(line, Lines(""), 60.0, "run cp")
        evidence["file_round_trip_s"] = round(time.monotonic() - begun, 3)
        same = two.is_file() and _digest(one) == _digest(two)
    return [] if same else ["a file came back changed, or not at all"]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
