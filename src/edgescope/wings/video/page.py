"""The document of a session of watching: what was seen, every alarm, what was dropped, and what each sink did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgescope.records import Absent, Field, Json, Measured
from edgescope.report import document as doc
from edgescope.report.document import DETAIL, Column, Items, Mark, Pairs, Row, Table, Text
from edgescope.units import counted, lasting

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
