"""A deployed folder: run.py in a fresh process, without edgescope, gives the answers the gate judged by."""

import json
import os
import re
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import edgescope
from edgescope import cache, registry
from edgescope.backends.ort import about as ort_script
from edgescope.errors import StoreError, UnsupportedError, UsageError, WrongOutputError
from edgescope.models import zoo
from edgescope.records import Status, Trial
from edgescope.verify import judge, reference
from edgescope.wings.optimize import save, standalone

SOURCE = """
import torch

def net():
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(3, 8, 3, stride=2), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(1800, 10)]
    return torch.nn.Sequential(*layers).eval(), (torch.randn(1, 3, 32, 32),)

def heads():
    torch.manual_seed(0)
    return torch.nn.Conv2d(3, 1, 3).eval(), (torch.randn(1, 3, 16, 16),)
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory, answered_here):
    """A folder with a small network of the user's own, and a cache that holds nothing else."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "tiny_deploy.py").write_text(SOURCE)
    with pytest.MonkeyPatch.context() as patch, answered_here():
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        patch.setenv("EDGESCOPE_CACHE", str(folder / "cache"))
        yield folder


MEASURED = {}


def measured(backend, precision="fp32", model="tiny_deploy:net", **keys):
    """Return the result of a trial, which runs for the first of the tests that ask for it."""
    trial = Trial(
        model=model,
        backend=backend,
        precision=precision,
        min_s=0.05,
        max_s=0.05,
        warmup=0.0,
        **keys,
    )
    found = MEASURED[trial.id] = MEASURED.get(trial.id) or edgescope.run(trial)
    assert found.status in (Status.OK, Status.UNSTABLE), found.reason
    # a busy machine is unstable: nothing here is about that
    return replace(found, status=Status.OK, reason=None)


KINDS = [
    ("onnxruntime", {"options": {"threads": 1}}),
    ("openvino", {"batch": 2}),
    ("torch_eager", {"options": {"layout": "channels_last"}, "batch": 3}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "keys"), KINDS, ids=[k[0] for k in KINDS])
def test_run_py_alone_gives_the_references_answers(here, tmp_path, backend, keys):
    found = measured(backend, **keys)
    folder = save.save([found], [found], tmp_path / "out")
    model = zoo.get(found.trial.model, {}, found.trial.batch)
    samples = judge.gate_samples(model)
    np.savez(tmp_path / "in.npz", **{n: a[:6] for n, a in samples.arrays.items()})
    # no edgescope: the name is made impossible to import
    block = f"import runpy, sys; sys.modules['edgescope'] = None; sys.argv[1:] = {['in.npz', 'out.npz']!r};"
    run = f"runpy.run_path({str(folder / 'run.py')!r}, run_name='__main__')"
    subprocess.run([sys.executable, "-c", block + run], cwd=tmp_path, check=True)
    truth = reference.reference(model, lambda: pytest.fail("the reference is not in the cache"))
    with np.load(tmp_path / "out.npz") as got:
        assert np.abs(got["output_0"] - truth.gate[0][:6]).max() < 1e-3
        assert len(got.files) == 1
    text = (folder / "run.py").read_text()
    assert "import edgescope" not in text and "from edgescope" not in text
    card = json.loads((folder / "card.json").read_text())
    assert card["checked"]["run_py"]["passed"] and card["checked"]["when_measured"]["passed"]
    assert card["artifact"]["sha256"] == cache.content(folder / card["artifact"]["file"])
    assert card["measured"]["figures"]["p50_s"]["value"] > 0
    assert card["measured"]["figures"]["power_w"].keys() in ({"absent"}, {"value", "unit", "lo", "hi", "n"})
    assert card["trial"] == found.trial.to_json()
    read = (folder / "card.md").read_text()
    assert found.trial.label in read and card["artifact"]["sha256"] in read
    assert "median latency" in read and "None" not in read
    timed = card["measured"]["run_py"]
    assert 1 <= timed["calls"] <= 30 and 0 < timed["median_s"] < 3
    assert f"| run.py alone, median of its calls | {timed['median_s'] * 1e3:.4g} ms |" in read


