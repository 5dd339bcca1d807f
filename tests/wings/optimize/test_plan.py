"""A plan for a board that is not here: its folder, what comes back (recorded times, constructed logs), the ranking."""

import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from edgescope.cli.main import main
from edgescope.devices import recording, replay
from edgescope.errors import EdgescopeError
from edgescope.records import Absent, Measured, Status, Trust
from edgescope.store.results import Store
from edgescope.wings.optimize import board_script, plan, returned

pytestmark = pytest.mark.process

TIMES = json.loads((Path(__file__).parents[2] / "recorded_traces/trtexec_times_resnet18.json").read_text())
#: How much shorter each candidate's times are than the recorded ones, and how rounds differ.
FASTER = {"fp32": 1.0, "fp16": 2.0, "int8": 3.0}
SPREAD = (1.0, 1.01, 0.99, 1.005, 0.995, 1.002)


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """Two convolutions and a head, as a file of the user's."""
    make, tensor = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    rng = np.random.default_rng(1)
    shapes = {"w1": (16, 3, 3, 3), "w2": (16, 16, 3, 3), "w3": (16 * 49, 10)}
    scaled = {n: rng.normal(0, np.prod(s[1:] if len(s) > 2 else s[:1]) ** -0.5, s) for n, s in shapes.items()}
    stored = [onnx.numpy_helper.from_array(w.astype("float32"), n) for n, w in scaled.items()]
    nodes = [
        make("Conv", ["x", "w1"], ["a"], "conv1", strides=[2, 2], pads=[1, 1, 1, 1]),
        make("Relu", ["a"], ["b"], "relu1"),
        make("Conv", ["b", "w2"], ["c"], "conv2", pads=[0, 0, 1, 1]),
        make("Flatten", ["c"], ["d"], "flat"),
        make("MatMul", ["d", "w3"], ["y"], "head"),
    ]
    ends = [tensor("x", 1, ["N", 3, 16, 16])], [tensor("y", 1, ["N", 10])]
    graph = onnx.helper.make_graph(nodes, "net", *ends, stored)
    opset = [onnx.helper.make_opsetid("", 13)]
    path = tmp_path_factory.mktemp("network") / "net.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), str(path))
    return path


@pytest.fixture(scope="module")
def made(network, tmp_path_factory):
    """A plan for an Orin Nano with JetPack 6.2.1, and the folder that its script would have packed."""
    folder = tmp_path_factory.mktemp("plan") / "net"
    patch = pytest.MonkeyPatch()
    patch.setattr(plan, "ROUNDS", 4)
    patch.setenv("EDGESCOPE_CACHE", str(tmp_path_factory.mktemp("cache")))
    data = network.with_name("data.npz")
    rng = np.random.default_rng(5)
    inputs = rng.normal(size=(64, 3, 1, 1)) + rng.normal(size=(64, 3, 16, 16))
    np.savez(data, x=inputs.astype("float32"))
    chosen = {"precision": ["fp16", "int8"], "data": str(data)}
    found = plan.plan(network, "orin_nano", folder, jetpack="6.2.1", **chosen)
    answered(folder)
    yield found
    patch.undo()


@pytest.fixture
def back(made, tmp_path, monkeypatch):
    """A copy of what came back."""
    monkeypatch.setenv("EDGESCOPE_STORE", str(tmp_path / "store"))
    return Path(shutil.copytree(made.folder / "results", tmp_path / "results"))


def answered(folder):
    """Write what run.sh leaves on an Orin Nano: recorded times, answers that ONNX Runtime computes, logs as of 10.3."""
    page, results = json.loads((folder / plan.PLAN).read_text()), folder / "results"
    (results / "board").mkdir(parents=True)
    replay.materialise(recording.read(recording.find("orin_nano")), results / "board")
    (results / "architecture").write_text("aarch64\n")
    shutil.copyfile(folder / plan.PLAN, results / plan.PLAN)
    sums = (f"{sha}  {name}\n" for name, sha in page["files"].items())
    (results / "files.sha256").write_text("".join(sums))
    forms = {c["name"]: folder / c["form"] for c in page["candidates"]}
    for number, (step, flags) in enumerate(page["steps"].items()):
        kind, _, name = step.partition("-")
        out = results / step
        out.mkdir()
        (out / board_script.LOG).write_text(log(flags, number))
        (out / board_script.CODE).write_text("0\n")
        (out / board_script.BEGAN).write_text(f"{1_790_000_000 + 20 * number}\n")
        for moment in (board_script.BEFORE, board_script.AFTER):
            (out / moment).write_text("NV Power Mode: 15W\n0\n")
        if kind.startswith("run"):
            exported(out, name, FASTER[name] * SPREAD[int(kind[3:])])
        if kind.startswith("gate"):
            (out / "outputs.json").write_text(json.dumps(outputs(folder, flags, forms[name])))


