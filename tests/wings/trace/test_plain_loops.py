"""The accounts of random traces against loops over their rows, one row after the other."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from edgescope.analysis.kernels import gpu_time
from edgescope.analysis.kernels.account import account, steadiness
from edgescope.analysis.kernels.gpu_time import by_name, gpu_times, scheduling, sharing
from edgescope.analysis.kernels.inferences import Inferences, inferences, shared_name
from edgescope.analysis.kernels.rows import CDF, Distribution, Rows
from edgescope.records import SPAN_KINDS, Absent, Channel, Readings, Spans, Trace
from edgescope.wings.trace.figures import STRETCHES, timeline
from edgescope.wings.trace.verb import _onset

FIELDS = (
    "kind",
    "name",
    "start_ns",
    "end_ns",
    "process",
    "thread",
    "device",
    "stream",
    "correlation",
    "bytes",
)
LAUNCH, SYNC, OTHER = "cudaLaunchKernel", "cudaStreamSynchronize", "cudaGetDevice"
Row = dict[str, Any]


def row(kind: str, name: str, start: int, end: int, **other: int) -> Row:
    return dict.fromkeys(FIELDS, -1) | {"kind": kind, "name": name, "start_ns": start, "end_ns": end} | other


def made(rows: list[Row], **keys: Any) -> Trace:
    names = list(dict.fromkeys(r["name"] for r in rows))
    columns = {k: np.array([r[k] for r in rows]) for k in FIELDS if k not in ("kind", "name")}
    columns |= {"kind": np.array([SPAN_KINDS.index(r["kind"]) for r in rows])}
    columns |= {"name": np.array([names.index(r["name"]) for r in rows])}
    return Trace(Spans.from_columns(names, columns), "made", **keys)


def random_rows(seed: int, sparse: bool = False) -> list[Row]:
    """Two processes, two GPUs, two streams; some ids repeat, some have no call, graphs have several kernels."""
    rng, rows = np.random.default_rng(seed), []
    far = 100_000 if sparse else 1
    for process in (1, 2):
        at = 0
        for i in range(14):
            at += int(rng.integers(1, 9))
            ident = (i + 1 - int(rng.integers(0, 3) == 0)) * far
            name = LAUNCH if rng.uniform() < 0.8 else OTHER
            rows.append(row("api", name, at, at + 3, process=process, thread=process, correlation=ident))
            for _ in range(1 + (rng.uniform() < 0.2)):
                begin = at + int(rng.integers(0, 9))
                kind = "kernel" if rng.uniform() < 0.8 else "graph"
                place = {
                    "device": int(rng.integers(0, 2)),
                    "stream": int(rng.integers(7, 9)),
                    "process": process,
                }
                called = ident if rng.uniform() < 0.9 else 77 * far + i
                rows.append(
                    row(
                        kind, f"k{i % 3}", begin, begin + int(rng.integers(1, 7)), correlation=called, **place
                    )
                )
            if rng.uniform() < 0.4:
                rows.append(
                    row("sync", SYNC, at + 3, at + 5, process=process, thread=process, correlation=900 + i)
                )
    rng.shuffle(rows)  # type: ignore[arg-type]
    return rows


def called(rows: list[Row], work: Row) -> Row | None:
    """The last call with the work's id that began before it, else the only one there is."""
    every = [r for r in rows if r["kind"] in ("api", "sync") and r["process"] == work["process"]]
    ids = [r["correlation"] for r in every]
    same = [r for r in every if r["correlation"] == work["correlation"]]
    if len(ids) > len(set(ids)):
        same = [r for r in same if r["start_ns"] <= work["start_ns"]]
    return max(same, key=lambda r: r["start_ns"], default=None)


