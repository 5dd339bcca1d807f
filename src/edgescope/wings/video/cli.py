"""The command line that watches a stream: its flags, where alarms go, and what a terminal shows meanwhile."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from edgescope.commandline import trial_flags
from edgescope.commandline.context import ready, say
from edgescope.errors import Message
from edgescope.process.said import waiting

if TYPE_CHECKING:
    from edgescope.records import Trial
    from edgescope.wings.video.alarm import Scored
    from edgescope.wings.video.session import Session
    from edgescope.wings.video.sinks import Event, Sink

STATUS_S, HZ = 10.0, 2.0
"""Seconds between two lines of state without a terminal, and frames a second of the live view."""


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    text = "a file, /dev/video0, rtsp://host/path, paced:FILE, synthetic:640x480@30 (edgescope docs video)"
    sub.add_argument("source", help=text)
    group = sub.add_argument_group("detector")
    text = "a file that `edgescope anomaly train` wrote; without one the networks below, untrained"
    group.add_argument("--detector", type=Path, default=None, metavar="FILE", help=text)
    text = "feature network, from edgescope models (frames_lite0)"
    group.add_argument("--features", default="frames_lite0", metavar="NAME", help=text)
    trial_flags.add_head(group)
    for name, usual in (("backend", "torch_eager"), ("precision", "fp32")):
        text = f"{trial_flags.WHAT[name]}; of both networks ({usual})"
        group.add_argument(f"--{name}", default=usual, metavar=name.upper(), help=text)
    trial_flags.add_device(group)
    text = "snippets that the network takes at once: more are faster, and alarms come later (1)"
    group.add_argument("--snippets", type=trial_flags.whole, default=1, metavar="N", help=text)
    trial_flags.add_workload_option(group, "stride=8, decode=full (edgescope docs video)")
    group = sub.add_argument_group("alarm")
    text = "when an alarm is raised and ends (on: the detector's threshold, or 0.5; then the defaults of the rule)"
    group.add_argument(
        "--alarm", default="", metavar="on=0.6,off=0.4,min_s=1,cooldown_s=10,smooth=3", help=text
    )
    trial_flags.add_log(group, "each alarm is appended as a line of JSON")
    group.add_argument("--webhook", default="", metavar="URL", help="post each alarm as JSON")
    text = "folder of the alarms that the webhook has not accepted yet (edgescope-spool)"
    group.add_argument("--spool", type=Path, default=Path("edgescope-spool"), metavar="DIR", help=text)
    group.add_argument("--clips", type=Path, default=None, metavar="DIR", help="save a clip of each alarm")
    text = "seconds of a clip before its alarm (5)"
    group.add_argument("--pre-roll", type=trial_flags.seconds, default=5.0, metavar="5s", help=text)
    group = sub.add_argument_group("view")
    trial_flags.add_seconds(group, "0: until the stream ends")
    trial_flags.add_plain(group, "each alarm, and the state every 10 s")
    trial_flags.add_json(group)
    trial_flags.add_output(sub, "file to write: the report as well (.html, .md, .csv, .json)")


def run(args: argparse.Namespace, chain: Callable[..., Trial]) -> int:
    """Watch until the stream ends or a signal comes; print the summary; return 1 if a part is missing.

    `chain` makes the trial of the flags, a detector's file among them.
    """
    from edgescope.report import save, terminal
    from edgescope.wings.video.page import incomplete

    ready(args)
    if not args.detector and "@" not in args.head:
        say(_untrained(args))
    stopped = Stopped(args.seconds)
    with ExitStack() as stack:
        with waiting(f"opening {args.detector or args.features} ({args.backend} {args.precision})"):
            from edgescope.wings.video.verb import opened, watched  # takes seconds

            trial = chain(args.source, **_asked(args))
            session = stack.enter_context(opened(trial, _sinks(args)))
        with stopped, _shown(args, session, stopped):
            session.run(stopped, trial.in_flight)
        found = watched(session, trial)
    if args.output:
        save(found.document, args.output)
    if args.json:
        _print({"event": "summary", **found.summary})
    else:
        terminal.show(found.document, limit=None)
        if args.output:
            print(f"written to {args.output}")
    return int(incomplete(found.summary))


def _untrained(args: argparse.Namespace) -> Message:
    """Return the warning for networks without weights that were trained to detect."""
    return Message(
        "W-WATCH-1",
        "there is no --detector",
        evidence=f"{args.features} and {args.head} without trained weights of yours",
        effect="The scores mean nothing",
        fix="edgescope anomaly train FEATURES --output detector.pt",
    )


def _asked(args: argparse.Namespace) -> dict[str, Any]:
    """Return what the flags say of the chain."""
    options = dict(args.workload_option)
    if args.clips is not None:
        options.setdefault("decode", "full")  # a clip shows the frame as it came
    return {
        "detector": args.detector or "",
        "features": args.features,
        "head": args.head,
        "rule": args.alarm,
        "options": options,
        "backend": args.backend,
        "precision": args.precision,
        "snippets": args.snippets,
        "tell": say,
        **({"device": args.device} if args.device else {}),
    }


def _sinks(args: argparse.Namespace) -> list[Sink]:
    from edgescope.registry import need
    from edgescope.wings.video.sinks import Log, Webhook

    found: list[Sink] = []
    if args.log is not None:
        found.append(Log(args.log))
    if args.webhook:
        found.append(Webhook(args.webhook, args.spool))
    if args.clips is not None:
        clips = need("edgescope.wings.video.clips:Clips", "clips", "pip install 'edgescope[video]'")
        length = need("edgescope.wings.video.clips:Length", "clips", "pip install 'edgescope[video]'")
        found.append(clips(args.clips, length(before_s=args.pre_roll)))
    return found


class Stopped:
    """Says when to stop: at a time, at the first SIGINT or SIGTERM; a second SIGINT interrupts at once."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.asked = seconds, threading.Event()
        self._before: dict[int, Any] = {}
        self._end = 0.0

    def __call__(self) -> bool:
        """Return whether to stop."""
        return self.asked.is_set() or (self.seconds > 0 and time.monotonic() >= self._end)

    def __enter__(self) -> Stopped:
        """Take the signals and begin to count."""
        self._end = time.monotonic() + self.seconds
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._signal)
        return self

    def __exit__(self, *error: object) -> None:
        """Give the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _signal(self, number: int, frame: FrameType | None) -> None:
        if self.asked.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.asked.set()


def _print(row: dict[str, Any]) -> None:
    print(json.dumps(row), flush=True)


class _shown:
    """Shows the session while it runs: on the terminal, as lines, or as JSON."""

    def __init__(self, args: argparse.Namespace, session: Session, stopped: Stopped) -> None:
        from edgescope.commandline.screen import is_plain

        self.session, self.stopped, self.done = session, stopped, threading.Event()
        self.thread: threading.Thread | None = None
        if args.json:
            session.on_scored, session.on_event = _scored, lambda event: _print(event.plain())
        elif args.plain or is_plain(sys.stdout, os.environ):
            session.on_event = _line
            say(f"watching {session.source}; its state every {STATUS_S:g} s")
            self.thread = threading.Thread(target=self._lines, daemon=True)
        else:
            self.thread = threading.Thread(target=self._screen, daemon=True)

    def __enter__(self) -> None:
        """Begin to show."""
        if self.thread is not None:
            self.thread.start()

    def __exit__(self, *error: object) -> None:
        """End the view, so that the terminal is as it was."""
        self.done.set()
        if self.thread is not None:
            self.thread.join()

    def _lines(self) -> None:
        from edgescope.wings.video.page import status

        while not self.done.wait(STATUS_S):
            print(status(self.session), flush=True)

    def _screen(self) -> None:
        from edgescope.commandline.screen import ASCII, BLOCKS, QUIT, Screen
        from edgescope.wings.video.page import live_rows

        blocks = BLOCKS if (sys.stdout.encoding or "").lower().replace("-", "") == "utf8" else ASCII
        with Screen(os.environ) as screen:
            while not self.done.is_set():
                screen.draw(live_rows(self.session, *screen.size(), blocks))
                if screen.key(1 / HZ) in QUIT:
                    self.stopped.asked.set()


def _scored(scored: Scored) -> None:
    snippet = scored.snippet
    _print(
        {
            "event": "score",
            "camera": snippet.camera,
            "start_s": round(snippet.start_s, 3),
            "end_s": round(snippet.end_s, 3),
            "score": round(scored.score, 5),
            "smoothed": round(scored.smoothed, 5),
            "alarm": scored.alarmed,
        }
    )


def _line(event: Event) -> None:
    from edgescope.wings.video.page import event_line

    print(event_line(event), flush=True)
