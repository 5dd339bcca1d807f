"""A network's operators are asked for while the machine is watched; what multiplied in which precision."""

from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from edgescope.analysis.roofline import Layer
from edgescope.bench import layers as asking
from edgescope.bench.layers import exported, layers, of_operators, profiled, ran
from edgescope.bench.watch import Watch
from edgescope.errors import UnsupportedError
from edgescope.models.synthetic import NullModel
from edgescope.records import Trial
from making import result

TRIAL = Trial(model="null", backend="null", batch=3)
FOUND = (Layer("a", "conv", 0.1), Layer("b", "relu", 0.2))


class Teller:
    """An engine that tells its operators, once its artifact is there."""

    def prepare(self, model, spec, folder):
        return (spec.batch, folder)

    def layers(self, artifact, batch):
        assert artifact == (3, "folder") and len(batch["input"]) == 3
        self.first = batch["input"]
        return FOUND


def parts(backend):
    return SimpleNamespace(model=lambda trial: NullModel(), backend=lambda name: backend, folder="folder")


def test_an_engine_tells_its_operators_for_the_first_batch():
    engine, model = Teller(), NullModel()
    assert layers(TRIAL, parts(engine)) == FOUND
    assert (engine.first == asking.batches_of(model, TRIAL)[0]["input"]).all()
    with pytest.raises(UnsupportedError, match="E-LAYER-1: mute "):
        layers(Trial(model="null", backend="mute"), parts(object()))


def test_the_machine_is_watched_while_the_engine_tells(monkeypatch):
    log, now = [], iter([5, 9])

    @contextmanager
    def watching(self):
        log.append(("begin", self.hz, self.by_name))
        yield
        log.append("end")

    monkeypatch.setattr(Watch, "watching", watching)
    monkeypatch.setattr(Watch, "mark", lambda self: log.append("mark"))
    monkeypatch.setattr(Watch, "verdict", lambda self, window: window)
    monkeypatch.setattr(asking, "time", SimpleNamespace(monotonic_ns=lambda: next(now)))
    monkeypatch.setattr(asking, "present", lambda: {"all": 1})
    engine = Teller()
    engine.layers = lambda artifact, batch: log.append("asked") or FOUND
    found = profiled(TRIAL, parts(engine), {"none": 0})
    assert found.layers == FOUND and (found.verdict.start_ns, found.verdict.stop_ns) == (5, 9)
    assert (found.verdict.first, found.verdict.stop) == (0, 0)
    assert log == [("begin", 20.0, {"none": 0}), "mark", "asked", "mark", "end"]
    now = iter([5, 9])
    profiled(TRIAL, parts(engine))
    assert log[5] == ("begin", 20.0, {"all": 1})


@pytest.mark.parametrize(
    ("kind", "flops", "counts"),
    [
        ("relu", 0, False),
        ("relu", 4, True),
        ("Conv", 0, True),
        ("ADDMM", 0, True),
        ("QLinearConv", 0, True),
        ("Convolution", 0, True),
        ("FullyConnected", 0, True),
        ("fullyconnected", 0, False),
    ],
)
def test_layers_that_multiply_are_counted_by_their_precision(kind, flops, counts):
    one = Layer("x", kind, 0.1, flops=flops, precision="int8")
    assert ran([one, one]) == ({"int8": 2} if counts else {})
    mixed = [Layer("a", "conv", 0.1, precision=p) for p in ("fp32", "fp16", "fp32")]
    assert ran([*mixed, one]) == {"fp32": 2, "fp16": 1} | ({"int8": 1} if counts else {})


@pytest.mark.parametrize(
    ("model", "path"), [("net.onnx#ab12", "net.onnx"), ("net.onnx", "net.onnx"), ("resnet50", None)]
)
def test_the_nodes_of_an_onnx_file_name_the_modules_of_a_profile(monkeypatch, model, path):
    read = []
    monkeypatch.setattr("edgescope.artifacts.onnx_names.ModulePaths", lambda *given: given)
    monkeypatch.setattr("edgescope.wings.tensorrt.trtexec.exports.read", lambda *given: read.append(given))
    exported(["a", "b"], Trial(model=model, backend="trtexec", batch=2))
    assert read == [(["a", "b"], (Path(path), 2) if path else None)]


@pytest.mark.parametrize(
    ("name", "there", "found"),
    [
        ("net.onnx", True, {"Conv a": "module.Conv.a.3", "Relu": "module.Relu..3"}),
        ("net.onnx", False, {}),
        ("net.engine", True, {}),
    ],
)
def test_operators_of_a_profile_are_found_in_the_file_that_the_engine_was_built_from(
    monkeypatch, tmp_path, name, there, found
):
    class Paths:
        def __init__(self, path, batch):
            self.batch = batch

        def known(self, name, kind):
            return None if kind == "Cast" else SimpleNamespace(path=f"module.{kind}.{name}.{self.batch}")

    monkeypatch.setattr("edgescope.artifacts.onnx_names.ModulePaths", Paths)
    if there:
        (tmp_path / name).touch()
    of = result(TRIAL, artifact={"path": str(tmp_path / name)})
    assert of_operators(["Conv a", "Cast b", "Relu"], of) == found
    assert of_operators(["Conv a"], result(TRIAL, artifact={"path": None})) == {}
