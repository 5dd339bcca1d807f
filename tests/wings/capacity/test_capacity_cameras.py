"""How many cameras fit: frame ages, misses and drops as constraints, the workload in every run of the search."""

from dataclasses import replace

import numpy as np
import pytest

from edgescope.errors import UsageError
from edgescope.isolate.fresh import Limits
from edgescope.records import QUERY_DROPPED, Queries, Trial
from edgescope.runner.builds import Builds, Pace
from edgescope.search.loop import Loop
from edgescope.wings.capacity.answer import answer
from edgescope.wings.capacity.page import sentence_of
from edgescope.wings.capacity.question import Question, client_constraints, tail, words
from edgescope.wings.capacity.search import Search
from edgescope.wings.capacity.verb import capacity
from queue_server import QueueServer

BASE = Trial(model="null", backend="null", warmup=0.0)
OLD_NS = 10_000_000


class Quick:
    """Cells that keep nothing."""

    def __init__(self, runner) -> None:
        self.runner, self.builds = runner, Builds(runner, Limits(), Pace())

    def stored(self, trial):
        return None

    def expect(self, trials):
        pass

    def left(self, trials):
        return None

    def run(self, trial, limit_s=None):
        return self.runner.run(trial, Limits())


class CameraServer(QueueServer):
    """The server in simulated time; its frames are 10 ms old when they are due, and dropped if they wait too long."""

    def __init__(self, service_s=0.005, *, drops_after_s=None, **keys) -> None:
        super().__init__(service_s, **keys)
        self.drops_after_s = drops_after_s

    def run(self, trial, limits):
        found = super().run(trial, limits)
        c = dict(found.queries.columns)
        due = np.where(c["scheduled_ns"] >= 0, c["scheduled_ns"], c["issued_ns"])
        c["source_ns"] = due - OLD_NS + 10**9  # a stamp is never negative
        for name in ("scheduled_ns", "issued_ns", "done_ns"):
            c[name] = np.where(c[name] >= 0, c[name] + 10**9, -1)
        w = replace(
            found.window, start_ns=found.window.start_ns + 10**9, stop_ns=found.window.stop_ns + 10**9
        )
        if self.drops_after_s is not None:
            late = c["issued_ns"] - c["scheduled_ns"] > self.drops_after_s * 1e9
            c["status"] = np.where((c["scheduled_ns"] >= 0) & late, QUERY_DROPPED, c["status"]).astype(
                np.int8
            )
        return replace(found, queries=Queries(c), window=w, readings=None)


def searched(folder, runner, *constraints, rate=15.0, **base):
    question = Question(replace(BASE, **base), rate, client_constraints(constraints), arrivals="camera")
    search = Search(question, folder)
    list(Loop(Quick(runner)).run(search.run()))
    return search


@pytest.mark.slow
def test_cameras_fit_by_the_age_of_their_frames_and_the_answer_calls_them_cameras(tmp_path):
    by_latency = searched(tmp_path, CameraServer(), "p99<40ms").answer()
    by_age = searched(tmp_path, CameraServer(), "age<50ms").answer()  # 10 ms older when they are due
    assert 8 <= by_latency.clients == by_age.clients <= 13
    assert f"{by_age.clients} cameras at 15/s fit: age " in sentence_of(by_age)
    stricter = searched(tmp_path, CameraServer(), "frame_age_p99<25ms").answer()
    assert stricter.clients < by_age.clients


def test_a_constraint_on_misses_is_one_on_the_quantile_of_the_ages(tmp_path):
    by_age = searched(tmp_path, CameraServer(), "frame_age_p95<40ms").answer()
    search = searched(tmp_path, CameraServer(), "misses<5%", deadline_s=0.040)
    found = search.answer()
    assert abs(found.clients - by_age.clients) <= 2 and found.clients >= 5
    assert search.closed.trial.deadline_s is None
    assert all(p.result.trial.deadline_s == 0.040 for p in search.points)
    assert "misses" in words(found.confirmed.held[0]) and "bound" in words(found.confirmed.held[0])
    (constraint,) = client_constraints(["misses<5%"])
    assert tail(constraint, 0.04) == (pytest.approx(0.95), 0.04) and tail(constraint, None) is None


def test_a_machine_that_drops_frames_has_not_kept_up_unless_that_is_allowed(tmp_path):
    dropping = dict(drops_after_s=0.02)
    strict = searched(tmp_path, CameraServer(**dropping), "age<60ms").answer()
    above = strict.above
    assert above is not None and "frames were dropped" in above.why and "dropped<1%" in above.why
    loose = searched(tmp_path, CameraServer(**dropping), "age<60ms", "dropped<20%").answer()
    assert loose.clients > strict.clients


def test_the_workload_and_its_options_reach_every_run(tmp_path):
    keys = {"workload": "video", "workload_options": {"loop": True}}
    search = searched(tmp_path, CameraServer(), "age<50ms", **keys)
    for trial in (search.closed.trial, *(p.result.trial for p in search.points)):
        assert (trial.workload, dict(trial.workload_options)) == ("video", {"loop": True})
    assert "video" in answer(search.question, search.points, search.throughput).question.subject


def test_misses_without_a_deadline_are_refused(tmp_path):
    with pytest.raises(UsageError, match="a constraint on misses needs --deadline"):
        capacity("null", backend="null", client_rate=5, constraints=["misses<1%"], store=tmp_path)
    with pytest.raises(UsageError, match=r"frame_age_p50 to frame_age_p99\.99"):
        client_constraints(["frame_age_p30<1s"])
