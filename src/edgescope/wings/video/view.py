"""One frame of the live view: the score with its threshold as a plot, the alarms, the age of frames. It draws nothing.

Each column of the plot is one snippet, the newest on the right; a column during an alarm is red. The threshold is a
line through what the score leaves empty.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from edgescope.commandline.screen import BLOCKS, Row
from edgescope.units import counted, lasting
from edgescope.wings.video.alarm import Scored
from edgescope.wings.video.session import Session
from edgescope.wings.video.sinks import Event

MARGIN = 6
"""Columns left of the plot, for its scale."""
LISTED = 8
"""Alarms listed at most."""


def rows(session: Session, width: int, height: int, blocks: str = BLOCKS) -> list[Row]:
    """Return at most `height` rows of at most `width` columns."""
    with session.lock:
        recent, events = list(session.counts.recent), list(session.counts.events)
    summary = session.summary()
    head: list[Row] = [((f"watching {session.source}", "bold"),), ((_now(recent), ""),), ()]
    tail: list[Row] = [(), *_listed(events), (), *_state(summary), (("Ctrl-C or q ends it", "dim"),)]
    room = max(3, min(12, height - len(head) - len(tail)))
    found = [*head, *plot(recent, session.alarms.rule.on, width, room, blocks), *tail]
    return [tuple((text[:width], style) for text, style in row) for row in found[:height]]


def plot(recent: Sequence[Scored], threshold: float, width: int, height: int, blocks: str) -> list[Row]:
    """Return the scores from 0 to 1 as `height` rows; the threshold is a line."""
    columns = list(recent)[-max(1, width - MARGIN) :]
    line = min(height - 1, int(threshold * height))
    across = "─" if blocks is BLOCKS else "-"
    found: list[Row] = []
    for level in reversed(range(height)):
        scale = (
            "1.00"
            if level == height - 1
            else f"{threshold:.2f}"
            if level == line
            else "0.00"
            if not level
            else ""
        )
        cells: list[tuple[str, str]] = [(f"{scale:>{MARGIN - 1}} ", "dim")]
        for scored in columns:
            filled = (0.0 if math.isnan(scored.smoothed) else scored.smoothed) * height - level
            eighths = min(8, max(0, math.ceil(filled * 8)))
            text = blocks[eighths - 1] if eighths else across if level == line else " "
            style = ("bad" if scored.alarmed else "") if eighths else "dim"
            if cells[-1][1] == style:
                cells[-1] = (cells[-1][0] + text, style)
            else:
                cells.append((text, style))
        found.append(tuple(cells))
    return found


def line(event: Event) -> str:
    """Return one alarm in one line."""
    alarm = event.alarm
    state = f"to {alarm.end_s:.1f} s" if alarm.over else "and is on"
    when = time.strftime(" at %H:%M:%S", time.localtime(event.at)) if event.at is not None else ""
    return (
        f"alarm {alarm.number}, camera {alarm.camera}: from {alarm.start_s:.1f} s{when} {state}, "
        f"peak {alarm.peak:.2f}, raised {event.delay_s:.1f} s after its start"
    )


def status(session: Session) -> str:
    """Return the state of a session in one line."""
    summary = session.summary()
    age = session.counts.ages.last_s
    age_text = "" if math.isnan(age) else f", age {age * 1e3:.0f} ms"
    dropped = summary["dropped_by_source"] + summary["dropped_by_queues"]
    score = session.counts.recent[-1].smoothed if session.counts.recent else math.nan
    return (
        f"{summary['stream_s']:.1f} s: score {score:.2f}, {counted(session.counts.alarms, 'alarm')}, "
        f"{summary['frames']} frames ({summary['fps'] or 0:.1f}/s, {dropped} dropped){age_text}"
    )


def _now(recent: Sequence[Scored]) -> str:
    if not recent:
        return "waiting for the first snippet ..."
    last = recent[-1]
    state = "ALARM" if last.alarmed else "quiet"
    return f"{state}   score {last.smoothed:.3f} (raw {last.score:.3f}) at {last.snippet.end_s:.1f} s"


def _listed(events: Sequence[Event]) -> list[Row]:
    if not events:
        return [(("no alarm so far", "dim"),)]
    return [((line(event), "" if event.alarm.over else "bad"),) for event in events[-LISTED:]]


def _state(summary: Mapping[str, Any]) -> list[Row]:
    def ms(name: str) -> str:
        value = summary[name]
        return f"{value * 1e3:.0f} ms" if isinstance(value, float) else "n/a"

    first = (
        f"{lasting(float(str(summary['seconds'])))}: {summary['frames']} frames, {summary['fps'] or 0:.1f}/s; "
        f"age p50 {ms('frame_age_p50_s')}, p99 {ms('frame_age_p99_s')}"
    )
    second = (
        f"dropped: {summary['dropped_by_source']} by the source, {summary['dropped_by_queues']} by full queues; "
        f"{summary['failed_units']} units failed; {summary['suppressed']} alarms suppressed by the cooldown"
    )
    sinks = [
        "; ".join(f"{key} {value}" for key, value in sink.items() if value not in ("", 0))
        for sink in summary["sinks"]
    ]
    return [((text, "dim"),) for text in (first, second, *sinks)]
