"""Programs that own their loop: one is believed, several count while all of them measure."""

from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.backends.base import ProgramRun
from edgescope.bench.programs import OwnLoop
from edgescope.bench.watch import Watch
from edgescope.errors import DeviceError, Message, RanElsewhereError
from edgescope.records import QUERY_DTYPES, Absent, Effective, Measured, Queries, Window
from making import queries, result

MS = 1_000_000


@pytest.fixture(autouse=True, scope="module")
def unwatched():
    @contextmanager
    def watching(self):
        yield

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Watch, "watching", watching)
        yield


def program(*each):
    """A run of a program whose queries begin every `step` ms from `start` ms on, in the window from `first` on."""
    of, runs = result(), []
    for number, (start, step, count, warm) in enumerate(each):
        issued = (start + step * np.arange(count)) * MS
        known = {
            "query_id": np.arange(count),
            "issued_ns": issued,
            "done_ns": issued + step * MS,
            "samples": 2,
        }
        usual = {"source_ns": -1, "scheduled_ns": -1}
        table = {
            name: np.asarray(np.broadcast_to(known.get(name, usual.get(name, 0)), count), dtype)
            for name, dtype in QUERY_DTYPES.items()
        }
        window = Window(warm, count, int(issued[warm]), int(issued[-1] + step * MS))
        facts = {"load_s": Measured(1.0 + number, "s"), "peak_rss_bytes": Measured(7.0, "bytes")}
        notes = {"pid": 100 + number}
        runs.append(ProgramRun(Queries(table), window, of.effective, len, facts, notes))
    return SimpleNamespace(
        model=of.model, artifact={}, drive=lambda: runs, verify=lambda driven, machine: driven is runs[0]
    )


def measured(*each):
    of = result()
    return OwnLoop(program(*each)).measure(
        replace(of, trial=replace(of.trial, processes=len(each))), Watch({}, 0)
    )


def test_several_count_while_all_of_them_measure():
    run = measured((0, 10, 50, 5), (200, 10, 50, 2))
    assert (run.window.start_ns, run.window.stop_ns) == (220 * MS, 500 * MS)
    assert run.metrics["throughput_sps"].value == pytest.approx(
        2 * 2 * 100, rel=0.04
    )  # 2 a query, each 10 ms
    assert run.metrics["peak_rss_bytes"].value == 14.0
    assert [w.load_s.value for w in run.workers] == [1.0, 2.0]
    assert [w.pid for w in run.workers] == [100, 101]
    assert run.metrics["start_skew_s"].value == pytest.approx(0.17)
    assert run.metrics["fairness"].value == pytest.approx(1.0, abs=0.01)
    assert run.verification and run.driver == "external"
    assert [note["pid"] for note in run.artifact["programs"]] == [100, 101]
    assert "W-WORKER-1" in {warning.code for warning in run.warnings}


def test_the_windows_that_programs_state_bound_the_common_time():
    of, stated = result(), program((0, 10, 50, 5), (0, 10, 50, 5))
    first, second = stated.drive()
    runs = [
        replace(first, window=replace(first.window, start_ns=105 * MS)),
        replace(second, window=replace(second.window, stop_ns=395 * MS)),
    ]
    stated.drive, stated.verify = lambda: runs, lambda driven, machine: True
    run = OwnLoop(stated).measure(replace(of, trial=replace(of.trial, processes=2)), Watch({}, 0))
    assert (run.window.start_ns, run.window.stop_ns) == (105 * MS, 395 * MS)


def test_programs_that_never_measured_at_one_moment_give_no_number():
    with pytest.raises(DeviceError) as told:
        measured((0, 10, 10, 0), (200, 10, 10, 0))
    assert told.value.code == "E-WORKER-5"


@given(
    st.lists(
        st.tuples(st.integers(0, 300), st.integers(1, 20), st.integers(40, 80), st.integers(0, 5)),
        min_size=2,
        max_size=5,
    )
)
def test_no_query_outside_the_common_time_counts(each):
    starts = [start + step * warm for start, step, _, warm in each]
    stops = [start + step * count for start, step, count, _ in each]
    if max(starts) >= min(stops):
        with pytest.raises(DeviceError):
            measured(*each)
        return
    run = measured(*each)
    assert (run.window.start_ns, run.window.stop_ns) == (max(starts) * MS, min(stops) * MS)
    rows = run.queries.rows(run.window).columns
    assert ((rows["done_ns"] >= run.window.start_ns) & (rows["done_ns"] <= run.window.stop_ns)).all()
    wanted = [
        sum(max(starts) <= start + step * (k + 1) <= min(stops) for k in range(warm, count))
        for start, step, count, warm in each
    ]
    assert [int((rows["worker"] == n).sum()) for n in range(len(each))] == wanted
    assert len(run.queries) == sum(count for _, _, count, _ in each)


def test_a_program_that_owns_its_loop_is_told_as_it_says():
    of = result()
    made = ProgramRun(
        queries=queries(),
        window=of.window,
        effective=of.effective,
        answer=len,
        facts={"load_s": Measured(2.0, "s"), "peak_rss_bytes": Measured(7.0, "bytes")},
        notes={"version": "1"},
        warnings=(Message("W-A-1", "a warning"),),
    )
    program = SimpleNamespace(
        model=of.model,
        artifact={"path": "x"},
        drive=lambda: [made],
        verify=lambda driven, machine: (driven, machine),
    )

    run = OwnLoop(program).measure(of, Watch({}, 0))
    assert run.artifact == {"path": "x", "program": {"version": "1"}} and run.driver == "external"
    assert run.metrics["load_s"] == Measured(2.0, "s") and run.warnings == made.warnings
    assert run.metrics["peak_rss_bytes"] == Measured(7.0, "bytes")
    assert run.verification == (made, of.machine) and run.window is of.window
    program.drive = lambda: [replace(made, facts={})]
    assert isinstance(OwnLoop(program).measure(of, Watch({}, 0)).metrics["peak_rss_bytes"], Absent)
    program.drive = lambda: [replace(made, effective=Effective("cuda", "fp32"))]
    with pytest.raises(RanElsewhereError, match="E-RAN-1"):
        OwnLoop(program).measure(of, Watch({}, 0))
