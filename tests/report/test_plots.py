"""Figures show the table's numbers, all of the extremes, and never a rejected variant as a choice."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgescope.analysis.cells.compare import compare
from edgescope.analysis.cells.objective import wanted
from edgescope.analysis.cells.replicates import latencies_s
from edgescope.analysis.cells.variants import VariantTable, table
from edgescope.analysis.run.summary import metrics
from edgescope.plots import distribution, gains, style, time
from edgescope.plots.style import BASELINE_COLOUR, COLOURS, seconds
from edgescope.records import (
    QUERY_DTYPES,
    Absent,
    Channel,
    Measured,
    Queries,
    Result,
    Status,
    Trial,
    Verification,
    Window,
)
from edgescope.report import terminal, write
from edgescope.report.result import listing
from made_results import KINDS, Kind, failed, study
from making import result as made

FAST_BUT_WRONG = Kind("openvino", "int8", 0.5, 20, 0.604, 0.512, passed=False)


def finished_but_wrong(kinds: list[Kind]) -> list[Result]:
    """Results in which even the wrong variant has all its numbers."""
    return [replace(r, status=Status.OK) for r in study(kinds, 3)]


@pytest.fixture(scope="module")
def found() -> VariantTable:
    return table([*finished_but_wrong([*KINDS[:6], FAST_BUT_WRONG]), failed()])


@pytest.mark.slow
def test_bars_are_the_tables_speedups_with_their_intervals(found: VariantTable) -> None:
    drawn = {bar.y[0]: bar for bar in gains.speedups(found).data if bar.type == "bar"}
    assert set(drawn) == {row.cell for row in found.rows}
    for row in found.rows:
        bar = drawn[row.cell]
        if isinstance(row["speedup"], Absent):
            assert bar.x[0] is None
            continue
        assert bar.x[0] == row["speedup"].value
        if row.cell != found.baseline:
            assert row["speedup"].lo == pytest.approx(bar.x[0] - bar.error_x.arrayminus[0])
            assert row["speedup"].hi == pytest.approx(bar.x[0] + bar.error_x.array[0])


@pytest.mark.slow
def test_rejected_bars_are_hatched_and_struck_out(found: VariantTable) -> None:
    figure = gains.speedups(found)
    hatched = {bar.y[0] for bar in figure.data if bar.marker.pattern.shape}
    assert hatched == {row.cell for row in found.rows if row.rejected} and hatched
    struck = dict(zip(figure.layout.yaxis.tickvals, figure.layout.yaxis.ticktext, strict=True))
    assert {cell for cell, text in struck.items() if text.startswith("<s>")} == hatched


@pytest.mark.slow
def test_a_line_marks_the_baseline_at_one(found: VariantTable) -> None:
    line = gains.speedups(found).layout.shapes[0]
    assert (line.x0, line.x1) == (1, 1)


def test_the_front_holds_no_rejected_variant_though_it_dominates_all(found: VariantTable) -> None:
    figure = gains.tradeoff(found)
    front = next(t for t in figure.data if t.name == "Pareto front")
    wrong = next(r for r in found.rows if r.rejected.startswith("wrong outputs"))
    assert isinstance(wrong["p50_s"], Measured) and wrong["p50_s"].value == min(
        r["p50_s"].value for r in found.rows if isinstance(r["p50_s"], Measured)
    )
    assert wrong.cell not in front.ids
    assert {i for i in front.ids if i} == {r.cell for r in found.rows if r.label == "onnxruntime int8 b1"}
    assert "rejected" in next(t for t in figure.data if t.ids == (wrong.cell,)).hovertemplate


def test_tradeoff_is_the_tables_memory_and_latency(found: VariantTable) -> None:
    points = {t.ids[0]: (t.x[0], t.y[0]) for t in gains.tradeoff(found).data if t.mode == "markers+text"}
    for row in found.rows:
        if isinstance(row["p50_s"], Measured) and isinstance(row["peak_rss_bytes"], Measured):
            assert points.pop(row.cell) == pytest.approx(
                (row["peak_rss_bytes"].value / 1e6, row["p50_s"].value * 1e3)
            )
    assert not points


def test_energy_that_was_not_measured_is_no_figure(found: VariantTable) -> None:
    figure = gains.tradeoff(found, "energy_per_sample_j")
    assert figure == Absent("unsupported: no powercap zones under /sys/class/powercap")


def test_energy_that_was_measured_is_one() -> None:
    powered = table(study([replace(k, power_w=5.0 + i) for i, k in enumerate(KINDS[:3])], 2))
    points = [t for t in gains.tradeoff(powered, "energy_per_sample_j").data if t.mode == "markers+text"]
    expected = sorted(r["energy_per_sample_j"].value * 1e3 for r in powered.rows)
    assert sorted(t.x[0] for t in points) == pytest.approx(expected)


def test_percentile_curves_reach_the_extremes_and_carry_the_tables_marks(found: VariantTable) -> None:
    figure = distribution.percentiles(found)
    scale = seconds([r["p50_s"].value for r in found.rows if isinstance(r["p50_s"], Measured)])
    for row in found.rows:
        parts = [latencies_s(r) for r in row.replicates.values()]
        mine = [t for t in figure.data if t.legendgroup == row.cell]
        if not parts:
            assert not mine
            continue
        raw = [p for p in parts if p is not None]
        curve = next(t for t in mine if t.mode == "lines")
        first, last = np.mean([[p.min(), p.max()] for p in raw], axis=0) * scale.factor
        assert (curve.y[0], curve.y[-1]) == pytest.approx((first, last), rel=0.02)
        marks = [t.y[0] / scale.factor for t in mine if t.mode == "markers"]
        wanted = [f.value for f in (row["p50_s"], row["p99_s"]) if isinstance(f, Measured)]
        assert marks == pytest.approx(wanted) and wanted


@pytest.mark.parametrize("count", [1, 2, 40, 99])
def test_a_replicate_with_more_queries_is_read_at_the_quantiles_between_its_ranks(count: int) -> None:
    x = np.sort(np.random.default_rng(3).exponential(size=99))
    wanted = np.quantile(x, np.linspace(0, 1, count))
    np.testing.assert_allclose(distribution._at_ranks(x, count), wanted, rtol=1e-12)


def test_a_quantile_lies_on_its_curve(found: VariantTable) -> None:
    figure = distribution.percentiles(found)
    row = next(r for r in found.rows if r.label == "onnxruntime fp32 b1")
    curve = next(t for t in figure.data if t.legendgroup == row.cell and t.mode == "lines")
    at_p99 = np.interp(1 / (1 - 0.99), curve.x, curve.y)
    assert isinstance(row["p99_s"], Measured)
    assert at_p99 == pytest.approx(row["p99_s"].value * 1e3, rel=0.05)


@pytest.mark.slow
def test_a_variant_has_one_colour_everywhere(found: VariantTable) -> None:
    looks = style.styles(found)
    assert len({look.colour for look in looks.values()}) == len(found.rows)
    for row in found.rows:
        bar = next(b for b in gains.speedups(found).data if b.y[0] == row.cell)
        assert bar.marker.color == looks[row.cell].colour
        for trace in distribution.percentiles(found).data:
            if trace.legendgroup == row.cell and trace.mode == "lines":
                assert trace.line.color == looks[row.cell].colour


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("page", ["#ffffff", "#14181d"])
@pytest.mark.parametrize("colour", [BASELINE_COLOUR, *COLOURS])
def test_every_colour_is_readable_on_a_light_and_a_dark_page(colour: str, page: str) -> None:
    light, dark = sorted((luminance(colour), luminance(page)), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 3.0


def test_the_first_colours_stay_apart_without_red_green_vision() -> None:
    """Machado's deuteranopia matrix on linear RGB; the first four colours and the baseline's grey."""
    matrix = np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]])
    seen = []
    for colour in (BASELINE_COLOUR, *COLOURS[:4]):
        rgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]) ** 2.2
        seen.append(np.clip(matrix @ rgb, 0, 1) ** (1 / 2.2))
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 0.12


@pytest.mark.slow
def test_warm_up_lies_before_zero_and_no_extreme_is_lost(found: VariantTable) -> None:
    row = found.row(found.baseline)
    figure = time.over_time(found)
    lines = time.tracks(row)
    assert set(lines) == set(row.replicates)
    for number, track in lines.items():
        result = row.replicates[number]
        assert result.window is not None and result.queries is not None
        assert np.count_nonzero(track.t_s <= 0) == result.window.first  # the last warm-up query ends at 0
        done = result.queries.columns["done_ns"]
        assert track.t_s[-1] == pytest.approx((done[-1] - result.window.start_ns) * 1e-9, abs=1e-9)
        trace = next(t for t in figure.data if t.name == f"torch_eager fp32 b1 replicate {number}")
        assert max(trace.y) == pytest.approx(result.queries.latency_ns().max() * 1e-6)
        assert min(trace.y) == pytest.approx(result.queries.latency_ns().min() * 1e-6)


def test_a_long_run_is_thinned_to_the_limit_and_keeps_its_outlier() -> None:
    value = np.random.default_rng(1).random(100_000)
    value[54_321], value[12_345] = 99.0, -1.0
    kept = style.by_time(value)
    assert len(kept) <= style.MAX_POINTS and {0, 99_999, 54_321, 12_345} <= set(kept.tolist())
    assert np.all(np.diff(kept) > 0)


@pytest.mark.parametrize("n", [1, 2, 1999, 2000, 2001, 1_000_000])
def test_ranks_are_thinned_with_both_ends_and_a_dense_tail(n: int) -> None:
    kept = style.by_rank(n)
    assert kept[0] == 0 and kept[-1] == n - 1 and len(kept) <= style.MAX_POINTS
    assert np.all(np.diff(kept) > 0)
    assert {n - 1, max(0, n - 2), max(0, n - 3)} <= set(kept.tolist())


@pytest.mark.slow
def test_a_variant_is_drawn_with_at_most_two_thousand_points() -> None:
    kind = Kind("onnxruntime", "fp32", 0.02, 100)
    many = table(study([kind], 2))
    assert sum(len(r.queries or ()) for r in many.rows[0].replicates.values()) > 100_000
    assert len(distribution.percentiles(many).data[0].x) <= style.MAX_POINTS
    assert sum(len(t.x) for t in time.over_time(many).data) <= style.MAX_POINTS


@pytest.mark.slow
def test_telemetry_draws_measured_channels_only(found: VariantTable) -> None:
    figure = time.telemetry(found)
    titles = [a.text for a in figure.layout.annotations]
    assert titles == ["cpu_busy (system)", "cpu_steal (system)", "proc_rss_bytes (process)"]
    result = found.row(found.baseline).replicates[0]
    assert result.readings is not None
    _, steal = result.readings.series("cpu_steal")
    mine = [t for t in figure.data if t.name == "torch_eager fp32 b1 replicate 0"]
    assert list(mine[1].y) == pytest.approx(list(steal * 100))


def test_telemetry_without_a_sensor_says_so(found: VariantTable) -> None:
    blind = (Channel("cpu_busy", "share", "system", "interval", "/proc/stat", "unsupported", "no /proc"),)
    results = [r for row in found.rows for r in row.replicates.values()]
    unseen = [replace(r, readings=replace(r.readings, channels=blind)) for r in results if r.readings]
    assert time.telemetry(table(unseen)) == Absent("no channel could be measured on this machine")


def test_without_raw_rows_there_is_no_latency_figure(found: VariantTable) -> None:
    bare = table(
        [replace(r, queries=None, readings=None) for row in found.rows for r in row.replicates.values()]
    )
    for draw in (distribution.percentiles, time.over_time, time.telemetry):
        assert isinstance(draw(bare), Absent)


def test_labels_that_would_overlap_are_pushed_apart() -> None:
    placed = distribution.spread_out({"a": 0.99, "b": 0.98, "c": 1.0, "d": 0.1}, 0.05)
    order = sorted(placed, key=lambda k: placed[k])
    assert order == ["d", "b", "a", "c"] and placed["d"] == 0.1 and placed["c"] <= 1.0
    gaps = np.diff([placed[k] for k in order])
    assert np.all(gaps >= 0.05 - 1e-9)


@pytest.mark.slow
def test_a_hostile_label_is_text_in_every_figure() -> None:
    kind = replace(KINDS[2], options={"x": "<img src=x onerror=alert(1)>"})
    hostile = table(study([KINDS[0], kind], 2))
    for draw in (
        gains.speedups,
        distribution.percentiles,
        gains.tradeoff,
        time.over_time,
        time.telemetry,
    ):
        assert "<img" not in draw(hostile).to_json().replace("\\u003c", "<")


def under_load(replicate: int = 0, stamped: bool = False, **keys: object) -> Result:
    """A result of 30 arrivals/s at a service of 20/s."""
    trial = Trial(
        model="m",
        scenario="fixed_rate",
        rate=30.0,
        deadline_s=0.2,
        replicate=replicate,
        **keys,  # type: ignore[arg-type]
    )
    due = 10**9 + np.arange(150) * 33_333_333
    done = 10**9 + np.arange(1, 151) * 50_000_000
    columns = {name: np.full(150, 0, dtype=dtype) for name, dtype in QUERY_DTYPES.items()}
    columns |= {"query_id": np.arange(150), "scheduled_ns": due, "done_ns": done}
    columns |= {"issued_ns": done - 50_000_000, "samples": np.ones(150, np.int32)}
    columns["source_ns"] = due - 5_000_000 if stamped else np.full(150, -1)
    queries, window = Queries(columns), Window(0, 150, 10**9, int(done[-1]))
    return made(
        trial,
        queries=queries,
        window=window,
        metrics=metrics(queries, window, "fixed_rate", trial.deadline_s),
        verification=Verification(True, "none", {}, 0.0, "nothing to compare"),
    )


def test_age_and_queue_of_an_overload_climb_below_the_deadlines_line() -> None:
    loaded = table([under_load(n, stamped=True) for n in range(2)])
    figure = time.queue(loaded)
    ages, depths = ([t for t in figure.data if t.yaxis == axis] for axis in ("y", "y2"))
    assert len(ages) == len(depths) == 2  # a line per replicate
    assert ages[0].y[-1] > 10 * ages[0].y[0] and ages[0].x[0] == pytest.approx(0.05)
    assert max(depths[0].y) == loaded.rows[0]["queue_depth_max"].value
    assert "frame age" in figure.layout.annotations[0].text
    assert "latency" in time.queue(table([under_load()])).layout.annotations[0].text
    assert [line.y0 for line in figure.layout.shapes] == pytest.approx([0.2])


@pytest.mark.slow
def test_the_page_draws_the_queue_of_a_load_only(tmp_path: Path, found: VariantTable) -> None:
    page = write([under_load()], tmp_path / "load.html").read_text()
    assert "Age and queue over time" in page and 'href="#def-deadline_miss_ratio"' in page
    assert isinstance(time.queue(found), Absent)
    assert "Age and queue" not in write(study(KINDS[:2], 2), tmp_path / "plain.html").read_text()


def test_misses_are_a_column_where_a_result_has_a_deadline(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.listing(listing([under_load(stamped=True)]))
    head = capsys.readouterr().out.splitlines()[0]
    assert "misses" in head and "age p99" in head
    terminal.listing(listing(study(KINDS[:1], 1)))
    assert "misses" not in capsys.readouterr().out


def test_misses_and_ages_are_compared_and_bound_a_variant() -> None:
    one, other = (
        [under_load(n, stamped=True, backend=b) for n in range(3)] for b in ("onnxruntime", "openvino")
    )
    rows = {r.metric: r for r in compare(one, other).rows}
    assert rows["deadline_miss_ratio"].ratio.value == rows["frame_age_p99_s"].ratio.value == 1.0
    broken = table([*one, *other], wanted=wanted("latency", ["misses<1%", "age<10s"]))
    assert all("misses<1% broken" in row.rejected and "age" not in row.rejected for row in broken.rows)
    kept = table([*one, *other], wanted=wanted("latency", ["deadline_miss_ratio<=100%"]))
    assert not any(row.rejected for row in kept.rows)
