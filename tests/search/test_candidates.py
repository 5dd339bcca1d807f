"""Candidates as data: which are proposed, which names choose them, what is said of those that cannot run."""

import importlib.util
from dataclasses import replace
from types import SimpleNamespace

import pytest

from edgescope import registry
from edgescope.errors import UnavailableError, UsageError
from edgescope.models import zoo
from edgescope.records import PRECISIONS, Trial
from edgescope.registry import EITHER
from edgescope.search import candidates
from edgescope.search.candidates import Installed, of_device, propose

CPU, CUDA = Trial(model="resnet50"), Trial(model="resnet50", device="cuda")
OPENVINO_BF16 = {"backend": "openvino", "precision": "bf16"}
TUNED = {"tune": "max-autotune"}
ALL = {name: Installed(True, {"layout", "graph", "tune", "qdq", "threads"}) for name in registry.BACKENDS}


def real():
    """Return the options that the backends have, of those that can be imported here."""
    found = {}
    for name in registry.BACKENDS:
        try:
            options = registry.load(registry.BACKENDS, name, "backend").OPTIONS
        except UnavailableError:
            continue
        found[name] = Installed(True, tuple(options))
    return found


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_table_is_sound(device):
    table = of_device(device)
    assert (table[0].backend, table[0].precision, table[0].options) == ("torch_eager", "fp32", {})
    assert len({c.label for c in table}) == len(table)
    assert {c.precision for c in table} <= set(PRECISIONS)
    for c in table:
        assert device in registry.BACKENDS[c.backend].devices, c.label
        able = registry.about(c.backend).PRECISIONS.get(device)
        assert able is None or c.precision in able, c.label


@pytest.mark.wings
@pytest.mark.parametrize(
    "name", [n for n in ("torch_eager", "torch_compile", "onnxruntime", "openvino") if n in registry.BACKENDS]
)
def test_every_option_in_the_table_is_one_its_backend_has(name):
    if importlib.util.find_spec(name.split("_")[0]) is None:
        pytest.skip(f"{name} is not installed")
    known = set(registry.load(registry.BACKENDS, name, "backend").OPTIONS)
    used = {o for device in EITHER for c in of_device(device) if c.backend == name for o in c.options}
    assert used <= known


@pytest.mark.wings
def test_an_onnx_file_is_tried_by_engines_that_read_one():
    found = propose(Trial(model="m.onnx#0123456789ab")).trials
    assert {t.backend for t in found} >= {"onnxruntime", "openvino"}
    assert not any(t.backend.startswith("torch") for t in found)
    assert propose(CPU).trials[0].label == "torch_eager fp32 b1"


@pytest.mark.wings
def test_names_choose_and_the_baseline_stays():
    found = propose(CPU, backend=["openvino"], exclude=[{"precision": "bf16"}])
    assert [t.label for t in found.trials][:3] == [
        "torch_eager fp32 b1",
        "openvino fp32 b1",
        "openvino int8 b1",
    ]
    assert {t.backend for t in found.trials} == {"torch_eager", "openvino"}
    without = propose(CUDA, exclude=[{"graph": True}]).trials
    assert without and not any(t.options.get("graph") for t in without)
    only = propose(CUDA, backend=["torch_compile", "torch_eager"], precision=["fp16"]).trials[1:]
    assert only and {(t.backend, t.precision) for t in only} == {
        ("torch_compile", "fp16"),
        ("torch_eager", "fp16"),
    }


@pytest.mark.wings
def test_an_excluded_candidate_has_all_of_the_values():
    whole = {(t.backend, t.precision) for t in propose(CPU).trials}
    left = {(t.backend, t.precision) for t in propose(CPU, exclude=[OPENVINO_BF16]).trials}
    assert whole - left == {("openvino", "bf16")}
    two = propose(CPU, exclude=[{"backend": "openvino"}, {"precision": "bf16"}]).trials
    assert not any(t.backend == "openvino" or t.precision == "bf16" for t in two)


@pytest.mark.parametrize("base", [CPU, CUDA], ids=["cpu", "cuda"])
def test_what_compiles_for_minutes_is_tried_where_its_own_option_asks_for_it(base):
    def tuned(options=TUNED, **names):
        trials = propose(replace(base, options=options), **names).trials
        return [t for t in trials if "tune" in t.options]

    usual = propose(base).trials
    assert not tuned({}) and not tuned({}, backend=["torch_compile"])
    first, second = tuned()
    assert tuned(
        backend=["torch_compile"], exclude=[{"tune": "max-autotune", "precision": first.precision}]
    ) == [second]
    found = propose(replace(base, options=TUNED)).trials
    assert len(found) == len(usual) + 2 and set(usual) < set(found)


