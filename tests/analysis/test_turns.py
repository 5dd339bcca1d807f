"""The ratio of two variants in turns: of latencies, or of seconds a sample where their loads differ."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from edgescope.analysis.cells import alternation, variants
from edgescope.analysis.cells.objective import FASTEST, goal, wanted
from edgescope.records import Absent, Alternation, Machine, Measured, Status, Trial, Turn
from edgescope.records.result import ModelInfo
from edgescope.report.document import Mark, plain
from edgescope.report.variants import answer, comparison
from edgescope.stats import Interval
from edgescope.stats.alternation import pairs_for
from edgescope.wings.optimize import save
from edgescope.wings.optimize.verb import LEFT_OUT, answered, so_far, unreached
from edgescope.wings.recommend.candidates import choices
from edgescope.wings.recommend.recommendation import recommend
from making import result


def side(turns, **keys):
    taken = [Turn(block, 0, stop, queries, time_s) for block, stop, queries, time_s in turns]
    about = SimpleNamespace(turns=taken, partner="partner")
    return SimpleNamespace(trial=Trial(model="null", **keys), alternation=about, status=Status.OK)


def ratio(mine, theirs):
    return math.exp(alternation.turns(mine, theirs).ratio)


def test_latencies_are_compared_where_both_have_one_load():
    base, fast = side([(0, 10**9, 10, 0.1)]), side([(0, 10**9, 12, 0.05)])
    assert ratio(fast, base) == pytest.approx(2.0)


def test_seconds_a_sample_are_compared_where_loads_differ():
    """Four queries in flight wait for one another: each takes twice as long, and twice as many are done."""
    base, overlapped = side([(0, 10**9, 10, 0.1)]), side([(0, 10**9, 20, 0.2)], in_flight=4)
    assert ratio(overlapped, base) == pytest.approx(2.0)
    batched = side([(0, 10**9, 5, 0.2)], batch=8)
    assert ratio(batched, base) == pytest.approx(4.0)


def test_a_turn_without_a_right_answer_leaves_its_block_out():
    base, wrong = side([(0, 10**9, 10, 0.1)]), side([(0, 10**9, 20, 0.0)], in_flight=4)
    assert not alternation.turns(wrong, base)


def pair_of(number, slowed, faster, purpose=alternation.CONFIRMING, longer=1.5):
    """Return (candidate, baseline): 4 blocks of 10 ms and 10 / `faster`, the first so many `longer` times as long."""
    ends = []
    for name, seconds, backend in (
        ("baseline", 0.01, "torch_eager"),
        ("candidate", 0.01 / faster, "openvino"),
    ):
        times = [seconds * (longer if block < slowed else 1.0) for block in range(4) for _ in range(2)]
        places = (0, 3) if name == "baseline" else (1, 2)
        starts = [4 * block + place for block in range(4) for place in places]
        turns = tuple(Turn(at // 4, at, at + 1, 1, s) for at, s in zip(starts, times, strict=True))
        trial = Trial(model="null", backend=backend, replicate=number, turn_s=0.1)
        partner = f"{'candidate' if name == 'baseline' else 'baseline'}{number}"
        taken = Alternation(partner, name, purpose, turns, 0.0)
        metrics = {"latency_p50_s": Measured(seconds, "s", n=9)}
        ends.append(replace(result(trial, id_=f"{name}{number}", metrics=metrics), alternation=taken))
    return ends[1], ends[0]


def row_of(*pairs):
    found = variants.table([end for pair in pairs for end in pair])
    (row,) = [r for r in found.rows if r.cell != found.baseline]
    return row


def forked(end, **metrics):
    """Return a side of a pair as of a forked process, but for these metrics."""
    gone = dict.fromkeys(("load_s", "peak_rss_bytes"), Absent("forked"))
    return replace(end, metrics={**end.metrics, **gone, **metrics})


def test_memory_and_loading_are_of_the_runs_alone_where_every_process_was_forked():
    pairs = [tuple(map(forked, pair_of(n, 0, 4.0))) for n in range(3)]
    trial = replace(pairs[0][0].trial, turn_s=None, min_s=0.5, max_s=0.5)
    other = replace(trial, options={"threads": 1})
    shown = {"load_s": Measured(0.4, "s", n=1), "peak_rss_bytes": Measured(5e8, "bytes", n=1)}
    quicker = {"latency_p50_s": Measured(0.001, "s", n=9), "power_w": Measured(3.0, "W", n=1)}
    alone = (result(trial, metrics=shown | quicker), result(other, metrics={"load_s": Measured(9.0, "s")}))
    assert isinstance(row_of(*pairs)["load_s"], Absent)
    row = row_of(*pairs, alone)
    assert row["load_s"].value == 0.4 and row["peak_rss_bytes"].value == 5e8
    assert isinstance(row["power_w"], Absent) and row["speedup"].value == pytest.approx(4.0)
    much = {"peak_rss_bytes": Measured(9e9, "bytes", n=1)}
    crashed = result(replace(trial, replicate=1), status=Status.CRASHED, metrics=much)
    assert row_of(*pairs, (*alone, crashed))["peak_rss_bytes"].value == 5e8
    started = forked(pairs[0][0], load_s=Measured(0.3, "s", n=1))
    assert row_of((started, pairs[0][1]), *pairs[1:], alone)["load_s"].value == pytest.approx(0.3)
    bounded = variants.table(
        [e for p in (*pairs, alone) for e in p], wanted=wanted("latency", ["memory<=400MB"])
    )
    assert {r.label: r.broken for r in bounded.rows}["openvino fp32 b1"]


def test_a_choice_from_the_store_has_the_memory_of_the_run_alone_too():
    pairs = [tuple(map(forked, pair_of(n, 0, 4.0))) for n in range(3)]
    trial = replace(pairs[0][0].trial, turn_s=None, min_s=0.5, max_s=0.5, replicate=0)
    alone = result(trial, metrics={"peak_rss_bytes": Measured(5e8, "bytes", n=1)})
    every, asked = [end for pair in pairs for end in pair], wanted("latency", ["memory<=2GB"])
    for results, known in ((every, False), ([*every, alone], True)):
        rows = {row.label: row for row in choices(results, asked)[0]}
        assert isinstance(rows["openvino fp32 b1"]["peak_rss_bytes"], Measured) is known
        assert bool(rows["openvino fp32 b1"].broken) is not known
    assert rows["openvino fp32 b1"]["peak_rss_bytes"].value == 5e8


def said_of(*pairs):
    """Return the lines of the answer."""
    ends = tuple(end for pair in pairs for end in pair)
    return answer(answered(ends, FASTEST).chapter).short


def of_a_model(*faster):
    """Return the ends of pairs of a model that is not the harness."""
    ends = [end for n, ratio in enumerate(faster) for end in pair_of(n, 0, ratio)]
    return tuple(replace(end, trial=replace(end.trial, model="mobilenet_v2")) for end in ends)


@pytest.mark.parametrize("about", [1.02, 0.98])
def test_an_undecided_answer_says_so_first_then_the_nearest_and_what_would_decide(about):
    """The pick is the variant above 1, the baseline below; neither is shown to be faster."""
    found = answered(of_a_model(about - 0.08, about, about + 0.08), FASTEST)
    told = answer(found.chapter)
    assert "Nothing" in told.word and "baseline" in told.word
    text = " ".join(told.short)
    assert "openvino" in text + plain(told.pick) and "x [" in text and "--budget" in text
    assert "undecided against" not in text
    assert bool(found.pick.unproven) is (about > 1) is ("nearest" in plain(told.pick))


def test_a_decided_answer_is_no_guess():
    found = answered(of_a_model(4.0, 4.01, 4.02), FASTEST)
    assert not found.pick.unproven and answer(found.chapter).word == "Use"


def test_what_the_store_answered_advises_no_longer_budget():
    found = answered(of_a_model(3.5, 4.0, 4.5), FASTEST)
    assert any("--budget" in line for line in answer(found.chapter).short)
    assert not any("--budget" in line for line in answer(replace(found, measured=False).chapter).short)


@pytest.mark.parametrize(
    ("enough_s", "named"), [(180.0, "3min"), (180.1, "4min"), (41.0, "50s"), (60.0, "60s")]
)
def test_a_budget_that_is_named_is_no_shorter_than_what_it_needs(enough_s, named):
    assert unreached([Trial(model="m")], enough_s)[0].fix == f"--budget {named}"


@pytest.mark.parametrize("about", [0.98, 1.02, 4.0])
def test_the_card_of_a_guess_says_that_it_is_one(about):
    found = answered(of_a_model(about - 0.08, about, about + 0.08), FASTEST)
    page = save.card_of(found.variants, found.pick.row, FASTEST, found.results)
    page["artifact"] = {"file": "f", "bytes": 1, "sha256": "", "weights": {}, "left_out_of_run_py": []}
    page["measured"]["run_py"] = {"median_s": 1.0, "calls": 1}
    page |= {"check": {"absent": ""}, "valid_for": {}, "preprocess": None}
    said = "A guess" in save.card_text(page)
    assert said is bool(page["guess"]) is (about < 2)


def test_a_speed_up_is_of_the_turns_at_full_speed_and_says_what_the_others_were():
    row = row_of(*(pair_of(n, 0, 4.0 + 0.01 * n) for n in range(3)), pair_of(3, 4, 3.0))
    assert row.pairs == "3 of 4 pairs in turns" and row["speedup"].value == pytest.approx(4.01, rel=1e-3)
    (note,) = row.notes
    assert "W-PAIR-3" in note and "in 25% of the turns of openvino fp32 b1" in note
    assert "1.5 times as long" in note and "was 3x as fast" in note and "the other turns" in note


def test_where_no_confirming_pair_ran_at_full_speed_all_count_and_it_is_said():
    """The pair that chose the variant shows what full speed is."""
    chose = pair_of(0, 0, 4.0, alternation.SELECTING)
    row = row_of(chose, *(pair_of(n, 4, 3.0 + 0.01 * n) for n in (1, 2, 3)))
    assert row.pairs == "3 pairs in turns" and row["speedup"].value == pytest.approx(3.02, rel=1e-3)
    (note,) = row.notes
    assert "in 100% of the turns" in note and variants.SELDOM in note and "--budget" in note


def test_full_speed_is_what_any_pair_of_the_two_reached():
    """The least slowed of the confirming pairs is not at full speed: a selecting one was."""
    chose = pair_of(0, 0, 4.0, alternation.SELECTING)
    slowed = [pair_of(n, 4, 3.0) for n in (1, 2, 3)] + [pair_of(4, 4, 3.5, longer=1.2)]
    row = row_of(chose, *slowed)
    mean = (3.0**3 * 3.5) ** 0.25
    assert row.pairs == "4 pairs in turns" and row["speedup"].value == pytest.approx(mean, rel=1e-3)
    told = so_far([end for pair in (chose, *slowed) for end in reversed(pair)], chose[1])
    assert f"{mean:.3g}x so far" in told and "(4 pairs in turns)" in told


def away(pair, seconds, kind="yes"):
    """Return the pair as of a virtual machine whose CPUs were so far apart."""
    there = Machine({"cpu": {"virtualised": kind}}, {})
    far = {"core_to_core_s": Measured(seconds, "s")}
    return tuple(replace(end, machine=there, metrics={**end.metrics, **far}) for end in pair)


def test_a_ratio_whose_cpus_a_hypervisor_had_apart_in_most_pairs_says_so():
    found = [pair_of(n, 0, 4.0 + 0.01 * n) for n in range(4)]
    far, near = ([away(p, ns * 1e-9) for p in found] for ns in (207, 25))
    (note,) = row_of(*far[:3], near[3]).notes
    assert "W-PAIR-4" in note and "in 3 of 4 pairs of openvino fp32 b1 (207 ns from one to the other;" in note
    assert not row_of(*far[:2], *near[2:]).notes
    assert not row_of(*(away(p, 207e-9, "no") for p in found)).notes


def test_a_burst_is_not_told():
    row = row_of(*(pair_of(n, int(n == 0), 4.0 + 0.01 * n) for n in range(6)))
    assert row.pairs == "6 pairs in turns" and not row.notes


def test_of_several_pairs_those_at_full_speed_choose():
    found = [pair_of(0, 4, 3.0), pair_of(1, 0, 4.0)]
    latency = goal("latency")
    assert alternation.better(found, latency) == (pytest.approx(math.log(4.0)), 1)
    assert alternation.better(found[:1], latency) == (pytest.approx(math.log(3.0)), 1)
    assert alternation.better([], latency) == (-math.inf, 0)


def spread_out(*ratios, seconds=5.0):
    """Return pairs at full speed that begin so many seconds apart."""
    begins = [f"2026-01-01T00:00:{seconds * n:09.6f}+00:00" for n in range(len(ratios))]
    found = [pair_of(n, 0, ratio) for n, ratio in enumerate(ratios)]
    return [
        tuple(replace(end, started_at=at) for end in pair) for at, pair in zip(begins, found, strict=True)
    ]


def test_a_wide_interval_says_which_pairs_would_make_it_narrow():
    pairs = spread_out(*(4.0 * math.exp(0.08 * (-1) ** n) for n in range(6)))
    row = row_of(*pairs)
    found = alternation.further(row.turns, row["speedup"])
    half = math.log(row["speedup"].hi / row["speedup"].lo) / 2
    by_root = 6 * (half / math.log(1.05)) ** 2 - 6
    assert 0.5 * by_root <= found.pairs <= by_root  # Student's t asks for less with more pairs
    assert found.seconds == pytest.approx(5.0 * found.pairs)
    said = said_of(*pairs)
    assert (
        f"about {found.pairs} more pairs" in said[1] and "of --budget" in said[1] and "within 5%" in said[1]
    )


def test_a_narrow_interval_asks_for_nothing():
    pairs = spread_out(*(4.0 + 0.001 * n for n in range(6)))
    row = row_of(*pairs)
    assert alternation.further(row.turns, row["speedup"]) is None
    assert not any("more pair" in text for text in said_of(*pairs))


def test_a_wide_interval_of_runs_one_after_another_names_no_pairs():
    assert alternation.further((), Measured(4.0, "1", 3.0, 5.3, 5)) is None


def test_pairs_that_did_not_count_are_reckoned_with():
    """Three of four pairs count: a fourth of the further ones will not, either."""
    counted = spread_out(*(4.0 * math.exp(0.08 * (-1) ** n) for n in range(4)))
    said = row_of(*counted)["speedup"]
    alone, beside = (alternation.further(found, said) for found in (counted, [*counted, *counted[-1:]]))
    assert beside.pairs == math.ceil(alone.pairs * 5 / 4)


def shown_as(pair, seconds):
    """Return the pair whose candidate's own median is this one."""
    mine, theirs = pair
    return replace(mine, metrics={"latency_p50_s": Measured(seconds, "s", n=9)}), theirs