def on_gpu(rows: list[Row], **of: int) -> set[int]:
    found = [
        r for r in rows if r["kind"] in ("kernel", "graph", "copy") and all(r[k] == v for k, v in of.items())
    ]
    return {t for r in found for t in range(r["start_ns"], r["end_ns"])}


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_launches_are_joined_as_one_would_by_hand(seed, sparse):
    rows = random_rows(seed, sparse)
    work = [r for r in rows if r["kind"] in ("kernel", "graph")]
    pairs = [(w, c) for w in work if (c := called(rows, w)) is not None]
    count: dict[int, int] = {}
    for _, c in pairs:
        count[id(c)] = count.get(id(c), 0) + 1
    single = [(w, c) for w, c in pairs if count[id(c)] == 1]
    found = gpu_time.launches(Rows(made(rows).spans))
    assert found is not None
    waits = [w["start_ns"] - c["end_ns"] for w, c in single]
    assert (found.queue.count, found.queue.total_ns) == (
        sum(x >= 0 for x in waits),
        sum(x for x in waits if x > 0),
    )
    assert found.began_early == sum(x < 0 for x in waits)
    assert found.total.total_ns == sum(max(w["end_ns"], c["end_ns"]) - c["start_ns"] for w, c in single)
    assert (found.api.count, found.api.total_ns) == (len(count), 3 * len(count))
    assert found.lone == len(work) - len(pairs) and found.graph_kernels == len(pairs) - len(single)
    graphs = sum(w["kind"] == "graph" for w in work)
    assert found.graph_launches == sum(n > 1 for n in count.values()) + graphs
    assert found.separable is (found.graph_launches == 0)
    short = [w for w, c in single if w["kind"] == "kernel" and w["end_ns"] - w["start_ns"] < 3]
    assert found.short == len(short)
    kernels = [w for w in work if w["kind"] == "kernel"]
    assert found.kernel.total_ns == sum(w["end_ns"] - w["start_ns"] for w in kernels)
    ids = {
        p: [r["correlation"] for r in rows if r["kind"] in ("api", "sync") and r["process"] == p]
        for p in (1, 2)
    }
    assert found.repeated == sum(len(x) - len(set(x)) for x in ids.values())
    blocked = []
    for w, c in single:
        mine, other = w["process"], 3 - w["process"]
        devices = {r["device"] for r in work if r["process"] == mine}
        theirs = set().union(*(on_gpu(rows, process=other, device=d) for d in devices)) - on_gpu(
            rows, process=mine
        )
        blocked.append(len(theirs & set(range(c["end_ns"], max(c["end_ns"], w["start_ns"])))))
    assert (found.blocked.count, found.blocked.total_ns) == (sum(b > 0 for b in blocked), sum(blocked))
    gaps = []
    for place in {(w["process"], w["device"], w["stream"]) for w in kernels}:
        here = sorted(
            (w["start_ns"], w["end_ns"]) for w in kernels if (w["process"], w["device"], w["stream"]) == place
        )
        gaps += [b[0] - a[1] for a, b in pairwise(here) if b[0] > a[1]]
    if len({(w["start_ns"], w["device"], w["stream"], w["process"]) for w in kernels}) == len(kernels):
        assert (found.gap.count, found.gap.total_ns) == (len(gaps), sum(gaps))


@pytest.mark.parametrize("seed", range(6))
def test_gpu_time_and_turns_are_those_of_the_rows(seed):
    rows = random_rows(seed)
    rows += [
        row("copy", "H2D", 3 * k, 3 * k + 2, process=1, device=k % 2, stream=9, correlation=-1)
        for k in range(4)
    ]
    spans = Rows(made(rows).spans)
    for gpu in gpu_times(spans):
        busy = on_gpu(rows, device=gpu.device)
        kernel = {
            t
            for r in rows
            if r["kind"] in ("kernel", "graph") and r["device"] == gpu.device
            for t in range(r["start_ns"], r["end_ns"])
        }
        assert (gpu.busy_ns, gpu.span_ns) == (len(busy), max(busy) + 1 - min(busy))
        assert (gpu.kernel_ns, gpu.copy_ns) == (len(kernel), len(busy - kernel))
        assert gpu.idle_ns == gpu.idle_host_ns + gpu.idle_launch_ns + gpu.idle_unknown_ns
        assert gpu.busy == pytest.approx(len(busy) / gpu.span_ns)
    found = sharing(spans)
    assert found is not None
    both = on_gpu(rows, process=1) & on_gpu(rows, process=2)
    assert found.overlapped_ns == len(both)
    for turn in found.turns:
        assert turn.share == pytest.approx(len(on_gpu(rows, process=turn.process)) / len(on_gpu(rows)))


def test_turns_of_two_processes_on_two_gpus():
    rows = [
        row("kernel", "a", 0, 5, process=1, device=0),
        row("kernel", "a", 3, 9, process=1, device=0),
        row("kernel", "a", 10, 12, process=2, device=0),
        row("kernel", "a", 14, 15, process=1, device=0),
        row("kernel", "a", 0, 30, process=2, device=1),
    ]
    one, two = sharing(Rows(made(rows).spans)).turns
    assert (one.process, one.turns, one.mean_ns, one.share) == (1, 2, 5.0, 10 / 30)
    assert (two.process, two.turns, two.mean_ns, two.share) == (2, 2, 16.0, 1.0)
    assert sharing(Rows(made(rows[:2]).spans)) is None


