"""What schema 1 called otherwise, word by word."""

import pytest

from edgescope.errors import Message
from edgescope.records.codec import message, migrated


def old(trial=(), **more):
    whole = {
        "schema_version": 1,
        "trial": dict(trial),
        "metrics": {},
        "warnings": [],
        "machine": {"stable": {}, "state": {}},
    }
    return whole | more


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ({"beside": "a", "gate": 0.5}, {"colocated": "a", "min_agreement": 0.5}),
        ({"sharing": "shared"}, {"sharing": "time_slicing"}),
        ({"sharing": "pinned"}, {"sharing": "pinned"}),
        (
            {"scenario": "burst", "arrivals": "8"},
            {"scenario": "burst", "scenario_options": {"burst_size": 8}},
        ),
        (
            {"scenario": "trace", "arrivals": "a.csv"},
            {"scenario": "trace", "scenario_options": {"trace": "a.csv"}},
        ),
        (
            {"scenario": "trace", "arrivals": "loop:a.csv"},
            {"scenario": "trace", "scenario_options": {"trace": "a.csv", "loop": True}},
        ),
        (
            {"scenario": "idle_gap", "arrivals": "0,5"},
            {"scenario": "idle_gap", "scenario_options": {"gaps_ms": "0,5"}},
        ),
        ({"scenario": "idle_gap", "arrivals": "0,10,33,100,1000,10000"}, {"scenario": "idle_gap"}),
        (
            {"scenario": "mlperf_server", "arrivals": "15ms"},
            {"scenario": "mlperf_server", "scenario_options": {"target_latency_ms": 15.0}},
        ),
        ({"scenario": "burst", "arrivals": ""}, {"scenario": "burst"}),
        ({"scenario": "server", "arrivals": "poisson"}, {"scenario": "server"}),
        ({"arrivals": "8"}, {}),
    ],
)
def test_a_trial_of_schema_1_asks_the_same_today(then, now):
    assert migrated(old(then))["trial"] == {"scenario_options": {}, **now}


def test_metrics_and_machines_are_called_as_today():
    metrics = {"beside_throughput_sps": 1, "beside_latency_p99_s": 2, "power_w": 3}
    machine = {"stable": {"a": 1}, "state": {"warm": True, "load1": 2}}
    found = migrated(old(metrics=metrics, machine=machine, id="x"))
    assert found["metrics"] == {"colocated_throughput_sps": 1, "colocated_latency_p99_s": 2, "power_w": 3}
    assert found["machine"] == {"stable": {"a": 1}, "state": {"load1": 2}}
    assert (found["process"], found["id"]) == ("reused", "x") and machine["state"]["warm"] is True
    assert {
        migrated(old(machine={"stable": {}, "state": state}))["process"]
        for state in ({}, {"warm": False}, {"warm": 1})
    } == {"fresh"}


def test_messages_become_records():
    found = migrated(old(reason="E-CREW-2: gone.", warnings=["W-A-1: b.", "odd"]))
    assert found["reason"] == vars(Message("E-WORKER-2", "gone"))
    assert found["warnings"] == [vars(Message("W-A-1", "b")), vars(Message("E-OLD-1", "odd"))]
    assert migrated(old())["reason"] is migrated(old(reason=""))["reason"] is None


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("E-A-1: what.", Message("E-A-1", "what")),
        (
            "W-A: what (seen (twice)). Then. Try: this. Or that",
            Message("W-A", "what", "seen (twice)", "Then", "this. Or that"),
        ),
        ("I-A-12: what. It is so.", Message("I-A-12", "what", "", "It is so")),
        ("E-A-1: what", Message("E-OLD-1", "E-A-1: what")),
        ("X-A-1: what.", Message("E-OLD-1", "X-A-1: what.")),
    ],
)
def test_a_line_is_read_as_a_message(line, read):
    assert message(line) == read


def test_what_is_of_todays_schema_is_left_alone():
    today = {"schema_version": 2, "trial": {"beside": "a"}}
    assert migrated(today) is today