@pytest.mark.parametrize(
    ("logs", "leads", "ties", "undecided"),
    [
        ((0.28, 0.3, 0.32), True, 0, 0),
        ((-0.28, -0.3, -0.32), False, 0, 0),
        (
            (0.1, 0.2, 0.3),
            True,
            0,
            1,
        ),  # 95 % of Student's t with two degrees of freedom holds one, 90 % does not
        ((-0.3, -0.2, -0.1), False, 0, 1),
        ((-0.001, 0.0, 0.002), True, 1, 0),
        ((-0.008, 0.0, 0.009), True, 1, 0),  # 90 % lie within the two per cent, 95 % do not
        ((-0.06, 0.0, 0.062), True, 0, 1),
    ],
)
@pytest.mark.parametrize("median_s", [0.02, 0.005])
def test_of_two_that_took_turns_the_faster_one_leads_whatever_their_medians_are(
    logs, leads, ties, undecided, median_s
):
    pairs = [shown_as(pair_of(n, 0, math.exp(log)), median_s) for n, log in enumerate(logs)]
    found = recommend([end for pair in pairs for end in pair], wanted("latency"))
    assert found.pick.trial.backend == ("openvino" if leads else "torch_eager")
    assert (len(found.ties), len(found.undecided)) == (ties, undecided)
    (told,) = [text for text in found.reasons if "in turns" in text]
    assert "(3 pairs in turns" in told and told.endswith(")")
    assert float(told.partition("x")[0].split()[0]) == pytest.approx(math.exp(abs(sum(logs) / 3)), rel=5e-3)


