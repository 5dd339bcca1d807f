"""What a scenario is told, on both sides of every limit."""

import pytest

from edgescope.errors import UsageError
from edgescope.scenarios import settings
from fake_time import trial


def says(**keys):
    """The code of the refusal, '' where there is none."""
    try:
        settings.checked(trial(**keys))
    except UsageError as error:
        return error.code
    return ""


@pytest.mark.parametrize(
    ("arrivals", "code"),
    [
        ("1", ""),
        ("999999", ""),
        ("0", "E-SCEN-2"),
        ("08", "E-SCEN-2"),
        ("1000000", "E-SCEN-2"),
        ("8 ", "E-SCEN-2"),
    ],
)
def test_a_burst_has_1_to_999999_queries(arrivals, code):
    assert says(scenario="burst", rate=8.0, arrivals=arrivals) == code
    if not code:
        assert settings.burst(trial(scenario="burst", arrivals=arrivals)) == int(arrivals)


@pytest.mark.parametrize(
    ("arrivals", "gaps"),
    [
        ("", settings.GAPS_MS),
        ("33", (0.0, 33.0)),
        ("0,600000", (0.0, 600_000.0)),
        ("5,2.5,5", (0.0, 2.5, 5.0)),
        (",".join(str(k) for k in range(50)), tuple(float(k) for k in range(50))),
        ("0,600001", None),
        ("0", None),
        ("-1,5", None),
        (",".join(str(k) for k in range(51)), None),
        ("0,inf", None),
    ],
)
def test_idle_gaps_are_ascending_from_0_and_at_most_50_of_ten_minutes(arrivals, gaps):
    asking = trial(scenario="idle_gap", arrivals=arrivals)
    if gaps is None:
        assert says(scenario="idle_gap", arrivals=arrivals) == "E-SCEN-3"
    else:
        assert settings.gaps_ms(asking) == gaps


@pytest.mark.parametrize(
    ("arrivals", "bound_ns"),
    [("", None), ("15ms", 15_000_000), ("0.5ms", 500_000), ("1000000ms", 10**12)],
)
def test_the_bound_of_a_server_is_in_milliseconds(arrivals, bound_ns):
    assert settings.bound_ns(trial(scenario="mlperf_server", rate=5.0, arrivals=arrivals)) == bound_ns


@pytest.mark.parametrize("arrivals", ["0ms", "1000001ms", "15", "ms", "15 ms", "-1ms", "1.ms"])
def test_a_bound_that_is_none_is_refused(arrivals):
    assert says(scenario="mlperf_server", rate=5.0, arrivals=arrivals) == "E-SCEN-3"


@pytest.mark.parametrize("name", ["fixed_rate", "server", "burst", "mlperf_server"])
def test_what_is_offered_at_a_rate_needs_one(name):
    arrivals = "4" if name == "burst" else ""
    assert says(scenario=name, arrivals=arrivals) == "E-SCEN-1"
    assert says(scenario=name, arrivals=arrivals, rate=2.0) == ""
    assert settings.rate(trial(scenario=name, rate=2.0)) == 2.0


@pytest.mark.parametrize("name", ["single_stream", "multi_stream", "offline", "server", "fixed_rate"])
def test_arrivals_mean_nothing_to_the_others(name):
    rate = {"rate": 5.0} if name in settings.RATED else {}
    assert says(scenario=name, arrivals="8", **rate) == "E-SCEN-4"


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
    assert says(scenario=name, **keys) == code


def test_a_trial_is_given_its_arrivals_as_text():
    assert settings.pinned({"scenario": "burst", "arrivals": 8}) == {"scenario": "burst", "arrivals": "8"}
    assert settings.pinned({"scenario": "burst", "arrivals": 2.5})["arrivals"] == "2.5"
    assert settings.pinned({"scenario": "burst", "arrivals": True}) == {"scenario": "burst", "arrivals": True}
    assert settings.pinned({"scenario": "idle_gap"})["arrivals"] == "0,10,33,100,1000,10000"
    assert settings.pinned({"scenario": "idle_gap", "arrivals": "5"})["arrivals"] == "5"
    assert settings.pinned({"scenario": "server"}) == {"scenario": "server"}