def test_a_process_waits_for_what_it_has_launched_itself():
    """Of process 2 a kernel waits for its own; process 1, which launched nothing before, was held up by nobody."""
    rows = [
        row("api", LAUNCH, 0, 1, process=2, device=0, correlation=1),
        row("api", LAUNCH, 2, 3, process=2, device=0, correlation=2),
        row("kernel", "a", 1, 20, process=2, device=0, correlation=1),
        row("kernel", "b", 20, 30, process=2, device=0, correlation=2),
        row("kernel", "c", 100, 110, process=1, device=0),
    ]
    assert sharing(Rows(made(rows).spans)).blocked_ns == {(1, 2): 0, (2, 1): 0}
    held = [*rows, row("kernel", "d", 4, 10, process=1, device=0)]
    held[2] = held[2] | {"start_ns": 10}
    assert sharing(Rows(made(held).spans)).blocked_ns == {(1, 2): 0, (2, 1): 6}


def test_kernels_without_length_have_turns_and_no_share():
    one, two = sharing(
        Rows(made([row("kernel", "a", t, t, process=t, device=0) for t in (1, 2)]).spans)
    ).turns
    assert (one.turns, one.mean_ns, one.share) == (two.turns, two.mean_ns, two.share) == (1, 0.0, 0.0)


def test_idle_time_of_two_gpus_by_their_calls():
    rows = [
        row("kernel", "a", 0, 10, process=1, device=0, correlation=1),
        row("kernel", "a", 20, 30, process=1, device=0, correlation=2),
        row("kernel", "a", 50, 60, process=1, device=0, correlation=3),
        row("kernel", "a", 65, 70, process=1, device=0, correlation=4),
        row("kernel", "b", 5, 90, process=1, device=1, correlation=5),
        *(
            row("api", LAUNCH, t, t + 1, process=1, thread=1, correlation=c)
            for c, t in ((2, 14), (3, 5), (5, 0))
        ),
    ]
    first, second = gpu_times(Rows(made(rows).spans))
    assert (first.idle_host_ns, first.idle_launch_ns, first.idle_unknown_ns) == (4, 6 + 20, 5)
    assert (second.idle_ns, second.busy) == (0, 1.0)
    bare = gpu_times(Rows(made([r for r in rows if r["kind"] == "kernel"]).spans))
    assert [g.idle_unknown_ns for g in bare] == [35, 0]


def test_rows_of_a_name_are_counted_with_their_spread_and_their_inferences():
    rows = [
        *(
            row("kernel", "a", 10 * k, 10 * k + n, process=1, device=0, bytes=b)
            for k, n, b in ((0, 2, -1), (1, 9, 5), (2, 4, 7))
        ),
        row("kernel", "b", 50, 90, process=1, device=0, bytes=3),
        row("kernel", "c", 60, -1, process=1, device=0),
        row("kernel", "a", 5, 6, process=2, device=0),
    ]
    none = np.array([], "int64")
    within = Inferences(
        "x", np.array([1, 1, 1, 2]), np.zeros(4), np.array([0, 10, 50, 5]), np.array([10, 30, 61, 5])
    )
    b, a, c = by_name(Rows(made(rows).spans), "kernel", within=within)
    assert (b.name, b.count, b.total_ns, b.longest_ns, b.bytes, b.inferences) == ("b", 1, 40, 40, 3, 1)
    assert (a.name, a.count, a.total_ns, a.longest_ns, a.bytes, a.inferences) == ("a", 4, 16, 9, 12, 2)
    assert a.mean_ns == 4.0 and a.spread_ns == pytest.approx(
        tuple(np.quantile([1, 2, 4, 9], (0.05, 0.5, 0.95)))
    )
    assert (c.name, c.count, c.total_ns, c.longest_ns, c.spread_ns, c.mean_ns, c.inferences) == (
        "c",
        1,
        None,
        None,
        None,
        None,
        1,
    )
    plain = by_name(
        Rows(made(rows).spans), "kernel", within=Inferences("x", none, none, none, none), averaged=True
    )
    assert [(n.spread_ns, n.inferences) for n in plain] == [(None, None)] * 3
    assert by_name(Rows(made(rows).spans), "copy") == ()