def log(flags, number):
    banner, stamp = "TensorRT.trtexec [TensorRT v100300] [b26]", "[11/29/2026-10:00:00] [I]"
    said = [
        f"&&&& RUNNING {banner} # /usr/src/tensorrt/bin/trtexec {' '.join(flags)}",
        f"{stamp} Selected Device: Orin",
        f"{stamp} Compute Capability: 8.7",
        f"{stamp} Engine built in {30 + number} sec.",
        f"{stamp} Output binding for y with dimensions 1x10 is created.",
        f"{stamp} Starting inference",
        f"{stamp} Timing trace has 40 queries over 0.01 s",
        f"{stamp} Throughput: 3570 qps",
        f"&&&& PASSED {banner} # /usr/src/tensorrt/bin/trtexec {' '.join(flags)}",
    ]
    return "\n".join(said) + "\n"


def exported(out, name, faster):
    start = TIMES[0]["startEnqMs"]
    moved = [
        {k: start + (v - start) / faster if v > 100 else v / faster for k, v in row.items()} for row in TIMES
    ]
    (out / "times.json").write_text(json.dumps(moved))
    word = {"fp32": "Float", "fp16": "Half", "int8": "Int8"}[name]
    layer = {"Name": "conv1", "LayerType": "CaskConvolution", "ParameterType": "Convolution"}
    layer |= {"Inputs": [{"Name": "x", "Format/Datatype": f"Row major linear {word} format"}]}
    layer |= {"Weights": {"Type": word, "Count": 72}, "TacticName": "sm80_xmma_fprop"}
    (out / "layers.json").write_text(json.dumps({"Layers": [layer], "Bindings": ["x", "y"]}))


def outputs(folder, flags, form):
    given = dict(flag.lstrip("-").partition("=")[::2] for flag in flags)
    rows = [int(n) for n in given["shapes"].partition(":")[2].split("x")]
    batch = np.fromfile(started_in(folder, flags) / "input0.bin", np.float32).reshape(rows)
    session = ort.InferenceSession(str(form), providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {"x": batch})
    return [{"name": "y", "dimensions": "x".join(map(str, got.shape)), "values": got.ravel().tolist()}]


def started_in(folder, flags):
    """The folder that run.sh starts a step in."""
    steps = json.loads((folder / plan.PLAN).read_text())["steps"]
    name = next(step for step, told in steps.items() if told == flags)
    line = next(line for line in (folder / plan.SCRIPT).read_text().splitlines() if f"step {name} " in line)
    return folder / line.partition(f"step {name} ")[2].split()[0]


def ranked(back, **given):
    return returned.returned(back, board="orin_nano", **given)


def code_of(back, **given):
    with pytest.raises(EdgescopeError) as error:
        ranked(back, **given)
    return error.value.code


def test_the_folder_holds_what_can_be_made_here(made):
    names = [c.name for c in made.candidates]
    assert names == ["fp32", "int8", "fp16"], "the baseline first, then the most promising"
    forms = {c.name: c.form for c in made.candidates}
    assert forms["fp16"] == forms["fp32"] != forms["int8"], "TensorRT 10 lowers fp16 itself"
    kinds = {n.op_type for n in onnx.load(str(made.folder / forms["int8"])).graph.node}
    assert "QuantizeLinear" in kinds
    page = json.loads((made.folder / plan.PLAN).read_text())
    assert page["files"] == plan.contents(made.folder)
    gated = {c.name: c.gated for c in made.candidates}
    assert "differ from fp32" in gated["int8"]
    assert "on the board" in gated["fp16"]


def test_the_script_is_sh_and_speaks_the_boards_trtexec(made):
    script = made.folder / plan.SCRIPT
    text = script.read_text()
    assert "--skipInference" in text
    assert "--stronglyTyped" not in text
    assert str(made.folder) not in text, "no path of this machine"
    assert str(Path.home()) not in text


