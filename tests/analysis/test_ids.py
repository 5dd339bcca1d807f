"""A short name means one result; what several share is refused with the choices."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from edgescope.analysis.cells.ids import _listed, _prefix, matching, one, short_ids, starting_with
from edgescope.errors import UsageError
from edgescope.records import Machine, Trial
from making import result


def stored(*pairs: tuple[Trial, str]):
    return [result(t, id_=f"{t.id}-20260101T00000{i}-{tail}") for i, (t, tail) in enumerate(pairs)]


PLAIN = [Trial(model="m", replicate=n) for n in range(3)]


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["aaaaaa", "bbbbbb", "c0ffee", "000001"])), max_size=6
    )
)
def test_a_short_name_means_its_result_alone(picked):
    every = stored(*((PLAIN[n], tail) for n, tail in picked))
    names = short_ids(every)
    assert len(set(names.values())) == len(names) == len(every)
    for r in every:
        assert matching(every, names[r.id]) == [r]


def test_runs_of_one_trial_have_names_of_their_own():
    every = stored((PLAIN[0], "aaaaaa"), (PLAIN[0], "bbbbbb"), (PLAIN[0], "cccccc"))
    assert list(short_ids(every).values()) == ["aaaaaa", "bbbbbb", "cccccc"]
    with pytest.raises(UsageError) as told:
        matching(every, PLAIN[0].id[:12])
    assert all(name in str(told.value) for name in ("aaaaaa", "bbbbbb", "cccccc"))


def test_a_cell_means_all_its_replicates():
    every = stored(*((t, f"{i:06d}") for i, t in enumerate(PLAIN)))
    assert matching(every, PLAIN[0].cell[:8]) == every
    assert matching(every, every[1].id[:20]) == [every[1]]
    with pytest.raises(UsageError, match="E-CMP-4"):
        matching(every, "zzzz")


def test_of_many_results_eight_are_listed_and_the_others_counted():
    every = [result(Trial(model="m", backend="null", batch=n + 1), id_=f"r{n}") for n in range(11)]
    names = {r.id: r.id for r in every}
    assert _listed(every, names).endswith("; and 3 more") and _listed(every, names).count("; ") == 8
    assert "more" not in _listed(every[:8], names) and _listed(every[:8], names).count("; ") == 7


def test_an_id_without_a_tail_of_its_own_is_as_long_as_its_neighbours_ask():
    """Six characters at least, one more than is shared with the id before or after it."""
    every = [
        result(Trial(model="m", backend="null", batch=n + 1), id_=id_)
        for n, id_ in enumerate(("zzzzzz0123", "zzzzzzz", "zzzzzzz1", "zy"))
    ]
    assert list(short_ids(every).values()) == ["zzzzzz0", "zzzzzzz", "zzzzzzz1", "zy"]
    starts = ["abcdefgh", "abcdefgi", "b"]
    assert [_prefix(i, starts) for i in starts] == ["abcdefgh", "abcdefgi", "b"]
    assert _prefix("abcdefgh01", ["abcdefg", "abcdefgh01", "abd"]) == "abcdefgh"
    assert _prefix("abcdefgh01", ["abcdefgh01", "abcdefghi"]) == "abcdefgh0"
    assert _prefix("abcdefgh01", ["abcdefgh01"]) == "abcdef"


def test_the_newest_is_the_latest_and_of_two_as_new_the_last_by_name():
    old, a, b = (
        result(PLAIN[n], id_=f"{id_}-0", started_at=f"2026-01-0{day}T00:00:00.000+00:00")
        for n, (id_, day) in enumerate((("z", 1), ("a", 2), ("b", 2)))
    )
    assert one([b, a, old], "latest") is b and matching([b, old, a], "latest") == [b]
    with pytest.raises(UsageError) as told:
        one([], "latest")
    assert told.value.code == "E-STORE-5" and "holds no result" in str(told.value)


def test_one_result_is_meant_or_the_choices_are_told():
    every = stored(*((t, f"{i:06d}") for i, t in enumerate(PLAIN)))
    assert one(every, "000001") is every[1] and one(every, every[2].id) is every[2]
    assert starting_with(every, PLAIN[0].cell) == every and starting_with(every, every[0].trial.id) == [
        every[0]
    ]
    for typed, code in ((PLAIN[0].cell, "E-STORE-9"), ("nothing", "E-STORE-5"), ("00000", "E-STORE-5")):
        with pytest.raises(UsageError) as told:
            one(every, typed)
        assert told.value.code == code


def test_a_cell_of_two_machines_is_refused():
    here, there = stored((PLAIN[0], "aaaaaa"), (PLAIN[1], "bbbbbb"))
    there = replace(there, machine=Machine({"cpu": "else"}, {}))
    with pytest.raises(UsageError) as told:
        matching([here, there], PLAIN[0].cell)
    assert told.value.code == "E-CMP-3" and matching([here, there], "bbbbbb") == [there]


@pytest.mark.parametrize(("many", "more"), [(8, ""), (9, "; and 1 more")])
def test_the_ninth_result_is_the_first_that_is_only_counted(many, more):
    every = [result(Trial(model=f"m{n}#0123", backend="null"), id_=f"r{n}") for n in range(many)]
    text = _listed(every, {r.id: r.id for r in every})
    assert text.startswith("r0: m0 null fp32 b1 #0, ") and text.endswith(more or every[-1].started_at[:16])
    assert "r7: m7" in text and "r8" not in text
