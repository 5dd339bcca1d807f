"""The frames of a film through a pipeline: all of them, in order, to the end."""

import numpy as np
import pytest

from edgescope import bench
from edgescope.bench.parts import HERE
from edgescope.errors import ModelError, UnsupportedError, UsageError
from edgescope.records import Status, Trial
from edgescope.workloads import frames
from edgescope.workloads.frames import Frames

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


def trial(film, *, batch=4, model="squeezenet1_1", **keys):
    options = {"source": str(film), **keys.pop("workload_options", {})}
    usual = {"backend": "onnxruntime", "workload": "frames", "warmup": 0, "min_s": 0.2, "max_s": 30.0}
    return Trial(model=model, batch=batch, workload_options=options, **usual | keys)


@pytest.mark.parametrize("batch", [1, 4])
def test_the_run_ends_with_the_film_and_every_frame_is_counted(film, batch):
    result = bench.run(trial(film, batch=batch, min_s=30.0, workload_options={"loop": False}), hz=0)
    assert result.status in (Status.OK, Status.UNSTABLE), result.reason
    held = result.queries.columns["samples"]
    assert held.sum() == COUNT == result.metrics["frames"].value
    assert held.tolist() == ([4, 4, 4, 1] if batch == 4 else [1] * COUNT)
    assert result.window.stop - result.window.first == len(held)


def test_a_film_that_loops_goes_on(film):
    result = bench.run(trial(film, batch=8, min_s=1.0, max_s=1.0), hz=0)
    assert result.metrics["frames"].value > COUNT
    assert "of 13 frames are named as a plain loop names them" in result.verification.detail


def test_a_film_that_ends_within_the_warm_up_leaves_nothing_to_measure(film):
    result = bench.run(trial(film, warmup=60.0, workload_options={"loop": False}), hz=0)
    assert result.status is Status.FAILED and str(result.reason).startswith(
        "E-WORK-3: the input ended within"
    )


def test_an_open_loop_ends_with_the_film_too(film):
    asked = trial(film, batch=1, scenario="fixed_rate", rate=20.0, workload_options={"loop": False})
    result = bench.run(asked, hz=0)
    assert result.status in (Status.OK, Status.UNSTABLE), result.reason
    assert len(result.queries) == COUNT and (np.diff(result.queries.columns["scheduled_ns"]) > 0).all()


def test_several_networks_see_the_same_frames(film):
    result = bench.run(trial(film, max_s=0.5, workload_options={"also": "shufflenet_v2_x1_0"}), hz=0)
    assert result.status in (Status.OK, Status.UNSTABLE), result.reason
    (other,) = result.artifact["also"]
    assert other["model"] == "shufflenet_v2_x1_0" and other["digest"]


def test_a_frame_that_is_lost_is_found(film, monkeypatch):
    """The pipeline skips every fifth frame; the plain loop does not."""
    decoded = frames.Pipeline._decoded

    def lossy(self):
        if self.frames % 5 == 4:
            self.film.next()
        return decoded(self)

    monkeypatch.setattr(frames.Pipeline, "_decoded", lossy)
    monkeypatch.setattr(frames.Pipeline, "plain", _shades)
    monkeypatch.setattr(frames.Pipeline, "unit", _shade)

    def passed():
        whole, again = (frames._film({"source": str(film), "loop": loop}) for loop in (True, False))
        return frames._verified([frames.gate.NOTHING], frames.Pipeline([_Any()], [], 1, whole), again).passed

    assert not passed()
    monkeypatch.setattr(frames.Pipeline, "_decoded", decoded)
    assert passed()


class _Any:
    """A model of which only the preprocessing is asked."""

    from types import SimpleNamespace

    inputs = (SimpleNamespace(name="input", shape=(3, 8, 8)),)
    info = SimpleNamespace(name="any")

    @staticmethod
    def preprocess(image):
        return np.asarray(image, dtype=np.float32)


def _shade(self, stages=None):
    (image,) = self._decoded()
    self.classes = [(int(np.asarray(image).mean()) // 5,)]
    self.frames += 1
    return 1


def _shades(self, film, count):
    found = []
    while len(found) < count and (image := film.next()) is not None:
        found.append((int(np.asarray(image).mean()) // 5,))
    return found


def test_what_is_no_film_is_told(tmp_path):
    path = tmp_path / "not.mp4"
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(ModelError, match=r"E-FRAMES-1: not.mp4 cannot be decoded"):
        frames._film({"source": str(path), "loop": True}).next()


@pytest.mark.parametrize(
    ("keys", "error", "says"),
    [
        ({"in_flight": 2}, UnsupportedError, "E-FRAMES-2"),
        ({"io": "pinned"}, UnsupportedError, "E-FRAMES-2"),
        ({"model": "har_autoencoder"}, UnsupportedError, "E-FRAMES-4"),
        ({"workload_options": {"also": "my.onnx"}}, UsageError, "E-FRAMES-3"),
    ],
)
def test_what_a_pipeline_cannot_do_is_refused(film, keys, error, says):
    with pytest.raises(error, match=says):
        Frames().prepare(trial(film, **keys), HERE)