def test_scheduling_of_each_process():
    rows = [
        row("sched", "x", 0, 4, process=1, thread=1, device=0),
        row("sched", "x", 6, 9, process=1, thread=1, device=1),
        row("sched", "x", 9, 10, process=1, thread=1, device=1),
        row("sched", "x", 2, 5, process=1, thread=2, device=3),
        row("sched", "x", 20, 90, process=2, thread=3, device=0),
        row("ready", "x", 4, 6, process=1, thread=1),
        row("ready", "x", 1, 2, process=1, thread=2),
        row("ready", "x", 10, 20, process=2, thread=3),
    ]
    two, one = scheduling(Rows(made(rows).spans))
    assert (two.process, two.threads, two.switches, two.migrations, two.on_cpu_ns) == (2, 1, 1, 0, 70)
    assert (two.off_cpu.count, two.run_queue.total_ns) == (0, 10)
    assert (one.process, one.threads, one.switches, one.migrations, one.on_cpu_ns) == (1, 2, 4, 1, 11)
    assert (one.off_cpu.count, one.off_cpu.total_ns) == (1, 2)
    assert (one.run_queue.count, one.run_queue.total_ns) == (2, 3)
    assert scheduling(Rows(made(rows[5:]).spans)) == ()


def test_a_distribution():
    found = Distribution.of(np.array([3, 1, 2, 10]))
    assert (found.count, found.total_ns, found.lowest_ns, found.highest_ns, found.mean_ns) == (
        4,
        16,
        1.0,
        10.0,
        4.0,
    )
    assert found.quantiles_ns == pytest.approx(tuple(np.quantile([1, 2, 3, 10], CDF)))
    assert CDF == (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
    assert found.quantile_ns(0.25) == 1.75 and found.median_s.value == pytest.approx(2.5e-9)
    none = Distribution.of(np.array([]))
    assert none == Distribution(0, 0, 0.0, (), 0.0) and none.mean_ns == 0.0
    assert isinstance(none.median_s, Absent)


def test_a_timeline_has_the_share_of_each_stretch():
    rows = [
        row("op", "o", 0, 2000, process=1, thread=1),
        row("api", LAUNCH, 2000, 2005, process=1, thread=1),
        row("api", OTHER, 1000, 1009, process=1, thread=1),
        row("sync", SYNC, 2010, 4000, process=1, thread=1),
        row("sync", SYNC, 2012, 2014, process=1, thread=1),
        row("kernel", "k", 2005, 2010, process=1, device=0),
        row("graph", "g", 3990, 4000, process=1, device=0),
        row("copy", "c", 0, 1, process=1, device=0),
    ]
    found = timeline(made(rows))
    assert (found.start_ns, found.end_ns, STRETCHES) == (0, 4000, 400)
    assert found.t_s[[0, 1, -1]] == pytest.approx([5e-9, 15e-9, 3995e-9])
    shares = {name: {int(i): float(s[i]) for i in np.flatnonzero(s)} for name, s in found.shares.items()}
    assert shares["operators"] == {i: 1.0 for i in range(200)}
    assert shares["launching"] == {200: 0.5} and shares["GPU: copies"] == {0: 0.1}
    assert shares["GPU: kernels"] == {200: 0.5, 399: 1.0} and "on a CPU" not in shares
    assert shares["waiting for the GPU"] == {i: 1.0 for i in range(201, 400)}
    assert {int(i): int(found.waits[i]) for i in np.flatnonzero(found.waits)} == {201: 2}
    later = timeline(
        made([{**r, "start_ns": r["start_ns"] + 7000, "end_ns": r["end_ns"] + 7000} for r in rows])
    )
    assert later.t_s == pytest.approx(found.t_s) and later.start_ns == 7000
    assert timeline(made(rows, timed=False)) is None and timeline(made([row("op", "o", 5, 5)])) is None


@pytest.mark.parametrize(
    ("lengths", "trust"),
    [
        ([10] * 7, "UNKNOWN"),
        ([10] * 4 + [13] * 4, "DISTURBED"),
        ([13] * 4 + [10] * 4, "DISTURBED"),
        ([10] * 4 + [12] * 4, "UNKNOWN"),
        ([12] * 4 + [10] * 4, "UNKNOWN"),
        ([10] * 4 + [99] + [13] * 4, "DISTURBED"),
        ([0] * 4 + [13] * 4, "UNKNOWN"),
        ([10] * 3 + [13] * 4, "UNKNOWN"),
    ],
)
def test_halves_that_differ_by_more_than_a_fifth_are_disturbed(lengths, trust):
    start = np.arange(len(lengths)) * 100
    found = Inferences("x", np.ones(len(start)), np.ones(len(start)), start, start + np.array(lengths))
    assert steadiness(found).trust.value.upper() == trust
    turned = Inferences("x", found.process, found.thread, start[::-1], (start + np.array(lengths))[::-1])
    assert steadiness(turned).trust.value.upper() == trust


@pytest.mark.parametrize(
    ("series", "onset"),
    [
        ([(1, [10] * 4), (2, [15] * 4)], None),
        ([(1, [10] * 4), (2, [16] * 4)], 2),
        ([(1, [10] * 4), (2, [14] * 4), (4, [30] * 4), (8, [90] * 4)], 4),
        ([(1, [1, 1, 1, 40, 40]), (2, [9] * 5)], None),
        ([(1, [10] * 4)], None),
    ],
)
def test_the_onset_of_preemption_is_a_half_more(series, onset):
    assert _onset([(n, np.array(ec)) for n, ec in series]) == onset


@pytest.mark.parametrize(
    ("name", "shared"),
    [
        *(
            ("ProfilerStep#7", "ProfilerStep#N"),
            ("step 12", "step N"),
            ("my_frame_3", "my_frame_N"),
            ("layer7", "layer7"),
        ),
        *(("batch:9", "batch:N"), ("x", "x"), ("INFER-2", "INFER-N"), ("overstep 3", "overstep 3")),
    ],
)
def test_names_that_differ_in_their_number_are_one(name, shared):
    assert shared_name(name) == shared


def test_inferences_lie_between_waits_that_follow_a_launch():
    def waits(process: int, at: int) -> list[Row]:
        own = {"process": process, "thread": process}
        return [
            *(row("api", LAUNCH, at + t, at + t + 1, **own) for t in (0, 20, 40)),
            *(
                row("sync", SYNC, at + t, at + e, **own)
                for t, e in ((5, 9), (10, 15), (25, 30), (45, 50), (51, 52))
            ),
            row("api", OTHER, at + 12, at + 13, **own),
        ]

    found = inferences(Rows(made(waits(1, 0) + waits(2, 100)).spans))
    assert found.process.tolist() == [1, 1, 2, 2] == found.thread.tolist()
    assert found.start.tolist() == [15, 30, 115, 130] and found.end.tolist() == [30, 52, 130, 152]
    assert len(inferences(Rows(made(waits(1, 0)[:4]).spans))) == 0


def test_inferences_are_units_else_steps_else_the_most_frequent_outer_range():
    own = {"process": 1, "thread": 1}
    ranges = [row("range", f"step {k}", 10 * k, 10 * k + 9, **own) for k in range(3)]
    ranges += [row("range", "inner", 10 * k + 1, 10 * k + 2, **own) for k in range(3)]
    ranges += [row("range", "inner", 10 * k + 3, 10 * k + 4, **own) for k in range(3)]
    ranges += [row("range", "nccl:x", 10 * k + 9, 10 * k + 10, **own) for k in range(3)]
    found = inferences(Rows(made(ranges[::-1]).spans))
    assert found.start.tolist() == [0, 10, 20] and "step N" in found.how
    edge = [row("range", "a", 0, 5, **own), row("range", "b", 5, 9, **own), row("range", "b", 9, 12, **own)]
    assert inferences(Rows(made(edge).spans)).start.tolist() == [5, 9], (
        "what begins at another's end is not within it"
    )
    steps = [*ranges, row("range", "ProfilerStep#1", 0, 30, **own)]
    assert inferences(Rows(made(steps).spans)).end.tolist() == [30]
    units = [*steps, row("unit", "u", 3, 4, **own), row("unit", "u", 1, 2, process=0, thread=0)]
    assert inferences(Rows(made(units).spans)).start.tolist() == [1, 3]


def test_samples_are_means_while_the_gpu_was_at_work():
    channel = Channel("x", "share", "gpu_board", "average", "y")
    samples = Readings(
        (channel,), np.array([0, 10, 20, 30, 31]), np.zeros(5, "int16"), np.array([9.0, 1, 2, 3, 9])
    )
    work = [row("kernel", "k", 10, 12, process=1, device=0), row("kernel", "k", 20, 30, process=1, device=0)]
    found = account(made(work, samples=samples)).samples["x"]
    assert (found.value, found.unit, found.n) == (2.0, "share", 3)
    host = account(made([row("op", "o", 3, 4, process=1, thread=1)], samples=samples)).samples["x"]
    assert (host.value, host.n) == (4.8, 5)
    far = account(made([row("kernel", "k", 11, 12, process=1, device=0)], samples=samples)).samples["x"]
    assert isinstance(far, Absent)


def test_the_share_of_the_inferences_in_which_an_operator_ran():
    own = {"process": 1, "thread": 1}
    rows = [
        row("range", "infer", 0, 10, **own),
        row("range", "infer", 20, 30, **own),
        row("op", "o", 5, 24, **own),
    ]
    assert account(made(rows)).operating == pytest.approx(9 / 20)
    assert account(made(rows, facts={"averaged": True})).operating is None