def test_turns_say_nothing_of_watts():
    pairs = [shown_as(pair_of(n, 0, 1.3), 0.02) for n in range(3)]
    ends = [
        replace(
            end, metrics=end.metrics | {"power_w": Measured(3.0 + (end.trial.backend == "openvino"), "W")}
        )
        for pair in pairs
        for end in pair
    ]
    found = recommend(ends, wanted("watts"))
    assert found.pick.trial.backend == "torch_eager" and "in turns" not in " ".join(found.reasons)


def test_a_pair_counts_by_what_its_first_was_measured_for():
    chose, confirmed = pair_of(0, 0, 2.0, alternation.SELECTING), pair_of(1, 0, 2.0)
    mixed = [(chose[0], confirmed[1]), (confirmed[0], chose[1])]
    assert alternation.decisive(mixed) == mixed[1:] and alternation.decisive(mixed[:1]) == mixed[:1]


def test_a_ratio_in_turns_has_its_interval_where_the_pairs_bound_it():
    for count in (1, 3):
        pairs = [shown_as(pair_of(n, 0, 1.25 + 0.01 * n), 0.02) for n in range(count)]
        found = recommend([end for pair in pairs for end in pair], wanted("latency"))
        (told,) = [text for text in found.reasons if "in turns" in text]
        assert ("x the speed" in told and "[" in told) is (count == 3) and ("in turns;" in told) is (
            count == 1
        )


