"""`edgescope train advise`: a planted bottleneck is named, and the loader is known as its maker set it."""

import pytest

import edgescope
import planted_stalls
from edgescope import bench
from edgescope.errors import UnavailableError
from edgescope.records import Absent, Status, Trial
from edgescope.wings.training import prediction as model_of

QUICK = {"min_s": 0.5, "max_s": 0.5}


@pytest.mark.slow
def test_a_loader_that_holds_the_step_up_is_named_and_given_workers(tmp_path, trials_here, monkeypatch):
    """Its share is known from its sleeps: how long they last, and how long the steps are, is the machine's affair."""
    monkeypatch.setattr(planted_stalls, "ITEM_S", 3 * planted_stalls.ITEM_S)
    found = edgescope.train_advise("planted_stalls:read", verify=False, store=tmp_path, **QUICK)
    stretches = model_of.steady(found.results[0])
    slept = sum(
        end - start for start, end in planted_stalls.SLEPT for a, b in stretches if a <= start and end <= b
    )
    least = slept / sum(b - a for a, b in stretches)
    assert found.bottleneck == "read" and least > 0.3 and 0.95 * least < found.share <= 1
    assert found.pick.knob == "num_workers" and found.pick.gain > 1.2
    assert isinstance(found.realised, Absent) and len(found.results) == 1  # no device could gain more
    assert "bottleneck: reading the files" in str(found) and "not verified" in str(found)
    assert found.records()[0]["predicted_gain"] == found.pick.gain


@pytest.mark.slow
def test_a_run_that_does_not_finish_is_refused(tmp_path, trials_here):
    with pytest.raises(UnavailableError, match="E-ADVISE-1"):
        edgescope.train_advise("planted_stalls:raises", verify=False, store=tmp_path, **QUICK)


@pytest.mark.slow
def test_the_loader_is_known_as_its_maker_set_it():
    asked = Trial(
        model="planted_stalls:persists", workload="training", workload_options={"epochs": 2}, warmup=0.0
    )
    result = bench.run(asked, hz=0)
    assert result.status in (Status.OK, Status.UNSTABLE), result.reason
    facts = model_of.facts(result, cores=2)
    assert facts.persistent and facts.prefetch == 3 and facts.workers == 1
    assert result.artifact["loader"]["num_workers"] == 1
