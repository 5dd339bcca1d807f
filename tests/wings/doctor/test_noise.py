"""The noise floor: known spreads are found again, and a real A/A run comes to an end."""

from __future__ import annotations

import json
import math
import os
from types import SimpleNamespace

import numpy as np
import pytest

from edgescope.analysis.run import noise
from edgescope.cli.main import main
from edgescope.errors import UnsupportedError, UsageError
from edgescope.records import Machine, Status, Trial, Trust, Verdict
from edgescope.stats.alternation import mean_ratio
from edgescope.store.results import Store
from edgescope.wings.doctor import noise as bench_noise
from edgescope.wings.doctor.noise import measure
from edgescope.wings.optimize import racing
from making import result


def pairs(rng, s, n):
    """Return n pairs whose log ratio has standard deviation s."""
    d = rng.normal(0, s, n)
    return [(0.01 * math.exp(x), 0.01) for x in d]


@pytest.mark.parametrize("s", [0.002, 0.01, 0.05])
def test_a_known_spread_is_found(s):
    found = noise.spread(pairs(np.random.default_rng(1), s, 4000))
    assert found == pytest.approx(s, rel=0.05)


def test_the_floor_holds_95_percent_of_further_pairs():
    """Floors from 12 pairs each, against a thirteenth: the t quantile makes up for the estimated spread."""
    rng, inside, n = np.random.default_rng(2), 0, 4000
    for _ in range(n):
        *seen, (a, b) = pairs(rng, 0.02, 13)
        bound = noise.floor(noise.spread(seen), 12)
        inside += abs(math.log(a / b)) <= math.log1p(bound)
    assert 0.94 < inside / n < 0.96


@pytest.mark.parametrize(("s", "k"), [(0.01, 5), (0.03, 10), (0.005, 30)])
def test_the_detectable_change_is_found_in_80_percent_of_comparisons(s, k):
    rng, change = np.random.default_rng(3), noise.detectable(s, k)
    hits = 0
    for _ in range(2000):
        d = rng.normal(math.log1p(change), s, k)
        hits += mean_ratio(d).lo > 1
    assert 0.74 < hits / 2000 < 0.88  # the formula is a little generous at few pairs


def test_needed_is_the_least_that_detects():
    for s in (0.001, 0.01, 0.08):
        for change in noise.CHANGES:
            k = noise.needed(s, change)
            assert noise.detectable(s, k) <= change
            assert k == 3 or noise.detectable(s, k - 1) > change
    assert noise.needed(2.0, 0.01) is None
    assert noise.needed(0.0, 0.01) == 3


def test_the_default_is_that_of_optimize():
    assert racing.ENOUGH == noise.PAIRS


NULL = Trial(model="null", backend="null", options={"delay_us": 200}, turn_s=0.02, min_s=0.05, max_s=0.05)


@pytest.mark.slow
def test_a_real_run_is_measured_stored_and_read_back(tmp_path, trials_here):
    """One pair, far too few for a floor to rely on, through bench's own path."""
    told = []
    found = measure(0.1, workloads=[NULL], min_pairs=1, tell=told.append)
    assert found.pairs == len(found.p50_s) == len(told) == 1
    assert all(a >= 0.0002 and b >= 0.0002 for a, b in found.p50_s)
    assert found.spread == pytest.approx(noise.spread(found.p50_s))
    assert found.floor > 0 and sum(found.verdicts.values()) == 2
    path = noise.save(found, tmp_path)
    assert path.parent.name == found.machine_id
    assert noise.stored(tmp_path, found.machine_id) == found
    assert f"{found.floor:.2%}" in noise.words(found)


def test_what_cannot_be_read_back_is_as_if_never_measured(tmp_path):
    assert noise.stored(tmp_path, "m") is None
    (tmp_path / "m").mkdir()
    half = {
        "p50_s": [[1, 1]],
        "spread": 0.1,
        "floor": "wide",
        "detectable": 0.1,
        "needed": {},
        "verdicts": {},
    }
    for text in ("", "[]", "{}", json.dumps({"p50_s": [[1]]}), json.dumps(half)):
        (tmp_path / "m/noise.json").write_text(text)
        assert noise.stored(tmp_path, "m") is None


def test_a_link_or_a_pipe_in_its_place_is_neither_followed_nor_waited_for(tmp_path):
    floor = noise.Noise(
        "m", "2026-01-02T03:04:05+00:00", "m", 7, 0.01, 0.0236, 0.02, {"1%": None}, {"CLEAN": 14}, []
    )
    path = noise.save(floor, tmp_path / "other")
    (tmp_path / floor.machine_id).mkdir()
    place = tmp_path / floor.machine_id / path.name
    place.symlink_to(path)
    assert noise.stored(tmp_path, floor.machine_id) is None
    place.unlink()
    os.mkfifo(place)
    assert noise.stored(tmp_path, floor.machine_id) is None


@pytest.mark.slow
def test_compare_prints_the_floor_of_the_machine(tmp_path, capsys):
    store = Store(tmp_path)
    for precision in ("fp32", "int8"):
        for replicate in range(3):
            store.save(result(Trial(model="null", backend="null", precision=precision, replicate=replicate)))
    cells = sorted({r.trial.cell for r in store.results()})
    machine = next(iter(store.results())).machine.id
    command = ["compare", *cells, "-v", "--store", str(tmp_path)]
    assert main(command) == 0
    assert "Noise floor" not in capsys.readouterr().out
    floor = noise.Noise(
        machine, "2026-01-02T03:04:05+00:00", "m", 7, 0.01, 0.0236, 0.02, {"1%": None}, {"CLEAN": 14}, []
    )
    noise.save(floor, tmp_path)
    assert main(command) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Noise floor of the machine: identical runs differ by up to 2.36%" in said
    assert "1% needs over 10,000 replicates" in said
    assert len(list(store.results())) == 6  # the file beside them is no result