@pytest.mark.wings
def test_a_name_that_chooses_nothing_for_this_model_is_said_and_does_not_stop_the_others():
    onnx = Trial(model="m.onnx#0123456789ab")
    plain = propose(onnx, backend=["openvino"])
    found = propose(onnx, backend=["openvino", "torch_compile"])
    assert found.trials == plain.trials and plain.not_here == ()
    (missing,) = found.not_here
    assert (missing.label, missing.reason) == ("torch_compile", "no candidate that reads this model has it")
    with pytest.raises(UsageError, match=r"E-TRY-1: .* torch_compile bf16 "):
        propose(onnx, backend=["torch_compile"], precision=["bf16"])
    with pytest.raises(UsageError, match=r"E-TRY-1: .* --exclude tune=min"):
        propose(onnx, exclude=[{"tune": "min"}])


@pytest.mark.wings
@pytest.mark.parametrize(
    ("names", "fix"),
    [
        ({"backend": ["openvno"]}, "--backend openvino"),
        ({"precision": ["int9"]}, "--precision int8"),
        ({"backend": ["zzzzzz"]}, "edgescope backends"),
    ],
)
def test_a_mistyped_name_is_refused_with_the_closest(names, fix):
    with pytest.raises(UsageError, match="E-TRY-1") as refused:
        propose(CPU, **names)
    assert refused.value.fix == fix


@pytest.mark.wings
def test_what_is_not_installed_is_named_and_not_proposed():
    gone = ALL | {"openvino": Installed(False, (), "No module named 'openvino'", "pip install openvino")}
    found = propose(CPU, gone)
    assert "openvino" not in {t.backend for t in found.trials}
    (missing,) = (m for m in found.not_here if m.label.startswith("openvino"))
    assert missing.label.startswith("openvino fp32, bf16, int8")
    assert missing.reason == "No module named 'openvino'" and missing.fix == "pip install openvino"


def test_an_engine_without_the_device_is_named_and_not_proposed():
    lacks = {
        "cuda": {"reason": "onnxruntime offers CPUExecutionProvider", "fix": "pip install onnxruntime-gpu"}
    }
    some = ALL | {"onnxruntime": replace(ALL["onnxruntime"], without=lacks)}
    found = propose(replace(CPU, device="cuda"), some)
    assert found.trials and "onnxruntime" not in {t.backend for t in found.trials}
    (missing,) = (m for m in found.not_here if m.label.startswith("onnxruntime"))
    assert (missing.reason, missing.fix) == tuple(lacks["cuda"].values())
    assert "onnxruntime" in {t.backend for t in propose(CPU, some).trials}


@pytest.mark.wings
def test_options_of_the_user_go_to_every_candidate_that_has_them():
    some = ALL | {"openvino": Installed(True, {"qdq"})}
    found = propose(Trial(model="resnet50", options={"threads": 1}), some)
    assert all(t.options["threads"] == 1 for t in found.trials)
    assert [m.reason for m in found.not_here] == ["openvino has no option threads"]


@pytest.mark.parametrize(
    "option", ["calibration=photos#1", "qdq=s8s8", "fallback=true", "quantizer=modelopt"]
)
def test_what_says_how_an_int8_file_is_made_goes_to_int8_candidates_alone(option):
    name, _, value = option.partition("=")
    there, base = real(), Trial(model="resnet50", options={name: value})
    if "torch_eager" not in there or "openvino" not in there:
        pytest.skip("PyTorch or OpenVINO is not installed")
    found = propose(base, there)
    assert found.trials[0].label == "torch_eager fp32 b1"
    assert {t.precision for t in found.trials if name in t.options} == {"int8"}
    assert any(t.options.get(name) == value for t in found.trials if t.backend == "openvino")
    without = {(t.backend, t.precision) for t in propose(CPU, there).trials}
    assert without - {(t.backend, t.precision) for t in found.trials} <= {("litert", "int8")}


def test_an_option_that_the_baseline_has_not_is_refused():
    some = ALL | {"torch_eager": Installed(True, {"layout"}), "openvino": Installed(True, {"streams", "qdq"})}
    with pytest.raises(UsageError, match=r"E-TRY-3: the baseline, torch_eager fp32.*no option streams"):
        propose(Trial(model="resnet50", options={"streams": 2}), some)


