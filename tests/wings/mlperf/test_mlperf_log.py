"""What is read out of LoadGen's logs, from logs made by hand."""

import json

import numpy as np
import pytest

from edgescope.errors import DeviceError
from edgescope.wings.mlperf import ACCURACY, DETAIL, SUMMARY, answers, compared, files, values

OUTPUTS = (np.arange(12, dtype=np.float32).reshape(4, 3), np.arange(4, dtype=np.int64).reshape(4, 1))


def entry(i, outputs=OUTPUTS):
    return {"qsl_idx": i, "data": b"".join(a[i].tobytes() for a in outputs).hex()}


def logged(folder, entries):
    (folder / ACCURACY).write_text(json.dumps(entries))
    return folder


def test_results_settings_and_estimates_are_read_and_the_rest_is_not(tmp_path):
    lines = [
        ':::MLLOG {"key": "result_validity", "value": "VALID"}',
        ':::MLLOG {"key": "effective_target_qps", "value": 100}',
        ':::MLLOG {"key": "early_stopping_met", "value": false}',
        ':::MLLOG {"key": "loadgen_version", "value": "5.1"}',
        ':::MLLOG {"key": "loadgen_version_of_old", "value": "no"}',
        ':::MLLOG {"key": "num_errors", "value": 0}',
        ':::MLLOG {"key": "power_begin", "value": "no"}',
        ":::MLLOG [1, 2]",
        'something {"key": "result_other", "value": 1}',
        ':::MLLOG {"key": "result_cut", "val',
    ]
    (tmp_path / DETAIL).write_text("\n".join(lines))
    (tmp_path / SUMMARY).write_text("Early stopping 90.0th percentile estimate: 1234\n * other: 5\n")
    assert values(tmp_path) == {
        "result_validity": "VALID",
        "effective_target_qps": 100,
        "early_stopping_met": False,
        "loadgen_version": "5.1",
        "num_errors": 0,
        "early_stopping_90.0_percentile_estimate_ns": 1234,
    }
    assert values(tmp_path / "nowhere") == {}


def test_empty_logs_are_left_out(tmp_path):
    (tmp_path / SUMMARY).write_text("VALID\n")
    (tmp_path / ACCURACY).write_text("[\n]\n")
    assert files(tmp_path) == {SUMMARY: "VALID\n"}
    assert files(tmp_path, "accuracy_") == {f"accuracy_{SUMMARY}": "VALID\n"}


def test_answers_come_back_with_the_types_and_shapes_of_the_outputs(tmp_path):
    found = answers(logged(tmp_path, [entry(2), entry(0)]), OUTPUTS)
    assert sorted(found) == [0, 2]
    for i, (a, b) in found.items():
        assert np.array_equal(a, OUTPUTS[0][i]) and a.dtype == np.float32 and a.shape == (3,)
        assert np.array_equal(b, OUTPUTS[1][i]) and b.dtype == np.int64


def test_answers_are_compared_with_what_was_answered_directly(tmp_path):
    assert compared(logged(tmp_path, [entry(i) for i in range(4)]), OUTPUTS) == {
        "samples": 4,
        "in_log": 4,
        "identical": 4,
        "centred_l2": 0.0,
    }
    other = (OUTPUTS[0] + np.float32([[0], [0], [0.5], [0]]), OUTPUTS[1])
    found = compared(logged(tmp_path, [entry(i, other) for i in (0, 1, 2)]), OUTPUTS)
    assert (found["samples"], found["in_log"], found["identical"]) == (4, 3, 2) and found["centred_l2"] > 0
    strangers = compared(logged(tmp_path, [entry(1) | {"qsl_idx": 9}, entry(1) | {"qsl_idx": 4}]), OUTPUTS)
    assert strangers == {"samples": 4, "in_log": 0, "identical": 0, "centred_l2": 0.0}
    assert compared(tmp_path / "nowhere", OUTPUTS)["in_log"] == 0


@pytest.mark.parametrize(
    "broken",
    [
        {"data": "00"},
        {"qsl_idx": 1},
        {"qsl_idx": 1, "data": "zz"},
        {"qsl_idx": "x", "data": entry(0)["data"]},
        7,
    ],
)
def test_a_damaged_accuracy_log_is_our_own_error(tmp_path, broken):
    with pytest.raises(DeviceError, match="E-MLPERF-1"):
        answers(logged(tmp_path, [broken]), OUTPUTS)
