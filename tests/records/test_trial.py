"""What a Trial is called, and which questions are none."""

from dataclasses import replace

import pytest

from edgescope.errors import UsageError
from edgescope.records import Role, Trial
from edgescope.records.trial import usual_backend

PLAIN = Trial(model="m", backend="onnxruntime")


@pytest.mark.parametrize(
    ("keys", "label"),
    [
        ({}, "onnxruntime fp32 b1"),
        ({"device": "cuda", "precision": "int8"}, "onnxruntime cuda int8 b1"),
        (
            {"workload": "training", "workload_options": {"b": 2, "a": 0.5}},
            "onnxruntime training a=0.5 b=2 fp32 b1",
        ),
        ({"workload_options": {"held": True}}, "onnxruntime held=true fp32 b1"),
        ({"in_flight": 4, "sharing": "mps=50"}, "onnxruntime fp32 b1 T4 mps=50"),
        ({"colocated": "a+b", "mode": "15W"}, "onnxruntime fp32 b1 with a+b 15W"),
        ({"options": {"threads": 2}, "processes": 3}, "onnxruntime fp32 b1 P3 threads=2"),
        ({"scenario": "offline", "batch": 8}, "onnxruntime fp32 b8 offline"),
        ({"scenario": "server", "rate": 10.0, "processes": 2}, "onnxruntime fp32 b1 P2 server 10/s"),
        (
            {"scenario": "burst", "rate": 40, "scenario_options": {"burst_size": 8}},
            "onnxruntime fp32 b1 burst 40/s burst_size=8",
        ),
        (
            {"scenario": "trace", "scenario_options": {"trace": "/a/b/day.csv#0123", "loop": True}},
            "onnxruntime fp32 b1 trace loop=true trace=day.csv",
        ),
    ],
)
def test_a_label_says_whatever_is_not_the_usual(keys, label):
    assert Trial(model="m", **{"backend": "onnxruntime", **keys}).label == label


def refused(**keys):
    """The error of a trial with these fields, None if it is one."""
    try:
        Trial(**{"model": "m", **keys})
    except UsageError as error:
        return error
    return None


BOUNDS = {
    "batch": ([1], [0, -1]),
    "in_flight": ([1], [0]),
    "processes": ([1], [0]),
    "rate": ([None, 0.001, 1], [0, 0.0, -1.0]),
    "min_s": ([0, 0.0, 10.0], [-0.1, 10.1]),
    "max_s": ([1.0], [0.9]),
    "rel_width": ([0.001, 0.999], [0, 1, 0.0, 1.0, 1.5]),
    "warmup": ([None, 0, 0.0], [-0.1]),
    "idle_s": ([0, 1], [-0.1]),
    "turn_s": ([None, 0.1], [0, 0.0, -1.0]),
    "deadline_s": ([None, 0.1], [0, 0.0, -1.0]),
    "max_queries": ([None, 1], [0]),
    "min_agreement": ([None, 0, 1, 0.0, 1.0], [-0.1, 1.1]),
    "min_accuracy": ([None, 0, 1, 0.0, 1.0], [-0.1, 1.1]),
    "shapes": ([{}, {"x": (1, 3)}, {"x": [2], "y": []}], [{"x": (1, 0)}, {"x": (1,), "y": (-1,)}]),
    "precision": (["fp32", "as_is"], ["fp31"]),
    "device": (["cpu", "cuda"], ["gpu"]),
    "io": (["host", "device", "pinned"], ["disk"]),
    "sharing": (
        ["time_slicing", "pinned", "mps", "mps=1", "mps=100", "mps=9.5", "mps=50"],
        ["mps=0", "mps=101", "mps=", "shared", "mps=1000", "pinned=50"],
    ),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_a_field_has_bounds_which_belong_to_it_or_not(name):
    fine, wrong = BOUNDS[name]
    assert [value for value in fine if refused(**{name: value})] == []
    for value in wrong:
        assert (error := refused(**{name: value})) is not None and error.message.code == "E-TRIAL-1", value
        assert name in error.message.what or "dimension" in error.message.what


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("batch", "1", "int"),
        ("batch", True, "int"),
        ("batch", 1.0, "int"),
        ("rate", "1", "int or float"),
        ("rate", False, "int or float"),
        ("rate", float("nan"), "finite"),
        ("max_s", float("inf"), "finite"),
        ("min_s", None, "int or float"),
        ("max_queries", 1.5, "int"),
        ("model", 7, "str"),
        ("options", [], "Mapping"),
        ("shapes", {"x": "12"}, "whole numbers"),
        ("shapes", {"x": (1, 2.0)}, "whole numbers"),
    ],
)
def test_a_value_of_another_type_is_named_with_its_field(name, value, says):
    what = refused(**{name: value}).message.what
    assert (
        (name in what or "shape of x" in what) and says in what and "None" not in what.partition(", not")[0]
    )