@pytest.mark.slow
def test_the_card_names_the_gpus_of_the_machine_and_nothing_that_is_absent(here, tmp_path):
    found = measured("onnxruntime", options={"threads": 1})
    gpus = [{"name": "Orin", "uuid": "GPU-1"}, {"name": {"absent": "hidden"}}, {"name": "H200"}]
    stable = {"nvidia": {"gpus": gpus}, "cpu": {"isa": ["avx2"], "board": {"absent": "no file"}, "cores": 6}}
    found = replace(found, machine=replace(found.machine, stable=stable))
    read = (save.save([found], [found], tmp_path / "out") / "card.md").read_text()
    named = "nvidia: gpus Orin and H200; cpu: cores 6\n"
    assert f"* machine `{found.machine.id}`: {named}" in read


@pytest.mark.slow
def test_labels_of_which_the_outputs_are_no_scores_are_no_obstacle(here, tmp_path):
    """A detector's raw heads, judged on pictures that lie in a folder a class."""
    rng = np.random.default_rng(0)
    pictures = rng.standard_normal((120, 3, 16, 16), dtype=np.float32)
    np.savez(here / "labelled.npz", input=pictures, labels=np.arange(120) % 3)
    found = measured("onnxruntime", model="tiny_deploy:heads", data="labelled.npz", options={"threads": 1})
    assert "not one score a class" in found.verification.detail
    folder = save.save([found], [found], tmp_path / "out")
    card = json.loads((folder / "card.json").read_text())
    assert card["checked"]["run_py"]["passed"]
    done = subprocess.run([sys.executable, "run.py"], cwd=folder, capture_output=True, check=False)
    assert done.returncode == 0


@pytest.mark.process
def test_run_py_without_arguments_answers_the_sample(here, tmp_path):
    found = measured("onnxruntime", options={"threads": 1})
    folder = save.save([found], [found], tmp_path / "out")
    said = subprocess.run([sys.executable, "run.py"], cwd=folder, capture_output=True, text=True, check=True)
    assert "output 0 (1, 10): differs from fp32 by at most" in said.stdout
    assert re.search(r"^median of \d+ calls: \S+ s$", said.stdout, re.MULTILINE)
    assert save.save([found], [found], folder) == folder  # written before by us: written again
    for words, code, said in (
        (["--help"], 0, "usage: run.py"),
        (["--chekc"], 2, "--chekc"),
        (["gone.npz"], 2, "gone.npz"),
        (["--check", ".", "x"], 2, ""),
        (["card.md"], 2, "card.md"),  # of a network of which nobody knows how it takes pictures
    ):
        done = subprocess.run(
            [sys.executable, "run.py", *words], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == code and said in done.stdout + done.stderr, words


@pytest.mark.slow
def test_a_lost_file_is_built_again_and_a_changed_one_is_refused(here, tmp_path, monkeypatch):
    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path / "cache"))  # the other tests keep their file
    found = measured("onnxruntime", options={"threads": 1}, seed=1)
    path = Path(found.artifact["path"])
    path.unlink()
    with pytest.raises(StoreError, match="E-DEPLOY-4"):
        save.save([replace(found, artifact={**found.artifact, "digest": "0" * 64})], [found], tmp_path / "a")
    assert path.is_file()


@pytest.mark.slow
def test_outputs_that_are_not_the_judged_ones_are_never_handed_over(here, tmp_path, monkeypatch):
    found = measured("onnxruntime", options={"threads": 1})
    plain, wrong = ort_script.PLAIN, "[-a for a in session.run(None, batch)]"
    monkeypatch.setattr(ort_script, "PLAIN", plain.replace("session.run(None, batch)", wrong))
    with pytest.raises(WrongOutputError, match="E-DEPLOY-5"):
        save.save([found], [found], tmp_path / "out")
    broken = plain.replace("session.run(None, batch)", "session.walk(batch)")
    monkeypatch.setattr(ort_script, "PLAIN", broken)
    with pytest.raises(WrongOutputError, match=r"E-DEPLOY-6.*no attribute 'walk'"):
        save.save([found], [found], tmp_path / "other")
    monkeypatch.undo()
    assert save.save([found], [found], tmp_path / "out") == tmp_path / "out"  # what failed is in nobody's way
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]
    assert save.save([found], [found], tmp_path / "deep/er") == tmp_path / "deep/er"
    assert (tmp_path / "deep/er/run.py").is_file()


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


