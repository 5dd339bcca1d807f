"""Watch a stream with two networks, features of snippets and a head that scores them; return what was seen."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from edgescope.bench.parts import open_work
from edgescope.records import Answer, Json, Scalar, Trial
from edgescope.registry import home
from edgescope.report.document import Document
from edgescope.wings.video import page as report
from edgescope.wings.video.alarm import Rule, Scored
from edgescope.wings.video.description import SCORED
from edgescope.wings.video.flow import FlowWork
from edgescope.wings.video.session import Session
from edgescope.wings.video.sinks import Event, Sink

FEATURES, HEAD = "frames_lite0", "rtfm"
LIVE = ("camera:", "rtsp:", "rtsps:", "paced:", "/dev/video")
"""How the name of a source begins whose frames do not wait."""


@dataclass(frozen=True, repr=False)
class Watched(Answer):
    """What a session saw: its summary, and its last alarms."""

    summary: Mapping[str, Json]
    events: tuple[Event, ...]
    clips: Mapping[str, str]
    """The file of each alarm's clip by the alarm's id, as far as one was saved."""

    def lines(self) -> Iterator[str]:
        """Yield what was watched, then one line for each alarm."""
        yield report.headline(self.summary)
        for row in self.records():
            yield report.line(row)

    def records(self) -> list[dict[str, Json]]:
        """Return one row for each alarm."""
        found = []
        for event in self.events:
            row = event.plain()
            del row["event"]
            found.append({**row, "clip": self.clips.get(event.id, "")})
        return found

    @property
    def document(self) -> Document:
        """Return the whole answer, as edgescope.report writes it."""
        return report.document(self.summary, self.records())


def chain(
    source: str,
    *,
    features: str = FEATURES,
    head: str = HEAD,
    rule: Rule | str = "",
    options: Mapping[str, Scalar] = {},
    snippets: int = 1,
    **trial: Any,
) -> Trial:
    """Return the trial whose pipeline watches `source`: the same that `edgescope bench` measures.

    `features` and `head` are networks of the zoo, or `name@weights`. `options` are those of the workload `video`,
    `snippets` is the number of snippets that the network takes at once, `trial` holds fields of the Trial (backend,
    precision, device, shapes).
    """
    rule = (
        Rule.of(rule) if isinstance(rule, str) else rule
    )  # a mistake in it is found before anything is opened
    made_up = source.startswith("synthetic:")
    live = source.startswith(LIVE) or (made_up and "@" in source)
    full = {"queue": "drop_oldest"} if live else {}
    usual: dict[str, Scalar] = {
        "source": source,
        "head": head,
        "loop": False,
        "preprocess": "host",
        "decode": "full" if made_up else "scaled",
        "queue_size": 1,
        **full,
        "alarm": str(rule),
        **options,
    }
    views = int(usual.get("views", 1))
    in_flight = len(SCORED) * (int(usual["queue_size"]) + 1)
    fields = {"batch": views * snippets, "in_flight": in_flight, "backend": "torch_eager", **trial}
    fields.setdefault("device", home(str(fields["backend"])))
    return Trial(model=features, workload="video", workload_options=usual, **fields)


def decided(rule: Rule | str, own: float | None, *, detector: bool) -> tuple[Rule, str]:
    """Return the rule, and where its threshold comes from: as given, else the detector's `own`, else the default."""
    if isinstance(rule, Rule):
        return rule, "as given"
    if any(word.partition("=")[0] == "on" for word in rule.split(",")):
        return Rule.of(rule), "as given"
    if own is not None:
        return Rule.of(",".join(filter(None, (f"on={own:.6g}", rule)))), "the detector's own threshold"
    lacking = "the detector has no threshold of its own" if detector else "there is no detector"
    return Rule.of(rule), f"default: {lacking}"


@contextmanager
def opened(
    trial: Trial, sinks: Sequence[Sink] = (), *, wall: Callable[[], float] = time.time
) -> Iterator[Session]:
    """Hold open a session that watches the source of a `chain`."""
    with open_work(trial) as work:
        assert isinstance(work.work, FlowWork)
        source = str(trial.workload_options["source"])
        yield Session(work.work.flow, source, sinks, wall=wall)


def watch(
    source: str,
    *,
    rule: Rule | str = "",
    sinks: Sequence[Sink] = (),
    seconds: float = 0.0,
    tell: Callable[[object], None] = lambda what: None,
    scored: Callable[[Scored], None] = lambda scored: None,
    made: Callable[..., Trial] = chain,
    **how: Any,
) -> Watched:
    """Watch a stream until it ends, or for `seconds`; return its alarms and what was dropped or failed.

    `rule` says when an alarm is raised (`on=0.6,off=0.4,min_s=1,cooldown_s=10,smooth=3`); `sinks` are told of each;
    `tell` is called with a line for each alarm, `scored` with each snippet. Further arguments are those of
    `made`, which makes the trial.
    """
    trial = made(source, rule=rule, **how)
    with opened(trial, sinks) as session:
        end = time.monotonic() + seconds if seconds else float("inf")
        session.on_scored = scored
        session.on_event = lambda event: tell(report.line(event.plain()))
        session.run(lambda: time.monotonic() >= end, trial.in_flight)
        return watched(session, trial)


def watched(session: Session, trial: Trial) -> Watched:
    """Return what a session saw so far."""
    about = {
        "model": trial.model,
        "head": str(trial.workload_options["head"]),
        "backend": trial.backend,
        "precision": trial.precision,
        "device": trial.device,
    }
    events = tuple(session.counts.events)
    files = {event.id: file for event in events for sink in session.sinks if (file := sink.file(event))}
    return Watched({**session.summary(), **about}, events, files)
