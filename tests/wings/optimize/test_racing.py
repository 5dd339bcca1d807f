"""A race step by step, its results made by hand and its time a number: who runs when, for how long, and until when."""

import math
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from edgescope.analysis.cells.objective import wanted
from edgescope.analysis.cells.row import Row
from edgescope.errors import EdgescopeError, Message
from edgescope.records import Absent, Alternation, Measured, Status, Trial, Trust, Turn, Verdict, Window
from edgescope.wings.optimize import racing
from edgescope.wings.optimize.racing import Budget, Race
from making import result

BASE = Trial(model="null", backend="torch_eager", turn_s=0.1, min_s=1.0, max_s=1.0)
EPOCH = datetime(2026, 1, 1, tzinfo=timezone.utc)


def trial(backend, precision="fp32", **options):
    return replace(BASE, backend=backend, precision=precision, options=options)


A, B, C = trial("onnxruntime"), trial("openvino"), trial("null")
INT8 = trial("onnxruntime", "int8")


class Played:
    """A race, and what came of each step: `ms` by label, or by label and step; seconds that each step took."""

    def __init__(self, trials, ms=(), *, ends=(), reason="", asked=None, stop=99, **how) -> None:
        self.now, self.ms, self.reason = 0.0, dict(ms), reason
        self.short_s, self.pair_s = how.pop("short_s", 1.0), how.pop("pair_s", 4.0)
        self.ends = {label: list(statuses) for label, statuses in dict(ends).items()}
        self.steps, self.at = [], []
        race_keys = {k: how.pop(k) for k in ("instead", "by_hand", "look") if k in how}
        self.race = Race(asked or wanted("latency"), Budget(clock=lambda: self.now, **how), **race_keys)
        self._play(trials, stop)

    def _play(self, trials, stop):
        strategy, found = self.race.run(list(trials)), None
        try:
            while len(self.steps) < stop:
                step = strategy.send(found)
                self.steps.append(step)
                self.at.append(self.now)
                found = self._answer(step)
        except StopIteration:
            return

    def _answer(self, step):
        taken = self.pair_s if step.beside is not None else self.short_s
        self.now += taken(step) if callable(taken) else taken
        if step.beside is None:
            return (self._result(step, step.trial),)
        ends = [self._result(step, each) for each in (step.beside, step.trial)]
        return tuple(
            replace(mine, alternation=self._turns(step, mine, other, side))
            for mine, other, side in zip(ends, ends[::-1], ("baseline", "candidate"), strict=True)
        )

    def took_ms(self, step, trial):
        found = self.ms.get(trial.label, 10.0)
        return found(step) if callable(found) else found

    def _result(self, step, trial):
        statuses = self.ends.get(trial.label)
        status = statuses.pop(0) if statuses else Status.OK
        reason = "" if status in (Status.OK, Status.CANCELLED) else self.reason
        took = self.took_ms(step, trial) * 1e-3
        return result(
            trial,
            id_=f"{trial.label} {len(self.steps)}",
            status=status,
            reason=reason,
            started_at=(EPOCH + timedelta(seconds=self.now)).isoformat(),
            metrics={"latency_p50_s": Measured(took, "s", n=40)},
            window=Window(0, 50, 10**9, round((1 + trial.max_s) * 1e9)),
            queries=None,
            readings=None,
        )

    def _turns(self, step, mine, other, side):
        took = self.took_ms(step, mine.trial) * 1e-3
        turns = tuple(Turn(b, b, b + 1, 1, took * (1 + b / 1000)) for b in range(3))
        return Alternation(other.id, side, step.purpose, turns, 0.0)

    def ran(self, *stages):
        """Labels without the batch of what ran in these stages, in order."""
        return [s.trial.label.replace(" b1", "") for s in self.steps if s.stage in stages]

    def of(self, stage):
        return [s for s in self.steps if s.stage == stage]


def labels(steps):
    return [s.trial.label.replace(" b1", "") for s in steps]


def threads(*counts):
    """What an expert would try by hand with every engine."""
    return lambda t: [] if t.options else [replace(t, options={"threads": n}) for n in counts]


# -- short runs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "warmup", "seconds"),
    [
        ({}, 0.3, 0.5),
        ({"warmup": 0.1}, 0.1, 0.5),
        ({"warmup": 2.0}, 0.3, 0.5),
        ({"min_s": 0.2, "max_s": 0.2}, 0.3, 0.2),
        ({"turn_s": None, "min_s": 0.9, "max_s": 0.9}, 0.3, pytest.approx(0.3)),
        ({"turn_s": None, "max_s": 9.0}, 0.3, 0.5),
    ],
)
def test_a_short_run_warms_up_and_measures_for_a_part_of_a_second(keys, warmup, seconds):
    found = racing.short(replace(BASE, max_queries=9, idle_s=1.0, **keys), 7)
    assert (found.warmup, found.min_s, found.max_s) == (warmup, seconds, seconds)
    assert (found.idle_s, found.max_queries, found.turn_s, found.replicate) == (0.0, None, None, 7)


