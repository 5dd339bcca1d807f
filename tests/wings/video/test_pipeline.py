"""What a trial asks of its pipeline: the rules on both sides of each limit, its networks, sources and stages."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from edgescope.errors import UnsupportedError, UsageError
from edgescope.models.base import TensorSpec
from edgescope.models.image.preprocess import Preprocess
from edgescope.options import read, settled
from edgescope.records import Trial
from edgescope.wings.video import pipeline
from edgescope.wings.video.description import Described
from edgescope.wings.video.flow import Sequential, Threaded
from edgescope.wings.video.pipeline import OPTIONS, Pipeline, Plan, planned, supported, widened
from edgescope.wings.video.snippets import (
    Cutting,
    DecodeSnippets,
    PlainSnippets,
    SnippetClasses,
    Snippets,
)
from edgescope.wings.video.stages import (
    ClassifyCrops,
    Decode,
    Infer,
    OneByOne,
    OnHost,
    ReadBoxes,
    ReadClasses,
    owned,
)

BASE = Trial(model="net", backend="onnxruntime", workload="video", batch=4, in_flight=6)


def plan(stages=("decode", "preprocess", "infer", "postprocess"), options=(), **keys):
    """The plan of a trial, its model alone."""
    rows = tuple(each if isinstance(each, Described) else Described(each) for each in stages)
    usual = {name: option.default for name, option in OPTIONS.items()}
    trial = replace(BASE, **keys)
    return Plan(trial, (trial,), usual | dict(options), rows)


GPU = {"device": "cuda"}


@pytest.mark.parametrize(
    ("options", "keys", "fits"),
    [
        ({}, {}, True),
        ({"head": "h", "views": 1}, {}, True),
        ({"head": "h", "also": "a"}, {}, False),
        ({"head": "h", "crops": "c"}, {}, False),
        ({"also": "a", "crops": "c"}, {}, True),
        ({"views": 10}, {"batch": 10}, True),
        ({"views": 10}, {"batch": 20}, True),
        ({"views": 10}, {"batch": 4}, False),
        ({"views": 10}, {"batch": 11}, False),
        ({"views": 2}, {}, False),
        ({}, {"io": "pinned"}, False),
        ({}, {"io": "pinned"} | GPU, False),
        ({}, {"io": "device"}, False),
        ({}, {"io": "device"} | GPU, True),
        ({}, GPU, True),
        ({"preprocess": "device"}, {}, False),
        ({"preprocess": "device"}, GPU, True),
        ({"crops": "c", "decode": "scaled"}, {}, False),
        ({"crops": "c", "decode": "full"}, {}, True),
        ({"decode": "scaled"}, {}, True),
        ({"queue": "drop_oldest", "queue_size": 1}, {"in_flight": 8}, True),
        ({"queue": "drop_oldest", "queue_size": 1}, {"in_flight": 7}, False),
        ({"queue": "drop_oldest", "queue_size": 4}, {"in_flight": 20}, True),
        ({"queue": "drop_newest", "queue_size": 4}, {"in_flight": 19}, False),
        ({"queue": "block", "queue_size": 4}, {"in_flight": 2}, True),
        ({"annotate": "folder"}, {}, True),
        ({"annotate": "b.mp4"}, {}, True),
        ({"annotate": "b.gif"}, {}, False),
        *(({f"{stage}_threads": 2}, {"in_flight": 1}, False) for stage in ("decode", "preprocess")),
        *(({f"{stage}_threads": 2}, {"in_flight": 1}, False) for stage in ("infer", "postprocess")),
        ({"infer_threads": 2}, {"in_flight": 2}, True),
        ({}, {"in_flight": 1}, True),
    ],
)
def test_what_a_pipeline_can_do_on_both_sides_of_each_rule(options, keys, fits):
    if fits:
        supported(plan(options=options, **keys))
        return
    with pytest.raises(UnsupportedError, match="E-PIPE-3"):
        supported(plan(options=options, **keys))


@pytest.mark.parametrize("name", ["decode", "preprocess", "infer"])
def test_a_stage_gathers_no_more_frames_than_the_network_takes(name):
    supported(plan([Described(name, batch=4)]))
    with pytest.raises(UnsupportedError, match="more frames") as raised:
        supported(plan([Described(name, batch=5)]))
    assert raised.value.fix == "--batch 5"
    supported(plan([Described("postprocess", batch=99)]))


def test_the_room_of_the_queues_is_told():
    with pytest.raises(UnsupportedError) as raised:
        supported(plan(["a", "b", "c"], {"queue": "drop_oldest", "queue_size": 2}, in_flight=8))
    assert raised.value.fix == "--in-flight 9"


def test_a_unit_has_the_frames_that_decode_reads_or_the_trials():
    assert plan().unit == 4 and plan().batch("infer") == 0 and plan().batch("nothing") == 0
    made = plan([Described("decode", batch=2), Described("infer", batch=3)])
    assert (made.unit, made.batch("infer"), made.batch("decode")) == (2, 3, 2)


def asked(**options):
    trial = replace(BASE, workload_options=options, shapes={"x": (1, 2)})
    return planned(trial, None)


def test_networks_that_see_whole_frames_come_first():
    made = asked(also="a+b", crops="c")
    assert [trial.model for trial in made.trials] == ["net", "a", "b", "c"] and made.networks == 3
    assert [dict(trial.shapes) for trial in made.trials] == [{"x": (1, 2)}, {}, {}, {}]
    assert [row.name for row in made.stages] == ["decode", "preprocess", "infer", "postprocess", "crops"]
    assert asked(also="a").networks == 2 == len(asked(also="a").trials)
    assert [row.name for row in asked().stages] == ["decode", "preprocess", "infer", "postprocess"]
    for odd in ({"also": "a+b.onnx"}, {"crops": "m:f"}, {"also": "a/b"}, {"crops": "a@b"}):
        with pytest.raises(UsageError, match="E-PIPE-2"):
            asked(**odd)


@pytest.mark.parametrize(("device", "in_flight"), [("cpu", 6), ("cuda", 1)])
def test_networks_on_a_gpu_are_loaded_for_one_query_and_widened_later(device, in_flight):
    made = planned(replace(BASE, device=device, workload_options={"also": "a"}), None)
    assert [trial.in_flight for trial in made.trials] == [in_flight] * 2 and made.trial.in_flight == 6


def test_the_file_of_a_pipeline_has_its_options_and_the_trials_own_go_before(tmp_path):
    path = tmp_path / "p.toml"
    path.write_text(
        "queue_size = 7\ncameras = 3\n[[stage]]\nname = 'decode'\nbatch = 2\n[[stage]]\nname = 'crops'\n"
    )
    made = asked(pipeline=str(path), cameras=2, crops="c")
    assert (made.options["queue_size"], made.options["cameras"]) == (7, 2)
    assert [row.name for row in made.stages] == ["decode", "crops"] and made.unit == 2


class Clips:
    """A network of clips: 16 frames of 8 x 8, every second one."""

    decoder = None
    frame_step, width = 2, 1024
    inputs = (TensorSpec("clip", (3, 16, 8, 8), "float32"),)
    frame_preprocess = Preprocess(8, 1.0, (0.1, 0.2, 0.3), (0.2, 0.2, 0.2))
    info = SimpleNamespace(name="clips")


class Head:
    """What scores 32 snippets of 1024 features."""

    inputs = (TensorSpec("features", (32, 1024), "float32"),)
    info = SimpleNamespace(name="head")


@pytest.mark.parametrize(
    ("below", "snippets", "shapes"),
    [
        (Clips(), 0, {}),
        (Clips(), 32, {}),
        (Clips(), 16, {"features": (1, 16, 1024)}),
        (SimpleNamespace(**vars(Clips) | {"width": 512}), 0, {"features": (1, 32, 512)}),
        (object(), 8, {"features": (1, 8, 1024)}),
    ],
)
@pytest.mark.parametrize(("precision", "heads"), [("fp32", "fp32"), ("fp16", "fp16"), ("int8", "fp32")])
def test_a_head_scores_as_many_snippets_as_asked_of_the_features_below(
    below, snippets, shapes, precision, heads
):
    trial = replace(BASE, batch=10, precision=precision)
    models = SimpleNamespace(model=lambda of: Head() if of.model == "head" else below)
    options = {"head": "head", "snippets": snippets, "views": 10}
    made = planned(replace(trial, workload_options=options), models)
    assert made.networks == 1 and made.trials[1].model == "head"
    assert (made.trials[1].batch, made.trials[1].precision, dict(made.trials[1].shapes)) == (
        10,
        heads,
        shapes,
    )
    assert [row.name for row in made.stages] == ["decode", "preprocess", "infer", "score", "alarm"]


class Film:
    """A source of frames of 64 x 48."""

    live = False

    def __init__(self, log, **differs):
        self.log, self.differs = log, differs
        log.append(("open", differs))

    def facts(self):
        return {"width": 64, "height": 48}

    def close(self):
        self.log.append(("close", self.differs))


class Films(Plan):
    """A plan whose sources are noted."""

    log: list = []  # noqa: RUF012
    takes = False

    def source(self, **differs):
        return Film(self.log, **differs)

    @property
    def scales(self):
        return self.options["decode"] == "scaled" or self.takes


class Image:
    """A network that sees single frames."""

    inputs = (TensorSpec("x", (3, 8, 8), "float32"),)
    info = SimpleNamespace(name="image")
    preprocess = Preprocess(8, 1.0)


class Boxes(Image):
    """One that finds boxes."""

    decoder = SimpleNamespace(READS=(0,), names=("cat", "dog"))


class Session:
    """Answers with what it is given."""

    def __call__(self, batch):
        return [batch]


class Phased(Session):
    """Tells what the device took."""

    def phases(self, batch):
        (ns,) = batch.values()
        return SimpleNamespace(h2d_ns=ns, compute_ns=10 * ns, d2h_ns=100 * ns)


class Laned(Session):
    """Answers several at once."""

    def __init__(self):
        self.asked = []

    def lanes(self, n, batch, *, owned=False):
        self.asked.append((n, batch, owned))


class Staged(Session):
    """Has memory of its own."""

    def stage(self, batch):
        return batch

    def fetch(self, outputs):
        return outputs


def made(models=None, sessions=None, of=None, takes=False, **given):
    """A pipeline over these networks, and what happened to its sources."""
    models = models or [Image()]
    one = of or plan(**given)
    trials = tuple(replace(one.trial, model=f"m{n}") for n in range(len(models)))
    films = Films(one.trial, trials, one.options, one.stages)
    object.__setattr__(films, "log", [])
    object.__setattr__(films, "takes", takes)
    ready = [
        SimpleNamespace(session=session, batches=["first"], answer=f"answer {n}", about={}, facts={})
        for n, session in enumerate(sessions or [Session() for _ in models])
    ]
    return Pipeline(films, models, ready), films.log


@pytest.mark.parametrize("cameras", [1, 3])
@pytest.mark.parametrize(
    ("options", "takes", "size"),
    [
        ({}, False, None),
        ({"decode": "scaled"}, False, {"size": (9, 7)}),
        ({}, True, {"size": (9, 7), "whole": True}),
        ({"decode": "scaled"}, True, {"size": (9, 7)}),
    ],
)
def test_every_camera_has_a_source_and_scaled_ones_are_opened_again_in_their_size(
    monkeypatch, cameras, options, takes, size
):
    monkeypatch.setattr(pipeline, "scaled_size", lambda steps, sides: (9, 7) if sides == (64, 48) else None)
    made_, log = made(takes=takes, options=options | {"cameras": cameras})
    once = [("open", {})] if size is None else [("open", {}), ("close", {}), ("open", size)]
    assert log == once * cameras
    assert type(made_.decode) is Decode and made_.decode.batch == 4
    assert [source.differs for source in made_.decode.sources] == [size or {}] * cameras
    log.clear()
    made_.sources(size=None, loop=False)
    assert log == [("open", {"size": None, "loop": False})] * cameras
    log.clear()
    made_.close()
    assert len(log) == 2 * cameras


def test_frames_of_several_sizes_are_not_scaled(monkeypatch):
    monkeypatch.setattr(pipeline, "scaled_size", lambda steps, sides: None)
    with pytest.raises(UnsupportedError, match="E-PIPE-3"):
        made(options={"decode": "scaled"})


def test_sources_opened_again_are_closed_and_the_first_stay():
    of, log = made(options={"cameras": 2})
    first = list(of.made)
    log.clear()
    with of.again(loop=False) as decode:
        assert decode is not of.decode and len(of.made) == 4
    assert log == [("open", {"loop": False})] * 2 + [("close", {"loop": False})] * 2
    assert of.made == first
    with pytest.raises(ZeroDivisionError), of.again():
        1 / 0  # noqa: B018
    assert of.made == first and log[-2:] == [("close", {})] * 2
    of.decode.sources[0].live = True
    log.clear()
    with of.again(loop=True) as decode:
        assert decode is of.decode and log == []


@pytest.mark.parametrize(
    ("in_flight", "options", "full", "expected"),
    [
        (1, {}, "", (Sequential, False)),
        (1, {"on_error": "skip"}, "", (Sequential, True)),
        (2, {"queue_size": 3}, "", (Threaded, False, 3, "block")),
        (2, {"queue": "drop_oldest", "on_error": "skip"}, "", (Threaded, True, 4, "drop_oldest")),
        (2, {"queue": "drop_oldest"}, "block", (Threaded, False, 4, "block")),
    ],
)
def test_what_drives_the_stages(in_flight, options, full, expected):
    of, _ = made(options=options, in_flight=in_flight)
    flow = of.flow(of.stages(), full=full)
    queues = () if in_flight == 1 else (flow.queues[0].bound, flow.queues[1].bound, flow.queues[1].full)
    assert (type(flow), flow.skip) == expected[:2]
    if in_flight > 1:
        assert queues[1:] == expected[2:]
        lossless = of.lossless(of.stages())
        assert lossless.queues[1].full == "block"
        lossless.close()
    flow.close()


def stages(of, decode=None):
    return {stage.name: stage for stage in of.stages(decode)}


def test_stages_have_their_threads_and_their_batch(monkeypatch):
    rows = [Described("decode", batch=2), Described("preprocess", threads=3, batch=3), Described("infer")]
    of, _ = made(of=plan(rows, {"infer_threads": 2, "preprocess_threads": 2, "decode_threads": 4}))
    found = stages(of)
    assert [(s.threads, s.batch, s.place) for s in found.values()] == [
        (4, 0, "cpu"),
        (3, 3, "cpu"),
        (2, 0, "cpu"),
    ]
    assert all(s.wait is None and s.device_ns is None for s in found.values())
    assert found["decode"].run is of.decode and stages(of, "others")["decode"].run == "others"


@pytest.fixture
def device(monkeypatch):
    """What stands for the parts that need torch."""

    class OnStream:
        def __init__(self, run):
            self.run, self.device_ns = run, "events"

    named = {
        "synchronize": "wait",
        "OnStream": OnStream,
        "OnDevice": lambda plain, batch: ("on device", plain, batch),
    }
    monkeypatch.setattr(pipeline, "need", lambda what, *_: named[what.partition(":")[2]])


def test_on_a_gpu_the_network_and_what_is_asked_for_run_there(device):
    own = Described("own", call="os:getcwd", place="gpu")
    rows = ["decode", "preprocess", "infer", "postprocess", own]
    of, _ = made(sessions=[Phased()], of=plan(rows, {"preprocess": "device"}, device="cuda"))
    found = stages(of)
    assert [s.place for s in found.values()] == ["cpu", "gpu", "gpu", "cpu", "gpu"]
    assert [s.wait for s in found.values()] == [None, "wait", "wait", None, "wait"]
    assert found["preprocess"].device_ns == "events" and found["preprocess"].run.run[0] == "on device"
    assert found["preprocess"].run.run[2] == 4 and found["own"].device_ns is None
    assert found["infer"].device_ns(SimpleNamespace(inputs=[3])) == 333
    assert isinstance(found["infer"].run, Infer)


def test_networks_are_timed_together_or_not_at_all():
    of, _ = made([Image(), Image()], [Phased(), Phased()])
    assert of._infer_ns()(SimpleNamespace(inputs=[1, 2])) == 333
    of, _ = made([Image(), Image()], [Phased(), Session()])
    assert of._infer_ns() is None


def test_a_plain_loop_does_each_step_the_simple_way():
    rows = ["decode", "preprocess", "infer", "postprocess", Described("own", call="os:getcwd"), "crops"]
    of, _ = made(of=plan(rows, {"preprocess": "host", "postprocess": "elements"}))
    found = of.plain(of.decode)
    assert [stage.name for stage in found] == ["decode", "preprocess", "infer", "postprocess"]
    assert isinstance(found[1].run, OneByOne) and found[3].run.way == "host"


@pytest.mark.parametrize(("way", "kind", "batch"), [("image", OneByOne, 4), ("host", OnHost, 4)])
def test_frames_are_prepared_in_the_way_that_is_asked_for(way, kind, batch):
    of, _ = made(options={"preprocess": way})
    run = of._prepare(way)
    assert type(run) is kind and run.batch == batch
    rows = [Described("decode", batch=1), Described("preprocess", batch=3)]
    joined, _ = made(of=plan(rows))
    assert joined._prepare(way).batch == 3


def test_a_function_cannot_be_applied_to_whole_arrays():
    class Opaque(Image):
        preprocess = staticmethod(len)

    of, _ = made([Image(), Opaque()])
    assert isinstance(of._prepare("image"), OneByOne)
    with pytest.raises(UnsupportedError, match=r"E-PIPE-3: .*preprocessing"):
        of._prepare("host")


@pytest.mark.parametrize(
    ("kind", "in_flight", "io", "kept", "staged"),
    [
        (Session, 1, "host", None, False),
        (Session, 2, "host", owned, False),
        (Laned, 2, "host", None, False),
        (Staged, 1, "device", None, True),
        (Staged, 1, "host", None, False),
        (Session, 1, "device", None, False),
    ],
)
def test_outputs_are_copied_where_a_later_call_would_overwrite_them(kind, in_flight, io, kept, staged):
    session = kind()
    of, _ = made([Boxes(), Image()], [session, Session()], in_flight=in_flight, io=io, device="cuda")
    run = of._infer()
    assert run.owned is kept and (run.stage is not None) is staged
    assert [name for name, _ in run.networks] == ["x", "x"] and run.networks[0][1] == session.__call__
    assert run.reads == (0,) and run.batch == 4
    assert made()[0]._infer().reads is None


def test_outputs_are_read_as_what_the_network_finds():
    assert isinstance(made([Boxes()])[0]._read("host"), ReadBoxes)
    assert type(made()[0]._read("elements")) is ReadClasses
    clips, _ = made([Clips()])
    assert isinstance(clips._read("host"), SnippetClasses)
    assert pipeline.class_names(Boxes()) == ("cat", "dog") and pipeline.class_names(Image()) == ()


def test_crops_and_snippets_are_read_by_the_last_network():
    of, _ = made([Image(), Image()], options={"crops": "c"})
    assert len(of.models) == 1 == len(of.preprocess)
    run = of._crops()
    assert isinstance(run, ClassifyCrops) and (run.name, run.answer, run.batch) == ("x", "answer 1", 4)
    scored, _ = made([Clips(), Head()], options={"head": "h"})
    run = scored._score()
    assert (run.answer, run.snippets) == ("answer 1", 32)
    for of, what in ((made()[0], "_crops"), (made([Clips()])[0], "_score")):
        with pytest.raises(UsageError, match="E-PIPE-2"):
            getattr(of, what)()


@pytest.mark.parametrize(
    ("options", "cutting"),
    [({}, (16, 2, 0, 1)), ({"stride": 8, "views": 10}, (16, 2, 8, 10))],
)
def test_clips_are_cut_as_the_network_sees_them(options, cutting):
    of, _ = made([Clips()], options=options, batch=10)
    assert of.cutting == Cutting(*cutting) and isinstance(of.decode, DecodeSnippets)
    assert type(of._prepare("host")) is Snippets and type(of._prepare("image")) is PlainSnippets
    assert of._prepare("host").batch == 10
    with pytest.raises(UnsupportedError, match="on the host"):
        of._prepare("device")


@pytest.mark.parametrize("options", [{"head": "h"}, {"stride": 1}, {"views": 10}])
def test_single_frames_are_not_cut(options):
    assert made()[0].cutting is None
    with pytest.raises(UsageError, match="E-PIPE-2"):
        pipeline._cutting(plan(options=options), [Image()])


@pytest.mark.parametrize(
    ("models", "options"),
    [
        ([Clips(), Image()], {}),
        ([Image(), Clips()], {}),
        ([Clips()], {"crops": "c"}),
        *(([Clips()], {f"{stage}_threads": 2}) for stage in ("decode", "preprocess", "infer", "postprocess")),
    ],
)
def test_clips_go_through_one_network_in_one_thread(models, options):
    assert pipeline._cutting(plan(), [Clips()]) is not None
    with pytest.raises(UnsupportedError, match="E-PIPE-3"):
        pipeline._cutting(plan(options=options), models)


def test_features_are_normalised_as_asked():
    (own,) = made([Clips()])[0].preprocess
    (rtfm,) = made([Clips()], options={"normalisation": "rtfm"})[0].preprocess
    assert own is Clips.frame_preprocess
    assert rtfm == replace(own, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))


def test_a_network_that_takes_no_images_is_refused():
    with pytest.raises(UnsupportedError, match="E-PIPE-4"):
        pipeline.preprocess_of(Head())


@pytest.mark.parametrize(
    ("in_flight", "device", "threads", "lanes"),
    [
        (1, "cuda", 1, []),
        (4, "cpu", 2, []),
        (4, "cuda", 1, [(1, "first", True)]),
        (4, "cuda", 3, [(3, "first", True)]),
    ],
)
def test_sessions_on_a_gpu_have_a_lane_for_each_thread(in_flight, device, threads, lanes):
    session = Laned()
    ready = SimpleNamespace(session=session, batches=["first", "second"])
    widened(plan(options={"infer_threads": threads}, in_flight=in_flight, device=device), [ready])
    assert session.asked == lanes
    plain = SimpleNamespace(session=Session(), batches=["first"])
    of = plan(options={"infer_threads": threads}, in_flight=in_flight, device=device)
    if lanes and threads > 1:
        with pytest.raises(UnsupportedError, match="E-PIPE-3"):
            widened(of, [plain])
    else:
        widened(of, [plain])


def test_a_film_is_found_under_the_name_it_was_pinned_by(monkeypatch, tmp_path):
    opened = []
    named = {
        "opened": lambda name, **how: opened.append((name, how)),
        "located": lambda *film: f"located {film}",
        "takes": lambda name, what: (name, what) == ("camera:1", "whole"),
    }
    monkeypatch.setattr(pipeline, "need", lambda what, *_: named[what.partition(":")[2]])
    monkeypatch.setattr(pipeline, "unpinned", lambda name: f"unpinned {name}")
    for source, name in (
        ("", f"located {pipeline.FILM}"),
        ("a.mp4", "a.mp4"),
        ("a.mp4#0123456789ab", "unpinned a.mp4#0123456789ab"),
        ("nvdec:a.mp4#0123456789ab", "nvdec:unpinned a.mp4#0123456789ab"),
    ):
        plan(options={"source": source}).source(size=(1, 2))
        assert opened.pop() == (name, {"loop": True, "size": (1, 2)})
    plan(options={"source": "a", "loop": True}).source(loop=False)
    assert opened.pop() == ("a", {"loop": False})
    for options, scales in (
        ({}, False),
        ({"decode": "scaled"}, True),
        ({"head": "h"}, False),
        ({"source": "camera:1"}, False),
        ({"source": "camera:1", "head": "h"}, True),
    ):
        assert plan(options=options).scales is scales


def test_the_last_of_several_networks_reads_the_crops():
    of, _ = made([Image()] * 3, options={"crops": "c", "also": "b"})
    assert of._crops().answer == "answer 2" and len(of.models) == 2


LEAST = {
    **dict.fromkeys(("cameras", "decode_threads", "preprocess_threads", "infer_threads"), (1, 1)),
    **{"postprocess_threads": (1, 1), "queue_size": (4, 1), "annotate_frames": (300, 1), "views": (1, 1)},
    **{"snippets": (0, 0), "stride": (0, 0)},
}


@pytest.mark.parametrize(("name", "usual", "least"), [(name, *said) for name, said in LEAST.items()])
def test_numbers_of_a_pipeline_have_a_usual_value_and_a_least(name, usual, least):
    assert read("video", {}, OPTIONS)[name] == usual
    assert read("video", {name: least}, OPTIONS)[name] == least
    with pytest.raises(UsageError, match="E-OPTION"):
        read("video", {name: least - 1}, OPTIONS)


def test_a_film_loops_and_nothing_is_stubbed_unless_asked():
    assert (asked().options["loop"], asked().options["what_if"]) == (True, False)


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({"source": "/nowhere.mp4"}, True),
        ({"source": "rtsp://camera/1"}, False),
        ({"pipeline": "/nowhere.toml"}, True),
        ({"head": "rtfm@/nowhere.pth"}, True),
        ({"annotate": "/nowhere/b.mp4"}, False),
    ],
)
def test_files_that_a_trial_reads_must_be_there(given, refused):
    if not refused:
        assert settled(given, OPTIONS) == given
        return
    with pytest.raises(UsageError, match="E-OPTION-3"):
        settled(given, OPTIONS)
