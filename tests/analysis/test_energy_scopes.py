"""Watts of two scopes are never compared: not by compare, in a table, by an objective, by a constraint, in print."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgescope.analysis.cells import objective
from edgescope.analysis.cells.compare import compare
from edgescope.analysis.cells.variants import pick, table
from edgescope.analysis.run.energy import ends, scope, scopes, usual, within
from edgescope.metrics import scoped
from edgescope.records import Absent, Measured, Meter
from edgescope.report.chapter import chapters
from edgescope.report.variants import comparison
from edgescope.wings.optimize.racing import survivors

MS = 1_000_000


def metered(results, where, joules, name="m"):
    """The same results with energy measured in scope `where`."""
    out = []
    for r in results:
        one = 1 + 0.001 * r.trial.replicate
        fields = {
            "power_w": Measured(joules * one * 100, "W"),
            "energy_per_sample_j": Measured(joules * one, "J"),
            "energy_dynamic_per_sample_j": Measured(joules * one / 2, "J"),
        }
        out.append(replace(r, metrics={**r.metrics, **fields}, meter=Meter(name, where, "trapezoid")))
    return out


def test_compare_judges_every_power_metric_within_one_scope(make):
    a = metered(make.cell(10 * MS, seed=1), "module", 0.10)
    b = metered(make.cell(10 * MS, seed=2, batch=2), "module", 0.05)
    rows = {r.metric: r for r in compare(a, b).rows}
    for name in ("power_w", "energy_per_sample_j", "energy_dynamic_per_sample_j"):
        assert rows[name].ratio.value == pytest.approx(0.5)
        assert rows[name].judgement.value == "FASTER"


@pytest.mark.parametrize(
    ("old", "new"), [(("module", "vdd_in"), ("carrier", "vin")), (("rail", "vdd_cpu"), ("rail", "vdd_gpu"))]
)
@pytest.mark.slow
def test_compare_refuses_two_scopes_and_two_rails(make, old, new):
    a = metered(make.cell(10 * MS, seed=1), old[0], 0.10, old[1])
    b = metered(make.cell(10 * MS, seed=2, batch=2), new[0], 0.05, new[1])
    found = compare(a, b)
    assert found.judgement.value == "NOT-COMPARABLE" and not found.rows
    assert found.blockers[0].startswith("scope of power differs: ")
    forced = {r.metric: r for r in compare(a, b, force=True).rows}
    for name in filter(scoped, forced):
        assert forced[name].judgement.value == "NOT-COMPARABLE"


def test_compare_refuses_a_side_that_mixes_scopes(make):
    a = make.cell(10 * MS, seed=1)
    mixed = metered(a[:3], "module", 0.1) + metered(a[3:], "carrier", 0.1)
    found = compare(mixed, metered(make.cell(10 * MS, seed=2, batch=2), "module", 0.1))
    assert "the baseline mixes scopes of power: carrier, module" in found.blockers


def variants_of_two_scopes(make):
    return [
        *metered(make.cell(10 * MS, seed=1), "module", 0.10),
        *metered(make.cell(9 * MS, seed=2, backend="openvino"), "module", 0.08),
        *metered(make.cell(5 * MS, seed=3, backend="onnxruntime"), "cpu_package", 0.01),
    ]


@pytest.mark.slow
def test_the_energy_objective_leaves_out_what_another_meter_measured(make):
    found = table(variants_of_two_scopes(make))
    best = pick(found, "energy")
    assert best.row.trial.backend == "openvino"
    other = next(r for r in found.rows if r.trial.backend == "onnxruntime")
    assert other.scope == "cpu_package"
    assert "measured in scope cpu_package, the others in module: not comparable" in other["power_w"].reason
    assert isinstance(other["energy_per_sample_j"], Absent)
    assert pick(found, "latency").row.trial.backend == "onnxruntime"


@pytest.mark.slow
def test_a_constraint_on_power_is_not_kept_by_watts_of_another_scope(make):
    wanted = objective.wanted("latency", ["power<=2W"])
    found = table(variants_of_two_scopes(make), wanted=wanted)
    other = next(r for r in found.rows if r.trial.backend == "onnxruntime")
    assert "cannot be judged: measured in scope cpu_package" in other.rejected


@pytest.mark.slow
def test_screening_for_energy_does_not_rank_across_scopes(make):
    found = table(variants_of_two_scopes(make))
    kept = survivors(found.rows, objective.wanted("energy"), 0.3)
    backends = {found.row(cell).trial.backend for cell in kept}
    assert "onnxruntime" not in backends and "openvino" in backends


def test_replicates_of_two_scopes_have_no_mean(make):
    a = make.cell(10 * MS, seed=1)
    found = table(metered(a[:3], "module", 0.1) + metered(a[3:], "carrier", 0.2))
    assert "carrier" in found.rows[0]["power_w"].reason


def test_print_says_the_scope_beside_every_watt(make):
    results = metered(make.cell(10 * MS, seed=1), "module", 0.1)
    look = comparison(next(iter(chapters(results))))
    heads = [column.heading(look.form(i)) for i, column in enumerate(look.columns)]
    assert "Power (W, module)" in heads and "Energy per sample (mJ, module)" in heads
    assert "Median latency (ms)" in heads


def test_a_result_of_before_meters_were_named_tells_by_its_channels(make):
    old = make.cell(10 * MS, extra={"scope": "module"})
    assert scopes(old) == {"module"} and scope(old[0]) == "" and usual(old) == ""


@pytest.mark.parametrize(
    ("field", "words"),
    [
        (None, ""),
        (Absent("x"), ""),
        (Measured(1.0, "J", None, 2.0, 5), ""),
        (Measured(1.0, "J", 0.5, None, 5), ""),
        (Measured(1.0, "J", 0.5, 2.0, 77), "bounds"),
        (Measured(1.0, "J", 0.5, 2.0, 12), "95 % over 12 blocks"),
        (Measured(1.0, "W", 0.5, 2.0, 12), "bounds"),
    ],
)
def test_ends_are_bounds_or_an_interval_over_blocks(field, words):
    assert ends(field, Measured(9.0, "J", 8.0, 10.0, 77)) == words
    for unknown in (None, Absent("x")):
        assert ends(field, unknown) == ("bounds" if words else "")


def test_a_figure_of_another_scope_is_absent_and_a_rail_is_called_by_its_name(make):
    one, two = metered(make.cell(10 * MS, replicates=2), "module", 0.1)
    rail = replace(two, meter=Meter("vdd_cpu", "rail", "trapezoid"))
    assert (scope(one), scope(rail), scope(replace(two, meter=None))) == ("module", "rail vdd_cpu", "")
    figure = Measured(1.0, "W")
    assert within(figure, [one, two], "module") is figure and within(figure, [one, rail], "") is figure
    assert within(figure, [one, rail], "module") == Absent(
        "measured in scope rail vdd_cpu, the others in module: not comparable"
    )
    assert within(Absent("x"), [one, rail], "module") == Absent("x")
    assert (
        usual([rail, one, two]) == "module"
        and usual([]) == ""
        and scopes([one, rail]) == {"module", "rail vdd_cpu"}
    )
