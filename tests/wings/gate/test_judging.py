"""PASS needs the whole interval within the limit, FAIL the whole beyond it; what is not known is never a pass."""

import numpy as np
import pytest

from edgescope.analysis.cells.objective import parse as bounded
from edgescope.records import Absent, Measured, Status, Trial, Verification
from edgescope.wings.gate import judging
from edgescope.wings.gate.judging import Check, Verdict, bounds, losses, outputs, together
from edgescope.wings.gate.limits import parse
from making import result

PASS, FAIL, INCONCLUSIVE = Verdict


def runs(values, name="latency_p50_s", unit="s", model="m"):
    """Fresh processes of one cell with these values, each begun in the minute of its number."""
    return [
        result(
            Trial(model=model, replicate=i),
            metrics={name: Measured(float(v), unit, n=50)},
            started_at=f"2026-11-29T10:{i:02}:{0 if model == 'm' else 9:02}+00:00",
        )
        for i, v in enumerate(values)
    ]


def sides(factor, spread, n=8, seed=None, **keys):
    """Both sides of n pairs: the second `factor` times the first; every other pair is off to one side, or at random."""
    signs = np.resize([1.0, -1.0], (1, n)) * [[0.5], [-0.5]]
    noise = np.exp(spread * (signs if seed is None else np.random.default_rng(seed).normal(size=(2, n))))
    return runs(0.01 * noise[0], **keys), runs(0.01 * factor * noise[1], model="new", **keys)


def verdict(limit, old, new, **how):
    (check,) = losses([parse(limit)], old, new, **how)
    return check


@pytest.mark.parametrize(("factor", "kind"), [(1.0, PASS), (1.2, FAIL), (1.05, INCONCLUSIVE)])
def test_the_interval_against_the_limit_decides(factor, kind):
    check = verdict("latency=5%", *sides(factor, 0.01))
    assert check.verdict is kind
    assert check.ratio.lo < factor < check.ratio.hi
    assert (check.ratio.hi <= 1.05, check.ratio.lo > 1.05) == (kind is PASS, kind is FAIL)


def test_a_rate_that_falls_is_a_loss_and_the_ratio_is_the_candidates():
    keys = {"name": "throughput_sps", "unit": "samples/s"}
    check = verdict("throughput=5%", *sides(0.8, 0.01, **keys))
    assert check.verdict is FAIL and check.ratio.value == pytest.approx(0.8, rel=0.03)
    assert verdict("throughput=5%", *sides(1.2, 0.01, **keys)).verdict is PASS


def test_what_was_not_measured_is_never_a_pass():
    old, new = sides(1.0, 0.001)
    for missing in ("memory=10%", "energy=10%", "top1=1%"):
        check = verdict(missing, old, new)
        assert check.verdict is INCONCLUSIVE and "could not be judged" in check.why
        assert together([check]) is INCONCLUSIVE


def test_one_run_of_each_side_decides_nothing():
    check = verdict("latency=5%", *sides(3.0, 0.001, n=1))
    assert check.verdict is INCONCLUSIVE and check.ratio.lo is None


def test_runs_of_different_hours_decide_nothing():
    old, new = sides(1.0, 0.001)
    apart = [judging.replace(r, started_at=r.started_at.replace("T10", "T18")) for r in new]
    check = verdict("latency=5%", old, apart)
    assert check.verdict is INCONCLUSIVE and "not measured together" in check.why


def test_a_loss_within_the_floor_passes():
    old, new = sides(1.3, 0.001)
    assert verdict("latency=5%", old, new).verdict is FAIL
    assert verdict("latency=5%,4ms", old, new).verdict is PASS


def test_each_look_and_each_further_limit_asks_for_more_evidence_to_fail():
    old, new = sides(1.075, 0.02)
    once = verdict("latency=5%", old, new).ratio
    later = verdict("latency=5%", old, new, look=4).ratio
    many = next(losses([parse("latency=5%"), *map(parse, ["memory=1%"] * 9)], old, new)).ratio
    assert later.hi - later.lo > once.hi - once.lo
    assert many.hi - many.lo > once.hi - once.lo


def test_what_would_decide_is_told_and_what_no_number_decides_too():
    check = verdict("latency=5%", *sides(1.02, 0.1))
    assert check.verdict is INCONCLUSIVE and "more pairs would decide" in check.why


def share(factor, n, spread=0.01, times=200):
    rng = np.random.default_rng(7)
    seeds = rng.integers(0, 2**31, times)
    found = [verdict("latency=5%", *sides(factor, spread, n, int(seed))).verdict for seed in seeds]
    return {kind: found.count(kind) / times for kind in Verdict}


@pytest.mark.slow
def test_equal_sides_hardly_ever_fail_and_losses_beyond_the_limit_hardly_ever_pass():
    assert share(1.0, 8)[FAIL] == 0 and share(1.0, 8)[PASS] > 0.9
    assert share(1.05, 8)[PASS] <= 0.05 and share(1.05, 8)[FAIL] <= 0.05
    assert share(1.10, 8)[PASS] == 0 and share(1.10, 8)[FAIL] > 0.9


def test_one_fail_fails_and_only_all_pass_pass():
    one = {kind: Check("x", kind, "") for kind in Verdict}
    assert together([one[PASS], one[INCONCLUSIVE], one[FAIL]]) is FAIL
    assert together([one[PASS], one[INCONCLUSIVE]]) is INCONCLUSIVE
    assert together([one[PASS], one[PASS]]) is PASS
    assert together([]) is INCONCLUSIVE


@pytest.mark.parametrize(
    ("status", "checked", "kind"),
    [
        (Status.OK, True, PASS),
        (Status.OK, None, INCONCLUSIVE),
        (Status.WRONG_OUTPUT, False, FAIL),
        (Status.CRASHED, None, FAIL),
        (Status.OOM, None, FAIL),
    ],
)
def test_wrong_answers_and_what_did_not_run_fail(status, checked, kind):
    verification = None if checked is None else Verification(checked, "agreement", {}, 0.9, "32 inputs")
    run = result(Trial(model="m"), status=status, verification=verification)
    assert outputs([run]).verdict is kind


def test_a_constraint_is_judged_on_the_ends_of_the_figure():
    figures = {"p99_s": Measured(0.030, "s", 0.028, 0.034), "p50_s": Measured(0.01, "s")}
    kinds = [check.verdict for check in bounds([bounded(f"p99<={n}ms") for n in (40, 33, 20)], figures)]
    assert kinds == [PASS, INCONCLUSIVE, FAIL]
    (bare,) = bounds([bounded("p50<=20ms")], figures)
    assert bare.verdict is INCONCLUSIVE
    (missing,) = bounds([bounded("memory<=2GB")], figures)
    assert missing.verdict is INCONCLUSIVE and isinstance(missing.candidate, Absent)
