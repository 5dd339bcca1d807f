"""The tracers around real work of a GPU."""

import importlib.util
from dataclasses import replace

import pytest

from edgescope.records import Measured, Status, Trial
from edgescope.wings.trace.verb import trace

pytestmark = pytest.mark.gpu
RESNET = Trial(
    model="resnet50", backend="torch_eager", device="cuda", precision="fp16", warmup=0.3, min_s=0.3, max_s=0.3
)


@pytest.mark.parametrize("profiler", ["cupti", "kineto"])
def test_the_budget_of_real_queries_sums_to_their_wall_time(profiler, tmp_path):
    if profiler == "cupti" and importlib.util.find_spec("cupti") is None:
        pytest.skip("cupti-python is not installed")
    found = trace(RESNET, profiler=profiler, store=tmp_path)
    assert found.clean.status in (Status.OK, Status.UNSTABLE), found.clean.reason
    ((_, one),) = found.accounts
    assert one.budget.closure > 0.98, "the rest lies between queries"
    assert (
        one.launches.kernel.count > 50 * len(one.inferences)
        and one.launches.lone <= one.launches.kernel.count / 50
    )
    assert one.gpus[0].busy_ns > 0 and one.budget.syncs.min() >= 1
    assert isinstance(found.profiled.metrics["ec_s"], Measured)


def test_a_cuda_graph_is_not_separable(tmp_path):
    found = trace(replace(RESNET, options={"graph": True}), store=tmp_path)
    ((_, one),) = found.accounts
    assert one.launches is None or not one.launches.separable


def test_two_processes_hold_each_other_up(tmp_path):
    found = trace(replace(RESNET, processes=2, sharing="time_slicing"), store=tmp_path)
    ((_, one),) = found.accounts
    assert {t.process for t in one.sharing.turns} == {0, 1} and sum(one.sharing.blocked_ns.values()) > 0
