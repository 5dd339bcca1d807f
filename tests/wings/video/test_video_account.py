"""A video workload's own account: its facts, its check against a plain loop, its spans, what it writes."""

from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from edgescope.bench.parts import HERE
from edgescope.errors import Message
from edgescope.frames import Frame
from edgescope.models.base import Detections
from edgescope.records import UNIT, Absent, Machine, Measured, Trial, Verification
from edgescope.stats import Interval
from edgescope.wings.video import workload as video
from edgescope.wings.video.flow import Calls, EndOfFilm, Sequential, Stage
from edgescope.wings.video.pipeline import FILM, planned, supported
from edgescope.wings.video.workload import Fed, Video
from edgescope.workloads.base import EndOfInput

TRIAL = Trial(model="net", backend="onnxruntime", workload="video", batch=2)
OPTIONS = {"on_error": "stop", "what_if": False, "annotate": "", "annotate_frames": 7, "source": ""}


def found(*classes):
    """Boxes of these classes, side by side."""
    boxes = np.array([[10.0 * n, 0, 10.0 * n + 5, 5] for n in range(len(classes))], np.float32)
    return Detections(boxes.reshape(-1, 4), np.ones(len(classes), np.float32), np.array(classes, np.int64))


def stages(seen, batch=2, fails=""):
    """A pipeline of one stage that finds `seen`: frame number -> boxes; frames of two cameras in turn."""
    left = list(seen.items())

    def run(item):
        if fails:
            raise ValueError(fails)
        some, left[:] = left[:batch], left[batch:]
        if not some:
            raise EndOfFilm
        item.frames = [Frame(None, number, camera=number % 2) for number, _ in some]
        item.found = [boxes for _, boxes in some]

    return [Stage("decode", run)]


class Pipe:
    """A pipeline that finds `got` where a plain loop finds `wanted`."""

    def __init__(
        self, got=None, wanted=None, options=(), *, live=False, rows=("decode", "postprocess"), fails=""
    ):
        self.got, self.wanted, self.fails, self.opened = got or {}, wanted or {}, fails, []
        named = [SimpleNamespace(name=row.strip("!"), call="own" if "!" in row else "") for row in rows]
        self.plan = SimpleNamespace(
            options=OPTIONS | dict(options),
            trial=TRIAL,
            unit=2,
            stages=named,
            batch=lambda name: 5 * (name == "infer"),
        )
        facts = {"width": 64, "fps": 50}
        self.decode = SimpleNamespace(sources=[SimpleNamespace(live=live, facts=lambda: facts)])
        ready = [SimpleNamespace(answer="a", about={"digest": f"d{n}"}, facts={}) for n in range(2)]
        models = [SimpleNamespace(info=SimpleNamespace(name=f"m{n}")) for n in range(2)]
        self.every, self.ready, self.models = list(zip("ab", models, ready, strict=True)), ready, models

    @contextmanager
    def again(self, **how):
        self.opened.append(how)
        yield self.decode

    def stages(self, decode):
        return stages(self.got)

    def lossless(self, made):
        return Sequential(made)

    def plain(self, decode):
        return stages(self.wanted, fails=self.fails)


def gate(passed=True, detail="fine"):
    return Verification(passed, "m", {"top1": Absent("none")}, 0.5, detail)


@pytest.fixture
def verified(monkeypatch):
    """Check a pipeline whose networks the gate judges so."""

    def check(pipe, *judged):
        said = iter(judged or (gate(), gate()))
        monkeypatch.setattr(video.gate, "check", lambda *_, **__: next(said))
        return video._verified(replace(TRIAL, batch=2), pipe, None, Machine({}, {}))

    return check


TEN = {number: found(1) for number in range(10)}


