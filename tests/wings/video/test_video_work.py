"""The frames of a film through a pipeline: all of them, in order, to the end."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from data_sets import classifier
from edgescope import bench, frames
from edgescope.bench.parts import HERE
from edgescope.errors import UnsupportedError, UsageError
from edgescope.frames import Frame, Item
from edgescope.records import (
    QUERY_DROPPED,
    QUERY_OK,
    Absent,
    Measured,
    Queries,
    Status,
    Trial,
    Window,
)
from edgescope.wings.video import annotated, pipeline, stages, what_if
from edgescope.wings.video import workload as work
from edgescope.wings.video.flow import Ledger, Sequential, Stage
from edgescope.wings.video.workload import Video

av = pytest.importorskip("av")
COUNT = 13


@pytest.fixture(scope="module")
def film(tmp_path_factory):
    """A film of 13 frames, each of a grey of its own."""
    path = tmp_path_factory.mktemp("film") / "grey.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=25)
        stream.width = stream.height = 64
        for k in range(COUNT):
            image = np.full((64, 64, 3), 15 * k + 20, dtype=np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())
    return path


@pytest.fixture(scope="module")
def trial(film):
    """Make a trial of the film and a network that tells dark frames from light ones: trial(batch=1, ...)."""
    network = str(classifier(film.with_name("light.onnx")))
    usual = {"model": network, "preprocess": "half,crop=1", "backend": "onnxruntime", "workload": "video"}
    usual |= {"batch": 4, "warmup": 0, "min_s": 0.2, "max_s": 30.0}

    def made(**keys):
        options = {"source": str(film), **keys.pop("workload_options", {})}
        return Trial(workload_options=options, **usual | keys)

    return made


LARGER = {"model": "squeezenet1_1", "preprocess": ""}


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.slow
def test_the_run_ends_with_the_film_and_every_frame_is_counted(trial, batch):
    result = bench.run(trial(batch=batch, min_s=30.0, workload_options={"loop": False}), hz=0)
    assert result.status in (Status.OK, Status.UNSTABLE), result.reason
    held = result.queries.columns["samples"]
    assert held.sum() == COUNT == result.metrics["frames"].value
    assert held.tolist() == ([4, 4, 4, 1] if batch == 4 else [1] * COUNT)
    assert result.window.stop - result.window.first == len(held)


@pytest.mark.slow
def test_a_film_that_loops_goes_on(trial):
    result = bench.run(trial(batch=8, warmup=0.2, min_s=1.0, max_s=1.0), hz=0)
    rows = result.queries.rows(result.window).columns
    assert result.metrics["frames"].value == rows["samples"].sum() > COUNT
    assert result.metrics["infer_busy_s"].n == len(rows["samples"]) < len(result.queries)
    assert "in 13 frames is found" in result.verification.detail


@pytest.mark.process
def test_a_film_that_ends_within_the_warm_up_leaves_nothing_to_measure(trial):
    result = bench.run(trial(warmup=60.0, workload_options={"loop": False}), hz=0)
    assert result.status is Status.FAILED and result.reason.code == "E-WORK-3"


@pytest.mark.process
def test_an_open_loop_ends_with_the_film_too(trial):
    asked = trial(batch=1, scenario="fixed_rate", rate=20.0, workload_options={"loop": False})
    result = bench.run(asked, hz=0)
    assert result.status in (Status.OK, Status.UNSTABLE), result.reason
    assert len(result.queries) == COUNT and (np.diff(result.queries.columns["scheduled_ns"]) > 0).all()


@pytest.mark.slow
def test_frames_with_their_boxes_are_written_after_the_window(trial, tmp_path, monkeypatch):
    asked = trial(max_s=0.3, workload_options={"annotate": str(tmp_path / "b.mp4"), "annotate_frames": 5})
    result = bench.run(asked, hz=0)
    assert result.status in (Status.OK, Status.UNSTABLE), result.reason
    assert result.artifact["annotated"] == {"path": str(tmp_path / "b.mp4"), "frames": 5}
    with av.open(str(tmp_path / "b.mp4")) as read:
        assert sum(1 for _ in read.decode(video=0)) == 5

    def full(path, shown, fps):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(annotated, "write", full)
    result = bench.run(asked, hz=0)
    assert result.status in (Status.OK, Status.UNSTABLE), result.reason
    assert "No space left" in result.artifact["annotated"]["absent"]
    refused = bench.run(trial(workload_options={"annotate": "boxes.gif"}), hz=0)
    assert refused.status is Status.UNSUPPORTED and "boxes.gif" in str(refused.reason)


@pytest.fixture
def noted():
    """A flow whose ledger holds two units in a warm-up and three in the window, which lost one frame each way."""
    flow = Sequential([Stage("decode", lambda item: None), Stage("log", lambda item: None)])
    flow.ledger = Ledger()
    for end_ns, units, busy_ns, cpu_ns in (
        (50, 2, 99_000_000, 9),
        (150, 1, 2_000_000, 0),
        (160, 3, 6_000_000, 2_000_000),
    ):
        flow.ledger.call(0, end_ns, units, 1000, 0)
        flow.ledger.call(1, end_ns, units, busy_ns, cpu_ns)
    flow.ledger._lost.extend((50, 7, 0, 50, 7, 1, 110, 2, 0, 120, 1, 1, 201, 5, 0))
    return flow


PLAIN = SimpleNamespace(plan=SimpleNamespace(options={"what_if": False}))
WINDOW = Window(0, 4, 100, 200)


def rows(samples, status=()):
    state = np.array(status or [0] * len(samples), np.int8)
    return Queries({"samples": np.array(samples, np.int32), "status": state})


def test_the_cpu_time_of_a_stage_that_is_never_read_is_absent_and_not_zero(noted):
    found = work._metrics(noted, PLAIN, rows([1, 1, 1, 1]), WINDOW)
    assert found["log_cpu_s"] == Measured(0.0005, "s", n=4) and found["log_busy_s"] == Measured(
        0.002, "s", n=4
    )
    assert isinstance(found["decode_cpu_s"], Absent) and "20 us" in found["decode_cpu_s"].reason


def test_frames_are_those_of_the_rows_in_the_window_and_so_are_those_that_were_lost(noted):
    found = work._metrics(
        noted, PLAIN, rows([4, 4, 4, 1], [QUERY_OK, QUERY_DROPPED, QUERY_OK, QUERY_OK]), WINDOW
    )
    assert found["frames"] == Measured(9.0, "frames", n=3)
    assert found["frames_dropped"] == Measured(2.0, "frames", n=12)
    assert found["frames_skipped"] == Measured(1.0, "frames", n=12)
    found = work._metrics(noted, PLAIN, rows([]), Window(0, 0, 300, 400))
    assert found["frames"].value == 0 and "log_busy_s" not in found


@pytest.fixture
def shorter_what_if(monkeypatch):
    """Fewer and shorter looks at what each stage costs: 2 s, not 10."""
    monkeypatch.setattr(what_if, "ROUNDS", 3)
    monkeypatch.setattr(work, "WHAT_IF_S", 0.05)


@pytest.mark.slow
def test_what_if_keeps_a_few_pictures_for_a_page(trial, shorter_what_if):
    result = bench.run(trial(max_s=0.3, workload_options={"what_if": True}), hz=0)
    assert result.artifact["samples"][0][1].endswith("1 box")
    assert len(result.artifact["samples"]) == 3


@pytest.mark.slow
def test_several_networks_see_the_same_frames(trial):
    result = bench.run(trial(max_s=0.5, workload_options={"also": "squeezenet1_1"}), hz=0)
    assert result.status in (Status.OK, Status.UNSTABLE), result.reason
    (other,) = result.artifact["also"]
    assert other["model"] == "squeezenet1_1" and other["digest"]


@pytest.mark.process
@pytest.mark.parametrize("in_flight", [1, 6])
@pytest.mark.parametrize("fault", ["lost", "doubled", None])
def test_a_frame_that_is_lost_or_doubled_is_found(trial, monkeypatch, fault, in_flight):
    """The pipeline loses or repeats its sixth frame; the plain loop does not."""
    made = pipeline.Pipeline.stages

    def faulty(self, decode=None):
        first, *rest = made(self, decode)

        def run(item):
            first.run(item)
            if fault == "lost" and item.frames[0].index == 5:
                first.run(item)
            if fault == "doubled" and item.frames[0].index == 6:
                item.frames = [replace(item.frames[0], index=5)]

        return [Stage(first.name, run), *rest]

    monkeypatch.setattr(pipeline.Pipeline, "stages", faulty)
    options = {"loop": False}
    result = bench.run(trial(batch=1, in_flight=in_flight, min_s=0.1, workload_options=options), hz=0)
    assert result.verification.passed is (fault is None)
    if fault:
        assert result.status is Status.WRONG_OUTPUT
        assert "came through once only" in result.verification.detail


@pytest.mark.slow
def test_the_ways_of_each_stage_find_the_same(trial):
    ways = {"decode": "scaled", "preprocess": "host", "postprocess": "elements"}
    result = bench.run(trial(batch=2, max_s=0.5, workload_options=ways), hz=0)
    assert result.verification.passed, result.verification.detail
    assert result.verification.fields["frame_agreement"].value >= 0.9


@pytest.mark.slow
def test_a_stage_of_ones_own_takes_part(trial, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "darken.py").write_text(
        "def darken(item):\n    for frame in item.frames:\n        frame.image = frame.image // 2\n"
    )
    (tmp_path / "dark.toml").write_text(
        "".join(
            f"[[stage]]\nname = '{name}'\n{extra}"
            for name, extra in (
                ("decode", ""),
                ("darken", "call = 'darken:darken'\n"),
                ("preprocess", ""),
                ("infer", ""),
                ("postprocess", ""),
            )
        )
    )
    options = {"pipeline": str(tmp_path / "dark.toml")}
    result = bench.run(trial(batch=2, max_s=0.5, workload_options=options), hz=0)
    assert [row["name"] for row in result.artifact["stages"]][1] == "darken"
    assert "darken" in result.spans.names and result.metrics["darken_s"].value > 0


@pytest.mark.slow
def test_a_live_source_is_opened_once_and_its_frames_have_ages(trial, monkeypatch, shorter_what_if):
    opened = []
    real = frames.opened

    def counting(name, **keys):
        opened.append(name)
        return real(name, **keys)

    monkeypatch.setattr(frames, "opened", counting)
    options = {"source": "synthetic:64x48@50", "what_if": True}
    result = bench.run(trial(batch=1, max_s=0.5, workload_options=options), hz=0)
    assert result.status in (Status.OK, Status.UNSTABLE), result.reason
    assert opened == ["synthetic:64x48@50"]
    assert result.verification.fields["frame_agreement"].reason == "a live source cannot be played again"
    assert 0 < result.metrics["frame_age_p50_s"].value < 1.0


@pytest.mark.slow
def test_what_a_full_queue_drops_does_not_fail_the_check(trial):
    options = {"queue": "drop_oldest", "queue_size": 1}
    asked = trial(batch=1, in_flight=8, scenario="burst", rate=400.0, max_s=0.6, workload_options=options)
    result = bench.run(replace(asked, scenario_options={"burst_size": 8}), hz=0)
    assert result.verification.passed, result.verification.detail
    dropped, done = (result.metrics[name].value for name in ("frames_dropped", "frames"))
    assert dropped > 0 and done > 0


@pytest.mark.slow
def test_a_pipeline_that_finds_nothing_is_measured_and_says_so(trial, tmp_path):
    path = tmp_path / "decode.toml"
    path.write_text("[[stage]]\nname = 'decode'\n")
    result = bench.run(trial(batch=1, max_s=0.3, workload_options={"pipeline": str(path)}), hz=0)
    assert result.status in (Status.OK, Status.UNSTABLE), result.reason
    assert "no stage" in result.verification.fields["frame_agreement"].reason
    assert set(result.spans.names) == {"unit", "decode"}


def test_the_crops_of_boxes_are_classified():
    """A classifier in a box's place: the whole frame is its one box."""
    seen = []

    def answer(batch):
        seen.append(len(batch["x"]))
        return [np.eye(4, dtype=np.float32)[batch["x"][:, 0].astype(int) // 50]]

    item = Item(0, [Frame(np.full((8, 8, 3), grey, dtype=np.uint8), k) for k, grey in enumerate((10, 160))])
    item.found = [stages.whole(item.frames[0], 3), stages.whole(item.frames[1], 2)]
    crops = stages.ClassifyCrops("x", answer, lambda image: np.asarray(image, dtype=np.float32)[0, 0], 2)
    crops(item)
    assert item.notes["crops"] == [[0], [3]] and seen == [2]


@pytest.mark.slow
def test_what_each_stage_costs_is_measured_if_asked(trial, shorter_what_if):
    result = bench.run(trial(batch=1, max_s=0.3, workload_options={"what_if": True}, **LARGER), hz=0)
    assert result.metrics["infer_free_gain"].value > 1.2
    assert result.metrics["infer_alone_fps"].value > result.metrics["pipeline_fps"].value


@pytest.mark.codec
@pytest.mark.parametrize(
    ("keys", "error", "says"),
    [
        ({"workload_options": {"queue": "drop_oldest"}}, UnsupportedError, "E-PIPE-3"),
        ({"io": "pinned"}, UnsupportedError, "E-PIPE-3"),
        ({"workload_options": {"preprocess": "device"}}, UnsupportedError, "E-PIPE-3"),
        ({"workload_options": {"infer_threads": 2}}, UnsupportedError, "E-PIPE-3"),
        ({"model": "rtfm"}, UnsupportedError, "E-PIPE-4"),
        ({"workload_options": {"also": "my.onnx"}}, UsageError, "E-PIPE-2"),
    ],
)
def test_what_a_pipeline_cannot_do_is_refused(trial, keys, error, says):
    with pytest.raises(error, match=says):
        Video().prepare(trial(**keys), HERE)
