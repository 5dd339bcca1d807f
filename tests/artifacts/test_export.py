import contextlib
import importlib.metadata
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from edgescope import cache, registry
from edgescope.artifacts import onnx_export, onnx_write
from edgescope.backends.base import Spec
from edgescope.errors import ModelError, StoreError, UsageError
from edgescope.models import zoo
from edgescope.models.base import Purpose, TensorSpec
from edgescope.records import ModelInfo

pytestmark = pytest.mark.network

SPECS = (TensorSpec("x", (3, 8, 8), "float32"),)


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return self.conv(x).relu().mean((2, 3))


class Wide(Small):
    """Has a weight of more than a kilobyte, less than which onnx leaves in the file."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 16, 3)


class Peeks(Small):
    """Looks at its data, which no exporter can follow."""

    def forward(self, x):
        y = super().forward(x)
        return y * 2 if y.sum().item() > 0 else y  # the line at fault


class Fixed(Small):
    """Works for the batch it was traced with only."""

    def forward(self, x):
        return super().forward(x).reshape(2, -1) if len(x) == 2 else super().forward(x)


class Random(Small):
    """Answers differently each time, as a network left in training mode would."""

    def forward(self, x):
        return super().forward(x) + torch.randn(4)


def info(name="small", digest="1" * 16):
    return ModelInfo(name, "unknown", False, "a test", digest)


@pytest.mark.slow
def test_every_batch_size_agrees_with_torch(untrained, artifacts, open_onnx):
    path = untrained.onnx(artifacts)
    run, module = open_onnx(path), untrained.module()
    batch = untrained.samples(Purpose.GATE, 5).arrays
    for n in (1, 3, 5):
        with torch.inference_mode():
            wanted = module(torch.from_numpy(batch["input"][:n])).numpy()
        got = run({"input": batch["input"][:n]})[0]
        assert got.shape == (n, 1000)
        assert np.abs(got - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.slow
def test_the_file_says_how_it_was_made(trained, artifacts):
    path = trained.onnx(artifacts)
    about = cache.notes(path)
    assert about["model_digest"] == trained.info.digest
    assert about["parity"]["max_rel_error"] < 1e-5
    assert about["parity"]["batches"] == [1, 4]
    assert about["build_s"] > 0
    assert about["opset"] == 18
    assert about["made_with"]["torch"] == importlib.metadata.version("torch")
    graph = onnx.load(str(path)).graph
    assert graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
    assert not list(path.parent.glob("*.data"))


def labels(path):
    graph = onnx.load(str(path)).graph
    values = (*graph.input, *graph.output, *graph.value_info)
    return [[d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in values]


@pytest.mark.slow
def test_an_exporter_with_names_of_its_own_still_gives_a_file_to_trust(tmp_path, monkeypatch):
    """As a torch version would that does not keep the name it was asked for."""
    from edgescope.artifacts import onnx_export_torch

    write = onnx_export_torch._write

    def under_another_name(net, path, opset):
        write(net, path, opset)
        data = onnx.load(str(path))
        for value in (*data.graph.input, *data.graph.output, *data.graph.value_info):
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param == "N":
                    dim.dim_param = "s77"
        onnx.save(data, str(path))

    monkeypatch.setattr(onnx_export_torch, "_write", under_another_name)
    path = onnx_export.onnx_file(info(), SPECS, Small, tmp_path)
    about = cache.notes(path)
    assert about["batch_axis_was"] == ["s77"]
    assert labels(path)[0] == ["N", 3, 8, 8]
    assert about["sha256"] == cache.content(path)
    assert cache.whole(path)


@pytest.mark.slow
def test_it_is_exported_once_and_quietly(tmp_path, capfd):
    made = []
    path = onnx_export.onnx_file(info(), SPECS, lambda: made.append(1) or Small(), tmp_path)
    assert onnx_export.onnx_file(info(), SPECS, lambda: made.append(1) or Small(), tmp_path) == path
    assert len(made) == 1
    assert capfd.readouterr().out == ""


@pytest.mark.slow
def test_another_model_gets_another_file(tmp_path):
    paths = {onnx_export.onnx_file(info(digest=d), SPECS, Small, tmp_path) for d in ("a", "b")}
    assert len(paths) == 2


def test_a_damaged_file_is_made_again(tmp_path):
    path = onnx_export.onnx_file(info(), SPECS, Small, tmp_path)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-9])
    onnx_export.onnx_file(info(), SPECS, Small, tmp_path)
    assert path.stat().st_size == size


@pytest.mark.slow
def test_a_file_that_computes_something_else_is_not_kept(tmp_path):
    with pytest.raises(ModelError, match=r"E-EXPORT-3: .*relative error"):
        onnx_export.onnx_file(info(), SPECS, Random, tmp_path)
    assert list(tmp_path.iterdir()) == []


class Overwrites(Small):
    """Has a layer that overwrites its input; `uses`: what it overwrote is used afterwards."""

    def __init__(self, uses=False):
        super().__init__()
        self.clip, self.uses = torch.nn.ReLU6(inplace=True), uses

    def forward(self, x):
        y = self.conv(x) - 1  # some of it is below zero
        return (y + self.clip(y) if self.uses else self.clip(y)).mean((2, 3))


@pytest.mark.slow
@pytest.mark.parametrize("uses", [False, True])
def test_a_layer_that_overwrites_its_input_is_exported_as_one_that_does_not(tmp_path, monkeypatch, uses):
    """Where what it overwrote is used, it is another network without, and stays as it is."""
    whole, seen, net = torch.onnx.export, [], Overwrites(uses)

    def exported(module, *args, **keys):
        seen.append(module.clip.inplace)
        return whole(module, *args, **keys)

    monkeypatch.setattr(torch.onnx, "export", exported)
    found = onnx_export.onnx_file(info(), SPECS, lambda: net, tmp_path)
    assert seen == [uses] and net.clip.inplace and found.exists()


def test_a_layer_overwrites_its_input_again_after_an_export_that_failed(tmp_path, monkeypatch):
    net = Overwrites()
    monkeypatch.setattr(torch.onnx, "export", lambda *args, **keys: 1 / 0)
    with pytest.raises(ModelError):
        onnx_export.onnx_file(info(), SPECS, lambda: net, tmp_path)
    assert net.clip.inplace


@pytest.mark.parametrize(("tensorrt", "opset"), [("7.1.3", 11), ("8.0", 13), ("8.2.1.8", 13), ("8.4.1", 17)])
def test_an_old_tensorrt_gets_the_opset_it_reads(tmp_path, tensorrt, opset, open_onnx):
    assert onnx_export.opset_for(tensorrt) == opset
    path = onnx_export.onnx_file(info(), SPECS, Small, tmp_path, opset=opset)
    about, model = cache.notes(path), onnx.load(str(path))
    assert about["opset"] == opset == model.opset_import[0].version
    assert about["exporter"] == "torchscript"
    assert about["parity"]["batches"] == [1, 4]
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
    assert model.graph.output[0].type.tensor_type.shape.dim[0].dim_param == "N"
    assert open_onnx(path)({"x": np.ones((3, 3, 8, 8), np.float32)})[0].shape == (3, 4)


@pytest.mark.slow
def test_each_opset_has_a_file_of_its_own_and_18_is_the_usual_one(tmp_path):
    paths = [
        onnx_export.onnx_file(info(), SPECS, Small, tmp_path, opset=opset) for opset in (None, 18, 13, 17)
    ]
    assert paths[0] == paths[1]
    assert len(set(paths)) == 3
    assert cache.notes(paths[0])["exporter"] == "torch.export"


@pytest.mark.parametrize("tensorrt", ["10", "10.3.0", "11.0"])
def test_a_late_tensorrt_takes_the_usual_opset(tensorrt):
    assert onnx_export.opset_for(tensorrt) is None


@pytest.mark.parametrize("text", ["", "6.0", "eight", "8.x"])
def test_what_is_no_known_tensorrt_is_refused(text):
    with pytest.raises(UsageError, match=r"E-EXPORT-5.*Try: "):
        onnx_export.opset_for(text)


@given(st.text())
def test_any_text_is_a_version_or_a_usage_error(text):
    with contextlib.suppress(UsageError):
        assert onnx_export.opset_for(text) in (11, 13, 17, None)


@pytest.mark.slow
def test_an_exporter_that_writes_another_opset_is_caught(tmp_path, monkeypatch):
    """As torch's newer exporter does: asked for 17, it quietly writes 18."""
    from edgescope.artifacts import onnx_export_torch

    monkeypatch.setattr(onnx_export_torch, "_trace", onnx_export_torch._write)
    with pytest.raises(ModelError, match=r"E-EXPORT-4: .*opset 18 .* 17 "):
        onnx_export.onnx_file(info(), SPECS, Small, tmp_path, opset=17)
    assert list(tmp_path.iterdir()) == []