@pytest.mark.parametrize(
    ("got", "skip", "passed", "agreement", "says"),
    [
        (TEN, False, True, 1.0, "100.0% of what a plain loop finds in 10 frames is found; fine"),
        (TEN | {4: found(2)}, False, True, 0.9, "90.0% of"),
        (TEN | {4: found(2), 5: found(2)}, False, False, 0.8, "80.0% of"),
        (
            {n: TEN[n] for n in range(9)},
            False,
            False,
            1.0,
            "1 frames came through once only, the first (1, 9)",
        ),
        ({n: TEN[n] for n in range(9)}, True, True, 1.0, "in 9 frames is found; fine"),
        (TEN | {10: found(1)}, True, False, 1.0, "1 frames came through once only, the first (0, 10)"),
        (
            TEN | {11: found(1), 10: found(1)},
            False,
            False,
            1.0,
            "2 frames came through once only, the first (0, 10)",
        ),
    ],
)
def test_what_is_found_must_be_what_a_plain_loop_finds(verified, got, skip, passed, agreement, says):
    pipe = Pipe(got, TEN, {"on_error": "skip" if skip else "stop"})
    told = verified(pipe)
    assert told.passed is passed and says in told.detail
    assert told.fields["frame_agreement"].value == pytest.approx(agreement) and "top1" in told.fields
    assert pipe.opened == [{"loop": False}, {"loop": False, "size": None}]


def test_a_plain_loop_that_fails_is_told(verified):
    told = verified(Pipe(TEN, TEN, fails="broken"))
    assert not told.passed
    assert told.detail == "a plain loop over the frames fails: ValueError: broken; fine"


NO = Message("W-GATE-2", "no answers")


@pytest.mark.parametrize(
    ("judged", "worst", "checked"),
    [
        ((None, None), None, False),
        ((gate(False, "first"), gate(False, "second")), "first", False),
        ((gate(), gate(False, "second")), "second", False),
        ((NO, gate(False, "second")), "second", False),
        ((gate(), NO), NO, False),
        ((NO, NO), NO, False),
        ((gate(detail="one"), gate(detail="two")), "one", True),
        ((None, gate(detail="two")), "two", True),
    ],
)
def test_the_worst_network_speaks_for_all(verified, judged, worst, checked):
    pipe = Pipe(TEN, TEN)
    told = verified(pipe, *judged)
    assert bool(pipe.opened) is checked
    if isinstance(worst, str):
        assert told.detail.endswith(worst)
    else:
        assert told is worst


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({}, ""),
        ({"live": True}, "a live source cannot be played again"),
        ({"rows": ("decode", "infer")}, "no stage of edgescope's says what is in a frame"),
        ({"rows": ("decode", "!postprocess")}, "no stage of edgescope's says what is in a frame"),
        ({"rows": ("decode", "alarm")}, ""),
    ],
)
def test_what_cannot_be_held_to_a_plain_loop_says_why(verified, keys, why):
    pipe = Pipe(TEN, TEN, **keys)
    assert video._unchecked(pipe) == why
    agreement = verified(pipe).fields["frame_agreement"]
    assert agreement == Absent(why) if why else agreement.value == 1.0


def test_32_frames_are_checked_and_8_where_a_unit_takes_long(monkeypatch):
    now = [50.0]
    monkeypatch.setattr(video, "time", SimpleNamespace(monotonic=lambda: now[0]))
    more = video._enough(3)
    assert [more(number) for number in (0, 10, 11)] == [True, True, False]
    now[0] = 53.9
    assert more(10)
    now[0] = 54.0
    assert [more(number) for number in (2, 3)] == [True, False]


@pytest.mark.parametrize("in_flight", [1, 3])
def test_frames_are_known_by_camera_and_number_for_as_many_units_as_asked(in_flight):
    seen, units = video._by_frame(Sequential(stages(TEN, 3)), in_flight, lambda number: number < 2)
    assert sorted(seen) == [(0, 0), (0, 2), (0, 4), (1, 1), (1, 3), (1, 5)] and units == 2
    seen, units = video._by_frame(Sequential(stages(TEN, 3)), in_flight, lambda number: True)
    assert len(seen) == 10 and units == 4


def test_the_end_of_the_film_is_that_of_the_input():
    told = []
    fed = Fed(Sequential(stages({})), 3)
    with pytest.raises(EndOfInput):
        fed.issue(0, 2, lambda *what: told.append(what))
    assert len(told) == 1 and fed.streams == 3 and fed.flush() is None


