"""The bound is arithmetic on measured ceilings; each part is checked by hand."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.analysis import roofline
from edgescope.analysis.roofline import Ceilings, Limit, Work, bandwidth_at, limit, read
from edgescope.errors import UsageError
from edgescope.records import Absent, Measured, Trial
from making import result

HERE = Ceilings(
    "m1",
    "cuda",
    {"fp32": Measured(1e12, "FLOP/s"), "int8": Absent("not measured")},
    [(1e6, 8e11), (1e8, 1e11)],
    5e-6,
    [(4000, 2e-6), (1e6, 4e-5)],
    [(4000, 3e-6), (1e6, 5e-5)],
)
WORK = Work(macs=10**9, params=24_000_000, input=150_528, outputs=1000)


def test_the_parts_by_hand():
    found = limit(WORK, HERE)
    assert isinstance(found, Limit)
    assert found.compute_s == pytest.approx(2e9 / 1e12)
    moved = (24_000_000 + 150_528 + 1000) * 4
    assert found.memory_s == pytest.approx(moved / 1e11)  # 97 MB do not fit the fast megabyte
    h2d = 2e-6 + (602_112 - 4000) / (1e6 - 4000) * (4e-5 - 2e-6)
    assert found.transfer_s == pytest.approx(h2d + 3e-6)
    assert found.total_s == pytest.approx(found.compute_s + found.transfer_s + 5e-6)
    assert found.bound_by == "compute"


def test_half_the_precision_is_half_the_bytes_and_no_ceiling_is_no_bound():
    assert Work(1, 10, 1, 1, "fp16").compulsory_bytes * 2 == Work(1, 10, 1, 1).compulsory_bytes
    assert limit(Work(1, 1, 1, 1, "int8"), HERE) == Absent("not measured")
    assert isinstance(limit(Work(1, 1, 1, 1, "bf16"), HERE), Absent)


def test_on_a_host_nothing_is_transferred():
    bare = Ceilings("m", "cpu", HERE.flops, HERE.bandwidth, 0.0, [], [])
    found = limit(WORK, bare)
    assert isinstance(found, Limit) and found.transfer_s == 0


@given(
    st.lists(st.tuples(st.floats(1, 1e9), st.floats(1e6, 1e12)), min_size=1, max_size=8), st.floats(1, 1e10)
)
@pytest.mark.slow
def test_bandwidth_never_rises_with_the_working_set(points, size):
    points = sorted(points)
    assert bandwidth_at(points, size) >= bandwidth_at(points, size * 2) or size * 2 > points[-1][0]


@pytest.mark.parametrize("text", ["", "{}", '{"machine_id": "x", "figures": {"flops": {}}}', "[1]"])
def test_a_file_that_holds_no_ceilings_says_how_to_make_one(tmp_path, text):
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"E-CEIL-1.*edgescope doctor --roofline cpu"):
        read(path)


def test_what_the_script_writes_is_read_back(tmp_path):
    figures = {
        "device": "cpu",
        "flops": {"fp32": {"value": 1e11, "size": 512, "unit": "FLOP/s"}, "int8": {"absent": "no kernel"}},
        "bandwidth": [{"bytes": 1000, "value": 1e10}],
        "launch_s": 1e-8,
        "h2d": [],
        "d2h": [],
    }
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"machine_id": "m1", "figures": figures}))
    found = read(path)
    assert found.flops == {"fp32": Measured(1e11, "FLOP/s"), "int8": Absent("no kernel")}
    assert found.bandwidth == [(1000.0, 1e10)] and found.machine_id == "m1"


POINTS = [(1e3, 1e-5), (1e4, 3e-5), (1e6, 1e-3)]


@pytest.mark.parametrize(
    ("size", "seconds"),
    [
        (0, 1e-5),
        (1e3, 1e-5),
        (5.5e3, 2e-5),
        (1e4, 3e-5),
        (505_000, 3e-5 + 0.00097 / 2),
        (1e6, 1e-3),
        (4e6, 4e-3),
    ],
)
def test_a_copy_takes_what_lies_between_the_measured_ones(size, seconds):
    assert roofline._seconds(POINTS, size) == pytest.approx(seconds)
    assert roofline._seconds([], size) == 0.0


@pytest.mark.parametrize(
    ("size", "rate"), [(1, 9e9), (1e3, 9e9), (1.1e3, 8e9), (1e5, 8e9), (1e6, 5e9), (2e6, 5e9)]
)
def test_the_bandwidth_is_the_best_of_a_working_set_at_least_as_large(size, rate):
    assert roofline.bandwidth_at([(1e3, 9e9), (1e4, 7e9), (1e5, 8e9), (1e6, 5e9)], size) == rate


@pytest.mark.parametrize(
    ("mode", "name"), [("as_is", "ceilings-cpu"), ("cpus=0-3+a b", "ceilings-cpu-cpus=0-3_a_b")]
)
def test_ceilings_are_kept_by_machine_device_and_mode(tmp_path, mode, name):
    assert roofline.kept(tmp_path, "id", "cpu", mode) == tmp_path / "id" / f"{name}.json"


def test_the_least_time_is_the_longer_of_computing_and_moving_and_what_comes_on_top():
    found = roofline.Limit(3.0, 2.0, 0.5, 0.25)
    assert (found.total_s, found.bound_by) == (3.75, "compute")
    assert (roofline.Limit(1.0, 2.0, 0.5, 0.25).total_s, roofline.Limit(1.0, 2.0, 0.5, 0.25).bound_by) == (
        2.75,
        "memory",
    )
    ceilings = roofline.Ceilings(
        "id", "cuda", {"fp16": Measured(4e9, "FLOP/s")}, [(1e9, 1e9)], 1e-6, [(1.0, 1e-3)], [(1.0, 2e-3)]
    )
    limit = roofline.limit(roofline.Work(2_000_000, 1000, 0, 0, "fp16"), ceilings)
    assert (limit.compute_s, limit.memory_s) == pytest.approx((1e-3, 2000 / 1e9))
    assert (limit.transfer_s, limit.launch_s) == pytest.approx((3e-3, 1e-6))
    assert isinstance(roofline.limit(roofline.Work(1, 1, 0, 0, "int8"), ceilings), Absent)


@pytest.mark.parametrize(
    ("mode", "name"), [("as_is", "ceilings-cuda"), ("cpu@1.5GHz+gpu=2", "ceilings-cuda-cpu_1.5GHz_gpu=2")]
)
def test_the_ceilings_of_a_store_are_those_of_machine_device_and_mode(tmp_path, mode, name):
    run = result(Trial(model="null", backend="null", device="cuda", mode=mode))
    where = tmp_path / run.machine.id / f"{name}.json"
    assert roofline.kept(tmp_path, run.machine.id, "cuda", mode) == where
    assert roofline.stored(tmp_path, run) is None
    points = [{"bytes": 1e6, "value": 8e9}]
    figures = {
        "device": "cuda",
        "flops": {"fp32": {"value": 2e12}, "int8": {"absent": "no"}},
        "launch_s": 5e-6,
    }
    where.parent.mkdir()
    where.write_text(
        json.dumps({"machine_id": "m", "figures": figures | {"bandwidth": points, "h2d": [], "d2h": points}})
    )
    found = roofline.stored(tmp_path, run)
    assert found == Ceilings(
        "m",
        "cuda",
        {"fp32": Measured(2e12, "FLOP/s"), "int8": Absent("no")},
        [(1e6, 8e9)],
        5e-6,
        [],
        [(1e6, 8e9)],
    )
    other = result(Trial(model="null", backend="null", device="cpu", mode=mode))
    assert roofline.stored(tmp_path, other) is None
