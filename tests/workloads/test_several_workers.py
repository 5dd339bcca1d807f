"""What several workers report of their own work is one figure, of the window that the rows are of."""

import numpy as np
import pytest

from edgescope import bench
from edgescope.analysis.run import summary, workers
from edgescope.records import QUERY_OK, Absent, Measured, Status, Trial

SHORT = {"warmup": 0.2, "min_s": 1.0, "max_s": 1.0, "processes": 2}


def units(result):
    """The samples of each unit that succeeded in the window."""
    rows = result.queries.rows(result.window).columns
    return rows["samples"][rows["status"] == QUERY_OK]


@pytest.fixture(scope="module")
def film():
    """Two workers that decode; a training beside them."""
    trial = Trial(
        model="squeezenet1_1",
        backend="onnxruntime",
        workload="video",
        workload_options={"source": "synthetic:64x64"},
        colocated="lenet5 workload=training backend=torch_eager batch=4 epoch_samples=4",
        **SHORT,
    )
    return bench.run(trial, hz=0)


@pytest.mark.slow
@pytest.mark.wings
def test_frames_are_the_units_of_all_workers(film):
    assert film.status in (Status.OK, Status.UNSTABLE), film.reason
    held = units(film)
    assert film.metrics["frames"] == Measured(float(held.sum()), "frames", n=len(held))
    assert len(np.unique(film.queries.rows(film.window).columns["worker"])) == 2
    assert film.metrics["frames_dropped"].n == held.sum() < len(film.queries)


@pytest.mark.slow
@pytest.mark.wings
def test_the_time_in_a_stage_is_that_of_a_unit_of_all_workers(film):
    assert (
        abs(film.metrics["infer_busy_s"].n - len(units(film))) <= 2
    )  # one a worker is between stage and end
    assert 0 < film.metrics["infer_busy_s"].value < film.metrics["latency_max_s"].value


@pytest.mark.slow
@pytest.mark.wings
def test_the_time_of_a_part_is_over_the_units_of_all_workers(film):
    rows = workers.due_in(film.queries, [0, 1], film.window)
    took = summary.took_ns(rows, "infer_end", "infer_begin")
    found = film.metrics["infer_part_p50_s"]
    assert found.n == len(took) == len(rows.latency_ns())
    assert found.value == pytest.approx(np.median(took) * 1e-9)
    trained = film.queries.columns["worker"] == 2
    assert (film.queries.marks["infer_end"][trained] == -1).all()
    assert "forward_part_p50_s" not in film.metrics


@pytest.mark.slow
@pytest.mark.wings
def test_a_colocated_worker_has_its_own_figures_and_adds_to_no_others(film):
    assert "epochs" not in film.metrics and film.metrics["worker2_epochs"].value > 0
    assert "worker2_frames" not in film.metrics


@pytest.mark.slow
@pytest.mark.wings
def test_two_trainings_are_counted_together():
    options = {"epoch_samples": 20}
    trial = Trial(model="lenet5", workload="training", batch=4, workload_options=options, **SHORT)
    result = bench.run(trial, hz=0)
    assert result.status in (Status.OK, Status.UNSTABLE), result.reason
    held, found = units(result), result.metrics
    assert found["epochs"].value == pytest.approx(held.sum() / 20) and found["epochs"].n == held.sum()
    assert found["skipped_items"].value == 0 and abs(found["skipped_items"].n - held.sum()) <= 2 * 4
    rows = result.queries.rows(result.window).columns
    assert found["loss_last"].n == len(np.unique(rows["worker"]))
    assert isinstance(found["epoch_first_s"], Absent) and "--warmup 0" in found["epoch_first_s"].reason
    assert 0 < found["forward_s"].value < found["latency_max_s"].value