def apart(mine, theirs, name="power_w"):
    """A pair of two figures, measured one after the other."""
    return tuple(
        result(Trial(model="null", replicate=i), metrics={} if x is None else {name: Measured(x, "W")})
        for i, x in enumerate((mine, theirs))
    )


@pytest.mark.parametrize(
    ("pairs", "better"),
    [
        ([apart(2.0, 8.0), apart(2.0, 2.0)], (math.log(4) / 2, 2)),
        (
            [apart(2.0, 8.0), apart(None, 2.0), apart(2.0, None), apart(0.0, 2.0), apart(2.0, 0.0)],
            (math.log(4), 1),
        ),
        ([apart(2.0, -1.0), apart(-2.0, 1.0)], (-math.inf, 0)),
        ([], (-math.inf, 0)),
    ],
)
def test_pairs_say_how_many_times_better_where_both_have_the_figure(pairs, better):
    watts = SimpleNamespace(name="power_w", of=("power_w",), higher=False)
    assert alternation.better(pairs, watts) == (pytest.approx(better[0]), better[1])
    more = SimpleNamespace(name="power_w", of=("power_w",), higher=True)
    assert alternation.better(pairs, more)[0] == pytest.approx(-better[0] if better[1] else -math.inf)


def test_of_speed_pairs_in_turns_say_it_by_those_at_full_speed():
    full, slow = [pair_of(i, 0, 2.0) for i in range(3)], pair_of(3, 4, 2.0)
    logs, count = alternation.better([*full, slow], goal("latency"))
    assert (logs, count) == (pytest.approx(math.log(2)), 3)
    alone = [(mine, replace(theirs, alternation=None)) for mine, theirs in full]
    assert alternation.better(alone, goal("latency"))[1] == 0  # their baseline took no turns
    runs = [tuple(replace(end, alternation=None) for end in pair) for pair in full]
    assert alternation.better(runs, goal("latency")) == (pytest.approx(math.log(2)), 3)


