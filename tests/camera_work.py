"""A workload that stands for a camera pipeline, as a plug-in would add it: stamped frames, a server, a queue."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

from edgescope.options import Option, read
from edgescope.records import QUERY_DROPPED, QUERY_OK, Effective, Trial
from edgescope.registry import Entry
from edgescope.workloads import gate
from edgescope.workloads.base import OpenWorkload, Parts

ENTRY = Entry("camera_work:Camera", summary="frames of a camera", stamps=True)
NEW_MS = 2.0
"""Age of a frame when it is offered."""


class Pipeline:
    """One thread serves the frames in order; the queue before it may drop the oldest."""

    def __init__(self, service_s: float, room: int) -> None:
        self.service_s, self.room = service_s, room
        self.waiting: deque = deque()
        self.changed, self.ended = threading.Condition(), False
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def issue(self, query_id, samples, done) -> None:
        frame = (query_id, time.monotonic_ns() - round(NEW_MS * 1e6), done)
        with self.changed:
            oldest = self.waiting.popleft() if self.room and len(self.waiting) == self.room else None
            self.waiting.append(frame)
            self.changed.notify()
        if oldest:
            oldest[2](oldest[0], QUERY_DROPPED, 0, oldest[1])

    def _serve(self) -> None:
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.waiting or self.ended)
                if self.ended:
                    return
                query_id, created_ns, done = self.waiting.popleft()
            time.sleep(self.service_s)
            done(query_id, QUERY_OK, 0, created_ns)

    def flush(self) -> None:
        """Frames that were issued will be served."""

    def close(self) -> None:
        with self.changed:
            self.ended = True
            self.changed.notify()
        self.thread.join()


class Camera:
    """The workload."""

    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "queue": Option("block", "drop_oldest: of a full queue"),
        "service_ms": Option(20.0, "of a frame"),
    }

    def prepare(self, trial: Trial, parts: Parts) -> None:
        """Build nothing."""

    @contextmanager
    def open(self, trial: Trial, parts: Parts) -> Iterator[OpenWorkload]:
        options = read("camera", trial.workload_options, self.OPTIONS)
        work = Pipeline(options["service_ms"] / 1e3, 2 if options["queue"] == "drop_oldest" else 0)
        try:
            yield OpenWorkload(
                work=work,
                model=parts.model(trial).info,
                effective=lambda: Effective("cpu", trial.precision),
                verify=lambda machine: gate.NOTHING,
            )
        finally:
            work.close()
