"""Searches of one question: the newest goes on, another begins where it is whole."""

import pytest

from edgescope.analysis.capacity.promises import promises
from edgescope.isolate.fresh import Limits
from edgescope.records import Trial
from edgescope.runner.run import Cells
from edgescope.search.capacity import APART, Search, going_on
from edgescope.search.capacity_question import Question
from edgescope.store.results import Store
from queue_server import WHERE, QueueServer

ASKED = Question(Trial(model="null", backend="null", warmup=0.0), 15.0, promises(["p99<40ms"]), most=2)


def searched(folder, asked=ASKED, *, fresh=False, **server):
    """What ran, and how many runs came from the store."""
    runner = QueueServer(0.005, **server)
    cells = Cells(Store(folder), Limits(), runner, WHERE)
    search = Search(going_on(asked, cells, fresh=fresh), cells)
    search.run()
    return runner.ran, search.stored


def test_a_fresh_search_resumes_is_the_newest_and_asks_the_same(tmp_path):
    first, stored = searched(tmp_path)
    assert stored == 0 and len(first) > 2
    with pytest.raises(KeyboardInterrupt):
        searched(tmp_path, fresh=True, stop_after=2)
    second, stored = searched(tmp_path, fresh=True)
    assert stored == 2 and len(second) == len(first) - 2
    assert {t.replicate // APART for t in second} == {1} and second[-1].cell == first[-1].cell
    assert searched(tmp_path) == ([], len(first))  # the newest answers
    third, stored = searched(tmp_path, fresh=True)
    assert stored == 0 and {t.replicate // APART for t in third} == {2}


def test_another_question_is_not_asked_again(tmp_path):
    searched(tmp_path)
    other = Question(ASKED.base, 14.0, ASKED.promised, most=2)
    searched(tmp_path, other, fresh=True)
    ran, stored = searched(tmp_path)
    assert not ran and stored > 2