@pytest.mark.parametrize(
    ("busy_ns", "cpu_ns", "cpu"),
    [(6_000_000, 3_000_000, Measured(0.001, "s", n=3)), (6_000_000, 0, video.UNREAD), (6_000_000, 1, None)],
)
def test_the_time_of_a_stage_is_that_of_a_unit(busy_ns, cpu_ns, cpu):
    told = video._spent("infer", Calls(3, busy_ns, cpu_ns))
    assert told["infer_busy_s"] == Measured(pytest.approx(0.002), "s", n=3)
    assert isinstance(told["infer_cpu_s"], Measured) if cpu is None else told["infer_cpu_s"] == cpu
    assert video._spent("infer", Calls(0, 0, 0)) == {}


def test_why_a_stage_has_no_time_on_a_device():
    cpu, gpu = (video._no_device(Stage("s", len, place=place)) for place in ("cpu", "gpu"))
    assert "on the CPU" in cpu and "no events" in gpu


def test_facts_are_summed_over_the_networks_or_absent():
    def ready(load_s, build_s):
        return SimpleNamespace(facts={"load_s": Measured(load_s, "s"), "build_s": build_s})

    none, one = Absent("nothing is built"), Measured(1.0, "s")
    assert video._facts([ready(1.0, none), ready(2.5, none)]) == {
        "load_s": Measured(3.5, "s", n=2),
        "build_s": none,
    }
    assert video._facts([ready(1.0, none), ready(2.5, one)])["build_s"] == none
    assert video._facts([ready(1.0, one), ready(2.5, none)])["build_s"] == one
    assert video._facts([ready(1.0, one), ready(2.5, one)])["build_s"] == Measured(2.0, "s", n=2)


@pytest.mark.parametrize(("source", "name"), [("", FILM[1]), ("a.mp4#12", "a.mp4"), ("a.mp4", "a.mp4")])
def test_a_pipeline_is_described_by_its_source_its_stages_and_its_networks(source, name):
    pipe = Pipe(options={"source": source})
    pipe.stages = lambda decode: [Stage("decode", len, 2), Stage("infer", len, 1, "gpu")]
    told = video._described(pipe)
    assert (told["source"], told["digest"], told["film"]) == (name, "d0", {"width": 64, "fps": 50})
    first = {"name": "decode", "place": "cpu", "threads": 2, "batch": 2}
    assert told["stages"] == [first, {"name": "infer", "place": "gpu", "threads": 1, "batch": 5}]
    assert told["also"] == [{"model": "m1", "digest": "d1"}]


@pytest.mark.parametrize(("in_flight", "seconds"), [(1, 0.15), (2, 0.4), (6, 0.4)])
def test_what_each_stage_costs_is_told_beside_the_rate(monkeypatch, in_flight, seconds):
    asked = []
    one = video.what_if.Free("infer", Interval(1.5, 2.5, 2.0, 5, 5), Interval(2.0, 4.0, 3.0, 5, 5), 310.0)

    def measured(made, build, flight, length):
        asked.append((len(made), flight, length))
        return video.what_if.WhatIf(100.0, (one,))

    monkeypatch.setattr(video.what_if, "measured", measured)
    pipe = Pipe(TEN)
    pipe.plan.trial = replace(TRIAL, in_flight=in_flight)
    told = video._what_if(pipe)
    assert asked == [(1, in_flight, seconds)] and pipe.opened == [{"loop": True}]
    assert told["pipeline_fps"] == Measured(100.0, "frames/s", n=5)
    assert told["infer_free_gain"] == Measured(2.0, "ratio", 1.5, 2.5, 5)
    assert told["infer_alone_fps"] == Measured(310.0, "frames/s", 200.0, 400.0, 5)


def test_a_breakdown_has_the_stages_of_twenty_units_but_not_of_the_first(monkeypatch):
    def timed(made, units):
        assert units == 21
        for number in range(3):
            at = 100 * number
            yield (
                number,
                [("decode", at, at + 10), ("infer", at + 20, at + 50)],
                [("infer", at + 25, at + 45)],
            )

    monkeypatch.setattr(video.what_if, "timed", timed)
    pipe = Pipe(TEN)
    spans = video._breakdown(pipe)
    assert pipe.opened == [{"loop": True}]
    assert spans.durations_ns(UNIT).tolist() == [50, 50] and spans.durations_ns("infer").tolist() == [30, 30]
    assert spans.durations_ns("decode").tolist() == [10, 10]
    assert spans.durations_ns("infer_device").tolist() == [20, 20]
    assert set(spans.columns["query_id"].tolist()) == {1, 2}