def test_engines_come_before_the_baselines_own_small_numbers_first_and_compilers_last():
    wide = ("fp32", "tf32", "bf16", "fp16", "int8")
    own, other = ([trial(b, p) for p in wide] for b in ("torch_eager", "onnxruntime"))
    late = [trial("torch_compile", p) for p in wide]
    found = racing.in_order([BASE, *late, *own[1:], *other], 3)
    assert found == [BASE, *other[::-1], *own[:0:-1], *late[::-1]]


def test_of_equals_the_seed_says_which_comes_first_and_a_budget_has_seed_0():
    every = [BASE, *(trial("null", threads=n) for n in range(1, 7))]
    zero, one = (racing.in_order(every, seed) for seed in (0, 1))
    assert zero != one and set(zero) == set(one) == set(every)
    assert labels(Played(every, stop=7).steps) == labels(Played(every, stop=7, seed=0).steps)
    assert [s.trial.options for s in Played(every, stop=7).steps] == [t.options for t in zero]
    assert [s.trial.options for s in Played(every, stop=7, seed=1).steps] == [t.options for t in one]


def test_every_candidate_runs_once_then_pairs_choose_and_confirm():
    played = Played([BASE, A, B, C], {A.label: 5.0, B.label: 6.0, C.label: 9.0})
    assert played.ran("short") == ["torch_eager fp32", "onnxruntime fp32", "openvino fp32", "null fp32"]
    assert played.ran("selecting") == ["onnxruntime fp32", "openvino fp32"]
    assert played.ran("confirming") == ["onnxruntime fp32"] * 5
    assert [s.position for s in played.steps] == [1, 2, 3, 4, 1, 2, 1, 2, 3, 4, 5]
    assert [s.total for s in played.steps] == [0] * 4 + [2, 2] + [0] * 5
    assert [s.round for s in played.steps] == [0] * 4 + [1, 1] + [0] * 5
    assert [s.trial.replicate for s in played.steps] == [0] * 6 + [1, 2, 3, 4, 5]
    pairs = played.steps[4:]
    assert all(s.beside == replace(BASE, replicate=s.trial.replicate) for s in pairs)
    assert all(
        s.stage == s.purpose and s.what.split(" in turns with ") == [s.trial.label, BASE.label] for s in pairs
    )
    assert {s.eta_s for s in played.steps} == {None} and {s.limit_s for s in played.steps} == {math.inf}
    assert (played.race.spent, played.race.left_s) == (0.0, math.inf)
    assert played.race.unreached == []


def test_the_steps_to_come_are_the_short_runs_and_the_pairs_of_a_third():
    played = Played([BASE, A, B, C], {A.label: 5.0, B.label: 6.0, C.label: 9.0})
    shorts = [racing.short(t, 0) for t in (A, B, C)]
    pairs = [A, B, *(replace(A, replicate=n) for n in (1, 2, 3, 4, 5))]
    ahead = [list(s.ahead) for s in played.steps]
    assert ahead[:4] == [shorts[n:] + pairs for n in range(4)]
    confirming = [replace(A, replicate=n) for n in (1, 2, 3, 4, 5)]
    assert ahead[4:] == [[B, *confirming], confirming, *(confirming[n:] for n in (1, 2, 3, 4, 5))]
    three = Played([BASE, A, B], stop=1)
    assert list(three.steps[0].ahead) == [*shorts[:2], *(replace(A, replicate=n) for n in (1, 2, 3, 4, 5))]


@pytest.mark.parametrize(("trials", "shorts"), [([BASE, A], 0), ([BASE, A, B], 3)])
def test_two_are_not_screened_and_three_are(trials, shorts):
    played = Played(trials, {A.label: 5.0}, seconds=60.0, stop=5)
    assert len(played.of("short")) == shorts and played.of("selecting") == []
    assert played.ran("confirming")[0] == "onnxruntime fp32"
    assert played.of("confirming")[0].trial.replicate == 0


# -- time ---------------------------------------------------------------------------------------------------


def test_a_budget_counts_from_the_first_step_or_from_when_it_began():
    played = Played([BASE, A, B, C], seconds=60.0, stop=4)
    assert [s.eta_s for s in played.steps] == [60.0, 59.0, 58.0, 57.0]
    assert played.race.spent == pytest.approx(4 / 60) and played.race.left_s == 56.0
    resumed = Played([BASE, A, B, C], seconds=60.0, begun=-15.0, stop=2)
    assert [s.eta_s for s in resumed.steps] == [45.0, 44.0]


def test_a_candidate_may_take_half_of_the_grace_until_a_rival_stands_then_what_the_pairs_leave():
    played = Played([BASE, A, B, C], seconds=60.0, stop=5)
    limits = [s.limit_s for s in played.steps]
    assert limits == [math.inf, (120 - 1) / 2, *(pytest.approx(0.55 * 60 - n) for n in (2, 3)), 120 - 4]
    failed = {t.label: [Status.UNSUPPORTED] for t in (A, B, C)}
    alone = Played([BASE, A, B, C], seconds=60.0, ends=failed, by_hand=threads(1), stop=5)
    assert [s.limit_s for s in alone.steps] == [math.inf, 119 / 2, 118 / 2, 117.0, 116.0]
    brief = Played([BASE, A, B, C], seconds=9.0, ends=failed, stop=4)
    assert [s.limit_s for s in brief.steps] == [math.inf, 59 / 2, 58 / 2, 57.0]