@pytest.mark.process
def test_a_shell_takes_the_script(made):
    assert subprocess.run(["sh", "-n", str(made.folder / plan.SCRIPT)], check=False).returncode == 0


def test_candidates_run_in_turns_and_every_other_round_backwards(made):
    runs = [s.name for s in made.steps if s.name.startswith("run")]
    assert len(runs) == 4 * 3
    assert runs[:6] == ["run0-fp32", "run0-int8", "run0-fp16", "run1-fp16", "run1-int8", "run1-fp32"]


def test_what_came_back_is_ranked_with_intervals(back, tmp_path):
    found = ranked(back, objective="latency")
    assert found.pick.row is not None
    assert found.pick.row.trial.precision == "int8"
    speed = {r.trial.precision: r["speedup"] for r in found.variants.rows}
    assert isinstance(speed["int8"], Measured)
    assert speed["int8"].lo < 3.0 < speed["int8"].hi < 3.3
    assert speed["fp16"].value == pytest.approx(2.0, rel=0.03)
    assert {r.status for r in found.results} == {Status.OK}
    assert {r.driver for r in found.results} == {"plan"}
    assert len(list(Store(tmp_path / "store").results())) == 3 * 4


@pytest.mark.slow
def test_what_nothing_measured_is_absent_and_the_machine_is_the_board(back):
    found = ranked(back)
    one = found.results[0]
    assert one.machine.stable["jetson"]["board"] == "Jetson Orin Nano"
    assert one.machine.stable["cpu"]["architecture"] == "aarch64"
    assert one.machine.state["packages"]["tensorrt"] == "10.3.0.26"
    assert one.verdict.trust is Trust.UNKNOWN
    for name in ("power_w", "peak_rss_bytes", "energy_per_sample_j"):
        assert isinstance(one.metrics[name], Absent), name
    assert one.started_at.startswith("2026-09-21")
    assert isinstance(one.metrics["build_s"], Measured)


@pytest.mark.slow
def test_the_boards_own_answers_are_judged(back):
    for folder in back.glob("gate*-int8"):
        told = json.loads((folder / "outputs.json").read_text())
        told[0]["values"] = [-v for v in told[0]["values"]]
        (folder / "outputs.json").write_text(json.dumps(told))
    found = ranked(back)
    rows = {r.trial.precision: r for r in found.variants.rows}
    assert rows["int8"].status is Status.WRONG_OUTPUT
    assert found.pick.row.trial.precision == "fp16"


@pytest.mark.slow
def test_without_its_answers_a_variant_is_timed_and_never_picked(back):
    for folder in back.glob("gate*-int8"):
        shutil.rmtree(folder)
    found = ranked(back)
    row = next(r for r in found.variants.rows if r.trial.precision == "int8")
    assert "W-PLAN-1" in row.rejected
    assert found.pick.row.trial.precision == "fp16"


@pytest.mark.slow
def test_a_build_that_failed_says_what_trtexec_said(back):
    log_file = back / "build-int8" / board_script.LOG
    text = log_file.read_text().replace("&&&& PASSED", "[11/29/2026-10:00:01] [E] out of memory\n&&&& FAILED")
    log_file.write_text(text)
    (back / "build-int8" / board_script.CODE).write_text("1\n")
    found = ranked(back)
    failed = [r for r in found.results if r.trial.precision == "int8"]
    assert [r.reason.code for r in failed] == ["E-TRTX-10"]
    assert found.pick.row.trial.precision == "fp16"


@pytest.mark.slow
def test_the_same_results_are_stored_once(back, tmp_path):
    first, again = ranked(back), ranked(back)
    assert [r.id for r in first.results] == [r.id for r in again.results]
    assert len(list(Store(tmp_path / "store").results())) == len(first.results)


def test_another_power_mode_is_refused(back):
    (back / "run3-fp16" / board_script.AFTER).write_text("NV Power Mode: MAXN_SUPER\n2\n")
    assert code_of(back) == "E-PLAN-12"


def test_another_file_is_refused(back):
    sums = back / "files.sha256"
    sums.write_text(sums.read_text().replace(sums.read_text()[:8], "00000000", 1))
    assert code_of(back) == "E-PLAN-7"


def test_another_command_is_refused(back):
    log_file = back / "run2-int8" / board_script.LOG
    log_file.write_text(log_file.read_text().replace("--infStreams=1", "--infStreams=4"))
    assert code_of(back) == "E-PLAN-8"


