"""What a Trial is called."""

import pytest

from edgescope.records import Trial


@pytest.mark.parametrize(
    ("keys", "label"),
    [
        ({}, "onnxruntime fp32 b1"),
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
def test_a_label_says_the_load_where_it_is_not_the_usual_one(keys, label):
    assert Trial(model="m", backend="onnxruntime", **keys).label == label