def test_what_is_measured_of_the_baselines_own_settings_is_no_rival():
    """Until one stands, the grace is shared: a baseline with one thread answers nothing."""
    played = Played(
        [BASE, A, B], {BASE.label: 4.0, A.label: 4.0, B.label: 4.0}, seconds=60.0, by_hand=threads(1), stop=4
    )
    assert labels(played.steps)[:2] == ["torch_eager fp32", "torch_eager fp32 threads=1"]
    assert [s.limit_s for s in played.steps[1:3]] == [119 / 2, 118 / 2]
    assert played.steps[3].limit_s == pytest.approx(0.55 * 60 - 3)


def test_once_the_grace_is_gone_nothing_is_tried():
    failed = {t.label: [Status.UNSUPPORTED] for t in (A, B, C)}
    played = Played([BASE, A, B, C], seconds=60.0, short_s=40.0, ends=failed)
    assert [s.limit_s for s in played.of("short")] == [math.inf, 40.0, 20.0]
    assert [s.trial for s in played.of("confirming")] == [BASE], "one run, since the grace is gone"
    assert played.race.unreached == [C]
    stored = Played([BASE, A, B, C], seconds=60.0, short_s=40.0, ends=failed, known=lambda step: True)
    assert len(stored.of("short")) == 4 and stored.race.unreached == []


MANY = [trial("null", threads=n) for n in range(1, 6)]


@pytest.mark.parametrize(("seconds", "shorts"), [(10.0, 5), (9.9, 4), (12.5, 6)])
def test_screening_ends_once_two_fifths_of_the_budget_are_gone(seconds, shorts):
    """A second each: the fifth begins at 4 s."""
    played = Played([BASE, *MANY], seconds=seconds, stop=9)
    assert len(played.of("short")) == shorts and len(played.race.unreached) == 6 - shorts
    stored = Played([BASE, *MANY], seconds=seconds, known=lambda step: step.stage == "short", stop=9)
    assert len(stored.of("short")) == 6


def test_a_session_shares_anew_what_earlier_ones_left():
    """Three fifths of a longer budget are gone: what was not tried has two fifths of the rest, and comes first."""
    stored = {t.variant for t in racing.in_order([BASE, *MANY], 0)[:2]}
    how = {"seconds": 100.0, "known": lambda step: step.trial.variant in stored and step.stage == "short"}
    played = Played([BASE, *MANY], before=60.0, short_s=3.0, stop=7, **how)
    assert len(played.of("short")) == 6 and played.race.unreached == []
    assert played.steps[1].limit_s == pytest.approx(140 / 2 - 1.5) and played.steps[0].eta_s == 40.0
    assert played.steps[2].limit_s == pytest.approx(0.55 * 40 - 6)
    gone = Played([BASE, *MANY], before=100.0, **how)
    assert len(gone.of("short")) == 2 and len(gone.race.unreached) == 4


def test_of_a_beaten_rival_no_pairs_are_kept_time_for_so_the_rest_is_tried_first():
    slow = {t.label: 30.0 for t in MANY}
    played = Played([BASE, *MANY[:3]], slow, seconds=60.0, short_s=13.0)
    assert [len(played.of(stage)) for stage in ("short", "confirming")] == [4, 3]
    assert played.steps[2].limit_s == pytest.approx(60 - 26 - 4 * (2 + 1) - 1.5)
    brief = Played([BASE, *MANY[:3]], slow, seconds=39.0, short_s=13.0)
    assert len(brief.of("short")) == 2 and len(brief.race.unreached) == 2


def test_the_budget_that_is_named_tries_what_this_one_did_not():
    for seconds, short_s in ((20.0, 4.0), (20.0, 12.0), (90.0, 20.0)):
        first = Played([BASE, *MANY], seconds=seconds, short_s=short_s)
        ran = {s.trial.variant for s in first.of("short")}
        stored = lambda step: step.trial.variant in ran  # noqa: B023, E731
        free = lambda step: 0.0 if stored(step) else short_s  # noqa: B023, E731
        longer = {"seconds": first.race.enough_s, "before": first.now, "known": stored, "short_s": free}
        assert first.race.unreached and Played([BASE, *MANY], **longer).race.unreached == []


def test_what_was_stopped_is_given_twice_the_time():
    ends = {MANY[0].label: [Status.CANCELLED]}
    played = Played([BASE, *MANY[:2]], seconds=60.0, short_s=6.0, ends=ends)
    assert played.race.enough_s == pytest.approx(played.now + 60)
    played = Played([BASE, *MANY[:2]], seconds=60.0, short_s=15.0, ends=ends)
    assert played.race.enough_s == pytest.approx(played.now + 30 / 0.4)


@pytest.mark.parametrize(("begun", "looked"), [(-15.0, False), (-15.5, True)])
def test_a_look_stands_for_the_first_run_where_a_quarter_of_the_budget_is_gone(begun, looked):
    look = result(BASE, id_="look", metrics={"latency_p50_s": Measured(0.01, "s", n=40)})
    played = Played([BASE, A, B, C], seconds=60.0, begun=begun, look=look, stop=6)
    shorts = played.of("short")
    assert [s.look for s in shorts] == ([look, None] if looked else [None] * 4)
    assert len(played.race.unreached) == (2 if looked else 0), "one that stands will do"


