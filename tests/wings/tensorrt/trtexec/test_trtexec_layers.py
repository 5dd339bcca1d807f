"""Layers from trtexec's files: recorded ones of ResNet18, whose work is known, and a stand-in's through the verb."""

import json
from pathlib import Path

import pytest

from edgescope import registry
from edgescope.analysis.roofline import Layer, joined
from edgescope.backends.base import Layered, Spec
from edgescope.cli.main import main
from edgescope.errors import UsageError
from edgescope.models import zoo
from edgescope.models.base import Purpose
from edgescope.wings.tensorrt.trtexec import exports

RECORDED = Path(__file__).parents[3] / "recorded_traces"
PROFILE, INFO, TIMES = (RECORDED / f"trtexec_{kind}_resnet18.json" for kind in ("layers", "graph", "times"))
RESNET18_MACS = 1_814_073_344 - 512_000
"""Of its convolutions; TensorRT's compiler for the last product tells no weights."""


def test_recorded_files_give_times_work_and_precision_in_any_order():
    found = exports.read([TIMES, PROFILE, INFO])
    assert sum(layer.flops for layer in found.layers) == pytest.approx(2 * RESNET18_MACS, rel=1e-3)
    assert found.precision == "fp16" and found.compute.n == 40
    first = next(layer for layer in found.layers if layer.name == "/conv1/Conv + /relu/Relu")
    assert (first.kind, first.precision, first.seconds) == ("Convolution", "fp16", 28.672e-6)
    assert first.bytes == 2 * (3 * 224 * 224 + 64 * 112 * 112 + 9408)
    assert found.compute.value == pytest.approx(278e-6, rel=0.05)
    total = sum(layer.seconds for layer in found.layers)
    assert total > found.compute.value, "a profiled run waits for each layer"


def test_names_join_with_pytorchs_modules_and_onnx_runtimes_nodes():
    torch = [Layer(n, "convolution", 1.0) for n in ("conv1", "layer1.0.conv1", "layer2.0.downsample.0", "fc")]
    ort = [Layer("layer1.0.conv1", "FusedConv", 2.0)]
    rows = {j.name: j.seconds for j in joined([torch, ort, exports.read([PROFILE, INFO]).layers])}
    for name in ("conv1", "layer1.0.conv1", "layer2.0.downsample.0", "fc"):
        assert rows[name][0] == 1.0 and rows[name][2] > 0, name
    assert rows["layer1.0.conv1"][1] == 2.0 and rows["layer1.0.conv1"][2] == pytest.approx(14.336e-6)
    assert rows["conv1"][2] == pytest.approx(28.672e-6), "the copy before it is a row of its own"
    assert any(name.startswith("reformat before conv1") for name in rows)


def test_a_profile_alone_has_times_and_says_what_it_lacks():
    found = exports.read([PROFILE])
    assert found.precision == "unknown" and "exportTimes" in found.compute.reason
    assert {layer.flops for layer in found.layers} == {layer.bytes for layer in found.layers} == {0}
    with pytest.raises(UsageError, match=r"E-LAYER-2: .* times"):
        exports.read([INFO])


@pytest.mark.parametrize("content", ["", "{}", "[]", '[{"a": 1}]', "\x00", '{"Layers": 3}', "[[]]"])
def test_a_file_of_something_else_is_refused(content, tmp_path):
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(UsageError, match="E-LAYER-2"):
        exports.read([PROFILE, path])


@pytest.mark.slow
def test_the_backend_times_its_own_layers(network, trtexec, tmp_path, monkeypatch):
    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path / "cache"))
    backend, model = registry.load(registry.BACKENDS, "trtexec", "backend")(), zoo.get(str(network))
    spec = Spec("fp32", device="cuda", options={"program": str(trtexec("100300"))})
    artifact = backend.prepare(model, spec, tmp_path)
    bench = model.samples(Purpose.BENCH, 1)
    batch = {name: array[:1] for name, array in bench.arrays.items()}
    assert isinstance(backend, Layered)
    assert [(x.name, x.seconds) for x in backend.layers(artifact, batch)] == [("conv", 1e-3)]


@pytest.mark.slow
def test_the_verb_shows_them_beside_the_engines_here(tmp_path, capsys):
    rows = [{"count": 9}, {"name": "/0/Conv + /1/Relu", "timeMs": 9, "averageMs": 1.0, "percentage": 100.0}]
    profile = tmp_path / "profile.json"
    profile.write_text(json.dumps(rows))
    command = ["layers", "lenet5", "--backend", "torch_eager", "--trtexec", str(profile), "--threads", "1"]
    assert main([*command, "--store", str(tmp_path / "s"), "--json"]) == 0
    page = json.loads(capsys.readouterr().out)
    assert [e["engine"] for e in page["engines"]] == ["torch_eager fp32 b1 threads=1", "trtexec unknown"]
    (own,) = page["engines"][1]["layers"]
    assert own["layer"]["seconds"] == 1e-3 and "from a file" in own["of_limit"]["absent"]
    assert main([*command, "--store", str(tmp_path / "s")]) == 0
    said = capsys.readouterr().out
    assert any(line.startswith("0 ") and "1 ms" in line for line in said.splitlines())
    assert "they sum to 1 ms" in said
