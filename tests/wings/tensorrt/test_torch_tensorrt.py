"""Torch-TensorRT through a fake of the package; nothing here has seen TensorRT.

The fake turns the layers it is told to into an engine module that computes with PyTorch on the CPU.
"""

import sys
from collections import Counter
from types import SimpleNamespace

import pytest
import torch

from edgescope import registry
from edgescope.backends.base import Spec
from edgescope.backends.pytorch import module as shared
from edgescope.errors import ModelError, UnavailableError, UnsupportedError, UsageError
from edgescope.models import synthetic, zoo
from edgescope.models.base import Purpose, TensorSpec

INFO = (
    '{{"Layers": [{{"Name": "c", "LayerType": "CaskConvolution", "Inputs": [{{"Format/Datatype": "{}"}}]}}]}}'
)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.head = torch.nn.Linear(4 * 6 * 6, 5)

    def forward(self, x):
        return self.head(torch.relu(self.conv(x)).flatten(1))


class Model:
    info, reference = zoo.get("null").info, "torch_eager"
    inputs = (TensorSpec("x", (3, 8, 8), "float32"),)

    def module(self):
        return Net()

    def samples(self, purpose, n):
        return synthetic.samples(self.inputs, purpose, n)


class Engine(torch.nn.Module):
    """What `_run_on_acc_0` is in a compiled program."""

    def __init__(self, inner, info):
        super().__init__()
        self.inner, self.info = inner, info

    def forward(self, *inputs):
        return self.inner(*inputs)

    def get_layer_info(self):
        return self.info


class Fake:
    """The package torch_tensorrt, of a release that has explicit typing or not."""

    def __init__(self, *, explicit=True):
        self.calls, self.saved, self.info, self.engines = [], {}, INFO.format("FP16"), 1
        self.raises = None
        self.dynamo = SimpleNamespace(compile=self._new if explicit else self._old)

    def _new(self, program, inputs=None, *, use_explicit_typing=False):
        raise AssertionError("only its signature is looked at")

    def _old(self, program, inputs=None, *, enabled_precisions=None):
        raise AssertionError("only its signature is looked at")

    def compile(self, module, *, ir, inputs, **settings):
        if self.raises:
            raise self.raises
        self.calls.append((ir, [tuple(i.shape) for i in inputs], settings))
        traced = torch.fx.symbolic_trace(module)
        return Engine(module, self.info) if self.engines else traced

    def save(self, program, path, *, output_format, inputs):
        assert output_format == "exported_program"
        self.saved[len(self.saved)] = program
        with open(path, "w") as file:
            file.write(str(len(self.saved) - 1))

    def load(self, path):
        with open(path) as file:
            program = self.saved[int(file.read())]
        return SimpleNamespace(module=lambda: program)


@pytest.fixture
def fake(monkeypatch, request):
    made = Fake(explicit=getattr(request, "param", True))
    monkeypatch.setitem(sys.modules, "torch_tensorrt", made)
    monkeypatch.delitem(sys.modules, "edgescope.wings.tensorrt.torch_engine", raising=False)
    monkeypatch.setattr(shared, "require", lambda spec: shared.DTYPES[spec.precision])
    yield made
    sys.modules.pop("edgescope.wings.tensorrt.torch_engine", None)


def engine():
    return registry.load(registry.BACKENDS, "torch_tensorrt", "backend")()


def spec(precision="fp16", batch=1, **options):
    return Spec(precision, batch, options=options, device="cpu")  # the fake's engines are on the CPU


def test_a_compiled_program_answers_and_is_made_once(fake, tmp_path):
    fake.info = INFO.format("FP32")
    for _ in range(2):
        artifact = engine().prepare(Model(), spec("fp32", 2), tmp_path)
        session = engine().load(artifact)
        batch = Model().samples(Purpose.BENCH, 2).arrays
        with torch.inference_mode():
            wanted = Net()(torch.from_numpy(batch["x"])).numpy()
        assert abs(session(batch)[0] - wanted).max() < 1e-6
    assert [(ir, shapes) for ir, shapes, _ in fake.calls] == [("dynamo", [(2, 3, 8, 8)])]
    assert artifact.build_s is not None
    assert session.effective().precision == "fp32"


def test_another_batch_precision_or_option_is_another_program(fake, tmp_path):
    for asked in (spec(), spec(batch=2), spec("bf16"), spec(min_block=1), spec(graph=True), spec()):
        engine().prepare(Model(), asked, tmp_path)
    assert len(fake.calls) == 4  # a graph is captured later, around the same program


@pytest.mark.parametrize(
    ("said", "named"),
    [("FP16", "fp16"), ("Row major linear FP32", "fp32"), ("Int8", "int8"), ("no type", "unknown")],
)
def test_the_precision_is_that_of_the_engines_layers(fake, tmp_path, said, named):
    fake.info = INFO.format(said)
    effective = engine().load(engine().prepare(Model(), spec(), tmp_path)).effective()
    assert effective.precision == named
    assert "1 TensorRT engines; engine inspector" in effective.evidence