def test_a_look_is_kept_where_nothing_is_screened():
    look = result(BASE, id_="look", metrics={"latency_p50_s": Measured(0.01, "s", n=40)})
    first, second, *_ = Played([BASE, A], look=look, stop=2).steps
    assert (first.stage, first.trial, first.look) == ("short", racing.short(BASE, 0), look)
    assert second.stage == "confirming"
    every = Played([BASE, A, B], exhaustive=True, look=look, stop=2).steps
    assert [s.stage for s in every] == ["short", "selecting"]


def test_what_was_stopped_at_its_limit_is_neither_measured_nor_failed():
    played = Played([BASE, A, B, C], {B.label: 5.0}, ends={A.label: [Status.CANCELLED]})
    assert played.race.unreached == [A] and len(played.race.screened) == 3
    assert "onnxruntime fp32" not in played.ran("selecting", "confirming")


# -- other settings -----------------------------------------------------------------------------------------


SHORT_OF_BASE = ["torch_eager fp32", "torch_eager fp32 threads=1", "torch_eager fp32 threads=2"]


@pytest.mark.parametrize(
    ("one", "two", "tried"),
    [(1.1, 1.2, [1]), (0.9, 1.0, [1, 2]), (1.2, 1.2, []), (1.2, 1.1, [2])],
)
def test_settings_that_slow_a_small_baseline_by_no_more_than_a_tenth_are_tried_with_the_others(
    one, two, tried
):
    ms = {BASE.label: 1.0, A.label: 1.0, B.label: 2.0}
    ms |= {replace(BASE, options={"threads": n}).label: took for n, took in ((1, one), (2, two))}
    played = Played([BASE, A, B], ms, by_hand=threads(1, 2), stop=5 + len(tried))
    more = [f"onnxruntime fp32 threads={n}" for n in tried]
    assert played.ran("short")[: 4 + len(tried)] == [*SHORT_OF_BASE, "onnxruntime fp32", *more]
    assert played.ran("short")[4 + len(tried)] == "openvino fp32"


@pytest.mark.parametrize(("base_ms", "of_a", "followed"), [(1.0, 1.2, True), (1.0, 1.3, False)])
def test_only_what_is_near_the_best_so_far_is_tried_with_other_settings(base_ms, of_a, followed):
    ms = {BASE.label: base_ms, replace(BASE, options={"threads": 1}).label: base_ms, A.label: of_a}
    played = Played([BASE, A, B], ms, by_hand=threads(1), stop=4)
    assert (played.ran("short")[3] == "onnxruntime fp32 threads=1") is followed


@pytest.mark.parametrize(("base_ms", "at_once"), [(5.0, True), (5.1, False)])
def test_a_network_is_small_up_to_five_milliseconds(base_ms, at_once):
    ms = {BASE.label: base_ms, replace(BASE, options={"threads": 1}).label: base_ms, A.label: base_ms / 2}
    played = Played([BASE, A, B], ms, by_hand=threads(1))
    shorts = played.ran("short")
    assert (shorts[1] == "torch_eager fp32 threads=1") is at_once
    if not at_once:
        assert shorts[3:] == ["onnxruntime fp32 threads=1", "torch_eager fp32 threads=1"]
        assert [s.total for s in played.of("short")] == [0, 0, 0, 5, 5]
    assert ("onnxruntime fp32 threads=1" in played.ran("selecting", "confirming")) is at_once


def test_settings_by_hand_come_before_what_compiles_and_nothing_is_tried_twice():
    late = trial("torch_compile")
    played = Played([BASE, late, A, replace(A, options={"threads": 1})], by_hand=threads(1), stop=6)
    assert played.ran("short")[-2:] == ["torch_eager fp32 threads=1", "torch_compile fp32"]
    assert len(played.of("short")) == 5
    assert [s.total for s in played.of("short")] == [0, 0, 0, 5, 5]


def test_of_two_that_are_alike_only_the_better_one_is_tried_by_hand():
    played = Played([BASE, A, B], {BASE.label: 20.0, A.label: 6.1, B.label: 6.0}, by_hand=threads(1), stop=9)
    assert played.ran("short")[3:] == ["openvino fp32 threads=1", "torch_eager fp32 threads=1"]


def mixed(t):
    return replace(t, options={"fallback": True}) if t.precision == "int8" and not t.options else None


@pytest.mark.parametrize(
    ("status", "reason", "mixes"),
    [
        (Status.WRONG_OUTPUT, "", True),
        (Status.UNSUPPORTED, Message("E-INT8-3", "no"), True),
        (Status.UNSUPPORTED, Message("E-X-1", "no"), False),
        (Status.UNSUPPORTED, "", False),
    ],
)
def test_the_mixture_is_tried_last_where_outputs_are_wrong_or_the_quantiser_failed(status, reason, mixes):
    how = {"ends": {INT8.label: [status]}, "reason": reason, "instead": mixed}
    played = Played([BASE, INT8, A, B], stop=5, **how)
    assert labels(played.steps)[1] == "onnxruntime int8"
    assert (played.steps[4].trial.label == mixed(INT8).label) is mixes
    both = Played([BASE, INT8, mixed(INT8), A], stop=5, **how)
    assert len(both.of("short")) == 4, "it is among them"