def test_an_opset_nobody_writes_is_refused(tmp_path):
    with pytest.raises(UsageError, match="E-EXPORT-6"):
        onnx_export.onnx_file(info(), SPECS, Small, tmp_path, opset=7)


def test_the_simplifier_is_used_when_installed_and_its_file_kept_when_right(untrained, artifacts):
    pytest.importorskip("onnxslim")
    about = cache.notes(untrained.onnx(artifacts, 13))
    assert about["simplified"] == "onnxslim: 83 to 65 nodes"
    assert about["parity"]["max_rel_error"] < 1e-5


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda model: model, "nothing to leave out"),
        (lambda model: model.graph.node.pop() and model, "was refused"),
        (lambda model: negated(model), "was refused: ModelError"),
    ],
    ids=["the same", "broken", "other numbers"],
)
def test_a_simplified_file_that_is_no_better_or_wrong_is_not_kept(tmp_path, monkeypatch, change, said):
    slimmer = types.ModuleType("onnxslim")
    slimmer.slim = change
    monkeypatch.setitem(sys.modules, "onnxslim", slimmer)
    monkeypatch.setattr(cache, "versions", lambda names: dict.fromkeys(names, "1"))
    path = onnx_export.onnx_file(info(), SPECS, Small, tmp_path, opset=13)
    assert said in cache.notes(path)["simplified"]
    assert cache.whole(path)