@pytest.mark.wings
def test_where_pytorch_is_not_here_the_first_that_is_stays_whatever_is_named():
    gone = {name: Installed(False, (), "not here") for name in ALL if name.startswith("torch")}
    found = propose(CPU, ALL | gone, precision=["int8"], exclude=[{"backend": "onnxruntime"}])
    assert found.trials[0].label == "onnxruntime fp32 b1"
    assert {t.precision for t in found.trials[1:]} == {"int8"}


@pytest.mark.wings
def test_a_tflite_file_is_tried_by_litert_alone():
    found = propose(Trial(model="m.tflite#0123456789ab")).trials
    assert {t.backend for t in found} == {"litert"}
    assert (found[0].precision, dict(found[0].options)) == ("fp32", {})


def test_what_is_tried_in_the_stead_of_an_int8_trial():
    int8 = Trial(
        model="resnet50", backend="openvino", precision="int8", options={"qdq": "s8s8", "threads": 2}
    )
    mixed = candidates.instead(int8, {"openvino": Installed(True, {"qdq", "fallback", "threads"})})
    assert mixed is not None and dict(mixed.options) == {"qdq": "s8s8", "threads": 2, "fallback": True}
    assert candidates.instead(mixed, {"openvino": Installed(True, {"qdq", "fallback", "threads"})}) is None
    assert candidates.instead(int8, {"openvino": Installed(True, {"qdq", "threads"})}) is None
    assert candidates.instead(CPU) is None
    last = candidates.instead(mixed, {"openvino": Installed(True, {"fallback", "dynamic", "threads"})})
    assert last is not None and dict(last.options) == {"threads": 2, "dynamic": True}
    assert candidates.instead(last) is None


def test_an_option_that_makes_two_candidates_one_is_tried_once():
    found = propose(Trial(model="resnet50", options={"layout": "channels_last"})).trials
    assert len({t.id for t in found}) == len(found)
    assert [t.precision for t in found if t.backend == "torch_eager"] == ["fp32", "bf16"]


@pytest.mark.wings
def test_the_device_is_a_gpu_where_its_driver_answers(monkeypatch):
    class Gpu:
        def __init__(self, reason):
            self.reason = reason

        def present(self):
            return self.reason

    for reason, device in (("", "cuda"), ("no driver", "cpu")):
        monkeypatch.setattr(registry, "load", lambda *a, reason=reason: lambda: Gpu(reason))
        assert candidates.device() == device


@pytest.mark.wings
def test_a_workload_adds_settings_of_its_own_to_every_engine_but_the_baseline():
    base = Trial(
        model="squeezenet1_1", workload="video", workload_options={"source": "film.mp4", "decode": "full"}
    )
    trials = candidates.propose(base, piled=True).trials
    first, second = trials[0], trials[1]
    assert first.workload_options == base.workload_options and first.in_flight == 1
    assert (second.backend, second.precision, second.options) != (
        first.backend,
        first.precision,
        first.options,
    )
    mine = [
        t
        for t in trials
        if (t.backend, t.precision) == (second.backend, second.precision) and t.options == second.options
    ]
    assert mine[0].workload_options == base.workload_options
    assert sorted({t.in_flight for t in mine}) == [1, 4, 6]
    for tuned in mine[1:]:
        assert tuned.workload_options["preprocess"] == "host"
        assert tuned.workload_options["decode"] == "full", "what the trial sets stays"
    asked = replace(base, in_flight=2)
    assert {t.in_flight for t in candidates.propose(asked, piled=True).trials} == {2}
    assert {t.in_flight for t in candidates.propose(base).trials} == {1}, "what piles up costs latency"
    assert len(candidates.propose(base).trials) > len(candidates.propose(Trial(model="squeezenet1_1")).trials)
    assert {t.in_flight for t in candidates.propose(Trial(model="squeezenet1_1"), piled=True).trials} == {1}


def test_a_network_that_is_a_file_is_proposed_to_engines_that_read_it():
    assert zoo.kind("centerface") == "onnx" and zoo.kind("my/net.TFLITE#1234") == "tflite"
    assert zoo.kind("resnet50") == zoo.kind("resnet50@weights.pth") == "network"
    assert "torch_eager" not in {t.backend for t in candidates.propose(Trial(model="centerface")).trials}


def test_numbers_of_threads_that_an_expert_would_try(monkeypatch):
    here = set(range(8))
    monkeypatch.setattr(candidates.os, "sched_getaffinity", lambda pid: here)
    given = replace(CPU, backend="onnxruntime", options={"layout": "x"})
    assert [t.options for t in candidates.by_hand(given, ALL)] == [
        {"layout": "x", "threads": 1},
        {"layout": "x", "threads": 4},
    ]
    assert not candidates.by_hand(given, {"onnxruntime": Installed(True, {"layout"})})
    assert not candidates.by_hand(CUDA) and not candidates.by_hand(replace(CPU, options={"threads": 2}))
    here -= set(range(2, 8))
    assert [t.options for t in candidates.by_hand(CPU)] == [{"threads": 1}]
    here.remove(1)
    assert not candidates.by_hand(CPU)


