"""Device against device: per joule, per watt, per price, within a power budget; scopes that differ are not compared."""

import json

import pytest

import edgescope
from edgescope.analysis.cells.compare import compare
from edgescope.analysis.cells.devices import Terms, same_work, within
from edgescope.cli.main import main
from edgescope.errors import ExitCode, UsageError
from edgescope.records import Absent, Machine, Measured, Trial
from edgescope.stats import Judgement
from edgescope.store.results import Store
from making import result

BIG, SMALL = (Machine({"cpu": {"model": name}}, {}) for name in ("server", "board"))


def run(machine, speed, watts, batch=1, replicate=0):
    power = Measured(watts, "W", 0.98 * watts, 1.02 * watts) if watts else Absent("no sensor")
    joules = Measured(watts / speed, "J") if watts else Absent("no sensor")
    figures = {
        "throughput_sps": Measured(speed, "samples/s"),
        "power_w": power,
        "energy_per_sample_j": joules,
    }
    figures["latency_p50_s"] = Measured(batch / speed, "s")
    trial = Trial(model="null", backend="null", batch=batch, replicate=replicate)
    return result(trial, machine=machine, metrics=figures)


def rows(found):
    return {r.name: r for r in found.devices}


def test_two_machines_are_compared_for_joules_watts_and_price_and_not_judged():
    terms = Terms({"baseline": 2000, "candidate": 250})
    found = compare([run(BIG, 1000, 200)], [run(SMALL, 100, 10)], terms=terms)
    by = rows(found)
    assert found.judgement is Judgement.NOT_COMPARABLE and not found.rows
    assert by["throughput_sps"].ratio.value == pytest.approx(0.1)
    assert by["samples_per_s_per_w"].baseline.value == pytest.approx(5)
    assert by["samples_per_s_per_w"].ratio.value == pytest.approx(2)
    assert by["energy_per_sample_j"].ratio.value == pytest.approx(0.5)
    assert by["samples_per_s_per_price"].candidate.value == pytest.approx(0.4)
    assert by["samples_per_s_per_price"].ratio.value == pytest.approx(0.8)
    assert "throughput_within_budget_sps" not in by  # no budget was given


def test_one_machine_has_no_such_rows_unless_asked():
    assert compare([run(BIG, 10, 5)], [run(BIG, 20, 5, batch=2)]).devices == ()
    assert compare([run(BIG, 10, 5)], [run(BIG, 20, 5, batch=2)], terms=Terms({}, 6.0)).devices


def test_without_a_price_or_a_meter_the_reason_stands_there():
    by = rows(compare([run(BIG, 1000, 200)], [run(SMALL, 100, None)], terms=Terms({"candidate": 250})))
    assert by["samples_per_s_per_w"].candidate.reason == "no sensor"
    assert by["samples_per_s_per_price"].baseline.reason.startswith("no price is given")
    assert isinstance(by["samples_per_s_per_price"].ratio, Absent)


def test_a_budget_takes_the_fastest_cell_that_surely_keeps_it():
    cells = [
        run(SMALL, s, w, batch=b) for s, w, b in ((100, 9, 1), (140, 14, 4), (160, 14.9, 8), (190, 22, 16))
    ]
    assert within(cells, 15.0).value == 140  # 14.9 W may be 15.2 W
    assert "draws at most 5 W; the least draws 9 W" in within(cells, 5.0).reason
    assert within([run(SMALL, 9, None)], 5.0).reason.startswith("unsupported")
    assert isinstance(within(cells, None), Absent)


def test_only_the_same_work_of_the_same_machine_counts():
    mine, other = run(SMALL, 1, 1), run(BIG, 1, 1)
    more = run(SMALL, 2, 1, batch=4)
    assert [r.id for r in same_work(mine, [mine, other, more])] == [mine.id, more.id]


@pytest.mark.parametrize(
    "terms, code",
    [
        ({"prices": {"baseline": 0.0}}, "E-CMP-2"),
        ({"budget_w": -1.0}, "E-CMP-2"),
        ({"prices": {"baseline": float("nan")}}, "E-CMP-2"),
        ({"prices": {"orin": 5.0}}, "E-CMP-3"),
    ],
)
def test_prices_and_budgets_that_cannot_be_are_refused(terms, code):
    with pytest.raises(UsageError, match=code):
        compare([run(BIG, 1, 1)], [run(SMALL, 1, 1)], terms=Terms(**terms))


@pytest.mark.slow
def test_the_command_prints_them_from_two_stores(tmp_path, capsys):
    here, there = Store(tmp_path / "here"), Store(tmp_path / "there")
    big, small = run(BIG, 1000, 200), run(SMALL, 100, 10)
    here.save(big)
    for each in (small, run(SMALL, 150, 14, batch=4), run(SMALL, 400, 40, batch=8)):
        there.save(each)
    words = ["compare", big.id, small.id, "--store", str(here.root), "--other-store", str(there.root)]
    words += ["--price", "baseline=2000", "--price", f"{SMALL.id[:8]}=250", "--power-budget", "15"]
    assert main([*words, "-v"]) == ExitCode.UNDECIDED
    shown = capsys.readouterr().out
    assert "samples/s per watt" in shown and "samples/s in budget" in shown
    assert [line.split()[1:] for line in shown.splitlines() if line.startswith("machine.cpu")] == [
        ["server", "board"]
    ]
    assert main([*words, "--json"]) == ExitCode.UNDECIDED
    found = {r["name"]: r for r in json.loads(capsys.readouterr().out)["devices"]}
    assert found["throughput_within_budget_sps"]["candidate"]["value"] == 150
    assert (
        "no measured cell draws at most 15 W" in found["throughput_within_budget_sps"]["baseline"]["absent"]
    )
    again = edgescope.compare(
        big.id, small.id, store=here, other_store=there, prices={"baseline": 1, "candidate": 2}
    )
    assert any("per_price" in line for line in again.lines())