def test_a_workload_that_cannot_run_is_an_error_with_its_reason():
    gone = Trial(model="null", backend="no_such_backend")
    with pytest.raises(UnsupportedError, match="E-NOISE-2"):
        measure(1, workloads=[gone])
    with pytest.raises(UsageError, match="E-NOISE-1"):
        measure(0)
    with pytest.raises(UsageError, match=r"positive number, not -2\."):
        measure(-120)


def test_each_pair_is_told_as_the_first_over_the_second(monkeypatch):
    told = []
    made = [
        (result(id_=f"a{n}"), result(id_=f"b{n}", machine=Machine({"cpu": "other"}, {}))) for n in range(3)
    ]
    p50 = {id(r): value for pair in made for r, value in zip(pair, (0.0012, 0.001), strict=True)}
    pairs = iter(made)
    monkeypatch.setattr(bench_noise.PersistentChild, "pair", lambda leader, trials, purpose: next(pairs))
    monkeypatch.setattr(bench_noise, "_typical_s", lambda r: p50[id(r)])
    monkeypatch.setattr(bench_noise, "_prepared", lambda workloads: Trial(model="null", backend="null"))
    found = measure(1e-9, tell=told.append, min_pairs=3)
    assert told == [f"pair {n}: +20.00%" for n in (1, 2, 3)]
    assert found.machine_id == made[0][0].machine.id and found.pairs == 3


@pytest.mark.parametrize(
    ("seconds", "least", "count"),
    [(5.0, 1, 5), (4.9, 1, 4), (5.0, 5, 5), (5.0, 7, 7), (0.5, 1, 1), (0.5, 2, 2)],
)
def test_pairs_run_while_another_fits_and_as_many_as_are_needed(monkeypatch, seconds, least, count):
    """A pair takes a second; one that ends with the time is begun."""
    now, ran = [100.0], []

    def pair(leader, trials, purpose):
        now[0] += 1.0
        ran.append([t.replicate for t in trials])
        return result(id_=f"a{len(ran)}"), result(id_=f"b{len(ran)}")

    monkeypatch.setattr(bench_noise, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(bench_noise.PersistentChild, "pair", pair)
    monkeypatch.setattr(bench_noise, "_typical_s", lambda r: 0.001)
    monkeypatch.setattr(bench_noise, "_prepared", lambda workloads: Trial(model="null", backend="null"))
    assert measure(seconds, min_pairs=least).pairs == count
    assert ran == [[n, n] for n in range(count)], "baseline and candidate are one trial"


@pytest.mark.parametrize("seconds", [math.inf, math.nan, 0.0, -1.0])
def test_a_time_that_is_none_is_refused(seconds):
    with pytest.raises(UsageError, match="E-NOISE-1"):
        measure(seconds)


def test_the_first_workload_that_can_be_prepared_is_taken_and_the_reasons_of_all_are_told(monkeypatch):
    gone, broken, fine = (
        Trial(model="null", backend=backend, options=options)
        for backend, options in (
            ("no_such_backend", {}),
            ("null", {"delay_us": 1}),
            ("null", {"delay_us": 2}),
        )
    )
    failed = result(broken, status=Status.FAILED, reason="E-X-1: it fell over.")
    monkeypatch.setattr(bench_noise.fresh, "prepare", lambda trial: failed if trial == broken else None)
    assert bench_noise._prepared([gone, broken, fine]) == fine
    with pytest.raises(UnsupportedError) as raised:
        bench_noise._prepared([gone, broken])
    first, second = raised.value.evidence.split("; ")
    assert "no_such_backend" in first and "E-X-1" in second


def test_a_run_without_a_latency_is_refused_with_its_reason():
    with pytest.raises(UnsupportedError) as raised:
        bench_noise._typical_s(result(reason="E-X-1: it fell over."))
    assert raised.value.code == "E-NOISE-3" and "E-X-1" in raised.value.evidence


def test_a_summary_counts_the_verdicts_of_both_sides(monkeypatch):
    monkeypatch.setattr(bench_noise, "_typical_s", lambda r: 0.0011 if r.id.startswith("a") else 0.001)
    dirty = Verdict(Trust.DISTURBED, ("a neighbour",))
    pairs = [
        (result(id_="a1"), result(id_="b1", verdict=dirty)),
        (result(id_="a2"), result(id_="b2", verdict=None)),
    ]
    found = bench_noise._summary(Trial(model="null", backend="null"), pairs)
    assert found.verdicts == {"CLEAN": 2, "DISTURBED": 1, "UNKNOWN": 1} and found.pairs == 2
    assert found.p50_s == [(0.0011, 0.001)] * 2 and found.workload.startswith("null null")
    assert found.spread == noise.spread(found.p50_s) and found.floor == noise.floor(found.spread, 2)
    assert found.detectable == noise.detectable(found.spread, noise.PAIRS)
    assert found.needed == {f"{c:.0%}": noise.needed(found.spread, c) for c in noise.CHANGES}