def test_another_board_is_refused(back):
    shutil.rmtree(back / "board")
    (back / "board").mkdir()
    replay.materialise(recording.read(recording.find("agx_orin")), back / "board")
    assert code_of(back) == "E-PLAN-11"
    assert code_of(back.parent / "results", model="lenet5") == "E-PLAN-11"


def test_another_tensorrt_is_refused(back):
    for file in back.glob("*/" + board_script.LOG):
        file.write_text(file.read_text().replace("v100300] [b26]", "v101600] [b10]"))
    with pytest.raises(EdgescopeError) as error:
        ranked(back)
    assert error.value.code == "E-PLAN-11"
    assert error.value.fix.endswith("--jetpack 7.2.1")


def test_a_plan_that_was_changed_is_refused(back):
    page = json.loads((back / plan.PLAN).read_text())
    page["candidates"][0]["trial"]["batch"] = 2
    (back / plan.PLAN).write_text(json.dumps(page))
    assert code_of(back) == "E-PLAN-6"


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8b\x08garbage"])
def test_a_file_that_is_no_archive_is_refused(tmp_path, content):
    file = tmp_path / "results.tgz"
    file.write_bytes(content)
    assert code_of(file) == "E-PLAN-6"


def test_an_archive_writes_nothing_outside_its_folder(back, tmp_path):
    file = tmp_path / "results.tgz"
    with tarfile.open(file, "w:gz") as archive:
        archive.add(back, "results")
        archive.add(back / plan.PLAN, "../outside.json")
        archive.add(back / plan.PLAN, "/tmp/edgescope-outside.json")
    into = tmp_path / "into"
    into.mkdir()
    assert (returned.unpacked(file, into) / plan.PLAN).is_file()
    assert not (tmp_path / "outside.json").exists()
    assert not Path("/tmp/edgescope-outside.json").exists()


def test_that_no_run_came_back_is_said(back):
    for pattern in ("run*-*", "gate*-*"):
        for folder in back.glob(pattern):
            shutil.rmtree(folder)
    assert code_of(back) == "E-PLAN-10"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--for", "orin_nana"], "E-PLAN-1"),
        (["--for", "igx_orin"], "E-PLAN-1"),
        (["--for", "nano", "--jetpack", "6.2"], "E-PLAN-2"),
        (["--for", "orin_nano", "--processes", "2"], "E-PLAN-5"),
        (["--for", "orin_nano", "--on", "ssh://u@b"], "E-PLAN-13"),
    ],
)
def test_what_cannot_be_planned_is_said(network, words, code, capsys, tmp_path):
    main(["optimize", str(network), *words, "--save", str(tmp_path / "new")])
    assert code in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_folder_with_something_else_stays(network, tmp_path, capsys):
    (tmp_path / "photo.jpg").write_bytes(b"mine")
    main(["optimize", str(network), "--for", "orin_nano", "--save", str(tmp_path)])
    assert "E-PLAN-4" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["photo.jpg"]


def test_typed_it_ends_in_the_card_and_the_saved_pick(made, back, tmp_path, capsys):
    archive = tmp_path / "results.tgz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(back, "results")
    words = [
        "optimize",
        "--for",
        "orin_nano",
        "--measured",
        str(archive),
        "--save",
        str(tmp_path / "pick"),
        "--json",
    ]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["saved"] == str(tmp_path / "pick")
    card = json.loads((tmp_path / "pick/card.json").read_text())
    assert card["trial"]["precision"] == "int8"
    assert card["measured"]["run_py"] is None
    assert card["artifact"]["sha256"] == card["artifact"]["measured_digest"]
    assert card["checked"]["when_measured"]["passed"]
    assert "never run" in (tmp_path / "pick/card.md").read_text()
    compile((tmp_path / "pick/run.py").read_text(), "run.py", "exec")


def test_a_nano_is_planned_with_what_its_jetpack_has(network, tmp_path, monkeypatch):
    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path / "cache"))
    found = plan.plan(network, "nano", tmp_path / "nano")
    assert (found.software.tensorrt, found.software.python) == ("8.2.1", "3.6")
    assert [c.name for c in found.candidates] == ["fp32", "fp16"]
    assert {m.label.split()[2] for m in found.not_here} == {"int8", "tf32"}
    text = (tmp_path / "nano" / plan.SCRIPT).read_text()
    assert "--buildOnly --explicitBatch" in text
    assert "--skipInference" not in text
