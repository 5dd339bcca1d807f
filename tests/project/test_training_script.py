"""benchmarks/training.py gaps: what it says of an arm after so many rounds; nothing is measured."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import training

PLAN = SimpleNamespace(trained=SimpleNamespace(batch=64), latency_s=0.01, trained_sps=50.0, watts=None)


def rounds(*trained, failed=False):
    """Return a round for each rate of training in turns; plain co-location trains ten samples a second."""
    slow = {"p90_s": 0.02, "power_w": None, "trained_sps": 10.0}
    mine = [slow | {"trained_sps": rate} | ({"failed": "crashed"} if failed else {}) for rate in trained]
    return [{"interleaved": one, "colocated": slow} for one in mine]


@pytest.mark.parametrize(("rates", "bounded"), [((20.0, 22.0), False), ((20.0, 22.0, 21.0), True)])
def test_a_ratio_is_told_only_with_an_interval(rates, bounded):
    row = training.summary(rounds(*rates), 0.03, PLAN)["interleaved"]
    assert ("trained_beside_colocated" in row) == bounded
    if bounded:
        found = row["trained_beside_colocated"]
        assert 0 < found["lo"] < 2.1 < found["hi"] < 4


def test_an_arm_is_judged_by_its_bound_and_one_that_never_ran_keeps_none():
    assert training.summary(rounds(20.0), 0.03, PLAN)["interleaved"]["kept"]
    assert not training.summary(rounds(20.0), 0.01, PLAN)["interleaved"]["kept"]
    none = training.summary(rounds(20.0, failed=True), 0.03, PLAN)["interleaved"]
    assert none["runs"] == 0 and none["p90_s"] is None and not none["kept"]