def test_engines_that_tell_nothing_are_said_to(fake, tmp_path):
    fake.info = "[]"
    effective = engine().load(engine().prepare(Model(), spec(), tmp_path)).effective()
    assert effective.precision == "fp16"
    assert "as requested: they list no layers" in effective.evidence


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_tf32_is_on_only_if_asked_for(fake, tmp_path, precision):
    fake.info = INFO.format("FP32")
    effective = engine().load(engine().prepare(Model(), spec(precision), tmp_path)).effective()
    assert fake.calls[0][2]["disable_tf32"] is (precision == "fp32")
    assert effective.precision == precision


@pytest.mark.parametrize("fake", [True, False], indirect=True, ids=["explicit", "older"])
def test_types_are_asked_for_as_the_release_takes_them(fake, tmp_path):
    engine().prepare(Model(), spec(), tmp_path)
    settings = fake.calls[0][2]
    assert settings.get("use_explicit_typing", settings.get("enabled_precisions")) in (True, {torch.float16})
    assert len({"use_explicit_typing", "enabled_precisions"} & set(settings)) == 1


def test_options_reach_the_compiler(fake, tmp_path):
    engine().prepare(Model(), spec(workspace_mb=2, builder_level=4, min_block=3, whole=True), tmp_path)
    settings = fake.calls[0][2]
    assert (settings["workspace_size"], settings["optimization_level"]) == (2 << 20, 4)
    assert (settings["min_block_size"], settings["require_full_compilation"]) == (3, True)


def test_a_network_of_which_it_takes_nothing_is_refused(fake, tmp_path):
    fake.engines = 0
    with pytest.raises(UnsupportedError, match=r"E-TORCHTRT-2: .*min_block=1"):
        engine().prepare(Model(), spec(), tmp_path)
    assert not list(tmp_path.glob("*.ep"))


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_what_stays_in_pytorch_obeys_the_precision_of_a_program_from_the_cache(
    fake, tmp_path, monkeypatch, precision
):
    artifact = engine().prepare(Model(), spec(precision), tmp_path)
    settled = []
    monkeypatch.setattr(shared, "settle", settled.append)
    engine().load(artifact)  # in a process of its own nothing has set the switches before
    assert settled == [artifact.spec]


@pytest.mark.network
def test_conversions_are_no_convolutions(fake):
    from edgescope.wings.tensorrt import torch_engine as backend

    class Converts(torch.nn.Module):
        def forward(self, x):
            return torch.ops.prims.convert_element_type(x, torch.float16)

    program = torch.export.export(Converts(), (torch.zeros(1, 3),)).module()
    assert backend._outside(program) == Counter()
    for name in (
        "aten.conv2d.default",
        "aten.convolution.default",
        "aten.conv_transpose2d.input",
        "aten.mm.default",
    ):
        assert backend.HEAVY.search(name), name
    for name in ("aten.addmm.default", "aten.bmm.default", "aten.baddbmm.default", "aten.linear.default"):
        assert backend.HEAVY.search(name), name


@pytest.mark.network
def test_heavy_operators_left_in_pytorch_are_counted(fake):
    from edgescope.wings.tensorrt import torch_engine as backend

    program = torch.export.export(Net(), (torch.zeros(1, 3, 8, 8),)).module()
    assert backend._outside(program) == Counter({"fp32": 2})
    told = backend.Engines({"kinds": {"fp16": 2}, "outside": {"fp32": 2}, "engines": 1, "tf32": False})
    assert told.effective(spec()).precision == "mixed (2 fp16, 2 fp32)"
    assert "left in PyTorch: 2 fp32" in told.effective(spec()).evidence


def test_a_network_that_cannot_be_compiled(fake, tmp_path):
    fake.raises = RuntimeError("Conversion of function torch._ops.aten.foo.default not supported!")
    with pytest.raises(ModelError, match=r"E-TORCHTRT-1.*aten\.foo\.default not supported"):
        engine().prepare(Model(), spec(), tmp_path)
    assert not list(tmp_path.glob("*"))


def test_int8_is_refused(fake, tmp_path):
    with pytest.raises(UnsupportedError, match=r"has no int8.*Model Optimizer"):
        engine().prepare(Model(), spec("int8"), tmp_path)


@pytest.mark.parametrize("options", [{"min_block": 0}, {"whole": 1}, {"workspace_mb": True}, {"layout": "x"}])
def test_options_that_make_no_sense(fake, tmp_path, options):
    with pytest.raises(UsageError, match=next(iter(options))):
        engine().prepare(Model(), spec(**options), tmp_path)


def test_without_the_package_the_way_to_it_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_tensorrt", None)
    monkeypatch.delitem(sys.modules, "edgescope.wings.tensorrt.torch_engine", raising=False)
    with pytest.raises(
        UnavailableError, match=r"torch_tensorrt cannot be loaded.*Try: pip install torch-tensorrt"
    ):
        engine()
    assert registry.home("torch_tensorrt") == "cuda"