def negated(model):
    """The same graph with other weights."""
    weight = model.graph.initializer[0]
    weight.CopyFrom(onnx.numpy_helper.from_array(-onnx.numpy_helper.to_array(weight), weight.name))
    return model


@pytest.mark.slow
@pytest.mark.parametrize("opset", [None, 13])
def test_large_weights_lie_beside_the_file(tmp_path, monkeypatch, opset, open_onnx):
    """What happens beyond protobuf's 2 GiB, with a limit of 100 bytes."""

    def seeded():
        torch.manual_seed(0)
        return Wide()

    inside = onnx_export.onnx_file(info(), SPECS, seeded, tmp_path / "inside", opset=opset)
    monkeypatch.setattr(onnx_write, "LIMIT", 100)
    path = onnx_export.onnx_file(info(), SPECS, seeded, tmp_path / "beside", opset=opset)
    about = cache.notes(path)
    assert sorted(p.name for p in path.parent.iterdir()) == sorted(
        [path.name, path.name + ".data", cache.sidecar(path).name]
    )
    assert about["bytes"] == path.stat().st_size + cache.external_data(path).stat().st_size
    assert cache.whole(path)
    x = np.ones((3, 3, 8, 8), np.float32)
    assert np.allclose(open_onnx(path)({"x": x})[0], open_onnx(inside)({"x": x})[0])
    cache.external_data(path).write_bytes(b"")
    assert not cache.whole(path)
    onnx_export.onnx_file(info(), SPECS, seeded, tmp_path / "beside", opset=opset)
    assert cache.whole(path)


def test_a_full_disk_leaves_nothing_and_is_named(tmp_path, monkeypatch):
    from edgescope.artifacts import onnx_export_torch

    def full(net, path, opset):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(onnx_export_torch, "_write", full)
    with pytest.raises(StoreError, match=r"No space left.*Try: free space"):
        onnx_export.onnx_file(info(), SPECS, Small, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_what_cannot_be_exported_names_the_users_line(tmp_path):
    line = next(
        i
        for i, text in enumerate(Path(__file__).read_text().splitlines(), 1)
        if "# the line at fault" in text
    )
    said = (
        rf"E-EXPORT-2.*test_export\.py:{line} in forward: return y \* 2.*Only the torch backends.*torch_eager"
    )
    with pytest.raises(ModelError, match=said):
        onnx_export.onnx_file(info(), SPECS, Peeks, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("opset", [None, 13])
def test_a_network_for_one_batch_size_is_not_kept(tmp_path, opset):
    with pytest.raises(ModelError, match=r"E-EXPORT-[23]"):
        onnx_export.onnx_file(info(), SPECS, Fixed, tmp_path, opset=opset)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_hostile_custom_model_names_its_line_and_still_runs_in_torch(tmp_path):
    model = zoo.get("hostile_models:raises")
    with pytest.raises(
        ModelError, match=r"hostile_models\.py:\d+ in forward: raise RuntimeError.*torch_eager"
    ):
        model.onnx(tmp_path)
    model = zoo.get("hostile_models:peeks")
    with pytest.raises(ModelError, match=r"hostile_models\.py:\d+ in forward: if .*item"):
        model.onnx(tmp_path)
    backend = registry.load(registry.BACKENDS, "torch_eager", "backend")()
    session = backend.load(backend.prepare(model, Spec(), tmp_path))
    assert np.isfinite(session(model.samples(Purpose.BENCH, 1).arrays)[0]).all()
    session.close()


@pytest.mark.slow
def test_a_cached_export_needs_no_torch(trained, artifacts):
    path = trained.onnx(artifacts)
    code = f"""
import sys
for name in ("torch", "onnx", "onnxscript", "timm", "torchvision"):
    sys.modules[name] = None
from pathlib import Path
from edgescope.models import zoo
from edgescope.models.base import Purpose
model = zoo.get("efficientnet_lite0")
assert model.onnx(Path({str(artifacts)!r})) == Path({str(path)!r})
assert len(model.samples(Purpose.BENCH, 4)) == 4
"""
    subprocess.run([sys.executable, "-c", code], check=True)