@pytest.mark.parametrize(
    ("keys", "fix"),
    [
        ({"precision": "fp31"}, "--precision fp32"),
        ({"precision": "quantised"}, "edgescope bench --help"),
        ({"device": "cudo"}, "--device cuda"),
        ({"io": "hosts"}, "--io host"),
        ({"sharing": "pined"}, "--sharing pinned"),
        ({"sharing": "mps=500"}, "edgescope bench --help"),
        ({"batch": 0}, "edgescope bench --help"),
    ],
)
def test_the_closest_choice_is_proposed(keys, fix):
    assert refused(**keys).message.fix == fix


def test_one_and_one_point_nought_are_one_question_and_its_tables_are_its_own():
    options = {"threads": 2}
    trial = Trial(model="m", max_s=3, rate=2, shapes={"x": [1, 3]}, options=options)
    assert trial == Trial(model="m", max_s=3.0, rate=2.0, shapes={"x": (1, 3)}, options={"threads": 2})
    assert (type(trial.max_s), type(trial.rate), type(trial.warmup)) == (float, float, type(None))
    options["threads"] = 3
    assert trial.options == {"threads": 2} and trial.shapes["x"] == (1, 3)
    with pytest.raises(TypeError):
        trial.options["threads"] = 4
    assert (
        len({trial, Trial(model="m", max_s=3.0, rate=2.0, shapes={"x": (1, 3)}, options={"threads": 2})}) == 1
    )


@pytest.mark.parametrize(
    ("model", "backend"),
    [
        ("a.onnx", "onnxruntime"),
        ("dir/A.ONNX#0123", "onnxruntime"),
        ("b.tflite", "litert"),
        ("resnet50", "torch_eager"),
        ("x.onnx.py", "torch_eager"),
    ],
)
def test_an_engine_that_is_left_out_is_the_models_usual_one(model, backend):
    assert usual_backend(model) == backend == Trial(model=model).backend
    assert Trial(model=model, backend="null").backend == "null"


@pytest.mark.parametrize(
    ("keys", "many"),
    [
        ({}, False),
        ({"in_flight": 8, "batch": 2}, False),
        ({"processes": 2}, True),
        ({"sharing": "mps"}, True),
        ({"sharing": "pinned"}, True),
        ({"colocated": "n"}, True),
    ],
)
def test_workers_are_led_where_several_run_or_one_has_its_own_share(keys, many):
    assert Trial(model="m", **keys).multi_process is many


@pytest.mark.parametrize(
    ("keys", "has"),
    [
        ({}, False),
        ({"options": {"threads": 2}}, False),
        ({"data": "folder"}, True),
        ({"preprocess": "resize=8"}, True),
        ({"options": {"calibration": "folder"}}, True),
    ],
)
def test_a_trial_has_data_where_its_inputs_are_others_than_its_models(keys, has):
    assert Trial(model="m", **keys).has_data is has


def test_an_unknown_key_is_named_with_those_that_are_known():
    with pytest.raises(UsageError) as caught:
        Trial.from_json({"model": "m", "bach": 2, "arrivals": ""})
    assert caught.value.message.code == "E-TRIAL-2"
    assert "'arrivals', 'bach'" in caught.value.message.what and " batch," in caught.value.message.evidence


def test_a_trial_reads_back_what_it_writes_in_plain_values():
    trial = Trial(model="m", shapes={"x": (1, 3)}, scenario_options={"burst_size": 8}, options={"a": True})
    plain = trial.to_json()
    assert plain["shapes"] == {"x": [1, 3]} and type(plain["shapes"]["x"]) is list
    assert {name: type(plain[name]) for name in ("options", "scenario_options", "workload_options")} == {
        name: dict for name in ("options", "scenario_options", "workload_options")
    }
    assert Trial.from_json(plain) == trial


def test_all_roles_are_all_and_roles_are_apart():
    assert all(role in Role.all() for role in Role)
    assert sum(role.value for role in Role) == Role.all().value == 2 ** len(Role) - 1


def test_replicates_and_durations_are_of_one_variant_and_durations_of_another_cell():
    again, longer = replace(PLAIN, replicate=3), replace(PLAIN, max_s=60.0)
    assert PLAIN.variant == again.variant == longer.variant
    assert PLAIN.cell == again.cell != longer.cell
    assert len({t.variant for t in (PLAIN, replace(PLAIN, batch=2), replace(PLAIN, mode="15W"))}) == 3