def test_a_side_in_turns_is_typically_as_fast_as_its_median_turn():
    ours, base = pair_of(0, 1, 4.0)
    assert alternation.typical_s(base) == pytest.approx(0.01) and alternation.typical_s(
        ours
    ) == pytest.approx(0.0025)
    assert alternation.typical_s(replace(ours, alternation=None)) == 0.0


def bound(value, half, n=6):
    return Interval(value * math.exp(-half), value * math.exp(half), value, n, n)


@pytest.mark.parametrize(
    ("ratio", "pairs"),
    [
        (Interval(0.0, math.inf, 2.0, 1, 1, False), 2),
        (Interval(0.0, math.inf, 2.0, 2, 2, False), 1),
        (Interval(0.0, 4.0, 2.0, 6, 6), None),
        (Interval(1.0, math.inf, 2.0, 6, 6), None),
        (bound(2.0, 0.001), 1),
    ],
)
def test_how_many_pairs_would_decide(ratio, pairs):
    assert alternation.deciding(ratio) == pairs


@pytest.mark.parametrize("value", [1.05, 1 / 1.05, 1.0])
def test_what_decides_is_to_bound_the_ratio_by_its_distance_from_1_or_from_2_percent(value):
    half, gap = 0.2, abs(math.log(value))
    within = max(gap, math.log1p(0.02) - gap)
    assert alternation.deciding(bound(value, half)) == pairs_for(half, 6, within, gap) - 6


