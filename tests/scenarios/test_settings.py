"""What a scenario needs and takes, on both sides of every limit."""

import pytest

from edgescope import registry
from edgescope.errors import UsageError
from edgescope.scenarios import base
from edgescope.scenarios.stop_rule import Plan
from edgescope.study import grid
from fake_time import trial


def made(scenario, options=None, **keys):
    asked = trial(scenario=scenario, scenario_options=options or {}, **keys)
    return registry.load(registry.SCENARIOS, scenario, "scenario")(asked, Plan(asked))


def says(scenario, options=None, **keys):
    """The code of the refusal, '' where there is none."""
    try:
        made(scenario, options, **keys)
    except UsageError as error:
        return error.code
    return ""


@pytest.mark.parametrize(
    ("size", "code"),
    [(1, ""), (999_999, ""), (0, "E-SCEN-2"), (-3, "E-SCEN-2"), (1_000_000, "E-SCEN-2"), (2.5, "E-OPTION-2")],
)
def test_a_burst_has_1_to_999999_queries(size, code):
    assert says("burst", {"burst_size": size}, rate=8.0) == code
    if not code:
        assert made("burst", {"burst_size": size}, rate=8.0).size == size


@pytest.mark.parametrize(
    ("text", "gaps"),
    [
        ("33", (0.0, 33.0)),
        ("0,600000", (0.0, 600_000.0)),
        ("5,2.5,5", (0.0, 2.5, 5.0)),
        (",".join(str(k) for k in range(50)), tuple(float(k) for k in range(50))),
        ("0,600001", None),
        ("0", None),
        ("", None),
        ("ten", None),
        ("nan", None),
        ("-1,5", None),
        (",".join(str(k) for k in range(51)), None),
        ("0,inf", None),
    ],
)
def test_idle_gaps_are_ascending_from_0_and_at_most_50_of_ten_minutes(text, gaps):
    if gaps is None:
        assert says("idle_gap", {"gaps_ms": text}) == "E-SCEN-4"
    else:
        assert made("idle_gap", {"gaps_ms": text}).gaps_ms == gaps


def test_without_a_word_a_camera_and_a_doorbell_are_among_the_gaps():
    assert made("idle_gap").gaps_ms == (0.0, 10.0, 33.0, 100.0, 1000.0, 10_000.0)


@pytest.mark.parametrize(("given", "ms"), [({}, 100.0), ({"target_latency_ms": 15}, 15)])
def test_loadgens_server_is_held_to_a_latency(given, ms):
    assert made("mlperf_server", given, rate=5.0).options == {"target_latency_ms": ms}


@pytest.mark.parametrize("ms", [0, -1.0, "15ms"])
def test_a_latency_that_is_none_is_refused(ms):
    assert says("mlperf_server", {"target_latency_ms": ms}, rate=5.0) == "E-OPTION-2"


@pytest.mark.parametrize("name", ["fixed_rate", "server", "burst", "mlperf_server"])
def test_what_is_offered_at_a_rate_needs_one(name):
    size = {"burst_size": 4} if name == "burst" else {}
    assert says(name, size) == "E-SCEN-1"
    assert says(name, size, rate=2.0) == ""
    assert base.rate_of(trial(scenario=name, rate=2.0)) == 2.0


@pytest.mark.parametrize(
    "name", ["single_stream", "multi_stream", "offline", "server", "fixed_rate", "mlperf_offline"]
)
def test_an_option_of_another_scenario_is_refused(name):
    rate = {"rate": 5.0} if name in base.rated() else {}
    assert says(name, {"burst_size": 8}, **rate) == "E-OPTION-1"


@pytest.mark.parametrize(
    ("name", "keys", "code"),
    [
        ("mlperf_single_stream", {"batch": 2}, "E-SCEN-7"),
        ("mlperf_server", {"batch": 2, "rate": 5.0}, "E-SCEN-7"),
        ("mlperf_offline", {"batch": 2}, ""),
        ("mlperf_multi_stream", {"batch": 2, "in_flight": 3}, ""),
        ("mlperf_single_stream", {"in_flight": 2}, "E-SCEN-8"),
        ("idle_gap", {"in_flight": 2}, "E-SCEN-8"),
        ("mlperf_server", {"in_flight": 2, "rate": 5.0}, ""),
        ("idle_gap", {"processes": 2}, "E-SCEN-10"),
        ("mlperf_offline", {"processes": 2}, "E-SCEN-10"),
        ("single_stream", {"processes": 2}, ""),
        ("server", {"processes": 2, "rate": 5.0}, ""),
        ("idle_gap", {"batch": 2}, ""),
    ],
)
def test_one_sample_one_query_one_process(name, keys, code):
    assert says(name, **keys) == code


def test_one_question_has_one_spelling(tmp_path):
    """What the defaults say already is left out, and numbers are written as their kind."""

    def spelt(scenario, **given):
        return grid.settled({"scenario": scenario, "scenario_options": given})["scenario_options"]

    assert spelt("burst", burst_size=8) == {"burst_size": 8}
    assert spelt("idle_gap", gaps_ms="0,10,33,100,1000,10000") == {} == spelt("idle_gap")
    assert spelt("idle_gap", gaps_ms=5) == {"gaps_ms": "5"} == spelt("idle_gap", gaps_ms="5")
    fifteen = spelt("mlperf_server", target_latency_ms=15)["target_latency_ms"]
    assert (fifteen, type(fifteen)) == (15.0, float)
    assert spelt("mlperf_server", target_latency_ms=100) == {}
    path = tmp_path / "t"
    path.write_text("0\n1\n")
    assert spelt("trace", trace=str(path), loop=False).keys() == {"trace"}
