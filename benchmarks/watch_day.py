"""Watches a simulated camera for 24 hours; says whether memory is flat, times drift, and every event is alarmed.

    PYTHONPATH=src:tests python benchmarks/watch_day.py --json published/watch_day.json

The clock is simulated, so a day passes in a few minutes; the frames, the stages, the session, the log, the webhook (to
a real server on 127.0.0.1, which is killed for a tenth of the time) and the clips are real. Only the network is a
small function: the motion between frames.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from facts import commit, machine_id

import hook_server
from edgescope.watching.clips import Clips, Length
from edgescope.watching.log import Log
from edgescope.watching.webhook import Webhook
from watched_day import accounted, planted, session


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


class Server:
    """The webhook's server, in a process of its own: its memory is not the watcher's."""

    def __init__(self, file: Path) -> None:
        self.file, self.port = file, 0
        self.up()

    def up(self) -> None:
        """Start it, on the port that it had."""
        script = str(Path(hook_server.__file__))
        self.process = subprocess.Popen(
            [sys.executable, script, str(self.port), str(self.file)], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def down(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.communicate()

    @property
    def received(self) -> set[tuple[str, str]]:
        """Return the id and the kind of each event that arrived."""
        rows = [json.loads(line) for line in self.file.read_text().splitlines()]
        return {(row["id"], row["event"]) for row in rows}


def day(hours: float, fps: float, seconds: float, *, clips: bool) -> dict:
    """One simulated day; it ends early, and says so, after `seconds` of real time."""
    events = planted(hours)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        hook = Server(place / "received.jsonl")
        sinks = [
            Log(place / "alarms.jsonl"),
            Webhook(f"http://127.0.0.1:{hook.port}/alarm", place / "spool", first_s=0.01),
        ]
        sinks += [Clips(place / "clips", Length(before_s=2.0, after_s=1.0))] if clips else []
        made, camera = session(hours, fps, events, sinks)
        samples: list[tuple[float, int]] = []
        hour, began, up = 0, time.monotonic(), True

        def stop() -> bool:
            nonlocal hour, up
            stream = made.counts.time_s
            if stream >= hour * 3600 / 2:
                gc.collect()
                samples.append((stream / 3600, resident()))
                hour += 1
            down = 10 * 3600 <= stream < 12.4 * 3600
            if down == up:
                (hook.down if down else hook.up)()
                up = not down
            return time.monotonic() - began > seconds

        made.run(stop)
        took = time.monotonic() - began
        alarms = [event.alarm for event in made.counts.events]
        found = accounted(events, alarms, fps)
        logged = [json.loads(line) for line in (place / "alarms.jsonl").read_text().splitlines()]
        summary = made.summary()
        received = hook.received
        hook.down()
    ended = made.counts.time_s
    settled = [rss for at, rss in samples if at >= 1.0]
    return {
        "hours": ended / 3600,
        "whole": ended >= hours * 3600 - 60,
        "real_s": took,
        "fps": fps,
        "frames": summary["frames"],
        "dropped_by_source": summary["dropped_by_source"],
        "resident_bytes": [{"hour": at, "bytes": rss} for at, rss in samples],
        "memory_growth_after_first_hour": (settled[-1] - settled[0]) / settled[0] if settled else None,
        "memory_spread_after_first_hour": (max(settled) - min(settled)) / min(settled) if settled else None,
        "planted": len([e for e in events if e.end_s < ended]),
        "alarmed": len(found["alarmed"]),
        "missed": [vars(e) for e in found["missed"] if e.end_s < ended],
        "false_alarms": len(found["false"]),
        "suppressed": summary["suppressed"],
        "start_error_s": {"first": found["start_error_s"][:5], "last": found["start_error_s"][-5:]},
        "largest_start_error_s": max(map(abs, found["start_error_s"]), default=None),
        "largest_clock_error_s": max(
            (abs(event.at - made.began - event.alarm.start_s) for event in made.counts.events), default=None
        ),
        "last_frame_error_s": abs(ended - (camera.index - 1) / fps),
        "raised_and_ended_in_log": [
            sum(row["event"] == kind for row in logged) for kind in ("alarm_raised", "alarm_ended")
        ],
        "webhook_received": len(received),
        "sinks": summary["sinks"],
        "frame_age_p99_s": summary["frame_age_p99_s"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--fps", type=float, default=15.0)
    parser.add_argument("--seconds", type=float, default=420.0, help="longest real time")
    parser.add_argument("--no-clips", action="store_true")
    parser.add_argument("--json", type=Path, default=None)
    args = parser.parse_args()
    found = {
        "machine": machine_id(),
        "commit": commit(),
        **day(args.hours, args.fps, args.seconds, clips=not args.no_clips),
    }
    for sink in found["sinks"]:
        for name in ("log", "clips", "webhook"):
            if name in sink:
                sink[name] = name  # where it lay was temporary
    text = json.dumps(found, indent=1)
    print(text)
    if args.json:
        args.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
