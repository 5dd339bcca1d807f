"""benchmarks/tracing.py: what it says of a query is what the recorded trace of an H100 holds."""

import sys
from pathlib import Path

import pytest

from edgescope.wings.trace.imported import read

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import tracing

RECORDED = Path(__file__).parents[1] / "recorded_traces/cupti_2026_resnet50_h100.json.gz"


def test_an_account_of_a_query_is_joined_from_calls_and_kernels():
    spans = read(RECORDED).spans
    found = tracing.account(spans, 10)
    kernels = spans.of_kind("kernel")
    assert found["kernels"] == len(kernels) / 10
    assert found["median_us"]["call"] > 0 and found["median_us"]["kernel"] > 0


def test_the_arms_differ_by_the_records_that_they_ask_for():
    asked = tracing.ARMS
    assert set(asked["cupti_waits"]) - set(asked["cupti"]) == {"SYNCHRONIZATION"}
    assert set(asked["cupti_kernels"]) < set(asked["cupti_no_graphs"]) < set(asked["cupti"])


@pytest.mark.parametrize(("ratios", "wanted"), [((0.9, 0.8, 1.0), 0.9), ((), {"absent": "it ended with 1"})])
def test_the_middle_of_turns_leaves_out_what_was_lost(ratios, wanted):
    turns = [{"ratio": r, "clean_qps": [1.0], "a_query": {}} for r in ratios]
    found = tracing.middle([*turns, {"absent": "it ended with 1"}])
    assert found == wanted or (found["ratio"], found["lost"]) == (wanted, 1)
