"""A short name means one result; what several share is refused with the choices."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from edgescope.analysis.cells.ids import _listed, matching, short_ids
from edgescope.errors import UsageError
from edgescope.records import Trial
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