@pytest.mark.parametrize(("half", "asks"), [(0.0487, False), (0.049, True)])
def test_five_per_cent_either_way_is_narrow_enough(half, asks):
    found = [pair_of(i, 0, 2.0) for i in range(6)]
    begun = [
        (replace(a, started_at=f"2026-01-01T00:00:{5 * i:02}+00:00"), b) for i, (a, b) in enumerate(found)
    ]
    said = Measured(1.2, "1", 1.2 * math.exp(-half), 1.2 * math.exp(half), 6)
    more = alternation.further(begun, said)
    assert (more is not None) is asks
    if more:
        assert more.pairs == pairs_for(half, 6, math.log1p(0.05), math.log(1.2)) - 6 >= 1
        assert more.seconds == pytest.approx(5 * more.pairs)
    assert (
        alternation.further(begun, Measured(1.2, "1", n=6)) is None and alternation.further([], said) is None
    )
    twelve = alternation.further([*begun, *begun], replace(said, lo=0.6, hi=2.4))
    once = alternation.further(begun, replace(said, lo=0.6, hi=2.4))
    assert twelve.pairs == 2 * once.pairs  # one of two counted


@pytest.mark.parametrize(("about", "chip"), [(1.02, "nearest"), (4.0, "pick")])
def test_what_is_not_shown_to_be_faster_is_not_marked_the_pick(about, chip):
    found = answered(of_a_model(about - 0.08, about, about + 0.08), FASTEST)
    marks = {
        m.text for row in comparison(found.chapter).rows for m in row.cells[0].value if isinstance(m, Mark)
    }
    assert chip in marks and not {"pick", "nearest"} - {chip} & marks


@pytest.mark.parametrize("ending", [".md", pytest.param(".html", marks=pytest.mark.slow)])
def test_a_report_names_what_was_not_tried(tmp_path, ending):
    found = answered(
        of_a_model(4.0, 4.01, 4.02), FASTEST, unreached([Trial(model="m", backend="openvino")], 90.0)
    )
    text = found.report(tmp_path / f"r{ending}").read_text()
    assert found.not_here[0].label in text and LEFT_OUT in text


def test_of_a_file_whose_data_judge_it_the_weights_are_not_known():
    info = ModelInfo(name="m", task="unknown", trained=True, source="m.onnx; judged on x", digest="0")
    assert info.weights == "weights not known" and replace(info, task="classify").weights == "trained weights"