# -- pairs --------------------------------------------------------------------------------------------------


def exhaustive(trials, ms, **how):
    return Played(trials, ms, exhaustive=True, **how)


@pytest.mark.parametrize(
    ("behind", "rounds"), [(1.21, 1), (1.19, 2), (1.11, 2), (1.09, 3), (1.06, 3), (1.04, 5), (1.0, 5)]
)
def test_who_is_clearly_behind_leaves_the_rounds(behind, rounds):
    """By a fifth after one round, a tenth after two, a twentieth after more; five rounds at most."""
    played = exhaustive([BASE, A, B], {A.label: 5.0, B.label: 5.0 * behind})
    assert labels(played.of("selecting")).count("openvino fp32") == rounds
    assert labels(played.of("selecting")).count("onnxruntime fp32") == rounds
    assert [s.round for s in played.of("selecting")] == [n for n in range(1, rounds + 1) for _ in "ab"]
    assert [s.trial.replicate for s in played.of("confirming")] == [rounds + n for n in range(5)]


def test_an_exhaustive_only_rival_has_one_round():
    played = exhaustive([BASE, A], {A.label: 5.0})
    assert [s.stage for s in played.steps] == ["selecting", *["confirming"] * 5]
    assert [(s.round, s.position, s.total) for s in played.steps[:2]] == [(1, 1, 1), (0, 1, 0)]


def test_an_exhaustive_best_is_tried_by_hand_after_the_first_round_only():
    """In the second round B is the best; its settings are not tried any more."""

    def slows(step):
        return 5.0 if step.round == 1 else 8.0

    one = {replace(t, options={"threads": 1}).label: 5.6 for t in (BASE, A)}
    played = exhaustive([BASE, A, B], {A.label: slows, B.label: 5.5} | one, by_hand=threads(1))
    rounds = [labels(s for s in played.of("selecting") if s.round == n) for n in (1, 2, 3)]
    mine = {"onnxruntime fp32 threads=1", "torch_eager fp32 threads=1"}
    assert set(rounds[0]) == {"onnxruntime fp32", "openvino fp32"}
    assert set(rounds[1]) == {*rounds[0], *mine} and len(rounds[1]) == 4
    assert set(rounds[2]) == {*rounds[1]} - {"onnxruntime fp32"}


def test_the_order_within_later_rounds_is_the_seeds():
    trials = [BASE, *MANY]
    orders = []
    for seed in (0, 0, 1):
        played = exhaustive(trials, {}, seed=seed, stop=10)
        orders.append([s.trial.options["threads"] for s in played.steps])
        assert sorted(orders[-1][:5]) == sorted(orders[-1][5:]) == [1, 2, 3, 4, 5]
        assert orders[-1][:5] != orders[-1][5:]
        assert [s.position for s in played.steps] == [1, 2, 3, 4, 5] * 2
        assert {s.total for s in played.steps} == {5}
    assert orders[0] == orders[1] != orders[2]


def test_the_most_promising_has_the_first_pair():
    ms = {t.label: took for t, took in zip(MANY, (5.3, 5.1, 5.4, 5.0, 5.2), strict=True)}
    for seed in range(3):
        played = Played([BASE, *MANY], ms, seed=seed, stop=11)
        assert [s.trial.options["threads"] for s in played.of("selecting")] == [4, 2, 5, 1, 3]


@pytest.mark.parametrize(("pair_s", "pairs"), [(3.0, 3), (3.1, 2), (7.0, 1)])
def test_selecting_ends_once_its_share_of_the_budget_is_gone(pair_s, pairs):
    """Pairs begin at 5 s of 20; the share ends at 11 s. One pair runs whatever time it is."""
    ms = {t.label: 5.0 for t in MANY[:4]}
    how = {"seconds": 20.0, "pair_s": pair_s}
    played = Played([BASE, *MANY[:4]], ms, **how)
    assert len(played.of("selecting")) == pairs
    late = Played([BASE, *MANY[:4]], ms, short_s=4.0, **how)
    assert len(late.of("short")) == 3 and len(late.of("selecting")) == 1, "begins at 12 s"
    assert late.of("confirming")[0].trial.replicate == 1


def test_what_is_stored_of_a_round_is_read_until_the_first_that_is_not():
    ms = {t.label: 5.0 + n / 10 for n, t in enumerate(MANY[:4])}

    def known(*numbers):
        return lambda step: step.beside is None or step.trial.options["threads"] in numbers

    how = {"seconds": 20.0, "short_s": 3.0, "pair_s": 0.0}
    stored = Played([BASE, *MANY[:4]], ms, known=known(1, 2), **how)
    assert [s.trial.options["threads"] for s in stored.of("selecting")][:2] == [1, 2]
    first = [s for s in stored.of("selecting") if s.round == 1]
    assert len(first) == 2
    gap = Played([BASE, *MANY[:4]], ms, known=known(1, 3), **how)
    assert [s.trial.options["threads"] for s in gap.of("selecting") if s.round == 1] == [1]