@pytest.mark.slow
def test_an_earlier_folder_is_replaced_whole_or_left_as_it_was(here, tmp_path, monkeypatch):
    first, second = measured("torch_eager", **KINDS[2][1]), measured("onnxruntime", options={"threads": 1})
    folder = save.save([first], [first], tmp_path / "out")
    before = contents(folder)
    wrong = ort_script.PLAIN.replace("session.run(None, batch)", "[-a for a in session.run(None, batch)]")
    monkeypatch.setattr(ort_script, "PLAIN", wrong)
    with pytest.raises(WrongOutputError, match="E-DEPLOY-5"):
        save.save([second], [second], folder)
    assert contents(folder) == before
    monkeypatch.undo()
    real = Path.rename
    monkeypatch.setattr(
        Path,
        "rename",
        lambda p, to: real(p, to) if p.name != "new" else (_ for _ in ()).throw(OSError("busy")),
    )
    with pytest.raises(StoreError, match=r"E-DEPLOY-8.*busy"):
        save.save([second], [second], folder)
    assert contents(folder) == before
    monkeypatch.undo()
    save.save([second], [second], folder)
    assert sorted(contents(folder)) == [
        "card.json",
        "card.md",
        "check.py",
        "model.onnx",
        "run.py",
        "sample.npz",
    ]
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.slow
def test_what_the_user_put_beside_a_card_is_not_deleted(here, tmp_path):
    found = measured("onnxruntime", options={"threads": 1})
    folder = save.save([found], [found], tmp_path / "out")
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"E-DEPLOY-1.*notes\.txt"):
        save.save([found], [found], folder)
    assert (folder / "notes.txt").read_text() == "mine"


@pytest.mark.slow
def test_weights_beside_the_onnx_file_are_copied_and_named_on_the_card(here, tmp_path):
    onnx = pytest.importorskip("onnx")
    weight = onnx.numpy_helper.from_array(np.eye(4, 3, dtype=np.float32), "w")
    ports = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", n])
        for name, n in (("x", 4), ("y", 3))
    ]
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = onnx.helper.make_graph([node], "g", ports[:1], ports[1:], [weight])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    path = here / "beside.onnx"
    onnx.save(model, path, save_as_external_data=True, location="beside.bin", size_threshold=0)
    found = measured("onnxruntime", model=zoo.pin(str(path)), options={"threads": 1})
    folder = save.save([found], [found], tmp_path / "out")
    card = json.loads((folder / "card.json").read_text())
    digest = cache.content(folder / "beside.bin")
    assert card["artifact"]["weights"] == {"beside.bin": {"sha256": digest, "bytes": 48}}
    assert digest in (folder / "card.md").read_text()
    save.save([found], [found], folder)  # its own weights are nothing else


def test_a_folder_with_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(UsageError, match="E-DEPLOY-1"):
        save.ready(tmp_path)
    assert save.ready(tmp_path / "new") == tmp_path / "new" and save.ready(tmp_path / "new/er")
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]  # what is refused later leaves no folder


def test_a_folder_that_cannot_be_made_names_the_flag(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match=r"E-DEPLOY-7: --save .*file/out") as raised:
        save.ready(tmp_path / "file/out")
    assert "EDGESCOPE_CACHE" not in str(raised.value)
    with pytest.raises(UsageError, match="E-DEPLOY-1"):
        save.ready(tmp_path / "file")


class FakeOrt:
    """An ONNX Runtime that takes the providers `takes`."""

    def __init__(self, takes):
        self.takes, self.loaded = takes, 0

    def preload_dlls(self):
        self.loaded += 1

    def SessionOptions(self):
        return type("Options", (), {"add_free_dimension_override_by_name": lambda *a: None})()

    def InferenceSession(self, path, options, providers):
        assert self.loaded == 1  # before the session
        takes = self.takes
        able = {
            "get_providers": lambda s: takes,
            "get_inputs": lambda s: [],
            "io_binding": lambda s: None,
        }
        return type("Session", (), able)()