@pytest.fixture
def shown(monkeypatch):
    """What was asked of the pictures with boxes."""
    asked = []

    def pictures(flow, names, frames, *seconds):
        asked.append((frames, *seconds))
        return "pictures"

    monkeypatch.setattr(video.annotated, "pictures", pictures)
    monkeypatch.setattr(
        video.annotated, "thumbnails", lambda shown, count: asked.append((shown, count)) or ["t"]
    )
    monkeypatch.setattr(
        video.annotated, "write", lambda path, shown, fps: asked.append((str(path), fps)) or 6
    )
    return asked


@pytest.mark.parametrize(
    ("options", "live", "told", "calls"),
    [
        ({}, False, {}, []),
        ({"what_if": True}, True, {}, []),
        ({"what_if": True}, False, {"samples": ["t"]}, [(120, 3.0), ("pictures", 3)]),
        ({"annotate": "b.mp4"}, True, {"annotated": {"path": "b.mp4", "frames": 6}}, [(7,), ("b.mp4", 50.0)]),
    ],
)
def test_pictures_are_made_for_who_asks(shown, options, live, told, calls):
    pipe = Pipe(TEN, options=options, live=live)
    assert video._annotated(pipe) == told and shown == calls
    assert pipe.opened == [{"loop": False, "size": None}] * bool(told)


def test_a_source_that_tells_no_rate_is_shown_at_25(shown):
    pipe = Pipe(TEN, options={"annotate": "b.mp4"})
    pipe.decode.sources[0].facts = dict
    video._annotated(pipe)
    assert shown[-1] == ("b.mp4", 25.0)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_a_search_tries_can_be_run(device):
    """On a CPU several units are under way at once; on a GPU several frames are taken at once, too."""
    tried = Video.CANDIDATES[device]
    shapes = []
    for change in tried:
        trial = replace(TRIAL, **{"batch": 1} | dict(change) | {"device": device})
        supported(planned(trial, HERE))
        shapes.append((trial.batch, trial.in_flight, trial.workload_options.get("infer_threads", 1)))
    expected = {"cpu": [(1, 1, 1), (1, 4, 1), (1, 6, 2)], "cuda": [(1, 1, 1), (8, 4, 1), (32, 12, 3)]}
    assert shapes == expected[device]
    posts = [change["workload_options"].get("postprocess_threads", 1) for change in tried]
    assert posts == [1, 1, 2 if device == "cuda" else 1]


def prepared(monkeypatch, options, fails=False):
    """What preparing a trial of two networks asks for."""
    log = []
    trials = (replace(TRIAL, model="a", batch=3), replace(TRIAL, model="b"))

    class Source:
        def read(self):
            log.append("read")
            if fails:
                raise OSError

        def close(self):
            log.append("close")

    plan = SimpleNamespace(trials=trials, options=options, source=Source)
    monkeypatch.setattr(video, "planned", lambda trial, parts: plan)
    monkeypatch.setattr(video, "supported", lambda plan: log.append("supported"))
    monkeypatch.setattr(video, "preprocess_of", lambda model: log.append(f"image {model}"))
    monkeypatch.setattr(video.gate, "prepare", lambda model, parts, metric, batch: log.append((model, batch)))
    engine = SimpleNamespace(prepare=lambda model, spec, folder: log.append(("build", model, spec.batch)))
    parts = SimpleNamespace(model=lambda trial: trial.model, backend=lambda name: engine, folder=None)
    try:
        Video().prepare(TRIAL, parts)
    except OSError:
        log.append("failed")
    return log


@pytest.mark.parametrize(("head", "looked"), [("", ["image b"]), ("b", [])])
def test_every_network_and_the_film_are_prepared(monkeypatch, head, looked):
    """A head scores features: it takes no images."""
    first = ["supported", "image a", ("build", "a", 3), ("a", 3)]
    rest = [*looked, ("build", "b", 2), ("b", 2), "read", "close"]
    assert prepared(monkeypatch, {"head": head}) == [*first, *rest]
    assert prepared(monkeypatch, {"head": head}, fails=True)[-3:] == ["read", "close", "failed"]