def test_a_pair_takes_what_the_clock_says_or_what_it_takes_at_least():
    """Two seconds beside its window: nobody sees how long a stored one took."""
    quick, slow = (Played([BASE, A], {A.label: 5.0}, pair_s=s, stop=3).race.took for s in (0.0, 4.0))
    (quick,), (slow,) = quick.values(), slow.values()
    assert quick == [3.0, 3.0] and slow == [4.0, 4.0]


def test_no_pair_begins_once_the_grace_is_gone_unless_it_is_stored():
    for begun, known, pairs in ((-60.0, False, 0), (-60.0, True, 4), (-55.0, False, 1)):
        played = Played([BASE, A], seconds=9.0, begun=begun, known=lambda step, is_=known: is_, stop=4)
        assert len([s for s in played.steps if s.beside]) == pairs
    every = exhaustive([BASE, A, B], {}, seconds=9.0, begun=-60.0)
    assert [s.trial for s in every.steps] == [BASE], "alone, once"


@pytest.mark.parametrize(("begun", "pairs"), [(-58.5, 0), (-58.0, 1), (-47.8, 2), (-44.0, 3)])
def test_three_pairs_have_the_grace_and_no_more(begun, pairs):
    """Of 60 s: a pair of 4 s, each planned a seventh longer, and the answer needs 1.5 s."""
    played = Played([BASE, A], {A.label: 5.0}, seconds=9.0, begun=begun)
    assert len([s for s in played.steps if s.beside]) == pairs
    assert played.ran("confirming")[0] == ("onnxruntime fp32" if pairs else "torch_eager fp32")


def noisy(step):
    return 5.0 * (1 + 0.2 * (step.trial.replicate % 2))


@pytest.mark.parametrize(("seconds", "pairs"), [(30.2, 7), (30.0, 6), (26.2, 6), (26.0, 5)])
def test_further_pairs_run_while_one_more_fits_into_the_budget(seconds, pairs):
    """The seventh begins at 24 s and is planned for 4.6 s; 1.5 s are kept for the answer."""
    played = Played([BASE, A], {A.label: noisy}, seconds=seconds)
    assert len(played.of("confirming")) == pairs


@pytest.mark.parametrize(("seconds", "pairs"), [(28.2, 4), (28.3, 5)])
def test_the_longer_of_the_last_two_pairs_says_how_long_another_takes(seconds, pairs):
    """The fifth begins at 21 s: it is planned for 5.75 s after 5 and 4 s, and 1.5 s are kept for the answer."""

    def took(step):
        return {0: 6.0, 1: 6.0, 2: 5.0}.get(step.trial.replicate, 4.0)

    played = Played([BASE, A], {A.label: noisy}, seconds=seconds, pair_s=took)
    assert len(played.of("confirming")) == pairs


@pytest.mark.slow
def test_thirty_pairs_are_the_most_and_five_without_a_budget():
    wild = {A.label: lambda step: 5.0 * (1 + step.trial.replicate % 2)}
    assert len(Played([BASE, A], wild, seconds=900.0).of("confirming")) == 30
    assert len(Played([BASE, A], {A.label: noisy}).of("confirming")) == 5


@pytest.mark.parametrize(("pair_s", "pairs"), [(10.0, 5), (9.9, 6), (8.0, 6), (20.0, 5)])
def test_what_is_decided_ends_by_pairs_that_are_spread_over_forty_seconds(pair_s, pairs):
    played = Played([BASE, A], {A.label: 5.0}, seconds=900.0, pair_s=pair_s)
    assert len(played.of("confirming")) == pairs


@pytest.mark.parametrize(("spread", "decided"), [(0.02, True), (0.05, True), (0.065, False), (0.10, False)])
def test_an_interval_of_four_per_cent_to_either_side_is_narrow(spread, decided):
    def varies(step):
        return 5.0 * (1 + spread * (step.trial.replicate % 2))

    played = Played([BASE, A], {A.label: varies}, seconds=70.0, pair_s=10.0)
    assert (len(played.of("confirming")) == 5) is decided


def test_a_baseline_without_a_rival_that_stands_runs_three_times_alone():
    failed = {t.label: [Status.UNSUPPORTED] for t in (A, B)}
    played = Played([BASE, A, B], ends=failed)
    alone = played.of("confirming")
    assert [s.trial for s in alone] == [replace(BASE, replicate=n) for n in range(3)]
    assert [(s.position, s.total, s.what) for s in alone] == [(n, 3, BASE.label) for n in (1, 2, 3)]
    hurried = Played([BASE, A, B], ends=failed, seconds=9.0, short_s=19.0)
    assert len(hurried.of("confirming")) == 1, "the fourth run would begin at 76 s"
    first = Played([BASE], {})
    assert [s.trial for s in first.steps] == [replace(BASE, replicate=n) for n in range(3)]