def test_where_no_engine_can_run_the_model_that_is_said_with_every_reason():
    found = propose(CPU)
    assert found.possible() is found
    none = candidates.Proposal((), (candidates.NotHere("a fp32", "no a"), candidates.NotHere("b", "no b")))
    with pytest.raises(UnavailableError) as raised:
        none.possible()
    assert (raised.value.code, raised.value.evidence) == ("E-TRY-2", "a fp32: no a; b: no b")
    assert raised.value.fix == "edgescope backends"


@pytest.mark.parametrize(
    ("code", "text", "found"),
    [
        (
            0,
            '[{"name": "a", "fix": "f", "reason": "r", "available": false, "options": ["o"], "without": {}}]',
            {"a": Installed(False, ["o"], "r", "f", {})},
        ),
        (1, "[]", {}),
        (1, "no json", {}),
    ],
)
def test_engines_are_asked_in_a_process_of_their_own_which_may_crash(monkeypatch, code, text, found):
    asked = []

    def ran(command, **how):
        asked.append((command[1:], how["check"]))
        return SimpleNamespace(returncode=code, stdout=text)

    monkeypatch.setattr(candidates.subprocess, "run", ran)
    assert candidates._installed.__wrapped__("") == found
    assert asked == [(["-medgescope", "backends", "--json"], False)]


def test_a_tflite_file_runs_on_the_cpu_whatever_else_is_here(monkeypatch):
    monkeypatch.setattr(candidates, "device", lambda: "cuda")
    assert candidates.usual_device("m.onnx") == "cuda"
    assert candidates.usual_device("my/m.TFLITE#0123") == candidates.usual_device("m.tflite") == "cpu"


def test_a_candidate_is_chosen_by_engine_and_precision_and_by_every_value_of_a_table():
    one = candidates.Candidate("openvino", "int8", {"qdq": "s8s8", "graph": True})
    assert one.label == "openvino int8 graph=true qdq=s8s8"
    assert one.is_any([], []) and one.is_any(["openvino"], ["int8"]) and one.is_any([], ["int8"])
    assert not one.is_any(["null"], ["int8"]) and not one.is_any(["openvino"], ["fp32"])
    assert one.has({"qdq": "s8s8"}) and one.has({"backend": "openvino", "precision": "int8"})
    assert not one.has({"qdq": "s8s8", "graph": False}) and not one.has({"threads": 1})


def test_an_exclusion_that_no_candidate_has_is_written_as_it_was_typed():
    with pytest.raises(UsageError) as raised:
        propose(CUDA, exclude=[{"graph": True, "precision": "fp33"}])
    assert raised.value.code == "E-TRY-1" and "--exclude graph=true,precision=fp33" in raised.value.what
    assert raised.value.fix == "edgescope backends"


def test_a_quantised_file_has_one_candidate_an_engine_and_setting(monkeypatch):
    monkeypatch.setattr(zoo, "precision", lambda model, default: "as_is")
    table = (
        candidates.Candidate("torch_eager", "fp32"),
        candidates.Candidate("onnxruntime", "fp32"),
        candidates.Candidate("onnxruntime", "int8", {"qdq": "s8s8"}),
        candidates.Candidate("onnxruntime", "fp32", {"threads": 1}),
    )
    found = candidates.as_written(table, "m.onnx")
    assert [(c.backend, c.precision, c.options) for c in found] == [
        ("onnxruntime", "as_is", {}),
        ("onnxruntime", "as_is", {"threads": 1}),
    ]
    monkeypatch.setattr(zoo, "precision", lambda model, default: "fp32")
    assert candidates.as_written(table, "m.onnx") == table


def test_what_is_missing_is_named_once_for_an_engine_and_a_reason():
    here = [
        candidates.NotHere(f"a {p}", why, "f") for p, why in (("fp32", "x"), ("int8", "x"), ("bf16", "y"))
    ]
    assert candidates._merged(here) == (
        candidates.NotHere("a fp32, int8", "x", "f"),
        candidates.NotHere("a bf16", "y", "f"),
    )


def test_an_engine_that_is_not_told_of_is_taken_to_be_here():
    assert len(propose(CPU, {}).trials) == len(propose(CPU).trials) and propose(CPU, {}).not_here == ()
