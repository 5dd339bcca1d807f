import numpy as np
import pytest

from edgescope.wings.remote.board import COST_CHANNEL, Rows

FACTS = {
    "rails": {
        "vdd_in": {"label": "VDD_IN", "scope": "module"},
        "a": {"label": "A", "scope": "rail"},
        "b": {"label": "B", "scope": "rail"},
    },
    "power_total": {"channel": "rails_power_w", "scope": "sum_of_rails", "of": ["A", "B"]},
}


def rows(*names, values, hz=10.0, kinds="gauge"):
    made = Rows([{"name": n, "unit": "W", "scope": "rail", "kind": kinds, "source": "x"} for n in names], hz)
    made.take({"rows": [[0.1 * i, 0.001 * i, list(row)] for i, row in enumerate(values)]})
    made.stopped = {"reasons": {"b_power_w": "gone"}}
    return made


def test_rails_get_their_scope_and_the_total_its_terms():
    found = rows("a_power_w", "b_power_w", "vdd_in_power_w", values=[(1, 2, 9), (3, 4, 9)]).readings(FACTS)
    scopes = {c.name: c.scope for c in found.channels}
    assert scopes["vdd_in_power_w"] == "module"
    assert scopes["rails_power_w"] == "sum_of_rails"
    assert list(found.series("rails_power_w")[1]) == [3.0, 7.0]
    assert list(found.series("a_power_w")[0]) == [0, 100_000_000]


def test_a_term_that_was_not_read_leaves_a_gap_not_a_smaller_sum():
    found = rows("a_power_w", "b_power_w", values=[(1, 2), (3, None), (5, 6)]).readings(FACTS)
    assert list(found.series("rails_power_w")[1]) == [3.0, 11.0]


@pytest.mark.parametrize(
    "facts", [{}, {"rails": {"absent": "no monitor"}, "power_total": {"absent": "none"}}]
)
def test_without_a_known_board_there_is_no_total(facts):
    found = rows("a_power_w", "b_power_w", values=[(1, 2)]).readings(facts)
    assert "rails_power_w" not in {c.name for c in found.channels}


def test_a_missing_term_forms_no_total():
    assert "rails_power_w" not in {c.name for c in rows("a_power_w", values=[(1,)]).readings(FACTS).channels}


def test_a_channel_without_values_is_unsupported_with_the_agents_reason():
    found = rows("a_power_w", "b_power_w", values=[(1, None), (1, None)]).readings(FACTS)
    channel = next(c for c in found.channels if c.name == "b_power_w")
    assert (channel.status, channel.reason) == ("unsupported", "gone")
    assert len(found.series("b_power_w")[1]) == 0


def test_rows_that_are_not_whole_are_left_out():
    made = rows("a_power_w", values=[(1,)])
    made.take({"rows": [[1.0, 0.0, [1, 2]], [1.0], "x", [1.0, 0.0, [2]]]})
    assert list(made.readings({}).series("a_power_w")[1]) == [1, 2]


def test_the_cost_is_that_of_the_agent():
    made = rows("a_power_w", values=[(1,)] * 11)
    cost = made.cost()
    assert (cost["ticks"], cost["missed_ticks"], cost["alive"]) == (11, 0, True)
    assert cost["cpu_share"] == pytest.approx(0.01)
    assert cost["achieved_hz"] == pytest.approx(10)
    assert len(made.readings({}).series(COST_CHANNEL)[0]) == 11
    assert np.all(np.diff(made.readings({}).t_ns) >= 0)


def test_an_agent_that_never_said_it_had_stopped_does_not_certify():
    made = rows("a_power_w", values=[(1,)])
    made.stopped = None
    assert not made.cost()["alive"]
    assert "did not report" in made.cost()["end"]