def test_a_rival_that_fails_in_its_pairs_leaves_and_the_baseline_runs_alone():
    played = Played([BASE, A], ends={A.label: [Status.CRASHED]})
    assert [s.trial.backend for s in played.steps] == ["onnxruntime", *["torch_eager"] * 3]
    instead = Played([BASE, INT8], ends={INT8.label: [Status.WRONG_OUTPUT]}, instead=mixed)
    assert instead.ran("confirming") == ["onnxruntime int8", *["onnxruntime int8 fallback=true"] * 5]
    later = Played([BASE, INT8], ends={INT8.label: [Status.OK, Status.WRONG_OUTPUT]}, instead=mixed)
    assert later.ran("confirming")[:2] == ["onnxruntime int8"] * 2
    assert "onnxruntime int8 fallback=true" not in later.ran("confirming")


def test_a_pair_that_was_stopped_is_no_pair():
    played = Played([BASE, A], ends={A.label: [Status.CANCELLED] * 5})
    assert not any(played.race.pairs.values()) and played.race.unreached == [A]
    assert [r.status for r in played.race.finals[:2]] == [Status.OK, Status.OK]
    once = Played([BASE, A], ends={A.label: [Status.CANCELLED]})
    assert [len(p) for p in once.race.pairs.values()] == [4]


@pytest.mark.parametrize(
    ("status", "reason", "said"),
    [
        (Status.CRASHED, "", ("no reason given", "--retry crashed")),
        (Status.CRASHED, "E-X-1: it fell over. Try: another cable", ("it fell over", "another cable")),
    ],
)
def test_a_baseline_that_fails_ends_it_with_its_reason(status, reason, said):
    found = result(BASE, status=status, reason=reason, verification=None)
    race = Race(wanted("latency"), Budget())
    strategy = race.run([BASE, A, B])
    next(strategy)
    with pytest.raises(EdgescopeError) as raised:
        strategy.send((found,))
    evidence, fix = said
    assert raised.value.code == "E-OPTIM-1" and evidence in raised.value.evidence
    assert fix in raised.value.fix and status.value in raised.value.what


def lucky(then):
    """Fast in the pairs that choose, `then` milliseconds in those that confirm."""
    return lambda step: 4.0 if step.stage == "selecting" else then


@pytest.mark.parametrize(
    ("then", "rival", "confirmed"),
    [(5.1, 4.2, "AAABBBBB"), (5.03, 4.2, "AAAAA"), (4.7, 4.2, "AAAAA"), (4.0, 4.2, "AAAAA")],
)
def test_a_rival_a_fifth_ahead_of_the_confirming_pairs_is_confirmed(then, rival, confirmed):
    played = Played([BASE, A, B, C], {A.label: lucky(then), B.label: rival})
    names = {A.label: "A", B.label: "B"}
    assert "".join(names[s.trial.label] for s in played.of("confirming")) == confirmed


@pytest.mark.parametrize(("seconds", "confirmed"), [(41.5, "AAABBB"), (41.4, "AAAAAA")])
def test_a_rival_is_confirmed_where_three_of_its_pairs_and_one_more_fit(seconds, confirmed):
    """Three pairs are done at 24 s; four of 4 s and the answer's 1.5 s must be left."""
    ms = {A.label: lambda step: 3.0 if step.stage == "selecting" else 5.1, B.label: 4.2}
    played = Played([BASE, A, B, C], ms, seconds=seconds)
    names = {A.label: "A", B.label: "B"}
    assert "".join(names[s.trial.label] for s in played.of("confirming")) == confirmed


@pytest.mark.parametrize(("seconds", "pairs"), [(26.5, 2), (26.4, 1)])
def test_the_settings_of_a_small_pick_take_a_pair_where_confirming_keeps_its_time(seconds, pairs):
    """The second pair begins at 9 s; three of 4 s, one more, and the answer's 1.5 s must be left."""
    one = replace(A, options={"threads": 1})
    ms = {BASE.label: 4.0, replace(BASE, options={"threads": 1}).label: 8.0, A.label: 1.0}
    ms[one.label] = lambda step: 9.0 if step.stage == "short" else 0.5
    played = Played([BASE, A, B], ms, by_hand=threads(1), seconds=seconds)
    found = played.of("selecting")
    assert [s.trial for s in found] == [A, one][:pairs] and list(found[0].ahead) == [one]
    assert [(s.round, s.position, s.total) for s in found] == [(1, n + 1, 2) for n in range(pairs)]
    assert {s.trial.options.get("threads") for s in played.of("confirming")} == {1 if pairs == 2 else None}
    assert played.of("confirming")[0].trial.replicate == 1
    stored = Played([BASE, A, B], ms, by_hand=threads(1), seconds=seconds, known=lambda step: True, stop=7)
    assert len(stored.of("selecting")) == 2
    gap = lambda step: step.beside is not None and step.trial.options.get("threads") == 2  # noqa: E731
    late = Played([BASE, A, B], ms, by_hand=threads(1, 2), seconds=24.0, known=gap)
    assert late.ran("selecting") == ["onnxruntime fp32", "torch_eager fp32 threads=1"], (
        "and no stored one later"
    )


# -- who goes on --------------------------------------------------------------------------------------------


