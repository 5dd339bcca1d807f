"""What a session of watching shows: the live view while it runs, and its document when it has ended.

Each column of the live view's plot is one snippet, the newest on the right; a column during an alarm is red. The
threshold is a line through what the score leaves empty.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from edgescope.commandline.screen import BLOCKS
from edgescope.commandline.screen import Row as Drawn
from edgescope.records import Absent, Field, Json, Measured
from edgescope.report import document as doc
from edgescope.report.document import DETAIL, Column, Items, Mark, Pairs, Row, Table, Text
from edgescope.units import counted, lasting
from edgescope.wings.video.alarm import Scored
from edgescope.wings.video.session import Session
from edgescope.wings.video.sinks import Event

Summary = Mapping[str, Any]
STATES = {"failed": "clip", "waiting": "alarm", "refused": "alarm", "lost": "alarm"}
"""What may become of what a sink was told, and what that is: `2 alarms waiting`."""
FILM = "a film's frames have no age"


def document(summary: Summary, alarms: Sequence[Mapping[str, Json]]) -> doc.Document:
    """Return the whole answer; `alarms` are `rows`."""
    tiles = (
        doc.Tile("Alarms", int(summary["alarms"])),
        doc.Tile("Frames per second", _measured(summary["fps"], "frames/s", "nothing came through")),
        doc.Tile("Age of a frame, 99 of 100", _measured(summary["frame_age_p99_s"], "s", FILM)),
    )
    short = tuple(_short(summary))
    found = counted(int(summary["alarms"]), "alarm")
    answer = doc.Answer("Watched", found, short, ". ".join(short), tiles, kind="measured")
    trouble = problems(summary)
    parts = (
        answer,
        _alarms(alarms) if alarms else Text("no alarm was raised", "dim"),
        Items(tuple(Mark(text, "warn") for text in trouble), kind="warnings") if trouble else None,
        Pairs(
            tuple((name, _told(value)) for name, value in summary.items() if name != "sinks"),
            "The session",
            level=DETAIL,
        ),
        *(
            Pairs(tuple((k, _told(v)) for k, v in sink.items()), str(next(iter(sink))), level=DETAIL)
            for sink in summary["sinks"]
        ),
    )
    return doc.Document(
        f"Watching {summary['source']}", parts, {"summary": dict(summary), "alarms": list(alarms)}
    )


def incomplete(summary: Summary) -> bool:
    """Return whether a unit failed, or a sink has not done all that it was told to."""
    return summary["failed_units"] > 0 or any(
        sink.get(state) for sink in summary["sinks"] for state in STATES
    )


def headline(summary: Summary) -> str:
    """Return what was watched in one line."""
    return f"{summary['source']}: {'; '.join(_short(summary))}"


def line(row: Mapping[str, Any]) -> str:
    """Return one alarm in one line."""
    end = "and is on" if row.get("end_s") is None else f"to {row['end_s']:.1f} s"
    at = f" ({row['at']})" if row.get("at") else ""
    clip = f", {row['clip']}" if row.get("clip") else ""
    return (
        f"alarm {row['id']}: camera {row['camera']}, from {row['start_s']:.1f} s{at} {end}, peak {row['peak']:.2f}, "
        f"raised {row['delay_s']:.1f} s after its start{clip}"
    )


def problems(summary: Summary) -> list[str]:
    """Return what a reader must know beyond the alarms: what was dropped, failed, or is not delivered."""
    found = []
    dropped = summary["dropped_by_source"] + summary["dropped_by_queues"]
    if dropped:
        whole = dropped + summary["frames"]
        found.append(
            f"{dropped} of {whole} frames were dropped ({dropped / whole:.1%}): {summary['dropped_by_source']} by the "
            f"source, {summary['dropped_by_queues']} by full queues"
        )
    if summary["failed_units"]:
        found.append(
            f"{counted(summary['failed_units'], 'unit')} failed, the first: {summary['first_error']}"
        )
    if summary["unscored_snippets"]:
        found.append(f"{counted(summary['unscored_snippets'], 'snippet')} had features that are no numbers")
    if summary["suppressed"]:
        found.append(f"{counted(summary['suppressed'], 'alarm')} suppressed by the cooldown")
    for sink in summary["sinks"]:
        found += [
            f"{next(iter(sink))}: {counted(sink[state], what)} {state}"
            for state, what in STATES.items()
            if sink.get(state)
        ]
        found += [f"{next(iter(sink))}: {sink['problem']}"] if sink.get("problem") else []
    return found


def _short(summary: Summary) -> list[str]:
    age = summary["frame_age_p99_s"]
    return [
        f"{counted(summary['alarms'], 'alarm')} in {lasting(summary['stream_s'])} of the stream",
        f"{summary['frames']} frames at {summary['fps'] or 0:.1f} frames/s in {lasting(summary['seconds'])}",
        *([f"99 of 100 frames were scored within {age:.2f} s"] if age is not None else []),
    ]


def _alarms(alarms: Sequence[Mapping[str, Any]]) -> Table:
    columns = (
        Column("Alarm"),
        Column("Camera", rank=4),
        Column("Start", "s"),
        Column("End", "s"),
        Column("Peak", "1"),
        Column("Delay", "s", rank=1),
        Column("At", rank=3),
        Column("Clip", rank=2),
    )
    cells = [
        Row(
            (
                str(row["id"]),
                str(row["camera"]),
                Measured(row["start_s"], "s"),
                _measured(row["end_s"], "s", "it was still on"),
                Measured(row["peak"], "1"),
                Measured(row["delay_s"], "s"),
                str(row["at"] or ""),
                str(row["clip"]),
            )
        )
        for row in alarms
    ]
    return Table(columns, tuple(cells), "Alarms", "Times are seconds from the first frame of the source.")


def _measured(value: Any, unit: str, reason: str) -> Field:
    return Absent(reason) if value is None else Measured(float(value), unit)


def _told(value: Any) -> str:
    return "n/a" if value is None else str(value)


# -- the live view

MARGIN = 6
"""Columns left of the plot, for its scale."""
LISTED = 8
"""Alarms listed at most."""


def live_rows(session: Session, width: int, height: int, blocks: str = BLOCKS) -> list[Drawn]:
    """Return at most `height` rows of at most `width` columns."""
    with session.lock:
        recent, events = list(session.counts.recent), list(session.counts.events)
    summary = session.summary()
    head: list[Drawn] = [((f"watching {session.source}", "bold"),), ((_now_text(recent), ""),), ()]
    tail: list[Drawn] = [
        (),
        *_alarm_rows(events),
        (),
        *_state_rows(summary),
        (("Ctrl-C or q ends it", "dim"),),
    ]
    room = max(3, min(12, height - len(head) - len(tail)))
    found = [*head, *score_plot(recent, session.alarms.rule.on, width, room, blocks), *tail]
    return [tuple((text[:width], style) for text, style in row) for row in found[:height]]


def score_plot(
    recent: Sequence[Scored], threshold: float, width: int, height: int, blocks: str
) -> list[Drawn]:
    """Return the scores from 0 to 1 as `height` rows; the threshold is a line."""
    columns = list(recent)[-max(1, width - MARGIN) :]
    across_at = min(height - 1, int(threshold * height))
    across = "─" if blocks is BLOCKS else "-"
    found: list[Drawn] = []
    for level in reversed(range(height)):
        scale = (
            "1.00"
            if level == height - 1
            else f"{threshold:.2f}"
            if level == across_at
            else "0.00"
            if not level
            else ""
        )
        cells: list[tuple[str, str]] = [(f"{scale:>{MARGIN - 1}} ", "dim")]
        for scored in columns:
            filled = (0.0 if math.isnan(scored.smoothed) else scored.smoothed) * height - level
            eighths = min(8, max(0, math.ceil(filled * 8)))
            text = blocks[eighths - 1] if eighths else across if level == across_at else " "
            style = ("bad" if scored.alarmed else "") if eighths else "dim"
            if cells[-1][1] == style:
                cells[-1] = (cells[-1][0] + text, style)
            else:
                cells.append((text, style))
        found.append(tuple(cells))
    return found


def event_line(event: Event) -> str:
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


def _now_text(recent: Sequence[Scored]) -> str:
    if not recent:
        return "waiting for the first snippet ..."
    last = recent[-1]
    state = "ALARM" if last.alarmed else "quiet"
    return f"{state}   score {last.smoothed:.3f} (raw {last.score:.3f}) at {last.snippet.end_s:.1f} s"


def _alarm_rows(events: Sequence[Event]) -> list[Drawn]:
    if not events:
        return [(("no alarm so far", "dim"),)]
    return [((event_line(event), "" if event.alarm.over else "bad"),) for event in events[-LISTED:]]


def _state_rows(summary: Mapping[str, Any]) -> list[Drawn]:
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