@pytest.mark.parametrize(("backend", "graph"), [("onnxruntime", 0), ("onnxruntime", 1), ("ort_tensorrt", 0)])
def test_run_py_does_not_go_on_where_the_runtime_fell_back(tmp_path, monkeypatch, backend, graph):
    options = {"graph": True} if graph else {}
    trial = Trial(model="m", backend=backend, device="cuda", options=options)
    (tmp_path / "run.py").write_text(standalone.script(trial, "model.onnx", {"a": (2,)}))
    asked = "TensorrtExecutionProvider" if backend == "ort_tensorrt" else "CUDAExecutionProvider"
    fallen = ["CUDAExecutionProvider"] if backend == "ort_tensorrt" else ["CPUExecutionProvider"]
    monkeypatch.setitem(sys.modules, "onnxruntime", FakeOrt(fallen))
    with pytest.raises(SystemExit, match=f"took {fallen[0]}, not {asked}"):
        runpy.run_path(str(tmp_path / "run.py"))
    monkeypatch.setitem(sys.modules, "onnxruntime", FakeOrt([asked, *fallen]))
    runpy.run_path(str(tmp_path / "run.py"))


def runs_here(backend):
    """Whether an engine runs a network of tensors in its own process; one of prompts has no run.py."""
    return not registry.facts(backend).READS & {"endpoint", "gguf"}


def test_a_server_has_no_run_py():
    with pytest.raises(UnsupportedError) as raised:
        standalone.script(Trial(model="http://127.0.0.1:1/v1"), "", {})
    assert raised.value.message.code == "E-DEPLOY-2"


@pytest.mark.parametrize("backend", sorted(filter(runs_here, set(registry.BACKENDS) - {"null"})))
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_script_is_valid_python(backend, device):
    options = {"graph": True, "layout": "channels_last", "tune": "max-autotune", "threads": 2}
    for given in ({}, options):
        trial = Trial(model="m", backend=backend, device=device, precision="fp32", options=given)
        text = standalone.script(trial, "model.bin", {"a": (2,), "b": ()})
        compile(text, "run.py", "exec")
        assert '"model.bin"' in text and "{'a': (2,), 'b': ()}" in text


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_run_py_closes_the_sizes_that_a_file_leaves_open(tmp_path, backend):
    """As the measured session did: OpenVINO takes a tenth longer where height and width are open."""
    from onnx import TensorProto, helper, save_model

    shape = ["rows", 3, "height", "width"]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "open", ends[:1], ends[1:])
    opset = [helper.make_opsetid("", 17)]
    save_model(helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "model.onnx")
    trial = Trial(model="m", backend=backend, batch=2)
    (tmp_path / "run.py").write_text(standalone.script(trial, "model.onnx", {"x": (3, 8, 6)}))
    found = runpy.run_path(str(tmp_path / "run.py"))
    if backend == "onnxruntime":
        closed = found["session"].get_inputs()[0].shape
    else:
        closed = list(found["request"].get_compiled_model().inputs[0].shape)
    assert closed == [2, 3, 8, 6]
    (answer,) = found["run"]({"x": np.full((2, 3, 8, 6), -1.0, np.float32)})
    assert answer.shape == (2, 3, 8, 6) and not answer.any()


def test_what_has_no_script_says_so():
    with pytest.raises(UnsupportedError, match="E-DEPLOY-2"):
        standalone.script(Trial(model="m", backend="null"), "model.bin", {"a": (2,)})


@pytest.mark.slow
def test_run_py_keeps_to_the_affinity_mask_as_the_measured_session_did(here, tmp_path):
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("one core: every mask is all of them")
    found = measured("onnxruntime")
    folder = save.save([found], [found], tmp_path / "out")
    code = "import runpy, sys; sys.argv[1:] = []; run = runpy.run_path('run.py', run_name='__main__');"
    code += "print('threads', run['session'].get_session_options().intra_op_num_threads)"

    def threads(mask):
        command = ["taskset", "-c", mask, sys.executable, "-c", code]
        said = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
        return int(said.rpartition("threads ")[2])

    assert threads(str(cores[0])) == 1
    if len(cores) == os.cpu_count():
        assert threads(",".join(map(str, cores))) == 0  # the runtime's choice, as it was measured
