"""How processes start under a tracer and what is read of it, with a tracer that writes nothing."""

from dataclasses import replace

import pytest

from edgescope import registry
from edgescope.analysis.kernels import account
from edgescope.isolate import placement
from edgescope.process import Launch
from edgescope.records import Spans, Trial
from edgescope.tracing import FOLDER
from making import result

PLAIN = Trial(model="null", backend="null")
ALONE = replace(PLAIN, tracer="by_hand")
MANY = replace(ALONE, processes=2)


class Tracer:
    """Its spans are named after the folder; `lost` names folders of which nothing can be read."""

    lost: tuple[str, ...] = ()

    def launch(self, folder):
        return Launch(("watched", folder.name), {"SEEN": "yes"})

    def spans(self, folder):
        if folder.name in self.lost:
            raise KeyError(folder.name)
        return Spans.of("range", [(folder.name, 4, 10, 20)])


@pytest.fixture(autouse=True)
def tracer(monkeypatch):
    monkeypatch.setattr(placement, "tracer_of", lambda trial: Tracer())
    monkeypatch.setattr(Tracer, "lost", ())
    monkeypatch.delenv(FOLDER, raising=False)


def test_a_trial_without_a_tracer_starts_and_ends_as_it_is(tmp_path):
    assert placement.traced_launch(PLAIN, tmp_path / "trace") == Launch()
    plain = result(PLAIN)
    assert placement.with_spans(plain, tmp_path / "trace") is plain and not [*tmp_path.iterdir()]


def test_the_only_process_of_a_trial_starts_under_its_tracer_with_a_folder_that_is_there(tmp_path):
    folder = tmp_path / "a/trace"
    for _ in range(2):  # it may be there
        found = placement.traced_launch(ALONE, folder)
        assert found == Launch(("watched", "trace"), {"SEEN": "yes", FOLDER: str(folder)})
    assert folder.is_dir()


def test_who_leads_workers_has_no_tracer_and_they_have_one_each(tmp_path, monkeypatch):
    folder = tmp_path / "trace"
    assert placement.traced_launch(MANY, folder) == Launch(env={FOLDER: str(folder)}) and not folder.exists()
    assert placement.worker_launch(MANY, 1) == Launch()
    monkeypatch.setenv(FOLDER, str(folder))
    found = [placement.worker_launch(MANY, number) for number in range(2)]
    places = [folder / "worker-0", folder / "worker-1"]
    assert [one.prefix for one in found] == [("watched", place.name) for place in places]
    assert [one.env[FOLDER] for one in found] == [*map(str, places)] and all(p.is_dir() for p in places)


def rows(found):
    c = found.spans.columns
    return [
        (found.spans.names[n], *map(int, rest))
        for n, *rest in zip(c["name"], c["process"], c["query_id"], strict=True)
    ]


def test_the_spans_of_one_process_join_those_that_it_noted_itself(tmp_path):
    noted = Spans.of("range", [("own", 3, 1, 2)])
    found = placement.with_spans(result(ALONE, spans=noted), tmp_path / "trace")
    assert rows(found) == [("own", -1, 3), ("trace", -1, 4)]
    assert rows(placement.with_spans(result(ALONE), tmp_path / "trace")) == [("trace", -1, 4)]


def test_the_spans_of_workers_are_told_apart_the_colocated_too(tmp_path):
    found = placement.with_spans(result(replace(MANY, colocated="null")), tmp_path)
    assert rows(found) == [(f"worker-{n}", n, 4) for n in range(3)]


def test_what_cannot_be_read_is_warned_of_and_the_rest_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(Tracer, "lost", ("worker-0",))
    found = placement.with_spans(result(MANY), tmp_path)
    assert rows(found) == [("worker-1", 1, 4)]
    (told,) = (w for w in found.warnings if w.code == "W-SPAN-1")
    assert "worker-0" in told.what and told.evidence == "KeyError: 'worker-0'"
    monkeypatch.setattr(Tracer, "lost", ("trace",))
    nothing = placement.with_spans(result(ALONE), tmp_path / "trace")
    assert nothing.spans is None and [w.code for w in nothing.warnings][-1] == "W-SPAN-1"


def test_metrics_of_the_trace_join_the_others(tmp_path, monkeypatch):

    plain = result(ALONE)
    monkeypatch.setattr(account, "metrics", lambda result: {"ec_s": len(result.spans)})
    assert placement.with_spans(plain, tmp_path).metrics == {**plain.metrics, "ec_s": 1}


def test_a_tracer_is_made_by_its_name(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(
        registry, "load", lambda group, name, what: lambda: (group is registry.TRACERS, name, what)
    )
    assert placement.tracer_of(ALONE) == (True, "by_hand", "tracer")