def row(seconds, name="null", *, runs=1, trust=Trust.CLEAN, ends=(None, None), **others):
    found = Measured(seconds, "s", *ends, 9)
    replicates = {n: result(replace(trial(name), replicate=n)) for n in range(runs)}
    metrics = {"p50_s": found, "throughput_sps": found} | others
    verdict = Verdict(trust, ())
    return Row(trial=trial(name), status=Status.OK, verdict=verdict, metrics=metrics, replicates=replicates)


def go_on(*rows, goal="latency", constraints=(), keep=0.0):
    """The numbers of the rows that go on, in their order."""
    cells = [r.cell for r in rows]
    return [cells.index(c) for c in racing.survivors(rows, wanted(goal, constraints), keep)]


NAMES = ("torch_eager", "onnxruntime", "openvino", "null", "litert", "tensorrt")


def rows(*seconds, **keys):
    return [row(s, name, **keys) for s, name in zip(seconds, NAMES, strict=False)]


@pytest.mark.parametrize(
    ("count", "keep", "left"), [(3, 1 / 3, 1), (4, 1 / 3, 2), (6, 1 / 3, 2), (3, 0.0, 0), (3, 1.0, 3)]
)
def test_the_better_part_goes_on_best_first(count, keep, left):
    far = rows(*(2.0**n for n in range(count, 0, -1)))
    found = go_on(*far, keep=keep)
    assert found == list(range(count))[::-1][: max(1, left)]
    assert go_on(*far, goal="throughput", keep=keep) == list(range(count))[: max(1, left)]


@pytest.mark.parametrize(
    ("keys", "reach"),
    [
        ({}, 1.10),
        ({"runs": 2}, 1.05),
        ({"runs": 3}, 1.05),
        ({"trust": Trust.DISTURBED}, 1.30),
        ({"trust": Trust.THROTTLED}, 1.30),
        ({"runs": 2, "trust": Trust.DISTURBED}, 1.15),
        ({"trust": Trust.UNKNOWN}, 1.10),
    ],
)
def test_what_a_tenth_cannot_tell_from_the_best_goes_on_too(keys, reach):
    """Less of two runs, three times as much where the machine was disturbed."""
    best = row(1.0)
    assert go_on(best, row(reach - 0.001, "openvino", **keys)) == [0, 1]
    assert go_on(best, row(reach + 0.001, "openvino", **keys)) == [0]
    assert go_on(best, row(reach, "openvino", **keys)) == [0, 1]
    fast = row(1 / (reach - 0.001), "openvino", **keys)
    assert go_on(best, fast, goal="throughput") == [0, 1]
    assert go_on(best, row(1 / (reach + 0.001), "openvino", **keys), goal="throughput") == [0]


def test_intervals_that_overlap_tell_nothing():
    wide = row(2.0, "openvino", ends=(1.3, 3.0))
    assert go_on(row(1.0, ends=(0.9, 1.2)), wide) == [0, 1]
    assert go_on(row(1.0, ends=(0.9, 1.1)), wide) == [0]
    of_rate = row(0.5, "openvino", ends=(0.3, 0.75))
    assert go_on(row(1.0, ends=(0.8, 1.1)), of_rate, goal="throughput") == [0, 1]
    assert go_on(row(1.0, ends=(0.85, 1.1)), of_rate, goal="throughput") == [0]


def test_a_rate_of_nothing_comes_last():
    assert go_on(row(0.0), row(1.0, "openvino"), goal="throughput", keep=1.0) == [1, 0]


def test_who_has_no_figure_does_not_go_on_and_without_any_nobody_does():
    none = row(1.0, p50_s=Absent("no row"))
    assert go_on(none, row(2.0, "openvino")) == [1]
    assert go_on(none) == [] == go_on()


def memory(size):
    return {"peak_rss_bytes": Measured(size, "bytes")}


def test_who_clearly_breaks_a_constraint_leaves_and_of_none_the_nearest_go_on():
    big = row(1.0, **memory(2.3e9))
    fits, slow = row(3.0, "openvino", **memory(1e9)), row(9.0, "litert", **memory(1e9))
    asked = ["memory<=2GB"]
    assert go_on(big, fits, slow, constraints=asked) == [1]
    near = row(1.0, **memory(2.1e9))
    assert go_on(near, fits, slow, constraints=asked, keep=0.3) == [0, 1], "a tenth may be the process's own"
    assert go_on(near, fits, slow, constraints=asked) == [0, 1]
    assert go_on(row(1.0, "null", **memory(4e9)), row(2.0, "litert", **memory(3e9)), constraints=asked) == []
    far = [row(1.0, "null", **memory(4e9)), row(2.0, "litert", **memory(3e9))]
    assert go_on(*far, constraints=asked, keep=0.5) == [1]


@pytest.mark.parametrize(
    ("trusts", "factor"),
    [
        ([Trust.CLEAN, Trust.CLEAN], 1.1),
        ([Trust.CLEAN, Trust.DISTURBED], 1.3),
        ([Trust.THROTTLED], 1.3),
        ([Trust.UNKNOWN], 1.1),
        ([], 1.1),
    ],
)
def test_the_ratio_of_single_runs_may_be_off_by_a_tenth_or_three(trusts, factor):
    runs = [result(verdict=Verdict(trust, ())) for trust in trusts]
    assert racing.margin(runs) == pytest.approx(factor)
